// The image tables: entries, sizes, binaries; and that no PTX holds a float
// operation whose rounding is left to the assembler.

#include <stdio.h>
#include <unistd.h>

#include "../../support/kernels/float_ops.kern.h"
#include "pen_picture.h"
#include "pen_test.h"
#include "ptx_check.h"
#include "src/kernels/cpu.h"

// Made by scripts/penstock-kernel as a user would: one object.
extern const struct pen_kernel_image pen_image_float_ops;

static void check_image(const struct pen_kernel_image *image)
{
    assert_true(image->magic == PEN_KERNEL_MAGIC);
    assert_int_equal(image->abi, PEN_KERNEL_ABI);
    assert_in_range(image->count, 1, PEN_MAX_KERNELS);
    assert_non_null(image->name);
    assert_non_null(image->ptx);
    for (uint32_t i = 0; i < image->count; i++) {
        const struct pen_kernel_entry *e = &image->entries[i];
        char line[128];
        assert_non_null(e->host);
        assert_non_null(e->host_v3);
        assert_true(e->host != e->host_v3);
        snprintf(line, sizeof(line), ".entry %s(", e->name);
        assert_non_null(strstr(image->ptx, line));
        // PTX states the size of the block that it takes.
        snprintf(line, sizeof(line), "%s_param_0[%u]", e->name, e->args_size);
        assert_non_null(strstr(image->ptx, line));
    }
}

PEN_TEST(images_have_every_binary_and_the_sizes_agree)
{
    unsigned count = 0;
    for (; stk_images[count]; count++)
        check_image(stk_images[count]);
    assert_int_equal(count, 3);
    assert_string_equal(stk_image_convert.entries[PENK_KERNEL_CONVERT].name,
                        "penk_convert");
    assert_int_equal(stk_image_convert.entries[PENK_KERNEL_CONVERT].args_size,
                     sizeof(struct penk_convert));
    assert_string_equal(stk_image_resize.entries[PENK_KERNEL_RESIZE].name,
                        "penk_resize");
    assert_int_equal(stk_image_resize.entries[PENK_KERNEL_RESIZE].args_size,
                     sizeof(struct penk_resize));
    assert_string_equal(stk_image_blur.entries[PENK_KERNEL_BLUR].name,
                        "penk_blur");
    assert_int_equal(stk_image_blur.entries[PENK_KERNEL_BLUR].args_size,
                     sizeof(struct penk_blur));

    check_image(&pen_image_float_ops);
    assert_int_equal(pen_image_float_ops.count, 2);
    assert_string_equal(pen_image_float_ops.entries[FLOAT_OPS_REVERSE].name,
                        "float_ops_reverse");
}

// Fatbins are built everywhere or nowhere.
PEN_TEST(fatbins_are_there_if_the_build_found_nvcc)
{
    for (unsigned i = 0; stk_images[i]; i++) {
#ifdef PEN_TEST_NVCC
        assert_non_null(stk_images[i]->fatbin);
        assert_int_equal(*(const uint32_t *)stk_images[i]->fatbin, 0xba55ed50);
#else
        assert_null(stk_images[i]->fatbin);
#endif
    }
}

PEN_TEST(ptx_holds_no_contractible_float_operation)
{
    for (unsigned i = 0; stk_images[i]; i++)
        if (ptx_find_contractible(stk_images[i]->ptx))
            fail_msg("%s: %s", stk_images[i]->name,
                     ptx_find_contractible(stk_images[i]->ptx));
    const char *ptx = pen_image_float_ops.ptx;
    if (ptx_find_contractible(ptx))
        fail_msg("float_ops: %s", ptx_find_contractible(ptx));
    // It is float code that was looked at.
    assert_non_null(strstr(ptx, "mul.rn.f32"));
    assert_non_null(strstr(ptx, "add.rn.f32"));
}

PEN_TEST(the_checker_finds_contractible_operations)
{
    static const char *const bad[] = {
        "\tmul.f32 \t%f1, %f2, %f3;\n",
        "\tadd.f64 \t%fd1, %fd2, %fd3;\n",
        "\tsub.ftz.f32 \t%f1, %f2, %f3;\n",
        "\t@%p1 add.f32 \t%f1, %f2, %f3;\n",
        "\tfma.rn.f32 \t%f1, %f2, %f3, %f4;\n",
        "\tmad.f64 \t%fd1, %fd2, %fd3, %fd4;\n",
        "\tadd.f16x2 \t%r1, %r2, %r3;\n",
        "\trcp.approx.f32 \t%f1, %f2;\n",
        "\tdiv.approx.ftz.f32 \t%f1, %f2, %f3;\n",
    };
    static const char *const good[] = {
        "\tmul.rn.f32 \t%f1, %f2, %f3;\n",
        "\tadd.rz.f64 \t%fd1, %fd2, %fd3;\n",
        "\tmad.lo.s32 \t%r1, %r2, %r3, %r4;\n",
        "\tadd.s64 \t%rd1, %rd2, %rd3;\n",
        "\tdiv.rn.f32 \t%f1, %f2, %f3;\n",
        "// mul.f32 in a comment\n",
        "\tst.global.f32 \t[%rd1], %f1;\n",
    };
    char text[256];
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_null(ptx_find_contractible(good[i]));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_non_null(ptx_find_contractible(bad[i]));
        snprintf(text, sizeof(text), "%s%s%s", good[0], bad[i], good[1]);
        assert_non_null(ptx_find_contractible(text));
    }
}

PEN_TEST(the_checker_finds_what_clang_contracts_when_it_may)
{
    if (access(PEN_TEST_CONTRACTED, R_OK) != 0)
        PEN_SKIP("%s is not there", PEN_TEST_CONTRACTED);
    char *ptx = pen_test_read_file(PEN_TEST_CONTRACTED, &(size_t){ 0 });
    assert_non_null(ptx_find_contractible(ptx));
    free(ptx);
}

// The float kernels round after every operation, in both builds.
PEN_TEST(host_builds_of_float_kernels_round_every_operation)
{
    enum { COUNT = 1000 };
    float src[COUNT], dst[COUNT];
    uint64_t seed = 3;
    for (int i = 0; i < COUNT; i++)
        src[i] = (float)(pen_test_random(&seed) % 20000) / 7.0f - 1000.0f;
    const struct float_ops args = {
        .dst = (uint64_t)(uintptr_t)dst - PEN_PICTURE_AWAY,
        .src = (uint64_t)(uintptr_t)src - PEN_PICTURE_AWAY,
        .count = COUNT,
        .a = 0.1f,
        .b = -1.7f,
        .c = 3.3f,
    };
    const struct pen_grid grid = {
        .x = (COUNT + FLOAT_OPS_BLOCK - 1) / FLOAT_OPS_BLOCK,
        .y = 1,
        .z = 1,
        .block_x = FLOAT_OPS_BLOCK,
        .block_y = 1,
    };
    for (int v3 = 0; v3 <= stk_cpu_has_v3(); v3++) {
        const struct pen_kernel_entry *e =
            &pen_image_float_ops.entries[FLOAT_OPS_CURVE];
        unsigned fused = 0;
        pen_picture_launch(v3 ? e->host_v3 : e->host, &grid, &args);
        for (int i = 0; i < COUNT; i++) {
            // volatile: every product and sum is stored as float.
            volatile float ax = args.a * src[i];
            volatile float axx = ax * src[i];
            volatile float bx = args.b * src[i];
            volatile float sum = axx + bx;
            volatile float all = sum + args.c;
            assert_memory_equal(&dst[i], (const float *)&all, sizeof(float));
            // Seen in the result, had it been contracted.
            fused += (float)((double)axx + (double)args.b * src[i]) != sum;
        }
        assert_true(fused > 10);

        e = &pen_image_float_ops.entries[FLOAT_OPS_REVERSE];
        pen_picture_launch(v3 ? e->host_v3 : e->host, &grid, &args);
        for (int i = 0; i < COUNT; i++) {
            const int first = i / FLOAT_OPS_BLOCK * FLOAT_OPS_BLOCK;
            const int from = first + FLOAT_OPS_BLOCK - 1 - (i - first);
            const float value = (from < COUNT ? src[from] : 0) - src[first];
            assert_memory_equal(&dst[i], &value, sizeof(float));
        }
    }
}

// --- the script -------------------------------------------------------------

static int script(const char *arguments, const char *file, const char *text,
                  char *output, size_t room)
{
    const char *folder = pen_test_folder();
    char path[1024], command[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    pen_test_write_file(path, text, strlen(text));
    snprintf(command, sizeof(command),
             "%s/scripts/penstock-kernel --nvcc none -o %s/out.o %s %s 2>&1",
             pen_test_source(), folder, arguments, path);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(output, 1, room - 1, f);
    output[n] = '\0';
    return pclose(f);
}

PEN_TEST(the_script_says_what_is_wrong_with_a_source)
{
    char out[4096];
    snprintf(out, sizeof(out), "%s/scripts/penstock-kernel", pen_test_source());
    if (access(out, X_OK) != 0)
        PEN_SKIP("%s is not there", out);
    if (system("command -v clang clang-14 >/dev/null 2>&1") != 0)
        PEN_SKIP("no clang is installed");

    assert_int_not_equal(script("", "none.cu", "#include <penstock/kernel.h>\n",
                                out, sizeof(out)),
                         0);
    assert_non_null(strstr(out, "no PENK_KERNEL"));

    // An error of the compiler is shown, with its place.
    assert_int_not_equal(script("", "bad.cu",
                                "#include <penstock/kernel.h>\n"
                                "struct k { uint64_t at; };\n"
                                "PENK_KERNEL(one, struct k, a)\n"
                                "{ PENK_THREADS { nothing(a.at); } }\n",
                                out, sizeof(out)),
                         0);
    assert_non_null(strstr(out, "bad.cu:4:"));
    assert_non_null(strstr(out, "nothing"));

    // Kernels in comments do not count.
    assert_int_not_equal(script("", "comment.cu",
                                "#include <penstock/kernel.h>\n"
                                "// PENK_KERNEL(one, struct k, a)\n",
                                out, sizeof(out)),
                         0);
    assert_non_null(strstr(out, "no PENK_KERNEL"));

    assert_int_equal(
        script("--checked", "good.cu",
               "#include <penstock/kernel.h>\n"
               "struct k { uint64_t at; };\n"
               "PENK_KERNEL(one, struct k, a)\n"
               "{ PENK_THREADS { *PENK_G(uint8_t, a.at) = 1; } }\n",
               out, sizeof(out)),
        0);
}

PEN_TEST_MAIN(PEN_CASE(images_have_every_binary_and_the_sizes_agree),
              PEN_CASE(fatbins_are_there_if_the_build_found_nvcc),
              PEN_CASE(ptx_holds_no_contractible_float_operation),
              PEN_CASE(the_checker_finds_contractible_operations),
              PEN_CASE(the_checker_finds_what_clang_contracts_when_it_may),
              PEN_CASE(host_builds_of_float_kernels_round_every_operation),
              PEN_CASE(the_script_says_what_is_wrong_with_a_source))
