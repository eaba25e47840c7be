// copy: what a copy between host and device costs by its size, from pageable
// and from pinned memory, and through Penstock's transfers; all in one run.
//
//     copy [--device cuda|emulated] [--emulator FILE] [--most BYTES]
//          [--repeats N] [--json]
//
// Columns, in GB/s (1e9 bytes) of payload:
//   pageable     a copy from or to malloc()ed memory and a wait for it: the
//                driver moves it through pinned memory of its own
//   pinned       the same from or to pinned memory
//   cpu+pinned   the same with a memcpy() between malloc()ed and pinned memory:
//                what a program does that pins only a staging buffer
//   queued       copies of pinned memory queued one behind the other: what the
//                engine can do
//   transfer     the same by Penstock: each takes a block of the pool behind a
//                bridge, makes a frame, has it copied by stk_transfer(),
//                records a point and gives the block back
// Each is the median of the repetitions, and in brackets the 10th and the 90th
// of a hundred; "faster" is said where the spreads do not overlap. Memory has
// been touched before.

#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <penstock/penstock.h>

#include "bench.h"
#include "src/base/str.h"
#include "src/mem/frame.h"
#include "src/mem/pool.h"

enum {
    MAX_REPEATS = 101,
    MAX_SIZES = 32,
    QUEUED = 16,  // copies, before somebody waits
    BLOCKS = 4,   // of a pool
};
static const size_t LEAST = 4 << 10;
static const double SAMPLE_NS = 300e3;  // a repetition lasts at least so long

static struct {
    const char *device, *emulator;
    size_t most;
    unsigned repeats;
    bool json;
} opt = { .device = "cuda", .repeats = 15 };

static struct pen_device *dev;
static struct pen_device_info info;
static struct stk_stream *stream;
static struct stk_frame_pool *frames;
static char machine[256];

#define OK(expr)                                                               \
    do {                                                                       \
        struct pen_error err = { 0 };                                          \
        if ((expr) != PEN_OK)                                                  \
            bench_die(#expr, err.text);                                        \
    } while (0)

// --- the driver -------------------------------------------------------------

// Looked up here: Penstock itself never copies pageable memory.
static struct {
    int (*cuMemcpyHtoDAsync_v2)(uint64_t dst, const void *src, size_t bytes,
                                void *stream);
    int (*cuMemcpyDtoHAsync_v2)(void *dst, uint64_t src, size_t bytes,
                                void *stream);
    int (*cuStreamSynchronize)(void *stream);
} cu;

#define CU(call) bench_check(cu.call, #call)

static void open_driver(void)
{
    // It is loaded already.
    const char *name = info.emulated ? "libpenstock-emu.so" : "libcuda.so.1";
    void *library = dlopen(name, RTLD_NOW | RTLD_NOLOAD);
    if (!library)
        bench_die("not loaded", name);
    bench_find(library, "cuMemcpyHtoDAsync_v2", &cu.cuMemcpyHtoDAsync_v2);
    bench_find(library, "cuMemcpyDtoHAsync_v2", &cu.cuMemcpyDtoHAsync_v2);
    bench_find(library, "cuStreamSynchronize", &cu.cuStreamSynchronize);
}

// --- what is measured -------------------------------------------------------

// Memory for one size, as long as it is measured.
static struct {
    size_t bytes;
    bool up;
    char *pageable, *pinned;
    uint64_t device;
    struct stk_pool *pool;  // of the memory that copies go to
    struct pen_frame *source;
} now;

static void *handle(void)
{
    return (void *)stk_stream_handle(stream);
}

static void one_copy(void *host)
{
    if (now.up)
        CU(cuMemcpyHtoDAsync_v2(now.device, host, now.bytes, handle()));
    else
        CU(cuMemcpyDtoHAsync_v2(host, now.device, now.bytes, handle()));
}

static void pageable(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        one_copy(now.pageable);
        CU(cuStreamSynchronize(handle()));
    }
}

static void pinned(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        one_copy(now.pinned);
        CU(cuStreamSynchronize(handle()));
    }
}

static void cpu_pinned(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        if (now.up)
            memcpy(now.pinned, now.pageable, now.bytes);
        one_copy(now.pinned);
        CU(cuStreamSynchronize(handle()));
        if (!now.up)
            memcpy(now.pageable, now.pinned, now.bytes);
    }
}

static void queued(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        one_copy(now.pinned);
        if (i % QUEUED == QUEUED - 1)
            CU(cuStreamSynchronize(handle()));
    }
    CU(cuStreamSynchronize(handle()));
}

static struct pen_frame *take_frame(struct stk_pool *pool)
{
    const struct pen_caps caps = { .kind = PEN_KIND_FRAME, .bytes = now.bytes };
    struct stk_buffer *buffer = NULL;
    struct pen_frame *frame = NULL;
    struct stk_point wait;
    OK(stk_pool_take(pool, stream, &buffer, &wait, &err));
    OK(stk_frame_make(frames, buffer, &caps, &frame, &err));
    return frame;
}

static void transfer(unsigned count)
{
    struct stk_point point = { 0 };
    for (unsigned i = 0; i < count; i++) {
        struct pen_view src, dst;
        struct pen_frame *out = take_frame(now.pool);
        OK(stk_frame_on_stream(now.source, stream, PEN_READ, &src, &err));
        OK(stk_frame_on_stream(out, stream, PEN_WRITE, &dst, &err));
        OK(stk_transfer(stream, &dst, &src, &err));
        OK(stk_stream_record(stream, &point, &err));
        stk_buffer_used(now.source->buffer, point, PEN_READ);
        stk_buffer_used(out->buffer, point, PEN_WRITE);
        pen_frame_unref(out);
        if (i % QUEUED == QUEUED - 1)
            OK(stk_point_wait(point, STK_WAIT_NONE, &err));
    }
    OK(stk_point_wait(point, STK_WAIT_NONE, &err));
}

enum { PAGEABLE, PINNED, CPU_PINNED, QUEUE, TRANSFER, WAYS };
static const struct {
    const char *name;
    void (*copy)(unsigned count);
} ways[WAYS] = {
    [PAGEABLE] = { "pageable", pageable },
    [PINNED] = { "pinned", pinned },
    [CPU_PINNED] = { "cpu+pinned", cpu_pinned },
    [QUEUE] = { "queued", queued },
    [TRANSFER] = { "transfer", transfer },
};

// --- measuring --------------------------------------------------------------

struct result {
    double ns, low, high;  // of one copy: median, 10th and 90th of a hundred
};
static struct result results[2][MAX_SIZES][WAYS];
static size_t sizes[MAX_SIZES];
static unsigned size_count;

static double time_of(void (*copy)(unsigned count), unsigned count)
{
    const double start = (double)stk_now();
    copy(count);
    return ((double)stk_now() - start) / count;
}

// How many copies make a repetition long enough.
static unsigned copies_for(unsigned way)
{
    const unsigned least = way == QUEUE || way == TRANSFER ? QUEUED : 1;
    time_of(ways[way].copy, least);  // the first are slow
    const double ns = time_of(ways[way].copy, least);
    return ns * least >= SAMPLE_NS ? least : (unsigned)ceil(SAMPLE_NS / ns);
}

static void measure_size(bool up, unsigned at)
{
    unsigned counts[WAYS];
    double ns[WAYS][MAX_REPEATS];
    for (unsigned way = 0; way < WAYS; way++)
        counts[way] = copies_for(way);
    // Taking turns: what disturbs the machine for a while disturbs all alike.
    for (unsigned r = 0; r < opt.repeats; r++) {
        for (unsigned way = 0; way < WAYS; way++)
            ns[way][r] = time_of(ways[way].copy, counts[way]);
    }
    for (unsigned way = 0; way < WAYS; way++) {
        bench_sort(ns[way], opt.repeats);
        results[up][at][way] = (struct result){
            .ns = ns[way][opt.repeats / 2],
            .low = ns[way][opt.repeats / 10],
            .high = ns[way][opt.repeats - 1 - opt.repeats / 10],
        };
    }
}

static struct stk_pool *make_pool(enum pen_mem_type mem, uint32_t blocks)
{
    const struct stk_pool_params params = {
        .mem = mem,
        .block_bytes = now.bytes,
        .blocks = blocks,
        .dev = dev,
        .owner = "bench.copy",
    };
    struct stk_pool *pool = NULL;
    OK(stk_pool_create(&params, &pool, &err));
    return pool;
}

static void measure(bool up, unsigned at)
{
    now.up = up;
    now.bytes = sizes[at];
    void *memory = NULL;
    now.pageable = malloc(now.bytes);
    if (!now.pageable)
        bench_die("malloc", "no memory");
    OK(stk_pinned_alloc(dev, now.bytes, "bench", PEN_HERE, &memory, &err));
    OK(stk_device_alloc(dev, now.bytes, "bench", PEN_HERE, &now.device, &err));
    now.pinned = memory;
    memset(now.pageable, 1, now.bytes);
    memset(now.pinned, 2, now.bytes);
    struct stk_pool *from =
        make_pool(up ? PEN_MEM_HOST_PINNED : PEN_MEM_CUDA_DEVICE, 1);
    now.pool =
        make_pool(up ? PEN_MEM_CUDA_DEVICE : PEN_MEM_HOST_PINNED, BLOCKS);
    now.source = take_frame(from);

    measure_size(up, at);

    pen_frame_unref(now.source);
    stk_pool_destroy(&from);
    stk_pool_destroy(&now.pool);
    stk_device_free(dev, now.device, now.bytes);
    stk_pinned_free(dev, now.pinned, now.bytes);
    free(now.pageable);
}

// --- what comes out ---------------------------------------------------------

static const char *direction(bool up)
{
    return up ? "host to device" : "device to host";
}

static void print_row(bool up, unsigned at)
{
    char size[32];
    stk_format_size(sizes[at], size, sizeof(size));
    const double bytes = (double)sizes[at];
    if (!opt.json)
        printf("%12s", size);
    for (unsigned way = 0; way < WAYS; way++) {
        const struct result *r = &results[up][at][way];
        if (opt.json)
            printf("{ \"machine\": \"%s\", \"direction\": \"%s\", \"bytes\": "
                   "%zu, \"way\": \"%s\", \"ns\": %.0f, \"p10_ns\": %.0f, "
                   "\"p90_ns\": %.0f, \"gb_s\": %.3f }\n",
                   machine, direction(up), sizes[at], ways[way].name, r->ns,
                   r->low, r->high, bytes / r->ns);
        else
            printf("  %6.2f (%6.2f-%6.2f)", bytes / r->ns, bytes / r->high,
                   bytes / r->low);
    }
    if (!opt.json)
        printf("\n");
}

// By more than the spread of both.
static bool faster(bool up, unsigned at, unsigned way, unsigned than)
{
    return results[up][at][way].high < results[up][at][than].low;
}

// The crossover: at which sizes a way is faster than pageable copies.
static void print_crossover(bool up, unsigned way)
{
    const char *before = "";
    printf("  %s is faster than pageable: ", ways[way].name);
    for (unsigned at = 0; at < size_count; at++) {
        char first[32], last[32];
        stk_format_size(sizes[at], first, sizeof(first));
        const unsigned from = at;
        while (at < size_count && faster(up, at, way, PAGEABLE))
            at++;
        if (at == from)
            continue;
        stk_format_size(sizes[at - 1], last, sizeof(last));
        printf("%s%s", before, first);
        if (at - 1 > from)
            printf(" to %s", last);
        before = ", ";
    }
    printf("%s\n", *before ? "" : "at no size");
}

// What a copy costs before its first byte moves, and the size at which moving
// the bytes takes as long.
static void print_fixed_cost(bool up, unsigned way)
{
    const double least = results[up][0][way].ns;
    const unsigned last = size_count - 1;
    const double rate = (double)sizes[last] / results[up][last][way].ns;
    const double fixed = least - (double)sizes[0] / rate;
    char size[32];
    stk_format_size((uint64_t)(fixed > 0 ? fixed * rate : 0), size,
                    sizeof(size));
    printf("  %s: %.1f us for the least copy; moving the bytes takes longer "
           "than the rest from %s on (at %.1f GB/s)\n",
           ways[way].name, least / 1e3, size, rate);
}

static void print_direction(bool up)
{
    if (!opt.json) {
        printf("\n%s, GB/s: median (p10-p90)\n%12s", direction(up), "bytes");
        for (unsigned way = 0; way < WAYS; way++)
            printf("  %22s", ways[way].name);
        printf("\n");
    }
    for (unsigned at = 0; at < size_count; at++)
        print_row(up, at);
    if (opt.json)
        return;
    print_crossover(up, PINNED);
    print_crossover(up, CPU_PINNED);
    print_fixed_cost(up, PAGEABLE);
    print_fixed_cost(up, PINNED);
    print_fixed_cost(up, TRANSFER);
}

static void name_machine(void)
{
    char model[96];
    bench_processor(model, sizeof(model));
    snprintf(machine, sizeof(machine), "%s, %s, CUDA %d.%d", model, info.name,
             info.driver_version / 1000, info.driver_version % 1000 / 10);
}

// --- main -------------------------------------------------------------------

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "device", required_argument, NULL, 'd' },
        { "emulator", required_argument, NULL, 'e' },
        { "most", required_argument, NULL, 'm' },
        { "repeats", required_argument, NULL, 'r' },
        { "json", no_argument, NULL, 'j' },
        { 0 },
    };
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        switch (option) {
        case 'd':
            opt.device = optarg;
            break;
        case 'e':
            opt.emulator = optarg;
            break;
        case 'm':
            opt.most = strtoull(optarg, NULL, 10);
            break;
        case 'r':
            opt.repeats = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'j':
            opt.json = true;
            break;
        default:
            exit(3);
        }
    }
    if (opt.repeats < 1 || opt.repeats > MAX_REPEATS)
        bench_die("--repeats", "1 to 101");
    if (opt.most && opt.most < LEAST)
        bench_die("--most", "at least 4096 bytes");
}

static void open_all(void)
{
    const struct pen_device_params params = {
        .selector = opt.device,
        .emulator = opt.emulator,
    };
    OK(pen_device_open(&params, &dev, &err));
    OK(pen_device_get_info(dev, &info, &err));
    open_driver();
    name_machine();
    OK(stk_stream_create(dev, "bench.copy", &stream, &err));
    OK(stk_frame_pool_create(2 * QUEUED, NULL, &frames, &err));
    if (!opt.most)
        opt.most = info.emulated ? 4 << 20 : 256 << 20;
    for (size_t bytes = LEAST; bytes <= opt.most; bytes *= 2)
        sizes[size_count++] = bytes;
}

static void run(void)
{
    struct pen_error err = { 0 };
    STK_SCOPE scope = { 0 };
    if (stk_scope_enter(&scope, dev, &err) != PEN_OK)
        bench_die("context", err.text);
    if (!opt.json)
        printf("%s; %u repetitions\n%s", machine, opt.repeats,
               info.emulated ? "The device is emulated: the numbers say "
                               "nothing about a GPU.\n"
                             : "");
    for (unsigned up = 2; up-- > 0;) {
        for (unsigned at = 0; at < size_count; at++)
            measure(up, at);
        print_direction(up);
    }
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    open_all();
    run();
    stk_frame_pool_destroy(&frames);
    stk_stream_destroy(&stream);
    pen_device_close(&dev);
    return 0;
}
