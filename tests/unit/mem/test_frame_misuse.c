// What a program must not do with frames: release them twice, use them after
// their release, also when their pipeline is gone. It is told, and corrupts
// nothing; under AddressSanitizer it ends the program at the spot.

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "src/mem/frame.h"
#include "src/mem/pool.h"

#include "pen_test.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ASAN 1
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define ASAN 1
#endif
#ifndef ASAN
#define ASAN 0
#endif

static const struct pen_caps rgb = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_RGB,
    .width = 30,
    .height = 20,
};

struct bench {
    struct stk_ledger *ledger;
    struct stk_frame_pool *frames;
    struct stk_pool *pool;
};

static void set_up(struct bench *t)
{
    t->ledger = stk_ledger_create(true);
    assert_int_equal(stk_frame_pool_create(1, t->ledger, &t->frames, NULL),
                     PEN_OK);
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = 4096,
        .blocks = 2,
        .ledger = t->ledger,
    };
    assert_int_equal(stk_pool_create(&p, &t->pool, NULL), PEN_OK);
}

static struct pen_frame *make(struct bench *t, uint64_t index)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    struct pen_frame *f = NULL;
    assert_int_equal(stk_pool_take(t->pool, NULL, &b, &wait, NULL), PEN_OK);
    assert_int_equal(stk_frame_make(t->frames, b, &rgb, &f, NULL), PEN_OK);
    f->index = index;
    return f;
}

static uint64_t live(struct bench *t, enum stk_res res)
{
    struct stk_ledger_totals out;
    stk_ledger_totals(t->ledger, res, &out);
    return out.live;
}

static void tear_down(struct bench *t)
{
    stk_frame_pool_destroy(&t->frames);
    stk_pool_destroy(&t->pool);
    assert_int_equal(live(t, STK_RES_FRAME), 0);
    assert_int_equal(live(t, STK_RES_HOST), 0);
    stk_ledger_destroy(&t->ledger);
}

// --- the wrong things -------------------------------------------------------

static void release_again(struct pen_frame *f)
{
    pen_frame_unref(f);
}

static void reference(struct pen_frame *f)
{
    assert_ptr_equal(pen_frame_ref(f), f);
}

static void read_it(struct pen_frame *f)
{
    struct pen_view v;
    struct pen_error err = { 0 };
    assert_int_equal(stk_frame_on_host(f, PEN_READ, &v, &err), PEN_E_STATE);
    assert_non_null(strstr(err.text, "after its last reference was released"));
    assert_null(v.plane[0].host);
}

static void write_it(struct pen_frame *f)
{
    struct pen_view v;
    assert_int_equal(stk_frame_on_host(f, PEN_WRITE, &v, NULL), PEN_E_STATE);
}

static void end_access(struct pen_frame *f)
{
    assert_int_equal(stk_frame_host_done(f, PEN_READ, NULL), PEN_E_STATE);
}

static const struct {
    const char *what;
    void (*wrong)(struct pen_frame *f);
} wrongs[] = {
    { "released", release_again }, { "referenced", reference },
    { "acquired", read_it },       { "acquired", write_it },
    { "accessed", end_access },
};
enum { WRONGS = sizeof(wrongs) / sizeof(wrongs[0]) };

// Under AddressSanitizer: whether it ends a process that does this.
static bool dies(void (*wrong)(struct pen_frame *f), struct pen_frame *f)
{
    const pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (!freopen("/dev/null", "w", stderr))
            _exit(0);
        wrong(f);
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

PEN_TEST(what_is_done_to_a_released_frame_is_told_and_does_nothing)
{
    for (int i = 0; i < WRONGS; i++) {
        struct bench t;
        set_up(&t);
        pen_frame_unref(make(&t, 3));
        struct pen_frame *f = make(&t, 12);
        struct pen_error first = { .text = "?" };
        assert_int_equal(stk_frame_pool_misuses(t.frames, &first), 0);
        assert_string_equal(first.text, "");
        pen_frame_unref(f);
        if (ASAN) {
            assert_true(dies(wrongs[i].wrong, f));
            tear_down(&t);
            continue;
        }
        wrongs[i].wrong(f);
        wrongs[i].wrong(f);
        assert_int_equal(stk_frame_pool_misuses(t.frames, &first), 2);
        assert_int_equal(stk_frame_pool_misuses(t.frames, NULL), 2);
        assert_int_equal(first.status, PEN_E_STATE);
        assert_non_null(strstr(first.text, "frame 12 (RGB 30x20"));
        assert_non_null(strstr(first.text, wrongs[i].what));

        // Frames and blocks are all there, once each.
        struct pen_frame *a = make(&t, 1), *b = make(&t, 2);
        assert_ptr_not_equal(a, b);
        assert_ptr_not_equal(a->buffer, b->buffer);
        assert_int_equal(a->refs, 1);
        assert_int_equal(a->buffer->refs, 1);
        struct stk_buffer *none = NULL;
        struct stk_point wait;
        assert_int_equal(stk_pool_take(t.pool, NULL, &none, &wait, NULL),
                         PEN_AGAIN);
        pen_frame_unref(a);
        pen_frame_unref(b);
        tear_down(&t);
    }
}

PEN_TEST(frames_that_outlive_their_pipeline_are_valid_until_released)
{
    for (int i = 0; i < WRONGS; i++) {
        struct bench t;
        set_up(&t);
        struct pen_frame *f = make(&t, 5);
        stk_frame_pool_destroy(&t.frames);
        stk_pool_destroy(&t.pool);
        struct pen_view v;
        assert_int_equal(stk_frame_on_host(f, PEN_WRITE, &v, NULL), PEN_OK);
        memset(v.plane[0].host, 1, v.plane[0].pitch * 20);
        assert_int_equal(stk_frame_host_done(f, PEN_WRITE, NULL), PEN_OK);
        pen_frame_unref(f);
        assert_int_equal(live(&t, STK_RES_FRAME), 0);
        assert_int_equal(live(&t, STK_RES_HOST), 0);

        // Its storage is kept for a while, so that this is found.
        const uint64_t before = stk_frame_late_misuses();
        if (ASAN) {
            assert_true(dies(wrongs[i].wrong, f));
        } else {
            wrongs[i].wrong(f);
            assert_int_equal(stk_frame_late_misuses(), before + 1);
        }
        tear_down(&t);
    }
}

PEN_TEST(a_released_frame_has_neither_memory_nor_size)
{
    if (ASAN)
        PEN_SKIP("AddressSanitizer ends the program at the first look");
    struct bench t;
    set_up(&t);
    struct pen_frame *f = make(&t, 0);
    f->caps.kind = PEN_KIND_FRAME;
    pen_frame_unref(f);
    assert_int_equal(pen_frame_mem(f), PEN_MEM_NONE);
    struct pen_error err = { 0 };
    assert_int_equal(pen_frame_set_bytes(f, 1, &err), PEN_E_STATE);
    struct pen_dmabuf d;
    assert_int_equal(pen_frame_dmabuf(f, &d, &err), PEN_E_STATE);
    assert_int_equal(d.fd, -1);
    pen_dmabuf_close(&d);
    tear_down(&t);
}

PEN_TEST(one_release_too_many_leaves_a_block_in_the_pool)
{
    struct bench t;
    set_up(&t);
    struct stk_buffer *b = NULL, *c = NULL, *none = NULL;
    struct stk_point wait;
    assert_int_equal(stk_pool_take(t.pool, NULL, &b, &wait, NULL), PEN_OK);
    assert_true(stk_buffer_unref(b));
    assert_false(stk_buffer_unref(b));
    assert_false(stk_buffer_unref(b));
    assert_int_equal(stk_pool_take(t.pool, NULL, &b, &wait, NULL), PEN_OK);
    assert_int_equal(stk_pool_take(t.pool, NULL, &c, &wait, NULL), PEN_OK);
    assert_ptr_not_equal(b, c);
    assert_int_equal(stk_pool_take(t.pool, NULL, &none, &wait, NULL),
                     PEN_AGAIN);
    assert_true(stk_buffer_unref(b));
    assert_true(stk_buffer_unref(c));
    assert_true(stk_buffer_unref(NULL));
    tear_down(&t);
}

static void count_gone(void *cookie)
{
    ++*(unsigned *)cookie;
}

PEN_TEST(the_ledger_is_borrowed_until_the_last_frame_is_gone)
{
    struct bench t;
    set_up(&t);
    unsigned gone = 0;
    stk_frame_pool_when_gone(t.frames, count_gone, &gone);
    struct pen_frame *a = make(&t, 0), *b = make(&t, 1);
    stk_frame_pool_destroy(&t.frames);
    pen_frame_unref(a);
    assert_int_equal(gone, 0);
    pen_frame_unref(b);
    assert_int_equal(gone, 1);
    tear_down(&t);
}

PEN_TEST_MAIN(
    PEN_CASE(what_is_done_to_a_released_frame_is_told_and_does_nothing),
    PEN_CASE(frames_that_outlive_their_pipeline_are_valid_until_released),
    PEN_CASE(a_released_frame_has_neither_memory_nor_size),
    PEN_CASE(one_release_too_many_leaves_a_block_in_the_pool),
    PEN_CASE(the_ledger_is_borrowed_until_the_last_frame_is_gone))
