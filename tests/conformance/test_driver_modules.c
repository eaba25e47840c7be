// What we believe of modules and launches.

#include "raw_probe.h"

enum { WORDS = 777, BYTES = 4 * WORDS };

// --- images -----------------------------------------------------------------

static void expect_mix(CUfunction function)
{
    CUstream stream = raw_stream();
    CUdeviceptr a = raw_alloc(BYTES), b = raw_alloc(BYTES);
    uint32_t *words = raw_pinned(BYTES);
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = i * 40503u;
    CU(cuMemcpyHtoDAsync(a, words, BYTES, stream));
    CU(cuMemcpyHtoDAsync(b, words, BYTES, stream));
    struct probe_mix args = { a, b, WORDS - 1, 5, 9, 0 };
    assert_int_equal(probe_launch(function, WORDS, stream, &args), 0);
    uint32_t *out = raw_pinned(BYTES);
    CU(cuMemcpyDtoHAsync(out, a, BYTES, stream));
    CU(cuStreamSynchronize(stream));
    for (uint32_t i = 0; i < WORDS - 1; i++)
        assert_int_equal(out[i], words[i] * 6 + 9);
    assert_int_equal(out[WORDS - 1], words[WORDS - 1]);  // beyond count
    CU(cuMemFree(a));
    CU(cuMemFree(b));
    CU(cuMemFreeHost(words));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(stream));
}

PEN_TEST(every_form_of_an_image_gives_the_same_kernel)
{
    probe_open();
    // The emulated device takes the table, a GPU what the table holds.
    const void *forms[3] = { cu.emulated ? &probe_image : NULL,
                             cu.emulated ? NULL : probe_image.ptx,
                             cu.emulated ? NULL : probe_image.fatbin };
    unsigned count = 0;
    for (int i = 0; i < 3; i++) {
        if (!forms[i])
            continue;
        CUmodule module = NULL;
        CUfunction function = NULL;
        CU(cuModuleLoadData(&module, forms[i]));
        CU(cuModuleGetFunction(&function, module, "probe_mix"));
        expect_mix(function);
        CU(cuModuleUnload(module));
        count++;
    }
    assert_true(count >= 1);
    probe_close();
}

PEN_TEST(image_can_be_loaded_twice)
{
    probe_open();
    CUmodule again = NULL;
    CUfunction function = NULL;
    probe_load(&again);
    assert_ptr_not_equal(again, probe.module);
    CU(cuModuleGetFunction(&function, again, "probe_mix"));
    expect_mix(function);
    expect_mix(probe.mix);
    CU(cuModuleUnload(again));
    expect_mix(probe.mix);
    probe_close();
}

PEN_TEST(name_that_is_not_in_the_image_is_not_found)
{
    probe_open();
    CUfunction function = NULL;
    CU_IS(CUDA_ERROR_NOT_FOUND,
          cuModuleGetFunction(&function, probe.module, "probe_mi"));
    CU_IS(CUDA_ERROR_NOT_FOUND,
          cuModuleGetFunction(&function, probe.module, "probe_mixx"));
    CU(cuModuleGetFunction(&function, probe.module, "probe_mix"));
    probe_close();
}

PEN_TEST(what_is_no_image_is_refused_and_breaks_nothing)
{
    probe_open();
    CUmodule module = NULL;
    CUresult result = cu.cuModuleLoadData(&module, "hello, this is no image");
    if (result != CUDA_ERROR_INVALID_IMAGE && result != CUDA_ERROR_INVALID_PTX)
        fail_msg("text: %s", raw_name(result));
    CU_IS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
    // Text for a GPU that does not exist yet; the emulated one takes none.
    result = cu.cuModuleLoadData(&module, ".version 99.9\n.target sm_999\n"
                                          ".address_size 64\n");
    if (result != CUDA_ERROR_UNSUPPORTED_PTX_VERSION &&
        result != CUDA_ERROR_INVALID_PTX &&
        result != CUDA_ERROR_NO_BINARY_FOR_GPU)
        fail_msg("future PTX: %s", raw_name(result));
    expect_mix(probe.mix);
    probe_close();
}

// --- launches ---------------------------------------------------------------

PEN_TEST(launch_of_impossible_size_is_an_invalid_value)
{
    probe_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(4);
    struct probe_store args = { device, 1, 0 };
    void *params[] = { &args };
    static const unsigned sizes[][6] = {
        { 0, 1, 1, 1, 1, 1 },     { 1, 0, 1, 1, 1, 1 },
        { 1, 1, 0, 1, 1, 1 },     { 1, 1, 1, 0, 1, 1 },
        { 1, 1, 1, 1, 0, 1 },     { 1, 1, 1, 1, 1, 0 },
        { 1, 1, 1, 1025, 1, 1 },  { 1, 1, 1, 1, 1025, 1 },
        { 1, 1, 1, 33, 32, 1 },   { 1, 65536, 1, 1, 1, 1 },
        { 1, 1, 65536, 1, 1, 1 },
    };
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
        const CUresult result = cu.cuLaunchKernel(
            probe.store, sizes[i][0], sizes[i][1], sizes[i][2], sizes[i][3],
            sizes[i][4], sizes[i][5], 0, stream, params, NULL);
        if (result != CUDA_ERROR_INVALID_VALUE)
            fail_msg("size %zu: %s", i, raw_name(result));
    }
    CU_IS(CUDA_ERROR_INVALID_VALUE,
          cuLaunchKernel(probe.store, 1, 1, 1, 1, 1, 1, 1 << 20, stream, params,
                         NULL));
    // None of it was sticky, and the largest block is allowed.
    CU(cuLaunchKernel(probe.store, 1, 1, 1, 32, 32, 1, 0, stream, params,
                      NULL));
    CU(cuStreamSynchronize(stream));
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    probe_close();
}

PEN_TEST(arguments_are_read_at_the_launch)
{
    probe_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(4);
    uint32_t *out = raw_pinned(4);
    probe_block(stream);
    struct probe_store args = { device, 41, 0 };
    assert_int_equal(probe_launch(probe.store, 1, stream, &args), 0);
    args = (struct probe_store){ 0, 99, 0 };
    assert_int_equal(probe_go(stream), 0);
    CU(cuMemcpyDtoHAsync(out, device, 4, stream));
    CU(cuStreamSynchronize(stream));
    assert_int_equal(out[0], 41);
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(stream));
    probe_close();
}

PEN_TEST_MAIN(PEN_CASE(every_form_of_an_image_gives_the_same_kernel),
              PEN_CASE(image_can_be_loaded_twice),
              PEN_CASE(name_that_is_not_in_the_image_is_not_found),
              PEN_CASE(what_is_no_image_is_refused_and_breaks_nothing),
              PEN_CASE(launch_of_impossible_size_is_an_invalid_value),
              PEN_CASE(arguments_are_read_at_the_launch))
