// Random programs of copies, fills and kernels on several streams, with just
// the waits that their data needs, give the bytes of the same program done one
// operation after the other.

#include "raw_probe.h"

enum {
    STREAMS = 4,
    BUFFERS = 6,  // on the device
    HOSTS = 4,    // pinned
    WORDS = 256,
    BYTES = 4 * WORDS,
    STEPS = 120,
    PLACES = BUFFERS + HOSTS,
};

// Who used a place last.
struct use {
    CUevent written;        // NULL: nobody
    int writer;             // stream
    CUevent read[STREAMS];  // the last reader of each stream
};

struct machine {
    bool waits;  // false: leave all waits out
    CUstream stream[STREAMS];
    CUdeviceptr device[BUFFERS];
    uint32_t *host[HOSTS];
    struct use use[PLACES];
    CUevent events[STEPS];
    unsigned event_count;
    uint32_t model[PLACES][WORDS];
    uint64_t seed;
};

static unsigned draw(struct machine *m, unsigned below)
{
    return pen_test_random(&m->seed) % below;
}

static void wait_for(struct machine *m, int stream, CUevent event, int other)
{
    if (event && other != stream && m->waits)
        CU(cuStreamWaitEvent(m->stream[stream], event, 0));
}

// Before an operation of `stream` that reads `src` (-1: nothing), writes `dst`.
static void begin(struct machine *m, int stream, int dst, int src)
{
    if (src >= 0)
        wait_for(m, stream, m->use[src].written, m->use[src].writer);
    wait_for(m, stream, m->use[dst].written, m->use[dst].writer);
    for (int s = 0; s < STREAMS; s++)
        wait_for(m, stream, m->use[dst].read[s], s);
}

static void end(struct machine *m, int stream, int dst, int src)
{
    CUevent event = raw_event();
    CU(cuEventRecord(event, m->stream[stream]));
    m->events[m->event_count++] = event;
    if (src >= 0)
        m->use[src].read[stream] = event;
    m->use[dst].written = event;
    m->use[dst].writer = stream;
}

static CUdeviceptr at(const struct machine *m, int buffer)
{
    return m->device[buffer];
}

static void copy_2d(struct machine *m, int stream, int dst, int src)
{
    // A block of rows of 64 bytes, at random places of both.
    const unsigned width = 4 * (1 + draw(m, 8)), height = 1 + draw(m, 12);
    const unsigned dx = 4 * draw(m, 17 - width / 4);
    const unsigned sx = 4 * draw(m, 17 - width / 4);
    const unsigned dy = draw(m, 17 - height), sy = draw(m, 17 - height);
    CUDA_MEMCPY2D copy = {
        .srcXInBytes = sx,
        .srcY = sy,
        .srcPitch = 64,
        .dstXInBytes = dx,
        .dstY = dy,
        .dstPitch = 64,
        .WidthInBytes = width,
        .Height = height,
    };
    if (src < BUFFERS) {
        copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.srcDevice = at(m, src);
    } else {
        copy.srcMemoryType = CU_MEMORYTYPE_HOST;
        copy.srcHost = m->host[src - BUFFERS];
    }
    if (dst < BUFFERS) {
        copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
        copy.dstDevice = at(m, dst);
    } else {
        copy.dstMemoryType = CU_MEMORYTYPE_HOST;
        copy.dstHost = m->host[dst - BUFFERS];
    }
    CU(cuMemcpy2DAsync(&copy, m->stream[stream]));
    for (unsigned y = 0; y < height; y++)
        memcpy((char *)m->model[dst] + (dy + y) * 64 + dx,
               (char *)m->model[src] + (sy + y) * 64 + sx, width);
}

static void copy_linear(struct machine *m, int stream, int dst, int src)
{
    const unsigned bytes = 4 * (1 + draw(m, WORDS));
    const unsigned d = 4 * draw(m, WORDS + 1 - bytes / 4);
    const unsigned s = 4 * draw(m, WORDS + 1 - bytes / 4);
    CUstream on = m->stream[stream];
    if (src >= BUFFERS)
        CU(cuMemcpyHtoDAsync(at(m, dst) + d, (char *)m->host[src - BUFFERS] + s,
                             bytes, on));
    else if (dst >= BUFFERS)
        CU(cuMemcpyDtoHAsync((char *)m->host[dst - BUFFERS] + d, at(m, src) + s,
                             bytes, on));
    else
        CU(cuMemcpyDtoDAsync(at(m, dst) + d, at(m, src) + s, bytes, on));
    memcpy((char *)m->model[dst] + d, (char *)m->model[src] + s, bytes);
}

static void step(struct machine *m)
{
    const int stream = (int)draw(m, STREAMS);
    const int dst = (int)draw(m, PLACES);
    int src;
    do {
        src = (int)draw(m, PLACES);
    } while (src == dst || (src >= BUFFERS && dst >= BUFFERS));
    const unsigned what = draw(m, 4);

    if (what == 0 && dst < BUFFERS) {
        begin(m, stream, dst, -1);
        const unsigned bytes = 1 + draw(m, BYTES);
        const unsigned from = draw(m, BYTES + 1 - bytes);
        const unsigned char value = (unsigned char)draw(m, 256);
        CU(cuMemsetD8Async(at(m, dst) + from, value, bytes, m->stream[stream]));
        memset((char *)m->model[dst] + from, value, bytes);
        end(m, stream, dst, -1);
    } else if (what <= 2 && dst < BUFFERS && src < BUFFERS) {
        begin(m, stream, dst, src);
        const uint32_t factor = draw(m, 1000), summand = draw(m, 1000);
        probe_mix(at(m, dst), at(m, src), WORDS, factor, summand,
                  m->stream[stream]);
        for (int i = 0; i < WORDS; i++)
            m->model[dst][i] =
                m->model[dst][i] * factor + m->model[src][i] + summand;
        end(m, stream, dst, src);
    } else {
        begin(m, stream, dst, src);
        if (what == 3)
            copy_2d(m, stream, dst, src);
        else
            copy_linear(m, stream, dst, src);
        end(m, stream, dst, src);
    }
}

// Run a program; whether all bytes are those of the model.
static bool run(uint64_t seed, bool waits)
{
    struct machine *m = calloc(1, sizeof(*m));
    m->seed = seed * 0x9e3779b97f4a7c15u + 1;
    m->waits = waits;
    for (int i = 0; i < STREAMS; i++)
        m->stream[i] = raw_stream();
    for (int i = 0; i < PLACES; i++) {
        for (int k = 0; k < WORDS; k++)
            m->model[i][k] = pen_test_random(&m->seed);
        if (i < BUFFERS) {
            m->device[i] = raw_alloc(BYTES);
            CU(cuMemcpyHtoDAsync(m->device[i], m->model[i], BYTES,
                                 m->stream[0]));
            CU(cuStreamSynchronize(m->stream[0]));
        } else {
            m->host[i - BUFFERS] = raw_pinned(BYTES);
            memcpy(m->host[i - BUFFERS], m->model[i], BYTES);
        }
    }
    for (int i = 0; i < STEPS; i++)
        step(m);

    // One stream waits for the last writer of every place and fetches it.
    uint32_t *out = raw_pinned(BYTES);
    bool same = true;
    for (int i = 0; i < PLACES; i++) {
        wait_for(m, 0, m->use[i].written, m->use[i].writer);
        if (i < BUFFERS)
            CU(cuMemcpyDtoHAsync(out, m->device[i], BYTES, m->stream[0]));
        CU(cuStreamSynchronize(m->stream[0]));
        const uint32_t *got = i < BUFFERS ? out : m->host[i - BUFFERS];
        same &= memcmp(got, m->model[i], BYTES) == 0;
    }
    for (int i = 0; i < STREAMS; i++) {
        CU(cuStreamSynchronize(m->stream[i]));
        CU(cuStreamDestroy(m->stream[i]));
    }
    for (unsigned i = 0; i < m->event_count; i++)
        CU(cuEventDestroy(m->events[i]));
    for (int i = 0; i < BUFFERS; i++)
        CU(cuMemFree(m->device[i]));
    for (int i = 0; i < HOSTS; i++)
        CU(cuMemFreeHost(m->host[i]));
    CU(cuMemFreeHost(out));
    free(m);
    return same;
}

static void run_all(int mode)
{
    const unsigned seeds = pen_test_seeds(8, 400);
    for (unsigned seed = 1; seed <= seeds; seed++) {
        probe_open();
        if (mode >= 0)
            cu.emu.penemu_set_mode((enum penemu_mode)mode, seed);
        if (!run(seed, true))
            fail_msg("seed %u: the bytes differ from the model", seed);
        probe_close();
    }
}

PEN_TEST(random_programs_give_the_bytes_of_the_model)
{
    // In the mode of the environment, and on a GPU.
    run_all(-1);
}

PEN_TEST(random_programs_give_the_same_bytes_in_all_modes)
{
    if (pen_test_on_gpu())
        PEN_SKIP("modes are those of the emulated device");
    run_all(PENEMU_EAGER);
    run_all(PENEMU_LAZY);
    run_all(PENEMU_RANDOM);
}

PEN_TEST(programs_without_their_waits_are_found_out_by_lazy_streams)
{
    if (pen_test_on_gpu())
        PEN_SKIP("a GPU punishes a missing wait only sometimes");
    // Lazy streams that are waited for one after the other never run at the
    // same time, so ThreadSanitizer has nothing to say.
    unsigned found = 0;
    for (unsigned seed = 1; seed <= 8; seed++) {
        probe_open();
        cu.emu.penemu_set_mode(PENEMU_LAZY, 0);
        found += !run(seed, false);
        probe_close();
    }
    assert_int_equal(found, 8);
}

PEN_TEST_MAIN(
    PEN_CASE(random_programs_give_the_bytes_of_the_model),
    PEN_CASE(random_programs_give_the_same_bytes_in_all_modes),
    PEN_CASE(programs_without_their_waits_are_found_out_by_lazy_streams))
