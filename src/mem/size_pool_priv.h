#ifndef STK_SIZE_POOL_PRIV_H
#define STK_SIZE_POOL_PRIV_H

// What a size-class pool is made of.
//
// A span is what one call of the driver gave: one large block, or a slab that
// is cut into equal small ones. A free block is in exactly one of two places:
// in some thread's line, or on the class's central stack.
//
// Lines. Each has one owner at a time: the thread that has its number. The
// owner uses it without atomic read-modify-writes: it raises `busy`, looks at
// `stop`, takes or puts a pointer, and lowers `busy`. Who wants what is in
// somebody else's line holds the class lock, sets `stop`, makes every thread
// of the process pass a memory barrier (membarrier(2)) so that the owner either
// sees `stop` or has been seen to be busy, waits until it is not, and has the
// line to himself until he takes `stop` back. An owner that sees it goes by the
// stack; who holds the class lock may use his own line freely. Where there is
// no membarrier the owner raises `busy` by an exchange.
//
// Blocks. `out` is a block's address, with a mark while it is free. Freeing
// sets the mark by the one read-modify-write that a pair of calls needs, so
// that of several who free a block one does. Descriptors of spans and blocks
// are never given back to malloc: a wrong address that is freed at the worst
// moment still finds a block, whose `out` tells that it is not this one.
//
// Locks, in the order in which they may be taken together:
//   reclaim       of a pool: sweeping, trimming, looking for oldest blocks
//   class lock    the central stack of one class, and all its lines
//   spans_lock    of a pool: the list of its spans
//   the registry  all pools, for those who free what is no block
// The driver is called with at most `reclaim` held, and allocated from with
// none, since the driver's hoards (ours too) are then asked for their memory.

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>

#include "../base/str.h"
#include "size_pool.h"

enum {
    STK_SHARDS = 128,    // lines of threads; line 0 is nobody's
    STK_MAX_SLOTS = 12,  // of a line
    STK_CLASSES = 312,
    STK_GRANULE = 64,
    STK_DEVICE_GRANULE = 256,
};
#define STK_LARGE_BYTES ((size_t)64 << 10)  // blocks with spans of their own
#define STK_MOST_BYTES  ((size_t)1 << 47)
// What a line keeps at most, as long as that is more than one block.
#define STK_LINE_BYTES ((size_t)72 << 20)

#define STK_FREE ((uint64_t)1)  // the mark; addresses are multiples of 64

struct stk_span;

// One block; a cache line, which goes with it from thread to thread.
struct stk_size_block {
    alignas(64) _Atomic uint64_t out;  // its address; marked while it is free
    _Atomic uint64_t asked;            // bytes, while it is out
    struct stk_span *span;
};

// Added in the page map to the address of a span that is one large block.
#define STK_SPAN_LARGE 1

// Of 128 bytes, as processors fetch lines in pairs: what one thread writes
// shall not lie beside what all read.
struct stk_span {
    // Read by whoever frees.
    alignas(128) _Atomic uint64_t base;  // address of block 0
    _Atomic uint64_t inverse;  // offset * inverse >> 42 is the block's index
    _Atomic(struct stk_size_class *) cls;
    _Atomic(struct stk_size_pool *) pool;
    _Atomic uint32_t mem_bit;  // PEN_MEM_BIT of its type
    uint32_t room;             // blocks of the descriptor; never changes

    // Read and written by the pool.
    alignas(64) uint32_t count;  // blocks in use
    uint32_t idle;       // of those, on the central stack; while reclaiming
    int64_t idle_since;  // the last one of those; likewise
    size_t bytes;        // from the driver
    uint64_t pages;      // in the page map
    struct stk_block memory;
    struct stk_span *prev, *next;  // of the pool's list
    struct stk_span *chain;        // of those on their way out, or spare
    struct stk_size_block blocks[];
};

// A free block, with its address, so that who takes it need not wait for the
// descriptor, which another thread may have written last.
struct stk_free {
    struct stk_size_block *block;
    uint64_t address;
};
struct stk_idle_block {
    struct stk_free free;
    int64_t since;  // of stk_size_clock()
};

struct stk_line {
    alignas(128) _Atomic uint32_t busy;
    _Atomic uint32_t stop;
    _Atomic uint32_t count;  // of blocks
    uint32_t low;            // least of it since the last sweep
    _Atomic uint64_t takes;  // how many blocks its owners took from it
    struct stk_free block[STK_MAX_SLOTS];
};

struct stk_size_class {
    // Read by everybody.
    struct stk_size_pool *pool;
    size_t bytes;
    uint32_t slots;       // of a line that are used
    uint32_t batch;       // blocks that move between line and stack
    _Atomic bool closed;  // with all lines stopped: the pool is destroyed

    // The stack of free blocks: the first was idle longest.
    alignas(128) pthread_mutex_t lock;
    struct stk_idle_block *idle;
    size_t idle_count, idle_room;
    size_t blocks;  // that there are; idle_room is never less
    size_t spans;
    _Atomic uint64_t takes;  // of blocks that did not come out of a line

    struct stk_line line[STK_SHARDS + 1];
};

struct stk_size_pool {
    enum pen_mem_type mem;
    size_t granule;
    uint64_t max_bytes;  // UINT64_MAX: no limit
    int64_t decay_ns;
    const struct stk_mem_type *type;
    struct stk_mem_source source;
    struct stk_ledger *ledger;         // entered in addition; may be NULL
    struct stk_ledger *owners_ledger;  // who else holds memory; may be NULL
    const struct pen_log *log;
    void (*gone)(void *cookie);
    void *cookie;
    _Atomic(struct stk_size_class *) classes[STK_CLASSES];

    alignas(64) pthread_mutex_t reclaim;
    _Atomic int64_t next_sweep;

    pthread_mutex_t spans_lock;
    struct stk_span *spans;

    _Atomic uint64_t held, held_peak, used_peak;
    _Atomic uint64_t driver_allocs, driver_frees;
    _Atomic uint64_t bad_frees, steals;

    bool hoarding;
    struct stk_hoard hoard;

    bool orphan;                 // destroyed, with blocks out; reclaim
    struct stk_size_pool *next;  // registry
    unsigned watchers;           // who report a wrong free; registry
    char owner[];
};

// --- threads (size_shard.c) -------------------------------------------------

// The calling thread's line, 1 to STK_SHARDS; 0: it has none (yet). A thread
// gets the lowest number that no other one has, and leaves it, with the blocks
// in its lines, to the next one when it ends.
extern _Thread_local __attribute__((
    visibility("hidden"), tls_model("initial-exec"))) unsigned stk_shard;
// Get a number; 0 if none is left.
unsigned stk_shard_choose(void);
// The highest number that was ever given: lines beyond it are empty.
extern __attribute__((visibility("hidden"))) _Atomic unsigned stk_shard_top;

// Whether owners of lines may rely on stk_shard_barrier(); settled before the
// first line is made.
extern __attribute__((visibility("hidden"))) bool stk_shard_asymmetric;
void stk_shard_init(void);
// Make every thread pass a memory barrier; for those who stop lines. False: it
// cannot be made, and no line may be touched.
bool stk_shard_barrier(void);

// --- spans (size_span.c) ----------------------------------------------------

// Get memory for blocks of a class from the driver: the first block is *first,
// which is nobody else's; the others are on the stack.
// Errors: PEN_E_LIMIT (max_bytes), those of the memory type, PEN_E_NOMEM,
// PEN_E_UNSUPPORTED. No lock held.
PEN_NODISCARD enum pen_status stk_size_grow(struct stk_size_class *cls,
                                            struct stk_free *first,
                                            struct pen_error *err);
// Give spans back whose blocks nobody can reach any more; bytes of them.
uint64_t stk_size_release(struct stk_size_pool *pool, struct stk_span *chain);

// --- the stack, stealing and giving back (size_reclaim.c) -------------------

// A clock for idle times: cheap, good to some milliseconds.
int64_t stk_size_clock(void);
// Put a free block on the stack. `since`: now. Class lock.
void stk_size_push(struct stk_size_class *cls, struct stk_free block,
                   int64_t since);
// Move the `count` blocks that are longest in a line to the stack. For who may
// use the line, with the class lock.
void stk_size_drain(struct stk_size_class *cls, struct stk_line *line,
                    uint32_t count, int64_t now);
// Move all blocks of all lines to the stack; how many. Class lock.
uint64_t stk_size_empty_lines(struct stk_size_class *cls);
// Sweep and decay, if it is time; never waits for somebody who does so.
void stk_size_maintain(struct stk_size_pool *pool);
// Give idle spans back, those that were idle longest first, until `bytes` of
// them are gone or no free block is left; how many went. Takes `reclaim`.
uint64_t stk_size_reclaim(struct stk_size_pool *pool, uint64_t bytes);
// All spans of a class that are wholly idle.
struct stk_span *stk_size_take_idle(struct stk_size_class *cls);
// Free blocks of a class, wherever they are.
uint64_t stk_size_count_free(struct stk_size_class *cls);
// Blocks of a class that were ever given.
uint64_t stk_size_count_takes(struct stk_size_class *cls);
// "5 blocks free (3 of 6.00 MiB, 2 of 512.00 KiB), the largest 6.00 MiB".
void stk_size_describe(struct stk_size_pool *pool, struct stk_text *text);

// What the blocks that are out make up.
struct stk_size_use {
    uint64_t live, used, block_bytes;
};
void stk_size_measure(struct stk_size_pool *pool, struct stk_size_use *out);

#endif  // STK_SIZE_POOL_PRIV_H
