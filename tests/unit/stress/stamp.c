#include "stamp.h"

enum { STAMP_WRITE, STAMP_CHECK };

enum pen_status stamper_open(struct stamper *s, struct pen_device *dev,
                             struct stk_stream *stream, struct pen_error *err)
{
    *s = (struct stamper){ .dev = dev, .stream = stream };
    PEN_TRY(stk_kernels_load(dev, &stamp_image, &s->kernels, err));
    STK_SCOPE scope = { 0 };
    PEN_TRY(stk_scope_enter(&scope, dev, err));
    PEN_TRY(stk_device_alloc(dev, sizeof(struct stamp_result), "test.stamper",
                             PEN_HERE, &s->result, err));
    return stk_stream_fill(stream, s->result, 0, sizeof(struct stamp_result),
                           err);
}

enum pen_status stamper_result(struct stamper *s, struct stamp_result *sum,
                               struct pen_error *err)
{
    void *copy = NULL;
    PEN_TRY(stk_pinned_alloc(s->dev, sizeof(struct stamp_result),
                             "test.stamper", PEN_HERE, &copy, err));
    enum pen_status st;
    {
        struct stk_point point;
        STK_SCOPE scope = { 0 };
        st = stk_scope_enter(&scope, s->dev, err);
        if (st == PEN_OK)
            st = stk_stream_copy(s->stream, STK_COPY_D2H, (uintptr_t)copy,
                                 s->result, sizeof(struct stamp_result), err);
        while (st == PEN_OK &&
               (st = stk_stream_record(s->stream, &point, err)) == PEN_AGAIN)
            st = stk_point_wait(point, STK_WAIT_NONE, err);
        if (st == PEN_OK)
            st = stk_point_wait(point, STK_WAIT_NONE, err);
    }
    if (st == PEN_OK)
        stamp_add(sum, copy);
    stk_pinned_free(s->dev, copy, sizeof(struct stamp_result));
    return st;
}

void stamper_close(struct stamper *s)
{
    if (s->result)
        stk_device_free(s->dev, s->result, sizeof(struct stamp_result));
    *s = (struct stamper){ 0 };
}

static const struct pen_grid grid = { 1, 1, 1, STAMP_THREADS, 1 };

enum pen_status stamp_queue(struct stamper *s, uint64_t address, uint64_t tag,
                            uint32_t words, struct pen_error *err)
{
    const struct stamp_write k = { .dst = address, .tag = tag, .words = words };
    return stk_stream_launch(s->stream, s->kernels, STAMP_WRITE, &grid, &k,
                             sizeof(k), err);
}

enum pen_status stamp_queue_check(struct stamper *s, uint64_t address,
                                  uint64_t tag, uint32_t words, uint32_t what,
                                  struct pen_error *err)
{
    const struct stamp_check k = {
        .src = address,
        .tag = tag,
        .result = s->result,
        .words = words,
        .what = what,
    };
    return stk_stream_launch(s->stream, s->kernels, STAMP_CHECK, &grid, &k,
                             sizeof(k), err);
}

static void run_here(unsigned entry, const void *args)
{
    const struct penk_block block = { .dim_x = STAMP_THREADS, .dim_y = 1 };
    stamp_image.entries[entry].host(args, &block);
}

void stamp_host(void *memory, uint64_t tag, uint32_t words)
{
    const struct stamp_write k = { (uintptr_t)memory, tag, words, 0 };
    run_here(STAMP_WRITE, &k);
}

void stamp_host_check(const void *memory, uint64_t tag, uint32_t words,
                      uint32_t what, struct stamp_result *sum)
{
    struct stamp_result one = { 0 };
    const struct stamp_check k = { (uintptr_t)memory, tag, (uintptr_t)&one,
                                   words, what };
    run_here(STAMP_CHECK, &k);
    stamp_add(sum, &one);
}

void stamp_add(struct stamp_result *sum, const struct stamp_result *more)
{
    struct stamp_result total = sum->failed ? *sum : *more;
    total.checks = sum->checks + more->checks;
    total.failed = sum->failed + more->failed;
    *sum = total;
}
