// Memory that is not Penstock's as a frame, as a program sees it: with the
// public headers and the shared library alone.

#include <penstock/penstock.h>

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pen_test.h"

enum { W = 64, H = 48, PITCH = 128, BYTES = PITCH * H };

#define OK(expr)                                                               \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        const enum pen_status got_ = (expr);                                   \
        if (got_ != PEN_OK)                                                    \
            fail_msg("%s: %s: %s: %s", #expr, pen_status_name(got_),           \
                     err.where, err.text);                                     \
    } while (0)

static const struct pen_caps mono = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_MONO,
    .width = W,
    .height = H,
};

static struct pen_device *open_device(void)
{
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    struct pen_device *dev = NULL;
    OK(pen_device_open(&params, &dev, &err));
    return dev;
}

static struct pen_pool *make_pool(struct pen_device *dev, enum pen_mem_type mem)
{
    const struct pen_pool_params params = { .mem = mem, .device = dev };
    struct pen_pool *pool = NULL;
    OK(pen_pool_create(&params, &pool, &err));
    return pool;
}

static uint64_t live(struct pen_pool *pool)
{
    struct pen_pool_stats stats;
    pen_pool_get_stats(pool, &stats);
    assert_int_equal(stats.bad_frees, 0);
    return stats.live;
}

static struct pen_foreign with_layout(enum pen_mem_type mem)
{
    struct pen_foreign m = { .mem = mem, .bytes = BYTES };
    OK(pen_layout_compute(&mono, PITCH, &m.layout, &err));
    assert_int_equal(m.layout.plane[0].pitch, PITCH);
    return m;
}

static void is_as_wrapped(const struct pen_frame *frame, enum pen_mem_type mem)
{
    assert_int_equal(pen_frame_mem(frame), mem);
    assert_int_equal(pen_frame_caps(frame)->width, W);
    assert_int_equal(pen_frame_caps(frame)->format, PEN_FMT_MONO);
    assert_int_equal(pen_frame_layout(frame)->plane[0].pitch, PITCH);
    assert_int_equal(pen_frame_index(frame), 0);
    assert_true(pen_frame_pts(frame) == INT64_MIN);
}

// Blocks of the program's own pool go back with the last reference.
static void free_pinned(void *memory)
{
    assert_int_equal(pen_pinned_free(memory), PEN_OK);
}

static void free_device(void *address)
{
    assert_int_equal(pen_cuda_free(*(const uint64_t *)address), PEN_OK);
}

PEN_TEST(blocks_of_the_allocator_are_wrapped_and_freed_with_the_frame)
{
    struct pen_device *dev = open_device();
    struct pen_pool *host = make_pool(dev, PEN_MEM_HOST_PINNED);
    struct pen_pool *device = make_pool(dev, PEN_MEM_CUDA_DEVICE);
    uint64_t address = 0;

    struct pen_foreign a = with_layout(PEN_MEM_HOST_PINNED);
    OK(pen_pinned_alloc(host, BYTES, &a.host, &err));
    a.release = free_pinned;
    a.cookie = a.host;
    struct pen_foreign b = with_layout(PEN_MEM_CUDA_DEVICE);
    OK(pen_cuda_alloc(device, BYTES, &address, &err));
    b.address = address;
    b.device = dev;
    b.release = free_device;
    b.cookie = &address;

    struct pen_frame *one = NULL, *two = NULL;
    OK(pen_frame_wrap(&mono, &a, &one, &err));
    OK(pen_frame_wrap(&mono, &b, &two, &err));
    is_as_wrapped(one, PEN_MEM_HOST_PINNED);
    is_as_wrapped(two, PEN_MEM_CUDA_DEVICE);

    assert_ptr_equal(pen_frame_ref(one), one);
    pen_frame_unref(one);
    assert_int_equal(live(host), 1);
    pen_frame_unref(one);
    assert_int_equal(live(host), 0);
    assert_int_equal(live(device), 1);
    pen_frame_unref(two);
    assert_int_equal(live(device), 0);

    OK(pen_pool_destroy(&host, &err));
    OK(pen_pool_destroy(&device, &err));
    pen_device_close(&dev);
}

static void count(void *cookie)
{
    ++*(unsigned *)cookie;
}

static int memory_file(void)
{
    const int fd = memfd_create("foreign", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    return fd;
}

PEN_TEST(a_descriptor_goes_in_and_out_and_stays_everybodys_own)
{
    unsigned released = 0;
    struct pen_foreign m = with_layout(PEN_MEM_DMABUF);
    m.fd = memory_file();
    m.release = count;
    m.cookie = &released;
    struct pen_frame *frame = NULL;
    OK(pen_frame_wrap(&mono, &m, &frame, &err));
    is_as_wrapped(frame, PEN_MEM_DMABUF);

    struct pen_dmabuf out = { 0 };
    OK(pen_frame_dmabuf(frame, &out, &err));
    assert_true(out.fd >= 0 && out.fd != m.fd);
    assert_int_equal(out.planes, 1);
    assert_int_equal(out.plane[0].offset, 0);
    assert_int_equal(out.plane[0].pitch, PITCH);
    assert_int_equal(out.modifier, 0);
    struct stat mine, theirs;
    assert_int_equal(fstat(m.fd, &mine), 0);
    assert_int_equal(fstat(out.fd, &theirs), 0);
    assert_true(mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino);

    // The descriptor keeps the frame.
    const int theirs_fd = out.fd;
    pen_frame_unref(frame);
    assert_int_equal(released, 0);
    pen_dmabuf_close(&out);
    assert_int_equal(released, 1);
    assert_int_equal(fcntl(theirs_fd, F_GETFD), -1);
    assert_true(fcntl(m.fd, F_GETFD) >= 0);
    close(m.fd);
}

PEN_TEST(what_cannot_be_wrapped_is_refused_and_not_released)
{
    static unsigned char memory[BYTES];
    unsigned released = 0;
    struct pen_foreign good = with_layout(PEN_MEM_HOST);
    good.host = memory;
    good.release = count;
    good.cookie = &released;
    struct pen_foreign bad[6] = { good, good, good, good, good, good };
    bad[0].host = NULL;
    bad[1].bytes = BYTES - PITCH;
    bad[2].layout.plane[0].pitch = SIZE_MAX - 7;
    bad[3].layout.plane[0].offset = SIZE_MAX - 7;
    bad[4].mem = PEN_MEM_CUDA_DEVICE;  // without a device
    bad[5].mem = PEN_MEM_COUNT;
    for (unsigned i = 0; i < 6; i++) {
        struct pen_error why = { 0 };
        struct pen_frame *frame = (struct pen_frame *)memory;
        assert_int_equal(pen_frame_wrap(&mono, &bad[i], &frame, &why),
                         PEN_E_ARG);
        assert_null(frame);
        assert_true(why.text[0]);
    }

    struct pen_foreign tiled = with_layout(PEN_MEM_DMABUF);
    struct pen_error why = { 0 };
    struct pen_frame *frame = NULL;
    tiled.fd = memory_file();
    tiled.modifier = 1;
    assert_int_equal(pen_frame_wrap(&mono, &tiled, &frame, &why),
                     PEN_E_UNSUPPORTED);
    assert_true(why.text[0]);
    close(tiled.fd);

    assert_int_equal(released, 0);
    OK(pen_frame_wrap(&mono, &good, &frame, &err));
    struct pen_dmabuf none;
    assert_int_equal(pen_frame_dmabuf(frame, &none, &why), PEN_E_STATE);
    pen_frame_unref(frame);
    assert_int_equal(released, 1);
}

PEN_TEST_MAIN(
    PEN_CASE(blocks_of_the_allocator_are_wrapped_and_freed_with_the_frame),
    PEN_CASE(a_descriptor_goes_in_and_out_and_stays_everybodys_own),
    PEN_CASE(what_cannot_be_wrapped_is_refused_and_not_released))
