// The modules of the device against their twins on the CPU and the exact
// references, in pipelines, in all modes of the emulated device.

#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>

#include "gpu_fixture.h"
#include "mod_world.h"
#include "pen_picture.h"
#include "pictures.h"

#include "src/modules/common.h"
#include "src/modules/modules.h"
#include "src/run/run.h"

// --- helpers ----------------------------------------------------------------

static const char *work;

static const char *name_of(enum pen_format format)
{
    return pen_format_info(format)->name;
}

// A raw file of noise; `p` is its picture in memory.
static const char *noise(struct pen_picture *p, enum pen_format format, int w,
                         int h)
{
    static char path[512];
    pen_picture_make(p, format, w, h, 0, 0);
    pen_picture_noise(p, (uint64_t)format * 31 + (uint64_t)w);
    const size_t bytes = ref_bytes(format, w, h);
    uint8_t *tight = malloc(bytes);
    assert_non_null(tight);
    pen_picture_tight(p, tight);
    snprintf(path, sizeof(path), "%s/in.raw", work);
    pen_test_write_file(path, tight, bytes);
    free(tight);
    return path;
}

// The file holds what is within `limit` of the exact samples.
static void near(const char *path, const double *exact, size_t bytes,
                 double limit)
{
    size_t n = 0;
    uint8_t *got = pen_test_read_file(path, &n);
    assert_int_equal(n, bytes);
    for (size_t i = 0; i < n; i++) {
        const double d = got[i] - exact[i];
        if (d > limit || d < -limit)
            fail_msg("%s: byte %zu is %u, exactly %g", path, i, got[i],
                     exact[i]);
    }
    free(got);
}

// One source, each target by both modules, into files.
static void both(struct outcome *o, const char *file, enum pen_format format,
                 int w, int h, const char *cpu, const char *cuda,
                 const char *props)
{
    *o = mod_must(
        "{'modules':{'s':{'type':'FileReaderModule','props':{"
        "'strFullFileNameWithPattern':'%s','width':%d,'height':%d,"
        "'format':'%s'}},"
        "'c':{'type':'%s','props':{%s}},'g':{'type':'%s','props':{%s}},"
        "'wc':{'type':'FileWriterModule','props':{"
        "'strFullFileNameWithPattern':'%s/cpu.raw','overwrite':true}},"
        "'wg':{'type':'FileWriterModule','props':{"
        "'strFullFileNameWithPattern':'%s/gpu.raw','overwrite':true}}},"
        "'connections':[{'from':'s','to':'c'},{'from':'s','to':'g'},"
        "{'from':'c','to':'wc'},{'from':'g','to':'wg'}]}",
        file, w, h, name_of(format), cpu, props, cuda, props, work, work);
    same_files(in(work, "cpu.raw"), in(work, "gpu.raw"));
    // The picture went up once and came back once.
    assert_int_equal(o->stats.h2d.count, 1);
    assert_int_equal(o->stats.d2h.count, 1);
    assert_int_equal(o->stats.d2d.count, 0);
}

// --- conversion -------------------------------------------------------------

static void convert_all(void)
{
    static const int sizes[][2] = { { 33, 19 }, { 1, 1 } };
    work = pen_test_folder();
    for (int s = 0; s < 2; s++) {
        const int w = sizes[s][0], h = sizes[s][1];
        for (int i = 0; i < 11; i++) {
            const enum pen_format from = pen_picture_formats[i];
            struct pen_picture p;
            const char *file = noise(&p, from, w, h);
            const bool yuv = PEN_FMT_BIT(from) & PEN_FMT_BITS_YUV;
            for (int k = 0; k < 11; k++) {
                const enum pen_format to = pen_picture_formats[k];
                if (to == from)
                    continue;
                char props[64];
                snprintf(props, sizeof(props), "'imageType':'%s'", name_of(to));
                struct outcome o;
                both(&o, file, from, w, h, "ColorConversion", "CCNPPI", props);
                outcome_free(&o);
                const size_t bytes = ref_bytes(to, w, h);
                double *exact = calloc(bytes, sizeof(*exact));
                assert_non_null(exact);
                ref_convert(&p.ref, PEN_MATRIX_BT601,
                            yuv ? PEN_RANGE_LIMITED : PEN_RANGE_FULL, to,
                            PEN_FMT_BIT(to) & PEN_FMT_BITS_YUV
                                ? PEN_RANGE_LIMITED
                                : PEN_RANGE_FULL,
                            exact);
                near(in(work, "cpu.raw"), exact, bytes, 1.0);
                free(exact);
            }
            pen_picture_free(&p);
        }
    }
}

PEN_TEST(all_110_conversions_are_the_same_on_both_sides_and_exact)
{
    (void)test_state;
    // The mode of the device makes no difference to the pixels of one frame:
    // the other tests go through all of them.
    convert_all();
}

PEN_TEST(range_and_matrix_reach_the_conversion)
{
    (void)test_state;
    work = pen_test_folder();
    static const struct {
        const char *reader, *props;
        enum pen_format from, to;
        enum pen_matrix matrix;
        enum pen_range src, dst;
        int h;
    } cases[] = {
        { "", "'imageType':'YUV444','range':'full'", PEN_FMT_RGB,
          PEN_FMT_YUV444, PEN_MATRIX_BT601, PEN_RANGE_FULL, PEN_RANGE_FULL, 9 },
        { ",'matrix':'bt709'", "'imageType':'YUV444'", PEN_FMT_RGB,
          PEN_FMT_YUV444, PEN_MATRIX_BT709, PEN_RANGE_FULL, PEN_RANGE_LIMITED,
          9 },
        { ",'matrix':'bt2020','range':'full'", "'imageType':'RGB'",
          PEN_FMT_YUV444, PEN_FMT_RGB, PEN_MATRIX_BT2020, PEN_RANGE_FULL,
          PEN_RANGE_FULL, 9 },
        // By the rule: 720 rows and more are bt709 limited.
        { "", "'imageType':'RGB'", PEN_FMT_YUV444, PEN_FMT_RGB,
          PEN_MATRIX_BT709, PEN_RANGE_LIMITED, PEN_RANGE_FULL, 720 },
        { "", "'imageType':'RGB'", PEN_FMT_YUV444, PEN_FMT_RGB,
          PEN_MATRIX_BT601, PEN_RANGE_LIMITED, PEN_RANGE_FULL, 719 },
        { ",'range':'full'", "'imageType':'NV12'", PEN_FMT_YUV420, PEN_FMT_NV12,
          PEN_MATRIX_BT601, PEN_RANGE_FULL, PEN_RANGE_FULL, 9 },
        { ",'range':'full'", "'imageType':'NV12','range':'limited'",
          PEN_FMT_YUV420, PEN_FMT_NV12, PEN_MATRIX_BT601, PEN_RANGE_FULL,
          PEN_RANGE_LIMITED, 9 },
        // The same format in another range is a conversion too.
        { ",'range':'full'", "'imageType':'YUV420','range':'limited'",
          PEN_FMT_YUV420, PEN_FMT_YUV420, PEN_MATRIX_BT601, PEN_RANGE_FULL,
          PEN_RANGE_LIMITED, 9 },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int w = 7, h = cases[i].h;
        struct pen_picture p;
        const char *file = noise(&p, cases[i].from, w, h);
        struct outcome o = mod_must(
            "{'modules':{'s':{'type':'FileReaderModule','props':{"
            "'strFullFileNameWithPattern':'%s','width':%d,'height':%d,"
            "'format':'%s'%s}},"
            "'c':{'type':'ColorConversion','props':{%s}},"
            "'g':{'type':'CCNPPI','props':{%s}},"
            "'wc':{'type':'FileWriterModule','props':{"
            "'strFullFileNameWithPattern':'%s/cpu.raw','overwrite':true}},"
            "'wg':{'type':'FileWriterModule','props':{"
            "'strFullFileNameWithPattern':'%s/gpu.raw','overwrite':true}}},"
            "'connections':[{'from':'s','to':'c'},{'from':'s','to':'g'},"
            "{'from':'c','to':'wc'},{'from':'g','to':'wg'}]}",
            file, w, h, name_of(cases[i].from), cases[i].reader, cases[i].props,
            cases[i].props, work, work);
        outcome_free(&o);
        same_files(in(work, "cpu.raw"), in(work, "gpu.raw"));
        const size_t bytes = ref_bytes(cases[i].to, w, h);
        double *exact = calloc(bytes, sizeof(*exact));
        assert_non_null(exact);
        ref_convert(&p.ref, cases[i].matrix, cases[i].src, cases[i].to,
                    cases[i].dst, exact);
        near(in(work, "cpu.raw"), exact, bytes, 1.0);
        free(exact);
        pen_picture_free(&p);
    }
}

PEN_TEST(bayer_becomes_rgb_and_mono_on_the_cpu)
{
    static const struct {
        const char *props;
        enum pen_format from, to;
    } cases[] = {
        { "'conversionType':'BAYERBG8_TO_RGB'", PEN_FMT_BAYERBG8, PEN_FMT_RGB },
        { "'conversionType':'BAYERGB8_TO_RGB'", PEN_FMT_BAYERGB8, PEN_FMT_RGB },
        { "'conversionType':'BAYERGR8_TO_RGB'", PEN_FMT_BAYERGR8, PEN_FMT_RGB },
        { "'conversionType':'BAYERRG8_TO_RGB'", PEN_FMT_BAYERRG8, PEN_FMT_RGB },
        { "'conversionType':'BAYERBG8_TO_MONO'", PEN_FMT_BAYERBG8,
          PEN_FMT_MONO },
        { "'imageType':'RGB'", PEN_FMT_BAYERGR8, PEN_FMT_RGB },
    };
    (void)test_state;
    work = pen_test_folder();
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const int w = 27, h = 16 + (int)i;
        struct pen_picture p;
        const char *file = noise(&p, cases[i].from, w, h);
        struct outcome o = mod_must(
            "{'modules':{'s':{'type':'FileReaderModule','props':{"
            "'strFullFileNameWithPattern':'%s','width':%d,'height':%d,"
            "'format':'%s'}},'c':{'type':'ColorConversion','props':{%s}},"
            "'w':{'type':'FileWriterModule','props':{"
            "'strFullFileNameWithPattern':'%s/cpu.raw','overwrite':true}}},"
            "'connections':[{'from':'s','to':'c'},{'from':'c','to':'w'}]}",
            file, w, h, name_of(cases[i].from), cases[i].props, work);
        outcome_free(&o);
        const size_t bytes = ref_bytes(cases[i].to, w, h);
        double *exact = calloc(bytes, sizeof(*exact));
        assert_non_null(exact);
        ref_bayer(&p.ref, PEN_MATRIX_BT601, cases[i].to, exact);
        near(in(work, "cpu.raw"), exact, bytes, 1.0);
        free(exact);
        pen_picture_free(&p);
    }
}

PEN_TEST(what_has_the_target_format_already_is_handed_on)
{
    // No copy and no conversion: the frame itself leaves.
    (void)test_state;
    work = pen_test_folder();
    struct pen_picture p;
    const char *file = noise(&p, PEN_FMT_RGB, 30, 20);
    struct outcome o;
    both(&o, file, PEN_FMT_RGB, 30, 20, "ColorConversion", "CCNPPI",
         "'imageType':'RGB'");
    assert_int_equal(o.stats.launches, 0);
    outcome_free(&o);
    same_files(file, in(work, "cpu.raw"));
    pen_picture_free(&p);
}

PEN_TEST(a_conversion_without_target_is_refused)
{
    (void)test_state;
    static const struct {
        const char *type, *props, *text;
    } cases[] = {
        { "ColorConversion", "", "E205 /modules/c/props/imageType" },
        { "ColorConversion",
          "'conversionType':'RGB_TO_MONO','imageType':'NV12'",
          "E203 /modules/c/props/imageType" },
        { "CCNPPI", "", "E205 /modules/c/props/imageType" },
        { "CCNPPI", "'imageType':'BAYERBG8'", "E203" },
    };
    for (size_t i = 0; i < 4; i++) {
        struct outcome o =
            mod_run("{'modules':{'s':{'type':'TestSignalGenerator','props':{"
                    "'width':8,'height':8,'maxFrames':1}},"
                    "'c':{'type':'%s','props':{%s}},'k':{'type':'StatSink'}},"
                    "'connections':[{'from':'s','to':'c'},"
                    "{'from':'c','to':'k'}]}",
                    cases[i].type, cases[i].props);
        mod_expect(&o, PEN_E_CONFIG, cases[i].text);
    }
}

// --- scaling and blur -------------------------------------------------------

PEN_TEST(scaling_is_the_same_on_both_sides_and_near_the_exact_one)
{
    static const enum pen_format formats[] = { PEN_FMT_MONO,   PEN_FMT_RGB,
                                               PEN_FMT_BGR,    PEN_FMT_RGBA,
                                               PEN_FMT_BGRA,   PEN_FMT_YUV444,
                                               PEN_FMT_YUV420, PEN_FMT_NV12 };
    static const char *const names[] = { "nearest", "bilinear", "area",
                                         "bicubic" };
    static const int targets[][2] = { { 20, 50 }, { 1, 1 } };
    (void)test_state;
    work = pen_test_folder();
    for (int f = 0; f < 8; f++) {
        struct pen_picture p;
        const char *file = noise(&p, formats[f], 41, 31);
        for (int k = 0; k < 8; k++) {
            const int w = targets[k / 4][0], h = targets[k / 4][1];
            char props[128];
            snprintf(props, sizeof(props),
                     "'width':%d,'height':%d,'interpolation':'%s'", w, h,
                     names[k % 4]);
            struct outcome o;
            both(&o, file, formats[f], 41, 31, "ImageResizeCV", "ResizeNPPI",
                 props);
            outcome_free(&o);
            const size_t bytes = ref_bytes(formats[f], w, h);
            double *exact = calloc(bytes, sizeof(*exact));
            assert_non_null(exact);
            ref_resize(&p.ref, w, h, (enum ref_interpolation)(k % 4), exact);
            near(in(work, "cpu.raw"), exact, bytes, 1.0);
            free(exact);
        }
        pen_picture_free(&p);
    }
}

PEN_TEST(blur_is_the_same_on_both_sides_and_near_the_exact_one)
{
    static const enum pen_format formats[] = { PEN_FMT_MONO, PEN_FMT_RGB,
                                               PEN_FMT_BGR,  PEN_FMT_RGBA,
                                               PEN_FMT_BGRA, PEN_FMT_YUV444 };
    static const struct {
        const char *props;
        int size;
        double sigma;
    } cases[] = {
        { "", 11, 2.0 },  // 0.3 * (5 - 1) + 0.8
        { "'kernelSize':3", 3, 0.8 },
        { "'kernelSize':31,'sigma':4.5", 31, 4.5 },
        { "'sigma':1", 11, 1.0 },
    };
    (void)test_state;
    work = pen_test_folder();
    for (int f = 0; f < 6; f++) {
        struct pen_picture p;
        const char *file = noise(&p, formats[f], 45, 29);
        for (int k = 0; k < 4; k++) {
            struct outcome o;
            both(&o, file, formats[f], 45, 29, "GaussianBlurCV", "GaussianBlur",
                 cases[k].props);
            outcome_free(&o);
            const size_t bytes = ref_bytes(formats[f], 45, 29);
            double *exact = calloc(bytes, sizeof(*exact));
            assert_non_null(exact);
            ref_blur(&p.ref, cases[k].size, cases[k].sigma, exact);
            near(in(work, "cpu.raw"), exact, bytes, 1.0);
            free(exact);
        }
        pen_picture_free(&p);
    }
}

PEN_TEST(a_blur_without_sigma_is_told_what_apra_pipes_does)
{
    (void)test_state;
    for (int k = 0; k < 2; k++) {
        struct outcome o =
            mod_must("{'modules':{'s':{'type':'TestSignalGenerator','props':{"
                     "'width':8,'height':8,'maxFrames':1}},"
                     "'c':{'type':'GaussianBlur','props':{%s}},"
                     "'k':{'type':'StatSink'}},'connections':["
                     "{'from':'s','to':'c'},{'from':'c','to':'k'}]}",
                     k ? "'sigma':1.5" : "'kernelSize':5");
        assert_int_equal(strstr(o.issues, "W210") != NULL, k == 0);
        if (k == 0)
            assert_non_null(strstr(o.issues, "1.10 is taken"));
        outcome_free(&o);
    }
    struct outcome o =
        mod_run("{'modules':{'s':{'type':'TestSignalGenerator','props':{"
                "'width':8,'height':8,'maxFrames':1}},"
                "'c':{'type':'GaussianBlur','props':{'kernelSize':4}},"
                "'k':{'type':'StatSink'}},'connections':["
                "{'from':'s','to':'c'},{'from':'c','to':'k'}]}");
    mod_expect(&o, PEN_E_CONFIG, "E202 /modules/c/props/kernelSize");
}

// Pictures of changing sizes through everything that keeps tables.
static void changing_sizes(void)
{
    work = pen_test_folder();
    static const int sizes[][2] = { { 40, 30 }, { 90, 17 }, { 5, 200 },
                                    { 40, 30 }, { 1, 1 },   { 300, 40 },
                                    { 299, 40 } };
    for (int i = 0; i < 7; i++) {
        char name[32];
        uint8_t *samples = calloc((size_t)sizes[i][0] * (size_t)sizes[i][1], 3);
        assert_non_null(samples);
        for (int k = 0; k < sizes[i][0] * sizes[i][1] * 3; k++)
            samples[k] = (uint8_t)(k * 11 / (i + 3));
        struct bytes b = jpeg_make(
            samples, sizes[i][0], sizes[i][1],
            &(struct jpeg_options){ .space = i == 2 ? SPACE_GREY : SPACE_YCC });
        snprintf(name, sizeof(name), "%02d.jpg", i);
        pen_test_write_file(in(work, name), b.data, b.length);
        bytes_free(&b);
        free(samples);
    }
    struct outcome o =
        mod_must("{'modules':{'r':{'type':'FileReaderModule','props':{"
                 "'strFullFileNameWithPattern':'%s/??.jpg'}},"
                 "'d':{'type':'ImageDecoderCV'},"
                 "'gb':{'type':'GaussianBlur','props':{'kernelSize':7}},"
                 "'gr':{'type':'ResizeNPPI','props':{'width':33,'height':44,"
                 "'interpolation':'bicubic'}},"
                 "'cb':{'type':'GaussianBlurCV','props':{'kernelSize':7}},"
                 "'cr':{'type':'ImageResizeCV','props':{'width':33,'height':44,"
                 "'interpolation':'bicubic'}},"
                 "'gw':{'type':'FileWriterModule','props':{"
                 "'strFullFileNameWithPattern':'%s/gpu-??.raw'}},"
                 "'cw':{'type':'FileWriterModule','props':{"
                 "'strFullFileNameWithPattern':'%s/cpu-??.raw'}}},"
                 "'connections':[{'from':'r','to':'d'},{'from':'d','to':'gb'},"
                 "{'from':'gb','to':'gr'},{'from':'gr','to':'gw'},"
                 "{'from':'d','to':'cb'},{'from':'cb','to':'cr'},"
                 "{'from':'cr','to':'cw'}]}",
                 work, work, work);
    assert_int_equal(o.stats.h2d.count, 7);
    assert_int_equal(o.stats.d2h.count, 7);
    assert_int_equal(o.stats.blocking_syncs, 0);
    outcome_free(&o);
    for (int i = 0; i < 7; i++) {
        char cpu[32], gpu[32];
        snprintf(cpu, sizeof(cpu), "cpu-%02d.raw", i);
        snprintf(gpu, sizeof(gpu), "gpu-%02d.raw", i);
        same_files(in(work, cpu), in(work, gpu));
    }
}

PEN_TEST(pictures_of_changing_sizes_come_out_the_same_in_all_modes)
{
    (void)test_state;
    mod_all_modes(changing_sizes);
}

// --- transfers --------------------------------------------------------------

static void round_trips(void)
{
    work = pen_test_folder();
    for (int f = 1; f < PEN_FMT_COUNT; f++) {
        if (!pen_format_info((enum pen_format)f))
            continue;
        struct pen_layout layout;
        const struct pen_caps caps = { .kind = PEN_KIND_RAW_IMAGE,
                                       .format = (enum pen_format)f,
                                       .width = 37,
                                       .height = 11 };
        assert_int_equal(pen_layout_compute(&caps, 1, &layout, NULL), PEN_OK);
        uint8_t *bytes = malloc(5 * layout.bytes);
        assert_non_null(bytes);
        uint64_t seed = (uint64_t)f;
        for (size_t i = 0; i < 5 * layout.bytes; i++)
            bytes[i] = (uint8_t)pen_test_random(&seed);
        pen_test_write_file(in(work, "in.raw"), bytes, 5 * layout.bytes);
        free(bytes);
        struct outcome o = mod_must(
            "{'modules':{'s':{'type':'FileReaderModule','props':{"
            "'strFullFileNameWithPattern':'%s/in.raw','width':37,'height':11,"
            "'format':'%s'}},'u':{'type':'CudaMemCopyH2D'},"
            "'c':{'type':'CudaMemCopy','props':{'kind':'DeviceToDevice'}},"
            "'y':{'type':'CudaStreamSynchronize'},"
            "'z':{'type':'CuCtxSynchronize'},"
            "'d':{'type':'CudaMemCopyD2H','props':{'sync':true}},"
            "'w':{'type':'FileWriterModule','props':{"
            "'strFullFileNameWithPattern':'%s/out.raw','append':true}}},"
            "'connections':[{'from':'s','to':'u'},{'from':'u','to':'c'},"
            "{'from':'c','to':'y'},{'from':'y','to':'z'},"
            "{'from':'z','to':'d'},{'from':'d','to':'w'}]}",
            work, name_of((enum pen_format)f), work);
        assert_int_equal(o.stats.h2d.count, 5);
        assert_int_equal(o.stats.d2d.count, 5);
        assert_int_equal(o.stats.d2h.count, 5);
        assert_int_equal(o.stats.streams, 1);
        assert_int_equal(o.stats.blocking_syncs, 0);
        // What the user wrote stays, nothing is added.
        assert_null(strstr(o.plan, "_bridge_"));
        outcome_free(&o);
        same_files(in(work, "in.raw"), in(work, "out.raw"));
        remove(in(work, "out.raw"));
    }
}

PEN_TEST(pictures_of_every_format_survive_the_way_up_and_back)
{
    (void)test_state;
    mod_all_modes(round_trips);
}

static void bytes_up_and_back(void)
{
    work = pen_test_folder();
    uint64_t seed = 9;
    for (int i = 0; i < 6; i++) {
        uint8_t bytes[3000];
        char name[16];
        for (size_t k = 0; k < sizeof(bytes); k++)
            bytes[k] = (uint8_t)pen_test_random(&seed);
        snprintf(name, sizeof(name), "%d.x", i);
        pen_test_write_file(in(work, name), bytes, 1 + (size_t)i * 533);
    }
    static const char *const kinds[] = { "Frame", "EncodedImage" };
    for (int k = 0; k < 2; k++) {
        struct outcome o = mod_must(
            "{'modules':{'s':{'type':'FileReaderModule','props':{"
            "'strFullFileNameWithPattern':'%s/?.x','outputFrameType':'%s'}},"
            "'u':{'type':'CudaMemCopy'},"
            "'y':{'type':'CuCtxSynchronize'},"
            "'w':{'type':'FileWriterModule','props':{"
            "'strFullFileNameWithPattern':'%s/?.y'}}},"
            "'connections':[{'from':'s','to':'u'},{'from':'u','to':'y'},"
            "{'from':'y','to':'w'}]}",
            work, kinds[k], work);
        assert_int_equal(o.stats.h2d.count, 6);
        assert_int_equal(o.stats.d2h.count, 6);
        outcome_free(&o);
        for (int i = 0; i < 6; i++) {
            char from[16], to[16];
            snprintf(from, sizeof(from), "%d.x", i);
            snprintf(to, sizeof(to), "%d.y", i);
            same_files(in(work, from), in(work, to));
        }
    }
}

PEN_TEST(frames_of_bytes_survive_the_way_up_and_back)
{
    (void)test_state;
    mod_all_modes(bytes_up_and_back);
}

// --- synchronisation --------------------------------------------------------

struct sync_run {
    struct pen_registry *registry;
    struct pen_description *desc;
    struct pen_issues *issues;
    struct pen_pipeline *p;
};

// A pipeline without end.
static void sync_start(struct sync_run *r, const char *type)
{
    char text[512];
    *r = (struct sync_run){ .issues = pen_issues_create() };
    snprintf(text, sizeof(text),
             "{\"modules\":{\"s\":{\"type\":\"TestSignalGenerator\","
             "\"props\":{\"width\":64,\"height\":64}},"
             "\"y\":{\"type\":\"%s\"},\"k\":{\"type\":\"StatSink\"}},"
             "\"connections\":[{\"from\":\"s\",\"to\":\"y\"},"
             "{\"from\":\"y\",\"to\":\"k\"}]}",
             type);
    const struct pen_pipeline_params params = {
        .device = { .selector = pen_test_device(),
                    .emulator = pen_test_emulator() },
        .workers = 1,
        .leaks_fatal = true,
        .leak_sites = true,
    };
    FIXTURE_OK(pen_registry_create(&r->registry, &err));
    FIXTURE_OK(pen_description_parse(text, strlen(text), "t", &r->desc,
                                     r->issues, &err));
    FIXTURE_OK(pen_pipeline_create(r->desc, r->registry, &params, &r->p,
                                   r->issues, &err));
    FIXTURE_OK(pen_pipeline_start(r->p, &err));
}

static void sync_end(struct sync_run *r)
{
    struct pen_stats stats;
    pen_pipeline_drain(r->p);
    FIXTURE_OK(pen_pipeline_wait(r->p, INT64_C(20000000000), &err));
    pen_pipeline_stats(r->p, &stats);
    // One worker: it would have blocked had anybody waited on it.
    assert_int_equal(stats.blocking_syncs, 0);
    pen_pipeline_destroy(&r->p);
    pen_description_destroy(&r->desc);
    pen_registry_destroy(&r->registry);
    pen_issues_destroy(&r->issues);
}

static uint64_t arrived(const struct sync_run *r)
{
    struct pen_progress progress;
    pen_pipeline_progress(r->p, &progress);
    return progress.frames;
}

static void wait_for_more(const struct sync_run *r, uint64_t than)
{
    for (int i = 0; i < 20000 && arrived(r) <= than; i++)
        usleep(1000);
    assert_true(arrived(r) > than);
}

// Nothing is allocated or freed while the gate is closed: that would wait for
// all streams.
static void delayed_elsewhere(struct fixture *f)
{
    static const char *const types[] = { "CudaStreamSynchronize",
                                         "CuCtxSynchronize" };
    for (int k = 0; k < 2; k++) {
        struct gate gate;
        struct stk_stream *other = fixture_stream(f, "test");
        struct sync_run r;
        struct stk_point late;
        gate_create(f, &gate);
        sync_start(&r, types[k]);
        wait_for_more(&r, 0);
        {
            STK_SCOPE scope = { 0 };
            FIXTURE_OK(stk_scope_enter(&scope, f->dev, &err));
            gate_queue(f, &gate, other);
            late = fixture_record(f, other);
        }
        if (k == 0) {
            // Stuck work of another stream is none of its business.
            wait_for_more(&r, arrived(&r) + 50);
        } else {
            // What was on its way arrives; then all stand still.
            uint64_t before;
            unsigned tries = 0;
            do {
                before = arrived(&r);
                usleep(100000);
            } while (arrived(&r) != before && ++tries < 100);
            assert_true(tries < 100);
        }
        assert_false(stk_point_reached(late));
        const uint64_t before = arrived(&r);
        gate_open(&gate);
        wait_for_more(&r, before + 50);
        sync_end(&r);
        assert_int_equal(stk_point_wait(late, STK_WAIT_HOST_READ, NULL),
                         PEN_OK);
        gate_free(f, &gate);
        stk_stream_destroy(&other);
    }
}

PEN_TEST(a_kernel_on_another_stream_holds_up_the_context_but_not_the_stream)
{
    (void)test_state;
    fixture_all_modes(delayed_elsewhere);
}

// --- one stream, kernels in advance -----------------------------------------

static sem_t first_frame;

// A source that gives its first frame when the test says so.
static enum pen_status held_prepare(struct pen_module *m,
                                    const struct pen_io *io,
                                    struct pen_caps *out, struct pen_error *err)
{
    if (pen_io_index(io) == 0)
        while (sem_wait(&first_frame))
            ;
    return stk_class_test_signal.ops.prepare(m, io, out, err);
}

static void count_stream(void *cookie, const struct stk_ledger_entry *entry)
{
    uint64_t *streams = cookie;
    if (entry->res != STK_RES_STREAM)
        return;
    *streams += entry->count;
    assert_string_equal(entry->owner, "pipeline");
}

static void each_gets_the_stream(const struct pen_pipeline *p)
{
    static const struct pen_module_class *const classes[] = {
#define X(name) &stk_class_##name,
        STK_MODULES(X)
#undef X
    };
    uint32_t bridges = 0, streams = 0;
    const uintptr_t stream = stk_stream_handle(p->stream);
    assert_true(stream != 0);
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        uint32_t of_class = 0;
        for (uint32_t n = 0; n < p->module_count; n++)
            of_class += p->modules[n].cls == classes[i];
        if ((classes[i]->flags & PEN_CLASS_CUDA) && !of_class)
            fail_msg("%s is not in this pipeline", classes[i]->name);
    }
    for (uint32_t n = 0; n < p->module_count; n++) {
        const struct pen_module *m = &p->modules[n];
        const bool cuda = m->cls->flags & PEN_CLASS_CUDA;
        if (pen_module_stream(m) != (cuda ? stream : 0))
            fail_msg("%s has another stream", m->id);
        bridges += p->plan->nodes[n].inserted;
        streams += cuda;
    }
    assert_int_equal(bridges, 2);
    assert_int_equal(streams, 8);
}

static void one_stream_kernels_first(void)
{
    static const char text[] =
        "{\"modules\":{\"s\":{\"type\":\"HeldSource\",\"props\":{"
        "\"width\":64,\"height\":48,\"maxFrames\":4}},"
        "\"c\":{\"type\":\"CCNPPI\",\"props\":{\"imageType\":\"RGB\"}},"
        "\"b\":{\"type\":\"GaussianBlur\"},"
        "\"r\":{\"type\":\"ResizeNPPI\",\"props\":{\"width\":9,"
        "\"height\":8}},"
        "\"d\":{\"type\":\"CudaMemCopy\",\"props\":{\"kind\":"
        "\"DeviceToDevice\"}},"
        "\"y\":{\"type\":\"CudaStreamSynchronize\"},"
        "\"z\":{\"type\":\"CuCtxSynchronize\"},"
        "\"e\":{\"type\":\"ImageEncoderCV\"},"
        "\"k\":{\"type\":\"StatSink\"}},\"connections\":["
        "{\"from\":\"s\",\"to\":\"c\"},{\"from\":\"c\",\"to\":\"b\"},"
        "{\"from\":\"b\",\"to\":\"r\"},{\"from\":\"r\",\"to\":\"d\"},"
        "{\"from\":\"d\",\"to\":\"y\"},{\"from\":\"y\",\"to\":\"z\"},"
        "{\"from\":\"z\",\"to\":\"e\"},{\"from\":\"e\",\"to\":\"k\"}]}";
    struct pen_module_class held = stk_class_test_signal;
    held.name = "HeldSource";
    held.flags |= PEN_CLASS_BLOCKS;
    held.ops.prepare = held_prepare;
    struct sync_run r = { .issues = pen_issues_create() };
    const struct pen_pipeline_params params = {
        .device = { .selector = pen_test_device(),
                    .emulator = pen_test_emulator() },
        .leaks_fatal = true,
        .leak_sites = true,
    };
    sem_init(&first_frame, 0, 0);
    FIXTURE_OK(pen_registry_create(&r.registry, &err));
    FIXTURE_OK(pen_registry_add(r.registry, &held, &err));
    FIXTURE_OK(pen_description_parse(text, strlen(text), "t", &r.desc, r.issues,
                                     &err));
    FIXTURE_OK(
        pen_pipeline_create(r.desc, r.registry, &params, &r.p, r.issues, &err));
    FIXTURE_OK(pen_pipeline_start(r.p, &err));

    // No frame was made yet, but every image of the plan is on the device.
    struct stk_ledger_totals kernels;
    stk_ledger_totals(r.p->ledger, STK_RES_KERNELS, &kernels);
    assert_int_equal(kernels.live, 3);
    assert_int_equal(stk_stream_launches(r.p->stream), 0);
    each_gets_the_stream(r.p);
    uint64_t streams = 0;
    stk_ledger_each(r.p->ledger, count_stream, &streams);
    assert_int_equal(streams, 1);

    sem_post(&first_frame);
    FIXTURE_OK(pen_pipeline_wait(r.p, INT64_C(20000000000), &err));
    struct pen_stats stats;
    pen_pipeline_stats(r.p, &stats);
    assert_int_equal(stats.launches, 3 * 4);
    assert_int_equal(stats.streams, 1);
    stk_ledger_totals(r.p->ledger, STK_RES_KERNELS, &kernels);
    assert_int_equal(kernels.added, 3);
    if (fixture_emulator())  // of all that the driver was ever asked for
        assert_int_equal(fixture_emulator()->penemu_calls("cuStreamCreate"), 1);
    pen_pipeline_destroy(&r.p);
    pen_description_destroy(&r.desc);
    pen_registry_destroy(&r.registry);
    pen_issues_destroy(&r.issues);
    sem_destroy(&first_frame);
}

PEN_TEST(every_class_gets_one_stream_and_its_kernels_before_the_first_frame)
{
    (void)test_state;
    mod_all_modes(one_stream_kernels_first);
}

PEN_TEST_MAIN(
    PEN_CASE(
        every_class_gets_one_stream_and_its_kernels_before_the_first_frame),
    PEN_CASE(all_110_conversions_are_the_same_on_both_sides_and_exact),
    PEN_CASE(range_and_matrix_reach_the_conversion),
    PEN_CASE(bayer_becomes_rgb_and_mono_on_the_cpu),
    PEN_CASE(what_has_the_target_format_already_is_handed_on),
    PEN_CASE(a_conversion_without_target_is_refused),
    PEN_CASE(scaling_is_the_same_on_both_sides_and_near_the_exact_one),
    PEN_CASE(blur_is_the_same_on_both_sides_and_near_the_exact_one),
    PEN_CASE(a_blur_without_sigma_is_told_what_apra_pipes_does),
    PEN_CASE(pictures_of_changing_sizes_come_out_the_same_in_all_modes),
    PEN_CASE(pictures_of_every_format_survive_the_way_up_and_back),
    PEN_CASE(frames_of_bytes_survive_the_way_up_and_back),
    PEN_CASE(
        a_kernel_on_another_stream_holds_up_the_context_but_not_the_stream))
