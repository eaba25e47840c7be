#!/usr/bin/env python3
"""The keys of what the command prints as JSON, help, progress."""

import json
import os
import pty
import re
import subprocess

from tap import PENSTOCK, Skip, case, equal, main, penstock, true

VERBS = ["run", "validate", "plan", "list-modules", "describe", "devices",
         "calibrate", "schema"]
CLASSES = ["CCNPPI", "ColorConversion", "CuCtxSynchronize", "CudaMemCopy",
           "CudaStreamSynchronize", "FileReaderModule", "FileWriterModule",
           "GaussianBlur", "GaussianBlurCV", "ImageDecoderCV",
           "ImageEncoderCV", "ImageResizeCV", "MemTypeConversion",
           "ResizeNPPI", "StatSink",
           "TestSignalGenerator"]


def keys(value, wanted, what):
    missing = set(wanted.split()) - set(value)
    true(not missing, f"{what} lacks {missing}: {value}")


@case
def help_lists_the_verbs_that_there_are(folder):
    result = penstock("--help")
    equal(result.returncode, 0, result.stderr)
    listed = re.findall(r"^  ([a-z][a-z-]*) ", result.stdout, re.M)
    equal(listed, VERBS, "verbs")
    for verb in VERBS:
        result = penstock(verb, "--help")
        equal(result.returncode, 0, f"{verb}: {result.stderr}")
        true(verb in result.stdout, result.stdout)
    true(re.fullmatch(r"penstock \d+\.\d+\.\d+\n",
                      penstock("--version").stdout), "--version")


@case
def list_modules_and_describe_have_the_promised_keys(folder):
    modules = json.loads(penstock("list-modules", "--json").stdout)["modules"]
    equal([m["name"] for m in modules], CLASSES, "classes")
    for module in modules:
        keys(module, "name category version description tags available reason",
             "list-modules")
        about = json.loads(penstock("describe", module["name"],
                                    "--json").stdout)
        keys(about, "name category version description tags inputs outputs "
             "properties available reason", module["name"])
        for pin in about["inputs"] + about["outputs"]:
            keys(pin, "name kinds mem formats required", module["name"])
        for row in about["properties"]:
            keys(row, "name type default min max enum required unit live help",
                 module["name"])
    sinks = json.loads(penstock("list-modules", "--json", "--category",
                                "sink").stdout)["modules"]
    equal([m["name"] for m in sinks], ["FileWriterModule", "StatSink"],
          "sinks")


@case
def an_alias_is_described_as_its_class(folder):
    about = json.loads(penstock("describe", "CudaMemCopyH2D",
                                "--json").stdout)
    equal(about["name"], "CudaMemCopy", "class")


@case
def devices_are_there_or_the_reason_why_not(folder):
    result = penstock("devices", "--json")
    equal(result.returncode, 0, result.stderr)
    report = json.loads(result.stdout)
    emulated = [d for d in report["devices"] if d["emulated"]]
    equal(len(emulated), 1, "emulated devices")
    keys(emulated[0], "name index uuid emulated", "device")
    real = [d for d in report["devices"] if not d["emulated"]]
    reasons = [u["reason"] for u in report["unavailable"]
               if u["driver"] == "cuda"]
    equal(len(reasons), 0 if real else 1, str(report))
    true(all(reasons), "an empty reason")
    true("--device emulated" in penstock("devices").stdout, "text")


@case
def a_device_tells_the_ways_between_memory_types(folder):
    result = penstock("devices", "--device", "emulated", "--json")
    equal(result.returncode, 0, result.stderr)
    ways = json.loads(result.stdout)["ways"]
    true(ways["emulated"], "the device that was asked for")
    table = ways["table"]
    kinds = ["HOST", "HOST_PINNED", "CUDA_DEVICE", "DMABUF"]
    # DMABUFs are of the host or of the device: two rows.
    equal([(w["from"], w["exported"], w["to"]) for w in table],
          [(a, e, b) for a, e in [(k, False) for k in kinds] +
           [("DMABUF", True)] for b in kinds], "rows")
    true(all(w["text"] for w in table), "a way without words")
    way = {(w["from"], w["exported"], w["to"]): w["way"] for w in table}
    equal(way["HOST", False, "HOST_PINNED"], "upgrade", "HOST")
    equal(way["HOST_PINNED", False, "HOST"], "none", "HOST_PINNED")
    equal(way["CUDA_DEVICE", False, "HOST_PINNED"], "copy", "CUDA_DEVICE")
    equal(way["DMABUF", True, "CUDA_DEVICE"], "none", "exported DMABUF")
    # The emulated device exports its memory and takes any DMABUF in.
    equal(way["CUDA_DEVICE", False, "DMABUF"], "export", "export")
    equal(way["DMABUF", False, "CUDA_DEVICE"], "import", "import")

    # Without those two it says what is missing.
    env = dict(os.environ, PENSTOCK_EMU_DMABUF="none")
    result = penstock("devices", "--device", "emulated", env=env)
    equal(result.returncode, 0, result.stderr)
    lines = [line.split(None, 4) for line in result.stdout.splitlines()
             if " -> " in line]
    equal(len(lines), 20, "lines of the table")
    true(any(line[:4] == ["DMABUF", "->", "CUDA_DEVICE", "staged"]
             for line in lines), result.stdout)


@case
def a_device_that_is_not_there_is_told(folder):
    result = penstock("devices", "--device", "GPU-none", "--json")
    equal(result.returncode != 0, True, result.stdout)
    true(result.stderr.startswith("penstock: "), result.stderr)
    equal(json.loads(result.stdout)["ok"], False, "ok")


@case
def what_failed_is_json_too(folder):
    bad = os.path.join(folder, "bad.json")
    with open(bad, "w") as f:
        f.write('{"modules": {"s": {"type": "Nothing"}}}')
    for command in (["validate", "--json", bad], ["plan", "--json", bad],
                    ["run", "--report", "json", bad],
                    ["describe", "--json", "Nothing"]):
        result = penstock(*command)
        equal(result.returncode, 1, " ".join(command))
        report = json.loads(result.stdout)
        equal(report["ok"], False, " ".join(command))
        keys(report["issues"][0],
             "severity code line column pointer message suggestion",
             " ".join(command))


@case
def progress_is_drawn_on_a_terminal_only_if_wanted(folder):
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        json.dump({"modules": {
            "s": {"type": "TestSignalGenerator",
                  "props": {"width": 64, "height": 48, "maxFrames": 20}},
            "k": {"type": "StatSink"}},
            "connections": [{"from": "s", "to": "k"}]}, f)
    for wanted in ("auto", "never"):
        try:
            ours, theirs = pty.openpty()
        except OSError as reason:
            raise Skip(f"no terminal can be opened here: {reason}")
        result = subprocess.run(
            [PENSTOCK, "run", path, "--progress", wanted], stderr=theirs,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=60)
        os.write(theirs, b"|")  # so that there is something to read
        os.close(theirs)
        text = os.read(ours, 1 << 16).decode()
        os.close(ours)
        equal(result.returncode, 0, text)
        equal("20 of 20 frames" in text, wanted == "auto", repr(text))


main()
