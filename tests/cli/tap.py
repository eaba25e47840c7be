"""A very small TAP harness for tests of the command."""

import os
import shutil
import subprocess
import sys
import tempfile
import traceback


class Skip(Exception):
    pass


CASES = []


def case(function):
    """Decorator: a test case; its name is the claim that it tests."""
    CASES.append(function)
    return function


def main():
    wanted = sys.argv[1:]
    cases = [c for c in CASES if not wanted or c.__name__ in wanted]
    print(f"1..{len(cases)}")
    failed = 0
    for number, function in enumerate(cases, 1):
        folder = tempfile.mkdtemp(prefix="penstock-cli-")
        try:
            function(folder)
            print(f"ok {number} - {function.__name__}", flush=True)
        except Skip as reason:
            print(f"# skipped: {reason}")
            print(f"ok {number} - {function.__name__} # SKIP {reason}",
                  flush=True)
        except Exception:
            failed += 1
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            print(f"not ok {number} - {function.__name__}", flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


BUILD = os.environ.get("PENSTOCK_TEST_BUILD", "build")
SOURCE = os.environ.get("PENSTOCK_TEST_SOURCE", ".")
PENSTOCK = os.path.join(BUILD, "tools/penstock/penstock")
MAKE_PHOTOS = os.path.join(BUILD, "examples/make_photos")


def penstock(*arguments, **kwargs):
    """Run the command; returns the completed process, output as text."""
    kwargs.setdefault("timeout", 120)
    kwargs.setdefault("stdin", subprocess.DEVNULL)
    return subprocess.run([PENSTOCK, *map(str, arguments)],
                          stdout=kwargs.pop("stdout", subprocess.PIPE),
                          stderr=subprocess.PIPE,
                          text=kwargs.pop("text", True),
                          errors=kwargs.pop("errors", "replace"), **kwargs)


def equal(got, wanted, what=""):
    if got != wanted:
        raise AssertionError(f"{what}: got {got!r}, wanted {wanted!r}")


def true(condition, what):
    if not condition:
        raise AssertionError(what)
