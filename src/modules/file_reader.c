// FileReaderModule: files as frames. One frame for each file, or, of raw
// pictures, one for each picture that a file holds.

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include "common.h"
#include "file_sequence.h"
#include "image_header.h"
#include "modules.h"

enum frame_type { AUTO = 0, FRAME, ENCODED_IMAGE, RAW_IMAGE, RAW_IMAGE_PLANAR };

enum { ROWS_AT_ONCE = 256, MAX_PATH = PATH_MAX };

struct params {
    const char *pattern;
    int32_t start_index, max_index;
    bool read_loop;
    int32_t frame_type;
    int32_t width, height;
    int32_t format;
    int32_t row_bytes;
    int32_t matrix, range;
    int32_t mem_type;
};

struct state {
    struct stk_sequence files;
    struct pen_layout layout;  // of a raw picture in its file
    size_t next;               // entry of `files` that is open or comes next
    int fd;                    // -1: none
    bool opened;               // open() came as far as `fd`
    off_t size, at;            // of the open file; where the next frame begins
    bool pending;              // a frame was prepared and not yet made
    uint64_t pending_index;
    uint64_t read;  // frames since the list was begun
    char path[MAX_PATH];
};

static const struct pen_choice type_choices[] = {
    { "auto", AUTO,
      "RawImage where width, height or format are given, else EncodedImage "
      "for .jpg, .jpeg and .png, else Frame" },
    { "Frame", FRAME, "bytes of any kind" },
    { "EncodedImage", ENCODED_IMAGE, "a picture file: JPEG, PNG" },
    { "RawImage", RAW_IMAGE, "pictures of width x height in `format`" },
    { "RawImagePlanar", RAW_IMAGE_PLANAR, "the same; of ApraPipes" },
    { 0 },
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_STRING(P, pattern, "strFullFileNameWithPattern", "",
               "File, numbered files (in/????.jpg) or matching files "
               "(in/*.jpg, by name).",
               .flags = PEN_PROP_REQUIRED | PEN_PROP_PATH_READ),
    PEN_I32(P, start_index, "startIndex", 0, 0, INT32_MAX,
            "First number of numbered files."),
    PEN_I32(P, max_index, "maxIndex", -1, -1, INT32_MAX,
            "Last number of numbered files; -1: no limit."),
    PEN_BOOL(P, read_loop, "readLoop", false,
             "Begin again after the last file."),
    PEN_ENUM(P, frame_type, "outputFrameType", AUTO, type_choices,
             "What the files hold."),
    PEN_I32(P, width,  "width",  0, 0, INT32_MAX, "Width of raw pictures.",
            .unit = "px"),
    PEN_I32(P, height, "height", 0, 0, INT32_MAX, "Height of raw pictures.",
            .unit = "px"),
    PEN_ENUM(P, format, "format", PEN_FMT_NONE, stk_choices_format,
             "Pixel format of raw pictures."),
    PEN_I32(P, row_bytes, "rowBytes", 0, 0, INT32_MAX,
            "Bytes from row to row of the first plane in raw files whose rows "
            "are padded; 0: tight.", .unit = "bytes"),
    PEN_ENUM(P, matrix, "matrix", PEN_MATRIX_UNKNOWN, stk_choices_matrix,
             "Colour matrix of raw pictures."),
    PEN_ENUM(P, range, "range", PEN_RANGE_UNKNOWN, stk_choices_range,
             "Range of raw YUV pictures."),
    PEN_ENUM(P, mem_type, "memType", PEN_MEM_HOST, stk_choices_mem,
             "Memory of the frames."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

static const struct pen_pin outputs[] = {
    {
        .name = "output",
        .help = "One frame for each file, or for each raw picture.",
        .kinds = PEN_KIND_BIT(PEN_KIND_FRAME) | STK_ENCODED | STK_RAW,
        .mem = STK_MEM_SOURCE,
        .formats = STK_FORMATS_ALL,
    },
    { 0 },
};

// --- what the properties say ------------------------------------------------

static enum pen_codec codec_by_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (!dot)
        return PEN_CODEC_UNKNOWN;
    if (strcasecmp(dot, ".jpg") == 0 || strcasecmp(dot, ".jpeg") == 0)
        return PEN_CODEC_JPEG;
    return strcasecmp(dot, ".png") == 0 ? PEN_CODEC_PNG : PEN_CODEC_UNKNOWN;
}

static enum pen_kind kind_of(const struct params *p)
{
    switch ((enum frame_type)p->frame_type) {
    case FRAME:
        return PEN_KIND_FRAME;
    case ENCODED_IMAGE:
        return PEN_KIND_ENCODED_IMAGE;
    case RAW_IMAGE:
    case RAW_IMAGE_PLANAR:
        return PEN_KIND_RAW_IMAGE;
    case AUTO:
        break;
    }
    if (p->width || p->height || p->format)
        return PEN_KIND_RAW_IMAGE;
    return codec_by_name(p->pattern) ? PEN_KIND_ENCODED_IMAGE : PEN_KIND_FRAME;
}

static void caps_of(const struct params *p, struct pen_caps *out)
{
    *out = (struct pen_caps){ .kind = kind_of(p) };
    if (out->kind == PEN_KIND_ENCODED_IMAGE) {
        out->codec = codec_by_name(p->pattern);
    } else if (out->kind == PEN_KIND_RAW_IMAGE) {
        out->format = (enum pen_format)p->format;
        out->formats = p->format ? PEN_FMT_BIT((unsigned)p->format) : 0;
        out->width = p->width;
        out->height = p->height;
        out->matrix = (enum pen_matrix)p->matrix;
        out->range = (enum pen_range)p->range;
        stk_settle_colour(out);
    }
}

// How a raw picture lies in its file: tight rows, or padded ones of which the
// property gives the first plane's; those of chroma planes are in proportion.
static enum pen_status file_layout(const struct params *p,
                                   struct pen_layout *out,
                                   struct pen_error *err)
{
    struct pen_caps caps;
    caps_of(p, &caps);
    PEN_TRY(pen_layout_compute(&caps, 1, out, err));
    if (!p->row_bytes)
        return PEN_OK;

    const size_t row = (size_t)p->row_bytes;
    if (row < out->plane[0].row_bytes)
        return pen_error_set(err, PEN_E_CONFIG, 0, "rowBytes",
                             "rowBytes is %zu, but a row of %d pixels takes "
                             "%zu bytes",
                             row, p->width, out->plane[0].row_bytes);
    size_t offset = 0;
    for (uint32_t i = 0; i < out->planes; i++) {
        size_t pitch = row;
        if (i > 0 && caps.format == PEN_FMT_YUV420)
            pitch = (row + 1) / 2;
        else if (i > 0 && caps.format == PEN_FMT_NV12)
            pitch = (row + 1) / 2 * 2;
        out->plane[i].pitch = pitch;
        out->plane[i].offset = offset;
        size_t bytes = 0;
        if (__builtin_mul_overflow(pitch, (size_t)out->plane[i].rows, &bytes) ||
            __builtin_add_overflow(offset, bytes, &offset))
            return pen_error_set(err, PEN_E_LIMIT, 0, "rowBytes",
                                 "rowBytes %zu is too large", row);
    }
    out->bytes = offset;
    return PEN_OK;
}

static void narrow(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out)
{
    const struct params *p = params;
    (void)in;
    const enum pen_kind kind = kind_of(p);
    out->kinds = PEN_KIND_BIT(kind);
    out->mem = PEN_MEM_BIT((unsigned)p->mem_type);
    if (kind != PEN_KIND_RAW_IMAGE)
        out->formats = 0;
    else if (p->format)
        out->formats = PEN_FMT_BIT((unsigned)p->format);
}

static void check(const void *params, struct pen_check *check)
{
    const struct params *p = params;
    struct stk_pattern pattern;

    const char *wrong = stk_pattern_parse(p->pattern, &pattern);
    if (wrong)
        pen_check_error(check, "E204", "strFullFileNameWithPattern",
                        "a file, in/????.jpg or in/*.jpg", "\"%s\" %s",
                        p->pattern, wrong);
    else if (pattern.kind == STK_PATTERN_NUMBERED &&
             ((uint64_t)p->start_index > pattern.max ||
              (p->max_index >= 0 && (uint64_t)p->max_index > pattern.max)))
        pen_check_error(check, "E202",
                        (uint64_t)p->start_index > pattern.max ? "startIndex"
                                                               : "maxIndex",
                        "as many ? as the largest number has digits",
                        "the %u digits of the pattern end at %llu",
                        pattern.digits, (unsigned long long)pattern.max);
    if (p->max_index >= 0 && p->max_index < p->start_index)
        pen_check_error(check, "E202", "maxIndex", NULL,
                        "maxIndex %d lies before startIndex %d", p->max_index,
                        p->start_index);

    if (kind_of(p) != PEN_KIND_RAW_IMAGE) {
        if (p->row_bytes)
            pen_check_warning(check, "W202", "rowBytes", NULL,
                              "rowBytes is for raw pictures only");
        return;
    }
    if (!p->width)
        pen_check_error(check, "E205", "width", "\"width\": 1920",
                        "raw pictures need their width");
    if (!p->height)
        pen_check_error(check, "E205", "height", "\"height\": 1080",
                        "raw pictures need their height");
    if (!p->format)
        pen_check_error(check, "E205", "format", "\"format\": \"RGB\"",
                        "raw pictures need their pixel format");
    struct pen_layout layout;
    struct pen_error err = { 0 };
    if (p->width && p->height && p->format &&
        file_layout(p, &layout, &err) != PEN_OK)
        pen_check_error(check, "E202", p->row_bytes ? "rowBytes" : "width",
                        NULL, "%s", err.text);
}

static enum pen_status negotiate(const void *params, const struct pen_caps *in,
                                 struct pen_caps *out, struct pen_error *err)
{
    (void)in;
    (void)err;
    caps_of(params, out);
    return PEN_OK;
}

// --- files ------------------------------------------------------------------

// Open a regular file for reading. Errors: PEN_E_IO naming it.
static enum pen_status open_file(const char *path, int *fd, off_t *size,
                                 struct pen_error *err)
{
    struct stat st;

    // Not blocking: the open of a FIFO would wait for its other end.
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (*fd < 0 || fstat(*fd, &st) != 0) {
        const int native = errno;
        if (*fd >= 0)
            close(*fd);
        *fd = -1;
        return pen_error_set(err, native == ENOMEM ? PEN_E_NOMEM : PEN_E_IO,
                             native, "", "cannot open \"%s\": %s", path,
                             strerror(native));
    }
    *size = st.st_size;
    if (S_ISREG(st.st_mode))
        return PEN_OK;
    close(*fd);
    *fd = -1;
    if (S_ISDIR(st.st_mode))
        return pen_error_set(err, PEN_E_IO, EISDIR, "",
                             "\"%s\" is a folder; its pictures are read as "
                             "\"%s/*.jpg\"",
                             path, path);
    return pen_error_set(err, PEN_E_IO, 0, "",
                         "\"%s\" is no regular file: a frame's size must be "
                         "known before it is read",
                         path);
}

static enum pen_status check_raw_size(const char *path, off_t size,
                                      const struct params *p,
                                      const struct pen_layout *layout,
                                      struct pen_error *err)
{
    if (size > 0 && (uint64_t)size % layout->bytes == 0)
        return PEN_OK;
    return pen_error_set(err, PEN_E_DATA, 0, "",
                         "\"%s\" has %lld bytes, but a frame of %s %dx%d takes "
                         "%zu: no whole number of frames%s",
                         path, (long long)size,
                         pen_format_info((enum pen_format)p->format)->name,
                         p->width, p->height, layout->bytes,
                         p->row_bytes ? "" : " (rowBytes is for padded rows)");
}

static void grow(int32_t *to, int32_t value)
{
    if (value > *to)
        *to = value;
}

static void note_broken(struct pen_probe *out, const char *path,
                        const struct pen_error *why)
{
    if (out->broken++ == 0)
        snprintf(out->what, sizeof(out->what), "%.100s: %.120s", path,
                 why->text);
}

// Look at one file. What cannot be read or decoded becomes the error of its
// frame.
static void probe_file(const struct params *p, const char *path, bool raw,
                       const struct pen_layout *layout, struct pen_probe *out)
{
    struct stk_image_header header;
    struct pen_error why = { 0 };
    off_t size = 0;
    int fd = -1;

    if (open_file(path, &fd, &size, &why) != PEN_OK) {
        note_broken(out, path, &why);
        return;
    }
    if (raw) {
        if (check_raw_size(path, size, p, layout, &why) == PEN_OK)
            out->frames += (uint64_t)size / layout->bytes;
        else
            note_broken(out, path, &why);
        close(fd);
        return;
    }
    if (out->caps.kind == PEN_KIND_ENCODED_IMAGE) {
        const struct stk_bytes bytes = stk_bytes_file(fd);
        if (stk_image_header_read(&bytes, &header, &why) == PEN_OK &&
            stk_image_header_check(&header, (size_t)size, &why) == PEN_OK) {
            const bool turns = stk_orientation_turns(header.orientation);
            grow(&out->caps.width, turns ? header.height : header.width);
            grow(&out->caps.height, turns ? header.width : header.height);
            out->caps.formats |= PEN_FMT_BIT(header.format);
            out->caps.codec = header.codec;
        } else {
            note_broken(out, path, &why);
        }
    }
    if ((uint64_t)size > out->caps.bytes)
        out->caps.bytes = (size_t)size;
    out->frames++;
    close(fd);
}

static enum pen_status probe(const void *params, struct pen_probe *out,
                             struct pen_error *err)
{
    const struct params *p = params;
    struct stk_sequence files;
    struct pen_layout layout = { 0 };
    char path[MAX_PATH];

    caps_of(p, &out->caps);
    out->frames = 0;
    const bool raw = out->caps.kind == PEN_KIND_RAW_IMAGE;
    if (raw)
        PEN_TRY(file_layout(p, &layout, err));
    PEN_TRY(stk_sequence_open(&files, p->pattern, p->start_index, p->max_index,
                              err));
    // One plain file is named by the user: what is wrong with it can be told
    // before the start.
    enum pen_status status = PEN_OK;
    if (files.pattern.kind == STK_PATTERN_PLAIN) {
        int fd = -1;
        off_t size = 0;
        status = open_file(p->pattern, &fd, &size, err);
        if (status == PEN_OK && raw)
            status = check_raw_size(p->pattern, size, p, &layout, err);
        if (fd >= 0)
            close(fd);
    }
    const size_t count = files.count;
    const size_t look = count < out->limit ? count : out->limit;
    for (size_t i = 0; status == PEN_OK && i < look; i++) {
        if (stk_sequence_path(&files, i, path, sizeof(path)))
            probe_file(p, path, raw, &layout, out);
    }
    stk_sequence_close(&files);

    const uint32_t formats = out->caps.formats;
    if (!raw && formats && !(formats & (formats - 1)))
        out->caps.format = (enum pen_format)__builtin_ctz(formats);
    out->complete = look == count;
    if (!raw)
        out->frames = count;
    else if (!out->complete)
        out->frames = 0;
    if (p->read_loop)
        out->frames = 0;
    return status;
}

static enum pen_status open_module(struct pen_module *m, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct state *st = pen_module_state(m);

    st->fd = -1;
    st->opened = true;
    if (kind_of(p) == PEN_KIND_RAW_IMAGE)
        PEN_TRY(file_layout(p, &st->layout, err));
    PEN_TRY(stk_sequence_open(&st->files, p->pattern, p->start_index,
                              p->max_index, err));
    if (st->files.holes)
        pen_log_write(pen_module_log(m), PEN_LOG_WARN, "pen.modules",
                      "%s: %llu numbers of \"%s\" have no file and are skipped",
                      pen_module_id(m), (unsigned long long)st->files.holes,
                      p->pattern);
    return PEN_OK;
}

static void close_file(struct state *st)
{
    if (st->fd >= 0)
        close(st->fd);
    st->fd = -1;
}

// The frame that was prepared is made, or given up: go on to the next.
static void advance(struct state *st, size_t raw_bytes)
{
    st->pending = false;
    st->read++;
    if (st->fd >= 0 && raw_bytes) {
        st->at += (off_t)raw_bytes;
        if (st->at < st->size)
            return;
    }
    close_file(st);
    st->next++;
}

static enum pen_status open_next(struct state *st, const struct params *p,
                                 struct pen_error *err)
{
    if (!stk_sequence_path(&st->files, st->next, st->path, sizeof(st->path)))
        return pen_error_set(err, PEN_E_IO, ENAMETOOLONG, "",
                             "a path of more than %d bytes", MAX_PATH - 1);
    st->at = 0;
    PEN_TRY(open_file(st->path, &st->fd, &st->size, err));
    if (st->layout.bytes)
        return check_raw_size(st->path, st->size, p, &st->layout, err);
    if (st->size == 0)
        return pen_error_set(err, PEN_E_DATA, 0, "", "\"%s\" is empty",
                             st->path);
    return PEN_OK;
}

static enum pen_status prepare(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct state *st = pen_module_state(m);
    const size_t raw_bytes = st->layout.bytes;

    // Asked again for the frame that failed: the same file once more. Asked
    // for another: it was given up.
    if (st->pending && st->pending_index != pen_io_index(io))
        advance(st, raw_bytes);
    if (st->next == st->files.count) {
        if (!p->read_loop || !st->read)
            return PEN_EOS;
        st->next = 0;
        st->read = 0;
    }
    st->pending = true;
    st->pending_index = pen_io_index(io);
    if (st->fd < 0) {
        const enum pen_status status = open_next(st, p, err);
        if (status != PEN_OK) {
            close_file(st);
            return status;
        }
    }
    caps_of(p, out);
    if (raw_bytes)
        return PEN_OK;
    out->bytes = (size_t)st->size;
    if (out->kind == PEN_KIND_ENCODED_IMAGE) {
        uint8_t head[8];
        const struct stk_bytes bytes = stk_bytes_file(st->fd);
        out->codec =
            stk_image_codec(head, bytes.read(&bytes, 0, head, sizeof(head)));
    }
    return PEN_OK;
}

static enum pen_status read_all(struct state *st, struct iovec *parts,
                                int count, off_t at, struct pen_error *err)
{
    while (count) {
        const ssize_t got = preadv(st->fd, parts, count, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return pen_error_set(err, PEN_E_IO, errno, "",
                                 "cannot read \"%s\": %s", st->path,
                                 strerror(errno));
        if (got == 0)
            return pen_error_set(err, PEN_E_IO, 0, "",
                                 "\"%s\" shrank while it was read: from %lld "
                                 "to %lld bytes",
                                 st->path, (long long)st->size, (long long)at);
        at += got;
        size_t done = (size_t)got;
        while (count && done >= parts->iov_len) {
            done -= parts->iov_len;
            parts++;
            count--;
        }
        if (count) {
            parts->iov_base = (char *)parts->iov_base + done;
            parts->iov_len -= done;
        }
    }
    return PEN_OK;
}

// Rows from a file whose rows follow each other without a gap.
static enum pen_status read_tight(struct state *st,
                                  const struct pen_plane *plane, off_t at,
                                  struct pen_error *err)
{
    if (plane->pitch == plane->row_bytes) {
        struct iovec all = { plane->host,
                             plane->row_bytes * (size_t)plane->rows };
        return read_all(st, &all, 1, at, err);
    }
    for (int32_t y = 0; y < plane->rows; y += ROWS_AT_ONCE) {
        struct iovec rows[ROWS_AT_ONCE];
        const int32_t left = plane->rows - y;
        const int count = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        for (int i = 0; i < count; i++)
            rows[i] = (struct iovec){ (char *)plane->host +
                                          (size_t)(y + i) * plane->pitch,
                                      plane->row_bytes };
        PEN_TRY(read_all(st, rows, count, at, err));
        at += (off_t)(plane->row_bytes * (size_t)count);
    }
    return PEN_OK;
}

static enum pen_status read_raw(struct state *st, const struct pen_view *v,
                                struct pen_error *err)
{
    for (uint32_t i = 0; i < v->planes; i++) {
        const struct pen_plane *plane = &v->plane[i];
        const size_t pitch = st->layout.plane[i].pitch;
        const off_t at = st->at + (off_t)st->layout.plane[i].offset;
        if (pitch == plane->row_bytes) {
            PEN_TRY(read_tight(st, plane, at, err));
            continue;
        }
        for (int32_t y = 0; y < plane->rows; y++) {
            struct iovec row = { (char *)plane->host + (size_t)y * plane->pitch,
                                 plane->row_bytes };
            PEN_TRY(
                read_all(st, &row, 1, at + (off_t)(pitch * (size_t)y), err));
        }
    }
    return PEN_OK;
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    struct pen_frame *frame = pen_output(io, 0);
    const size_t raw_bytes = st->layout.bytes;
    struct pen_view v;

    PEN_TRY(pen_acquire(io, frame, PEN_ON_HOST, PEN_WRITE, &v, err));
    if (raw_bytes) {
        PEN_TRY(read_raw(st, &v, err));
    } else {
        struct iovec all = { v.plane[0].host, (size_t)st->size };
        PEN_TRY(read_all(st, &all, 1, 0, err));
        PEN_TRY(pen_frame_set_bytes(frame, (size_t)st->size, err));
    }

    // Somebody who still writes the file would leave half a frame here.
    struct stat now;
    if (fstat(st->fd, &now) == 0 && now.st_size != st->size)
        return pen_error_set(err, PEN_E_IO, 0, "",
                             "\"%s\" %s while it was read: from %lld to %lld "
                             "bytes",
                             st->path,
                             now.st_size > st->size ? "grew" : "shrank",
                             (long long)st->size, (long long)now.st_size);
    advance(st, raw_bytes);
    return PEN_OK;
}

static void close_module(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    if (st->opened)
        close_file(st);
    stk_sequence_close(&st->files);
}

static const char *const tags[] = {
    "function:read", "backend:cpu", "media:any", "format:jpeg", "format:png",
    "format:raw",    "source",      "file",      "reader",      NULL,
};

const struct pen_module_class stk_class_file_reader = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "FileReaderModule",
    .version = "1.0",
    .summary = "Reads files as frames.",
    .category = PEN_CATEGORY_SOURCE,
    .flags = PEN_CLASS_BLOCKS,
    .tags = tags,
    .outputs = outputs,
    .props = props,
    .params_size = sizeof(struct params),
    .state_size = sizeof(struct state),
    .ops = {
        .narrow = narrow,
        .check = check,
        .negotiate = negotiate,
        .probe = probe,
        .open = open_module,
        .prepare = prepare,
        .process = process,
        .close = close_module,
    },
};
