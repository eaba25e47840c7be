// The files of a fuzz target's corpus, in every build.

#include <dirent.h>
#include <stdio.h>

#include "fuzz.h"
#include "tests/support/pen_test.h"

PEN_TEST(the_corpus_is_clean)
{
    char folder[1024];
    snprintf(folder, sizeof(folder), "%s/tests/fuzz/corpus/" FUZZ_TARGET,
             pen_test_source());
    DIR *dir = opendir(folder);
    if (!dir)
        fail_msg("no folder %s", folder);
    unsigned files = 0;
    const struct dirent *entry;
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == '.')
            continue;
        char path[2048];
        snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        size_t bytes = 0;
        uint8_t *data = pen_test_read_file(path, &bytes);
        // What was read last is the one that failed.
        print_message("# %s\n", entry->d_name);
        assert_int_equal(LLVMFuzzerTestOneInput(data, bytes), 0);
        free(data);
        files++;
    }
    closedir(dir);
    assert_true(files >= 10);
}

PEN_TEST_MAIN(PEN_CASE(the_corpus_is_clean))
