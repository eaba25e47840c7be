// The modules on the host, in pipelines: files, test pictures, codecs.

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <png.h>

#include "mod_world.h"
#include "pictures.h"

// --- helpers ----------------------------------------------------------------

// The linker sends the modules' reads through here (--wrap): something can
// happen to a file between its length being looked at and its being read.
static void (*before_read)(void);
ssize_t __real_preadv64(int fd, const struct iovec *parts, int count, off_t at);
ssize_t __wrap_preadv64(int fd, const struct iovec *parts, int count, off_t at);
ssize_t __wrap_preadv64(int fd, const struct iovec *parts, int count, off_t at)
{
    void (*call)(void) = before_read;
    before_read = NULL;
    if (call)
        call();
    return __real_preadv64(fd, parts, count, at);
}

static size_t tight_bytes(enum pen_format format, int w, int h)
{
    struct pen_layout layout;
    const struct pen_caps caps = {
        .kind = PEN_KIND_RAW_IMAGE, .format = format, .width = w, .height = h
    };
    assert_int_equal(pen_layout_compute(&caps, 1, &layout, NULL), PEN_OK);
    return layout.bytes;
}

static void write_random(const char *path, size_t bytes, uint64_t seed)
{
    uint8_t *data = malloc(bytes ? bytes : 1);
    assert_non_null(data);
    for (size_t i = 0; i < bytes; i++)
        data[i] = (uint8_t)pen_test_random(&seed);
    pen_test_write_file(path, data, bytes);
    free(data);
}

static void write_jpeg(const char *path, int w, int h,
                       const struct jpeg_options *o)
{
    uint8_t *samples = malloc((size_t)w * (size_t)h * 4);
    assert_non_null(samples);
    for (int i = 0; i < w * h * 4; i++)
        samples[i] = (uint8_t)(i * 7 / (w + 1));
    struct bytes b = jpeg_make(samples, w, h, o);
    pen_test_write_file(path, b.data, b.length);
    bytes_free(&b);
    free(samples);
}

static const struct jpeg_options plain_jpeg;

// reader -> writer, with the properties of both.
static struct outcome copy(const char *reader, const char *writer)
{
    return mod_run("{'modules':{'r':{'type':'FileReaderModule','props':{%s}},"
                   "'w':{'type':'FileWriterModule','props':{%s}}},"
                   "'connections':[{'from':'r','to':'w'}]}",
                   reader, writer);
}

static const char *prop(const char *folder, const char *name, const char *more)
{
    static char texts[4][1024];
    static unsigned turn;
    char *text = texts[turn++ % 4];
    snprintf(text, sizeof(texts[0]), "'strFullFileNameWithPattern':'%s/%s'%s",
             folder, name, more);
    return text;
}

static void ok(struct outcome o)
{
    if (o.status != PEN_OK)
        fail_msg("%s: %s: %s\n%s%s", pen_status_name(o.status), o.err.where,
                 o.err.text, o.issues, o.log);
    outcome_free(&o);
}

static void expect(struct outcome o, enum pen_status status, const char *text)
{
    mod_expect(&o, status, text);
}

// --- raw files --------------------------------------------------------------

PEN_TEST(raw_frames_of_every_format_come_back_byte_for_byte)
{
    static const int sizes[][2] = {
        { 1, 1 }, { 7, 5 }, { 64, 3 }, { 333, 20 }
    };
    (void)test_state;
    const char *f = pen_test_folder();
    for (int format = 1; format < PEN_FMT_COUNT; format++) {
        if (!pen_format_info((enum pen_format)format))
            continue;
        for (int s = 0; s < 4; s++) {
            const int w = sizes[s][0], h = sizes[s][1];
            const size_t bytes = tight_bytes((enum pen_format)format, w, h);
            char more[160];
            write_random(in(f, "in.raw"), 3 * bytes, (uint64_t)format);
            snprintf(more, sizeof(more),
                     ",'width':%d,'height':%d,'format':'%s'", w, h,
                     pen_format_info((enum pen_format)format)->name);
            struct outcome o = copy(prop(f, "in.raw", more),
                                    prop(f, "out.raw", ",'append':true"));
            if (o.status != PEN_OK)
                fail_msg("%s", o.err.text);
            assert_int_equal(o.stats.frames, 3);
            outcome_free(&o);
            same_files(in(f, "in.raw"), in(f, "out.raw"));
            unlink(in(f, "out.raw"));
        }
    }
}

PEN_TEST(padded_rows_are_read_with_row_bytes)
{
    (void)test_state;
    const char *f = pen_test_folder();
    static const struct {
        const char *format;
        int w, h, row, planes;
        int pitch[3], bytes[3], rows[3];
    } cases[] = {
        { "RGB", 5, 4, 32, 1, { 32 }, { 15 }, { 4 } },
        { "YUV420", 5, 3, 9, 3, { 9, 5, 5 }, { 5, 3, 3 }, { 3, 2, 2 } },
        { "NV12", 5, 3, 9, 2, { 9, 10 }, { 5, 6 }, { 3, 2 } },
        { "YUV444", 5, 3, 8, 3, { 8, 8, 8 }, { 5, 5, 5 }, { 3, 3, 3 } },
    };
    for (size_t i = 0; i < 4; i++) {
        uint8_t padded[1024], tight[1024];
        size_t n = 0, m = 0;
        uint64_t seed = i + 1;
        for (int frame = 0; frame < 2; frame++) {
            for (int p = 0; p < cases[i].planes; p++) {
                for (int y = 0; y < cases[i].rows[p]; y++) {
                    for (int x = 0; x < cases[i].pitch[p]; x++) {
                        padded[n] = (uint8_t)pen_test_random(&seed);
                        if (x < cases[i].bytes[p])
                            tight[m++] = padded[n];
                        n++;
                    }
                }
            }
        }
        char more[160];
        pen_test_write_file(in(f, "padded.raw"), padded, n);
        pen_test_write_file(in(f, "tight.raw"), tight, m);
        snprintf(more, sizeof(more),
                 ",'width':%d,'height':%d,'format':'%s','rowBytes':%d",
                 cases[i].w, cases[i].h, cases[i].format, cases[i].row);
        ok(copy(prop(f, "padded.raw", more),
                prop(f, "out.raw", ",'append':true")));
        same_files(in(f, "tight.raw"), in(f, "out.raw"));
        unlink(in(f, "out.raw"));
    }
}

PEN_TEST(a_length_that_is_no_whole_number_of_frames_names_both_sizes)
{
    (void)test_state;
    const char *f = pen_test_folder();
    write_random(in(f, "in.raw"), 301, 1);
    for (int probe = 0; probe < 2; probe++) {
        mod_options.probe = probe;
        expect(copy(prop(f, "in.raw", ",'width':10,'height':10,'format':'RGB'"),
                    prop(f, "out.raw", "")),
               probe ? PEN_E_CONFIG : PEN_E_DATA,
               "301 bytes, but a frame of RGB 10x10 takes 300");
        mod_options.probe = false;
        assert_false(file_exists(in(f, "out.raw")));
    }
    expect(copy(prop(f, "in.raw",
                     ",'width':10,'height':10,'format':'RGB','rowBytes':29"),
                prop(f, "out.raw", "")),
           PEN_E_CONFIG, "rowBytes is 29, but a row of 10 pixels takes 30");
}

PEN_TEST(raw_pictures_without_their_shape_are_refused_by_name)
{
    (void)test_state;
    const char *f = pen_test_folder();
    write_random(in(f, "in.raw"), 300, 1);
    expect(copy(prop(f, "in.raw", ",'outputFrameType':'RawImage'"),
                prop(f, "out.raw", "")),
           PEN_E_CONFIG, "E205 /modules/r/props/width");
    expect(copy(prop(f, "in.raw", ",'width':10,'height':10"),
                prop(f, "out.raw", "")),
           PEN_E_CONFIG, "E205 /modules/r/props/format");
    expect(copy(prop(f, "in.raw",
                     ",'outputFrameType':'RawImagePlanar','width':10,"
                     "'format':'NV12'"),
                prop(f, "out.raw", "")),
           PEN_E_CONFIG, "E205 /modules/r/props/height");
}

// --- sequences --------------------------------------------------------------

static void numbered(const char *f, const int *numbers, int count)
{
    for (int i = 0; i < count; i++) {
        char name[32], text[32];
        snprintf(name, sizeof(name), "%04d.txt", numbers[i]);
        snprintf(text, sizeof(text), "<%d>", numbers[i]);
        pen_test_write_file(in(f, name), text, strlen(text));
    }
}

static void file_holds(const char *path, const char *text)
{
    size_t n = 0;
    char *data = pen_test_read_file(path, &n);
    if (strcmp(data, text) != 0)
        fail_msg("%s holds \"%s\", not \"%s\"", path, data, text);
    free(data);
}

PEN_TEST(holes_are_skipped_counted_and_told)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 3, 1, 7 }, 3);
    struct outcome o = copy(prop(f, "????.txt", ",'startIndex':1"),
                            prop(f, "out", ",'append':true"));
    if (o.status != PEN_OK)
        fail_msg("%s", o.err.text);
    assert_non_null(strstr(o.log, "r: 4 numbers of"));
    outcome_free(&o);
    file_holds(in(f, "out"), "<1><3><7>");
}

PEN_TEST(a_sequence_keeps_to_its_first_and_last_number)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0, 1, 2, 3, 4, 5 }, 6);
    ok(copy(prop(f, "????.txt", ",'startIndex':2,'maxIndex':4"),
            prop(f, "out", ",'append':true")));
    file_holds(in(f, "out"), "<2><3><4>");
    ok(copy(prop(f, "*.txt", ""), prop(f, "all", ",'append':true")));
    file_holds(in(f, "all"), "<0><1><2><3><4><5>");
}

PEN_TEST(a_loop_begins_again_until_the_source_is_stopped)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0, 1, 2 }, 3);
    mod_options.frames = 8;
    ok(copy(prop(f, "????.txt", ",'readLoop':true"),
            prop(f, "out", ",'append':true")));
    file_holds(in(f, "out"), "<0><1><2><0><1><2><0><1>");
    ok(copy(prop(f, "0001.txt", ",'readLoop':true"),
            prop(f, "one", ",'append':true")));
    mod_options.frames = 0;
    file_holds(in(f, "one"), "<1><1><1><1><1><1><1><1>");
}

PEN_TEST(patterns_that_cannot_be_are_refused_before_the_start)
{
    (void)test_state;
    const char *f = pen_test_folder();
    static const struct {
        const char *reader, *more, *writer, *text;
    } cases[] = {
        { "a?b?.txt", "", "out", "E204 /modules/r/props/str" },
        { "????.txt", ",'startIndex':10000", "out",
          "E202 /modules/r/props/startIndex" },
        { "??.txt", ",'maxIndex':100", "out",
          "E202 /modules/r/props/maxIndex" },
        { "??.txt", ",'startIndex':5,'maxIndex':4", "out",
          "E202 /modules/r/props/maxIndex" },
        { "a.txt", "", "o?t?", "E204 /modules/w/props/str" },
        { "a.txt", "", "o*t*", "E204 /modules/w/props/str" },
        { "a.txt", "", "o??_*", "E204 /modules/w/props/str" },
        { "a.txt", "", "w?','startIndex':10,'#':'",
          "E202 /modules/w/props/startIndex" },
        { "a.txt", "", "o','append':true,'overwrite':true,'#':'",
          "E203 /modules/w/props/overwrite" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect(copy(prop(f, cases[i].reader, cases[i].more),
                    prop(f, cases[i].writer, "")),
               PEN_E_CONFIG, cases[i].text);
        assert_int_equal(folder_entries(f), 0);
    }
}

// --- what can be wrong with an input ----------------------------------------

PEN_TEST(inputs_that_cannot_be_read_are_named)
{
    (void)test_state;
    const char *f = pen_test_folder();
    assert_int_equal(mkdir(in(f, "folder"), 0777), 0);
    assert_int_equal(mkfifo(in(f, "fifo"), 0666), 0);
    pen_test_write_file(in(f, "empty"), "", 0);
    static const struct {
        const char *name, *text;
        enum pen_status status;
    } cases[] = {
        { "none.jpg", "/none.jpg: No such file", PEN_E_CONFIG },
        { "folder", "is a folder", PEN_E_CONFIG },
        { "fifo", "is no regular file", PEN_E_IO },
        { "empty", "is empty", PEN_E_DATA },
        { "????.jpg", "no file matches", PEN_E_IO },
        { "no/*.jpg", "cannot read folder", PEN_E_IO },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        expect(copy(prop(f, cases[i].name, ""), prop(f, "out", "")),
               cases[i].status, cases[i].text);
        assert_false(file_exists(in(f, "out")));
    }
}

static const char *changing;

static void shrink(void)
{
    assert_int_equal(truncate(changing, 1000), 0);
}

static void enlarge(void)
{
    const int fd = open(changing, O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "more", 4), 4);
    close(fd);
}

PEN_TEST(a_file_that_changes_while_it_is_read_is_an_error)
{
    (void)test_state;
    const char *f = pen_test_folder();
    static const char *const shapes[] = {
        "", ",'width':50,'height':20,'format':'RGB'"
    };
    for (int k = 0; k < 4; k++) {
        write_random(in(f, "in"), 3000, 1);
        changing = in(f, "in");
        before_read = k & 1 ? enlarge : shrink;
        expect(copy(prop(f, "in", shapes[k / 2]), prop(f, "out", "")), PEN_E_IO,
               k & 1 ? "grew while it was read: from 3000 to 3004"
                     : "shrank while it was read: from 3000 to 1000");
        assert_false(file_exists(in(f, "out")));
    }
}

PEN_TEST(a_frame_that_cannot_be_read_is_dropped_and_counted)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0, 1, 2, 3, 4 }, 5);
    pen_test_write_file(in(f, "0000.txt"), "", 0);
    pen_test_write_file(in(f, "0002.txt"), "", 0);
    pen_test_write_file(in(f, "0004.txt"), "", 0);
    struct outcome o =
        copy(prop(f, "????.txt", ",'onError':'drop'"), prop(f, "out-*", ""));
    if (o.status != PEN_OK)
        fail_msg("%s", o.err.text);
    assert_int_equal(o.stats.frames, 2);
    assert_int_equal(o.stats.drops, 3);
    outcome_free(&o);
    // A file keeps the number of its frame.
    file_holds(in(f, "out-1"), "<1>");
    file_holds(in(f, "out-3"), "<3>");
    assert_int_equal(folder_entries(f), 7);
}

PEN_TEST(a_failing_read_is_tried_again_as_often_as_told)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0, 2 }, 2);
    pen_test_write_file(in(f, "0001.txt"), "", 0);
    struct outcome o = copy(prop(f, "????.txt", ",'onError':'retry:3'"),
                            prop(f, "out", ",'append':true"));
    assert_non_null(strstr(o.log, "frame 1, try 3 of 3 failed"));
    assert_null(strstr(o.log, "frame 2"));
    mod_expect(&o, PEN_E_DATA, "0001.txt\" is empty");
}

// --- what can be wrong with an output ---------------------------------------

PEN_TEST(a_plain_file_holds_one_frame_unless_told_otherwise)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0, 1, 2 }, 3);
    expect(copy(prop(f, "????.txt", ""), prop(f, "out", "")), PEN_E_IO,
           "holds the frame before");
    file_holds(in(f, "out"), "<0>");
    expect(copy(prop(f, "????.txt", ""), prop(f, "out", "")), PEN_E_IO,
           "exists: set overwrite");
    file_holds(in(f, "out"), "<0>");
    ok(copy(prop(f, "????.txt", ""), prop(f, "out", ",'overwrite':true")));
    file_holds(in(f, "out"), "<2>");
    ok(copy(prop(f, "????.txt", ""), prop(f, "out", ",'append':true")));
    file_holds(in(f, "out"), "<2><0><1><2>");
    assert_int_equal(folder_entries(f), 4);
}

PEN_TEST(numbered_files_are_written_over_with_one_notice)
{
    (void)test_state;
    const char *f = pen_test_folder();
    const char *g = pen_test_folder();
    numbered(f, (const int[]){ 5, 6 }, 2);
    pen_test_write_file(in(g, "00.x"), "old", 3);
    pen_test_write_file(in(g, "01.x"), "old", 3);
    struct outcome o = copy(prop(f, "????.txt", ""), prop(g, "??.x", ""));
    if (o.status != PEN_OK)
        fail_msg("%s", o.err.text);
    const char *notice = strstr(o.log, "numbered files are written over");
    assert_non_null(notice);
    assert_null(strstr(notice + 1, "numbered files are written over"));
    outcome_free(&o);
    file_holds(in(g, "00.x"), "<5>");
    file_holds(in(g, "01.x"), "<6>");
    assert_int_equal(folder_entries(g), 2);

    o = copy(prop(f, "????.txt", ""), prop(g, "??.x", ",'overwrite':true"));
    assert_int_equal(o.status, PEN_OK);
    assert_null(strstr(o.log, "written over"));
    outcome_free(&o);
    ok(copy(prop(f, "????.txt", ""), prop(g, "??.x", ",'startIndex':7")));
    file_holds(in(g, "07.x"), "<5>");
    file_holds(in(g, "08.x"), "<6>");
}

PEN_TEST(an_input_is_never_written_over)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0, 1 }, 2);
    expect(copy(prop(f, "????.txt", ""), prop(f, "????.txt", "")), PEN_E_IO,
           "is an input of this pipeline");
    expect(
        copy(prop(f, "0000.txt", ""), prop(f, "0000.txt", ",'overwrite':true")),
        PEN_E_IO, "is an input of this pipeline");
    expect(copy(prop(f, "*.txt", ""), prop(f, "0001.txt", ",'append':true")),
           PEN_E_IO, "is an input of this pipeline");
    // By another name.
    assert_int_equal(link(in(f, "0001.txt"), in(f, "other")), 0);
    expect(copy(prop(f, "????.txt", ""), prop(f, "other", ",'overwrite':true")),
           PEN_E_IO, "is an input of this pipeline");
    file_holds(in(f, "0000.txt"), "<0>");
    file_holds(in(f, "0001.txt"), "<1>");
    // Numbers that are not read may be written.
    ok(copy(prop(f, "????.txt", ",'maxIndex':0"),
            prop(f, "????.txt", ",'startIndex':1")));
    file_holds(in(f, "0001.txt"), "<0>");
    assert_int_equal(folder_entries(f), 3);
}

PEN_TEST(links_and_impossible_folders_are_refused_before_the_first_frame)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0 }, 1);
    pen_test_write_file(in(f, "target"), "precious", 8);
    assert_int_equal(symlink("target", in(f, "link")), 0);
    assert_int_equal(symlink("target", in(f, "00.x")), 0);
    expect(copy(prop(f, "0000.txt", ""), prop(f, "link", ",'overwrite':true")),
           PEN_E_IO, "is a link");
    expect(copy(prop(f, "0000.txt", ""), prop(f, "??.x", "")), PEN_E_IO,
           "is a link");
    expect(copy(prop(f, "0000.txt", ""), prop(f, "target/x/out", "")), PEN_E_IO,
           "/target/x\": Not a directory");
    assert_int_equal(mkdir(in(f, "sub"), 0777), 0);
    expect(copy(prop(f, "0000.txt", ""), prop(f, "sub", "")), PEN_E_IO,
           "is a folder");
    file_holds(in(f, "target"), "precious");
    assert_int_equal(folder_entries(f), 5);
}

PEN_TEST(missing_folders_are_made)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0 }, 1);
    ok(copy(prop(f, "0000.txt", ""), prop(f, "a/b/c/out", "")));
    file_holds(in(f, "a/b/c/out"), "<0>");
}

PEN_TEST(a_number_that_does_not_fit_is_an_error)
{
    (void)test_state;
    const char *f = pen_test_folder();
    const char *g = pen_test_folder();
    numbered(f, (const int[]){ 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 }, 12);
    pen_test_write_file(in(g, "0.x"), "old", 3);
    // How many come is known: nothing is overwritten.
    mod_options.probe = true;
    expect(copy(prop(f, "????.txt", ""), prop(g, "?.x", "")), PEN_E_LIMIT,
           "number 11 does not fit the 1 digits");
    mod_options.probe = false;
    file_holds(in(g, "0.x"), "old");
    assert_int_equal(folder_entries(g), 1);
    // It is not known: the tenth frame fails, the first is not overwritten
    // a second time.
    expect(copy(prop(f, "????.txt", ""), prop(g, "?.x", "")), PEN_E_LIMIT,
           "number 10 does not fit the 1 digits");
    file_holds(in(g, "0.x"), "<0>");
    file_holds(in(g, "9.x"), "<9>");
    assert_int_equal(folder_entries(g), 10);
}

PEN_TEST(a_file_size_limit_is_told_and_leaves_nothing)
{
    (void)test_state;
    const char *f = pen_test_folder();
    const char *g = pen_test_folder();
    write_random(in(f, "in"), 20000, 1);
    struct rlimit old, tight;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    tight = old;
    tight.rlim_cur = 5000;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &tight), 0);
    struct outcome o = copy(prop(f, "in", ""), prop(g, "??.out", ""));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(o.err.native, EFBIG);
    mod_expect(&o, PEN_E_IO, "/00.out\": File too large");
    assert_int_equal(folder_entries(g), 0);
}

static void *drink(void *arg)
{
    char *text = calloc(1, 256);
    const int fd = open(arg, O_RDONLY);
    size_t n = 0;
    for (ssize_t got; text && fd >= 0 && n < 255; n += (size_t)got) {
        got = read(fd, text + n, 255 - n);
        if (got <= 0)
            break;
    }
    close(fd);
    return text;
}

PEN_TEST(all_frames_go_through_one_opening_of_a_fifo)
{
    (void)test_state;
    const char *f = pen_test_folder();
    numbered(f, (const int[]){ 0, 1, 2, 3 }, 4);
    char fifo[512];
    snprintf(fifo, sizeof(fifo), "%s/fifo", f);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pthread_t reader;
    assert_int_equal(pthread_create(&reader, NULL, drink, fifo), 0);
    ok(copy(prop(f, "????.txt", ""), prop(f, "fifo", "")));
    void *text = NULL;
    pthread_join(reader, &text);
    assert_string_equal(text, "<0><1><2><3>");
    free(text);
}

// --- test pictures ----------------------------------------------------------

static void generate(const char *pattern, int w, int h, int frames,
                     const char *f)
{
    ok(mod_run("{'modules':{'s':{'type':'TestSignalGenerator','props':{"
               "'width':%d,'height':%d,'pattern':'%s','maxFrames':%d}},"
               "'w':{'type':'FileWriterModule','props':{%s}}},"
               "'connections':[{'from':'s','to':'w'}]}",
               w, h, pattern, frames, prop(f, "s.raw", ",'append':true")));
}

PEN_TEST(the_gradient_is_that_of_the_golden_files)
{
    (void)test_state;
    const char *f = pen_test_folder();
    generate("GRADIENT", 400, 400, 1, f);
    same_files(in(f, "s.raw"), pen_test_data("TestSample.raw"));
    unlink(in(f, "s.raw"));
    generate("GRADIENT", 640, 360, 1, f);
    same_files(in(f, "s.raw"), pen_test_data("TestSample1.raw"));
}

PEN_TEST(the_gradient_goes_on_into_the_next_frame)
{
    (void)test_state;
    const char *f = pen_test_folder();
    generate("GRADIENT", 10, 300, 4, f);
    size_t n = 0;
    uint8_t *s = pen_test_read_file(in(f, "s.raw"), &n);
    assert_int_equal(n, 4 * 4500);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(s[i], i / 10 % 256);
    free(s);
}

PEN_TEST(the_other_patterns_show_what_they_say)
{
    (void)test_state;
    const char *f = pen_test_folder();
    size_t n = 0;
    generate("CHECKERBOARD", 37, 21, 2, f);
    uint8_t *s = pen_test_read_file(in(f, "s.raw"), &n);
    assert_int_equal(n, 2 * (37 * 21 + 2 * 19 * 11));
    for (int y = 0; y < 21; y++) {
        for (int x = 0; x < 37; x++)
            assert_int_equal(s[y * 37 + x], (x / 8 + y / 8) & 1 ? 16 : 235);
    }
    for (int i = 37 * 21; i < 37 * 21 + 2 * 19 * 11; i++)
        assert_int_equal(s[i], 128);
    assert_memory_equal(s, s + n / 2, n / 2);
    free(s);
    unlink(in(f, "s.raw"));

    static const uint8_t bars[3][8] = {
        { 235, 210, 170, 145, 106, 81, 41, 16 },
        { 128, 16, 166, 54, 202, 90, 240, 128 },
        { 128, 146, 16, 34, 222, 240, 110, 128 },
    };
    generate("COLOR_BARS", 160, 4, 1, f);
    s = pen_test_read_file(in(f, "s.raw"), &n);
    for (int x = 0; x < 160; x++) {
        for (int y = 0; y < 4; y++)
            assert_int_equal(s[y * 160 + x], bars[0][x / 20]);
    }
    for (int x = 0; x < 80; x++) {
        assert_int_equal(s[640 + x], bars[1][x / 10]);
        assert_int_equal(s[640 + 160 + x], bars[2][x / 10]);
    }
    free(s);
    unlink(in(f, "s.raw"));

    generate("GRID", 80, 40, 1, f);
    s = pen_test_read_file(in(f, "s.raw"), &n);
    for (int y = 0; y < 40; y++) {
        for (int x = 0; x < 80; x++) {
            const bool line = x % 20 < 2 || y % 10 < 2;
            const int cell = y / 10 * 4 + x / 20;
            assert_int_equal(s[y * 80 + x], line ? 16 : 16 + 14 * cell);
        }
    }
    assert_int_equal(s[3200], 100);
    assert_int_equal(s[3200 + 39], 156);
    assert_int_equal(s[4000 + 39], 100);
    assert_int_equal(s[4000 + 19 * 40], 156);
    free(s);
    unlink(in(f, "s.raw"));

    static const char *const names[] = { "GRADIENT", "CHECKERBOARD",
                                         "COLOR_BARS", "GRID" };
    for (int i = 0; i < 4; i++) {
        generate(names[i], 1, 1, 2, f);
        s = pen_test_read_file(in(f, "s.raw"), &n);
        assert_int_equal(n, 6);
        free(s);
        unlink(in(f, "s.raw"));
    }
}

PEN_TEST(a_misspelt_pattern_is_an_error)
{
    (void)test_state;
    struct outcome o =
        mod_run("{'modules':{'s':{'type':'TestSignalGenerator','props':{"
                "'width':8,'height':8,'pattern':'GRADENT','maxFrames':1}},"
                "'k':{'type':'StatSink'}},"
                "'connections':[{'from':'s','to':'k'}]}");
    mod_expect(&o, PEN_E_CONFIG, "E203");
}

// --- pictures ---------------------------------------------------------------

static struct outcome decode(const char *reader, const char *more,
                             const char *writer)
{
    return mod_run("{'modules':{'r':{'type':'FileReaderModule','props':{%s}},"
                   "'d':{'type':'ImageDecoderCV','props':{%s}},"
                   "'w':{'type':'FileWriterModule','props':{%s}}},"
                   "'connections':[{'from':'r','to':'d'},"
                   "{'from':'d','to':'w'}]}",
                   reader, more, writer);
}

static size_t file_size(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return (size_t)st.st_size;
}

PEN_TEST(pictures_of_all_sizes_and_kinds_flow_one_after_the_other)
{
    // Smaller, larger, grey and turned: the plan grows, topology stays.
    (void)test_state;
    for (int probe = 0; probe < 2; probe++) {
        const char *f = pen_test_folder();
        write_jpeg(in(f, "a.jpg"), 40, 30, &plain_jpeg);
        write_jpeg(in(f, "b.jpg"), 1, 1, &plain_jpeg);
        write_jpeg(in(f, "c.jpg"), 333, 201, &plain_jpeg);
        write_jpeg(in(f, "d.jpg"), 64, 64,
                   &(struct jpeg_options){ .space = SPACE_GREY });
        write_jpeg(in(f, "e.jpg"), 500, 100,
                   &(struct jpeg_options){ .orientation = 6 });
        mod_options.probe = probe;
        struct outcome o =
            decode(prop(f, "*.jpg", ""), "", prop(f, "??.raw", ""));
        mod_options.probe = false;
        if (o.status != PEN_OK)
            fail_msg("%s: %s", o.err.where, o.err.text);
        assert_int_equal(o.stats.frames, 5);
        assert_non_null(strstr(o.log, "frame 4 is turned"));
        outcome_free(&o);
        assert_int_equal(file_size(in(f, "00.raw")), 40 * 30 * 3);
        assert_int_equal(file_size(in(f, "01.raw")), 3);
        assert_int_equal(file_size(in(f, "02.raw")), 333 * 201 * 3);
        assert_int_equal(file_size(in(f, "03.raw")), 64 * 64);
        assert_int_equal(file_size(in(f, "04.raw")), 500 * 100 * 3);
    }
}

PEN_TEST(orientation_is_applied_unless_told_not_to)
{
    (void)test_state;
    const char *f = pen_test_folder();
    write_jpeg(in(f, "u.jpg"), 24, 16,
               &(struct jpeg_options){ .orientation = 1 });
    write_jpeg(in(f, "t.jpg"), 24, 16,
               &(struct jpeg_options){ .orientation = 6 });
    ok(decode(prop(f, "u.jpg", ""), "", prop(f, "u.raw", "")));
    ok(decode(prop(f, "t.jpg", ""), "", prop(f, "t.raw", "")));
    ok(decode(prop(f, "t.jpg", ""), "'applyOrientation':false",
              prop(f, "n.raw", "")));
    same_files(in(f, "u.raw"), in(f, "n.raw"));
    size_t n = 0;
    uint8_t *u = pen_test_read_file(in(f, "u.raw"), &n);
    uint8_t *t = pen_test_read_file(in(f, "t.raw"), &n);
    for (int y = 0; y < 16; y++) {
        for (int x = 0; x < 24; x++)
            assert_memory_equal(u + (y * 24 + x) * 3, t + (x * 16 + 15 - y) * 3,
                                3);
    }
    free(u);
    free(t);
}

PEN_TEST(damaged_pictures_fail_with_module_frame_and_reason)
{
    (void)test_state;
    const char *f = pen_test_folder();
    write_jpeg(in(f, "00.jpg"), 40, 30, &plain_jpeg);
    write_jpeg(in(f, "01.jpg"), 40, 30, &plain_jpeg);
    assert_int_equal(
        truncate(in(f, "01.jpg"), (off_t)file_size(in(f, "01.jpg")) - 60), 0);
    struct outcome o =
        decode(prop(f, "??.jpg", ""), "", prop(f, "out/??.raw", ""));
    assert_non_null(strstr(o.err.where, "d"));
    mod_expect(&o, PEN_E_DATA, "JPEG is cut off");
    // The frame before it may or may not have been written yet.
    assert_int_equal(folder_entries(in(f, "out")),
                     file_exists(in(f, "out/00.raw")));

    pen_test_write_file(in(f, "text.jpg"), "this is no photo\n", 17);
    expect(decode(prop(f, "text.jpg", ""), "", prop(f, "x.raw", "")),
           PEN_E_DATA, "looks like a text");
    assert_false(file_exists(in(f, "x.raw")));
}

PEN_TEST(a_header_that_claims_too_much_is_refused_before_memory_is_taken)
{
    (void)test_state;
    const char *f = pen_test_folder();
    uint8_t samples[64 * 3] = { 0 };
    struct bytes jpeg = jpeg_make(samples, 8, 8, &plain_jpeg);
    size_t sof = 0;
    while (jpeg.data[sof] != 0xff || jpeg.data[sof + 1] != 0xc0)
        sof++;
    struct bytes png = png_make(
        samples, 8, 8, &(struct png_options){ PNG_COLOR_TYPE_RGB, 8, 0 });
    static const struct {
        uint32_t w, h;
        enum pen_status status;
        const char *text;
    } cases[] = {
        { 65000, 65000, PEN_E_LIMIT, "claims 65000x65000 pixels" },
        { 20000, 20000, PEN_E_DATA, "cannot hold the 20000x20000 pixels" },
    };
    for (int i = 0; i < 4; i++) {
        const uint32_t w = cases[i / 2].w, h = cases[i / 2].h;
        if (i & 1) {
            for (int k = 0; k < 4; k++) {
                png.data[16 + k] = (uint8_t)(w >> (24 - 8 * k));
                png.data[20 + k] = (uint8_t)(h >> (24 - 8 * k));
            }
            png_fix(&png);
            pen_test_write_file(in(f, "x.img"), png.data, png.length);
        } else {
            jpeg.data[sof + 5] = (uint8_t)(h >> 8);
            jpeg.data[sof + 6] = (uint8_t)h;
            jpeg.data[sof + 7] = (uint8_t)(w >> 8);
            jpeg.data[sof + 8] = (uint8_t)w;
            pen_test_write_file(in(f, "x.img"), jpeg.data, jpeg.length);
        }
        for (int probe = 0; probe < 2; probe++) {
            mod_options.probe = probe;
            struct outcome o =
                decode(prop(f, "x.img", ",'outputFrameType':'EncodedImage'"),
                       "", prop(f, "x.raw", ""));
            mod_options.probe = false;
            assert_true(o.stats.memory[PEN_MEM_HOST].peak < 1 << 20);
            mod_expect(&o, cases[i / 2].status, cases[i / 2].text);
        }
    }
    bytes_free(&jpeg);
    bytes_free(&png);
}

PEN_TEST(a_damaged_picture_is_dropped_when_the_user_says_so)
{
    (void)test_state;
    const char *f = pen_test_folder();
    for (int i = 0; i < 5; i++) {
        char name[16];
        snprintf(name, sizeof(name), "%02d.jpg", i);
        if (i % 2 == 0)
            pen_test_write_file(in(f, name), "no photo", 8);
        else
            write_jpeg(in(f, name), 20 * i, 10, &plain_jpeg);
    }
    struct outcome o = decode(prop(f, "??.jpg", ""), "'onError':'drop'",
                              prop(f, "out/??.raw", ""));
    assert_int_equal(o.status, PEN_OK);
    assert_int_equal(o.stats.drops, 3);
    assert_int_equal(o.stats.frames, 2);
    outcome_free(&o);
    assert_int_equal(file_size(in(f, "out/01.raw")), 600);
    assert_int_equal(file_size(in(f, "out/03.raw")), 1800);
    assert_int_equal(folder_entries(in(f, "out")), 2);
}

PEN_TEST(harmless_damage_and_rounding_are_told_once)
{
    (void)test_state;
    const char *f = pen_test_folder();
    uint8_t samples[16 * 16 * 8];
    for (size_t i = 0; i < sizeof(samples); i++)
        samples[i] = (uint8_t)(i * 31);
    struct bytes jpeg = jpeg_make(samples, 16, 16, &plain_jpeg);
    struct bytes png = png_make(
        samples, 16, 16, &(struct png_options){ PNG_COLOR_TYPE_RGB, 16, 0 });
    for (int i = 0; i < 3; i++) {
        char name[16];
        snprintf(name, sizeof(name), "a%d", i);
        pen_test_write_file(in(f, name), jpeg.data, jpeg.length - 2);
        snprintf(name, sizeof(name), "b%d", i);
        pen_test_write_file(in(f, name), png.data, png.length);
    }
    bytes_free(&jpeg);
    bytes_free(&png);
    struct outcome o = decode(prop(f, "*", ",'outputFrameType':'EncodedImage'"),
                              "", prop(f, "out/??.raw", ""));
    if (o.status != PEN_OK)
        fail_msg("%s", o.err.text);
    assert_non_null(
        strstr(o.log, "frame 0 is used though its file is damaged"));
    assert_null(strstr(o.log, "frame 1 is used"));
    assert_non_null(strstr(o.log, "frame 3 has 16 bits a sample"));
    assert_null(strstr(o.log, "frame 4 has"));
    assert_non_null(strstr(o.log, "of 6 pictures 3 came with warnings"));
    outcome_free(&o);
}

PEN_TEST(png_keeps_its_alpha_through_the_pipeline)
{
    (void)test_state;
    const char *f = pen_test_folder();
    uint8_t samples[17 * 9 * 4];
    uint64_t seed = 3;
    for (size_t i = 0; i < sizeof(samples); i++)
        samples[i] = (uint8_t)pen_test_random(&seed);
    struct bytes png =
        png_make(samples, 17, 9,
                 &(struct png_options){ PNG_COLOR_TYPE_RGB_ALPHA, 8, 0 });
    pen_test_write_file(in(f, "a.png"), png.data, png.length);
    pen_test_write_file(in(f, "want.raw"), samples, sizeof(samples));
    bytes_free(&png);
    ok(mod_run("{'modules':{'r':{'type':'FileReaderModule','props':{%s}},"
               "'d':{'type':'ImageDecoderCV'},"
               "'e':{'type':'ImageEncoderCV','props':{'format':'png'}},"
               "'w':{'type':'FileWriterModule','props':{%s}}},"
               "'connections':[{'from':'r','to':'d'},{'from':'d','to':'e'},"
               "{'from':'e','to':'w'}]}",
               prop(f, "a.png", ""), prop(f, "b.png", "")));
    ok(decode(prop(f, "b.png", ""), "", prop(f, "got.raw", "")));
    same_files(in(f, "want.raw"), in(f, "got.raw"));
}

PEN_TEST(sides_that_jpeg_cannot_have_are_refused_by_the_plan)
{
    (void)test_state;
    const char *f = pen_test_folder();
    write_random(in(f, "in.raw"), 65501, 1);
    for (int k = 0; k < 3; k++) {
        struct outcome o = mod_run(
            "{'modules':{'r':{'type':'FileReaderModule','props':{%s}},"
            "'e':{'type':'ImageEncoderCV','props':{'format':'%s'}},"
            "'w':{'type':'FileWriterModule','props':{%s}}},"
            "'connections':[{'from':'r','to':'e'},{'from':'e','to':'w'}]}",
            prop(f, "in.raw",
                 k == 1 ? ",'width':1,'height':65501,'format':'MONO'"
                        : ",'width':65501,'height':1,'format':'MONO'"),
            k < 2 ? "jpeg" : "png", prop(f, "out", ""));
        if (k == 2) {
            ok(o);
            continue;
        }
        assert_int_equal(o.stage, MOD_NOTHING);
        if (o.status != PEN_E_LIMIT && o.status != PEN_E_CONFIG)
            fail_msg("%s", pen_status_name(o.status));
        mod_expect(&o, o.status, "at most 65500");
        assert_false(file_exists(in(f, "out")));
    }
}

PEN_TEST(quality_makes_files_larger)
{
    (void)test_state;
    const char *f = pen_test_folder();
    write_jpeg(in(f, "a.jpg"), 200, 150, &plain_jpeg);
    size_t before = 0;
    for (int q = 10; q <= 100; q += 30) {
        ok(mod_run("{'modules':{'r':{'type':'FileReaderModule','props':{%s}},"
                   "'d':{'type':'ImageDecoderCV'},"
                   "'e':{'type':'ImageEncoderCV','props':{'quality':%d}},"
                   "'w':{'type':'FileWriterModule','props':{%s}}},"
                   "'connections':[{'from':'r','to':'d'},"
                   "{'from':'d','to':'e'},{'from':'e','to':'w'}]}",
                   prop(f, "a.jpg", ""), q,
                   prop(f, "b.jpg", ",'overwrite':true")));
        assert_true(file_size(in(f, "b.jpg")) > before);
        before = file_size(in(f, "b.jpg"));
    }
}

PEN_TEST_MAIN(
    PEN_CASE(raw_frames_of_every_format_come_back_byte_for_byte),
    PEN_CASE(padded_rows_are_read_with_row_bytes),
    PEN_CASE(a_length_that_is_no_whole_number_of_frames_names_both_sizes),
    PEN_CASE(raw_pictures_without_their_shape_are_refused_by_name),
    PEN_CASE(holes_are_skipped_counted_and_told),
    PEN_CASE(a_sequence_keeps_to_its_first_and_last_number),
    PEN_CASE(a_loop_begins_again_until_the_source_is_stopped),
    PEN_CASE(patterns_that_cannot_be_are_refused_before_the_start),
    PEN_CASE(inputs_that_cannot_be_read_are_named),
    PEN_CASE(a_file_that_changes_while_it_is_read_is_an_error),
    PEN_CASE(a_frame_that_cannot_be_read_is_dropped_and_counted),
    PEN_CASE(a_failing_read_is_tried_again_as_often_as_told),
    PEN_CASE(a_plain_file_holds_one_frame_unless_told_otherwise),
    PEN_CASE(numbered_files_are_written_over_with_one_notice),
    PEN_CASE(an_input_is_never_written_over),
    PEN_CASE(links_and_impossible_folders_are_refused_before_the_first_frame),
    PEN_CASE(missing_folders_are_made),
    PEN_CASE(a_number_that_does_not_fit_is_an_error),
    PEN_CASE(a_file_size_limit_is_told_and_leaves_nothing),
    PEN_CASE(all_frames_go_through_one_opening_of_a_fifo),
    PEN_CASE(the_gradient_is_that_of_the_golden_files),
    PEN_CASE(the_gradient_goes_on_into_the_next_frame),
    PEN_CASE(the_other_patterns_show_what_they_say),
    PEN_CASE(a_misspelt_pattern_is_an_error),
    PEN_CASE(pictures_of_all_sizes_and_kinds_flow_one_after_the_other),
    PEN_CASE(orientation_is_applied_unless_told_not_to),
    PEN_CASE(damaged_pictures_fail_with_module_frame_and_reason),
    PEN_CASE(a_header_that_claims_too_much_is_refused_before_memory_is_taken),
    PEN_CASE(a_damaged_picture_is_dropped_when_the_user_says_so),
    PEN_CASE(harmless_damage_and_rounding_are_told_once),
    PEN_CASE(png_keeps_its_alpha_through_the_pipeline),
    PEN_CASE(sides_that_jpeg_cannot_have_are_refused_by_the_plan),
    PEN_CASE(quality_makes_files_larger))
