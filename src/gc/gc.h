/* SPDX-License-Identifier: Apache-2.0 */
/* The internals of the collector.
 *
 * Terms. The *collector* of a heap frees unreachable objects. A *mark* is a bit per slot; marks are
 * dense and out of line, 64 slots per word, so that marking writes to few cache lines. A *cycle* is
 * a marking and its sweep. The *layout* of a type has its pointer map; a *span meta* is the
 * collector's record of a span. The *mark stack* holds objects that are marked but not scanned.
 *
 * Marks. A cycle *prepares* a span before it reads the first mark there: it copies the span's free
 * bits into the marks. So a free slot counts as marked, a stale pointer into it is ignored, and
 * objects are allocated black. After marking, a slot that is neither free nor marked is dead, and
 * the sweep frees it.
 *
 * Threads. Cycles begin, mark and end marking while no other thread is inside the heap (the
 * contract of sw_gc_start and sw_gc_step), unless background threads mark (slices). In
 * between, mutators cooperate through the hooks: while a cycle marks, a thread prepares a span
 * before it allocates from it; while a cycle sweeps, it sweeps the span first; explicit frees are
 * deferred to the sweep.
 *
 * Files, the lowest first: events (and the trace line), type (layouts, graphs), span_meta
 * (metadata, grey bits, the mark stack, walks), mark_scan (the two orders), parallel, mark (inbox,
 * marking, barrier), threads (joining), stop (stopping the world), refs (references and
 * finalizers), ephemerons, roots (ranges, shadow stacks, conservative roots), checkmark (the second
 * marking, dangling pointers), pace (when cycles begin, the debt of allocation), phases (sweep,
 * phases of a cycle), slices (the threads of concurrent marking), marker_thread (the background
 * threads, hooks called by the heap), cycle (the driver, verification), assist (cycles begun and
 * marked by allocation), collector (creation, end, typed new).
 */
#ifndef SW_GC_GC_H
#define SW_GC_GC_H

#include "base/base.h"
#include "heap/heap.h"
#include "heap/registry.h"
#include "os/scan.h"
#include "spanwise/gc.h"

/* --- the mark stack --------------------------------------------------------------------------- */

/* An entry; the lowest bits of `at` are its kind. 0: a narrow marked object; `rest` is the mask of
 * its pointer words. SW_GC_WIDE: a wide object, scanned in pieces; `rest` is piece << 32 | span id.
 * SW_GC_WORD: `rest` is a word whose object is not marked yet. */
enum { SW_GC_WIDE = 1, SW_GC_WORD = 2, SW_GC_KINDS = 3 };

typedef struct sw_gc_grey {
    uintptr_t at;
    uint64_t rest;
} sw_gc_grey;

/*   base <= top <= end <= base + reserved;  base <= dirty <= end */
typedef struct sw_gc_stack {
    sw_gc_grey *base, *top, *end; /* end: of the accessible part */
    sw_gc_grey *dirty;            /* end of the part that may have to be purged */
    size_t reserved;              /* entries of the whole place */
    sw_gc_grey **end_seen;        /* where a copy of the stack stores its end, too, for a fork */
} sw_gc_stack;

/* Reserves the stack's place. False: refused. */
bool sw_gc_stack_start(sw_gc_stack *stack);
void sw_gc_stack_end(sw_gc_stack *stack);
/* Clears the stack; afterwards its memory must be purged. */
void sw_gc_stack_clear(sw_gc_stack *stack);
/* Purges a piece of that memory, or all of it; keeps the first 64 KiB. True: nothing is left. */
bool sw_gc_stack_purge(sw_gc_stack *stack, bool whole);
/* Commits more of the stack. False: the system refuses, and nothing has changed. */
bool sw_gc_stack_grow(sw_gc_stack *stack);
/* Moves all entries of `from` to `to`, by exchanging the memory if `to` has fewer. Returns the number
 * of entries that are dropped, because there is no memory for them. */
size_t sw_gc_stack_merge(sw_gc_stack *to, sw_gc_stack *from);
/* Move the oldest entries of `from`, at most half of them, or the newest ones, to `to`, which is
 * empty and has room for them. */
void sw_gc_stack_share(sw_gc_stack *to, sw_gc_stack *from, size_t count);
void sw_gc_stack_take(sw_gc_stack *to, sw_gc_stack *from, size_t count);

/* False: no memory. */
static sw_always_inline bool sw_gc_try_push(sw_gc_stack *stack, uintptr_t at, uint64_t rest) {
    if (sw_unlikely(stack->top == stack->end) && !sw_gc_stack_grow(stack)) return false;
    *stack->top++ = (sw_gc_grey){.at = at, .rest = rest};
    return true;
}

/* --- records ---------------------------------------------------------------------------------- */

/* A registered type. Number 0 is for untyped objects, in which each word may be a pointer.
 *   words == bytes / 8;  pattern is the map's first 64 words, repeated if an object is shorter
 *   span_class == 0: sw_gc_new has no fast path for the type, because its objects are large, are
 *     packed or have a finalizer, or because it is number 0
 * The fields of the fast path are at addresses congruent to 8 mod 16; see struct sw_cache. */
typedef struct sw_gc_layout {
    size_t bytes;
    uint32_t span_class; /* of one object */
    uint32_t bin_type;   /* value of sw_cache_bin.gc_type for the fast path; 0: no pointers */
    size_t words;
    bool scan;                /* it has pointers */
    bool has_type_allocators; /* type allocators have copies of the fields, which must not change */
    uint64_t pattern;         /* bit i: word i of an array of such objects is a pointer */
    const uint64_t *map;      /* NULL: every word may be a pointer */
    char name[32];            /* truncated to 31 bytes */
    sw_gc_finalizer_fn finalizer; /* of new objects; NULL: none */
    void *finalizer_arg;
} sw_gc_layout;

enum { SW_GC_TYPES_MAX = 1 << 24, SW_GC_UNTYPED = 0 };
#define SW_GC_TYPE_UNSET UINT32_MAX /* of a span that never had an object */

/* A range of roots; bytes 0: removed. */
typedef struct sw_gc_roots {
    const void *start;
    size_t bytes;
} sw_gc_roots;

/* A growable array in its own mapping.
 *   count <= capacity;  (items == NULL) == (capacity == 0) */
typedef struct sw_gc_array {
    void *items;
    uint32_t count, capacity;
} sw_gc_array;

/* A source of root ranges that change, such as an arena (arena/hold.c). A cycle calls `lend` when
 * it begins. The collector's lock protects the links.
 *   gc == NULL: the source is in no list;  else *back == this */
typedef struct sw_gc_source {
    struct sw_gc *gc;
    struct sw_gc_source *next, **back;
    bool (*lend)(struct sw_gc_source *source, sw_gc_array *ranges); /* false: no memory */
} sw_gc_source;

/* State of an entry. Objects whose finalizers are queued or running are roots. */
typedef enum sw_gc_entry_state {
    SW_GC_ENTRY_UNUSED,
    SW_GC_ENTRY_STRONG,
    SW_GC_ENTRY_WEAK,
    SW_GC_ENTRY_LONG,
    SW_GC_ENTRY_KEY,   /* of an ephemeron; the reference is to this entry */
    SW_GC_ENTRY_VALUE, /* of an ephemeron */
    SW_GC_ENTRY_FINALIZER,
    SW_GC_ENTRY_DUE,
    SW_GC_ENTRY_CALLED, /* the finalizer has not returned yet */
} sw_gc_entry_state;

/* A reference, or a finalizer: what refers to an object from outside the heap (refs.c).
 *   object == 0 if state == SW_GC_ENTRY_UNUSED; an entry with an object is in its bucket
 *   the pair of a key is a value, whose pair is that key */
typedef struct sw_gc_ref_entry {
    uintptr_t object; /* 0: NULL */
    sw_gc_finalizer_fn finalizer;
    void *arg;
    uintptr_t thread; /* of the thread that calls the finalizer (sw_gc_thread.at) */
    uint32_t next;    /* index + 1: in the bucket, or the next unused one; 0: the last */
    __extension__ union {
        uint32_t due_next; /* index + 1 of the next due finalizer in the queue */
        uint32_t pair;     /* index + 1 of the key's value, or the value's key */
    };
    uint32_t generation;
    uint32_t state; /* sw_gc_entry_state */
} sw_gc_ref_entry;

/* All references and finalizers of a collector, found by number and by object.
 *   (buckets == NULL) == (bucket_count == 0);  bucket_count is a power of two, or 0
 *   hashed <= entries.count, 0 if there are no buckets; (due_first == 0) == (due_last == 0)
 */
typedef struct sw_gc_refs {
    sw_gc_array entries;
    uint32_t unused;              /* index + 1 of the first unused one; 0: none */
    uint32_t due_first, due_last; /* index + 1; 0: none */
    uint32_t hashed;              /* atomic: entries with an object */
    uint32_t ephemerons;
    uint32_t bucket_count;
    uint32_t *buckets; /* index + 1; 0: empty */
} sw_gc_refs;

/* Dangling pointers, in the order of the second marking (checkmark.c).
 *   count <= SW_GC_DANGLING_MOST */
enum { SW_GC_DANGLING_MOST = 16 };
typedef struct sw_gc_dangling {
    uint32_t count;
    const uintptr_t *words[SW_GC_DANGLING_MOST];
    uintptr_t targets[SW_GC_DANGLING_MOST];
} sw_gc_dangling;

/* A ring of completed events, or of pauses (events.c). Number n, from 0, is at n % capacity.
 *   (items == NULL) == (capacity == 0);  taken <= ended <= taken + capacity */
typedef struct sw_gc_ring {
    void *items;
    uint64_t capacity; /* atomic; 0: they are not recorded */
    uint64_t ended;    /* items so far */
    uint64_t taken;    /* of these, removed or lost */
    uint64_t lost;     /* since the last removal */
} sw_gc_ring;

/* Of a joined thread, if there are conservative roots. It does not move, and lives as long as the
 * collector, because the handler of a signal finds it without the lock (stop.c).
 *   running_at == sw_gc_thread.at while the thread is not away, else 0 */
typedef struct sw_gc_context {
    sw_os_context saved;        /* where it went away */
    struct sw_gc_context *next; /* in sw_gc.contexts */
    uintptr_t running_at;       /* atomic */
    bool is_halted;             /* atomic: a signal has stopped it */
} sw_gc_context;

/* A joined thread (threads.c). `at` is the address of a thread-local variable, which is the same in
 * the child of a fork.
 *   at == 0: the record is unused, and is_away is false */
typedef struct sw_gc_thread {
    uintptr_t at;
    uint64_t id;            /* of the system, when it joined */
    char name[32];          /* truncated to 31 bytes */
    bool is_away;           /* stopped at a safepoint, or in a blocking region */
    bool by_itself;         /* it did not call sw_gc_join */
    sw_gc_context *context; /* NULL without conservative roots */
} sw_gc_thread;

/* The queue of spans to scan, by id; the links are in their grey bits (mark.h).
 *   (first == 0) == (last == 0) */
typedef struct sw_gc_span_queue {
    uint32_t first, last; /* 0: it is empty */
} sw_gc_span_queue;

/* A position in a walk over all span records of the heap, batch by batch.
 *   first == 0: the end;  else first <= id < first + SW_SPAN_BATCH */
typedef struct sw_gc_span_cursor {
    uint32_t first; /* record of the batch */
    uint32_t id;    /* of the next record */
} sw_gc_span_cursor;

typedef struct sw_gc_pool sw_gc_pool;

/* A thread that marks in concurrent cycles (slices.c): a background thread, or one that assists.
 *   stack is empty, unless the thread is among sw_gc.slices */
typedef struct sw_gc_worker {
    struct sw_gc *gc;
    sw_gc_stack stack;   /* base == NULL: it never marked */
    bool is_used;        /* the thread exists, or a thread assists with this record */
    sw_os_thread thread; /* of a background thread */
} sw_gc_worker;

/* The first SW_GC_MARKERS_MAX records are those of background threads. */
enum { SW_GC_WORKERS = 2 * SW_GC_MARKERS_MAX };

/* Allocation against marking in a concurrent cycle with a pace (pace.c). Work is in objects, or in
 * pieces of 512 bytes of longer ones.
 *   debt = expected * (fresh - begun) / (trigger - begun) - done - promised */
typedef struct sw_gc_debt {
    uint64_t begun;    /* sw_gc.fresh when the cycle began */
    uint64_t expected; /* work of the whole cycle; raised when it turns out to be more */
    uint64_t done;     /* work done, by background threads and by assists */
    uint64_t assisted; /* of these, by assists */
    uint64_t promised; /* by assists that are running: not done yet */
    uint64_t began_ns; /* when marking began */
    uint64_t runway;   /* bytes that are allocated while a cycle marks, as estimated; 0: unknown */
} sw_gc_debt;

/* The lock protects every field. Those marked atomic may be read without it, and only `fresh` is
 * written without it. sw_gc_new reads the first cache line; the fields of its fast path are at
 * addresses congruent to 8 mod 16; see struct sw_cache.
 *   type_count >= 1, because untyped objects have a type;  heap->collector == the record
 *   due == 0 while the world is stopping, and while several threads have joined and there is a
 *     pace;
 *     else due == pace_due
 *   phase == SW_GC_MARKING iff epoch is even
 *   the stack and the queue are empty unless phase == SW_GC_MARKING */
struct sw_gc {
    sw_heap *heap;         /* constant */
    uint64_t mark;         /* ds/handle.h */
    uint64_t fresh;        /* atomic: bytes allocated since the last cycle, if due < UINT64_MAX */
    sw_gc_layout *layouts; /* by type number; room for layouts_reserved of them */
    size_t layouts_bytes;  /* of these, mapped */
    uint32_t type_count;   /* atomic */
    uint32_t heap_index;   /* heap->index, until the collector ends */
    uint32_t phase;        /* atomic: sw_gc_phase */
    uint32_t epoch;        /* atomic: 2 n while cycle n marks, 2 n + 1 from its sweep on */
    uint64_t due; /* atomic: sw_gc_new works on a cycle when fresh reaches it; UINT64_MAX: never */
    uint32_t layouts_reserved;
    sw_os_lock lock;     /* taken before the heap's */
    sw_gc_array threads; /* sw_gc_thread */
    uint32_t joined;     /* atomic: threads that have joined */
    uint32_t running;    /* atomic: of these, not away */
    uint32_t stopping;   /* atomic: 1: the world is stopping or stopped */
    uint32_t halted;     /* atomic: of the running threads, those that a signal has stopped */
    uint32_t changing;   /* atomic: threads that change the heap's spans or lists */
    uint32_t waiting;    /* threads that wait for the world to resume */
    /* Index + 1 of the thread that stops the world, if it has joined and was not away; else 0. */
    uint32_t stopper;
    uint32_t root_options;   /* atomic: 0, or a sum of SW_GC_CONSERVATIVE and SW_GC_SIGNALS */
    uint64_t stop_ns;        /* timeout of a stop for late threads */
    uint64_t sleep_ns;       /* longest sleep of a waiter; only tests change it */
    uint64_t timeouts;       /* atomic: sleeps that ended without a wake-up; only tests read it */
    uint64_t pace_due;       /* atomic: the value of due while the world runs */
    sw_gc_array roots;       /* sw_gc_roots; id: index + 1 */
    sw_gc_array lent;        /* sw_gc_roots of sources, as of the beginning of the cycle */
    sw_gc_array data;        /* sw_os_data, as of the beginning of the cycle */
    sw_gc_context *contexts; /* atomic: linked by next */
    void *scan_buffer;       /* SW_OS_SCAN_BYTES bytes, if there are conservative roots */
    sw_gc_source *sources;
    sw_gc_shadow *shadows; /* linked by next */
    sw_gc_refs refs;
    sw_gc_stack stack;      /* marked objects that are not scanned yet */
    sw_gc_pool *pool;       /* of threads that mark in a stopped world (parallel.c); NULL: none */
    sw_gc_span_queue queue; /* spans with such objects, in queue order */
    uint32_t order;         /* sw_gc_order of the next cycle; the running one's is in `cycle` */
    bool overflowed;        /* a push was refused: a marked object is on no stack */
    bool lost;          /* a root, or an overwritten value, is neither marked nor on the stack */
    bool given_up;      /* unmarked objects are not known to be dead */
    bool settled;       /* roots are done; marking continues from finalizers */
    bool inside;        /* set by a test: threads may be stopped within an allocation (roots.c) */
    bool traced;        /* SPANWISE_DEBUG=gctrace=1: a line at the end of each cycle */
    bool data_is_stale; /* modules were loaded or unloaded since `data` was listed */
    unsigned debug;     /* SW_GC_... */
    sw_gc_dangling dangling;   /* found, but not reported yet */
    sw_gc_span_cursor rescan;  /* spans whose marked objects are still to be rescanned */
    sw_gc_span_cursor sweep;   /* position of the incremental sweep */
    sw_gc_span_cursor unswept; /* position at which allocations look for unswept spans */
    sw_gc_cycle cycle;         /* the running cycle, or the last one */
    sw_gc_pace pace;           /* sw_gc_pace_reset computes the next three from it */
    uint64_t trigger;          /* fresh at which a cycle runs or, in steps, must have ended */
    uint64_t step_work;        /* units of work of one step */
    uint64_t goal;             /* bytes of objects when the next cycle runs, or ends; 0: no pace */
    sw_gc_debt debt;           /* of concurrent cycles */
    uint64_t (*clock)(void);   /* nanoseconds: sw_os_now_ns, or the clock of a test */
    uint64_t born_ns;          /* time of the collector's creation */
    uint64_t start_ns;         /* duration of the start of the cycle */
    uint64_t end_ns;           /* of a concurrent cycle: of the stops that end marking */
    uint64_t assist_cpu_ns;    /* marking by assists, without waits */
    uint64_t stack_bytes;      /* roots of the cycle: shadow stacks, and conservative ones */
    uint64_t global_bytes;     /* and other ranges */
    uint64_t spent_ns;         /* total duration of all ended cycles */
    sw_gc_ring ring;           /* of sw_gc_event */
    sw_gc_ring pauses;         /* of sw_gc_pause */
    /* When the current call began to work on this cycle; 0: neither was recorded. */
    uint64_t stood_ns;
    uint64_t began_ns; /* when the cycle began; 0: events were not recorded */
    /* Concurrent marking (slices.c, marker_thread.c). `slices`, `bell` and `ended` are words to
     * wait at.
     *   slices == 0 unless phase == SW_GC_MARKING;  slices <= 1 unless shares
     *   has_marker == (concurrent != 0), except in the child of a fork */
    uint32_t concurrent; /* atomic: 1: cycles are marked by background threads */
    uint32_t markers;    /* of these, how many the program wants */
    bool has_marker;     /* the first one exists */
    bool is_ending;      /* they must end */
    bool shares;         /* marks are set by an atomic OR */
    uint32_t slices;     /* atomic: threads that mark, without the lock */
    uint32_t hungry;     /* threads that wait for objects to mark */
    uint32_t guests;     /* of these, threads that assist */
    uint32_t parks;      /* calls that wait until no thread marks, or rely on that */
    uint32_t bell;       /* atomic: changes when there may be work for a background thread */
    uint32_t ended;      /* atomic: changes when a cycle ends */
    uint32_t slice_work; /* of a slice, and */
    uint32_t end_work;   /* of a stop that ends marking; only tests change them */
    uint64_t marked_ns;  /* cycle.mark_ns includes the time up to now, if slices != 0 */
    sw_gc_worker workers[SW_GC_WORKERS];
    struct sw_gc_buffer *buffers; /* linked by next */
    sw_gc_stack inbox;            /* words to mark */
    uint64_t asked_ns;            /* when the current stop was requested, if concurrent */
    bool unreturned; /* `cycle` was concurrent, has ended, and no call has returned it */
    /* The cycles before `cycle`; number n is at n % their count. */
    sw_gc_cycle ended_cycles[SW_GC_ENDED_CYCLES];
};

/* Returns the stamp of span metadata that is prepared or swept in this epoch of the collector. */
static inline uint64_t sw_gc_stamp(const sw_gc *gc, uint32_t epoch) {
    return (uint64_t)gc->heap->id << 32 | epoch;
}
static inline sw_gc_phase sw_gc_phase_seen(const sw_gc *gc) {
    return (sw_gc_phase)__atomic_load_n(&gc->phase, __ATOMIC_RELAXED);
}

/* Returns whether cycles are to be marked by a background thread (sw_gc_set_concurrent). */
static inline bool sw_gc_is_concurrent(const sw_gc *gc) {
    return __atomic_load_n(&gc->concurrent, __ATOMIC_RELAXED) != 0;
}
/* Identifies the calling thread, also in the child of a fork: sw_gc_thread.at. */
static inline uintptr_t sw_gc_here(void) { return (uintptr_t)&sw_tls; }

enum { SW_GC_CLOBBER_BYTE = 0xDB };

/* SW_OK, or the failure for a handle that is not a live collector. */
#define SW_GC_STATUS(gc, op) sw_handle_status(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, op)

const char *sw_gc_record_check(const sw_gc *gc);
const char *sw_gc_source_check(const sw_gc_source *source);

#endif
