#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <penstock/log.h>
#include <penstock/status.h>

const char *pen_version(void)
{
    return PEN_STRINGIFY(PEN_VERSION_MAJOR) "." PEN_STRINGIFY(
        PEN_VERSION_MINOR) "." PEN_STRINGIFY(PEN_VERSION_PATCH);
}

const char *pen_status_name(enum pen_status status)
{
    switch (status) {
#define X(id, value, text)                                                     \
    case PEN_##id:                                                             \
        return #id;
        PEN_STATUS_MAP(X)
#undef X
    }
    return "?";
}

const char *pen_status_text(enum pen_status status)
{
    switch (status) {
#define X(id, value, text)                                                     \
    case PEN_##id:                                                             \
        return text;
        PEN_STATUS_MAP(X)
#undef X
    }
    return "unknown status";
}

// A text that was cut may end inside a UTF-8 sequence: drop the broken rest,
// since messages end up in JSON.
static void drop_partial_utf8(char *text)
{
    size_t end = strlen(text);
    size_t start = end;
    while (start && end - start < 3 &&
           ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (!start)
        return;
    const unsigned char lead = (unsigned char)text[start - 1];
    const size_t need = lead >= 0xf0   ? 4
                        : lead >= 0xe0 ? 3
                        : lead >= 0xc0 ? 2
                                       : 1;
    if (need > end - start + 1)
        text[start - 1] = 0;
}

enum pen_status pen_error_set(struct pen_error *err, enum pen_status status,
                              int native, const char *where, const char *format,
                              ...)
{
    if (!err)
        return status;

    // Formatted aside: the arguments may point into *err, when an outer
    // function adds to the text of an inner one.
    struct pen_error e = { .status = status, .native = native };
    va_list args;
    va_start(args, format);
    const int text_length = vsnprintf(e.text, sizeof(e.text), format, args);
    va_end(args);
    if (text_length >= (int)sizeof(e.text))
        drop_partial_utf8(e.text);

    const int where_length =
        snprintf(e.where, sizeof(e.where), "%s", where ? where : "");
    if (where_length >= (int)sizeof(e.where))
        drop_partial_utf8(e.where);

    *err = e;
    return status;
}

void pen_log_write(const struct pen_log *log, enum pen_log_level level,
                   const char *topic, const char *format, ...)
{
    if (!log || !log->message || level <= PEN_LOG_NONE || level > log->level)
        return;

    char text[2048];
    va_list args;
    va_start(args, format);
    const int length = vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (length < 0)
        return;
    if (length >= (int)sizeof(text))
        drop_partial_utf8(text);

    // One call is one line, whatever a driver or library put into its text.
    size_t end = strlen(text);
    while (end && (text[end - 1] == '\n' || text[end - 1] == '\r'))
        text[--end] = 0;
    for (size_t i = 0; i < end; i++) {
        if (text[i] == '\n' || text[i] == '\r')
            text[i] = ' ';
    }
    log->message(log->cookie, level, topic, text);
}
