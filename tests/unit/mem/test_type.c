// The table of memory types: what each can do, budgets, and device memory that
// grows where it lies.

#include "src/gpu/driver.h"
#include "src/mem/type.h"

#include "gpu_fixture.h"

enum { MB = 1 << 20 };

PEN_TEST(every_memory_type_is_in_the_table)
{
    for (int m = PEN_MEM_NONE; m < PEN_MEM_COUNT; m++) {
        const struct stk_mem_type *t = stk_mem_type((enum pen_mem_type)m);
        if (m == PEN_MEM_NONE) {
            assert_null(t);
            continue;
        }
        assert_non_null(t);
        assert_int_equal(t->type, m);
        assert_non_null(t->alloc);
        assert_non_null(t->free);
        assert_int_equal((t->caps & STK_MEM_GROW) != 0, t->grow != NULL);
        // Who can be told must be able to map.
        assert_true(!t->sync || (t->caps & STK_MEM_MAP));
    }
    assert_null(stk_mem_type(PEN_MEM_COUNT));
    assert_null(stk_mem_type(PEN_MEM_CUDA_DEVICE)->sync);
    assert_int_equal(stk_mem_type(PEN_MEM_CUDA_DEVICE)->caps, STK_MEM_GROW);
    assert_non_null(stk_mem_type(PEN_MEM_DMABUF)->sync);
    assert_false(stk_mem_type(PEN_MEM_DMABUF)->needs_device);
}

PEN_TEST(host_memory_keeps_to_its_budget)
{
    const struct stk_mem_type *type = stk_mem_type(PEN_MEM_HOST);
    struct stk_ledger *ledger = stk_ledger_create(true);
    const struct stk_mem_source source = { .ledger = ledger, .owner = "test" };
    struct stk_block a, b;
    struct pen_error err = { 0 };
    // What cannot be had does not stay counted.
    stk_ledger_set_limit(ledger, PEN_MEM_BITS_HOST, UINT64_MAX);
    assert_int_equal(type->alloc(&source, SIZE_MAX - 100, &a, &err),
                     PEN_E_NOMEM);
    stk_ledger_set_limit(ledger, PEN_MEM_BITS_HOST, 10000);
    assert_int_equal(type->alloc(&source, 6000, &a, &err), PEN_OK);
    assert_int_equal(type->alloc(&source, 4001, &b, &err), PEN_E_LIMIT);
    assert_int_equal(b.bytes, 0);
    assert_int_equal(type->alloc(&source, 4000, &b, &err), PEN_OK);
    assert_int_equal(fixture_live(ledger, STK_RES_HOST), 2);
    type->free(&source, &a);
    type->free(&source, &b);
    type->free(&source, &b);
    fixture_check_empty(ledger);
    stk_ledger_destroy(&ledger);
}

static struct stk_mem_source device_source(struct fixture *f, size_t reserve)
{
    return (struct stk_mem_source){
        .dev = f->dev,
        .ledger = f->ledger,
        .owner = "test",
        .reserve = reserve,
    };
}

static void body_grows(struct fixture *f)
{
    const struct stk_mem_type *type = stk_mem_type(PEN_MEM_CUDA_DEVICE);
    const struct stk_mem_source source = device_source(f, 64 * MB);
    struct stk_stream *stream = fixture_stream(f, "test");
    struct stk_block block;
    if (!stk_region_possible(f->dev)) {
        stk_stream_destroy(&stream);
        PEN_SKIP("this driver maps no memory to addresses");
    }
    FIXTURE_OK(type->alloc(&source, 15 * MB, &block, &err));
    assert_non_null(block.region);
    assert_true(block.on_stream);
    const uint64_t address = block.address;
    fixture_fill(f, stream, address, 7, 15 * MB / 4);
    FIXTURE_OK(type->grow(&source, 40 * MB, &block, &err));
    assert_int_equal(block.address, address);
    assert_int_equal(block.bytes, 40 * MB);
    fixture_fill(f, stream, address + 15 * MB, 9, 25 * MB / 4);
    FIXTURE_OK(
        stk_point_wait(fixture_record(f, stream), STK_WAIT_TEARDOWN, &err));

    struct pen_error why = { 0 };
    assert_int_equal(type->grow(&source, 65 * MB, &block, &why), PEN_E_LIMIT);
    assert_int_equal(block.bytes, 40 * MB);
    type->free(&source, &block);
    assert_int_equal(fixture_live(f->ledger, STK_RES_CUDA_DEVICE), 0);
    stk_stream_destroy(&stream);
}

PEN_TEST(device_memory_with_a_reserve_grows_where_it_lies)
{
    fixture_all_modes(body_grows);
}

PEN_TEST(small_blocks_are_not_rounded_up_to_granules)
{
    const struct stk_mem_type *type = stk_mem_type(PEN_MEM_CUDA_DEVICE);
    struct fixture f;
    fixture_open(&f);
    if (!stk_region_possible(f.dev)) {
        fixture_close(&f);
        PEN_SKIP("this driver maps no memory to addresses");
    }
    const size_t g = stk_region_granularity(f.dev);
    const struct {
        size_t bytes, reserve;
        bool region;
    } cases[] = {
        { g, 4 * g, true },          // nothing is wasted
        { g - g / 8, 4 * g, true },  // an eighth
        { g - g / 8 - 1, 4 * g, false },
        { g / 2, 4 * g, false },
        { 8 * g - g, 16 * g, true },
        { g, g, false },  // no room to grow
        { g, 0, false },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const struct stk_mem_source source =
            device_source(&f, cases[i].reserve);
        struct stk_block block;
        FIXTURE_OK(type->alloc(&source, cases[i].bytes, &block, &err));
        assert_int_equal(block.region != NULL, cases[i].region);
        if (!cases[i].region) {
            struct pen_error why = { 0 };
            assert_int_equal(type->grow(&source, 2 * g, &block, &why),
                             PEN_E_UNSUPPORTED);
            assert_int_equal(block.bytes, cases[i].bytes);
        }
        type->free(&source, &block);
    }
    fixture_close(&f);
}

PEN_TEST(every_driver_call_of_growing_that_fails_leaves_the_block)
{
    const struct stk_mem_type *type = stk_mem_type(PEN_MEM_CUDA_DEVICE);
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("needs the emulated device");
    for (unsigned nth = 1;; nth++) {
        struct fixture f;
        struct stk_block block;
        struct pen_error err = { 0 };
        fixture_open(&f);
        const struct stk_mem_source source = device_source(&f, 64 * MB);
        emu->penemu_fault_arm(PENEMU_ANY, nth, CUDA_ERROR_OUT_OF_MEMORY, 0);
        enum pen_status st = type->alloc(&source, 16 * MB, &block, &err);
        if (st == PEN_OK) {
            const uint64_t address = block.address;
            st = type->grow(&source, 32 * MB, &block, &err);
            assert_int_equal(block.address, address);
            assert_int_equal(block.bytes, (st == PEN_OK ? 32 : 16) * MB);
        }
        const bool fired = emu->penemu_fault_disarm() > 0;
        assert_true(st == PEN_OK || fired);
        type->free(&source, &block);
        fixture_close(&f);
        if (!fired)
            break;
    }
}

PEN_TEST_MAIN(
    PEN_CASE(every_memory_type_is_in_the_table),
    PEN_CASE(host_memory_keeps_to_its_budget),
    PEN_CASE(device_memory_with_a_reserve_grows_where_it_lies),
    PEN_CASE(small_blocks_are_not_rounded_up_to_granules),
    PEN_CASE(every_driver_call_of_growing_that_fails_leaves_the_block))
