#include "gpu_fixture.h"

#include <dlfcn.h>
#include <errno.h>
#include <time.h>

// --- kernels ----------------------------------------------------------------

// Written by hand, because the gate polls host memory, which the dialect of
// kernel.h rightly does not allow: pinned memory has one address for both.
static const char ptx[] =
    ".version 6.0\n"
    ".target sm_60\n"
    ".address_size 64\n"
    ".visible .entry test_gate(.param .align 8 .b8 block[8])\n"
    "{\n"
    "    .reg .pred closed;\n"
    "    .reg .u32 value;\n"
    "    .reg .u64 flag;\n"
    "    ld.param.u64 flag, [block];\n"
    "again:\n"
    "    ld.volatile.u32 value, [flag];\n"
    "    setp.eq.u32 closed, value, 0;\n"
    "    @closed bra again;\n"
    "    ret;\n"
    "}\n"
    ".visible .entry test_fill(.param .align 8 .b8 block[16])\n"
    "{\n"
    "    .reg .pred outside;\n"
    "    .reg .u32 value, count, thread, size, index;\n"
    "    .reg .u64 dst, at;\n"
    "    ld.param.u64 dst, [block];\n"
    "    ld.param.u32 value, [block+8];\n"
    "    ld.param.u32 count, [block+12];\n"
    "    mov.u32 index, %ctaid.x;\n"
    "    mov.u32 size, %ntid.x;\n"
    "    mov.u32 thread, %tid.x;\n"
    "    mad.lo.u32 index, index, size, thread;\n"
    "    setp.ge.u32 outside, index, count;\n"
    "    @outside ret;\n"
    "    mul.wide.u32 at, index, 4;\n"
    "    add.u64 at, at, dst;\n"
    "    st.global.u32 [at], value;\n"
    "    ret;\n"
    "}\n";

struct fill_args {
    uint64_t dst;
    uint32_t value, count;
};

static void fill_host(const void *args, const struct penk_block *block)
{
    struct fill_args k;
    memcpy(&k, args, sizeof(k));
    uint32_t *dst =
        (uint32_t *)(uintptr_t)(k.dst + (uint64_t)(int64_t)block->offset);
    for (uint32_t i = 0; i < block->dim_x; i++) {
        const uint32_t index = block->x * block->dim_x + i;
        if (index < k.count)
            dst[index] = k.value;
    }
}

static void gate_host(const void *args, const struct penk_block *block)
{
    (void)block;
    uint64_t address;
    memcpy(&address, args, sizeof(address));
    const uint32_t *flag = (const uint32_t *)(uintptr_t)address;
    while (!__atomic_load_n(flag, __ATOMIC_ACQUIRE))
        nanosleep(&(struct timespec){ .tv_nsec = 50000 }, NULL);
}

static const struct pen_kernel_entry entries[] = {
    [FIXTURE_GATE] = { "test_gate", 8, gate_host, NULL },
    [FIXTURE_FILL] = { "test_fill", 16, fill_host, NULL },
};

const struct pen_kernel_image fixture_image = {
    .magic = PEN_KERNEL_MAGIC,
    .abi = PEN_KERNEL_ABI,
    .count = 2,
    .name = "fixture",
    .ptx = ptx,
    .entries = entries,
};

// --- the device -------------------------------------------------------------

const struct penemu *fixture_emulator(void)
{
    static struct penemu controls;
    static bool loaded;
    if (pen_test_on_gpu())
        return NULL;
    if (!loaded) {
        void *library = dlopen(pen_test_emulator(), RTLD_NOW);
        if (!library)
            fail_msg("%s", dlerror());
        loaded = penemu_load(&controls, library, dlsym);
        assert_true(loaded);
    }
    return &controls;
}

void fixture_open(struct fixture *f)
{
    *f = (struct fixture){ .ledger = stk_ledger_create(true) };
    assert_non_null(f->ledger);
    const struct pen_device_params params = {
        .selector = pen_test_device(),
        .emulator = pen_test_emulator(),
    };
    FIXTURE_OK(stk_device_open(&params, f->ledger, &f->dev, &err));
    FIXTURE_OK(stk_kernels_load(f->dev, &fixture_image, &f->kernels, &err));
}

uint64_t fixture_live(struct stk_ledger *ledger, enum stk_res res)
{
    struct stk_ledger_totals totals;
    stk_ledger_totals(ledger, res, &totals);
    return totals.live;
}

static void print_entry(void *cookie, const struct stk_ledger_entry *entry)
{
    (void)cookie;
    print_message("# leak: %s of %s from %s, %llu bytes\n",
                  stk_res_name(entry->res), entry->owner, entry->site,
                  (unsigned long long)entry->bytes);
}

void fixture_check_empty(struct stk_ledger *ledger)
{
    stk_ledger_each(ledger, print_entry, NULL);
    for (int res = 1; res < STK_RES_COUNT; res++)
        assert_int_equal(fixture_live(ledger, (enum stk_res)res), 0);
}

void fixture_close(struct fixture *f)
{
    pen_device_close(&f->dev);
    fixture_check_empty(f->ledger);
    stk_ledger_destroy(&f->ledger);
}

void fixture_all_modes(void (*body)(struct fixture *f))
{
    static const struct {
        enum penemu_mode mode;
        uint64_t seed;
    } modes[] = {
        { PENEMU_EAGER, 0 },
        { PENEMU_LAZY, 0 },
        { PENEMU_RANDOM, 1 },
        { PENEMU_RANDOM, 2 },
    };
    const struct penemu *emu = fixture_emulator();
    const size_t count = emu ? sizeof(modes) / sizeof(modes[0]) : 1;
    for (size_t i = 0; i < count; i++) {
        struct fixture f;
        if (emu)
            emu->penemu_set_mode(modes[i].mode, modes[i].seed);
        fixture_open(&f);
        body(&f);
        fixture_close(&f);
        if (emu) {
            struct penemu_leaks leaks;
            emu->penemu_get_leaks(&leaks);
            assert_int_equal(leaks.device_blocks + leaks.host_blocks +
                                 leaks.streams + leaks.events + leaks.modules,
                             0);
            emu->penemu_reset();
        }
    }
}

struct stk_stream *fixture_stream(struct fixture *f, const char *owner)
{
    struct stk_stream *stream;
    FIXTURE_OK(stk_stream_create(f->dev, owner, &stream, &err));
    return stream;
}

struct stk_point fixture_record(struct fixture *f, struct stk_stream *stream)
{
    struct stk_point point;
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    FIXTURE_OK(stk_stream_record(stream, &point, &err));
    return point;
}

void fixture_fill(struct fixture *f, struct stk_stream *stream, uint64_t dst,
                  uint32_t value, uint32_t count)
{
    const struct fill_args args = { dst, value, count };
    const struct pen_grid grid = { (count + 63) / 64, 1, 1, 64, 1 };
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    FIXTURE_OK(stk_stream_launch(stream, f->kernels, FIXTURE_FILL, &grid, &args,
                                 sizeof(args), &err));
}

// --- gates ------------------------------------------------------------------

void gate_create(struct fixture *f, struct gate *gate)
{
    void *memory;
    FIXTURE_OK(stk_pinned_alloc(f->dev, sizeof(*gate->flag), "test.gate",
                                PEN_HERE, &memory, &err));
    gate->flag = memory;
    __atomic_store_n(gate->flag, 0, __ATOMIC_RELEASE);
}

void gate_queue(struct fixture *f, struct gate *gate, struct stk_stream *stream)
{
    const uint64_t address = (uintptr_t)gate->flag;
    const struct pen_grid grid = { 1, 1, 1, 1, 1 };
    STK_SCOPE scope = { 0 };
    FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
    FIXTURE_OK(stk_stream_launch(stream, f->kernels, FIXTURE_GATE, &grid,
                                 &address, sizeof(address), &err));
}

void gate_open(struct gate *gate)
{
    __atomic_store_n(gate->flag, 1, __ATOMIC_RELEASE);
}

void gate_free(struct fixture *f, struct gate *gate)
{
    stk_pinned_free(f->dev, gate->flag, sizeof(*gate->flag));
    gate->flag = NULL;
}

// --- callbacks --------------------------------------------------------------

void called_init(struct called *c)
{
    assert_int_equal(sem_init(&c->sem, 0, 0), 0);
    c->count = 0;
}

void called_back(void *called)
{
    struct called *c = called;
    c->count++;
    sem_post(&c->sem);
}

void called_wait(struct called *c)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 20;
    while (sem_timedwait(&c->sem, &until) != 0) {
        if (errno != EINTR)
            fail_msg("nobody called within 20 seconds");
    }
}
