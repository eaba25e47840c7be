#!/usr/bin/env python3
"""The command at work: the main job, bad input, signals, closed outputs."""

import json
import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import time
import zlib

from tap import (BUILD, MAKE_PHOTOS, PENSTOCK, SOURCE, Skip, case, equal, main,
                 penstock, true)

EXAMPLE = os.path.join(SOURCE, "examples/blur.json")


def photos(folder, count=3, width=97, height=61):
    path = os.path.join(folder, "photos")
    subprocess.run([MAKE_PHOTOS, path, str(count), str(width), str(height)],
                   check=True)
    return path


def blur(folder, source, *arguments, out="out/????.jpg", **kwargs):
    """Run the example on the files of `source`, a folder or a pattern."""
    if os.path.isdir(source):
        source += "/*.jpg"
    return penstock(
        "run", EXAMPLE, "--report", "json", "--device", "emulated",
        "--set", f"reader.strFullFileNameWithPattern={source}",
        "--set", "writer.strFullFileNameWithPattern="
        + os.path.join(folder, out), *arguments, **kwargs)


def outputs(folder):
    path = os.path.join(folder, "out")
    return sorted(os.listdir(path)) if os.path.isdir(path) else []


def fails(folder, result, *words, code=2):
    """The run failed with this code, says why, and left nothing half-done."""
    equal(result.returncode, code, result.stdout + result.stderr)
    text = result.stdout + result.stderr
    for word in words:
        true(word in text, f"{word!r} is not in\n{text}")
    for name in outputs(folder):
        true(name.endswith(".jpg"), f"{name} was left behind")


def png(width, height, rows=None):
    """A grey PNG whose header claims this size."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data
                + struct.pack(">I", zlib.crc32(kind + data)))
    data = rows if rows is not None else b""
    return (b"\x89PNG\r\n\x1a\n"
            + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0,
                                         0))
            + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b""))


def pipeline(folder, modules, connections, *arguments, **kwargs):
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        json.dump({"modules": modules,
                   "connections": [{"from": a, "to": b}
                                   for a, b in connections]}, f)
    return penstock("run", path, "--report", "json", "--device", "emulated",
                    *arguments, **kwargs)


def generator(**props):
    return {"type": "TestSignalGenerator",
            "props": {"width": 64, "height": 48, **props}}


@case
def the_main_job_writes_every_photo_and_leaks_nothing(folder):
    result = blur(folder, photos(folder))
    equal(result.returncode, 0, result.stdout + result.stderr)
    report = json.loads(result.stdout)
    equal(report["ok"], True, "ok")
    equal(report["device"]["emulated"], True, "emulated")
    equal(report["leaks"], [], "leaks")
    equal(report["transfers"]["h2d"]["count"], 3, "uploads")
    equal(report["transfers"]["d2h"]["count"], 3, "downloads")
    cuda = report["cuda"]
    equal(cuda["streams"], 1, "streams")
    equal(cuda["contexts_retained"], cuda["contexts_released"], "contexts")
    equal(cuda["steady_state_allocations"], 0, "steady-state allocations")
    equal(cuda["blocking_syncs"], 0, "blocking syncs")
    equal(outputs(folder), ["0000.jpg", "0001.jpg", "0002.jpg"], "files")
    for key in ("frames", "seconds", "fps", "modules", "edges", "memory",
                "errors"):
        true(key in report, f"no {key}")
    for mem in ("host", "host_pinned", "cuda_device", "dmabuf"):
        memory = report["memory"][mem]
        true(memory["peak"] <= memory["planned_peak"],
             f"{mem}: peak {memory}")
        equal(memory["live"], 0, f"{mem} live")


GENERIC = ({"s": {"type": "TestSignalGenerator",
                  "props": {"width": 640, "height": 480, "maxFrames": 3}},
            "rgb": {"type": "ColorConvert", "props": {"imageType": "RGB"}},
            "blur": {"type": "Blur", "props": {"kernelSize": 31, "sigma": 5}},
            "k": {"type": "StatSink"}},
           [("s", "rgb"), ("rgb", "blur"), ("blur", "k")])


@case
def a_profile_decides_whether_a_device_is_opened(folder):
    # On a GPU whose context is there already, the device pays and is opened.
    with open(os.path.join(SOURCE, "profiles/h200.json")) as f:
        profile = json.load(f)
    profile["context_ns"] = profile["load_ns"] = 0
    ready = os.path.join(folder, "ready.json")
    with open(ready, "w") as f:
        json.dump(profile, f)
    result = pipeline(folder, *GENERIC, "--profile", ready)
    equal(result.returncode, 0, result.stderr)
    report = json.loads(result.stdout)
    equal(report["device"]["emulated"], True, "device")
    equal(report["transfers"]["h2d"]["count"], 3, "uploads")
    equal(report["cuda"]["contexts_retained"], 1, "contexts")
    # For the emulated device nothing is worth an upload.
    result = pipeline(folder, *GENERIC, "--profile", "cpu")
    equal(result.returncode, 0, result.stderr)
    report = json.loads(result.stdout)
    equal(report["device"], None, "device")
    equal(report["transfers"]["h2d"]["count"], 0, "uploads")
    equal(report["cuda"]["contexts_retained"], 0, "contexts")


@case
def what_is_otherwise_than_in_the_profile_is_told(folder):
    modules = {"s": generator(maxFrames=2),
               "b": {"type": "GaussianBlur", "props": {"sigma": 1.0}},
               "k": {"type": "StatSink"}}
    links = [("s", "b"), ("b", "k")]
    result = pipeline(folder, modules, links, "--profile", "h200")
    equal(result.returncode, 0, result.stderr)
    profile = json.loads(result.stdout)["profile"]
    equal((profile["name"], profile["given"]), ("h200", True), "profile")
    told = {d["what"]: d for d in profile["differences"]}
    equal(told["device"]["profile"], "NVIDIA H200", "device")
    true("emulated" in told["device"]["found"], str(told))
    true("GiB" in told["free device memory"]["profile"], str(told))
    for what in told:
        true(f"{what}: " in result.stderr, result.stderr)

    # Nobody asked for the built-in one: that is in the report alone.
    result = pipeline(folder, modules, links)
    equal(result.stderr, "", "notices")
    profile = json.loads(result.stdout)["profile"]
    equal((profile["name"], profile["given"]), ("generic-cuda", False),
          "profile")

    # A profile of this machine differs in nothing but what is free now.
    own = os.path.join(folder, "own.json")
    equal(penstock("calibrate", "--device", "emulated", "--output",
                   own).returncode, 0, "calibrate")
    result = pipeline(folder, modules, links, "--profile", own)
    differences = json.loads(result.stdout)["profile"]["differences"]
    equal([d for d in differences if d["what"] != "free device memory"], [],
          "differences")


@case
def the_plan_of_a_run_names_the_device_that_it_has(folder):
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        json.dump({"modules": {"s": generator(maxFrames=1),
                               "b": {"type": "GaussianBlur",
                                     "props": {"sigma": 1.0}},
                               "k": {"type": "StatSink"}},
                   "connections": [{"from": "s", "to": "b"},
                                   {"from": "b", "to": "k"}]}, f)
    for profile in ([], ["--profile", "cpu"]):
        result = penstock("run", path, "--device", "emulated", *profile)
        equal(result.returncode, 0, result.stderr)
        true("device emulated" in result.stdout, result.stdout)
        true("device auto" not in result.stdout, result.stdout)
        true("I320" not in result.stdout, result.stdout)
    true("device auto" in penstock("plan", path).stdout, "plan")


@case
def the_text_report_ends_with_no_leaks(folder):
    result = penstock(
        "run", EXAMPLE, "--device", "emulated",
        "--set", f"reader.strFullFileNameWithPattern={photos(folder)}/*.jpg",
        "--set", f"writer.strFullFileNameWithPattern={folder}/out/????.jpg")
    equal(result.returncode, 0, result.stdout + result.stderr)
    true("no leaks" in result.stdout.splitlines()[-1], result.stdout)
    true(result.stdout.count("CudaMemCopy") >= 2, "the plan is missing")
    true("\r" not in result.stderr, "progress was drawn into a pipe")


@case
def automatic_choice_emulates_once_and_says_so(folder):
    if shutil.which("nvidia-smi"):
        raise Skip("a driver is installed here")
    result = blur(folder, photos(folder, 1), "--device", "auto")
    equal(result.returncode, 0, result.stdout + result.stderr)
    equal(len([l for l in result.stderr.splitlines()
               if "no CUDA driver" in l]), 1, result.stderr)


@case
def device_0_without_a_driver_says_what_is_missing(folder):
    if shutil.which("nvidia-smi"):
        raise Skip("a driver is installed here")
    result = blur(folder, photos(folder, 1), "--device", "0")
    fails(folder, result, "libcuda.so.1")
    equal(outputs(folder), [], "files")


@case
def odd_and_tiny_pictures_work(folder):
    for number, (width, height) in enumerate(((1, 1), (1, 7), (13, 1), (3, 5),
                                              (641, 361))):
        path = photos(folder, 1, width, height)
        result = blur(folder, path, out=f"out/{number}_????.jpg")
        equal(result.returncode, 0,
              f"{width}x{height}\n{result.stdout}{result.stderr}")
    equal(len(outputs(folder)), 5, str(outputs(folder)))


@case
def sizes_may_change_from_file_to_file(folder):
    path = photos(folder, 1, 64, 48)
    other = os.path.join(folder, "other")
    os.mkdir(other)
    for i, (w, h) in enumerate(((320, 200), (17, 33), (640, 480))):
        os.rename(photos(other, 1, w, h) + "/0000.jpg",
                  f"{path}/{i + 1:04}.jpg")
    for arguments in ((), ("--no-probe",)):
        result = blur(folder, path, *arguments)
        equal(result.returncode, 0, result.stdout + result.stderr)
        equal(json.loads(result.stdout)["leaks"], [], "leaks")
        equal(len(outputs(folder)), 4, str(outputs(folder)))


@case
def missing_input_is_an_error(folder):
    fails(folder, blur(folder, os.path.join(folder, "none.jpg")), "none.jpg",
          code=1)


@case
def a_truncated_photo_is_an_error_with_module_and_frame(folder):
    path = photos(folder, 2)
    data = open(path + "/0001.jpg", "rb").read()
    with open(path + "/0001.jpg", "wb") as f:
        f.write(data[:len(data) // 2])
    result = blur(folder, path)
    fails(folder, result, "decoder", "frame 1")
    equal(outputs(folder), ["0000.jpg"] if outputs(folder) else [], "files")


@case
def a_bad_photo_can_be_dropped_and_is_counted(folder):
    path = photos(folder, 3)
    with open(path + "/0001.jpg", "r+b") as f:
        f.truncate(2000)
    result = blur(folder, path, "--set", "decoder.onError=drop")
    equal(result.returncode, 0, result.stdout + result.stderr)
    report = json.loads(result.stdout)
    drops = {m["id"]: m["drops"] for m in report["modules"]}
    equal(drops["decoder"], 1, str(drops))
    equal(len(outputs(folder)), 2, str(outputs(folder)))


@case
def text_named_jpg_is_an_error(folder):
    path = photos(folder, 1)
    with open(path + "/0000.jpg", "w") as f:
        f.write("this is no picture\n" * 10)
    fails(folder, blur(folder, path), "decoder")
    equal(outputs(folder), [], "files")


@case
def an_output_folder_that_is_a_file_is_an_error(folder):
    path = photos(folder, 1)
    with open(os.path.join(folder, "out"), "w") as f:
        f.write("in the way")
    fails(folder, blur(folder, path), "writer", "out")


@case
def an_output_that_is_a_link_is_refused(folder):
    path = photos(folder, 1)
    victim = os.path.join(folder, "victim")
    with open(victim, "w") as f:
        f.write("precious")
    os.mkdir(os.path.join(folder, "out"))
    os.symlink(victim, os.path.join(folder, "out", "0000.jpg"))
    fails(folder, blur(folder, path), "writer", "0000.jpg")
    equal(open(victim).read(), "precious", "the link's target")


@case
def an_output_that_is_an_input_is_refused(folder):
    path = photos(folder, 1)
    before = open(path + "/0000.jpg", "rb").read()
    result = blur(folder, path, out="photos/????.jpg")
    true(result.returncode in (1, 2), result.stdout)
    equal(open(path + "/0000.jpg", "rb").read(), before, "the input")


@case
def headers_that_claim_too_many_pixels_are_refused(folder):
    path = os.path.join(folder, "photos")
    os.mkdir(path)
    with open(path + "/huge.png", "wb") as f:
        f.write(png(60000, 60000))
    result = blur(folder, path + "/*.png")
    true(result.returncode in (1, 2), result.stdout + result.stderr)
    true("60000" in result.stdout + result.stderr, result.stdout)
    jpeg = bytearray(open(photos(folder, 1) + "/0000.jpg", "rb").read())
    at = jpeg.index(b"\xff\xc0")
    jpeg[at + 5:at + 9] = struct.pack(">HH", 65000, 65000)
    with open(path + "/0000.jpg", "wb") as f:
        f.write(jpeg)
    for arguments in ((), ("--no-probe",)):
        result = blur(folder, path + "/0000.jpg", *arguments)
        true(result.returncode in (1, 2), result.stdout + result.stderr)
        true("65000" in result.stdout + result.stderr,
             result.stdout + result.stderr)
    equal(outputs(folder), [], "files")


@case
def a_file_size_limit_leaves_no_half_file(folder):
    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
    path = photos(folder, 2, 640, 480)
    result = blur(folder, path, preexec_fn=limit)
    fails(folder, result, "writer")
    equal(outputs(folder), [], "files")


@case
def a_full_disk_leaves_no_half_file(folder):
    small = os.path.join(folder, "out")
    os.mkdir(small)
    if os.geteuid() != 0 or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small],
            stderr=subprocess.DEVNULL).returncode:
        raise Skip("a small tmpfs cannot be mounted here")
    try:
        path = photos(folder, 4, 640, 480)
        result = blur(folder, path)
        fails(folder, result, "writer", "No space left")
        for name in outputs(folder):
            data = open(os.path.join(small, name), "rb").read()
            true(data.endswith(b"\xff\xd9"), f"{name} is cut")
    finally:
        subprocess.run(["umount", small], check=True)


@case
def a_plain_existing_file_is_not_overwritten(folder):
    target = os.path.join(folder, "out.raw")
    with open(target, "w") as f:
        f.write("precious")
    modules = {"s": generator(maxFrames=1),
               "w": {"type": "FileWriterModule", "props": {
                   "strFullFileNameWithPattern": target}}}
    result = pipeline(folder, modules, [("s", "w")])
    true(result.returncode in (1, 2), result.stdout)
    true("out.raw" in result.stdout + result.stderr, result.stdout)
    equal(open(target).read(), "precious", "the file")


@case
def frames_limits_every_source(folder):
    result = pipeline(folder, {"s": generator(), "k": {"type": "StatSink"}},
                      [("s", "k")], "--frames", "7")
    equal(result.returncode, 0, result.stdout + result.stderr)
    modules = {m["id"]: m for m in json.loads(result.stdout)["modules"]}
    equal(modules["k"]["frames"], 7, "frames at the sink")


@case
def raw_frames_are_the_same_on_one_path_and_another(folder):
    raw = {"type": "FileWriterModule", "props": {
        "strFullFileNameWithPattern": folder + "/cpu????.raw"}}
    rgb = {"type": "ColorConversion", "props": {"imageType": "RGB"}}
    pipeline(folder, {"s": generator(maxFrames=2, pattern="COLOR_BARS"),
                      "rgb": rgb, "b": {"type": "GaussianBlurCV",
                                        "props": {"kernelSize": 7}},
                      "w": raw}, [("s", "rgb"), ("rgb", "b"), ("b", "w")])
    raw = {"type": "FileWriterModule", "props": {
        "strFullFileNameWithPattern": folder + "/gpu????.raw"}}
    result = pipeline(folder,
                      {"s": generator(maxFrames=2, pattern="COLOR_BARS"),
                       "rgb": {"type": "CCNPPI", "props": {
                           "imageType": "RGB"}},
                       "b": {"type": "GaussianBlur",
                             "props": {"kernelSize": 7}}, "w": raw},
                      [("s", "rgb"), ("rgb", "b"), ("b", "w")])
    equal(result.returncode, 0, result.stdout + result.stderr)
    for i in range(2):
        a = open(f"{folder}/cpu{i:04}.raw", "rb").read()
        b = open(f"{folder}/gpu{i:04}.raw", "rb").read()
        equal(len(a), 64 * 48 * 3, "bytes of a tight RGB frame")
        true(a == b, f"frame {i} differs between CPU and device")


def endless(folder, *arguments):
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        json.dump({"modules": {"s": generator(), "b": {
            "type": "GaussianBlur"}, "k": {"type": "StatSink"}},
            "connections": [{"from": "s", "to": "b"},
                            {"from": "b", "to": "k"}]}, f)
    process = subprocess.Popen(
        [PENSTOCK, "run", path, "--report", "json", "--device", "emulated",
         *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True)
    time.sleep(1.0)
    return process


@case
def the_first_signal_drains_and_exits_0(folder):
    for number in (signal.SIGINT, signal.SIGTERM):
        process = endless(folder)
        process.send_signal(number)
        process.send_signal(number)  # the same keystroke, forwarded
        out, err = process.communicate(timeout=60)
        equal(process.returncode, 0, out + err)
        report = json.loads(out)
        equal(report["leaks"], [], "leaks")
        true(report["frames"] > 0, "no frames")


def held_up(folder):
    """A run that no drain ends: its writer waits for the reader of a FIFO,
    which is returned with it."""
    path = os.path.join(folder, "p.json")
    fifo = os.path.join(folder, "fifo.raw")
    os.mkfifo(fifo)
    end = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
    with open(path, "w") as f:
        json.dump({"modules": {
            "s": generator(width=640, height=480), "w": {
                "type": "FileWriterModule",
                "props": {"strFullFileNameWithPattern": fifo}}},
            "connections": [{"from": "s", "to": "w"}]}, f)
    process = subprocess.Popen(
        [PENSTOCK, "run", path, "--report", "json"], stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True)
    true(select.select([end], [], [], 30)[0], "nothing was written")
    return process, end


def wait_for_line(process, word):
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"{word!r} was not said")


@case
def a_second_signal_ends_the_run_with_128_and_its_number(folder):
    for first, second in ((signal.SIGINT, signal.SIGINT),
                          (signal.SIGINT, signal.SIGTERM)):
        where = os.path.join(folder, second.name)
        os.mkdir(where)
        process, end = held_up(where)
        process.send_signal(first)
        wait_for_line(process, "draining")
        time.sleep(0.7)  # later than the same keystroke forwarded
        equal(process.poll(), None, "the drain ended")
        process.send_signal(second)
        time.sleep(0.2)
        os.set_blocking(end, True)
        while os.read(end, 1 << 20):
            pass
        out, err = process.communicate(timeout=60)
        os.close(end)
        equal(process.returncode, 128 + second, out + err)
        equal(json.loads(out)["leaks"], [], "leaks")


@case
def a_third_signal_waits_for_nothing(folder):
    process, end = held_up(folder)
    process.send_signal(signal.SIGINT)
    wait_for_line(process, "draining")
    time.sleep(0.7)
    process.send_signal(signal.SIGINT)
    time.sleep(0.2)
    equal(process.poll(), None, "the stop ended")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=4)  # a stop takes 5 s to give up
    os.close(end)
    equal(process.returncode, 128 + signal.SIGTERM, out + err)


@case
def a_closed_output_pipe_ends_the_text_and_not_the_job(folder):
    reader, writer = os.pipe()
    os.close(reader)
    path = photos(folder, 2)
    result = penstock(
        "run", EXAMPLE, "--device", "emulated",
        "--set", f"reader.strFullFileNameWithPattern={path}/*.jpg",
        "--set", f"writer.strFullFileNameWithPattern={folder}/out/????.jpg",
        stdout=writer)
    os.close(writer)
    equal(result.returncode, 0, result.stderr)
    equal(len(outputs(folder)), 2, str(outputs(folder)))


@case
def a_full_output_device_is_an_error(folder):
    with open("/dev/full", "w") as full:
        result = penstock("list-modules", stdout=full)
    equal(result.returncode, 2, result.stderr)
    true("No space left" in result.stderr, result.stderr)


@case
def leak_detection_can_be_switched(folder):
    for spelling in ("--detect-memory-leaks=0", "--detect_memory_leaks=1"):
        result = pipeline(folder, {"s": generator(maxFrames=2),
                                   "k": {"type": "StatSink"}}, [("s", "k")],
                          spelling)
        equal(result.returncode, 0, result.stdout + result.stderr)


@case
def files_in_the_shape_of_the_reference_run(folder):
    text = {
        "pipeline": {"name": "cuda gaussian blur", "version": "1.0"},
        "settings": {"queueSize": 10, "onError": "stop"},
        "modules": {
            "generator": {"type": "TestSignalGenerator", "#": "source",
                          "props": {"width": 320, "height": 240,
                                    "pattern": "COLOR_BARS", "maxFrames": 3}},
            "convert": {"type": "ColorConversion", "props": {
                "conversionType": "YUV420PLANAR_TO_RGB"}},
            "upload": {"type": "CudaMemCopyH2D"},
            "blur": {"type": "GaussianBlur", "props": {"kernelSize": 7}},
            "download": {"type": "CudaMemCopyD2H"},
            "encoder": {"type": "ImageEncoderCV"},
            "writer": {"type": "FileWriterModule", "props": {
                "strFullFileNameWithPattern": folder + "/out/b????.jpg"}},
        },
        "connections": [
            {"from": "encoder", "to": "writer"},
            {"from": "generator.output", "to": "convert.input"},
            {"from": "convert", "to": "upload"},
            {"from": "upload", "to": "blur"},
            {"from": "blur", "to": "download"},
            {"from": "download", "to": "encoder"},
        ],
    }
    path = os.path.join(folder, "p.json")
    with open(path, "w") as f:
        json.dump(text, f)
    result = penstock("run", path, "--report", "json", "--device", "emulated")
    equal(result.returncode, 0, result.stdout + result.stderr)
    equal(outputs(folder), ["b0000.jpg", "b0001.jpg", "b0002.jpg"], "files")


@case
def a_program_builds_against_the_installed_library(folder):
    stage = os.path.join(folder, "stage")
    environment = {**os.environ, "DESTDIR": stage}
    subprocess.run(["meson", "install", "-C", BUILD, "--no-rebuild"],
                   check=True, stdout=subprocess.DEVNULL, env=environment)
    config = subprocess.run(["find", stage, "-name", "penstock.pc"],
                            stdout=subprocess.PIPE, text=True).stdout.strip()
    true(config, "no penstock.pc was installed")
    environment = {**os.environ, "PKG_CONFIG_SYSROOT_DIR": stage,
                   "PKG_CONFIG_PATH": os.path.dirname(config)}
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "penstock"],
                           check=True, stdout=subprocess.PIPE, text=True,
                           env=environment).stdout.split()
    options = json.loads(subprocess.run(
        ["meson", "introspect", BUILD, "--buildoptions"], check=True,
        stdout=subprocess.PIPE, text=True).stdout)
    sanitize = [o["value"] for o in options if o["name"] == "b_sanitize"][0]
    if sanitize != "none":
        flags.append("-fsanitize=" + sanitize)
    program = os.path.join(folder, "use_library")
    subprocess.run(["gcc", "-std=c17", "-Wall", "-Wextra", "-Werror", "-o",
                    program, os.path.join(SOURCE, "examples/use_library.c"),
                    *flags], check=True)
    library = os.path.dirname(subprocess.run(
        ["find", stage, "-name", "libpenstock.so.0"], stdout=subprocess.PIPE,
        text=True).stdout.strip())
    path = photos(folder, 2)
    result = subprocess.run(
        [program, EXAMPLE,
         f"reader.strFullFileNameWithPattern={path}/*.jpg",
         f"writer.strFullFileNameWithPattern={folder}/out/????.jpg"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "LD_LIBRARY_PATH": library})
    equal(result.returncode, 0, result.stdout)
    true("2 uploads" in result.stdout and "0 leaks" in result.stdout,
         result.stdout)
    equal(len(outputs(folder)), 2, "files")


def writer(path, **props):
    return {"type": "FileWriterModule",
            "props": {"strFullFileNameWithPattern": path, **props}}


@case
def writers_of_the_same_files_are_refused(folder):
    os.mkdir(os.path.join(folder, "real"))
    os.symlink("real", os.path.join(folder, "link"))
    same = [("out/????.raw", "out/????.raw", {}),
            ("out/????.raw", "./out//????.raw", {"startIndex": 2}),
            ("real/*.raw", "link/*.raw", {}),
            ("one.raw", "one.raw", {"append": True})]
    for first, second, props in same:
        result = pipeline(
            folder,
            {"g": generator(maxFrames=3),
             "w1": writer(os.path.join(folder, first),
                          **{k: v for k, v in props.items() if k == "append"}),
             "w2": writer(folder + "/" + second, **props)},
            [("g", "w1"), ("g", "w2")])
        true(result.returncode in (1, 2), f"{first}: {result.stdout}")
        true("as well" in result.stderr, result.stderr)
        error = json.loads(result.stdout)["errors"][0]
        true(error["module"] in ("w1", "w2"), str(error))
        equal(os.listdir(os.path.join(folder, "real")), [], first)
        true(not os.path.exists(os.path.join(folder, "one.raw")), first)
        equal(outputs(folder), [], first)
    # Numbers that do not meet, and devices, are nobody's loss.
    for first, second, props in [("out/????.raw", "out/????.raw",
                                  {"startIndex": 3}),
                                 ("/dev/null", "/dev/null", {})]:
        result = pipeline(
            folder,
            {"g": generator(maxFrames=3),
             "w1": writer(os.path.join(folder, first)),
             "w2": writer(os.path.join(folder, second), **props)},
            [("g", "w1"), ("g", "w2")])
        equal(result.returncode, 0, result.stdout + result.stderr)
    equal(len(outputs(folder)), 6, "files")


@case
def an_error_before_the_first_frame_names_its_module(folder):
    result = pipeline(folder,
                      {"g": generator(maxFrames=3),
                       "w": writer(folder)},
                      [("g", "w")])
    equal(result.returncode, 2, result.stdout)
    error = json.loads(result.stdout)["errors"][0]
    equal((error["module"], error["frame"]), ("w", None), str(error))


def upright_to(source, target, orientation):
    """A copy of a JPEG with an Exif orientation."""
    with open(source, "rb") as f:
        data = f.read()
    tiff = (b"II*\0" + struct.pack("<IH", 8, 1)
            + struct.pack("<HHIHH", 0x112, 3, 1, orientation, 0)
            + struct.pack("<I", 0))
    exif = b"Exif\0\0" + tiff
    with open(target, "wb") as f:
        f.write(data[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2)
                + exif + data[2:])


@case
def workspaces_are_in_the_plan(folder):
    source = photos(folder, 1)
    picture = os.path.join(source, os.listdir(source)[0])
    turned = os.path.join(folder, "turned.jpg")
    upright_to(picture, turned, 6)
    scale = {"width": 50, "height": 31}
    chains = {"decoder": []}
    for kind in ("ResizeNPPI", "ImageResizeCV"):
        for how in ("nearest", "bilinear", "area", "bicubic"):
            chains[f"{kind} {how}"] = [
                {"type": kind, "props": {**scale, "interpolation": how}}]
    # Sizes that come with the first frame are planned then.
    chains["decoder, not probed"] = []
    for name, modules in chains.items():
        probe = ["--no-probe"] if "not probed" in name else []
        ids = ["r", "d"] + [f"m{i}" for i in range(len(modules))] + ["s"]
        result = pipeline(
            folder,
            dict(zip(ids, [{"type": "FileReaderModule",
                            "props": {"strFullFileNameWithPattern": turned,
                                      "readLoop": True}},
                           {"type": "ImageDecoderCV"}] + modules
                     + [{"type": "StatSink"}])),
            list(zip(ids, ids[1:])), "--frames", "5", *probe)
        equal(result.returncode, 0, f"{name}: {result.stdout}")
        report = json.loads(result.stdout)
        equal(report["frames"], 5, name)
        equal(report["cuda"]["steady_state_allocations"], 0, name)
        for mem, memory in report["memory"].items():
            true(memory["peak"] <= memory["planned_peak"],
                 f"{name}, {mem}: {memory}")
            if not probe:
                equal(memory["peak"], memory["planned_peak"],
                      f"{name}, {mem}")


@case
def what_settles_sizes_anew_is_told(folder):
    source = photos(folder, 1)
    result = blur(folder, source, "--no-probe")
    equal(result.returncode, 0, result.stderr)
    size = os.path.getsize(os.path.join(source, os.listdir(source)[0]))
    told = f"reader.output gives JPEG ?x?, {size / 1024:.2f} KiB: sizes are"
    true(told in result.stderr, f"{told!r} is not in {result.stderr}")
    true("decoder.output gives RGB 97x61" in result.stderr, result.stderr)


@case
def long_ids_are_reported_whole(folder):
    name = "\u00f6" * 200
    result = pipeline(folder, {"g": generator(maxFrames=3),
                               name: writer(folder)}, [("g", name)],
                      errors="replace")
    equal(result.returncode, 2, result.stdout)
    report = json.loads(result.stdout)
    equal(report["errors"][0]["module"], name, "module")
    equal(report["edges"][0]["from"], "g.output", "from")
    equal(report["edges"][0]["to"], name + ".input", "to")


main()
