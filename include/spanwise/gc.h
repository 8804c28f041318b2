/* SPDX-License-Identifier: Apache-2.0 */
/* Collected heaps: objects that no root reaches any more are freed by a mark-sweep collector.
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
 * Marking is precise inside typed objects: only the words that the type names are followed. A word
 * that points anywhere into an object, not only at its start, keeps the object. Words that point
 * nowhere into the heap are ignored, so a range of roots may be a range of any words.
 *
 * The objects are those of an ordinary heap (sw_gc_heap): sw_heap_free frees one at once and is
 * validated, sw_heap_alloc makes objects without a type. Without SW_SCAN they hold no pointers;
 * with SW_SCAN every aligned word of them is followed if it points into the heap.
 *
 * A cycle marks, then sweeps. It may run at once (sw_gc_collect) or in steps, between which the
 * program goes on (sw_gc_start, sw_gc_step, sw_gc_finish). While a cycle marks, each pointer inside
 * an object must be written by sw_gc_write: what it replaces is marked, so that everything that was
 * reachable when the cycle began stays (snapshot at the beginning: Yuasa, "Real-time garbage
 * collection on general-purpose machines", 1990). Roots are read once, when the cycle begins, and
 * may be written at any time. What is allocated while a cycle runs survives it.
 *
 * While a call of this header that starts, steps or finishes a cycle runs, no other thread may be
 * inside a call on the heap or change its objects: the world stands. The end of a thread that has
 * used the heap is such a call, because it gives its spans up. The program sees to that itself, or
 * its threads join (sw_gc_join), and wait at safe points.
 */
#ifndef SPANWISE_GC_H
#define SPANWISE_GC_H

#include <spanwise/heap.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_gc sw_gc;

/* What the objects of a type look like. */
typedef struct sw_gc_type {
    const char *name; /* copied */
    size_t bytes;     /* of one object, 1 .. 2^31 */
    /* Bit i % 64 of word i / 64: bytes 8 i .. 8 i + 7 hold a pointer. Copied; NULL: no pointers. No
     * bit may be set behind the object's last whole word. */
    const uint64_t *pointers;
} sw_gc_type;

/* A collected heap. options may be NULL; `dry` and `tracked` are not supported (SW_INVALID). With
 * `tiny`, objects of less than 16 bytes without pointers share blocks of 16 bytes
 * (sw_heap_options), as in Go's tiny allocator: a block lives as long as a root reaches an object
 * of it, or the next object may go there. In such a heap the program can neither free nor resize an
 * object of up to 16 bytes without pointers (misuse SW_MISUSE_COLLECTED: the object stays as it
 * is), and no such object has references or a finalizer of its own. Objects of a type with a
 * finalizer share no block. */
SW_API sw_status sw_gc_create(const sw_heap_options *options, sw_gc **out);
/* Ends the collector and its heap, with all objects. NULL is ignored. */
SW_API sw_status sw_gc_destroy(sw_gc *gc);
SW_API sw_heap *sw_gc_heap(sw_gc *gc);

/* Registers a type; *id is its number, 1 or more. Types stay for the collector's life.
 * Errors: SW_INVALID, SW_NOMEM, SW_LIMIT (2^24 - 1 types). */
SW_API sw_status sw_gc_add_type(sw_gc *gc, const sw_gc_type *type, uint32_t *id);

/* An array of `count` objects of the type, all bytes zero if the type has pointers. NULL with errno
 * ENOMEM when there is no memory, EINVAL when the type is unknown, count is 0 or the size
 * overflows. */
SW_API void *sw_gc_new(sw_gc *gc, uint32_t type, size_t count);

/* Roots: every aligned word of [start, start + bytes) may hold a pointer into the heap. *id names
 * the range for its removal. Errors: SW_INVALID (NULL, not aligned to 8, no whole word),
 * SW_NOMEM. */
SW_API sw_status sw_gc_add_roots(sw_gc *gc, const void *start, size_t bytes, uint32_t *id);
/* SW_INVALID: no such range, or it was removed already. */
SW_API sw_status sw_gc_remove_roots(sw_gc *gc, uint32_t id);

/* --- shadow stacks ---------------------------------------------------------------------------- */

/* The roots of functions: a thread's stack of frames, each with words that may hold pointers into
 * the heap, as local variables do (Henderson, "Accurate garbage collection in an uncooperative
 * environment", 2002). A cycle reads the frames when it begins.
 *
 *   struct { node *made, *left; } local = {NULL, NULL};
 *   sw_gc_frame frame = {0};
 *   sw_gc_shadow_push(shadow, &frame, &local, sizeof local);
 *   local.left = sw_gc_new(gc, node_type, 1);
 *   local.made = sw_gc_new(gc, node_type, 1);         local.left lives, whatever this call collects
 *   sw_gc_shadow_pop(shadow, &frame);
 */
typedef struct sw_gc_shadow sw_gc_shadow;

/* Memory of the program for one frame, all zero before it is pushed for the first time. The fields
 * are the library's. */
typedef struct sw_gc_frame {
    struct sw_gc_frame *below;
    sw_gc_shadow *shadow; /* that it is on; NULL: on none */
    const void *start;
    size_t bytes;
    size_t depth; /* lower half: frames up to this one; upper half: a sum of other fields */
} sw_gc_frame;

/* A stack without frames, of the calling thread, which alone may push, pop and cut. These calls
 * take no lock and constant time. No other thread may work on a cycle meanwhile: the thread has
 * joined (sw_gc_join) and is in no blocking region, or the program ensures it in another way. The
 * stack ends with the collector, or by sw_gc_shadow_destroy. In the child of a fork the stacks of
 * other threads have no frames. Errors: SW_INVALID: out is NULL; SW_NOMEM. */
SW_API sw_status sw_gc_shadow_create(sw_gc *gc, sw_gc_shadow **out);
/* Any thread may end it. Frames that are still on it are roots no more, and are not looked at. NULL
 * is ignored. */
SW_API sw_status sw_gc_shadow_destroy(sw_gc_shadow *shadow);
/* Every aligned word of [start, start + bytes) is a root until the frame is popped; words are
 * written without sw_gc_write. Frame and words stay where they are. Errors: SW_INVALID: frame or
 * start is NULL, start is not aligned to 8, or there is no whole word; SW_STATE: the frame is on a
 * stack already, or another thread made this one. */
SW_API sw_status sw_gc_shadow_push(sw_gc_shadow *shadow, sw_gc_frame *frame, const void *start,
                                   size_t bytes);
/* Takes the frame off that was pushed last; it may be pushed again. Errors: SW_STATE: another frame
 * is the last one, or another thread made the stack; nothing happens. */
SW_API sw_status sw_gc_shadow_pop(sw_gc_shadow *shadow, sw_gc_frame *frame);
/* Takes off every frame above this one; NULL: all frames. The frames that are taken off are not
 * looked at, so a function to which longjmp has jumped can call it, and must do so before its next
 * call on the heap. A cycle that meets a frame which is not as it was pushed is given up. Errors:
 * SW_STATE: the frame is not on the stack, or another thread made the stack. */
SW_API sw_status sw_gc_shadow_cut(sw_gc_shadow *shadow, sw_gc_frame *frame);

/* --- cycles ----------------------------------------------------------------------------------- */

/* One cycle. While it runs, the figures are those so far. Calls that fill one in want its
 * struct_bytes to be sizeof(sw_gc_cycle); later versions may add fields (docs/stability.md), and
 * SW_INVALID says that it is no such size. */
typedef struct sw_gc_cycle {
    uint64_t struct_bytes;
    uint64_t number;         /* 1, 2, ... */
    uint64_t steps;          /* calls that did work of it */
    uint64_t mark_ns;        /* elapsed time of marking, in those calls */
    uint64_t sweep_ns;       /* and of sweeping */
    uint64_t longest_ns;     /* of the longest such call */
    uint64_t marked_objects; /* that a root reached, or that were allocated since */
    uint64_t marked_bytes;   /* their slots */
    uint64_t freed_objects;  /* that none reached */
    uint64_t freed_bytes;
    uint64_t pending_objects; /* that the program freed meanwhile, and the sweep gave back */
    uint64_t pending_bytes;
    uint64_t overflows;      /* objects for which the mark stack was refused memory */
    uint64_t given_up;       /* 1: nothing was freed but pending objects (sw_gc_abandon) */
    uint64_t due_finalizers; /* finalizers that this cycle has made due (sw_gc_finalize) */
    uint64_t cleared_refs;   /* weak references to objects that no root reaches any more */
    uint64_t order;          /* sw_gc_order in which it has marked */
} sw_gc_cycle;

typedef enum sw_gc_phase { SW_GC_IDLE = 0, SW_GC_MARKING = 1, SW_GC_SWEEPING = 2 } sw_gc_phase;

/* In which order a cycle scans what it has marked. Both keep and free the same objects. */
typedef enum sw_gc_order {
    /* An object at a time, prefetched a while before (Cher, Hosking, Vitek 2004). */
    SW_GC_BY_OBJECT = 0,
    /* Spans wait instead of objects: the objects that have gathered in a span are scanned in the
     * order of their addresses (Go, "The Green Tea garbage collector", 2025). Objects of more than
     * 512 bytes, and those of spans with several types, are scanned one at a time as above. */
    SW_GC_BY_SPAN = 1,
} sw_gc_order;

/* The order of the cycles that begin from now on; SW_GC_BY_OBJECT at first. SW_GC_BY_SPAN takes 24
 * bytes more for each span with pointers, and one bit more for each slot. If the system refuses
 * that memory, the objects of the span wait as in the other order. Errors: SW_INVALID: no such
 * order. */
SW_API sw_status sw_gc_set_order(sw_gc *gc, sw_gc_order order);

/* Marks what the roots reach and frees everything else. A cycle that is under way is finished
 * before. cycle may be NULL. Errors: SW_NOMEM when the calling thread can have no cache of the
 * heap; those of sw_gc_step. */
SW_API sw_status sw_gc_collect(sw_gc *gc, sw_gc_cycle *cycle);

/* Begins a cycle: reads the roots. Errors: SW_STATE when one is under way; SW_NOMEM. */
SW_API sw_status sw_gc_start(sw_gc *gc);
/* Works on the cycle that is under way; nothing when there is none. work: objects to scan, where
 * 512 bytes of a longer one count as one, or words of 64 slots to sweep; at least one of them is.
 * One call marks or sweeps, not both. Errors: SW_NOMEM; SW_STATE with SW_GC_CHECKMARK: marking has
 * missed an object, and the cycle is given up. */
SW_API sw_status sw_gc_step(sw_gc *gc, size_t work);
/* The same for about so many nanoseconds. The clock is looked at after each 256 units of work, so
 * at least that much is done. Work that comes once in a cycle, at the end of marking, is not cut
 * short. Errors: those of sw_gc_step. */
SW_API sw_status sw_gc_step_ns(sw_gc *gc, uint64_t ns);
/* Does what is left of the cycle. Errors: SW_STATE when none is under way; those of sw_gc_step. */
SW_API sw_status sw_gc_finish(sw_gc *gc, sw_gc_cycle *cycle);
/* Gives the cycle up: the sweep frees what the program has freed meanwhile and nothing else.
 * Errors: SW_STATE unless a cycle marks. */
SW_API sw_status sw_gc_abandon(sw_gc *gc);
/* What a step would do now. SW_GC_IDLE if the collector has ended. */
SW_API sw_gc_phase sw_gc_current_phase(const sw_gc *gc);
/* The cycle under way, or the last one. SW_STATE: there was none. */
SW_API sw_status sw_gc_last_cycle(sw_gc *gc, sw_gc_cycle *cycle);

/* When cycles begin by themselves. struct_bytes as in sw_gc_cycle. */
typedef struct sw_gc_pace {
    uint64_t struct_bytes;
    /* Percentage of what lived after the last cycle, or of 4 MiB if less lived: when so many bytes
     * were asked of sw_gc_new since then, the next cycle is due. 0: that never begins one. */
    uint32_t percent;
    /* 0: a cycle that is due runs at once. 1: a cycle begins at half of that, and runs in steps as
     * the allocations meanwhile demand, so that it ends in time (assists). */
    uint32_t in_steps;
    /* A soft limit: cycles come sooner if the bytes that live and those that were asked for since
     * would be more, but never sooner than after a sixteenth of what lives, or 64 KiB. 0: no
     * limit. */
    uint64_t limit_bytes;
} sw_gc_pace;

/* Lets sw_gc_new begin, step and finish cycles, before it allocates, as Go's GOGC and GOMEMLIMIT do
 * (Go, "A guide to the Go garbage collector"). sw_gc_new is then a call that works on a cycle: no
 * other thread may be inside the heap, and every object that the caller needs must be reachable
 * from a root. If no memory is left for a cycle, it allocates all the same, and tries the cycle
 * later; with SW_GC_CHECKMARK it returns NULL with errno EINVAL when marking has missed an object.
 * All zero but struct_bytes, as at first: only the program begins cycles. Errors: SW_INVALID:
 * struct_bytes is no such size, or in_steps is neither 0 nor 1. */
SW_API sw_status sw_gc_set_pace(sw_gc *gc, const sw_gc_pace *pace);

/* --- threads that stop ------------------------------------------------------------------------ */

/* The calling thread stops from now on while another one works on a cycle: it waits at its next
 * safe point until that call has ended. Safe points are sw_gc_safepoint, sw_gc_new, sw_gc_unblock,
 * sw_gc_join and calls that work on cycles. What the thread needs after a safe point must be
 * reachable from a root before it. A call that works on a cycle waits until all threads that have
 * joined have come. If one does not come in time (sw_gc_set_stop_ns) the call returns SW_BUSY with
 * its name, and gives up a cycle that marks; sw_gc_new, where it keeps a pace, then allocates all
 * the same. Nobody waits for threads that have not joined; one that allocates or frees
 * meanwhile is misuse NOT_JOINED. The end of a thread that has joined makes it leave. name: copied, 31 bytes of it. The method is that of compilers with safe points
 * (Agesen, "GC points in a threaded environment", 1998), with calls in place of code that a
 * compiler adds. Errors: SW_STATE: it has joined before; SW_INVALID: name is NULL; SW_NOMEM. */
SW_API sw_status sw_gc_join(sw_gc *gc, const char *name);
/* The calling thread stops no more. Errors: SW_STATE: it has not joined, or is in a blocking
 * region. */
SW_API sw_status sw_gc_leave(sw_gc *gc);
/* Waits while another thread works on a cycle. Nothing happens in a thread that has not joined. */
SW_API void sw_gc_safepoint(sw_gc *gc);
/* Begin and end a region in which the calling thread does not touch the heap and may wait for
 * something else: nobody waits for it there. Errors: SW_STATE: the thread has not joined, or is in
 * such a region already, or (sw_gc_unblock) is in none. */
SW_API sw_status sw_gc_block(sw_gc *gc);
SW_API sw_status sw_gc_unblock(sw_gc *gc);
/* How long threads that have joined are waited for, in nanoseconds; one second at first.
 * SW_INVALID: 0, or 2^63 and more. */
SW_API sw_status sw_gc_set_stop_ns(sw_gc *gc, uint64_t ns);

/* Writes a pointer into an object of the heap: *at = value. Several threads may call it at once. */
SW_API void sw_gc_write(sw_gc *gc, void *at, void *value);

/* Writes `count` pointers to words in a row, as sw_gc_write does. */
SW_API void sw_gc_write_all(sw_gc *gc, void *at, void *const *values, size_t count);

/* Makes a graph, for studies and tests: `nodes` objects of the type, allocated in order. Edge e of
 * object i, which is in the type's e-th pointer word, goes to object edges[i * degree + e];
 * SW_GC_NO_EDGE: it is NULL. addresses, of `nodes` words: gets the objects. No root reaches them
 * yet: no cycle may begin until the program has made them reachable.
 * Errors: SW_INVALID: no such type, it has fewer than `degree` pointer words among its first 64
 * words, or an edge goes to no object; nothing is made. SW_NOMEM: the objects that were made are
 * left to the collector. */
#define SW_GC_NO_EDGE UINT32_MAX
SW_API sw_status sw_gc_build(sw_gc *gc, uint32_t type, uint32_t degree, size_t nodes,
                             const uint32_t *edges, void **addresses);

/* --- references ------------------------------------------------------------------------------- */

/* A reference to an object, which the collector keeps outside of the heap; never 0. It holds an
 * object or NULL. The explicit free of an object, and a realloc that moves it, make all references
 * to it NULL and take its finalizer away. */
typedef uint64_t sw_gc_ref;

typedef enum sw_gc_ref_kind {
    SW_GC_STRONG = 0, /* a root: the object lives as long as it is referred to */
    SW_GC_WEAK = 1, /* becomes NULL when no root reaches the object, before its finalizer is due */
    /* Becomes NULL when the object is to be freed, so it still refers to an object that a finalizer
     * has brought back. */
    SW_GC_WEAK_LONG = 2,
} sw_gc_ref_kind;

/* object: the start of an object of the heap that shares no block, or NULL. Any thread may call
 * these four at any time, except while another one works on a cycle; they take the collector's
 * lock. Errors: SW_INVALID: out is NULL, there is no such kind, or no object begins at `object`;
 * SW_NOMEM. */
SW_API sw_status sw_gc_ref_new(sw_gc *gc, sw_gc_ref_kind kind, const void *object, sw_gc_ref *out);
/* *object: what the reference holds. While a cycle marks, the object of a weak reference is marked:
 * what was read survives the cycle. Errors: SW_INVALID: the reference was freed before, or never
 * was one. */
SW_API sw_status sw_gc_ref_get(sw_gc *gc, sw_gc_ref ref, void **object);
/* Errors: SW_INVALID, as the two above. */
SW_API sw_status sw_gc_ref_set(sw_gc *gc, sw_gc_ref ref, const void *object);
/* Errors: as sw_gc_ref_get. */
SW_API sw_status sw_gc_ref_free(sw_gc *gc, sw_gc_ref ref);

/* What is called when no root reaches an object any more. */
typedef void (*sw_gc_finalizer_fn)(void *object, void *arg);

/* Gives an object a finalizer, in place of the one that it has; NULL: it has none. The cycle that
 * finds the object unreachable keeps it, with all that it reaches, for one cycle more
 * (resurrection), and its finalizer is due. It is called once, by sw_gc_finalize; where the program
 * has made the object reachable again meanwhile, it may get a finalizer again. All that become due
 * in one cycle are called in no particular order: the objects that they reach are whole, but their
 * finalizers may have been called. The end of the collector calls none. Errors: SW_INVALID: no
 * object of the heap begins there; SW_NOMEM: the object keeps what it had. */
SW_API sw_status sw_gc_set_finalizer(sw_gc *gc, const void *object, sw_gc_finalizer_fn finalizer,
                                     void *arg);
/* Gives a finalizer to every object, or array of objects, that sw_gc_new makes of the type from now
 * on; NULL: none. sw_gc_new has no short path for a type with a finalizer. Call it before other
 * threads make objects of the type. Errors: SW_INVALID: no such type; SW_STATE: the type has none,
 * and makers of it have begun (spanwise/gc_fast.h). */
SW_API sw_status sw_gc_set_type_finalizer(sw_gc *gc, uint32_t type, sw_gc_finalizer_fn finalizer,
                                          void *arg);
/* Calls finalizers that are due, at most `most`, in the calling thread, with no lock held. Returns
 * how many. The object that a finalizer gets is a root until it returns. It may do whatever the
 * program may: allocate, free (its own object too), collect, call this function, end the collector;
 * then no more of them are called. It must return, and not leave by longjmp. In the child of a
 * fork, finalizers that other threads were calling count as called. */
SW_API size_t sw_gc_finalize(sw_gc *gc, size_t most);

/* --- events ----------------------------------------------------------------------------------- */

/* What a collector does, as intervals of time. They contain each other: a pause its pieces of
 * marking and sweeping, an assist its pauses where sw_gc_new keeps a pace, and a cycle everything
 * that was done for it. */
typedef enum sw_gc_event_kind {
    /* From the start of a cycle to its end, with what the program did meanwhile. */
    SW_GC_EVENT_CYCLE = 0,
    SW_GC_EVENT_PAUSE = 1, /* a call worked on the cycle, and the world stood */
    SW_GC_EVENT_MARK = 2,  /* a piece of marking; the first one of a cycle reads the roots */
    /* A piece of sweeping: in a call that works on the cycle, or in an allocation beside the
     * program. */
    SW_GC_EVENT_SWEEP = 3,
    SW_GC_EVENT_ASSIST = 4, /* sw_gc_new worked on a cycle before it allocated */
    SW_GC_EVENT_WAIT = 5, /* from the demand to stop until the last thread that has joined stood */
    SW_GC_EVENT_FINALIZE = 6, /* a finalizer was called, and has returned */
} sw_gc_event_kind;

/* An event that has ended. */
typedef struct sw_gc_event {
    uint64_t start_ns; /* since the collector was made */
    uint64_t ns;       /* how long it took, elapsed */
    uint64_t cycle;    /* number of the cycle that had begun last; 0: none had */
    uint64_t thread;   /* that did it, by the system's number */
    uint64_t kind;     /* sw_gc_event_kind */
} sw_gc_event;

enum { SW_GC_EVENTS_MAX = 1 << 26 };
/* Keeps the last `capacity` events from now on, 40 bytes each; 0: none, as at first. Those that
 * were kept before are dropped. What is under way at this moment becomes no event. Errors:
 * SW_INVALID: more than SW_GC_EVENTS_MAX; SW_NOMEM: nothing changes. */
SW_API sw_status sw_gc_record_events(sw_gc *gc, size_t capacity);
/* Takes the oldest events out, at most `most`, in the order in which they ended; returns how many.
 * *lost, which may be NULL: how many gave way to newer ones since the last call, or since recording
 * began. Any thread may call both at any time; they wait for a call that works on a cycle. */
SW_API size_t sw_gc_take_events(sw_gc *gc, sw_gc_event *events, size_t most, uint64_t *lost);

/* --- looking for mistakes --------------------------------------------------------------------- */

enum {
    SW_GC_CHECKMARK = 1, /* each marking is compared with a second one, made in another way */
    SW_GC_CLOBBER = 2,   /* what a sweep frees is filled with the byte 0xDB */
    SW_GC_ALWAYS = 4,    /* sw_gc_new collects before each allocation */
    /* Each cycle reports words that point to what a safe arena had before it was freed or reset
     * (spanwise/arena.h): misuse FREED_ARENA with the op `gc`, for the first 16 of a cycle, by the
     * call that ends its marking, with no lock held. It costs a second marking. Words of roots and
     * of objects without a type need not be pointers: a number may look like one. */
    SW_GC_DANGLING = 8,
};
/* Sets the options, a sum of SW_GC_...; 0 at first. SW_INVALID: another bit is set. */
SW_API sw_status sw_gc_set_debug(sw_gc *gc, unsigned options);
/* Checks the rules of the collector's marks, in every span: SW_OK or SW_STATE, with the text of the
 * first broken one. sw_heap_verify has those of the heap. No other thread may be inside a call on
 * the heap. */
SW_API sw_status sw_gc_verify(sw_gc *gc);

#ifdef __cplusplus
}
#endif
#endif
