#!/usr/bin/env python3
"""Rules of the tree that a compiler does not check. TAP on stdout."""

import os
import re
import subprocess
import sys

SOURCE = os.environ.get("PENSTOCK_TEST_SOURCE", ".")
BUILD = os.environ.get("PENSTOCK_TEST_BUILD", "build")
LAYERS = ["base", "gpu", "mem", "graph", "run", "modules"]
results = []


def report(name, problems):
    results.append((name, problems))


def files(folder, *endings):
    for path, _, names in os.walk(os.path.join(SOURCE, folder)):
        for name in sorted(names):
            if name.endswith(endings):
                yield os.path.relpath(os.path.join(path, name), SOURCE)


def includes(path):
    with open(os.path.join(SOURCE, path)) as f:
        for number, line in enumerate(f, 1):
            found = re.match(r'\s*#\s*include\s*(["<])([^">]+)[">]', line)
            if found:
                yield number, found.group(1), found.group(2)


def room(path):
    """The layer a file belongs to, or the name of its top folder."""
    parts = path.split(os.sep)
    return parts[1] if parts[0] == "src" else parts[0]


def direction():
    """base <- gpu <- mem <- graph <- run <- modules <- tools; kernels see
    kernel.h alone; the emulated device that and the driver's ABI."""
    problems = []
    for path in [*files("src", ".c", ".h", ".cu"), *files("emu", ".c", ".h"),
                 *files("tools", ".c", ".h")]:
        own = room(path)
        for number, quote, name in includes(path):
            if quote == "<":
                if own == "kernels" and name.startswith("penstock/") and \
                        path.endswith((".cu", ".kern.h")) and \
                        name not in ("penstock/kernel.h", "penstock/base.h"):
                    problems.append(f"{path}:{number}: {name} in a kernel")
                continue
            target = os.path.relpath(os.path.normpath(os.path.join(
                SOURCE, os.path.dirname(path), name)), SOURCE)
            other = room(target)
            if other == own:
                continue
            where = f"{path}:{number}: includes {target}"
            if own in LAYERS and other in LAYERS:
                if LAYERS.index(other) > LAYERS.index(own):
                    problems.append(where)
            elif own == "modules" and other == "kernels":
                pass
            elif own == "emu" and target in ("src/gpu/cuda_abi.h",
                                             "src/gpu/driver_list.h"):
                pass
            else:
                problems.append(where)
    report("includes point one way", problems)


def public_only():
    problems = [f"{p}:{n}: {name}" for p in files("tools", ".c", ".h")
                for n, quote, name in includes(p)
                if quote == '"' and not name.startswith("cmd")]
    problems += [f"{p}:{n}: {name}" for p in files("examples", ".c")
                 for n, quote, name in includes(p)
                 if name.startswith(("src/", "../src"))]
    report("the command and the examples use public headers only", problems)


def headers_alone():
    for language, compiler, standard in (("c", "gcc", "c17"),
                                         ("c++", "g++", "c++17")):
        problems = []
        for path in files("include/penstock", ".h"):
            text = f"#include <penstock/{os.path.basename(path)}>\n"
            result = subprocess.run(
                [compiler, "-x", language, f"-std={standard}", "-Wall",
                 "-Wextra", "-Wpedantic", "-Werror", "-fsyntax-only",
                 "-I", os.path.join(SOURCE, "include"), "-"],
                input=text, text=True, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT)
            if result.returncode:
                problems.append(path + "\n" + result.stdout)
        report(f"each public header compiles alone as {standard}", problems)


def symbols():
    def exported(name):
        text = subprocess.run(
            ["nm", "-D", "--defined-only", os.path.join(BUILD, name)],
            check=True, text=True, stdout=subprocess.PIPE).stdout
        return [line.split()[-1].split("@")[0] for line in text.splitlines()]

    names = exported("src/libpenstock.so")
    problems = [n for n in names if not n.startswith(("pen_", "__", "_"))]
    if "pen_pipeline_create" not in names:
        problems.append("pen_pipeline_create is not exported")
    report("libpenstock exports nothing without its prefix", problems)
    names = exported("emu/libpenstock-emu.so")
    problems = [n for n in names
                if not n.startswith(("cu", "penemu_", "__", "_"))]
    report("the emulated device exports the driver's names and its controls",
           problems)


def declared():
    """Every public function that a header declares exists, and the other way
    round."""
    text = "".join(open(os.path.join(SOURCE, p)).read()
                   for p in files("include/penstock", ".h"))
    text = re.sub(r"//.*", "", text)
    declared = set(re.findall(r"\b(pen_\w+)\s*\(", " ".join(
        part for part in re.findall(r"PEN_API(.*?);", text, re.S))))
    listing = subprocess.run(
        ["nm", "-D", "--defined-only",
         os.path.join(BUILD, "src/libpenstock.so")], check=True, text=True,
        stdout=subprocess.PIPE).stdout
    exported = {line.split()[-1].split("@")[0]
                for line in listing.splitlines()}
    exported = {n for n in exported if n.startswith("pen_")}
    report("every declared function exists",
           sorted(f"{n} is declared only" for n in declared - exported))
    report("every exported function is declared",
           sorted(f"{n} is exported only" for n in exported - declared))


def text_rules():
    problems = []
    tracked = subprocess.run(["git", "ls-files"], cwd=SOURCE, text=True,
                             stdout=subprocess.PIPE).stdout.split()
    for path in tracked:
        if not path.endswith((".c", ".h", ".cu", ".py", ".md", ".build",
                              ".json")) or \
                path.startswith("tests/golden/"):  # bad on purpose
            continue
        full = os.path.join(SOURCE, path)
        if not os.path.exists(full):
            continue
        data = open(full, errors="replace").read()
        for number, line in enumerate(data.splitlines(), 1):
            if line.rstrip() != line:
                problems.append(f"{path}:{number}: trailing space")
            if "\t" in line and not path.endswith(".md"):
                problems.append(f"{path}:{number}: tab")
        if data and not data.endswith("\n"):
            problems.append(f"{path}: no final newline")
    report("no tabs, trailing spaces or missing final newlines", problems)


def main():
    direction()
    public_only()
    headers_alone()
    symbols()
    declared()
    text_rules()
    print(f"1..{len(results)}")
    failed = 0
    for number, (name, problems) in enumerate(results, 1):
        for problem in problems:
            for line in problem.splitlines():
                print(f"# {line}")
        print(f"{'not ok' if problems else 'ok'} {number} - {name}")
        failed += bool(problems)
    return 1 if failed else 0


sys.exit(main())
