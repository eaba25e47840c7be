// MyCustomCuda: the negative of a picture, by a kernel of its own. It takes
// pictures in device memory and says so; the planner adds the uploads.

#include "my_custom_cuda.h"

#include "invert.kern.h"

// Made from invert.cu by penstock-kernel.
extern const struct pen_kernel_image pen_image_invert;

static const struct pen_pin inputs[] = {
    {
        .name = "input",
        .help = "Picture to invert.",
        .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE),
        .mem = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE),
        .formats = PEN_FMT_BITS_ALL11,
    },
    { 0 },
};

static const struct pen_pin outputs[] = {
    {
        .name = "output",
        .help = "Its negative, in the same format.",
        .kinds = PEN_KIND_BIT(PEN_KIND_RAW_IMAGE),
        .mem = PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE),
        .formats = PEN_FMT_BITS_ALL11,
    },
    { 0 },
};

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    (void)m;
    struct pen_view src, dst;
    PEN_TRY(
        pen_acquire(io, pen_input(io, 0), PEN_ON_STREAM, PEN_READ, &src, err));
    PEN_TRY(pen_acquire(io, pen_output(io, 0), PEN_ON_STREAM, PEN_WRITE, &dst,
                        err));
    for (uint32_t i = 0; i < src.planes; i++) {
        const struct pen_plane *from = &src.plane[i], *to = &dst.plane[i];
        const struct invert args = {
            .dst = to->address,
            .src = from->address,
            .dst_pitch = to->pitch,
            .src_pitch = from->pitch,
            .row_bytes = (uint32_t)from->row_bytes,
            .rows = (uint32_t)from->rows,
        };
        const struct pen_grid grid = {
            .x = (args.row_bytes + INVERT_BLOCK_X - 1) / INVERT_BLOCK_X,
            .y = (args.rows + INVERT_BLOCK_Y - 1) / INVERT_BLOCK_Y,
            .block_x = INVERT_BLOCK_X,
            .block_y = INVERT_BLOCK_Y,
        };
        PEN_TRY(pen_launch(io, &pen_image_invert, INVERT_KERNEL, &grid, &args,
                           sizeof(args), err));
    }
    return PEN_OK;
}

static const struct pen_kernel_image *const kernels[] = {
    &pen_image_invert,
    NULL,
};
static const char *const tags[] = { "function:custom", "backend:cuda", NULL };

const struct pen_module_class my_custom_cuda = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "MyCustomCuda",
    .version = "1.0",
    .summary = "Inverts pictures on the GPU.",
    .category = PEN_CATEGORY_TRANSFORM,
    .flags = PEN_CLASS_CUDA,
    .tags = tags,
    .inputs = inputs,
    .outputs = outputs,
    .kernels = kernels,
    .ops = { .process = process },
};
