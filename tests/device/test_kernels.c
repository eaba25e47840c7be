// Every kernel on the device under test, from each binary that it can load,
// against the host build: whole buffers, bit for bit, with what must stay
// untouched. On a GPU that is the fatbin (made by nvcc) and the PTX (made by
// clang); on the emulated device its own run of the host build.

#include <stdio.h>

#include "../support/kernels/float_ops.kern.h"
#include "pen_picture.h"
#include "pen_test.h"
#include "src/gpu/stream.h"
#include "src/kernels/cpu.h"

extern const struct pen_kernel_image pen_image_float_ops;

enum { ARENA = 64 << 20 };

// A device with the images loaded from one kind of binary, and memory on both
// sides from which a case takes its buffers.
struct rig {
    const char *binary;
    struct stk_ledger *ledger;
    struct pen_device *dev;
    struct stk_stream *stream;
    uint64_t device;  // ARENA bytes
    // For uploads, and ARENA bytes further for downloads: an upload may still
    // be queued when a download is prepared.
    uint8_t *pinned;
    size_t used;
    unsigned cases;
    uint64_t bytes;  // compared
};

#define OK(expr)                                                               \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status ok_st = (expr);                                  \
        if (ok_st != PEN_OK)                                                   \
            fail_msg("%s: %s: %s", #expr, pen_status_name(ok_st), err.text);   \
    } while (0)

static void rig_open(struct rig *r, const char *binary)
{
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    struct stk_kernels *kernels;
    *r = (struct rig){ .binary = binary, .ledger = stk_ledger_create(true) };
    assert_non_null(r->ledger);
    OK(stk_device_open(&params, r->ledger, &r->dev, &err));
    stk_kernels_prefer(r->dev, binary);
    for (unsigned i = 0; stk_images[i]; i++)
        OK(stk_kernels_load(r->dev, stk_images[i], &kernels, &err));
    OK(stk_kernels_load(r->dev, &pen_image_float_ops, &kernels, &err));
    OK(stk_stream_create(r->dev, "test", &r->stream, &err));
    OK(stk_device_alloc(r->dev, ARENA, "test", PEN_HERE, &r->device, &err));
    void *pinned;
    OK(stk_pinned_alloc(r->dev, 2 * ARENA, "test", PEN_HERE, &pinned, &err));
    r->pinned = pinned;
}

static void rig_close(struct rig *r)
{
    stk_pinned_free(r->dev, r->pinned, 2 * ARENA);
    stk_device_free(r->dev, r->device, ARENA);
    stk_stream_destroy(&r->stream);
    pen_device_close(&r->dev);
    for (int res = 1; res < STK_RES_COUNT; res++) {
        struct stk_ledger_totals totals;
        stk_ledger_totals(r->ledger, (enum stk_res)res, &totals);
        assert_int_equal(totals.live, 0);
    }
    stk_ledger_destroy(&r->ledger);
}

// Queue the upload of `bytes`; returns their device address.
static uint64_t upload(struct rig *r, const void *data, size_t bytes)
{
    STK_SCOPE scope = { 0 };
    const size_t at = r->used;
    r->used += (bytes + 255) / 256 * 256;
    assert_true(r->used <= ARENA);
    memcpy(r->pinned + at, data, bytes);
    OK(stk_scope_enter(&scope, r->dev, &err));
    OK(stk_stream_copy(r->stream, STK_COPY_H2D, r->device + at,
                       (uint64_t)(uintptr_t)(r->pinned + at), bytes, &err));
    return r->device + at;
}

static void launch(struct rig *r, const struct pen_kernel_image *image,
                   uint32_t entry, const struct pen_grid *grid,
                   const void *args, size_t args_size)
{
    STK_SCOPE scope = { 0 };
    OK(stk_scope_enter(&scope, r->dev, &err));
    OK(stk_stream_launch(r->stream, stk_kernels_find(r->dev, image), entry,
                         grid, args, args_size, &err));
}

// Fetch `bytes` at a device address and compare them with what is expected;
// ends the case.
static void compare(struct rig *r, uint64_t address, const void *expect,
                    size_t bytes, const char *what)
{
    const size_t at = (size_t)(address - r->device);
    uint8_t *got = r->pinned + ARENA + at;
    const uint8_t *want = expect;
    struct stk_point point;
    {
        STK_SCOPE scope = { 0 };
        OK(stk_scope_enter(&scope, r->dev, &err));
        memset(got, 0x5a, bytes);
        OK(stk_stream_copy(r->stream, STK_COPY_D2H, (uint64_t)(uintptr_t)got,
                           address, bytes, &err));
        OK(stk_stream_record(r->stream, &point, &err));
    }
    OK(stk_point_wait(point, STK_WAIT_HOST_READ, &err));
    for (size_t i = 0; i < bytes; i++)
        if (got[i] != want[i])
            fail_msg("%s, %s: byte %zu of %zu is %d, on the host %d", r->binary,
                     what, i, bytes, got[i], want[i]);
    r->used = 0;
    r->cases++;
    r->bytes += bytes;
}

static uint64_t upload_picture(struct rig *r, const struct pen_picture *p,
                               struct pen_view *view)
{
    const uint64_t at = upload(r, p->memory, p->bytes);
    *view = p->view;
    view->mem = PEN_MEM_CUDA_DEVICE;
    for (uint32_t i = 0; i < view->planes; i++) {
        view->plane[i].address =
            at + (uint64_t)((const uint8_t *)view->plane[i].host - p->memory);
        view->plane[i].host = NULL;
    }
    return at;
}

static penk_host_fn host_build(const struct pen_kernel_image *image,
                               uint32_t entry)
{
    return stk_cpu_has_v3() ? image->entries[entry].host_v3
                            : image->entries[entry].host;
}

// --- the kernels ------------------------------------------------------------

static bool yuv(enum pen_format f)
{
    return (PEN_FMT_BIT(f) & PEN_FMT_BITS_YUV) != 0;
}

static void convert_case(struct rig *r, enum pen_format from,
                         enum pen_format to, int w, int h, size_t k)
{
    static const enum pen_matrix matrices[] = { PEN_MATRIX_BT601,
                                                PEN_MATRIX_BT709,
                                                PEN_MATRIX_BT2020 };
    struct pen_picture src, dst;
    struct penk_convert args;
    struct pen_grid grid;
    struct pen_view dev_src, dev_dst;
    char what[128];
    const struct pen_caps in = {
        .kind = PEN_KIND_RAW_IMAGE,
        .format = from,
        .width = w,
        .height = h,
        .matrix = matrices[k % 3],
        .range = yuv(from) && k % 2 ? PEN_RANGE_LIMITED : PEN_RANGE_FULL,
    };
    struct pen_caps out;
    stk_convert_caps(&in, to, k / 2 % 2 ? PEN_RANGE_LIMITED : PEN_RANGE_UNKNOWN,
                     &out);
    OK(stk_convert_setup(&out, &in, &args, &err));
    snprintf(what, sizeof(what), "%s to %s, %dx%d", pen_picture_name(from),
             pen_picture_name(to), w, h);

    // Aligned rows, which the kernel reads by words, and odd ones.
    const size_t extra = k % 3 ? k % 3 * 5 : 64;
    pen_picture_make(&src, from, w, h, extra, k % 4);
    pen_picture_make(&dst, to, w, h, extra, k / 4 % 4);
    pen_picture_noise(&src, k);

    upload_picture(r, &src, &dev_src);
    const uint64_t at = upload_picture(r, &dst, &dev_dst);
    stk_convert_bind(&args, &dev_dst, &dev_src);
    stk_convert_grid(&args, &grid);
    launch(r, &stk_image_convert, PENK_KERNEL_CONVERT, &grid, &args,
           sizeof(args));

    const struct pen_view away_dst = pen_picture_away(&dst);
    const struct pen_view away_src = pen_picture_away(&src);
    stk_convert_bind(&args, &away_dst, &away_src);
    pen_picture_launch(host_build(&stk_image_convert, PENK_KERNEL_CONVERT),
                       &grid, &args);
    compare(r, at, dst.memory, dst.bytes, what);
    pen_picture_free(&src);
    pen_picture_free(&dst);
}

static void resize_case(struct rig *r, enum pen_format f, int sw, int sh,
                        int dw, int dh, enum stk_interpolation how, size_t k)
{
    struct pen_picture src, dst;
    struct stk_resize resize;
    struct penk_resize args;
    struct pen_grid grid;
    struct pen_view dev_src, dev_dst;
    char what[128];
    OK(stk_resize_setup(f, dw, dh, sw, sh, how, &resize, &err));
    snprintf(what, sizeof(what), "%s %dx%d to %dx%d, interpolation %d",
             pen_picture_name(f), sw, sh, dw, dh, (int)how);
    int32_t *table = malloc(resize.table_bytes);
    assert_non_null(table);
    stk_resize_weights(&resize, table);
    pen_picture_make(&src, f, sw, sh, k % 7, k % 4);
    pen_picture_make(&dst, f, dw, dh, k % 5, k / 4 % 4);
    pen_picture_noise(&src, k);

    upload_picture(r, &src, &dev_src);
    const uint64_t dev_table = upload(r, table, resize.table_bytes);
    const uint64_t at = upload_picture(r, &dst, &dev_dst);
    stk_resize_bind(&resize, dev_table, &dev_dst, &dev_src, &args);
    stk_resize_grid(&args, &grid);
    launch(r, &stk_image_resize, PENK_KERNEL_RESIZE, &grid, &args,
           sizeof(args));

    const struct pen_view away_dst = pen_picture_away(&dst);
    const struct pen_view away_src = pen_picture_away(&src);
    stk_resize_bind(&resize, (uint64_t)(uintptr_t)table - PEN_PICTURE_AWAY,
                    &away_dst, &away_src, &args);
    pen_picture_launch(host_build(&stk_image_resize, PENK_KERNEL_RESIZE), &grid,
                       &args);
    compare(r, at, dst.memory, dst.bytes, what);
    free(table);
    pen_picture_free(&src);
    pen_picture_free(&dst);
}

static void blur_case(struct rig *r, enum pen_format f, int w, int h, int size,
                      size_t k)
{
    struct pen_picture src, dst;
    struct penk_blur args;
    struct pen_grid grid;
    struct pen_view dev_src, dev_dst;
    char what[128];
    OK(stk_blur_setup(f, w, h, size, 0.15 * size + 0.35, &args, &err));
    snprintf(what, sizeof(what), "blur %d of %s %dx%d", size,
             pen_picture_name(f), w, h);
    pen_picture_make(&src, f, w, h, k % 7, k % 4);
    pen_picture_make(&dst, f, w, h, k % 5, k / 4 % 4);
    pen_picture_noise(&src, k);

    upload_picture(r, &src, &dev_src);
    const uint64_t at = upload_picture(r, &dst, &dev_dst);
    stk_blur_bind(&args, &dev_dst, &dev_src);
    stk_blur_grid(&args, &grid);
    launch(r, &stk_image_blur, PENK_KERNEL_BLUR, &grid, &args, sizeof(args));

    const struct pen_view away_dst = pen_picture_away(&dst);
    const struct pen_view away_src = pen_picture_away(&src);
    stk_blur_bind(&args, &away_dst, &away_src);
    pen_picture_launch(host_build(&stk_image_blur, PENK_KERNEL_BLUR), &grid,
                       &args);
    compare(r, at, dst.memory, dst.bytes, what);
    pen_picture_free(&src);
    pen_picture_free(&dst);
}

static void float_case(struct rig *r, uint32_t entry, uint32_t count)
{
    const size_t bytes = count * sizeof(float);
    float *src = malloc(bytes), *dst = calloc(count, sizeof(float));
    uint64_t seed = count;
    assert_non_null(src);
    assert_non_null(dst);
    for (uint32_t i = 0; i < count; i++)
        src[i] = (float)(int32_t)pen_test_random(&seed) / 65536.0f;
    struct float_ops args = {
        .src = upload(r, src, bytes),
        .dst = upload(r, dst, bytes),
        .count = count,
        .a = 0.1f,
        .b = -1.7f,
        .c = 3.3f,
    };
    const struct pen_grid grid = {
        .x = (count + FLOAT_OPS_BLOCK - 1) / FLOAT_OPS_BLOCK,
        .y = 1,
        .z = 1,
        .block_x = FLOAT_OPS_BLOCK,
        .block_y = 1,
    };
    const uint64_t at = args.dst;
    launch(r, &pen_image_float_ops, entry, &grid, &args, sizeof(args));

    args.src = (uint64_t)(uintptr_t)src - PEN_PICTURE_AWAY;
    args.dst = (uint64_t)(uintptr_t)dst - PEN_PICTURE_AWAY;
    pen_picture_launch(host_build(&pen_image_float_ops, entry), &grid, &args);
    compare(r, at, dst, bytes, pen_image_float_ops.entries[entry].name);
    free(dst);
    free(src);
}

// How many of `all` sizes, the last `large` of which are for GPUs and long
// runs: the emulated device runs the very code that it is compared with. Under
// a tool that slows kernels down PENSTOCK_TEST_QUICK leaves them out too.
static size_t sizes_now(size_t all, size_t large)
{
    const bool quick = getenv("PENSTOCK_TEST_QUICK") != NULL;
    const bool wanted = pen_test_on_gpu() || pen_test_seeds(0, 1) != 0;
    return wanted && !quick ? all : all - large;
}

static void convert_cases(struct rig *r)
{
    static const struct {
        int w, h;
    } sizes[] = { { 1, 1 },   { 2, 3 },    { 5, 7 },
                  { 64, 48 }, { 261, 37 }, { 641, 361 } };
    const size_t count = sizes_now(sizeof(sizes) / sizeof(sizes[0]), 1);
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < 11; i++)
            for (size_t j = 0; j < 11; j++)
                convert_case(r, pen_picture_formats[i], pen_picture_formats[j],
                             sizes[s].w, sizes[s].h, s * 121 + i * 11 + j);
    convert_case(r, PEN_FMT_NV12, PEN_FMT_RGB, 1920, 1080, 1);
    convert_case(r, PEN_FMT_RGB, PEN_FMT_YUV420, 1920, 1080, 2);
}

static void resize_cases(struct rig *r)
{
    static const struct {
        int sw, sh, dw, dh;
    } sizes[] = {
        { 1, 1, 1, 1 },         { 1, 1, 5, 7 },         { 5, 7, 1, 1 },
        { 17, 13, 64, 48 },     { 64, 48, 17, 13 },     { 161, 91, 80, 45 },
        { 161, 91, 3, 2 },      { 641, 361, 320, 180 }, { 641, 361, 13, 7 },
        { 320, 180, 641, 361 },
    };
    const size_t count = sizes_now(sizeof(sizes) / sizeof(sizes[0]), 3);
    size_t k = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < 11; i++)
            for (int how = STK_NEAREST; how <= STK_BICUBIC; how++)
                if (PEN_FMT_BIT(pen_picture_formats[i]) & STK_RESIZE_FORMATS)
                    resize_case(r, pen_picture_formats[i], sizes[s].sw,
                                sizes[s].sh, sizes[s].dw, sizes[s].dh,
                                (enum stk_interpolation)how, k++);
    resize_case(r, PEN_FMT_RGB, 1920, 1080, 960, 540, STK_BILINEAR, 0);
}

static void blur_cases(struct rig *r)
{
    static const struct {
        int w, h;
    } sizes[] = { { 1, 1 },   { 2, 3 },    { 5, 7 },
                  { 64, 48 }, { 171, 67 }, { 641, 161 } };
    const size_t count = sizes_now(sizeof(sizes) / sizeof(sizes[0]), 1);
    size_t k = 0;
    for (size_t s = 0; s < count; s++)
        for (size_t i = 0; i < 11; i++)
            for (int size = 3; size <= 31; size += 4)
                if (PEN_FMT_BIT(pen_picture_formats[i]) & STK_BLUR_FORMATS)
                    blur_case(r, pen_picture_formats[i], sizes[s].w, sizes[s].h,
                              size, k++);
    blur_case(r, PEN_FMT_RGB, 1280, 720, 15, 0);
}

static void all_cases(const char *binary)
{
    struct rig r;
    rig_open(&r, binary);
    convert_cases(&r);
    const unsigned convert = r.cases;
    resize_cases(&r);
    const unsigned resize = r.cases - convert;
    blur_cases(&r);
    const unsigned blur = r.cases - convert - resize;
    for (uint32_t count = 1; count < 1 << 20; count = count * 3 + 1) {
        float_case(&r, FLOAT_OPS_CURVE, count);
        float_case(&r, FLOAT_OPS_REVERSE, count);
    }
    print_message("# %s: 5 kernels compared with their host builds in %u "
                  "cases, %llu bytes, all equal (convert %u, resize %u, blur "
                  "%u, float %u)\n",
                  binary, r.cases, (unsigned long long)r.bytes, convert, resize,
                  blur, r.cases - convert - resize - blur);
    assert_int_equal(stk_stream_launches(r.stream), r.cases);
    rig_close(&r);
}

PEN_TEST(kernels_of_the_emulated_device_give_the_host_bits)
{
    if (pen_test_on_gpu())
        PEN_SKIP("the device under test is a GPU");
    all_cases("host");
}

PEN_TEST(kernels_of_the_fatbin_give_the_host_bits)
{
    if (!pen_test_on_gpu())
        PEN_SKIP("the emulated device runs no fatbin");
    if (!stk_image_blur.fatbin)
        PEN_SKIP("built without nvcc");
    all_cases("fatbin");
}

PEN_TEST(kernels_of_the_ptx_give_the_host_bits)
{
    if (!pen_test_on_gpu())
        PEN_SKIP("the emulated device runs no PTX");
    all_cases("ptx");
}

PEN_TEST_MAIN(PEN_CASE(kernels_of_the_emulated_device_give_the_host_bits),
              PEN_CASE(kernels_of_the_fatbin_give_the_host_bits),
              PEN_CASE(kernels_of_the_ptx_give_the_host_bits))
