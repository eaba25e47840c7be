// Devices: context, scope, memory, kernels, and waiting for all of it.

#include <pthread.h>
#include <stdio.h>

#include "gpu_fixture.h"

#include "src/gpu/driver.h"

static void empty_each(void *cookie, const struct stk_ledger_entry *entry)
{
    struct stk_ledger_entry *out = cookie;
    if (entry->res == STK_RES_CUDA_DEVICE)
        *out = *entry;
}

PEN_TEST(a_device_describes_itself)
{
    struct fixture f;
    fixture_open(&f);
    struct pen_device_info info;
    FIXTURE_OK(pen_device_get_info(f.dev, &info, &err));
    assert_int_equal(info.emulated, !pen_test_on_gpu());
    assert_true(info.name[0]);
    assert_int_equal(strlen(info.uuid), 40);
    assert_memory_equal(info.uuid, "GPU-", 4);
    assert_true(info.driver_version >= 11040);
    assert_true(info.sm_major >= 5);
    assert_true(info.multiprocessors > 0);
    assert_true(info.free_bytes > 0);
    assert_true(info.free_bytes <= info.total_bytes);

    // ... and can be chosen by what it says.
    if (pen_test_on_gpu()) {
        const struct pen_device_params params = { .selector = info.uuid };
        struct pen_device *same;
        FIXTURE_OK(pen_device_open(&params, &same, &err));
        assert_int_equal(same->info.index, info.index);
        pen_device_close(&same);
    }
    fixture_close(&f);
}

PEN_TEST(each_open_retains_the_one_context_and_releases_it)
{
    struct fixture a, b;
    fixture_open(&a);
    fixture_open(&b);
    assert_ptr_equal(a.dev->context, b.dev->context);
    assert_int_equal(fixture_live(a.ledger, STK_RES_CONTEXT), 1);

    const struct stk_driver cu = b.dev->cu;
    const CUdevice device = b.dev->device;
    unsigned flags;
    int active = -1;
    fixture_close(&a);
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(device, &flags, &active), 0);
    assert_int_equal(active, 1);
    fixture_close(&b);
    assert_int_equal(cu.cuDevicePrimaryCtxGetState(device, &flags, &active), 0);
    assert_int_equal(active, 0);
}

static CUcontext current(struct pen_device *dev)
{
    CUcontext ctx = (CUcontext)1;
    assert_int_equal(dev->cu.cuCtxGetCurrent(&ctx), CUDA_SUCCESS);
    return ctx;
}

PEN_TEST(a_scope_makes_the_context_current_and_leaves_as_found)
{
    struct fixture f;
    fixture_open(&f);
    assert_null(current(f.dev));
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f.dev, &err));
        assert_ptr_equal(current(f.dev), f.dev->context);
        {
            STK_SCOPE inner = { 0 };
            FIXTURE_OK(stk_scope_enter(&inner, f.dev, &err));
            assert_ptr_equal(current(f.dev), f.dev->context);
        }
        assert_ptr_equal(current(f.dev), f.dev->context);
    }
    assert_null(current(f.dev));
    {
        STK_SCOPE never_entered = { 0 };
        (void)never_entered;
    }
    assert_int_equal(stk_device_disturbed(f.dev), 0);
    fixture_close(&f);
}

PEN_TEST(a_disturbed_scope_is_counted_and_put_right)
{
    struct fixture f;
    fixture_open(&f);
    CUcontext popped;
    for (int outer = 0; outer < 2; outer++) {
        // Whoever calls may have a context of the same device current.
        if (outer)
            assert_int_equal(f.dev->cu.cuCtxPushCurrent(f.dev->context), 0);
        const CUcontext before = current(f.dev);

        const uint64_t counted = stk_device_disturbed(f.dev);
        {
            STK_SCOPE scope = { 0 };
            FIXTURE_OK(stk_scope_enter(&scope, f.dev, &err));
            assert_int_equal(f.dev->cu.cuCtxPopCurrent(&popped), 0);
        }
        assert_int_equal(stk_device_disturbed(f.dev), counted + 1);
        // What the caller had is not taken off as well; an inner scope cannot
        // know that it was the caller's.
        assert_ptr_equal(current(f.dev), outer ? NULL : before);
    }
    fixture_close(&f);
}

PEN_TEST(contexts_left_on_top_are_taken_off)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("needs a second device's context: emulated only");
    emu->penemu_reset();
    assert_int_equal(emu->penemu_set_devices(2), 0);
    struct fixture f;
    fixture_open(&f);
    CUcontext other;
    assert_int_equal(f.dev->cu.cuDevicePrimaryCtxRetain(&other, 1), 0);
    for (unsigned left = 1; left <= 3; left++) {
        for (int before = 0; before < 2; before++) {
            // Another's context, or ours once more, lies on ours.
            for (int ours = 0; ours < 2; ours++) {
                CUcontext popped;
                const CUcontext what = ours ? f.dev->context : other;
                if (before && !ours)
                    continue;  // as if ours had been taken off
                if (before)
                    assert_int_equal(f.dev->cu.cuCtxPushCurrent(other), 0);
                const uint64_t counted = stk_device_disturbed(f.dev);
                {
                    STK_SCOPE scope = { 0 };
                    FIXTURE_OK(stk_scope_enter(&scope, f.dev, &err));
                    for (unsigned i = 0; i < left; i++)
                        assert_int_equal(f.dev->cu.cuCtxPushCurrent(what), 0);
                }
                assert_int_equal(stk_device_disturbed(f.dev), counted + 1);
                assert_ptr_equal(current(f.dev), before ? other : NULL);
                if (before)
                    assert_int_equal(f.dev->cu.cuCtxPopCurrent(&popped), 0);
                assert_null(current(f.dev));
            }
        }
    }
    // Ours and what lay below are taken off: that is put back.
    CUcontext popped;
    assert_int_equal(f.dev->cu.cuCtxPushCurrent(other), 0);
    {
        STK_SCOPE scope = { 0 };
        FIXTURE_OK(stk_scope_enter(&scope, f.dev, &err));
        assert_int_equal(f.dev->cu.cuCtxPopCurrent(&popped), 0);
        assert_int_equal(f.dev->cu.cuCtxPopCurrent(&popped), 0);
    }
    assert_ptr_equal(current(f.dev), other);
    assert_int_equal(f.dev->cu.cuCtxPopCurrent(&popped), 0);
    assert_null(current(f.dev));
    assert_int_equal(f.dev->cu.cuDevicePrimaryCtxRelease(1), 0);
    fixture_close(&f);
    emu->penemu_reset();
}

PEN_TEST(memory_is_in_the_ledger_with_owner_and_site)
{
    struct fixture f;
    fixture_open(&f);
    uint64_t address;
    void *pinned;
    FIXTURE_OK(
        stk_device_alloc(f.dev, 1000, "blur.output", "here:1", &address, &err));
    FIXTURE_OK(
        stk_pinned_alloc(f.dev, 500, "reader.output", "here:2", &pinned, &err));
    memset(pinned, 1, 500);

    struct stk_ledger_entry entry = { 0 };
    stk_ledger_each(f.ledger, empty_each, &entry);
    assert_string_equal(entry.owner, "blur.output");
    assert_string_equal(entry.site, "here:1");
    assert_int_equal(entry.bytes, 1000);
    struct stk_ledger_totals totals;
    stk_ledger_totals(f.ledger, STK_RES_HOST_PINNED, &totals);
    assert_int_equal(totals.live, 1);
    assert_int_equal(totals.live_bytes, 500);

    stk_device_free(f.dev, address, 1000);
    stk_pinned_free(f.dev, pinned, 500);
    stk_device_free(f.dev, 0, 0);
    stk_pinned_free(f.dev, NULL, 0);
    fixture_close(&f);
}

PEN_TEST(too_much_memory_is_refused_with_the_sizes)
{
    struct fixture f;
    fixture_open(&f);
    struct pen_error why = { 0 };
    uint64_t address = 1;
    assert_int_equal(stk_device_alloc(f.dev, (size_t)1 << 42, "blur.output",
                                      PEN_HERE, &address, &why),
                     PEN_E_DEVMEM);
    assert_int_equal(address, 0);
    assert_int_equal(why.status, PEN_E_DEVMEM);
    assert_int_equal(why.native, CUDA_ERROR_OUT_OF_MEMORY);
    assert_non_null(strstr(why.text, "4.00 TiB"));
    assert_non_null(strstr(why.text, "blur.output"));
    assert_non_null(strstr(why.text, "are free"));

    void *pinned = &why;
    const struct penemu *emu = fixture_emulator();
    if (emu)
        emu->penemu_fault_arm("cuMemHostAlloc", 1, CUDA_ERROR_OUT_OF_MEMORY, 0);
    assert_int_equal(stk_pinned_alloc(f.dev, (size_t)1 << 42, "reader.output",
                                      PEN_HERE, &pinned, &why),
                     PEN_E_NOMEM);
    assert_null(pinned);
    assert_int_equal(why.status, PEN_E_NOMEM);
    assert_non_null(strstr(why.text, "cuMemHostAlloc of 4.00 TiB"));
    assert_non_null(strstr(why.text, "reader.output"));
    if (emu)
        assert_int_equal(emu->penemu_fault_disarm(), 1);

    assert_int_equal(stk_device_alloc(f.dev, 0, "x", PEN_HERE, &address, &why),
                     PEN_E_ARG);
    assert_int_equal(stk_pinned_alloc(f.dev, 0, "x", PEN_HERE, &pinned, &why),
                     PEN_E_ARG);
    assert_false(stk_device_lost(f.dev));
    fixture_close(&f);
}

PEN_TEST(an_image_is_loaded_once_and_found_without_a_search)
{
    struct fixture f;
    fixture_open(&f);
    static struct pen_kernel_image other;
    other = fixture_image;
    assert_null(stk_kernels_find(f.dev, &other));
    assert_ptr_equal(stk_kernels_find(f.dev, &fixture_image), f.kernels);

    struct stk_kernels *again;
    FIXTURE_OK(stk_kernels_load(f.dev, &fixture_image, &again, &err));
    assert_ptr_equal(again, f.kernels);
    assert_int_equal(fixture_live(f.ledger, STK_RES_KERNELS), 1);
    FIXTURE_OK(stk_kernels_load(f.dev, &other, &again, &err));
    assert_ptr_not_equal(again, f.kernels);
    assert_int_equal(fixture_live(f.ledger, STK_RES_KERNELS), 2);
    fixture_close(&f);
}

PEN_TEST(images_that_do_not_fit_are_refused_by_name)
{
    struct fixture f;
    fixture_open(&f);
    struct stk_kernels *k = f.kernels;
    struct pen_error why = { 0 };
    struct pen_kernel_image image = fixture_image;

    image.magic++;
    assert_int_equal(stk_kernels_load(f.dev, &image, &k, &why), PEN_E_ARG);
    assert_null(k);
    image = fixture_image;
    image.abi = 99;
    assert_int_equal(stk_kernels_load(f.dev, &image, &k, &why), PEN_E_ARG);
    assert_non_null(strstr(why.text, "99"));
    image = fixture_image;
    image.count = PEN_MAX_KERNELS + 1;
    assert_int_equal(stk_kernels_load(f.dev, &image, &k, &why), PEN_E_ARG);
    assert_non_null(strstr(why.text, "fixture"));
    image.count = 0;
    assert_int_equal(stk_kernels_load(f.dev, &image, &k, &why), PEN_E_ARG);

    if (pen_test_on_gpu()) {
        image = fixture_image;
        image.ptx = NULL;
        assert_int_equal(stk_kernels_load(f.dev, &image, &k, &why),
                         PEN_E_UNSUPPORTED);
        image.ptx = ".version 6.0\n.target sm_60\nnonsense\n";
        assert_int_equal(stk_kernels_load(f.dev, &image, &k, &why),
                         PEN_E_DRIVER);
        assert_non_null(strstr(why.where, "kernels fixture (ptx)"));

        // An entry that the binary does not have.
        struct pen_kernel_entry entries[2] = { fixture_image.entries[0],
                                               fixture_image.entries[1] };
        entries[1].name = "test_absent";
        image = fixture_image;
        image.entries = entries;
        assert_int_equal(stk_kernels_load(f.dev, &image, &k, &why),
                         PEN_E_DRIVER);
        assert_non_null(strstr(why.where, "test_absent"));
        assert_non_null(strstr(why.text, "cuModuleGetFunction"));
    }
    assert_int_equal(fixture_live(f.ledger, STK_RES_KERNELS), 1);
    fixture_close(&f);
}

struct loader {
    struct pen_device *dev;
    struct stk_kernels *loaded;
};

static void *load_image(void *arg)
{
    struct loader *l = arg;
    if (stk_kernels_load(l->dev, &fixture_image, &l->loaded, NULL) != PEN_OK)
        l->loaded = NULL;
    return NULL;
}

PEN_TEST(threads_that_load_an_image_at_once_get_the_same)
{
    struct fixture f;
    fixture_open(&f);
    struct loader loaders[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) {
        loaders[i] = (struct loader){ f.dev, NULL };
        pthread_create(&threads[i], NULL, load_image, &loaders[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_ptr_equal(loaders[i].loaded, f.kernels);
    }
    assert_int_equal(fixture_live(f.ledger, STK_RES_KERNELS), 1);
    fixture_close(&f);
}

static void idle_means_all_streams(struct fixture *f)
{
    struct stk_stream *a = fixture_stream(f, "a"), *b = fixture_stream(f, "b");
    struct gate gate;
    struct called own, all;
    gate_create(f, &gate);
    called_init(&own);
    called_init(&all);

    gate_queue(f, &gate, b);
    const struct stk_point held = fixture_record(f, b);
    const struct stk_point quick = fixture_record(f, a);
    FIXTURE_OK(stk_device_when_idle(f->dev, called_back, &all, &err));
    FIXTURE_OK(stk_point_when(quick, STK_WAIT_PARK, called_back, &own, &err));
    // The stream's own point is not kept up by the other stream ...
    called_wait(&own);
    assert_false(stk_point_reached(held));
    // ... but the context as a whole is not idle before it.
    assert_int_equal(all.count, 0);
    gate_open(&gate);
    called_wait(&all);
    assert_true(stk_point_reached(held));

    // Who asks later gets a wait of its own.
    FIXTURE_OK(stk_device_when_idle(f->dev, called_back, &all, &err));
    called_wait(&all);
    assert_int_equal(all.count, 2);

    stk_stream_destroy(&a);
    stk_stream_destroy(&b);
    gate_free(f, &gate);
    assert_int_equal(fixture_live(f->ledger, STK_RES_THREAD), 1);
}

PEN_TEST(idle_means_that_all_streams_are_done)
{
    fixture_all_modes(idle_means_all_streams);
}

PEN_TEST(closing_calls_back_everybody_who_waits)
{
    struct fixture f;
    fixture_open(&f);
    struct called called;
    called_init(&called);
    for (int i = 0; i < 200; i++)
        FIXTURE_OK(stk_device_when_idle(f.dev, called_back, &called, &err));
    fixture_close(&f);
    assert_int_equal(called.count, 200);
}

// --- losing it --------------------------------------------------------------

PEN_TEST(after_a_sticky_error_nothing_is_good_and_all_is_given_back)
{
    const struct penemu *emu = fixture_emulator();
    if (!emu)
        PEN_SKIP("breaks the context: emulated only");
    struct fixture f;
    fixture_open(&f);
    struct stk_stream *stream = fixture_stream(&f, "stream");
    struct pen_error why = { 0 };
    uint64_t address, none;
    void *pinned;
    FIXTURE_OK(stk_device_alloc(f.dev, 64, "x", PEN_HERE, &address, &err));
    FIXTURE_OK(stk_pinned_alloc(f.dev, 64, "x", PEN_HERE, &pinned, &err));
    const struct stk_point before = fixture_record(&f, stream);

    emu->penemu_break_contexts(CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_int_equal(stk_device_alloc(f.dev, 64, "x", PEN_HERE, &none, &why),
                     PEN_E_LOST);
    assert_int_equal(why.native, CUDA_ERROR_ILLEGAL_ADDRESS);
    assert_true(stk_device_lost(f.dev));

    struct stk_stream *other;
    assert_int_equal(stk_stream_create(f.dev, "y", &other, &why), PEN_E_LOST);
    assert_null(other);

    const uint64_t calls = emu->penemu_calls(PENEMU_ANY);
    struct stk_scope scope = { 0 };
    struct stk_point point;
    struct pen_device_info info;
    assert_int_equal(stk_scope_enter(&scope, f.dev, &why), PEN_E_LOST);
    assert_null(scope.dev);
    assert_int_equal(stk_stream_record(stream, &point, &why), PEN_E_LOST);
    assert_int_equal(stk_point_wait(before, STK_WAIT_HOST_READ, &why),
                     PEN_E_LOST);
    assert_int_equal(stk_stream_copy(stream, STK_COPY_H2D, address,
                                     (uintptr_t)pinned, 64, &why),
                     PEN_E_LOST);
    assert_int_equal(pen_device_get_info(f.dev, &info, &why), PEN_E_LOST);
    assert_non_null(strstr(why.text, "CUDA_ERROR_ILLEGAL_ADDRESS"));
    // Waiting ends, so that nobody hangs.
    assert_true(stk_point_reached(before));
    struct called called;
    called_init(&called);
    FIXTURE_OK(
        stk_point_when(before, STK_WAIT_PARK, called_back, &called, &err));
    called_wait(&called);
    FIXTURE_OK(stk_device_when_idle(f.dev, called_back, &called, &err));
    called_wait(&called);
    assert_int_equal(emu->penemu_calls(PENEMU_ANY), calls);

    stk_stream_destroy(&stream);
    stk_device_free(f.dev, address, 64);
    stk_pinned_free(f.dev, pinned, 64);
    fixture_close(&f);
    emu->penemu_reset();
}

PEN_TEST_MAIN(
    PEN_CASE(a_device_describes_itself),
    PEN_CASE(each_open_retains_the_one_context_and_releases_it),
    PEN_CASE(a_scope_makes_the_context_current_and_leaves_as_found),
    PEN_CASE(a_disturbed_scope_is_counted_and_put_right),
    PEN_CASE(contexts_left_on_top_are_taken_off),
    PEN_CASE(memory_is_in_the_ledger_with_owner_and_site),
    PEN_CASE(too_much_memory_is_refused_with_the_sizes),
    PEN_CASE(an_image_is_loaded_once_and_found_without_a_search),
    PEN_CASE(images_that_do_not_fit_are_refused_by_name),
    PEN_CASE(threads_that_load_an_image_at_once_get_the_same),
    PEN_CASE(idle_means_that_all_streams_are_done),
    PEN_CASE(closing_calls_back_everybody_who_waits),
    PEN_CASE(after_a_sticky_error_nothing_is_good_and_all_is_given_back))
