// Bytes that stand for a graph of the classes of planner_world.h, perhaps with
// types that stand for several of Penstock's own, so that nearly all of them
// are one: what a text would seldom hit. The same modules and connections in
// the opposite order must give the same plan.

#include <stdlib.h>
#include <string.h>

#include "fuzz.h"
#include "src/base/str.h"

enum { MOST = 16, PER_MODULE = 5, HEADER = 4 };

static const struct kind {
    const char *type;
    unsigned inputs, outputs;
    const char *props;  // NULL: memory types and formats
} kinds[] = {
    { "Source", 0, 1, NULL },
    { "Work", 1, 1, NULL },
    { "CudaWork", 1, 1, NULL },
    { "Pass", 1, 1, NULL },
    { "Join", 2, 1, NULL },
    { "PassJoin", 2, 1, NULL },
    { "Split", 1, 2, NULL },
    { "Sink", 1, 0, NULL },
    { "Work", 1, 1, NULL },
    { "Sink", 1, 0, NULL },
    { "CudaMemCopy", 1, 1, "\"kind\": \"HostToDevice\"" },
    { "CudaMemCopy", 1, 1, "\"kind\": \"DeviceToHost\"" },
    { "MemTypeConversion", 1, 1, "\"outputMemType\": \"DMA\"" },
    { "MemTypeConversion", 1, 1, "\"outputMemType\": \"HOST_PINNED\"" },
    { "HostConvert", 1, 1, "\"imageType\": \"NV12\"" },
    { "CudaConvert", 1, 1, "\"imageType\": \"RGB\"" },
};
// Where Penstock's own classes are there too, instead of the last ones.
static const struct kind generic[] = {
    { "Resize", 1, 1, "\"width\": 96, \"height\": 64" },
    { "Blur", 1, 1, "\"sigma\": 1.5" },
    { "ColorConvert", 1, 1, "\"imageType\": \"NV12\"" },
    { "Blur", 1, 1, "\"backend\": \"cuda\"" },
};
static const char *const mems[] = {
    "HOST",
    "CUDA_DEVICE",
    "HOST|CUDA_DEVICE",
    "HOST_PINNED",
    "DMABUF",
    "HOST|DMABUF",
    "CUDA_DEVICE|DMABUF",
    "HOST|HOST_PINNED|CUDA_DEVICE|DMABUF",
};
static const char *const formats[] = {
    "RGB",       "NV12", "RGB|NV12", "MONO",
    "RGB|MONO",  "ALL",  "RGBA|BGR", "YUV420|UYVY",
    "BAYERBG10", "RGBA", "YUV444",   "NV12|YUV420",
    "BAYERBG8",  "BGR",  "YUYV",     "MONO|NV12",
};
static const char *const settings[] = {
    "",
    "\"pinned_limit\": \"stage\", \"budget\": { \"host_pinned\": \"700KiB\" }",
    "\"budget\": { \"cuda_device\": \"300KiB\" }",
    "\"auto_bridge\": false",
    "\"queue_depth\": 1",
    "\"budget\": { \"dmabuf\": \"1MiB\", \"h2d_per_frame\": 1 }",
    "\"pinned_limit\": \"stage\", \"budget\": { \"host_pinned\": 1 }",
    "",
};

struct graph {
    bool both;  // registries
    struct stk_text modules[MOST], connections[2 * MOST];
    unsigned module_count, connection_count;
};

static void add_module(struct graph *g, const uint8_t *bytes,
                       unsigned outputs[MOST])
{
    const unsigned n = g->module_count++;
    const unsigned which = n ? bytes[0] % 16 : 0;
    const struct kind *kind =
        g->both && which >= 12 ? &generic[which - 12] : &kinds[which];
    struct stk_text *m = &g->modules[n];
    stk_text_addf(m, "\"n%u\": { \"type\": \"%s\", \"props\": { ", n,
                  kind->type);
    if (kind->props)
        stk_text_add(m, kind->props);
    else
        stk_text_addf(m, "\"mem\": \"%s\", \"formats\": \"%s\"",
                      mems[bytes[1] % 8], formats[bytes[2] % 16]);
    const unsigned extra = bytes[1] / 8;
    if (kind == kinds && extra < 8)
        stk_text_addf(m, ", \"width\": %u, \"height\": %u", extra * 37,
                      extra * 21);
    else if (!kind->props && extra == 8)
        stk_text_add(m, ", \"refuse\": \"RGB\"");
    else if (!kind->props && extra == 9)
        stk_text_add(m, ", \"limit\": 100");
    else if (kind == kinds && extra == 10)
        stk_text_add(m, ", \"range\": \"full\"");
    stk_text_add(m, " } }");
    outputs[n] = kind->outputs;
    for (unsigned i = 0; i < kind->inputs; i++) {
        // How far back, and from which output.
        unsigned from = n - 1 - bytes[3 + i] % n;
        while (outputs[from] == 0)
            from = (from + n - 1) % n;
        struct stk_text *c = &g->connections[g->connection_count++];
        stk_text_addf(c, "{ \"from\": \"n%u.output", from);
        if (outputs[from] == 2)
            stk_text_add(c, bytes[3 + i] & 128 ? "_2" : "_1");
        stk_text_addf(c, "\", \"to\": \"n%u.input", n);
        if (kind->inputs == 2)
            stk_text_addf(c, "_%u", i + 1);
        stk_text_addf(c, "\"%s }",
                      bytes[2] / 16 == 15 ? ", \"queue\": { \"depth\": 9 }"
                                          : "");
    }
}

static void join(struct stk_text *all, const struct stk_text *parts,
                 unsigned count, bool backwards)
{
    for (unsigned i = 0; i < count; i++) {
        const struct stk_text *part = &parts[backwards ? count - 1 - i : i];
        stk_text_addf(all, "%s%s", i ? ", " : "", part->data);
    }
}

static char *text_of(const struct graph *g, uint8_t setting, bool backwards)
{
    struct stk_text all = { 0 };
    stk_text_addf(&all, "{ \"settings\": { %s }, \"modules\": { ",
                  settings[setting % 8]);
    join(&all, g->modules, g->module_count, backwards);
    stk_text_add(&all, " }, \"connections\": [ ");
    join(&all, g->connections, g->connection_count, backwards);
    stk_text_add(&all, " ] }");
    return stk_text_take(&all);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const uint64_t frames[] = { 0, 1, 100, 1000000 };
    if (size < HEADER + PER_MODULE)
        return 0;
    const struct pen_profile profile =
        fuzz_profile(data[0] & 8 ? "generic-cuda" : "cpu", data[0]);
    struct pen_plan_params params = {
        .profile = &profile,
        .frames = frames[data[2] & 3],
    };
    fuzz_budget(&params, data[3]);
    struct graph g = { .both = data[0] & 16 };
    const struct pen_registry *registry = g.both ? fuzz_both() : fuzz_world();
    unsigned outputs[MOST];
    for (size_t at = HEADER; at + PER_MODULE <= size && g.module_count < MOST;
         at += PER_MODULE)
        add_module(&g, data + at, outputs);
    char *text = text_of(&g, data[1], false);
    char *backwards = text_of(&g, data[1], true);
    FUZZ_CHECK(text && backwards);
    char *one = fuzz_plan(text, strlen(text), registry, &params, data[1]);
    char *other =
        fuzz_plan_text(backwards, strlen(backwards), registry, &params);
    FUZZ_CHECK((one != NULL) == (other != NULL));
    FUZZ_CHECK(!one || strcmp(one, other) == 0);
    pen_free(one);
    pen_free(other);
    free(text);
    free(backwards);
    for (unsigned i = 0; i < g.module_count; i++)
        stk_text_finish(&g.modules[i]);
    for (unsigned i = 0; i < g.connection_count; i++)
        stk_text_finish(&g.connections[i]);
    return 0;
}
