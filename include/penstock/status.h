#ifndef PEN_STATUS_H
#define PEN_STATUS_H

#include <penstock/base.h>

PEN_BEGIN

// id, value, text. Values are part of the ABI: append, never renumber.
// Zero is success, positive is flow (not an error), negative is failure.
// clang-format off
#define PEN_STATUS_MAP(X)                                                   \
    X(OK,             0, "success")                                         \
    X(AGAIN,          1, "no data yet; call again")                         \
    X(EOS,            2, "end of stream")                                   \
    X(E_ARG,         -1, "invalid argument (caller bug)")                   \
    X(E_CONFIG,      -2, "invalid pipeline description")                    \
    X(E_UNSUPPORTED, -3, "valid, but not supported here")                   \
    X(E_NOMEM,       -4, "out of host memory")                              \
    X(E_DEVMEM,      -5, "out of device memory")                            \
    X(E_NODRIVER,    -6, "no usable CUDA driver")                           \
    X(E_DRIVER,      -7, "driver call failed; see pen_error.native")        \
    X(E_LOST,        -8, "device context is no longer usable")              \
    X(E_IO,          -9, "input/output failed")                             \
    X(E_TIMEOUT,    -10, "timed out")                                       \
    X(E_DATA,       -11, "input data is damaged or of an unknown kind")     \
    X(E_LIMIT,      -12, "over a budget or limit")                          \
    X(E_STATE,      -13, "not possible in the object's present state")      \
    X(E_LEAK,       -14, "something was not released")
// clang-format on

enum pen_status {
#define X(id, value, text) PEN_##id = value,
    PEN_STATUS_MAP(X)
#undef X
};

// Details of one failure. The caller owns it; NULL is accepted everywhere.
// Whoever returns a negative status has filled it in; it is filled once, at
// the origin, and passed through.
struct pen_error {
    enum pen_status status;
    int native;       // CUresult or errno of the failing call; 0 if none
    char where[160];  // JSON pointer, "module.pin" or the object's name
    char text[512];   // one sentence for a human: what was wrong, what is right
};

// The enumerator's name without prefix ("E_CONFIG"), and its text. Unknown
// values give "?" and "unknown status". Static strings. Thread: any.
PEN_API const char *pen_status_name(enum pen_status status);
PEN_API const char *pen_status_text(enum pen_status status);

// Fill in `err` (NULL is allowed) and return `status`, so that a failing
// function ends in `return pen_error_set(...)`. Text is cut to fit, never
// overrun. Thread: any.
PEN_API PEN_PRINTF(5, 6) enum pen_status
    pen_error_set(struct pen_error *err, enum pen_status status, int native,
                  const char *where, const char *format, ...);

// Return from the calling function when `expr` is not PEN_OK. The only macro
// of the library that changes the flow of control.
#define PEN_TRY(expr)                                                          \
    do {                                                                       \
        const enum pen_status pen_try_st = (expr);                             \
        if (pen_try_st != PEN_OK)                                              \
            return pen_try_st;                                                 \
    } while (0)

PEN_END

#endif  // PEN_STATUS_H
