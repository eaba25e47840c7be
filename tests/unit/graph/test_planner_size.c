// Pools, peaks, costs and budgets, and the completion of provisional plans.

#include "planner_world.h"
#include "src/graph/planner.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

// RGB of 64x48: rows of 192 bytes, a multiple of 64.
enum { FRAME = 192 * 48 };

static uint32_t blocks(const struct world *w, const char *id)
{
    return world_node(w, id)->output[0].blocks;
}

PEN_TEST(a_pool_holds_what_waits_what_is_used_and_what_is_made)
{
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", RGB),
                        TO("s", "k")));
    // Four wait, the one being made among them, one is consumed.
    assert_int_equal(blocks(&w, "s"), 5);
    assert_int_equal(world_node(&w, "s")->output[0].block_bytes, FRAME);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_HOST), 5 * FRAME);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_HOST_PINNED), 0);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_COUNT), 0);
    world_finish(&w);
    // The deepest of two queues, and one in the hands of the slower consumer.
    world_plan(&w, PIPE(MOD("s", "Source", RGB) "," MOD(
                            "a", "Sink", RGB) "," MOD("b", "Sink", RGB),
                        "{ 'from': 's', 'to': 'a', 'queue': { 'depth': 9 } },"
                        "{ 'from': 's', 'to': 'b', 'queue': { 'depth': 2 } }"));
    assert_int_equal(blocks(&w, "s"), 9 + 1);
    world_finish(&w);
    // An upload: two wait for it, it has one, and of two the copies are not
    // done. Behind it the user's depth.
    world_plan(&w, PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB),
                        TO("s", "k")));
    assert_int_equal(blocks(&w, "s"), 2 + 1 + 2);
    assert_int_equal(blocks(&w, "_bridge_1_CudaMemCopy"), 4 + 1);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_HOST_PINNED), 5 * FRAME);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_CUDA_DEVICE), 5 * FRAME);
    world_finish(&w);
}

PEN_TEST(depth_is_the_connections_then_the_consumers_then_the_settings)
{
    struct world w;
    world_plan(
        &w,
        SET("'queue_depth': 7",
            MOD("s", "Source", RGB) "," MOD(
                "a", "Sink",
                RGB ", 'queue': 3") "," MOD("b", "Sink",
                                            RGB ", 'queue': 3") "," MOD("c",
                                                                        "Sink",
                                                                        RGB),
            "{ 'from': 's', 'to': 'a', 'queue': { 'depth': 11, "
            "'policy': 'drop_oldest' } }," TO("s", "b") "," TO("s", "c")));
    assert_int_equal(world_edge(&w, "a")->depth, 11);
    assert_int_equal(world_edge(&w, "a")->policy, STK_DROP_OLDEST);
    assert_int_equal(world_edge(&w, "b")->depth, 3);
    assert_int_equal(world_edge(&w, "c")->depth, 7);
    world_finish(&w);
    // In front of a bridge no more than two, and no more than is asked for.
    world_plan(&w, PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB),
                        "{ 'from': 's', 'to': 'k', 'queue': { 'depth': 1, "
                        "'policy': 'drop_newest' } }"));
    assert_int_equal(world_edge(&w, "_bridge_1_CudaMemCopy")->depth, 1);
    assert_int_equal(world_edge(&w, "_bridge_1_CudaMemCopy")->policy,
                     STK_BLOCK);
    assert_int_equal(world_edge(&w, "k")->depth, 1);
    assert_int_equal(world_edge(&w, "k")->policy, STK_DROP_NEWEST);
    world_finish(&w);
}

PEN_TEST(frames_that_pass_through_are_held_by_the_pool_behind)
{
    struct world w;
    world_plan(&w,
               PIPE(MOD("s", "Source", RGB) "," MOD("p", "Pass", RGB) "," MOD(
                        "q", "Pass", RGB) "," MOD("k", "Sink", RGB),
                    TO("s", "p") "," TO("p", "q") "," TO("q", "k")));
    // Three queues of four, and one in the last hands: who passes a frame on
    // has it only while there is a place behind.
    assert_int_equal(blocks(&w, "s"), 3 * 4 + 1);
    assert_int_equal(blocks(&w, "p"), 0);
    assert_int_equal(blocks(&w, "q"), 0);
    // The size of forwarded frames is told, but counted once.
    assert_int_equal(world_node(&w, "q")->output[0].block_bytes, FRAME);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_HOST), 13 * FRAME);
    world_finish(&w);
    // A converter that lets frames through holds both pools.
    world_plan(&w, PIPE(MOD("s", "Source",
                            "'formats': 'RGB|MONO'") "," MOD("k", "Sink", RGB),
                        TO("s", "k")));
    assert_int_equal(blocks(&w, "_bridge_1_HostConvert"), 4 + 1);
    assert_int_equal(blocks(&w, "s"), 2 + 4 + 1);
    world_finish(&w);
}

PEN_TEST(queues_that_drop_hold_frames_of_any_age)
{
    static const struct {
        const char *first, *second, *third;  // queues
        uint32_t blocks;
    } cases[] = {
        // s to a sink, s to a module that passes on, that to a sink.
        { "'depth': 4", "'depth': 2", "'depth': 3", 5 + 1 },
        // The newest four, one taken earlier, one being made.
        { "'depth': 4, 'policy': 'drop_oldest'", "'depth': 1", "'depth': 1",
          4 + 1 + 1 },
        // Four of any age, one taken before; three in a row and their next.
        { "'depth': 4, 'policy': 'drop_newest'", "'depth': 2", "'depth': 1",
          4 + 1 + 3 + 1 },
        // What lies behind the drop is a row of its own.
        { "'depth': 1", "'depth': 4, 'policy': 'drop_oldest'", "'depth': 3",
          4 + 1 + (3 + 1) },
        // What lies in front of it is not.
        { "'depth': 1", "'depth': 4", "'depth': 3, 'policy': 'drop_oldest'",
          4 + 3 + 1 + 1 },
        { "'depth': 1", "'depth': 4", "'depth': 3, 'policy': 'drop_newest'",
          4 + 1 + (3 + 1) },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        char links[512];
        snprintf(links, sizeof(links),
                 "{ 'from': 's', 'to': 'k', 'queue': { %s } },"
                 "{ 'from': 's', 'to': 'p', 'queue': { %s } },"
                 "{ 'from': 'p', 'to': 'l', 'queue': { %s } }",
                 cases[i].first, cases[i].second, cases[i].third);
        char json[1024];
        snprintf(json, sizeof(json), PIPE("%s", "%s"),
                 MOD("s", "Source", RGB) "," MOD("p", "Pass", RGB) "," MOD(
                     "k", "Sink", RGB) "," MOD("l", "Sink", RGB),
                 links);
        world_plan(&w, json);
        assert_int_equal(blocks(&w, "s"), cases[i].blocks);
        world_finish(&w);
    }
}

PEN_TEST(what_the_device_reads_comes_back_later)
{
    struct world w;
    // Also behind modules that pass it on, and whoever else has it.
    world_plan(&w,
               PIPE(MOD("s", "Source", RGB) "," MOD("p", "Pass", RGB) "," MOD(
                        "k", "Sink", CUDA RGB) "," MOD("l", "Sink", RGB),
                    TO("s", "p") "," TO("p", "k") "," TO("s", "l")));
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(blocks(&w, "s"), 4 + 2 + 1 + 2);
    assert_int_equal(blocks(&w, "_bridge_1_CudaMemCopy"), 4 + 1);
    world_finish(&w);
    // What a copy writes for the host is done when the host has it.
    world_plan(&w, PIPE(MOD("s", "Source", CUDA RGB) "," MOD("k", "Sink", RGB),
                        TO("s", "k")));
    assert_int_equal(blocks(&w, "s"), 2 + 1);
    assert_int_equal(world_node(&w, "_bridge_1_CudaMemCopy")->output[0].mem,
                     PEN_MEM_HOST_PINNED);
    assert_int_equal(blocks(&w, "_bridge_1_CudaMemCopy"), 4 + 1);
    world_finish(&w);
}

PEN_TEST(an_output_that_nobody_takes_still_has_frames_to_write_to)
{
    struct world w;
    world_plan(&w, PIPE(MOD("i", "Source", RGB) "," MOD(
                            "s", "Split", RGB) "," MOD("k", "Sink", RGB),
                        TO("i", "s") "," TO("s.output_1", "k")));
    const struct stk_plan_output *o = &world_node(&w, "s")->output[1];
    assert_int_equal(o->blocks, 1);
    assert_int_equal(o->mem, PEN_MEM_HOST);
    world_finish(&w);
}

PEN_TEST(costs_are_bytes_by_rates_in_whole_nanoseconds)
{
    struct world w;
    struct pen_profile f = {
        .name = "round",
        .cuda = true,
        .h2d_rate = 1000,
        .d2h_rate = 500,
        .pageable_rate = 1,
        .device_rate = 4000,
        .host_rate = 100,
        .launch_ns = 7,
        .copy_ns = 11,
    };
    struct pen_plan_params params = { .profile = &f };
    world_plan_with(
        &w,
        PIPE(MOD("s", "Source", RGB) "," MOD("g", "CudaWork", CUDA RGB) "," MOD(
                 "k", "Sink", RGB),
             TO("s", "g") "," TO("g", "k")),
        &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(world_node(&w, "s")->cost_ns, FRAME * 10);
    assert_int_equal(world_node(&w, "_bridge_1_CudaMemCopy")->cost_ns,
                     FRAME + 11);
    assert_int_equal(world_node(&w, "g")->cost_ns, FRAME / 2 + 7);
    assert_int_equal(world_node(&w, "_bridge_2_CudaMemCopy")->cost_ns,
                     FRAME * 2 + 11);
    assert_int_equal(w.plan->cost_ns, FRAME * 10 + FRAME + 11 + FRAME / 2 + 7 +
                                          FRAME * 2 + 11 + FRAME * 10);
    assert_int_equal(w.plan->h2d_bytes_per_frame, FRAME);
    assert_int_equal(w.plan->d2h_bytes_per_frame, FRAME);
    world_finish(&w);
}

// --- budgets ----------------------------------------------------------------

PEN_TEST(a_plan_over_budget_is_refused_with_the_largest_users)
{
    struct world w;
    struct pen_plan_params params = { 0 };
    const char *text = PIPE(
        MOD("s", "Source", RGB) "," MOD("a", "CudaWork", CUDA RGB) "," MOD(
            "b", "CudaWork", CUDA RGB) "," MOD("c", "CudaWork",
                                               CUDA RGB) "," MOD("k", "Sink",
                                                                 CUDA RGB),
        TO("s", "a") "," TO("a", "b") "," TO(
            "b", "c") ","
                      "{ 'from': 'c', 'to': 'k', 'queue': { 'depth': 40 } }");
    const uint64_t peak = (uint64_t)(5 * 3 + 41) * FRAME;
    params.budget[PEN_MEM_CUDA_DEVICE] = peak - 1;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    const struct pen_issue *issue = world_issue(&w, "E510");
    assert_non_null(issue);
    assert_non_null(strstr(issue->message, "CUDA_DEVICE"));
    const char *first = strstr(issue->message, "`c.output`");
    assert_non_null(first);
    assert_non_null(strstr(first, "41 frames"));
    // One byte less is not the same number to the reader.
    char told_need[80];
    snprintf(told_need, sizeof(told_need),
             "%llu bytes are needed, the budget is %llu bytes",
             (unsigned long long)peak, (unsigned long long)peak - 1);
    assert_non_null(strstr(issue->message, told_need));
    // Two more, and no fourth.
    unsigned told = 0;
    for (const char *at = issue->message; (at = strstr(at, " frames of "));
         at++)
        told++;
    assert_int_equal(told, 3);
    assert_string_equal(w.err.text, issue->message);
    world_finish(&w);
    params.budget[PEN_MEM_CUDA_DEVICE] = peak;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_CUDA_DEVICE), peak);
    world_finish(&w);
}

PEN_TEST(the_budget_that_is_recommended_is_enough)
{
    struct world w;
    struct pen_plan_params params = { 0 };
    // 1105920 bytes, which are 1.05 MiB and some more.
    const uint64_t peak = (uint64_t)120 * FRAME;
    params.budget[PEN_MEM_CUDA_DEVICE] = 1;
    const char *text =
        PIPE(MOD("s", "Source", CUDA RGB) "," MOD("k", "Sink", CUDA RGB),
             "{ 'from': 's', 'to': 'k', 'queue': { 'depth': 119 } }");
    world_plan_with(&w, text, &params, NULL);
    const struct pen_issue *issue = world_issue(&w, "E510");
    assert_non_null(issue);
    char size[32] = "";
    uint64_t enough = 0;
    assert_int_equal(sscanf(issue->suggestion,
                            "raise `cuda_device` of the budget to %31[^,]",
                            size),
                     1);
    assert_true(stk_parse_size(size, &enough));
    world_finish(&w);
    params.budget[PEN_MEM_CUDA_DEVICE] = enough;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(w.plan->peak[PEN_MEM_CUDA_DEVICE], peak);
    world_finish(&w);
}

PEN_TEST(what_to_lower_for_a_budget_can_be_lowered)
{
    static const struct {
        const char *sink, *queue, *told;
    } cases[] = {
        { RGB, "'depth': 7",
          ", or lower `queue.depth` in front of `k` from 7 (9.00 KiB for each "
          "frame less) or the size of the frames" },
        { RGB, "'depth': 1", ", or make the frames of `s` smaller" },
        // What is in front of a bridge depends on what is behind it.
        { "'formats': 'MONO'", "'depth': 2",
          ", or lower `queue_depth` behind `s` (9.00 KiB for each frame less) "
          "or the size of its frames" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct world w;
        char json[512];
        snprintf(json, sizeof(json),
                 PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", "%s"),
                      "{ 'from': 's', 'to': 'k', 'queue': { %s } }"),
                 cases[i].sink, cases[i].queue);
        struct pen_plan_params params = { .budget[PEN_MEM_HOST] = 1 };
        world_plan_with(&w, json, &params, NULL);
        const char *told = world_issue(&w, "E510")->suggestion;
        assert_non_null(strchr(told, ','));
        assert_string_equal(strchr(told, ','), cases[i].told);
        world_finish(&w);
    }
}

PEN_TEST(the_files_budget_holds_and_is_pointed_at)
{
    struct world w;
    const char *text =
        SET("'budget': { 'host': '32KiB' }",
            MOD("s", "Source", RGB) "," MOD("k", "Sink", RGB), TO("s", "k"));
    world_plan_with(&w, text, NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    const struct pen_issue *issue = world_issue(&w, "E510");
    assert_string_equal(issue->pointer, "/settings/budget/host");
    assert_int_equal(issue->line, 1);
    world_finish(&w);
    // What the caller says goes before the file.
    struct pen_plan_params params = { .budget[PEN_MEM_HOST] = 1 << 20 };
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    world_finish(&w);
}

PEN_TEST(default_budgets_are_half_the_host_and_nine_tenths_of_the_device)
{
    struct world w;
    struct pen_profile f = *pen_profile_builtin("generic-cuda");
    struct pen_plan_params params = { .profile = &f };
    f.host_memory = 1000 * FRAME;
    f.cuda_memory = 1000 * FRAME;
    const char *text = PIPE(
        MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB), TO("s", "k"));
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(w.plan->budget[PEN_MEM_HOST], 500 * FRAME);
    assert_int_equal(w.plan->budget[PEN_MEM_HOST_PINNED], 500 * FRAME);
    assert_int_equal(w.plan->budget[PEN_MEM_CUDA_DEVICE], 900 * FRAME);
    world_finish(&w);
    f.cuda_memory = 5 * FRAME;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    world_finish(&w);
    // The two host types share one half: 5 pageable and 5 pinned frames.
    f.cuda_memory = 1000 * FRAME;
    f.host_memory = 2 * 9 * FRAME;
    const char *both =
        PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB) "," MOD(
                 "t", "Source", RGB) "," MOD("l", "Sink", RGB),
             TO("s", "k") "," TO("t", "l"));
    world_plan_with(&w, both, &params, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_non_null(
        strstr(world_issue(&w, "E510")->message, "HOST+HOST_PINNED"));
    world_finish(&w);
    f.host_memory = 2 * 10 * FRAME;
    world_plan_with(&w, both, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    world_finish(&w);
}

PEN_TEST(budgets_of_transfers_are_enforced_by_direction)
{
    struct world w;
    const char *text =
        PIPE(MOD("s", "Source", RGB) "," MOD("g", "CudaWork", CUDA RGB) "," MOD(
                 "k", "Sink", RGB),
             TO("s", "g") "," TO("g", "k"));
    struct pen_plan_params params = { .h2d_limited = true };
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_non_null(
        strstr(world_issue(&w, "E511")->message, "`_bridge_1_CudaMemCopy`"));
    world_finish(&w);
    params.h2d_per_frame = 1;
    params.d2h_limited = true;
    world_plan_with(&w, text, &params, NULL);
    assert_non_null(strstr(world_issue(&w, "E511")->message, "to the host"));
    world_finish(&w);
    params.d2h_per_frame = 1;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    world_finish(&w);
    // In the file.
    world_plan_with(&w,
                    SET("'budget': { 'h2d_per_frame': 0 }",
                        MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB),
                        TO("s", "k")),
                    NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_string_equal(world_issue(&w, "E511")->pointer,
                        "/settings/budget/h2d_per_frame");
    world_finish(&w);
    // A limit of one direction leaves the file's of the other.
    const char *limited = SET(
        "'budget': { 'h2d_per_frame': 0, 'd2h_per_frame': 0 }",
        MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB), TO("s", "k"));
    params = (struct pen_plan_params){ .d2h_limited = true };
    world_plan_with(&w, limited, &params, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    world_finish(&w);
    params =
        (struct pen_plan_params){ .h2d_limited = true, .h2d_per_frame = 1 };
    world_plan_with(&w, limited, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    world_finish(&w);
}

PEN_TEST(pictures_beyond_the_pixel_limit_are_refused)
{
    struct world w;
    world_plan_with(
        &w,
        PIPE(MOD("s", "Source",
                 "'width': 32000, 'height': 16001") "," MOD("k", "Sink", RGB),
             TO("s", "k")),
        NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_non_null(
        strstr(world_issue(&w, "E512")->message, "512 million pixels"));
    world_finish(&w);
    struct pen_plan_params params = { .budget[PEN_MEM_HOST] = UINT64_MAX };
    world_plan_with(
        &w,
        PIPE(MOD("s", "Source",
                 "'width': 32000, 'height': 16000") "," MOD("k", "Sink", RGB),
             TO("s", "k")),
        &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    world_finish(&w);
}

// --- completing a provisional plan ------------------------------------------

// A reader of unknown files, a decoder, a blur on the device, an encoder.
static void open_plan(struct world *w, uint64_t device_budget)
{
    struct pen_plan_params params = {
        .budget[PEN_MEM_CUDA_DEVICE] = device_budget,
    };
    world_plan_with(
        w,
        PIPE(
            MOD("r", "Reader", "") "," MOD("d", "Decoder", "'formats': 'RGB|MONO'") "," MOD(
                "g", "CudaWork",
                CUDA
                "'formats': 'RGB|MONO'") "," MOD("e", "Encoder",
                                                 "'formats': 'RGB|MONO'") "," MOD("k",
                                                                                  "AnySink",
                                                                                  "'formats': 'ALL'"),
            TO("r", "d") "," TO("d", "g") "," TO("g", "e") "," TO("e", "k")),
        &params, NULL);
    assert_int_equal(w->status, PEN_OK);
    assert_true(w->plan->provisional);
}

static enum pen_status settle(struct world *w, const char *id,
                              const struct pen_caps *caps)
{
    return stk_plan_settle(w->plan, world_number(w, id), 0, caps, &w->err);
}

static struct pen_caps picture(enum pen_format format, int32_t width,
                               int32_t height)
{
    return (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = format,
        .width = width,
        .height = height,
    };
}

static struct pen_caps file(size_t bytes)
{
    return (struct pen_caps){
        .kind = PEN_KIND_ENCODED_IMAGE,
        .codec = PEN_CODEC_JPEG,
        .bytes = bytes,
    };
}

PEN_TEST(the_first_frames_complete_a_plan)
{
    struct world w;
    open_plan(&w, 0);
    assert_int_equal(world_node(&w, "d")->output[0].block_bytes, 0);
    struct pen_caps caps = file(1000);
    assert_int_equal(settle(&w, "r", &caps), PEN_OK);
    assert_int_equal(world_node(&w, "r")->output[0].caps.bytes, 1000);
    assert_true(w.plan->provisional);
    caps = picture(PEN_FMT_MONO, 64, 48);
    assert_int_equal(settle(&w, "d", &caps), PEN_OK);
    assert_false(w.plan->provisional);
    // Grey came first, but colour may follow: pools are for the largest.
    assert_int_equal(world_node(&w, "d")->output[0].block_bytes, FRAME);
    assert_int_equal(world_edge(&w, "e")->caps.width, 64);
    assert_int_equal(world_edge(&w, "e")->formats,
                     PEN_FMT_BIT(PEN_FMT_RGB) | PEN_FMT_BIT(PEN_FMT_MONO));
    assert_int_equal(world_node(&w, "e")->output[0].caps.bytes, 64 * 48 * 3);
    assert_int_equal(pen_plan_peak(w.plan, PEN_MEM_CUDA_DEVICE),
                     (5 + 3) * FRAME);
    assert_true(w.plan->cost_ns > 0);
    assert_int_equal(w.plan->h2d_bytes_per_frame, FRAME);
    world_finish(&w);
}

// Everything that settling may change.
static char *snapshot(const struct pen_plan *plan)
{
    char *text = pen_plan_text(plan);
    assert_non_null(text);
    return text;
}

PEN_TEST(completing_gives_the_plan_that_knowing_would_have_given)
{
    struct world w, known;
    const char *text = PIPE(
        MOD("s", "Source", "'width': %d, 'height': %d") "," MOD(
            "g", "CudaWork",
            CUDA RGB) "," MOD("h", "Work", RGB) "," MOD("k", "Sink",
                                                        "'formats': 'NV12'"),
        TO("s", "g") "," TO("s", "h") "," TO("g", "k"));
    char json[1024];
    snprintf(json, sizeof(json), text, 0, 0);
    world_plan(&w, json);
    assert_true(w.plan->provisional);
    // In two steps, the second wider and lower.
    struct pen_caps caps = picture(PEN_FMT_RGB, 100, 200);
    assert_int_equal(settle(&w, "s", &caps), PEN_OK);
    caps = picture(PEN_FMT_RGB, 300, 10);
    assert_int_equal(settle(&w, "s", &caps), PEN_OK);
    snprintf(json, sizeof(json), text, 300, 200);
    world_plan(&known, json);
    for (unsigned m = 0; m < PEN_MEM_COUNT; m++)
        assert_int_equal(w.plan->peak[m], known.plan->peak[m]);
    assert_int_equal(w.plan->cost_ns, known.plan->cost_ns);
    assert_int_equal(w.plan->h2d_bytes_per_frame,
                     known.plan->h2d_bytes_per_frame);
    assert_int_equal(w.plan->node_count, known.plan->node_count);
    for (uint32_t n = 0; n < w.plan->node_count; n++) {
        const struct stk_plan_node *a = &w.plan->nodes[n];
        const struct stk_plan_node *b = &known.plan->nodes[n];
        assert_string_equal(a->id, b->id);
        assert_int_equal(a->cost_ns, b->cost_ns);
        for (uint32_t o = 0; o < a->outputs; o++) {
            assert_int_equal(a->output[o].block_bytes,
                             b->output[o].block_bytes);
            assert_int_equal(a->output[o].blocks, b->output[o].blocks);
        }
    }
    world_finish(&w);
    world_finish(&known);
}

PEN_TEST(frames_that_fit_change_nothing_and_negotiate_nothing)
{
    struct world w;
    open_plan(&w, 0);
    struct pen_caps caps = picture(PEN_FMT_RGB, 64, 48);
    assert_int_equal(settle(&w, "d", &caps), PEN_OK);
    char *before = snapshot(w.plan);
    world_negotiated = 0;
    caps = picture(PEN_FMT_MONO, 63, 47);
    assert_int_equal(settle(&w, "d", &caps), PEN_OK);
    assert_int_equal(world_negotiated, 0);
    char *after = snapshot(w.plan);
    assert_string_equal(after, before);
    pen_free(before);
    pen_free(after);
    // A larger one grows what lies behind.
    caps = picture(PEN_FMT_RGB, 128, 48);
    assert_int_equal(settle(&w, "d", &caps), PEN_OK);
    assert_int_equal(world_node(&w, "d")->output[0].block_bytes, 2 * FRAME);
    assert_int_equal(world_node(&w, "g")->output[0].block_bytes, 2 * FRAME);
    world_finish(&w);
}

PEN_TEST(a_frame_beyond_the_budget_is_refused_and_the_plan_stays)
{
    struct world w;
    open_plan(&w, 8 * FRAME);
    struct pen_caps caps = picture(PEN_FMT_RGB, 64, 48);
    assert_int_equal(settle(&w, "d", &caps), PEN_OK);
    char *before = snapshot(w.plan);
    caps = picture(PEN_FMT_RGB, 64, 49);
    assert_int_equal(settle(&w, "d", &caps), PEN_E_LIMIT);
    assert_non_null(strstr(w.err.text, "CUDA_DEVICE"));
    assert_non_null(strstr(w.err.text, "`g.output`"));
    assert_non_null(
        strstr(w.err.text, "; raise `cuda_device` of the budget to "));
    char *after = snapshot(w.plan);
    assert_string_equal(after, before);
    pen_free(after);
    // A frame of a size that no picture may have.
    caps = picture(PEN_FMT_RGB, INT32_MAX, INT32_MAX);
    assert_int_equal(settle(&w, "d", &caps), PEN_E_LIMIT);
    after = snapshot(w.plan);
    assert_string_equal(after, before);
    pen_free(after);
    pen_free(before);
    // It can still grow within the budget afterwards.
    caps = picture(PEN_FMT_RGB, 32, 48);
    assert_int_equal(settle(&w, "d", &caps), PEN_OK);
    world_finish(&w);
}

PEN_TEST(a_first_frame_is_not_staged_and_that_is_told)
{
    struct world w;
    world_plan(&w, SET("'budget': { 'host_pinned': '20KiB' }, "
                       "'pinned_limit': 'stage'",
                       MOD("s", "Source", "'width': 0, 'height': 0") "," MOD(
                           "k", "Sink", CUDA RGB),
                       TO("s", "k")));
    assert_true(w.plan->provisional);
    struct pen_caps caps = picture(PEN_FMT_RGB, 64, 48);
    assert_int_equal(settle(&w, "s", &caps), PEN_E_LIMIT);
    // Five frames of 9 KiB.
    assert_non_null(strstr(w.err.text,
                           "; raise `host_pinned` of the budget to 45.00 KiB "
                           "(\"pinned_limit\": \"stage\" goes by the sizes "
                           "that are known before the start)"));
    world_finish(&w);
}

// 10 bytes a column and channel on the host, 3 a row on the device.
static void tables(const void *params, const struct pen_caps *in,
                   const struct pen_caps *out, uint64_t bytes[PEN_MEM_COUNT])
{
    (void)out;
    (void)params;
    const struct pen_format_info *info = pen_format_info(in->format);
    bytes[PEN_MEM_HOST] =
        10 * (uint64_t)in->width * (info ? info->channels : 0);
    bytes[PEN_MEM_CUDA_DEVICE] = 3 * (uint64_t)in->height;
}

// What the workspace of a module "g" adds to the plan.
static uint64_t added(const struct world *w, const struct world *without,
                      enum pen_mem_type mem)
{
    return w->plan->peak[mem] - without->plan->peak[mem];
}

PEN_TEST(workspaces_are_planned_for_the_largest_input)
{
    static struct pen_module_class tabled;
    for (unsigned i = 0; i < WORLD_COUNT; i++)
        if (strcmp(world_classes[i].name, "Work") == 0)
            tabled = world_classes[i];
    tabled.name = "Tabled";
    tabled.ops.workspace = tables;
    world_extra[0] = &tabled;
    struct world w, without;
    char json[2][1024];
    for (int k = 0; k < 2; k++)
        snprintf(json[k], sizeof(json[k]),
                 PIPE(MOD("s", "Source", "'width': %d, 'height': %d") "," MOD(
                          "g", "%s", RGB) "," MOD("k", "Sink", ""),
                      TO("s", "g") "," TO("g", "k")),
                 0, 0, k ? "Tabled" : "Work");
    world_plan(&without, json[0]);
    world_plan(&w, json[1]);
    assert_int_equal(added(&w, &without, PEN_MEM_HOST), 0);

    struct pen_caps caps = picture(PEN_FMT_RGB, 64, 48);
    assert_int_equal(settle(&without, "s", &caps), PEN_OK);
    assert_int_equal(settle(&w, "s", &caps), PEN_OK);
    // Rounded up, with the header in front.
    assert_int_equal(added(&w, &without, PEN_MEM_HOST), 1920 + 64);
    assert_int_equal(added(&w, &without, PEN_MEM_CUDA_DEVICE), 3 * 48);
    // Smaller ones take nothing back, larger ones add.
    caps = picture(PEN_FMT_RGB, 65, 10);
    assert_int_equal(settle(&without, "s", &caps), PEN_OK);
    assert_int_equal(settle(&w, "s", &caps), PEN_OK);
    assert_int_equal(added(&w, &without, PEN_MEM_HOST), 1984 + 64);
    assert_int_equal(added(&w, &without, PEN_MEM_CUDA_DEVICE), 3 * 48);
    // A refusal leaves it as it was.
    caps = picture(PEN_FMT_RGB, INT32_MAX, INT32_MAX);
    assert_int_equal(settle(&w, "s", &caps), PEN_E_LIMIT);
    assert_int_equal(world_node(&w, "g")->workspace[PEN_MEM_HOST], 1950);
    assert_int_equal(added(&w, &without, PEN_MEM_HOST), 1984 + 64);
    world_finish(&w);
    world_finish(&without);
    world_extra[0] = NULL;
}

PEN_TEST(united_caps_hold_both_and_claim_no_more)
{
    struct pen_caps a = picture(PEN_FMT_RGB, 100, 20);
    struct pen_caps b = picture(PEN_FMT_MONO, 50, 40);
    a.matrix = PEN_MATRIX_BT601;
    b.matrix = PEN_MATRIX_BT709;
    a.range = b.range = PEN_RANGE_FULL;
    struct pen_caps both = a;
    stk_caps_unite(&both, &b, true);
    assert_int_equal(both.width, 100);
    assert_int_equal(both.height, 40);
    assert_int_equal(both.format, PEN_FMT_NONE);
    assert_int_equal(both.formats,
                     PEN_FMT_BIT(PEN_FMT_RGB) | PEN_FMT_BIT(PEN_FMT_MONO));
    assert_int_equal(both.matrix, PEN_MATRIX_UNKNOWN);
    assert_int_equal(both.range, PEN_RANGE_FULL);
    // One that may have any size leaves it open, unless it is to be filled in.
    b.width = b.height = 0;
    both = a;
    stk_caps_unite(&both, &b, true);
    assert_int_equal(both.width, 0);
    assert_int_equal(both.height, 0);
    both = a;
    stk_caps_unite(&both, &b, false);
    assert_int_equal(both.width, 100);
    both = b;
    stk_caps_unite(&both, &a, false);
    assert_int_equal(both.height, 20);
    both = file(10);
    const struct pen_caps open = file(0);
    stk_caps_unite(&both, &open, true);
    assert_int_equal(both.bytes, 0);
}

PEN_TEST(what_contradicts_the_plan_is_refused)
{
    struct world w;
    open_plan(&w, 0);
    char *before = snapshot(w.plan);
    struct pen_caps caps = picture(PEN_FMT_NV12, 64, 48);
    assert_int_equal(settle(&w, "d", &caps), PEN_E_CONFIG);
    assert_non_null(strstr(w.err.text, "NV12"));
    caps = file(100);
    assert_int_equal(settle(&w, "d", &caps), PEN_E_CONFIG);
    assert_int_equal(
        stk_plan_settle(w.plan, w.plan->node_count, 0, &caps, &w.err),
        PEN_E_ARG);
    char *after = snapshot(w.plan);
    assert_string_equal(after, before);
    pen_free(before);
    pen_free(after);
    world_finish(&w);
}

static enum pen_status tells_nothing(const void *params,
                                     const struct pen_caps *in,
                                     struct pen_caps *out,
                                     struct pen_error *err)
{
    (void)params;
    (void)in;
    (void)err;
    *out = (struct pen_caps){ .kind = PEN_KIND_RAW_IMAGE };
    return PEN_OK;
}

PEN_TEST(a_format_that_nobody_knew_of_must_be_taken)
{
    static const struct pen_pin pins[] = {
        { .name = "output",
          .help = "Pictures.",
          .kinds = PEN_KIND_BIT(PEN_KIND_FRAME),
          .mem = PEN_MEM_BIT(PEN_MEM_HOST) },
        { 0 },
    };
    static struct pen_module_class vague;
    for (unsigned i = 0; i < WORLD_COUNT; i++)
        if (strcmp(world_classes[i].name, "Source") == 0)
            vague = world_classes[i];
    vague.name = "Vague";
    vague.outputs = pins;
    vague.ops.narrow = NULL;
    vague.ops.negotiate = tells_nothing;
    world_extra[0] = &vague;
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Vague", "") "," MOD("k", "Sink",
                                                      "'formats': 'MONO|NV12'"),
                        TO("s", "k")));
    assert_int_equal(world_edge(&w, "k")->formats, 0);
    char *before = snapshot(w.plan);
    struct pen_caps caps = picture(PEN_FMT_RGB, 64, 48);
    assert_int_equal(settle(&w, "s", &caps), PEN_E_CONFIG);
    assert_non_null(strstr(w.err.text, "`k.input` takes MONO|NV12, and RGB"));
    char *after = snapshot(w.plan);
    assert_string_equal(after, before);
    caps = picture(PEN_FMT_NV12, 64, 48);
    assert_int_equal(settle(&w, "s", &caps), PEN_OK);
    pen_free(before);
    pen_free(after);
    world_finish(&w);
    world_extra[0] = NULL;
}

PEN_TEST(a_consumer_that_cannot_take_a_size_refuses_it_for_all)
{
    struct world w;
    world_plan(
        &w,
        PIPE(MOD("s", "Source", "'width': 0, 'height': 0") "," MOD(
                 "a", "Work",
                 RGB) "," MOD("b", "Work",
                              RGB ", 'limit': 100") "," MOD("k", "Sink", RGB),
             TO("s", "a") "," TO("a", "b") "," TO("b", "k")));
    struct pen_caps caps = picture(PEN_FMT_RGB, 100, 10);
    assert_int_equal(settle(&w, "s", &caps), PEN_OK);
    char *before = snapshot(w.plan);
    caps.width = 101;
    assert_int_equal(settle(&w, "s", &caps), PEN_E_LIMIT);
    assert_non_null(strstr(w.err.text, "`b`"));
    char *after = snapshot(w.plan);
    assert_string_equal(after, before);
    pen_free(before);
    pen_free(after);
    world_finish(&w);
}

PEN_TEST_MAIN(
    PEN_CASE(a_pool_holds_what_waits_what_is_used_and_what_is_made),
    PEN_CASE(depth_is_the_connections_then_the_consumers_then_the_settings),
    PEN_CASE(frames_that_pass_through_are_held_by_the_pool_behind),
    PEN_CASE(queues_that_drop_hold_frames_of_any_age),
    PEN_CASE(what_the_device_reads_comes_back_later),
    PEN_CASE(an_output_that_nobody_takes_still_has_frames_to_write_to),
    PEN_CASE(costs_are_bytes_by_rates_in_whole_nanoseconds),
    PEN_CASE(a_plan_over_budget_is_refused_with_the_largest_users),
    PEN_CASE(the_budget_that_is_recommended_is_enough),
    PEN_CASE(what_to_lower_for_a_budget_can_be_lowered),
    PEN_CASE(the_files_budget_holds_and_is_pointed_at),
    PEN_CASE(default_budgets_are_half_the_host_and_nine_tenths_of_the_device),
    PEN_CASE(budgets_of_transfers_are_enforced_by_direction),
    PEN_CASE(pictures_beyond_the_pixel_limit_are_refused),
    PEN_CASE(the_first_frames_complete_a_plan),
    PEN_CASE(completing_gives_the_plan_that_knowing_would_have_given),
    PEN_CASE(frames_that_fit_change_nothing_and_negotiate_nothing),
    PEN_CASE(a_frame_beyond_the_budget_is_refused_and_the_plan_stays),
    PEN_CASE(a_first_frame_is_not_staged_and_that_is_told),
    PEN_CASE(workspaces_are_planned_for_the_largest_input),
    PEN_CASE(united_caps_hold_both_and_claim_no_more),
    PEN_CASE(what_contradicts_the_plan_is_refused),
    PEN_CASE(a_format_that_nobody_knew_of_must_be_taken),
    PEN_CASE(a_consumer_that_cannot_take_a_size_refuses_it_for_all))
