// Placement: which bridges appear where, and which do not.

#include "planner_world.h"

unsigned world_negotiated, world_probed;
struct pen_probe world_probe;
enum pen_status world_probe_status;

PEN_TEST(a_host_output_that_is_uploaded_becomes_pinned)
{
    struct world w;
    world_plan(
        &w, PIPE(MOD("s", "Source", RGB) "," MOD(
                     "g", "CudaWork", CUDA RGB) "," MOD("k", "Sink", CUDA RGB),
                 TO("s", "g") "," TO("g", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    const struct stk_plan_node *s = world_node(&w, "s");
    assert_int_equal(s->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(s->output[0].upgraded_from, PEN_MEM_HOST);
    const struct stk_plan_node *b = world_node(&w, "_bridge_1_CudaMemCopy");
    assert_int_equal(((const struct world_copy *)b->params)->kind, WORLD_H2D);
    assert_string_equal(b->reason, "pin `input` of `g` needs CUDA_DEVICE; "
                                   "`s.output` gives HOST");
    assert_string_equal(b->serves, "s.output -> g.input");
    assert_int_equal(world_edge(&w, "_bridge_1_CudaMemCopy")->mem,
                     PEN_MEM_HOST_PINNED);
    assert_int_equal(world_edge(&w, "g")->mem, PEN_MEM_CUDA_DEVICE);
    assert_int_equal(w.plan->h2d_per_frame, 1);
    assert_int_equal(w.plan->d2h_per_frame, 0);
    assert_true(w.plan->needs_device);
    assert_true(w.plan->optimal);
    world_finish(&w);
}

PEN_TEST(a_pinned_source_needs_one_copy_and_no_upgrade)
{
    struct world w;
    world_plan(
        &w, PIPE(MOD("s", "Source", "'mem': 'HOST_PINNED'") "," MOD(
                     "g", "CudaWork", CUDA RGB) "," MOD("k", "Sink", CUDA RGB),
                 TO("s", "g") "," TO("g", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 1);
    assert_int_equal(world_node(&w, "s")->output[0].upgraded_from,
                     PEN_MEM_NONE);
    world_finish(&w);
}

PEN_TEST(bridges_take_no_name_of_the_file)
{
    struct world w;
    world_plan(&w,
               PIPE(MOD("s", "Source", RGB) "," MOD(
                        "_bridge_1_CudaMemCopy", "CudaWork",
                        CUDA RGB) "," MOD("_bridge_3_CudaMemCopy", "Sink", RGB),
                    TO("s", "_bridge_1_CudaMemCopy") "," TO(
                        "_bridge_1_CudaMemCopy", "_bridge_3_CudaMemCopy")));
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(w.plan->node_count, 5);
    for (uint32_t i = 0; i < w.plan->node_count; i++)
        for (uint32_t j = 0; j < i; j++)
            assert_string_not_equal(w.plan->nodes[i].id, w.plan->nodes[j].id);
    assert_true(world_node(&w, "_bridge_2_CudaMemCopy")->inserted);
    assert_true(world_node(&w, "_bridge_4_CudaMemCopy")->inserted);
    assert_false(world_node(&w, "_bridge_1_CudaMemCopy")->inserted);
    world_finish(&w);
}

PEN_TEST(a_copy_of_the_user_is_kept_and_gets_pinned_frames)
{
    struct world w;
    world_plan(
        &w,
        PIPE(
            MOD("s", "Source", RGB) "," MOD(
                "up", "CudaMemCopy",
                "'kind': 'HostToDevice'") "," MOD("g", "CudaWork",
                                                  CUDA
                                                      RGB) "," MOD("dn",
                                                                   "CudaMemCop"
                                                                   "y",
                                                                   "'kind': "
                                                                   "'DeviceToHo"
                                                                   "st'") "," MOD("k",
                                                                                  "Sink",
                                                                                  RGB),
            TO("s", "up") "," TO("up", "g") "," TO("g", "dn") "," TO("dn",
                                                                     "k")));
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(world_edge(&w, "up")->mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_node(&w, "s")->output[0].upgraded_from,
                     PEN_MEM_HOST);
    // What the device writes on the host is pinned.
    assert_int_equal(world_edge(&w, "k")->mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(w.plan->h2d_per_frame, 1);
    assert_int_equal(w.plan->d2h_per_frame, 1);
    world_finish(&w);
}

PEN_TEST(one_frame_for_three_device_modules_is_uploaded_once)
{
    struct world w;
    world_plan(
        &w,
        PIPE(
            MOD("s", "Source", RGB) "," MOD("a", "CudaWork", CUDA RGB) "," MOD(
                "b", "CudaWork",
                CUDA
                    RGB) "," MOD("c", "CudaWork",
                                 CUDA
                                     RGB) "," MOD("k1", "Sink",
                                                  CUDA
                                                      RGB) "," MOD("k2", "Sink",
                                                                   CUDA
                                                                       RGB) "," MOD("k3",
                                                                                    "Sink",
                                                                                    CUDA
                                                                                        RGB),
            TO("s", "a") "," TO("s", "b") "," TO("s", "c") "," TO(
                "a", "k1") "," TO("b", "k2") "," TO("c", "k3")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(w.plan->h2d_per_frame, 1);
    assert_string_equal(
        world_node(&w, "_bridge_1_CudaMemCopy")->serves,
        "s.output -> a.input, s.output -> b.input, s.output -> c.input");
    world_finish(&w);
}

PEN_TEST(three_device_modules_in_a_row_cost_one_upload_and_one_download)
{
    struct world w;
    world_plan(
        &w,
        PIPE(MOD("s", "Source", RGB) "," MOD("a", "CudaWork", CUDA RGB) "," MOD(
                 "b", "CudaWork",
                 CUDA RGB) "," MOD("c", "CudaWork",
                                   CUDA RGB) "," MOD("k", "Sink", RGB),
             TO("s", "a") "," TO("a", "b") "," TO("b", "c") "," TO("c", "k")));
    assert_int_equal(world_inserted(&w, NULL), 2);
    assert_int_equal(w.plan->h2d_per_frame, 1);
    assert_int_equal(w.plan->d2h_per_frame, 1);
    assert_int_equal(world_edge(&w, "k")->mem, PEN_MEM_HOST_PINNED);
    world_finish(&w);
}

PEN_TEST(a_format_that_is_taken_is_not_converted)
{
    struct world w;
    // The second consumer makes a conversion necessary; the first takes the
    // frames as they are all the same.
    world_plan(&w, PIPE(MOD("s", "Source", "'formats': 'NV12'") "," MOD(
                            "a", "Sink", ALL) "," MOD("b", "Sink", RGB),
                        TO("s", "a") "," TO("s", "b")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_edge(&w, "a")->caps.format, PEN_FMT_NV12);
    assert_int_equal(world_edge(&w, "b")->caps.format, PEN_FMT_RGB);
    world_finish(&w);
}

PEN_TEST(a_device_picture_for_the_host_stays_what_it_is)
{
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Source", CUDA RGB) "," MOD("k", "Sink", ALL),
                        TO("s", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_edge(&w, "k")->caps.format, PEN_FMT_RGB);
    world_finish(&w);
}

PEN_TEST(information_is_kept_before_cost)
{
    struct world w;
    // Grey is a third of the bytes, yet colour is kept.
    world_plan(&w, PIPE(MOD("s", "Source", "'formats': 'NV12'") "," MOD(
                            "k", "Sink", "'formats': 'MONO|RGB'"),
                        TO("s", "k")));
    assert_int_equal(world_edge(&w, "k")->caps.format, PEN_FMT_RGB);
    world_finish(&w);
    // RGB would round; the finer YUV does not.
    world_plan(&w, PIPE(MOD("s", "Source", "'formats': 'YUV420'") "," MOD(
                            "k", "Sink", "'formats': 'RGB|YUV444'"),
                        TO("s", "k")));
    assert_int_equal(world_edge(&w, "k")->caps.format, PEN_FMT_YUV444);
    assert_string_equal(world_node(&w, "_bridge_1_HostConvert")->loss, "");
    world_finish(&w);
    // Alpha is kept where it can be.
    world_plan(&w, PIPE(MOD("s", "Source", "'formats': 'RGBA'") "," MOD(
                            "k", "Sink", "'formats': 'RGB|BGRA'"),
                        TO("s", "k")));
    assert_int_equal(world_edge(&w, "k")->caps.format, PEN_FMT_BGRA);
    world_finish(&w);
    // Of two chroma losses the smaller; full range is kept before chroma is
    // not: range comes after chroma in the order.
    world_plan(&w, PIPE(MOD("s", "Source",
                            RGB) "," MOD("k", "Sink", "'formats': 'NV12|UYVY'"),
                        TO("s", "k")));
    assert_int_equal(world_edge(&w, "k")->caps.format, PEN_FMT_UYVY);
    world_finish(&w);
}

PEN_TEST(each_bridge_tells_what_it_loses)
{
    // clang-format off
    static const struct { const char *from, *to, *loss; } cases[] = {
        { "RGBA", "RGB",  "alpha" },
        { "RGB",  "MONO", "colour" },
        { "BGRA", "MONO", "alpha and colour" },
        { "RGB",  "BGR",  "" },
        { "MONO", "RGB",  "" },
        { "NV12", "RGB",  "rounding (YUV to RGB)" },
        { "RGB",  "NV12", "chroma to half width and half height, full to "
                          "limited range, rounding (RGB to YUV)" },
        { "YUV444", "UYVY", "chroma to half width" },
        { "YUV411_I", "YUV420", "chroma to half height" },
        { "BAYERBG10", "RGB", "10 bits to 8" },
        { "RGBA|MONO", "RGB", "of RGBA: alpha" },
        { "MONO", "NV12", "full to limited range" },
    };
    // clang-format on
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char text[512];
        struct world w;
        snprintf(text, sizeof(text),
                 PIPE(MOD("s", "Source", "'formats': '%s'") "," MOD(
                          "k", "Sink", "'formats': '%s'"),
                      TO("s", "k")),
                 cases[i].from, cases[i].to);
        world_plan(&w, text);
        assert_int_equal(world_inserted(&w, NULL), 1);
        assert_string_equal(world_node(&w, "_bridge_1_HostConvert")->loss,
                            cases[i].loss);
        world_finish(&w);
    }
}

PEN_TEST(full_range_yuv_is_not_turned_limited_for_nothing)
{
    struct world w;
    // A full-range NV12 keeps its range as YUV444; nothing is lost.
    world_plan(
        &w,
        PIPE(MOD("s", "Source", "'formats': 'NV12', 'range': 'full'") "," MOD(
                 "k", "Sink", "'formats': 'YUV444'"),
             TO("s", "k")));
    assert_string_equal(world_node(&w, "_bridge_1_HostConvert")->loss, "");
    world_finish(&w);
}

PEN_TEST(a_conversion_lands_on_the_cheaper_side)
{
    struct world w;
    struct pen_profile slow = *pen_profile_builtin("generic-cuda");
    struct pen_plan_params params = { .profile = &slow };
    const char *text = PIPE(MOD("s", "Source",
                                "'formats': 'NV12', 'width': 640, "
                                "'height': 480") "," MOD("k", "Sink", CUDA RGB),
                            TO("s", "k"));
    world_plan(&w, text);
    assert_int_equal(world_inserted(&w, "CudaConvert"), 1);
    assert_int_equal(world_inserted(&w, "HostConvert"), 0);
    assert_int_equal(w.plan->h2d_bytes_per_frame, 640 * 480 * 3 / 2);
    world_finish(&w);
    // On a device that computes slowly the host does it, and more is moved.
    slow.device_rate = 100;
    slow.host_rate = 100000;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(world_inserted(&w, "CudaConvert"), 0);
    assert_int_equal(world_inserted(&w, "HostConvert"), 1);
    assert_int_equal(w.plan->h2d_bytes_per_frame, 640 * 480 * 3);
    // The converter's pool is the one that is uploaded from.
    assert_int_equal(
        world_node(&w, "_bridge_1_HostConvert")->output[0].upgraded_from,
        PEN_MEM_HOST);
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST);
    world_finish(&w);
}

PEN_TEST(host_frames_are_not_sent_to_the_device_to_be_converted)
{
    struct world w;
    // By the numbers alone the way over the device would be ten times faster.
    world_plan(&w, PIPE(MOD("s", "Source",
                            "'formats': 'NV12', 'width': 3840, "
                            "'height': 2160") "," MOD("k", "Sink", RGB),
                        TO("s", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_inserted(&w, "HostConvert"), 1);
    assert_false(w.plan->needs_device);
    world_finish(&w);
}

PEN_TEST(uploads_and_conversions_are_shared_where_that_is_cheapest)
{
    struct world w;
    world_plan(
        &w,
        PIPE(
            MOD("s", "Source",
                "'formats': 'NV12', 'width': 640, "
                "'height': 480") "," MOD("a", "Sink",
                                         CUDA
                                             RGB) "," MOD("b", "Sink",
                                                          CUDA
                                                              RGB) "," MOD("c",
                                                                           "Sin"
                                                                           "k",
                                                                           CUDA
                                                                           "'fo"
                                                                           "rma"
                                                                           "ts'"
                                                                           ": "
                                                                           "'NV"
                                                                           "12"
                                                                           "'") "," MOD("d",
                                                                                        "Sink",
                                                                                        "'formats': 'NV12'"),
            TO("s", "a") "," TO("s", "b") "," TO("s", "c") "," TO("s", "d")));
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 1);
    assert_int_equal(world_inserted(&w, "CudaConvert"), 1);
    assert_int_equal(world_inserted(&w, NULL), 2);
    // The host consumer reads the pinned frames; no copy for it.
    assert_int_equal(world_edge(&w, "d")->mem, PEN_MEM_HOST_PINNED);
    world_finish(&w);
}

PEN_TEST(a_mixed_set_is_converted_by_a_bridge_that_forwards)
{
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Source",
                            "'formats': 'RGB|MONO'") "," MOD("k", "Sink", RGB),
                        TO("s", "k")));
    const struct stk_plan_node *b = world_node(&w, "_bridge_1_HostConvert");
    assert_true(b->forwards);
    assert_int_equal(b->output[0].caps.format, PEN_FMT_RGB);
    assert_int_equal(world_edge(&w, "_bridge_1_HostConvert")->formats,
                     PEN_FMT_BIT(PEN_FMT_RGB) | PEN_FMT_BIT(PEN_FMT_MONO));
    world_finish(&w);
    // Of equally good targets one that some frames have already.
    world_plan(&w, PIPE(MOD("s", "Source", "'formats': 'BGR|MONO'") "," MOD(
                            "k", "Sink", "'formats': 'RGB|BGR'"),
                        TO("s", "k")));
    assert_int_equal(world_edge(&w, "k")->caps.format, PEN_FMT_BGR);
    world_finish(&w);
    // A consumer that takes the whole set gets no bridge.
    world_plan(&w, PIPE(MOD("s", "Source", "'formats': 'RGB|MONO'") "," MOD(
                            "k", "Sink", "'formats': 'RGB|MONO|NV12'"),
                        TO("s", "k")));
    assert_int_equal(world_inserted(&w, NULL), 0);
    world_finish(&w);
    // Forwarded frames are uploaded too, so their pool is pinned as well.
    struct pen_profile slow = *pen_profile_builtin("generic-cuda");
    struct pen_plan_params params = { .profile = &slow };
    slow.device_rate = 1;
    world_plan_with(&w,
                    PIPE(MOD("s", "Source", "'formats': 'RGB|MONO'") "," MOD(
                             "k", "Sink", CUDA RGB),
                         TO("s", "k")),
                    &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(world_inserted(&w, "HostConvert"), 1);
    assert_int_equal(world_node(&w, "s")->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_node(&w, "_bridge_1_HostConvert")->output[0].mem,
                     PEN_MEM_HOST_PINNED);
    world_finish(&w);
}

PEN_TEST(forwarding_modules_hand_an_upgrade_to_the_pool_behind)
{
    struct world w;
    world_plan(&w,
               PIPE(MOD("s", "Source", RGB) "," MOD("p", "Pass", RGB) "," MOD(
                        "q", "Pass", RGB) "," MOD("k", "Sink", CUDA RGB),
                    TO("s", "p") "," TO("p", "q") "," TO("q", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_node(&w, "s")->output[0].upgraded_from,
                     PEN_MEM_HOST);
    assert_int_equal(world_edge(&w, "q")->mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_edge(&w, "_bridge_1_CudaMemCopy")->mem,
                     PEN_MEM_HOST_PINNED);
    assert_int_equal(world_node(&w, "p")->output[0].upgraded_from,
                     PEN_MEM_NONE);
    assert_int_equal(world_node(&w, "p")->output[0].blocks, 0);
    world_finish(&w);
    // Both pools behind a join, and a branch that was placed before.
    world_plan(
        &w,
        PIPE(MOD("a", "Source", RGB) "," MOD("b", "Source", RGB) "," MOD(
                 "j", "PassJoin",
                 RGB) "," MOD("o", "Pass",
                              RGB) "," MOD("h", "Sink",
                                           RGB) "," MOD("k", "Sink", CUDA RGB),
             TO("a", "j.input_1") "," TO("b", "j.input_2") "," TO(
                 "a", "o") "," TO("o", "h") "," TO("j", "k")));
    assert_int_equal(world_node(&w, "a")->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_node(&w, "b")->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_node(&w, "j")->output[0].mem, PEN_MEM_HOST_PINNED);
    assert_int_equal(world_edge(&w, "h")->mem, PEN_MEM_HOST_PINNED);
    world_finish(&w);
}

PEN_TEST(frames_that_leave_by_one_output_are_on_one_side)
{
    struct world w;
    const char *text = PIPE(
        MOD("a", "Source", "'mem': '%s'") "," MOD(
            "b", "Source",
            "'mem': '%s', 'formats': 'MONO'") "," MOD("j", "PassJoin",
                                                      "'mem': "
                                                      "'HOST|CUDA_DEVICE', "
                                                      "'formats': "
                                                      "'RGB|MONO'") "," MOD("k",
                                                                            "Si"
                                                                            "n"
                                                                            "k",
                                                                            "'m"
                                                                            "em"
                                                                            "':"
                                                                            " '"
                                                                            "HO"
                                                                            "ST"
                                                                            "|"
                                                                            "CU"
                                                                            "DA"
                                                                            "_"
                                                                            "DE"
                                                                            "VI"
                                                                            "CE"
                                                                            "',"
                                                                            " "
                                                                            "'f"
                                                                            "or"
                                                                            "ma"
                                                                            "ts"
                                                                            "':"
                                                                            " "
                                                                            "'R"
                                                                            "GB"
                                                                            "|"
                                                                            "MO"
                                                                            "NO"
                                                                            "'"),
        TO("a", "j.input_1") "," TO("b", "j.input_2") "," TO("j", "k"));
    char json[1024];
    // Both on the side that is cheaper.
    snprintf(json, sizeof(json), text, "CUDA_DEVICE", "HOST");
    world_plan(&w, json);
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_edge(&w, "k")->mem, PEN_MEM_CUDA_DEVICE);
    // Frames of both may come out.
    assert_int_equal(world_edge(&w, "k")->formats,
                     PEN_FMT_BIT(PEN_FMT_RGB) | PEN_FMT_BIT(PEN_FMT_MONO));
    assert_true(w.plan->optimal);
    world_finish(&w);
    snprintf(json, sizeof(json), text, "HOST", "CUDA_DEVICE");
    world_plan(&w, json);
    assert_int_equal(world_edge(&w, "j")->mem, PEN_MEM_HOST);
    assert_int_equal(w.plan->d2h_per_frame, 1);
    // Of pageable and pinned frames the weaker is promised.
    assert_int_equal(world_edge(&w, "k")->mem, PEN_MEM_HOST);
    world_finish(&w);
    // A DMABUF of host memory is on the host's side.
    snprintf(json, sizeof(json), text, "HOST", "DMABUF");
    world_plan(&w, json);
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(world_edge(&w, "k")->mem, PEN_MEM_HOST);
    world_finish(&w);
}

PEN_TEST(every_pair_of_the_other_memory_types_has_its_way)
{
    // clang-format off
    static const struct { const char *from, *to; unsigned copies; } pairs[] = {
        { "HOST", "HOST", 0 },        { "HOST", "HOST_PINNED", 0 },
        { "HOST", "CUDA_DEVICE", 1 }, { "HOST_PINNED", "HOST", 0 },
        { "HOST_PINNED", "HOST_PINNED", 0 },
        { "HOST_PINNED", "CUDA_DEVICE", 1 },
        { "CUDA_DEVICE", "HOST", 1 }, { "CUDA_DEVICE", "HOST_PINNED", 1 },
        { "CUDA_DEVICE", "CUDA_DEVICE", 0 },
    };
    // clang-format on
    for (size_t i = 0; i < sizeof(pairs) / sizeof(*pairs); i++) {
        char text[512];
        struct world w;
        snprintf(text, sizeof(text),
                 PIPE(MOD("s", "Source", "'mem': '%s'") "," MOD("k", "Sink",
                                                                "'mem': '%s'"),
                      TO("s", "k")),
                 pairs[i].from, pairs[i].to);
        world_plan(&w, text);
        assert_int_equal(world_inserted(&w, NULL), pairs[i].copies);
        const bool pinned = !strcmp(pairs[i].to, "HOST_PINNED") ||
                            !strcmp(pairs[i].from, "HOST_PINNED") ||
                            !strcmp(pairs[i].from, "CUDA_DEVICE");
        if (!strcmp(pairs[i].to, "CUDA_DEVICE"))
            assert_int_equal(world_edge(&w, "k")->mem, PEN_MEM_CUDA_DEVICE);
        else
            assert_int_equal(world_edge(&w, "k")->mem,
                             pinned ? PEN_MEM_HOST_PINNED : PEN_MEM_HOST);
        world_finish(&w);
    }
}

PEN_TEST(auto_bridge_false_refuses_each_bridge_and_says_what_to_write)
{
    struct world w;
    world_plan_with(
        &w,
        SET("'auto_bridge': false",
            MOD("s", "Source", RGB) "," MOD("g", "CudaWork", CUDA RGB) "," MOD(
                "k", "Sink", RGB) "," MOD("m", "Sink", "'formats': 'MONO'"),
            TO("s", "g") "," TO("g", "k") "," TO("s", "m")),
        NULL, NULL);
    assert_int_equal(w.status, PEN_E_CONFIG);
    // Both of the source's consumers, and what lies behind one of them.
    assert_int_equal(world_issues(&w, "E312"), 3);
    const struct pen_issue *issue = world_issue(&w, "E312");
    assert_non_null(strstr(issue->suggestion, "HostToDevice"));
    world_finish(&w);
    // An upgrade is no bridge.
    world_plan(&w,
               SET("'auto_bridge': false",
                   MOD("s", "Source", RGB) "," MOD(
                       "up", "CudaMemCopy",
                       "'kind': 'HostToDevice'") "," MOD("k", "Sink", CUDA RGB),
                   TO("s", "up") "," TO("up", "k")));
    assert_int_equal(world_edge(&w, "up")->mem, PEN_MEM_HOST_PINNED);
    world_finish(&w);
}

PEN_TEST(a_missing_bridge_class_is_told_and_not_worked_around)
{
    struct world w;
    world_plan_with(&w,
                    PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB),
                         TO("s", "k")),
                    NULL, "CudaMemCopy");
    assert_int_equal(w.status, PEN_E_CONFIG);
    assert_non_null(world_issue(&w, "E311"));
    world_finish(&w);
    // With one converter left, the conversion is made on its side.
    world_plan_with(&w,
                    PIPE(MOD("s", "Source", "'formats': 'NV12'") "," MOD(
                             "k", "Sink", CUDA RGB),
                         TO("s", "k")),
                    NULL, "CudaConvert");
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(world_inserted(&w, "HostConvert"), 1);
    world_finish(&w);
    world_plan_with(
        &w,
        PIPE(MOD("s", "Source", "'formats': 'NV12'") "," MOD("k", "Sink", RGB),
             TO("s", "k")),
        NULL, "CudaConvert|HostConvert");
    assert_int_equal(w.status, PEN_E_CONFIG);
    assert_non_null(strstr(world_issue(&w, "E311")->message, "NV12"));
    world_finish(&w);
}

// The only way from NV12 to RGB leads over grey.
static void grey_narrow(const void *params, struct pen_pin_set *in,
                        struct pen_pin_set *out)
{
    const struct world_convert *p = params;
    world_convert_narrow(params, in, out);
    in[0].formats = p->image_type == PEN_FMT_MONO  ? PEN_FMT_BIT(PEN_FMT_NV12)
                    : p->image_type == PEN_FMT_RGB ? PEN_FMT_BIT(PEN_FMT_MONO)
                                                   : 0;
}

PEN_TEST(no_path_leads_through_a_format_poorer_than_both_ends)
{
    static struct pen_module_class grey;
    struct world w;
    for (unsigned i = 0; i < WORLD_COUNT; i++)
        if (!strcmp(world_classes[i].name, "HostConvert"))
            grey = world_classes[i];
    grey.name = "GreyConvert";
    grey.ops.narrow = grey_narrow;
    world_extra[0] = &grey;
    const char *text = PIPE(MOD("s", "Source", "'formats': '%s'") "," MOD(
                                "k", "Sink", "'formats': '%s'"),
                            TO("s", "k"));
    char json[512];
    snprintf(json, sizeof(json), text, "NV12", "RGB");
    world_plan_with(&w, json, NULL, "HostConvert|CudaConvert");
    assert_int_equal(w.status, PEN_E_CONFIG);
    assert_non_null(world_issue(&w, "E311"));
    world_finish(&w);
    // Each half of it is a way.
    snprintf(json, sizeof(json), text, "NV12", "MONO");
    world_plan_with(&w, json, NULL, "HostConvert|CudaConvert");
    assert_int_equal(w.status, PEN_OK);
    world_finish(&w);
    snprintf(json, sizeof(json), text, "MONO", "RGB");
    world_plan_with(&w, json, NULL, "HostConvert|CudaConvert");
    assert_int_equal(w.status, PEN_OK);
    world_finish(&w);
    world_extra[0] = NULL;
}

PEN_TEST(an_output_of_several_memory_types_takes_the_best)
{
    struct world w;
    const char *text = PIPE(
        MOD("s", "Source", "'mem': 'HOST|CUDA_DEVICE'") "," MOD(
            "a", "Sink", "'mem': '%s'") "," MOD("b", "Sink", "'mem': '%s'"),
        TO("s", "a") "," TO("s", "b"));
    // clang-format off
    static const struct {
        const char *a, *b;
        enum pen_mem_type mem;
        unsigned copies;
    } cases[] = {
        { "HOST", "HOST", PEN_MEM_HOST, 0 },
        { "CUDA_DEVICE", "CUDA_DEVICE", PEN_MEM_CUDA_DEVICE, 0 },
        { "HOST|CUDA_DEVICE", "CUDA_DEVICE", PEN_MEM_CUDA_DEVICE, 0 },
        { "HOST", "CUDA_DEVICE", PEN_MEM_HOST_PINNED, 1 },
    };
    // clang-format on
    for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
        char json[512];
        snprintf(json, sizeof(json), text, cases[i].a, cases[i].b);
        world_plan(&w, json);
        assert_int_equal(world_node(&w, "s")->output[0].mem, cases[i].mem);
        assert_int_equal(world_inserted(&w, NULL), cases[i].copies);
        world_finish(&w);
    }
}

PEN_TEST(several_pins_and_several_links_are_planned_one_by_one)
{
    struct world w;
    world_plan(&w,
               PIPE(MOD("s", "Split", RGB) "," MOD("i", "Source", RGB) "," MOD(
                        "j", "Join", CUDA RGB) "," MOD("k", "Sink", CUDA RGB),
                    TO("i", "s") "," TO("s.output_1", "j.input_1") "," TO(
                        "s.output_2", "j.input_2") "," TO("j", "k")));
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 2);
    world_finish(&w);
    world_plan(
        &w,
        PIPE(MOD("i", "Source", RGB) "," MOD("j", "Join", CUDA RGB) "," MOD(
                 "k", "Sink", CUDA RGB),
             TO("i", "j.input_1") "," TO("i", "j.input_2") "," TO("j", "k")));
    assert_int_equal(world_inserted(&w, "CudaMemCopy"), 1);
    world_finish(&w);
}

PEN_TEST(more_targets_than_the_exact_search_takes_are_all_served)
{
    // clang-format off
    static const char *const sinks[] = {
        MOD("a", "Sink", RGB),
        MOD("b", "Sink", "'formats': 'BGR'"),
        MOD("c", "Sink", "'formats': 'MONO'"),
        MOD("d", "Sink", CUDA RGB),
        MOD("e", "Sink", CUDA "'formats': 'BGR'"),
        MOD("f", "Sink", CUDA "'formats': 'RGBA'"),
        MOD("g", "Sink", "'formats': 'RGBA'"),
        MOD("h", "Sink", "'formats': 'NV12'"),
        MOD("i", "Sink", CUDA "'formats': 'YUV420'"),
        MOD("j", "Sink", "'formats': 'UYVY'"),
        MOD("k", "Sink", "'formats': 'YUV444'"),
    };
    // clang-format on
    enum { SINKS = sizeof(sinks) / sizeof(sinks[0]) };
    struct stk_text m = { 0 }, c = { 0 };
    struct world w;
    stk_text_add(&m, "{ 'modules': { " MOD("s", "Source", "'formats': 'NV12'"));
    stk_text_add(&c, " }, 'connections': [ ");
    for (unsigned i = 0; i < SINKS; i++) {
        stk_text_addf(&m, ", %s", sinks[i]);
        stk_text_addf(&c, "%s{ 'from': 's', 'to': '%c' }", i ? ", " : "",
                      (int)('a' + i));
    }
    stk_text_add(&m, c.data);
    stk_text_add(&m, " ] }");
    world_plan(&w, m.data);
    stk_text_finish(&m);
    stk_text_finish(&c);
    assert_false(w.plan->optimal);
    static const struct {
        const char *id;
        enum pen_format format;
    } want[] = {
        { "a", PEN_FMT_RGB },  { "b", PEN_FMT_BGR },  { "c", PEN_FMT_MONO },
        { "d", PEN_FMT_RGB },  { "e", PEN_FMT_BGR },  { "f", PEN_FMT_RGBA },
        { "g", PEN_FMT_RGBA }, { "h", PEN_FMT_NV12 },
    };
    for (size_t i = 0; i < sizeof(want) / sizeof(*want); i++)
        assert_int_equal(world_edge(&w, want[i].id)->caps.format,
                         want[i].format);
    assert_int_equal(w.plan->h2d_per_frame, 1);
    world_finish(&w);
}

// clang-format off
static const char choice_of_a_side[] =
    PIPE(MOD("s", "Source", RGB) ","
         MOD("p", "Pass", "'mem': 'HOST|CUDA_DEVICE'") ","
         MOD("k", "Sink", CUDA RGB) "," MOD("k2", "Sink", CUDA RGB) ","
         MOD("h", "Sink", RGB),
         TO("s", "p") "," TO("s", "k2") "," TO("p", "k") "," TO("p", "h"));
static const char choice_of_a_format[] =
    PIPE(MOD("s", "Source", "'formats': 'NV12'") ","
         MOD("g", "Work", "'formats': 'RGB|BGR'") ","
         MOD("k", "Sink", "'formats': 'BGR'"),
         TO("s", "g") "," TO("g", "k"));
// clang-format on

PEN_TEST(choices_that_travel_through_modules_are_settled_together)
{
    struct world w;
    // One upload serves both device sinks; that of the pool in front of the
    // forwarding module stays pinned for the host.
    world_plan(&w, choice_of_a_side);
    assert_true(w.plan->optimal);
    assert_int_equal(w.plan->h2d_per_frame + w.plan->d2h_per_frame, 2);
    world_finish(&w);
    // RGB or BGR would do for the first, and the second asks for one of them.
    world_plan(&w, choice_of_a_format);
    assert_true(w.plan->optimal);
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(w.plan->gap_ns, 0);
    world_finish(&w);
}

PEN_TEST(unknown_sizes_leave_the_choice_proven_only_if_it_holds_for_all)
{
    struct world w;
    // Uploading comes first whatever the size.
    world_plan(&w, PIPE(MOD("s", "Source", "'width': 0, 'height': 0") "," MOD(
                            "k", "Sink", CUDA RGB),
                        TO("s", "k")));
    assert_true(w.plan->provisional);
    assert_true(w.plan->optimal);
    world_finish(&w);
    // Converting tiny pictures is cheaper on the host (no launch), large ones
    // on the device.
    world_plan(&w, PIPE(MOD("s", "Source",
                            "'formats': 'NV12', 'width': 0, "
                            "'height': 0") "," MOD("k", "Sink", CUDA RGB),
                        TO("s", "k")));
    assert_true(w.plan->provisional);
    assert_false(w.plan->optimal);
    assert_int_equal(world_inserted(&w, "CudaConvert"), 1);
    world_finish(&w);
}

PEN_TEST(kinds_that_only_show_while_planning_are_refused)
{
    struct world w;
    world_plan_with(
        &w,
        PIPE(MOD("r", "Reader", "'bytes': 100") "," MOD(
                 "up", "CudaMemCopy",
                 "'kind': 'HostToDevice'") "," MOD("k", "Sink", CUDA RGB),
             TO("r", "up") "," TO("up", "k")),
        NULL, NULL);
    assert_int_equal(w.status, PEN_E_CONFIG);
    const struct pen_issue *issue = world_issue(&w, "E304");
    assert_non_null(issue);
    assert_string_equal(issue->pointer, "/connections/1");
    assert_non_null(strstr(issue->suggestion, "decoder"));
    world_finish(&w);
}

PEN_TEST(what_a_module_refuses_for_certain_is_an_error_else_a_warning)
{
    struct world w;
    world_plan_with(&w,
                    PIPE(MOD("s", "Source",
                             RGB) "," MOD("k", "Sink", ALL ", 'refuse': 'RGB'"),
                         TO("s", "k")),
                    NULL, NULL);
    assert_int_equal(w.status, PEN_E_CONFIG);
    assert_string_equal(world_issue(&w, "E310")->pointer, "/modules/k");
    assert_non_null(strstr(world_issue(&w, "E310")->message, "no RGB today"));
    world_finish(&w);
    world_plan(&w, PIPE(MOD("s", "Source", "'formats': 'RGB|MONO'") "," MOD(
                            "k", "Sink", ALL ", 'refuse': 'RGB'"),
                        TO("s", "k")));
    assert_non_null(strstr(world_issue(&w, "W311")->message, "RGB"));
    world_finish(&w);
    world_plan_with(&w,
                    PIPE(MOD("s", "Source", "'width': 100") "," MOD(
                             "k", "Sink", RGB ", 'limit': 99"),
                         TO("s", "k")),
                    NULL, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    assert_non_null(world_issue(&w, "E512"));
    world_finish(&w);
}

PEN_TEST(all_errors_are_told_but_none_that_only_follows)
{
    struct world w;
    struct pen_profile profile = *pen_profile_builtin("generic-cuda");
    profile.dmabuf = 0;
    world_plan_with(
        &w,
        PIPE(
            MOD("s", "Source", RGB) "," MOD("a", "Work", RGB ", 'refuse': 'RGB'") "," MOD(
                "b", "Work",
                RGB
                ", 'refuse': 'RGB'") "," MOD("k", "Sink",
                                             "'mem': 'DMABUF'") "," MOD("m",
                                                                        "Sink",
                                                                        "'mem':"
                                                                        " '"
                                                                        "DMABUF"
                                                                        "'"),
            TO("s", "a") "," TO("s", "b") "," TO("a", "k") "," TO("s", "m")),
        &(struct pen_plan_params){ .profile = &profile }, NULL);
    assert_int_equal(w.status, PEN_E_CONFIG);
    assert_int_equal(world_issues(&w, "E310"), 2);
    assert_int_equal(world_issues(&w, "E313"), 1);  // m, not k
    world_finish(&w);
}

PEN_TEST(headers_are_read_only_when_asked_for)
{
    struct world w;
    struct pen_plan_params params = { .probe = true };
    const char *text = PIPE(
        MOD("r", "Reader", "") "," MOD(
            "d", "Decoder", "'formats': 'RGB|MONO'") "," MOD("k", "Sink", RGB),
        TO("r", "d") "," TO("d", "k"));
    world_probed = 0;
    world_probe = (struct pen_probe){
        .caps = { .width = 320,
                  .height = 200,
                  .bytes = 5000,
                  .formats = PEN_FMT_BIT(PEN_FMT_RGB) },
        .frames = 7,
        .complete = true,
    };
    world_plan(&w, text);
    assert_int_equal(world_probed, 0);
    assert_true(w.plan->provisional);
    assert_int_equal(world_inserted(&w, NULL), 1);
    world_finish(&w);
    // All files are RGB: no bridge, and all sizes are known.
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(world_probed, 1);
    assert_false(w.plan->provisional);
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(world_edge(&w, "k")->caps.width, 320);
    assert_int_equal(world_edge(&w, "d")->caps.bytes, 5000);
    assert_int_equal(w.plan->frames, 7);
    world_finish(&w);
    // Not all were looked at: another may be grey.
    world_probe.complete = false;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_false(w.plan->provisional);
    world_finish(&w);
    world_probe_status = PEN_E_IO;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_E_CONFIG);
    assert_string_equal(world_issue(&w, "E600")->pointer, "/modules/r");
    world_finish(&w);
    world_probe_status = PEN_E_DATA;
    world_plan_with(&w, text, &params, NULL);
    assert_non_null(world_issue(&w, "E610"));
    world_finish(&w);
    world_probe_status = PEN_E_LIMIT;
    world_plan_with(&w, text, &params, NULL);
    assert_int_equal(w.status, PEN_E_LIMIT);
    world_finish(&w);
    world_probe_status = PEN_OK;
}

// --- advice -----------------------------------------------------------------

PEN_TEST(a_host_module_inside_a_device_chain_is_warned_of_with_its_path)
{
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Source", CUDA RGB) "," MOD(
                            "h", "Work", RGB) "," MOD("k", "Sink", CUDA RGB),
                        TO("s", "h") "," TO("h", "k")));
    assert_int_equal(world_issues(&w, "W310"), 1);
    const struct pen_issue *issue = world_issue(&w, "W310");
    assert_non_null(strstr(issue->message,
                           "s -> _bridge_1_CudaMemCopy (to the host) -> h -> "
                           "_bridge_2_CudaMemCopy (to the device) -> k"));
    assert_non_null(strstr(issue->message, "us a frame"));
    assert_non_null(strstr(issue->suggestion, "CudaWork"));
    assert_string_equal(issue->pointer, "/modules/h");
    world_finish(&w);
}

PEN_TEST(written_and_mixed_detours_are_warned_of_too)
{
    struct world w;
    const char *both = PIPE(
        MOD("s", "Source", RGB) "," MOD("u", "CudaMemCopy", "'kind': 'HostToDevice'") "," MOD(
            "d", "CudaMemCopy",
            "'kind': 'DeviceToHost'") "," MOD("u2", "CudaMemCopy",
                                              "'kind': 'HostToDevice'") "," MOD("k",
                                                                                "Sink",
                                                                                CUDA
                                                                                    RGB),
        TO("s", "u") "," TO("u", "d") "," TO("d", "u2") "," TO("u2", "k"));
    world_plan(&w, both);
    assert_int_equal(world_inserted(&w, NULL), 0);
    assert_int_equal(world_issues(&w, "W310"), 1);
    assert_non_null(strstr(world_issue(&w, "W310")->message,
                           "s -> u (to the device) -> d (to the host) -> u2 "
                           "(to the device) -> k"));
    assert_string_equal(world_issue(&w, "W310")->suggestion,
                        "remove `u2` and `d`, and connect "
                        "{ \"from\": \"u\", \"to\": \"k\" }");
    world_finish(&w);
    // One written, one inserted, with nothing between.
    world_plan(
        &w, PIPE(MOD("s", "Source", CUDA RGB) "," MOD(
                     "d", "CudaMemCopy",
                     "'kind': 'DeviceToHost'") "," MOD("k", "Sink", CUDA RGB),
                 TO("s", "d") "," TO("d", "k")));
    assert_int_equal(world_inserted(&w, NULL), 1);
    assert_int_equal(world_issues(&w, "W310"), 1);
    assert_string_equal(world_issue(&w, "W310")->suggestion,
                        "remove `d`, and connect "
                        "{ \"from\": \"s\", \"to\": \"k\" }");
    world_finish(&w);
    // Up and down again without anything done on the device.
    world_plan(
        &w, PIPE(MOD("s", "Source", RGB) "," MOD(
                     "u", "CudaMemCopy",
                     "'kind': 'HostToDevice'") "," MOD("p", "Pass",
                                                       CUDA RGB) "," MOD("k",
                                                                         "Sink",
                                                                         RGB),
                 TO("s", "u") "," TO("u", "p") "," TO("p", "k")));
    assert_int_equal(world_issues(&w, "W310"), 1);
    assert_non_null(strstr(world_issue(&w, "W310")->message, "nothing done"));
    world_finish(&w);
    // Work on the device between them is no detour.
    world_plan(&w,
               PIPE(MOD("s", "Source", RGB) "," MOD(
                        "g", "CudaWork", CUDA RGB) "," MOD("k", "Sink", RGB),
                    TO("s", "g") "," TO("g", "k")));
    assert_int_equal(world_issues(&w, "W310"), 0);
    world_finish(&w);
}

// --- the rest of a plan -----------------------------------------------------

PEN_TEST(a_pinned_source_alone_needs_the_device)
{
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Source",
                            "'mem': 'HOST_PINNED'") "," MOD("k", "Sink", RGB),
                        TO("s", "k")));
    assert_true(pen_plan_needs_device(w.plan));
    world_finish(&w);
    world_plan(&w, PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", RGB),
                        TO("s", "k")));
    assert_false(pen_plan_needs_device(w.plan));
    world_finish(&w);
}

PEN_TEST(touched_paths_are_sorted_and_told_once)
{
    struct world w;
    world_plan(&w, PIPE(MOD("s", "Source", RGB ", 'path': '/dev/null'") "," MOD(
                            "k", "Sink",
                            RGB ", 'target': 'a.raw', 'path': "
                                "'/dev/null'"),
                        TO("s", "k")));
    assert_int_equal(w.plan->path_count, 2);
    assert_string_equal(w.plan->paths[0], "/dev/null");
    assert_string_equal(w.plan->paths[1], "a.raw");
    char *text = pen_plan_text(w.plan);
    assert_non_null(strstr(text, "reads /dev/null; writes a.raw"));
    pen_free(text);
    world_finish(&w);
}

PEN_TEST(a_profile_without_a_device_says_so)
{
    struct world w;
    struct pen_plan_params params = { .profile = pen_profile_builtin("cpu") };
    world_plan_with(&w,
                    PIPE(MOD("s", "Source", RGB) "," MOD("k", "Sink", CUDA RGB),
                         TO("s", "k")),
                    &params, NULL);
    assert_int_equal(w.status, PEN_OK);
    assert_int_equal(world_issue(&w, "I320")->severity, PEN_SEVERITY_INFO);
    assert_string_equal(w.plan->profile.name, "cpu");
    world_finish(&w);
    assert_null(pen_profile_builtin("no-such"));
    assert_null(pen_profile_builtin(NULL));
}

// The same pipeline with its modules and connections in another order.
static void shuffled(char *text, size_t size, uint64_t *seed)
{
    // clang-format off
    static const char *const modules[] = {
        MOD("src", "Source", "'formats': 'NV12'"),
        MOD("a", "CudaWork", CUDA RGB), MOD("b", "CudaWork", CUDA RGB),
        MOD("c", "Work", "'formats': 'NV12'"), MOD("d", "Work", RGB),
        MOD("join", "Join", RGB), MOD("p", "Pass", CUDA RGB),
        MOD("k1", "Sink", RGB), MOD("k2", "Sink", "'formats': 'MONO'"),
        MOD("k3", "Sink", ALL), MOD("z", "Source", RGB),
        MOD("kz", "Sink", CUDA ALL), MOD("jj", "Join", CUDA RGB),
        MOD("kj", "Sink", CUDA RGB),
    };
    static const char *const links[] = {
        TO("src", "a"), TO("src", "b"), TO("src", "c"), TO("src", "d"),
        TO("a", "p"), TO("p", "join.input_1"), TO("d", "join.input_2"),
        TO("join", "k1"), TO("b", "k2"), TO("c", "k3"), TO("z", "kz"),
        TO("z", "jj.input_1"), TO("z", "jj.input_2"), TO("jj", "kj"),
    };
    // clang-format on
    enum {
        MODULES = sizeof(modules) / sizeof(*modules),
        LINKS = sizeof(links) / sizeof(*links)
    };
    unsigned order[MODULES > LINKS ? MODULES : LINKS];
    size_t at = (size_t)snprintf(text, size, "{ 'modules': {");
    for (int part = 0; part < 2; part++) {
        const unsigned count = part ? LINKS : MODULES;
        for (unsigned i = 0; i < count; i++)
            order[i] = i;
        for (unsigned i = count - 1; i > 0 && seed; i--) {
            const unsigned k = pen_test_random(seed) % (i + 1);
            const unsigned swap = order[i];
            order[i] = order[k];
            order[k] = swap;
        }
        for (unsigned i = 0; i < count; i++)
            at += (size_t)snprintf(text + at, size - at, "%s %s", i ? "," : "",
                                   part ? links[order[i]] : modules[order[i]]);
        at += (size_t)snprintf(text + at, size - at,
                               part ? "] }" : "}, 'connections': [");
    }
}

PEN_TEST(the_order_of_the_file_leaves_no_trace)
{
    char text[4096];
    struct world w;
    uint64_t seed = 7;
    shuffled(text, sizeof(text), NULL);
    world_plan(&w, text);
    char *first = pen_plan_text(w.plan);
    char *picture = pen_plan_svg(w.plan);
    assert_non_null(first);
    world_finish(&w);
    for (unsigned i = 0; i < pen_test_seeds(40, 1000); i++) {
        shuffled(text, sizeof(text), &seed);
        world_plan(&w, text);
        char *again = pen_plan_text(w.plan);
        assert_string_equal(again, first);
        pen_free(again);
        again = pen_plan_svg(w.plan);
        assert_string_equal(again, picture);
        pen_free(again);
        world_finish(&w);
    }
    pen_free(first);
    pen_free(picture);
}

PEN_TEST_MAIN(
    PEN_CASE(a_host_output_that_is_uploaded_becomes_pinned),
    PEN_CASE(a_pinned_source_needs_one_copy_and_no_upgrade),
    PEN_CASE(bridges_take_no_name_of_the_file),
    PEN_CASE(a_copy_of_the_user_is_kept_and_gets_pinned_frames),
    PEN_CASE(one_frame_for_three_device_modules_is_uploaded_once),
    PEN_CASE(three_device_modules_in_a_row_cost_one_upload_and_one_download),
    PEN_CASE(a_format_that_is_taken_is_not_converted),
    PEN_CASE(a_device_picture_for_the_host_stays_what_it_is),
    PEN_CASE(information_is_kept_before_cost),
    PEN_CASE(each_bridge_tells_what_it_loses),
    PEN_CASE(full_range_yuv_is_not_turned_limited_for_nothing),
    PEN_CASE(a_conversion_lands_on_the_cheaper_side),
    PEN_CASE(host_frames_are_not_sent_to_the_device_to_be_converted),
    PEN_CASE(uploads_and_conversions_are_shared_where_that_is_cheapest),
    PEN_CASE(a_mixed_set_is_converted_by_a_bridge_that_forwards),
    PEN_CASE(forwarding_modules_hand_an_upgrade_to_the_pool_behind),
    PEN_CASE(frames_that_leave_by_one_output_are_on_one_side),
    PEN_CASE(every_pair_of_the_other_memory_types_has_its_way),
    PEN_CASE(auto_bridge_false_refuses_each_bridge_and_says_what_to_write),
    PEN_CASE(a_missing_bridge_class_is_told_and_not_worked_around),
    PEN_CASE(no_path_leads_through_a_format_poorer_than_both_ends),
    PEN_CASE(an_output_of_several_memory_types_takes_the_best),
    PEN_CASE(several_pins_and_several_links_are_planned_one_by_one),
    PEN_CASE(more_targets_than_the_exact_search_takes_are_all_served),
    PEN_CASE(choices_that_travel_through_modules_are_settled_together),
    PEN_CASE(unknown_sizes_leave_the_choice_proven_only_if_it_holds_for_all),
    PEN_CASE(kinds_that_only_show_while_planning_are_refused),
    PEN_CASE(what_a_module_refuses_for_certain_is_an_error_else_a_warning),
    PEN_CASE(all_errors_are_told_but_none_that_only_follows),
    PEN_CASE(headers_are_read_only_when_asked_for),
    PEN_CASE(a_host_module_inside_a_device_chain_is_warned_of_with_its_path),
    PEN_CASE(written_and_mixed_detours_are_warned_of_too),
    PEN_CASE(a_pinned_source_alone_needs_the_device),
    PEN_CASE(touched_paths_are_sorted_and_told_once),
    PEN_CASE(a_profile_without_a_device_says_so),
    PEN_CASE(the_order_of_the_file_leaves_no_trace))
