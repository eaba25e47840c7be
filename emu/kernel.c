// Kernel images, and the execution of their host builds.

#include <setjmp.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "emu.h"

bool emu_cpu_v3(void)
{
#if defined(__x86_64__)
    // What the compiler may use for -march=x86-64-v3, and whether the system
    // saves the wide registers.
    unsigned a, b, c, d;
    const unsigned one = 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & one) != one)
        return false;
    unsigned low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6)
        return false;
    const unsigned seven = 1u << 3 | 1u << 5 | 1u << 8;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & seven) != seven)
        return false;
    return __get_cpuid(0x80000001u, &a, &b, &c, &d) && c & 1u << 5;
#else
    return false;
#endif
}

// --- images -----------------------------------------------------------------

// Nothing is read beyond the first byte that differs: the image of another
// kind may be shorter.
static bool begins_with(const void *image, const void *magic, size_t bytes)
{
    const unsigned char *a = image, *b = magic;
    for (size_t i = 0; i < bytes; i++) {
        if (a[i] != b[i])
            return false;
    }
    return true;
}

static bool is_ptx(const char *text)
{
    for (;;) {
        while (*text == ' ' || *text == '\t' || *text == '\n' || *text == '\r')
            text++;
        if (text[0] != '/' || text[1] != '/')
            return begins_with(text, ".version", 8);
        while (*text && *text != '\n')
            text++;
    }
}

CUresult emu_image_check(const void *image)
{
    static const uint64_t magic = PEN_KERNEL_MAGIC;
    static const unsigned char fatbin[] = { 0x50, 0xed, 0x55, 0xba };
    if (!begins_with(image, &magic, sizeof(magic))) {
        if (is_ptx(image) || begins_with(image, fatbin, sizeof(fatbin)) ||
            begins_with(image, "\177ELF", 4)) {
            emu_report("cuModuleLoadData: code for a real GPU; the emulated "
                       "device runs only images of the kernel dialect");
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
        }
        emu_report("cuModuleLoadData: no kernel image");
        return CUDA_ERROR_INVALID_IMAGE;
    }
    const struct pen_kernel_image *ours = image;
    if (ours->abi != PEN_KERNEL_ABI || !ours->count ||
        ours->count > PEN_MAX_KERNELS || !ours->entries || !ours->name) {
        emu_report("cuModuleLoadData: image with abi %u and %u entries; abi "
                   "%d and 1 to %d entries are needed",
                   ours->abi, ours->count, PEN_KERNEL_ABI, PEN_MAX_KERNELS);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    for (uint32_t i = 0; i < ours->count; i++) {
        const struct pen_kernel_entry *entry = &ours->entries[i];
        if (!entry->name || entry->args_size > EMU_MAX_ARGS) {
            emu_report("cuModuleLoadData: %s: entry %u is malformed",
                       ours->name, i);
            return CUDA_ERROR_INVALID_IMAGE;
        }
        if (!entry->host) {
            emu_report("cuModuleLoadData: %s: %s has no host build", ours->name,
                       entry->name);
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
        }
    }
    return CUDA_SUCCESS;
}

// --- execution --------------------------------------------------------------

struct run {
    const struct emu_op *op;
    const struct emu_device *dev;
    struct penk_block block;
    // The allocation of the last access that was checked. It cannot go away
    // meanwhile: freeing waits for this launch.
    uint64_t from, bytes;
    jmp_buf out;
};

// Called by kernels of checked builds for each access.
static void check_access(const void *device, uint64_t address, size_t bytes)
{
    // The pointer is the one of emu_kernel_run(), which made it const.
    struct run *run = (struct run *)(uintptr_t)device;
    if (address - run->from < run->bytes &&
        bytes <= run->bytes - (address - run->from))
        return;

    pthread_mutex_lock(&emu.lock);
    uint64_t from = 0, extent = 0;
    const char *why = emu_extent(run->dev, address, &from, &extent);
    if (!why && bytes <= extent - (address - from)) {
        run->from = from;
        run->bytes = extent;
        pthread_mutex_unlock(&emu.lock);
        return;
    }
    if (!why)
        emu_report("kernel %s, block (%u, %u, %u): access of %zu bytes at "
                   "0x%llx crosses the end of the allocation of %llu bytes at "
                   "0x%llx",
                   run->op->kernel, run->block.x, run->block.y, run->block.z,
                   bytes, (unsigned long long)address,
                   (unsigned long long)extent, (unsigned long long)from);
    else
        emu_report("kernel %s, block (%u, %u, %u): access of %zu bytes at "
                   "0x%llx %s",
                   run->op->kernel, run->block.x, run->block.y, run->block.z,
                   bytes, (unsigned long long)address, why);
    pthread_mutex_unlock(&emu.lock);
    longjmp(run->out, 1);
}

bool emu_kernel_run(const struct emu_op *op, const struct emu_device *dev)
{
    struct run run = {
        .op = op,
        .dev = dev,
        .block = {
            .dim_x = op->block[0],
            .dim_y = op->block[1],
            .offset = dev->offset,
            .check = check_access,
            .device = &run,
        },
    };
    if (setjmp(run.out))
        return false;
    for (uint32_t z = 0; z < op->grid[2]; z++) {
        for (uint32_t y = 0; y < op->grid[1]; y++) {
            for (uint32_t x = 0; x < op->grid[0]; x++) {
                run.block.x = x;
                run.block.y = y;
                run.block.z = z;
                op->run(op->args, &run.block);
            }
        }
    }
    return true;
}
