// A CUDA module of one's own, registered through public headers only: it is
// found by its tags, planned like the built-in ones, and its kernel runs.

#include <stdio.h>
#include <unistd.h>

#include <jansson.h>

#include <penstock/penstock.h>

#include "my_custom_cuda.h"
#include "pen_test.h"

#define OK(expr)                                                               \
    do {                                                                       \
        const enum pen_status ok_st = (expr);                                  \
        if (ok_st != PEN_OK)                                                   \
            fail_msg("%s: %s: %s", #expr, err.where, err.text);                \
    } while (0)

static struct pen_registry *registry_with_it(void)
{
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    OK(pen_registry_create(&registry, &err));
    OK(pen_registry_add(registry, &my_custom_cuda, &err));
    return registry;
}

PEN_TEST(the_class_is_found_by_name_and_by_its_tags)
{
    struct pen_registry *registry = registry_with_it();
    const struct pen_module_class *found[4];
    static const char *const both[] = { "function:custom", "backend:cuda",
                                        NULL };
    static const char *const other[] = { "function:custom", "backend:cpu",
                                         NULL };
    struct pen_error err = { 0 };

    assert_ptr_equal(pen_registry_find(registry, "MyCustomCuda", NULL),
                     &my_custom_cuda);
    assert_int_equal(
        pen_registry_modules_with_tag(registry, "function:custom", found, 4),
        1);
    assert_ptr_equal(found[0], &my_custom_cuda);
    assert_int_equal(pen_registry_modules_with_tags(registry, both, found, 4),
                     1);
    assert_ptr_equal(found[0], &my_custom_cuda);
    assert_int_equal(pen_registry_modules_with_tags(registry, other, found, 4),
                     0);
    // A second time it is refused: the name is taken.
    assert_int_equal(pen_registry_add(registry, &my_custom_cuda, &err),
                     PEN_E_ARG);
    assert_non_null(strstr(err.text, "MyCustomCuda"));
    pen_registry_destroy(&registry);
}

PEN_TEST(a_cpu_source_gets_one_upload_and_a_cpu_sink_one_download)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/examples/custom_module/invert.json",
             pen_test_source());
    if (access(path, R_OK) != 0)
        PEN_SKIP("%s is not there", path);

    struct pen_registry *registry = registry_with_it();
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    struct pen_plan *plan = NULL;
    struct pen_error err = { 0 };
    OK(pen_description_load(path, &desc, issues, &err));
    OK(pen_plan_create(desc, registry, NULL, &plan, issues, &err));
    assert_true(pen_plan_needs_device(plan));

    char *text = pen_plan_json(plan, issues);
    json_t *json = json_loads(text, 0, NULL);
    assert_non_null(json);
    unsigned up = 0, down = 0, inserted = 0;
    size_t i;
    json_t *module;
    json_array_foreach (json_object_get(json, "modules"), i, module) {
        const char *type = json_string_value(json_object_get(module, "type"));
        if (!json_is_true(json_object_get(module, "inserted")))
            continue;
        inserted++;
        assert_string_equal(type, "CudaMemCopy");
        const char *kind = json_string_value(
            json_object_get(json_object_get(module, "props"), "kind"));
        assert_non_null(kind);
        up += strcmp(kind, "HostToDevice") == 0;
        down += strcmp(kind, "DeviceToHost") == 0;
    }
    assert_int_equal(inserted, 2);
    assert_int_equal(up, 1);
    assert_int_equal(down, 1);
    json_decref(json);
    pen_free(text);
    pen_plan_destroy(&plan);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    pen_registry_destroy(&registry);
}

// Run a pipeline of three frames on the device under test, with the module or
// without; the frames are written into `folder`.
static void run(const char *folder, bool with_module)
{
    static const char *const modules =
        "{\"modules\": {"
        "\"source\": {\"type\": \"TestSignalGenerator\", \"props\":"
        " {\"width\": 322, \"height\": 181, \"pattern\": \"COLOR_BARS\","
        " \"maxFrames\": 3}},"
        "%s"
        "\"writer\": {\"type\": \"FileWriterModule\", \"props\":"
        " {\"strFullFileNameWithPattern\": \"%s/????.raw\"}}},"
        "\"connections\": [%s]}";
    char text[2048];
    snprintf(text, sizeof(text), modules,
             with_module ? "\"negative\": {\"type\": \"MyCustomCuda\"}," : "",
             folder,
             with_module ? "{\"from\": \"source\", \"to\": \"negative\"},"
                           "{\"from\": \"negative\", \"to\": \"writer\"}"
                         : "{\"from\": \"source\", \"to\": \"writer\"}");
    struct pen_registry *registry = registry_with_it();
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    struct pen_pipeline *pipeline = NULL;
    struct pen_stats stats;
    struct pen_error err = { 0 };
    const struct pen_pipeline_params params = {
        .device.selector = pen_test_device(),
        .device.emulator = pen_test_emulator(),
        .leaks_fatal = true,
        .leak_sites = true,
    };

    OK(pen_description_parse(text, strlen(text), "test", &desc, issues, &err));
    OK(pen_pipeline_create(desc, registry, &params, &pipeline, issues, &err));
    OK(pen_pipeline_start(pipeline, &err));
    OK(pen_pipeline_wait(pipeline, -1, &err));
    pen_pipeline_stats(pipeline, &stats);
    assert_int_equal(stats.frames, 3);
    assert_int_equal(stats.leaks, 0);
    assert_int_equal(stats.h2d.count, with_module ? 3 : 0);
    assert_int_equal(stats.d2h.count, with_module ? 3 : 0);
    // One launch for each of the three planes.
    assert_int_equal(stats.launches, with_module ? 9 : 0);
    pen_pipeline_destroy(&pipeline);
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
    pen_registry_destroy(&registry);
}

PEN_TEST(its_kernel_makes_the_negative_of_every_frame)
{
    char source[1024], negative[1024], path[1100];
    snprintf(source, sizeof(source), "%s/source", pen_test_folder());
    snprintf(negative, sizeof(negative), "%s/negative", pen_test_folder());
    run(source, false);
    run(negative, true);
    for (int i = 0; i < 3; i++) {
        size_t bytes, same;
        snprintf(path, sizeof(path), "%s/%04d.raw", source, i);
        uint8_t *a = pen_test_read_file(path, &bytes);
        snprintf(path, sizeof(path), "%s/%04d.raw", negative, i);
        uint8_t *b = pen_test_read_file(path, &same);
        assert_int_equal(bytes, 322 * 181 + 2 * 161 * 91);
        assert_int_equal(bytes, same);
        for (size_t k = 0; k < bytes; k++)
            assert_int_equal(b[k], 255 - a[k]);
        free(a);
        free(b);
    }
}

PEN_TEST_MAIN(
    PEN_CASE(the_class_is_found_by_name_and_by_its_tags),
    PEN_CASE(a_cpu_source_gets_one_upload_and_a_cpu_sink_one_download),
    PEN_CASE(its_kernel_makes_the_negative_of_every_frame))
