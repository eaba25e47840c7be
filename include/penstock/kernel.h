#ifndef PEN_KERNEL_H
#define PEN_KERNEL_H

// The only way to write kernels. One source file is compiled three times: by
// clang to PTX, by nvcc to a fatbin, and by a C compiler for the emulated
// device, and gives the same bits each time. It is therefore C17 that is also
// CUDA C++, and obeys these rules:
//
//   * All access to global memory goes through PENK_G(type, address).
//   * Code of the block's threads stands in PENK_THREADS { }. A block is a
//     sequence of such phases; PENK_BARRIER() may stand between two of them
//     and nowhere else. `continue` ends the thread's part of a phase;
//     `return` and `break` must not leave one.
//   * Values that cross a barrier live in PENK_SHARED arrays; variables
//     declared outside a phase hold what is the same for all threads.
//   * Small local arrays stay in registers only where every index is a constant
//     after unrolling: PENK_UNROLL stands before such a loop.
//   * No libm, no fp16, tables come from the host in the argument block or in
//     device memory, floats are clamped before they become integers.
//   * A helper that touches global memory takes PENK_CTX as first parameter
//     and is called with PENK_PASS as first argument:
//         PENK_FN uint8_t texel(PENK_CTX uint64_t at)
//         { return *PENK_G(const uint8_t, at); }
//         ... texel(PENK_PASS k.src + x)
//
// The argument block is one struct passed by value, declared in a .kern.h
// that both sides include: fixed-width fields, widest first, no padding, size
// asserted. Device addresses are uint64_t.

#if defined(__CUDACC__) || defined(__CUDA__)
#define PENK_DEVICE_BUILD 1
#else
#define PENK_DEVICE_BUILD 0
#endif

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define PENK_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define PENK_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

#if PENK_DEVICE_BUILD

#ifdef __clang__
// clang unrolls such loops unasked, before it puts arrays into registers; when
// asked it does so afterwards.
#define PENK_UNROLL
#ifndef __global__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__   __attribute__((host))
#define __shared__ __attribute__((shared))
#endif
#define PENK_BLOCK_X   ((uint32_t)__nvvm_read_ptx_sreg_ctaid_x())
#define PENK_BLOCK_Y   ((uint32_t)__nvvm_read_ptx_sreg_ctaid_y())
#define PENK_BLOCK_Z   ((uint32_t)__nvvm_read_ptx_sreg_ctaid_z())
#define PENK_THREAD_X  ((uint32_t)__nvvm_read_ptx_sreg_tid_x())
#define PENK_THREAD_Y  ((uint32_t)__nvvm_read_ptx_sreg_tid_y())
#define PENK_DIM_X     ((uint32_t)__nvvm_read_ptx_sreg_ntid_x())
#define PENK_DIM_Y     ((uint32_t)__nvvm_read_ptx_sreg_ntid_y())
#define PENK_BARRIER() __syncthreads()
#else
#define PENK_UNROLL    _Pragma("unroll")
#define PENK_BLOCK_X   blockIdx.x
#define PENK_BLOCK_Y   blockIdx.y
#define PENK_BLOCK_Z   blockIdx.z
#define PENK_THREAD_X  threadIdx.x
#define PENK_THREAD_Y  threadIdx.y
#define PENK_DIM_X     blockDim.x
#define PENK_DIM_Y     blockDim.y
#define PENK_BARRIER() __syncthreads()
#endif

#define PENK_KERNEL(name, type, arg)                                           \
    extern "C" __global__ void name(const type arg)

#define PENK_FN static inline __attribute__((always_inline)) __host__ __device__

#define PENK_G(type, address)      ((type *)(address))
#define PENK_SHARED(type, name, n) __shared__ type name[n]
#define PENK_CTX
#define PENK_PASS

// A loop of one turn, so that `continue` means the same as on the host.
#define PENK_THREADS for (int penk_phase = 1; penk_phase; penk_phase = 0)

#else  // host build

#include <string.h>

// One block of a launch, as the emulated device runs it.
struct penk_block {
    uint32_t x, y, z;       // this block
    uint32_t dim_x, dim_y;  // threads of a block
    ptrdiff_t offset;       // from a device address to its bytes
    // Checked builds: called for every access; reports and never returns if
    // [address, address + bytes) is not inside one live allocation.
    void (*check)(const void *device, uint64_t address, size_t bytes);
    const void *device;
};

// A kernel compiled for the host: runs one block.
typedef void (*penk_host_fn)(const void *args, const struct penk_block *block);

// Objects of the host build are compiled once for baseline x86-64 and once
// for x86-64-v3, told apart by this suffix.
#ifndef PENK_HOST_SUFFIX
#define PENK_HOST_SUFFIX _base
#endif
#define PENK_PASTE_(a, b)    a##b
#define PENK_PASTE(a, b)     PENK_PASTE_(a, b)
#define PENK_HOST_NAME(name) PENK_PASTE(name, PENK_HOST_SUFFIX)

#define PENK_BLOCK_X   (penk_b->x)
#define PENK_BLOCK_Y   (penk_b->y)
#define PENK_BLOCK_Z   (penk_b->z)
#define PENK_THREAD_X  penk_tx
#define PENK_THREAD_Y  penk_ty
#define PENK_DIM_X     (penk_b->dim_x)
#define PENK_DIM_Y     (penk_b->dim_y)
#define PENK_BARRIER() ((void)0)

#define PENK_KERNEL(name, type, arg)                                           \
    static inline void name##_block(const type arg,                            \
                                    const struct penk_block *penk_b);          \
    void PENK_HOST_NAME(name)(const void *args,                                \
                              const struct penk_block *block);                 \
    void PENK_HOST_NAME(name)(const void *args,                                \
                              const struct penk_block *block)                  \
    {                                                                          \
        type copy;                                                             \
        memcpy(&copy, args, sizeof(copy));                                     \
        name##_block(copy, block);                                             \
    }                                                                          \
    static inline void name##_block(const type arg,                            \
                                    const struct penk_block *penk_b)
#define PENK_FN static inline
#define PENK_UNROLL
#ifdef PENK_CHECKED
#define PENK_G(type, address)                                                  \
    ((type *)penk_checked(penk_b, (address), sizeof(type)))
static inline void *penk_checked(const struct penk_block *b, uint64_t address,
                                 size_t bytes)
{
    if (b->check)
        b->check(b->device, address, bytes);
    return (void *)(uintptr_t)(address + (uint64_t)b->offset);
}
#else
#define PENK_G(type, address)                                                  \
    ((type *)(uintptr_t)((address) + (uint64_t)penk_b->offset))
#endif
#define PENK_SHARED(type, name, n) type name[n]
#define PENK_THREADS                                                           \
    for (uint32_t penk_ty = 0; penk_ty < penk_b->dim_y; penk_ty++)             \
        for (uint32_t penk_tx = 0; penk_tx < penk_b->dim_x; penk_tx++)
#define PENK_CTX  const struct penk_block *penk_b,
#define PENK_PASS penk_b,

// --- images -----------------------------------------------------------------

#define PEN_KERNEL_MAGIC 0x314b4e45506b6e70ull
enum { PEN_KERNEL_ABI = 1, PEN_MAX_KERNELS = 16 };

struct pen_kernel_entry {
    const char *name;      // entry point in PTX and fatbin
    uint32_t args_size;    // bytes of the argument block
    penk_host_fn host;     // baseline x86-64
    penk_host_fn host_v3;  // x86-64-v3; NULL: use host
};

// All kernels of one .cu file. A module's class names the images it uses; all
// images of a plan are loaded before the first frame. On a GPU the fatbin is
// loaded if there is one, else the PTX; the emulated device receives this
// table itself (hence the magic).
struct pen_kernel_image {
    uint64_t magic;      // PEN_KERNEL_MAGIC
    uint32_t abi;        // PEN_KERNEL_ABI
    uint32_t count;      // of entries; at most PEN_MAX_KERNELS
    const char *name;    // "blur"
    const char *ptx;     // zero-terminated; NULL if not built
    const void *fatbin;  // NULL if not built
    const struct pen_kernel_entry *entries;
};

// Blocks of a launch and threads of a block.
struct pen_grid {
    uint32_t x, y, z;  // blocks; z of 0 means 1
    uint32_t block_x, block_y;
};

#endif  // host build

#endif  // PEN_KERNEL_H
