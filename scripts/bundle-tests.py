#!/usr/bin/env python3
"""bundle-tests.py BUILD TARGET < introspection: copy the compiled tests.

Writes TARGET/run, which runs them all on another machine with the libraries
of the bundle, and prints the count. Test data is taken from
PENSTOCK_TEST_DATA; the device from PENSTOCK_TEST_DEVICE.
"""

import json
import os
import shutil
import sys

RUN = '''#!/bin/sh
# Run the tests of this bundle. PENSTOCK_TEST_DEVICE (0, UUID, emulated) and
# PENSTOCK_TEST_DATA are passed on; arguments are globs of program names.
here=$(cd "$(dirname "$0")" && pwd)
export LD_LIBRARY_PATH="$here/../lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export PENSTOCK_TEST_EMULATOR="$here/../lib/libpenstock-emu.so"
export PENSTOCK_TEST_SOURCE="$here" PENSTOCK_TEST_BUILD="$here"
log=$(mktemp)
[ $# -gt 0 ] || set -- '*'
device=${PENSTOCK_TEST_DEVICE:-emulated}
for pattern; do
    for test in "$here"/test_$pattern; do
        [ -x "$test" ] || continue
        case $(basename "$test") in
        test_emu_*) PENSTOCK_TEST_DEVICE=emulated ;; # of the emulator itself
        *) PENSTOCK_TEST_DEVICE=$device ;;
        esac
        unset PENSTOCK_TEST_KEEP_CONTEXT
        case $(basename "$test") in
        test_mod_* | test_*pipeline | test_custom*)
            export PENSTOCK_TEST_KEEP_CONTEXT=1 ;; # they open many devices
        esac
        export PENSTOCK_TEST_DEVICE
        start=$(date +%s)
        timeout "${PENSTOCK_TEST_TIMEOUT:-60}" "$test" >"$log.one" 2>&1
        code=$?
        echo "# $(basename "$test") $(($(date +%s) - start)) s" |
            tee -a "$log"
        cat "$log.one" | tee -a "$log"
        if [ $code -ne 0 ] && ! grep -q '^not ok' "$log.one"; then
            echo "not ok 0 - $(basename "$test") ended with $code" |
                tee -a "$log"
        fi
    done
done
skipped=$(grep -ciE '^(not )?ok .*# *skip' "$log")
failed=$(grep -iE '^not ok' "$log" | grep -civE '# *skip')
passed=$(grep -iE '^ok' "$log" | grep -civE '# *skip')
rm -f "$log" "$log.one"
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" = 0 ]
'''


def main():
    build, target = sys.argv[1:]
    for test in json.load(sys.stdin):
        program = test["cmd"][0]
        if os.path.dirname(os.path.relpath(program, build)).startswith("tests") \
                and os.path.basename(program).startswith("test_"):
            shutil.copy2(program, target)
    # Libraries that tests open, at their place in the build tree.
    for folder, _, names in os.walk(os.path.join(build, "tests")):
        for name in names:
            if name.endswith(".so"):
                place = os.path.join(target, os.path.relpath(folder, build))
                os.makedirs(place, exist_ok=True)
                shutil.copy2(os.path.join(folder, name), place)
    # Files of the source tree that tests read, at their places.
    for name in ("src", "examples", "scripts", "tests/golden", "tests/fuzz/corpus",
                 "docs/guide", "docs/images",
                 "docs/reference", "include", "profiles"):
        shutil.copytree(name, os.path.join(target, name), dirs_exist_ok=True)
    path = os.path.join(target, "run")
    with open(path, "w") as f:
        f.write(RUN)
    os.chmod(path, 0o755)


if __name__ == "__main__":
    main()
