#!/usr/bin/env python3
"""Build and run everything that `make check` promises, then print the count.

Suites: plain (gcc), asan (gcc, address and undefined behaviour), tsan (gcc,
threads), clang (build with warnings as errors), style (formatter, linter),
waits (every wait for the device is missed by a test when it is left out).
Arguments name the suites to run; none means all.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

SUITES = {
    "plain": {"cc": "gcc", "options": []},
    "asan": {
        "cc": "gcc",
        "options": ["-Db_sanitize=address,undefined", "-Db_lundef=false",
                    "-Dchecked_kernels=true", "-Dnvcc=disabled"],
    },
    "tsan": {
        "cc": "gcc",
        "options": ["-Db_sanitize=thread", "-Db_lundef=false",
                    "-Dnvcc=disabled"],
        # The planner has one thread and no lock: minutes of nothing to find.
        "without": "planner",
    },
    "clang": {"cc": "clang", "options": ["-Dnvcc=disabled"], "run": False},
}
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:detect_stack_use_after_return=1:"
                    "abort_on_error=0:handle_segv=1",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
}
# How many times its own limit a test may take: machines are busy, and the full
# counts take a hundred times as long.
PATIENCE = 40 if os.environ.get("PENSTOCK_TEST_LONG") == "1" else 4


class Count:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def __str__(self):
        return (f"{self.passed} passed, {self.failed} failed, "
                f"{self.skipped} skipped")


def run(command, **kwargs):
    return subprocess.run(command, cwd=ROOT, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          **kwargs)


def build(name, suite):
    folder = os.path.join(ROOT, f"build-{name}")
    if not os.path.exists(os.path.join(folder, "build.ninja")):
        result = run(["meson", "setup", folder, *suite["options"]],
                     env={**os.environ, "CC": suite["cc"]})
        if result.returncode:
            shutil.rmtree(folder, ignore_errors=True)
            return folder, result.stdout
    result = run(["ninja", "-C", folder])
    return folder, result.stdout if result.returncode else None


def parse_tap(text, count):
    """Add the results of a TAP stream; return the names that failed."""
    failed = []
    planned = None
    seen = 0
    for line in text.splitlines():
        plan = re.match(r"1\.\.(\d+)", line)
        if plan and planned is None:
            planned = int(plan.group(1))
        result = re.match(r"(not )?ok \d+(?: -)? ?(.*)", line)
        if not result:
            continue
        seen += 1
        if re.search(r"# *SKIP", line, re.IGNORECASE):
            count.skipped += 1
        elif result.group(1):
            count.failed += 1
            failed.append(result.group(2))
        else:
            count.passed += 1
    if planned is not None and seen < planned:
        count.failed += planned - seen
        failed.append(f"{planned - seen} tests did not report")
    return failed, planned is not None


def run_test(test):
    count = Count()
    env = {**os.environ, **ENVIRONMENT, **test["env"]}
    start = time.monotonic()
    process = subprocess.Popen(test["cmd"], cwd=test["workdir"] or ROOT,
                               env=env, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True,
                               errors="replace", start_new_session=True)
    try:
        output, _ = process.communicate(timeout=test["timeout"] * PATIENCE)
        code = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        code = "timeout"
    failed, tap = parse_tap(output, count)
    if not tap:
        if code == 0:
            count.passed += 1
        elif code == 77:
            count.skipped += 1
        else:
            count.failed += 1
            failed.append(f"exit {code}")
    elif code != 0 and not count.failed:
        count.failed += 1
        failed.append(f"exit {code}")
    return test, count, failed, output, time.monotonic() - start


def run_suite(name, folder, without=None):
    listing = run(["meson", "introspect", folder, "--tests"])
    tests = [test for test in json.loads(listing.stdout)
             if not without or not test["name"].startswith(without)]
    total = Count()
    workers = max(1, (os.cpu_count() or 2))
    with ThreadPoolExecutor(workers) as pool:
        for test, count, failed, output, seconds in pool.map(run_test, tests):
            total.add(count)
            print(f"  {name} {test['name']:<32} {count}  {seconds:.1f} s",
                  flush=True)
            for line in output.splitlines():
                if "# skipped:" in line or "# SKIP" in line:
                    print(f"      {line.strip()}")
            if failed:
                print(output)
                print(f"  FAILED in {name} {test['name']}: "
                      + "; ".join(failed), flush=True)
    return total


def tracked(*patterns):
    listing = run(["git", "ls-files", *patterns])
    return [f for f in listing.stdout.split() if os.path.exists(f)]


def style():
    """Formatter and linter over the tracked sources; one result for each."""
    total = Count()
    checks = []
    sources = tracked("*.c", "*.h", "*.cu")
    result = run(["clang-format", "--dry-run", "-Werror", *sources])
    checks.append(("clang-format", result.returncode, result.stdout))
    folder = os.path.join(ROOT, "build-clang")
    units = tracked("src/*.c", "emu/*.c", "tools/*.c", "examples/*.c")
    with open(os.path.join(folder, "compile_commands.json")) as f:
        known = {os.path.realpath(os.path.join(c["directory"], c["file"]))
                 for c in json.load(f)}
    units = [u for u in units if os.path.realpath(os.path.join(ROOT, u))
             in known]
    with ThreadPoolExecutor(os.cpu_count() or 2) as pool:
        results = list(pool.map(
            lambda u: run(["clang-tidy", "--quiet", "-p", folder, u]), units))
    bad = [r.stdout for r in results if r.returncode]
    checks.append(("clang-tidy", len(bad), "\n".join(bad)))
    for name, code, text in checks:
        if code:
            total.failed += 1
            print(text)
            print(f"  FAILED {name}")
        else:
            total.passed += 1
            print(f"  style {name}: ok")
    return total


def waits():
    """scripts/wait-sites; one result for each wait."""
    count = Count()
    result = run([os.path.join(ROOT, "scripts", "wait-sites")])
    print(result.stdout, flush=True)
    seen = re.search(r"^(\d+) of (\d+) waits", result.stdout, re.MULTILINE)
    if seen:
        count.passed += int(seen.group(1))
        count.failed += int(seen.group(2)) - int(seen.group(1))
    if result.returncode and not count.failed:
        count.failed += 1
    if count.failed:
        print("  FAILED waits")
    return count


OTHERS = {"style": style, "waits": waits}


def main():
    wanted = sys.argv[1:] or [*SUITES, *OTHERS]
    unknown = [w for w in wanted if w not in SUITES and w not in OTHERS]
    if unknown:
        print(f"check.py: no suite {unknown[0]}; there are "
              f"{', '.join([*SUITES, *OTHERS])}", file=sys.stderr)
        return 3
    total = Count()
    summary = []
    for name in wanted:
        start = time.monotonic()
        print(f"== {name}", flush=True)
        count = Count()
        if name in OTHERS:
            count = OTHERS[name]()
        else:
            folder, problem = build(name, SUITES[name])
            if problem is not None:
                print(problem)
                print(f"  FAILED to build {name}")
                count.failed += 1
            elif SUITES[name].get("run", True):
                count = run_suite(name, folder, SUITES[name].get("without"))
            else:
                count.passed += 1
        total.add(count)
        summary.append(f"{name:<6} {count}  ({time.monotonic() - start:.0f} s)")
    print()
    for line in summary:
        print(line)
    print(total)
    return 1 if total.failed or not total.passed else 0


if __name__ == "__main__":
    sys.exit(main())
