#ifndef PEN_BASE_H
#define PEN_BASE_H

// Compiler attributes and the version. Every other header includes this one.

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#define PEN_BEGIN extern "C" {
#define PEN_END   }
#else
#define PEN_BEGIN
#define PEN_END
#endif

#define PEN_API          __attribute__((visibility("default")))
#define PEN_NODISCARD    __attribute__((warn_unused_result))
#define PEN_PRINTF(f, a) __attribute__((format(printf, f, a)))

#ifdef __cplusplus
#define PEN_STATIC_ASSERT(cond, text) static_assert(cond, text)
#else
#define PEN_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

// "file:line" of the place where it stands; for leak reports.
#define PEN_HERE          __FILE__ ":" PEN_STRINGIFY(__LINE__)
#define PEN_STRINGIFY(x)  PEN_STRINGIFY_(x)
#define PEN_STRINGIFY_(x) #x

#define PEN_VERSION_MAJOR 0
#define PEN_VERSION_MINOR 1
#define PEN_VERSION_PATCH 0

PEN_BEGIN

// Version of the library at run time, "major.minor.patch".
// Thread: any.
PEN_API const char *pen_version(void);

// A ratio of two integers; {0, 0} means "not given". Frame rates are frames
// per second: 30000/1001 is {30000, 1001}.
struct pen_rational {
    int32_t num, den;
};

PEN_END

#endif  // PEN_BASE_H
