#!/usr/bin/env python3
"""Bad pipeline files: each mistake has its place, pointer and remedy."""

import json
import os

from tap import case, equal, main, penstock, true

GOOD = '''{
  "modules": {
    "source": {
      "type": "TestSignalGenerator",
      "props": { "width": 64, "height": 48, "maxFrames": 3 }
    },
    "sink": { "type": "StatSink" }
  },
  "connections": [ { "from": "source", "to": "sink" } ]
}
'''


def write(folder, text, name="p.json"):
    path = os.path.join(folder, name)
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return path


def check(folder, text, code, line, column, pointer, *words, exit_code=1):
    """`validate` reports exactly this error; JSON and text agree."""
    path = write(folder, text)
    result = penstock("validate", "--json", path)
    equal(result.returncode, exit_code, "exit code\n" + result.stdout)
    report = json.loads(result.stdout)
    equal(report["ok"], False, "ok")
    errors = [i for i in report["issues"] if i["severity"] == "error"]
    found = [i for i in errors if i["code"] == code]
    true(found, f"no {code} among {errors}")
    issue = found[0]
    equal((issue["line"], issue["column"]), (line, column), str(issue))
    equal(issue["pointer"], pointer, str(issue))
    for word in words:
        true(word in issue["message"] + " " + issue["suggestion"],
             f"{word!r} is not in {issue}")
    plain = penstock("validate", path)
    equal(plain.returncode, exit_code, "exit code of the text form")
    true(f"error {code} {path}:{line}:{column} " in plain.stdout, plain.stdout)


@case
def a_good_file_is_ok(folder):
    result = penstock("validate", write(folder, GOOD))
    equal(result.returncode, 0, result.stdout + result.stderr)


@case
def byte_order_mark_and_crlf_are_accepted(folder):
    text = b"\xef\xbb\xbf" + GOOD.replace("\n", "\r\n").encode()
    result = penstock("validate", write(folder, text))
    equal(result.returncode, 0, result.stdout)


@case
def broken_json_names_line_and_column(folder):
    path = write(folder, GOOD.replace('"sink": {', '"sink" {'))
    result = penstock("validate", "--json", path)
    equal(result.returncode, 1, "exit code")
    issue = json.loads(result.stdout)["issues"][0]
    equal(issue["line"], 7, str(issue))
    equal(issue["column"], 12, str(issue))


@case
def unknown_module_suggests_the_nearest(folder):
    check(folder, GOOD.replace("TestSignalGenerator", "TestSignalGenerater"),
          "E100", 4, 7, "/modules/source/type", "TestSignalGenerator")


def with_middle(module):
    """GOOD with a module between source and sink."""
    return GOOD.replace('"sink": {', f'"m": {module},\n    "sink": {{').replace(
        '{ "from": "source", "to": "sink" }',
        '{ "from": "source", "to": "m" }, { "from": "m", "to": "sink" }')


@case
def a_type_without_a_class_is_not_accepted_silently(folder):
    check(folder, with_middle('{ "type": "Rotate" }'), "E100", 7, 12,
          "/modules/m/type", "function:rotate", "none yet")
    check(folder, with_middle('{ "type": "Resiz" }'), "E100", 7, 12,
          "/modules/m/type", '"type": "Resize"')


@case
def a_generic_type_takes_what_its_classes_take(folder):
    good = '{ "type": "Resize", "props": { "width": 32, "height": 24 } }'
    result = penstock("validate", write(folder, with_middle(good)))
    equal(result.returncode, 0, result.stdout)
    for props in ('"width": 32', '"width": 32, "height": 24, "zoom": 1'):
        check(folder,
              with_middle(f'{{ "type": "Resize", "props": {{ {props} }} }}'),
              "E200" if "zoom" in props else "E205", 7,
              68 if "zoom" in props else 30,
              "/modules/m/props/" + ("zoom" if "zoom" in props else "height"),
              "Resize")


@case
def backend_can_only_be_where_there_is_a_choice(folder):
    check(folder, with_middle('{ "type": "GaussianBlur", "props": '
                              '{ "sigma": 1, "backend": "cpu" } }'),
          "E206", 7, 59, "/modules/m/props/backend", '"type": "Blur"')
    check(folder, with_middle('{ "type": "JpegDecode", "props": '
                              '{ "backend": "cuda" } }'),
          "E206", 7, 45, "/modules/m/props/backend", "ImageDecoderCV")
    # A repair that can be pasted where only the other backend has a property.
    text = with_middle('{ "type": "ColorConvert", "props": '
                       '{ "conversionType": "RGB_TO_MONO", '
                       '"backend": "cuda" } }')
    check(folder, text, "E206", 7, 80, "/modules/m/props/backend",
          '"backend": "cpu"')
    result = penstock("validate",
                      write(folder, text.replace('"cuda"', '"cpu"')))
    equal(result.returncode, 0, result.stdout)
    for backend in ("cpu", "cuda", "auto"):
        text = with_middle('{ "type": "Blur", "props": { "sigma": 1, '
                           f'"backend": "{backend}" }} }}')
        result = penstock("validate", write(folder, text))
        equal(result.returncode, 0, result.stdout)


@case
def generic_types_are_listed_and_described(folder):
    listed = json.loads(penstock("list-modules", "--json").stdout)["generic"]
    options = {t["name"]: [o["name"] for o in t["options"]] for t in listed}
    equal(options["Resize"], ["ImageResizeCV", "ResizeNPPI"], "Resize")
    equal(options["Blur"], ["GaussianBlur", "GaussianBlurCV"], "Blur")
    equal(options["JpegEncode"], ["ImageEncoderCV"], "JpegEncode")
    equal(options["Rotate"], [], "Rotate")
    true(not [t for t in listed if t["name"] == "Rotate"][0]["available"],
         "Rotate")
    text = penstock("list-modules", "--tag", "function:resize").stdout
    equal([line.split()[0] for line in text.splitlines()],
          ["ImageResizeCV", "ResizeNPPI", "Resize"], text)
    # The pair of tags means one module and no other.
    text = penstock("list-modules", "--tag", "function:resize", "--tag",
                    "backend:cuda").stdout
    equal([line.split()[0] for line in text.splitlines()], ["ResizeNPPI"],
          text)
    about = json.loads(penstock("describe", "Resize", "--json").stdout)
    equal([o["backend"] for o in about["options"]], ["cpu", "cuda"], "options")
    equal(about["inputs"][0]["mem"], ["HOST", "HOST_PINNED", "CUDA_DEVICE"],
          "memory of the input")
    true("ImageResizeCV (cpu)" in penstock("describe", "Resize").stdout,
         "text")


@case
def sieve_false_needs_room_for_what_it_forwards(folder):
    text = with_middle('{ "type": "GaussianBlur", "props": { "sigma": 1 } }')
    text = text.replace('"from": "m", "to": "sink"',
                        '"from": "m", "to": "sink", "sieve": false')
    check(folder, text, "E306", 10, 82, "/connections/1/sieve",
          "source.output", "no free input of sink", '"sieve": true')


@case
def headers_are_read_only_if_wanted(folder):
    def validate(*arguments):
        result = penstock("validate", "--json", *arguments, path)
        return result.returncode, json.loads(result.stdout)["issues"]
    picture = os.path.join(folder, "a.raw")
    file = json.loads(GOOD)
    file["modules"]["source"] = {"type": "FileReaderModule", "props": {
        "strFullFileNameWithPattern": picture, "outputFrameType": "RawImage",
        "width": 4, "height": 4, "format": "MONO"}}
    path = write(folder, json.dumps(file))
    write(folder, bytes(17), "a.raw")
    equal(validate(), (0, []), "without --probe")
    code, issues = validate("--probe")
    equal(code, 1, str(issues))
    equal([i["code"] for i in issues], ["E610"], str(issues))
    equal(issues[0]["pointer"], "/modules/source", str(issues))
    true("a.raw" in issues[0]["message"], str(issues))
    write(folder, bytes(32), "a.raw")
    equal(validate("--probe"), (0, []), "two frames")


@case
def a_repair_can_be_pasted(folder):
    """What E304 suggests makes the file good."""
    bad = GOOD.replace('"type": "StatSink"', '"type": "ImageDecoderCV"')
    bad = bad.replace('"connections": [', '"connections": [\n')
    report = json.loads(penstock("validate", "--json",
                                 write(folder, bad)).stdout)
    found = [i for i in report["issues"] if i["code"] == "E304"]
    module, links = found[0]["suggestion"].split(" with ")
    links = links.removesuffix(" instead")
    file = json.loads(bad)
    file["modules"].update(json.loads("{" + module + "}"))
    file["connections"] = json.loads("[" + links + "]")
    result = penstock("validate", "--json",
                      write(folder, json.dumps(file)))
    report = json.loads(result.stdout)
    equal(result.returncode, 0, result.stdout)
    # And what is left over is told with a repair too.
    module, link = [i for i in report["issues"]
                    if i["code"] == "W402"][0]["suggestion"].split(" with ")
    file["modules"].update(json.loads("{" + module + "}"))
    file["connections"] += json.loads("[" + link + "]")
    report = json.loads(penstock("validate", "--json",
                                 write(folder, json.dumps(file))).stdout)
    equal(report["issues"], [], "issues")


@case
def unknown_property_suggests_the_nearest(folder):
    check(folder, GOOD.replace('"width"', '"widht"'), "E200", 5, 18,
          "/modules/source/props/widht", "width")


@case
def wrong_type_says_what_is_expected(folder):
    check(folder, GOOD.replace("64", '"wide"'), "E201", 5, 18,
          "/modules/source/props/width")


@case
def out_of_range_says_the_range(folder):
    check(folder, GOOD.replace("64", "100000"), "E202", 5, 18,
          "/modules/source/props/width", "4096")


@case
def unknown_choice_lists_the_choices(folder):
    check(folder, GOOD.replace('"maxFrames": 3', '"pattern": "GRADENT"'),
          "E203", 5, 45, "/modules/source/props/pattern", "GRADIENT")


@case
def missing_required_property_is_an_error(folder):
    check(folder, GOOD.replace('"width": 64, ', ''), "E205", 5, 7,
          "/modules/source/props/width", "width")


@case
def unknown_source_module_is_e300(folder):
    check(folder, GOOD.replace('"from": "source"', '"from": "sorce"'), "E300",
          9, 22, "/connections/0/from", "source")


@case
def unknown_destination_module_is_e301(folder):
    check(folder, GOOD.replace('"to": "sink"', '"to": "snik"'), "E301", 9, 40,
          "/connections/0/to", "sink")


@case
def unknown_pins_are_errors_even_where_there_is_one(folder):
    check(folder, GOOD.replace('"from": "source"', '"from": "source.out"'),
          "E302", 9, 22, "/connections/0/from", "output")
    check(folder, GOOD.replace('"to": "sink"', '"to": "sink.in"'), "E303", 9,
          40, "/connections/0/to", "input")


@case
def duplicate_input_is_e305(folder):
    check(folder, GOOD.replace(
        '"to": "sink" }', '"to": "sink" },\n{ "from": "source", "to": "sink.input" }'),
          "E305", 10, 21, "/connections/1/to")


@case
def a_cycle_is_named(folder):
    text = '''{
  "modules": {
    "source": { "type": "TestSignalGenerator", "props": { "width": 8, "height": 8 } },
    "a": { "type": "GaussianBlur" },
    "b": { "type": "GaussianBlur" },
    "sink": { "type": "StatSink" }
  },
  "connections": [
    { "from": "a", "to": "b" },
    { "from": "b", "to": "a" },
    { "from": "source", "to": "sink" }
  ]
}'''
    path = write(folder, text)
    result = penstock("validate", "--json", path)
    equal(result.returncode, 1, "exit code")
    issues = [i for i in json.loads(result.stdout)["issues"]
              if i["code"] == "E401"]
    equal(len(issues), 1, str(issues))
    true("a" in issues[0]["message"] and "b" in issues[0]["message"],
         str(issues))


@case
def incompatible_kinds_are_e304(folder):
    text = GOOD.replace('"type": "StatSink"', '"type": "ImageDecoderCV"')
    path = write(folder, text)
    result = penstock("validate", "--json", path)
    equal(result.returncode, 1, "exit code")
    found = [i for i in json.loads(result.stdout)["issues"]
             if i["code"] == "E304"]
    equal(len(found), 1, result.stdout)
    # A module that passes any kind on would not help.
    true("ImageEncoderCV" in found[0]["suggestion"], str(found))


@case
def names_cannot_steer_a_terminal(folder):
    evil = "\\u001b[31m\\u009b2J\\u0007\\u007f\\nok"
    texts = {
        "id": GOOD.replace('"source"', f'"{evil}"'),
        "type": GOOD.replace("StatSink", evil),
        "property": GOOD.replace('"height"', f'"{evil}"'),
        "value": GOOD.replace("3 }", f'3, "pattern": "{evil}" }}'),
        "pin": GOOD.replace('"to": "sink"', f'"to": "sink.{evil}"'),
        "path": GOOD.replace('"TestSignalGenerator"', '"FileReaderModule"')
        .replace('"width": 64, "height": 48, "maxFrames": 3',
                 f'"strFullFileNameWithPattern": "{evil}"'),
    }
    for name, text in texts.items():
        path = write(folder, text)
        for verb in ("validate", "plan", "run"):
            arguments = ["--device", "emulated"] if verb == "run" else []
            result = penstock(verb, path, *arguments, text=False,
                              errors=None)
            out = (result.stdout + result.stderr).decode()
            bad = [c for c in out if c != "\n" and (
                ord(c) < 32 or 127 <= ord(c) < 160)]
            equal(bad, [], f"{verb}, {name}: {out!r}")
            true("\nok" not in out, f"{verb}, {name}: {out!r}")


@case
def an_error_is_not_lost_for_a_name_that_is_no_utf_8(folder):
    name = b"no-\xff.json".decode("utf-8", "surrogateescape")
    for arguments in (["validate", "--json"], ["plan", "--json"],
                      ["run", "--report", "json", "--device", "emulated"]):
        result = penstock(*arguments, os.path.join(folder, name))
        equal(result.returncode, 1, result.stdout)
        issues = json.loads(result.stdout)["issues"]
        equal(len(issues), 1, result.stdout)
        true("no-?.json" in issues[0]["pointer"], str(issues))
        true("No such file" in issues[0]["message"], str(issues))
        true("no-?.json" not in issues[0]["message"], str(issues))


@case
def a_malformed_pattern_is_told_as_a_sentence(folder):
    for module, pattern, words in (
            ("FileReaderModule", "in/??x??.jpg",
             '"in/??x??.jpg" has more than one run of ?'),
            ("FileReaderModule", "*/a.jpg", '"*/a.jpg" has a wildcard in'),
            ("FileWriterModule", "o*o*",
             '"o*o*" has more than one place for the number'),
            ("FileWriterModule", "out/", '"out/" is the path of a folder')):
        end = "source" if module == "FileReaderModule" else "sink"
        file = json.loads(GOOD)
        file["modules"][end] = {"type": module, "props": {
            "strFullFileNameWithPattern": pattern}}
        result = penstock("validate", "--json",
                          write(folder, json.dumps(file)))
        found = [i["message"] for i in json.loads(result.stdout)["issues"]
                 if i["code"] == "E204"]
        equal(len(found), 1, result.stdout)
        true(found[0].startswith(words), found[0])


@case
def all_errors_come_in_one_pass(folder):
    text = GOOD.replace("64", "0").replace("StatSink", "StatSnik").replace(
        '"from": "source"', '"from": "x"')
    path = write(folder, text)
    result = penstock("validate", "--json", path)
    codes = {i["code"] for i in json.loads(result.stdout)["issues"]}
    true({"E202", "E100", "E300"} <= codes, str(codes))


@case
def duplicate_keys_and_not_a_number_are_errors(folder):
    for text in (GOOD.replace('"maxFrames": 3', '"width": 3'),
                 GOOD.replace('"maxFrames": 3', '"maxFrames": NaN')):
        result = penstock("validate", "--json", write(folder, text))
        equal(result.returncode, 1, text)
        issue = json.loads(result.stdout)["issues"][0]
        equal(issue["line"], 5, str(issue))


@case
def unknown_keys_warn_and_comments_do_not(folder):
    text = GOOD.replace('"modules": {', '"setings": {}, "#note": 1, "modules": {')
    result = penstock("validate", "--json", write(folder, text))
    equal(result.returncode, 0, result.stdout)
    issues = json.loads(result.stdout)["issues"]
    equal([i["severity"] for i in issues], ["warning"], str(issues))
    true("settings" in issues[0]["message"] + issues[0]["suggestion"],
         str(issues))


@case
def a_missing_pipeline_file_is_exit_1(folder):
    result = penstock("validate", os.path.join(folder, "no.json"))
    equal(result.returncode, 1, "exit code")
    true("no.json" in result.stderr, result.stderr)


@case
def wrong_usage_is_exit_3(folder):
    for arguments in (["validate"], ["frobnicate"], [], ["run", "--nonsense"],
                      ["list-modules", "--category", "nothing"],
                      ["run", "x.json", "--frames", "0"],
                      ["plan", "x.json", "--budget", "cuda_device=much"]):
        result = penstock(*arguments)
        equal(result.returncode, 3, " ".join(arguments))


@case
def only_the_shared_stream_setting_is_accepted(folder):
    text = GOOD.replace('"modules"',
                        '"settings": { "cuda": { "streams": "overlap" } },\n'
                        '"modules"')
    result = penstock("validate", "--json", write(folder, text))
    equal(result.returncode, 1, result.stdout)
    issues = json.loads(result.stdout)["issues"]
    true(any(i["pointer"] == "/settings/cuda/streams" for i in issues),
         str(issues))


main()
