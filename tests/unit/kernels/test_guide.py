"""The recipe of docs/guide/kernels.md works as it stands there."""

import os
import re
import subprocess
import sys

SOURCE = os.environ.get("PENSTOCK_TEST_SOURCE", ".")
sys.path.insert(0, os.path.join(SOURCE, "tests/cli"))
from tap import case, main  # noqa: E402

CC = os.environ.get("CC", "cc")
INCLUDE = "-I" + os.path.join(SOURCE, "include")
SCRIPT = os.path.join(SOURCE, "scripts/penstock-kernel")

MAIN = r"""
#include <stdio.h>
#include <string.h>
#include "invert.kern.h"

extern const struct pen_kernel_image pen_image_invert;

int main(void)
{
    unsigned char src[20 * 70], dst[20 * 80];
    for (unsigned i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)(i * 7);
    memset(dst, 1, sizeof(dst));
    const struct invert args = {
        .dst = (uint64_t)(uintptr_t)dst,
        .src = (uint64_t)(uintptr_t)src,
        .dst_pitch = 80,
        .src_pitch = 70,
        .row_bytes = 67,
        .rows = 20,
    };
    struct penk_block b = { .dim_x = INVERT_BLOCK_X, .dim_y = INVERT_BLOCK_Y };
    for (b.y = 0; b.y < 3; b.y++)
        for (b.x = 0; b.x < 3; b.x++)
            pen_image_invert.entries[INVERT_KERNEL].host(&args, &b);
    for (int y = 0; y < 20; y++)
        for (int x = 0; x < 80; x++)
            if (dst[80 * y + x] != (x < 67 ? 255 - src[70 * y + x] : 1))
                return 1;
    return pen_image_invert.count != 1 ||
           pen_image_invert.entries[0].args_size != sizeof(args) ||
           strcmp(pen_image_invert.entries[0].name, "invert") != 0;
}
"""


def run(*command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout


def write(folder, name, text):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as f:
        f.write(text)


def blocks(language):
    with open(os.path.join(SOURCE, "docs/guide/kernels.md"),
              encoding="utf-8") as f:
        return re.findall(r"```%s\n(.*?)```" % language, f.read(), re.S)


def write_sources(folder):
    header, kernel, module = blocks("c")[:3]
    write(folder, "invert.kern.h", header)
    write(folder, "invert.cu", kernel)
    write(folder, "module.c", "#include <penstock/module.h>\n"
          '#include "invert.kern.h"\n' + module +
          "const struct pen_module_class cls;\n"
          "const struct pen_module_class cls = { .kernels = kernels, "
          ".ops = { .process = process } };\n")
    write(folder, "main.c", MAIN)


@case
def the_kernel_of_the_guide_becomes_one_object_that_runs(folder):
    write_sources(folder)
    line = blocks("sh")[0].splitlines()[0].split()
    assert line[0] == "penstock-kernel", line
    run(SCRIPT, "--nvcc", "none", *line[1:], cwd=folder)
    run(CC, "-std=gnu17", "-Wall", "-Werror", INCLUDE, "main.c", "invert.o",
        "-o", "app", cwd=folder)
    run("./app", cwd=folder)


@case
def the_module_of_the_guide_compiles_without_a_warning(folder):
    write_sources(folder)
    run(CC, "-std=gnu17", "-Wall", "-Wextra", "-Wpedantic", "-Werror", INCLUDE,
        "-c", "module.c", cwd=folder)


@case
def emitted_c_compiles_alone_and_names_what_it_included(folder):
    write_sources(folder)
    run(SCRIPT, "--nvcc", "none", "--symbol", "other_name", "--depfile", "dep",
        "--emit-c", "base.c", "v3.c", "invert.cu", cwd=folder)
    with open(os.path.join(folder, "dep"), encoding="utf-8") as f:
        rule = f.read()
    assert rule.startswith("base.c: "), rule
    assert "invert.kern.h" in rule and "penstock/kernel.h" in rule, rule
    for extra, name in ((), "base"), (("-march=x86-64-v3",), "v3"):
        run(CC, "-std=gnu17", "-O3", "-fPIC", "-Wall", "-Wextra",
            "-Wpedantic", "-Werror", *extra, INCLUDE, "-c", name + ".c", cwd=folder)
    run(CC, "-shared", "base.o", "v3.o", "-o", "all.so", cwd=folder)


@case
def every_option_of_the_guide_is_an_option_of_the_script(folder):
    with open(os.path.join(SOURCE, "docs/guide/kernels.md"),
              encoding="utf-8") as f:
        named = set(re.findall(r"`(--?[a-z-]+)", f.read()))
    text = run(SCRIPT, "--help", cwd=folder)
    offered = set(re.findall(r"(?<![\w-])(--?[a-zA-Z][a-z-]*)", text))
    named -= {"--device", "-march", "-ffp-contract"}
    assert named <= offered, named - offered


main()
