// State, settings, faults, counters and reports of the emulated driver.

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "emu.h"

struct emu_state emu = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
    .memory = EMU_MEMORY,
    .device_count = 1,
    .dmabuf = PENEMU_EXPORT | PENEMU_IMPORT,
    // clang-format off
    .device = { { .index = 0 }, { .index = 1 }, { .index = 2 }, { .index = 3 },
                { .index = 4 }, { .index = 5 }, { .index = 6 }, { .index = 7 } },
    // clang-format on
};

// --- functions by name ------------------------------------------------------

static const struct {
    const char *name, *symbol;
} functions[] = {
#define X(need, name, symbol, params) { #name, symbol },
#include "../src/gpu/driver_list.h"
#undef X
};

const char *emu_fn_name(int fn)
{
    return functions[fn].name;
}

// -1: any; -2: there is no such function.
static int find_function(const char *name)
{
    if (!name)
        return -1;
    for (int i = 0; i < EMU_FN_COUNT; i++) {
        if (strcmp(name, functions[i].name) == 0 ||
            strcmp(name, functions[i].symbol) == 0)
            return i;
    }
    return -2;
}

// --- reports ----------------------------------------------------------------

void emu_report(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(emu.report, sizeof(emu.report), format, args);
    va_end(args);
    emu.reports++;
    if (emu.print)
        fprintf(stderr, "penstock-emu: %s\n", emu.report);
}

uint64_t penemu_report(char *text, size_t size)
{
    pthread_mutex_lock(&emu.lock);
    if (size)
        snprintf(text, size, "%s", emu.report);
    const uint64_t count = emu.reports;
    pthread_mutex_unlock(&emu.lock);
    return count;
}

// --- settings ---------------------------------------------------------------

static void set_mode(enum penemu_mode mode, uint64_t seed)
{
    emu.mode = mode;
    emu.seed = seed;
    emu.stream_serial = 0;
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        if (emu.device[i].ctx)
            emu_context_wake(emu.device[i].ctx);
    }
}

static bool parse_mode(const char *text)
{
    if (strcmp(text, "eager") == 0) {
        set_mode(PENEMU_EAGER, 0);
    } else if (strcmp(text, "lazy") == 0) {
        set_mode(PENEMU_LAZY, 0);
    } else if (strncmp(text, "random:", 7) == 0) {
        char *end;
        const uint64_t seed = strtoull(text + 7, &end, 10);
        if (end == text + 7 || *end)
            return false;
        set_mode(PENEMU_RANDOM, seed);
    } else {
        return false;
    }
    return true;
}

static bool parse_memory(const char *text)
{
    char *end;
    uint64_t bytes = strtoull(text, &end, 10);
    if (end == text)
        return false;
    static const char units[] = "KMG";
    const char *unit = *end ? strchr(units, *end) : NULL;
    if (unit) {
        const unsigned shift = 10 * (unsigned)(unit - units + 1);
        if (bytes > EMU_RESERVE >> shift)
            return false;
        bytes <<= shift;
        end++;
    }
    if (*end || !bytes || bytes > EMU_RESERVE / 2)
        return false;
    emu.memory = bytes;
    return true;
}

static bool parse_devices(const char *text)
{
    if (text[0] < '0' || text[0] > '0' + EMU_MAX_DEVICES || text[1])
        return false;
    emu.device_count = text[0] - '0';
    return true;
}

static bool parse_cpu(const char *text)
{
    emu.base_cpu = strcmp(text, "base") == 0;
    return emu.base_cpu || strcmp(text, "auto") == 0;
}

static bool parse_check(const char *text)
{
    emu.check = strcmp(text, "1") == 0;
    return emu.check || strcmp(text, "0") == 0;
}

static bool parse_dmabuf(const char *text)
{
    static const char *const names[] = { "none", "export", "import", "all" };
    for (unsigned mask = 0; mask < 4; mask++) {
        if (strcmp(text, names[mask]) != 0)
            continue;
        emu.dmabuf = mask;
        return true;
    }
    return false;
}

static bool parse_report(const char *text)
{
    emu.print = strcmp(text, "stderr") == 0;
    return emu.print;
}

void emu_read_environment(void)
{
    const struct {
        const char *name;
        bool set;
        bool (*parse)(const char *text);
    } variables[] = {
        { "PENSTOCK_EMU_REPORT", false, parse_report },
        { "PENSTOCK_EMU_MODE", emu.mode_set, parse_mode },
        { "PENSTOCK_EMU_MEMORY", emu.memory_set, parse_memory },
        { "PENSTOCK_EMU_DEVICES", emu.devices_set, parse_devices },
        { "PENSTOCK_EMU_CPU", emu.cpu_set, parse_cpu },
        { "PENSTOCK_EMU_CHECK", emu.check_set, parse_check },
        { "PENSTOCK_EMU_DMABUF", emu.dmabuf_set, parse_dmabuf },
    };
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++) {
        const char *value = getenv(variables[i].name);
        if (!value || !*value || variables[i].set)
            continue;
        if (variables[i].parse(value))
            continue;
        emu_report("%s=%s is not understood and ignored; emu_control.h tells "
                   "what is",
                   variables[i].name, value);
        // Reports are read by tests; who mistypes a variable is no test.
        if (!emu.print)
            fprintf(stderr, "penstock-emu: %s\n", emu.report);
    }
}

void penemu_set_mode(enum penemu_mode mode, uint64_t seed)
{
    pthread_mutex_lock(&emu.lock);
    set_mode(mode, seed);
    emu.mode_set = true;
    pthread_mutex_unlock(&emu.lock);
}

int penemu_set_memory(uint64_t bytes)
{
    if (!bytes || bytes > EMU_RESERVE / 2)
        return -1;
    pthread_mutex_lock(&emu.lock);
    emu.memory = bytes;
    emu.memory_set = true;
    pthread_mutex_unlock(&emu.lock);
    return 0;
}

int penemu_set_devices(int count)
{
    pthread_mutex_lock(&emu.lock);
    const bool allowed = count >= 0 && count <= EMU_MAX_DEVICES && !emu.started;
    if (allowed) {
        emu.device_count = count;
        emu.devices_set = true;
    }
    pthread_mutex_unlock(&emu.lock);
    return allowed ? 0 : -1;
}

int penemu_set_cpu(const char *name)
{
    pthread_mutex_lock(&emu.lock);
    const bool known = parse_cpu(name);
    emu.cpu_set = true;
    pthread_mutex_unlock(&emu.lock);
    return known ? 0 : -1;
}

void penemu_set_check(int on)
{
    pthread_mutex_lock(&emu.lock);
    emu.check = on != 0;
    emu.check_set = true;
    pthread_mutex_unlock(&emu.lock);
}

int penemu_set_dmabuf(unsigned mask)
{
    if (mask & ~(unsigned)(PENEMU_EXPORT | PENEMU_IMPORT))
        return -1;
    pthread_mutex_lock(&emu.lock);
    emu.dmabuf = mask;
    emu.dmabuf_set = true;
    pthread_mutex_unlock(&emu.lock);
    return 0;
}

// --- faults -----------------------------------------------------------------

int penemu_fault_arm(const char *function, uint64_t nth, int result,
                     int forever)
{
    const int fn = find_function(function);
    if (fn == -2 || !nth)
        return -1;
    pthread_mutex_lock(&emu.lock);
    emu.fault.armed = true;
    emu.fault.forever = forever != 0;
    emu.fault.fn = fn;
    emu.fault.nth = nth;
    emu.fault.seen = 0;
    emu.fault.fired = 0;
    emu.fault.result = (CUresult)result;
    pthread_mutex_unlock(&emu.lock);
    return 0;
}

uint64_t penemu_fault_disarm(void)
{
    pthread_mutex_lock(&emu.lock);
    emu.fault.armed = false;
    const uint64_t fired = emu.fault.fired;
    pthread_mutex_unlock(&emu.lock);
    return fired;
}

uint64_t penemu_fault_fired(void)
{
    pthread_mutex_lock(&emu.lock);
    const uint64_t fired = emu.fault.fired;
    pthread_mutex_unlock(&emu.lock);
    return fired;
}

uint64_t penemu_calls(const char *function)
{
    const int fn = find_function(function);
    if (fn == -2)
        return 0;
    pthread_mutex_lock(&emu.lock);
    const uint64_t calls = fn < 0 ? emu.stats.calls : emu.calls[fn];
    pthread_mutex_unlock(&emu.lock);
    return calls;
}

void penemu_break_contexts(int result)
{
    pthread_mutex_lock(&emu.lock);
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        if (emu.device[i].ctx)
            emu_context_break(emu.device[i].ctx, (CUresult)result);
    }
    pthread_mutex_unlock(&emu.lock);
}

// --- streams ----------------------------------------------------------------

int penemu_hold_stream(void *handle, int hold)
{
    pthread_mutex_lock(&emu.lock);
    struct emu_stream *stream = emu_handle_find(EMU_STREAM, handle);
    if (stream) {
        stream->held = hold != 0;
        emu_context_wake(stream->ctx);
    }
    pthread_mutex_unlock(&emu.lock);
    return stream ? 0 : -1;
}

int64_t penemu_pending(void *handle)
{
    pthread_mutex_lock(&emu.lock);
    const struct emu_stream *stream = emu_handle_find(EMU_STREAM, handle);
    const int64_t pending =
        stream ? (int64_t)(stream->queued - stream->done) : -1;
    pthread_mutex_unlock(&emu.lock);
    return pending;
}

// --- counters ---------------------------------------------------------------

void penemu_get_stats(struct penemu_stats *out)
{
    pthread_mutex_lock(&emu.lock);
    *out = emu.stats;
    pthread_mutex_unlock(&emu.lock);
}

void penemu_get_leaks(struct penemu_leaks *out)
{
    pthread_mutex_lock(&emu.lock);
    *out = emu.leaks;
    pthread_mutex_unlock(&emu.lock);
}

void *penemu_bytes(uint64_t address, size_t bytes)
{
    void *found = NULL;
    pthread_mutex_lock(&emu.lock);
    const struct emu_device *dev = emu_device_of(address);
    uint64_t from, extent;
    if (dev && !emu_extent(dev, address, &from, &extent) &&
        bytes <= extent - (address - from))
        found = emu_bytes_of(dev, address);
    pthread_mutex_unlock(&emu.lock);
    return found;
}

void penemu_reset(void)
{
    pthread_mutex_lock(&emu.lock);
    for (int i = 0; i < EMU_MAX_DEVICES; i++) {
        if (emu.device[i].ctx)
            emu_context_destroy(&emu.device[i]);
        emu.device[i].used = 0;
    }
    while (emu_stack_pop())
        ;
    emu.started = false;
    emu.mode = PENEMU_EAGER;
    emu.seed = 0;
    emu.stream_serial = 0;
    emu.memory = EMU_MEMORY;
    emu.device_count = 1;
    emu.base_cpu = emu.check = emu.print = false;
    emu.mode_set = emu.memory_set = emu.devices_set = false;
    emu.cpu_set = emu.check_set = emu.dmabuf_set = false;
    emu.dmabuf = PENEMU_EXPORT | PENEMU_IMPORT;
    emu.serial = 0;
    memset(&emu.fault, 0, sizeof(emu.fault));
    memset(emu.calls, 0, sizeof(emu.calls));
    memset(&emu.stats, 0, sizeof(emu.stats));
    memset(&emu.leaks, 0, sizeof(emu.leaks));
    emu.reports = 0;
    emu.report[0] = 0;
    pthread_mutex_unlock(&emu.lock);
}
