#include <penstock/registry.h>

#include "../graph/graph.h"
#include "modules.h"

enum pen_status pen_registry_create(struct pen_registry **out,
                                    struct pen_error *err)
{
    static const struct pen_module_class *const classes[] = {
#define X(name) &stk_class_##name,
        STK_MODULES(X)
#undef X
    };

    PEN_TRY(stk_registry_new(out, err));
    for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
        const enum pen_status st = pen_registry_add(*out, classes[i], err);
        if (st != PEN_OK) {
            pen_registry_destroy(out);
            return st;
        }
    }
    return PEN_OK;
}
