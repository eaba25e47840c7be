#!/usr/bin/env python3
"""What the planner inserts, as the command tells it; and that planning
touches nothing."""

import glob
import json
import os
import pty
import re
import subprocess

from tap import PENSTOCK, SOURCE, case, equal, main, penstock, true

GENERATOR = {"type": "TestSignalGenerator",
             "props": {"width": 640, "height": 360, "maxFrames": 4}}
BLUR = {"type": "GaussianBlur"}


def plan(folder, modules, connections, *arguments, settings=None):
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        json.dump({"settings": settings or {}, "modules": modules,
                   "connections": [{"from": a, "to": b}
                                   for a, b in connections]}, f)
    result = penstock("plan", "--json", path, *arguments)
    report = json.loads(result.stdout)
    return result, report


def inserted(report, kind=None):
    return [m for m in report["modules"] if m["inserted"]
            and (kind is None or m["type"] == kind)]


@case
def a_pinned_source_needs_exactly_one_copy(folder):
    source = {"type": "TestSignalGenerator",
              "props": {"width": 1920, "height": 1080,
                        "memType": "HOST_PINNED"}}
    result, report = plan(folder, {"s": source, "b": BLUR,
                                   "k": {"type": "StatSink"}},
                          [("s", "b"), ("b", "k")])
    equal(result.returncode, 0, result.stdout)
    uploads = [m for m in inserted(report, "CudaMemCopy")
               if m["props"]["kind"] == "HostToDevice"]
    equal(len(uploads), 1, str(report["modules"]))
    equal(report["transfers"]["h2d_per_frame"], 1, "uploads per frame")
    # A large picture is converted on the device, not copied by the CPU before.
    equal({m["type"] for m in inserted(report)}, {"CudaMemCopy", "CCNPPI"},
          "inserted")

    raw = os.path.join(folder, "in.raw")
    with open(raw, "wb") as f:
        f.write(bytes(64 * 48 * 3))
    source = {"type": "FileReaderModule",
              "props": {"strFullFileNameWithPattern": raw, "width": 64,
                        "height": 48, "format": "RGB",
                        "memType": "HOST_PINNED"}}
    result, report = plan(folder, {"s": source, "b": BLUR,
                                   "k": {"type": "StatSink"}},
                          [("s", "b"), ("b", "k")])
    equal([(m["type"], m["props"]["kind"]) for m in inserted(report)],
          [("CudaMemCopy", "HostToDevice")], "inserted")
    equal([c["mem"] for c in report["connections"]],
          ["HOST_PINNED", "CUDA_DEVICE", "CUDA_DEVICE"], "memory")
    equal([c["upgraded_from"] for c in report["connections"]], [None] * 3,
          "upgrades")


@case
def a_host_source_is_upgraded_to_pinned(folder):
    result, report = plan(folder, {"s": GENERATOR, "b": BLUR,
                                   "k": {"type": "StatSink"}},
                          [("s", "b"), ("b", "k")])
    first = [c for c in report["connections"] if c["from"].startswith("s.")]
    equal({c["mem"] for c in first}, {"HOST_PINNED"}, str(first))
    equal({c["upgraded_from"] for c in first}, {"HOST"}, str(first))


@case
def a_copy_of_the_user_is_kept_and_no_second_appears(folder):
    modules = {"s": GENERATOR,
               "rgb": {"type": "ColorConversion",
                       "props": {"conversionType": "YUV420PLANAR_TO_RGB"}},
               "up": {"type": "CudaMemCopy", "props": {"kind": "HostToDevice"}},
               "b": BLUR, "down": {"type": "CudaMemCopyD2H"},
               "k": {"type": "StatSink"}}
    result, report = plan(folder, modules,
                          [("s", "rgb"), ("rgb", "up"), ("up", "b"),
                           ("b", "down"), ("down", "k")])
    equal(result.returncode, 0, result.stdout)
    equal(inserted(report), [], "inserted modules")


@case
def an_unknown_source_is_e300(folder):
    result, report = plan(folder, {"s": GENERATOR, "k": {"type": "StatSink"}},
                          [("x", "k")])
    equal(result.returncode, 1, "exit code")
    equal(report["ok"], False, "ok")
    true("E300" in [i["code"] for i in report["issues"]], str(report))


@case
def one_frame_for_three_gpu_modules_is_uploaded_once(folder):
    modules = {"s": GENERATOR}
    connections = []
    for n in "123":
        modules["b" + n] = BLUR
        modules["k" + n] = {"type": "FileWriterModule", "props": {
            "strFullFileNameWithPattern": folder + "/" + n + "????.raw"}}
        connections += [("s", "b" + n), ("b" + n, "k" + n)]
    result, report = plan(folder, modules, connections)
    equal(result.returncode, 0, result.stdout)
    uploads = [m for m in inserted(report, "CudaMemCopy")
               if m["props"]["kind"] == "HostToDevice"]
    equal(len(uploads), 1, str([m["id"] for m in inserted(report)]))
    equal(report["transfers"]["h2d_per_frame"], 1, "uploads")
    equal(report["transfers"]["d2h_per_frame"], 3, "downloads")


@case
def three_gpu_modules_in_a_row_cost_one_upload_and_one_download(folder):
    writer = {"type": "FileWriterModule", "props": {
        "strFullFileNameWithPattern": folder + "/????.raw"}}
    result, report = plan(folder, {"s": GENERATOR, "a": BLUR, "b": BLUR,
                                   "c": BLUR, "k": writer},
                          [("s", "a"), ("a", "b"), ("b", "c"), ("c", "k")])
    equal(report["transfers"]["h2d_per_frame"], 1, "uploads")
    equal(report["transfers"]["d2h_per_frame"], 1, "downloads")
    equal(len(inserted(report, "CudaMemCopy")), 2, "copies")
    for module in inserted(report):
        true(module["id"].startswith("_bridge_"), module["id"])
        true(module["reason"] and module["serves"], str(module))


@case
def a_budget_of_transfers_is_enforced(folder):
    result, report = plan(folder, {"s": GENERATOR, "b": BLUR,
                                   "k": {"type": "StatSink"}},
                          [("s", "b"), ("b", "k")], "--budget",
                          "h2d_per_frame=0")
    equal(result.returncode, 1, result.stdout)


@case
def a_budget_of_memory_is_enforced_and_names_the_users(folder):
    result, report = plan(folder, {"s": GENERATOR, "b": BLUR,
                                   "k": {"type": "StatSink"}},
                          [("s", "b"), ("b", "k")], "--budget",
                          "cuda_device=1KiB")
    equal(result.returncode, 1, result.stdout)
    text = json.dumps(report["issues"])
    true("b.output" in text or "_bridge_" in text, text)


@case
def a_budget_that_is_not_understood_is_told_what_is(folder):
    for budget, told in (("cuda=1MiB", "the keys are host, host_pinned, "
                          "cuda_device and dmabuf (sizes), h2d_per_frame"),
                         ("cuda_device", "expected KEY=SIZE"),
                         ("cuda_device=0", "a size above 0"),
                         ("dmabuf=1QB", "KiB, MiB, GiB or TiB"),
                         ("d2h_per_frame=-1", "a number of transfers")):
        result = penstock("plan", "x.json", "--budget", budget)
        equal(result.returncode, 3, budget)
        true(told in result.stderr, result.stderr)


@case
def the_example_plans_two_bridges_with_reasons(folder):
    path = os.path.join(SOURCE, "examples/blur.json")
    result = penstock("plan", "--json", path)
    equal(result.returncode, 0, result.stdout + result.stderr)
    report = json.loads(result.stdout)
    equal([m["type"] for m in inserted(report)],
          ["CudaMemCopy", "CudaMemCopy"], "bridges")
    for key in ("ok", "optimal", "provisional", "profile", "issues", "modules",
                "connections", "transfers", "memory", "cost_us_per_frame",
                "touches", "unknown", "cost", "memory_by_module", "budget",
                "lossy", "gap_us"):
        true(key in report, f"no {key} in the plan's JSON")
    text = penstock("plan", path).stdout
    for word in ("CudaMemCopy", "CUDA_DEVICE", "HOST_PINNED", "blur"):
        true(word in text, f"no {word} in\n{text}")


@case
def validate_and_plan_open_no_driver_and_create_nothing(folder):
    log = os.path.join(folder, "ld")
    work = os.path.join(folder, "work")
    os.mkdir(work)
    path = os.path.abspath(os.path.join(SOURCE, "examples/blur.json"))
    for verb in ("validate", "plan"):
        result = penstock(verb, path, cwd=work,
                          env={**os.environ, "LD_DEBUG": "files",
                               "LD_DEBUG_OUTPUT": log})
        equal(result.returncode, 0, result.stdout)
    equal(os.listdir(work), [], "files made")
    text = "".join(open(f, errors="replace").read()
                   for f in glob.glob(log + ".*"))
    true("libpenstock.so" in text, "the log of the loader is empty")
    true("libcuda" not in text, "libcuda was opened")
    true("penstock-emu" not in text, "the emulator was opened")


def on_a_terminal(*arguments, **environment):
    """What the command prints where its standard output is a terminal."""
    ours, its = pty.openpty()
    env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
    process = subprocess.Popen([PENSTOCK, *arguments], stdout=its,
                               stderr=subprocess.DEVNULL,
                               stdin=subprocess.DEVNULL,
                               env={**env, "TERM": "xterm", **environment})
    os.close(its)
    text = b""
    while True:
        try:
            more = os.read(ours, 65536)
        except OSError:
            break
        if not more:
            break
        text += more
    os.close(ours)
    equal(process.wait(), 0, "exit code")
    return text.decode().replace("\r\n", "\n")


@case
def a_terminal_gets_colours_and_a_pipe_does_not(folder):
    path = os.path.join(SOURCE, "examples/blur.json")
    plain = penstock("plan", path).stdout
    true("\033" not in plain, "escapes in a pipe")
    coloured = on_a_terminal("plan", path)
    true("\033[33mHOST_PINNED\033[0m" in coloured, coloured)
    lines = re.sub("\033\\[[0-9;]*m", "", coloured).splitlines()
    legend = [line for line in lines if line.startswith("colours")]
    equal(len(legend), 1, "legends")
    for word in ("HOST_PINNED", "CUDA_DEVICE", "inserted by the planner"):
        true(word in legend[0], legend[0])
    equal([line for line in lines if line not in legend], plain.splitlines(),
          "the text without colours")


@case
def colours_can_be_switched(folder):
    path = os.path.join(SOURCE, "examples/blur.json")
    true("\033" not in on_a_terminal("plan", path, NO_COLOR="1"), "NO_COLOR")
    true("\033" in on_a_terminal("plan", path, NO_COLOR=""), "empty NO_COLOR")
    true("\033" not in on_a_terminal("plan", path, TERM="dumb"), "dumb")
    true("\033" not in on_a_terminal("plan", path, "--color", "never"),
         "never")
    true("\033" in penstock("plan", path, "--color=always").stdout, "always")
    result = penstock("plan", path, "--color=always",
                      env={**os.environ, "NO_COLOR": "1"})
    true("\033" in result.stdout, "what is asked for goes before NO_COLOR")
    result = penstock("plan", path, "--color=red")
    equal(result.returncode, 3, result.stderr)
    true("\033" not in penstock("plan", "--json", path,
                                "--color=always").stdout, "JSON")


@case
def what_is_unknown_is_told_and_so_is_the_cure(folder):
    raw = os.path.join(folder, "in.jpg")
    with open(raw, "wb") as f:
        f.write(b"none")
    source = {"type": "FileReaderModule",
              "props": {"strFullFileNameWithPattern": raw}}
    result, report = plan(folder, {"r": source,
                                   "d": {"type": "ImageDecoderCV"},
                                   "k": {"type": "StatSink"}},
                          [("r", "d"), ("d", "k")])
    equal(result.returncode, 0, result.stdout)
    true(report["provisional"], "provisional")
    first = report["unknown"][0]
    equal(first["output"], "r.output", str(first))
    true("size" in first["own"], str(first))
    true("--probe" in first["settled_by"], str(first))
    equal(report["cost"]["host_us"], None, str(report["cost"]))
    equal([m["id"] for m in report["memory_by_module"]], ["r", "d"],
          "modules that hold memory")


@case
def drawings_are_written(folder):
    path = os.path.join(SOURCE, "examples/blur.json")
    svg, dot = os.path.join(folder, "p.svg"), os.path.join(folder, "p.dot")
    result = penstock("plan", path, "--svg", svg, "--dot", dot)
    equal(result.returncode, 0, result.stderr)
    true(open(svg).read().startswith("<svg") or "<svg" in open(svg).read(),
         "no SVG")
    true("digraph" in open(dot).read(), "no DOT")


@case
def tags_select_exactly(folder):
    for tags, wanted in ((("function:resize", "backend:cuda"), "ResizeNPPI"),
                         (("function:resize", "backend:cpu"),
                          "ImageResizeCV")):
        arguments = [a for t in tags for a in ("--tag", t)]
        result = penstock("list-modules", "--json", *arguments)
        names = [m["name"] for m in json.loads(result.stdout)["modules"]]
        equal(names, [wanted], str(tags))


@case
def describe_tells_pins_and_properties(folder):
    result = penstock("describe", "GaussianBlur", "--json")
    about = json.loads(result.stdout)
    equal(about["name"], "GaussianBlur", "name")
    equal(about["inputs"][0]["mem"], ["CUDA_DEVICE"], "input memory")
    size = [p for p in about["properties"] if p["name"] == "kernelSize"][0]
    equal((size["default"], size["min"], size["max"]), (11, 3, 31), str(size))
    result = penstock("describe", "GausianBlur")
    equal(result.returncode, 1, "exit code")
    true("GaussianBlur" in result.stderr, result.stderr)


@case
def the_schema_accepts_the_examples_shape(folder):
    schema = json.loads(penstock("schema").stdout)
    true("modules" in json.dumps(schema), "schema")
    true("GaussianBlur" in json.dumps(schema), "modules in the schema")


main()
