// When the emulated device does its work: never before it is allowed to, in
// none of its modes, and always before the one who waits is let go.

#include <pthread.h>
#include <unistd.h>

#include "raw_driver.h"

enum { BYTES = 4096 };

static void open_mode(enum penemu_mode mode, uint64_t seed)
{
    raw_open();
    cu.emu.penemu_set_mode(mode, seed);
}

// A byte of device memory behind the driver's back.
static unsigned char peek(CUdeviceptr address)
{
    const volatile unsigned char *bytes = cu.emu.penemu_bytes(address, 1);
    assert_non_null(bytes);
    return *bytes;
}

PEN_TEST(lazy_copy_has_not_happened_before_it_is_waited_for)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUevent event = raw_event();
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *in = raw_pinned(BYTES), *out = raw_pinned(BYTES);
    memset(in, 0x11, BYTES);
    memset(out, 0x22, BYTES);

    CU(cuMemcpyHtoDAsync(device, in, BYTES, stream));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, stream));
    CU(cuEventRecord(event, stream));
    // Asking is not waiting, however often.
    for (int i = 0; i < 200; i++) {
        CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
        CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
        usleep(100);
    }
    assert_int_equal(out[0], 0x22);
    assert_int_equal(cu.emu.penemu_pending(stream), 3);
    // The source is read when the copy is done, not when it is queued.
    memset(in, 0x33, BYTES);

    CU(cuEventSynchronize(event));
    CU(cuEventQuery(event));
    CU(cuStreamQuery(stream));
    for (int i = 0; i < BYTES; i++)
        assert_int_equal(out[i], 0x33);

    CU(cuMemFreeHost(in));
    CU(cuMemFreeHost(out));
    CU(cuMemFree(device));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(lazy_event_of_an_idle_stream_is_not_reached_by_itself)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUevent event = raw_event();
    CU(cuEventQuery(event));  // never recorded
    CU(cuEventRecord(event, stream));
    CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    CU(cuStreamSynchronize(stream));
    CU(cuEventQuery(event));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(lazy_waiting_does_just_what_comes_before)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream(), other = raw_stream();
    CUevent middle = raw_event();
    unsigned char *out = raw_pinned(3);
    CUdeviceptr device = raw_alloc(3);
    memset(out, 0, 3);

    CU(cuMemsetD8Async(device, 7, 3, other));
    CU(cuStreamSynchronize(other));
    CU(cuMemcpyDtoHAsync(&out[0], device, 1, stream));
    CU(cuEventRecord(middle, stream));
    CU(cuMemcpyDtoHAsync(&out[1], device, 1, stream));
    CU(cuMemcpyDtoHAsync(&out[2], device, 1, other));

    CU(cuEventSynchronize(middle));
    assert_int_equal(out[0], 7);
    assert_int_equal(out[1], 0);
    assert_int_equal(out[2], 0);
    CU(cuStreamSynchronize(stream));
    assert_int_equal(out[1], 7);
    assert_int_equal(out[2], 0);  // of another stream
    CU(cuCtxSynchronize());
    assert_int_equal(out[2], 7);

    CU(cuMemFreeHost(out));
    CU(cuMemFree(device));
    CU(cuEventDestroy(middle));
    CU(cuStreamDestroy(stream));
    CU(cuStreamDestroy(other));
    raw_close();
}

PEN_TEST(lazy_wait_for_another_stream_demands_its_work_up_to_the_record)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream a = raw_stream(), b = raw_stream(), c = raw_stream();
    CUevent of_b = raw_event(), of_c = raw_event();
    CUdeviceptr device = raw_alloc(4);
    unsigned char *out = raw_pinned(4);

    // c -> b -> a, and something behind each record that nobody waits for.
    CU(cuMemsetD8Async(device, 1, 4, c));
    CU(cuEventRecord(of_c, c));
    CU(cuMemsetD8Async(device + 3, 9, 1, c));
    CU(cuStreamWaitEvent(b, of_c, 0));
    CU(cuMemsetD8Async(device + 1, 2, 1, b));
    CU(cuEventRecord(of_b, b));
    CU(cuMemsetD8Async(device + 2, 9, 1, b));
    CU(cuStreamWaitEvent(a, of_b, 0));
    CU(cuMemcpyDtoHAsync(out, device, 4, a));
    CU(cuStreamSynchronize(a));

    const unsigned char want[] = { 1, 2, 1, 1 };
    assert_memory_equal(out, want, 4);
    assert_int_equal(cu.emu.penemu_pending(b), 1);
    assert_int_equal(cu.emu.penemu_pending(c), 1);
    CU(cuCtxSynchronize());
    assert_int_equal(peek(device + 2), 9);
    assert_int_equal(peek(device + 3), 9);

    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuEventDestroy(of_b));
    CU(cuEventDestroy(of_c));
    CU(cuStreamDestroy(a));
    CU(cuStreamDestroy(b));
    CU(cuStreamDestroy(c));
    raw_close();
}

PEN_TEST(missing_wait_between_streams_is_seen_in_lazy_mode)
{
    // What the test above guards against: without the wait the reader sees
    // what was there before.
    open_mode(PENEMU_LAZY, 0);
    CUstream writer = raw_stream(), reader = raw_stream();
    CUdeviceptr device = raw_alloc(1);
    unsigned char *out = raw_pinned(1);
    CU(cuMemsetD8Async(device, 1, 1, writer));
    CU(cuStreamSynchronize(writer));
    CU(cuMemsetD8Async(device, 2, 1, writer));
    CU(cuMemcpyDtoHAsync(out, device, 1, reader));
    CU(cuStreamSynchronize(reader));
    assert_int_equal(out[0], 1);
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuStreamDestroy(writer));
    CU(cuStreamDestroy(reader));
    raw_close();
}

PEN_TEST(freeing_memory_waits_for_queued_work_and_is_counted)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(BYTES), unrelated = raw_alloc(16);
    unsigned char *out = raw_pinned(BYTES);
    out[0] = 0;
    CU(cuMemsetD8Async(device, 5, BYTES, stream));
    CU(cuMemcpyDtoHAsync(out, device, BYTES, stream));
    CU(cuMemFree(unrelated));
    assert_int_equal(out[0], 5);
    struct penemu_stats stats;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.frees_waited, 1);
    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.frees_waited, 1);  // nothing was queued any more
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(wait_refers_to_the_record_at_the_time_of_the_call)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream a = raw_stream(), b = raw_stream();
    CUevent event = raw_event();
    CUdeviceptr device = raw_alloc(2);
    CU(cuMemsetD8Async(device, 1, 2, a));
    CU(cuEventRecord(event, a));
    CU(cuStreamWaitEvent(b, event, 0));
    CU(cuMemsetD8Async(device, 2, 1, a));
    CU(cuEventRecord(event, a));  // the event moves on, the wait does not
    CU(cuStreamSynchronize(b));
    assert_int_equal(peek(device), 1);
    assert_int_equal(cu.emu.penemu_pending(a), 2);
    CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));
    CU(cuEventSynchronize(event));
    assert_int_equal(peek(device), 2);

    // A destroyed event still holds back whoever waits for it.
    CU(cuMemsetD8Async(device, 3, 1, a));
    CU(cuEventRecord(event, a));
    CU(cuStreamWaitEvent(b, event, 0));
    CU(cuEventDestroy(event));
    CU(cuStreamSynchronize(b));
    assert_int_equal(peek(device), 3);

    CU(cuMemFree(device));
    CU(cuStreamDestroy(a));
    CU(cuStreamDestroy(b));
    raw_close();
}

PEN_TEST(destroyed_stream_finishes_its_work)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream(), other = raw_stream();
    CUevent event = raw_event();
    CUdeviceptr device = raw_alloc(1);
    unsigned char *out = raw_pinned(1);
    CU(cuMemsetD8Async(device, 1, 1, stream));
    CU(cuStreamSynchronize(stream));
    CU(cuMemsetD8Async(device, 2, 1, stream));
    CU(cuEventRecord(event, stream));
    CU(cuStreamDestroy(stream));
    CU_IS(CUDA_ERROR_INVALID_HANDLE, cuStreamQuery(stream));
    assert_int_equal(peek(device), 1);  // not before somebody wants it
    CU_IS(CUDA_ERROR_NOT_READY, cuEventQuery(event));

    CU(cuStreamWaitEvent(other, event, 0));
    CU(cuMemcpyDtoHAsync(out, device, 1, other));
    CU(cuStreamSynchronize(other));
    assert_int_equal(out[0], 2);
    CU(cuEventQuery(event));

    CU(cuMemFree(device));
    CU(cuMemFreeHost(out));
    CU(cuEventDestroy(event));
    CU(cuStreamDestroy(other));
    raw_close();
    struct penemu_stats stats;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.threads, 0);
}

PEN_TEST(destroyed_stream_is_finished_by_a_wait_for_the_context)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(1);
    CU(cuMemsetD8Async(device, 6, 1, stream));
    CU(cuStreamDestroy(stream));
    CU(cuCtxSynchronize());
    assert_int_equal(peek(device), 6);
    CU(cuMemFree(device));
    raw_close();
}

PEN_TEST(eager_work_is_done_without_anybody_waiting)
{
    open_mode(PENEMU_EAGER, 0);
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(BYTES);
    CU(cuMemsetD8Async(device, 5, BYTES, stream));
    while (cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
        usleep(100);
    assert_int_equal(peek(device + BYTES - 1), 5);
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(work_is_done_by_another_thread_than_the_callers)
{
    // Held work and a caller that goes on: streams that ran in the calling
    // thread could not do this.
    open_mode(PENEMU_EAGER, 0);
    CUstream stream = raw_stream(), other = raw_stream();
    CUdeviceptr device = raw_alloc(2);
    CU(cuMemsetD8Async(device, 0, 2, other));
    CU(cuStreamSynchronize(other));
    assert_int_equal(cu.emu.penemu_hold_stream(stream, 1), 0);
    CU(cuMemsetD8Async(device, 5, 1, stream));
    CU(cuMemsetD8Async(device + 1, 6, 1, other));
    CU(cuStreamSynchronize(other));  // is not held up
    assert_int_equal(peek(device), 0);
    assert_int_equal(peek(device + 1), 6);
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    assert_int_equal(cu.emu.penemu_hold_stream(stream, 0), 0);
    CU(cuStreamSynchronize(stream));
    assert_int_equal(peek(device), 5);
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    CU(cuStreamDestroy(other));
    assert_int_equal(cu.emu.penemu_hold_stream(stream, 1), -1);
    assert_int_equal(cu.emu.penemu_pending(stream), -1);
    raw_close();
}

// A thread that waits for the context while a stream is held.
static void *wait_for_context(void *cookie)
{
    int *result = cookie;
    *result = (int)cu.cuCtxPushCurrent(cu.ctx);
    if (!*result)
        *result = (int)cu.cuCtxSynchronize();
    if (!*result)
        *result = (int)cu.cuCtxPopCurrent(NULL);
    return NULL;
}

PEN_TEST(context_is_finished_only_when_a_held_stream_is_let_go)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(1);
    cu.emu.penemu_hold_stream(stream, 1);
    CU(cuMemsetD8Async(device, 5, 1, stream));
    int result = -1;
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, wait_for_context, &result),
                     0);
    struct penemu_stats stats;
    do {
        usleep(1000);
        cu.emu.penemu_get_stats(&stats);
    } while (!cu.emu.penemu_calls("cuCtxSynchronize"));
    assert_int_equal(cu.emu.penemu_pending(stream), 1);
    cu.emu.penemu_hold_stream(stream, 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_int_equal(result, CUDA_SUCCESS);
    assert_int_equal(peek(device), 5);
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(changing_the_mode_lets_lazy_work_go)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(1);
    CU(cuMemsetD8Async(device, 5, 1, stream));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    cu.emu.penemu_set_mode(PENEMU_EAGER, 0);
    while (cu.cuStreamQuery(stream) == CUDA_ERROR_NOT_READY)
        usleep(100);
    assert_int_equal(peek(device), 5);
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    raw_close();
}

PEN_TEST(random_delays_never_break_the_order_that_events_make)
{
    const unsigned seeds = pen_test_seeds(6, 60);
    for (unsigned seed = 1; seed <= seeds; seed++) {
        open_mode(PENEMU_RANDOM, seed);
        CUstream s[2] = { raw_stream(), raw_stream() };
        CUevent event[2] = { raw_event(), raw_event() };
        enum { ROUNDS = 24 };
        CUdeviceptr device = raw_alloc(ROUNDS + 1);
        unsigned char *out = raw_pinned(ROUNDS + 1);
        unsigned char *in = raw_pinned(1);
        in[0] = (unsigned char)seed;
        // A byte is passed on from stream to stream, each time by a copy that
        // must see the one before.
        CU(cuMemcpyHtoDAsync(device, in, 1, s[0]));
        for (int i = 0; i < ROUNDS; i++) {
            CUstream from = s[i % 2], to = s[(i + 1) % 2];
            CU(cuEventRecord(event[i % 2], from));
            CU(cuStreamWaitEvent(to, event[i % 2], 0));
            CU(cuMemcpyDtoDAsync(device + (unsigned)i + 1, device + (unsigned)i,
                                 1, to));
        }
        CU(cuMemcpyDtoHAsync(out, device, ROUNDS + 1, s[ROUNDS % 2]));
        CU(cuStreamSynchronize(s[ROUNDS % 2]));
        for (int i = 0; i <= ROUNDS; i++)
            assert_int_equal(out[i], (unsigned char)seed);
        CU(cuMemFree(device));
        CU(cuMemFreeHost(out));
        CU(cuMemFreeHost(in));
        for (int i = 0; i < 2; i++) {
            CU(cuEventDestroy(event[i]));
            CU(cuStreamDestroy(s[i]));
        }
        raw_close();
    }
}

PEN_TEST(legacy_stream_orders_itself_with_blocking_streams_only)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream blocking, free_one = raw_stream();
    CU(cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CUdeviceptr device = raw_alloc(3);
    CU(cuMemsetD8Async(device, 0, 3, NULL));
    CU(cuStreamSynchronize(NULL));

    CU(cuMemsetD8Async(device, 1, 1, blocking));
    CU(cuMemsetD8Async(device + 1, 1, 1, free_one));
    CU(cuMemsetD8Async(device + 2, 1, 1, NULL));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    CU(cuStreamSynchronize(NULL));
    CU(cuStreamQuery(NULL));
    assert_int_equal(peek(device), 1);
    assert_int_equal(peek(device + 1), 0);
    assert_int_equal(peek(device + 2), 1);

    // Asking it asks the blocking streams as well.
    CU(cuMemsetD8Async(device, 1, 1, blocking));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(NULL));
    CU(cuStreamSynchronize(NULL));
    CU(cuStreamQuery(blocking));
    CU_IS(CUDA_ERROR_NOT_READY, cuStreamQuery(free_one));

    // And the other way round.
    CU(cuMemsetD8Async(device + 2, 2, 1, NULL));
    CU(cuMemsetD8Async(device, 2, 1, blocking));
    CU(cuStreamSynchronize(blocking));
    assert_int_equal(peek(device + 2), 2);

    CU(cuMemFree(device));
    CU(cuStreamDestroy(blocking));
    CU(cuStreamDestroy(free_one));
    raw_close();
}

PEN_TEST(pageable_memory_is_staged_or_waited_for_and_counted)
{
    open_mode(PENEMU_LAZY, 0);
    CUstream stream = raw_stream();
    CUdeviceptr device = raw_alloc(BYTES);
    unsigned char *pageable = malloc(BYTES);
    memset(pageable, 1, BYTES);
    CU(cuMemcpyHtoDAsync(device, pageable, BYTES, stream));
    assert_int_equal(cu.emu.penemu_pending(stream), 1);
    memset(pageable, 2, BYTES);  // ours again
    CU(cuMemcpyDtoHAsync(pageable, device, BYTES, stream));
    assert_int_equal(cu.emu.penemu_pending(stream), 0);
    assert_int_equal(pageable[BYTES - 1], 1);
    struct penemu_stats stats;
    cu.emu.penemu_get_stats(&stats);
    assert_int_equal(stats.h2d, 1);
    assert_int_equal(stats.pageable_h2d, 1);
    assert_int_equal(stats.d2h_bytes, BYTES);
    assert_int_equal(stats.pageable_d2h, 1);
    assert_int_equal(stats.waits, 1);
    free(pageable);
    CU(cuMemFree(device));
    CU(cuStreamDestroy(stream));
    raw_close();
}

// Threads that queue, wait and destroy at the same time.
static void *churn(void *cookie)
{
    uint64_t *seed = cookie;
    const char *failed = NULL;
    CUcontext ctx;
#define TRY(call) (failed = failed ? failed : cu.call ? #call : NULL)
    TRY(cuDevicePrimaryCtxRetain(&ctx, cu.device));
    TRY(cuCtxPushCurrent(ctx));
    for (int i = 0; i < 20 && !failed; i++) {
        CUstream stream;
        CUevent event;
        CUdeviceptr device;
        void *host;
        const size_t bytes = 1 + pen_test_random(seed) % 5000;
        TRY(cuStreamCreate(&stream, pen_test_random(seed) % 2));
        TRY(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
        TRY(cuMemAlloc(&device, bytes));
        TRY(cuMemHostAlloc(&host, bytes, 0));
        TRY(cuMemsetD8Async(device, (unsigned char)i, bytes, stream));
        TRY(cuMemcpyDtoHAsync(host, device, bytes, stream));
        TRY(cuEventRecord(event, stream));
        const bool early = pen_test_random(seed) % 2;
        if (early)
            TRY(cuStreamDestroy(stream));
        TRY(cuEventSynchronize(event));
        if (!failed && ((unsigned char *)host)[bytes - 1] != i)
            failed = "the bytes";
        if (!early)
            TRY(cuStreamDestroy(stream));
        TRY(cuEventDestroy(event));
        TRY(cuMemFree(device));
        TRY(cuMemFreeHost(host));
    }
    TRY(cuCtxPopCurrent(NULL));
    TRY(cuDevicePrimaryCtxRelease(cu.device));
#undef TRY
    return (void *)(uintptr_t)failed;
}

PEN_TEST(many_threads_use_the_driver_at_once)
{
    static const enum penemu_mode modes[] = { PENEMU_EAGER, PENEMU_LAZY,
                                              PENEMU_RANDOM };
    for (int m = 0; m < 3; m++) {
        raw_open();
        cu.emu.penemu_set_mode(modes[m], 3);
        enum { THREADS = 4 };
        pthread_t thread[THREADS];
        uint64_t seed[THREADS];
        for (unsigned i = 0; i < THREADS; i++) {
            seed[i] = i + 1;
            assert_int_equal(pthread_create(&thread[i], NULL, churn, &seed[i]),
                             0);
        }
        for (unsigned i = 0; i < THREADS; i++) {
            void *failed = NULL;
            assert_int_equal(pthread_join(thread[i], &failed), 0);
            if (failed)
                fail_msg("thread %u: %s", i, (const char *)failed);
        }
        struct penemu_stats stats;
        cu.emu.penemu_get_stats(&stats);
        assert_int_equal(stats.retains, THREADS + 1);
        assert_int_equal(stats.releases, THREADS);
        assert_int_equal(stats.device_bytes, 0);
        assert_int_equal(stats.host_bytes, 0);
        CU(cuCtxPopCurrent(NULL));
        CU(cuDevicePrimaryCtxRelease(cu.device));
    }
}

PEN_TEST_MAIN(
    PEN_CASE(lazy_copy_has_not_happened_before_it_is_waited_for),
    PEN_CASE(lazy_event_of_an_idle_stream_is_not_reached_by_itself),
    PEN_CASE(lazy_waiting_does_just_what_comes_before),
    PEN_CASE(lazy_wait_for_another_stream_demands_its_work_up_to_the_record),
    PEN_CASE(missing_wait_between_streams_is_seen_in_lazy_mode),
    PEN_CASE(freeing_memory_waits_for_queued_work_and_is_counted),
    PEN_CASE(wait_refers_to_the_record_at_the_time_of_the_call),
    PEN_CASE(destroyed_stream_finishes_its_work),
    PEN_CASE(destroyed_stream_is_finished_by_a_wait_for_the_context),
    PEN_CASE(eager_work_is_done_without_anybody_waiting),
    PEN_CASE(work_is_done_by_another_thread_than_the_callers),
    PEN_CASE(context_is_finished_only_when_a_held_stream_is_let_go),
    PEN_CASE(changing_the_mode_lets_lazy_work_go),
    PEN_CASE(random_delays_never_break_the_order_that_events_make),
    PEN_CASE(legacy_stream_orders_itself_with_blocking_streams_only),
    PEN_CASE(pageable_memory_is_staged_or_waited_for_and_counted),
    PEN_CASE(many_threads_use_the_driver_at_once))
