// pool: what it costs to take one block and give it back, by 1 to 16 threads
// and across two of them, for Penstock's pools, for malloc, for a list under a
// mutex and, on a GPU, for the driver's own allocators; all in one run.
//
//     pool [--device cuda|emulated|none] [--bytes N] [--threads 1,2,4,8,16]
//          [--repeats N] [--only WORD] [--json] [--torch PYTHON]
//
// Times are nanoseconds for a pair of calls as each thread sees them: its own
// time divided by its pairs, the mean over threads for one repetition; printed
// are median, least and the 10th and 90th of a hundred over repetitions.
// "across" is the time of a block that one thread takes and another gives back.
// Threads are pinned to cores of their own where there are enough.

#include <dlfcn.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <pthread.h>
#include <sched.h>
#include <stdalign.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <penstock/penstock.h>

#include "bench.h"
#include "src/base/str.h"
#include "src/mem/pool.h"

enum { MAX_THREADS = 64, MAX_REPEATS = 101, MAX_CORES = 1024 };
// Blocks on their way from thread to thread; eight of them, a cache line, are
// made known at a time.
enum { RING = 32, AT_ONCE = 8 };

static struct {
    size_t bytes;
    unsigned threads[16], counts;
    unsigned repeats;
    const char *only, *device, *emulator, *torch;
    bool json;
    char machine[256];
    int cores[MAX_CORES], core_count;
    struct pen_device *dev;  // NULL without
    bool gpu;                // a real one
} opt = {
    .bytes = 6 << 20,
    .threads = { 1, 2, 4, 8, 16 },
    .counts = 5,
    .repeats = 15,
    .device = "cuda",
};

static double now_ns(void)
{
    return (double)stk_now();
}

// --- the driver's allocators ------------------------------------------------

// Looked up here: Penstock itself never uses the driver's pools.
static struct {
    int (*cuDeviceGet)(int *device, int ordinal);
    int (*cuDevicePrimaryCtxRetain)(void **ctx, int device);
    int (*cuCtxPushCurrent_v2)(void *ctx);
    int (*cuMemAlloc_v2)(uint64_t *address, size_t bytes);
    int (*cuMemFree_v2)(uint64_t address);
    int (*cuMemHostAlloc)(void **memory, size_t bytes, unsigned flags);
    int (*cuMemFreeHost)(void *memory);
    int (*cuMemPoolCreate)(void **pool, const void *props);
    int (*cuMemPoolSetAttribute)(void *pool, int attribute, void *value);
    int (*cuMemAllocFromPoolAsync)(uint64_t *address, size_t bytes, void *pool,
                                   void *stream);
    int (*cuMemFreeAsync)(uint64_t address, void *stream);
    int (*cuStreamCreate)(void **stream, unsigned flags);
    int (*cuStreamSynchronize)(void *stream);
    void *ctx, *pool;
} cu;

#define CU(call) bench_check(cu.call, #call)

static void open_driver(int index)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library)
        bench_die("libcuda.so.1", dlerror());
#define FIND(name) bench_find(library, #name, &cu.name)
    FIND(cuDeviceGet);
    FIND(cuDevicePrimaryCtxRetain);
    FIND(cuCtxPushCurrent_v2);
    FIND(cuMemAlloc_v2);
    FIND(cuMemFree_v2);
    FIND(cuMemHostAlloc);
    FIND(cuMemFreeHost);
    FIND(cuMemPoolCreate);
    FIND(cuMemPoolSetAttribute);
    FIND(cuMemAllocFromPoolAsync);
    FIND(cuMemFreeAsync);
    FIND(cuStreamCreate);
    FIND(cuStreamSynchronize);
#undef FIND
    int device = 0;
    CU(cuDeviceGet(&device, index));
    CU(cuDevicePrimaryCtxRetain(&cu.ctx, device));
    CU(cuCtxPushCurrent_v2(cu.ctx));
    // CUmemPoolProps of cuda.h: allocation type pinned, no handles, location
    // device; the rest is zero.
    struct {
        int alloc_type, handle_types, location_type, location_id;
        void *security;
        unsigned char rest[232];
    } props = { .alloc_type = 1, .location_type = 1, .location_id = device };
    CU(cuMemPoolCreate(&cu.pool, &props));
    uint64_t most = UINT64_MAX;
    CU(cuMemPoolSetAttribute(cu.pool, 4, &most));  // RELEASE_THRESHOLD
}

// --- candidates -------------------------------------------------------------

// What a candidate keeps for a run and for a thread.
struct run {
    union {
        struct pen_pool *pool;
        struct stk_pool *planned;
        struct {
            pthread_mutex_t lock;
            struct node {
                struct node *next;
            } * first;
        } list;
    };
};

struct candidate {
    const char *name;
    enum { ANY, DEVICE, GPU } needs;
    void (*open)(struct run *run, unsigned blocks);
    void (*close)(struct run *run);
    void (*thread)(void);  // before a thread's first call
    uint64_t (*take)(struct run *run);
    void (*give)(struct run *run, uint64_t block);
};

static _Thread_local void *thread_stream;
static void *shared_stream;  // blocks that cross threads come back on it

static void current(void)
{
    if (cu.ctx)
        CU(cuCtxPushCurrent_v2(cu.ctx));
}

static void own_stream(void)
{
    current();
    thread_stream = shared_stream;
    if (!thread_stream)
        CU(cuStreamCreate(&thread_stream, 1));
}

static void make_pool(struct run *run, enum pen_mem_type mem)
{
    const struct pen_pool_params params = { .mem = mem,
                                            .device = opt.dev,
                                            .name = "bench" };
    struct pen_error err = { 0 };
    if (pen_pool_create(&params, &run->pool, &err))
        bench_die(err.where, err.text);
}

static void host_open(struct run *run, unsigned blocks)
{
    (void)blocks;
    make_pool(run, PEN_MEM_HOST);
}

static void pinned_open(struct run *run, unsigned blocks)
{
    (void)blocks;
    make_pool(run, PEN_MEM_HOST_PINNED);
}

static void device_open(struct run *run, unsigned blocks)
{
    (void)blocks;
    make_pool(run, PEN_MEM_CUDA_DEVICE);
}

static void pool_close(struct run *run)
{
    struct pen_error err = { 0 };
    if (pen_pool_destroy(&run->pool, &err))
        bench_die(err.where, err.text);
}

static uint64_t pinned_take(struct run *run)
{
    void *memory = NULL;
    struct pen_error err;
    if (pen_pinned_alloc(run->pool, opt.bytes, &memory, &err))
        bench_die(err.where, err.text);
    return (uint64_t)(uintptr_t)memory;
}

static void pinned_give(struct run *run, uint64_t block)
{
    (void)run;
    if (pen_pinned_free((void *)(uintptr_t)block))
        bench_die("pen_pinned_free", "refused");
}

static uint64_t device_take(struct run *run)
{
    uint64_t address = 0;
    struct pen_error err;
    if (pen_cuda_alloc(run->pool, opt.bytes, &address, &err))
        bench_die(err.where, err.text);
    return address;
}

static void device_give(struct run *run, uint64_t block)
{
    (void)run;
    if (pen_cuda_free(block))
        bench_die("pen_cuda_free", "refused");
}

static void planned_open(struct run *run, unsigned blocks)
{
    const struct stk_pool_params params = {
        .mem = opt.dev ? PEN_MEM_HOST_PINNED : PEN_MEM_HOST,
        .block_bytes = opt.bytes,
        .blocks = blocks,
        .dev = opt.dev,
        .owner = "bench.planned",
    };
    struct pen_error err = { 0 };
    if (stk_pool_create(&params, &run->planned, &err))
        bench_die(err.where, err.text);
}

static void planned_close(struct run *run)
{
    stk_pool_destroy(&run->planned);
}

static uint64_t planned_take(struct run *run)
{
    struct stk_buffer *buffer = NULL;
    struct stk_point wait;
    struct pen_error err;
    enum pen_status st;
    while ((st = stk_pool_take(run->planned, NULL, &buffer, &wait, &err)) ==
           PEN_AGAIN)
        ;
    if (st)
        bench_die(err.where, err.text);
    return (uint64_t)(uintptr_t)buffer;
}

static void planned_give(struct run *run, uint64_t block)
{
    (void)run;
    stk_buffer_unref((struct stk_buffer *)(uintptr_t)block);
}

static uint64_t malloc_take(struct run *run)
{
    (void)run;
    void *memory = malloc(opt.bytes);
    if (!memory)
        bench_die("malloc", "no memory");
    return (uint64_t)(uintptr_t)memory;
}

// A byte of each page is written, as whoever uses the block would.
static uint64_t touch_take(struct run *run)
{
    const uint64_t block = malloc_take(run);
    volatile char *bytes = (volatile char *)(uintptr_t)block;
    for (size_t i = 0; i < opt.bytes; i += 4096)
        bytes[i] = 1;
    return block;
}

static void malloc_give(struct run *run, uint64_t block)
{
    (void)run;
    free((void *)(uintptr_t)block);
}

static void list_open(struct run *run, unsigned blocks)
{
    pthread_mutex_init(&run->list.lock, NULL);
    run->list.first = NULL;
    for (unsigned i = 0; i < blocks; i++) {
        struct node *node = malloc(opt.bytes);
        if (!node)
            bench_die("malloc", "no memory");
        node->next = run->list.first;
        run->list.first = node;
    }
}

static void list_close(struct run *run)
{
    while (run->list.first) {
        struct node *node = run->list.first;
        run->list.first = node->next;
        free(node);
    }
    pthread_mutex_destroy(&run->list.lock);
}

static uint64_t list_take(struct run *run)
{
    struct node *node = NULL;
    while (!node) {
        pthread_mutex_lock(&run->list.lock);
        node = run->list.first;
        if (node)
            run->list.first = node->next;
        pthread_mutex_unlock(&run->list.lock);
    }
    return (uint64_t)(uintptr_t)node;
}

static void list_give(struct run *run, uint64_t block)
{
    struct node *node = (struct node *)(uintptr_t)block;
    pthread_mutex_lock(&run->list.lock);
    node->next = run->list.first;
    run->list.first = node;
    pthread_mutex_unlock(&run->list.lock);
}

// What remains of "across" without a pool.
static uint64_t ring_take(struct run *run)
{
    return (uint64_t)(uintptr_t)run;
}

static void ring_give(struct run *run, uint64_t block)
{
    (void)run;
    if (!block)
        bench_die("ring", "a block was lost");
}

// The least that a pool can do across threads: what tells a second free of a
// block was written by who took it and is exchanged by who gives it back. In an
// order that no prefetcher foresees, as blocks come.
enum { LINES = 64 };  // more than are on their way
static _Thread_local struct {
    alignas(128) _Atomic uint64_t taken;
} lines[LINES];
PEN_STATIC_ASSERT(LINES >= RING + 2 * AT_ONCE, "a line may still be taken");

static uint64_t line_take(struct run *run)
{
    static _Thread_local unsigned at;
    (void)run;
    at = (at * 5 + 17) % LINES;  // each in turn
    _Atomic uint64_t *taken = &lines[at].taken;
    atomic_store_explicit(taken, 1, memory_order_relaxed);
    return (uintptr_t)taken;
}

static void line_give(struct run *run, uint64_t block)
{
    (void)run;
    _Atomic uint64_t *taken = (_Atomic uint64_t *)(uintptr_t)block;
    if (!atomic_exchange_explicit(taken, 0, memory_order_acq_rel))
        bench_die("a line", "given back twice");
}

static uint64_t cu_host_take(struct run *run)
{
    (void)run;
    void *memory = NULL;
    CU(cuMemHostAlloc(&memory, opt.bytes, 1));
    return (uint64_t)(uintptr_t)memory;
}

static void cu_host_give(struct run *run, uint64_t block)
{
    (void)run;
    CU(cuMemFreeHost((void *)(uintptr_t)block));
}

static uint64_t cu_device_take(struct run *run)
{
    (void)run;
    uint64_t address = 0;
    CU(cuMemAlloc_v2(&address, opt.bytes));
    return address;
}

static void cu_device_give(struct run *run, uint64_t block)
{
    (void)run;
    CU(cuMemFree_v2(block));
}

static uint64_t cu_async_take(struct run *run)
{
    (void)run;
    uint64_t address = 0;
    CU(cuMemAllocFromPoolAsync(&address, opt.bytes, cu.pool, thread_stream));
    return address;
}

static void cu_async_give(struct run *run, uint64_t block)
{
    (void)run;
    CU(cuMemFreeAsync(block, thread_stream));
}

// clang-format off
static const struct candidate candidates[] = {
    { "pen_pinned_alloc (size classes)", DEVICE, pinned_open, pool_close, NULL, pinned_take, pinned_give },
    { "pen_cuda_alloc (size classes)", DEVICE, device_open, pool_close, NULL, device_take, device_give },
    { "pen_pinned_alloc, pageable pool", ANY, host_open, pool_close, NULL, pinned_take, pinned_give },
    { "planned pool (stk_pool)", ANY, planned_open, planned_close, NULL, planned_take, planned_give },
    { "malloc, never touched", ANY, NULL, NULL, NULL, malloc_take, malloc_give },
    { "malloc, each page touched", ANY, NULL, NULL, NULL, touch_take, malloc_give },
    { "free list under a mutex", ANY, list_open, list_close, NULL, list_take, list_give },
    { "ring alone, no pool", ANY, NULL, NULL, NULL, ring_take, ring_give },
    { "ring and one line, no pool", ANY, NULL, NULL, NULL, line_take, line_give },
    { "cuMemHostAlloc", GPU, NULL, NULL, current, cu_host_take, cu_host_give },
    { "cuMemAlloc", GPU, NULL, NULL, current, cu_device_take, cu_device_give },
    { "cuMemAllocAsync, own pool", GPU, NULL, NULL, own_stream, cu_async_take, cu_async_give },
};
// clang-format on

// --- measuring --------------------------------------------------------------

struct worker {
    const struct candidate *c;
    struct run *run;
    struct team *team;
    unsigned number;
    uint64_t pairs;
    double ns;  // per pair
};

struct team {
    pthread_barrier_t start;
    struct worker workers[MAX_THREADS];
    // The ring of "across".
    alignas(128) _Atomic uint64_t head;
    alignas(128) _Atomic uint64_t tail;
    alignas(128) uint64_t ring[RING];
};

static void pin(unsigned number)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(opt.cores[number % (unsigned)opt.core_count], &set);
    (void)sched_setaffinity(0, sizeof(set), &set);
}

static void begin(const struct worker *w)
{
    pin(w->number);
    if (w->c->thread)
        w->c->thread();
    // The first pair makes what later ones find.
    w->c->give(w->run, w->c->take(w->run));
    pthread_barrier_wait(&w->team->start);
}

static void *alone(void *cookie)
{
    struct worker *w = cookie;
    begin(w);
    const double start = now_ns();
    for (uint64_t i = 0; i < w->pairs; i++)
        w->c->give(w->run, w->c->take(w->run));
    w->ns = (now_ns() - start) / (double)w->pairs;
    return NULL;
}

// Where there are more threads than cores the other one has to come to run.
static void relax(unsigned *spins)
{
    if (++*spins % 4096 == 0)
        sched_yield();
}

static void *producer(void *cookie)
{
    struct worker *w = cookie;
    struct team *t = w->team;
    begin(w);
    const double start = now_ns();
    uint64_t tail = 0;
    unsigned spins = 0;
    for (uint64_t i = 0; i < w->pairs; i++) {
        const uint64_t block = w->c->take(w->run);
        while (i - tail == RING) {
            tail = atomic_load_explicit(&t->tail, memory_order_acquire);
            relax(&spins);
        }
        t->ring[i % RING] = block;
        if ((i + 1) % AT_ONCE == 0)
            atomic_store_explicit(&t->head, i + 1, memory_order_release);
    }
    atomic_store(&t->head, w->pairs);
    while (atomic_load(&t->tail) != w->pairs)
        relax(&spins);
    w->ns = (now_ns() - start) / (double)w->pairs;
    return NULL;
}

static void *consumer(void *cookie)
{
    struct worker *w = cookie;
    struct team *t = w->team;
    begin(w);
    uint64_t head = 0;
    unsigned spins = 0;
    for (uint64_t i = 0; i < w->pairs; i++) {
        while (head == i) {
            head = atomic_load_explicit(&t->head, memory_order_acquire);
            relax(&spins);
        }
        w->c->give(w->run, t->ring[i % RING]);
        if ((i + 1) % AT_ONCE == 0)
            atomic_store_explicit(&t->tail, i + 1, memory_order_release);
    }
    atomic_store(&t->tail, w->pairs);
    return NULL;
}

// One repetition with new threads; nanoseconds per pair.
static double measure(const struct candidate *c, struct run *run,
                      unsigned threads, bool across, uint64_t pairs)
{
    static struct team team;
    memset(&team, 0, sizeof(team));
    if (across && c->thread == own_stream)
        CU(cuStreamCreate(&shared_stream, 1));
    pthread_barrier_init(&team.start, NULL, threads);
    pthread_t ids[MAX_THREADS];
    for (unsigned i = 0; i < threads; i++) {
        team.workers[i] = (struct worker){
            .c = c, .run = run, .team = &team, .number = i, .pairs = pairs
        };
        void *(*body)(void *) = !across ? alone : i ? consumer : producer;
        if (pthread_create(&ids[i], NULL, body, &team.workers[i]))
            bench_die("pthread_create", "no thread");
    }
    double sum = 0;
    for (unsigned i = 0; i < threads; i++) {
        pthread_join(ids[i], NULL);
        sum += team.workers[i].ns;
    }
    pthread_barrier_destroy(&team.start);
    if (shared_stream)
        CU(cuStreamSynchronize(shared_stream));
    shared_stream = NULL;
    return across ? team.workers[0].ns : sum / threads;
}

static void report(const struct candidate *c, unsigned threads, bool across)
{
    struct run run;
    memset(&run, 0, sizeof(run));
    if (c->open)
        c->open(&run, across ? 2 * RING : 2 * threads);
    // As many pairs as take more than 10 ms, found by doubling; what the first
    // ones had to get from the driver is there then.
    enum { LEAST = 4, MOST = 1 << 22 };
    uint64_t pairs = LEAST;
    measure(c, &run, threads, across, 2 * RING);
    for (; pairs < MOST; pairs *= 2) {
        const double a = measure(c, &run, threads, across, pairs),
                     b = measure(c, &run, threads, across, pairs);
        if ((a < b ? a : b) * (double)pairs > 1e7)
            break;
    }
    double ns[MAX_REPEATS];
    for (unsigned i = 0; i < opt.repeats; i++)
        ns[i] = measure(c, &run, threads, across, pairs);
    if (c->close)
        c->close(&run);
    bench_sort(ns, opt.repeats);
    const unsigned last = opt.repeats - 1;
    const double median = ns[last / 2], low = ns[last / 10],
                 high = ns[last - last / 10];
    if (opt.json)
        printf("{\"bench\": \"pool\", \"machine\": \"%s\", \"what\": \"%s\", "
               "\"bytes\": %zu, \"mode\": \"%s\", \"threads\": %u, \"pairs\": "
               "%" PRIu64 ", \"repeats\": %u, \"median_ns\": %.1f, \"min_ns\": "
               "%.1f, \"p10_ns\": %.1f, \"p90_ns\": %.1f}\n",
               opt.machine, c->name, opt.bytes, across ? "across" : "same",
               threads, pairs, opt.repeats, median, ns[0], low, high);
    else
        printf("%-34s %-6s %7u %12.1f %12.1f %12.1f %12.1f\n", c->name,
               across ? "across" : "same", threads, median, ns[0], low, high);
    fflush(stdout);
}

// --- the machine ------------------------------------------------------------

// The first number of a file of /sys, or -1.
static int first_number(const char *format, int cpu)
{
    char path[128];
    snprintf(path, sizeof(path), format, cpu);
    FILE *f = fopen(path, "r");
    char line[64] = "";
    if (!f)
        return -1;
    const bool ok = fgets(line, sizeof(line), f) != NULL;
    fclose(f);
    return ok ? (int)strtol(line, NULL, 10) : -1;
}

// Cores that we may use, one hardware thread of each before the others.
static void find_cores(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set))
        CPU_SET(0, &set);
    for (int second = 0; second < 2; second++) {
        for (int cpu = 0; cpu < MAX_CORES && cpu < CPU_SETSIZE; cpu++) {
            const int first = first_number("/sys/devices/system/cpu/cpu%d/"
                                           "topology/thread_siblings_list",
                                           cpu);
            const bool is_second =
                first >= 0 && first != cpu && CPU_ISSET((unsigned)first, &set);
            if (CPU_ISSET((unsigned)cpu, &set) && is_second == (second == 1))
                opt.cores[opt.core_count++] = cpu;
        }
    }
}

static void name_machine(void)
{
    char model[96];
    bench_processor(model, sizeof(model));
    struct pen_device_info info = { .name = "no GPU" };
    struct pen_error err;
    if (opt.dev && pen_device_get_info(opt.dev, &info, &err))
        bench_die(err.where, err.text);
    snprintf(opt.machine, sizeof(opt.machine), "%s, %d hardware threads, %s",
             model, opt.core_count, info.name);
}

static void open_device(void)
{
    if (strcmp(opt.device, "none") == 0)
        return;
    const struct pen_device_params params = { .selector = opt.device,
                                              .emulator = opt.emulator };
    struct pen_error err = { 0 };
    if (pen_device_open(&params, &opt.dev, &err))
        bench_die(err.where, err.text);
    struct pen_device_info info;
    if (pen_device_get_info(opt.dev, &info, &err))
        bench_die(err.where, err.text);
    opt.gpu = !info.emulated;
    if (opt.gpu)
        open_driver(info.index);
}

// --- PyTorch ----------------------------------------------------------------

// pool_torch.py lies beside this program and prints lines like ours.
static void run_torch(const char *self)
{
    char folder[4096], script[4200], bytes[32], repeats[16];
    snprintf(folder, sizeof(folder), "%s", self);
    snprintf(script, sizeof(script), "%s/pool_torch.py", dirname(folder));
    snprintf(bytes, sizeof(bytes), "%zu", opt.bytes);
    snprintf(repeats, sizeof(repeats), "%u", opt.repeats);
    char *argv[] = { (char *)opt.torch,
                     script,
                     (char *)"--bytes",
                     bytes,
                     (char *)"--repeats",
                     repeats,
                     (char *)"--machine",
                     opt.machine,
                     opt.json ? (char *)"--json" : NULL,
                     NULL };
    extern char **environ;
    pid_t child;
    int status = 0;
    const int failed =
        posix_spawnp(&child, opt.torch, NULL, NULL, argv, environ);
    if (failed)
        bench_die(opt.torch, strerror(failed));
    if (waitpid(child, &status, 0) != child || status != 0)
        bench_die(script, "failed");
}

static void parse_threads(char *list)
{
    opt.counts = 0;
    for (char *at = strtok(list, ","); at; at = strtok(NULL, ",")) {
        const long n = strtol(at, NULL, 10);
        if (n < 1 || n > MAX_THREADS || opt.counts == 16)
            bench_die("--threads", "up to 16 numbers from 1 to 64");
        opt.threads[opt.counts++] = (unsigned)n;
    }
}

static void parse(int argc, char **argv)
{
    static const struct option options[] = {
        { "device", required_argument, NULL, 'd' },
        { "emulator", required_argument, NULL, 'e' },
        { "bytes", required_argument, NULL, 'b' },
        { "threads", required_argument, NULL, 't' },
        { "repeats", required_argument, NULL, 'r' },
        { "only", required_argument, NULL, 'o' },
        { "json", no_argument, NULL, 'j' },
        { "torch", required_argument, NULL, 'p' },
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
        case 'b':
            opt.bytes = strtoull(optarg, NULL, 10);
            break;
        case 't':
            parse_threads(optarg);
            break;
        case 'r':
            opt.repeats = (unsigned)strtoul(optarg, NULL, 10);
            break;
        case 'o':
            opt.only = optarg;
            break;
        case 'j':
            opt.json = true;
            break;
        case 'p':
            opt.torch = optarg;
            break;
        default:
            exit(3);
        }
    }
    if (opt.bytes < sizeof(struct node))
        bench_die("--bytes", "at least 8");
    if (opt.repeats < 1 || opt.repeats > MAX_REPEATS)
        bench_die("--repeats", "1 to 101");
}

int main(int argc, char **argv)
{
    parse(argc, argv);
    find_cores();
    open_device();
    name_machine();
    if (!opt.json) {
        printf("%s; a block of %zu bytes; ns per pair as each thread sees it, "
               "%u repetitions\n",
               opt.machine, opt.bytes, opt.repeats);
        printf("%-34s %-6s %7s %12s %12s %12s %12s\n", "what", "mode",
               "threads", "median", "min", "p10", "p90");
    }
    for (size_t i = 0; i < sizeof(candidates) / sizeof(candidates[0]); i++) {
        const struct candidate *c = &candidates[i];
        if ((c->needs == DEVICE && !opt.dev) || (c->needs == GPU && !opt.gpu) ||
            (opt.only && !strstr(c->name, opt.only)))
            continue;
        for (unsigned j = 0; j < opt.counts; j++)
            report(c, opt.threads[j], false);
        report(c, 2, true);
    }
    if (opt.torch)
        run_torch(argv[0]);
    pen_device_close(&opt.dev);
    return 0;
}
