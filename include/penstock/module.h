#ifndef PEN_MODULE_H
#define PEN_MODULE_H

// For authors of modules: the class table, property tables, pins, and what a
// module may call while it runs. A class is one constant; nothing runs at
// load time. Register it with pen_registry_add().

#include <penstock/frame.h>
#include <penstock/kernel.h>
#include <penstock/log.h>

PEN_BEGIN

// --- properties -------------------------------------------------------------

enum pen_prop_kind {
    PEN_PROP_END = 0,
    PEN_PROP_BOOL,      // bool
    PEN_PROP_I32,       // int32_t
    PEN_PROP_F64,       // double; an integer in the file is taken
    PEN_PROP_STRING,    // const char *, never NULL, lives as long as the plan
    PEN_PROP_ENUM,      // int32_t, one of choices
    PEN_PROP_RATIONAL,  // struct pen_rational; "30000/1001", 29.97 or 30
};

struct pen_choice {
    const char *name;  // NULL ends the list
    int32_t value;
    const char *help;
};

enum pen_prop_flags {
    PEN_PROP_REQUIRED = 1,
    PEN_PROP_LIVE = 2,        // may change while running
    PEN_PROP_PATH_READ = 4,   // STRING: file or pattern that is read
    PEN_PROP_PATH_WRITE = 8,  // STRING: file or pattern that is written
    PEN_PROP_ODD = 16,        // I32: must be odd
};

// One row of a property table: parsing, range, help, describe and schema all
// come from it.
struct pen_prop {
    enum pen_prop_kind kind;
    const char *key;   // JSON key
    const char *help;  // one sentence
    const char *unit;  // "px", "ms", ... or NULL
    size_t offset;     // into the class's params struct
    union {
        bool b;
        int32_t i;
        double f;
        const char *s;
        struct pen_rational r;
    } def;
    double min, max;  // inclusive; ignored unless min < max
    const struct pen_choice *choices;
    unsigned flags;
};

// Offset of a field; does not compile when the field is not of type CTYPE.
#define PEN_FIELD(T, FIELD, CTYPE)                                             \
    (offsetof(T, FIELD) + 0 * _Generic(((T *)0)->FIELD, CTYPE : 1))

// Rows. The help text is the first variable argument, so a row without help
// does not compile; further fields follow by name.
#define PEN_BOOL(T, FIELD, KEY, DEF, ...)                                      \
    {                                                                          \
        .kind = PEN_PROP_BOOL, .key = KEY, .def.b = DEF,                       \
        .offset = PEN_FIELD(T, FIELD, bool), .help = __VA_ARGS__               \
    }
#define PEN_I32(T, FIELD, KEY, DEF, LO, HI, ...)                               \
    {                                                                          \
        .kind = PEN_PROP_I32, .key = KEY, .def.i = DEF, .min = LO, .max = HI,  \
        .offset = PEN_FIELD(T, FIELD, int32_t), .help = __VA_ARGS__            \
    }
#define PEN_F64(T, FIELD, KEY, DEF, LO, HI, ...)                               \
    {                                                                          \
        .kind = PEN_PROP_F64, .key = KEY, .def.f = DEF, .min = LO, .max = HI,  \
        .offset = PEN_FIELD(T, FIELD, double), .help = __VA_ARGS__             \
    }
#define PEN_STRING(T, FIELD, KEY, DEF, ...)                                    \
    {                                                                          \
        .kind = PEN_PROP_STRING, .key = KEY, .def.s = DEF,                     \
        .offset = PEN_FIELD(T, FIELD, const char *), .help = __VA_ARGS__       \
    }
#define PEN_ENUM(T, FIELD, KEY, DEF, CHOICES, ...)                             \
    {                                                                          \
        .kind = PEN_PROP_ENUM, .key = KEY, .def.i = DEF, .choices = CHOICES,   \
        .offset = PEN_FIELD(T, FIELD, int32_t), .help = __VA_ARGS__            \
    }
#define PEN_RATIONAL(T, FIELD, KEY, NUM, DEN, ...)                             \
    {                                                                          \
        .kind = PEN_PROP_RATIONAL, .key = KEY, .def.r = { NUM, DEN },          \
        .offset = PEN_FIELD(T, FIELD, struct pen_rational),                    \
        .help = __VA_ARGS__                                                    \
    }
#define PEN_PROPS_END                                                          \
    {                                                                          \
        .kind = PEN_PROP_END                                                   \
    }

// --- pins -------------------------------------------------------------------

enum pen_pin_flags {
    PEN_PIN_OPTIONAL = 1,  // an input that may stay unconnected
};

struct pen_pin {
    const char *name;  // NULL ends the list
    const char *help;
    uint32_t kinds;    // mask of PEN_KIND_BIT
    uint32_t mem;      // mask of PEN_MEM_BIT; HOST accepts HOST_PINNED
    uint32_t formats;  // mask of PEN_FMT_BIT; 0 where no raw picture flows
    unsigned flags;
};

// What a pin accepts or gives after the properties were looked at.
struct pen_pin_set {
    uint32_t kinds, mem, formats;
};

// --- the class --------------------------------------------------------------

enum pen_category {
    PEN_CATEGORY_NONE = 0,
    PEN_CATEGORY_SOURCE,
    PEN_CATEGORY_TRANSFORM,
    PEN_CATEGORY_SINK,
    PEN_CATEGORY_ANALYTICS,
    PEN_CATEGORY_CONTROLLER,
    PEN_CATEGORY_UTILITY,
};

enum pen_class_flags {
    PEN_CLASS_CUDA = 1,      // needs the device: the context is current and
                             // the pipeline's stream usable in open, process
    PEN_CLASS_BLOCKS = 2,    // waits for files, network or time: own thread
    PEN_CLASS_FORWARDS = 4,  // output frames are input frames (pen_forward);
                             // no pool is made for its outputs
    PEN_CLASS_BRIDGE = 8,    // the planner may insert it
};

struct pen_module;  // an instance
struct pen_io;      // one call of prepare or process

// Collector of complaints about properties; see pen_check_error().
struct pen_check;

// What the headers of a source's input say.
struct pen_probe {
    unsigned limit;        // in: most headers to look at
    struct pen_caps caps;  // out: the largest of width, height, bytes;
                           //      formats is the set seen
    uint64_t frames;       // out: 0 if unknown
    bool complete;         // out: false if there are more than `limit`
    unsigned broken;       // out: headers that nothing can be made of
    char what[240];        // out: the first of these, and why
};

// All functions are optional: NULL means "nothing to do". Functions that
// return a negative status fill in `err` (module, pin and frame index are
// added by the caller).
struct pen_module_ops {
    // Pure: narrow the declared sets of the pins by the properties ("memType",
    // "kind", "imageType"). Arrays are in the order of the class's pins.
    void (*narrow)(const void *params, struct pen_pin_set *in,
                   struct pen_pin_set *out);

    // Pure: complain about properties that do not fit each other, with
    // pen_check_error() and pen_check_warning(). Touches no file.
    void (*check)(const void *params, struct pen_check *check);

    // Pure: caps of the outputs from those of the inputs. What is unknown in
    // `in` stays unknown in `out`. `out` arrives as a copy of in[0] (zeroed
    // for sources). The planner calls it once per candidate format.
    // Errors: PEN_E_CONFIG, PEN_E_LIMIT with the reason.
    enum pen_status (*negotiate)(const void *params, const struct pen_caps *in,
                                 struct pen_caps *out, struct pen_error *err);

    // Sources: look at the headers of the input. Reads, creates nothing.
    enum pen_status (*probe)(const void *params, struct pen_probe *probe,
                             struct pen_error *err);

    // Acquire what the instance needs; `state` is zeroed before. On failure
    // close() is called all the same. Thread: setup.
    enum pen_status (*open)(struct pen_module *m, struct pen_error *err);

    // Say what the next outputs will be, before their buffers are reserved:
    // fill in out[pin]. Called with the inputs in io. Sources return PEN_EOS
    // at their end. PEN_AGAIN: these inputs give no output; they are dropped
    // uncounted (a source has nothing yet and is asked again: one that waits
    // for something does so itself, with PEN_CLASS_BLOCKS). Needed where
    // negotiate() alone cannot know (readers, decoders). Thread: data.
    enum pen_status (*prepare)(struct pen_module *m, const struct pen_io *io,
                               struct pen_caps *out, struct pen_error *err);

    // Turn inputs into outputs. Work for the GPU is queued, not awaited.
    // PEN_AGAIN after pen_park_on_stream() or pen_park_on_context(): call
    // again with the same io when the point is reached. Thread: data.
    enum pen_status (*process)(struct pen_module *m, const struct pen_io *io,
                               struct pen_error *err);

    // The input has ended: write what is held back. Thread: data.
    enum pen_status (*drain)(struct pen_module *m, struct pen_error *err);

    // Release everything; tolerates a half-open instance. Thread: setup.
    void (*close)(struct pen_module *m);

    // Pure: the most bytes of workspace that frames up to `in` and `out` (by
    // pin; sizes of 0 are unknown) take, by memory type: HOST and
    // CUDA_DEVICE what pen_module_alloc() and pen_module_alloc_device() are
    // asked for in all, HOST_PINNED what pen_module_fill_device() moves at
    // once, which is once a frame (held twice, so that the next frame need not
    // wait). The plan holds them; `bytes` is zeroed before. Called once per
    // format that may come.
    void (*workspace)(const void *params, const struct pen_caps *in,
                      const struct pen_caps *out,
                      uint64_t bytes[PEN_MEM_COUNT]);

    // Pure: elementary operations of one frame (a multiplication with its
    // addition is one), where there is more to do than to read and write it.
    // By them the planner compares classes that can do the same. `in` and
    // `out` as for workspace(), of known sizes and formats.
    uint64_t (*operations)(const void *params, const struct pen_caps *in,
                           const struct pen_caps *out);
};

// An older name of a class, with one property preset (key NULL: none).
struct pen_alias {
    const char *name;  // NULL ends the list
    const char *key, *value;
};

enum { PEN_MODULE_ABI = 1 };

struct pen_module_class {
    uint32_t abi;   // PEN_MODULE_ABI
    uint32_t size;  // sizeof(struct pen_module_class)
    const char *name;
    const char *version;  // "1.0"
    const char *summary;  // one line
    enum pen_category category;
    unsigned flags;
    const char *const *tags;  // "function:blur", "backend:cuda"; NULL-ended
    const struct pen_alias *aliases;  // may be NULL
    const struct pen_pin *inputs;     // may be NULL
    const struct pen_pin *outputs;    // may be NULL
    const struct pen_prop *props;     // may be NULL
    size_t params_size;
    size_t state_size;
    const struct pen_kernel_image *const *kernels;  // NULL-ended; may be NULL
    struct pen_module_ops ops;
};

enum { PEN_MAX_PINS = 8 };

// --- for check() ------------------------------------------------------------

// Report a problem with property `key`. `code` is an issue code ("E202");
// `suggestion` says what would be right and may be NULL. Thread: setup.
PEN_API PEN_PRINTF(5, 6) void pen_check_error(struct pen_check *check,
                                              const char *code, const char *key,
                                              const char *suggestion,
                                              const char *format, ...);
PEN_API PEN_PRINTF(5, 6) void pen_check_warning(struct pen_check *check,
                                                const char *code,
                                                const char *key,
                                                const char *suggestion,
                                                const char *format, ...);

// --- for open(), prepare(), process(), drain(), close() ---------------------

// Borrowed; params are constant while a call lasts. Thread: data, setup.
PEN_API const void *pen_module_params(const struct pen_module *m);
PEN_API void *pen_module_state(struct pen_module *m);
PEN_API const char *pen_module_id(const struct pen_module *m);
PEN_API const struct pen_log *pen_module_log(const struct pen_module *m);

// Memory of the instance, in the ledger under its name; zeroed. For
// workspaces that live across calls. free takes what alloc gave, or NULL.
// Errors: PEN_E_NOMEM, PEN_E_DEVMEM, PEN_E_DRIVER, PEN_E_LOST
//         PEN_E_LIMIT  more than the pipeline's budget of the memory type
//                      leaves; the text names the three largest owners where
//                      they are kept (leak_sites)
//         PEN_E_STATE  device memory without PEN_CLASS_CUDA
// Thread: setup, data (counted as a steady-state allocation after the first
// frame).
PEN_API PEN_NODISCARD enum pen_status pen_module_alloc(struct pen_module *m,
                                                       size_t bytes, void **out,
                                                       struct pen_error *err);
PEN_API void pen_module_free(struct pen_module *m, void *memory);
PEN_API PEN_NODISCARD enum pen_status
pen_module_alloc_device(struct pen_module *m, size_t bytes, uint64_t *out,
                        struct pen_error *err);
PEN_API void pen_module_free_device(struct pen_module *m, uint64_t address);

// Workspace of a memory type that the plan holds for the instance; 0 while
// sizes are unknown. Who allocates that much at once never grows.
// Thread: setup, data.
PEN_API uint64_t pen_module_planned(const struct pen_module *m,
                                    enum pen_mem_type mem);

// Tell how often a library that the module uses asked for memory, as far as
// the module can see it: `library_allocations` of the report. What happens
// before a first frame has gone through every edge is left out. Thread: data.
PEN_API void pen_module_count_library(struct pen_module *m,
                                      uint64_t allocations);

// Queue a copy of host bytes into device memory of the instance, on the
// pipeline's stream. The bytes are copied before the call returns.
// Errors: PEN_E_STATE  a class without PEN_CLASS_CUDA
//         PEN_E_NOMEM, PEN_E_LIMIT, PEN_E_DRIVER, PEN_E_LOST
// Thread: setup, data.
PEN_API PEN_NODISCARD enum pen_status
pen_module_fill_device(struct pen_module *m, uint64_t address,
                       const void *bytes, size_t count, struct pen_error *err);

// The frames of this call, by pin number; NULL for an unconnected optional
// input and, in prepare(), for outputs. Borrowed. Thread: data.
PEN_API struct pen_frame *pen_input(const struct pen_io *io, uint32_t pin);
PEN_API struct pen_frame *pen_output(const struct pen_io *io, uint32_t pin);

// Number of the frame that is being made: that of input 0, or the source's
// own count. Thread: data.
PEN_API uint64_t pen_io_index(const struct pen_io *io);

enum pen_place {
    PEN_ON_HOST = 1,    // now, by this thread
    PEN_ON_STREAM = 2,  // by work queued on the pipeline's stream
};

// Acquire a frame of this call. ON_HOST needs a frame that the host can reach
// (HOST, HOST_PINNED, a DMABUF that is mapped) whose point is reached (the
// runtime sees to that before it calls); ON_STREAM
// makes the stream wait for what is not yet ready. The view is valid until
// the call returns; nothing is to be released.
// Errors: PEN_E_STATE  the memory type has no such access, the frame is none of
//                      this call, or it is shared and PEN_WRITE was asked
//         PEN_E_ARG    no place, or no access
//         PEN_E_LOST, PEN_E_DRIVER
// Thread: data.
PEN_API PEN_NODISCARD enum pen_status
pen_acquire(const struct pen_io *io, struct pen_frame *frame,
            enum pen_place place, unsigned access, struct pen_view *out,
            struct pen_error *err);

// Queue a kernel on the pipeline's stream: entry `kernel` of `image`, which
// the class must name. `args` is copied; `args_size` must be the entry's.
// Errors: PEN_E_ARG    not an entry of such an image, an empty grid, another
//                      size of arguments, a class without PEN_CLASS_CUDA
//         PEN_E_DRIVER, PEN_E_LOST
// Thread: data.
PEN_API PEN_NODISCARD enum pen_status
pen_launch(const struct pen_io *io, const struct pen_kernel_image *image,
           uint32_t kernel, const struct pen_grid *grid, const void *args,
           size_t args_size, struct pen_error *err);

// Queue a copy of all planes between two acquired views (ON_STREAM) of equal
// format and size: linear where the layouts agree, by rows where not. Two
// views acquired ON_HOST are copied now, and counted as copied by the CPU.
// Errors: PEN_E_ARG          formats or sizes differ
//         PEN_E_UNSUPPORTED  host to host on the stream, pageable memory
//         PEN_E_STATE        on the stream without PEN_CLASS_CUDA
//         PEN_E_DRIVER, PEN_E_LOST
// Thread: data.
PEN_API PEN_NODISCARD enum pen_status pen_copy(const struct pen_io *io,
                                               const struct pen_view *dst,
                                               const struct pen_view *src,
                                               struct pen_error *err);

// PEN_CLASS_FORWARDS: let input frame `in_pin` leave by output `out_pin`.
// Thread: data.
PEN_API void pen_forward(const struct pen_io *io, uint32_t in_pin,
                         uint32_t out_pin);

// Ask to be called again when all work queued so far on the pipeline's
// stream, or by anyone in the whole context, is done; process() then returns
// PEN_AGAIN. The worker is free meanwhile. *reached tells, in the later call,
// that the point of the first is reached.
// Errors: PEN_E_STATE  a class without PEN_CLASS_CUDA
//         PEN_E_NOMEM, PEN_E_DRIVER, PEN_E_LOST
// Thread: data.
PEN_API PEN_NODISCARD enum pen_status
pen_park_on_stream(const struct pen_io *io, bool *reached,
                   struct pen_error *err);
PEN_API PEN_NODISCARD enum pen_status
pen_park_on_context(const struct pen_io *io, bool *reached,
                    struct pen_error *err);

// The pipeline's compute stream as the driver's CUstream, for vendor
// libraries; 0 for a module without PEN_CLASS_CUDA. Thread: data, setup.
PEN_API uintptr_t pen_module_stream(const struct pen_module *m);

PEN_END

#endif  // PEN_MODULE_H
