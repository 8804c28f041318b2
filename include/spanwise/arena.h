/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: objects are allocated one by one and freed together.
 *
 *   sw_arena *arena;
 *   sw_arena_create(NULL, &arena);
 *   struct message *m = SW_ARENA_NEW(arena, struct message);      zeroed
 *   char *bytes = sw_arena_make_slice(arena, 1000, 1, 1, 0);      1000 of 1 byte, not zeroed
 *   sw_arena_free(arena);                                         all of it
 *
 * An arena bump-allocates from both ends of its newest chunk: objects that may hold pointers
 * (SW_SCAN) from the front, others from the back, like the arenas of the Go runtime. Unlike Go's, a
 * freed arena's chunks are reused by the next arena of the thread, then by any arena of the
 * process, and a policy returns them to the system. Design: docs/design/arena.md.
 *
 * After an error the arena is unchanged; sw_last_error() has the offending values.
 *   SW_INVALID  an alignment that is not a power of two, options outside their limits
 *   SW_NOMEM    no memory, or a size above PTRDIFF_MAX
 *   SW_LIMIT    the arena's limit is reached, and its mode is SW_ARENA_FORCE
 *   SW_STATE    a savepoint that is no longer valid
 *   SW_BUSY     the arena to be freed or reset is held
 *   SW_OWNER    the calling thread does not own the safe arena
 *
 * Thread rule: one thread at a time may call; any thread may read the objects. With the option
 * `locked` any thread may call.
 */
#ifndef SPANWISE_ARENA_H
#define SPANWISE_ARENA_H

#include <string.h>

#include <spanwise/allocator_vtable.h>
#include <spanwise/gc.h>
#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_arena sw_arena;

/* --- life ------------------------------------------------------------------------------------- */

/* Where objects come from. */
typedef enum sw_arena_mode {
    SW_ARENA_DEFAULT = 0, /* from SPANWISE_ARENA=off|auto|force; AUTO if unset */
    SW_ARENA_OFF,   /* each object is a malloc of the C library, so that memory checkers see it */
    SW_ARENA_AUTO,  /* chunks; objects of the heap if the limit or the system refuses a chunk */
    SW_ARENA_FORCE, /* chunks; an error if the limit or the system refuses one */
    SW_ARENA_MODE_COUNT
} sw_arena_mode;

enum {
    SW_ARENA_CHUNK_DEFAULT = 64 * 1024, /* bytes */
    SW_ARENA_CHUNK_MIN = 4 * 1024,
    SW_ARENA_CHUNK_MAX = 1 << 30,
};

typedef struct sw_arena_options {
    uint32_t struct_bytes; /* sizeof(sw_arena_options), for later versions */
    uint32_t mode;         /* sw_arena_mode */
    uint64_t chunk_bytes;  /* size of a chunk: a power of two, SW_ARENA_CHUNK_MIN to _MAX */
    uint64_t limit_bytes;  /* the most bytes of chunks; 0: no limit */
    void *first;           /* the caller's memory, used before the first chunk */
    uint64_t first_bytes;  /* its bytes; 0: none */
    sw_heap *heap;         /* for objects above a quarter of a chunk; NULL: the default heap */
    uint32_t locked;       /* 1: any thread may call, under a lock */
    uint32_t safe;         /* 1: detects use after free; see below */
    const char *tag;       /* for reports, a string that lives as long as the process; NULL: none */
} sw_arena_options;

/* A safe arena. After the arena is freed or reset, its memory is inaccessible: a use is misuse
 * FREED_ARENA, which reports the object, its type, and the call sites of allocation and free. The
 * chunks enter a quarantine; once it exceeds its bound, the oldest chunks leave it. Unlike other
 * arenas, a safe arena
 *   - reuses no chunk before it has left the quarantine, and takes no memory from the heap: big
 *     objects have their own chunks, and a refused chunk is an error, as in mode FORCE;
 *   - belongs to the thread that created it, or last called sw_arena_adopt, unless it is locked;
 *   - neither reuses nor protects memory released by a savepoint.
 * It can have neither mode OFF nor a first chunk of the caller (SW_UNSUPPORTED, as on systems that
 * do not report faults). A collector can find dangling pointers before they are used
 * (SW_GC_DANGLING); the chunks that they point to then stay in the quarantine. */

/* Set the defaults: mode DEFAULT, chunks of SW_ARENA_CHUNK_DEFAULT, no limit, no first chunk, the
 * default heap, unlocked. */
SW_API void sw_arena_options_init(sw_arena_options *options);

/* Create an arena. options: NULL for the defaults. The first chunk is allocated with the first
 * object. Errors: SW_INVALID (also an unknown value of SPANWISE_ARENA), SW_NOMEM. */
SW_API sw_status sw_arena_create(const sw_arena_options *options, sw_arena **out);
/* Free the arena and all its objects. NULL is ignored; an arena that was freed before is misuse
 * (STALE_HANDLE), and SW_INVALID. */
SW_API sw_status sw_arena_free(sw_arena *arena);
/* Free all objects and savepoints. The arena keeps its newest chunk, or the caller's first. */
SW_API sw_status sw_arena_reset(sw_arena *arena);

/* --- objects ---------------------------------------------------------------------------------- */

/* Allocate `size` bytes, aligned to `align`, a power of two; 0: 16, as max_align_t. size 0
 * allocates one byte. flags: SW_SCAN: the object may hold pointers, and is zeroed; SW_ZERO: it is
 * zeroed. An object above a quarter of a chunk that does not fit into the newest chunk comes from
 * the heap; the arena frees it. On failure: NULL, errno ENOMEM or EINVAL, and the last error. */
SW_API void *sw_arena_alloc(sw_arena *arena, size_t size, size_t align, unsigned flags);
/* Allocate `count` elements of `size` bytes. NULL also if count * size overflows (ENOMEM). */
SW_API void *sw_arena_make_slice(sw_arena *arena, size_t count, size_t size, size_t align,
                                 unsigned flags);
/* Copy an object to the arena's heap, so that it outlives the arena; the caller frees the copy
 * (sw_free for the default heap). flags: as for sw_heap_alloc. An object of a freed arena is misuse
 * (FREED_ARENA) unless its chunk has been reused. */
SW_API void *sw_arena_clone(sw_arena *arena, const void *object, size_t size, unsigned flags);

/* As sw_arena_alloc; a safe arena stores `type`, a string with static lifetime, for its reports. */
SW_API void *sw_arena_alloc_typed(sw_arena *arena, size_t size, size_t align, unsigned flags,
                                  const char *type);

/* --- savepoints ------------------------------------------------------------------------------- */

/* A position in the sequence of an arena's allocations. */
typedef struct sw_arena_savepoint {
    const void *record;
    uint64_t serial;
} sw_arena_savepoint;

/* Create a savepoint. Errors: SW_NOMEM. */
SW_API sw_status sw_arena_mark(sw_arena *arena, sw_arena_savepoint *out);
/* Free the savepoint and all objects and savepoints created after it. Errors: SW_STATE: it was
 * released before, by itself, with an earlier one or by a reset. */
SW_API sw_status sw_arena_release(sw_arena *arena, sw_arena_savepoint savepoint);

/* --- use by others ---------------------------------------------------------------------------- */

/* Return an sw_allocator that allocates from the arena, for range.h and others. Memory of released
 * blocks is reused only after the arena is freed or reset, which must follow the last use of the
 * structures built on the allocator. */
SW_API sw_allocator sw_arena_allocator(sw_arena *arena);

/* Make the arena a root of a collector: when a cycle begins, it scans the aligned words of SW_SCAN
 * objects and of the alignment gaps between them, which may still hold old pointers. Other objects
 * are not scanned. Big objects that the arena took from the collected heap are kept alive as well.
 * Calls on the arena count as calls on the collected heap: none may run while a cycle begins.
 * Objects freed by a reset, a savepoint or the arena's free are not scanned. gc NULL: detach. Under
 * a memory checker, scanned gaps become accessible. Errors: SW_STATE: another collector is
 * attached. */
SW_API sw_status sw_arena_attach(sw_arena *arena, sw_gc *gc);
/* Free the arena when `object`, an object of the collected heap, becomes unreachable. The object's
 * finalizer is replaced by one that frees the arena. The next sw_gc_finalize after the cycle that
 * finds the object unreachable runs it, in any thread, even for a safe arena. If the arena is held
 * at that time, the finalizer of a later cycle frees it. If the arena is attached and the object is
 * reachable from it, it is never freed. The program may free the arena earlier. If the program
 * frees the object, or destroys the collector, it must free the arena itself. A second call
 * replaces the object; NULL: none. (Go's arenas have such a finalizer: runtime/arena.go.) Errors:
 * as sw_gc_set_finalizer. */
SW_API sw_status sw_arena_free_with(sw_arena *arena, sw_gc *gc, const void *object);

/* A held arena cannot be freed or reset (SW_BUSY). Any thread may call. Errors: SW_LIMIT at 2^31
 * holds; unhold: SW_STATE: it is not held. */
SW_API sw_status sw_arena_hold(sw_arena *arena);
SW_API sw_status sw_arena_unhold(sw_arena *arena);
/* Hold the arena with the chunk that contains `object`, any address, and return it for
 * sw_arena_unhold. NULL: no chunk of a live arena contains the address (SW_STATE). Objects from the
 * heap or, in mode OFF, the C library, and the caller's first chunk are not found. */
SW_API sw_arena *sw_arena_pin(const void *object);
/* Make the calling thread the owner of a safe arena, after the last call of the previous owner. */
SW_API sw_status sw_arena_adopt(sw_arena *arena);

/* A checked reference: sw_arena_get compares generations to detect that the object was freed. */
typedef struct sw_arena_ref {
    sw_arena *arena;
    void *object;
    uint64_t generation;
} sw_arena_ref;

/* object: of this arena. The reference is all zero after misuse of the arena's handle. */
SW_API sw_arena_ref sw_arena_make_ref(sw_arena *arena, void *object);
/* Return the object, or NULL if the arena has been reset or freed since, which is neither an error
 * nor misuse. Savepoints are not detected. */
SW_API void *sw_arena_get(sw_arena_ref ref);

/* Set the bound of the quarantine; default 64 MiB, at most 8192 chunks because of the system's
 * limit of mappings. Chunks with dangling pointers found by SW_GC_DANGLING stay in addition, up to
 * the same bytes and 2048 chunks, until a cycle finds no such pointer. */
SW_API void sw_arena_set_quarantine(uint64_t bytes);

/* --- figures ---------------------------------------------------------------------------------- */

typedef struct sw_arena_stats {
    uint64_t chunks;      /* including the caller's first one */
    uint64_t chunk_bytes; /* their sum */
    uint64_t used_bytes;  /* of chunk_bytes: allocated, with alignment gaps */
    uint64_t slack_bytes; /* of chunk_bytes: unused ends of older chunks */
    uint64_t own_objects; /* objects from the heap or, in mode OFF, the C library */
    uint64_t own_bytes;   /* as requested */
    uint64_t fallbacks;   /* objects from the heap because a chunk was refused; total */
    uint64_t resets;      /* since the creation */
} sw_arena_stats;

SW_API sw_status sw_arena_get_stats(sw_arena *arena, sw_arena_stats *out);

/* Chunks of the process. */
typedef struct sw_arena_pool_stats {
    uint64_t arenas;           /* live arenas */
    uint64_t used_chunk_bytes; /* of live arenas, or kept by a thread for its next arena */
    uint64_t idle_chunk_bytes; /* free chunks with memory */
    uint64_t returned_bytes;   /* free chunks without memory: addresses only */
    uint64_t reserved_bytes;   /* reserved addresses */
    uint64_t quarantine_bytes; /* chunks of freed safe arenas */
    uint64_t unprotected;      /* chunks that the system refused to protect; total */
} sw_arena_pool_stats;

SW_API void sw_arena_get_pool_stats(sw_arena_pool_stats *out);

/* Bound the idle memory that the process keeps: thread_bytes per thread (default 1 MiB), idle_bytes
 * shared (default 64 MiB). Memory above the bounds returns to the system as soon as an arena
 * releases it. */
SW_API void sw_arena_set_keep(uint64_t thread_bytes, uint64_t idle_bytes);
/* Return shared idle chunks to the system after decay_ns without use, like jemalloc's
 * dirty_decay_ms; 0, the default: no decay. Decay runs when a thread releases or takes shared
 * chunks, at most 8 chunks each time, and in sw_arena_decay. Chunks cached by threads do not decay;
 * set thread_bytes to 0 if they should. now_ns: a monotonic clock in ns, called with a lock held,
 * which must not call this library; NULL: the system's. For chunks that are already idle, the time
 * is counted from this call. */
SW_API void sw_arena_set_decay(uint64_t decay_ns, uint64_t (*now_ns)(void *context), void *context);
/* Run decay now; return the bytes returned to the system. */
SW_API uint64_t sw_arena_decay(void);

enum { SW_ARENA_NODES_MAX = 16 };
/* Keep one pool of idle chunks per NUMA node: an arena reuses chunks of its thread's node, or gets
 * new ones, which first touch places near the thread. It uses chunks of other nodes only if the
 * system refuses memory. count: nodes; 0 or 1, the default: one pool. node_of_thread: the node of
 * the calling thread, 0 to count - 1 (other numbers count as 0); it is called for each chunk taken
 * or released, and must not call this library; NULL: ask the system. A chunk belongs to the node
 * that created it. No other thread may use arenas during the call. Errors: SW_INVALID: above
 * SW_ARENA_NODES_MAX. */
SW_API sw_status sw_arena_set_nodes(uint32_t count, uint32_t (*node_of_thread)(void *context),
                                    void *context);

/* Return all idle chunks of the process and the calling thread to the system; return the bytes. */
SW_API uint64_t sw_arena_trim(void);

/* --- inline allocation ------------------------------------------------------------------------ */

/* The beginning of a sw_arena, part of the binary interface: [front, back) is the free part of the
 * newest chunk, read and written by inline code; both are 0 if every call must go to the library.
 * They are at addresses congruent to 8 mod 16; see sw_cache in fast_abi.h. */
typedef struct sw_arena_ends {
    uint64_t unused;
    uintptr_t front;
    uint64_t unused_too;
    uintptr_t back;
} sw_arena_ends;

/* The library with this layout defines this symbol; code compiled for another layout fails to link
 * or load. */
SW_API extern const uint32_t sw_arena_abi_1;
__attribute__((used)) static const uint32_t *const sw_arena_abi_needed = &sw_arena_abi_1;

/* Larger objects call the library, which clears them as quickly. */
#define SW_ARENA_INLINE_MAX 128

/* As sw_arena_alloc_typed, inline if size, align and flags are constants; the arena must then be
 * valid (NULL faults at an address below 4096). */
static inline __attribute__((always_inline)) void *
sw_arena_new_typed(sw_arena *arena, size_t size, size_t align, unsigned flags, const char *type) {
    if (__builtin_constant_p(size) && __builtin_constant_p(align) && size > 0 &&
        size <= SW_ARENA_INLINE_MAX && align > 0 && align <= 64 && (align & (align - 1)) == 0) {
        sw_arena_ends *ends = (sw_arena_ends *)(void *)arena;
        uintptr_t at, end;
        if ((flags & SW_SCAN) != 0) {
            at = (ends->front + align - 1) & ~(uintptr_t)(align - 1);
            end = at + size;
            if (__builtin_expect(end <= ends->back, 1)) {
                ends->front = end;
                memset((void *)at, 0, size);
                return (void *)at;
            }
        } else {
            end = ends->back;
            if (__builtin_expect(end - ends->front >= size + align - 1, 1)) {
                at = (end - size) & ~(uintptr_t)(align - 1);
                ends->back = at;
                if ((flags & SW_ZERO) != 0) memset((void *)at, 0, size);
                return (void *)at;
            }
        }
    }
    return sw_arena_alloc_typed(arena, size, align, flags, type);
}
static inline __attribute__((always_inline)) void *sw_arena_new(sw_arena *arena, size_t size,
                                                                size_t align, unsigned flags) {
    return sw_arena_new_typed(arena, size, align, flags, NULL);
}

/* Allocate a zeroed object of a type that may hold pointers. */
#define SW_ARENA_NEW(arena, type)                                                                  \
    ((type *)sw_arena_new_typed((arena), sizeof(type), __alignof__(type), SW_SCAN, #type))
/* Allocate a zeroed object of a type without pointers. */
#define SW_ARENA_NEW_PLAIN(arena, type)                                                            \
    ((type *)sw_arena_new_typed((arena), sizeof(type), __alignof__(type), SW_ZERO, #type))

#ifdef __cplusplus
}
#endif
#endif
