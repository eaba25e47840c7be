#ifndef STK_FILE_OUT_H
#define STK_FILE_OUT_H

// Files that are there whole or not at all. A file is written under a short
// name of its own in the folder where it is to be, and renamed when complete;
// a failure or a stop in between leaves nothing behind. Links are never
// followed, FIFOs and devices are written directly.

#include <sys/types.h>
#include <sys/uio.h>

#include <penstock/status.h>

// Open the folder, making it (and those above) if `create`. The descriptor is
// the caller's. Errors: PEN_E_IO naming the folder that could not be made.
PEN_NODISCARD enum pen_status stk_folder_open(const char *folder, bool create,
                                              int *out, struct pen_error *err);

enum stk_file_mode {
    STK_FILE_NEW = 1,  // refuse an existing file
    STK_FILE_REPLACE,  // replace one
    STK_FILE_APPEND,   // continue one, or begin it
};

struct stk_file_out {
    int folder;        // borrowed
    const char *name;  // in the folder; borrowed until commit or abort
    const char *path;  // for messages; borrowed likewise
    enum stk_file_mode mode;
    int fd;         // -1 when nothing is open
    char temp[24];  // name of the temporary file; "" if written directly
    bool existed;   // a regular file of that name was there
    bool direct;    // a FIFO or device
    off_t start;    // APPEND: length before
};

// What is at a name now.
struct stk_file_state {
    bool exists, regular, link, folder, special;
    dev_t dev;
    ino_t ino;
};
PEN_NODISCARD enum pen_status stk_file_look(int folder, const char *name,
                                            const char *path,
                                            struct stk_file_state *out,
                                            struct pen_error *err);

// Begin, write, and end by commit or abort. A failed commit has aborted.
// Errors: PEN_E_IO with the file's name and the cause (native: errno); a
// link, a folder, an existing file in mode NEW.
// Thread: data. Blocks on the file system.
PEN_NODISCARD enum pen_status stk_file_begin(struct stk_file_out *f,
                                             struct pen_error *err);
// `parts` is used up.
PEN_NODISCARD enum pen_status stk_file_write(struct stk_file_out *f,
                                             struct iovec *parts, size_t count,
                                             struct pen_error *err);
PEN_NODISCARD enum pen_status stk_file_commit(struct stk_file_out *f,
                                              struct pen_error *err);
void stk_file_abort(struct stk_file_out *f);

#endif  // STK_FILE_OUT_H
