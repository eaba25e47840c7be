#include "ptx_check.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static bool has(const char *op, const char *part)
{
    // A modifier is a whole word between dots.
    const size_t n = strlen(part);
    for (const char *at = strstr(op, part); at; at = strstr(at + 1, part))
        if (at[n] == '\0' || at[n] == '.')
            return true;
    return false;
}

static bool is_float(const char *op)
{
    return has(op, ".f16") || has(op, ".f16x2") || has(op, ".bf16") ||
           has(op, ".bf16x2") || has(op, ".f32") || has(op, ".f64");
}

static bool rounds(const char *op)
{
    return has(op, ".rn") || has(op, ".rz") || has(op, ".rm") || has(op, ".rp");
}

static bool starts(const char *op, const char *name)
{
    const size_t n = strlen(name);
    return strncmp(op, name, n) == 0 && op[n] == '.';
}

const char *ptx_find_contractible(const char *ptx)
{
    static char found[128];
    while (*ptx) {
        const size_t line = strcspn(ptx, "\n");
        char op[64] = "";
        const char *at = ptx + strspn(ptx, " \t");
        if (*at == '@') {  // predicate
            at += strcspn(at, " \t\n");
            at += strspn(at, " \t");
        }
        const size_t n = strcspn(at, " \t\n;");
        if (at < ptx + line && n < sizeof(op)) {
            memcpy(op, at, n);
            op[n] = '\0';
        }
        const bool sum =
            starts(op, "mul") || starts(op, "add") || starts(op, "sub");
        const bool fused = starts(op, "fma") || starts(op, "mad");
        if (is_float(op) &&
            ((sum && !rounds(op)) || fused || has(op, ".approx"))) {
            snprintf(found, sizeof(found), "%.*s",
                     (int)(line < sizeof(found) ? line : sizeof(found) - 1),
                     ptx);
            return found;
        }
        ptx += line + (ptx[line] == '\n');
    }
    return NULL;
}
