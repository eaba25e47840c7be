#ifndef STK_STR_H
#define STK_STR_H

// Growing text, an arena for things that live as long as their owner, checked
// arithmetic, and the distance between words. Nothing here aborts: a failed
// allocation is remembered and told by the function that ends the use.

#include <penstock/status.h>

// Text under construction; {0} is empty.
struct stk_text {
    char *data;  // zero-terminated once something was added
    size_t length, room;
    bool failed;  // out of memory: data is no longer complete
};
void stk_text_add(struct stk_text *t, const char *s);
void stk_text_add_n(struct stk_text *t, const char *s, size_t n);
PEN_PRINTF(2, 3)
void stk_text_addf(struct stk_text *t, const char *format, ...);
// For texts that people read: what would steer their terminal (control
// characters, line ends too) becomes '?'. Names and paths of pipeline files
// may come from strangers.
void stk_text_add_plain(struct stk_text *t, const char *s);
// The text as malloc'd string ("" if nothing was added), or NULL after a
// failure; *t is {0} afterwards.
char *stk_text_take(struct stk_text *t);
void stk_text_finish(struct stk_text *t);

// Memory that is freed all at once; {0} is empty. Zeroed, aligned to 16.
struct stk_arena {
    struct stk_arena_block *blocks;
};
void *stk_arena_alloc(struct stk_arena *a, size_t bytes);  // NULL: no memory
char *stk_arena_strdup(struct stk_arena *a, const char *s);
PEN_PRINTF(2, 3)
char *stk_arena_printf(struct stk_arena *a, const char *f, ...);
void stk_arena_finish(struct stk_arena *a);

// a * b, a + b in size_t; false on overflow.
bool stk_mul(size_t a, size_t b, size_t *out);
bool stk_add(size_t a, size_t b, size_t *out);
// Up to a multiple of `align` (a power of two).
bool stk_align(size_t value, size_t align, size_t *out);

// The candidate nearest to `word` (Damerau-Levenshtein, case ignored), or NULL
// if none is within a third of its length. `next` returns candidate i or NULL.
const char *stk_nearest(const char *word,
                        const char *(*next)(const void *cookie, size_t i),
                        const void *cookie);

// "512", "4KiB", "1.5 GiB", "512MiB" -> bytes; false if it is no size.
bool stk_parse_size(const char *text, uint64_t *out);
// "1.50 GiB"; at most `size` bytes with the ending zero.
void stk_format_size(uint64_t bytes, char *text, size_t size);

// Nanoseconds of the monotonic clock.
int64_t stk_now(void);
// Bytes of memory that this machine has; 0: unknown.
uint64_t stk_machine_memory(void);

#endif  // STK_STR_H
