// A class of a user's own with a kernel of its own, written with the public
// headers only and linked with the shared library: registered, found by its
// tags, planned with the transfers that it needs, and right.

#include <stdio.h>

#include <penstock/penstock.h>

#include "my_custom.kern.h"
#include "pen_test.h"

extern const struct pen_kernel_image pen_image_my_custom;

// --- the module -------------------------------------------------------------

struct params {
    int32_t key;
};

// clang-format off
static const struct pen_prop props[] = {
    PEN_I32(struct params, key, "key", 0, 0, 255, "Key of the first sample."),
    PEN_PROPS_END,
};
// clang-format on

#define PIN(NAME, HELP)                                                        \
    {                                                                          \
        .name = NAME, .help = HELP, .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE), \
        .mem = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE), .formats = PEN_FMT_BITS_ALL11 \
    }

static const struct pen_pin inputs[] = { PIN("input", "A picture."), { 0 } };
static const struct pen_pin outputs[] = { PIN("output", "The same, changed."),
                                          { 0 } };

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct pen_view src, dst;

    PEN_TRY(
        pen_acquire(io, pen_input(io, 0), PEN_ON_STREAM, PEN_READ, &src, err));
    PEN_TRY(pen_acquire(io, pen_output(io, 0), PEN_ON_STREAM, PEN_WRITE, &dst,
                        err));
    for (uint32_t i = 0; i < src.planes; i++) {
        const struct pen_plane *from = &src.plane[i], *to = &dst.plane[i];
        const struct my_custom args = {
            .dst = to->address,
            .src = from->address,
            .dst_pitch = to->pitch,
            .src_pitch = from->pitch,
            .row_bytes = (uint32_t)from->row_bytes,
            .rows = (uint32_t)from->rows,
            .key = (uint32_t)p->key,
        };
        const struct pen_grid grid = {
            .x = (args.row_bytes + MY_CUSTOM_BLOCK_X - 1) / MY_CUSTOM_BLOCK_X,
            .y = (args.rows + MY_CUSTOM_BLOCK_Y - 1) / MY_CUSTOM_BLOCK_Y,
            .block_x = MY_CUSTOM_BLOCK_X,
            .block_y = MY_CUSTOM_BLOCK_Y,
        };
        PEN_TRY(pen_launch(io, &pen_image_my_custom, MY_CUSTOM_KERNEL, &grid,
                           &args, sizeof(args), err));
    }
    return PEN_OK;
}

static const struct pen_kernel_image *const kernels[] = { &pen_image_my_custom,
                                                          NULL };
static const char *const tags[] = { "function:custom", "backend:cuda", NULL };

static const struct pen_module_class my_class = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "MyCustomCuda",
    .version = "1.0",
    .summary = "A class of the user's own.",
    .category = PEN_CATEGORY_TRANSFORM,
    .flags = PEN_CLASS_CUDA,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .kernels = kernels,
    .ops = { .process = process },
};

// --- tests ------------------------------------------------------------------

#define OK(expr)                                                               \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status got_ = (expr);                                   \
        if (got_ != PEN_OK)                                                    \
            fail_msg("%s: %s: %s", #expr, err.where, err.text);                \
    } while (0)

static struct pen_registry *registry_with_mine(void)
{
    struct pen_registry *registry = NULL;
    OK(pen_registry_create(&registry, &err));
    OK(pen_registry_add(registry, &my_class, &err));
    return registry;
}

PEN_TEST(the_tag_query_finds_the_users_class)
{
    (void)test_state;
    struct pen_registry *registry = registry_with_mine();
    const struct pen_module_class *found[4];
    static const char *const query[] = { "backend:cuda", "function:custom",
                                         NULL };
    assert_int_equal(pen_registry_modules_with_tags(registry, query, found, 4),
                     1);
    assert_ptr_equal(found[0], &my_class);
    assert_int_equal(
        pen_registry_modules_with_tag(registry, "function:custom", found, 4),
        1);
    assert_ptr_equal(pen_registry_find(registry, "MyCustomCuda", NULL),
                     &my_class);
    // Twice is refused.
    struct pen_error err = { 0 };
    assert_int_equal(pen_registry_add(registry, &my_class, &err), PEN_E_ARG);
    pen_registry_destroy(&registry);
}

PEN_TEST(a_cpu_source_gets_its_transfer_and_the_pixels_are_right)
{
    (void)test_state;
    enum { W = 45, H = 21, FRAMES = 4 };
    const char *folder = pen_test_folder();
    char file[256], out[256], text[2048];
    uint8_t picture[FRAMES * W * H * 3];
    uint64_t seed = 11;
    for (size_t i = 0; i < sizeof(picture); i++)
        picture[i] = (uint8_t)pen_test_random(&seed);
    snprintf(file, sizeof(file), "%s/in.raw", folder);
    snprintf(out, sizeof(out), "%s/out.raw", folder);
    pen_test_write_file(file, picture, sizeof(picture));
    snprintf(text, sizeof(text),
             "{\"modules\":{"
             "\"reader\":{\"type\":\"FileReaderModule\",\"props\":{"
             "\"strFullFileNameWithPattern\":\"%s\",\"width\":%d,"
             "\"height\":%d,\"format\":\"RGB\"}},"
             "\"mine\":{\"type\":\"MyCustomCuda\",\"props\":{\"key\":77}},"
             "\"writer\":{\"type\":\"FileWriterModule\",\"props\":{"
             "\"strFullFileNameWithPattern\":\"%s\",\"append\":true}}},"
             "\"connections\":[{\"from\":\"reader\",\"to\":\"mine\"},"
             "{\"from\":\"mine\",\"to\":\"writer\"}]}",
             file, W, H, out);

    struct pen_registry *registry = registry_with_mine();
    struct pen_description *desc = NULL;
    struct pen_issues *issues = pen_issues_create();
    struct pen_pipeline *p = NULL;
    OK(pen_description_parse(text, strlen(text), "test.json", &desc, issues,
                             &err));
    const struct pen_pipeline_params params = {
        .device = { .selector = pen_test_device(),
                    .emulator = pen_test_emulator() },
        .leaks_fatal = true,
        .leak_sites = true,
    };
    OK(pen_pipeline_create(desc, registry, &params, &p, issues, &err));
    char *plan = pen_plan_json(pen_pipeline_plan(p), issues);
    assert_non_null(plan);
    const char *up = strstr(plan, "\"HostToDevice\"");
    const char *down = strstr(plan, "\"DeviceToHost\"");
    assert_non_null(up);
    assert_non_null(down);
    assert_null(strstr(up + 1, "\"HostToDevice\""));
    assert_null(strstr(down + 1, "\"DeviceToHost\""));
    assert_non_null(strstr(plan, "_bridge_1_CudaMemCopy"));
    pen_free(plan);

    OK(pen_pipeline_start(p, &err));
    OK(pen_pipeline_wait(p, INT64_C(30000000000), &err));
    struct pen_stats stats;
    pen_pipeline_stats(p, &stats);
    assert_int_equal(stats.h2d.count, FRAMES);
    assert_int_equal(stats.d2h.count, FRAMES);
    assert_int_equal(stats.launches, FRAMES);
    assert_int_equal(stats.leaks, 0);
    pen_pipeline_destroy(&p);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    pen_registry_destroy(&registry);

    size_t n = 0;
    uint8_t *got = pen_test_read_file(out, &n);
    assert_int_equal(n, sizeof(picture));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(got[i], picture[i] ^ ((77 + i % (W * 3)) & 255));
    free(got);
}

PEN_TEST_MAIN(PEN_CASE(the_tag_query_finds_the_users_class),
              PEN_CASE(a_cpu_source_gets_its_transfer_and_the_pixels_are_right))
