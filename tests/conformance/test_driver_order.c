// What we believe of streams and events: what comes before what, and who is
// kept waiting.

#include <pthread.h>
#include <unistd.h>

#include "raw_probe.h"

enum { WORDS = 1000, BYTES = 4 * WORDS };

PEN_TEST(event_that_was_never_recorded_is_reached)
{
    probe_open();
    CUevent event = raw_event();
    CUstream stream = raw_stream();
    CU(cuEventQuery(event));
    CU(cuEventSynchronize(event));
    CU(cuStreamWaitEvent(stream, event, 0));
    CU(cuStreamSynchronize(stream));
    CU(cuStreamQuery(stream));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(stream));
    probe_close();
}

PEN_TEST(unknown_flags_are_refused)
{
    probe_open();
    CUstream stream = raw_stream(), other = NULL;
    CUevent event = raw_event(), none = NULL;
    const CUresult bad = CUDA_ERROR_INVALID_VALUE;
    CU_IS(bad, cuStreamCreate(&other, 0x80));
    CU_IS(bad, cuEventCreate(&none, 0x80));
    CU_IS(bad, cuStreamWaitEvent(stream, event, 0x80));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(stream));
    probe_close();
}

PEN_TEST(queued_work_is_not_done_while_the_stream_is_blocked)
{
    probe_open();
    CUstream stream = raw_stream();
    CUevent before = raw_event(), after = raw_event();
    unsigned char *out = raw_pinned(BYTES);
    CUdeviceptr device = raw_alloc(BYTES);
    memset(out, 9, BYTES);
    CU(cuMemsetD8Async(device, 1, BYTES, stream));
    CU(cuEventRecord(before, stream));
    CU(cuEventSynchronize(before));
    probe_block(stream);
    CU(cuMemsetD8Async(device, 2, BYTES, stream));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, stream));
    CU(cuEventRecord(after, stream));
    // All of this returned; nothing of it happened.
    CU(cuEventQuery(before));
    CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(after));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    assert_int_equal(out[0], 9);
    assert_int_equal(probe_go(stream), 0);
    CU(cuEventSynchronize(after));
    raw_expect_bytes(out, 2, BYTES);
    CU(cuEventQuery(after));
    CU(cuMemFreeHost(out));
    CU(cuMemFree(device));
    CU(cuEventDestroy(before));
    CU(cuEventDestroy(after));
    CU(cuStreamDestroy(stream));
    probe_close();
}

PEN_TEST(non_blocking_streams_do_not_hold_each_other_up)
{
    probe_open();
    CUstream slow = raw_stream(), quick = raw_stream();
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *out = raw_pinned(BYTES);
    probe_block(slow);
    CU(cuMemsetD8Async(device, 3, BYTES, quick));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, quick));
    CU(cuStreamSynchronize(quick));
    assert_int_equal(out[BYTES - 1], 3);
    CU(cuStreamQuery(quick));
    if (!cu.emulated)  // a held stream without work is idle
        CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(slow));
    assert_int_equal(probe_go(slow), 0);
    CU(cuStreamSynchronize(slow));
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(slow));
    CU(cuStreamDestroy(quick));
    probe_close();
}

PEN_TEST(kernels_and_copies_of_a_stream_are_done_in_order)
{
    probe_open();
    CUstream stream = raw_stream();
    CUdeviceptr a = raw_alloc(BYTES), b = raw_alloc(BYTES);
    uint32_t *in = raw_pinned(BYTES), *out = raw_pinned(BYTES);
    for (uint32_t i = 0; i < WORDS; i++)
        in[i] = i * 2654435761u;
    CU(cuMemsetD8Async(a, 0, BYTES, stream));
    CU(cuMemcpyHtoDAsync(b, in, BYTES, stream));
    for (uint32_t n = 0; n < 20; n++)
        probe_mix(a, b, WORDS, 3, n, stream);
    CU(cuMemcpyDtoHAsync(out, a, BYTES, stream));
    CU(cuStreamSynchronize(stream));
    for (uint32_t i = 0; i < WORDS; i++) {
        uint32_t want = 0;
        for (uint32_t n = 0; n < 20; n++)
            want = want * 3 + in[i] + n;
        assert_int_equal(out[i], want);
    }
    CU(cuMemFree(a));
    CU(cuMemFree(b));
    CU(cuMemFreeHost(in));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(stream));
    probe_close();
}

PEN_TEST(wait_holds_a_stream_until_the_record_is_reached)
{
    probe_open();
    CUstream writer = raw_stream(), reader = raw_stream();
    CUevent written = raw_event();
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *out = raw_pinned(BYTES);
    CU(cuMemsetD8Async(device, 1, BYTES, writer));
    CU(cuStreamSynchronize(writer));
    probe_block(writer);
    CU(cuMemsetD8Async(device, 2, BYTES, writer));
    CU(cuEventRecord(written, writer));
    CU(cuStreamWaitEvent(reader, written, 0));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, reader));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(reader));
    assert_int_equal(probe_go(writer), 0);
    CU(cuStreamSynchronize(reader));
    raw_expect_bytes(out, 2, BYTES);
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuEventDestroy(written));
    CU(cuStreamDestroy(writer));
    CU(cuStreamDestroy(reader));
    probe_close();
}

PEN_TEST(wait_refers_to_the_record_at_the_time_of_the_call)
{
    probe_open();
    CUstream writer = raw_stream(), reader = raw_stream();
    CUevent event = raw_event();
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *out = raw_pinned(BYTES);
    CU(cuMemsetD8Async(device, 1, BYTES, writer));
    CU(cuEventRecord(event, writer));
    CU(cuStreamWaitEvent(reader, event, 0));
    // The event moves on, behind a block; the wait stays with the first.
    probe_block(writer);
    CU(cuMemsetD8Async(device, 2, BYTES, writer));
    CU(cuEventRecord(event, writer));
    if (!cu.emulated) {
        // What came before the block is done; the emulated device holds all.
        CU(cuMemcpyDtoHAsync(out, device, BYTES, reader));
        CU(cuStreamSynchronize(reader));
        assert_int_equal(out[BYTES - 1], 1);
    }
    CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    assert_int_equal(probe_go(writer), 0);
    CU(cuEventSynchronize(event));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, reader));
    CU(cuStreamSynchronize(reader));
    assert_int_equal(out[0], 2);
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(writer));
    CU(cuStreamDestroy(reader));
    probe_close();
}

PEN_TEST(event_may_be_destroyed_while_somebody_waits_for_it)
{
    probe_open();
    CUstream writer = raw_stream(), reader = raw_stream();
    CUevent event = raw_event();
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *out = raw_pinned(BYTES);
    probe_block(writer);
    CU(cuMemsetD8Async(device, 4, BYTES, writer));
    CU(cuEventRecord(event, writer));
    CU(cuStreamWaitEvent(reader, event, 0));
    CU(cuEventDestroy(event));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, reader));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(reader));
    assert_int_equal(probe_go(writer), 0);
    CU(cuStreamSynchronize(reader));
    assert_int_equal(out[BYTES / 2], 4);
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(writer));
    CU(cuStreamDestroy(reader));
    probe_close();
}

PEN_TEST(destroyed_stream_still_does_its_work)
{
    probe_open();
    CUstream stream = raw_stream(), other = raw_stream();
    CUevent done = raw_event();
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *out = raw_pinned(BYTES);
    memset(out, 0, BYTES);
    for (int n = 1; n <= 50; n++) {
        CU(cuMemsetD8Async(device, (unsigned char)n, BYTES, stream));
        CU(cuMemcpyDtoHAsync(out, device, BYTES, stream));
    }
    CU(cuEventRecord(done, stream));
    CU(cuStreamDestroy(stream));
    CU(cuStreamWaitEvent(other, done, 0));
    CU(cuStreamSynchronize(other));
    CU(cuEventQuery(done));
    raw_expect_bytes(out, 50, BYTES);
    CU(cuEventDestroy(done));
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(other));
    probe_close();
}

PEN_TEST(context_is_synchronised_with_all_its_streams)
{
    probe_open();
    enum { STREAMS = 6 };
    CUstream stream[STREAMS];
    CUdeviceptr device = raw_alloc(STREAMS);
    unsigned char *out = raw_pinned(STREAMS);
    memset(out, 0, STREAMS);
    for (int i = 0; i < STREAMS; i++) {
        stream[i] = raw_stream();
        const CUdeviceptr mine = device + (unsigned)i;
        CU(cuMemsetD8Async(mine, (unsigned char)(i + 1), 1, stream[i]));
        CU(cuMemcpyDtoHAsync(out + i, mine, 1, stream[i]));
    }
    CU(cuStreamDestroy(stream[0]));  // with work in it
    CU(cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++)
        assert_int_equal(out[i], i + 1);
    for (int i = 1; i < STREAMS; i++) {
        CU(cuStreamQuery(stream[i]));
        CU(cuStreamDestroy(stream[i]));
    }
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    probe_close();
}

PEN_TEST(legacy_stream_waits_for_blocking_streams_and_they_for_it)
{
    probe_open();
    CUstream blocking = NULL;
    CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *out = raw_pinned(BYTES);
    probe_block(blocking);
    CU(cuMemsetD8Async(device, 1, BYTES, blocking));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, NULL));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    CU(cuMemsetD8Async(device, 2, BYTES, blocking));
    assert_int_equal(probe_go(blocking), 0);
    CU(cuStreamSynchronize(blocking));
    // Synchronising the blocking stream took the copy before it along.
    raw_expect_bytes(out, 1, BYTES);
    CU(cuStreamSynchronize(NULL));
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(blocking));
    probe_close();
}

// --- freeing ----------------------------------------------------------------

struct late {
    CUstream stream;
    CUresult result;
};

static void *go_later(void *cookie)
{
    struct late *late = cookie;
    usleep(50000);
    late->result = cu.cuCtxPushCurrent(cu.ctx);
    if (!late->result)
        late->result = probe_go(late->stream);
    if (!late->result)
        late->result = cu.cuCtxPopCurrent(NULL);
    return NULL;
}

// Free something while work is queued behind a block: on return it is done.
static void free_waits(bool host)
{
    probe_open();
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(BYTES), other = raw_alloc(BYTES);
    unsigned char *out = raw_pinned(BYTES), *more = raw_pinned(64);
    memset(out, 0, BYTES);
    probe_block(stream);
    CU(cuMemsetD8Async(device, 7, BYTES, stream));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, stream));
    struct late late = { stream, CUDA_SUCCESS };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, go_later, &late), 0);
    if (host)
        CU(cuMemFreeHost(more));
    else
        CU(cuMemFree(other));
    const unsigned char seen = out[BYTES - 1];
    const CUresult query = cu.cuStreamQuery(stream);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(late.result, CUDA_SUCCESS);
    assert_int_equal(seen, 7);
    assert_int_equal(query, CUDA_SUCCESS);
    if (host)
        CU(cuMemFree(other));
    else
        CU(cuMemFreeHost(more));
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(stream));
    probe_close();
}

PEN_TEST(freeing_device_memory_waits_for_queued_work)
{
    free_waits(false);
}

PEN_TEST(freeing_pinned_memory_waits_for_queued_work)
{
    free_waits(true);
}

// Blocking-sync events are few: their records may hold up who makes them, so
// what queues ahead of the device has to stay below this number of records.
enum { FREE_RECORDS = 48, MOST_RECORDS = 1024 };

struct recorder {
    CUstream stream;
    CUevent events[MOST_RECORDS];
    unsigned most;
    unsigned done;  // atomic
};

static void *record_all(void *argument)
{
    struct recorder *r = argument;
    CU(cuCtxPushCurrent(cu.ctx));
    for (unsigned i = 0; i < r->most; i++) {
        CU(cuEventRecord(r->events[i], r->stream));
        __atomic_store_n(&r->done, i + 1, __ATOMIC_RELEASE);
    }
    CUcontext top;
    CU(cuCtxPopCurrent(&top));
    return NULL;
}

// Records on a blocked stream until they are all made, or none is made for a
// while. Returns how many were made while it was blocked.
static unsigned records_behind_a_block(unsigned flags, unsigned most)
{
    static struct recorder r;
    r.stream = raw_stream();
    r.most = most;
    r.done = 0;
    for (unsigned i = 0; i < most; i++)
        CU(cuEventCreate(&r.events[i], flags | CU_EVENT_DISABLE_TIMING));
    probe_block(r.stream);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, record_all, &r), 0);
    unsigned made = 0;
    for (unsigned still = 0; made < most && still < 300; still++) {
        const unsigned now = __atomic_load_n(&r.done, __ATOMIC_ACQUIRE);
        if (now != made)
            still = 0;
        made = now;
        usleep(1000);
    }
    assert_int_equal(probe_go(r.stream), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CU(cuStreamSynchronize(r.stream));
    for (unsigned i = 0; i < most; i++)
        CU(cuEventDestroy(r.events[i]));
    CU(cuStreamDestroy(r.stream));
    return made;
}

PEN_TEST(records_of_blocking_sync_events_are_held_up_beyond_a_number)
{
    probe_open();
    const unsigned flags = CU_EVENT_BLOCKING_SYNC;
    assert_int_equal(records_behind_a_block(flags, FREE_RECORDS), FREE_RECORDS);
    const unsigned made = records_behind_a_block(flags, MOST_RECORDS);
    print_message("# %u records of blocking-sync events behind a block\n",
                  made);
    if (cu.emulated)
        assert_int_equal(made, 56);
    assert_int_equal(records_behind_a_block(0, MOST_RECORDS), MOST_RECORDS);
    probe_close();
}

PEN_TEST_MAIN(
    PEN_CASE(event_that_was_never_recorded_is_reached),
    PEN_CASE(unknown_flags_are_refused),
    PEN_CASE(queued_work_is_not_done_while_the_stream_is_blocked),
    PEN_CASE(non_blocking_streams_do_not_hold_each_other_up),
    PEN_CASE(kernels_and_copies_of_a_stream_are_done_in_order),
    PEN_CASE(wait_holds_a_stream_until_the_record_is_reached),
    PEN_CASE(wait_refers_to_the_record_at_the_time_of_the_call),
    PEN_CASE(event_may_be_destroyed_while_somebody_waits_for_it),
    PEN_CASE(destroyed_stream_still_does_its_work),
    PEN_CASE(context_is_synchronised_with_all_its_streams),
    PEN_CASE(legacy_stream_waits_for_blocking_streams_and_they_for_it),
    PEN_CASE(freeing_device_memory_waits_for_queued_work),
    PEN_CASE(freeing_pinned_memory_waits_for_queued_work),
    PEN_CASE(records_of_blocking_sync_events_are_held_up_beyond_a_number))
