#!/usr/bin/env python3
"""The example of the public allocator, and what its guide says of it."""

import os
import re
import subprocess

from tap import BUILD, SOURCE, Skip, case, equal, main, true

EMULATOR = os.environ.get("PENSTOCK_TEST_EMULATOR",
                          os.path.join(BUILD, "emu/libpenstock-emu.so"))


def own_cuda(*arguments, **variables):
    return subprocess.run(
        [os.path.join(BUILD, "examples/own_cuda"), *arguments],
        env={**os.environ, **variables}, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, timeout=120)


@case
def a_program_of_ones_own_uses_the_pools(folder):
    for mode in "eager", "lazy", "random:5":
        done = own_cuda("emulated", EMULATOR, PENSTOCK_EMU_MODE=mode,
                        PENSTOCK_EMU_REPORT="stderr")
        equal(done.stderr, "")
        equal(done.returncode, 0)
        lines = done.stdout.splitlines()
        # Two host blocks and one on the device serve all frames.
        true(lines[0].startswith("host: 200 blocks given, 2 allocations of"),
             lines[0])
        true(lines[1].startswith("device: 100 blocks given, 1 allocations"),
             lines[1])
        equal(lines[2], "all frames are as expected")


@case
def without_a_driver_it_says_so(folder):
    done = own_cuda("emulated", os.path.join(folder, "none.so"))
    equal(done.returncode, 1)
    true("none.so" in done.stderr, done.stderr)


@case
def the_example_builds_from_the_public_headers_alone(folder):
    # Nothing of CUDA is on the include path, and no library but the loader.
    include = os.path.join(SOURCE, "include")
    done = subprocess.run(
        ["cc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-I", include, "-c",
         os.path.join(SOURCE, "examples/own_cuda.c"), "-o",
         os.path.join(folder, "own_cuda.o")],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if "not found" in done.stdout:
        raise Skip("no compiler")
    equal(done.stdout, "")
    equal(done.returncode, 0)


@case
def every_function_of_the_guide_is_in_the_header(folder):
    with open(os.path.join(SOURCE, "docs/guide/allocator.md")) as f:
        guide = f.read()
    headers = ""
    for name in "pool.h", "device.h", "ledger.h", "frame.h":
        with open(os.path.join(SOURCE, "include/penstock", name)) as f:
            headers += f.read()
    named = set(re.findall(r"`(pen_\w+)\(", guide))
    true(len(named) >= 8, named)
    for function in named:
        true(re.search(r"\b%s\(" % function, headers), function)


main()
