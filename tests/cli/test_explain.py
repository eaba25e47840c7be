#!/usr/bin/env python3
"""plan --explain: why there is a bridge, as the command tells it."""

import json
import os

from tap import SOURCE, case, equal, main, penstock, true

SIGNAL = {"type": "TestSignalGenerator",
          "props": {"width": 640, "height": 360, "maxFrames": 4}}


def write(folder, modules, connections, settings=None):
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        json.dump({"settings": settings or {}, "modules": modules,
                   "connections": [{"from": a, "to": b}
                                   for a, b in connections]}, f)
    return path


def blurred(folder, **kwargs):
    return write(folder, {"s": SIGNAL, "b": {"type": "GaussianBlur"},
                          "k": {"type": "StatSink"}},
                 [("s", "b"), ("b", "k")], **kwargs)


@case
def the_text_has_constraint_cost_alternatives_and_ways_out(folder):
    result = penstock("plan", blurred(folder), "--explain", "s:b")
    equal(result.returncode, 0, result.stderr)
    for word in ("s.output -> b.input: 2 bridges", "forced by memory",
                 "forced by format", "`b.input` takes CUDA_DEVICE",
                 "alternatives to this plan", "what would remove it",
                 "GaussianBlurCV for `b`"):
        true(word in result.stdout, f"no {word!r} in\n{result.stdout}")
    true("\033" not in result.stdout, "escapes without a terminal")
    for line in result.stdout.splitlines():
        equal(line, line.rstrip(), "blanks at the end of a line")
    coloured = penstock("plan", blurred(folder), "--explain", "s:b",
                        "--color", "always")
    true("\033[32m" in coloured.stdout, "no colour of CUDA_DEVICE")


@case
def the_json_is_one_object_that_agrees_with_the_plan(folder):
    path = blurred(folder)
    result = penstock("plan", path, "--json", "--explain", "s:b")
    equal(result.returncode, 0, result.stderr)
    told = json.loads(result.stdout)
    plan = json.loads(penstock("plan", path, "--json").stdout)
    equal(told["ok"], True, "ok")
    equal((told["from"], told["to"]), ("s.output", "b.input"), "ends")
    equal([b["id"] for b in told["bridges"]],
          [m["id"] for m in plan["modules"] if m["inserted"]], "bridges")
    equal([b["reason"] for b in told["bridges"]],
          [m["reason"] for m in plan["modules"] if m["inserted"]], "reasons")
    equal(told["cost_us_per_frame"], plan["cost_us_per_frame"], "cost")
    edges = {(c["from"], c["to"]): c for c in plan["connections"]}
    for step in told["way"]:
        edge = edges[step["from"], step["to"]]
        for key in ("mem", "bytes_per_frame", "upgraded_from"):
            equal(step[key], edge[key], f"{step['from']} {key}")
    for key in ("alternatives", "removals", "no_bridge", "choices",
                "plans_made", "plans_not_made", "nominal"):
        true(key in told, f"no {key}")


@case
def what_it_says_of_another_module_is_what_that_plan_costs(folder):
    path = blurred(folder)
    told = json.loads(penstock("plan", path, "--json", "--explain",
                               "s:b").stdout)
    other = write(folder, {"s": SIGNAL, "b": {"type": "GaussianBlurCV"},
                           "k": {"type": "StatSink"}},
                  [("s", "b"), ("b", "k")])
    plan = json.loads(penstock("plan", other, "--json").stdout)
    found = [r for r in told["removals"] if r["value"] == "GaussianBlurCV"]
    equal(len(found), 1, str(told["removals"]))
    equal(found[0]["cost_us_per_frame"], plan["cost_us_per_frame"], "cost")
    copied = sum(plan["transfers"][k] or 0 for k in
                 ("h2d_bytes_per_frame", "d2h_bytes_per_frame",
                  "h2h_bytes_per_frame"))
    equal(found[0]["copied_bytes_per_frame"], copied, "bytes")


@case
def set_and_profile_count(folder):
    path = blurred(folder)
    told = json.loads(penstock("plan", path, "--json", "--explain", "s:b",
                               "--profile", "cpu", "--set",
                               "s.width=64").stdout)
    equal(told["profile"], "cpu", "profile")
    true("64x360" in told["way"][0]["caps"], told["way"][0]["caps"])
    # The file that is changed has what --set changed, too.
    other = json.loads(penstock("plan", path, "--json", "--profile", "cpu",
                                "--set", "s.width=64", "--set",
                                "s.memType=DMABUF").stdout)
    found = [r for r in told["removals"] if r["value"] == "memType=DMABUF"]
    equal(len(found), 1, str(told["removals"]))
    equal(found[0]["cost_us_per_frame"], other["cost_us_per_frame"], "cost")


@case
def unknown_names_are_told_with_the_nearest_and_the_list(folder):
    path = blurred(folder)
    result = penstock("plan", path, "--explain", "ss:b")
    equal(result.returncode, 1, "exit code")
    true("there is no module `ss`" in result.stderr, result.stderr)
    true("s.output:b.input" in result.stderr, result.stderr)
    result = penstock("plan", path, "--explain", "s:b.inputs")
    true("did you mean `input`?" in result.stderr, result.stderr)
    result = penstock("plan", path, "--explain", "s")
    equal(result.returncode, 1, "exit code")
    true("FROM:TO" in result.stderr, result.stderr)
    result = penstock("plan", path, "--json", "--explain", "k:s")
    equal(result.returncode, 1, "exit code")
    told = json.loads(result.stdout)
    equal(told["ok"], False, "ok")
    true("no frame goes from `k` to `s`" in json.dumps(told), str(told))
    result = penstock("plan", path, "--explain")
    equal(result.returncode, 3, "exit code without an argument")


@case
def without_a_plan_its_errors_are_shown(folder):
    path = blurred(folder, settings={"auto_bridge": False})
    result = penstock("plan", path, "--explain", "s:b")
    equal(result.returncode, 1, "exit code")
    true("E312" in result.stdout, result.stdout)
    result = penstock("plan", path, "--json", "--explain", "s:b")
    true("E312" in [i["code"] for i in json.loads(result.stdout)["issues"]],
         result.stdout)


@case
def a_wrong_name_cannot_steer_the_terminal(folder):
    result = penstock("plan", blurred(folder), "--explain", "\033[31m:\033b")
    equal(result.returncode, 1, "exit code")
    true("\033" not in result.stderr + result.stdout, repr(result.stderr))


@case
def every_connection_of_the_examples_can_be_explained(folder):
    asked = 0
    work = os.path.join(SOURCE, "tests/golden")
    for name in sorted(os.listdir(os.path.join(work, "plans"))):
        if not name.endswith(".json"):
            continue
        path = os.path.join("plans", name)
        with open(os.path.join(work, path)) as f:
            connections = json.load(f)["connections"]
        planned = penstock("plan", path, "--json", cwd=work)
        for connection in connections[:3]:
            result = penstock("plan", path, "--json", "--explain",
                              connection["from"] + ":" + connection["to"],
                              cwd=work)
            equal(result.returncode, planned.returncode,
                  f"{name} {connection}: {result.stderr}")
            equal(json.loads(result.stdout)["ok"], planned.returncode == 0,
                  name)
            asked += 1
    true(asked > 60, f"{asked} connections only")


@case
def explaining_opens_no_driver(folder):
    log = os.path.join(folder, "ld")
    work = os.path.join(folder, "work")
    os.mkdir(work)
    result = penstock("plan", blurred(folder), "--explain", "s:b", cwd=work,
                      env={**os.environ, "LD_DEBUG": "files",
                           "LD_DEBUG_OUTPUT": log})
    equal(result.returncode, 0, result.stderr)
    equal(os.listdir(work), [], "files made")
    text = "".join(open(os.path.join(folder, f), errors="replace").read()
                   for f in os.listdir(folder) if f.startswith("ld."))
    true("libpenstock.so" in text, "the log of the loader is empty")
    true("libcuda" not in text, "libcuda was opened")
    true("penstock-emu" not in text, "the emulator was opened")


main()
