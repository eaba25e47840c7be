#include "str.h"

#include <stdalign.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

// --- text -------------------------------------------------------------------

// Make room for `more` characters and the ending zero.
static bool text_reserve(struct stk_text *t, size_t more)
{
    if (t->failed)
        return false;
    size_t need = 0;
    if (!stk_add(t->length, more, &need) || !stk_add(need, 1, &need)) {
        t->failed = true;
        return false;
    }
    if (need <= t->room)
        return true;

    size_t room = t->room ? t->room : 64;
    while (room < need) {
        if (!stk_mul(room, 2, &room))
            room = need;
    }
    char *data = realloc(t->data, room);
    if (!data) {
        t->failed = true;
        return false;
    }
    t->data = data;
    t->room = room;
    return true;
}

void stk_text_add_n(struct stk_text *t, const char *s, size_t n)
{
    if (!text_reserve(t, n))
        return;
    if (n)
        memcpy(t->data + t->length, s, n);
    t->length += n;
    t->data[t->length] = 0;
}

void stk_text_add(struct stk_text *t, const char *s)
{
    stk_text_add_n(t, s, strlen(s));
}

// Bytes of a character at `s` that steers: a control character, or one that
// turns the direction of what follows (U+202A to U+202E, U+2066 to U+2069).
static size_t steering(const unsigned char *s)
{
    if (s[0] < 0x20 || s[0] == 0x7f)
        return 1;
    if (s[0] == 0xc2 && s[1] >= 0x80 && s[1] < 0xa0)
        return 2;
    if (s[0] == 0xe2 && s[1] == 0x80 && s[2] >= 0xaa && s[2] <= 0xae)
        return 3;
    if (s[0] == 0xe2 && s[1] == 0x81 && s[2] >= 0xa6 && s[2] <= 0xa9)
        return 3;
    return 0;
}

void stk_text_add_plain(struct stk_text *t, const char *s)
{
    while (*s) {
        const size_t length = steering((const unsigned char *)s);
        if (length)
            stk_text_add(t, "?");
        else
            stk_text_add_n(t, s, 1);
        s += length ? length : 1;
    }
}

void stk_text_addf(struct stk_text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) {
        t->failed = true;
    } else if (text_reserve(t, (size_t)n)) {
        vsnprintf(t->data + t->length, (size_t)n + 1, format, again);
        t->length += (size_t)n;
    }
    va_end(again);
}

char *stk_text_take(struct stk_text *t)
{
    if (!t->data)
        text_reserve(t, 0);
    char *data = t->data;
    if (t->failed || !data) {
        free(data);
        data = NULL;
    } else {
        data[t->length] = 0;
    }
    *t = (struct stk_text){ 0 };
    return data;
}

void stk_text_finish(struct stk_text *t)
{
    free(t->data);
    *t = (struct stk_text){ 0 };
}

// --- arena ------------------------------------------------------------------

enum { ARENA_ALIGN = 16, ARENA_BLOCK = 4096 };

struct stk_arena_block {
    struct stk_arena_block *next;
    size_t used, room;  // bytes of data
    alignas(ARENA_ALIGN) unsigned char data[];
};

void *stk_arena_alloc(struct stk_arena *a, size_t bytes)
{
    size_t size = 0;
    if (!stk_align(bytes ? bytes : 1, ARENA_ALIGN, &size))
        return NULL;

    struct stk_arena_block *b = a->blocks;
    if (!b || b->room - b->used < size) {
        const size_t room = size > ARENA_BLOCK ? size : ARENA_BLOCK;
        size_t total = 0;
        if (!stk_add(room, sizeof(*b), &total))
            return NULL;
        b = calloc(1, total);
        if (!b)
            return NULL;
        b->room = room;
        // A block that is full at once goes behind the one with space left.
        if (a->blocks && size > ARENA_BLOCK) {
            b->next = a->blocks->next;
            a->blocks->next = b;
        } else {
            b->next = a->blocks;
            a->blocks = b;
        }
    }
    void *memory = b->data + b->used;
    b->used += size;
    return memory;
}

char *stk_arena_strdup(struct stk_arena *a, const char *s)
{
    const size_t bytes = strlen(s) + 1;
    char *copy = stk_arena_alloc(a, bytes);
    if (copy)
        memcpy(copy, s, bytes);
    return copy;
}

char *stk_arena_printf(struct stk_arena *a, const char *f, ...)
{
    va_list args, again;
    va_start(args, f);
    va_copy(again, args);
    const int n = vsnprintf(NULL, 0, f, args);
    va_end(args);
    char *text = n < 0 ? NULL : stk_arena_alloc(a, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, f, again);
    va_end(again);
    return text;
}

void stk_arena_finish(struct stk_arena *a)
{
    while (a->blocks) {
        struct stk_arena_block *b = a->blocks;
        a->blocks = b->next;
        free(b);
    }
}

// --- checked arithmetic -----------------------------------------------------

bool stk_mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

bool stk_add(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

bool stk_align(size_t value, size_t align, size_t *out)
{
    size_t up = 0;
    if (!stk_add(value, align - 1, &up))
        return false;
    *out = up & ~(align - 1);
    return true;
}

// --- nearest word -----------------------------------------------------------

enum { WORD_MAX = 127 };

static unsigned char lower(char c)
{
    return (unsigned char)(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

// Damerau-Levenshtein (a swap of neighbours is one step); UINT_MAX for words
// too long to be worth it.
static unsigned distance(const char *a, size_t a_length, const char *b)
{
    const size_t b_length = strlen(b);
    if (a_length > WORD_MAX || b_length > WORD_MAX)
        return ~0u;

    unsigned rows[3][WORD_MAX + 1];
    unsigned *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_length; j++)
        above[j] = (unsigned)j;

    for (size_t i = 1; i <= a_length; i++) {
        row[0] = (unsigned)i;
        for (size_t j = 1; j <= b_length; j++) {
            const bool same = lower(a[i - 1]) == lower(b[j - 1]);
            unsigned best = above[j - 1] + !same;
            best = least(best, above[j] + 1);
            best = least(best, row[j - 1] + 1);
            if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) &&
                lower(a[i - 2]) == lower(b[j - 1]))
                best = least(best, before[j - 2] + 1);
            row[j] = best;
        }
        unsigned *oldest = before;
        before = above;
        above = row;
        row = oldest;
    }
    return above[b_length];
}

const char *stk_nearest(const char *word,
                        const char *(*next)(const void *cookie, size_t i),
                        const void *cookie)
{
    const size_t length = strlen(word);
    const char *nearest = NULL;
    unsigned best = (unsigned)least(WORD_MAX, (unsigned)length) / 3 + 1;

    for (size_t i = 0;; i++) {
        const char *candidate = next(cookie, i);
        if (!candidate)
            return nearest;
        const unsigned d = distance(word, length, candidate);
        if (d < best) {
            best = d;
            nearest = candidate;
        }
    }
}

// --- sizes ------------------------------------------------------------------

// clang-format off
static const struct {
    const char *name;
    uint64_t bytes;
} size_units[] = {
    { "",    1 },
    { "B",   1 },
    { "KiB", 1ull << 10 },
    { "MiB", 1ull << 20 },
    { "GiB", 1ull << 30 },
    { "TiB", 1ull << 40 },
    { "KB",  1000ull },
    { "MB",  1000ull * 1000 },
    { "GB",  1000ull * 1000 * 1000 },
    { "TB",  1000ull * 1000 * 1000 * 1000 },
};
// clang-format on

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t')
        s++;
    return s;
}

bool stk_parse_size(const char *text, uint64_t *out)
{
    const char *s = skip_blanks(text);
    if (!is_digit(*s))
        return false;

    uint64_t whole = 0;
    for (; is_digit(*s); s++) {
        if (__builtin_mul_overflow(whole, 10u, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*s - '0'), &whole))
            return false;
    }

    // Six digits are finer than a byte needs at KiB and coarser than a MiB at
    // TiB; what follows them is rounded down.
    uint64_t millionths = 0;
    bool fraction = false;
    if (*s == '.') {
        fraction = true;
        uint64_t weight = 100000;
        for (s++; is_digit(*s); s++) {
            millionths += weight * (uint64_t)(*s - '0');
            weight /= 10;
        }
        if (s[-1] == '.')
            return false;
    }

    s = skip_blanks(s);
    size_t length = strlen(s);
    while (length && (s[length - 1] == ' ' || s[length - 1] == '\t'))
        length--;

    for (size_t i = 0; i < sizeof(size_units) / sizeof(size_units[0]); i++) {
        if (strlen(size_units[i].name) != length ||
            strncasecmp(size_units[i].name, s, length) != 0)
            continue;
        const uint64_t unit = size_units[i].bytes;
        if (fraction && unit == 1)
            return false;
        uint64_t bytes = 0;
        if (__builtin_mul_overflow(whole, unit, &bytes) ||
            __builtin_add_overflow(bytes, unit * millionths / 1000000u, &bytes))
            return false;
        *out = bytes;
        return true;
    }
    return false;
}

void stk_format_size(uint64_t bytes, char *text, size_t size)
{
    static const char *const names[] = { "KiB", "MiB", "GiB",
                                         "TiB", "PiB", "EiB" };
    if (bytes < 1024) {
        snprintf(text, size, "%u B", (unsigned)bytes);
        return;
    }
    // In hundredths and integers: printf's %f depends on the locale.
    for (unsigned i = 0;; i++) {
        const unsigned shift = 10 * (i + 1);
        const uint64_t unit = 1ull << shift;
        const uint64_t rest = bytes & (unit - 1);
        // rest * 100 / unit, rounded, without overflow for EiB
        const uint64_t part =
            shift > 50 ? ((rest >> 20) * 100 + (unit >> 21)) >> (shift - 20)
                       : (rest * 100 + unit / 2) >> shift;
        const uint64_t hundredths = (bytes >> shift) * 100 + part;
        if (hundredths < 102400 || i + 1 == sizeof(names) / sizeof(names[0])) {
            snprintf(text, size, "%u.%02u %s", (unsigned)(hundredths / 100),
                     (unsigned)(hundredths % 100), names[i]);
            return;
        }
    }
}

int64_t stk_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

uint64_t stk_machine_memory(void)
{
    const long pages = sysconf(_SC_PHYS_PAGES), size = sysconf(_SC_PAGESIZE);
    return pages > 0 && size > 0 ? (uint64_t)pages * (uint64_t)size : 0;
}
