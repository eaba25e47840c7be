// Queues between modules: order, bounds, policies, gaps.

#include "alloc_fail.h"
#include "pen_test.h"

#include "src/mem/pool.h"
#include "src/run/edge.h"

#define OK(expr)                                                               \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status got_ = (expr);                                   \
        if (got_ != PEN_OK)                                                    \
            fail_msg("%s: %s", #expr, err.text);                               \
    } while (0)

struct fix {
    struct stk_ledger *ledger;
    struct stk_pool *pool;
    struct stk_frame_pool *frames;
    struct stk_queue q;
};

static void fix_open(struct fix *f, uint32_t depth, enum stk_policy policy)
{
    *f = (struct fix){ .ledger = stk_ledger_create(true) };
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = 64,
        .blocks = 64,
        .ledger = f->ledger,
        .owner = "test",
    };
    OK(stk_pool_create(&p, &f->pool, &err));
    OK(stk_frame_pool_create(4, f->ledger, &f->frames, &err));
    OK(stk_queue_init(&f->q, depth, policy, &err));
}

static void fix_close(struct fix *f)
{
    stk_queue_finish(&f->q);
    stk_pool_destroy(&f->pool);
    stk_frame_pool_destroy(&f->frames);
    for (unsigned r = 1; r < STK_RES_COUNT; r++) {
        struct stk_ledger_totals t;
        stk_ledger_totals(f->ledger, (enum stk_res)r, &t);
        assert_int_equal(t.live, 0);
    }
    stk_ledger_destroy(&f->ledger);
}

static struct pen_frame *frame(struct fix *f, uint64_t index)
{
    struct stk_buffer *buffer = NULL;
    struct stk_point wait;
    struct pen_frame *out = NULL;
    const struct pen_caps caps = { .kind = PEN_KIND_FRAME, .bytes = 16 };
    OK(stk_pool_take(f->pool, NULL, &buffer, &wait, &err));
    OK(stk_frame_make(f->frames, buffer, &caps, &out, &err));
    out->index = index;
    return out;
}

// Put frame `index`; the number of the frame that was dropped, or -1.
static int put(struct fix *f, uint64_t index)
{
    struct pen_frame *dropped = stk_queue_put(&f->q, frame(f, index));
    const int number = dropped ? (int)dropped->index : -1;
    pen_frame_unref(dropped);
    return number;
}

static void expect(struct fix *f, enum stk_item_kind kind, uint64_t index)
{
    assert_int_equal(stk_queue_peek(&f->q), kind);
    const struct stk_item item = stk_queue_take(&f->q);
    assert_int_equal(item.kind, kind);
    if (kind == STK_ITEM_FRAME || kind == STK_ITEM_GAP)
        assert_int_equal(item.index, index);
    pen_frame_unref(item.frame);
}

PEN_TEST(frames_gaps_and_the_end_come_out_in_order)
{
    struct fix f;
    fix_open(&f, 3, STK_BLOCK);
    expect(&f, STK_ITEM_NONE, 0);
    assert_int_equal(put(&f, 0), -1);
    stk_queue_put_gap(&f.q, 1);
    stk_queue_put_gap(&f.q, 2);
    assert_int_equal(put(&f, 3), -1);
    stk_queue_put_gap(&f.q, 4);
    stk_queue_put_eos(&f.q);
    expect(&f, STK_ITEM_FRAME, 0);
    expect(&f, STK_ITEM_GAP, 1);
    expect(&f, STK_ITEM_GAP, 2);
    expect(&f, STK_ITEM_FRAME, 3);
    expect(&f, STK_ITEM_GAP, 4);
    // The end stays.
    expect(&f, STK_ITEM_EOS, 0);
    expect(&f, STK_ITEM_EOS, 0);
    fix_close(&f);
}

PEN_TEST(only_frames_take_capacity)
{
    struct fix f;
    fix_open(&f, 2, STK_BLOCK);
    for (uint64_t i = 0; i < 1000; i++)
        stk_queue_put_gap(&f.q, i);
    assert_true(stk_queue_has_place(&f.q));
    put(&f, 1000);
    stk_queue_put_gap(&f.q, 1001);
    put(&f, 1002);
    assert_false(stk_queue_has_place(&f.q));
    stk_queue_put_gap(&f.q, 1003);
    stk_queue_put_eos(&f.q);
    for (uint64_t i = 0; i < 1004; i++) {
        const bool is_frame = i == 1000 || i == 1002;
        expect(&f, is_frame ? STK_ITEM_FRAME : STK_ITEM_GAP, i);
        assert_int_equal(stk_queue_has_place(&f.q), i >= 1000);
    }
    expect(&f, STK_ITEM_EOS, 0);
    struct stk_edge_stats s;
    stk_queue_stats(&f.q, &s);
    assert_int_equal(s.frames, 2);
    assert_int_equal(s.max_fill, 2);
    assert_int_equal(s.fill, 0);
    assert_int_equal(s.drops, 0);
    fix_close(&f);
}

PEN_TEST(a_dropped_frame_is_a_gap_with_its_number)
{
    struct fix f;
    fix_open(&f, 2, STK_DROP_NEWEST);
    assert_int_equal(put(&f, 0), -1);
    assert_int_equal(put(&f, 1), -1);
    assert_true(stk_queue_has_place(&f.q));
    assert_int_equal(put(&f, 2), 2);
    assert_int_equal(put(&f, 3), 3);
    expect(&f, STK_ITEM_FRAME, 0);
    assert_int_equal(put(&f, 4), -1);
    for (uint64_t i = 1; i < 5; i++)
        expect(&f, i == 1 || i == 4 ? STK_ITEM_FRAME : STK_ITEM_GAP, i);
    struct stk_edge_stats s;
    stk_queue_stats(&f.q, &s);
    assert_int_equal(s.frames, 3);
    assert_int_equal(s.drops, 2);
    fix_close(&f);

    fix_open(&f, 2, STK_DROP_OLDEST);
    assert_int_equal(put(&f, 0), -1);
    assert_int_equal(put(&f, 1), -1);
    assert_int_equal(put(&f, 2), 0);
    assert_int_equal(put(&f, 3), 1);
    for (uint64_t i = 0; i < 4; i++)
        expect(&f, i < 2 ? STK_ITEM_GAP : STK_ITEM_FRAME, i);
    stk_queue_stats(&f.q, &s);
    assert_int_equal(s.frames, 2);
    assert_int_equal(s.drops, 2);
    fix_close(&f);
}

// Whatever is put, dropped and taken: each number comes out exactly once and
// in order, and the ring never overflows.
PEN_TEST(every_number_comes_out_once_whatever_is_dropped)
{
    const unsigned seeds = pen_test_seeds(100, 5000);
    for (unsigned n = 0; n < seeds; n++) {
        uint64_t seed = 77 + n;
        struct fix f;
        const uint32_t depth = 1 + pen_test_random(&seed) % 5;
        const enum stk_policy policy =
            (enum stk_policy)(pen_test_random(&seed) % 3);
        fix_open(&f, depth, policy);
        uint64_t in = 0, out = 0, frames = 0, gaps = 0, own = 0;
        while (in < 300 || out < in) {
            const uint32_t what = pen_test_random(&seed) % 4;
            if (in < 300 && what == 0) {
                stk_queue_put_gap(&f.q, in++);
                own++;
            } else if (in < 300 && what < 3 && stk_queue_has_place(&f.q)) {
                put(&f, in++);
            } else if (stk_queue_peek(&f.q) != STK_ITEM_NONE) {
                const struct stk_item item = stk_queue_take(&f.q);
                assert_int_equal(item.index, out++);
                assert_int_equal(item.count, 1);
                frames += item.kind == STK_ITEM_FRAME;
                gaps += item.kind == STK_ITEM_GAP;
                pen_frame_unref(item.frame);
            }
            struct stk_edge_stats s;
            stk_queue_stats(&f.q, &s);
            assert_true(s.fill <= depth);
        }
        struct stk_edge_stats s;
        stk_queue_stats(&f.q, &s);
        assert_int_equal(s.frames, frames);
        assert_int_equal(s.drops + own, gaps);
        assert_int_equal(frames + gaps, 300);
        fix_close(&f);
    }
}

PEN_TEST(what_is_left_in_a_queue_is_given_back)
{
    struct fix f;
    fix_open(&f, 4, STK_BLOCK);
    for (uint64_t i = 0; i < 4; i++)
        put(&f, i);
    fix_close(&f);
    stk_queue_finish(&f.q);
}

PEN_TEST(a_queue_without_memory_is_an_error)
{
    struct stk_queue q;
    struct pen_error err = { 0 };
    pen_alloc_fail_arm(1, false);
    const enum pen_status st = stk_queue_init(&q, 4, STK_BLOCK, &err);
    assert_true(pen_alloc_fail_disarm());
    assert_int_equal(st, PEN_E_NOMEM);
    assert_int_equal(err.status, PEN_E_NOMEM);
    stk_queue_finish(&q);
}

PEN_TEST_MAIN(PEN_CASE(frames_gaps_and_the_end_come_out_in_order),
              PEN_CASE(only_frames_take_capacity),
              PEN_CASE(a_dropped_frame_is_a_gap_with_its_number),
              PEN_CASE(every_number_comes_out_once_whatever_is_dropped),
              PEN_CASE(what_is_left_in_a_queue_is_given_back),
              PEN_CASE(a_queue_without_memory_is_an_error))
