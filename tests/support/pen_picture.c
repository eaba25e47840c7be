#include "pen_picture.h"

#include "pen_test.h"

enum { GUARD = 0xa5, BEFORE = 64, AFTER = 64 };

const enum pen_format pen_picture_formats[11] = {
    PEN_FMT_MONO, PEN_FMT_BGR,      PEN_FMT_BGRA,   PEN_FMT_RGB,
    PEN_FMT_RGBA, PEN_FMT_YUV411_I, PEN_FMT_YUV444, PEN_FMT_YUV420,
    PEN_FMT_UYVY, PEN_FMT_YUYV,     PEN_FMT_NV12,
};

const char *pen_picture_name(enum pen_format format)
{
    const struct pen_format_info *info = pen_format_info(format);
    return info ? info->name : "?";
}

void pen_picture_make(struct pen_picture *p, enum pen_format format, int w,
                      int h, size_t extra, size_t shift)
{
    memset(p, 0, sizeof(*p));
    p->ref.format = p->view.format = format;
    p->ref.w = p->view.width = w;
    p->ref.h = p->view.height = h;
    p->view.mem = PEN_MEM_HOST;
    p->view.planes = (uint32_t)ref_planes(format);

    size_t offset[3] = { 0 };
    size_t end = BEFORE + shift;
    for (int i = 0; i < ref_planes(format); i++) {
        p->view.plane[i].row_bytes = ref_row_bytes(format, i, w);
        p->view.plane[i].rows = ref_rows(format, i, h);
        p->ref.pitch[i] = p->view.plane[i].pitch =
            p->view.plane[i].row_bytes + extra;
        offset[i] = end;
        end += p->ref.pitch[i] * (size_t)ref_rows(format, i, h);
    }
    p->bytes = (end + AFTER + 63) / 64 * 64;
    p->memory = aligned_alloc(64, p->bytes);
    assert_non_null(p->memory);
    for (int i = 0; i < ref_planes(format); i++) {
        p->ref.plane[i] = p->memory + offset[i];
        p->view.plane[i].host = p->memory + offset[i];
        p->view.plane[i].address = (uint64_t)(uintptr_t)p->ref.plane[i];
    }
    p->view.bytes = end - offset[0];
    pen_picture_reset(p);
}

void pen_picture_free(struct pen_picture *p)
{
    free(p->memory);
    memset(p, 0, sizeof(*p));
}

void pen_picture_reset(struct pen_picture *p)
{
    memset(p->memory, GUARD, p->bytes);
}

static uint8_t *row_of(const struct pen_picture *p, int plane, int y)
{
    return (uint8_t *)p->view.plane[plane].host +
           (size_t)y * p->ref.pitch[plane];
}

void pen_picture_noise(struct pen_picture *p, uint64_t seed)
{
    seed = seed * 2 + 1;
    for (int i = 0; i < ref_planes(p->ref.format); i++) {
        for (int y = 0; y < p->view.plane[i].rows; y++) {
            uint8_t *row = row_of(p, i, y);
            for (size_t x = 0; x < p->view.plane[i].row_bytes; x++) {
                const uint32_t r = pen_test_random(&seed);
                row[x] =
                    r >> 30 ? (uint8_t)(r >> 8) : (uint8_t)((r >> 8 & 1) * 255);
            }
        }
    }
}

void pen_picture_tight(const struct pen_picture *p, uint8_t *out)
{
    for (int i = 0; i < ref_planes(p->ref.format); i++)
        for (int y = 0; y < p->view.plane[i].rows; y++) {
            memcpy(out, row_of(p, i, y), p->view.plane[i].row_bytes);
            out += p->view.plane[i].row_bytes;
        }
}

void pen_picture_from_tight(struct pen_picture *p, const uint8_t *in)
{
    for (int i = 0; i < ref_planes(p->ref.format); i++)
        for (int y = 0; y < p->view.plane[i].rows; y++) {
            memcpy(row_of(p, i, y), in, p->view.plane[i].row_bytes);
            in += p->view.plane[i].row_bytes;
        }
}

static void check_guard(const uint8_t *from, const uint8_t *to,
                        const uint8_t *base, const char *what)
{
    for (; from < to; from++)
        if (*from != GUARD)
            fail_msg("%s: byte %td of the buffer, which carries no sample, "
                     "was overwritten",
                     what, from - base);
}

void pen_picture_check_guards(const struct pen_picture *p, const char *what)
{
    const uint8_t *at = p->memory;
    for (int i = 0; i < ref_planes(p->ref.format); i++)
        for (int y = 0; y < p->view.plane[i].rows; y++) {
            const uint8_t *row = row_of(p, i, y);
            check_guard(at, row, p->memory, what);
            at = row + p->view.plane[i].row_bytes;
        }
    check_guard(at, p->memory + p->bytes, p->memory, what);
}

void pen_picture_check_same(const struct pen_picture *a,
                            const struct pen_picture *b, const char *what)
{
    for (int i = 0; i < ref_planes(a->ref.format); i++)
        for (int y = 0; y < a->view.plane[i].rows; y++) {
            const uint8_t *ra = row_of(a, i, y), *rb = row_of(b, i, y);
            for (size_t x = 0; x < a->view.plane[i].row_bytes; x++)
                if (ra[x] != rb[x])
                    fail_msg("%s: plane %d, row %d, byte %zu: %d and %d", what,
                             i, y, x, ra[x], rb[x]);
        }
}

void pen_picture_check_near(const struct pen_picture *p, const double *exact,
                            double limit, const char *what)
{
    for (int i = 0; i < ref_planes(p->ref.format); i++)
        for (int y = 0; y < p->view.plane[i].rows; y++) {
            const uint8_t *row = row_of(p, i, y);
            for (size_t x = 0; x < p->view.plane[i].row_bytes; x++) {
                const double off = row[x] - *exact;
                if (!(off >= -limit && off <= limit))
                    fail_msg("%s: plane %d, row %d, byte %zu: %d, exactly %f",
                             what, i, y, x, row[x], *exact);
                exact++;
            }
        }
}

struct pen_view pen_picture_away(const struct pen_picture *p)
{
    struct pen_view v = p->view;
    for (uint32_t i = 0; i < v.planes; i++) {
        v.plane[i].host = NULL;
        v.plane[i].address -= PEN_PICTURE_AWAY;
    }
    return v;
}

void pen_picture_launch(penk_host_fn fn, const struct pen_grid *grid,
                        const void *args)
{
    struct penk_block block = {
        .dim_x = grid->block_x,
        .dim_y = grid->block_y,
        .offset = (ptrdiff_t)PEN_PICTURE_AWAY,
    };
    for (block.z = 0; block.z < grid->z; block.z++)
        for (block.y = 0; block.y < grid->y; block.y++)
            for (block.x = 0; block.x < grid->x; block.x++)
                fn(args, &block);
}
