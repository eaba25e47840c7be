// DMABUFs in plans: the 4x4 table of ways with every set of capabilities,
// pools that are made of DMABUFs, and what becomes of those who share them.

#include "planner_world.h"
#include "src/mem/dmabuf.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

#define DMA "'mem': 'DMABUF', "

static const char why[3][160] = { "/dev/udmabuf is missing",
                                  "the driver exports nothing",
                                  "the driver imports nothing" };

static struct pen_profile profile_with(unsigned dmabuf)
{
    struct pen_profile profile = *pen_profile_builtin("generic-cuda");
    profile.dmabuf = dmabuf;
    for (unsigned i = 0; i < 3; i++)
        strcpy(profile.why_dmabuf[i], dmabuf & 1u << i ? "" : why[i]);
    return profile;
}

static void plan_on(struct world *w, unsigned dmabuf, const char *text)
{
    const struct pen_profile profile = profile_with(dmabuf);
    world_plan_with(w, text, &(struct pen_plan_params){ .profile = &profile },
                    NULL);
}

static void plan_ok(struct world *w, unsigned dmabuf, const char *text)
{
    plan_on(w, dmabuf, text);
    if (w->status != PEN_OK)
        fail_msg("%s: %s", w->err.where, w->err.text);
}

enum { ALL_CAPS = PEN_DMABUF_HOST | PEN_DMABUF_EXPORT | PEN_DMABUF_IMPORT };

// --- the table --------------------------------------------------------------

// How the plan serves its sink.
static enum stk_way way_in(const struct world *w)
{
    const struct stk_plan_output *o = &world_node(w, "s")->output[0];
    const struct stk_plan_edge *e = world_edge(w, "k");
    const unsigned inserted = world_inserted(w, NULL);
    const uint32_t takes = world_node(w, "k")->in[0].mem;
    if (inserted)
        return inserted == 1 ? STK_WAY_COPY : STK_WAY_STAGED;
    if (o->upgraded_from)
        return o->kind == STK_DMABUF_CUDA ? STK_WAY_EXPORT : STK_WAY_UPGRADE;
    if (e->kind == STK_DMABUF_HOST && takes == PEN_MEM_BIT(PEN_MEM_HOST))
        return STK_WAY_MAP;
    if (e->kind == STK_DMABUF_HOST && takes == WORLD_CUDA)
        return STK_WAY_IMPORT;
    return STK_WAY_NONE;
}

PEN_TEST(every_pair_goes_the_way_of_the_table_or_is_refused_with_its_reason)
{
    unsigned seen[STK_WAY_REFUSED + 1] = { 0 }, unmade = 0;
    for (unsigned can = 0; can <= ALL_CAPS; can++)
        for (unsigned pair = 0; pair < 5 * 4; pair++) {
            // Row 4: DMABUF of device memory, which a device module gives.
            const unsigned row = pair / 4;
            const bool cuda = row == 4;
            const enum pen_mem_type from =
                cuda ? PEN_MEM_DMABUF : (enum pen_mem_type)(row + 1);
            const enum pen_mem_type to = (enum pen_mem_type)(pair % 4 + 1);
            const enum stk_dmabuf_kind kind = from != PEN_MEM_DMABUF
                                                  ? STK_DMABUF_NONE
                                              : cuda ? STK_DMABUF_CUDA
                                                     : STK_DMABUF_HOST;
            const struct stk_dmabuf_caps caps = {
                .host = can & PEN_DMABUF_HOST,
                .export = can & PEN_DMABUF_EXPORT,
                .import = can & PEN_DMABUF_IMPORT,
                .why_host = "/dev/udmabuf is missing",
                .why_export = "the driver exports nothing",
            };
            char text[512], said[400];
            snprintf(text, sizeof(text),
                     "{ 'modules': { 's': { 'type': '%s', 'props': { 'mem': "
                     "'%s' } }, 'k': { 'type': 'Sink', 'props': { 'mem': '%s' "
                     "} } }, 'connections': [ { 'from': 's', 'to': 'k' } ] }",
                     cuda ? "CudaSource" : "Source", pen_mem_name(from),
                     pen_mem_name(to));
            struct world w;
            plan_on(&w, can, text);
            const bool made =
                from != PEN_MEM_DMABUF ||
                (can & (cuda ? PEN_DMABUF_EXPORT : PEN_DMABUF_HOST));
            if (!made) {
                // What is not there goes nowhere.
                const struct pen_issue *issue = world_issue(&w, "E313");
                assert_non_null(issue);
                assert_string_equal(issue->pointer, "/modules/s");
                assert_non_null(strstr(issue->message, why[cuda]));
                assert_non_null(strstr(issue->suggestion, "let it give"));
                unmade++;
                world_finish(&w);
                continue;
            }
            const enum stk_way way =
                stk_way_between(from, kind, to, &caps, said, sizeof(said));
            seen[way]++;
            if (way == STK_WAY_REFUSED) {
                const struct pen_issue *issue = world_issue(&w, "E313");
                assert_int_equal(w.status, PEN_E_CONFIG);
                assert_non_null(issue);
                assert_string_equal(issue->pointer, "/connections/0");
                assert_non_null(strstr(issue->message, said));
                assert_non_null(strstr(issue->message, why[0]));
                assert_non_null(strstr(issue->message, why[1]));
            } else if (w.status != PEN_OK) {
                fail_msg("%s -> %s with %u: %s", pen_mem_name(from),
                         pen_mem_name(to), can, w.err.text);
            } else if (way_in(&w) != way) {
                fail_msg("%s -> %s with %u: %d, the table says %d (%s)",
                         pen_mem_name(from), pen_mem_name(to), can, way_in(&w),
                         way, said);
            }
            world_finish(&w);
        }
    for (unsigned i = 0; i <= STK_WAY_REFUSED; i++)
        assert_true(seen[i] > 0);
    assert_int_equal(unmade, 2 * 4 * 4);
}

// --- pools of DMABUFs -------------------------------------------------------

PEN_TEST(a_host_pool_is_made_of_dmabufs_and_host_pins_map_it)
{
    struct world w;
    plan_ok(&w, ALL_CAPS & ~PEN_DMABUF_IMPORT,
            PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", DMA RGB) "," MOD(
                     "h", "Sink", RGB),
                 TO("s", "k") "," TO("s", "h")));
    const struct stk_plan_output *o = &world_node(&w, "s")->output[0];
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(o->mem, PEN_MEM_DMABUF);
    assert_int_equal(o->kind, STK_DMABUF_HOST);
    assert_int_equal(o->upgraded_from, PEN_MEM_HOST);
    assert_int_equal(world_edge(&w, "h")->kind, STK_DMABUF_HOST);
    assert_int_equal(w.plan->peak[PEN_MEM_DMABUF],
                     (uint64_t)o->blocks * 192 * 48);
    assert_int_equal(w.plan->peak[PEN_MEM_HOST], 0);
    assert_true(w.plan->needs_device);
    char *text = pen_plan_text(w.plan);
    assert_non_null(strstr(text, "DMABUF(host)  RGB 64x48"));
    assert_non_null(strstr(text, "(upgraded from HOST)"));
    assert_non_null(strstr(text, "mapped  -> h.input"));
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(device_pools_are_exported_also_those_of_bridges)
{
    struct world w;
    const unsigned can = PEN_DMABUF_EXPORT;
    plan_ok(&w, can,
            PIPE(MOD("s", "Source", CUDA RGB) "," MOD(
                     "k", "Sink", DMA RGB) "," MOD("c", "Sink", CUDA RGB),
                 TO("s", "k") "," TO("s", "c")));
    const struct stk_plan_output *o = &world_node(&w, "s")->output[0];
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(o->kind, STK_DMABUF_CUDA);
    assert_int_equal(o->upgraded_from, PEN_MEM_CUDA_DEVICE);
    assert_int_equal(world_edge(&w, "c")->mem, PEN_MEM_DMABUF);
    // It is memory of the device, in blocks that can be exported.
    size_t block;
    assert_true(stk_dmabuf_cuda_bytes(o->block_bytes, &block));
    assert_true(block > o->block_bytes);
    assert_int_equal(w.plan->peak[PEN_MEM_CUDA_DEVICE],
                     (uint64_t)block * o->blocks);
    assert_int_equal(w.plan->peak[PEN_MEM_DMABUF], 0);
    char *text = pen_plan_text(w.plan);
    assert_non_null(strstr(text, "DMABUF(device)"));
    assert_non_null(strstr(text, "exported  -> k.input"));
    pen_free(text);
    world_finish(&w);

    // Uploaded and converted, then exported: the last bridge's pool.
    plan_ok(&w, can,
            PIPE(MOD("s", "Source",
                     CUDA "'formats': 'NV12'") "," MOD("k", "Sink", DMA RGB),
                 TO("s", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    o = &world_node(&w, "_bridge_1_CudaConvert")->output[0];
    assert_int_equal(o->kind, STK_DMABUF_CUDA);
    assert_int_equal(o->upgraded_from, PEN_MEM_CUDA_DEVICE);
    world_finish(&w);
    plan_ok(&w, can,
            PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", DMA RGB),
                 TO("s", "k")));
    o = &world_node(&w, "_bridge_1_CudaMemCopy")->output[0];
    assert_int_equal(o->kind, STK_DMABUF_CUDA);
    assert_int_equal(w.plan->h2d_per_frame, 1);
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST_PINNED);
    world_finish(&w);
}

// Nanoseconds in which one thread moves bytes, rounded up.
static int64_t rate_of(const struct pen_plan *plan, int64_t bytes)
{
    const int64_t rate = plan->profile.host_rate;
    return (bytes * 1000 + rate - 1) / rate;
}

PEN_TEST(a_pool_is_one_thing_and_the_second_gets_a_copy)
{
    struct world w;
    // Pinned for the upload, or a DMABUF for the sink: without export either
    // way costs two transfers in all, and the cheaper one is taken.
    plan_ok(
        &w, PEN_DMABUF_HOST,
        PIPE(MOD("s", "Source", RGB) "," MOD("c", "CudaWork", CUDA RGB) "," MOD(
                 "x", "Sink", CUDA RGB) "," MOD("k", "Sink", DMA RGB),
             TO("s", "c") "," TO("c", "x") "," TO("s", "k")));
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 1);
    assert_int_equal(world_inserted(&w, "MemTypeConversion"), 1);
    assert_int_equal(w.plan->h2h_per_frame, 1);
    assert_int_equal(w.plan->h2h_bytes_per_frame, 192 * 48);
    const struct stk_plan_node *copy = &w.plan->nodes[0];
    while (strcmp(copy->type, "MemTypeConversion") != 0)
        copy++;
    // Read and written once, by one thread.
    assert_int_equal(copy->cost_ns, rate_of(w.plan, 2 * 192 * 48));
    world_finish(&w);

    // The same where device memory could be exported: the sink may want to map
    // what it gets. If that is all there is, one upload serves both.
    static const char both[] =
        PIPE(MOD("s", "Source", RGB) "," MOD("c", "CudaWork", CUDA RGB) "," MOD(
                 "x", "Sink", CUDA RGB) "," MOD("k", "Sink", DMA RGB),
             TO("s", "c") "," TO("c", "x") "," TO("s", "k"));
    plan_ok(&w, PEN_DMABUF_HOST | PEN_DMABUF_EXPORT, both);
    assert_int_equal(w.plan->h2h_per_frame, 1);
    assert_int_equal(world_edge(&w, "k")->kind, STK_DMABUF_HOST);
    world_finish(&w);
    plan_ok(&w, PEN_DMABUF_EXPORT, both);
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_edge(&w, "k")->kind, STK_DMABUF_CUDA);
    world_finish(&w);

    // With import there is nothing to copy at all.
    plan_ok(
        &w, PEN_DMABUF_HOST | PEN_DMABUF_IMPORT,
        PIPE(MOD("s", "Source", RGB) "," MOD("c", "CudaWork", CUDA RGB) "," MOD(
                 "x", "Sink", CUDA RGB) "," MOD("k", "Sink", DMA RGB),
             TO("s", "c") "," TO("c", "x") "," TO("s", "k")));
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(world_edge(&w, "c")->kind, STK_DMABUF_HOST);
    // A device user of the blocks adds two.
    assert_int_equal(world_node(&w, "s")->output[0].blocks, 4 + 1 + 2);
    char *json = pen_plan_json(w.plan, w.issues);
    assert_non_null(strstr(json, "\"imported\""));
    pen_free(json);
    world_finish(&w);
}

PEN_TEST(nobody_elses_frames_become_dmabufs)
{
    struct world w;
    // The device could import, but nobody asked for a DMABUF; a sink that takes
    // everything has no wish either.
    plan_ok(&w, ALL_CAPS,
            PIPE(MOD("s", "Source", RGB) "," MOD("c", "Sink", CUDA RGB) "," MOD(
                     "k", "Sink", "'mem': 'HOST|DMABUF', " RGB),
                 TO("s", "c") "," TO("s", "k")));
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 1);
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST_PINNED);
    world_finish(&w);
}

PEN_TEST(the_pool_behind_forwarded_frames_is_upgraded)
{
    struct world w;
    plan_ok(
        &w, PEN_DMABUF_HOST,
        PIPE(MOD("s", "Source", RGB) "," MOD("p", "Pass", RGB) "," MOD(
                 "q", "Pass", RGB) "," MOD("k", "Sink",
                                           DMA RGB) "," MOD("h", "Sink", RGB),
             TO("s", "p") "," TO("p", "k") "," TO("s", "q") "," TO("q", "h")));
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(world_node(&w, "s")->output[0].kind, STK_DMABUF_HOST);
    assert_int_equal(world_node(&w, "p")->output[0].kind, STK_DMABUF_HOST);
    // What flows elsewhere from that pool is known, too.
    assert_int_equal(world_edge(&w, "h")->kind, STK_DMABUF_HOST);
    assert_int_equal(world_node(&w, "p")->output[0].blocks, 0);
    world_finish(&w);

    // Pinned for an upload already: the DMABUF behind a pass is a copy.
    plan_ok(&w, PEN_DMABUF_HOST,
            PIPE(MOD("s", "Source", RGB) "," MOD("p", "Pass", RGB) "," MOD(
                     "c", "Sink", CUDA RGB) "," MOD("k", "Sink", DMA RGB),
                 TO("s", "c") "," TO("s", "p") "," TO("p", "k")));
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_edge(&w, "k")->kind, STK_DMABUF_HOST);
    assert_int_equal(world_inserted(&w, "MemTypeConversion"), 1);
    assert_true(w.plan->optimal);
    world_finish(&w);

    // Frames of both kinds behind a join: neither can be promised.
    plan_ok(
        &w, PEN_DMABUF_HOST,
        PIPE(MOD("s", "Source", DMA RGB) "," MOD("t", "Source", RGB) "," MOD(
                 "j", "PassJoin", RGB) "," MOD("c", "Sink", CUDA RGB),
             TO("s", "j.input_1") "," TO("t", "j.input_2") "," TO("j", "c")));
    assert_int_equal(world_inserted(&w, "MemTypeConversion"), 1);
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 1);
    assert_int_equal(world_node(&w, "j")->output[0].mem, PEN_MEM_HOST);
    world_finish(&w);
}

PEN_TEST(a_conversion_that_lets_frames_through_promises_what_they_are)
{
    struct world w;
    // BGR frames go through: both kinds must be DMABUFs, so the source's are.
    plan_ok(&w, PEN_DMABUF_HOST,
            PIPE(MOD("s", "Source", "'formats': 'MONO|BGR'") "," MOD(
                     "k", "Sink", DMA "'formats': 'BGR'"),
                 TO("s", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    const struct stk_plan_node *c = world_node(&w, "_bridge_1_HostConvert");
    assert_true(c->forwards);
    assert_int_equal(c->output[0].kind, STK_DMABUF_HOST);
    assert_int_equal(world_node(&w, "s")->output[0].kind, STK_DMABUF_HOST);
    world_finish(&w);
}

PEN_TEST(a_hand_written_conversion_hands_through_what_lies_right)
{
    struct world w;
    plan_ok(&w, ALL_CAPS,
            PIPE(MOD("s", "Source", DMA RGB) "," MOD(
                     "m", "MemTypeConversion",
                     "'outputMemType': 'HOST'") "," MOD("k", "Sink", RGB),
                 TO("s", "m") "," TO("m", "k")));
    const struct stk_plan_node *m = world_node(&w, "m");
    assert_true(m->forwards);
    assert_int_equal(m->output[0].blocks, 0);
    assert_int_equal(m->cost_ns, 0);
    assert_int_equal(w.plan->h2h_per_frame, 0);
    // What waits behind it lies in the source's pool.
    assert_int_equal(world_node(&w, "s")->output[0].blocks, 4 + 4 + 1);
    world_finish(&w);

    // It asks, and the pools before it are made so: there is nothing to copy.
    plan_ok(&w, PEN_DMABUF_HOST,
            PIPE(MOD("s", "Source", RGB) "," MOD(
                     "m", "MemTypeConversion",
                     "'outputMemType': 'DMA'") "," MOD("k", "Sink", DMA RGB),
                 TO("s", "m") "," TO("m", "k")));
    assert_true(world_node(&w, "m")->forwards);
    assert_int_equal(world_node(&w, "s")->output[0].kind, STK_DMABUF_HOST);
    assert_int_equal(w.plan->h2h_per_frame, 0);
    world_finish(&w);
    plan_ok(&w, PEN_DMABUF_EXPORT,
            PIPE(MOD("s", "Source", CUDA RGB) "," MOD(
                     "m", "MemTypeConversion",
                     "'outputMemType': 'DMA'") "," MOD("k", "Sink", DMA RGB),
                 TO("s", "m") "," TO("m", "k")));
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(world_node(&w, "s")->output[0].kind, STK_DMABUF_CUDA);
    assert_int_equal(world_edge(&w, "k")->kind, STK_DMABUF_CUDA);
    world_finish(&w);
    plan_ok(
        &w, 0,
        PIPE(MOD("s", "Source", RGB) "," MOD(
                 "m", "MemTypeConversion",
                 "'outputMemType': 'DEVICE'") "," MOD("k", "Sink", CUDA RGB),
             TO("s", "m") "," TO("m", "k")));
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 1);
    assert_int_equal(world_node(&w, "m")->output[0].blocks, 0);
    world_finish(&w);

    // Where nothing may be inserted, it copies.
    plan_ok(&w, ALL_CAPS,
            SET("'auto_bridge': false",
                MOD("s", "Source", "'mem': 'HOST_PINNED', " RGB) "," MOD(
                    "m", "MemTypeConversion",
                    "'outputMemType': 'DMA'") "," MOD("k", "Sink", DMA RGB),
                TO("s", "m") "," TO("m", "k")));
    m = world_node(&w, "m");
    assert_false(m->forwards);
    assert_true(m->output[0].blocks > 0);
    assert_int_equal(w.plan->h2h_per_frame, 1);
    assert_int_equal(w.plan->h2h_bytes_per_frame, 192 * 48);
    world_finish(&w);
}

PEN_TEST(a_download_of_an_exported_buffer_counts_as_one)
{
    struct world w;
    plan_ok(&w, PEN_DMABUF_EXPORT,
            PIPE(MOD("s", "Source", CUDA RGB) "," MOD(
                     "k", "Sink", DMA RGB) "," MOD("h", "Sink", RGB),
                 TO("s", "k") "," TO("s", "h")));
    assert_int_equal(w.plan->d2h_per_frame, 1);
    assert_int_equal(w.plan->d2h_bytes_per_frame, 192 * 48);
    const struct stk_plan_edge *e = world_edge(&w, "_bridge_1_CudaMemCopy");
    assert_int_equal(e->kind, STK_DMABUF_CUDA);
    world_finish(&w);
}

PEN_TEST(without_bridges_the_refusal_says_what_to_write)
{
    struct world w;
    plan_on(&w, PEN_DMABUF_HOST,
            SET("'auto_bridge': false",
                MOD("s", "Source",
                    "'mem': 'HOST_PINNED', " RGB) "," MOD("k", "Sink", DMA RGB),
                TO("s", "k")));
    const struct pen_issue *issue = world_issue(&w, "E312");
    assert_non_null(issue);
    assert_non_null(strstr(issue->suggestion, "\"outputMemType\": \"DMA\""));
    world_finish(&w);
    // An upgrade is no bridge.
    plan_ok(&w, PEN_DMABUF_HOST,
            SET("'auto_bridge': false",
                MOD("s", "Source", RGB) "," MOD("k", "Sink", DMA RGB),
                TO("s", "k")));
    world_finish(&w);
}

PEN_TEST(the_budget_of_dmabufs_is_kept)
{
    struct world w;
    plan_on(&w, PEN_DMABUF_HOST,
            SET("'budget': { 'dmabuf': '20KiB' }",
                MOD("s", "Source", RGB) "," MOD("k", "Sink", DMA RGB),
                TO("s", "k")));
    assert_int_equal(w.status, PEN_E_LIMIT);
    const struct pen_issue *issue = world_issue(&w, "E510");
    assert_non_null(issue);
    assert_string_equal(issue->pointer, "/settings/budget/dmabuf");
    assert_non_null(strstr(issue->message, "`s.output`"));
    assert_non_null(
        strstr(issue->suggestion, "`queue.depth` in front of `k` from 4"));
    world_finish(&w);
    // By default they count with the host's memory.
    const struct pen_profile profile = {
        .name = "small",
        .cuda = true,
        .h2d_rate = 1,
        .d2h_rate = 1,
        .device_rate = 1,
        .host_rate = 1,
        .dmabuf = PEN_DMABUF_HOST,
        .host_memory = 64 << 10,
    };
    world_plan_with(&w,
                    PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", DMA RGB),
                         TO("s", "k")),
                    &(struct pen_plan_params){ .profile = &profile }, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_non_null(strstr(w.err.text, "DMABUF"));
    world_finish(&w);
}

PEN_TEST_MAIN(
    PEN_CASE(
        every_pair_goes_the_way_of_the_table_or_is_refused_with_its_reason),
    PEN_CASE(a_host_pool_is_made_of_dmabufs_and_host_pins_map_it),
    PEN_CASE(device_pools_are_exported_also_those_of_bridges),
    PEN_CASE(a_pool_is_one_thing_and_the_second_gets_a_copy),
    PEN_CASE(nobody_elses_frames_become_dmabufs),
    PEN_CASE(the_pool_behind_forwarded_frames_is_upgraded),
    PEN_CASE(a_conversion_that_lets_frames_through_promises_what_they_are),
    PEN_CASE(a_hand_written_conversion_hands_through_what_lies_right),
    PEN_CASE(a_download_of_an_exported_buffer_counts_as_one),
    PEN_CASE(without_bridges_the_refusal_says_what_to_write),
    PEN_CASE(the_budget_of_dmabufs_is_kept))
