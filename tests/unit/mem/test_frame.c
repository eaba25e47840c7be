// Frames over host memory: what they say, views, sharing, recycling.

#include <pthread.h>
#include <stdio.h>

#include "src/mem/frame.h"
#include "src/mem/pool.h"

#include "alloc_fail.h"
#include "pen_test.h"

static const struct pen_caps rgb = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_RGB,
    .width = 30,
    .height = 20,
};
static const struct pen_caps nv12 = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_NV12,
    .width = 31,
    .height = 21,
};
static const struct pen_caps jpeg = {
    .kind = PEN_KIND_ENCODED_IMAGE,
    .codec = PEN_CODEC_JPEG,
    .format = PEN_FMT_RGB,
    .width = 30,
    .height = 20,
    .bytes = 1000,
};

struct bench {
    struct stk_ledger *ledger;
    struct stk_frame_pool *frames;
    struct stk_pool *pool;
};

static void set_up(struct bench *t, size_t bytes, uint32_t blocks)
{
    t->ledger = stk_ledger_create(true);
    assert_int_equal(stk_frame_pool_create(2, t->ledger, &t->frames, NULL),
                     PEN_OK);
    const struct stk_pool_params p = {
        .mem = PEN_MEM_HOST,
        .block_bytes = bytes,
        .blocks = blocks,
        .ledger = t->ledger,
        .owner = "test.output",
    };
    assert_int_equal(stk_pool_create(&p, &t->pool, NULL), PEN_OK);
}

static struct stk_ledger_totals totals(const struct bench *t, enum stk_res res)
{
    struct stk_ledger_totals out;
    stk_ledger_totals(t->ledger, res, &out);
    return out;
}

static void tear_down(struct bench *t)
{
    stk_frame_pool_destroy(&t->frames);
    stk_pool_destroy(&t->pool);
    assert_int_equal(totals(t, STK_RES_FRAME).live, 0);
    assert_int_equal(totals(t, STK_RES_HOST).live, 0);
    stk_ledger_destroy(&t->ledger);
}

static struct pen_frame *make(struct bench *t, const struct pen_caps *caps)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    assert_int_equal(stk_pool_take(t->pool, NULL, &b, &wait, NULL), PEN_OK);
    struct pen_frame *f = NULL;
    assert_int_equal(stk_frame_make(t->frames, b, caps, &f, NULL), PEN_OK);
    return f;
}

static uint32_t in_use(const struct bench *t)
{
    struct stk_pool_stats s;
    stk_pool_stats(t->pool, &s);
    return s.in_use;
}

PEN_TEST(a_frame_says_what_it_is)
{
    struct bench t;
    set_up(&t, 4096, 2);
    struct pen_frame *f = make(&t, &rgb);
    assert_true(pen_caps_equal(pen_frame_caps(f), &rgb));
    assert_int_equal(pen_frame_layout(f)->bytes, 128 * 20);
    assert_int_equal(pen_frame_layout(f)->plane[0].pitch, 128);
    assert_int_equal(pen_frame_mem(f), PEN_MEM_HOST);
    assert_int_equal(pen_frame_index(f), 0);
    assert_int_equal(pen_frame_pts(f), INT64_MIN);
    assert_int_equal(pen_frame_bytes(f), 128 * 20);
    pen_frame_set_pts(f, 40000000);
    f->index = 7;
    assert_int_equal(pen_frame_pts(f), 40000000);
    assert_int_equal(pen_frame_index(f), 7);
    pen_frame_unref(f);

    // A recycled object starts afresh.
    f = make(&t, &jpeg);
    assert_int_equal(pen_frame_pts(f), INT64_MIN);
    assert_int_equal(pen_frame_index(f), 0);
    assert_int_equal(pen_frame_bytes(f), 1000);
    pen_frame_unref(f);
    pen_frame_unref(NULL);
    tear_down(&t);
}

PEN_TEST(a_frame_gives_its_buffer_back_with_the_last_reference)
{
    struct bench t;
    set_up(&t, 4096, 1);
    struct pen_frame *f = make(&t, &rgb);
    assert_ptr_equal(pen_frame_ref(f), f);
    assert_int_equal(in_use(&t), 1);
    pen_frame_unref(f);
    assert_int_equal(in_use(&t), 1);
    pen_frame_unref(f);
    assert_int_equal(in_use(&t), 0);
    tear_down(&t);
}

PEN_TEST(frame_objects_are_recycled_and_not_allocated_again)
{
    struct bench t;
    set_up(&t, 4096, 4);
    assert_int_equal(totals(&t, STK_RES_FRAME).live, 2);
    pen_alloc_fail_arm(0, false);
    for (int i = 0; i < 100; i++) {
        struct pen_frame *a = make(&t, &rgb), *b = make(&t, &nv12);
        pen_frame_unref(a);
        pen_frame_unref(b);
    }
    pen_alloc_fail_disarm();
    assert_int_equal(pen_alloc_fail_count(), 0);
    assert_int_equal(totals(&t, STK_RES_FRAME).added, 2);

    // A third at the same time is one more object, which stays.
    struct pen_frame *f[3];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 3; i++)
            f[i] = make(&t, &rgb);
        for (int i = 0; i < 3; i++)
            pen_frame_unref(f[i]);
    }
    assert_int_equal(totals(&t, STK_RES_FRAME).added, 3);
    tear_down(&t);
}

PEN_TEST(frames_outlive_their_pools)
{
    struct bench t;
    set_up(&t, 4096, 2);
    struct pen_frame *f = make(&t, &rgb);
    stk_frame_pool_destroy(&t.frames);
    stk_pool_destroy(&t.pool);
    assert_null(t.frames);
    assert_int_equal(totals(&t, STK_RES_FRAME).live, 1);
    assert_int_equal(totals(&t, STK_RES_HOST).live, 1);
    struct pen_view v;
    assert_int_equal(stk_frame_on_host(f, PEN_WRITE, &v, NULL), PEN_OK);
    memset(v.plane[0].host, 1, 128 * 20);
    pen_frame_unref(f);
    tear_down(&t);
}

PEN_TEST(a_buffer_that_is_too_small_stays_the_callers)
{
    struct bench t;
    set_up(&t, 128 * 20 - 1, 1);
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    assert_int_equal(stk_pool_take(t.pool, NULL, &b, &wait, NULL), PEN_OK);
    struct pen_frame *f = (struct pen_frame *)1;
    struct pen_error err = { 0 };
    assert_int_equal(stk_frame_make(t.frames, b, &rgb, &f, &err), PEN_E_ARG);
    assert_null(f);
    assert_non_null(strstr(err.text, "2560"));
    assert_non_null(strstr(err.text, "2559"));
    const struct pen_caps unknown = { .kind = PEN_KIND_RAW_IMAGE };
    assert_int_equal(stk_frame_make(t.frames, b, &unknown, &f, &err),
                     PEN_E_ARG);
    assert_int_equal(b->refs, 1);
    stk_buffer_unref(b);
    assert_int_equal(in_use(&t), 0);
    tear_down(&t);
}

PEN_TEST(a_host_view_shows_the_planes)
{
    struct bench t;
    set_up(&t, 8192, 1);
    struct pen_frame *f = make(&t, &nv12);
    struct pen_view v;
    assert_int_equal(stk_frame_on_host(f, PEN_READ | PEN_WRITE, &v, NULL),
                     PEN_OK);
    assert_int_equal(v.mem, PEN_MEM_HOST);
    assert_int_equal(v.format, PEN_FMT_NV12);
    assert_int_equal(v.width, 31);
    assert_int_equal(v.height, 21);
    assert_int_equal(v.planes, 2);
    assert_int_equal(v.bytes, 8192);
    assert_ptr_equal(v.plane[0].host, f->buffer->block.host);
    assert_ptr_equal((char *)v.plane[1].host,
                     (char *)f->buffer->block.host + 64 * 21);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(v.plane[i].address, (uintptr_t)v.plane[i].host);
        assert_int_equal(v.plane[i].pitch, 64);
        assert_int_equal(v.plane[i].row_bytes, i ? 32 : 31);
        assert_int_equal(v.plane[i].rows, i ? 11 : 21);
        memset(v.plane[i].host, i + 1,
               v.plane[i].pitch * (size_t)v.plane[i].rows);
    }
    assert_int_equal(*(uint8_t *)v.plane[0].host, 1);
    pen_frame_unref(f);
    tear_down(&t);
}

PEN_TEST(a_view_of_bytes_shows_the_payload)
{
    struct bench t;
    set_up(&t, 2048, 1);
    struct pen_frame *f = make(&t, &jpeg);
    struct pen_view v;
    assert_int_equal(stk_frame_on_host(f, PEN_WRITE, &v, NULL), PEN_OK);
    assert_int_equal(v.bytes, 1000);
    assert_int_equal(v.planes, 1);
    assert_int_equal(v.format, PEN_FMT_NONE);
    static const size_t sizes[] = { 1500, 2048, 0, 17 };
    for (int i = 0; i < 4; i++) {
        assert_int_equal(pen_frame_set_bytes(f, sizes[i], NULL), PEN_OK);
        assert_int_equal(pen_frame_bytes(f), sizes[i]);
        assert_int_equal(stk_frame_on_host(f, PEN_READ, &v, NULL), PEN_OK);
        assert_int_equal(v.bytes, sizes[i]);
        assert_int_equal(v.plane[0].row_bytes, sizes[i]);
        assert_int_equal(v.plane[0].rows, 1);
    }
    struct pen_error err = { 0 };
    assert_int_equal(pen_frame_set_bytes(f, 2049, &err), PEN_E_ARG);
    assert_non_null(strstr(err.text, "2049"));
    assert_int_equal(pen_frame_bytes(f), 17);
    pen_frame_unref(f);
    tear_down(&t);
}

PEN_TEST(the_size_of_a_picture_cannot_be_set)
{
    struct bench t;
    set_up(&t, 4096, 1);
    struct pen_frame *f = make(&t, &rgb);
    struct pen_error err = { 0 };
    assert_int_equal(pen_frame_set_bytes(f, 10, &err), PEN_E_ARG);
    assert_string_not_equal(err.text, "");
    assert_int_equal(pen_frame_bytes(f), 2560);
    pen_frame_unref(f);
    tear_down(&t);
}

PEN_TEST(a_shared_frame_cannot_be_written)
{
    struct bench t;
    set_up(&t, 4096, 1);
    struct pen_frame *f = make(&t, &rgb);
    struct pen_view v;
    struct pen_error err = { 0 };

    pen_frame_ref(f);
    assert_int_equal(stk_frame_on_host(f, PEN_WRITE, &v, &err), PEN_E_STATE);
    assert_non_null(strstr(err.text, "shared"));
    assert_int_equal(v.planes, 0);
    assert_int_equal(stk_frame_on_host(f, PEN_READ | PEN_WRITE, &v, &err),
                     PEN_E_STATE);
    assert_int_equal(stk_frame_on_host(f, PEN_READ, &v, &err), PEN_OK);
    pen_frame_unref(f);
    assert_int_equal(stk_frame_on_host(f, PEN_WRITE, &v, &err), PEN_OK);

    // Two frames over one buffer share it as well.
    struct pen_frame *g = NULL;
    assert_int_equal(
        stk_frame_make(t.frames, stk_buffer_ref(f->buffer), &rgb, &g, NULL),
        PEN_OK);
    assert_int_equal(stk_frame_on_host(g, PEN_WRITE, &v, &err), PEN_E_STATE);
    pen_frame_unref(f);
    assert_int_equal(stk_frame_on_host(g, PEN_WRITE, &v, &err), PEN_OK);
    pen_frame_unref(g);
    tear_down(&t);
}

PEN_TEST(no_access_and_unknown_access_are_refused)
{
    struct bench t;
    set_up(&t, 4096, 1);
    struct pen_frame *f = make(&t, &rgb);
    struct pen_view v;
    struct pen_error err = { 0 };
    assert_int_equal(stk_frame_on_host(f, 0, &v, &err), PEN_E_ARG);
    assert_int_equal(stk_frame_on_host(f, 4 | PEN_READ, &v, &err), PEN_E_ARG);
    assert_string_not_equal(err.text, "");
    pen_frame_unref(f);
    tear_down(&t);
}

PEN_TEST(no_stream_reaches_pageable_memory)
{
    struct bench t;
    set_up(&t, 4096, 2);
    struct pen_frame *f = make(&t, &rgb), *g = make(&t, &rgb);
    struct pen_view v, w;
    struct pen_error err = { 0 };
    assert_int_equal(stk_frame_on_stream(f, NULL, PEN_READ, &v, &err),
                     PEN_E_STATE);
    assert_non_null(strstr(err.text, "HOST_PINNED"));

    assert_int_equal(stk_frame_on_host(f, PEN_READ, &v, NULL), PEN_OK);
    assert_int_equal(stk_frame_on_host(g, PEN_WRITE, &w, NULL), PEN_OK);
    assert_int_equal(stk_transfer(NULL, &w, &v, &err), PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "HOST_PINNED"));
    w.mem = v.mem = PEN_MEM_HOST_PINNED;
    assert_int_equal(stk_transfer(NULL, &w, &v, &err), PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "host to host"));
    pen_frame_unref(f);
    pen_frame_unref(g);
    tear_down(&t);
}

enum { THREADS = 4, ROUNDS = 3000 };

static void *make_and_drop(void *cookie)
{
    struct bench *t = cookie;
    for (unsigned i = 0; i < ROUNDS; i++) {
        struct stk_buffer *b = NULL;
        struct stk_point wait;
        if (stk_pool_take(t->pool, NULL, &b, &wait, NULL) != PEN_OK)
            return cookie;
        struct pen_frame *f = NULL;
        if (stk_frame_make(t->frames, b, &rgb, &f, NULL) != PEN_OK)
            return cookie;
        pen_frame_unref(pen_frame_ref(f));
        struct pen_view v;
        if (stk_frame_on_host(f, PEN_WRITE, &v, NULL) != PEN_OK)
            return cookie;
        *(unsigned char *)v.plane[0].host = (unsigned char)i;
        pen_frame_unref(f);
    }
    return NULL;
}

PEN_TEST(threads_make_no_more_frame_objects_than_are_alive_at_once)
{
    struct bench t;
    set_up(&t, 4096, THREADS);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, make_and_drop, &t),
                         0);
    for (int i = 0; i < THREADS; i++) {
        void *failed = NULL;
        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    assert_true(totals(&t, STK_RES_FRAME).added <= THREADS);
    tear_down(&t);
}

PEN_TEST_MAIN(
    PEN_CASE(a_frame_says_what_it_is),
    PEN_CASE(a_frame_gives_its_buffer_back_with_the_last_reference),
    PEN_CASE(frame_objects_are_recycled_and_not_allocated_again),
    PEN_CASE(frames_outlive_their_pools),
    PEN_CASE(a_buffer_that_is_too_small_stays_the_callers),
    PEN_CASE(a_host_view_shows_the_planes),
    PEN_CASE(a_view_of_bytes_shows_the_payload),
    PEN_CASE(the_size_of_a_picture_cannot_be_set),
    PEN_CASE(a_shared_frame_cannot_be_written),
    PEN_CASE(no_access_and_unknown_access_are_refused),
    PEN_CASE(no_stream_reaches_pageable_memory),
    PEN_CASE(threads_make_no_more_frame_objects_than_are_alive_at_once))
