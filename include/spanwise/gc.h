/* SPDX-License-Identifier: Apache-2.0 */
/* Collected heaps: a mark-sweep collector frees unreachable objects.
 *
 *   sw_gc *gc;                                   a heap with a collector
 *   sw_gc_create(NULL, &gc);
 *   uint64_t pointers = 3;                       words 0 and 1 of a node are pointers
 *   sw_gc_type node = {.name = "node", .bytes = 32, .pointers = &pointers};
 *   uint32_t node_type;
 *   sw_gc_add_type(gc, &node, &node_type);
 *   void *list = NULL;                           a root: one word that may hold a pointer
 *   uint32_t root;
 *   sw_gc_add_roots(gc, &list, sizeof list, &root);
 *   list = sw_gc_new(gc, node_type, 1);
 *   sw_gc_collect(gc, NULL);                     frees what `list` does not reach
 *   sw_gc_destroy(gc);
 *
 * Marking is precise inside typed objects: only the pointer words of the type are followed.
 * Interior pointers keep an object alive. Words that do not point into the heap are ignored, so a
 * root range may contain arbitrary words. With SW_GC_CONSERVATIVE (sw_gc_set_roots) C's own
 * variables are roots: stacks, registers, static and thread-local data.
 *
 * The objects belong to an ordinary heap (sw_gc_heap): sw_heap_free frees one explicitly, with
 * validation, and sw_heap_alloc makes untyped objects. Without SW_SCAN they hold no pointers; with
 * SW_SCAN they are scanned conservatively.
 *
 * A cycle marks, then sweeps, either at once (sw_gc_collect), incrementally (sw_gc_start,
 * sw_gc_step, sw_gc_finish), or concurrently (sw_gc_set_concurrent; examples/threads.c). While a
 * cycle marks, pointers inside objects must be written with sw_gc_write, a deletion barrier: it
 * marks the old value, so that everything reachable at the start of the cycle survives (snapshot at
 * the beginning: Yuasa, "Real-time garbage collection on general-purpose machines", 1990). Roots
 * are scanned once, at the start, and need no barrier. Objects allocated during a cycle survive it.
 *
 * Calls that start, step or finish a cycle need a stopped world: no other thread may be inside a
 * call on the heap or change its objects. The exit of a thread that used the heap counts as a call,
 * because it releases the thread's spans. Either the program ensures this, or its threads join and
 * stop at safepoints: once one has joined (sw_gc_join), the others join at their first sw_gc_new.
 */
#ifndef SPANWISE_GC_H
#define SPANWISE_GC_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_gc sw_gc;

/* The layout of a type. */
typedef struct sw_gc_type {
    const char *name; /* copied */
    size_t bytes;     /* of one object, 1 .. 2^31 */
    /* Bit i % 64 of word i / 64: bytes 8 i .. 8 i + 7 hold a pointer. Copied; NULL: no pointers.
     * Bits past the object's last whole word must be 0. */
    const uint64_t *pointers;
} sw_gc_type;

/* Create a collected heap. options: NULL for the defaults; `dry` and `tracked` are not supported
 * (SW_INVALID). With `tiny`, pointer-free objects below 16 bytes share blocks of 16 bytes, as in
 * Go's tiny allocator; a block lives while one of its objects is reachable or it is the current
 * block. Pointer-free objects of up to 16 bytes then cannot be freed or resized (misuse
 * SW_MISUSE_COLLECTED, the object is unchanged), nor have references or finalizers. Objects of a
 * type with a finalizer do not share blocks. */
SW_API sw_status sw_gc_create(const sw_heap_options *options, sw_gc **out);
/* Destroy the collector, its heap and all objects. NULL is ignored. */
SW_API sw_status sw_gc_destroy(sw_gc *gc);
/* Return the collector's heap, which the collector destroys; NULL for an invalid collector. */
SW_API sw_heap *sw_gc_heap(sw_gc *gc);

/* Register a type; *id is its number, 1 or more. Types cannot be removed. Errors: SW_INVALID,
 * SW_NOMEM, SW_LIMIT (2^24 - 1 types). */
SW_API sw_status sw_gc_add_type(sw_gc *gc, const sw_gc_type *type, uint32_t *id);

/* Allocate an array of `count` objects of the type, zeroed if the type has pointers. NULL with
 * errno ENOMEM: no memory; EINVAL: unknown type, count is 0 or the size overflows. */
SW_API void *sw_gc_new(sw_gc *gc, uint32_t type, size_t count);

/* Add the aligned words of [start, start + bytes) as roots. *id identifies the range for its
 * removal. Errors: SW_INVALID (NULL, not aligned to 8, no whole word), SW_NOMEM. */
SW_API sw_status sw_gc_add_roots(sw_gc *gc, const void *start, size_t bytes, uint32_t *id);
/* Remove a range of roots. Errors: SW_INVALID: no such range. */
SW_API sw_status sw_gc_remove_roots(sw_gc *gc, uint32_t id);

/* --- conservative roots ----------------------------------------------------------------------- */

/* Local variables of plain C as roots, without registration:
 *
 *   sw_gc_set_roots(gc, SW_GC_CONSERVATIVE);       before other calls on the heap
 *   node *list = NULL;
 *   for (int i = 0; i < 1000; i++) {
 *       node *made = sw_gc_new(gc, node_type, 1);
 *       sw_gc_write(gc, &made->next, list);
 *       list = made;
 *   }
 *   sw_gc_collect(gc, NULL);                       keeps the list
 */
enum {
    /* Each aligned word of these is a root: stacks and registers of joined threads, their
     * thread-local variables and values of the first 32 keys of pthread_setspecific, and variables
     * of the program and of loaded libraries. An integer that looks like a pointer keeps an object
     * alive; a pointer past the end of an object does not. */
    SW_GC_CONSERVATIVE = 1,
    /* Also: sw_gc_collect, and a pace without steps, send SIGURG to threads that reach no safepoint
     * within 0.1 ms. Its handler has SA_RESTART and SA_ONSTACK, and calls the program's previous
     * handler. Then sw_gc_block is needed only if a thread blocks the signal, or waits within a
     * call of the library, such as in a finalizer. */
    SW_GC_SIGNALS = 2,
};
/* Set which memory is a root without registration, and how threads stop. Call before another thread
 * uses the heap. options: a sum; default 0. SW_GC_SIGNALS needs SW_GC_CONSERVATIVE. Registered
 * roots and shadow stacks are still scanned, and marking inside objects is still precise.
 *
 * With SW_GC_CONSERVATIVE every thread joins at its first call on the heap (sw_gc_join), the
 * calling one immediately. The function that calls sw_gc_block must not return before
 * sw_gc_unblock. The following are not roots: memory from malloc; stacks of coroutines (a cycle
 * that begins on one is abandoned); a thread's argument before its first call on the heap, and its
 * result after it ends.
 *
 * Errors: SW_UNSUPPORTED: the system is not Linux with glibc on x86-64 or arm64, or for
 * SW_GC_SIGNALS, not x86-64 or the library is linked statically; SW_STATE: threads
 * have joined, another thread has used the heap, or a cycle is running; SW_INVALID: unknown bits;
 * SW_NOMEM. */
SW_API sw_status sw_gc_set_roots(sw_gc *gc, unsigned options);

/* --- shadow stacks ---------------------------------------------------------------------------- */

/* A shadow stack: a thread's stack of frames, each with local variables that are roots (Henderson,
 * "Accurate garbage collection in an uncooperative environment", 2002). A cycle scans the frames
 * when it begins.
 *
 *   struct { node *made, *left; } local = {NULL, NULL};
 *   sw_gc_frame frame = {0};
 *   sw_gc_shadow_push(shadow, &frame, &local, sizeof local);
 *   local.left = sw_gc_new(gc, node_type, 1);
 *   local.made = sw_gc_new(gc, node_type, 1);         local.left is a root during this call
 *   sw_gc_shadow_pop(shadow, &frame);
 */
typedef struct sw_gc_shadow sw_gc_shadow;

/* A frame in the program's memory, zeroed before its first push. The fields are private. */
typedef struct sw_gc_frame {
    struct sw_gc_frame *below;
    sw_gc_shadow *shadow; /* the stack that it is on; NULL: none */
    const void *start;
    size_t bytes;
    size_t depth; /* lower half: frames up to this one; upper half: a sum of other fields */
} sw_gc_frame;

/* Create an empty stack of the calling thread, which alone may push, pop and cut; these calls take
 * no lock and constant time. No other thread may work on a cycle during them: either the thread has
 * joined (sw_gc_join) and is in no blocking region, or the program ensures it. The stack lives
 * until sw_gc_shadow_destroy or the end of the collector. In the child of a fork the stacks of
 * other threads are empty. Errors: SW_INVALID: out is NULL; SW_NOMEM. */
SW_API sw_status sw_gc_shadow_create(sw_gc *gc, sw_gc_shadow **out);
/* Destroy the stack; any thread may call. Its remaining frames are no longer roots, and their
 * memory is not accessed. NULL is ignored. */
SW_API sw_status sw_gc_shadow_destroy(sw_gc_shadow *shadow);
/* Make the aligned words of [start, start + bytes) roots until the frame is popped; they need no
 * write barrier. The frame and the words must not move. Errors: SW_INVALID: frame or start is NULL,
 * start is not aligned to 8, or there is no whole word; SW_STATE: the frame is on a stack, or
 * another thread created this one. */
SW_API sw_status sw_gc_shadow_push(sw_gc_shadow *shadow, sw_gc_frame *frame, const void *start,
                                   size_t bytes);
/* Pop the top frame; it may be pushed again. Errors: SW_STATE: the frame is not the top one, or
 * another thread created the stack. */
SW_API sw_status sw_gc_shadow_pop(sw_gc_shadow *shadow, sw_gc_frame *frame);
/* Pop every frame above this one; NULL: all frames. Popped frames are not accessed, so it can be
 * called after a longjmp, and must be before the next call on the heap. A cycle that finds a
 * corrupt frame is abandoned. Errors: SW_STATE: the frame is not on the stack, or another thread
 * created the stack. */
SW_API sw_status sw_gc_shadow_cut(sw_gc_shadow *shadow, sw_gc_frame *frame);

/* --- cycles ----------------------------------------------------------------------------------- */

/* Statistics of a cycle, possibly still running. Set struct_bytes to sizeof(sw_gc_cycle) before a
 * call that fills it in, else it returns SW_INVALID; later versions may append fields
 * (docs/stability.md). */
typedef struct sw_gc_cycle {
    uint64_t struct_bytes;
    uint64_t number;         /* 1, 2, ... */
    uint64_t steps;          /* number of calls and end_stops that worked on it */
    uint64_t mark_ns;        /* elapsed time of marking */
    uint64_t sweep_ns;       /* elapsed time of sweeping */
    uint64_t longest_ns;     /* longest marking and sweeping in one of these, without waits */
    uint64_t marked_objects; /* reachable, or allocated since the start */
    uint64_t marked_bytes;   /* their slots */
    uint64_t freed_objects;  /* unreachable */
    uint64_t freed_bytes;
    uint64_t pending_objects; /* freed by the program during the cycle, reclaimed by the sweep */
    uint64_t pending_bytes;
    uint64_t overflows;      /* objects that did not fit on the mark stack: no memory */
    uint64_t given_up;       /* 1: abandoned; only pending objects were freed */
    uint64_t due_finalizers; /* finalizers queued by this cycle (sw_gc_finalize) */
    uint64_t cleared_refs;   /* weak references cleared */
    uint64_t order;          /* sw_gc_order of its marking */
    uint64_t concurrent;     /* 1: a background thread marked it (sw_gc_set_concurrent) */
    uint64_t start_stop_ns;  /* of a concurrent cycle: the stop that began it, with its wait */
    uint64_t end_stop_ns;    /* the longest background stop to end marking, with its wait */
    uint64_t end_stops;      /* number of these stops, including attempts that found more to mark */
    uint64_t stalls;         /* allocations at the goal, which waited for the end of marking */
    uint64_t markers;        /* threads that marked at once (sw_gc_set_markers), with assists */
    uint64_t background_ns;  /* marking by background threads outside stops, summed over them */
    uint64_t assists;     /* allocations that marked, or waited for marking, because of the pace */
    uint64_t assist_ns;   /* elapsed time of these, summed over threads */
    uint64_t assist_work; /* objects that they scanned (sw_gc_step) */
} sw_gc_cycle;

/* Let background threads mark and sweep the cycles that sw_gc_start or the pace begins; markers: 0
 * or 1, default 0; for several threads see sw_gc_set_markers. Other threads run at the same time,
 * except during two short stops: sw_gc_start scans the roots, and a background thread ends marking.
 * Every thread joins at its first call on
 * the heap (sw_gc_join), the calling one immediately; so each must reach a safepoint often, or be
 * in a blocking region. A thread that only writes to objects must call sw_gc_join first. If a
 * thread does not stop in time, the cycle is abandoned.
 *
 * sw_gc_wait waits for the end of a cycle. sw_gc_collect, and sw_gc_step and sw_gc_finish on a
 * running cycle, still stop the world. With a pace, a cycle begins early enough to end marking at
 * the goal, as estimated from earlier cycles; while marking is behind allocation, allocating
 * threads mark too, in proportion to their bytes (Go's assists), and at the goal they wait for the
 * end of marking. In the child of a fork a marking cycle is abandoned; the next cycle starts a new
 * thread.
 *
 * Call it before another thread uses the heap, and after sw_gc_set_roots. Errors: SW_INVALID: more
 * than 1; SW_STATE: another thread has used the heap, or a cycle is running; SW_NOMEM: no thread or
 * memory; cycles then stop the world as before. If a thread cannot be created later, sw_gc_start
 * returns SW_NOMEM, and a pace uses stop-the-world cycles. */
SW_API sw_status sw_gc_set_concurrent(sw_gc *gc, unsigned markers);

/* Let several threads mark, object by object; threads: 1 to SW_GC_MARKERS_MAX, default 1. In
 * concurrent cycles this is the number of background threads, which live as long as the collector.
 * While the world is stopped (sw_gc_collect, sw_gc_finish, cycles of a pace that run at once), the
 * calling thread is one of them; the others are started for each marking with many objects. If the
 * system refuses a thread, fewer mark. Errors: SW_INVALID; SW_NOMEM: nothing has changed. */
enum { SW_GC_MARKERS_MAX = 16 };
SW_API sw_status sw_gc_set_markers(sw_gc *gc, unsigned threads);

typedef enum sw_gc_phase { SW_GC_IDLE = 0, SW_GC_MARKING = 1, SW_GC_SWEEPING = 2 } sw_gc_phase;

/* The order in which a cycle scans marked objects. The result is the same. */
typedef enum sw_gc_order {
    /* Object by object, with a prefetch FIFO (Cher, Hosking, Vitek 2004). */
    SW_GC_BY_OBJECT = 0,
    /* Span by span: spans are queued instead of objects, and the marked objects of a span are
     * scanned in address order (Go, "The Green Tea garbage collector", 2025). Objects above 512
     * bytes, and those of spans with several types, are scanned object by object. */
    SW_GC_BY_SPAN = 1,
} sw_gc_order;

/* Set the order of later cycles; default SW_GC_BY_OBJECT. SW_GC_BY_SPAN takes 24 more bytes per
 * span with pointers, and one bit per slot. If there is no memory for them, the objects of the span
 * are scanned object by object. Errors: SW_INVALID: no such order. */
SW_API sw_status sw_gc_set_order(sw_gc *gc, sw_gc_order order);

/* Run a full cycle: mark and sweep. A running cycle is finished first. cycle may be NULL. Errors:
 * SW_NOMEM: no cache for the calling thread; those of sw_gc_step. */
SW_API sw_status sw_gc_collect(sw_gc *gc, sw_gc_cycle *cycle);

/* Begin a cycle: scan the roots. Errors: SW_STATE: a cycle is running; SW_NOMEM. */
SW_API sw_status sw_gc_start(sw_gc *gc);
/* Work on the running cycle, if there is one. work: objects to scan (each 512 bytes of a longer
 * object count as one), or words of 64 slots to sweep; at least one unit is done. A call either
 * marks or sweeps. Errors: SW_NOMEM; SW_STATE with SW_GC_CHECKMARK: marking has missed an object,
 * and the cycle is abandoned. */
SW_API sw_status sw_gc_step(sw_gc *gc, size_t work);
/* As sw_gc_step, for about `ns` nanoseconds. The clock is read after every 256 units of work, the
 * minimum. The end of marking is not interrupted. Errors: those of sw_gc_step. */
SW_API sw_status sw_gc_step_ns(sw_gc *gc, uint64_t ns);
/* Finish the running cycle. If the last cycle was concurrent and has ended, but neither this
 * function nor sw_gc_wait has returned it, return it now: the background thread may finish before
 * the caller that began the cycle. Errors: SW_STATE: none is running; those of sw_gc_step. */
SW_API sw_status sw_gc_finish(sw_gc *gc, sw_gc_cycle *cycle);
/* Wait until the running cycle has ended, in a blocking region; return at once if none is running.
 * Without a background thread, finish the cycle. Errors: those of sw_gc_finish; SW_STATE: cycle is
 * not NULL, and there was none. */
SW_API sw_status sw_gc_wait(sw_gc *gc, sw_gc_cycle *cycle);
/* Abandon the cycle: the sweep reclaims only what the program freed. Errors: SW_STATE: none is
 * marking. */
SW_API sw_status sw_gc_abandon(sw_gc *gc);
/* Return the current phase; SW_GC_IDLE also after the end of the collector. */
SW_API sw_gc_phase sw_gc_current_phase(const sw_gc *gc);
/* Read the statistics of the running cycle, else the last one. Errors: SW_STATE: there was none. */
SW_API sw_status sw_gc_last_cycle(sw_gc *gc, sw_gc_cycle *cycle);
enum { SW_GC_ENDED_CYCLES = 4 };
/* Read the final statistics of the cycle with this number, one of the last SW_GC_ENDED_CYCLES.
 * Errors: SW_STATE: it has not ended, or is older. */
SW_API sw_status sw_gc_ended_cycle(sw_gc *gc, uint64_t number, sw_gc_cycle *cycle);

/* Options of the pacer, which decides when sw_gc_new starts a cycle. struct_bytes is as in
 * sw_gc_cycle. */
typedef struct sw_gc_pace {
    uint64_t struct_bytes;
    /* As GOGC: a cycle is due after sw_gc_new and sw_gc_build have allocated this percentage of the
     * bytes live after the last cycle, or of 4 MiB if that is more. 0: never. */
    uint32_t percent;
    /* 0: a due cycle runs at once. 1: a cycle begins when half of that is allocated; assists in
     * sw_gc_new, proportional to allocation, finish it in time. Concurrent cycles ignore it. */
    uint32_t in_steps;
    /* As GOMEMLIMIT, a soft limit of live plus newly allocated bytes: cycles start earlier, but not
     * before a sixteenth of the live bytes, or 64 KiB, is allocated. 0: no limit. */
    uint64_t limit_bytes;
} sw_gc_pace;

/* Let sw_gc_new begin, step and finish cycles before it allocates (Go, "A guide to the Go garbage
 * collector"). sw_gc_new is then a call that works on a cycle: no other thread may be inside the
 * heap, and every object that the caller needs must be reachable from a root. Without memory for a
 * cycle it still allocates, and retries the cycle later; with SW_GC_CHECKMARK it returns NULL with
 * errno EINVAL if marking has missed an object. Default: all fields but struct_bytes are zero, and
 * only the program starts cycles. Errors: SW_INVALID: wrong struct_bytes, or in_steps is neither 0
 * nor 1. */
SW_API sw_status sw_gc_set_pace(sw_gc *gc, const sw_gc_pace *pace);

/* --- stopping threads ------------------------------------------------------------------------- */

/* Make the calling thread stop at safepoints while another thread works on a cycle (Agesen, "GC
 * points in a threaded environment", 1998). Safepoints are sw_gc_safepoint, sw_gc_new,
 * sw_gc_unblock, sw_gc_join and calls that work on cycles. Objects needed after a safepoint must be
 * reachable from a root before it. A call that works on a cycle waits until all joined threads have
 * stopped. If one does not stop in time (sw_gc_set_stop_ns), the call abandons a marking cycle and
 * returns SW_BUSY; the error names the thread. A pacing sw_gc_new still allocates. So before a
 * joined thread waits for anything else, as in pthread_join, it must call sw_gc_block.
 *
 * A thread joins automatically, under its system thread name, at its first sw_gc_new while others
 * have joined; with SW_GC_CONSERVATIVE at its first call on the heap. This call is for threads that
 * only read objects, or that allocated before others joined; it can also name, once, a thread that
 * joined automatically. A joined thread leaves when it ends or is cancelled.
 *
 * Cycles do not wait for threads that have not joined; if such a thread frees during a cycle, or
 * allocates other than by sw_gc_new, that is misuse NOT_JOINED. name: up to 31 bytes are copied.
 * Errors: SW_STATE: it has joined before; SW_INVALID: name is NULL; SW_NOMEM. */
SW_API sw_status sw_gc_join(sw_gc *gc, const char *name);
/* Undo sw_gc_join for the calling thread. Until it joins again, the thread may free objects, but
 * should not allocate; if it does, sw_gc_new joins it at the next stop. Errors: SW_STATE: it has
 * not joined, or is in a blocking region. */
SW_API sw_status sw_gc_leave(sw_gc *gc);
/* Wait while another thread works on a cycle. Does nothing in a thread that has not joined. */
SW_API void sw_gc_safepoint(sw_gc *gc);
/* Begin and end a blocking region, in which the calling thread does not touch the heap and counts
 * as stopped. Errors: SW_STATE: the thread has not joined, is in such a region already, or
 * (sw_gc_unblock) is in none. */
SW_API sw_status sw_gc_block(sw_gc *gc);
SW_API sw_status sw_gc_unblock(sw_gc *gc);
/* Set the timeout for stopping joined threads; default 1 s. SW_INVALID: 0, or above 2^63 - 1. */
SW_API sw_status sw_gc_set_stop_ns(sw_gc *gc, uint64_t ns);

/* Write barrier: *at = value, a pointer in an object of the heap. Thread-safe. */
SW_API void sw_gc_write(sw_gc *gc, void *at, void *value);

/* As sw_gc_write, for `count` consecutive words. */
SW_API void sw_gc_write_all(sw_gc *gc, void *at, void *const *values, size_t count);

/* Build a graph, for studies and tests: `nodes` objects of the type, allocated in order. Edge e of
 * object i, in the type's e-th pointer word, points to object edges[i * degree + e]; SW_GC_NO_EDGE:
 * NULL. addresses[0 .. nodes) receives the objects. They are unreachable: no cycle may begin until
 * the program has made them reachable. Their bytes count towards the pace, but only sw_gc_new
 * starts a cycle. Errors: SW_INVALID: no such type, fewer than `degree` pointer words among its
 * first 64 words, or an edge out of range; nothing is allocated. SW_NOMEM: the objects so far
 * become garbage. */
#define SW_GC_NO_EDGE UINT32_MAX
SW_API sw_status sw_gc_build(sw_gc *gc, uint32_t type, uint32_t degree, size_t nodes,
                             const uint32_t *edges, void **addresses);

/* --- references ------------------------------------------------------------------------------- */

/* A handle to an object, or an ephemeron, stored outside the heap; never 0. It holds an object or
 * NULL. An explicit free of an object, and a realloc that moves it, clear all references to it and
 * remove its finalizer. */
typedef uint64_t sw_gc_ref;

typedef enum sw_gc_ref_kind {
    SW_GC_STRONG = 0, /* a root */
    SW_GC_WEAK = 1,   /* cleared when the object is unreachable, before its finalizer runs */
    /* Cleared when the object is freed, so it survives resurrection by a finalizer. */
    SW_GC_WEAK_LONG = 2,
} sw_gc_ref_kind;

/* object: the start of an object that does not share a block (see `tiny`), or NULL. Any thread may
 * call the four functions on references, except while another thread works on a cycle; they take
 * the collector's lock. Errors: SW_INVALID: out is NULL, no such kind, or no object begins at
 * `object`; SW_NOMEM. */
SW_API sw_status sw_gc_ref_new(sw_gc *gc, sw_gc_ref_kind kind, const void *object, sw_gc_ref *out);
/* Set *object to what the reference holds. While a cycle marks, the object of a weak reference is
 * marked, so that it survives the cycle. Errors: SW_INVALID: not a live reference. */
SW_API sw_status sw_gc_ref_get(sw_gc *gc, sw_gc_ref ref, void **object);
/* Replace the object of a reference. Errors: SW_INVALID, as the two functions above. */
SW_API sw_status sw_gc_ref_set(sw_gc *gc, sw_gc_ref ref, const void *object);
/* Free a reference, or an ephemeron. Errors: as sw_gc_ref_get. */
SW_API sw_status sw_gc_ref_free(sw_gc *gc, sw_gc_ref ref);

/* An ephemeron (Hayes 1997) is an entry of a weak map: its value lives while its key does, and does
 * not keep the key alive, even if the key can be reached from the value. When the key is
 * unreachable, key and value become NULL, before finalizers run. The end of marking takes time in
 * proportion to the number of references; for chains, in which values are the keys of others, to
 * that number times the length of the chain in the worst order. value: may be NULL. Errors: as
 * sw_gc_ref_new; SW_INVALID: key is NULL. */
SW_API sw_status sw_gc_ephemeron_new(sw_gc *gc, const void *key, const void *value, sw_gc_ref *out);
/* Set *key and *value to what the ephemeron holds. Both survive a cycle that marks. Errors:
 * SW_INVALID: not a live ephemeron. */
SW_API sw_status sw_gc_ephemeron_get(sw_gc *gc, sw_gc_ref ref, void **key, void **value);
/* Replace the value, unless the key is gone. Errors: SW_INVALID, as the two functions above. */
SW_API sw_status sw_gc_ephemeron_set(sw_gc *gc, sw_gc_ref ref, const void *value);

/* Called when an object is unreachable. */
typedef void (*sw_gc_finalizer_fn)(void *object, void *arg);

/* Set or replace an object's finalizer; NULL: remove it. The cycle that finds the object
 * unreachable keeps it, and all that it reaches, for one more cycle (resurrection), and queues the
 * finalizer. sw_gc_finalize calls it once; an object that became reachable again may get a new
 * finalizer. Finalizers of one cycle run in no particular order: the objects that they reach are
 * intact, but may have been finalized. Destroying the collector calls none. Errors: SW_INVALID: no
 * object begins there; SW_NOMEM: the old finalizer stays. */
SW_API sw_status sw_gc_set_finalizer(sw_gc *gc, const void *object, sw_gc_finalizer_fn finalizer,
                                     void *arg);
/* Set the finalizer of every object, or array, of the type that sw_gc_new allocates from now on;
 * NULL: none. sw_gc_new has no fast path for such a type. Call before other threads allocate
 * objects of the type. Errors: SW_INVALID: no such type; SW_STATE: the type has none, and type
 * allocators of it exist (spanwise/gc_fast.h). */
SW_API sw_status sw_gc_set_type_finalizer(sw_gc *gc, uint32_t type, sw_gc_finalizer_fn finalizer,
                                          void *arg);
/* Run up to `most` queued finalizers in the calling thread, without a lock; return how many. The
 * object is a root until its finalizer returns. A finalizer may allocate, free (also its object),
 * collect, call this function, and destroy the collector, which ends the loop. It must not leave by
 * longjmp. In the child of a fork, finalizers that other threads were running count as having
 * run. */
SW_API size_t sw_gc_finalize(sw_gc *gc, size_t most);

/* --- events ----------------------------------------------------------------------------------- */

/* Activities of the collector as time intervals. They nest: a cycle contains assists, an assist its
 * pauses, and a pause its marking and sweeping. A background thread (sw_gc_set_concurrent) marks
 * and sweeps in parts outside pauses. */
typedef enum sw_gc_event_kind {
    /* From the start of a cycle to its end, including mutator time. */
    SW_GC_EVENT_CYCLE = 0,
    SW_GC_EVENT_PAUSE = 1, /* the world was stopped while a call worked on the cycle */
    SW_GC_EVENT_MARK = 2,  /* a part of marking; the first one scans the roots */
    /* A part of sweeping: in a call that works on the cycle, lazily in an allocation, or by the
     * background thread. */
    SW_GC_EVENT_SWEEP = 3,
    SW_GC_EVENT_ASSIST = 4,   /* sw_gc_new worked on a cycle before it allocated */
    SW_GC_EVENT_WAIT = 5,     /* from the stop request until the last joined thread stopped */
    SW_GC_EVENT_FINALIZE = 6, /* a finalizer ran */
} sw_gc_event_kind;

/* A completed event. */
typedef struct sw_gc_event {
    uint64_t start_ns; /* since the collector was created */
    uint64_t ns;       /* elapsed time */
    uint64_t cycle;    /* number of the latest cycle; 0: none */
    uint64_t thread;   /* the system's thread id */
    uint64_t kind;     /* sw_gc_event_kind */
} sw_gc_event;

enum { SW_GC_EVENTS_MAX = 1 << 26 };
/* Record events in a ring of `capacity` entries of 40 bytes; 0, the default: none. Earlier events
 * are dropped; activities that are running now are not recorded. Errors: SW_INVALID: more than
 * SW_GC_EVENTS_MAX; SW_NOMEM: nothing changes. */
SW_API sw_status sw_gc_record_events(sw_gc *gc, size_t capacity);
/* Remove up to `most` of the oldest events, ordered by their end; return how many. *lost (may be
 * NULL): events overwritten since the last call. Any thread may call both functions; they wait
 * while another call works on a cycle. */
SW_API size_t sw_gc_take_events(sw_gc *gc, sw_gc_event *events, size_t most, uint64_t *lost);

/* A pause: the same interval as its event. */
typedef struct sw_gc_pause {
    uint64_t start_ns;   /* since the collector was created */
    uint64_t ns;         /* elapsed time */
    uint64_t cycle;      /* number of the cycle */
    uint64_t phase;      /* sw_gc_phase in which it began */
    uint64_t held_bytes; /* sw_heap_held_bytes when it ended */
} sw_gc_pause;

/* Record pauses in a ring of their own, independently of events; otherwise as
 * sw_gc_record_events. */
SW_API sw_status sw_gc_record_pauses(sw_gc *gc, size_t capacity);
/* As sw_gc_take_events. */
SW_API size_t sw_gc_take_pauses(sw_gc *gc, sw_gc_pause *pauses, size_t most, uint64_t *lost);

/* --- debugging -------------------------------------------------------------------------------- */

enum {
    SW_GC_CHECKMARK = 1, /* compare each marking with an independent second one */
    SW_GC_CLOBBER = 2,   /* fill swept objects with the byte 0xDB */
    SW_GC_ALWAYS = 4,    /* sw_gc_new collects before each allocation */
    /* Report pointers into freed or reset safe arenas (spanwise/arena.h): misuse FREED_ARENA with
     * the op `gc`, for the first 16 of a cycle. The call that ends marking reports them, without a
     * lock. Costs a second marking. Roots and untyped objects are scanned conservatively: an
     * integer may look like a pointer. */
    SW_GC_DANGLING = 8,
};
/* Set the options, a sum of SW_GC_...; default 0. SW_INVALID: unknown bits. */
SW_API sw_status sw_gc_set_debug(sw_gc *gc, unsigned options);
/* Check the invariants of the collector's marks in every span: SW_OK, or SW_STATE with the first
 * broken one; sw_heap_verify checks those of the heap. No other thread may be inside a call on the
 * heap. */
SW_API sw_status sw_gc_verify(sw_gc *gc);

#ifdef __cplusplus
}
#endif
#endif
