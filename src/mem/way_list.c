// The table of ways for those who ask from outside.

#include "dmabuf.h"

static const char *way_name(enum stk_way way)
{
    switch (way) {
    case STK_WAY_NONE:
        return "none";
    case STK_WAY_UPGRADE:
        return "upgrade";
    case STK_WAY_MAP:
        return "map";
    case STK_WAY_IMPORT:
        return "import";
    case STK_WAY_EXPORT:
        return "export";
    case STK_WAY_COPY:
        return "copy";
    case STK_WAY_STAGED:
        return "staged";
    case STK_WAY_REFUSED:
        return "refused";
    }
    return "?";
}

void pen_device_ways(struct pen_device *dev, struct pen_way out[PEN_WAYS])
{
    static const struct {
        enum pen_mem_type mem;
        enum stk_dmabuf_kind kind;
    } from[] = {
        { PEN_MEM_HOST, STK_DMABUF_NONE },
        { PEN_MEM_HOST_PINNED, STK_DMABUF_NONE },
        { PEN_MEM_CUDA_DEVICE, STK_DMABUF_NONE },
        { PEN_MEM_DMABUF, STK_DMABUF_HOST },
        { PEN_MEM_DMABUF, STK_DMABUF_CUDA },
    };
    struct stk_dmabuf_caps caps;
    stk_dmabuf_probe(dev, &caps);
    for (unsigned i = 0; i < PEN_WAYS; i++) {
        struct pen_way *way = &out[i];
        *way = (struct pen_way){
            .from = from[i / 4].mem,
            .to = (enum pen_mem_type)(PEN_MEM_HOST + i % 4),
            .exported = from[i / 4].kind == STK_DMABUF_CUDA,
        };
        way->way =
            way_name(stk_way_between(way->from, from[i / 4].kind, way->to,
                                     &caps, way->text, sizeof(way->text)));
    }
}
