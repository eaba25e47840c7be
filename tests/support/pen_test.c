#include "pen_test.h"

#include <dlfcn.h>
#include <errno.h>
#include <ftw.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "../../src/base/ledger.h"

static int detect_leaks = 1;
static char folders[64][128];
static unsigned folder_count;

static const char *env_or(const char *name, const char *fallback)
{
    const char *value = getenv(name);
    return value && *value ? value : fallback;
}

const char *pen_test_device(void)
{
    return env_or("PENSTOCK_TEST_DEVICE", "emulated");
}

int pen_test_on_gpu(void)
{
    return strcmp(pen_test_device(), "emulated") != 0;
}

const char *pen_test_emulator(void)
{
    return env_or("PENSTOCK_TEST_EMULATOR", "libpenstock-emu.so");
}

const char *pen_test_build(void)
{
    return env_or("PENSTOCK_TEST_BUILD", ".");
}

const char *pen_test_source(void)
{
    return env_or("PENSTOCK_TEST_SOURCE", ".");
}

const char *pen_test_data(const char *name)
{
    static char paths[4][1024];
    static unsigned turn;
    char *path = paths[turn++ % 4];

    const char *folder = getenv("PENSTOCK_TEST_DATA");
    if (folder && *folder)
        snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    else
        snprintf(path, sizeof(paths[0]), "%s/../shared/data/%s",
                 pen_test_source(), name);
    if (access(path, R_OK) != 0)
        PEN_SKIP("test data %s is not here", name);
    return path;
}

const char *pen_test_folder(void)
{
    assert_true(folder_count < sizeof(folders) / sizeof(folders[0]));
    char *path = folders[folder_count];
    snprintf(path, sizeof(folders[0]), "%s/penstock-test-XXXXXX",
             env_or("TMPDIR", "/tmp"));
    assert_non_null(mkdtemp(path));
    folder_count++;
    return path;
}

static int remove_entry(const char *path, const struct stat *st, int type,
                        struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_folders(void)
{
    while (folder_count)
        nftw(folders[--folder_count], remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

unsigned pen_test_seeds(unsigned quick, unsigned full)
{
    return strcmp(env_or("PENSTOCK_TEST_LONG", "0"), "1") == 0 ? full : quick;
}

uint32_t pen_test_random(uint64_t *seed)
{
    uint64_t x = *seed ? *seed : 0x9e3779b97f4a7c15u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    *seed = x;
    return (uint32_t)(x >> 32);
}

void *pen_test_read_file(const char *path, size_t *bytes)
{
    FILE *f = fopen(path, "rb");
    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fseek(f, 0, SEEK_END), 0);
    const long length = ftell(f);
    assert_true(length >= 0);
    rewind(f);
    char *data = malloc((size_t)length + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, (size_t)length, f), length);
    data[length] = 0;
    fclose(f);
    if (bytes)
        *bytes = (size_t)length;
    return data;
}

void pen_test_write_file(const char *path, const void *data, size_t bytes)
{
    FILE *f = fopen(path, "wb");
    if (!f)
        fail_msg("%s: %s", path, strerror(errno));
    assert_int_equal(fwrite(data, 1, bytes, f), bytes);
    assert_int_equal(fclose(f), 0);
}

int pen_test_detect_leaks(void)
{
    return detect_leaks;
}

// --- leaks ------------------------------------------------------------------

// The linker sends creating and destroying of ledgers through here (--wrap);
// weak, since not every program has ledgers.
#define WEAK __attribute__((weak))
WEAK struct stk_ledger *__real_stk_ledger_create(bool sites);
WEAK void __real_stk_ledger_destroy(struct stk_ledger **ledger);
#pragma weak stk_ledger_each
#pragma weak stk_res_name

static atomic_uint ledgers, leaked;
static atomic_bool leaks_expected;

struct stk_ledger *__wrap_stk_ledger_create(bool sites);
struct stk_ledger *__wrap_stk_ledger_create(bool sites)
{
    struct stk_ledger *l = __real_stk_ledger_create(sites);
    if (l)
        atomic_fetch_add(&ledgers, 1);
    return l;
}

static void note_leak(void *cookie, const struct stk_ledger_entry *e)
{
    (void)cookie;
    if (atomic_fetch_add(&leaked, 1) < 10 && !atomic_load(&leaks_expected))
        print_message("# leaked: %llu x %s, %llu bytes, by \"%s\" (%s)\n",
                      (unsigned long long)e->count, stk_res_name(e->res),
                      (unsigned long long)e->bytes, e->owner, e->site);
}

void __wrap_stk_ledger_destroy(struct stk_ledger **ledger);
void __wrap_stk_ledger_destroy(struct stk_ledger **ledger)
{
    if (*ledger) {
        stk_ledger_each(*ledger, note_leak, NULL);
        atomic_fetch_sub(&ledgers, 1);
    }
    __real_stk_ledger_destroy(ledger);
}

void pen_test_expect_leaks(void)
{
    atomic_store(&leaks_expected, true);
}

// Tests run one after the other, so one place is enough.
static unsigned ledgers_before;

static int before_test(void **state)
{
    (void)state;
    ledgers_before = atomic_load(&ledgers);
    atomic_store(&leaked, 0);
    atomic_store(&leaks_expected, false);
    return 0;
}

static int after_test(void **state)
{
    (void)state;
    const unsigned now = atomic_load(&ledgers);
    if (now > ledgers_before)
        print_message("# %u ledgers were not destroyed\n",
                      now - ledgers_before);
    const bool leaks = atomic_load(&leaked) && !atomic_load(&leaks_expected);
    return detect_leaks && (leaks || now > ledgers_before) ? -1 : 0;
}

static int run_with_ledgers(const char *name, const struct CMUnitTest *tests,
                            size_t count)
{
    struct CMUnitTest *watched = calloc(count, sizeof(*watched));
    if (!watched)
        return 1;
    for (size_t i = 0; i < count; i++) {
        watched[i] = tests[i];
        watched[i].setup_func = before_test;
        watched[i].teardown_func = after_test;
    }
    const int failed =
        _cmocka_run_group_tests(name, watched, count, NULL, NULL);
    free(watched);
    return failed ? 1 : 0;
}

// --- running ----------------------------------------------------------------

// 0 or 1; -1: this is no such option.
static int leak_option(const char *arg)
{
    static const char *const names[] = { "--detect-memory-leaks=",
                                         "--detect_memory_leaks=" };
    for (size_t i = 0; i < 2; i++) {
        const size_t n = strlen(names[i]);
        if (strncmp(arg, names[i], n) == 0 &&
            (strcmp(arg + n, "0") == 0 || strcmp(arg + n, "1") == 0))
            return arg[n] - '0';
    }
    return -1;
}

// Keep the GPU's primary context alive for the whole program, so that each
// device that a test opens finds it there instead of making it anew.
static void keep_context(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    int (*init)(unsigned) = NULL;
    int (*retain)(void **, int) = NULL;
    if (library) {
        *(void **)&init = dlsym(library, "cuInit");
        *(void **)&retain = dlsym(library, "cuDevicePrimaryCtxRetain");
    }
    void *context;
    if (!init || !retain || init(0) != 0 || retain(&context, 0) != 0)
        print_message("# the context of device 0 cannot be kept\n");
}

int pen_test_run(int argc, char **argv, const struct CMUnitTest *tests,
                 size_t count)
{
    const char *name = strrchr(argv[0], '/');
    name = name ? name + 1 : argv[0];

    for (int i = 1; i < argc; i++) {
        const char *arg = argv[i];
        if (leak_option(arg) >= 0) {
            detect_leaks = leak_option(arg);
        } else if (strncmp(arg, "--only=", 7) == 0) {
            cmocka_set_test_filter(arg + 7);
        } else {
            fprintf(stderr,
                    "usage: %s [--only=GLOB] [--detect-memory-leaks=0|1]\n",
                    name);
            return 3;
        }
    }
    atexit(remove_folders);
    // A test that hangs is to be found by what was printed before.
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (pen_test_on_gpu() && getenv("PENSTOCK_TEST_KEEP_CONTEXT"))
        keep_context();
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return run_with_ledgers(name, tests, count);
}
