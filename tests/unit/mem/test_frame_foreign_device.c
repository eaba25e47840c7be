// Frames over foreign memory that the device reaches, DMABUF frames on the host
// and on a stream, and their descriptors for others.

#include <fcntl.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "src/mem/dmabuf.h"
#include "src/mem/frame.h"
#include "src/mem/pool.h"

#include "gpu_fixture.h"

enum { W = 64, H = 16, BYTES = W * H };

static const struct pen_caps mono = {
    .kind = PEN_KIND_RAW_IMAGE,
    .format = PEN_FMT_MONO,
    .width = W,
    .height = H,
};

static uint64_t live(struct fixture *f, enum stk_res res)
{
    return fixture_live(f->ledger, res);
}

static void count(void *cookie)
{
    atomic_fetch_add((atomic_uint *)cookie, 1);  // on a reaper's thread
}

static struct pen_view view(struct fixture *f, struct pen_frame *frame,
                            struct stk_stream *stream, unsigned access)
{
    struct pen_view v;
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    if (stream)
        FIXTURE_OK(stk_frame_on_stream(frame, stream, access, &v, &err));
    else
        FIXTURE_OK(stk_frame_on_host(frame, access, &v, &err));
    return v;
}

static struct stk_point copy(struct fixture *f, struct stk_stream *s,
                             const struct pen_view *to,
                             const struct pen_view *from)
{
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
        FIXTURE_OK(stk_transfer(s, to, from, &err));
    }
    return fixture_record(f, s);
}

static struct pen_frame *wrap(const struct pen_foreign *memory)
{
    struct pen_frame *frame = NULL;
    FIXTURE_OK(pen_frame_wrap(&mono, memory, &frame, &err));
    assert_int_equal(pen_frame_mem(frame), memory->mem);
    return frame;
}

// --- memory of the device ---------------------------------------------------

static void there_and_back(struct fixture *f)
{
    struct stk_stream *s = fixture_stream(f, "s");
    atomic_uint released = 0;
    void *host[2];
    uint64_t address = 0;
    for (int i = 0; i < 2; i++) {
        FIXTURE_OK(
            stk_pinned_alloc(f->dev, BYTES, "user", PEN_HERE, &host[i], &err));
    }
    FIXTURE_OK(
        stk_device_alloc(f->dev, BYTES, "user", PEN_HERE, &address, &err));
    struct pen_foreign m = {
        .mem = PEN_MEM_HOST_PINNED,
        .bytes = BYTES,
        .release = count,
        .cookie = &released,
        .device = f->dev,
    };
    m.host = host[0];
    struct pen_frame *from = wrap(&m);
    m.host = host[1];
    struct pen_frame *back = wrap(&m);
    m.mem = PEN_MEM_CUDA_DEVICE;
    m.address = address;
    struct pen_frame *device = wrap(&m);

    struct pen_view none;
    assert_int_equal(stk_frame_on_host(device, PEN_READ, &none, NULL),
                     PEN_E_STATE);
    struct pen_view v = view(f, from, NULL, PEN_WRITE);
    for (int i = 0; i < BYTES; i++)
        ((uint8_t *)v.plane[0].host)[i] = (uint8_t)(i * 7);
    FIXTURE_OK(stk_frame_host_done(from, PEN_WRITE, &err));
    memset(host[1], 0, BYTES);

    struct pen_view a = view(f, from, s, PEN_READ);
    struct pen_view b = view(f, device, s, PEN_WRITE);
    assert_int_equal(b.plane[0].address, address);
    struct stk_point p = copy(f, s, &b, &a);
    stk_buffer_used(from->buffer, p, PEN_READ);
    stk_buffer_used(device->buffer, p, PEN_WRITE);
    a = view(f, device, s, PEN_READ);
    b = view(f, back, s, PEN_WRITE);
    struct gate gate;
    gate_create(f, &gate);
    gate_queue(f, &gate, s);
    p = copy(f, s, &b, &a);
    stk_buffer_used(device->buffer, p, PEN_READ);
    stk_buffer_used(back->buffer, p, PEN_WRITE);

    // Released when nobody refers to it and nothing that was queued uses it.
    pen_frame_unref(device);
    pen_frame_ref(back);
    pen_frame_unref(back);
    assert_int_equal(released, 0);
    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(p, STK_WAIT_HOST_READ, &err));
    view(f, back, NULL, PEN_READ);
    assert_memory_equal(host[0], host[1], BYTES);
    pen_frame_unref(back);
    pen_frame_unref(from);
    stk_stream_destroy(&s);  // its reaper has called by then
    assert_int_equal(released, 3);

    gate_free(f, &gate);
    for (int i = 0; i < 2; i++)
        stk_pinned_free(f->dev, host[i], BYTES);
    stk_device_free(f->dev, address, BYTES);
}

PEN_TEST(memory_of_the_device_is_wrapped_and_released_when_its_work_is_done)
{
    fixture_all_modes(there_and_back);
}

// --- DMABUF -----------------------------------------------------------------

static struct stk_pool *dmabuf_pool(struct fixture *f,
                                    enum stk_dmabuf_kind kind)
{
    const struct stk_pool_params p = {
        .mem = PEN_MEM_DMABUF,
        .kind = kind,
        .block_bytes = BYTES,
        .blocks = 1,
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "test.output",
    };
    struct stk_pool *pool = NULL;
    FIXTURE_OK(stk_pool_create(&p, &pool, &err));
    return pool;
}

static struct pen_frame *frame_of(struct fixture *f, struct stk_pool *pool,
                                  struct stk_stream *stream,
                                  struct stk_frame_pool *frames)
{
    struct stk_buffer *b = NULL;
    struct stk_point wait;
    struct pen_frame *frame = NULL;
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    FIXTURE_OK(stk_pool_take(pool, stream, &b, &wait, &err));
    FIXTURE_OK(stk_frame_make(frames, b, &mono, &frame, &err));
    return frame;
}

// What the host writes is read through a descriptor of somebody else's.
static void host_kind(struct fixture *f)
{
    struct stk_dmabuf_caps caps;
    stk_dmabuf_probe(f->dev, &caps);
    if (!caps.host)
        return;  // a machine without providers: the next test says so
    struct stk_frame_pool *frames = NULL;
    FIXTURE_OK(stk_frame_pool_create(1, f->ledger, &frames, &err));
    struct stk_pool *pool = dmabuf_pool(f, STK_DMABUF_HOST);
    const uint64_t files = live(f, STK_RES_FILE);
    struct pen_frame *frame = frame_of(f, pool, NULL, frames);

    struct pen_view v = view(f, frame, NULL, PEN_WRITE);
    assert_int_equal(v.plane[0].address, (uintptr_t)v.plane[0].host);
    memset(v.plane[0].host, 0x5c, BYTES);
    FIXTURE_OK(stk_frame_host_done(frame, PEN_WRITE, &err));

    struct pen_dmabuf d;
    FIXTURE_OK(pen_frame_dmabuf(frame, &d, &err));
    assert_int_equal(live(f, STK_RES_FILE), files + 1);
    assert_true(d.fd >= 0 && d.fd != frame->buffer->block.dmabuf->fd);
    assert_int_equal(d.modifier, 0);
    assert_int_equal(d.planes, 1);
    assert_int_equal(d.plane[0].offset, 0);
    assert_int_equal(d.plane[0].pitch, W);
    assert_int_equal(d.bytes, BYTES);
    assert_int_equal(frame->refs, 2);

    // Somebody else's frame, by the descriptor alone.
    atomic_uint released = 0;
    const struct pen_foreign m = {
        .mem = PEN_MEM_DMABUF,
        .fd = d.fd,
        .bytes = d.bytes,
        .release = count,
        .cookie = &released,
    };
    struct pen_frame *other = wrap(&m);
    v = view(f, other, NULL, PEN_READ);
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(((uint8_t *)v.plane[0].host)[i], 0x5c);
    FIXTURE_OK(stk_frame_host_done(other, PEN_READ, &err));

    // The frame is kept until the descriptor is closed.
    pen_frame_unref(frame);
    struct stk_pool_stats stats;
    stk_pool_stats(pool, &stats);
    assert_int_equal(stats.in_use, 1);
    pen_dmabuf_close(&d);
    stk_pool_stats(pool, &stats);
    assert_int_equal(stats.in_use, 0);
    assert_int_equal(live(f, STK_RES_FILE), files);
    assert_null(d.frame);
    pen_dmabuf_close(&d);

    // The other one has a duplicate of its own.
    stk_pool_destroy(&pool);
    assert_int_equal(((uint8_t *)v.plane[0].host)[7], 0x5c);
    pen_frame_unref(other);
    assert_int_equal(released, 1);
    stk_frame_pool_destroy(&frames);
}

PEN_TEST(a_descriptor_of_host_memory_is_for_others)
{
    fixture_all_modes(host_kind);
}

PEN_TEST(host_dmabufs_are_there_or_it_is_said_why)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_dmabuf_caps caps;
    stk_dmabuf_probe(f.dev, &caps);
    fixture_close(&f);
    assert_true(caps.host || caps.why_host[0]);
    if (!caps.host)
        PEN_SKIP("%s", caps.why_host);
}

// Written by a stream, as device memory; the host has no access.
static void cuda_kind(struct fixture *f)
{
    if (!stk_device_can_export(f->dev))
        return;
    struct stk_stream *s = fixture_stream(f, "s");
    struct stk_frame_pool *frames = NULL;
    FIXTURE_OK(stk_frame_pool_create(1, f->ledger, &frames, &err));
    struct stk_pool *pool = dmabuf_pool(f, STK_DMABUF_CUDA);
    struct pen_frame *frame = frame_of(f, pool, s, frames);
    void *host = NULL;
    FIXTURE_OK(stk_pinned_alloc(f->dev, BYTES, "user", PEN_HERE, &host, &err));
    memset(host, 0x77, BYTES);
    const struct pen_foreign m = {
        .mem = PEN_MEM_HOST_PINNED,
        .host = host,
        .bytes = BYTES,
    };
    struct pen_frame *pinned = wrap(&m);

    struct pen_view none;
    assert_int_equal(stk_frame_on_host(frame, PEN_READ, &none, NULL),
                     PEN_E_STATE);
    struct pen_view to = view(f, frame, s, PEN_WRITE);
    struct pen_view from = view(f, pinned, s, PEN_READ);
    assert_null(to.plane[0].host);
    assert_int_equal(to.plane[0].address, frame->buffer->block.address);
    struct gate gate;
    gate_create(f, &gate);
    gate_queue(f, &gate, s);
    struct stk_point p = copy(f, s, &to, &from);
    stk_buffer_used(frame->buffer, p, PEN_WRITE);
    stk_buffer_used(pinned->buffer, p, PEN_READ);

    // Nobody gets a descriptor of what is still being written.
    struct pen_dmabuf d;
    struct pen_error why = { 0 };
    assert_int_equal(pen_frame_dmabuf(frame, &d, &why), PEN_E_STATE);
    assert_non_null(strstr(why.text, "not ready"));
    assert_int_equal(d.fd, -1);
    pen_dmabuf_close(&d);
    gate_open(&gate);
    FIXTURE_OK(stk_point_wait(p, STK_WAIT_HOST_READ, &err));
    FIXTURE_OK(pen_frame_dmabuf(frame, &d, &err));
    pen_dmabuf_close(&d);

    memset(host, 0, BYTES);
    to = view(f, pinned, s, PEN_WRITE);
    from = view(f, frame, s, PEN_READ);
    p = copy(f, s, &to, &from);
    FIXTURE_OK(stk_point_wait(p, STK_WAIT_HOST_READ, &err));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(((uint8_t *)host)[i], 0x77);

    pen_frame_unref(pinned);
    pen_frame_unref(frame);
    stk_pool_destroy(&pool);
    stk_frame_pool_destroy(&frames);
    stk_stream_destroy(&s);
    stk_pinned_free(f->dev, host, BYTES);
    gate_free(f, &gate);
}

PEN_TEST(exported_memory_is_device_memory_with_a_descriptor)
{
    fixture_all_modes(cuda_kind);
}

PEN_TEST(a_frame_without_descriptor_is_refused)
{
    static unsigned char memory[BYTES];
    const struct pen_foreign m = {
        .mem = PEN_MEM_HOST,
        .host = memory,
        .bytes = BYTES,
    };
    struct pen_frame *frame = wrap(&m);
    struct pen_dmabuf d;
    struct pen_error err = { 0 };
    assert_int_equal(pen_frame_dmabuf(frame, &d, &err), PEN_E_STATE);
    assert_non_null(strstr(err.text, "HOST has no descriptor"));
    pen_dmabuf_close(&d);
    pen_frame_unref(frame);
}

static int foreign_fd(void)
{
    const int fd = memfd_create("foreign", MFD_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    return fd;
}

PEN_TEST(a_foreign_descriptor_stays_its_owners)
{
    atomic_uint released = 0;
    const int fd = foreign_fd();
    struct pen_foreign m = {
        .mem = PEN_MEM_DMABUF,
        .fd = fd,
        .bytes = BYTES,
        .release = count,
        .cookie = &released,
    };
    struct pen_frame *frame = wrap(&m);
    assert_true(frame->buffer->block.dmabuf->fd != fd);
    pen_frame_unref(frame);
    assert_int_equal(released, 1);
    assert_true(fcntl(fd, F_GETFD) >= 0);

    // Smaller than the frame; nothing is released.
    struct pen_error err = { 0 };
    m.bytes = BYTES + 1;
    assert_int_equal(pen_frame_wrap(&mono, &m, &frame, &err), PEN_E_ARG);
    assert_string_not_equal(err.text, "");
    m.fd = 12345;
    m.bytes = BYTES;
    assert_int_equal(pen_frame_wrap(&mono, &m, &frame, &err), PEN_E_IO);
    assert_null(frame);
    assert_int_equal(released, 1);
    close(fd);
}

// Let no more descriptors be had.
static void limit_files(struct rlimit *before)
{
    assert_int_equal(getrlimit(RLIMIT_NOFILE, before), 0);
    const struct rlimit none = { 0, before->rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

PEN_TEST(without_descriptors_frames_stay_as_they_are)
{
    atomic_uint released = 0;
    const int fd = foreign_fd();
    const struct pen_foreign m = {
        .mem = PEN_MEM_DMABUF,
        .fd = fd,
        .bytes = BYTES,
        .release = count,
        .cookie = &released,
    };
    struct pen_frame *frame = wrap(&m), *second = NULL;
    struct rlimit before;
    struct pen_error err = { 0 };
    struct pen_dmabuf d;
    limit_files(&before);
    const enum pen_status dup = pen_frame_dmabuf(frame, &d, &err);
    const enum pen_status again = pen_frame_wrap(&mono, &m, &second, NULL);
    setrlimit(RLIMIT_NOFILE, &before);
    assert_int_equal(dup, PEN_E_IO);
    assert_int_equal(again, PEN_E_IO);
    assert_string_not_equal(err.text, "");
    assert_int_equal(d.fd, -1);
    assert_null(d.frame);
    assert_null(second);
    assert_int_equal(frame->refs, 1);
    assert_int_equal(released, 0);
    pen_frame_unref(frame);
    assert_int_equal(released, 1);
    close(fd);
}

PEN_TEST_MAIN(
    PEN_CASE(
        memory_of_the_device_is_wrapped_and_released_when_its_work_is_done),
    PEN_CASE(a_descriptor_of_host_memory_is_for_others),
    PEN_CASE(host_dmabufs_are_there_or_it_is_said_why),
    PEN_CASE(exported_memory_is_device_memory_with_a_descriptor),
    PEN_CASE(a_frame_without_descriptor_is_refused),
    PEN_CASE(a_foreign_descriptor_stays_its_owners),
    PEN_CASE(without_descriptors_frames_stay_as_they_are))
