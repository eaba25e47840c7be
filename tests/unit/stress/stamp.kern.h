#ifndef PENK_STAMP_H
#define PENK_STAMP_H

// Memory that says whose it is: its first words are the tag of who wrote it
// (frame number and more), the number of words and a checksum, all others
// follow from the tag. A block of which one word is older or newer than the
// others does not pass.

#include <penstock/kernel.h>

enum {
    STAMP_THREADS = 256,  // of the one block of each launch
    STAMP_HEAD = 4,       // words: tag (2), number of words, checksum
};

struct stamp_write {
    uint64_t dst, tag;
    uint32_t words;  // more than STAMP_HEAD
    uint32_t reserved;
};
PENK_STATIC_ASSERT(sizeof(struct stamp_write) == 24, "host and device differ");

// A tag of 0 stands for memory that is all zero.
struct stamp_check {
    uint64_t src, tag;
    uint64_t result;  // struct stamp_result, one launch at a time
    uint32_t words;
    uint32_t what;  // noted if it fails
};
PENK_STATIC_ASSERT(sizeof(struct stamp_check) == 32, "host and device differ");

// Counts go up; the rest is about the first check that failed.
struct stamp_result {
    uint64_t want, found;  // tags
    uint32_t checks, failed;
    uint32_t what;
    uint32_t wrong, first;  // words that are wrong, and the first of them
    uint32_t reserved;
};
PENK_STATIC_ASSERT(sizeof(struct stamp_result) == 40, "host and device differ");

#endif  // PENK_STAMP_H
