// Frames over host memory that is not ours: what layouts are taken, where the
// planes then lie, and when the memory is let go. test_frame_foreign_device has
// the other memory types.

#include <stdio.h>

#include "src/mem/frame.h"

#include "alloc_fail.h"
#include "pen_test.h"

enum { W = 32, H = 8 };

static const struct pen_caps mono = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_MONO,
    .width = W,
    .height = H,
};
static const struct pen_caps nv12 = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_NV12,
    .width = W,
    .height = H,
};
static const struct pen_caps bayer10 = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_BAYERBG10,
    .width = W,
    .height = H,
};
static const struct pen_caps bytes = { .kind = PEN_KIND_FRAME, .bytes = 100 };

static _Alignas(64) unsigned char memory[8192];

static void count(void *cookie)
{
    ++*(unsigned *)cookie;
}

// The tight rows of the caps, at the given pitches and offsets.
static struct pen_layout layout_of(const struct pen_caps *caps, size_t offset0,
                                   size_t pitch0, size_t offset1, size_t pitch1)
{
    struct pen_layout l;
    assert_int_equal(pen_layout_compute(caps, 1, &l, NULL), PEN_OK);
    l.bytes = 0;
    l.plane[0].offset = offset0;
    l.plane[0].pitch = pitch0;
    if (l.planes > 1) {
        l.plane[1].offset = offset1;
        l.plane[1].pitch = pitch1;
    }
    return l;
}

static struct pen_foreign foreign(size_t size, unsigned *released)
{
    return (struct pen_foreign){
        .mem = PEN_MEM_HOST,
        .host = memory,
        .bytes = size,
        .release = count,
        .cookie = released,
    };
}

PEN_TEST(planes_lie_where_the_caller_says)
{
    unsigned released = 0;
    struct pen_foreign m = foreign(4096, &released);
    m.layout = layout_of(&nv12, 64, 100, 1500, 40);
    struct pen_frame *f = NULL;
    assert_int_equal(pen_frame_wrap(&nv12, &m, &f, NULL), PEN_OK);
    assert_int_equal(pen_frame_mem(f), PEN_MEM_HOST);
    assert_int_equal(pen_frame_index(f), 0);
    assert_int_equal(pen_frame_pts(f), INT64_MIN);
    assert_true(pen_caps_equal(pen_frame_caps(f), &nv12));
    assert_int_equal(pen_frame_layout(f)->bytes, 1500 + 40 * 3 + 32);

    struct pen_view v;
    assert_int_equal(stk_frame_on_host(f, PEN_READ | PEN_WRITE, &v, NULL),
                     PEN_OK);
    assert_ptr_equal(v.plane[0].host, memory + 64);
    assert_ptr_equal(v.plane[1].host, memory + 1500);
    assert_int_equal(v.plane[0].pitch, 100);
    assert_int_equal(v.plane[1].pitch, 40);
    assert_int_equal(v.plane[0].row_bytes, W);
    assert_int_equal(v.plane[1].rows, H / 2);
    assert_int_equal(stk_frame_host_done(f, PEN_READ | PEN_WRITE, NULL),
                     PEN_OK);

    pen_frame_ref(f);
    pen_frame_unref(f);
    assert_int_equal(released, 0);
    pen_frame_unref(f);
    assert_int_equal(released, 1);
}

PEN_TEST(without_planes_they_lie_as_in_pools)
{
    unsigned released = 0;
    struct pen_layout l;
    assert_int_equal(pen_layout_compute(&nv12, PEN_PITCH_ALIGN, &l, NULL),
                     PEN_OK);
    struct pen_foreign m = foreign(l.bytes, &released);
    struct pen_frame *f = NULL;
    assert_int_equal(pen_frame_wrap(&nv12, &m, &f, NULL), PEN_OK);
    assert_int_equal(pen_frame_layout(f)->plane[1].offset, l.plane[1].offset);
    assert_int_equal(pen_frame_layout(f)->bytes, l.bytes);
    pen_frame_unref(f);
    assert_int_equal(released, 1);

    m.bytes = l.bytes - 1;
    struct pen_error err = { 0 };
    assert_int_equal(pen_frame_wrap(&nv12, &m, &f, &err), PEN_E_ARG);
    assert_null(f);
    assert_non_null(strstr(err.text, "the memory has"));

    m = foreign(100, &released);
    m.release = NULL;
    assert_int_equal(pen_frame_wrap(&bytes, &m, &f, NULL), PEN_OK);
    assert_int_equal(pen_frame_bytes(f), 100);
    assert_int_equal(pen_frame_set_bytes(f, 7, NULL), PEN_OK);
    assert_int_equal(pen_frame_set_bytes(f, 101, NULL), PEN_E_ARG);
    pen_frame_unref(f);
    assert_int_equal(released, 1);
}

// Rows of a picture in a larger one, and planes in any order, are allowed.
PEN_TEST(a_part_of_a_larger_picture_can_be_wrapped)
{
    unsigned released = 0;
    struct pen_foreign m = foreign(100 * (H - 1) + 40 + W, &released);
    m.layout = layout_of(&mono, 40, 100, 0, 0);
    struct pen_frame *f = NULL;
    assert_int_equal(pen_frame_wrap(&mono, &m, &f, NULL), PEN_OK);
    pen_frame_unref(f);

    m = foreign(1024, &released);
    m.layout = layout_of(&nv12, 512, 64, 0, 32);
    assert_int_equal(pen_frame_wrap(&nv12, &m, &f, NULL), PEN_OK);
    pen_frame_unref(f);
    assert_int_equal(released, 2);
}

PEN_TEST(layouts_that_do_not_fit_are_refused_and_nothing_is_released)
{
    const struct {
        const struct pen_caps *caps;
        size_t bytes, offset0, pitch0, offset1, pitch1;
        const char *says;
    } cases[] = {
        { &mono, W * H - 1, 0, W, 0, 0, "does not fit" },
        { &mono, W * H, 1, W, 0, 0, "does not fit" },
        { &mono, W * H, 0, W - 1, 0, 0, "follow each other after 31" },
        { &mono, W * H, 0, 0, 0, 0, "follow each other after 0" },
        { &mono, 4096, 0, SIZE_MAX, 0, 0, "does not fit" },
        { &mono, 4096, 0, SIZE_MAX / 7, 0, 0, "does not fit" },
        { &mono, 4096, 0, SIZE_MAX / 7 + 1, 0, 0, "does not fit" },
        { &mono, 4096, SIZE_MAX, W, 0, 0, "does not fit" },
        { &mono, 4096, SIZE_MAX - 7 * W, W, 0, 0, "does not fit" },
        { &mono, 4096, SIZE_MAX - 8 * W + 1, W, 0, 0, "does not fit" },
        { &nv12, 4096, 0, 64, 64, 64, "overlaps plane 0" },
        { &nv12, 4096, 256, 64, 256 - 1, 64, "overlaps plane 0" },
        { &nv12, 4096, 0, 64, 7 * 64 + W - 1, 64, "overlaps plane 0" },
        { &bayer10, 4096, 1, 128, 0, 0, "multiples of a sample's 2" },
        { &bayer10, 4096, 0, 129, 0, 0, "multiples of a sample's 2" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        unsigned released = 0;
        struct pen_error err = { 0 };
        struct pen_frame *f = (struct pen_frame *)memory;
        struct pen_foreign m = foreign(cases[i].bytes, &released);
        m.layout = layout_of(cases[i].caps, cases[i].offset0, cases[i].pitch0,
                             cases[i].offset1, cases[i].pitch1);
        assert_int_equal(pen_frame_wrap(cases[i].caps, &m, &f, &err),
                         PEN_E_ARG);
        assert_null(f);
        if (!strstr(err.text, cases[i].says))
            fail_msg("case %zu says \"%s\"", i, err.text);
        assert_int_equal(released, 0);
    }
}

PEN_TEST(a_layout_of_other_rows_is_refused)
{
    for (int i = 0; i < 5; i++) {
        unsigned released = 0;
        struct pen_error err = { 0 };
        struct pen_frame *f = NULL;
        struct pen_foreign m = foreign(sizeof(memory), &released);
        m.layout = layout_of(&nv12, 0, 64, 1024, 64);
        switch (i) {
        case 0:
            m.layout.plane[0].rows++;
            break;
        case 1:
            m.layout.plane[1].row_bytes--;
            break;
        case 2:
            m.layout.planes = 1;
            break;
        case 3:
            m.layout.planes = UINT32_MAX;
            break;
        case 4:
            m.layout.plane[1].rows = INT32_MIN;
            break;
        }
        assert_int_equal(pen_frame_wrap(&nv12, &m, &f, &err), PEN_E_ARG);
        assert_non_null(strstr(err.text, "is not one of NV12 32x8"));
        assert_null(f);
        assert_int_equal(released, 0);
    }
}

PEN_TEST(memory_that_is_none_is_refused)
{
    unsigned released = 0;
    struct pen_foreign m = foreign(4096, &released);
    struct pen_frame *f = NULL;
    m.host = NULL;
    assert_int_equal(pen_frame_wrap(&mono, &m, &f, NULL), PEN_E_ARG);
    m.host = memory;
    m.bytes = 0;
    assert_int_equal(pen_frame_wrap(&mono, &m, &f, NULL), PEN_E_ARG);
    m.bytes = SIZE_MAX;
    assert_int_equal(pen_frame_wrap(&mono, &m, &f, NULL), PEN_E_ARG);
    m.bytes = 4096;
    m.mem = PEN_MEM_COUNT;
    assert_int_equal(pen_frame_wrap(&mono, &m, &f, NULL), PEN_E_ARG);
    m.mem = PEN_MEM_CUDA_DEVICE;  // of no device
    m.address = 4096;
    assert_int_equal(pen_frame_wrap(&mono, &m, &f, NULL), PEN_E_ARG);
    m.mem = PEN_MEM_DMABUF;
    m.fd = 0;
    m.modifier = 0x100000000000001;
    struct pen_error err = { 0 };
    assert_int_equal(pen_frame_wrap(&mono, &m, &f, &err), PEN_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "0x100000000000001"));

    m = foreign(4096, &released);
    m.host = memory + 1;
    assert_int_equal(pen_frame_wrap(&bayer10, &m, &f, &err), PEN_E_ARG);
    assert_non_null(strstr(err.text, "not aligned"));
    const struct pen_caps none = { .kind = PEN_KIND_RAW_IMAGE };
    assert_int_equal(pen_frame_wrap(&none, &m, &f, NULL), PEN_E_ARG);
    const struct pen_caps huge = { .kind = PEN_KIND_RAW_IMAGE,
                                   .format = PEN_FMT_RGBA,
                                   .width = INT32_MAX,
                                   .height = INT32_MAX };
    assert_true(pen_frame_wrap(&huge, &m, &f, NULL) < 0);
    assert_null(f);
    assert_int_equal(released, 0);
}

PEN_TEST(a_wrap_without_memory_leaves_everything_as_it_was)
{
    unsigned failures = 0, released = 0;
    bool fired = true;
    for (unsigned nth = 1; fired; nth++) {
        struct pen_frame *f = NULL;
        struct pen_error err = { 0 };
        const struct pen_foreign m = foreign(4096, &released);
        pen_alloc_fail_arm(nth, nth % 2);
        const enum pen_status st = pen_frame_wrap(&mono, &m, &f, &err);
        fired = pen_alloc_fail_disarm();
        assert_int_equal(st, fired ? PEN_E_NOMEM : PEN_OK);
        assert_int_equal(released, 0);
        if (fired) {
            failures++;
            assert_null(f);
            assert_string_not_equal(err.text, "");
        } else {
            pen_frame_unref(f);
            assert_int_equal(released, 1);
        }
    }
    assert_int_equal(failures, 3);  // buffer, frame pool, frame
}

PEN_TEST_MAIN(
    PEN_CASE(planes_lie_where_the_caller_says),
    PEN_CASE(without_planes_they_lie_as_in_pools),
    PEN_CASE(a_part_of_a_larger_picture_can_be_wrapped),
    PEN_CASE(layouts_that_do_not_fit_are_refused_and_nothing_is_released),
    PEN_CASE(a_layout_of_other_rows_is_refused),
    PEN_CASE(memory_that_is_none_is_refused),
    PEN_CASE(a_wrap_without_memory_leaves_everything_as_it_was))
