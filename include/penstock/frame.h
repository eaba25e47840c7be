#ifndef PEN_FRAME_H
#define PEN_FRAME_H

#include <penstock/format.h>

PEN_BEGIN

// A frame: a counted reference to a buffer, with caps, layout, time stamps
// and the points in stream time at which it is ready and last read.
//
// Nobody dereferences a frame. Code acquires a view that says where it wants
// to touch the samples (on the host, or in a stream) and how (read, write);
// a module does so with pen_acquire() of module.h.
struct pen_frame;
struct pen_device;

enum pen_access {
    PEN_READ = 1,
    PEN_WRITE = 2,
};

// The samples of an acquired frame. Planes as in pen_layout; width and height
// in pixels. `address` is a device address for CUDA_DEVICE frames and the
// host address otherwise; `host` is NULL where the host has no access, as for
// CUDA_DEVICE frames. DMABUF frames acquired ON_HOST are mapped, and have a
// device address only if acquired ON_STREAM.
struct pen_plane {
    void *host;
    uint64_t address;
    size_t pitch;      // bytes from row to row
    size_t row_bytes;  // bytes of a row that carry samples
    int32_t rows;
};
struct pen_view {
    enum pen_mem_type mem;
    enum pen_format format;
    int32_t width, height;
    uint32_t planes;
    struct pen_plane plane[PEN_MAX_PLANES];
    size_t bytes;  // of the buffer; of the payload for kinds without layout
};

// Add or drop a reference. Dropping the last returns the buffer to its pool.
// NULL is allowed in unref. A frame may outlive its pipeline: it is valid until
// its last reference is dropped. What is done to a frame after that has no
// effect (an access is refused with PEN_E_STATE) and is an error of the run, as
// far as it can be noticed: not any more once the frame's object serves another
// frame. Under AddressSanitizer it ends the program at the spot. Thread: any.
PEN_API struct pen_frame *pen_frame_ref(struct pen_frame *frame);
PEN_API void pen_frame_unref(struct pen_frame *frame);

// Borrowed until the frame is gone. Thread: any.
PEN_API const struct pen_caps *pen_frame_caps(const struct pen_frame *frame);
PEN_API const struct pen_layout *
pen_frame_layout(const struct pen_frame *frame);
PEN_API enum pen_mem_type pen_frame_mem(const struct pen_frame *frame);

// Number of the frame, counted by its source from 0. Thread: any.
PEN_API uint64_t pen_frame_index(const struct pen_frame *frame);
// Presentation time in nanoseconds; INT64_MIN if there is none. Thread: any.
PEN_API int64_t pen_frame_pts(const struct pen_frame *frame);
// Payload bytes of a frame without layout (encoded, plain). Thread: any.
PEN_API size_t pen_frame_bytes(const struct pen_frame *frame);

// For the module that fills the frame, before it leaves process().
// set_bytes: payload of a frame without layout; more than the buffer holds is
// PEN_E_ARG. set_pts: nanoseconds. Thread: data.
PEN_API PEN_NODISCARD enum pen_status
pen_frame_set_bytes(struct pen_frame *frame, size_t bytes,
                    struct pen_error *err);
PEN_API void pen_frame_set_pts(struct pen_frame *frame, int64_t pts);

// --- foreign memory ---------------------------------------------------------

// Memory that is not Penstock's, to be used as a frame. The field that `mem`
// asks for must be set: `host` for HOST and HOST_PINNED (which must be page-
// locked), `address` for CUDA_DEVICE, `fd` for DMABUF (duplicated: the caller
// keeps his).
struct pen_foreign {
    enum pen_mem_type mem;
    void *host;
    uint64_t address;
    int fd;
    uint64_t modifier;  // of the DRM; only 0 (linear) is taken
    size_t bytes;       // of the whole memory
    // Where the planes lie. planes 0: as Penstock lays them out.
    struct pen_layout layout;
    struct pen_device *device;  // of CUDA_DEVICE memory; for DMABUF the device
                                // that it shall be imported into, or NULL.
                                // Borrowed until release
    // Called once nobody refers to the frame any more and what was queued is
    // done; on any thread. May be NULL.
    void (*release)(void *cookie);
    void *cookie;
};

// Make a frame over foreign memory; the caller owns one reference. Index is 0,
// pts INT64_MIN. `release` is not called on failure. It is for the program and
// for pen_frame_dmabuf(); what leaves a module are frames of the plan's pools.
// Errors: PEN_E_ARG          the memory is missing, too small for the planes,
//                            or planes overlap
//         PEN_E_UNSUPPORTED  a modifier other than linear; DMABUF of a kind
//                            that neither host nor device can be given
//         PEN_E_LIMIT, PEN_E_NOMEM, PEN_E_IO (of a descriptor), PEN_E_DRIVER
// Thread: any.
PEN_API PEN_NODISCARD enum pen_status
pen_frame_wrap(const struct pen_caps *caps, const struct pen_foreign *memory,
               struct pen_frame **out, struct pen_error *err);

// --- DMABUF -----------------------------------------------------------------

// A DMABUF frame for others: `fd` is a duplicate of the caller's own, and the
// frame is kept until pen_dmabuf_close().
struct pen_dmabuf {
    int fd;
    uint64_t modifier;  // of the DRM: 0, linear
    size_t bytes;
    uint32_t planes;
    struct {
        size_t offset, pitch;
    } plane[PEN_MAX_PLANES];
    struct pen_frame *frame;
};

// Errors: PEN_E_STATE  not a DMABUF frame, or work on it is not done (never so
//                      for the inputs of a module without PEN_CLASS_CUDA)
//         PEN_E_IO     no descriptor is left
// Thread: any.
PEN_API PEN_NODISCARD enum pen_status pen_frame_dmabuf(struct pen_frame *frame,
                                                       struct pen_dmabuf *out,
                                                       struct pen_error *err);
// Closes the descriptor and zeroes *dmabuf; a zeroed one is allowed.
// Thread: any.
PEN_API void pen_dmabuf_close(struct pen_dmabuf *dmabuf);

PEN_END

#endif  // PEN_FRAME_H
