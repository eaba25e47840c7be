// What streams and points promise, on top of whichever driver is under test.

#include <pthread.h>
#include <stdio.h>

#include "alloc_fail.h"
#include "gpu_fixture.h"

enum { WORDS = 1024, BYTES = WORDS * 4 };

// --- a hand on the reaper ---------------------------------------------------

// What to do to the reaper where it has chosen an event and does not yet wait
// for it: stop it there, or have it open a gate.
static _Atomic bool stall_reaper;
static sem_t stalled, go_on;
static struct gate *_Atomic reaper_opens;

enum pen_status __real_stk_scope_enter(struct stk_scope *scope,
                                       struct pen_device *dev,
                                       struct pen_error *err);
enum pen_status __wrap_stk_scope_enter(struct stk_scope *scope,
                                       struct pen_device *dev,
                                       struct pen_error *err);
enum pen_status __wrap_stk_scope_enter(struct stk_scope *scope,
                                       struct pen_device *dev,
                                       struct pen_error *err)
{
    char name[16] = "";
    pthread_getname_np(pthread_self(), name, sizeof(name));
    if (strcmp(name, "pen-reaper") == 0) {
        if (reaper_opens)
            gate_open(reaper_opens);
        if (stall_reaper) {
            stall_reaper = false;
            sem_post(&stalled);
            sem_wait(&go_on);
        }
    }
    return __real_stk_scope_enter(scope, dev, err);
}

// --- order ------------------------------------------------------------------

static void one_stream_in_order(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    uint64_t a, b;
    void *up, *down;
    FIXTURE_OK(stk_device_alloc(f->dev, BYTES, "a", PEN_HERE, &a, &err));
    FIXTURE_OK(stk_device_alloc(f->dev, BYTES, "b", PEN_HERE, &b, &err));
    FIXTURE_OK(stk_pinned_alloc(f->dev, BYTES, "up", PEN_HERE, &up, &err));
    FIXTURE_OK(stk_pinned_alloc(f->dev, BYTES, "down", PEN_HERE, &down, &err));
    uint32_t *words = up, *result = down;
    for (uint32_t i = 0; i < WORDS; i++)
        words[i] = i * 2654435761u;
    memset(down, 0, BYTES);

    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(
            stk_stream_copy(s, STK_COPY_H2D, a, (uintptr_t)up, BYTES, &err));
        FIXTURE_OK(stk_stream_copy(s, STK_COPY_D2D, b, a, BYTES, &err));
        fixture_fill(f, s, b + 16, 7, 3);
        FIXTURE_OK(
            stk_stream_copy(s, STK_COPY_D2H, (uintptr_t)down, b, BYTES, &err));
        FIXTURE_OK(
            stk_stream_copy(s, STK_COPY_D2H, (uintptr_t)down, b, 0, &err));
    }
    FIXTURE_OK(stk_point_wait(fixture_record(f, s), STK_WAIT_HOST_READ, &err));
    for (uint32_t i = 0; i < WORDS; i++)
        assert_int_equal(result[i], i >= 4 && i < 7 ? 7 : words[i]);
    assert_int_equal(stk_stream_launches(s), 1);

    stk_stream_destroy(&s);
    assert_null(s);
    stk_device_free(f->dev, a, BYTES);
    stk_device_free(f->dev, b, BYTES);
    stk_pinned_free(f->dev, up, BYTES);
    stk_pinned_free(f->dev, down, BYTES);
}

PEN_TEST(work_of_one_stream_is_done_in_order)
{
    fixture_all_modes(one_stream_in_order);
}

static void rows(struct fixture *f)
{
    enum { W = 37, H = 19, SP = 64, DP = 96 };
    struct stk_stream *s = fixture_stream(f, "s");
    uint64_t a, b;
    void *up, *down;
    FIXTURE_OK(stk_device_alloc(f->dev, SP * H, "a", PEN_HERE, &a, &err));
    FIXTURE_OK(stk_device_alloc(f->dev, DP * H, "b", PEN_HERE, &b, &err));
    FIXTURE_OK(stk_pinned_alloc(f->dev, DP * H, "up", PEN_HERE, &up, &err));
    FIXTURE_OK(stk_pinned_alloc(f->dev, DP * H, "down", PEN_HERE, &down, &err));
    uint8_t *in = up, *out = down;

    // Rows of other pitches, then rows without padding, which go as one piece.
    for (int tight = 0; tight < 2; tight++) {
        const size_t up_pitch = tight ? W : DP, a_pitch = tight ? W : SP;
        const size_t b_pitch = tight ? W : DP, down_pitch = tight ? W : SP;
        for (int i = 0; i < DP * H; i++) {
            in[i] = (uint8_t)(i * 7 + tight);
            out[i] = 0xee;
        }
        {
            STK_SCOPE scope = { 0 };
            FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
            FIXTURE_OK(stk_stream_copy_2d(s, STK_COPY_H2D, a, a_pitch,
                                          (uintptr_t)up, up_pitch, W, H, &err));
            FIXTURE_OK(stk_stream_copy_2d(s, STK_COPY_D2D, b, b_pitch, a,
                                          a_pitch, W, H, &err));
            FIXTURE_OK(stk_stream_copy_2d(s, STK_COPY_D2H, (uintptr_t)down,
                                          down_pitch, b, b_pitch, W, H, &err));
            FIXTURE_OK(stk_stream_copy_2d(s, STK_COPY_D2H, (uintptr_t)down,
                                          down_pitch, b, b_pitch, W, 0, &err));
        }
        FIXTURE_OK(
            stk_point_wait(fixture_record(f, s), STK_WAIT_HOST_READ, &err));
        for (size_t y = 0; y < H; y++) {
            for (size_t x = 0; x < down_pitch; x++)
                assert_int_equal(out[y * down_pitch + x],
                                 x < W ? in[y * up_pitch + x] : 0xee);
        }
    }

    struct pen_error why;
    assert_int_equal(
        stk_stream_copy_2d(s, (enum stk_copy_kind)9, a, SP, b, DP, W, H, &why),
        PEN_E_ARG);
    assert_int_equal(stk_stream_copy(s, (enum stk_copy_kind)0, a, b, W, &why),
                     PEN_E_ARG);

    stk_stream_destroy(&s);
    stk_device_free(f->dev, a, SP * H);
    stk_device_free(f->dev, b, DP * H);
    stk_pinned_free(f->dev, up, DP * H);
    stk_pinned_free(f->dev, down, DP * H);
}

PEN_TEST(rows_are_copied_between_pitches_and_padding_is_left_alone)
{
    fixture_all_modes(rows);
}

static void waits_between_streams(struct fixture *f)
{
    struct stk_stream *a = fixture_stream(f, "a"), *b = fixture_stream(f, "b");
    struct gate gate;
    uint64_t mem;
    void *down;
    gate_create(f, &gate);
    FIXTURE_OK(stk_device_alloc(f->dev, BYTES, "m", PEN_HERE, &mem, &err));
    FIXTURE_OK(stk_pinned_alloc(f->dev, BYTES, "d", PEN_HERE, &down, &err));
    uint32_t *result = down;

    fixture_fill(f, a, mem, 1, WORDS);
    gate_queue(f, &gate, a);
    fixture_fill(f, a, mem, 2, WORDS);
    const struct stk_point written = fixture_record(f, a);
    // Later work of `a` is not waited for.
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_stream_wait(b, written, STK_WAIT_STREAM_READ, &err));
        FIXTURE_OK(stk_stream_copy(b, STK_COPY_D2H, (uintptr_t)down, mem, BYTES,
                                   &err));
    }
    const struct stk_point read = fixture_record(f, b);
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_stream_wait(a, read, STK_WAIT_STREAM_READ, &err));
    }
    fixture_fill(f, a, mem, 3, WORDS);
    const struct stk_point again = fixture_record(f, a);

    assert_false(stk_point_reached(written));
    assert_false(stk_point_reached(read));
    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(again, STK_WAIT_HOST_READ, &err));
    assert_true(stk_point_reached(read));
    for (uint32_t i = 0; i < WORDS; i++)
        assert_int_equal(result[i], 2);

    stk_stream_destroy(&a);
    stk_stream_destroy(&b);
    stk_device_free(f->dev, mem, BYTES);
    stk_pinned_free(f->dev, down, BYTES);
    gate_free(f, &gate);
}

PEN_TEST(a_stream_that_waits_sees_what_was_written_before_the_point)
{
    fixture_all_modes(waits_between_streams);
}

static void needless_waits(struct fixture *f)
{
    const struct penemu *emu = fixture_emulator();
    struct stk_stream *a = fixture_stream(f, "a"), *b = fixture_stream(f, "b");
    const struct stk_point done = fixture_record(f, a);
    FIXTURE_OK(stk_point_wait(done, STK_WAIT_HOST_READ, &err));
    const uint64_t before = emu ? emu->penemu_calls("cuStreamWaitEvent") : 0;

    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    FIXTURE_OK(stk_stream_wait(b, done, STK_WAIT_STREAM_READ, &err));
    FIXTURE_OK(
        stk_stream_wait(a, fixture_record(f, a), STK_WAIT_STREAM_READ, &err));
    FIXTURE_OK(stk_stream_wait(a, (struct stk_point){ 0 }, STK_WAIT_STREAM_READ,
                               &err));
    FIXTURE_OK(stk_stream_wait(a, (struct stk_point){ b, 0 },
                               STK_WAIT_STREAM_READ, &err));
    if (emu)
        assert_int_equal(emu->penemu_calls("cuStreamWaitEvent"), before);
    stk_stream_destroy(&a);
    stk_stream_destroy(&b);
}

PEN_TEST(a_wait_that_is_not_needed_is_not_queued)
{
    fixture_all_modes(needless_waits);
}

// --- points -----------------------------------------------------------------

static void points_count_up(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct gate gate;
    gate_create(f, &gate);
    assert_true(stk_point_reached((struct stk_point){ 0 }));
    assert_true(stk_point_reached((struct stk_point){ s, 0 }));
    FIXTURE_OK(
        stk_point_wait((struct stk_point){ 0 }, STK_WAIT_HOST_READ, &err));

    struct stk_point before[3], after[3];
    for (int i = 0; i < 3; i++)
        before[i] = fixture_record(f, s);
    gate_queue(f, &gate, s);
    for (int i = 0; i < 3; i++) {
        after[i] = fixture_record(f, s);
        assert_int_equal(after[i].seq, before[i].seq + 3);
    }
    FIXTURE_OK(stk_point_wait(before[2], STK_WAIT_HOST_READ, &err));
    for (int i = 0; i < 3; i++) {
        assert_true(stk_point_reached(before[i]));
        assert_false(stk_point_reached(after[i]));
    }
    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(after[2], STK_WAIT_HOST_READ, &err));
    for (int i = 0; i < 3; i++)
        assert_true(stk_point_reached(after[i]));
    stk_stream_destroy(&s);
    gate_free(f, &gate);
}

PEN_TEST(points_are_reached_in_order_and_not_before_their_work)
{
    fixture_all_modes(points_count_up);
}

static void run_ahead_after(struct fixture *f, unsigned turns)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct gate gate;
    struct stk_point point, oldest;
    struct pen_error why;
    gate_create(f, &gate);
    for (unsigned i = 0; i < turns; i++)
        FIXTURE_OK(
            stk_point_wait(fixture_record(f, s), STK_WAIT_HOST_READ, &err));

    assert_true(stk_stream_has_room(s, 0, &oldest));
    assert_true(stk_stream_has_room(s, STK_RUN_AHEAD + 9, &oldest));
    gate_queue(f, &gate, s);
    const struct stk_point first = fixture_record(f, s);
    for (unsigned n = 2; n <= STK_RUN_AHEAD; n++) {
        assert_true(stk_stream_has_room(s, STK_RUN_AHEAD - n, &oldest));
        assert_null(oldest.stream);
        assert_false(stk_stream_has_room(s, STK_RUN_AHEAD - n + 1, &oldest));
        assert_ptr_equal(oldest.stream, s);
        assert_int_equal(oldest.seq, first.seq);
        assert_int_equal(fixture_record(f, s).seq, first.seq + n - 1);
    }

    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    assert_int_equal(stk_stream_record(s, &point, &why), PEN_AGAIN);
    assert_ptr_equal(point.stream, s);
    assert_int_equal(point.seq, first.seq);
    assert_false(stk_stream_has_room(s, 0, &oldest));
    // With slack more than the oldest has to be waited for.
    assert_false(stk_stream_has_room(s, 10, &oldest));
    assert_int_equal(oldest.seq, first.seq + 10);

    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(point, STK_WAIT_HOST_READ, &err));
    FIXTURE_OK(stk_stream_record(s, &point, &err));
    assert_int_equal(point.seq, first.seq + STK_RUN_AHEAD);
    FIXTURE_OK(stk_point_wait(point, STK_WAIT_HOST_READ, &err));
    stk_stream_destroy(&s);
    gate_free(f, &gate);
}

// On the first turn of the ring, at its end, and later.
static void run_ahead(struct fixture *f)
{
    run_ahead_after(f, 0);
    run_ahead_after(f, 3);
    run_ahead_after(f, STK_RUN_AHEAD);
    run_ahead_after(f, 3 * STK_RUN_AHEAD + 5);
}

PEN_TEST(run_ahead_is_bounded_and_tells_what_to_wait_for)
{
    fixture_all_modes(run_ahead);
}

static void blocking_is_counted(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct gate gate;
    gate_create(f, &gate);
    assert_true(stk_stream_handle(s) != 0);

    const struct stk_point early = fixture_record(f, s);
    FIXTURE_OK(stk_point_wait(early, STK_WAIT_HOST_READ, &err));
    gate_queue(f, &gate, s);
    const struct stk_point late = fixture_record(f, s);
    stk_thread_must_not_block(true);
    FIXTURE_OK(stk_point_wait(early, STK_WAIT_HOST_READ, &err));
    assert_int_equal(stk_device_blocked(f->dev), 0);
    reaper_opens = &gate;
    FIXTURE_OK(stk_point_wait(late, STK_WAIT_HOST_READ, &err));
    reaper_opens = NULL;
    stk_thread_must_not_block(false);
    assert_int_equal(stk_device_blocked(f->dev), 1);
    stk_stream_destroy(&s);
    gate_free(f, &gate);
}

PEN_TEST(a_thread_that_must_not_block_is_counted_when_it_does)
{
    fixture_all_modes(blocking_is_counted);
}

// --- being called -----------------------------------------------------------

struct order {
    struct called called;
    struct stk_point points[8];
    unsigned next;
    unsigned wrong;
};

struct order_entry {
    struct order *order;
    unsigned index;
};

static void called_in_order(void *cookie)
{
    struct order_entry *e = cookie;
    e->order->wrong += e->order->next != e->index;
    e->order->wrong += !stk_point_reached(e->order->points[e->index]);
    e->order->next++;
    called_back(&e->order->called);
}

static void calls_in_order(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct gate gate;
    struct order order = { 0 };
    struct order_entry entries[8];
    gate_create(f, &gate);
    called_init(&order.called);
    gate_queue(f, &gate, s);
    for (unsigned i = 0; i < 8; i++) {
        order.points[i] = fixture_record(f, s);
        entries[i] = (struct order_entry){ &order, i };
    }
    // The first keeps the reaper busy; the others are asked for back to front.
    FIXTURE_OK(stk_point_when(order.points[0], STK_WAIT_PARK, called_in_order,
                              &entries[0], &err));
    for (unsigned i = 7; i > 0; i--)
        FIXTURE_OK(stk_point_when(order.points[i], STK_WAIT_PARK,
                                  called_in_order, &entries[i], &err));
    assert_int_equal(order.called.count, 0);
    gate_open(&gate);
    for (unsigned i = 0; i < 8; i++)
        called_wait(&order.called);
    assert_int_equal(order.wrong, 0);
    assert_int_equal(fixture_live(f->ledger, STK_RES_THREAD), 1);
    stk_stream_destroy(&s);
    gate_free(f, &gate);
}

PEN_TEST(whoever_waits_is_called_in_the_order_of_the_points)
{
    fixture_all_modes(calls_in_order);
}

static void reached_calls_at_once(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct called called;
    called_init(&called);
    const struct stk_point point = fixture_record(f, s);
    FIXTURE_OK(stk_point_wait(point, STK_WAIT_HOST_READ, &err));
    const uint64_t threads = fixture_live(f->ledger, STK_RES_THREAD);
    FIXTURE_OK(
        stk_point_when(point, STK_WAIT_PARK, called_back, &called, &err));
    assert_int_equal(called.count, 1);
    FIXTURE_OK(stk_point_when((struct stk_point){ 0 }, STK_WAIT_PARK,
                              called_back, &called, &err));
    assert_int_equal(called.count, 2);
    assert_int_equal(fixture_live(f->ledger, STK_RES_THREAD), threads);
    stk_stream_destroy(&s);
}

PEN_TEST(for_a_point_that_is_reached_the_caller_is_called_at_once)
{
    fixture_all_modes(reached_calls_at_once);
}

struct chain {
    struct fixture *f;
    struct stk_stream *stream;
    struct called called;
    unsigned left;
    _Atomic unsigned failed;
};

static void next_link(void *cookie);

static bool add_link(struct chain *c)
{
    struct stk_point point, oldest;
    struct pen_error err;
    STK_SCOPE scope = { 0 };
    if (stk_scope_enter(&scope, c->f->dev, &err) != PEN_OK ||
        stk_stream_record(c->stream, &point, &err) != PEN_OK)
        return false;
    (void)stk_stream_has_room(c->stream, 3, &oldest);
    (void)stk_point_reached(point);
    return stk_point_when(point, STK_WAIT_PARK, next_link, c, &err) == PEN_OK;
}

// Uses everything from inside a call: that would lock up if a lock were held.
static void next_link(void *cookie)
{
    struct chain *c = cookie;
    if (c->left > 0) {
        c->left--;
        if (add_link(c))
            return;
        c->failed++;
    }
    called_back(&c->called);
}

static void calls_without_lock(struct fixture *f)
{
    struct chain c = { .f = f, .stream = fixture_stream(f, "s"), .left = 200 };
    struct gate gate;
    gate_create(f, &gate);
    called_init(&c.called);
    gate_queue(f, &gate, c.stream);
    const struct stk_point first = fixture_record(f, c.stream);
    FIXTURE_OK(stk_point_when(first, STK_WAIT_PARK, next_link, &c, &err));
    gate_open(&gate);
    called_wait(&c.called);
    assert_int_equal(c.failed, 0);
    assert_int_equal(c.left, 0);
    stk_stream_destroy(&c.stream);
    gate_free(f, &gate);
}

PEN_TEST(no_lock_is_held_during_a_call)
{
    fixture_all_modes(calls_without_lock);
}

// The event of a point that the reaper waits on must not be recorded again
// for a later point, or its waiter is called much too late.
static void reused_events(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct called called, idle;
    called_init(&called);
    called_init(&idle);
    sem_init(&stalled, 0, 0);
    sem_init(&go_on, 0, 0);
    for (unsigned round = 0; round < 10; round++) {
        struct gate early, late;
        gate_create(f, &early);
        gate_create(f, &late);
        gate_queue(f, &early, s);
        const struct stk_point point = fixture_record(f, s);
        stall_reaper = true;
        FIXTURE_OK(
            stk_point_when(point, STK_WAIT_PARK, called_back, &called, &err));
        sem_wait(&stalled);
        gate_open(&early);
        FIXTURE_OK(stk_device_when_idle(f->dev, called_back, &idle, &err));
        called_wait(&idle);
        assert_true(stk_point_reached(point));

        // Its place in the ring is taken by a point behind a closed gate.
        gate_queue(f, &late, s);
        struct stk_point last = point;
        for (int i = 0; i < STK_RUN_AHEAD; i++)
            last = fixture_record(f, s);
        sem_post(&go_on);
        called_wait(&called);
        assert_false(stk_point_reached(last));
        gate_open(&late);
        FIXTURE_OK(stk_point_wait(last, STK_WAIT_HOST_READ, &err));
        gate_free(f, &early);
        gate_free(f, &late);
    }
    stk_stream_destroy(&s);
}

PEN_TEST(an_event_somebody_waits_on_is_not_recorded_for_a_later_point)
{
    fixture_all_modes(reused_events);
}

static void destroy_calls_back(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    struct called called;
    uint64_t mem;
    called_init(&called);
    FIXTURE_OK(stk_device_alloc(f->dev, BYTES, "m", PEN_HERE, &mem, &err));
    for (uint32_t i = 0; i < 40; i++) {
        fixture_fill(f, s, mem, i, WORDS);
        FIXTURE_OK(stk_point_when(fixture_record(f, s), STK_WAIT_PARK,
                                  called_back, &called, &err));
    }
    stk_stream_destroy(&s);
    assert_int_equal(called.count, 40);
    stk_device_free(f->dev, mem, BYTES);
}

PEN_TEST(destroying_a_stream_waits_and_calls_back_everybody)
{
    fixture_all_modes(destroy_calls_back);
}

// --- many threads -----------------------------------------------------------

struct worker {
    struct fixture *f;
    struct stk_stream *own, *other;
    struct called *called;
    struct stk_point seen[2];
    unsigned rounds, failed;
};

static void *work(void *arg)
{
    struct worker *w = arg;
    uint64_t highest = 0;
    for (unsigned i = 0; i < w->rounds; i++) {
        struct stk_point point;
        struct pen_error err;
        STK_SCOPE scope = { 0 };
        if (stk_scope_enter(&scope, w->f->dev, &err) != PEN_OK) {
            w->failed++;
            break;
        }
        enum pen_status st;
        while ((st = stk_stream_record(w->own, &point, &err)) == PEN_AGAIN) {
            if (stk_point_wait(point, STK_WAIT_HOST_READ, &err) != PEN_OK)
                w->failed++;
        }
        w->failed += st != PEN_OK;
        // Numbers that one thread is given only grow.
        w->failed += point.seq <= highest;
        highest = point.seq;
        w->failed += stk_stream_wait(w->other, point, STK_WAIT_STREAM_READ,
                                     &err) != PEN_OK;
        w->failed += stk_point_when(point, STK_WAIT_PARK, called_back,
                                    w->called, &err) != PEN_OK;
        if (i % 7 == 0)
            w->failed +=
                stk_point_wait(point, STK_WAIT_HOST_READ, &err) != PEN_OK ||
                !stk_point_reached(point);
    }
    return NULL;
}

static void many_threads(struct fixture *f)
{
    enum { THREADS = 4, ROUNDS = 300 };
    struct stk_stream *s[2] = { fixture_stream(f, "a"),
                                fixture_stream(f, "b") };
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    struct called called;
    called_init(&called);
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (struct worker){ .f = f,
                                      .own = s[i % 2],
                                      .other = s[1 - i % 2],
                                      .called = &called,
                                      .rounds = ROUNDS };
        assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]),
                         0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(workers[i].failed, 0);
    }
    stk_stream_destroy(&s[0]);
    stk_stream_destroy(&s[1]);
    assert_int_equal(called.count, THREADS * ROUNDS);
    assert_int_equal(stk_device_disturbed(f->dev), 0);
}

PEN_TEST(streams_may_be_used_by_many_threads)
{
    fixture_all_modes(many_threads);
}

// --- the steady state -------------------------------------------------------

static void steady_round(struct fixture *f, struct stk_stream *s,
                         struct called *called)
{
    struct gate gate;
    gate_create(f, &gate);
    gate_queue(f, &gate, s);
    for (int i = 0; i < STK_RUN_AHEAD; i++)
        FIXTURE_OK(stk_point_when(fixture_record(f, s), STK_WAIT_PARK,
                                  called_back, called, &err));
    gate_open(&gate);
    for (int i = 0; i < STK_RUN_AHEAD; i++)
        called_wait(called);
    gate_free(f, &gate);
}

PEN_TEST(in_the_steady_state_nothing_is_allocated)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_stream *s = fixture_stream(&f, "s");
    struct called called;
    called_init(&called);
    for (int i = 0; i < 3; i++)
        steady_round(&f, s, &called);

    struct stk_ledger_totals events, streams, totals;
    stk_ledger_totals(f.ledger, STK_RES_EVENT, &events);
    stk_ledger_totals(f.ledger, STK_RES_STREAM, &streams);
    assert_int_equal(events.live, STK_RUN_AHEAD + 1);
    assert_int_equal(streams.live, 1);

    struct gate gate;
    gate_create(&f, &gate);
    pen_alloc_fail_arm(0, false);
    for (int i = 0; i < 500; i++) {
        FIXTURE_OK(stk_point_when(fixture_record(&f, s), STK_WAIT_PARK,
                                  called_back, &called, &err));
        called_wait(&called);
    }
    gate_queue(&f, &gate, s);
    for (int i = 0; i < STK_RUN_AHEAD; i++)
        FIXTURE_OK(stk_point_when(fixture_record(&f, s), STK_WAIT_PARK,
                                  called_back, &called, &err));
    gate_open(&gate);
    for (int i = 0; i < STK_RUN_AHEAD; i++)
        called_wait(&called);
    assert_int_equal(pen_alloc_fail_count(), 0);
    pen_alloc_fail_disarm();
    stk_ledger_totals(f.ledger, STK_RES_EVENT, &totals);
    assert_int_equal(totals.added, events.added);
    gate_free(&f, &gate);
    stk_stream_destroy(&s);
    fixture_close(&f);
}

// --- launches ---------------------------------------------------------------

PEN_TEST(launches_that_cannot_be_right_are_refused)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_stream *s = fixture_stream(&f, "s");
    struct pen_error why;
    const uint64_t args[2] = { 0 };
    struct pen_grid grid = { 1, 1, 1, 64, 1 };
    assert_int_equal(stk_stream_launch(s, f.kernels, 2, &grid, args, 16, &why),
                     PEN_E_ARG);
    assert_int_equal(
        stk_stream_launch(s, f.kernels, FIXTURE_FILL, &grid, args, 8, &why),
        PEN_E_ARG);
    assert_non_null(strstr(why.text, "test_fill has 16 bytes"));
    for (int i = 0; i < 4; i++) {
        uint32_t *const sizes[] = { &grid.x, &grid.y, &grid.block_x,
                                    &grid.block_y };
        grid = (struct pen_grid){ 1, 1, 1, 64, 1 };
        *sizes[i] = 0;
        assert_int_equal(stk_stream_launch(s, f.kernels, FIXTURE_FILL, &grid,
                                           args, 16, &why),
                         PEN_E_ARG);
    }
    // Too many threads for any GPU: the driver says so, the device lives on.
    grid = (struct pen_grid){ 1, 1, 1, 2048, 1 };
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f.dev, &err));
    assert_int_equal(
        stk_stream_launch(s, f.kernels, FIXTURE_FILL, &grid, args, 16, &why),
        PEN_E_DRIVER);
    assert_string_equal(why.where, "test_fill");
    assert_non_null(strstr(why.text, "cuLaunchKernel("));
    assert_false(stk_device_lost(f.dev));
    assert_int_equal(stk_stream_launches(s), 0);
    stk_stream_destroy(&s);
    stk_scope_leave(&scope);
    fixture_close(&f);
}

PEN_TEST_MAIN(
    PEN_CASE(work_of_one_stream_is_done_in_order),
    PEN_CASE(rows_are_copied_between_pitches_and_padding_is_left_alone),
    PEN_CASE(a_stream_that_waits_sees_what_was_written_before_the_point),
    PEN_CASE(a_wait_that_is_not_needed_is_not_queued),
    PEN_CASE(points_are_reached_in_order_and_not_before_their_work),
    PEN_CASE(run_ahead_is_bounded_and_tells_what_to_wait_for),
    PEN_CASE(a_thread_that_must_not_block_is_counted_when_it_does),
    PEN_CASE(whoever_waits_is_called_in_the_order_of_the_points),
    PEN_CASE(for_a_point_that_is_reached_the_caller_is_called_at_once),
    PEN_CASE(no_lock_is_held_during_a_call),
    PEN_CASE(an_event_somebody_waits_on_is_not_recorded_for_a_later_point),
    PEN_CASE(destroying_a_stream_waits_and_calls_back_everybody),
    PEN_CASE(streams_may_be_used_by_many_threads),
    PEN_CASE(in_the_steady_state_nothing_is_allocated),
    PEN_CASE(launches_that_cannot_be_right_are_refused))
