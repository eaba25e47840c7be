// Device memory: addresses without access, bytes at a constant distance; and
// the register of pinned host memory.

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
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

struct emu_range *emu_range_from(const struct emu_ranges *ranges,
                                 uint64_t address)
{
    const size_t i = address ? range_after(ranges, address - 1) : 0;
    return i < ranges->count ? &ranges->at[i] : NULL;
}

bool emu_range_insert(struct emu_ranges *ranges, struct emu_range range)
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

void emu_range_remove(struct emu_ranges *ranges, struct emu_range *range)
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

static uint64_t round_up(uint64_t bytes, uint64_t align)
{
    return (bytes + align - 1) / align * align;
}

struct emu_device *emu_device_of(uint64_t address)
{
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        struct emu_device *dev = &emu.device[i];
        if (dev->base && address - dev->base < dev->reserve)
            return dev;
    }
    return NULL;
}

char *emu_bytes_of(const struct emu_device *dev, uint64_t address)
{
    return (char *)(uintptr_t)(address + (uint64_t)dev->offset);
}

// Where the next block may begin: what lies in a file has pages of its own.
static uint64_t end_of(const struct emu_range *block)
{
    const uint64_t align = block->shared ? EMU_EXPORT_ALIGN : EMU_ALIGN;
    return block->address + round_up(block->bytes, align) + EMU_ALIGN;
}

bool emu_place(const struct emu_device *dev, uint64_t size, uint64_t align,
               uint64_t *out)
{
    // First fit, with a gap before and behind every block.
    if (size > dev->reserve / 2)
        return false;
    uint64_t address = round_up(dev->base + EMU_ALIGN, align);
    for (size_t i = 0; i < dev->blocks.count; i++) {
        const struct emu_range *block = &dev->blocks.at[i];
        if (block->address >= address &&
            block->address - address >= size + EMU_ALIGN)
            break;
        address = round_up(end_of(block), align);
    }
    *out = address;
    return address - dev->base <= dev->reserve - size;
}

bool emu_use_memory(struct emu_device *dev, uint64_t bytes)
{
    const uint64_t size = round_up(bytes, EMU_ALIGN);
    if (dev->used > emu.memory || size > emu.memory - dev->used)
        return false;
    dev->used += size;
    emu.stats.allocations++;
    emu.stats.device_bytes += bytes;
    if (emu.stats.device_bytes > emu.stats.device_peak)
        emu.stats.device_peak = emu.stats.device_bytes;
    return true;
}

void emu_return_memory(struct emu_device *dev, uint64_t bytes)
{
    dev->used -= round_up(bytes, EMU_ALIGN);
    emu.stats.frees++;
    emu.stats.device_bytes -= bytes;
}

int emu_file_create(uint64_t bytes, uint64_t serial)
{
    const int fd = memfd_create("penstock-emu", MFD_CLOEXEC);
    if (fd < 0)
        return -1;
    void *memory = MAP_FAILED;
    if (ftruncate(fd, (off_t)bytes) == 0)
        memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED) {
        close(fd);
        return -1;
    }
    fill_garbage(memory, bytes, serial);
    munmap(memory, bytes);
    return fd;
}

bool emu_file_map(const struct emu_device *dev, const struct emu_range *range,
                  int fd, uint64_t offset, int protection)
{
    char *memory = emu_bytes_of(dev, range->address);
    if (mmap(memory, range->bytes, protection, MAP_SHARED | MAP_FIXED, fd,
             (off_t)offset) == MAP_FAILED)
        return false;
    ASAN_UNPOISON_MEMORY_REGION(memory, range->bytes);
    return true;
}

void emu_file_unmap(const struct emu_device *dev, const struct emu_range *range,
                    int protection)
{
    // Where the system has no more mappings to give, the old one stays: the
    // next user of the addresses has memory all the same.
    char *memory = emu_bytes_of(dev, range->address);
    (void)mmap(memory, range->bytes, protection,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    (void)madvise(memory, range->bytes, MADV_DONTDUMP);
    ASAN_POISON_MEMORY_REGION(memory, range->bytes);
}

struct emu_range emu_exportable(const struct emu_range *block)
{
    const uint64_t end = block->address + block->bytes;
    struct emu_range part = *block;
    part.address = round_up(block->address, EMU_EXPORT_ALIGN);
    part.bytes = end / EMU_EXPORT_ALIGN * EMU_EXPORT_ALIGN;
    part.bytes = part.bytes > part.address ? part.bytes - part.address : 0;
    return part;
}

// Half of the descriptors that the process may have are the program's.
static bool is_too_many(int fd)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 &&
           (rlim_t)fd >= limit.rlim_cur / 2;
}

// Memory that may be exported one day lies in a file of its own, since a
// descriptor says nothing of where in a file the memory is.
static void back_with_file(const struct emu_device *dev,
                           struct emu_range *block)
{
    const struct emu_range part = emu_exportable(block);
    if (block->bytes % EMU_EXPORT_ALIGN || !part.bytes ||
        !(emu.dmabuf & PENEMU_EXPORT))
        return;
    const int fd = emu_file_create(part.bytes, block->serial);
    if (fd < 0)
        return;  // refused when it is to be exported
    if (is_too_many(fd) ||
        !emu_file_map(dev, &part, fd, 0, PROT_READ | PROT_WRITE)) {
        close(fd);
        return;
    }
    block->fd = fd;
    block->shared = true;
}

static void drop_file(const struct emu_device *dev,
                      const struct emu_range *block)
{
    const struct emu_range part = emu_exportable(block);
    emu_file_unmap(dev, block->use == EMU_IMPORTED ? block : &part,
                   PROT_READ | PROT_WRITE);
    close(block->fd);
}

// As the driver, which cuts small blocks out of larger ones: what may be
// exported is aligned for it only if it is large, and else, so that nobody
// relies on luck, never.
static bool place_block(const struct emu_device *dev, uint64_t bytes,
                        uint64_t *out)
{
    const uint64_t size = round_up(bytes, EMU_ALIGN);
    if (bytes % EMU_EXPORT_ALIGN)
        return emu_place(dev, size, EMU_ALIGN, out);
    if (bytes >= EMU_ALIGNED_FROM)
        return emu_place(dev, size, EMU_EXPORT_ALIGN, out);
    if (!emu_place(dev, size + EMU_EXPORT_ALIGN, EMU_EXPORT_ALIGN, out))
        return false;
    *out += EMU_ALIGN * (1 + emu.serial % (EMU_EXPORT_ALIGN / EMU_ALIGN - 1));
    return true;
}

CUresult emu_device_alloc(struct emu_context *ctx, size_t bytes,
                          CUdeviceptr *out)
{
    struct emu_device *dev = ctx->device;
    uint64_t address;
    // Nothing near the end of the numbers.
    if (bytes > emu.memory)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!place_block(dev, bytes, &address) || !emu_use_memory(dev, bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;

    struct emu_range block = {
        .address = address,
        .bytes = bytes,
        .serial = emu.serial++,
        .ctx = ctx,
    };
    back_with_file(dev, &block);
    if (!emu_range_insert(&dev->blocks, block)) {
        emu_return_memory(dev, bytes);
        if (block.shared)
            drop_file(dev, &block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    char *memory = emu_bytes_of(dev, address);
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    fill_garbage(memory, bytes, block.serial);
    ASAN_POISON_MEMORY_REGION(memory + bytes,
                              round_up(bytes, EMU_ALIGN) + EMU_ALIGN - bytes);
    *out = address;
    return CUDA_SUCCESS;
}

// Nobody finds the contents of a freed block again.
static void wipe(char *memory, size_t bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
    if (emu.check) {
        memset(memory, 0xdd, bytes);
    } else {
        const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        const uintptr_t from = ((uintptr_t)memory + page - 1) / page * page;
        const uintptr_t to = ((uintptr_t)memory + bytes) / page * page;
        // Fails only for ranges that are not mapped, and this one is.
        if (from < to)
            (void)madvise((void *)from, to - from, MADV_DONTNEED);
    }
    ASAN_POISON_MEMORY_REGION(memory, bytes);
}

void emu_device_free(struct emu_device *dev, struct emu_range *block)
{
    // What is in a file stays as it is for whoever else has it.
    if (block->shared)
        drop_file(dev, block);
    wipe(emu_bytes_of(dev, block->address), block->bytes);
    if (block->use == EMU_IMPORTED)
        emu.stats.imported_buffers--;
    else
        emu_return_memory(dev, block->bytes);
    emu_range_remove(&dev->blocks, block);
}

// --- finding ----------------------------------------------------------------

const char *emu_extent(const struct emu_device *dev, uint64_t address,
                       uint64_t *from, uint64_t *bytes)
{
    const struct emu_range *block = emu_range_find(&dev->blocks, address);
    if (!block)
        return "is in no allocation";
    *from = block->address;
    *bytes = block->bytes;
    if (block->use != EMU_RESERVED)
        return NULL;

    const struct emu_range *at = emu_range_find(&dev->mappings, address);
    if (!at)
        return "is reserved, and no memory is mapped there";
    if (!at->accessible)
        return "is mapped without access";
    // Pieces that lie side by side are one.
    const struct emu_range *first = at, *last = at;
    const struct emu_range *all = dev->mappings.at;
    while (first > all && first[-1].accessible &&
           first[-1].address + first[-1].bytes == first->address &&
           first[-1].address >= block->address)
        first--;
    while (last + 1 < all + dev->mappings.count && last[1].accessible &&
           last[1].address == last->address + last->bytes &&
           last[1].address - block->address < block->bytes)
        last++;
    *from = first->address;
    *bytes = last->address + last->bytes - first->address;
    return NULL;
}

// Whether `bytes` from an address in the extent lie in it.
static bool inside(uint64_t from, uint64_t extent, uint64_t address,
                   size_t bytes, const char *what, const char *kind)
{
    if (bytes <= extent - (address - from))
        return true;
    emu_report("%s: %zu bytes at 0x%llx leave their %sallocation of %llu bytes "
               "at 0x%llx",
               what, bytes, (unsigned long long)address, kind,
               (unsigned long long)extent, (unsigned long long)from);
    return false;
}

CUresult emu_find_device(uint64_t address, size_t bytes, const char *what,
                         char **out)
{
    const struct emu_device *dev = emu_device_of(address);
    uint64_t from, extent;
    const char *why =
        dev ? emu_extent(dev, address, &from, &extent) : "is no device memory";
    if (why) {
        emu_report("%s: 0x%llx %s", what, (unsigned long long)address, why);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (!inside(from, extent, address, bytes, what, ""))
        return CUDA_ERROR_INVALID_VALUE;
    *out = emu_bytes_of(dev, address);
    return CUDA_SUCCESS;
}

// --- pinned host memory -----------------------------------------------------

CUresult emu_pinned_alloc(struct emu_context *ctx, size_t bytes, void **out)
{
    // No more than the machine has can be locked.
    const size_t pages = (size_t)sysconf(_SC_PHYS_PAGES);
    void *memory = NULL;
    if (bytes / 4096 >= pages || posix_memalign(&memory, 4096, bytes) != 0)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const struct emu_range block = {
        .address = (uint64_t)(uintptr_t)memory,
        .bytes = bytes,
        .serial = emu.serial++,
        .ctx = ctx,
    };
    if (!emu_range_insert(&emu.pinned, block)) {
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
    if (block->use == EMU_REGISTERED) {
        emu.stats.registrations--;
        emu_range_remove(&emu.pinned, block);
        return;
    }
    if (emu.check)
        memset(memory, 0xdd, block->bytes);
    emu.stats.host_frees++;
    emu.stats.host_bytes -= block->bytes;
    emu_range_remove(&emu.pinned, block);
    free(memory);
}

CUresult emu_find_host(const void *memory, size_t bytes, const char *what,
                       bool *pinned)
{
    const uint64_t address = (uint64_t)(uintptr_t)memory;
    if (emu_device_of(address)) {
        emu_report("%s: 0x%llx is device memory, host memory is needed", what,
                   (unsigned long long)address);
        return CUDA_ERROR_INVALID_VALUE;
    }
    const struct emu_range *block = emu_range_find(&emu.pinned, address);
    *pinned = block != NULL;
    return !block || inside(block->address, block->bytes, address, bytes, what,
                            block->use == EMU_REGISTERED ? "registered "
                                                         : "pinned ")
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

static void release_block(struct emu_device *dev, struct emu_range *block)
{
    switch (block->use) {
    case EMU_RESERVED:
        if (!block->given_back) {
            emu.leaks.ranges++;
            emu_report("leak: %llu reserved addresses at 0x%llx",
                       (unsigned long long)block->bytes,
                       (unsigned long long)block->address);
        }
        emu_unreserve(dev, block);
        break;
    case EMU_IMPORTED:
        if (!block->given_back) {
            emu.leaks.imports++;
            emu_report("leak: a buffer of imported memory");
        }
        emu_device_free(dev, block);
        break;
    default:
        count_leak(block, "device", &emu.leaks.device_blocks,
                   &emu.leaks.device_bytes);
        emu_device_free(dev, block);
    }
}

void emu_memory_release(struct emu_context *ctx)
{
    struct emu_device *dev = ctx->device;
    for (size_t i = dev->mappings.count; i-- > 0;) {
        struct emu_range *mapping = &dev->mappings.at[i];
        if (mapping->ctx != ctx)
            continue;
        if (!mapping->given_back) {
            emu.leaks.mappings++;
            emu_report("leak: memory mapped at 0x%llx",
                       (unsigned long long)mapping->address);
        }
        emu_unmap(dev, mapping);
    }
    for (size_t i = dev->blocks.count; i-- > 0;) {
        struct emu_range *block = &dev->blocks.at[i];
        if (block->ctx == ctx)
            release_block(dev, block);
    }
    for (size_t i = emu.pinned.count; i-- > 0;) {
        struct emu_range *block = &emu.pinned.at[i];
        // There are `count` of them. NOLINTNEXTLINE(*-core.NullDereference)
        if (block->ctx != ctx)
            continue;
        if (block->use != EMU_REGISTERED) {
            count_leak(block, "pinned", &emu.leaks.host_blocks,
                       &emu.leaks.host_bytes);
        } else if (!block->given_back) {
            emu.leaks.registrations++;
            emu_report("leak: host memory registered at 0x%llx",
                       (unsigned long long)block->address);
        }
        emu_pinned_free(block);
    }
}
