// Every example is taken by the schema of the built-in classes and by the
// reader; what is not built in is not an example. Every example runs, and holds
// the memory that was planned.

#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include <penstock/penstock.h>

#include "tests/unit/graph/schema_check.h"

static json_t *schema_of(const struct pen_registry *registry)
{
    char *text = pen_registry_schema_json(registry);
    assert_non_null(text);
    json_error_t why;
    json_t *schema = json_loads(text, 0, &why);
    if (!schema)
        fail_msg("%s", why.text);
    pen_free(text);
    return schema;
}

static void check_example(const struct pen_registry *registry,
                          const json_t *schema, const char *path)
{
    json_error_t why;
    json_t *value = json_load_file(path, 0, &why);
    if (!value)
        fail_msg("%s: %s", path, why.text);
    if (!schema_valid(schema, schema, value))
        fail_msg("the schema refuses %s", path);
    json_decref(value);

    struct pen_error err = { 0 };
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    if (pen_description_load(path, &desc, issues, &err) != PEN_OK)
        fail_msg("%s: %s", path, err.text);
    (void)!pen_validate(desc, registry, issues, &err);
    const struct pen_issue *is;
    for (size_t i = 0; (is = pen_issues_get(issues, i)); i++) {
        // The photos are made by the run.
        if (is->severity == PEN_SEVERITY_ERROR && strcmp(is->code, "E600"))
            fail_msg("%s:%d:%d %s %s", path, is->line, is->column, is->code,
                     is->message);
        if (strcmp(is->code, "W001") == 0)
            fail_msg("%s: %s", path, is->message);
    }
    pen_description_destroy(&desc);
    pen_issues_destroy(&issues);
}

PEN_TEST(schema_and_reader_take_every_example)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s/examples", pen_test_source());
    struct pen_error err = { 0 };
    struct pen_registry *registry = NULL;
    if (pen_registry_create(&registry, &err) != PEN_OK)
        fail_msg("%s", err.text);
    json_t *schema = schema_of(registry);
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    int count = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        const size_t n = strlen(entry->d_name);
        if (n < 5 || strcmp(entry->d_name + n - 5, ".json") != 0)
            continue;
        char path[2048];
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        check_example(registry, schema, path);
        count++;
    }
    closedir(dir);
    assert_true(count > 0);
    json_decref(schema);
    pen_registry_destroy(&registry);
}

static void must(enum pen_status st, const struct pen_error *err,
                 const char *what)
{
    if (st != PEN_OK)
        fail_msg("%s: %s: %s: %s", what, pen_status_name(st), err->where,
                 err->text);
}

// Runs a description, which it frees, to the end.
static struct pen_stats run(const struct pen_registry *registry,
                            struct pen_description *desc, const char *what)
{
    struct pen_error err = { 0 };
    struct pen_pipeline *pipeline = NULL;
    struct pen_stats stats;
    const struct pen_pipeline_params params = {
        .device = { .selector = pen_test_device(),
                    .emulator = pen_test_emulator() },
        .leaks_fatal = true,
    };
    must(pen_pipeline_create(desc, registry, &params, &pipeline, NULL, &err),
         &err, what);
    must(pen_pipeline_start(pipeline, &err), &err, what);
    must(pen_pipeline_wait(pipeline, -1, &err), &err, what);
    pen_pipeline_stats(pipeline, &stats);
    pen_pipeline_destroy(&pipeline);
    pen_description_destroy(&desc);
    return stats;
}

// Photos where the examples look for them.
static void make_photos(const struct pen_registry *registry)
{
    static const char text[] =
        "{ \"modules\": {"
        "\"source\": { \"type\": \"TestSignalGenerator\", \"props\":"
        " { \"width\": 320, \"height\": 240, \"maxFrames\": 12 } },"
        "\"encoder\": { \"type\": \"ImageEncoderCV\" },"
        "\"writer\": { \"type\": \"FileWriterModule\", \"props\": {"
        " \"strFullFileNameWithPattern\": \"out/photos/????.jpg\" } } },"
        "\"connections\": ["
        "{ \"from\": \"source\", \"to\": \"encoder\" },"
        "{ \"from\": \"encoder\", \"to\": \"writer\" } ] }";
    struct pen_error err = { 0 };
    struct pen_issues *issues = pen_issues_create();
    struct pen_description *desc = NULL;
    must(pen_description_parse(text, strlen(text), "photos", &desc, issues,
                               &err),
         &err, "photos");
    run(registry, desc, "photos");
    pen_issues_destroy(&issues);
}

static void compare_memory(const struct pen_stats *s, const char *name)
{
    for (unsigned m = PEN_MEM_HOST; m < PEN_MEM_COUNT; m++) {
        const uint64_t planned = s->memory[m].planned_peak;
        const uint64_t peak = s->memory[m].peak;
        if (peak > planned || peak < planned - planned / 10)
            fail_msg("%s: of %s %llu bytes were planned, the peak was %llu",
                     name, pen_mem_name((enum pen_mem_type)m),
                     (unsigned long long)planned, (unsigned long long)peak);
    }
}

static int is_pipeline(const struct dirent *entry)
{
    const size_t n = strlen(entry->d_name);
    return n > 5 && strcmp(entry->d_name + n - 5, ".json") == 0;
}

// In the order of their names: some read what others wrote.
PEN_TEST(every_example_runs_in_the_memory_that_was_planned)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s/examples", pen_test_source());
    struct pen_error err = { 0 };
    struct pen_registry *registry = NULL;
    must(pen_registry_create(&registry, &err), &err, "registry");
    assert_int_equal(chdir(pen_test_folder()), 0);
    make_photos(registry);
    struct dirent **files;
    const int count = scandir(folder, &files, is_pipeline, alphasort);
    assert_true(count >= 8);
    for (int i = 0; i < count; i++) {
        char path[2048];
        snprintf(path, sizeof(path), "%s/%s", folder, files[i]->d_name);
        struct pen_issues *issues = pen_issues_create();
        struct pen_description *desc = NULL;
        must(pen_description_load(path, &desc, issues, &err), &err, path);
        const struct pen_stats s = run(registry, desc, path);
        assert_true(s.frames > 0);
        assert_int_equal(s.errors, 0);
        compare_memory(&s, files[i]->d_name);
        pen_issues_destroy(&issues);
        free(files[i]);
    }
    free(files);
    assert_int_equal(chdir("/"), 0);
    pen_registry_destroy(&registry);
}

PEN_TEST(every_built_in_class_is_described)
{
    struct pen_error err = { 0 };
    struct pen_registry *registry = NULL;
    assert_int_equal(pen_registry_create(&registry, &err), PEN_OK);
    const struct pen_module_class *list[256];
    const size_t count =
        pen_registry_modules(registry, PEN_CATEGORY_NONE, NULL, list, 256);
    assert_true(count > 0 && count <= 256);
    for (size_t i = 0; i < count; i++) {
        char *text = pen_describe_text(list[i]);
        assert_non_null(text);
        assert_non_null(strstr(text, list[i]->name));
        pen_free(text);
        text = pen_describe_json(list[i]);
        json_t *d = json_loads(text, 0, NULL);
        assert_non_null(d);
        json_decref(d);
        pen_free(text);
    }
    pen_registry_destroy(&registry);
}

PEN_TEST_MAIN(PEN_CASE(schema_and_reader_take_every_example),
              PEN_CASE(every_example_runs_in_the_memory_that_was_planned),
              PEN_CASE(every_built_in_class_is_described))
