"""A leak fails a test program, and only at --detect-memory-leaks=1."""

import os
import subprocess
import sys

SOURCE = os.environ.get("PENSTOCK_TEST_SOURCE", ".")
BUILD = os.environ.get("PENSTOCK_TEST_BUILD", "build")
sys.path.insert(0, os.path.join(SOURCE, "tests/cli"))
from tap import case, equal, main, true  # noqa: E402


def leaky(*arguments):
    """Run the program; how it ended, and what it said."""
    done = subprocess.run(
        [os.path.join(BUILD, "tests/unit/base/leaky"), *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        timeout=60)
    return done.returncode, done.stdout


def fails_for_a_leak(*arguments):
    status, text = leaky(*arguments)
    equal(status, 1, text)
    true("not ok 1" in text, text)
    true("ledger" in text, text)


@case
def what_is_left_in_a_ledger_fails_the_test(folder):
    fails_for_a_leak("--only=something*")
    fails_for_a_leak("--only=something*", "--detect-memory-leaks=1")
    fails_for_a_leak("--only=something*", "--detect_memory_leaks=1")


@case
def a_ledger_that_is_not_destroyed_fails_the_test(folder):
    fails_for_a_leak("--only=a_ledger*")


@case
def at_0_leaks_pass(folder):
    equal(leaky("--detect-memory-leaks=0")[0], 0)
    equal(leaky("--detect_memory_leaks=0")[0], 0)


@case
def what_is_clean_passes(folder):
    equal(leaky("--only=nothing*", "--detect-memory-leaks=1")[0], 0)


@case
def another_value_is_refused(folder):
    status, text = leaky("--only=nothing*", "--detect-memory-leaks=2")
    true(status not in (0, 1), text)
    true("--detect-memory-leaks" in text, text)


main()
