#ifndef STK_MODULES_COMMON_H
#define STK_MODULES_COMMON_H

// What several modules share: choices of properties, sets for pins, and small
// steps of process().

#include <penstock/module.h>

#define STK_KINDS_ALL                                                          \
    (PEN_KIND_BIT(PEN_KIND_FRAME) | PEN_KIND_BIT(PEN_KIND_RAW_IMAGE) |         \
     PEN_KIND_BIT(PEN_KIND_ENCODED_IMAGE) | PEN_KIND_BIT(PEN_KIND_H264_DATA))
#define STK_FORMATS_ALL                                                        \
    (PEN_FMT_BITS_ALL11 | PEN_FMT_BITS_BAYER8 | PEN_FMT_BIT(PEN_FMT_BAYERBG10))
#define STK_MEM_CUDA   PEN_MEM_BIT(PEN_MEM_CUDA_DEVICE)
#define STK_MEM_DMABUF PEN_MEM_BIT(PEN_MEM_DMABUF)
// Where a source that writes on the host can put its frames.
#define STK_MEM_SOURCE (PEN_MEM_BITS_HOST | STK_MEM_DMABUF)
#define STK_RAW        PEN_KIND_BIT(PEN_KIND_RAW_IMAGE)
#define STK_ENCODED    PEN_KIND_BIT(PEN_KIND_ENCODED_IMAGE)

// Values are those of format.h; 0 is "auto".
extern const struct pen_choice stk_choices_format[];  // "auto" and all
// The eleven, after "auto" for classes that can be told otherwise.
extern const struct pen_choice stk_choices_target[];
extern const struct pen_choice stk_choices_matrix[];
extern const struct pen_choice stk_choices_range[];
// Memory of a source's output: HOST, HOST_PINNED, DMABUF.
extern const struct pen_choice stk_choices_mem[];
extern const struct pen_choice stk_choices_interpolation[];

// Pins for pictures, and for frames of any kind.
#define STK_PIN_PICTURE(NAME, HELP, MEM, FORMATS)                              \
    {                                                                          \
        .name = NAME, .help = HELP, .kinds = STK_RAW, .mem = MEM,              \
        .formats = FORMATS                                                     \
    }
#define STK_PIN_ANY(NAME, HELP, MEM)                                           \
    {                                                                          \
        .name = NAME, .help = HELP, .kinds = STK_KINDS_ALL, .mem = MEM,        \
        .formats = STK_FORMATS_ALL                                             \
    }

// Fill in an unknown matrix and range of a raw picture by the rule of the
// project: RGB and MONO are bt601 full; YUV of 720 rows or more is bt709
// limited, else bt601 limited.
void stk_settle_colour(struct pen_caps *caps);

// Caps of the input, which must be a picture of one of `formats`: a frame of
// bytes (kind Frame) fits every pin until its caps are looked at.
// Errors: PEN_E_DATA. Thread: data.
PEN_NODISCARD enum pen_status stk_picture(const struct pen_io *io,
                                          uint32_t formats,
                                          struct pen_caps *out,
                                          struct pen_error *err);

// Views of input and output 0, to be read and written. Thread: data.
PEN_NODISCARD enum pen_status stk_acquire_both(const struct pen_io *io,
                                               enum pen_place place,
                                               struct pen_view *dst,
                                               struct pen_view *src,
                                               struct pen_error *err);

// Host memory of a module for work on one frame; {0} is none.
struct stk_workspace {
    void *memory;
    size_t bytes;
};
// Have at least `bytes`; what was in it is lost if it has to grow. It takes as
// much as the plan holds, even for 0 bytes, so that it grows only with the plan
// and no later frame allocates. The plan holds all that it will from process()
// of the first frame on.
// Errors: PEN_E_NOMEM; *w is then empty. Thread: setup, data.
PEN_NODISCARD enum pen_status stk_workspace_grow(struct pen_module *m,
                                                 struct stk_workspace *w,
                                                 size_t bytes,
                                                 struct pen_error *err);
void stk_workspace_free(struct pen_module *m, struct stk_workspace *w);

#endif  // STK_MODULES_COMMON_H
