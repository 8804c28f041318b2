/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: objects that are allocated one by one and freed together, in one step.
 *
 *   sw_arena *arena;
 *   sw_arena_create(NULL, &arena);
 *   struct message *m = SW_ARENA_NEW(arena, struct message);      zeroed
 *   char *bytes = sw_arena_make_slice(arena, 1000, 1, 1, 0);      1000 of 1 byte, not zeroed
 *   sw_arena_free(arena);                                         all of it
 *
 * An arena takes chunks of memory and cuts objects off both ends of the newest one: objects that
 * may hold pointers (SW_SCAN) from the front, others from the back, as the arenas of the Go runtime
 * do. Unlike those, it keeps its chunks: a freed arena's chunks serve the next arena of the thread,
 * then any arena of the process, and go back to the system by a policy. Structures:
 * docs/design/arena.md.
 *
 * Errors leave the arena as it was; sw_last_error() has the offending values.
 *   SW_INVALID  an alignment that is no power of two, options outside their limits
 *   SW_NOMEM    no memory, or a size above PTRDIFF_MAX
 *   SW_LIMIT    the arena's limit is reached, and its mode is SW_ARENA_FORCE
 *   SW_STATE    a savepoint that was released before
 *   SW_BUSY     somebody holds the arena that is to be freed or reset
 *   SW_OWNER    a thread calls that does not own the safe arena
 *
 * Thread rule: one thread at a time works with an arena; its objects may be read by every thread.
 * With the option `locked` every thread may call.
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
    SW_ARENA_DEFAULT = 0, /* what SPANWISE_ARENA=off|auto|force says; without it AUTO */
    SW_ARENA_OFF,   /* each object is an allocation of the C library, freed with the arena, so that
                       memory checkers see every object */
    SW_ARENA_AUTO,  /* chunks; objects of the heap where the limit or the system refuses a chunk */
    SW_ARENA_FORCE, /* chunks, and an error where the limit or the system refuses one */
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
    uint64_t chunk_bytes;  /* of each chunk: a power of two, SW_ARENA_CHUNK_MIN to _MAX */
    uint64_t limit_bytes;  /* the most bytes of chunks; 0: no limit */
    void *first;           /* memory that serves before the first chunk; it stays the caller's */
    uint64_t first_bytes;  /* its bytes; 0: none */
    sw_heap *heap;         /* gives objects above a quarter of a chunk; NULL: the default heap */
    uint32_t locked;       /* 1: every thread may call, under a lock */
    uint32_t safe;         /* 1: uses of its memory after its end are found; see below */
    const char *tag;       /* for reports, a string that lives as long as the process; NULL: none */
} sw_arena_options;

/* A safe arena. The memory of its objects can be neither read nor written once the arena was freed
 * or reset: such a use is misuse FREED_ARENA, which names the object, its type, and who allocated
 * and freed it. The chunks wait in a quarantine; when that has more bytes than its bound, the
 * oldest chunks leave it. Unlike others, a safe arena
 *   - shares no chunk with another arena before the chunk has left the quarantine, and takes no
 *     memory of the heap: big objects have chunks of their own, and a chunk that is refused is an
 *     error, as in mode FORCE;
 *   - belongs to the thread that made it, or last called sw_arena_adopt, unless it is a locked one;
 *   - does not use the memory again that a savepoint gives back, and does not protect it either.
 * It can have neither mode OFF nor a first chunk of the caller's (SW_UNSUPPORTED, as where the
 * system does not tell of faults). A collector can find pointers into such memory before they are
 * used (SW_GC_DANGLING); the chunks to which they point then stay in the quarantine. */

/* Mode DEFAULT, chunks of SW_ARENA_CHUNK_DEFAULT, no limit, no first chunk, default heap,
 * unlocked. */
SW_API void sw_arena_options_init(sw_arena_options *options);

/* An arena without objects. options: NULL for those of sw_arena_options_init. It takes its first
 * chunk when the first object needs one. Errors: SW_INVALID (also a value of SPANWISE_ARENA that is
 * none of the three), SW_NOMEM. */
SW_API sw_status sw_arena_create(const sw_arena_options *options, sw_arena **out);
/* Ends the arena and all its objects. NULL is ignored; one that was freed before is misuse
 * (STALE_HANDLE), and SW_INVALID. */
SW_API sw_status sw_arena_free(sw_arena *arena);
/* Ends all its objects and savepoints. The arena keeps its newest chunk, or the caller's first. */
SW_API sw_status sw_arena_reset(sw_arena *arena);

/* --- objects ---------------------------------------------------------------------------------- */

/* size bytes, aligned to `align`, a power of two; 0: to 16, as max_align_t. size 0 gives a byte of
 * its own. flags: SW_SCAN, the object may hold pointers, is then zeroed and lies in the front part;
 * SW_ZERO, it is zeroed. A size above a quarter of a chunk that does not fit into the newest one is
 * an object of the heap, which the arena frees. NULL with errno ENOMEM or EINVAL and the last error
 * set. */
SW_API void *sw_arena_alloc(sw_arena *arena, size_t size, size_t align, unsigned flags);
/* count elements of `size` bytes in a row. NULL also when count * size overflows (ENOMEM). */
SW_API void *sw_arena_make_slice(sw_arena *arena, size_t count, size_t size, size_t align,
                                 unsigned flags);
/* A copy of size bytes at `object` that outlives the arena: an object of the arena's heap, which
 * the caller frees there (sw_free, if the arena has the default heap). flags as those of
 * sw_heap_alloc. An object of an arena that was freed is misuse (FREED_ARENA) as long as its chunk
 * serves no other. */
SW_API void *sw_arena_clone(sw_arena *arena, const void *object, size_t size, unsigned flags);

/* As sw_arena_alloc; a safe arena remembers `type`, a string that lives as long as the process, for
 * its reports. */
SW_API void *sw_arena_alloc_typed(sw_arena *arena, size_t size, size_t align, unsigned flags,
                                  const char *type);

/* --- savepoints ------------------------------------------------------------------------------- */

/* A moment in the life of an arena. */
typedef struct sw_arena_savepoint {
    const void *record;
    uint64_t serial;
} sw_arena_savepoint;

/* Errors: SW_NOMEM. */
SW_API sw_status sw_arena_mark(sw_arena *arena, sw_arena_savepoint *out);
/* Ends all objects and savepoints that were made since, and the savepoint itself.
 * Errors: SW_STATE, it has been released already, by itself, with an earlier one or by a reset. */
SW_API sw_status sw_arena_release(sw_arena *arena, sw_arena_savepoint savepoint);

/* --- use by others ---------------------------------------------------------------------------- */

/* An allocator, as range.h and others take one, whose memory is the arena's: released blocks stay
 * until the arena is freed or reset, which must come after the last use of the structures that took
 * the allocator. */
SW_API sw_allocator sw_arena_allocator(sw_arena *arena);

/* From now on a collector sees what the arena points to: when a cycle begins, the aligned words of
 * its objects that were made with SW_SCAN are roots, so what they point to in the collected heap
 * lives. So are the words that alignment skipped between them, where a pointer of an earlier object
 * may stand. Objects without pointers are not looked at. Big objects that the arena takes from the
 * collected heap itself live as well. Calls on the arena count as calls on the collected heap: none
 * may be under way while a cycle begins. The words of objects that a reset or a savepoint has ended
 * are no roots any more, and after the arena's free none are. gc NULL: no collector sees the arena
 * any more. Where a memory checker is at work, the gaps between objects that were looked at are
 * allowed from then on. Errors: SW_STATE, another collector sees it. */
SW_API sw_status sw_arena_attach(sw_arena *arena, sw_gc *gc);
/* Frees a dropped arena. `object`, an object of the collected heap, stands for the arena and gets a
 * finalizer, in place of the one that it has, which frees the arena. So the arena is freed by the
 * call of sw_gc_finalize that comes after the cycle in which no root reaches the object any more;
 * any thread may make that call, also for a safe arena. An arena that is held then stays until the
 * finalizer of a later cycle. What an attached arena points to is reachable: if that leads to the
 * object, the arena is never dropped. It is no error if the program frees the arena before. If the
 * program frees the object, or ends the collector, the arena is left to the program. Called again,
 * another object stands for the arena; object NULL: none does. (Go's arenas have such a finalizer:
 * runtime/arena.go.) Errors: those of sw_gc_set_finalizer. */
SW_API sw_status sw_arena_free_with(sw_arena *arena, sw_gc *gc, const void *object);

/* While an arena is held it can not be freed or reset: SW_BUSY. Every thread may call. Errors:
 * SW_LIMIT at 2^31 holds; of unhold SW_STATE, it is not held. */
SW_API sw_status sw_arena_hold(sw_arena *arena);
SW_API sw_status sw_arena_unhold(sw_arena *arena);
/* Holds the arena in whose chunk the object lies, for code that knows the object only, and returns
 * it for sw_arena_unhold. NULL: no arena has the address (SW_STATE). */
SW_API sw_arena *sw_arena_pin(const void *object);
/* Makes the calling thread the owner of a safe arena. The former owner must have made its last
 * call. */
SW_API sw_status sw_arena_adopt(sw_arena *arena);

/* A reference that tells whether its object is still there, at the price of one comparison. */
typedef struct sw_arena_ref {
    sw_arena *arena;
    void *object;
    uint64_t generation;
} sw_arena_ref;

/* object: one of the arena. The reference is all zero after misuse of the arena's handle. */
SW_API sw_arena_ref sw_arena_make_ref(sw_arena *arena, void *object);
/* The object; NULL when the arena was reset or freed since, however long ago. (That a savepoint has
 * ended the object does not show.) It is no error and no misuse. */
SW_API void *sw_arena_get(sw_arena_ref ref);

/* How many bytes of chunks of safe arenas stay without access after their end; default 64 MiB. At
 * most 8192 chunks stay, so that the system's limit of mappings is not reached. Those into which a
 * cycle with SW_GC_DANGLING has found a pointer stay beside these, up to as many bytes again and
 * 2048 chunks, until such a cycle finds none. */
SW_API void sw_arena_set_quarantine(uint64_t bytes);

/* --- figures ---------------------------------------------------------------------------------- */

typedef struct sw_arena_stats {
    uint64_t chunks;      /* that the arena has, the caller's first one included */
    uint64_t chunk_bytes; /* their sum */
    uint64_t used_bytes;  /* of them: cut off, with what alignment skipped */
    uint64_t slack_bytes; /* of them: left in chunks that are not the newest */
    uint64_t own_objects; /* of the heap or, in mode OFF, of the C library */
    uint64_t own_bytes;   /* as requested */
    uint64_t fallbacks;   /* objects of the heap because a chunk was refused; since the creation */
    uint64_t resets;      /* since the creation */
} sw_arena_stats;

SW_API sw_status sw_arena_get_stats(sw_arena *arena, sw_arena_stats *out);

/* What the process keeps of freed arenas. */
typedef struct sw_arena_pool_stats {
    uint64_t arenas;           /* that live */
    uint64_t used_chunk_bytes; /* chunks that arenas have */
    uint64_t idle_chunk_bytes; /* chunks that no arena has, with their memory */
    uint64_t returned_bytes;   /* chunks whose memory went back to the system; addresses only */
    uint64_t reserved_bytes;   /* addresses in all */
    uint64_t quarantine_bytes; /* chunks of safe arenas that ended */
    uint64_t unprotected;      /* chunks whose access the system refused to take away, ever */
} sw_arena_pool_stats;

SW_API void sw_arena_get_pool_stats(sw_arena_pool_stats *out);

/* How much idle memory stays with the process: thread_bytes with each thread (default 1 MiB),
 * idle_bytes beside that (default 64 MiB). What is above goes back to the system when an arena
 * gives it up. */
SW_API void sw_arena_set_keep(uint64_t thread_bytes, uint64_t idle_bytes);
/* Returns memory by time as well: what the process keeps goes back to the system once no arena used
 * it for decay_ns; 0, as at first: nothing goes back by time. Old chunks are looked for when a
 * thread gives chunks to the process or takes some, at most 8 chunks each time, and by
 * sw_arena_decay, for programs that do neither for a long time. What threads keep has no age: set
 * thread_bytes above to 0 to have all of it returned by time. now_ns: a clock in ns that never goes
 * back, called with a lock held, so it may call nothing of this library; NULL: the system's. For
 * chunks that are idle already the time begins anew. (jemalloc's dirty_decay_ms is such a time.) */
SW_API void sw_arena_set_decay(uint64_t decay_ns, uint64_t (*now_ns)(void *context), void *context);
/* Gives back now what has been idle for decay_ns; returns the bytes. */
SW_API uint64_t sw_arena_decay(void);

enum { SW_ARENA_NODES_MAX = 16 };
/* Keeps the chunks of each node of memory (NUMA) apart: an arena gets chunks that threads of the
 * same node had, or new ones, whose pages the system places near the thread that touches them
 * first. Those of other nodes serve only where the system refuses memory. count: nodes; 0 or 1, as
 * at first: one pool for all. node_of_thread: the node of the calling thread, 0 to count - 1
 * (another number is taken for 0); it may call nothing of this library, and is called for each
 * chunk that is taken or given; NULL: the system's answer. Chunks stay with the node for which they
 * were made. No other thread may work with an arena meanwhile. Errors: SW_INVALID, above
 * SW_ARENA_NODES_MAX. */
SW_API sw_status sw_arena_set_nodes(uint32_t count, uint32_t (*node_of_thread)(void *context),
                                    void *context);

/* Gives all idle chunks of the process and of the calling thread back to the system now; returns
 * the bytes. */
SW_API uint64_t sw_arena_trim(void);

/* --- inline allocation ------------------------------------------------------------------------ */

/* The free part of the newest chunk, [front, back). Inline code reads and writes it; both are 0
 * where every call must go to the library. It is the beginning of a sw_arena, and part of the
 * binary interface. The two lie 8 bytes behind a multiple of 16, for the reason that fast_abi.h
 * tells. */
typedef struct sw_arena_ends {
    uint64_t unused;
    uintptr_t front;
    uint64_t unused_too;
    uintptr_t back;
} sw_arena_ends;

/* A library whose arenas begin in another way lacks this symbol, so that code which was compiled
 * with this header fails to link or to load. */
SW_API extern const uint32_t sw_arena_abi_1;
__attribute__((used)) static const uint32_t *const sw_arena_abi_needed = &sw_arena_abi_1;

/* Larger objects are left to the library, which clears them as fast. */
#define SW_ARENA_INLINE_MAX 128

/* As sw_arena_alloc_typed. Where size, align and flags are constants it is a few instructions in
 * line; the arena must then live (a NULL one faults at an address below 4096). */
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

/* A zeroed object of a type, which may hold pointers. */
#define SW_ARENA_NEW(arena, type)                                                                  \
    ((type *)sw_arena_new_typed((arena), sizeof(type), __alignof__(type), SW_SCAN, #type))
/* The same for a type without pointers. */
#define SW_ARENA_NEW_PLAIN(arena, type)                                                            \
    ((type *)sw_arena_new_typed((arena), sizeof(type), __alignof__(type), SW_ZERO, #type))

#ifdef __cplusplus
}
#endif
#endif
