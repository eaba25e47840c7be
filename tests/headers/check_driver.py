#!/usr/bin/env python3
"""Who may touch the CUDA driver, and how. TAP on stdout.

The rules are functions from text to complaints, and each is first shown a
text that breaks it: a rule that cannot complain proves nothing.
"""

import os
import re
import sys

SOURCE = os.environ.get("PENSTOCK_TEST_SOURCE", ".")
BUILD = os.environ.get("PENSTOCK_TEST_BUILD", "build")

# Explaining a failure cannot itself be checked by the macro that explains.
UNCHECKED = {("src/gpu/driver.c", "cuGetErrorName"),
             ("src/gpu/driver.c", "cuGetErrorString")}
LOADERS = ("src/gpu/driver.c: dlsym", "src/gpu/usage.c: dlsym",
           "src/gpu/usage.c: dlclose",
           # Which vendor libraries there are.
           "src/modules/calibrate.c: dlclose")
# Spelt so that a search of this tree for the word finds only offenders.
CREATION = "cuCtx" + "Create"


def read(path):
    with open(os.path.join(SOURCE, path), errors="replace") as f:
        return f.read()


def files(folder, *endings):
    for path, _, names in os.walk(os.path.join(SOURCE, folder)):
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(path, name), SOURCE)


def functions():
    return re.findall(r'^X\((?:MUST|MAY),\s*(\w+),\s*"(\w+)"',
                      read("src/gpu/driver_list.h"), re.M)


def code_only(text):
    """Comments and strings become spaces, so that lines stay where they
    are."""
    def blank(found):
        return re.sub(r"[^\n]", " ", found.group(0))
    return re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', blank, text,
                  flags=re.S)


def outside_macro(path, text, names):
    """Calls of driver functions that are not the last argument of the checked
    macros, and uses of the table other than by them."""
    text = code_only(text)
    problems = []

    def line(at):
        return text.count("\n", 0, at) + 1

    for found in re.finditer(r"\b(cu[A-Z]\w*)\s*\(", text):
        name = found.group(1)
        if name not in names or (path, name) in UNCHECKED:
            continue
        before = text[:found.start()]
        if not re.search(r"\bSTK_CU\(\s*[^,()]+,\s*[^,()]+,\s*$"
                         r"|\bSTK_CU_END\(\s*[^,()]+,\s*$", before):
            problems.append(f"{path}:{line(found.start())}: {name} is not "
                            f"called through STK_CU")
    for found in re.finditer(r"(?:->|\.)\s*cu\b", text):
        rest = text[found.end():]
        taken = re.match(r"\s*\.\s*(\w+)", rest)
        if taken and (path, taken.group(1)) in UNCHECKED:
            continue
        if taken and path == "src/gpu/driver.h" and (
                taken.group(1) == "call" or
                re.match(r"\s*\.\s*name != NULL", rest)):
            continue
        if not taken and re.search(r"stk_driver_open\(\s*[^,()]+,\s*&\w+$",
                                   text[:found.start()]):
            continue
        problems.append(f"{path}:{line(found.start())}: the driver's table is "
                        f"used other than by STK_CU")
    return problems


def sees_driver(path, text):
    """Includes of the driver's own headers outside their folder."""
    return [f"{path}: includes {name}" for name in
            re.findall(r'#\s*include\s*["<]([^">]+)[">]', text)
            if os.path.basename(name) in ("driver.h", "driver_list.h",
                                          "cuda_abi.h", "cuda.h")]


def loads_library(path, text):
    return [f"{path}: {word}" for word in
            re.findall(r"\b(?:dlsym|dlclose|libcuda\.so\w*)\b", text)]


def creates_context(name, data):
    return [f"{name}: {CREATION}"] if CREATION.encode() in data else []


def shipped():
    for folder in ("src", "tools", "plugins", "include"):
        yield from files(folder, ".c", ".h", ".cu")


def binaries():
    for folder, _, names in os.walk(BUILD):
        relative = os.path.relpath(folder, BUILD)
        if relative.split(os.sep)[0] not in ("src", "emu", "tools", "plugins"):
            continue
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.path.islink(path) or ".p" in folder:
                continue
            with open(path, "rb") as f:
                data = f.read()
            if data[:4] == b"\x7fELF":
                yield os.path.join(relative, name), data


def rule_calls():
    names = {name for name, _ in functions()}
    wrong = [
        "r = dev->cu.cuMemFree(p);",
        "CUresult r = cuMemFree(p);",
        "r = table->cuMemFree(p);",
        "struct stk_driver *d = &dev->cu;",
        "STK_CU(dev, err, other(cuMemFree(p)));",
    ]
    right = [
        "PEN_TRY(STK_CU(dev, err, cuMemFree(p)));",
        "STK_CU(s->dev, &err,\n       cuMemFree(p));",
        "STK_CU_END(dev, cuMemFree(p));",
        "// cuMemFree(p) would do",
        'set("cuMemFree(p)");',
    ]
    problems = [f"the rule misses: {t}" for t in wrong
                if not outside_macro("src/x.c", t, names)]
    problems += [f"the rule forbids: {t}" for t in right
                 if outside_macro("src/x.c", t, names)]
    if len(names) < 30:
        problems.append("the list of functions was not read")
    for path in shipped():
        if path != "src/gpu/driver_list.h":
            problems += outside_macro(path, read(path), names)
    return problems


def rule_includes():
    problems = []
    if not sees_driver("x.c", '#include "../gpu/driver.h"\n'):
        problems.append("the rule misses an include of driver.h")
    for path in shipped():
        if not path.startswith("src/gpu/"):
            problems += sees_driver(path, read(path))
    return problems


def rule_loading():
    problems = []
    if "libcuda" in read("src/gpu/usage.c"):
        problems.append("src/gpu/usage.c opens the driver")
    if not loads_library("x.c", "f = dlsym(lib, name);"):
        problems.append("the rule misses dlsym")
    for path in shipped():
        found = loads_library(path, code_only(read(path)))
        # One place looks symbols up, and nothing closes a driver again. NVML,
        # which only tells numbers, is opened and closed by whoever asks.
        problems += [p for p in found if p not in LOADERS]
    return problems


def rule_no_creation_in_sources():
    problems = []
    if not creates_context("x.c", f"r = {CREATION}_v2(&c, 0, d);".encode()):
        problems.append("the rule misses a creation")
    for path in [*shipped(), *files("emu", ".c", ".h"),
                 *files("examples", ".c", ".cu")]:
        problems += creates_context(path, read(path).encode())
    return problems


def rule_no_creation_in_binaries():
    problems = []
    seen = {}
    for name, data in binaries():
        seen[name] = data
        problems += creates_context(name, data)
    # The same search finds what must be there, so it does look at symbols.
    library = next((d for n, d in seen.items()
                    if n.startswith("src/libpenstock.so")), b"")
    for symbol in (b"cuDevicePrimaryCtxRetain", b"cuMemAlloc_v2"):
        if symbol not in library:
            problems.append(f"libpenstock.so does not name {symbol.decode()}")
    if not any(n.startswith("emu/") for n in seen):
        problems.append("the emulated device was not built")
    return problems


def main():
    rules = [
        ("driver functions are called through the checked macro only",
         rule_calls),
        ("only src/gpu includes the driver's types", rule_includes),
        ("only the loader looks symbols up, and no driver is closed",
         rule_loading),
        ("no source creates a context", rule_no_creation_in_sources),
        ("no binary names a function that creates a context",
         rule_no_creation_in_binaries),
    ]
    print(f"1..{len(rules)}")
    failed = 0
    for number, (name, rule) in enumerate(rules, 1):
        problems = rule()
        for problem in problems:
            print(f"# {problem}")
        print(f"{'not ok' if problems else 'ok'} {number} - {name}")
        failed += bool(problems)
    return 1 if failed else 0


sys.exit(main())
