// Penstock's memory with CUDA code of one's own: frames are uploaded from
// page-locked blocks, changed on the device, and downloaded, all on a stream
// of the program's. The driver's functions are looked up in its library, so
// that no CUDA toolkit is needed to build this.
//
//     cc own_cuda.c $(pkg-config --cflags --libs penstock)
//     ./a.out                              on the first GPU
//     ./a.out emulated libpenstock-emu.so  on the emulated device

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include <penstock/device.h>
#include <penstock/pool.h>

enum { FRAMES = 100, HEADER = 64 };

// What this program uses of the driver, as in cuda.h.
static struct {
    int (*device_get)(int *device, int ordinal);
    int (*retain)(void **context, int device);
    int (*release)(int device);
    int (*push)(void *context);
    int (*pop)(void **context);
    int (*stream_create)(void **stream, unsigned flags);
    int (*stream_destroy)(void *stream);
    int (*synchronize)(void *stream);
    int (*upload)(uint64_t dst, const void *src, size_t bytes, void *stream);
    int (*download)(void *dst, uint64_t src, size_t bytes, void *stream);
    int (*fill)(uint64_t dst, unsigned char value, size_t bytes, void *stream);
} cu;

static int find(void *library, const char *name, void *place)
{
    void *symbol = dlsym(library, name);
    if (!symbol) {
        fprintf(stderr, "own_cuda: the driver has no %s\n", name);
        return 1;
    }
    memcpy(place, &symbol, sizeof(symbol));
    return 0;
}

static int load(const char *path)
{
    void *library = dlopen(path, RTLD_NOW);
    if (!library) {
        fprintf(stderr, "own_cuda: %s\n", dlerror());
        return 1;
    }
    return find(library, "cuDeviceGet", &cu.device_get) ||
           find(library, "cuDevicePrimaryCtxRetain", &cu.retain) ||
           find(library, "cuDevicePrimaryCtxRelease_v2", &cu.release) ||
           find(library, "cuCtxPushCurrent_v2", &cu.push) ||
           find(library, "cuCtxPopCurrent_v2", &cu.pop) ||
           find(library, "cuStreamCreate", &cu.stream_create) ||
           find(library, "cuStreamDestroy_v2", &cu.stream_destroy) ||
           find(library, "cuStreamSynchronize", &cu.synchronize) ||
           find(library, "cuMemcpyHtoDAsync_v2", &cu.upload) ||
           find(library, "cuMemcpyDtoHAsync_v2", &cu.download) ||
           find(library, "cuMemsetD8Async", &cu.fill);
}

// One frame: its blocks are taken, and given back once the stream is done with
// them. The pools make sure that this costs next to nothing.
static int frame(struct pen_pool *host, struct pen_pool *device, void *stream,
                 unsigned number)
{
    const size_t bytes = (size_t)1920 * 1080 * 3 - 100 * (number % 7);
    struct pen_error err = { 0 };
    void *in = NULL, *out = NULL;
    uint64_t there = 0;
    int failed = 1;
    if (pen_pinned_alloc(host, bytes, &in, &err) != PEN_OK ||
        pen_pinned_alloc(host, bytes, &out, &err) != PEN_OK ||
        pen_cuda_alloc(device, bytes, &there, &err) != PEN_OK) {
        fprintf(stderr, "own_cuda: %s: %s\n", err.where, err.text);
        goto done;
    }
    memset(in, (int)(number % 251), bytes);

    // Queued in order on one stream; nothing waits until the end.
    failed = cu.upload(there, in, bytes, stream) ||
             cu.fill(there, 255, HEADER, stream) ||
             cu.download(out, there, bytes, stream);
    // A block may be freed when nothing that was queued uses it any more, also
    // after a failure: some of it may have been queued.
    failed = cu.synchronize(stream) || failed;
    if (failed) {
        fprintf(stderr, "own_cuda: frame %u: the driver failed\n", number);
        goto done;
    }

    const unsigned char *got = out;
    for (size_t i = 0; i < bytes && !failed; i++) {
        const unsigned want = i < HEADER ? 255 : number % 251;
        failed = got[i] != want;
        if (failed)
            fprintf(stderr, "own_cuda: frame %u: byte %zu is %u, not %u\n",
                    number, i, got[i], want);
    }
done:
    (void)pen_pinned_free(in);
    (void)pen_pinned_free(out);
    (void)pen_cuda_free(there);
    return failed;
}

static void print_pool(const char *name, struct pen_pool *pool)
{
    struct pen_pool_stats s;
    pen_pool_get_stats(pool, &s);
    printf("%s: %llu blocks given, %llu allocations of the driver, at most "
           "%llu bytes held\n",
           name, (unsigned long long)s.allocs,
           (unsigned long long)s.driver_allocs,
           (unsigned long long)s.held_peak);
}

static int work(struct pen_device *dev, struct pen_error *err)
{
    struct pen_pool *host = NULL, *device = NULL;
    const struct pen_pool_params host_params = {
        .mem = PEN_MEM_HOST_PINNED,
        .device = dev,
        .name = "frames on the host",
        .max_bytes = 256 << 20,
    };
    const struct pen_pool_params device_params = {
        .mem = PEN_MEM_CUDA_DEVICE,
        .device = dev,
        .name = "frames on the device",
    };
    void *stream = NULL;
    int failed = pen_pool_create(&host_params, &host, err) != PEN_OK ||
                 pen_pool_create(&device_params, &device, err) != PEN_OK;
    if (failed)
        fprintf(stderr, "own_cuda: %s: %s\n", err->where, err->text);
    else
        failed = cu.stream_create(&stream, 1 /* CU_STREAM_NON_BLOCKING */);

    for (unsigned i = 0; i < FRAMES && !failed; i++)
        failed = frame(host, device, stream, i);
    if (!failed) {
        print_pool("host", host);
        print_pool("device", device);
    }

    if (stream)
        (void)cu.stream_destroy(stream);
    // Tells if a block was forgotten.
    if (pen_pool_destroy(&device, err) != PEN_OK ||
        pen_pool_destroy(&host, err) != PEN_OK) {
        fprintf(stderr, "own_cuda: %s: %s\n", err->where, err->text);
        failed = 1;
    }
    return failed;
}

int main(int argc, char **argv)
{
    const struct pen_device_params params = {
        .selector = argc > 1 ? argv[1] : "cuda",
        .emulator = argc > 2 ? argv[2] : NULL,
    };
    struct pen_error err = { 0 };
    struct pen_device *dev = NULL;
    if (pen_device_open(&params, &dev, &err) != PEN_OK) {
        fprintf(stderr, "own_cuda: %s\n", err.text);
        return 1;
    }
    struct pen_device_info info = { 0 };
    int failed = pen_device_get_info(dev, &info, &err) != PEN_OK;

    // The primary context is one for all of a process: what Penstock allocates
    // and what this program queues meet in it.
    int ordinal = 0;
    void *context = NULL;
    failed = failed || load(argc > 2 ? argv[2] : "libcuda.so.1") ||
             cu.device_get(&ordinal, info.index) ||
             cu.retain(&context, ordinal);
    if (!failed) {
        failed = cu.push(context) || work(dev, &err);
        (void)cu.pop(NULL);
        (void)cu.release(ordinal);
    }
    pen_device_close(&dev);
    printf("%s\n", failed ? "failed" : "all frames are as expected");
    return failed;
}
