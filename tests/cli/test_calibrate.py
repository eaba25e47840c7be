#!/usr/bin/env python3
"""calibrate, and profiles by name: what there is, never how fast it is."""

import json
import os
import pty
import subprocess

from tap import PENSTOCK, SOURCE, Skip, case, equal, main, penstock, true

NUMBERS = ["h2d_rate", "d2h_rate", "pageable_rate", "device_rate", "host_rate",
           "host_operations", "device_operations", "launch_ns", "copy_ns",
           "context_ns", "load_ns", "host_memory", "cuda_memory"]
BLUR = os.path.join(SOURCE, "examples/blur.json")


def calibrate(*arguments, **kwargs):
    return penstock("calibrate", "--device", "emulated", *arguments, **kwargs)


@case
def a_profile_is_measured_written_and_used(folder):
    path = os.path.join(folder, "desk.json")
    result = calibrate("--output", path)
    equal(result.returncode, 0, result.stderr)
    true("host to device" in result.stdout, result.stdout)
    true("\r" not in result.stderr, "progress in a pipe")
    equal(os.listdir(folder), ["desk.json"], "files")
    with open(path) as f:
        profile = json.load(f)
    equal(profile["name"], "desk", "name")
    equal((profile["emulated"], profile["cuda"]), (True, False), "emulated")
    for key in NUMBERS:
        true(isinstance(profile[key], int) and profile[key] > 0, key)
    true(len(profile["#measured"]) > 20, "what was measured")
    result = penstock("plan", BLUR, "--json", "--profile", path)
    equal(result.returncode, 0, result.stderr)
    equal(json.loads(result.stdout)["profile"], "desk", "profile of the plan")


@case
def the_result_is_json_too(folder):
    path = os.path.join(folder, "p.json")
    result = calibrate("--json", "--name", "mine", "--output", path)
    equal(result.returncode, 0, result.stderr)
    told = json.loads(result.stdout)
    equal((told["ok"], told["output"]), (True, path), "ok")
    with open(path) as f:
        equal(told["profile"], json.load(f), "what is told and what is written")
    equal(told["profile"]["name"], "mine", "name")


@case
def a_file_that_exists_is_kept(folder):
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        f.write("mine")
    for arguments in ([], ["--json"]):
        result = calibrate("--output", path, *arguments)
        equal(result.returncode, 1, result.stdout)
        true("--overwrite" in result.stderr, result.stderr)
        with open(path) as f:
            equal(f.read(), "mine", "the file")
    equal(json.loads(result.stdout)["ok"], False, "ok")
    equal(calibrate("--output", path, "--overwrite").returncode, 0, "overwrite")
    with open(path) as f:
        equal(json.load(f)["name"], "p", "name")
    equal(calibrate("--output", os.path.join(folder, "no", "p.json"))
          .returncode, 1, "a folder that is not there")


@case
def a_device_that_is_not_there_is_told(folder):
    result = penstock("calibrate", "--device", "GPU-none", "--json",
                      "--output", os.path.join(folder, "p.json"))
    true(result.returncode != 0, result.stdout)
    true(result.stderr.startswith("penstock: "), result.stderr)
    equal(json.loads(result.stdout)["ok"], False, "ok")
    equal(os.listdir(folder), [], "files")


@case
def progress_is_drawn_on_a_terminal(folder):
    try:
        ours, theirs = pty.openpty()
    except OSError as reason:
        raise Skip(f"no terminal can be opened here: {reason}")
    result = subprocess.run([PENSTOCK, "calibrate", "--device", "emulated"],
                            stderr=theirs, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, timeout=60)
    os.close(theirs)
    text = os.read(ours, 1 << 16).decode()
    os.close(ours)
    equal(result.returncode, 0, text)
    true("1 of 9: " in text and "9 of 9: " in text, repr(text))


@case
def profiles_are_found_by_name(folder):
    def profile_of(name, **kwargs):
        result = penstock("plan", BLUR, "--json", "--profile", name, **kwargs)
        equal(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)["profile"]

    for name in ("generic-cuda", "cpu", "h200"):
        equal(profile_of(name), name, "profile")
    text = penstock("plan", BLUR, "--profile", "h200").stdout
    true("profile h200" in text, text)

    with open(os.path.join(SOURCE, "profiles/h200.json")) as f:
        own = json.load(f)
    own["name"] = "lab"
    with open(os.path.join(folder, "lab.json"), "w") as f:
        json.dump(own, f)
    env = dict(os.environ, PENSTOCK_PROFILE_PATH=f"/nonexistent:{folder}")
    equal(profile_of("lab", env=env), "lab", "of a folder of one's own")
    result = penstock("plan", BLUR, "--profile", "labb", env=env)
    equal(result.returncode, 1, result.stdout)
    for word in ("labb", "generic-cuda", "cpu", "h200", "lab"):
        true(word in result.stderr, result.stderr)
    equal(penstock("plan", BLUR, "--profile", "../lab", env=env).returncode, 1,
          "a name is no path")


@case
def a_mistake_in_a_profile_has_its_place(folder):
    path = os.path.join(folder, "p.json")
    with open(os.path.join(SOURCE, "profiles/h200.json")) as f:
        good = f.read()
    for wrong, words in (
            (good.replace('"h2d_rate": 5', '"h2d_rate": -5'),
             ("column 3", "h2d_rate")),
            (good.replace('"cuda": true,', '"cuda": true'), ("line 5,",))):
        true(wrong != good, "nothing was replaced")
        with open(path, "w") as f:
            f.write(wrong)
        result = penstock("plan", BLUR, "--profile", path)
        equal(result.returncode, 1, result.stdout)
        for word in words + ("line",):
            true(word in result.stderr, result.stderr)


main()
