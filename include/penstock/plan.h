#ifndef PEN_PLAN_H
#define PEN_PLAN_H

#include <penstock/description.h>

PEN_BEGIN

// The planner's whole result: modules with the inserted bridges, what flows
// on every edge and where it lives, pools, bytes, cost, loss and reasons. It
// is what `penstock plan` prints and what the runtime executes.
struct pen_plan;

enum pen_dmabuf_caps {
    PEN_DMABUF_HOST = 1,    // there is a provider of DMABUFs for the host
    PEN_DMABUF_EXPORT = 2,  // device memory can be exported
    PEN_DMABUF_IMPORT = 4,  // the device reaches DMABUFs of the host
};

// NVIDIA's libraries that are found beside the driver.
enum pen_libraries {
    PEN_LIBRARY_NVJPEG = 1,
    PEN_LIBRARY_NVCUVID = 2,  // video decoding
    PEN_LIBRARY_NVENC = 4,    // video encoding
    PEN_LIBRARY_NPP = 8,
};

// What a plan reckons with: times in nanoseconds, rates in bytes per
// microsecond (1000 are 1 GB/s), sizes in bytes.
struct pen_profile {
    char name[64];
    bool cuda;                    // a CUDA device is there
    uint32_t h2d_rate, d2h_rate;  // pinned copies
    uint32_t pageable_rate;       // copies from and to pageable memory, which
                                  // no plan contains
    uint32_t device_rate;         // read + written, on the device
    uint32_t host_rate;           // one thread's conversions
    // Elementary operations per microsecond beside reading and writing: of one
    // thread, of the device.
    uint32_t host_operations, device_operations;
    uint32_t launch_ns, copy_ns;  // fixed cost of a launch, of a copy
    // Once: to have a context at all, and for each module on the device. They
    // are spread over the frames that are expected.
    uint32_t context_ns, load_ns;
    unsigned dmabuf;          // what can be done with DMABUFs: bits of
                              // pen_dmabuf_caps
    char why_dmabuf[3][160];  // why a bit is not set, in their order; ""
    uint64_t host_memory;     // bytes; 0: what this machine has
    uint64_t cuda_memory;     // free bytes of the device; 0: unknown, and
                              // then no default budget
    // What it is the profile of; "", 0: not told.
    char device_name[128], cpu_name[96];
    bool emulated;       // the device's numbers are those of the emulated one
    unsigned libraries;  // bits of pen_libraries
    uint32_t copy_engines, decode_engines, jpeg_engines;
};
// "generic-cuda" or "cpu"; NULL if there is no such profile. Static.
// Thread: any.
PEN_API const struct pen_profile *pen_profile_builtin(const char *name);
// Read a profile from a JSON object with the fields of pen_profile as keys; a
// key that begins with # is a comment. What may be left out and what it is
// then: docs/guide/profiles.md. Errors: PEN_E_IO, PEN_E_CONFIG (what is wrong
// with which key), PEN_E_LIMIT, PEN_E_NOMEM. Thread: any.
PEN_API PEN_NODISCARD enum pen_status pen_profile_load(const char *path,
                                                       struct pen_profile *out,
                                                       struct pen_error *err);
// A profile by what a user says: a path (with a slash, or ending in .json), a
// built-in one, or NAME for NAME.json in one of the folders of `path`
// (separated by ':'; may be NULL) or in those that come with the library.
// Errors: those of pen_profile_load(); PEN_E_ARG for a name that is unknown,
// with those that there are. Thread: any.
PEN_API PEN_NODISCARD enum pen_status pen_profile_find(const char *name,
                                                       const char *path,
                                                       struct pen_profile *out,
                                                       struct pen_error *err);

// Zeroed: the built-in profile, the file's limits, nothing read.
struct pen_plan_params {
    const struct pen_profile *profile;  // NULL: "generic-cuda"
    // Budgets in bytes by memory type; 0: the file's, else the default.
    uint64_t budget[PEN_MEM_COUNT];
    // Most transfers a frame to the device and to the host; what is not limited
    // here has the file's limit, if any.
    bool h2d_limited, d2h_limited;
    uint32_t h2d_per_frame, d2h_per_frame;
    bool probe;       // look at the headers of input files
    uint64_t frames;  // of each source, at most; 0: as many as the sources are
                      // known to give, or so many that what is done once
                      // costs nothing
};

// Plan a description. Issues (of the validator too) are appended to `issues`.
// `params` is borrowed until the call returns and may be NULL (all zero);
// `desc` and `registry` are borrowed until the plan is gone. Opens no driver
// and creates nothing; reads input files only with `probe`.
// On success *out is owned by the caller, on failure NULL.
// Errors: PEN_E_CONFIG  issues hold the errors
//         PEN_E_LIMIT   over a budget; issues say which and the largest users
//         PEN_E_NOMEM
// Thread: setup.
PEN_API PEN_NODISCARD enum pen_status
pen_plan_create(const struct pen_description *desc,
                const struct pen_registry *registry,
                const struct pen_plan_params *params, struct pen_plan **out,
                struct pen_issues *issues, struct pen_error *err);
// Sets *plan to NULL; NULL in it is allowed. Thread: setup.
PEN_API void pen_plan_destroy(struct pen_plan **plan);

// Whether sizes are still unknown, and whether some module needs a device.
// Thread: any, as all below.
PEN_API bool pen_plan_provisional(const struct pen_plan *plan);
PEN_API bool pen_plan_needs_device(const struct pen_plan *plan);
// Planned peak bytes of a memory type (of what is known).
PEN_API uint64_t pen_plan_peak(const struct pen_plan *plan,
                               enum pen_mem_type mem);

// Texts, to be freed with pen_free(); NULL when out of memory.
//   text      for people: the chain, then memory, transfers, cost, files, and
//             what is not known before start
//   coloured  the same for a terminal, with its escapes: memory types in
//             colours, and a line that says which is which
//   json      the same for programs, with `issues` (may be NULL)
//   dot, svg  as a drawing
PEN_API char *pen_plan_text(const struct pen_plan *plan);
PEN_API char *pen_plan_text_coloured(const struct pen_plan *plan);
PEN_API char *pen_plan_json(const struct pen_plan *plan,
                            const struct pen_issues *issues);
PEN_API char *pen_plan_dot(const struct pen_plan *plan);
PEN_API char *pen_plan_svg(const struct pen_plan *plan);

// Why there are bridges between two modules or pins, "FROM:TO" (each "id" or
// "id.pin"; a bridge's id may stand for one end, or alone): what forces each of
// them, what the next best plans without it cost, and what would remove it. The
// description is planned again, at most 16 times, with the plan's parameters.
// Texts as above; NULL on failure.
// Errors: PEN_E_ARG     not of that form
//         PEN_E_CONFIG  no such module or pin, or no way from one to the other;
//                       the text names the nearest and the connections
//         PEN_E_STATE   files that were probed are others now
//         PEN_E_NOMEM
// Thread: setup.
PEN_API char *pen_plan_explain(const struct pen_plan *plan, const char *from_to,
                               struct pen_error *err);
PEN_API char *pen_plan_explain_coloured(const struct pen_plan *plan,
                                        const char *from_to,
                                        struct pen_error *err);
PEN_API char *pen_plan_explain_json(const struct pen_plan *plan,
                                    const char *from_to, struct pen_error *err);

PEN_END

#endif  // PEN_PLAN_H
