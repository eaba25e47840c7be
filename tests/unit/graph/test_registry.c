// The registry: what a class table must be, names, queries, descriptions.

#include <pthread.h>

#include "graph_fixture.h"

static struct pen_registry *registry(void)
{
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    if (!r)
        fail_msg("%s", err.text);
    return r;
}

static struct pen_registry *empty(void)
{
    struct pen_registry *r = NULL;
    struct pen_error err = { 0 };
    assert_int_equal(stk_registry_new(&r, &err), PEN_OK);
    return r;
}

// The class is refused with a text that has `words`, and nothing is added.
static void refused(const struct pen_module_class *cls, const char *words)
{
    struct pen_registry *r = empty();
    struct pen_error err = { 0 };
    assert_int_equal(pen_registry_add(r, cls, &err), PEN_E_ARG);
    if (!strstr(err.text, words))
        fail_msg("\"%s\" does not say \"%s\"", err.text, words);
    assert_int_equal(pen_registry_modules(r, PEN_CATEGORY_NONE, NULL, NULL, 0),
                     0);
    pen_registry_destroy(&r);
}

PEN_TEST(another_abi_or_size_is_refused_before_anything_is_read)
{
    struct pen_module_class cls = test_blur;
    cls.abi = 2;
    cls.name = (const char *)1;
    refused(&cls, "ABI 2, this library has 1");
    cls.abi = PEN_MODULE_ABI;
    cls.size = 8;
    refused(&cls, "has 8 bytes");
}

PEN_TEST(names_and_texts_are_needed)
{
    struct pen_module_class cls = test_blur;
    static const char *const bad[] = { NULL, "", "a b", "a.b", "1a", "a\"" };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cls.name = bad[i];
        refused(&cls, "is no name for a class");
    }
    cls = test_blur;
    cls.version = NULL;
    refused(&cls, "version or summary");
    cls = test_blur;
    cls.summary = "";
    refused(&cls, "version or summary");
    cls = test_blur;
    cls.tags = (const char *const[]){ "a", "", NULL };
    refused(&cls, "the tag \"\"");
    cls.tags = (const char *const[]){ "a", "b c", NULL };
    refused(&cls, "the tag \"b c\"");
    cls.tags = (const char *const[]){ "a", "b", "a", NULL };
    refused(&cls, "the tag a is there twice");
}

PEN_TEST(a_name_or_alias_that_is_taken_is_refused)
{
    struct pen_registry *r = registry();
    struct pen_error err = { 0 };
    struct pen_module_class cls = test_blur;
    assert_int_equal(pen_registry_add(r, &cls, &err), PEN_E_ARG);
    assert_string_equal(err.text,
                        "class GaussianBlur: the name GaussianBlur is taken");
    cls.name = "CudaMemCopyH2D";
    assert_int_equal(pen_registry_add(r, &cls, &err), PEN_E_ARG);
    assert_string_equal(err.text,
                        "class CudaMemCopyH2D: the name CudaMemCopyH2D is "
                        "taken: it is an alias of CudaMemCopy");
    cls.name = "Other";
    cls.aliases = (const struct pen_alias[]){ { .name = "StatSink" }, { 0 } };
    assert_int_equal(pen_registry_add(r, &cls, &err), PEN_E_ARG);
    cls.aliases = (const struct pen_alias[]){ { .name = "Other" }, { 0 } };
    assert_int_equal(pen_registry_add(r, &cls, &err), PEN_E_ARG);
    cls.aliases =
        (const struct pen_alias[]){ { .name = "O" }, { .name = "O" }, { 0 } };
    assert_int_equal(pen_registry_add(r, &cls, &err), PEN_E_ARG);
    assert_null(pen_registry_find(r, "Other", NULL));
    assert_null(pen_registry_find(r, "O", NULL));
    cls.aliases = (const struct pen_alias[]){ { .name = "O" }, { 0 } };
    assert_int_equal(pen_registry_add(r, &cls, &err), PEN_OK);
    const struct pen_alias *alias = NULL;
    assert_ptr_equal(pen_registry_find(r, "O", &alias), &cls);
    assert_string_equal(alias->name, "O");
    assert_ptr_equal(pen_registry_find(r, "Other", &alias), &cls);
    assert_null(alias);
    pen_registry_destroy(&r);
    assert_null(r);
    pen_registry_destroy(&r);
}

PEN_TEST(an_alias_must_preset_what_fits)
{
    struct pen_module_class cls = test_copy;
    static const struct {
        struct pen_alias alias;
        const char *words;
    } bad[] = {
        { { "A", "kind", NULL }, "key without value" },
        { { "A", NULL, "x" }, "key without value" },
        { { "A", "knd", "HostToDevice" }, "no property knd" },
        { { "A", "kind", "hosttodevice" }, "E203" },
        { { "A", "sync", "perhaps" }, "does not fit" },
        { { "A b", "kind", "HostToDevice" }, "no name for an alias" },
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        cls.aliases = (const struct pen_alias[]){ bad[i].alias, { 0 } };
        refused(&cls, bad[i].words);
    }
}

PEN_TEST(pins_must_make_sense)
{
    static const struct pen_pin good =
        TEST_PIN("input", TEST_RAW, TEST_HOST, PEN_FMT_BITS_RGB);
    struct pen_pin pins[PEN_MAX_PINS + 2] = { good };
    struct pen_module_class cls = test_blur_cv;
    cls.inputs = pins;
    struct pen_registry *r = empty();
    assert_int_equal(pen_registry_add(r, &cls, NULL), PEN_OK);
    pen_registry_destroy(&r);

    pins[0].name = "in.put";
    refused(&cls, "is no name for an input");
    pins[0] = good;
    pins[0].kinds = 0;
    refused(&cls, "kinds 0x0");
    pins[0].kinds = PEN_KIND_BIT(PEN_KIND_COUNT);
    refused(&cls, "is no set of frame kinds");
    pins[0] = good;
    pins[0].mem = 0;
    refused(&cls, "mem 0x0");
    pins[0].mem = PEN_MEM_BIT(PEN_MEM_COUNT);
    refused(&cls, "is no set of memory types");
    pins[0] = good;
    pins[0].formats |= PEN_FMT_BIT(6);
    refused(&cls, "formats 0x40 has unknown formats");
    pins[0].formats = 0;
    refused(&cls, "raw pictures without formats");
    pins[0] = good;
    pins[0].flags = 64;
    refused(&cls, "flags 0x40");
    pins[0] = pins[1] = good;
    refused(&cls, "two inputs are named input");
    static const char *const names[] = { "a", "b", "c", "d", "e",
                                         "f", "g", "h", "i" };
    for (int i = 0; i <= PEN_MAX_PINS; i++) {
        pins[i] = good;
        pins[i].name = names[i];
    }
    refused(&cls, "more than 8 inputs");
    pins[PEN_MAX_PINS].name = NULL;
    r = empty();
    assert_int_equal(pen_registry_add(r, &cls, NULL), PEN_OK);
    pen_registry_destroy(&r);

    cls = test_blur_cv;
    pins[0] = good;
    pins[0].flags = PEN_PIN_OPTIONAL;
    pins[1].name = NULL;
    cls.outputs = pins;
    refused(&cls, "flags 0x1 do not exist for it");
}

PEN_TEST(category_and_flags_must_fit_the_pins)
{
    struct pen_module_class cls = test_blur;
    cls.category = PEN_CATEGORY_NONE;
    refused(&cls, "category 0");
    cls.category = (enum pen_category)99;
    refused(&cls, "category 99");
    cls.category = PEN_CATEGORY_SOURCE;
    refused(&cls, "a source has outputs and no inputs");
    cls.category = PEN_CATEGORY_SINK;
    refused(&cls, "a sink has inputs and no outputs");
    cls.category = PEN_CATEGORY_TRANSFORM;
    cls.outputs = NULL;
    refused(&cls, "a transform has inputs and outputs");
    cls = test_blur;
    cls.flags = 1u << 20;
    refused(&cls, "are not all known");
    cls = test_signal;
    cls.flags = PEN_CLASS_FORWARDS;
    refused(&cls, "it forwards but");
    cls = test_merge;
    cls.flags = PEN_CLASS_BRIDGE;
    refused(&cls, "a bridge has one input and one output");

    static const struct pen_kernel_entry entry = { "k", 8, NULL, NULL };
    struct pen_kernel_image image = {
        .magic = PEN_KERNEL_MAGIC,
        .abi = PEN_KERNEL_ABI,
        .count = 1,
        .name = "image",
        .entries = &entry,
    };
    cls = test_blur_cv;
    cls.kernels = (const struct pen_kernel_image *const[]){ &image, NULL };
    refused(&cls, "names kernels but not PEN_CLASS_CUDA");
    cls.flags = PEN_CLASS_CUDA;
    image.count = 0;
    refused(&cls, "0 kernels");
    image.count = PEN_MAX_KERNELS + 1;
    refused(&cls, "17 kernels");
    image.count = 1;
    image.magic = 0;
    refused(&cls, "of another ABI");
}

// A class with one property; `params` has room for two doubles.
static void refused_row(struct pen_prop row, const char *words)
{
    const struct pen_prop props[] = { row, PEN_PROPS_END };
    struct pen_module_class cls = test_stat_sink;
    cls.props = props;
    cls.params_size = 16;
    if (words) {
        refused(&cls, words);
        return;
    }
    struct pen_registry *r = empty();
    struct pen_error err = { 0 };
    if (pen_registry_add(r, &cls, &err) != PEN_OK)
        fail_msg("%s", err.text);
    pen_registry_destroy(&r);
}

PEN_TEST(properties_must_make_sense)
{
    static const struct pen_choice two[] = { { "a", 1, "" },
                                             { "b", 2, "" },
                                             { 0 } };
    static const struct pen_choice none[] = { { 0 } };
    static const struct pen_choice same[] = { { "a", 1, "" },
                                              { "a", 2, "" },
                                              { 0 } };
    static const struct pen_choice equal[] = { { "a", 1, "" },
                                               { "b", 1, "" },
                                               { 0 } };
    const struct pen_prop i = { .kind = PEN_PROP_I32,
                                .key = "k",
                                .help = "h",
                                .def.i = 5,
                                .min = 1,
                                .max = 9 };
    const struct pen_prop e = { .kind = PEN_PROP_ENUM,
                                .key = "k",
                                .help = "h",
                                .def.i = 2,
                                .choices = two };
    struct pen_prop p = i;
    refused_row(i, NULL);
    refused_row(e, NULL);
#define BAD(base, change, words)                                               \
    p = base;                                                                  \
    change;                                                                    \
    refused_row(p, words)
    BAD(i, p.key = NULL, "\"\" is no key");
    BAD(i, p.key = "#k", "is no key");
    BAD(i, p.help = NULL, "has no help");
    BAD(i, p.kind = (enum pen_prop_kind)77, "kind 77");
    BAD(i, p.offset = 14, "offset 14");
    BAD(i, p.offset = 16, "does not lie in params of 16 bytes");
    BAD(i, p.offset = SIZE_MAX - 3, "does not lie in params");
    BAD(i, p.offset = 12, NULL);
    BAD(i, p.min = 10, "min 10 is above max 9");
    BAD(i, p.def.i = 10, "default 10 is outside 1..9");
    BAD(i, p.def.i = 0, "default 0 is outside 1..9");
    BAD(i, (p.def.i = 0, p.flags = PEN_PROP_REQUIRED), NULL);
    BAD(i, (p.def.i = 4, p.flags = PEN_PROP_ODD), "default 4 is not odd");
    BAD(i, (p.def.i = 100, p.min = p.max = 0), NULL);
    BAD(i, p.choices = two, "has choices but is no enum");
    BAD(i, p.flags = PEN_PROP_PATH_READ, "is a path but no string");
    BAD(i, p.flags = 1u << 9, "are not all known");
    BAD(i, p.key = "queue", "belongs to every module already");
    BAD(e, p.choices = NULL, "has no choices");
    BAD(e, p.choices = none, "has no choices");
    BAD(e, p.choices = same, "two choices a");
    BAD(e, p.choices = equal, "have the same value");
    BAD(e, p.def.i = 3, "default 3 is not among its choices");
    BAD(e, (p.def.i = 3, p.flags = PEN_PROP_REQUIRED), NULL);
    BAD(e, p.flags = PEN_PROP_ODD, "is odd but no integer");
    const struct pen_prop s = {
        .kind = PEN_PROP_STRING, .key = "k", .help = "h", .def.s = NULL
    };
    BAD(s, (void)0, "the default is NULL");
    BAD(s, p.flags = PEN_PROP_REQUIRED | PEN_PROP_PATH_WRITE, NULL);
    const struct pen_prop f = {
        .kind = PEN_PROP_F64, .key = "k", .help = "h", .def.f = 0.5
    };
    BAD(f, p.def.f = 1.0 / 0.0, "is not finite");
    BAD(f, (p.min = 0.6, p.max = 1), "default 0.5 is outside 0.6..1");
    const struct pen_prop r = {
        .kind = PEN_PROP_RATIONAL, .key = "k", .help = "h", .min = 1, .max = 60
    };
    BAD(r, (void)0, NULL);
    BAD(r, p.def.r = ((struct pen_rational){ 1, 2 }), "outside 1..60");
    BAD(r, p.def.r = ((struct pen_rational){ 1, 0 }), "1/0 is no rate");
#undef BAD
    const struct pen_prop twice[] = { i, i, PEN_PROPS_END };
    struct pen_prop shared[] = { i, e, PEN_PROPS_END };
    struct pen_module_class cls = test_stat_sink;
    cls.params_size = 16;
    cls.props = twice;
    refused(&cls, "property k is there twice");
    shared[1].key = "l";
    cls.props = shared;
    refused(&cls, "properties k and l share a field");
}

PEN_TEST(classes_are_found_by_category_and_tags)
{
    struct pen_registry *r = registry();
    const struct pen_module_class *list[TEST_CLASS_COUNT];
    assert_int_equal(pen_registry_modules(r, PEN_CATEGORY_NONE, NULL, list,
                                          TEST_CLASS_COUNT),
                     TEST_CLASS_COUNT);
    for (int i = 1; i < TEST_CLASS_COUNT; i++)
        assert_true(strcmp(list[i - 1]->name, list[i]->name) < 0);
    assert_ptr_equal(stk_registry_at(r, 0), list[0]);
    assert_null(stk_registry_at(r, TEST_CLASS_COUNT));

    assert_int_equal(pen_registry_modules(r, PEN_CATEGORY_SOURCE, NULL, list,
                                          TEST_CLASS_COUNT),
                     2);
    assert_ptr_equal(list[0], &test_reader);
    assert_ptr_equal(list[1], &test_signal);
    assert_int_equal(
        pen_registry_modules_with_tag(r, "backend:cpu", list, TEST_CLASS_COUNT),
        3);
    const char *const both[] = { "function:blur", "backend:cuda", NULL };
    assert_int_equal(
        pen_registry_modules_with_tags(r, both, list, TEST_CLASS_COUNT), 1);
    assert_ptr_equal(list[0], &test_blur);
    assert_int_equal(pen_registry_modules(r, PEN_CATEGORY_SINK, both, NULL, 0),
                     0);
    const char *const no_tags[] = { NULL };
    assert_int_equal(pen_registry_modules_with_tags(r, no_tags, NULL, 0),
                     TEST_CLASS_COUNT);
    assert_int_equal(pen_registry_modules_with_tag(r, "backend", NULL, 0), 0);

    // More match than there is room for: they are counted all the same.
    list[1] = NULL;
    assert_int_equal(pen_registry_modules(r, PEN_CATEGORY_NONE, NULL, list, 1),
                     TEST_CLASS_COUNT);
    assert_null(list[1]);

    assert_string_equal(pen_registry_nearest(r, "GausianBlr"), "GaussianBlur");
    assert_string_equal(pen_registry_nearest(r, "cudamemcopyh2d"),
                        "CudaMemCopyH2D");
    assert_null(pen_registry_nearest(r, "Teapot"));
    pen_registry_destroy(&r);
}

PEN_TEST(categories_have_names_both_ways)
{
    for (int c = PEN_CATEGORY_SOURCE; c <= PEN_CATEGORY_UTILITY; c++) {
        const char *name = pen_category_name((enum pen_category)c);
        assert_true(*name);
        assert_int_equal(pen_category_from_name(name), c);
    }
    assert_int_equal(pen_category_from_name("Source"), PEN_CATEGORY_NONE);
    assert_int_equal(pen_category_from_name(""), PEN_CATEGORY_NONE);
}

static void *read_often(void *cookie)
{
    const struct pen_registry *r = cookie;
    for (int i = 0; i < 2000; i++) {
        const struct pen_alias *alias = NULL;
        if (pen_registry_find(r, "CudaMemCopyD2H", &alias) != &test_copy ||
            !alias || pen_registry_modules_with_tag(r, "sink", NULL, 0) != 2 ||
            strcmp(pen_registry_nearest(r, "StatSnk"), "StatSink") != 0)
            return cookie;
    }
    return NULL;
}

PEN_TEST(threads_may_read_at_the_same_time)
{
    struct pen_registry *r = registry();
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, r), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        pthread_join(threads[i], &wrong);
        assert_null(wrong);
    }
    pen_registry_destroy(&r);
}

static json_t *parsed(char *text)
{
    assert_non_null(text);
    json_error_t why;
    json_t *value = json_loads(text, 0, &why);
    if (!value)
        fail_msg("%s", why.text);
    pen_free(text);
    return value;
}

static const char *string_at(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    if (!s)
        fail_msg("no string %s", key);
    return s;
}

PEN_TEST(describe_json_says_all_of_a_class)
{
    json_t *d = parsed(pen_describe_json(&test_signal));
    assert_string_equal(string_at(d, "name"), "TestSignal");
    assert_string_equal(string_at(d, "category"), "source");
    assert_string_equal(string_at(d, "version"), "1.0");
    assert_string_equal(string_at(d, "description"), "A class of the tests");
    assert_int_equal(json_array_size(json_object_get(d, "tags")), 2);
    assert_int_equal(json_array_size(json_object_get(d, "inputs")), 0);
    assert_true(json_is_true(json_object_get(d, "available")));
    assert_true(json_is_null(json_object_get(d, "reason")));
    const json_t *pin = json_array_get(json_object_get(d, "outputs"), 0);
    assert_string_equal(string_at(pin, "name"), "output");
    json_t *expected = json_pack("[s, s]", "HOST", "HOST_PINNED");
    assert_true(json_equal(json_object_get(pin, "mem"), expected));
    json_decref(expected);
    expected = json_pack("[s]", "RawImage");
    assert_true(json_equal(json_object_get(pin, "kinds"), expected));
    json_decref(expected);
    expected = json_pack("[s]", "YUV420");
    assert_true(json_equal(json_object_get(pin, "formats"), expected));
    json_decref(expected);

    const json_t *props = json_object_get(d, "properties");
    assert_int_equal(json_array_size(props), 5 + 5);
    expected = json_pack("{s:s, s:s, s:n, s:i, s:i, s:n, s:b, s:s, s:b, s:s}",
                         "name", "width", "type", "int", "default", "min", 1,
                         "max", 4096, "enum", "required", 1, "unit", "px",
                         "live", 0, "help", "Width of the frames.");
    assert_true(json_equal(json_array_get(props, 0), expected));
    json_decref(expected);
    expected =
        json_pack("{s:s, s:s, s:s, s:n, s:n, s:[s, s], s:b, s:n, s:b, s:s}",
                  "name", "pattern", "type", "enum", "default", "GRADIENT",
                  "min", "max", "enum", "GRADIENT", "GRID", "required", 0,
                  "unit", "live", 0, "help", "What the frames show.");
    assert_true(json_equal(json_array_get(props, 2), expected));
    json_decref(expected);
    const json_t *rate = json_array_get(props, 3);
    assert_string_equal(string_at(rate, "type"), "rational");
    assert_true(json_is_null(json_object_get(rate, "default")));
    json_decref(d);

    d = parsed(pen_describe_json(&test_copy));
    assert_int_equal(json_array_size(json_object_get(d, "aliases")), 2);
    json_decref(d);
}

PEN_TEST(describe_text_shows_every_property_and_pin)
{
    char *text = pen_describe_text(&test_blur);
    assert_non_null(text);
    static const char *const words[] = {
        "GaussianBlur - A class of the tests\n",
        "transform, version 1.0\n",
        "tags     function:blur, backend:cuda\n",
        "input    input: RawImage on CUDA_DEVICE as MONO, BGR",
        "kernelSize               int 3..31 px odd = 11\n",
        "      Taps of the kernel.\n",
        "sigma                    float 0.1..20 = 1.5 (live)\n",
        "queue ",
        "onError ",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!strstr(text, words[i]))
            fail_msg("no \"%s\" in:\n%s", words[i], text);
    }
    pen_free(text);
    text = pen_describe_text(&test_signal);
    assert_non_null(strstr(text, "int 1..4096 px (required)\n"));
    assert_non_null(strstr(text, "enum GRADIENT|GRID = \"GRADIENT\"\n"));
    assert_non_null(strstr(text, "      GRID: cells\n"));
    pen_free(text);
    text = pen_describe_text(&test_copy);
    assert_non_null(strstr(text, "alias    CudaMemCopyH2D (kind = "
                                 "HostToDevice)\n"));
    pen_free(text);
    text = pen_describe_text(&test_valve);
    assert_non_null(strstr(text, "(optional)"));
    pen_free(text);
}

PEN_TEST(list_json_has_what_matches)
{
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    json_t *d = parsed(pen_registry_list_json(r, PEN_CATEGORY_SOURCE, NULL));
    const json_t *modules = json_object_get(d, "modules");
    assert_int_equal(json_array_size(modules), 2);
    assert_string_equal(string_at(json_array_get(modules, 1), "name"),
                        "TestSignal");
    assert_true(
        json_is_true(json_object_get(json_array_get(modules, 0), "available")));
    assert_int_equal(json_array_size(json_object_get(d, "generic")), 0);
    json_decref(d);
    d = parsed(pen_registry_list_json(r, PEN_CATEGORY_NONE, NULL));
    assert_int_equal(json_array_size(json_object_get(d, "modules")),
                     TEST_CLASS_COUNT);
    json_decref(d);
    const char *const tags[] = { "function:blur", NULL };
    d = parsed(pen_registry_list_json(r, PEN_CATEGORY_NONE, tags));
    assert_int_equal(json_array_size(json_object_get(d, "modules")), 2);
    assert_int_equal(json_array_size(json_object_get(d, "generic")), 1);
    json_decref(d);
    const char *const none[] = { "function:nothing", NULL };
    d = parsed(pen_registry_list_json(r, PEN_CATEGORY_NONE, none));
    assert_int_equal(json_array_size(json_object_get(d, "modules")), 0);
    assert_int_equal(json_array_size(json_object_get(d, "generic")), 0);
    json_decref(d);
    pen_registry_destroy(&r);
}

PEN_TEST_MAIN(PEN_CASE(another_abi_or_size_is_refused_before_anything_is_read),
              PEN_CASE(names_and_texts_are_needed),
              PEN_CASE(a_name_or_alias_that_is_taken_is_refused),
              PEN_CASE(an_alias_must_preset_what_fits),
              PEN_CASE(pins_must_make_sense),
              PEN_CASE(category_and_flags_must_fit_the_pins),
              PEN_CASE(properties_must_make_sense),
              PEN_CASE(classes_are_found_by_category_and_tags),
              PEN_CASE(categories_have_names_both_ways),
              PEN_CASE(threads_may_read_at_the_same_time),
              PEN_CASE(describe_json_says_all_of_a_class),
              PEN_CASE(describe_text_shows_every_property_and_pin),
              PEN_CASE(list_json_has_what_matches))
