// Property tables at work: one row gives parsing, range and complaint.

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "graph.h"

static const struct pen_choice backends[] = {
    { "auto", STK_BACKEND_AUTO, NULL },
    { "cpu", STK_BACKEND_CPU, NULL },
    { "cuda", STK_BACKEND_CUDA, NULL },
    { 0 },
};

// clang-format off
#define P struct stk_base_params
static const struct pen_prop base_props[] = {
    PEN_I32(P, queue, "queue", 0, 0, 65536,
            "Depth of the queues into the module; 0 takes that of the "
            "settings.", .unit = "frames"),
    PEN_STRING(P, on_error, "onError", "stop",
               "What happens when a frame fails: stop, drop (the frame is "
               "counted) or retry:n."),
    PEN_ENUM(P, backend, "backend", STK_BACKEND_AUTO, backends,
             "Where the module works; auto lets the planner choose among the "
             "classes that the type stands for."),
    PEN_I32(P, max_width, "maxWidth", 0, 0, 1 << 20,
            "Width of the largest picture that the module gives, where that is "
            "not known before its first frame; 0: not told. With maxHeight it "
            "lets the plan be complete before start.", .unit = "pixels"),
    PEN_I32(P, max_height, "maxHeight", 0, 0, 1 << 20,
            "Height of the largest picture, together with maxWidth.",
            .unit = "pixels"),
    PEN_PROPS_END,
};
#undef P
// clang-format on

const struct pen_prop *stk_base_props(void)
{
    return base_props;
}

// Base properties of the file format that this version has not got.
static const char *const later_props[] = { "fps", "device", "memory", "threads",
                                           "max_batch" };

const struct pen_prop *stk_prop_find(const struct pen_prop *table,
                                     const char *key)
{
    for (; table && table->kind != PEN_PROP_END; table++) {
        if (strcmp(table->key, key) == 0)
            return table;
    }
    return NULL;
}

// --- complaints about one value ---------------------------------------------

struct complaint {
    const char *code;  // NULL: the value is fine
    char text[480];
    char suggestion[240];
    bool nomem;
};

PEN_PRINTF(3, 4)
static void complain(struct complaint *c, const char *code, const char *format,
                     ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->text, sizeof(c->text), format, args);
    va_end(args);
    c->code = code;
}

PEN_PRINTF(2, 3)
static void suggest(struct complaint *c, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(c->suggestion, sizeof(c->suggestion), format, args);
    va_end(args);
}

static bool is_limited(const struct pen_prop *row)
{
    return row->min < row->max;
}

static const char *unit_of(const struct pen_prop *row, char text[32])
{
    text[0] = 0;
    if (row->unit)
        snprintf(text, 32, " %s", row->unit);
    return text;
}

static const struct pen_choice *choice_named(const struct pen_prop *row,
                                             const char *name)
{
    for (const struct pen_choice *c = row->choices; c && c->name; c++) {
        if (strcmp(c->name, name) == 0)
            return c;
    }
    return NULL;
}

static const struct pen_choice *choice_valued(const struct pen_prop *row,
                                              int32_t value)
{
    for (const struct pen_choice *c = row->choices; c && c->name; c++) {
        if (c->value == value)
            return c;
    }
    return NULL;
}

static const char *next_choice(const void *cookie, size_t i)
{
    const struct pen_choice *choices = cookie;
    return choices[i].name;
}

static void list_choices(const struct pen_prop *row, char *text, size_t size)
{
    size_t n = 0;
    text[0] = 0;
    for (const struct pen_choice *c = row->choices; c && c->name; c++) {
        const int more =
            snprintf(text + n, size - n, "%s%s", n ? ", " : "", c->name);
        if (more < 0 || (size_t)more >= size - n) {
            strcpy(text + size - 4, "...");
            return;
        }
        n += (size_t)more;
    }
}

// "an integer", "one of RGB, BGR": what the row takes.
static void wanted(const struct pen_prop *row, char text[256])
{
    switch (row->kind) {
    case PEN_PROP_BOOL:
        strcpy(text, "true or false");
        break;
    case PEN_PROP_I32:
        strcpy(text, "an integer");
        break;
    case PEN_PROP_F64:
        strcpy(text, "a number");
        break;
    case PEN_PROP_STRING:
        strcpy(text, "a string");
        break;
    case PEN_PROP_ENUM:
        strcpy(text, "one of ");
        list_choices(row, text + 7, 249);
        break;
    case PEN_PROP_RATIONAL:
        strcpy(text, "a rate such as 30, 29.97 or \"30000/1001\"");
        break;
    case PEN_PROP_END:
        text[0] = 0;
        break;
    }
}

static const char *kind_of(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "the string ";
    case JSON_INTEGER:
    case JSON_REAL:
        return "the number ";
    case JSON_TRUE:
    case JSON_FALSE:
    case JSON_NULL:
        break;
    }
    return "";
}

static void wrong_type(struct complaint *c, const struct pen_prop *row,
                       const json_t *value)
{
    char want[256], brief[64] = "";
    wanted(row, want);
    if (!json_is_object(value) && !json_is_array(value))
        stk_json_brief(value, brief, sizeof(brief));
    complain(c, "E201", "%s takes %s, not %s%s", row->key, want, kind_of(value),
             brief);
}

// --- conversion -------------------------------------------------------------

static void *field(void *params, const struct pen_prop *row)
{
    return (char *)params + row->offset;
}

static const void *const_field(const void *params, const struct pen_prop *row)
{
    return (const char *)params + row->offset;
}

static void out_of_range(struct complaint *c, const struct pen_prop *row,
                         const json_t *value)
{
    char brief[64], unit[32], min[32], max[32];
    stk_json_brief(value, brief, sizeof(brief));
    stk_number_text(row->min, min);
    stk_number_text(row->max, max);
    complain(c, "E202", "%s is %s, outside %s..%s%s", row->key, brief, min, max,
             unit_of(row, unit));
}

static void convert_i32(const struct pen_prop *row, const json_t *value,
                        int32_t *out, struct complaint *c)
{
    double number = json_number_value(value);
    if (json_is_string(value)) {
        char *end;
        const char *s = json_string_value(value);
        const long parsed = strtol(s, &end, 10);
        wrong_type(c, row, value);
        const double low = is_limited(row) ? row->min : INT32_MIN;
        const double high = is_limited(row) ? row->max : INT32_MAX;
        if (*s && !*end && (double)parsed >= low && (double)parsed <= high)
            suggest(c, "\"%s\": %ld", row->key, parsed);
        return;
    }
    if (json_is_real(value) && number != floor(number)) {
        wrong_type(c, row, value);
        if (number > INT32_MIN && number < INT32_MAX)
            suggest(c, "\"%s\": %.0f", row->key, number);
        return;
    }
    if (!json_is_number(value)) {
        wrong_type(c, row, value);
        return;
    }
    // The range in which doubles and int32_t are the same numbers.
    double low = INT32_MIN, high = INT32_MAX;
    if (is_limited(row)) {
        low = fmax(low, row->min);
        high = fmin(high, row->max);
    }
    const bool odd_only = row->flags & PEN_PROP_ODD;
    if (number < low || number > high) {
        double nearest = number < low ? low : high;
        if (odd_only && fmod(nearest, 2) == 0)
            nearest += number < low ? 1 : -1;
        if (is_limited(row)) {
            out_of_range(c, row, value);
        } else {
            char brief[64];
            stk_json_brief(value, brief, sizeof(brief));
            complain(c, "E202", "%s is %s, which does not fit into 32 bits",
                     row->key, brief);
        }
        suggest(c, "\"%s\": %.0f", row->key, nearest);
        return;
    }
    if (odd_only && fmod(number, 2) == 0) {
        const double above = number + 1;
        complain(c, "E202", "%s is %.0f but must be odd", row->key, number);
        suggest(c, "\"%s\": %.0f", row->key, above > high ? number - 1 : above);
        return;
    }
    *out = (int32_t)number;
}

static void convert_f64(const struct pen_prop *row, const json_t *value,
                        double *out, struct complaint *c)
{
    if (!json_is_number(value)) {
        wrong_type(c, row, value);
        return;
    }
    const double number = json_number_value(value);
    if (is_limited(row) && (number < row->min || number > row->max)) {
        out_of_range(c, row, value);
        char nearest[32];
        stk_number_text(number < row->min ? row->min : row->max, nearest);
        suggest(c, "\"%s\": %s", row->key, nearest);
        return;
    }
    *out = number;
}

static void convert_enum(const struct pen_prop *row, const json_t *value,
                         int32_t *out, struct complaint *c)
{
    if (!json_is_string(value)) {
        wrong_type(c, row, value);
        return;
    }
    const char *name = json_string_value(value);
    const struct pen_choice *choice = choice_named(row, name);
    if (choice) {
        *out = choice->value;
        return;
    }
    char brief[64], list[320];
    stk_json_brief(value, brief, sizeof(brief));
    list_choices(row, list, sizeof(list));
    complain(c, "E203", "%s: %s is not one of %s", row->key, brief, list);
    const char *nearest = stk_nearest(name, next_choice, row->choices);
    if (nearest)
        suggest(c, "\"%s\": \"%s\"", row->key, nearest);
}

static int64_t gcd(int64_t a, int64_t b)
{
    while (b) {
        const int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static bool make_rational(int64_t num, int64_t den, struct pen_rational *out)
{
    if (num <= 0 || den <= 0)
        return false;
    const int64_t d = gcd(num, den);
    num /= d;
    den /= d;
    if (num > INT32_MAX || den > INT32_MAX)
        return false;
    *out = (struct pen_rational){ (int32_t)num, (int32_t)den };
    return true;
}

// A decimal rate. 23.976, 29.97, 59.94 and 119.88 stand for the NTSC rates
// n/1001 that everybody writes like this; others are taken to a millionth.
static bool rational_of(double rate, struct pen_rational *out)
{
    static const int32_t ntsc[] = { 24000, 30000, 48000, 60000, 120000 };
    if (!(rate > 0) || rate > INT32_MAX)
        return false;
    for (size_t i = 0; i < sizeof(ntsc) / sizeof(ntsc[0]); i++) {
        if (rate != floor(rate) && fabs(rate - ntsc[i] / 1001.0) < 0.005)
            return make_rational(ntsc[i], 1001, out);
    }
    return make_rational(llround(rate * 1e6), 1000000, out);
}

static bool rational_from_text(const char *s, struct pen_rational *out)
{
    int64_t part[2] = { 0, 1 };
    int digits = 0, decimals = 0, at = 0;
    bool point = false;
    for (; *s; s++) {
        if (*s >= '0' && *s <= '9') {
            if (++digits > 12)
                return false;
            part[at] = 10 * part[at] + (*s - '0');
            decimals += point;
        } else if (*s == '/' && at == 0 && digits && !point) {
            at = 1;
            part[1] = 0;
            digits = 0;
        } else if (*s == '.' && at == 0 && digits && !point) {
            point = true;
        } else {
            return false;
        }
    }
    if (!digits || (point && !decimals))
        return false;
    if (point)
        return rational_of((double)part[0] / pow(10, decimals), out);
    return make_rational(part[0], part[1], out);
}

static void convert_rational(const struct pen_prop *row, const json_t *value,
                             struct pen_rational *out, struct complaint *c)
{
    struct pen_rational r = { 0, 0 };
    bool fits;
    if (json_is_integer(value)) {
        fits = make_rational(json_integer_value(value), 1, &r);
    } else if (json_is_real(value)) {
        fits = rational_of(json_real_value(value), &r);
    } else if (json_is_string(value)) {
        fits = rational_from_text(json_string_value(value), &r);
        const char *s = json_string_value(value);
        if (!fits && s[strspn(s, "0123456789./")]) {
            wrong_type(c, row, value);
            return;
        }
    } else {
        wrong_type(c, row, value);
        return;
    }
    const double rate = fits ? (double)r.num / r.den : 0;
    if (!fits) {
        char brief[64];
        stk_json_brief(value, brief, sizeof(brief));
        complain(c, "E202",
                 "%s is %s, which is no ratio of two positive integers",
                 row->key, brief);
    } else if (is_limited(row) && (rate < row->min || rate > row->max)) {
        char nearest[32];
        out_of_range(c, row, value);
        stk_number_text(rate < row->min ? row->min : row->max, nearest);
        suggest(c, "\"%s\": %s", row->key, nearest);
    } else {
        *out = r;
    }
}

static void convert_bool(const struct pen_prop *row, const json_t *value,
                         bool *out, struct complaint *c)
{
    if (json_is_boolean(value)) {
        *out = json_is_true(value);
        return;
    }
    wrong_type(c, row, value);
    const char *s = json_string_value(value);
    if (s && strcasecmp(s, "true") == 0)
        suggest(c, "\"%s\": true", row->key);
    else if (s && strcasecmp(s, "false") == 0)
        suggest(c, "\"%s\": false", row->key);
    else if (json_is_integer(value))
        suggest(c, "\"%s\": %s", row->key,
                json_integer_value(value) ? "true" : "false");
}

static void convert_string(const struct pen_prop *row, const json_t *value,
                           const char **out, struct stk_arena *arena,
                           struct complaint *c)
{
    if (!json_is_string(value)) {
        char brief[64];
        wrong_type(c, row, value);
        stk_json_brief(value, brief, sizeof(brief));
        if (json_is_number(value) || json_is_boolean(value))
            suggest(c, "\"%s\": \"%s\"", row->key, brief);
        return;
    }
    const char *s = stk_arena_strdup(arena, json_string_value(value));
    if (s)
        *out = s;
    else
        c->nomem = true;
}

// Where nothing better is known, what the property is if it is not given.
static void suggest_default(struct complaint *c, const struct pen_prop *row)
{
    char text[64];
    struct pen_prop at_zero = *row;
    at_zero.offset = 0;
    if (!c->code || c->suggestion[0] || (row->flags & PEN_PROP_REQUIRED))
        return;
    json_t *value = stk_prop_get_json(&at_zero, &row->def);
    const size_t length = json_string_length(value);
    if (value && !json_is_null(value) && length < 40 &&
        (length || !json_is_string(value))) {
        stk_json_brief(value, text, sizeof(text));
        suggest(c, "\"%s\": %s", row->key, text);
    }
    json_decref(value);
}

static void convert(const struct pen_prop *row, const json_t *value,
                    void *params, struct stk_arena *arena, struct complaint *c)
{
    void *at = field(params, row);
    switch (row->kind) {
    case PEN_PROP_BOOL:
        convert_bool(row, value, at, c);
        break;
    case PEN_PROP_I32:
        convert_i32(row, value, at, c);
        break;
    case PEN_PROP_F64:
        convert_f64(row, value, at, c);
        break;
    case PEN_PROP_STRING:
        convert_string(row, value, at, arena, c);
        break;
    case PEN_PROP_ENUM:
        convert_enum(row, value, at, c);
        break;
    case PEN_PROP_RATIONAL:
        convert_rational(row, value, at, c);
        break;
    case PEN_PROP_END:
        break;
    }
    suggest_default(c, row);
}

static void set_default(const struct pen_prop *row, void *params)
{
    void *at = field(params, row);
    switch (row->kind) {
    case PEN_PROP_BOOL:
        *(bool *)at = row->def.b;
        break;
    case PEN_PROP_I32:
    case PEN_PROP_ENUM:
        *(int32_t *)at = row->def.i;
        break;
    case PEN_PROP_F64:
        *(double *)at = row->def.f;
        break;
    case PEN_PROP_STRING:
        *(const char **)at = row->def.s ? row->def.s : "";
        break;
    case PEN_PROP_RATIONAL:
        *(struct pen_rational *)at = row->def.r;
        break;
    case PEN_PROP_END:
        break;
    }
}

// --- onError ----------------------------------------------------------------

static bool parse_on_error(const char *s, struct stk_base_params *base)
{
    base->retries = 0;
    if (strcmp(s, "stop") == 0) {
        base->policy = STK_ON_ERROR_STOP;
        return true;
    }
    if (strcmp(s, "drop") == 0) {
        base->policy = STK_ON_ERROR_DROP;
        return true;
    }
    if (strncmp(s, "retry:", 6) != 0)
        return false;
    const char *n = s + 6;
    const size_t digits = strspn(n, "0123456789");
    if (digits == 0 || digits > 4 || n[digits] || atoi(n) < 1)
        return false;
    base->policy = STK_ON_ERROR_RETRY;
    base->retries = atoi(n);
    return true;
}

bool stk_on_error_valid(const char *text)
{
    struct stk_base_params base;
    return parse_on_error(text, &base);
}

// --- a whole object ---------------------------------------------------------

// Key number `i` among all that could be meant: of the class, or those that the
// type stands for, and of every module.
static const char *next_key(const void *cookie, size_t i)
{
    const struct stk_props_job *job = cookie;
    const struct pen_prop *table = job->class_count ? NULL : job->table;
    for (size_t k = 0;; k++) {
        for (; table && table->kind != PEN_PROP_END; table++) {
            if (i-- == 0)
                return table->key;
        }
        if (k == job->class_count)
            break;
        table = job->classes[k]->props;
    }
    return i < sizeof(base_props) / sizeof(base_props[0]) ? base_props[i].key
                                                          : NULL;
}

static void list_keys(const struct stk_props_job *job, char *text, size_t size)
{
    size_t n = 0;
    const char *name;
    text[0] = 0;
    for (size_t i = 0; (name = next_key(job, i)) && n < size - 4; i++) {
        size_t k = 0;
        while (k < i && strcmp(next_key(job, k), name) != 0)
            k++;
        if (k == i)
            n += (size_t)snprintf(text + n, size - n, "%s%s", n ? ", " : "",
                                  name);
    }
    if (n >= size)
        strcpy(text + size - 4, "...");
}

// Whether the key is one of those that may come later.
static bool is_later(const char *key)
{
    for (size_t i = 0; i < sizeof(later_props) / sizeof(later_props[0]); i++) {
        if (strcmp(key, later_props[i]) == 0)
            return true;
    }
    return false;
}

static void unknown_key(const struct stk_props_job *job, const char *key,
                        struct complaint *c)
{
    char brief[80];
    snprintf(brief, sizeof(brief), "%.70s", key);
    if (is_later(key)) {
        complain(c, "E200", "the property %s of modules is not supported yet",
                 key);
        return;
    }
    const char *nearest = stk_nearest(key, next_key, job);
    if (nearest && json_object_get(job->props, nearest)) {
        complain(c, "E200", "%s has no property %s, and %s is given beside it",
                 job->type_name, brief, nearest);
        return;
    }
    if (nearest) {
        complain(c, "E200", "%s has no property %s; did you mean %s?",
                 job->type_name, brief, nearest);
        suggest(c, "\"%s\"", nearest);
        return;
    }
    char list[256];
    list_keys(job, list, sizeof(list));
    complain(c, "E200", "%s has no property %s; its properties are %s",
             job->type_name, brief, list);
}

// Whether any class that the type stands for knows the property.
static bool is_known(const struct stk_props_job *job, const char *key)
{
    bool known =
        stk_prop_find(job->table, key) || stk_prop_find(base_props, key);
    for (size_t i = 0; i < job->class_count && !known; i++)
        known = stk_prop_find(job->classes[i]->props, key);
    return known;
}

// Whether a property that is missing is there, but misspelt. That is told with
// the right word, and what is missing as well would be one thing told twice.
static bool is_misspelt(const struct stk_props_job *job, const char *missing)
{
    const char *key;
    json_t *value;
    json_object_foreach (job->props, key, value) {
        if (key[0] == '#' || is_known(job, key) || is_later(key))
            continue;
        const char *nearest = stk_nearest(key, next_key, job);
        if (nearest && strcmp(nearest, missing) == 0)
            return true;
    }
    return false;
}

// Whether the value is what the property has anyway.
static bool is_default(const struct pen_prop *row, const json_t *value,
                       struct stk_arena *arena)
{
    union {
        bool b;
        int32_t i;
        double f;
        const char *s;
        struct pen_rational r;
    } given = { 0 }, usual = { 0 };
    struct pen_prop at_zero = *row;
    struct complaint c = { 0 };
    if (row->flags & PEN_PROP_REQUIRED)
        return false;
    at_zero.offset = 0;
    convert(&at_zero, value, &given, arena, &c);
    set_default(&at_zero, &usual);
    if (c.code || c.nomem)
        return false;
    json_t *a = stk_prop_get_json(&at_zero, &given);
    json_t *b = stk_prop_get_json(&at_zero, &usual);
    const bool same = a && b && json_equal(a, b);
    json_decref(a);
    json_decref(b);
    return same;
}

// A property that the class does not know, but another one that the type stands
// for. With the value that it has there anyway it says nothing.
static bool is_idle_elsewhere(const struct stk_props_job *job, const char *key,
                              const json_t *value, struct stk_arena *arena,
                              struct complaint *c)
{
    const struct pen_module_class *knows = NULL;
    const char *text = json_string_value(value);
    const bool preset =
        job->preset && job->preset->key && strcmp(job->preset->key, key) == 0;
    const bool said = preset && text && strcmp(job->preset->value, text) == 0;
    bool idle = true;
    for (size_t i = 0; i < job->class_count; i++) {
        const struct pen_prop *row = stk_prop_find(job->classes[i]->props, key);
        if (!row)
            continue;
        knows = job->classes[i];
        idle = idle && (preset ? said : is_default(row, value, arena));
    }
    if (knows && !idle)
        complain(c, "E200", "%s has the property %s only as %s", job->type_name,
                 key, knows->name);
    return knows;
}

// A value that fits, for a suggestion.
static void example_of(const struct pen_prop *row, char value[80])
{
    strcpy(value, "\"...\"");
    if (row->kind == PEN_PROP_BOOL)
        strcpy(value, "false");
    else if (row->kind == PEN_PROP_ENUM && row->choices)
        snprintf(value, 80, "\"%s\"", row->choices->name);
    else if (row->kind == PEN_PROP_I32 || row->kind == PEN_PROP_F64)
        stk_number_text(is_limited(row) ? row->min : 0, value);
    else if (row->kind == PEN_PROP_RATIONAL)
        strcpy(value, "30");
}

void stk_props_example(struct stk_text *t, const struct pen_prop *table)
{
    bool any = false;
    for (; table && table->kind != PEN_PROP_END; table++) {
        char value[80];
        if (!(table->flags & PEN_PROP_REQUIRED))
            continue;
        example_of(table, value);
        stk_text_addf(t, "%s\"%s\": %s", any ? ", " : ", \"props\": { ",
                      table->key, value);
        any = true;
    }
    stk_text_add(t, any ? " }" : "");
}

static void missing_key(const struct pen_prop *row, const char *type_name,
                        struct complaint *c)
{
    char want[256];
    wanted(row, want);
    complain(c, "E205", "%s needs the property %s: %s", type_name, row->key,
             want);
    char value[80];
    example_of(row, value);
    suggest(c, "\"%s\": %s", row->key, value);
}

static void tell(struct complaint *c, const char *pointer, const char *key,
                 const struct pen_description *desc, struct pen_issues *issues,
                 size_t *errors)
{
    if (c->nomem)
        stk_issues_fail(issues);
    if (!c->code)
        return;
    ++*errors;
    struct stk_arena arena = { 0 };
    const char *at = stk_pointer_join(&arena, pointer, "props");
    if (at)
        at = stk_pointer_join(&arena, at, key);
    if (at)
        stk_issue_add(issues, desc, PEN_SEVERITY_ERROR, c->code, at,
                      c->suggestion, "%s", c->text);
    else
        stk_issues_fail(issues);
    stk_arena_finish(&arena);
}

static void read_base(const struct pen_prop *row, const json_t *value,
                      struct stk_base_params *base, struct stk_arena *arena,
                      struct complaint *c)
{
    const char *text = json_string_value(value);
    convert(row, value, base, arena, c);
    if (c->code && text && strcmp(text, "gpu") == 0 &&
        strcmp(row->key, "backend") == 0)
        suggest(c, "\"backend\": \"cuda\"");
    if (c->code || c->nomem || parse_on_error(base->on_error, base))
        return;
    complain(c, "E203", "onError: \"%.60s\" is not one of stop, drop, retry:n",
             base->on_error);
    suggest(c, "\"onError\": \"stop\"");
}

size_t stk_props_read(const struct stk_props_job *job, void *params,
                      struct stk_base_params *base_params,
                      const struct pen_description *desc,
                      struct stk_arena *arena, struct pen_issues *issues)
{
    size_t errors = 0;
    for (const struct pen_prop *row = job->table;
         row && row->kind != PEN_PROP_END; row++)
        set_default(row, params);
    for (const struct pen_prop *row = base_props; row->kind != PEN_PROP_END;
         row++)
        set_default(row, base_params);
    if (desc && desc->on_error)
        base_params->on_error = desc->on_error;

    const char *key;
    json_t *value;
    json_object_foreach (job->props, key, value) {
        if (key[0] == '#')
            continue;
        struct complaint c = { 0 };
        const struct pen_prop *row = stk_prop_find(job->table, key);
        const struct pen_prop *base =
            row ? NULL : stk_prop_find(base_props, key);
        if (row)
            convert(row, value, params, arena, &c);
        else if (base)
            read_base(base, value, base_params, arena, &c);
        else if (!is_idle_elsewhere(job, key, value, arena, &c))
            unknown_key(job, key, &c);
        tell(&c, job->pointer, key, desc, issues, &errors);
    }
    for (const struct pen_prop *row = job->table;
         row && row->kind != PEN_PROP_END; row++) {
        if (!(row->flags & PEN_PROP_REQUIRED) ||
            json_object_get(job->props, row->key) || is_misspelt(job, row->key))
            continue;
        struct complaint c = { 0 };
        missing_key(row, job->type_name, &c);
        tell(&c, job->pointer, row->key, desc, issues, &errors);
    }
    if (!base_params->max_width != !base_params->max_height) {
        const char *const given =
            base_params->max_width ? "maxWidth" : "maxHeight";
        const char *const other =
            base_params->max_width ? "maxHeight" : "maxWidth";
        struct complaint c = { 0 };
        complain(&c, "E202", "%s says nothing without %s", given, other);
        suggest(&c, "\"%s\": 1080", other);
        tell(&c, job->pointer, given, desc, issues, &errors);
    }
    if (!parse_on_error(base_params->on_error, base_params))
        parse_on_error("stop", base_params);
    return errors;
}

size_t stk_props_parse(const struct pen_prop *table, void *params,
                       struct stk_base_params *base_params, json_t *props,
                       const char *pointer, const struct pen_description *desc,
                       struct stk_arena *arena, struct pen_issues *issues,
                       const char *type_name)
{
    const struct stk_props_job job = {
        .table = table,
        .props = props,
        .pointer = pointer,
        .type_name = type_name,
    };
    return stk_props_read(&job, params, base_params, desc, arena, issues);
}

// --- single properties ------------------------------------------------------

enum pen_status stk_prop_set_text(const struct pen_prop *table, void *params,
                                  const char *key, const char *value,
                                  struct stk_arena *arena,
                                  struct pen_error *err)
{
    const struct pen_prop *row = stk_prop_find(table, key);
    if (!row)
        return pen_error_set(err, PEN_E_CONFIG, 0, key,
                             "there is no property %s", key);

    struct pen_issues *issues = pen_issues_create();
    json_t *json = NULL;
    enum pen_status status = PEN_E_NOMEM;
    const bool is_text = row->kind == PEN_PROP_STRING ||
                         row->kind == PEN_PROP_ENUM ||
                         row->kind == PEN_PROP_RATIONAL;
    if (issues && is_text) {
        json = json_string(value);
        status = json ? PEN_OK : PEN_E_NOMEM;
    } else if (issues) {
        status = stk_positions_scan(value, strlen(value), key, NULL, &json,
                                    issues, NULL);
    }
    pen_issues_destroy(&issues);

    struct complaint c = { 0 };
    if (status == PEN_OK)
        convert(row, json, params, arena, &c);
    json_decref(json);
    if (status == PEN_E_NOMEM || c.nomem)
        return pen_error_set(err, PEN_E_NOMEM, 0, key, "out of memory");
    if (status != PEN_OK)
        return pen_error_set(err, PEN_E_CONFIG, 0, key,
                             "%s: \"%.60s\" does not fit", key, value);
    if (c.code)
        return pen_error_set(err, PEN_E_CONFIG, 0, key, "%s: %s", c.code,
                             c.text);
    return PEN_OK;
}

const char *stk_prop_string(const struct pen_prop *row, const void *params)
{
    return *(const char *const *)const_field(params, row);
}

json_t *stk_prop_get_json(const struct pen_prop *row, const void *params)
{
    const void *at = const_field(params, row);
    switch (row->kind) {
    case PEN_PROP_BOOL:
        return json_boolean(*(const bool *)at);
    case PEN_PROP_I32:
        return json_integer(*(const int32_t *)at);
    case PEN_PROP_F64: {
        const double value = *(const double *)at;
        return isfinite(value) ? json_real(value) : json_null();
    }
    case PEN_PROP_STRING: {
        const char *s = *(const char *const *)at;
        return json_string(s ? s : "");
    }
    case PEN_PROP_ENUM: {
        const struct pen_choice *choice =
            choice_valued(row, *(const int32_t *)at);
        return choice ? json_string(choice->name) : json_null();
    }
    case PEN_PROP_RATIONAL: {
        const struct pen_rational r = *(const struct pen_rational *)at;
        if (r.den == 0)
            return json_null();
        char text[32];
        if (r.den == 1)
            return json_integer(r.num);
        snprintf(text, sizeof(text), "%d/%d", r.num, r.den);
        return json_string(text);
    }
    case PEN_PROP_END:
        break;
    }
    return json_null();
}
