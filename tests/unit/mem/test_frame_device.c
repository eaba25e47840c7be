// Frames in pinned and device memory: views, and transfers of every format.

#include <stdio.h>

#include "src/mem/frame.h"
#include "src/mem/pool.h"

#include "gpu_fixture.h"

static const enum pen_format formats[] = {
    PEN_FMT_MONO,     PEN_FMT_BGR,      PEN_FMT_BGRA,     PEN_FMT_RGB,
    PEN_FMT_RGBA,     PEN_FMT_YUV411_I, PEN_FMT_YUV444,   PEN_FMT_YUV420,
    PEN_FMT_UYVY,     PEN_FMT_YUYV,     PEN_FMT_NV12,     PEN_FMT_BAYERBG10,
    PEN_FMT_BAYERBG8, PEN_FMT_BAYERGB8, PEN_FMT_BAYERGR8, PEN_FMT_BAYERRG8,
};
enum { FORMATS = sizeof(formats) / sizeof(formats[0]) };

static struct pen_caps picture(enum pen_format format, int32_t w, int32_t h)
{
    return (struct pen_caps){
        .kind = PEN_KIND_RAW_IMAGE,
        .format = format,
        .width = w,
        .height = h,
    };
}

struct bench {
    struct fixture *f;
    struct stk_stream *stream;
    struct stk_frame_pool *frames;
    struct stk_pool *pinned, *device;
};

static struct stk_pool *make_pool(struct fixture *f, enum pen_mem_type mem,
                                  size_t bytes)
{
    const struct stk_pool_params p = {
        .mem = mem,
        .block_bytes = bytes,
        .blocks = 3,
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "test.output",
    };
    struct stk_pool *pool = NULL;
    FIXTURE_OK(stk_pool_create(&p, &pool, &err));
    return pool;
}

static void set_up(struct bench *t, struct fixture *f, size_t bytes)
{
    t->f = f;
    t->stream = fixture_stream(f, "s");
    FIXTURE_OK(stk_frame_pool_create(4, f->ledger, &t->frames, &err));
    t->pinned = make_pool(f, PEN_MEM_HOST_PINNED, bytes);
    t->device = make_pool(f, PEN_MEM_CUDA_DEVICE, bytes);
}

static void tear_down(struct bench *t)
{
    stk_frame_pool_destroy(&t->frames);
    stk_pool_destroy(&t->pinned);
    stk_pool_destroy(&t->device);
    stk_stream_destroy(&t->stream);
}

static struct pen_frame *make(struct bench *t, struct stk_pool *pool,
                              struct stk_stream *stream,
                              const struct pen_caps *caps)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    struct pen_frame *frame = NULL;
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, t->f->dev, &err));
    FIXTURE_OK(stk_pool_take(pool, stream, &b, &wait, &err));
    FIXTURE_OK(stk_frame_make(t->frames, b, caps, &frame, &err));
    return frame;
}

static struct pen_view on_host(struct pen_frame *frame, unsigned access)
{
    struct pen_view v;
    FIXTURE_OK(stk_frame_on_host(frame, access, &v, &err));
    return v;
}

static struct pen_view on_stream(struct bench *t, struct pen_frame *frame,
                                 unsigned access)
{
    struct pen_view v;
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, t->f->dev, &err));
    FIXTURE_OK(stk_frame_on_stream(frame, t->stream, access, &v, &err));
    return v;
}

static void transfer(struct bench *t, const struct pen_view *dst,
                     const struct pen_view *src)
{
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, t->f->dev, &err));
    FIXTURE_OK(stk_transfer(t->stream, dst, src, &err));
}

// Copy a frame as a module and the runtime do together.
static void copy_frame(struct bench *t, struct pen_frame *dst,
                       struct pen_frame *src)
{
    const struct pen_view from = on_stream(t, src, PEN_READ);
    const struct pen_view to = on_stream(t, dst, PEN_WRITE);
    transfer(t, &to, &from);
    const struct stk_point p = fixture_record(t->f, t->stream);
    stk_buffer_used(src->buffer, p, PEN_READ);
    stk_buffer_used(dst->buffer, p, PEN_WRITE);
}

static void settle(struct pen_frame *frame)
{
    struct stk_point wait;
    while (!stk_buffer_host_ready(frame->buffer, PEN_WRITE, &wait))
        FIXTURE_OK(stk_point_wait(wait, STK_WAIT_HOST_READ, &err));
}

static uint8_t sample(uint64_t seed, unsigned plane, int32_t row, size_t byte)
{
    uint64_t x = seed + 131 * plane + 8191 * (uint64_t)row + byte + 1;
    return (uint8_t)pen_test_random(&x);
}

static void paint(const struct pen_view *v, uint64_t seed)
{
    for (uint32_t i = 0; i < v->planes; i++)
        for (int32_t y = 0; y < v->plane[i].rows; y++)
            for (size_t x = 0; x < v->plane[i].row_bytes; x++)
                ((uint8_t *)v->plane[i]
                     .host)[(size_t)y * v->plane[i].pitch + x] =
                    sample(seed, i, y, x);
}

static void check(const struct pen_view *v, uint64_t seed)
{
    for (uint32_t i = 0; i < v->planes; i++)
        for (int32_t y = 0; y < v->plane[i].rows; y++)
            for (size_t x = 0; x < v->plane[i].row_bytes; x++) {
                const uint8_t got =
                    ((uint8_t *)v->plane[i]
                         .host)[(size_t)y * v->plane[i].pitch + x];
                if (got != sample(seed, i, y, x))
                    fail_msg("plane %u row %d byte %zu: %u, not %u", i, y, x,
                             got, sample(seed, i, y, x));
            }
}

static struct penemu_stats emulator_stats(void)
{
    struct penemu_stats s = { 0 };
    if (fixture_emulator())
        fixture_emulator()->penemu_get_stats(&s);
    return s;
}

// --- views ------------------------------------------------------------------

PEN_TEST(the_host_has_no_view_of_device_memory)
{
    struct fixture f;
    fixture_open(&f);
    struct bench t;
    set_up(&t, &f, 4096);
    const struct pen_caps caps = picture(PEN_FMT_NV12, 31, 21);
    struct pen_frame *frame = make(&t, t.device, t.stream, &caps);
    struct pen_view v;
    struct pen_error err = { 0 };
    assert_int_equal(stk_frame_on_host(frame, PEN_READ, &v, &err), PEN_E_STATE);
    assert_non_null(strstr(err.text, "CudaMemCopy"));
    assert_int_equal(v.planes, 0);

    v = on_stream(&t, frame, PEN_WRITE);
    assert_int_equal(v.mem, PEN_MEM_CUDA_DEVICE);
    assert_int_equal(v.planes, 2);
    assert_null(v.plane[0].host);
    assert_null(v.plane[1].host);
    assert_int_equal(v.plane[0].address, frame->buffer->block.address);
    assert_int_equal(v.plane[1].address,
                     frame->buffer->block.address + 64 * 21);
    pen_frame_unref(frame);
    tear_down(&t);
    fixture_close(&f);
}

PEN_TEST(pinned_memory_is_seen_by_host_and_stream_at_one_address)
{
    struct fixture f;
    fixture_open(&f);
    struct bench t;
    set_up(&t, &f, 4096);
    const struct pen_caps caps = picture(PEN_FMT_RGB, 9, 9);
    struct pen_frame *frame = make(&t, t.pinned, NULL, &caps);
    const struct pen_view host = on_host(frame, PEN_WRITE);
    const struct pen_view queued = on_stream(&t, frame, PEN_READ);
    assert_non_null(host.plane[0].host);
    assert_ptr_equal(queued.plane[0].host, host.plane[0].host);
    assert_int_equal(queued.plane[0].address, host.plane[0].address);
    assert_int_equal(host.plane[0].address, (uintptr_t)host.plane[0].host);
    pen_frame_unref(frame);
    tear_down(&t);
    fixture_close(&f);
}

static void not_ready(struct fixture *f)
{
    struct bench t;
    set_up(&t, f, 4096);
    struct gate gate;
    gate_create(f, &gate);
    const struct pen_caps caps = picture(PEN_FMT_RGB, 9, 9);
    struct pen_frame *frame = make(&t, t.pinned, t.stream, &caps);
    gate_queue(f, &gate, t.stream);
    const struct stk_point p = fixture_record(f, t.stream);
    stk_buffer_used(frame->buffer, p, PEN_WRITE);
    struct pen_view v;
    struct pen_error why = { 0 };
    assert_int_equal(stk_frame_on_host(frame, PEN_READ, &v, &why), PEN_E_STATE);
    assert_non_null(strstr(why.text, "not reached"));
    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(p, STK_WAIT_HOST_READ, &err));
    on_host(frame, PEN_READ);
    pen_frame_unref(frame);
    tear_down(&t);
    gate_free(f, &gate);
}

PEN_TEST(the_host_gets_a_frame_only_when_its_point_is_reached)
{
    fixture_all_modes(not_ready);
}

PEN_TEST(a_frame_of_a_lost_device_is_not_taken_for_good)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("a real context is not broken on purpose");
    struct fixture f;
    fixture_open(&f);
    struct bench t;
    set_up(&t, &f, 4096);
    const struct pen_caps caps = picture(PEN_FMT_RGB, 9, 9);
    struct pen_frame *frame = make(&t, t.pinned, t.stream, &caps);
    stk_buffer_used(frame->buffer, fixture_record(&f, t.stream), PEN_WRITE);
    emu->penemu_break_contexts(700);
    struct pen_view v;
    struct pen_error why = { 0 };
    assert_int_equal(stk_frame_on_host(frame, PEN_READ, &v, &why), PEN_E_LOST);
    assert_string_not_equal(why.text, "");
    pen_frame_unref(frame);
    tear_down(&t);
    fixture_close(&f);
    emu->penemu_reset();
}

static void stream_waits(struct fixture *f)
{
    struct bench t;
    set_up(&t, f, 4096);
    struct stk_stream *other = fixture_stream(f, "other");
    struct gate gate;
    gate_create(f, &gate);
    const struct pen_caps caps = picture(PEN_FMT_MONO, 64, 1);
    struct pen_frame *frame = make(&t, t.device, other, &caps);
    struct pen_frame *copy = make(&t, t.pinned, NULL, &caps);
    // The first launch may load the kernel, which a closed gate could block.
    fixture_fill(f, other, frame->buffer->block.address, 0, 16);
    FIXTURE_OK(
        stk_point_wait(fixture_record(f, other), STK_WAIT_HOST_READ, &err));
    gate_queue(f, &gate, other);
    fixture_fill(f, other, frame->buffer->block.address, 0x07070707, 16);
    stk_buffer_used(frame->buffer, fixture_record(f, other), PEN_WRITE);

    // Queued before the contents exist; right all the same.
    copy_frame(&t, copy, frame);
    gate_open(&gate);
    settle(copy);
    const struct pen_view v = on_host(copy, PEN_READ);
    for (int i = 0; i < 64; i++)
        assert_int_equal(((uint8_t *)v.plane[0].host)[i], 7);
    pen_frame_unref(frame);
    pen_frame_unref(copy);
    tear_down(&t);
    gate_free(f, &gate);
    stk_stream_destroy(&other);
}

PEN_TEST(a_stream_view_waits_for_the_writer_on_another_stream)
{
    fixture_all_modes(stream_waits);
}

PEN_TEST(a_shared_frame_cannot_be_written_by_a_stream)
{
    struct fixture f;
    fixture_open(&f);
    struct bench t;
    set_up(&t, &f, 4096);
    const struct pen_caps caps = picture(PEN_FMT_RGB, 9, 9);
    struct pen_frame *frame = make(&t, t.device, t.stream, &caps);
    pen_frame_ref(frame);
    struct pen_view v;
    struct pen_error why = { 0 };
    assert_int_equal(stk_frame_on_stream(frame, t.stream, PEN_WRITE, &v, &why),
                     PEN_E_STATE);
    assert_non_null(strstr(why.text, "shared"));
    on_stream(&t, frame, PEN_READ);
    pen_frame_unref(frame);
    on_stream(&t, frame, PEN_WRITE);
    pen_frame_unref(frame);
    tear_down(&t);
    fixture_close(&f);
}

// --- transfers --------------------------------------------------------------

static void all_formats(struct fixture *f)
{
    static const int32_t sizes[][2] = {
        { 1, 1 }, { 3, 2 }, { 31, 17 }, { 64, 4 }, { 127, 33 }, { 320, 240 },
    };
    struct bench t;
    set_up(&t, f, 320 * 240 * 4);
    for (unsigned i = 0; i < FORMATS; i++) {
        for (unsigned k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
            const struct pen_caps caps =
                picture(formats[i], sizes[k][0], sizes[k][1]);
            const uint64_t seed = 1000 * i + k;
            struct pen_frame *up = make(&t, t.pinned, NULL, &caps);
            struct pen_frame *a = make(&t, t.device, t.stream, &caps);
            struct pen_frame *b = make(&t, t.device, t.stream, &caps);
            struct pen_frame *down = make(&t, t.pinned, NULL, &caps);
            struct pen_view v = on_host(up, PEN_WRITE);
            paint(&v, seed);
            v = on_host(down, PEN_WRITE);
            memset(v.plane[0].host, 0xcd, v.bytes);

            const struct penemu_stats before = emulator_stats();
            copy_frame(&t, a, up);
            copy_frame(&t, b, a);
            copy_frame(&t, down, b);
            settle(down);
            settle(up);
            const struct penemu_stats after = emulator_stats();
            // Planes and padding go together: one copy each way.
            const uint64_t each = fixture_emulator() ? 1 : 0;
            assert_int_equal(after.h2d - before.h2d, each);
            assert_int_equal(after.d2d - before.d2d, each);
            assert_int_equal(after.d2h - before.d2h, each);
            assert_int_equal(after.pageable_h2d, 0);
            assert_int_equal(after.pageable_d2h, 0);

            v = on_host(down, PEN_READ);
            check(&v, seed);
            // Nothing behind the last sample was touched.
            const struct pen_plane *last = &v.plane[v.planes - 1];
            const size_t end =
                (size_t)((char *)last->host - (char *)v.plane[0].host) +
                last->pitch * (size_t)(last->rows - 1) + last->row_bytes;
            for (size_t x = end; x < v.bytes && x < end + 256; x++)
                assert_int_equal(((uint8_t *)v.plane[0].host)[x], 0xcd);
            pen_frame_unref(up);
            pen_frame_unref(a);
            pen_frame_unref(b);
            pen_frame_unref(down);
        }
    }
    tear_down(&t);
}

PEN_TEST(pictures_of_all_formats_go_to_the_device_and_back_in_one_copy_each)
{
    fixture_all_modes(all_formats);
}

// A view of pinned memory with rows of its own pitch.
static struct pen_view with_pitch(const struct pen_view *like, void *memory,
                                  size_t extra)
{
    struct pen_view v = *like;
    v.mem = PEN_MEM_HOST_PINNED;
    size_t at = 0;
    for (uint32_t i = 0; i < v.planes; i++) {
        v.plane[i].pitch = like->plane[i].row_bytes + extra;
        v.plane[i].host = (char *)memory + at;
        v.plane[i].address = (uintptr_t)v.plane[i].host;
        at += v.plane[i].pitch * (size_t)v.plane[i].rows;
    }
    return v;
}

static void other_pitches(struct fixture *f)
{
    static const size_t extras[] = { 0, 1, 13 };
    struct bench t;
    set_up(&t, f, 1 << 16);
    void *memory = NULL;
    FIXTURE_OK(
        stk_pinned_alloc(f->dev, 1 << 16, "test", PEN_HERE, &memory, &err));
    for (unsigned i = 0; i < FORMATS; i++) {
        for (unsigned k = 0; k < 3; k++) {
            const struct pen_caps caps = picture(formats[i], 53, 19);
            struct pen_frame *a = make(&t, t.device, t.stream, &caps);
            const struct pen_view device = on_stream(&t, a, PEN_WRITE);
            const struct pen_view host = with_pitch(&device, memory, extras[k]);
            memset(memory, 0xcd, 1 << 16);
            paint(&host, i + 7);
            transfer(&t, &device, &host);
            FIXTURE_OK(stk_point_wait(fixture_record(f, t.stream),
                                      STK_WAIT_HOST_READ, &err));
            memset(memory, 0xcd, 1 << 16);
            transfer(&t, &host, &device);
            FIXTURE_OK(stk_point_wait(fixture_record(f, t.stream),
                                      STK_WAIT_HOST_READ, &err));
            check(&host, i + 7);
            // Between the rows nothing was written.
            for (uint32_t p = 0; p < host.planes; p++)
                for (int32_t y = 0; y < host.plane[p].rows; y++)
                    for (size_t x = host.plane[p].row_bytes;
                         x < host.plane[p].pitch; x++)
                        assert_int_equal(
                            ((uint8_t *)host.plane[p]
                                 .host)[(size_t)y * host.plane[p].pitch + x],
                            0xcd);
            stk_buffer_used(a->buffer, fixture_record(f, t.stream), PEN_WRITE);
            pen_frame_unref(a);
        }
    }
    stk_pinned_free(f->dev, memory, 1 << 16);
    tear_down(&t);
}

PEN_TEST(rows_of_another_pitch_are_copied_without_their_gaps)
{
    fixture_all_modes(other_pitches);
}

static void payload(struct fixture *f)
{
    struct bench t;
    set_up(&t, f, 4096);
    const struct pen_caps caps = {
        .kind = PEN_KIND_ENCODED_IMAGE,
        .codec = PEN_CODEC_JPEG,
        .bytes = 4096,
    };
    struct pen_frame *up = make(&t, t.pinned, NULL, &caps);
    struct pen_frame *a = make(&t, t.device, t.stream, &caps);
    struct pen_frame *down = make(&t, t.pinned, NULL, &caps);
    struct pen_view v = on_host(up, PEN_WRITE);
    memset(v.plane[0].host, 0x11, 4096);
    FIXTURE_OK(pen_frame_set_bytes(up, 999, &err));
    v = on_host(down, PEN_WRITE);
    memset(v.plane[0].host, 0xcd, 4096);
    copy_frame(&t, a, up);
    FIXTURE_OK(pen_frame_set_bytes(a, 999, &err));
    copy_frame(&t, down, a);
    FIXTURE_OK(pen_frame_set_bytes(down, 999, &err));
    settle(down);
    settle(up);
    v = on_host(down, PEN_READ);
    assert_int_equal(v.bytes, 999);
    for (int i = 0; i < 4096; i++)
        assert_int_equal(((uint8_t *)v.plane[0].host)[i],
                         i < 999 ? 0x11 : 0xcd);

    // A payload that does not fit, and an empty one.
    struct pen_error why = { 0 };
    const struct pen_view small = v;
    FIXTURE_OK(pen_frame_set_bytes(a, 1000, &err));
    const struct pen_view large = on_stream(&t, a, PEN_READ);
    assert_int_equal(stk_transfer(t.stream, &small, &large, &why), PEN_E_ARG);
    assert_non_null(strstr(why.text, "1000"));
    FIXTURE_OK(pen_frame_set_bytes(a, 0, &err));
    const struct penemu_stats before = emulator_stats();
    const struct pen_view none = on_stream(&t, a, PEN_READ);
    assert_int_equal(stk_transfer(t.stream, &small, &none, &why), PEN_OK);
    assert_int_equal(emulator_stats().d2h, before.d2h);

    pen_frame_unref(up);
    pen_frame_unref(a);
    pen_frame_unref(down);
    tear_down(&t);
}

PEN_TEST(of_an_encoded_frame_only_the_payload_is_copied)
{
    fixture_all_modes(payload);
}

PEN_TEST(pictures_that_differ_are_not_copied)
{
    struct fixture f;
    fixture_open(&f);
    struct bench t;
    set_up(&t, &f, 1 << 16);
    const struct pen_caps ours = picture(PEN_FMT_RGB, 32, 8);
    const struct pen_caps others[] = {
        picture(PEN_FMT_BGR, 32, 8),
        picture(PEN_FMT_RGB, 31, 8),
        picture(PEN_FMT_RGB, 32, 7),
        { .kind = PEN_KIND_FRAME, .bytes = 96 * 8 },
    };
    struct pen_frame *a = make(&t, t.device, t.stream, &ours);
    const struct pen_view dst = on_stream(&t, a, PEN_WRITE);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        struct pen_frame *b = make(&t, t.pinned, NULL, &others[i]);
        const struct pen_view src = on_host(b, PEN_READ);
        struct pen_error err = { 0 };
        assert_int_equal(stk_transfer(t.stream, &dst, &src, &err), PEN_E_ARG);
        assert_non_null(strstr(err.text, "RGB 32x8"));
        pen_frame_unref(b);
    }
    assert_int_equal(emulator_stats().h2d, 0);
    pen_frame_unref(a);
    tear_down(&t);
    fixture_close(&f);
    if (fixture_emulator())
        fixture_emulator()->penemu_reset();
}

PEN_TEST_MAIN(
    PEN_CASE(the_host_has_no_view_of_device_memory),
    PEN_CASE(pinned_memory_is_seen_by_host_and_stream_at_one_address),
    PEN_CASE(the_host_gets_a_frame_only_when_its_point_is_reached),
    PEN_CASE(a_frame_of_a_lost_device_is_not_taken_for_good),
    PEN_CASE(a_stream_view_waits_for_the_writer_on_another_stream),
    PEN_CASE(a_shared_frame_cannot_be_written_by_a_stream),
    PEN_CASE(
        pictures_of_all_formats_go_to_the_device_and_back_in_one_copy_each),
    PEN_CASE(rows_of_another_pitch_are_copied_without_their_gaps),
    PEN_CASE(of_an_encoded_frame_only_the_payload_is_copied),
    PEN_CASE(pictures_that_differ_are_not_copied))
