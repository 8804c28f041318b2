/* SPDX-License-Identifier: Apache-2.0 */
/* The collector, from the inside.
 *
 * Nouns. The *collector* of a heap frees what no root reaches. A *mark* is a bit a slot; marks lie dense
 * and out of line, 64 slots a word, so that marking writes to few cache lines. A *cycle* is one marking and
 * the sweep behind it. The *layout* of a type says which words of its objects are pointers; an *annex* is
 * what the collector knows of one span. The *mark stack* has objects that are marked and not scanned yet.
 *
 * What a mark says, and when. A span is *prepared* in a cycle before its first mark is looked at: its marks
 * become its free bits. So a free slot counts as marked, no stale pointer can lead into it, and an object that is
 * allocated there while the cycle lasts is black from its birth. After marking, a slot whose mark is clear and
 * which is not free is dead: that is what the sweep frees.
 *
 * When things happen. Marking and the starts of cycles run while no other thread is inside the heap (the
 * contract of sw_gc_start and sw_gc_step); everything in between is done by the threads that use the heap,
 * through the hooks: they prepare a span before they take slots of it while a cycle marks, sweep it
 * before that while a cycle sweeps, and leave explicit frees to the sweep.
 *
 * Files, the lowest first: type (layouts), annex (of spans), grey (spans that wait), place (a walk over annexes), stack, mark_scan,
 * mark_objects and mark_spans (the two orders), mark,
 * refs (references and finalizers), shadow (stacks of frames), dangling (words that point to memory that ended), second_mark (the check of a marking), sweep, pace (when
 * cycles begin), events (what was done when), stop (of the world), finalizer (when they are due and called), hooks (what the heap calls), cycle (the driver), roots, graph, verify,
 * barrier (writes of pointers), collector (making, ending, typed new), maker (what inline allocation needs).
 */
#ifndef SW_GC_GC_H
#define SW_GC_GC_H

#include "gc/stack.h"
#include "heap/heap.h"
#include "spanwise/gc.h"

/* A registered type; number 0 is that of objects without one, whose words all may be pointers.
 *   words == bytes / 8;  pattern is the map's first 64 words, repeated if an object is shorter
 *   span_class == 0: sw_gc_new has no short path, because an object is large, is packed or has a finalizer, or the type is number 0
 * What the short path reads lies 8 bytes behind a multiple of 16 (struct sw_cache). */
typedef struct sw_gc_layout {
    size_t bytes;
    uint32_t span_class; /* of one object */
    uint32_t bin_type;   /* sw_gc_bin_type where such an object may be taken; 0: no pointers */
    size_t words;
    bool scan;                    /* it has pointers */
    bool has_makers;              /* what they know of the type stays as it is */
    uint64_t pattern;             /* of an array of such objects: bit i, word i is a pointer */
    const uint64_t *map;          /* NULL: every word may be a pointer */
    char name[32];                /* cut */
    sw_gc_finalizer_fn finalizer; /* of new objects; NULL: none */
    void *finalizer_arg;
} sw_gc_layout;

enum { SW_GC_TYPES_MAX = 1 << 24, SW_GC_UNTYPED = 0 };
#define SW_GC_TYPE_UNSET UINT32_MAX /* of a span that has had no object yet */

/* A range of roots; bytes 0: removed. */
typedef struct sw_gc_roots {
    const void *start;
    size_t bytes;
} sw_gc_roots;

/* An array that grows by doubling, in a mapping of its own.
 *   count <= capacity;  (items == NULL) == (capacity == 0) */
typedef struct sw_gc_array {
    void *items;
    uint32_t count, capacity;
} sw_gc_array;

/* What has ranges of roots that move, such as an arena (arena/scan.c): it is asked for them when a cycle begins. The
 * collector's lock covers the links.
 *   gc == NULL: it is in no list;  else *back == this */
typedef struct sw_gc_source {
    struct sw_gc *gc;
    struct sw_gc_source *next, **back;
    bool (*lend)(struct sw_gc_source *source, sw_gc_array *ranges); /* false: no memory for all */
} sw_gc_source;

/* What an entry of the references is. Objects of finalizers that are due or are being called are roots. */
typedef enum sw_gc_entry_state {
    SW_GC_ENTRY_UNUSED,
    SW_GC_ENTRY_STRONG,
    SW_GC_ENTRY_WEAK,
    SW_GC_ENTRY_LONG,
    SW_GC_ENTRY_FINALIZER,
    SW_GC_ENTRY_DUE,
    SW_GC_ENTRY_CALLED, /* the finalizer has not returned yet */
} sw_gc_entry_state;

/* A reference, or a finalizer: what refers to an object from outside of the heap (refs.c).
 *   object == 0 where state == SW_GC_ENTRY_UNUSED; an entry with an object is in its bucket */
typedef struct sw_gc_ref_entry {
    uintptr_t object; /* 0: NULL */
    sw_gc_finalizer_fn finalizer;
    void *arg;
    uintptr_t thread;  /* that calls the finalizer (sw_gc_thread.at) */
    uint32_t next;     /* index + 1: in the bucket, or the next unused one; 0: the last */
    uint32_t due_next; /* index + 1 of the finalizer that became due next */
    uint32_t generation;
    uint32_t state; /* sw_gc_entry_state */
} sw_gc_ref_entry;

/* All of them, by number and by object.
 *   (buckets == NULL) == (bucket_count == 0);  bucket_count is a power of two, or 0
 *   hashed <= entries.count, and is 0 where there is no bucket;  (due_first == 0) == (due_last == 0) */
typedef struct sw_gc_refs {
    sw_gc_array entries;
    uint32_t unused;              /* index + 1; 0: none */
    uint32_t due_first, due_last; /* index + 1; 0: none */
    uint32_t hashed;              /* atomic: entries with an object */
    uint32_t bucket_count;
    uint32_t *buckets; /* index + 1; 0: empty */
} sw_gc_refs;

/* Words that point to memory that ended, in the order in which a second marking met them (dangling.c).
 *   count <= SW_GC_DANGLING_MOST */
enum { SW_GC_DANGLING_MOST = 16 };
typedef struct sw_gc_dangling {
    uint32_t count;
    const uintptr_t *words[SW_GC_DANGLING_MOST];
    uintptr_t targets[SW_GC_DANGLING_MOST];
} sw_gc_dangling;

/* Events that have ended and were not taken out (events.c). Event number n, from 0 on, lies at n % capacity.
 *   (items == NULL) == (capacity == 0);  taken <= ended <= taken + capacity */
typedef struct sw_gc_ring {
    sw_gc_event *items;
    uint64_t capacity; /* atomic; 0: none are kept */
    uint64_t ended;    /* events so far */
    uint64_t taken;    /* of them, taken out or lost */
    uint64_t lost;     /* since events were taken out last */
} sw_gc_ring;

/* A thread that has joined (stop.c). `at` is where its own copy of a thread-local variable lies, also in the child of a fork.
 *   at == 0: the record is unused, and is_away is false */
typedef struct sw_gc_thread {
    uintptr_t at;
    uint64_t id;   /* of the system, when it joined */
    char name[32]; /* cut */
    bool is_away;  /* it waits at a safe point, or is in a blocking region */
} sw_gc_thread;

/* Spans that wait to be scanned, by id; they are linked (grey.h).
 *   (first == 0) == (last == 0) */
typedef struct sw_gc_span_queue {
    uint32_t first, last; /* 0: it is empty */
} sw_gc_span_queue;

/* A place in a walk over all span records of the heap, batch by batch.
 *   first == 0: the end;  else first <= id < first + SW_SPAN_BATCH */
typedef struct sw_gc_place {
    uint32_t first; /* record of the batch */
    uint32_t id;    /* of the next record */
} sw_gc_place;

/* The lock covers every field but those marked atomic, which are written under it. sw_gc_new reads the first
 * line, and its short path what lies there 8 bytes behind a multiple of 16 (struct sw_cache).
 *   type_count >= 1: that of objects without a type;  heap->collector == the record
 *   due == 0 while the world is to stop, and where threads have joined and there is a pace; else pace_due
 *   phase == SW_GC_MARKING if and only if epoch is even
 *   the stack and the queue are empty unless phase == SW_GC_MARKING */
struct sw_gc {
    sw_heap *heap;         /* constant */
    uint64_t mark;         /* ds/handle.h */
    uint64_t fresh;        /* bytes asked for since the last cycle ended, if `due` is a number */
    sw_gc_layout *layouts; /* of types, by number; a reservation of layouts_reserved entries */
    size_t layouts_bytes;  /* accessible */
    uint32_t type_count;   /* atomic */
    uint32_t heap_index;   /* heap->index, until the collector ends */
    uint32_t phase;        /* atomic: sw_gc_phase */
    uint32_t epoch;        /* 2 n while cycle n marks, 2 n + 1 from its sweep on */
    uint64_t due; /* atomic: fresh, when sw_gc_new has to work on a cycle; UINT64_MAX: never */
    uint32_t layouts_reserved;
    sw_os_lock lock;     /* taken before the heap's */
    sw_gc_array threads; /* sw_gc_thread */
    uint32_t joined;     /* atomic: threads that have joined */
    uint32_t running;    /* atomic: of them, those that are not away */
    uint32_t stopping;   /* atomic: 1: the world is to stop, or stands */
    uint32_t
        stopper; /* index + 1 of the thread that stops it, if that has joined and was not away */
    uint64_t stop_ns;  /* how long it is waited for */
    uint64_t pace_due; /* atomic: as due, while the world goes on */
    sw_gc_array roots; /* sw_gc_roots; id: index + 1 */
    sw_gc_array lent;  /* sw_gc_roots of sources, as they were when the cycle began */
    sw_gc_source *sources;
    sw_gc_shadow *shadows; /* linked by next */
    sw_gc_refs refs;
    sw_gc_stack stack;      /* objects that are marked and not scanned */
    sw_gc_span_queue queue; /* spans with such objects, in that order */
    uint32_t order;  /* sw_gc_order of the next cycle; that of the cycle under way is in `cycle` */
    bool overflowed; /* a push was refused: some marked object is on no stack */
    bool lost; /* a root, or a value that a write replaced, is neither marked nor on the stack */
    bool given_up;  /* what is not marked is not known to be dead */
    bool settled;   /* all that roots reach is marked, and what finalizers reach is being marked */
    bool inside;    /* set by a test only: threads may stand within an allocation (roots.c) */
    unsigned debug; /* SW_GC_... */
    sw_gc_dangling dangling; /* found, and not reported yet */
    sw_gc_place rescan;      /* spans whose marked objects are still to be scanned again */
    sw_gc_place sweep;       /* spans that steps have not swept */
    sw_gc_place sought;      /* spans that allocations have not looked at */
    sw_gc_cycle cycle;       /* under way, or the last one */
    sw_gc_pace pace;         /* the three below: written by sw_gc_new and the ends of cycles */
    uint64_t trigger;        /* fresh, when a cycle is to be over (in steps), or to run */
    uint64_t step_work;      /* of a step */
    uint64_t goal;    /* bytes that may be there when the next cycle runs, or is over; 0: no pace */
    bool traced;      /* SPANWISE_DEBUG=gctrace=1: a line at each end of a cycle */
    uint64_t born_ns; /* when the collector was made */
    uint64_t start_ns; /* of the cycle: what its start took */
    uint64_t spent_ns; /* in the cycles that have ended */
    sw_gc_ring ring;
    uint64_t
        stood_ns; /* when the call at work, or its part for the cycle, began; 0: no events were kept */
    uint64_t began_ns; /* when the cycle began; 0: no events were kept */
};

/* What an annex is stamped with in this epoch of the collector. */
static inline uint64_t sw_gc_stamp(const sw_gc *gc, uint32_t epoch) {
    return (uint64_t)gc->heap->id << 32 | epoch;
}
static inline sw_gc_phase sw_gc_phase_seen(const sw_gc *gc) {
    return (sw_gc_phase)__atomic_load_n(&gc->phase, __ATOMIC_RELAXED);
}

enum { SW_GC_CLOBBER_BYTE = 0xDB };

/* SW_OK, or what to say of a handle that is no live collector. */
#define SW_GC_STATUS(gc, op) sw_handle_status(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, op)

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_gc_record_check(const sw_gc *gc);
const char *sw_gc_source_check(const sw_gc_source *source);

#endif
