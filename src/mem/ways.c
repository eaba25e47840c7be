// How frames get from one memory type to another, as a table.

#include <stdio.h>
#include <string.h>

#include "dmabuf.h"

#include "../base/str.h"

// From this size on the driver gives blocks that are aligned for export.
enum { ALIGNED_FROM = 2 << 20 };

bool stk_dmabuf_cuda_bytes(size_t bytes, size_t *out)
{
    if (!stk_align(bytes, STK_EXPORT_ALIGN, out))
        return false;
    return *out >= ALIGNED_FROM || stk_add(*out, STK_EXPORT_ALIGN, out);
}

enum need {
    NEED_NOTHING = 0,
    NEED_HOST,
    NEED_EXPORT,
    NEED_IMPORT,
};

// One way; the first of a cell whose need is met is taken, and where there is
// none the pair is refused.
struct step {
    enum stk_way way;
    enum need need;
    const char *text;
};

enum { FROM_HOST, FROM_PINNED, FROM_CUDA, FROM_DMABUF_HOST, FROM_DMABUF_CUDA };

enum { STEPS = 2 };

// clang-format off
static const struct step nothing[STEPS] = {
    { STK_WAY_NONE, NEED_NOTHING, "as it is" },
};

static const struct step table[5][PEN_MEM_COUNT][STEPS] = {
    [FROM_HOST] = {
        [PEN_MEM_HOST_PINNED] = {
            { STK_WAY_UPGRADE, NEED_NOTHING,
              "the producer's pool is page-locked" } },
        [PEN_MEM_CUDA_DEVICE] = {
            { STK_WAY_COPY, NEED_NOTHING,
              "uploaded from a page-locked pool (CudaMemCopy)" } },
        [PEN_MEM_DMABUF] = {
            { STK_WAY_UPGRADE, NEED_HOST,
              "the producer's pool is made of DMABUFs, mapped for it" },
            { STK_WAY_COPY, NEED_EXPORT,
              "uploaded (CudaMemCopy) into device memory that is exported" } },
    },
    [FROM_PINNED] = {
        [PEN_MEM_CUDA_DEVICE] = {
            { STK_WAY_COPY, NEED_NOTHING, "uploaded (CudaMemCopy)" } },
        [PEN_MEM_DMABUF] = {
            { STK_WAY_COPY, NEED_HOST,
              "copied by the host (MemTypeConversion)" },
            { STK_WAY_COPY, NEED_EXPORT,
              "uploaded (CudaMemCopy) into device memory that is exported" } },
    },
    [FROM_CUDA] = {
        [PEN_MEM_HOST] = {
            { STK_WAY_COPY, NEED_NOTHING,
              "downloaded into page-locked memory (CudaMemCopy)" } },
        [PEN_MEM_HOST_PINNED] = {
            { STK_WAY_COPY, NEED_NOTHING, "downloaded (CudaMemCopy)" } },
        [PEN_MEM_DMABUF] = {
            { STK_WAY_EXPORT, NEED_EXPORT,
              "the producer's pool is exported as DMABUFs" },
            { STK_WAY_STAGED, NEED_HOST,
              "downloaded (CudaMemCopy), then copied by the host "
              "(MemTypeConversion)" } },
    },
    [FROM_DMABUF_HOST] = {
        [PEN_MEM_HOST] = {
            { STK_WAY_MAP, NEED_NOTHING, "mapped where it is" } },
        [PEN_MEM_HOST_PINNED] = {
            { STK_WAY_COPY, NEED_NOTHING,
              "mapped and copied by the host (MemTypeConversion)" } },
        [PEN_MEM_CUDA_DEVICE] = {
            { STK_WAY_IMPORT, NEED_IMPORT, "imported by the device" },
            { STK_WAY_STAGED, NEED_NOTHING,
              "mapped, copied by the host into page-locked memory "
              "(MemTypeConversion), then uploaded (CudaMemCopy)" } },
    },
    [FROM_DMABUF_CUDA] = {
        [PEN_MEM_HOST] = {
            { STK_WAY_COPY, NEED_NOTHING,
              "downloaded into page-locked memory (CudaMemCopy)" } },
        [PEN_MEM_HOST_PINNED] = {
            { STK_WAY_COPY, NEED_NOTHING, "downloaded (CudaMemCopy)" } },
        [PEN_MEM_CUDA_DEVICE] = {
            { STK_WAY_NONE, NEED_NOTHING, "it is device memory" } },
    },
};
// clang-format on

static int row_of(enum pen_mem_type from, enum stk_dmabuf_kind kind)
{
    switch (from) {
    case PEN_MEM_HOST:
        return FROM_HOST;
    case PEN_MEM_HOST_PINNED:
        return FROM_PINNED;
    case PEN_MEM_CUDA_DEVICE:
        return FROM_CUDA;
    case PEN_MEM_DMABUF:
        return kind == STK_DMABUF_CUDA ? FROM_DMABUF_CUDA : FROM_DMABUF_HOST;
    default:
        return -1;
    }
}

static bool met(enum need need, const struct stk_dmabuf_caps *caps)
{
    switch (need) {
    case NEED_HOST:
        return caps->host;
    case NEED_EXPORT:
        return caps->export;
    case NEED_IMPORT:
        return caps->import;
    default:
        return true;
    }
}

// What is missing, with the reason if it is known.
static void missing(char *text, size_t size, const char *what, const char *why)
{
    const size_t at = strlen(text);
    snprintf(text + at, size - at, *why ? "%s (%s)" : "%s", what, why);
}

// Only the ways to DMABUF can be missing, and then all of them are.
static void refuse(const struct stk_dmabuf_caps *caps, char *text, size_t size)
{
    if (size == 0)
        return;
    text[0] = '\0';
    missing(text, size, "no DMABUF of host memory can be made", caps->why_host);
    missing(text, size, ", nor can device memory be exported as one",
            caps->why_export);
    missing(text, size,
            "; let the consumer take HOST, HOST_PINNED or CUDA_DEVICE frames",
            "");
}

enum stk_way stk_way_between(enum pen_mem_type from, enum stk_dmabuf_kind kind,
                             enum pen_mem_type to,
                             const struct stk_dmabuf_caps *caps, char *text,
                             size_t size)
{
    const int row = row_of(from, kind);
    if (row < 0 || row_of(to, kind) < 0) {
        snprintf(text, size, "no memory type");
        return STK_WAY_REFUSED;
    }
    const struct step *cell = table[row][to];
    if (!cell[0].text)
        cell = nothing;
    for (int i = 0; i < STEPS && cell[i].text; i++) {
        if (met(cell[i].need, caps)) {
            snprintf(text, size, "%s", cell[i].text);
            return cell[i].way;
        }
    }
    refuse(caps, text, size);
    return STK_WAY_REFUSED;
}
