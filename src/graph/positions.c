// One pass over the text of a JSON file: grammar, values, and the line and
// column of every JSON pointer.

#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

// --- the table of places ----------------------------------------------------

// A member or element. Pointers are not stored: a node knows its parent and
// its own key, and is found by the hash of both.
struct node {
    uint32_t parent;
    uint32_t key, key_length;  // in `keys`; of an element its number
    uint32_t hash;
    uint32_t line, column;
};
enum { ROOT = 0 };
#define IS_ELEMENT UINT32_MAX

struct stk_positions {
    struct node *nodes;
    uint32_t count, room;
    uint32_t *slots;  // node numbers; 0 (the root, never entered) is empty
    uint32_t slot_mask;
    char *keys;
    size_t keys_length, keys_room;
    uint32_t seed;
};

void stk_positions_destroy(struct stk_positions **p)
{
    if (!*p)
        return;
    free((*p)->nodes);
    free((*p)->slots);
    free((*p)->keys);
    free(*p);
    *p = NULL;
}

static uint32_t hash_begin(const struct stk_positions *p, uint32_t parent)
{
    return (parent ^ p->seed) * 0x9e3779b1u;
}

static uint32_t hash_byte(uint32_t hash, unsigned char byte)
{
    return (hash ^ byte) * 0x01000193u;
}

static uint32_t hash_end(uint32_t hash)
{
    hash ^= hash >> 15;
    hash *= 0x85ebca6bu;
    return hash ^ hash >> 13;
}

// The key of a node as text; `number` has room for an element's.
static const char *key_text(const struct stk_positions *p,
                            const struct node *node, char number[16],
                            size_t *length)
{
    if (node->key_length != IS_ELEMENT) {
        *length = node->key_length;
        return p->keys + node->key;
    }
    *length = (size_t)snprintf(number, 16, "%" PRIu32, node->key);
    return number;
}

static bool grow_slots(struct stk_positions *p)
{
    const uint32_t size = p->slot_mask ? 2 * (p->slot_mask + 1) : 256;
    uint32_t *slots = calloc(size, sizeof(*slots));
    if (!slots)
        return false;
    for (uint32_t i = 0; i < (p->slot_mask ? p->slot_mask + 1 : 0); i++) {
        if (!p->slots[i])
            continue;
        uint32_t at = p->nodes[p->slots[i]].hash & (size - 1);
        while (slots[at])
            at = (at + 1) & (size - 1);
        slots[at] = p->slots[i];
    }
    free(p->slots);
    p->slots = slots;
    p->slot_mask = size - 1;
    return true;
}

// Add a node; `key` NULL means element `number`. 0 when out of memory.
static uint32_t add_node(struct stk_positions *p, uint32_t parent,
                         const char *key, size_t key_length, uint32_t number)
{
    if (p->count == p->room) {
        const uint32_t room = p->room ? 2 * p->room : 128;
        struct node *nodes = realloc(p->nodes, room * sizeof(*nodes));
        if (!nodes)
            return 0;
        p->nodes = nodes;
        p->room = room;
    }
    struct node *node = &p->nodes[p->count];
    *node = (struct node){
        .parent = parent,
        .key = number,
        .key_length = IS_ELEMENT,
    };
    if (key) {
        if (p->keys_room - p->keys_length < key_length + 1) {
            size_t room = p->keys_room ? 2 * p->keys_room : 1024;
            while (room - p->keys_length < key_length + 1)
                room *= 2;
            char *keys = realloc(p->keys, room);
            if (!keys)
                return 0;
            p->keys = keys;
            p->keys_room = room;
        }
        node->key = (uint32_t)p->keys_length;
        node->key_length = (uint32_t)key_length;
        memcpy(p->keys + p->keys_length, key, key_length);
        p->keys[p->keys_length + key_length] = 0;
        p->keys_length += key_length + 1;
    }
    char text[16];
    size_t length;
    const char *s = key_text(p, node, text, &length);
    uint32_t hash = hash_begin(p, parent);
    for (size_t i = 0; i < length; i++)
        hash = hash_byte(hash, (unsigned char)s[i]);
    node->hash = hash_end(hash);
    return p->count++;
}

static bool enter_node(struct stk_positions *p, uint32_t number)
{
    if (2 * p->count >= p->slot_mask && !grow_slots(p))
        return false;
    uint32_t at = p->nodes[number].hash & p->slot_mask;
    while (p->slots[at])
        at = (at + 1) & p->slot_mask;
    p->slots[at] = number;
    return true;
}

// The next byte of a pointer's segment with ~0 and ~1 resolved.
static unsigned char unescape(const char *segment, size_t length, size_t *i)
{
    const char c = segment[(*i)++];
    if (c != '~' || *i == length || (segment[*i] != '0' && segment[*i] != '1'))
        return (unsigned char)c;
    return segment[(*i)++] == '1' ? '/' : '~';
}

static bool key_is(const char *key, size_t key_length, const char *segment,
                   size_t length)
{
    size_t i = 0, k = 0;
    while (i < length && k < key_length) {
        if (unescape(segment, length, &i) != (unsigned char)key[k++])
            return false;
    }
    return i == length && k == key_length;
}

// The child that an escaped segment names; 0 if there is none.
static uint32_t find_child(const struct stk_positions *p, uint32_t parent,
                           const char *segment, size_t length)
{
    if (!p->slot_mask)
        return 0;
    uint32_t hash = hash_begin(p, parent);
    for (size_t i = 0; i < length;)
        hash = hash_byte(hash, unescape(segment, length, &i));
    hash = hash_end(hash);

    for (uint32_t at = hash & p->slot_mask; p->slots[at];
         at = (at + 1) & p->slot_mask) {
        const struct node *node = &p->nodes[p->slots[at]];
        if (node->hash != hash || node->parent != parent)
            continue;
        char number[16];
        size_t key_length;
        const char *key = key_text(p, node, number, &key_length);
        if (key_is(key, key_length, segment, length))
            return p->slots[at];
    }
    return 0;
}

bool stk_positions_find(const struct stk_positions *p, const char *pointer,
                        size_t length, int *line, int *column)
{
    if (!p->count)
        return false;
    uint32_t node = ROOT;
    for (size_t i = 0; i < length;) {
        if (pointer[i++] != '/')
            return false;
        const char *end = memchr(pointer + i, '/', length - i);
        const size_t n = end ? (size_t)(end - (pointer + i)) : length - i;
        node = find_child(p, node, pointer + i, n);
        if (node == ROOT)
            return false;
        i += n;
    }
    *line = (int)p->nodes[node].line;
    *column = (int)p->nodes[node].column;
    return true;
}

static void add_escaped(struct stk_text *t, const char *key, size_t length)
{
    for (size_t i = 0; i < length; i++) {
        if (key[i] == '~')
            stk_text_add(t, "~0");
        else if (key[i] == '/')
            stk_text_add(t, "~1");
        else
            stk_text_add_n(t, key + i, 1);
    }
}

char *stk_pointer_join(struct stk_arena *arena, const char *base,
                       const char *key)
{
    if (!key[strcspn(key, "~/")])
        return stk_arena_printf(arena, "%s/%s", base, key);
    struct stk_text t = { 0 };
    add_escaped(&t, key, strlen(key));
    char *pointer =
        t.failed ? NULL : stk_arena_printf(arena, "%s/%s", base, t.data);
    stk_text_finish(&t);
    return pointer;
}

static void add_pointer(const struct stk_positions *p, uint32_t node,
                        struct stk_text *t)
{
    if (node == ROOT)
        return;
    add_pointer(p, p->nodes[node].parent, t);
    char number[16];
    size_t length;
    const char *key = key_text(p, &p->nodes[node], number, &length);
    stk_text_add(t, "/");
    add_escaped(t, key, length);
}

// --- the scanner ------------------------------------------------------------

struct place {
    int line, column;
};

struct scan {
    const char *p, *end;
    const char *mark;  // `line` and `column` are those of this byte
    int line, column;
    struct stk_positions *positions;
    struct pen_issues *issues;
    struct pen_error *err;
    struct stk_text decoded;  // of a string with escapes
    bool nomem, limit;
};

// Lines end with LF, CRLF or CR; columns count characters, a tab as one.
static struct place place_of(struct scan *s, const char *at)
{
    for (; s->mark < at; s->mark++) {
        const char c = *s->mark;
        if (c == '\n' ||
            (c == '\r' && (s->mark + 1 == s->end || s->mark[1] != '\n'))) {
            s->line++;
            s->column = 1;
        } else if (c != '\r' && ((unsigned char)c & 0xc0) != 0x80) {
            s->column++;
        }
    }
    return (struct place){ s->line, s->column };
}

// Complain about what stands at `at`; the scan is over. NULL, so that the
// caller can return it.
PEN_PRINTF(5, 6)
static json_t *complain(struct scan *s, const char *at, uint32_t node,
                        const char *suggestion, const char *format, ...)
{
    struct stk_text pointer = { 0 };
    char message[400];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof(message), format, args);
    va_end(args);
    add_pointer(s->positions, node, &pointer);
    const struct place place = place_of(s, at);
    if (pointer.failed)
        s->nomem = true;
    else
        stk_issue_add_at(s->issues, PEN_SEVERITY_ERROR, "E000", place.line,
                         place.column, pointer.data, suggestion, "%s", message);
    stk_text_finish(&pointer);
    return NULL;
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= '0' && c <= '9');
}

// What stands at `at`, in words.
static const char *found(const struct scan *s, const char *at, char text[64])
{
    if (at >= s->end)
        return "the end of the file";
    const unsigned char c = (unsigned char)*at;
    const size_t n = stk_utf8_length(at, s->end);
    size_t word = 0;
    while (at + word < s->end && word < 32 && is_word(at[word]))
        word++;
    if (c == 0)
        snprintf(text, 64, "a NUL byte");
    else if (c == '\n' || c == '\r')
        snprintf(text, 64, "the end of the line");
    else if (c == '\t')
        snprintf(text, 64, "a tab");
    else if (c < 0x20 || c == 0x7f)
        snprintf(text, 64, "the control character 0x%02x", c);
    else if (n == 0)
        snprintf(text, 64, "the byte 0x%02x, which is no UTF-8", c);
    else if (word > 1)
        snprintf(text, 64, "%.*s", (int)word, at);
    else
        snprintf(text, 64, "'%.*s'", (int)n, at);
    return text;
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end &&
           (*s->p == ' ' || *s->p == '\t' || *s->p == '\n' || *s->p == '\r'))
        s->p++;
}

static bool starts_with(const struct scan *s, const char *at, const char *word)
{
    const size_t n = strlen(word);
    return (size_t)(s->end - at) >= n && memcmp(at, word, n) == 0;
}

struct span {
    const char *s;  // NULL after a complaint
    size_t n;
};

static int hex4(const struct scan *s, const char *at)
{
    if (s->end - at < 4)
        return -1;
    int value = 0;
    for (int i = 0; i < 4; i++) {
        const char c = at[i];
        int digit;
        if (c >= '0' && c <= '9')
            digit = c - '0';
        else if (c >= 'a' && c <= 'f')
            digit = c - 'a' + 10;
        else if (c >= 'A' && c <= 'F')
            digit = c - 'A' + 10;
        else
            return -1;
        value = 16 * value + digit;
    }
    return value;
}

static void add_utf8(struct stk_text *t, uint32_t c)
{
    char out[4];
    size_t n = 0;
    if (c < 0x80) {
        out[n++] = (char)c;
    } else if (c < 0x800) {
        out[n++] = (char)(0xc0 | c >> 6);
        out[n++] = (char)(0x80 | (c & 0x3f));
    } else if (c < 0x10000) {
        out[n++] = (char)(0xe0 | c >> 12);
        out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        out[n++] = (char)(0x80 | (c & 0x3f));
    } else {
        out[n++] = (char)(0xf0 | c >> 18);
        out[n++] = (char)(0x80 | (c >> 12 & 0x3f));
        out[n++] = (char)(0x80 | (c >> 6 & 0x3f));
        out[n++] = (char)(0x80 | (c & 0x3f));
    }
    stk_text_add_n(t, out, n);
}

// The escape at s->p (a backslash); false after a complaint.
static bool scan_escape(struct scan *s, uint32_t node)
{
    static const char plain[] = "\"\\/bfnrt";
    static const char value[] = "\"\\/\b\f\n\r\t";
    const char *start = s->p++;
    char text[64];
    const char *which = s->p < s->end && *s->p ? strchr(plain, *s->p) : NULL;
    if (which) {
        stk_text_add_n(&s->decoded, value + (which - plain), 1);
        s->p++;
        return true;
    }
    if (s->p >= s->end || *s->p != 'u') {
        complain(s, start, node, "a backslash is written \\\\",
                 "a backslash in a string must be followed by one of "
                 "\" \\ / b f n r t u, found %s",
                 found(s, s->p, text));
        return false;
    }
    s->p++;
    const int first = hex4(s, s->p);
    if (first < 0) {
        complain(s, start, node, "",
                 "\\u must be followed by four hexadecimal "
                 "digits");
        return false;
    }
    s->p += 4;
    uint32_t c = (uint32_t)first;
    if (c == 0) {
        complain(s, start, node, "", "\\u0000 is not allowed in a string");
        return false;
    }
    if (c >= 0xd800 && c < 0xe000) {
        const int second =
            c < 0xdc00 && starts_with(s, s->p, "\\u") ? hex4(s, s->p + 2) : -1;
        if (second < 0xdc00 || second >= 0xe000) {
            complain(s, start, node, "", "\\u%04x is half of a surrogate pair",
                     c);
            return false;
        }
        s->p += 6;
        c = 0x10000 + ((c - 0xd800) << 10) + ((uint32_t)second - 0xdc00);
    }
    add_utf8(&s->decoded, c);
    return true;
}

// A string at s->p (its quote). The span lives until the next string.
static struct span scan_string(struct scan *s, uint32_t node)
{
    const struct span none = { NULL, 0 };
    const char *quote = s->p++;
    const struct place open = place_of(s, quote);
    const char *run = s->p;
    bool escapes = false;
    s->decoded.length = 0;
    for (;;) {
        if (s->p >= s->end || *s->p == '\n' || *s->p == '\r') {
            complain(s, s->p, node, "close it with \"",
                     "the string that begins at %d:%d is not closed before "
                     "the end of the %s",
                     open.line, open.column, s->p >= s->end ? "file" : "line");
            return none;
        }
        const unsigned char c = (unsigned char)*s->p;
        if (c == '"')
            break;
        if (c == '\\') {
            stk_text_add_n(&s->decoded, run, (size_t)(s->p - run));
            escapes = true;
            if (!scan_escape(s, node))
                return none;
            run = s->p;
        } else if (c < 0x20) {
            char text[64];
            if (c == '\t')
                complain(s, s->p, node, "write \\t",
                         "a tab inside a string must be written as an escape");
            else
                complain(s, s->p, node, "", "%s inside a string",
                         found(s, s->p, text));
            return none;
        } else {
            const size_t n = stk_utf8_length(s->p, s->end);
            if (!n) {
                complain(s, s->p, node, "save the file as UTF-8",
                         "the byte 0x%02x in a string is no valid UTF-8", c);
                return none;
            }
            s->p += n;
        }
    }
    if (!escapes) {
        const struct span span = { run, (size_t)(s->p - run) };
        s->p++;
        return span;
    }
    stk_text_add_n(&s->decoded, run, (size_t)(s->p - run));
    s->p++;
    if (s->decoded.failed) {
        s->nomem = true;
        return none;
    }
    return (struct span){ s->decoded.data ? s->decoded.data : "",
                          s->decoded.length };
}

static json_t *checked(struct scan *s, json_t *value)
{
    if (!value)
        s->nomem = true;
    return value;
}

static json_t *scan_real(struct scan *s, const char *start, uint32_t node)
{
    const size_t n = (size_t)(s->p - start);
    char small[64];
    char *text = n < sizeof(small) ? small : malloc(n + 1);
    if (!text)
        return checked(s, NULL);
    memcpy(text, start, n);
    text[n] = 0;
    // The C locale is a constant of the C library: nothing is allocated.
    static const char name[] = "C";
    const locale_t locale = newlocale(LC_ALL_MASK, name, (locale_t)0);
    const double value = locale ? strtod_l(text, NULL, locale) : 0;
    if (locale)
        freelocale(locale);
    if (text != small)
        free(text);
    if (!locale)
        return checked(s, NULL);
    if (isinf(value))
        return complain(s, start, node, "", "the number %.*s is too large",
                        (int)(n < 40 ? n : 40), start);
    return checked(s, json_real(value));
}

static bool is_digit(const struct scan *s, const char *at)
{
    return at < s->end && *at >= '0' && *at <= '9';
}

static json_t *scan_number(struct scan *s, uint32_t node)
{
    const char *start = s->p;
    char text[64];
    if (*s->p == '-')
        s->p++;
    if (!is_digit(s, s->p)) {
        if (starts_with(s, s->p, "Inf") || starts_with(s, s->p, "inf") ||
            starts_with(s, s->p, "NaN") || starts_with(s, s->p, "nan"))
            return complain(s, start, node, "",
                            "JSON has no number -%s: numbers are finite",
                            found(s, s->p, text));
        return complain(s, s->p, node, "",
                        "expected a digit after '-', found %s",
                        found(s, s->p, text));
    }
    if (*s->p == '0' && is_digit(s, s->p + 1))
        return complain(s, start, node, "leave out the zeros in front",
                        "a number must not begin with 0");
    while (is_digit(s, s->p))
        s->p++;
    bool real = false;
    if (s->p < s->end && *s->p == '.') {
        real = true;
        s->p++;
        if (!is_digit(s, s->p))
            return complain(s, s->p, node, "",
                            "expected a digit after the decimal point, "
                            "found %s",
                            found(s, s->p, text));
        while (is_digit(s, s->p))
            s->p++;
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        real = true;
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        if (!is_digit(s, s->p))
            return complain(s, s->p, node, "",
                            "expected a digit of the exponent, found %s",
                            found(s, s->p, text));
        while (is_digit(s, s->p))
            s->p++;
    }
    if (s->p < s->end && (is_word(*s->p) || *s->p == '.'))
        return complain(s, s->p, node, "", "unexpected %s in a number",
                        found(s, s->p, text));
    if (real)
        return scan_real(s, start, node);

    // Counted downwards, so that the smallest integer fits.
    json_int_t value = 0;
    const bool negative = *start == '-';
    for (const char *d = start + negative; d < s->p; d++) {
        const int digit = *d - '0';
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value))
            goto too_large;
    }
    if (!negative && __builtin_sub_overflow(0, value, &value))
        goto too_large;
    return checked(s, json_integer(value));

too_large:
    return complain(s, start, node, "",
                    "the integer %.*s does not fit into 64 bits",
                    s->p - start < 40 ? (int)(s->p - start) : 40, start);
}

// What is no value; the common slips get their own words.
static json_t *no_value(struct scan *s, uint32_t node)
{
    static const struct {
        const char *word, *right;
    } words[] = {
        { "True", "true" },   { "TRUE", "true" },   { "yes", "true" },
        { "False", "false" }, { "FALSE", "false" }, { "no", "false" },
        { "None", "null" },   { "NULL", "null" },
    };
    char text[64];
    const char *at = s->p;
    if (starts_with(s, at, "NaN") || starts_with(s, at, "nan") ||
        starts_with(s, at, "Infinity") || starts_with(s, at, "inf"))
        return complain(s, at, node, "",
                        "JSON has no number %s: numbers are finite",
                        found(s, at, text));
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t n = strlen(words[i].word);
        if (starts_with(s, at, words[i].word) &&
            (at + n == s->end || !is_word(at[n])))
            return complain(s, at, node, words[i].right,
                            "expected a value, found %s", words[i].word);
    }
    if (at < s->end && *at == '\'')
        return complain(s, at, node, "use \" instead of '",
                        "strings stand in double quotes");
    if (starts_with(s, at, "\xe2\x80\x9c") ||
        starts_with(s, at, "\xe2\x80\x9d"))
        return complain(s, at, node, "use \" instead",
                        "strings stand in straight double quotes");
    if (at < s->end && *at == '+')
        return complain(s, at, node, "leave out the +",
                        "a number must not begin with +");
    if (is_digit(s, at + 1) && *at == '.')
        return complain(s, at, node, "write 0 before the point",
                        "a number must not begin with its decimal point");
    if (starts_with(s, at, "//") || starts_with(s, at, "/*") ||
        (at < s->end && *at == '#'))
        return complain(s, at, node, "\"#\": \"a comment\"",
                        "JSON has no comments; a member whose key begins "
                        "with # is one");
    return complain(s, at, node, "", "expected a value, found %s",
                    found(s, at, text));
}

static json_t *scan_value(struct scan *s, uint32_t node, int depth);

static uint32_t make_node(struct scan *s, uint32_t parent, const char *key,
                          size_t key_length, uint32_t number,
                          struct place place)
{
    if (s->positions->count > STK_MAX_VALUES) {
        s->limit = true;
        return 0;
    }
    const uint32_t node =
        add_node(s->positions, parent, key, key_length, number);
    if (!node) {
        s->nomem = true;
        return 0;
    }
    s->positions->nodes[node].line = (uint32_t)place.line;
    s->positions->nodes[node].column = (uint32_t)place.column;
    return node;
}

// After a member or element: true if another follows, false at the end (then
// *closed) or after a complaint.
static bool scan_separator(struct scan *s, uint32_t node, char close,
                           struct place open, bool *closed)
{
    const bool object = close == '}';
    const char *what = object ? "object" : "array";
    char text[64];
    skip_space(s);
    if (s->p < s->end && *s->p == close) {
        s->p++;
        *closed = true;
        return false;
    }
    if (s->p >= s->end) {
        complain(s, s->p, node, object ? "}" : "]",
                 "the file ends inside the %s that begins at %d:%d", what,
                 open.line, open.column);
    } else if (*s->p == ',') {
        const char *comma = s->p++;
        skip_space(s);
        if (s->p >= s->end || *s->p != close)
            return true;
        complain(s, comma, node, "remove this comma",
                 "no comma may stand before the '%c' that ends the %s", close,
                 what);
    } else if (*s->p == ']' || *s->p == '}') {
        complain(s, s->p, node, object ? "}" : "]",
                 "the %s that begins at %d:%d is closed by '%c', found '%c'",
                 what, open.line, open.column, close, *s->p);
    } else if (*s->p == '"' && object) {
        complain(s, s->p, node, "put a comma before it",
                 "expected ',' or '}' after a member, found the next key");
    } else {
        complain(s, s->p, node, "", "expected ',' or '%c' after %s, found %s",
                 close, object ? "a member" : "an element",
                 found(s, s->p, text));
    }
    return false;
}

static json_t *scan_array(struct scan *s, uint32_t node, int depth)
{
    const struct place open = place_of(s, s->p++);
    json_t *array = checked(s, json_array());
    if (!array)
        return NULL;
    skip_space(s);
    if (s->p < s->end && *s->p == ']') {
        s->p++;
        return array;
    }
    bool closed = false;
    for (uint32_t i = 0;; i++) {
        const uint32_t child =
            make_node(s, node, NULL, 0, i, place_of(s, s->p));
        if (!child)
            break;
        if (!enter_node(s->positions, child)) {
            s->nomem = true;
            break;
        }
        json_t *value = scan_value(s, child, depth + 1);
        if (!value)
            break;
        if (json_array_append_new(array, value) < 0) {
            s->nomem = true;
            break;
        }
        if (!scan_separator(s, node, ']', open, &closed)) {
            if (closed)
                return array;
            break;
        }
    }
    json_decref(array);
    return NULL;
}

// A key and its colon; the new node, or 0. *taken if the key was there.
static uint32_t scan_key(struct scan *s, uint32_t parent, struct place open,
                         bool *taken)
{
    char text[64];
    if (s->p >= s->end) {
        complain(s, s->p, parent, "}",
                 "the file ends inside the object that begins at %d:%d",
                 open.line, open.column);
        return 0;
    }
    if (*s->p != '"') {
        if (*s->p == '\'' || starts_with(s, s->p, "//") ||
            starts_with(s, s->p, "/*") || *s->p == '#' ||
            starts_with(s, s->p, "\xe2\x80\x9c"))
            no_value(s, parent);
        else if (is_word(*s->p))
            complain(s, s->p, parent, "put it in double quotes",
                     "expected a key in double quotes, found %s",
                     found(s, s->p, text));
        else
            complain(s, s->p, parent, "",
                     "expected a key in double quotes, found %s",
                     found(s, s->p, text));
        return 0;
    }
    const struct place place = place_of(s, s->p);
    const struct span key = scan_string(s, parent);
    if (!key.s)
        return 0;
    const uint32_t node = make_node(s, parent, key.s, key.n, 0, place);
    if (!node)
        return 0;

    // find_child() wants the escaped form.
    struct stk_text escaped = { 0 };
    const char *segment = key.s;
    size_t length = key.n;
    if (memchr(key.s, '~', key.n) || memchr(key.s, '/', key.n)) {
        add_escaped(&escaped, key.s, key.n);
        segment = escaped.data;
        length = escaped.length;
    }
    const uint32_t first =
        escaped.failed ? 0 : find_child(s->positions, parent, segment, length);
    *taken = first != 0;
    if (escaped.failed || (!first && !enter_node(s->positions, node))) {
        s->nomem = true;
    } else if (first) {
        struct stk_text pointer = { 0 };
        add_pointer(s->positions, node, &pointer);
        const struct node *n = &s->positions->nodes[first];
        if (pointer.failed)
            s->nomem = true;
        else
            stk_issue_add_at(s->issues, PEN_SEVERITY_ERROR, "E002", place.line,
                             place.column, pointer.data,
                             "remove or rename one of the two",
                             "the key \"%s\" is here a second time; the first "
                             "is at %" PRIu32 ":%" PRIu32,
                             s->positions->keys + s->positions->nodes[node].key,
                             n->line, n->column);
        stk_text_finish(&pointer);
    }
    stk_text_finish(&escaped);
    if (s->nomem)
        return 0;

    skip_space(s);
    if (s->p >= s->end || *s->p != ':') {
        complain(s, s->p, node, "", "expected ':' after a key, found %s",
                 found(s, s->p, text));
        return 0;
    }
    s->p++;
    skip_space(s);
    return node;
}

static json_t *scan_object(struct scan *s, uint32_t node, int depth)
{
    const struct place open = place_of(s, s->p++);
    json_t *object = checked(s, json_object());
    if (!object)
        return NULL;
    skip_space(s);
    if (s->p < s->end && *s->p == '}') {
        s->p++;
        return object;
    }
    bool closed = false;
    for (;;) {
        bool taken = false;
        const uint32_t child = scan_key(s, node, open, &taken);
        if (!child)
            break;
        json_t *value = scan_value(s, child, depth + 1);
        if (!value)
            break;
        const struct node *n = &s->positions->nodes[child];
        if (taken) {
            json_decref(value);
        } else if (json_object_setn_new_nocheck(object,
                                                s->positions->keys + n->key,
                                                n->key_length, value) < 0) {
            s->nomem = true;
            break;
        }
        if (!scan_separator(s, node, '}', open, &closed)) {
            if (closed)
                return object;
            break;
        }
    }
    json_decref(object);
    return NULL;
}

// A value at s->p (space skipped); NULL after a complaint.
static json_t *scan_value(struct scan *s, uint32_t node, int depth)
{
    if (s->p >= s->end)
        return no_value(s, node);
    switch (*s->p) {
    case '{':
    case '[':
        if (depth >= STK_MAX_DEPTH)
            return complain(s, s->p, node, "",
                            "objects and arrays are nested more than %d deep",
                            STK_MAX_DEPTH);
        return *s->p == '{' ? scan_object(s, node, depth)
                            : scan_array(s, node, depth);
    case '"': {
        const struct span span = scan_string(s, node);
        return span.s ? checked(s, json_stringn_nocheck(span.s, span.n)) : NULL;
    }
    case '-':
        return scan_number(s, node);
    }
    if (is_digit(s, s->p))
        return scan_number(s, node);
    static const struct {
        const char *word;
        json_t *(*make)(void);
    } words[] = {
        { "true", json_true },
        { "false", json_false },
        { "null", json_null },
    };
    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        const size_t n = strlen(words[i].word);
        if (starts_with(s, s->p, words[i].word) &&
            (s->p + n == s->end || !is_word(s->p[n]))) {
            s->p += n;
            return words[i].make();
        }
    }
    return no_value(s, node);
}

static json_t *scan_text(struct scan *s, const char *text, size_t length)
{
    const unsigned char *u = (const unsigned char *)text;
    if (length >= 2 &&
        ((u[0] == 0xff && u[1] == 0xfe) || (u[0] == 0xfe && u[1] == 0xff)))
        return complain(s, s->p, ROOT, "save the file as UTF-8",
                        "the file is UTF-16; JSON is read as UTF-8");
    if (starts_with(s, s->p, "\xef\xbb\xbf")) {
        s->p += 3;
        s->mark = s->p;
    }
    skip_space(s);
    const struct place place = place_of(s, s->p);
    s->positions->nodes[ROOT].line = (uint32_t)place.line;
    s->positions->nodes[ROOT].column = (uint32_t)place.column;
    if (s->p >= s->end)
        return complain(s, s->p, ROOT, "{ \"modules\": {} }",
                        "the file is empty");
    json_t *root = scan_value(s, ROOT, 0);
    if (!root)
        return NULL;
    skip_space(s);
    if (s->p == s->end)
        return root;
    json_decref(root);
    char word[64];
    return complain(s, s->p, ROOT, "", "expected the end of the file, found %s",
                    found(s, s->p, word));
}

enum pen_status stk_positions_scan(const char *text, size_t length,
                                   const char *name, struct stk_positions **out,
                                   json_t **root, struct pen_issues *issues,
                                   struct pen_error *err)
{
    if (out)
        *out = NULL;
    if (root)
        *root = NULL;
    const size_t before = pen_issues_count(issues, PEN_SEVERITY_ERROR);
    struct scan s = {
        .p = text,
        .end = text + length,
        .mark = text,
        .line = 1,
        .column = 1,
        .issues = issues,
    };
    json_t *value = NULL;
    s.positions = calloc(1, sizeof(*s.positions));
    if (s.positions) {
        // Somebody else's file must not be able to foresee the hashes.
        s.positions->seed =
            (uint32_t)((uintptr_t)s.positions >> 4) ^ (uint32_t)stk_now();
        add_node(s.positions, ROOT, "", 0, 0);
    }
    if (s.positions && s.positions->count)
        value = scan_text(&s, text, length);
    else
        s.nomem = true;
    stk_text_finish(&s.decoded);

    enum pen_status status;
    if (s.nomem)
        status = pen_error_set(err, PEN_E_NOMEM, 0, name,
                               "out of memory while reading");
    else if (s.limit)
        status =
            pen_error_set(err, PEN_E_LIMIT, 0, name,
                          "the file has more than %d values", STK_MAX_VALUES);
    else
        status = stk_issues_status(issues, before, err);
    if (status == PEN_OK && root)
        *root = json_incref(value);
    if (status == PEN_OK && out) {
        *out = s.positions;
        s.positions = NULL;
    }
    json_decref(value);
    stk_positions_destroy(&s.positions);
    return status;
}
