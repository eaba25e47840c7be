#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <jerror.h>

#include "../base/str.h"
#include "codec.h"
#include "orient.h"

// Rows handed to libjpeg in one call: a row group of the largest sampling.
enum { ROWS_AT_ONCE = 16 };

// The manager must be first: libjpeg hands back its address.
struct errors {
    struct jpeg_error_mgr mgr;
    jmp_buf leave;
    struct pen_error *err;
    enum pen_status status;
    uint32_t warnings;
    char first[JMSG_LENGTH_MAX];

    struct jpeg_memory_mgr own;  // the library's methods
    uint64_t allocations;
};

static enum pen_status status_of(int code)
{
    switch (code) {
    case JERR_OUT_OF_MEMORY:
    case JERR_NO_BACKING_STORE:
        return PEN_E_NOMEM;
    case JERR_BUFFER_SIZE:
        return PEN_E_LIMIT;
    case JERR_SOF_UNSUPPORTED:
    case JERR_CONVERSION_NOTIMPL:
    case JERR_CCIR601_NOTIMPL:
    case JERR_FRACT_SAMPLE_NOTIMPL:
    case JERR_NOTIMPL:
    case JERR_ARITH_NOTIMPL:
    case JERR_NOT_COMPILED:
        return PEN_E_UNSUPPORTED;
    default:
        return PEN_E_DATA;
    }
}

_Noreturn static void leave(struct errors *e)
{
    longjmp(e->leave, 1);
}

static void on_error(j_common_ptr cinfo)
{
    struct errors *e = (struct errors *)cinfo->err;
    char text[JMSG_LENGTH_MAX];

    (*cinfo->err->format_message)(cinfo, text);
    e->status = pen_error_set(e->err, status_of(cinfo->err->msg_code), 0, "",
                              "JPEG: %s", text);
    leave(e);
}

static void cut_off(j_decompress_ptr cinfo)
{
    struct errors *e = (struct errors *)cinfo->err;

    const JDIMENSION row = cinfo->output_scanline + 1;
    e->status =
        pen_error_set(e->err, PEN_E_DATA, 0, "",
                      "JPEG is cut off: its data ends in row %u of %u",
                      row < cinfo->image_height ? row : cinfo->image_height,
                      cinfo->image_height);
    leave(e);
}

// Warnings are counted and the picture is used, unless they say that a part
// of it is missing. Data that end without an end marker but with all their
// rows (many cameras' frames) are complete; only where there are several
// scans nobody can know.
static void on_message(j_common_ptr common, int level)
{
    if (level >= 0)
        return;
    struct errors *e = (struct errors *)common->err;
    if (e->warnings++ == 0)
        (*common->err->format_message)(common, e->first);
    if (!common->is_decompressor)
        return;

    j_decompress_ptr cinfo = (j_decompress_ptr)common;
    const int code = common->err->msg_code;
    if (code == JWRN_JPEG_EOF) {
        if (cinfo->progressive_mode || cinfo->arith_code ||
            jpeg_has_multiple_scans(cinfo))
            cut_off(cinfo);
    } else if (code == JWRN_HIT_MARKER && cinfo->unread_marker == JPEG_EOI) {
        cut_off(cinfo);
    }
}

static void on_output(j_common_ptr cinfo)
{
    (void)cinfo;
}

static struct jpeg_error_mgr *errors_init(struct errors *e,
                                          struct pen_error *err)
{
    struct jpeg_error_mgr *mgr = jpeg_std_error(&e->mgr);
    mgr->error_exit = on_error;
    mgr->emit_message = on_message;
    mgr->output_message = on_output;
    e->err = err;
    return mgr;
}

// --- counting what libjpeg asks for -----------------------------------------

static struct errors *count_one(j_common_ptr cinfo)
{
    struct errors *e = (struct errors *)cinfo->err;
    e->allocations++;
    return e;
}

static void *alloc_small(j_common_ptr cinfo, int pool, size_t bytes)
{
    return count_one(cinfo)->own.alloc_small(cinfo, pool, bytes);
}

static void *alloc_large(j_common_ptr cinfo, int pool, size_t bytes)
{
    return count_one(cinfo)->own.alloc_large(cinfo, pool, bytes);
}

static JSAMPARRAY alloc_sarray(j_common_ptr cinfo, int pool, JDIMENSION width,
                               JDIMENSION rows)
{
    return count_one(cinfo)->own.alloc_sarray(cinfo, pool, width, rows);
}

static JBLOCKARRAY alloc_barray(j_common_ptr cinfo, int pool, JDIMENSION width,
                                JDIMENSION rows)
{
    return count_one(cinfo)->own.alloc_barray(cinfo, pool, width, rows);
}

// Arrays for a whole picture (several scans) are asked for first and made
// later, all at once.
static jvirt_sarray_ptr request_sarray(j_common_ptr cinfo, int pool,
                                       boolean zero, JDIMENSION width,
                                       JDIMENSION rows, JDIMENSION access)
{
    return count_one(cinfo)->own.request_virt_sarray(cinfo, pool, zero, width,
                                                     rows, access);
}

static jvirt_barray_ptr request_barray(j_common_ptr cinfo, int pool,
                                       boolean zero, JDIMENSION width,
                                       JDIMENSION rows, JDIMENSION access)
{
    return count_one(cinfo)->own.request_virt_barray(cinfo, pool, zero, width,
                                                     rows, access);
}

// The manager is there once jpeg_create_...() is done.
static void count_from_here(j_common_ptr cinfo)
{
    struct errors *e = count_one(cinfo);  // the manager itself
    e->own = *cinfo->mem;
    cinfo->mem->alloc_small = alloc_small;
    cinfo->mem->alloc_large = alloc_large;
    cinfo->mem->alloc_sarray = alloc_sarray;
    cinfo->mem->alloc_barray = alloc_barray;
    cinfo->mem->request_virt_sarray = request_sarray;
    cinfo->mem->request_virt_barray = request_barray;
}

// --- decoding ---------------------------------------------------------------

struct reader {
    struct errors errors;  // first: see there
    struct jpeg_decompress_struct cinfo;
    struct jpeg_progress_mgr progress;
    int32_t max_scans;
    struct stk_decode *d;
};

int32_t stk_jpeg_max_scans(int32_t width, int32_t height)
{
    const int64_t most = (INT64_C(1) << 33) / width / height;
    return most < 500 ? (int32_t)most : 500;
}

static void limit_scans(j_common_ptr common)
{
    const j_decompress_ptr cinfo = (j_decompress_ptr)common;
    struct reader *r = (struct reader *)common->err;

    if (cinfo->input_scan_number > r->max_scans) {
        r->errors.status = pen_error_set(
            r->errors.err, PEN_E_LIMIT, 0, "",
            "JPEG of more than %d scans of %ux%u pixels", r->max_scans,
            cinfo->image_width, cinfo->image_height);
        leave(&r->errors);
    }
}

// Half of the machine's memory, as for every budget that nobody set.
static uint64_t memory_limit(void)
{
    const uint64_t all = stk_machine_memory();
    return all ? all / 2 : UINT64_C(1) << 31;
}

// Several scans: libjpeg keeps all coefficients, two bytes each.
static void limit_coefficients(struct reader *r)
{
    const j_decompress_ptr cinfo = &r->cinfo;
    uint64_t bytes = 0;

    for (int i = 0; i < cinfo->num_components; i++) {
        const jpeg_component_info *c = &cinfo->comp_info[i];
        bytes +=
            (uint64_t)c->width_in_blocks * c->height_in_blocks * sizeof(JBLOCK);
    }
    if (bytes > memory_limit()) {
        r->errors.status = pen_error_set(
            r->errors.err, PEN_E_LIMIT, 0, "",
            "progressive JPEG of %ux%u pixels needs %llu MiB for its "
            "coefficients, more than half of the memory",
            cinfo->image_width, cinfo->image_height,
            (unsigned long long)(bytes >> 20));
        leave(&r->errors);
    }
}

// Adobe's files hold 255 - C and so on, others what the name says.
static void cmyk_row(const uint8_t *from, uint8_t *to, int32_t width,
                     bool inverted)
{
    const uint8_t flip = inverted ? 0 : 255;
    for (int32_t x = 0; x < width; x++, from += 4, to += 3) {
        const uint32_t k = from[3] ^ flip;
        for (int i = 0; i < 3; i++) {
            // round(c * k / 255)
            const uint32_t v = (uint32_t)(from[i] ^ flip) * k + 128;
            to[i] = (uint8_t)((v + (v >> 8)) >> 8);
        }
    }
}

static void read_rows(struct reader *r)
{
    const j_decompress_ptr cinfo = &r->cinfo;
    struct stk_decode *d = r->d;
    const struct pen_plane *dst = &d->out->plane[0];
    const int32_t width = (int32_t)cinfo->output_width;
    const int32_t height = (int32_t)cinfo->output_height;
    const uint32_t px = d->header.format == PEN_FMT_MONO ? 1 : 3;
    const bool cmyk = cinfo->out_color_space == JCS_CMYK;
    const bool turns = stk_orientation_turns(d->orientation);
    const size_t row_bytes = (size_t)width * px;
    uint8_t *strip = d->scratch;
    uint8_t *cmyk_rows =
        turns ? strip + STK_ORIENT_ROWS * row_bytes : d->scratch;
    int32_t strip_y = 0;

    while ((int32_t)cinfo->output_scanline < height) {
        const int32_t y = (int32_t)cinfo->output_scanline;
        int32_t room = height - y < ROWS_AT_ONCE ? height - y : ROWS_AT_ONCE;
        if (turns && strip_y + STK_ORIENT_ROWS - y < room)
            room = strip_y + STK_ORIENT_ROWS - y;

        uint8_t *target[ROWS_AT_ONCE];
        JSAMPROW row[ROWS_AT_ONCE];
        for (int32_t i = 0; i < room; i++) {
            target[i] =
                turns ? strip + (size_t)(y + i - strip_y) * row_bytes
                      : stk_orient_target(dst, d->orientation, y + i, height);
            row[i] =
                cmyk ? cmyk_rows + (size_t)i * 4 * (size_t)width : target[i];
        }
        const int32_t got =
            (int32_t)jpeg_read_scanlines(cinfo, row, (JDIMENSION)room);
        for (int32_t i = 0; i < got && i < room; i++) {
            if (cmyk)
                cmyk_row(row[i], target[i], width, cinfo->saw_Adobe_marker);
            if (!turns)
                stk_orient_row(target[i], d->orientation, width, px);
        }
        const int32_t next = y + got;
        if (turns && (next == height || next - strip_y == STK_ORIENT_ROWS)) {
            stk_orient_columns(dst, d->orientation, strip, strip_y,
                               next - strip_y, width, height, px);
            strip_y = next;
        }
    }
}

static void decode(struct reader *r)
{
    const j_decompress_ptr cinfo = &r->cinfo;
    struct stk_decode *d = r->d;

    jpeg_create_decompress(cinfo);
    count_from_here((j_common_ptr)cinfo);
    r->progress.progress_monitor = limit_scans;
    cinfo->progress = &r->progress;
    jpeg_mem_src(cinfo, d->data, d->bytes);
    jpeg_read_header(cinfo, TRUE);

    if ((int64_t)cinfo->image_width != d->header.width ||
        (int64_t)cinfo->image_height != d->header.height ||
        cinfo->num_components != d->header.channels) {
        r->errors.status = pen_error_set(r->errors.err, PEN_E_DATA, 0, "",
                                         "JPEG with contradicting headers");
        leave(&r->errors);
    }
    if (jpeg_has_multiple_scans(cinfo))
        limit_coefficients(r);

    switch (cinfo->jpeg_color_space) {
    case JCS_GRAYSCALE:
        cinfo->out_color_space = JCS_GRAYSCALE;
        break;
    case JCS_CMYK:
    case JCS_YCCK:
        cinfo->out_color_space = JCS_CMYK;
        break;
    default:
        cinfo->out_color_space = JCS_RGB;
        break;
    }
    jpeg_start_decompress(cinfo);
    read_rows(r);
    jpeg_finish_decompress(cinfo);
}

enum pen_status stk_jpeg_decode(struct stk_decode *d, struct pen_error *err)
{
    struct reader r = {
        .d = d,
        .max_scans = stk_jpeg_max_scans(d->header.width, d->header.height),
    };

    r.cinfo.err = errors_init(&r.errors, err);
    if (!setjmp(r.errors.leave))
        decode(&r);
    jpeg_destroy_decompress(&r.cinfo);

    d->allocations = r.errors.allocations;
    d->warnings = r.errors.warnings;
    snprintf(d->warning, sizeof(d->warning), "%s", r.errors.first);
    return r.errors.status;
}

size_t stk_decode_scratch(const struct stk_image_header *header,
                          int32_t orientation)
{
    const size_t width = (size_t)header->width;
    const size_t px = header->format == PEN_FMT_MONO   ? 1
                      : header->format == PEN_FMT_RGBA ? 4
                                                       : 3;
    if (header->codec == PEN_CODEC_PNG)
        return orientation == 1 ? 0 : width * (size_t)header->height * px;

    size_t bytes = 0;
    if (stk_orientation_turns(orientation))
        bytes += STK_ORIENT_ROWS * width * px;
    if (header->channels == 4)
        bytes += (size_t)ROWS_AT_ONCE * 4 * width;
    return bytes;
}

uint64_t stk_decode_most_scratch(enum pen_codec codec, int32_t width,
                                 int32_t height, bool orients)
{
    if (width < 1 || height < 1)
        return 0;
    // A side may be either one before it is turned.
    const uint64_t side = (uint64_t)(width > height ? width : height);
    const uint64_t jpeg =
        (orients ? STK_ORIENT_ROWS * 3 * side : 0) + ROWS_AT_ONCE * 4 * side;
    const uint64_t png = orients ? (uint64_t)width * (uint64_t)height * 4 : 0;
    if (codec == PEN_CODEC_JPEG)
        return jpeg;
    return codec == PEN_CODEC_PNG || png > jpeg ? png : jpeg;
}

// --- encoding ---------------------------------------------------------------

struct writer {
    struct errors errors;  // first: see there
    struct jpeg_compress_struct cinfo;
    struct jpeg_destination_mgr dst;
    struct stk_encode *e;
};

static void dst_init(j_compress_ptr cinfo)
{
    (void)cinfo;
}

// Called with the last byte of room, whether or not more is to come.
static boolean dst_full(j_compress_ptr cinfo)
{
    struct writer *w = (struct writer *)cinfo->err;
    w->errors.status = pen_error_set(w->errors.err, PEN_E_LIMIT, 0, "",
                                     "JPEG is larger than the %zu bytes that "
                                     "were planned for it",
                                     w->e->room);
    leave(&w->errors);
}

static void dst_term(j_compress_ptr cinfo)
{
    (void)cinfo;
}

static int sub_w(enum stk_subsampling s)
{
    return s == STK_SUB_444 ? 1 : 2;
}

static int sub_h(enum stk_subsampling s)
{
    return s == STK_SUB_420 ? 2 : 1;
}

// The bound that libjpeg-turbo states for its own buffers (tjBufSize): rounded
// up to whole MCUs, two bytes for each sample, and 2 KiB of headers.
bool stk_jpeg_bound(int32_t width, int32_t height, enum pen_format format,
                    enum stk_subsampling subsampling, size_t *out)
{
    const bool mono = format == PEN_FMT_MONO;
    const size_t mcu_w = mono ? 8 : 8 * (size_t)sub_w(subsampling);
    const size_t mcu_h = mono ? 8 : 8 * (size_t)sub_h(subsampling);
    const size_t chroma = mono ? 0 : 4 * 64 / (mcu_w * mcu_h);
    size_t w = 0, h = 0, bytes = 0;

    return stk_align((size_t)width, mcu_w, &w) &&
           stk_align((size_t)height, mcu_h, &h) && stk_mul(w, h, &bytes) &&
           stk_mul(bytes, 2 + chroma, &bytes) && stk_add(bytes, 2048, out);
}

static void encode(struct writer *w)
{
    const j_compress_ptr cinfo = &w->cinfo;
    const struct stk_encode *e = w->e;
    const struct pen_view *in = e->in;
    const struct pen_plane *src = &in->plane[0];

    jpeg_create_compress(cinfo);
    count_from_here((j_common_ptr)cinfo);
    w->dst = (struct jpeg_destination_mgr){
        .next_output_byte = e->to,
        .free_in_buffer = e->room,
        .init_destination = dst_init,
        .empty_output_buffer = dst_full,
        .term_destination = dst_term,
    };
    cinfo->dest = &w->dst;
    cinfo->image_width = (JDIMENSION)in->width;
    cinfo->image_height = (JDIMENSION)in->height;
    cinfo->input_components = in->format == PEN_FMT_MONO ? 1 : 3;
    cinfo->in_color_space = in->format == PEN_FMT_MONO  ? JCS_GRAYSCALE
                            : in->format == PEN_FMT_BGR ? JCS_EXT_BGR
                                                        : JCS_EXT_RGB;
    jpeg_set_defaults(cinfo);
    jpeg_set_quality(cinfo, e->quality, TRUE);
    if (in->format != PEN_FMT_MONO) {
        cinfo->comp_info[0].h_samp_factor = sub_w(e->subsampling);
        cinfo->comp_info[0].v_samp_factor = sub_h(e->subsampling);
    }
    jpeg_start_compress(cinfo, TRUE);
    while (cinfo->next_scanline < cinfo->image_height) {
        JSAMPROW row[ROWS_AT_ONCE];
        const JDIMENSION y = cinfo->next_scanline;
        const JDIMENSION left = cinfo->image_height - y;
        const JDIMENSION count = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        for (JDIMENSION i = 0; i < count; i++)
            row[i] = (uint8_t *)src->host + (size_t)(y + i) * src->pitch;
        jpeg_write_scanlines(cinfo, row, count);
    }
    jpeg_finish_compress(cinfo);
}

enum pen_status stk_jpeg_encode(struct stk_encode *e, struct pen_error *err)
{
    struct writer w = { .e = e };

    e->bytes = 0;
    e->allocations = 0;
    if (e->in->format != PEN_FMT_MONO && e->in->format != PEN_FMT_RGB &&
        e->in->format != PEN_FMT_BGR)
        return pen_error_set(err, PEN_E_UNSUPPORTED, 0, "",
                             "JPEG is made of MONO, RGB or BGR pictures");
    // libjpeg writes a byte before it looks whether there was room for it.
    if (!e->room)
        return pen_error_set(err, PEN_E_LIMIT, 0, "",
                             "no room was planned for the JPEG");
    w.cinfo.err = errors_init(&w.errors, err);
    if (!setjmp(w.errors.leave)) {
        encode(&w);
        e->bytes = e->room - w.dst.free_in_buffer;
    }
    jpeg_destroy_compress(&w.cinfo);
    e->allocations = w.errors.allocations;
    return w.errors.status;
}
