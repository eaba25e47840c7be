#ifndef FAKE_DMABUF_H
#define FAKE_DMABUF_H

// A kernel with the devices that make DMABUFs of host memory, for machines that
// have none. The linker sends open, ioctl, mmap, munmap, memfd_create,
// ftruncate, fcntl, lseek and close of the program and its static libraries
// through here (--wrap); what is none of ours goes on to the real kernel. The
// DMABUFs are memfds that answer DMA_BUF_IOCTL_SYNC.
//
// In meson.build add `fake_dmabuf_dep` to the dependencies of the executable.

#include <stdbool.h>

struct fake_dmabuf {
    // errno of opening the nodes; 0: they are there.
    int udmabuf, heap;
    // errno of their ioctls from `limit` bytes on; 0: they work.
    int create, alloc;
    unsigned long long limit;
    // How often DMA_BUF_IOCTL_SYNC is interrupted (EINTR, EAGAIN in turn)
    // before it works, and the errno with which it then fails; 0: it works.
    unsigned interrupted;
    int sync;
};

// The machine from now on; {ENOENT, ENOENT} is this one. Counts begin at 0.
void fake_dmabuf_set(const struct fake_dmabuf *kernel);

// Let the `nth` call of ours from now on (1: the next) fail with `error`; 0:
// none. munmap and close never fail. True if one was made to fail since then.
void fake_dmabuf_fail(unsigned nth, int error);
bool fake_dmabuf_failed(void);

struct fake_dmabuf_counts {
    unsigned begins, ends;    // of accesses by the host
    unsigned reads, writes;   // begun for it
    unsigned mappings;        // that are alive
    unsigned nodes, created;  // opened; DMABUFs made
};
struct fake_dmabuf_counts fake_dmabuf_counts(void);

// A DMABUF of somebody else's, to be closed by the caller; `bytes` are whole
// pages.
int fake_dmabuf_new(unsigned long long bytes);

#endif  // FAKE_DMABUF_H
