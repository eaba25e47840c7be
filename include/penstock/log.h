#ifndef PEN_LOG_H
#define PEN_LOG_H

#include <penstock/base.h>

PEN_BEGIN

// Where the library's notices go. There is no global log: an object that is
// given none (NULL) is silent. What is returned as pen_error is not logged.
enum pen_log_level {
    PEN_LOG_NONE = 0,
    PEN_LOG_ERROR,  // something was given up
    PEN_LOG_WARN,   // worked, but not as asked
    PEN_LOG_INFO,   // once per run
    PEN_LOG_DEBUG,  // per object
};

struct pen_log {
    // Called with one line without newline. `topic` is "pen.gpu", "pen.run",...
    // May be called from any thread, with no lock held. NULL: silent.
    void (*message)(void *cookie, enum pen_log_level level, const char *topic,
                    const char *text);
    void *cookie;
    enum pen_log_level level;  // most detailed level wanted; 0: none
};

// Write one line to `log` if it wants the level; `log` may be NULL.
// Thread: any.
PEN_API PEN_PRINTF(4, 5) void pen_log_write(const struct pen_log *log,
                                            enum pen_log_level level,
                                            const char *topic,
                                            const char *format, ...);

PEN_END

#endif  // PEN_LOG_H
