// Driver functions of copies and fills.

#include <stdlib.h>
#include <string.h>

#include "api.h"

// --- copies -----------------------------------------------------------------

// One side of a copy.
struct side {
    bool device, pinned;
    char *bytes;
    size_t pitch;
};

enum { TO_DEVICE, TO_HOST, WITHIN };

static CUresult find_side(enum emu_fn fn, struct side *side, bool device,
                          uint64_t address, size_t span)
{
    side->device = device;
    if (device)
        return emu_find_device(address, span, emu_fn_name(fn), &side->bytes);
    side->bytes = (char *)(uintptr_t)address;
    if (!address)
        return emu_misuse(fn, CUDA_ERROR_INVALID_VALUE, "host memory is NULL");
    return emu_find_host(side->bytes, span, emu_fn_name(fn), &side->pinned);
}

// Queue a copy between two sides that were found.
static CUresult copy(struct emu_stream *stream, const struct side *dst,
                     const struct side *src, size_t row_bytes, size_t rows)
{
    struct emu_op *op = emu_op_create(EMU_OP_COPY);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->dst = dst->bytes;
    op->dst_pitch = dst->pitch;
    op->src = src->bytes;
    op->src_pitch = src->pitch;
    op->row_bytes = row_bytes;
    op->rows = rows;

    const uint64_t bytes = (uint64_t)row_bytes * rows;
    const bool host_to_host = !src->device && !dst->device;
    bool wait = host_to_host;
    if (src->device && dst->device) {
        emu.stats.d2d++;
        emu.stats.d2d_bytes += bytes;
    } else if (dst->device) {
        emu.stats.h2d++;
        emu.stats.h2d_bytes += bytes;
        if (!src->pinned) {
            // The caller may do with its memory what it likes on return.
            emu.stats.pageable_h2d++;
            op->staged = malloc(bytes);
            if (!op->staged) {
                emu_op_destroy(op);
                return CUDA_ERROR_OUT_OF_MEMORY;
            }
            for (size_t y = 0; y < rows; y++)
                memcpy((char *)op->staged + y * row_bytes,
                       src->bytes + y * src->pitch, row_bytes);
            op->src = op->staged;
            op->src_pitch = row_bytes;
        }
    } else if (src->device) {
        emu.stats.d2h++;
        emu.stats.d2h_bytes += bytes;
        if (!dst->pinned) {
            emu.stats.pageable_d2h++;
            wait = true;
        }
    }
    const CUresult result = emu_enqueue(stream, op);
    if (result || !wait)
        return result;
    return emu_wait_mark(emu_mark_tail(stream), stream->ctx);
}

static CUresult copy_linear(enum emu_fn fn, struct emu_context *ctx,
                            int direction, uint64_t dst, uint64_t src,
                            size_t bytes, CUstream handle)
{
    struct emu_stream *stream;
    CUresult result = emu_find_stream(fn, ctx, handle, &stream);
    if (result || !bytes)
        return result;
    struct side to = { 0 }, from = { 0 };
    result = find_side(fn, &to, direction != TO_HOST, dst, bytes);
    if (!result)
        result = find_side(fn, &from, direction != TO_DEVICE, src, bytes);
    if (result)
        return result;
    return copy(stream, &to, &from, bytes, 1);
}

CUresult emu_cuMemcpyHtoDAsync(CUdeviceptr dst, const void *src, size_t bytes,
                               CUstream stream)
{
    CALL call = ENTER(cuMemcpyHtoDAsync, CONTEXT);
    if (call.result)
        return call.result;
    return copy_linear(EMU_FN_cuMemcpyHtoDAsync, call.ctx, TO_DEVICE, dst,
                       (uint64_t)(uintptr_t)src, bytes, stream);
}

CUresult emu_cuMemcpyDtoHAsync(void *dst, CUdeviceptr src, size_t bytes,
                               CUstream stream)
{
    CALL call = ENTER(cuMemcpyDtoHAsync, CONTEXT);
    if (call.result)
        return call.result;
    return copy_linear(EMU_FN_cuMemcpyDtoHAsync, call.ctx, TO_HOST,
                       (uint64_t)(uintptr_t)dst, src, bytes, stream);
}

CUresult emu_cuMemcpyDtoDAsync(CUdeviceptr dst, CUdeviceptr src, size_t bytes,
                               CUstream stream)
{
    CALL call = ENTER(cuMemcpyDtoDAsync, CONTEXT);
    if (call.result)
        return call.result;
    return copy_linear(EMU_FN_cuMemcpyDtoDAsync, call.ctx, WITHIN, dst, src,
                       bytes, stream);
}

// A side of a 2D copy as the caller describes it.
struct side_2d {
    CUmemorytype type;
    const void *host;
    CUdeviceptr device;
    size_t x, y, pitch;
};

static CUresult find_side_2d(struct side *side, const struct side_2d *want,
                             size_t row_bytes, size_t rows)
{
    const enum emu_fn fn = EMU_FN_cuMemcpy2DAsync;
    uint64_t address = want->type == CU_MEMORYTYPE_HOST
                           ? (uint64_t)(uintptr_t)want->host
                           : want->device;
    bool device = want->type == CU_MEMORYTYPE_DEVICE;
    if (want->type == CU_MEMORYTYPE_UNIFIED) {
        device = emu_device_of(address) != NULL;
    } else if (want->type == CU_MEMORYTYPE_ARRAY) {
        return emu_misuse(fn, CUDA_ERROR_NOT_SUPPORTED,
                          "the emulated device has no arrays");
    } else if (!device && want->type != CU_MEMORYTYPE_HOST) {
        return emu_misuse(fn, CUDA_ERROR_INVALID_VALUE, "unknown memory type");
    }

    // One row needs no pitch.
    side->pitch = want->pitch ? want->pitch : want->x + row_bytes;
    if (side->pitch < row_bytes || side->pitch - row_bytes < want->x)
        return emu_misuse(fn, CUDA_ERROR_INVALID_VALUE,
                          "a pitch is smaller than its rows");
    size_t span, start;
    if (__builtin_mul_overflow(rows - 1, side->pitch, &span) ||
        __builtin_add_overflow(span, row_bytes, &span) ||
        __builtin_mul_overflow(want->y, side->pitch, &start) ||
        __builtin_add_overflow(start, want->x, &start))
        return emu_misuse(fn, CUDA_ERROR_INVALID_VALUE, "sizes overflow");
    return find_side(fn, side, device, address + start, span);
}

CUresult emu_cuMemcpy2DAsync(const CUDA_MEMCPY2D *want, CUstream handle)
{
    CALL call = ENTER(cuMemcpy2DAsync, CONTEXT);
    if (call.result)
        return call.result;
    if (!want)
        return CUDA_ERROR_INVALID_VALUE;
    struct emu_stream *stream;
    CUresult result =
        emu_find_stream(EMU_FN_cuMemcpy2DAsync, call.ctx, handle, &stream);
    if (result || !want->WidthInBytes || !want->Height)
        return result;

    const struct side_2d dst = { want->dstMemoryType, want->dstHost,
                                 want->dstDevice,     want->dstXInBytes,
                                 want->dstY,          want->dstPitch };
    const struct side_2d src = { want->srcMemoryType, want->srcHost,
                                 want->srcDevice,     want->srcXInBytes,
                                 want->srcY,          want->srcPitch };
    struct side to = { 0 }, from = { 0 };
    result = find_side_2d(&to, &dst, want->WidthInBytes, want->Height);
    if (!result)
        result = find_side_2d(&from, &src, want->WidthInBytes, want->Height);
    if (result)
        return result;
    return copy(stream, &to, &from, want->WidthInBytes, want->Height);
}

CUresult emu_cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t bytes,
                             CUstream handle)
{
    CALL call = ENTER(cuMemsetD8Async, CONTEXT);
    if (call.result)
        return call.result;
    struct emu_stream *stream;
    CUresult result =
        emu_find_stream(EMU_FN_cuMemsetD8Async, call.ctx, handle, &stream);
    if (result || !bytes)
        return result;
    struct side to = { 0 };
    result = find_side(EMU_FN_cuMemsetD8Async, &to, true, dst, bytes);
    if (result)
        return result;
    struct emu_op *op = emu_op_create(EMU_OP_FILL);
    if (!op)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->dst = to.bytes;
    op->row_bytes = bytes;
    op->value = value;
    emu.stats.memsets++;
    return emu_enqueue(stream, op);
}
