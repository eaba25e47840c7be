// Every registered class with every memory type and format that its pins
// declare, and what is not declared refused.

#include <stdio.h>

#include "mod_world.h"

#include "src/modules/common.h"
#include "src/modules/modules.h"

enum { W = 21, H = 13 };

// One row for each setting that changes what the pins take: the expected sets
// are written out here, from the guide and not from the tables.
#define HOSTS PEN_MEM_BITS_HOST
#define CUDA  STK_MEM_CUDA
#define F(x)  PEN_FMT_BIT(PEN_FMT_##x)
#define RESIZES                                                                \
    (F(MONO) | F(RGB) | F(BGR) | F(RGBA) | F(BGRA) | F(YUV444) | F(YUV420) |   \
     F(NV12))
#define BLURS  (F(MONO) | F(RGB) | F(BGR) | F(RGBA) | F(BGRA) | F(YUV444))
#define ELEVEN (RESIZES | F(YUV411_I) | F(UYVY) | F(YUYV))
#define BAYER4 (F(BAYERBG8) | F(BAYERGB8) | F(BAYERGR8) | F(BAYERRG8))
#define ALL    (ELEVEN | BAYER4 | F(BAYERBG10))

static const struct row {
    const char *type, *props;
    uint32_t in_mem, formats;   // taken; formats 0: an encoded input
    enum pen_mem_type out_mem;  // of the sink behind it; 0: is a sink
} rows[] = {
    { "StatSink", "", HOSTS | CUDA, ALL, 0 },
    { "FileWriterModule", "WRITE", HOSTS, ALL, 0 },
    { "ImageDecoderCV", "", HOSTS, 0, PEN_MEM_HOST },
    { "ImageEncoderCV", "", HOSTS, F(MONO) | F(RGB) | F(BGR), PEN_MEM_HOST },
    { "ImageEncoderCV", "'format':'png'", HOSTS,
      F(MONO) | F(RGB) | F(BGR) | F(RGBA) | F(BGRA), PEN_MEM_HOST },
    { "ImageResizeCV", "'width':8,'height':9", HOSTS, RESIZES, PEN_MEM_HOST },
    { "GaussianBlurCV", "", HOSTS, BLURS, PEN_MEM_HOST },
    { "ResizeNPPI", "'width':8,'height':9", CUDA, RESIZES,
      PEN_MEM_CUDA_DEVICE },
    { "GaussianBlur", "", CUDA, BLURS, PEN_MEM_CUDA_DEVICE },
    { "CudaMemCopy", "'kind':'HostToDevice'", HOSTS, ALL, PEN_MEM_CUDA_DEVICE },
    { "CudaMemCopy", "'kind':'DeviceToHost'", CUDA, ALL, PEN_MEM_HOST },
    { "CudaMemCopy", "'kind':'DeviceToHost'", CUDA, ALL, PEN_MEM_HOST_PINNED },
    { "CudaMemCopy", "'kind':'DeviceToDevice'", CUDA, ALL,
      PEN_MEM_CUDA_DEVICE },
    { "CudaMemCopyH2D", "", HOSTS, ALL, PEN_MEM_CUDA_DEVICE },
    { "CudaMemCopyD2H", "'sync':true", CUDA, ALL, PEN_MEM_HOST },
    { "MemTypeConversion", "'outputMemType':'HOST'", HOSTS, ALL, PEN_MEM_HOST },
    { "DMAFDToHostCopy", "", HOSTS, ALL, PEN_MEM_HOST },
    { "MemTypeConversion", "'outputMemType':'HOST_PINNED'", HOSTS, ALL,
      PEN_MEM_HOST_PINNED },
    { "MemTypeConversion", "'outputMemType':'DEVICE'", CUDA, ALL,
      PEN_MEM_CUDA_DEVICE },
    { "MemTypeConversion", "'outputMemType':'DMA'", HOSTS | STK_MEM_DMABUF, ALL,
      PEN_MEM_DMABUF },
    { "CudaStreamSynchronize", "", CUDA, ALL, PEN_MEM_CUDA_DEVICE },
    { "CuCtxSynchronize", "", CUDA, ALL, PEN_MEM_CUDA_DEVICE },
    { "ColorConversion", "'imageType':'MONO'", HOSTS, ELEVEN | F(BAYERBG8),
      PEN_MEM_HOST },
    { "ColorConversion", "'imageType':'RGB'", HOSTS, ELEVEN | BAYER4,
      PEN_MEM_HOST },
    { "ColorConversion", "'imageType':'NV12'", HOSTS, ELEVEN, PEN_MEM_HOST },
    { "ColorConversion", "'imageType':'YUV420','range':'full'", HOSTS, ELEVEN,
      PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'RGB_TO_MONO'", HOSTS, F(RGB),
      PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'BGR_TO_MONO'", HOSTS, F(BGR),
      PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'BGR_TO_RGB'", HOSTS, F(BGR),
      PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'RGB_TO_BGR'", HOSTS, F(RGB),
      PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'RGB_TO_YUV420PLANAR'", HOSTS,
      F(RGB), PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'YUV420PLANAR_TO_RGB'", HOSTS,
      F(YUV420), PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'BAYERBG8_TO_MONO'", HOSTS,
      F(BAYERBG8), PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'BAYERBG8_TO_RGB'", HOSTS,
      F(BAYERBG8), PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'BAYERGB8_TO_RGB'", HOSTS,
      F(BAYERGB8), PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'BAYERRG8_TO_RGB'", HOSTS,
      F(BAYERRG8), PEN_MEM_HOST },
    { "ColorConversion", "'conversionType':'BAYERGR8_TO_RGB'", HOSTS,
      F(BAYERGR8), PEN_MEM_HOST },
    { "CCNPPI", "'imageType':'RGB'", CUDA, ELEVEN, PEN_MEM_CUDA_DEVICE },
    { "CCNPPI", "'imageType':'YUV411_I'", CUDA, ELEVEN, PEN_MEM_CUDA_DEVICE },
    { "CCNPPI", "'imageType':'MONO'", CUDA, ELEVEN, PEN_MEM_CUDA_DEVICE },
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

static const char *work;

static const char *raw_file(enum pen_format format)
{
    static char path[512];
    struct pen_layout layout;
    const struct pen_caps caps = {
        .kind = PEN_KIND_RAW_IMAGE, .format = format, .width = W, .height = H
    };
    assert_int_equal(pen_layout_compute(&caps, 1, &layout, NULL), PEN_OK);
    snprintf(path, sizeof(path), "%s/%s.raw", work,
             pen_format_info(format)->name);
    if (!file_exists(path)) {
        uint8_t *bytes = malloc(layout.bytes);
        assert_non_null(bytes);
        uint64_t seed = format;
        for (size_t i = 0; i < layout.bytes; i++)
            bytes[i] = (uint8_t)pen_test_random(&seed);
        pen_test_write_file(path, bytes, layout.bytes);
        free(bytes);
    }
    return path;
}

static struct outcome run_row(const struct row *r, const char *source)
{
    char props[700];
    if (strcmp(r->props, "WRITE") == 0)
        snprintf(props, sizeof(props),
                 "'strFullFileNameWithPattern':'%s/out.raw','overwrite':true",
                 work);
    else
        snprintf(props, sizeof(props), "%s", r->props);
    atomic_store(&mod_taken, 0);
    if (!r->out_mem)
        return mod_run("{'settings':{'auto_bridge':false},'modules':{"
                       "'s':%s,'m':{'type':'%s','props':{%s}}},"
                       "'connections':[{'from':'s','to':'m'}]}",
                       source, r->type, props);
    return mod_run("{'settings':{'auto_bridge':false},'modules':{"
                   "'s':%s,'m':{'type':'%s','props':{%s}},"
                   "'k':{'type':'TSink','props':{'mem':'%s'}}},"
                   "'connections':[{'from':'s','to':'m'},"
                   "{'from':'m','to':'k'}]}",
                   source, r->type, props, pen_mem_name(r->out_mem));
}

static void run_raw(const struct row *r, enum pen_mem_type mem,
                    enum pen_format format)
{
    char source[800];
    snprintf(source, sizeof(source),
             "{'type':'TSource','props':{'file':'%s','mem':'%s','format':'%s',"
             "'width':%d,'height':%d,'count':3}}",
             raw_file(format), pen_mem_name(mem), pen_format_info(format)->name,
             W, H);
    struct outcome o = run_row(r, source);
    const bool taken =
        (r->in_mem & PEN_MEM_BIT(mem)) && (r->formats & PEN_FMT_BIT(format));
    if (taken && o.status != PEN_OK)
        fail_msg("%s {%s} with %s in %s: %s\n%s", r->type, r->props,
                 pen_format_info(format)->name, pen_mem_name(mem), o.err.text,
                 o.issues);
    if (!taken && (o.status == PEN_OK || o.stage != MOD_NOTHING))
        fail_msg("%s {%s} took %s in %s", r->type, r->props,
                 pen_format_info(format)->name, pen_mem_name(mem));
    if (taken && r->out_mem)
        assert_int_equal(atomic_load(&mod_taken), 3);
    if (taken && !r->out_mem)
        assert_int_equal(o.stats.frames, 3);
    if (!taken)
        assert_int_equal(o.status, PEN_E_CONFIG);
    outcome_free(&o);
}

// Every format in one of the row's memory types, and one of its formats in
// every memory type.
PEN_TEST(every_class_takes_what_its_pins_declare_and_nothing_else)
{
    (void)test_state;
    work = pen_test_folder();
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *r = &rows[i];
        // A GPU has no DMABUFs of the host.
        if (!r->formats || (r->out_mem == PEN_MEM_DMABUF && pen_test_on_gpu()))
            continue;
        const enum pen_mem_type own = r->in_mem & PEN_MEM_BIT(PEN_MEM_HOST)
                                          ? PEN_MEM_HOST
                                          : PEN_MEM_CUDA_DEVICE;
        // A source of the test in HOST makes no pageable upload: its memory
        // is made page-locked by the planner.
        const enum pen_format first =
            (enum pen_format)__builtin_ctz(r->formats);
        // A GPU takes a tenth of a second for each: there the formats of a
        // class are tried with one setting.
        const bool again = i && strcmp(rows[i - 1].type, r->type) == 0;
        for (int f = 1; f < PEN_FMT_COUNT; f++) {
            if (pen_format_info((enum pen_format)f) &&
                (!again || !pen_test_on_gpu() || f == (int)first))
                run_raw(r, own, (enum pen_format)f);
        }
        for (int mem = PEN_MEM_HOST; mem <= PEN_MEM_CUDA_DEVICE; mem++) {
            if (mem != (int)own && mem != PEN_MEM_HOST)
                run_raw(r, (enum pen_mem_type)mem, first);
        }
        if (own != PEN_MEM_HOST)
            run_raw(r, PEN_MEM_HOST_PINNED, first);
    }
}

static void run_kind(const struct row *r, const char *kind, const char *file,
                     enum pen_mem_type mem, bool taken)
{
    char source[800];
    snprintf(source, sizeof(source),
             "{'type':'TSource','props':{'file':'%s','mem':'%s','kind':'%s'}}",
             file, pen_mem_name(mem), kind);
    struct outcome o = run_row(r, source);
    if (taken != (o.status == PEN_OK))
        fail_msg("%s {%s} with %s in %s: %s: %s\n%s", r->type, r->props, kind,
                 pen_mem_name(mem), pen_status_name(o.status), o.err.text,
                 o.issues);
    outcome_free(&o);
}

PEN_TEST(every_class_takes_the_kinds_that_it_declares)
{
    // Modules that pass or keep frames take any kind; the decoder encoded
    // pictures only; the others raw pictures only.
    (void)test_state;
    work = pen_test_folder();
    struct outcome made =
        mod_must("{'modules':{'s':{'type':'TSource','props':{'file':'%s',"
                 "'format':'RGB','width':%d,'height':%d}},"
                 "'e':{'type':'ImageEncoderCV'},'w':{'type':'FileWriterModule',"
                 "'props':{'strFullFileNameWithPattern':'%s/a.jpg'}}},"
                 "'connections':[{'from':'s','to':'e'},{'from':'e','to':'w'}]}",
                 raw_file(PEN_FMT_RGB), W, H, work);
    outcome_free(&made);
    char file[512];
    snprintf(file, sizeof(file), "%s/a.jpg", work);
    for (size_t i = 0; i < ROWS; i++) {
        const struct row *r = &rows[i];
        if (r->out_mem == PEN_MEM_DMABUF && pen_test_on_gpu())
            continue;
        const enum pen_mem_type own = r->in_mem & PEN_MEM_BIT(PEN_MEM_HOST)
                                          ? PEN_MEM_HOST
                                          : PEN_MEM_CUDA_DEVICE;
        const bool any = r->formats == ALL, decoder = !r->formats;
        run_kind(r, "EncodedImage", file, own, any || decoder);
        run_kind(r, "H264Data", file, own, any);
        // A frame of bytes fits every pin; what it holds shows at run time.
        run_kind(r, "Frame", file, own, any || decoder);
        if (decoder) {
            run_kind(r, "EncodedImage", file, PEN_MEM_HOST_PINNED, true);
            run_kind(r, "EncodedImage", file, PEN_MEM_CUDA_DEVICE, false);
        }
    }
}

PEN_TEST(sources_give_every_memory_and_format_that_they_declare)
{
    (void)test_state;
    work = pen_test_folder();
    static const char *const mems[] = { "HOST", "HOST_PINNED", "DMABUF" };
    for (int m = 0; m < 3; m++) {
        for (int f = 1; f < PEN_FMT_COUNT; f++) {
            if (!pen_format_info((enum pen_format)f))
                continue;
            struct outcome o =
                mod_run("{'settings':{'auto_bridge':false},'modules':{"
                        "'s':{'type':'FileReaderModule','props':{"
                        "'strFullFileNameWithPattern':'%s','memType':'%s',"
                        "'width':%d,'height':%d,'format':'%s'}},"
                        "'k':{'type':'TSink','props':{'mem':'%s'}}},"
                        "'connections':[{'from':'s','to':'k'}]}",
                        raw_file((enum pen_format)f), mems[m], W, H,
                        pen_format_info((enum pen_format)f)->name, mems[m]);
            if (m == 2 && pen_test_on_gpu())
                mod_expect(&o, PEN_E_CONFIG, "E313");
            else
                assert_int_equal(o.status, PEN_OK);
            outcome_free(&o);
        }
        struct outcome o =
            mod_run("{'modules':{'s':{'type':'TestSignalGenerator','props':{"
                    "'width':%d,'height':%d,'maxFrames':2,'memType':'%s'}},"
                    "'k':{'type':'TSink','props':{'mem':'%s'}}},"
                    "'connections':[{'from':'s','to':'k'}]}",
                    W, H, mems[m], mems[m]);
        if (m == 2 && pen_test_on_gpu())
            mod_expect(&o, PEN_E_CONFIG, "E313");
        else
            assert_int_equal(o.status, PEN_OK);
        outcome_free(&o);
    }
}

PEN_TEST(no_built_in_class_is_left_out_here)
{
    (void)test_state;
    static const struct pen_module_class *const classes[] = {
#define X(name) &stk_class_##name,
        STK_MODULES(X)
#undef X
    };
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        const struct pen_module_class *cls = classes[i];
        if (cls->category == PEN_CATEGORY_SOURCE) {
            assert_true(strcmp(cls->name, "FileReaderModule") == 0 ||
                        strcmp(cls->name, "TestSignalGenerator") == 0);
            continue;
        }
        // Together the rows of a class are what its pin declares.
        uint32_t mem = 0, formats = 0;
        for (size_t k = 0; k < ROWS; k++) {
            if (strcmp(rows[k].type, cls->name) == 0) {
                mem |= rows[k].in_mem;
                formats |= rows[k].formats;
            }
        }
        if (mem != cls->inputs[0].mem || formats != cls->inputs[0].formats)
            fail_msg("%s declares memory 0x%x and formats 0x%x; tested are "
                     "0x%x and 0x%x",
                     cls->name, cls->inputs[0].mem, cls->inputs[0].formats, mem,
                     formats);
    }
}

PEN_TEST(tags_find_the_class_of_a_function_and_a_backend)
{
    static const struct {
        const char *tags[3];
        const char *names;
    } cases[] = {
        { { "function:resize", "backend:cuda" }, "ResizeNPPI " },
        { { "function:resize", "backend:cpu" }, "ImageResizeCV " },
        { { "function:blur", "backend:cuda" }, "GaussianBlur " },
        { { "function:blur", "backend:cpu" }, "GaussianBlurCV " },
        { { "function:color", "backend:cuda" }, "CCNPPI " },
        { { "function:color", "backend:cpu" }, "ColorConversion " },
        { { "function:decode", "format:jpeg" }, "ImageDecoderCV " },
        { { "function:encode", "format:png" }, "ImageEncoderCV " },
        { { "function:copy" }, "CudaMemCopy MemTypeConversion " },
        { { "function:copy", "backend:cpu" }, "MemTypeConversion " },
        { { "function:sync" }, "CuCtxSynchronize CudaStreamSynchronize " },
        { { "source" }, "FileReaderModule TestSignalGenerator " },
        { { "sink" }, "FileWriterModule StatSink " },
        // Plain words of ApraPipes.
        { { "resize", "cuda" }, "ResizeNPPI " },
        { { "transform", "blur", "npp" }, "GaussianBlur " },
        { { "opencv", "planar" }, "ColorConversion " },
        { { "transfer", "bridge" }, "CudaMemCopy " },
        { { "function:resize", "backend:tpu" }, "" },
    };
    (void)test_state;
    struct pen_registry *registry = NULL;
    assert_int_equal(pen_registry_create(&registry, NULL), PEN_OK);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        const char *tags[4] = { cases[i].tags[0], cases[i].tags[1],
                                cases[i].tags[2], NULL };
        const struct pen_module_class *found[32];
        char names[512] = "";
        const size_t n =
            pen_registry_modules_with_tags(registry, tags, found, 32);
        for (size_t k = 0; k < n; k++) {
            strcat(names, found[k]->name);
            strcat(names, " ");
        }
        assert_string_equal(names, cases[i].names);
    }
    pen_registry_destroy(&registry);
}

PEN_TEST(the_guide_names_every_class_and_property)
{
    (void)test_state;
    char path[1024];
    snprintf(path, sizeof(path), "%s/docs/guide/modules.md", pen_test_source());
    char *guide = pen_test_read_file(path, NULL);
    struct pen_registry *registry = NULL;
    assert_int_equal(pen_registry_create(&registry, NULL), PEN_OK);
    const struct pen_module_class *all[64];
    const size_t count =
        pen_registry_modules(registry, PEN_CATEGORY_NONE, NULL, all, 64);
    for (size_t i = 0; i < count; i++) {
        const struct pen_prop *row = all[i]->props;
        if (!strstr(guide, all[i]->name))
            fail_msg("the guide lacks %s", all[i]->name);
        for (; row && row->kind != PEN_PROP_END; row++) {
            char key[80];
            snprintf(key, sizeof(key), "`%s`", row->key);
            if (!strstr(guide, key))
                fail_msg("the guide lacks %s of %s", key, all[i]->name);
        }
    }
    pen_registry_destroy(&registry);
    free(guide);
}

PEN_TEST_MAIN(
    PEN_CASE(every_class_takes_what_its_pins_declare_and_nothing_else),
    PEN_CASE(every_class_takes_the_kinds_that_it_declares),
    PEN_CASE(sources_give_every_memory_and_format_that_they_declare),
    PEN_CASE(no_built_in_class_is_left_out_here),
    PEN_CASE(tags_find_the_class_of_a_function_and_a_backend),
    PEN_CASE(the_guide_names_every_class_and_property))
