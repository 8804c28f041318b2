/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of articles about memory, on a heap of the library: what an operation allocates, and how
 * long it takes. The Python extension (spanwise.lessons) contains them so that no Python loop is
 * measured; the library does not.
 *
 * Values that Go keeps on the stack are C variables. What Go allocates is an object of the heap,
 * freed at the end of the operation; Go's collector would find it later. Each time includes one
 * call through a pointer. Design: docs/design/lesson.md.
 */
#ifndef SW_LESSON_LESSON_H
#define SW_LESSON_LESSON_H

#include <stdbool.h>
#include <stdint.h>

#include <spanwise/gc.h>
#include <spanwise/heap.h>

/* X(name), in the order of CASES in python/spanwise/lessons/cases.py. */
#define SW_LESSON_CASES(X)                                                                         \
    X(stack_copied)                                                                                \
    X(stack_shared_up)                                                                             \
    X(stack_shared_down)                                                                           \
    X(struct_copied)                                                                               \
    X(struct_shared_up)                                                                            \
    X(array_of_five)                                                                               \
    X(whole_pages)                                                                                 \
    X(variable_too_large)                                                                          \
    X(merge_in_one_loop)                                                                           \
    X(merge_in_two_loops)                                                                          \
    X(merge_unzeroed)                                                                              \
    X(filter_into_another)                                                                         \
    X(filter_in_place)                                                                             \
    X(books_in_one_block)                                                                          \
    X(books_in_many_blocks)                                                                        \
    X(concat)                                                                                      \
    X(npc_without_pool)                                                                            \
    X(npc_in_list_pool)                                                                            \
    X(npc_in_capped_pool)

/* Total cost of the operations of a run. */
typedef struct sw_lesson_cost {
    uint64_t ns;              /* elapsed time of `ops` operations, frees included */
    uint64_t ops;             /* operations that were timed */
    uint64_t counted_ops;     /* operations that were counted, not timed: the figures below */
    uint64_t allocs;          /* requests */
    uint64_t requested_bytes; /* their sum */
    uint64_t allocated_bytes; /* slots, pages, or shared blocks of 16 bytes */
} sw_lesson_cost;

/* Run a case: first `counted_ops` times to count, then `ops` times to measure the time. which:
 * index into SW_LESSON_CASES. count: number of books. If the heap packs tiny objects, objects of at
 * most 16 bytes are not freed. Errors: SW_INVALID: no such case, or counted_ops is 0; SW_NOMEM. */
sw_status sw_lesson_run(sw_heap *heap, uint32_t which, uint64_t count, uint64_t counted_ops,
                        uint64_t ops, sw_lesson_cost *out);

/* Sum of the lengths of slices. SW_LIMIT: the sum times `element_bytes` is above PTRDIFF_MAX; *out
 * is unchanged. */
sw_status sw_lesson_sum_lengths(const uint64_t *lengths, uint64_t count, uint64_t element_bytes,
                                uint64_t *out);

/* What happens to NPCs that left the game. */
typedef enum sw_lesson_policy {
    SW_LESSON_NO_POOL = 0, /* they become garbage */
    SW_LESSON_LIST_POOL,   /* a linked list under a lock, with a new element of 40 bytes for each */
    SW_LESSON_CAPPED_POOL, /* an intrusive list up to a capacity; the rest become garbage */
    SW_LESSON_AGED_POOL,   /* intrusive lists; NPCs idle for two collections are dropped */
    SW_LESSON_POLICY_COUNT
} sw_lesson_policy;

/* A game: each frame spawns NPCs, and those at the end of their life leave. */
typedef struct sw_lesson_game {
    const sw_table *table; /* of the collected heap; NULL: the default */
    uint32_t policy;
    uint32_t frames;      /* 1 or more */
    uint32_t spawned;     /* in an ordinary frame */
    uint32_t wave;        /* in every `wave_frames`th frame instead */
    uint32_t wave_frames; /* 0: no waves */
    uint32_t life_frames; /* an NPC lives for 1 to life_frames frames; at most 256 */
    uint32_t capacity;    /* of the capped pool */
    uint32_t percent;     /* as in sw_gc_pace */
    uint32_t in_steps;    /* as in sw_gc_pace */
    uint32_t seed;
} sw_lesson_game;

/* The result of a game. */
typedef struct sw_lesson_score {
    uint64_t collections;
    uint64_t spawned;         /* NPCs */
    uint64_t allocs;          /* objects allocated */
    uint64_t allocated_bytes; /* their slots */
    uint64_t held_bytes;      /* of the heap at the end */
    uint64_t idle;            /* NPCs in the pool at the end */
    uint64_t checksum;        /* of the NPCs' actions: the same for every policy */
} sw_lesson_score;

/* Play a game. frame_ns[0 .. frames) receives the elapsed time of each frame.
 * Errors: SW_INVALID for a game outside these limits; SW_NOMEM. */
sw_status sw_lesson_play(const sw_lesson_game *game, uint64_t *frame_ns, sw_lesson_score *out);

/* The kind of values. Each value replaces the previous one. */
typedef enum sw_lesson_made {
    SW_LESSON_COPIES = 0, /* structs of 80 bytes returned by value */
    SW_LESSON_STRUCTS,    /* the same structs, as objects of a collected heap */
    SW_LESSON_OBJECTS,    /* objects of `bytes`; the first word is written */
} sw_lesson_made;

typedef struct sw_lesson_making {
    const sw_table *table; /* of the collected heap; NULL: the default */
    uint64_t count;
    uint32_t made;     /* sw_lesson_made */
    uint32_t bytes;    /* of an object: a multiple of 8, not 0; unused for structs */
    uint64_t pointers; /* bit i: word i of such an object is a pointer */
    uint32_t percent;  /* as in sw_gc_pace */
    uint32_t in_steps; /* as in sw_gc_pace */
} sw_lesson_making;

/* The result. Events are those of sw_gc_event, by kind. */
typedef struct sw_lesson_creation {
    uint64_t ns; /* elapsed */
    uint64_t collections;
    uint64_t events[SW_GC_EVENT_FINALIZE + 1];
    uint64_t event_ns[SW_GC_EVENT_FINALIZE + 1];
} sw_lesson_creation;

/* Make the values and count the collector's events. Errors: SW_INVALID for values outside these
 * limits; SW_NOMEM; SW_STATE: events were lost. */
sw_status sw_lesson_create(const sw_lesson_making *making, sw_lesson_creation *out);

/* Monotonic time in nanoseconds. */
uint64_t sw_lesson_now_ns(void);

#endif
