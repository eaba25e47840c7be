#ifndef STK_NEIGHBOURS_H
#define STK_NEIGHBOURS_H

// What a built-in module may know of the pipeline that it is part of, beyond
// its own frames. All of it stays the same from open() to close().

#include <penstock/module.h>

struct stk_neighbour {
    const char *id;
    const struct pen_module_class *cls;
    const void *params;  // cls->params_size bytes
};

// Module number `i` of the pipeline, inserted ones and `m` itself among them;
// false past the last. Thread: setup, data.
bool stk_module_neighbour(const struct pen_module *m, uint32_t i,
                          struct stk_neighbour *out);

// Frames that each source is expected to give; 0: unknown.
// Thread: setup, data.
uint64_t stk_module_expected_frames(const struct pen_module *m);

#endif  // STK_NEIGHBOURS_H
