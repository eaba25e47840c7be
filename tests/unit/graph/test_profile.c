// Device profiles from files.

#include "pen_test.h"

#include <jansson.h>
#include <stdio.h>

#include <penstock/plan.h>

#include "alloc_fail.h"

static const char good[] =
    "{ \"name\": \"desk\", \"cuda\": true, \"h2d_rate\": 12000,"
    "  \"d2h_rate\": 11000, \"pageable_rate\": 4000, \"device_rate\": 300000,"
    "  \"host_rate\": 2000, \"launch_ns\": 5000, \"copy_ns\": 6000,"
    "  \"#note\": \"measured\", \"cuda_memory\": 8589934592 }";

static const char *folder(void)
{
    static const char *made;
    if (!made)
        made = pen_test_folder();
    return made;
}

static enum pen_status load(const char *text, struct pen_profile *out,
                            struct pen_error *err)
{
    char path[256];
    snprintf(path, sizeof(path), "%s/profile.json", folder());
    pen_test_write_file(path, text, strlen(text));
    return pen_profile_load(path, out, err);
}

PEN_TEST(a_profile_is_read)
{
    struct pen_profile p;
    struct pen_error err = { 0 };
    assert_int_equal(load(good, &p, &err), PEN_OK);
    assert_string_equal(p.name, "desk");
    assert_true(p.cuda);
    assert_int_equal(p.h2d_rate, 12000);
    assert_int_equal(p.copy_ns, 6000);
    assert_int_equal(p.cuda_memory, 8589934592);
    assert_int_equal(p.host_memory, 0);
    assert_int_equal(p.dmabuf, 0);
}

PEN_TEST(what_can_be_done_with_dmabufs_is_read)
{
    static const struct {
        const char *json;
        unsigned bits;
    } cases[] = {
        { "[]", 0 },
        { "[\"host\"]", PEN_DMABUF_HOST },
        { "[\"import\", \"export\"]", PEN_DMABUF_EXPORT | PEN_DMABUF_IMPORT },
        { "[\"host\", \"export\", \"import\", \"host\"]",
          PEN_DMABUF_HOST | PEN_DMABUF_EXPORT | PEN_DMABUF_IMPORT },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct pen_profile p;
        struct pen_error err = { 0 };
        char text[1024];
        snprintf(text, sizeof(text), "{ \"dmabuf\": %s, %s", cases[i].json,
                 good + 1);
        assert_int_equal(load(text, &p, &err), PEN_OK);
        assert_int_equal(p.dmabuf, cases[i].bits);
    }
}

PEN_TEST(the_built_in_profiles_say_why_something_cannot_be_done)
{
    const struct pen_profile *cuda = pen_profile_builtin("generic-cuda");
    const struct pen_profile *cpu = pen_profile_builtin("cpu");
    assert_int_equal(cuda->dmabuf, PEN_DMABUF_HOST | PEN_DMABUF_EXPORT);
    assert_non_null(strstr(cuda->why_dmabuf[2], "import"));
    assert_int_equal(cpu->dmabuf,
                     PEN_DMABUF_HOST | PEN_DMABUF_EXPORT | PEN_DMABUF_IMPORT);
}

// Replace `from` in the good profile by `to`: the load fails and names `word`.
static void refused(const char *from, const char *to, const char *word)
{
    char text[1024];
    const char *at = strstr(good, from);
    assert_non_null(at);
    snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - good), good, to,
             at + strlen(from));
    struct pen_profile p;
    struct pen_error err = { 0 };
    assert_int_equal(load(text, &p, &err), PEN_E_CONFIG);
    assert_int_equal(err.status, PEN_E_CONFIG);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not name %s", err.text, word);
}

PEN_TEST(each_mistake_in_a_profile_is_named)
{
    refused("12000", "0", "h2d_rate");
    refused("12000", "-5", "h2d_rate");
    refused("12000", "1.5", "h2d_rate");
    refused("12000", "99999999999", "h2d_rate");
    refused("true", "1", "cuda");
    refused("\"desk\"", "\"\"", "name");
    refused("\"#note\": \"measured\"", "\"dmabuf\": \"host\"", "dmabuf");
    refused("\"#note\": \"measured\"", "\"dmabuf\": [1]", "\"export\"");
    refused("\"#note\": \"measured\"", "\"dmabuf\": [\"Host\"]", "dmabuf");
    refused("launch_ns", "lunch_ns", "launch_ns");
    refused("\"launch_ns\": 5000,", "", "launch_ns is missing");
    refused("{ \"name\"", "{{ \"name\"", "line 1");
    refused("{ \"name\"", "{ \"cuda\": true, \"name\"", "line 1");
    refused("\"#note\": \"measured\"", "\"device_operations\": 0",
            "device_operations");
    refused("\"#note\": \"measured\"", "\"libraries\": [\"cudart\"]",
            "\"nvjpeg\"");
    refused("\"#note\": \"measured\"", "\"why_dmabuf\": {\"no\": \"x\"}",
            "why_dmabuf");
    refused("\"#note\": \"measured\"", "\"device_name\": 5", "device_name");
}

PEN_TEST(what_is_wrong_has_its_place)
{
    struct pen_profile p;
    struct pen_error err = { 0 };
    assert_int_equal(load("{ \"name\": \"x\",\n  \"cuda\": 1 }", &p, &err),
                     PEN_E_CONFIG);
    assert_non_null(strstr(err.text, "line 2, column 3: cuda"));
    assert_int_equal(
        load("{ \"name\": \"x\",\n\n \"cuda\": true,, }", &p, &err),
        PEN_E_CONFIG);
    assert_non_null(strstr(err.text, "line 3, column 15"));
}

PEN_TEST(what_older_files_do_not_have_is_that_of_the_built_in_ones)
{
    const struct pen_profile *cuda = pen_profile_builtin("generic-cuda");
    const struct pen_profile *cpu = pen_profile_builtin("cpu");
    struct pen_profile p;
    struct pen_error err = { 0 };
    assert_int_equal(load(good, &p, &err), PEN_OK);
    assert_int_equal(p.host_operations, cuda->host_operations);
    assert_int_equal(p.device_operations, cuda->device_operations);
    assert_int_equal(p.context_ns, cuda->context_ns);
    assert_int_equal(p.load_ns, cuda->load_ns);
    assert_false(p.emulated);
    assert_string_equal(p.device_name, "");
    assert_int_equal(p.libraries, 0);

    char text[1024];
    const char *at = strstr(good, "true");
    snprintf(text, sizeof(text), "%.*sfalse%s", (int)(at - good), good, at + 4);
    assert_int_equal(load(text, &p, &err), PEN_OK);
    assert_int_equal(p.device_operations, cpu->device_operations);
    assert_int_equal(p.context_ns, cpu->context_ns);
}

PEN_TEST(what_a_machine_has_is_read)
{
    struct pen_profile p;
    struct pen_error err = { 0 };
    char text[1024];
    snprintf(text, sizeof(text),
             "{ \"device_name\": \"GPU\", \"cpu_name\": \"CPU\","
             "  \"emulated\": true, \"libraries\": [\"npp\", \"nvjpeg\"],"
             "  \"decode_engines\": 7, \"device_operations\": 9,"
             "  \"why_dmabuf\": { \"import\": \"none\" }, %s",
             good + 1);
    assert_int_equal(load(text, &p, &err), PEN_OK);
    assert_string_equal(p.device_name, "GPU");
    assert_string_equal(p.cpu_name, "CPU");
    assert_true(p.emulated);
    assert_int_equal(p.libraries, PEN_LIBRARY_NPP | PEN_LIBRARY_NVJPEG);
    assert_int_equal(p.decode_engines, 7);
    assert_int_equal(p.device_operations, 9);
    assert_string_equal(p.why_dmabuf[2], "none");
    assert_string_equal(p.why_dmabuf[0], "");
}

PEN_TEST(a_profile_is_found_by_its_name)
{
    struct pen_profile p;
    struct pen_error err = { 0 };
    char path[512];
    snprintf(path, sizeof(path), "::%s:", folder());
    assert_int_equal(load(good, &p, &err), PEN_OK);
    assert_int_equal(pen_profile_find("profile", path, &p, &err), PEN_OK);
    assert_string_equal(p.name, "desk");
    // What is built in cannot be hidden.
    assert_int_equal(pen_profile_find("cpu", path, &p, &err), PEN_OK);
    assert_string_equal(p.name, "cpu");
    assert_int_equal(pen_profile_find("desk", path, &p, &err), PEN_E_ARG);
    assert_non_null(strstr(err.text, "generic-cuda, cpu"));
    assert_non_null(strstr(err.text, ", profile"));
    assert_int_equal(pen_profile_find("", path, &p, &err), PEN_E_ARG);
    assert_int_equal(pen_profile_find("x.json", path, &p, &err), PEN_E_IO);
}

PEN_TEST(every_allocation_may_fail)
{
    struct pen_profile p;
    struct pen_error err = { 0 };
    json_set_alloc_funcs(malloc, free);
    assert_int_equal(load(good, &p, &err), PEN_OK);
    for (unsigned found = 0; found < 2; found++) {
        // A name that there is, and one for which all are listed.
        const char *name = found ? "profile" : "none";
        for (unsigned nth = 1;; nth++) {
            pen_alloc_fail_arm(nth, false);
            const enum pen_status st =
                pen_profile_find(name, folder(), &p, &err);
            if (!pen_alloc_fail_disarm()) {
                assert_int_equal(st, found ? PEN_OK : PEN_E_ARG);
                assert_true(nth > (found ? 10 : 1));
                break;
            }
            assert_int_equal(st, found ? PEN_E_NOMEM : PEN_E_ARG);
        }
    }
}

PEN_TEST(a_missing_profile_is_an_io_error)
{
    struct pen_profile p;
    struct pen_error err = { 0 };
    assert_int_equal(pen_profile_load("/nonexistent/p.json", &p, &err),
                     PEN_E_IO);
    assert_string_equal(err.where, "/nonexistent/p.json");
}

PEN_TEST_MAIN(
    PEN_CASE(a_profile_is_read),
    PEN_CASE(what_can_be_done_with_dmabufs_is_read),
    PEN_CASE(the_built_in_profiles_say_why_something_cannot_be_done),
    PEN_CASE(each_mistake_in_a_profile_is_named),
    PEN_CASE(what_is_wrong_has_its_place),
    PEN_CASE(what_older_files_do_not_have_is_that_of_the_built_in_ones),
    PEN_CASE(what_a_machine_has_is_read),
    PEN_CASE(a_profile_is_found_by_its_name),
    PEN_CASE(every_allocation_may_fail),
    PEN_CASE(a_missing_profile_is_an_io_error))
