// What lies between every two pixel formats, as tables: ref/pairs_FROM_TO.txt
// for producers and consumers on the host and on the device. The bridges are
// Penstock's own; who gives and takes is of planner_world.h. After a wanted
// change,
//
//     PENSTOCK_TEST_UPDATE=1 meson test -C build pairs
//
// writes the references anew; the diff is the change to be looked at.

#include <unistd.h>

#include "src/graph/planner.h"
#include "tests/unit/graph/planner_world.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

static struct pen_registry *both_registries(void)
{
    static const char *const names[] = { "Source", "CudaSource", "Sink" };
    struct pen_registry *registry = NULL;
    struct pen_error err = { 0 };
    assert_int_equal(pen_registry_create(&registry, &err), PEN_OK);
    for (unsigned n = 0; n < sizeof(names) / sizeof(names[0]); n++)
        for (unsigned i = 0; i < WORLD_COUNT; i++)
            if (!strcmp(world_classes[i].name, names[n]))
                assert_int_equal(
                    pen_registry_add(registry, &world_classes[i], &err),
                    PEN_OK);
    return registry;
}

static struct pen_plan *plan_pair(const struct pen_registry *registry,
                                  enum pen_format from, enum pen_format to,
                                  bool device, bool to_device,
                                  struct pen_description **desc)
{
    struct stk_text text = { 0 };
    struct pen_error err = { 0 };
    struct pen_plan *plan = NULL;
    struct pen_issues *issues = pen_issues_create();
    assert_non_null(issues);
    struct pen_profile profile = *pen_profile_builtin("generic-cuda");
    profile.host_memory = profile.cuda_memory = (uint64_t)16 << 30;
    const struct pen_plan_params params = { .profile = &profile };
    stk_text_addf(&text,
                  "{ \"modules\": { \"from\": { \"type\": \"%s\", \"props\": { "
                  "\"mem\": \"%s\", \"formats\": \"%s\", \"width\": 1920, "
                  "\"height\": 1080 } }, \"to\": { \"type\": \"Sink\", "
                  "\"props\": { \"mem\": \"%s\", \"formats\": \"%s\" } } }, "
                  "\"connections\": [ { \"from\": \"from\", \"to\": \"to\" } ] "
                  "}",
                  device ? "CudaSource" : "Source",
                  device ? "CUDA_DEVICE" : "HOST", pen_format_info(from)->name,
                  to_device ? "CUDA_DEVICE" : "HOST",
                  pen_format_info(to)->name);
    assert_false(text.failed);
    assert_int_equal(pen_description_parse(text.data, text.length, "pair", desc,
                                           issues, &err),
                     PEN_OK);
    const enum pen_status st =
        pen_plan_create(*desc, registry, &params, &plan, issues, &err);
    assert_true(st == PEN_OK || st == PEN_E_CONFIG);
    stk_text_finish(&text);
    pen_issues_destroy(&issues);
    return plan;
}

// "RGB -> MONO: 2.11 ms  ColorConversion MONO; loses channels"
static void tell_pair(struct stk_text *table,
                      const struct pen_registry *registry, enum pen_format from,
                      enum pen_format to, bool device, bool to_device)
{
    struct pen_description *desc = NULL;
    struct pen_plan *plan =
        plan_pair(registry, from, to, device, to_device, &desc);
    struct stk_text path = { 0 };
    int64_t cost = 0;
    const char *loss = "";
    stk_text_addf(table, "%-9s -> %-8s", pen_format_info(from)->name,
                  pen_format_info(to)->name);
    if (!plan) {
        stk_text_add(table, "          -  refused\n");
        pen_description_destroy(&desc);
        return;
    }
    for (uint32_t n = 0; n < plan->node_count; n++) {
        const struct stk_plan_node *node = &plan->nodes[n];
        if (!node->inserted)
            continue;
        const char *gap = path.length ? ", " : "";
        const enum stk_transfer transfer = stk_node_transfer(plan, node);
        if (transfer == STK_H2D || transfer == STK_D2H)
            stk_text_addf(&path, "%s%s", gap,
                          transfer == STK_H2D ? "upload" : "download");
        else
            stk_text_addf(&path, "%s%s %s", gap, node->type,
                          pen_format_info(node->output[0].caps.format)->name);
        cost += node->cost_ns;
        if (node->loss[0]) {
            assert_string_equal(loss, "");  // at one place
            loss = node->loss;
        }
    }
    const struct stk_plan_output *o = &plan->nodes[0].output[0];
    stk_text_addf(table, " %10.1f us  %s%s%s%s\n", (double)cost / 1e3,
                  path.length  ? path.data
                  : from == to ? "as it is"
                               : "nothing",
                  o->upgraded_from ? ", pinned" : "", loss[0] ? "; loses " : "",
                  loss);
    stk_text_finish(&path);
    pen_plan_destroy(&plan);
    pen_description_destroy(&desc);
}

static void check_table(const char *name, bool device, bool to_device)
{
    char path[256];
    struct stk_text table = { 0 };
    struct pen_registry *registry = both_registries();
    assert_int_equal(chdir(pen_test_source()), 0);
    stk_text_addf(&table,
                  "From %s to %s, 1920x1080, profile generic-cuda: cost of a "
                  "frame and bridges.\n\n",
                  device ? "the device" : "the host",
                  to_device ? "the device" : "the host");
    for (int from = 1; from < PEN_FMT_COUNT; from++) {
        if (!pen_format_info((enum pen_format)from))
            continue;  // of a later version
        for (int to = 1; to < PEN_FMT_COUNT; to++)
            if (PEN_FMT_BIT(to) & PEN_FMT_BITS_ALL11)
                tell_pair(&table, registry, (enum pen_format)from,
                          (enum pen_format)to, device, to_device);
    }
    assert_false(table.failed);
    pen_registry_destroy(&registry);
    snprintf(path, sizeof(path), "tests/golden/ref/pairs_%s.txt", name);
    if (getenv("PENSTOCK_TEST_UPDATE"))
        pen_test_write_file(path, table.data, table.length);
    size_t bytes = 0;
    char *wanted = pen_test_read_file(path, &bytes);
    if (bytes != table.length || memcmp(wanted, table.data, bytes) != 0)
        fail_msg("--- %s\n%.*s\n+++ now\n%s", path, (int)bytes, wanted,
                 table.data);
    free(wanted);
    stk_text_finish(&table);
}

PEN_TEST(all_formats_on_the_host)
{
    check_table("host_host", false, false);
}

PEN_TEST(all_formats_on_the_device)
{
    check_table("device_device", true, true);
}

PEN_TEST(all_formats_to_the_device)
{
    check_table("host_device", false, true);
}

PEN_TEST(all_formats_to_the_host)
{
    check_table("device_host", true, false);
}

PEN_TEST_MAIN(PEN_CASE(all_formats_on_the_host),
              PEN_CASE(all_formats_on_the_device),
              PEN_CASE(all_formats_to_the_device),
              PEN_CASE(all_formats_to_the_host))
