#ifndef PEN_TEST_H
#define PEN_TEST_H

// What every test program includes: cmocka, the device under test, test data,
// temporary folders, and a main that counts leaks.
//
//     PEN_TEST(the_claim_that_is_tested) { assert_int_equal(1 + 1, 2); }
//     PEN_TEST_MAIN(PEN_CASE(the_claim_that_is_tested))

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PEN_TEST(name)                                                         \
    static void name(__attribute__((unused)) void **test_state)
#define PEN_CASE(name)                                                         \
    {                                                                          \
#name, name, NULL, NULL, NULL                                          \
    }

// Print a reason and skip the running test.
#define PEN_SKIP(...)                                                          \
    do {                                                                       \
        print_message("# skipped: " __VA_ARGS__);                              \
        print_message("\n");                                                   \
        skip();                                                                \
    } while (0)

// Selector of the device under test: PENSTOCK_TEST_DEVICE, else "emulated".
const char *pen_test_device(void);
int pen_test_on_gpu(void);
// Path of the emulator library: PENSTOCK_TEST_EMULATOR.
const char *pen_test_emulator(void);
// Build and source folder.
const char *pen_test_build(void);
const char *pen_test_source(void);

// Path of a file of the test data (PENSTOCK_TEST_DATA, else ../shared/data
// beside the source); skips the running test, naming the file, if it is not
// there. A static buffer of the last 4 calls.
const char *pen_test_data(const char *name);

// A fresh empty folder, removed at the end of the program; static buffer.
const char *pen_test_folder(void);

// Number of random cases: `quick`, or `full` with PENSTOCK_TEST_LONG=1.
unsigned pen_test_seeds(unsigned quick, unsigned full);

// xorshift: the same numbers everywhere.
uint32_t pen_test_random(uint64_t *seed);

// Read and write whole files; the test fails if that is not possible.
void *pen_test_read_file(const char *path, size_t *bytes);
void pen_test_write_file(const char *path, const void *data, size_t bytes);

// 1 unless --detect-memory-leaks=0 (or --detect_memory_leaks=0) was given. With
// 1 a test fails when a ledger that was made during it is destroyed with
// something alive in it, or not destroyed at all; with 0 that is a line of
// output. Seen are the ledgers of programs that link the layers' static
// libraries; libpenstock.so is seen by its reports.
int pen_test_detect_leaks(void);
// Of the running test: its ledgers may have entries when they are destroyed.
void pen_test_expect_leaks(void);

int pen_test_run(int argc, char **argv, const struct CMUnitTest *tests,
                 size_t count);

#define PEN_TEST_MAIN(...)                                                     \
    int main(int argc, char **argv)                                            \
    {                                                                          \
        const struct CMUnitTest tests[] = { __VA_ARGS__ };                     \
        return pen_test_run(argc, argv, tests,                                 \
                            sizeof(tests) / sizeof(tests[0]));                 \
    }

#endif  // PEN_TEST_H
