// planner: what it costs to plan a graph by its size: pen_plan_create() alone,
// without reading the file and without printing.
//
//     planner [--repeats N] [--sizes 10,100,...] [--only WORD]
//             [--clock wall|cpu] [--json]
//
// Shapes:
//   chain      one behind the other
//   tree       every module feeds four
//   diamonds   one feeds two, which meet in one that feeds the next two
//   lattice    rows of eight; each module feeds two of the next row
//   built-in   a chain and a tree of Penstock's own classes; the others are of
//              classes made here, since two inputs are needed
// Modules work on the host or on the device and take one of two formats or
// both, as a fixed random series says, so that up to three of four connections
// need a bridge. Columns, in milliseconds: the median of the repetitions, in
// brackets the 10th and the 90th of a hundred; "check" is the part of it in
// which types, properties and connections are resolved. "us/module" is the
// median by module of the file, "growth" the power of the size with which the
// time has grown since the size before: 1 is linear. One thread works, and it
// waits for nothing: on a machine that others use, `--clock cpu` measures the
// time that it had.

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <penstock/penstock.h>
#include <penstock/registry.h>

#include "bench.h"
#include "src/base/str.h"
#include "src/graph/graph.h"

enum { MAX_REPEATS = 101, MAX_SIZES = 16, ROW = 8 };

static struct {
    unsigned repeats, counts;
    uint32_t sizes[MAX_SIZES];
    const char *only;
    bool json, cpu;
    char machine[96];
} opt = {
    .repeats = 21,
    .counts = 6,
    .sizes = { 10, 100, 1000, 3000, 10000, 30000 },
};

// --- classes ----------------------------------------------------------------

struct none {
    int32_t unused;
};
struct copy {
    int32_t kind;
};
struct convert {
    int32_t image_type;
};

enum { UP, DOWN };
#define RAW    PEN_KIND_BIT(PEN_KIND_RAW_IMAGE)
#define DEVICE PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)
#define HOST   PEN_MEM_BIT(PEN_MEM_HOST)
#define RGB    PEN_FMT_BIT(PEN_FMT_RGB)
#define NV12   PEN_FMT_BIT(PEN_FMT_NV12)

// clang-format off
static const struct pen_choice directions[] = {
    { "HostToDevice", UP, "upload" }, { "DeviceToHost", DOWN, "download" }, { 0 },
};
static const struct pen_prop copy_props[] = {
    PEN_ENUM(struct copy, kind, "kind", UP, directions, "Direction.",
             .flags = PEN_PROP_REQUIRED),
    PEN_PROPS_END,
};
static const struct pen_choice targets[] = {
    { "RGB", PEN_FMT_RGB, "" }, { "NV12", PEN_FMT_NV12, "" }, { 0 },
};
static const struct pen_prop convert_props[] = {
    PEN_ENUM(struct convert, image_type, "imageType", PEN_FMT_RGB, targets,
             "Target.", .flags = PEN_PROP_REQUIRED),
    PEN_PROPS_END,
};

#define PIN(NAME, MEM, FORMATS)                                                \
    { .name = NAME, .help = "A pin.", .kinds = RAW, .mem = MEM,                \
      .formats = FORMATS }
#define PINS(name, ...)                                                        \
    static const struct pen_pin name[] = { __VA_ARGS__, { 0 } }
PINS(host_out, PIN("output", HOST, RGB | NV12));
PINS(host_in, PIN("input", PEN_MEM_BITS_HOST, RGB | NV12));
PINS(host_rgb, PIN("input", PEN_MEM_BITS_HOST, RGB));
PINS(host_in2, PIN("input_1", PEN_MEM_BITS_HOST, RGB | NV12),
     PIN("input_2", PEN_MEM_BITS_HOST, RGB | NV12));
PINS(device_out, PIN("output", DEVICE, RGB | NV12));
PINS(device_in, PIN("input", DEVICE, RGB | NV12));
PINS(device_nv12, PIN("input", DEVICE, NV12));
PINS(device_in2, PIN("input_1", DEVICE, RGB | NV12),
     PIN("input_2", DEVICE, RGB | NV12));
PINS(any_in, PIN("input", PEN_MEM_BITS_HOST | DEVICE, RGB | NV12));
PINS(any_out, PIN("output", PEN_MEM_BITS_HOST | DEVICE, RGB | NV12));
// clang-format on

static enum pen_status camera(const void *params, const struct pen_caps *in,
                              struct pen_caps *out, struct pen_error *err)
{
    (void)params;
    (void)in;
    (void)err;
    out[0].kind = PEN_KIND_RAW_IMAGE;
    out[0].format = PEN_FMT_NV12;
    out[0].width = 1280;
    out[0].height = 720;
    return PEN_OK;
}

static enum pen_status work(const void *params, const struct pen_caps *in,
                            struct pen_caps *out, struct pen_error *err)
{
    (void)params;
    (void)in;
    (void)out;
    (void)err;
    return PEN_OK;
}

static void copy_narrow(const void *params, struct pen_pin_set *in,
                        struct pen_pin_set *out)
{
    const struct copy *p = params;
    in[0].mem = p->kind == UP ? PEN_MEM_BITS_HOST : DEVICE;
    out[0].mem = p->kind == UP ? DEVICE : PEN_MEM_BITS_HOST;
}

static void convert_narrow(const void *params, struct pen_pin_set *in,
                           struct pen_pin_set *out)
{
    const struct convert *p = params;
    (void)in;
    out[0].formats &= PEN_FMT_BIT(p->image_type);
}

static enum pen_status convert(const void *params, const struct pen_caps *in,
                               struct pen_caps *out, struct pen_error *err)
{
    const struct convert *p = params;
    (void)in;
    (void)err;
    out[0].format = (enum pen_format)p->image_type;
    out[0].formats = 0;
    return PEN_OK;
}

// clang-format off
#define CLASS(NAME, CATEGORY, FLAGS)                                           \
    .abi = PEN_MODULE_ABI, .size = sizeof(struct pen_module_class),            \
    .name = NAME, .version = "1.0", .summary = "A class of the bench",         \
    .category = PEN_CATEGORY_##CATEGORY, .flags = FLAGS,                       \
    .params_size = sizeof(struct convert)
#define TAGS(...) .tags = (const char *const[]){ __VA_ARGS__, NULL }
static const struct pen_module_class classes[] = {
    { CLASS("Camera", SOURCE, 0), .outputs = host_out,
      .ops.negotiate = camera },
    { CLASS("Host", TRANSFORM, 0), .inputs = host_in, .outputs = host_out,
      .ops.negotiate = work },
    { CLASS("HostRgb", TRANSFORM, 0), .inputs = host_rgb, .outputs = host_out,
      .ops.negotiate = work },
    { CLASS("HostJoin", TRANSFORM, 0), .inputs = host_in2,
      .outputs = host_out, .ops.negotiate = work },
    { CLASS("Device", TRANSFORM, PEN_CLASS_CUDA), .inputs = device_in,
      .outputs = device_out, .ops.negotiate = work },
    { CLASS("DeviceNv12", TRANSFORM, PEN_CLASS_CUDA), .inputs = device_nv12,
      .outputs = device_out, .ops.negotiate = work },
    { CLASS("DeviceJoin", TRANSFORM, PEN_CLASS_CUDA), .inputs = device_in2,
      .outputs = device_out, .ops.negotiate = work },
    { CLASS("HostEnd", SINK, 0), .inputs = host_in },
    { CLASS("DeviceEnd", SINK, PEN_CLASS_CUDA), .inputs = device_in },
    { CLASS("CudaMemCopy", UTILITY, PEN_CLASS_CUDA | PEN_CLASS_BRIDGE),
      TAGS("function:copy", "backend:cuda"), .inputs = any_in,
      .outputs = any_out, .props = copy_props, .ops.narrow = copy_narrow },
    { CLASS("HostConvert", TRANSFORM, PEN_CLASS_BRIDGE),
      TAGS("function:color", "backend:cpu"), .inputs = host_in,
      .outputs = host_out, .props = convert_props,
      .ops.narrow = convert_narrow, .ops.negotiate = convert },
    { CLASS("CudaConvert", TRANSFORM, PEN_CLASS_CUDA | PEN_CLASS_BRIDGE),
      TAGS("function:color", "backend:cuda"), .inputs = device_in,
      .outputs = device_out, .props = convert_props,
      .ops.narrow = convert_narrow, .ops.negotiate = convert },
};
// clang-format on

static struct pen_registry *own_classes(void)
{
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    if (stk_registry_new(&registry, &err) != PEN_OK)
        bench_die("registry", err.text);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
        if (pen_registry_add(registry, &classes[i], &err) != PEN_OK)
            bench_die(classes[i].name, err.text);
    return registry;
}

// --- graphs -----------------------------------------------------------------

enum layout { CHAIN, TREE, DIAMONDS, LATTICE };
static const struct shape {
    const char *name;
    enum layout layout;
    bool builtin;
} shapes[] = {
    { "chain", CHAIN, false },          { "tree", TREE, false },
    { "diamonds", DIAMONDS, false },    { "lattice", LATTICE, false },
    { "chain, built-in", CHAIN, true }, { "tree, built-in", TREE, true },
};

static uint32_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33);
}

// The two that feed a module, or one and itself.
static void feeders(enum layout layout, uint32_t n, uint32_t from[2])
{
    from[0] = from[1] = n;
    if (layout == CHAIN)
        from[0] = n - 1;
    else if (layout == TREE)
        from[0] = (n - 1) / 4;
    else if (layout == DIAMONDS && n % 3 == 0) {
        from[0] = n - 2;
        from[1] = n - 1;
    } else if (layout == DIAMONDS)
        from[0] = n / 3 * 3;
    else if (n > ROW) {
        // Behind the source, rows of eight whose ends are joined.
        const uint32_t row = (n - 1) / ROW, column = (n - 1) % ROW;
        from[0] = (row - 1) * ROW + column + 1;
        from[1] = (row - 1) * ROW + (column + 1) % ROW + 1;
    } else
        from[0] = 0;
}

// A module of the file: its type, and properties as they stand there.
struct kind {
    const char *type, *props;
};

enum role { SOURCE, INNER, JOIN, END };

static struct kind kind_of(bool builtin, enum role role, uint32_t dice)
{
    static const char size[] = "\"width\": 1280, \"height\": 720";
    static const struct kind own[][4] = {
        [SOURCE] = { { "Camera", "" } },
        [INNER] = { { "Host", "" },
                    { "HostRgb", "" },
                    { "Device", "" },
                    { "DeviceNv12", "" } },
        [JOIN] = { { "HostJoin", "" }, { "DeviceJoin", "" } },
        [END] = { { "HostEnd", "" }, { "DeviceEnd", "" } },
    };
    static const struct kind ours[][4] = {
        [SOURCE] = { { "TestSignalGenerator", size } },
        [INNER] = { { "GaussianBlurCV", "\"sigma\": 1.0" },
                    { "ImageResizeCV", size },
                    { "GaussianBlur", "\"sigma\": 1.0" },
                    { "ResizeNPPI", size } },
        [END] = { { "StatSink", "" }, { "StatSink", "" } },
    };
    static const unsigned choices[] = {
        [SOURCE] = 1, [INNER] = 4, [JOIN] = 2, [END] = 2
    };
    return (builtin ? ours : own)[role][dice % choices[role]];
}

static void add_module(struct stk_text *text, uint32_t n,
                       const struct kind *kind)
{
    stk_text_addf(text, "%s\"m%u\": { \"type\": \"%s\", \"props\": { %s } }",
                  n ? ", " : "", n, kind->type, kind->props);
}

static void connect(struct stk_text *text, uint32_t from, uint32_t to,
                    const char *pin)
{
    stk_text_addf(text, "%s{ \"from\": \"m%u\", \"to\": \"m%u%s\" }",
                  text->length ? ", " : "", from, to, pin);
}

static char *make_text(const struct shape *shape, uint32_t count)
{
    struct stk_text modules = { 0 }, connections = { 0 }, all = { 0 };
    uint64_t seed = 4;
    bool *feeds = calloc(count, sizeof(*feeds));
    if (!feeds)
        bench_die("text", "no memory");
    for (uint32_t n = 1; n < count; n++) {
        uint32_t from[2];
        feeders(shape->layout, n, from);
        const bool join = from[1] != n;
        feeds[from[0]] = true;
        connect(&connections, from[0], n, join ? ".input_1" : "");
        if (!join)
            continue;
        feeds[from[1]] = true;
        connect(&connections, from[1], n, ".input_2");
    }
    for (uint32_t n = 0; n < count; n++) {
        uint32_t from[2] = { 0 };
        if (n)
            feeders(shape->layout, n, from);
        const enum role role = n == 0         ? SOURCE
                               : from[1] != n ? JOIN
                               : feeds[n]     ? INNER
                                              : END;
        const struct kind kind =
            kind_of(shape->builtin, role, next_random(&seed));
        add_module(&modules, n, &kind);
    }
    free(feeds);
    if (!modules.failed && !connections.failed)
        stk_text_addf(&all, "{ \"modules\": { %s }, \"connections\": [ %s ] }",
                      modules.data, connections.data);
    stk_text_finish(&modules);
    stk_text_finish(&connections);
    return stk_text_take(&all);
}

// --- what is measured -------------------------------------------------------

static double now_ns(void)
{
    struct timespec now;
    if (!opt.cpu)
        return (double)stk_now();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

struct spread {
    double median, low, high, least;  // ms
};

static struct spread spread_of(double *ns)
{
    const unsigned last = opt.repeats - 1;
    bench_sort(ns, opt.repeats);
    return (struct spread){ ns[last / 2] / 1e6, ns[last / 10] / 1e6,
                            ns[last - last / 10] / 1e6, ns[0] / 1e6 };
}

// What came out; the same each time.
struct outcome {
    uint32_t bridges;
    size_t issues;
    bool optimal;
};

static double plan_once(const struct pen_description *desc,
                        const struct pen_registry *registry,
                        struct outcome *outcome)
{
    // Budgets that no machine limits.
    const struct pen_plan_params params = {
        .budget = { 0, UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX },
    };
    struct pen_error err = { 0 };
    struct pen_plan *plan = NULL;
    struct pen_issues *issues = pen_issues_create();
    if (!issues)
        bench_die("issues", "no memory");
    const double start = now_ns();
    const enum pen_status st =
        pen_plan_create(desc, registry, &params, &plan, issues, &err);
    const double ns = now_ns() - start;
    if (st != PEN_OK)
        bench_die("plan", err.text);
    *outcome = (struct outcome){ .optimal = plan->optimal };
    while (pen_issues_get(issues, outcome->issues))
        outcome->issues++;
    for (uint32_t n = 0; n < plan->node_count; n++)
        outcome->bridges += plan->nodes[n].inserted;
    pen_plan_destroy(&plan);
    pen_issues_destroy(&issues);
    return ns;
}

static double check_once(const struct pen_description *desc,
                         const struct pen_registry *registry)
{
    struct stk_arena arena = { 0 };
    struct stk_graph *graph = NULL;
    struct pen_error err = { 0 };
    struct pen_issues *issues = pen_issues_create();
    if (!issues)
        bench_die("issues", "no memory");
    const double start = now_ns();
    const enum pen_status st =
        stk_graph_resolve(desc, registry, &arena, &graph, issues, &err);
    const double ns = now_ns() - start;
    if (st != PEN_OK)
        bench_die("check", err.text);
    stk_arena_finish(&arena);
    pen_issues_destroy(&issues);
    return ns;
}

static void print(const struct shape *shape, uint32_t count,
                  const struct outcome *outcome, const struct spread *plan,
                  const struct spread *check, double growth)
{
    const double each = plan->median * 1e3 / count;
    char grown[16] = "-";
    if (opt.json) {
        printf("{\"bench\": \"planner\", \"machine\": \"%s\", \"shape\": "
               "\"%s\", \"clock\": \"%s\", \"modules\": %u, \"bridges\": %u, "
               "\"issues\": %zu, "
               "\"optimal\": %s, \"repeats\": %u, \"median_ms\": %.4f, "
               "\"min_ms\": %.4f, \"p10_ms\": %.4f, \"p90_ms\": %.4f, "
               "\"check_ms\": %.4f}\n",
               opt.machine, shape->name, opt.cpu ? "cpu" : "wall", count,
               outcome->bridges, outcome->issues,
               outcome->optimal ? "true" : "false", opt.repeats, plan->median,
               plan->least, plan->low, plan->high, check->median);
    } else {
        if (growth != 0)
            snprintf(grown, sizeof(grown), "%.2f", growth);
        printf("%-16s %7u %7u %9.3f (%8.3f %8.3f) %8.3f %9.2f %7s  %s\n",
               shape->name, count, outcome->bridges, plan->median, plan->low,
               plan->high, check->median, each, grown,
               outcome->optimal ? "optimal" : "not proven");
    }
    fflush(stdout);
}

static void measure(const struct shape *shape)
{
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    if (!shape->builtin)
        registry = own_classes();
    else if (pen_registry_create(&registry, &err) != PEN_OK)
        bench_die("registry", err.text);
    double before = 0;
    for (unsigned i = 0; i < opt.counts; i++) {
        const uint32_t count = opt.sizes[i];
        char *text = make_text(shape, count);
        struct pen_issues *issues = pen_issues_create();
        struct pen_description *desc = NULL;
        if (!text || !issues)
            bench_die("text", "no memory");
        if (pen_description_parse(text, strlen(text), "bench.json", &desc,
                                  issues, &err) != PEN_OK)
            bench_die("parse", err.text);
        free(text);
        pen_issues_destroy(&issues);

        double plan_ns[MAX_REPEATS], check_ns[MAX_REPEATS];
        struct outcome outcome;
        plan_once(desc, registry, &outcome);
        for (unsigned r = 0; r < opt.repeats; r++) {
            plan_ns[r] = plan_once(desc, registry, &outcome);
            check_ns[r] = check_once(desc, registry);
        }
        const struct spread plan = spread_of(plan_ns),
                            check = spread_of(check_ns);
        const double growth =
            i ? log(plan.median / before) /
                    log((double)count / (double)opt.sizes[i - 1])
              : 0;
        print(shape, count, &outcome, &plan, &check, growth);
        before = plan.median;
        pen_description_destroy(&desc);
    }
    pen_registry_destroy(&registry);
}

// --- the program ------------------------------------------------------------

static void parse_sizes(char *list)
{
    opt.counts = 0;
    for (char *at = strtok(list, ","); at; at = strtok(NULL, ",")) {
        const long n = strtol(at, NULL, 10);
        if (n < 2 || n > 1000000 || opt.counts == MAX_SIZES)
            bench_die("--sizes", "up to 16 numbers from 2 to 1000000");
        opt.sizes[opt.counts++] = (uint32_t)n;
    }
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "repeats", required_argument, NULL, 'r' },
        { "sizes", required_argument, NULL, 's' },
        { "only", required_argument, NULL, 'o' },
        { "clock", required_argument, NULL, 'c' },
        { "json", no_argument, NULL, 'j' },
        { 0 },
    };
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'r':
            opt.repeats = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 's':
            parse_sizes(optarg);
            break;
        case 'o':
            opt.only = optarg;
            break;
        case 'c':
            opt.cpu = strcmp(optarg, "cpu") == 0;
            if (!opt.cpu && strcmp(optarg, "wall") != 0)
                bench_die("--clock", "wall or cpu");
            break;
        case 'j':
            opt.json = true;
            break;
        default:
            exit(3);
        }
    }
    if (opt.repeats < 1 || opt.repeats > MAX_REPEATS)
        bench_die("--repeats", "1 to 101");
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    bench_processor(opt.machine, sizeof(opt.machine));
    if (!opt.json) {
        printf("%s; milliseconds of one call (%s), %u repetitions\n",
               opt.machine, opt.cpu ? "cpu" : "wall", opt.repeats);
        printf("%-16s %7s %7s %9s %-19s %8s %9s %7s\n", "shape", "modules",
               "bridges", "median", "(p10 and p90)", "check", "us/module",
               "growth");
    }
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        if (!opt.only || strstr(shapes[i].name, opt.only))
            measure(&shapes[i]);
    return 0;
}
