// FileWriterModule: frames as files, each there whole or not at all.

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../graph/graph.h"
#include "../run/neighbours.h"
#include "common.h"
#include "file_out.h"
#include "file_sequence.h"
#include "modules.h"

enum { ROWS_AT_ONCE = 256 };

struct params {
    const char *pattern;
    bool append, overwrite;
    int32_t start_index;
};

struct inode {
    dev_t dev;
    ino_t ino;
};

struct state {
    struct stk_pattern pattern;
    int folder;                // -1: not open
    bool opened;               // open() came as far as `folder`
    struct stk_file_out file;  // kept open for FIFOs and devices
    bool file_open;
    bool told;     // that files are overwritten
    bool special;  // it is a FIFO or a device, which may have many writers
    uint64_t written;
    bool inputs_known;
    struct inode *inputs;  // files that the pipeline reads, sorted
    size_t input_count, input_room;
    char path[PATH_MAX], name[NAME_MAX + 1];
};

// clang-format off
#define P struct params
static const struct pen_prop props[] = {
    PEN_STRING(P, pattern, "strFullFileNameWithPattern", "",
               "File, or one file for each frame (out/????.jpg, "
               "out/frame-*.raw). Missing folders are made.",
               .flags = PEN_PROP_REQUIRED | PEN_PROP_PATH_WRITE),
    PEN_BOOL(P, append, "append", false,
             "Continue existing files instead of replacing them."),
    PEN_BOOL(P, overwrite, "overwrite", false,
             "Replace an existing file; numbered files are replaced anyway, "
             "with a notice."),
    PEN_I32(P, start_index, "startIndex", 0, 0, INT32_MAX,
            "Number of the first frame's file."),
    PEN_PROPS_END,
};
#undef P
// clang-format on

static const struct pen_pin inputs[] = {
    STK_PIN_ANY("input",
                "Any frame; raw pictures are written with tight rows, planes "
                "one after the other.",
                PEN_MEM_BITS_HOST),
    { 0 },
};

static void check(const void *params, struct pen_check *check)
{
    const struct params *p = params;
    struct stk_pattern pattern;

    const char *wrong = stk_pattern_parse(p->pattern, &pattern);
    const char *star = strchr(p->pattern, '*');
    if (!wrong && star && (strchr(star + 1, '*') || strchr(p->pattern, '?')))
        wrong = "has more than one place for the number";
    if (wrong)
        pen_check_error(check, "E204", "strFullFileNameWithPattern",
                        "a file, or out/????.jpg", "\"%s\" %s", p->pattern,
                        wrong);
    else if (pattern.kind == STK_PATTERN_NUMBERED &&
             (uint64_t)p->start_index > pattern.max)
        pen_check_error(check, "E202", "startIndex",
                        "as many ? as the number has digits",
                        "the %u digits of the pattern end at %llu",
                        pattern.digits, (unsigned long long)pattern.max);
    if (p->append && p->overwrite)
        pen_check_error(check, "E203", "overwrite", "give one of the two",
                        "append and overwrite contradict each other");
}

// --- what the pipeline reads ------------------------------------------------

static int by_inode(const void *a, const void *b)
{
    const struct inode *x = a, *y = b;
    if (x->dev != y->dev)
        return x->dev < y->dev ? -1 : 1;
    return (x->ino > y->ino) - (x->ino < y->ino);
}

static bool add_input(struct state *st, const char *path)
{
    struct stat at;
    if (stat(path, &at) != 0 || !S_ISREG(at.st_mode))
        return true;
    if (st->input_count == st->input_room) {
        const size_t room = st->input_room ? 2 * st->input_room : 64;
        struct inode *more = realloc(st->inputs, room * sizeof(*more));
        if (!more)
            return false;
        st->inputs = more;
        st->input_room = room;
    }
    st->inputs[st->input_count++] = (struct inode){ at.st_dev, at.st_ino };
    return true;
}

// A number of another module, which need not have that property.
static int64_t number_of(const struct stk_neighbour *other, const char *key,
                         int64_t fallback)
{
    const struct pen_prop *row = stk_prop_find(other->cls->props, key);
    if (!row || row->kind != PEN_PROP_I32)
        return fallback;
    return *(const int32_t *)((const char *)other->params + row->offset);
}

static enum pen_status add_inputs(struct state *st,
                                  const struct stk_neighbour *reader,
                                  const char *pattern, struct pen_error *err)
{
    struct stk_sequence files;
    char path[PATH_MAX];

    const enum pen_status status =
        stk_sequence_open(&files, pattern, number_of(reader, "startIndex", 0),
                          number_of(reader, "maxIndex", -1), err);
    // A reader that finds nothing says so itself.
    if (status != PEN_OK)
        return status == PEN_E_NOMEM ? status : PEN_OK;
    bool ok = true;
    for (size_t i = 0; ok && i < files.count; i++) {
        if (stk_sequence_path(&files, i, path, sizeof(path)))
            ok = add_input(st, path);
    }
    stk_sequence_close(&files);
    return ok ? PEN_OK
              : pen_error_set(err, PEN_E_NOMEM, 0, "",
                              "no memory for the list of inputs");
}

// Whoever writes over a file must know what the pipeline reads. Looked at only
// when a file is there that would be written over.
static enum pen_status know_inputs(struct pen_module *m, struct state *st,
                                   struct pen_error *err)
{
    struct stk_neighbour other;
    if (st->inputs_known)
        return PEN_OK;
    for (uint32_t n = 0; stk_module_neighbour(m, n, &other); n++) {
        for (const struct pen_prop *row = other.cls->props;
             row && row->kind != PEN_PROP_END; row++) {
            if (row->kind != PEN_PROP_STRING ||
                !(row->flags & PEN_PROP_PATH_READ))
                continue;
            const char *path = stk_prop_string(row, other.params);
            if (*path)
                PEN_TRY(add_inputs(st, &other, path, err));
        }
    }
    if (st->input_count)
        qsort(st->inputs, st->input_count, sizeof(*st->inputs), by_inode);
    st->inputs_known = true;
    return PEN_OK;
}

// --- what the pipeline's other writers write --------------------------------

// Both write a file of the same name in the same folder, sooner or later.
static bool collide(const struct state *st, const struct params *p,
                    const struct params *other, uint64_t expected)
{
    struct stk_pattern pattern;
    char folder[PATH_MAX];
    struct stat mine, theirs;

    if (stk_pattern_parse(other->pattern, &pattern) ||
        strcmp(pattern.text + pattern.folder,
               st->pattern.text + st->pattern.folder) != 0)
        return false;
    if (pattern.kind != STK_PATTERN_PLAIN) {
        const uint64_t a = (uint64_t)p->start_index;
        const uint64_t b = (uint64_t)other->start_index;
        const uint64_t apart = a < b ? b - a : a - b;
        if (apart && apart >= expected)
            return false;
    }
    // A folder that is not there yet is not this one, which is open.
    return stk_pattern_folder(&pattern, folder, sizeof(folder)) &&
           fstat(st->folder, &mine) == 0 && stat(folder, &theirs) == 0 &&
           mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino;
}

// Two writers of the same files would write over each other's frames.
static enum pen_status check_writers(struct pen_module *m,
                                     const struct state *st,
                                     struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    const uint64_t expected = stk_module_expected_frames(m);
    struct stk_neighbour other;
    for (uint32_t n = 0; stk_module_neighbour(m, n, &other); n++) {
        if (other.cls == &stk_class_file_writer && other.params != p &&
            collide(st, p, other.params, expected))
            return pen_error_set(err, PEN_E_CONFIG, 0, "",
                                 "\"%s\" is written by %s as well: give each "
                                 "its own files",
                                 p->pattern, other.id);
    }
    return PEN_OK;
}

// --- files ------------------------------------------------------------------

static enum stk_file_mode mode_of(const struct state *st,
                                  const struct params *p)
{
    if (p->append)
        return STK_FILE_APPEND;
    return p->overwrite || st->pattern.kind != STK_PATTERN_PLAIN
               ? STK_FILE_REPLACE
               : STK_FILE_NEW;
}

// Refuse what must not be written over, before anything is opened.
static enum pen_status look(struct pen_module *m, struct state *st,
                            struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct stk_file_state now;

    PEN_TRY(stk_file_look(st->folder, st->name, st->path, &now, err));
    if (!now.exists)
        return PEN_OK;
    if (now.link)
        return pen_error_set(err, PEN_E_IO, ELOOP, "",
                             "\"%s\" is a link: it is not written through; "
                             "name the file itself",
                             st->path);
    if (now.folder)
        return pen_error_set(err, PEN_E_IO, EISDIR, "", "\"%s\" is a folder",
                             st->path);
    if (now.special) {
        st->special = true;
        return PEN_OK;
    }
    PEN_TRY(know_inputs(m, st, err));
    const struct inode key = { now.dev, now.ino };
    if (st->input_count &&
        bsearch(&key, st->inputs, st->input_count, sizeof(key), by_inode))
        return pen_error_set(err, PEN_E_IO, EEXIST, "",
                             "\"%s\" is an input of this pipeline and is not "
                             "written over",
                             st->path);
    if (mode_of(st, p) == STK_FILE_NEW)
        return pen_error_set(err, PEN_E_IO, EEXIST, "",
                             st->written
                                 ? "\"%s\" holds the frame before: a pattern "
                                   "like out/????.raw gives each its file, "
                                   "append collects them, overwrite keeps the "
                                   "last"
                                 : "\"%s\" exists: set overwrite to replace "
                                   "it or append to continue it",
                             st->path);
    if (!p->append && !p->overwrite && !st->told) {
        st->told = true;
        pen_log_write(pen_module_log(m), PEN_LOG_WARN, "pen.modules",
                      "%s: \"%s\" exists: numbered files are written over",
                      pen_module_id(m), st->path);
    }
    return PEN_OK;
}

static enum pen_status set_path(struct state *st, uint64_t number,
                                struct pen_error *err)
{
    const struct stk_pattern *pattern = &st->pattern;
    if (!stk_pattern_name(pattern, number, st->name, sizeof(st->name))) {
        if (pattern->kind == STK_PATTERN_NUMBERED && number > pattern->max)
            return pen_error_set(err, PEN_E_LIMIT, 0, "",
                                 "number %llu does not fit the %u digits of "
                                 "\"%s\"",
                                 (unsigned long long)number, pattern->digits,
                                 pattern->text);
        return pen_error_set(err, PEN_E_IO, ENAMETOOLONG, "",
                             "a file's name has at most %d bytes", NAME_MAX);
    }
    if (snprintf(st->path, sizeof(st->path), "%.*s%s", (int)pattern->folder,
                 pattern->text, st->name) >= (int)sizeof(st->path))
        return pen_error_set(err, PEN_E_IO, ENAMETOOLONG, "",
                             "a path has at most %d bytes", PATH_MAX - 1);
    return PEN_OK;
}

static enum pen_status open_module(struct pen_module *m, struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct state *st = pen_module_state(m);
    char folder[PATH_MAX];

    st->folder = -1;
    st->opened = true;
    const char *wrong = stk_pattern_parse(p->pattern, &st->pattern);
    if (wrong)
        return pen_error_set(err, PEN_E_CONFIG, 0, "", "\"%s\" %s", p->pattern,
                             wrong);

    // Before the first frame is written, let alone an old one lost.
    const uint64_t expected = stk_module_expected_frames(m);
    if (st->pattern.kind == STK_PATTERN_NUMBERED && expected > 0)
        PEN_TRY(set_path(st, (uint64_t)p->start_index + expected - 1, err));
    PEN_TRY(set_path(st, (uint64_t)p->start_index, err));
    if (!stk_pattern_folder(&st->pattern, folder, sizeof(folder)))
        return pen_error_set(err, PEN_E_IO, ENAMETOOLONG, "",
                             "a path has at most %d bytes", PATH_MAX - 1);
    PEN_TRY(stk_folder_open(folder, true, &st->folder, err));
    PEN_TRY(look(m, st, err));
    return st->special ? PEN_OK : check_writers(m, st, err);
}

static enum pen_status begin(struct pen_module *m, struct state *st,
                             struct pen_error *err)
{
    if (st->file_open)
        return PEN_OK;
    PEN_TRY(look(m, st, err));
    st->file = (struct stk_file_out){
        .folder = st->folder,
        .name = st->name,
        .path = st->path,
        .mode = mode_of(st, pen_module_params(m)),
        .fd = -1,
    };
    PEN_TRY(stk_file_begin(&st->file, err));
    st->file_open = true;
    return PEN_OK;
}

static enum pen_status write_rows(struct state *st,
                                  const struct pen_plane *plane,
                                  struct pen_error *err)
{
    if (plane->pitch == plane->row_bytes) {
        struct iovec all = { plane->host,
                             plane->row_bytes * (size_t)plane->rows };
        return stk_file_write(&st->file, &all, 1, err);
    }
    for (int32_t y = 0; y < plane->rows; y += ROWS_AT_ONCE) {
        struct iovec rows[ROWS_AT_ONCE];
        const int32_t left = plane->rows - y;
        const int32_t count = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        for (int32_t i = 0; i < count; i++)
            rows[i] = (struct iovec){ (char *)plane->host +
                                          (size_t)(y + i) * plane->pitch,
                                      plane->row_bytes };
        PEN_TRY(stk_file_write(&st->file, rows, (size_t)count, err));
    }
    return PEN_OK;
}

static enum pen_status write_frame(struct state *st, const struct pen_io *io,
                                   struct pen_error *err)
{
    struct pen_frame *frame = pen_input(io, 0);
    struct pen_view v;

    PEN_TRY(pen_acquire(io, frame, PEN_ON_HOST, PEN_READ, &v, err));
    if (pen_frame_caps(frame)->kind != PEN_KIND_RAW_IMAGE) {
        struct iovec all = { v.plane[0].host, pen_frame_bytes(frame) };
        return stk_file_write(&st->file, &all, 1, err);
    }
    for (uint32_t i = 0; i < v.planes; i++)
        PEN_TRY(write_rows(st, &v.plane[i], err));
    return PEN_OK;
}

static enum pen_status process(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err)
{
    const struct params *p = pen_module_params(m);
    struct state *st = pen_module_state(m);

    if (!st->file_open)
        PEN_TRY(set_path(st, (uint64_t)p->start_index + pen_io_index(io), err));
    PEN_TRY(begin(m, st, err));
    const enum pen_status status = write_frame(st, io, err);
    if (status != PEN_OK) {
        stk_file_abort(&st->file);
        st->file_open = false;
        return status;
    }
    st->written++;
    // Who reads a FIFO takes its closing for the end of all.
    if (st->file.direct && st->pattern.kind == STK_PATTERN_PLAIN)
        return PEN_OK;
    st->file_open = false;
    return stk_file_commit(&st->file, err);
}

static enum pen_status drain(struct pen_module *m, struct pen_error *err)
{
    struct state *st = pen_module_state(m);
    if (!st->file_open)
        return PEN_OK;
    st->file_open = false;
    return stk_file_commit(&st->file, err);
}

static void close_module(struct pen_module *m)
{
    struct state *st = pen_module_state(m);
    if (st->file_open)
        stk_file_abort(&st->file);
    if (st->opened && st->folder >= 0)
        close(st->folder);
    free(st->inputs);
}

static const char *const tags[] = {
    "function:write", "backend:cpu", "media:any", "sink",
    "file",           "writer",      NULL,
};

const struct pen_module_class stk_class_file_writer = {
    .abi = PEN_MODULE_ABI,
    .size = sizeof(struct pen_module_class),
    .name = "FileWriterModule",
    .version = "1.0",
    .summary = "Writes frames as files.",
    .category = PEN_CATEGORY_SINK,
    .flags = PEN_CLASS_BLOCKS,
    .tags = tags,
    .inputs = inputs,
    .props = props,
    .params_size = sizeof(struct params),
    .state_size = sizeof(struct state),
    .ops = {
        .check = check,
        .open = open_module,
        .process = process,
        .drain = drain,
        .close = close_module,
    },
};
