// Types that stand for several classes: which ones, by which properties and
// pins, what is told of them, and the choice of the backend.

#include <jansson.h>

#include "graph_fixture.h"

// --- classes ----------------------------------------------------------------

enum { SMOOTH, SHARP };

struct scale_params {
    int32_t width, kind, threads, fine;
    const char *path;
};

static const struct pen_choice scale_kinds[] = {
    { "smooth", SMOOTH, "soft" },
    { "sharp", SHARP, "hard" },
    { 0 },
};
static const struct pen_choice scale_kinds_few[] = {
    { "smooth", SMOOTH, "soft" },
    { "square", SHARP, "cells" },
    { 0 },
};

// clang-format off
#define P struct scale_params
static const struct pen_prop cpu_props[] = {
    PEN_I32(P, width, "width", 0, 1, 4096, "Width.", .unit = "px",
            .flags = PEN_PROP_REQUIRED),
    PEN_ENUM(P, kind, "kind", SMOOTH, scale_kinds, "How."),
    PEN_I32(P, threads, "workers", 4, 1, 8, "Threads."),
    PEN_STRING(P, path, "table", "", "A table.", .flags = PEN_PROP_PATH_READ),
    PEN_PROPS_END,
};
static const struct pen_prop cuda_props[] = {
    PEN_I32(P, width, "width", 0, 16, 65536, "Width.", .unit = "px",
            .flags = PEN_PROP_REQUIRED),
    PEN_ENUM(P, kind, "kind", SMOOTH, scale_kinds_few, "How."),
    PEN_I32(P, fine, "fine", 1, 1, 9, "Fineness.",
            .flags = PEN_PROP_ODD),
    PEN_PROPS_END,
};
static const struct pen_prop any_props[] = {
    PEN_I32(P, width, "width", 640, 1, 8192, "Width.", .unit = "px"),
    PEN_PROPS_END,
};
#undef P

TEST_PINS(two_outputs, TEST_PIN("output", TEST_RAW, TEST_HOST,
                                PEN_FMT_BITS_RGB),
          TEST_PIN("rest", TEST_RAW, TEST_HOST, PEN_FMT_BITS_RGB));
TEST_PINS(other_input, TEST_PIN("picture", TEST_RAW, TEST_HOST,
                                PEN_FMT_BITS_RGB));
// clang-format on

static void scale_check(const void *params, struct pen_check *check)
{
    const struct scale_params *p = params;
    if (p->width == 13)
        pen_check_error(check, "E202", "width", "\"width\": 14",
                        "13 is no width");
    if (p->width == 100)
        pen_check_warning(check, "W202", "width", NULL, "a round number");
}

static void cuda_check(const void *params, struct pen_check *check)
{
    const struct scale_params *p = params;
    if (p->width == 100)
        pen_check_warning(check, "W202", "width", NULL, "a round number");
    if (p->width == 200)
        pen_check_warning(check, "W202", "width", NULL, "two hundred");
}

static void mono_narrow(const void *params, struct pen_pin_set *in,
                        struct pen_pin_set *out)
{
    (void)params;
    in->formats = out->formats = PEN_FMT_BIT(PEN_FMT_MONO);
}

static const char *const cpu_tags[] = { "function:resize", "backend:cpu",
                                        NULL };
static const char *const cuda_tags[] = { "function:resize", "backend:cuda",
                                         NULL };
static const char *const no_tags[] = { "function:resize", NULL };
static const char *const copy_tags[] = { "function:resize", "function:copy",
                                         NULL };

static const struct pen_module_class scale_cpu = {
    TEST_CLASS("ScaleCpu", TRANSFORM),
    .tags = cpu_tags,
    .inputs = test_host_in,
    .outputs = test_host_out,
    .props = cpu_props,
    .params_size = sizeof(struct scale_params),
    .ops.check = scale_check,
};
static const struct pen_module_class scale_cuda = {
    TEST_CLASS("ScaleCuda", TRANSFORM),
    .flags = PEN_CLASS_CUDA,
    .tags = cuda_tags,
    .inputs = test_cuda_in,
    .outputs = test_cuda_out,
    .props = cuda_props,
    .params_size = sizeof(struct scale_params),
    .ops.check = cuda_check,
    .ops.narrow = mono_narrow,
};
// Its backend is told by its flags alone: it works on the CPU.
static const struct pen_module_class scale_any = {
    TEST_CLASS("AnyScale", TRANSFORM),
    .tags = no_tags,
    .inputs = test_host_in,
    .outputs = test_host_out,
    .props = any_props,
    .params_size = sizeof(struct scale_params),
};
static const struct pen_module_class scale_rest = {
    TEST_CLASS("ScaleRest", TRANSFORM),
    .tags = cpu_tags,
    .inputs = test_host_in,
    .outputs = two_outputs,
};
static const struct pen_module_class scale_other = {
    TEST_CLASS("ScaleOther", TRANSFORM),
    .tags = cpu_tags,
    .inputs = other_input,
    .outputs = test_host_out,
};
static const struct pen_module_class scale_copy = {
    TEST_CLASS("ScaleCopy", TRANSFORM),
    .tags = copy_tags,
    .inputs = test_host_in,
    .outputs = test_host_out,
};

// Only the two, or all of them.
static void add_classes(struct pen_registry *r, bool all)
{
    static const struct pen_module_class *const two[] = { &scale_cuda,
                                                          &scale_cpu };
    static const struct pen_module_class *const others[] = {
        &scale_any, &scale_rest, &scale_other, &scale_copy
    };
    struct pen_error err = { 0 };
    for (int i = 0; i < 2; i++)
        assert_int_equal(pen_registry_add(r, two[i], &err), PEN_OK);
    for (int i = 0; i < (all ? 4 : 0); i++)
        assert_int_equal(pen_registry_add(r, others[i], &err), PEN_OK);
}

static struct checked check_with(const char *text, bool all)
{
    struct checked c = { 0 };
    c.registry = test_registry(&c.err);
    assert_non_null(c.registry);
    add_classes(c.registry, all);
    c.issues = pen_issues_create();
    assert_int_equal(pen_description_parse(text, strlen(text), "test.json",
                                           &c.desc, c.issues, &c.err),
                     PEN_OK);
    c.status = stk_graph_resolve(c.desc, c.registry, &c.arena, &c.graph,
                                 c.issues, &c.err);
    assert_true((c.status == PEN_OK) == (c.graph != NULL));
    return c;
}

// A signal through a module of that type, with these properties, to a sink.
static struct checked check_type(const char *type, const char *props, bool all)
{
    char text[1024];
    snprintf(text, sizeof(text), THROUGH("\"type\":\"%s\",\"props\":{%s}"),
             type, props);
    return check_with(text, all);
}

static const struct stk_node *middle(const struct checked *c)
{
    assert_int_equal(c->graph->node_count, 3);
    return &c->graph->nodes[1];
}

static void expect_options(const char *type, const char *props,
                           const char *expected, const char *left_out)
{
    char text[256];
    size_t n = 0;
    struct checked c = check_type(type, props, false);
    if (c.status != PEN_OK)
        fail_msg("%s {%s}:%s", type, props, issues_text(c.issues));
    const struct stk_node *m = middle(&c);
    for (uint32_t i = 0; i < m->option_count; i++)
        n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s", i ? " " : "",
                              m->options[i].cls->name);
    assert_string_equal(text, expected);
    assert_string_equal(m->left_out, left_out);
    assert_string_equal(m->desc->type, type);
    assert_ptr_equal(m->cls, m->options[0].cls);
    assert_ptr_equal(m->params, m->options[0].params);
    finish(&c);
}

static void expect_error(const char *type, const char *props, const char *code,
                         const char *pointer, const char *message,
                         const char *suggestion)
{
    struct checked c = check_type(type, props, false);
    if (pen_issues_count(c.issues, PEN_SEVERITY_INFO) != 1)
        fail_msg("expected one %s:%s", code, issues_text(c.issues));
    const struct pen_issue *is = pen_issues_get(c.issues, 0);
    assert_string_equal(is->code, code);
    assert_string_equal(is->pointer, pointer);
    assert_string_equal(is->message, message);
    assert_string_equal(is->suggestion, suggestion);
    assert_int_equal(c.status, PEN_E_CONFIG);
    finish(&c);
}

// --- which classes ----------------------------------------------------------

PEN_TEST(a_type_stands_for_the_classes_of_its_tag)
{
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    const struct pen_generic_type *resize = pen_generic_type_find("Resize");
    const struct pen_module_class *list[8];
    assert_non_null(resize);
    assert_null(pen_generic_type_find("resize"));
    assert_null(pen_generic_type_find("ScaleCpu"));
    assert_int_equal(pen_registry_generic_classes(r, resize, list, 8), 0);
    add_classes(r, true);
    // Alphabetical; other pins than the first one's, and copies, are none.
    assert_int_equal(pen_registry_generic_classes(r, resize, list, 8), 3);
    assert_ptr_equal(list[0], &scale_any);
    assert_ptr_equal(list[1], &scale_cpu);
    assert_ptr_equal(list[2], &scale_cuda);
    // No more than there is room for, but all are counted.
    list[1] = NULL;
    assert_int_equal(pen_registry_generic_classes(r, resize, list, 1), 3);
    assert_null(list[1]);
    assert_ptr_equal(stk_registry_generic_of(r, &scale_cuda), resize);
    assert_null(stk_registry_generic_of(r, &scale_copy));
    assert_null(stk_registry_generic_of(r, &test_stat_sink));
    assert_int_equal(stk_class_backend(&scale_any), STK_BACKEND_CPU);
    assert_int_equal(stk_class_backend(&scale_cuda), STK_BACKEND_CUDA);
    pen_registry_destroy(&r);
}

PEN_TEST(types_are_in_order_and_their_names_are_no_class)
{
    const struct pen_generic_type *types = pen_generic_types();
    size_t count = 0;
    struct pen_registry *r = NULL;
    struct pen_error err = { 0 };
    assert_int_equal(stk_registry_new(&r, &err), PEN_OK);
    for (; types[count].name; count++) {
        if (count && strcmp(types[count - 1].name, types[count].name) >= 0)
            fail_msg("%s comes too late", types[count].name);
        struct pen_module_class cls = scale_cpu;
        cls.name = types[count].name;
        assert_int_equal(pen_registry_add(r, &cls, &err), PEN_E_ARG);
        assert_non_null(strstr(err.text, "it stands for all classes with the "
                                         "tag function:"));
        const struct pen_alias alias[] = { { types[count].name, NULL, NULL },
                                           { 0 } };
        cls.name = "Mine";
        cls.aliases = alias;
        assert_int_equal(pen_registry_add(r, &cls, &err), PEN_E_ARG);
    }
    assert_true(count >= 6);
    assert_null(pen_registry_find(r, "Mine", NULL));
    pen_registry_destroy(&r);
}

PEN_TEST(only_types_that_can_be_had_are_suggested)
{
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    assert_null(pen_registry_nearest(r, "Resiz"));
    assert_string_equal(pen_registry_nearest(r, "Bluur"), "Blur");
    add_classes(r, false);
    assert_string_equal(pen_registry_nearest(r, "Resiz"), "Resize");
    assert_null(pen_registry_nearest(r, "Rotat"));
    pen_registry_destroy(&r);
    expect_error("Resizer", "", "E100", "/modules/m/type",
                 "there is no module type Resizer; did you mean Resize?",
                 "\"type\": \"Resize\"");
    expect_error("Rotate", "\"angle\":90", "E100", "/modules/m/type",
                 "Rotate stands for the modules with the tag function:rotate, "
                 "and there is none yet",
                 "");
}

// --- options ----------------------------------------------------------------

PEN_TEST(every_class_that_takes_the_properties_is_an_option)
{
    expect_options("Resize", "\"width\":64", "ScaleCpu ScaleCuda", "");
    expect_options("Resize", "\"width\":64,\"kind\":\"smooth\"",
                   "ScaleCpu ScaleCuda", "");
    // By a range, by a choice, by check(), by a property of one only.
    expect_options("Resize", "\"width\":8", "ScaleCpu",
                   "ScaleCuda: width is 8, outside 16..65536 px");
    expect_options("Resize", "\"width\":9999", "ScaleCuda",
                   "ScaleCpu: width is 9999, outside 1..4096 px");
    expect_options("Resize", "\"width\":64,\"kind\":\"sharp\"", "ScaleCpu",
                   "ScaleCuda: kind: \"sharp\" is not one of smooth, square");
    expect_options("Resize", "\"width\":64,\"fine\":3", "ScaleCuda",
                   "ScaleCpu: Resize has the property fine only as ScaleCuda");
    expect_options("Resize", "\"width\":64,\"workers\":2", "ScaleCpu",
                   "ScaleCuda: Resize has the property workers only as "
                   "ScaleCpu");
    // What a property is anyway says nothing to the others.
    expect_options("Resize", "\"width\":64,\"fine\":1,\"workers\":4.0",
                   "ScaleCpu ScaleCuda", "");
    // A plain type has one.
    expect_options("ScaleCuda", "\"width\":64", "ScaleCuda", "");
}

PEN_TEST(each_option_has_its_own_parameters_and_pins)
{
    struct checked c = check_type("Resize", "\"queue\":7", true);
    assert_int_equal(c.status, PEN_OK);
    const struct stk_node *m = middle(&c);
    // Two need a width that is not given.
    assert_int_equal(m->option_count, 1);
    assert_ptr_equal(m->cls, &scale_any);
    assert_non_null(strstr(m->left_out, "ScaleCpu: Resize needs the property "
                                        "width"));
    assert_non_null(strstr(m->left_out, "; ScaleCuda: Resize needs"));
    assert_int_equal(((const struct scale_params *)m->params)->width, 640);
    finish(&c);

    c = check_type("Resize", "\"width\":64,\"queue\":7", true);
    m = middle(&c);
    assert_int_equal(m->option_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const struct stk_option *o = &m->options[i];
        assert_int_equal(((const struct scale_params *)o->params)->width, 64);
        assert_int_equal(o->base.queue, 7);
    }
    const struct scale_params *cpu = m->options[1].params;
    const struct scale_params *cuda = m->options[2].params;
    assert_int_equal(cpu->threads, 4);
    assert_int_equal(cuda->threads, 0);
    assert_int_equal(cuda->fine, 1);
    assert_int_equal(m->options[1].in[0].mem, TEST_HOST);
    assert_int_equal(m->options[1].in[0].formats, PEN_FMT_BITS_RGB);
    assert_int_equal(m->options[2].in[0].mem, TEST_CUDA);
    assert_int_equal(m->options[2].in[0].formats, PEN_FMT_BIT(PEN_FMT_MONO));
    assert_int_equal(m->options[2].out[0].formats, PEN_FMT_BIT(PEN_FMT_MONO));
    assert_int_equal(m->inputs, 1);
    assert_int_equal(m->outputs, 1);
    finish(&c);
}

PEN_TEST(a_warning_of_several_options_is_told_once)
{
    struct checked c = check_type("Resize", "\"width\":100", false);
    assert_int_equal(c.status, PEN_OK);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_INFO), 1);
    assert_string_equal(issue_of(c.issues, "W202")->message, "a round number");
    finish(&c);
    c = check_type("Resize", "\"width\":200", false);
    assert_string_equal(issue_of(c.issues, "W202")->message, "two hundred");
    assert_int_equal(middle(&c)->option_count, 2);
    finish(&c);
}

// --- errors -----------------------------------------------------------------

PEN_TEST(if_none_fits_the_errors_of_the_nearest_are_told)
{
    expect_error("Resize", "\"width\":0", "E202", "/modules/m/props/width",
                 "width is 0, outside 1..4096 px", "\"width\": 1");
    expect_error("Resize", "", "E205", "/modules/m/props/width",
                 "Resize needs the property width: an integer", "\"width\": 1");
    // What is missing is there, misspelt: that is told once.
    expect_error("Resize", "\"widht\":64", "E200", "/modules/m/props/widht",
                 "Resize has no property widht; did you mean width?",
                 "\"width\"");
    // A word is looked for among the properties of all classes.
    expect_error("Resize", "\"width\":64,\"fien\":3", "E200",
                 "/modules/m/props/fien",
                 "Resize has no property fien; did you mean fine?", "\"fine\"");
    expect_error("Resize", "\"width\":64,\"zoom\":3", "E200",
                 "/modules/m/props/zoom",
                 "Resize has no property zoom; its properties are width, "
                 "kind, workers, table, fine, queue, onError, backend, "
                 "maxWidth, maxHeight",
                 "");
    // Two mistakes for one class and one for the other: those of the other.
    expect_error("Resize", "\"width\":13,\"kind\":\"square\"", "E203",
                 "/modules/m/props/kind",
                 "kind: \"square\" is not one of smooth, sharp",
                 "\"kind\": \"smooth\"");
    expect_error("Resize", "\"width\":13", "E202", "/modules/m/props/width",
                 "13 is no width", "\"width\": 14");
    struct checked c =
        check_type("Resize", "\"width\":\"a\",\"onError\":\"x\"", false);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_ERROR), 2);
    assert_string_equal(issue_of(c.issues, "E201")->pointer,
                        "/modules/m/props/width");
    assert_string_equal(issue_of(c.issues, "E203")->pointer,
                        "/modules/m/props/onError");
    finish(&c);
    // Each lacks what the other has: both are told.
    c = check_type("Resize", "\"width\":64,\"fine\":3,\"workers\":2", false);
    assert_int_equal(pen_issues_count(c.issues, PEN_SEVERITY_ERROR), 2);
    assert_string_equal(pen_issues_get(c.issues, 0)->message,
                        "Resize has the property fine only as ScaleCuda");
    assert_string_equal(pen_issues_get(c.issues, 1)->message,
                        "Resize has the property workers only as ScaleCpu");
    finish(&c);
}

PEN_TEST(a_file_that_is_not_there_is_told_though_another_class_reads_none)
{
    expect_options("Resize", "\"width\":64,\"table\":\"/dev/null\"", "ScaleCpu",
                   "ScaleCuda: Resize has the property table only as ScaleCpu");
    struct checked c = check_type(
        "Resize", "\"width\":64,\"table\":\"/nowhere/at/all\"", false);
    assert_int_equal(c.status, PEN_E_CONFIG);
    assert_string_equal(issue_of(c.issues, "E600")->pointer,
                        "/modules/m/props/table");
    finish(&c);
}

PEN_TEST(kinds_are_those_of_any_option)
{
    // H264 comes from nowhere here: the union of RawImage and RawImage.
    static const char file[] =
        "{\"modules\":{\"r\":{\"type\":\"FileReader\",\"props\":{\"path\":"
        "\"/dev/null\",\"outputFrameType\":\"EncodedImage\"}},\"m\":{\"type\":"
        "\"Resize\",\"props\":{\"width\":64}},\"k\":{\"type\":\"StatSink\"}},"
        "\"connections\":[{\"from\":\"r\",\"to\":\"m\"},{\"from\":\"m\",\"to\":"
        "\"k\"}]}";
    struct checked c = check_with(file, false);
    const struct pen_issue *is = issue_of(c.issues, "E304");
    assert_string_equal(is->message, "r.output gives EncodedImage, m.input "
                                     "takes RawImage");
    finish(&c);
}

// --- backend ----------------------------------------------------------------

PEN_TEST(the_backend_overrides_the_choice)
{
    expect_options("Resize", "\"width\":64,\"backend\":\"auto\"",
                   "ScaleCpu ScaleCuda", "");
    expect_options("Resize", "\"width\":64,\"backend\":\"cpu\"", "ScaleCpu",
                   "ScaleCuda: the backend is cpu");
    expect_options("Resize", "\"width\":64,\"backend\":\"cuda\"", "ScaleCuda",
                   "ScaleCpu: the backend is cuda");
    expect_options("ScaleCuda", "\"width\":64,\"backend\":\"cuda\"",
                   "ScaleCuda", "");
    // The errors are those of the backend that is asked for.
    expect_error("Resize", "\"width\":8,\"backend\":\"cuda\"", "E202",
                 "/modules/m/props/width", "width is 8, outside 16..65536 px",
                 "\"width\": 16");
    // But where the other one takes them all, the backend is what is wrong.
    expect_error("Resize", "\"width\":64,\"fine\":3,\"backend\":\"cpu\"",
                 "E206", "/modules/m/props/backend",
                 "with these properties Resize is ScaleCuda, which works on "
                 "the CUDA device; the backend \"cpu\" contradicts that",
                 "\"backend\": \"cuda\"");
    expect_error("Resize", "\"width\":64,\"workers\":3,\"backend\":\"cuda\"",
                 "E206", "/modules/m/props/backend",
                 "with these properties Resize is ScaleCpu, which works on "
                 "the CPU; the backend \"cuda\" contradicts that",
                 "\"backend\": \"cpu\"");
    expect_error("Resize", "\"width\":0,\"fine\":3,\"backend\":\"cuda\"",
                 "E202", "/modules/m/props/width",
                 "width is 0, outside 16..65536 px", "\"width\": 16");
    expect_error("Resize", "\"width\":64,\"backend\":\"gpu\"", "E203",
                 "/modules/m/props/backend",
                 "backend: \"gpu\" is not one of auto, cpu, cuda",
                 "\"backend\": \"cuda\"");
    expect_error("Resize", "\"width\":64,\"backend\":1", "E201",
                 "/modules/m/props/backend",
                 "backend takes one of auto, cpu, cuda, not the number 1",
                 "\"backend\": \"auto\"");
}

PEN_TEST(a_backend_that_is_not_to_be_had_is_an_error)
{
    expect_error("ScaleCpu", "\"width\":64,\"backend\":\"cuda\"", "E206",
                 "/modules/m/props/backend",
                 "ScaleCpu works on the CPU, which the backend \"cuda\" "
                 "contradicts",
                 "\"type\": \"Resize\"");
    expect_error("Split", "\"backend\":\"cuda\"", "E206",
                 "/modules/m/props/backend",
                 "Split works on the CPU, which the backend \"cuda\" "
                 "contradicts",
                 "\"backend\": \"cpu\"");
    expect_error("JpegEncode", "\"backend\":\"cuda\"", "E100",
                 "/modules/m/type",
                 "JpegEncode stands for the modules with the tag "
                 "function:encode and format:jpeg, and there is none yet",
                 "");
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    assert_int_equal(pen_registry_add(r, &scale_cpu, &err), PEN_OK);
    static const char file[] =
        THROUGH("\"type\":\"Resize\",\"props\":{\"width\":0,\"backend\":"
                "\"cuda\"}");
    struct pen_description *d = NULL;
    struct pen_issues *issues = pen_issues_create();
    assert_int_equal(
        pen_description_parse(file, strlen(file), NULL, &d, issues, &err),
        PEN_OK);
    assert_int_equal(pen_validate(d, r, issues, &err), PEN_E_CONFIG);
    // And the rest is told all the same.
    assert_int_equal(pen_issues_count(issues, PEN_SEVERITY_ERROR), 2);
    assert_string_equal(issue_of(issues, "E206")->message,
                        "Resize stands for no module with the backend cuda; "
                        "it can be ScaleCpu");
    assert_string_equal(issue_of(issues, "E206")->suggestion,
                        "\"backend\": \"auto\"");
    issue_of(issues, "E202");
    pen_issues_destroy(&issues);
    pen_description_destroy(&d);
    pen_registry_destroy(&r);
}

// --- presets ----------------------------------------------------------------

enum { AS_JPEG, AS_PNG };
struct encode_params {
    int32_t format, quality;
};
static const struct pen_choice encode_formats[] = {
    { "png", AS_PNG, NULL },
    { "jpeg", AS_JPEG, NULL },
    { 0 },
};
static const struct pen_prop encode_props[] = {
    PEN_ENUM(struct encode_params, format, "format", AS_PNG, encode_formats,
             "Kind of file."),
    PEN_PROPS_END,
};
static const struct pen_prop jpeg_props[] = {
    PEN_I32(struct encode_params, quality, "quality", 90, 1, 100, "Quality."),
    PEN_PROPS_END,
};
static const struct pen_module_class encode_both = {
    TEST_CLASS("EncodeBoth", TRANSFORM),
    .tags = (const char *const[]){ "function:encode", "backend:cpu",
                                   "format:jpeg", "format:png", NULL },
    .inputs = test_host_in,
    .outputs = test_encoded_out,
    .props = encode_props,
    .params_size = sizeof(struct encode_params),
};
static const struct pen_module_class encode_jpeg = {
    TEST_CLASS("EncodeJpeg", TRANSFORM),
    .flags = PEN_CLASS_CUDA,
    .tags = (const char *const[]){ "function:encode", "backend:cuda",
                                   "format:jpeg", NULL },
    .inputs = test_cuda_in,
    .outputs = test_encoded_out,
    .props = jpeg_props,
    .params_size = sizeof(struct encode_params),
};

static struct checked check_encoder(const char *type, const char *props)
{
    char text[1024];
    snprintf(text, sizeof(text), THROUGH("\"type\":\"%s\",\"props\":{%s}"),
             type, props);
    struct checked c = { 0 };
    c.registry = test_registry(&c.err);
    assert_int_equal(pen_registry_add(c.registry, &encode_both, &c.err),
                     PEN_OK);
    assert_int_equal(pen_registry_add(c.registry, &encode_jpeg, &c.err),
                     PEN_OK);
    c.issues = pen_issues_create();
    assert_int_equal(pen_description_parse(text, strlen(text), "test.json",
                                           &c.desc, c.issues, &c.err),
                     PEN_OK);
    c.status = stk_graph_resolve(c.desc, c.registry, &c.arena, &c.graph,
                                 c.issues, &c.err);
    return c;
}

PEN_TEST(a_type_presets_what_its_name_says)
{
    struct checked c = check_encoder("JpegEncode", "");
    const struct stk_node *m = middle(&c);
    assert_int_equal(m->option_count, 2);
    assert_ptr_equal(m->options[0].cls, &encode_both);
    const struct encode_params *p = m->options[0].params;
    assert_int_equal(p->format, AS_JPEG);
    finish(&c);
    c = check_encoder("PngEncode", "");
    assert_int_equal(middle(&c)->option_count, 1);
    finish(&c);
    // Saying it again is no contradiction, even for the class that cannot else.
    c = check_encoder("JpegEncode", "\"format\":\"jpeg\"");
    assert_int_equal(middle(&c)->option_count, 2);
    finish(&c);
    c = check_encoder("JpegEncode", "\"format\":\"png\"");
    assert_int_equal(c.status, PEN_E_CONFIG);
    assert_string_equal(issue_of(c.issues, "E206")->message,
                        "the type JpegEncode means EncodeBoth with format "
                        "jpeg, which \"png\" contradicts");
    finish(&c);
}

// --- texts ------------------------------------------------------------------

static json_t *parsed(char *text)
{
    assert_non_null(text);
    json_t *value = json_loads(text, 0, NULL);
    assert_non_null(value);
    pen_free(text);
    return value;
}

static const json_t *named(const json_t *list, const char *name)
{
    size_t i;
    json_t *item;
    json_array_foreach ((json_t *)list, i, item) {
        if (strcmp(json_string_value(json_object_get(item, "name")), name) == 0)
            return item;
    }
    fail_msg("no %s", name);
    return NULL;
}

static void expect_json(const json_t *value, const char *text)
{
    json_t *expected = json_loads(text, JSON_DECODE_ANY, NULL);
    assert_non_null(expected);
    if (!json_equal((json_t *)value, expected))
        fail_msg("%s is not %s", json_dumps(value, JSON_ENCODE_ANY), text);
    json_decref(expected);
}

PEN_TEST(describe_tells_all_that_the_classes_take)
{
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    add_classes(r, false);
    const struct pen_generic_type *resize = pen_generic_type_find("Resize");
    json_t *d = parsed(pen_describe_generic_json(r, resize));
    expect_json(json_object_get(d, "name"), "\"Resize\"");
    expect_json(json_object_get(d, "category"), "\"transform\"");
    expect_json(json_object_get(d, "tags"), "[\"function:resize\"]");
    expect_json(json_object_get(d, "available"), "true");
    expect_json(json_object_get(d, "options"),
                "[{\"name\":\"ScaleCpu\",\"backend\":\"cpu\",\"description\":"
                "\"A class of the tests\"},{\"name\":\"ScaleCuda\",\"backend\":"
                "\"cuda\",\"description\":\"A class of the tests\"}]");
    const json_t *pin = named(json_object_get(d, "inputs"), "input");
    expect_json(json_object_get(pin, "mem"),
                "[\"HOST\",\"HOST_PINNED\",\"CUDA_DEVICE\"]");
    const json_t *rows = json_object_get(d, "properties");
    assert_int_equal(json_array_size(rows), 5 + 5);
    const json_t *row = named(rows, "width");
    expect_json(json_object_get(row, "min"), "1");
    expect_json(json_object_get(row, "max"), "65536");
    expect_json(json_object_get(row, "required"), "true");
    assert_null(json_object_get(row, "classes"));
    row = named(rows, "kind");
    expect_json(json_object_get(row, "enum"),
                "[\"smooth\",\"sharp\",\"square\"]");
    row = named(rows, "fine");
    expect_json(json_object_get(row, "classes"), "[\"ScaleCuda\"]");
    expect_json(json_object_get(row, "odd"), "true");
    json_decref(d);

    char *text = pen_describe_generic_text(r, resize);
    static const char *const words[] = {
        "Resize - Scales pictures.\n",
        "option   ScaleCpu (cpu): A class of the tests\n",
        "option   ScaleCuda (cuda): ",
        "width                    int 1..65536 px (required)\n",
        "(ScaleCuda only)\n      Fineness.\n",
        "enum auto|cpu|cuda = \"auto\"\n",
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (!strstr(text, words[i]))
            fail_msg("no \"%s\" in:\n%s", words[i], text);
    }
    pen_free(text);

    // What one class need not be given is not required.
    assert_int_equal(pen_registry_add(r, &scale_any, &err), PEN_OK);
    d = parsed(pen_describe_generic_json(r, resize));
    row = named(json_object_get(d, "properties"), "width");
    expect_json(json_object_get(row, "required"), "false");
    expect_json(json_object_get(row, "default"), "640");
    json_decref(d);
    pen_registry_destroy(&r);
}

PEN_TEST(a_type_without_class_is_listed_with_the_reason)
{
    struct pen_error err = { 0 };
    struct pen_registry *r = test_registry(&err);
    json_t *d = parsed(pen_registry_list_json(r, PEN_CATEGORY_NONE, NULL));
    const json_t *list = json_object_get(d, "generic");
    const json_t *rotate = named(list, "Rotate");
    expect_json(json_object_get(rotate, "available"), "false");
    expect_json(json_object_get(rotate, "reason"),
                "\"no module has the tag function:rotate yet\"");
    expect_json(json_object_get(rotate, "options"), "[]");
    const json_t *blur = named(list, "Blur");
    expect_json(json_object_get(blur, "available"), "true");
    expect_json(json_object_get(blur, "reason"), "null");
    json_decref(d);
    // One backend alone is no type's.
    const char *const tags[] = { "function:blur", "backend:cuda", NULL };
    d = parsed(pen_registry_list_json(r, PEN_CATEGORY_NONE, tags));
    assert_int_equal(json_array_size(json_object_get(d, "modules")), 1);
    assert_int_equal(json_array_size(json_object_get(d, "generic")), 0);
    json_decref(d);
    d = parsed(pen_describe_generic_json(r, pen_generic_type_find("Rotate")));
    expect_json(json_object_get(d, "available"), "false");
    expect_json(json_object_get(d, "inputs"), "[]");
    json_decref(d);
    char *text =
        pen_describe_generic_text(r, pen_generic_type_find("JpegEncode"));
    assert_non_null(strstr(text, "not available: no module has the tag "
                                 "function:encode and format:jpeg yet\n"));
    pen_free(text);
    pen_registry_destroy(&r);
}

PEN_TEST_MAIN(
    PEN_CASE(a_type_stands_for_the_classes_of_its_tag),
    PEN_CASE(types_are_in_order_and_their_names_are_no_class),
    PEN_CASE(only_types_that_can_be_had_are_suggested),
    PEN_CASE(every_class_that_takes_the_properties_is_an_option),
    PEN_CASE(each_option_has_its_own_parameters_and_pins),
    PEN_CASE(a_warning_of_several_options_is_told_once),
    PEN_CASE(if_none_fits_the_errors_of_the_nearest_are_told),
    PEN_CASE(a_file_that_is_not_there_is_told_though_another_class_reads_none),
    PEN_CASE(kinds_are_those_of_any_option),
    PEN_CASE(the_backend_overrides_the_choice),
    PEN_CASE(a_backend_that_is_not_to_be_had_is_an_error),
    PEN_CASE(a_type_presets_what_its_name_says),
    PEN_CASE(describe_tells_all_that_the_classes_take),
    PEN_CASE(a_type_without_class_is_listed_with_the_reason))
