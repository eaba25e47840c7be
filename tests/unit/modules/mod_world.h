#ifndef MOD_WORLD_H
#define MOD_WORLD_H

// Pipelines of built-in modules from one line of text, and what came of them.
//
// Quotes in the text may be written as ', so that it can stand in a C string.
// Three classes are added to the built-in ones:
//   TSource   gives `count` frames with the bytes of `file` (a raw picture of
//             width x height in `format`, or an encoded file) in memory `mem`,
//             which may be CUDA_DEVICE or (of the device) DMABUF
//   TSink     takes frames as they come from memory `mem`
//   TDmaSink  takes DMABUFs only, by their descriptors, without the device

#include <stdatomic.h>

#include "pen_test.h"

#include <penstock/pipeline.h>

enum mod_stage { MOD_NOTHING, MOD_CREATED, MOD_STARTED };

struct outcome {
    enum pen_status status;  // of the last step that was done
    struct pen_error err;
    enum mod_stage stage;  // how far it came
    struct pen_stats stats;
    char issues[4096];  // one line each
    char log[4096];     // likewise
    char *plan;         // JSON, of the plan in force at the end
};

struct mod_options {
    uint64_t frames;
    bool probe;
};

extern struct mod_options mod_options;  // for the next runs; {0} by default

// Parse, plan, run to the end. Fails the test if something is left in the
// ledger, whatever the outcome.
struct outcome mod_run(const char *text, ...)
    __attribute__((format(printf, 1, 2)));
// The same, and the test fails unless all went well.
struct outcome mod_must(const char *text, ...)
    __attribute__((format(printf, 1, 2)));
void outcome_free(struct outcome *o);
// The test fails unless the run ended with `status` and an error (or issue)
// that holds `text`.
void mod_expect(struct outcome *o, enum pen_status status, const char *text);

// In the emulator's modes lazy, eager, random; on a GPU once.
void mod_all_modes(void (*body)(void));

// Frames that TSink took, in all.
extern _Atomic unsigned mod_taken;

// What TDmaSink saw; set it to {0} before a run. Its frames come one after the
// other.
struct mod_dma {
    unsigned frames;
    unsigned mapped;  // of those, the host could map
    uint64_t hash;    // mod_hash() over the samples of these
};
extern struct mod_dma mod_dma;
// FNV-1a; 0 begins.
uint64_t mod_hash(uint64_t hash, const void *bytes, size_t count);

// "folder/name"; static buffer of the last 8 calls.
const char *in(const char *folder, const char *name);
bool file_exists(const char *path);
// Entries of a folder, hidden ones too.
unsigned folder_entries(const char *path);
void same_files(const char *a, const char *b);

#endif  // MOD_WORLD_H
