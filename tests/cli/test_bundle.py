#!/usr/bin/env python3
"""Trees to be moved to other machines."""

import json
import os
import re
import subprocess

from tap import BUILD, SOURCE, Skip, case, equal, main, true

# What every Linux has: glibc and the compiler's own library.
SYSTEM = re.compile(r"lib(c|m|dl|pthread|rt|gcc_s)\.so\.\d+$")


def bundle(folder):
    """A bundle that was moved after it was made."""
    made = os.path.join(folder, "made")
    subprocess.run(["sh", "scripts/bundle", BUILD, made], cwd=SOURCE,
                   check=True, stdout=subprocess.DEVNULL)
    moved = os.path.join(folder, "a folder", "moved")
    os.mkdir(os.path.dirname(moved))
    os.rename(made, moved)
    return moved


def sanitized():
    options = json.loads(subprocess.run(
        ["meson", "introspect", BUILD, "--buildoptions"], check=True,
        stdout=subprocess.PIPE, text=True).stdout)
    return [o["value"] for o in options if o["name"] == "b_sanitize"] \
        != ["none"]


def run(*command, **variables):
    return subprocess.run(command, env={"PATH": "/usr/bin:/bin", **variables},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, timeout=120)


@case
def a_bundle_needs_nothing_beyond_glibc(folder):
    if sanitized():
        raise Skip("a sanitizer's own libraries need libstdc++")
    root = bundle(folder)
    own = set(os.listdir(os.path.join(root, "lib")))
    for program in ("penstock", "make_photos"):
        path = os.path.join(root, "bin", program)
        result = run(path, LD_TRACE_LOADED_OBJECTS="1")
        loaded = re.findall(r"^\s*(\S+) => (.+?)(?: \(0x[0-9a-f]+\))?$",
                            result.stdout, re.M)
        true(loaded, result.stdout)
        for name, found in loaded:
            if SYSTEM.match(name):
                continue
            true(name in own, f"{program}: {name} is missing")
            equal(os.path.dirname(os.path.realpath(found)),
                  os.path.realpath(os.path.join(root, "lib")),
                  f"{program}: where {name} is found")


@case
def a_bundle_runs_where_it_was_moved(folder):
    root = bundle(folder)
    photos = os.path.join(folder, "photos")
    result = run(os.path.join(root, "bin/make_photos"), photos, "2", "64",
                 "48")
    equal(result.returncode, 0, result.stdout)
    result = run(os.path.join(root, "bin/penstock"), "run",
                 os.path.join(root, "share/penstock/examples/blur.json"),
                 "--device", "emulated",
                 "--set", f"reader.strFullFileNameWithPattern={photos}/*.jpg",
                 "--set", f"writer.strFullFileNameWithPattern={folder}/"
                 "out/????.jpg")
    equal(result.returncode, 0, result.stdout)
    equal(sorted(os.listdir(os.path.join(folder, "out"))),
          ["0000.jpg", "0001.jpg"], "files")
    true(os.path.exists(os.path.join(root, "LICENSE")), "no LICENSE")


@case
def a_bundle_has_the_profiles_and_can_make_more(folder):
    root = bundle(folder)
    program = os.path.join(root, "bin/penstock")
    pipeline = os.path.join(root, "share/penstock/examples/blur.json")
    result = run(program, "plan", pipeline, "--profile", "h200", "--json")
    equal(result.returncode, 0, result.stdout)
    equal(json.loads(result.stdout)["profile"], "h200", "profile")
    made = os.path.join(folder, "here.json")
    result = run(program, "calibrate", "--device", "emulated", "--output",
                 made)
    equal(result.returncode, 0, result.stdout)
    result = run(program, "plan", pipeline, "--profile", made, "--json")
    equal(json.loads(result.stdout)["profile"], "here", "profile")


main()
