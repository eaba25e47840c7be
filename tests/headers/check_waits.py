#!/usr/bin/env python3
"""Every wait for the device goes through the places that wait_sites.h lists.
TAP on stdout.

The rules are functions from text to complaints, and each is first shown a
text that breaks it: a rule that cannot complain proves nothing.
"""

import os
import re
import sys

SOURCE = os.environ.get("PENSTOCK_TEST_SOURCE", ".")

# Who may call what: file and function.
KNOWN = {
    "cuEventQuery": {("src/gpu/stream.c", "ask")},
    "cuEventSynchronize": {("src/gpu/stream.c", "reap_one")},
    "cuStreamWaitEvent": {("src/gpu/stream.c", "stk_stream_wait")},
    "cuStreamQuery": set(),
    "cuStreamSynchronize": {
        ("src/gpu/stream.c", "stk_stream_destroy"),  # STREAM_END
        # for who got no reaper, after stk_point_pending()
        ("src/gpu/stream.c", "stk_point_wait"),
    },
    "cuCtxSynchronize": {
        ("src/gpu/idle.c", "wait_for_context"),  # CONTEXT
        # so that there is more to give back: nothing depends on it
        ("src/gpu/memory.c", "stk_memory_get"),
        ("src/gpu/region.c", "stk_region_destroy"),  # UNMAP
    },
    # Without a site: to forget a point that another site has waited for.
    "stk_point_reached": {
        ("src/gpu/stream.c", "stk_point_pending"),
        ("src/mem/buffer.c", "pending"),
    },
    "stk_wait_wanted": {
        ("src/gpu/stream.c", "stk_point_pending"),
        ("src/gpu/stream.c", "record_locked"),
        ("src/gpu/stream.c", "stk_stream_destroy"),
        ("src/gpu/idle.c", "wait_for_context"),
        ("src/gpu/region.c", "stk_region_destroy"),
    },
    # Only to be told when to ask again.
    "STK_WAIT_NONE": {
        ("src/gpu/stream.c", "read_switch"),
        ("src/gpu/stream.c", "left_out"),
        ("src/run/actor.c", "wait_for"),
        # read by the host: other readers do not matter
        ("src/mem/buffer.c", "stk_buffer_host_ready"),
        # a free block that needs no wait is the better one
        ("src/mem/buffer.c", "stk_buffer_free_for"),
        # only times are taken: nothing is read or given back after it
        ("src/modules/calibrate.c", "await_all"),
    },
}
WAITS = ["stk_point_pending", "stk_point_when", "stk_point_wait",
         "stk_stream_wait", "stk_wait_wanted", "stk_buffer_unused"]


def read(path):
    with open(os.path.join(SOURCE, path), errors="replace") as f:
        return f.read()


def sources():
    for path, _, names in os.walk(os.path.join(SOURCE, "src")):
        for name in sorted(names):
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(path, name), SOURCE)


def code_only(text):
    """Comments and strings become spaces, so that lines stay where they
    are."""
    def blank(found):
        return re.sub(r"[^\n]", " ", found.group(0))
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text,
                  flags=re.S)


def function_at(text, at):
    """Name of the function whose body `at` lies in, "" outside of all."""
    name, begin = "", 0
    for found in re.finditer(r"^(?:[A-Za-z_][\w \t*]*?[\s*])?(\w+)\([^;{}]*\)\s*"
                             r"^\{", text, re.M):
        if found.start() > at:
            break
        name, begin = found.group(1), found.end()
    end = text.find("\n}", begin)
    return name if name and end > at else ""


def elsewhere(path, text, known):
    """Uses of the names in `known` in other functions than those."""
    text = code_only(text)
    problems = []
    for name, places in known.items():
        for found in re.finditer(rf"\b{name}\b", text):
            function = function_at(text, found.start())
            if (path, function) in places or not function:
                continue  # outside: a definition or a declaration
            if function == name:
                continue
            line = text.count("\n", 0, found.start()) + 1
            problems.append(f"{path}:{line}: {name} in {function}()")
    return problems


def sites(text):
    return re.findall(r"^X\((\w+),", text, re.M)


def argument_lists(text, name):
    """What stands between the parentheses of each call."""
    for found in re.finditer(rf"\b{name}\(", text):
        depth, at = 1, found.end()
        while depth and at < len(text):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        yield found.start(), text[found.end():at - 1]


def unnamed(path, text):
    """Waits that do not say at which site."""
    text = code_only(text)
    problems = []
    for name in WAITS:
        for at, arguments in argument_lists(text, name):
            if not re.search(r"\bSTK_WAIT_\w+|\bsite\b", arguments):
                line = text.count("\n", 0, at) + 1
                problems.append(f"{path}:{line}: {name}() names no site")
    return problems


def unused(names, texts):
    """Sites that nobody waits at."""
    everything = "\n".join(code_only(t) for t in texts)
    return [f"nobody waits at {name}" for name in names
            if not re.search(rf"\bSTK_WAIT_{name}\b", everything)]


def untested(names, tests):
    """Sites without a test of their name."""
    have = re.findall(r"\bCASE\((\w+)\)", tests)
    return [f"no test \"{name.lower()}\"" for name in names
            if name.lower() not in have]


def shown(problems, good):
    """The rule complains about a bad text and about no good one."""
    return [] if problems and not good else ["the rule does not work"]


def main():
    texts = {path: read(path) for path in sources()}
    names = sites(texts["src/gpu/wait_sites.h"])
    bad = ("static void here(void)\n{\n    cuEventQuery(e);\n}\n"
           "void there(void)\n{\n    stk_point_when(point, done, m, err);\n}\n")
    good = ("static bool ask(void)\n{\n    // cuEventQuery: not here\n"
            "    cuEventQuery(e);\n    stk_point_when(p, STK_WAIT_PARK, d);\n"
            "}\n")
    known = {"cuEventQuery": {("x.c", "ask")}}
    results = [
        ("a wait in another place is found",
         shown(elsewhere("x.c", bad, known), elsewhere("x.c", good, known))),
        ("a wait without a site is found",
         shown(unnamed("x.c", bad), unnamed("x.c", good))),
        ("a site that is not used or tested is found",
         shown(unused(["PARK"], [bad]) and untested(["PARK"], "CASE(x)"),
               unused(["PARK"], [good]) + untested(["PARK"], "CASE(park)"))),
        ("the device is asked and waited for in known places only",
         [p for path, text in texts.items()
          for p in elsewhere(path, text, KNOWN)]),
        ("every wait names its site",
         [p for path, text in texts.items() for p in unnamed(path, text)]),
        ("every site is waited at", unused(names, texts.values())),
        ("every site has a test of its name",
         untested(names, read("tests/unit/stress/test_waits.c"))
         if names else ["no sites"]),
    ]
    print(f"1..{len(results)}")
    failed = 0
    for number, (name, problems) in enumerate(results, 1):
        for problem in problems:
            print(f"# {problem}")
        print(f"{'not ok' if problems else 'ok'} {number} - {name}")
        failed += bool(problems)
    return 1 if failed else 0


sys.exit(main())
