// Device memory: addresses without access, bytes at a constant distance; and
// the register of pinned host memory.

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "emu.h"

// Under AddressSanitizer memory that is not allocated is poisoned, so that a
// kernel's stray access is found in unchecked builds as well.
#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes)   ((void)(address))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address))
#endif

// --- ranges -----------------------------------------------------------------

// Index of the first range that begins after `address`.
static size_t range_after(const struct emu_ranges *ranges, uint64_t address)
{
    size_t low = 0, high = ranges->count;
    while (low < high) {
        const size_t mid = low + (high - low) / 2;
        if (ranges->at[mid].address <= address)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

struct emu_range *emu_range_find(const struct emu_ranges *ranges,
                                 uint64_t address)
{
    const size_t i = range_after(ranges, address);
    if (!i)
        return NULL;
    struct emu_range *range = &ranges->at[i - 1];
    return address - range->address < range->bytes ? range : NULL;
}

static bool range_insert(struct emu_ranges *ranges, struct emu_range range)
{
    if (ranges->count == ranges->room) {
        const size_t room = ranges->room ? 2 * ranges->room : 64;
        struct emu_range *at = realloc(ranges->at, room * sizeof(*at));
        if (!at)
            return false;
        ranges->at = at;
        ranges->room = room;
    }
    const size_t i = range_after(ranges, range.address);
    memmove(&ranges->at[i + 1], &ranges->at[i],
            (ranges->count - i) * sizeof(range));
    ranges->at[i] = range;
    ranges->count++;
    return true;
}

static void range_remove(struct emu_ranges *ranges, struct emu_range *range)
{
    const size_t i = (size_t)(range - ranges->at);
    ranges->count--;
    memmove(range, range + 1, (ranges->count - i) * sizeof(*range));
    if (!ranges->count) {
        free(ranges->at);
        *ranges = (struct emu_ranges){ 0 };
    }
}

// --- contents nobody may rely on --------------------------------------------

// New memory holds garbage that differs from block to block. The middle of
// very large blocks is left alone: nobody wants to pay for the pages.
static void fill_garbage(void *memory, size_t bytes, uint64_t serial)
{
    const uint64_t word =
        (serial + 1) * 0x9e3779b97f4a7c15u | 0x0101010101010101u;
    uint64_t chunk[512];
    for (size_t i = 0; i < sizeof(chunk) / sizeof(chunk[0]); i++)
        chunk[i] = word;
    for (size_t at = 0; at < bytes; at += sizeof(chunk)) {
        if (bytes > EMU_GARBAGE_LIMIT && at == EMU_GARBAGE_LIMIT / 2)
            at = (bytes - EMU_GARBAGE_LIMIT / 2) & ~(size_t)7;
        const size_t left = bytes - at;
        memcpy((char *)memory + at, chunk,
               left < sizeof(chunk) ? left : sizeof(chunk));
    }
}

// --- device memory ----------------------------------------------------------

CUresult emu_device_reserve(struct emu_device *dev)
{
    if (dev->base)
        return CUDA_SUCCESS;
    // Where address space is limited less has to do: all that is lost is room
    // between blocks.
    for (uint64_t size = EMU_RESERVE; size && size >= emu.memory; size /= 2) {
        char *bytes = mmap(NULL, 2 * size, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (bytes == MAP_FAILED)
            continue;
        if (mprotect(bytes + size, size, PROT_READ | PROT_WRITE) != 0) {
            munmap(bytes, 2 * size);
            continue;
        }
        // Best effort: a core file of zeros helps nobody.
        (void)madvise(bytes, 2 * size, MADV_DONTDUMP);
        dev->base = (uint64_t)(uintptr_t)bytes;
        dev->offset = (ptrdiff_t)size;
        dev->reserve = size;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_OUT_OF_MEMORY;
}

static uint64_t round_up(uint64_t bytes)
{
    return (bytes + EMU_ALIGN - 1) / EMU_ALIGN * EMU_ALIGN;
}

static char *bytes_of(const struct emu_device *dev, uint64_t address)
{
    return (char *)(uintptr_t)(address + (uint64_t)dev->offset);
}

CUresult emu_device_alloc(struct emu_context *ctx, size_t bytes,
                          CUdeviceptr *out)
{
    struct emu_device *dev = ctx->device;
    if (bytes > emu.memory ||
        round_up(bytes) >
            emu.memory - (dev->used < emu.memory ? dev->used : emu.memory))
        return CUDA_ERROR_OUT_OF_MEMORY;

    // First fit, with a gap before and behind every block.
    const uint64_t size = round_up(bytes);
    uint64_t address = dev->base + EMU_ALIGN;
    for (size_t i = 0; i < dev->blocks.count; i++) {
        const struct emu_range *block = &dev->blocks.at[i];
        if (block->address - address >= size + EMU_ALIGN)
            break;
        address = block->address + round_up(block->bytes) + EMU_ALIGN;
    }
    if (address - dev->base > dev->reserve - size)
        return CUDA_ERROR_OUT_OF_MEMORY;

    const struct emu_range block = {
        .address = address,
        .bytes = bytes,
        .serial = emu.serial++,
        .ctx = ctx,
    };
    if (!range_insert(&dev->blocks, block))
        return CUDA_ERROR_OUT_OF_MEMORY;
    char *memory = bytes_of(dev, address);
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    fill_garbage(memory, bytes, block.serial);
    ASAN_POISON_MEMORY_REGION(memory + bytes, size + EMU_ALIGN - bytes);

    dev->used += size;
    emu.stats.allocations++;
    emu.stats.device_bytes += bytes;
    if (emu.stats.device_bytes > emu.stats.device_peak)
        emu.stats.device_peak = emu.stats.device_bytes;
    *out = address;
    return CUDA_SUCCESS;
}

void emu_device_free(struct emu_device *dev, struct emu_range *block)
{
    char *memory = bytes_of(dev, block->address);
    ASAN_UNPOISON_MEMORY_REGION(memory, block->bytes);
    if (emu.check) {
        memset(memory, 0xdd, block->bytes);
    } else {
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        const uintptr_t from = ((uintptr_t)memory + page - 1) / page * page;
        const uintptr_t to = ((uintptr_t)memory + block->bytes) / page * page;
        // Fails only for ranges that are not mapped, and this one is.
        if (from < to)
            (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
    ASAN_POISON_MEMORY_REGION(memory, block->bytes);
    dev->used -= round_up(block->bytes);
    emu.stats.frees++;
    emu.stats.device_bytes -= block->bytes;
    range_remove(&dev->blocks, block);
}

// Whether `bytes` from an address in the block lie in it.
static bool inside(const struct emu_range *block, uint64_t address,
                   size_t bytes, const char *what, const char *kind)
{
    if (bytes <= block->bytes - (address - block->address))
        return true;
    emu_report("%s: %zu bytes at 0x%llx leave their %sallocation of %llu bytes "
               "at 0x%llx",
               what, bytes, (unsigned long long)address, kind,
               (unsigned long long)block->bytes,
               (unsigned long long)block->address);
    return false;
}

CUresult emu_find_device(uint64_t address, size_t bytes, const char *what,
                         char **out)
{
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        const struct emu_device *dev = &emu.device[i];
        const struct emu_range *block = emu_range_find(&dev->blocks, address);
        if (!block)
            continue;
        if (!inside(block, address, bytes, what, ""))
            return CUDA_ERROR_INVALID_VALUE;
        *out = bytes_of(dev, address);
        return CUDA_SUCCESS;
    }
    emu_report("%s: 0x%llx is no device memory", what,
               (unsigned long long)address);
    return CUDA_ERROR_INVALID_VALUE;
}

// --- pinned host memory -----------------------------------------------------

CUresult emu_pinned_alloc(struct emu_context *ctx, size_t bytes, void **out)
{
    void *memory = NULL;
    if (bytes > SIZE_MAX / 2 || posix_memalign(&memory, 4096, bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct emu_range block = {
        .address = (uint64_t)(uintptr_t)memory,
        .bytes = bytes,
        .serial = emu.serial++,
        .ctx = ctx,
    };
    if (!range_insert(&emu.pinned, block)) {
        free(memory);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    fill_garbage(memory, bytes, block.serial);
    emu.stats.host_allocations++;
    emu.stats.host_bytes += bytes;
    *out = memory;
    return CUDA_SUCCESS;
}

void emu_pinned_free(struct emu_range *block)
{
    void *memory = (void *)(uintptr_t)block->address;
    if (emu.check)
        memset(memory, 0xdd, block->bytes);
    emu.stats.host_frees++;
    emu.stats.host_bytes -= block->bytes;
    range_remove(&emu.pinned, block);
    free(memory);
}

CUresult emu_find_host(const void *memory, size_t bytes, const char *what,
                       bool *pinned)
{
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        const struct emu_device *dev = &emu.device[i];
        if (dev->base && address - dev->base < dev->reserve) {
            emu_report("%s: 0x%llx is device memory, host memory is needed",
                       what, (unsigned long long)address);
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    const struct emu_range *block = emu_range_find(&emu.pinned, address);
    *pinned = block != NULL;
    return !block || inside(block, address, bytes, what, "pinned ")
               ? CUDA_SUCCESS
               : CUDA_ERROR_INVALID_VALUE;
}

static void count_leak(const struct emu_range *block, const char *kind,
                       uint64_t *blocks, uint64_t *bytes)
{
    if (block->given_back)
        return;
    ++*blocks;
    *bytes += block->bytes;
    emu_report("leak: %llu bytes of %s memory at 0x%llx",
               (unsigned long long)block->bytes, kind,
               (unsigned long long)block->address);
}

void emu_memory_release(struct emu_context *ctx)
{
    struct emu_device *dev = ctx->device;
    for (size_t i = dev->blocks.count; i-- > 0;) {
        struct emu_range *block = &dev->blocks.at[i];
        if (block->ctx != ctx)
            continue;
        count_leak(block, "device", &emu.leaks.device_blocks,
                   &emu.leaks.device_bytes);
        emu_device_free(dev, block);
    }
    for (size_t i = emu.pinned.count; i-- > 0;) {
        struct emu_range *block = &emu.pinned.at[i];
        // There are `count` of them. NOLINTNEXTLINE(*-core.NullDereference)
        if (block->ctx != ctx)
            continue;
        count_leak(block, "pinned", &emu.leaks.host_blocks,
                   &emu.leaks.host_bytes);
        emu_pinned_free(block);
    }
}
