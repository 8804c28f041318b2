/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of articles about memory, on a heap of the library: what an operation takes, and how long.
 * They are compiled into the Python extension (spanwise.lessons), which calls them so that no loop
 * of Python is measured. Nothing of the library calls them.
 *
 * Values that Go leaves on the stack are C variables. What Go allocates is an object of the heap,
 * which the operation frees at its end, where Go's collector would find it later. Each time
 * includes one call through a pointer. Design: docs/design/lesson.md.
 */
#ifndef SW_LESSON_LESSON_H
#define SW_LESSON_LESSON_H

#include <stdbool.h>
#include <stdint.h>

#include <spanwise/gc.h>
#include <spanwise/heap.h>

/* X(name): in the order of CASES in spanwise/lessons/cases.py. */
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

/* What the operations of a run cost together. */
typedef struct sw_lesson_cost {
    uint64_t ns;              /* elapsed time of `ops` operations, the frees in them */
    uint64_t ops;             /* that were timed */
    uint64_t counted_ops;     /* that were counted, untimed; the figures below are theirs */
    uint64_t allocs;          /* requests */
    uint64_t requested_bytes; /* their sum */
    uint64_t allocated_bytes; /* slots, pages, or shared blocks of 16 bytes that they took */
} sw_lesson_cost;

/* Runs a case, first `counted_ops` times to count, then `ops` times to take the time. which: place
 * in SW_LESSON_CASES. count: number of books. If the heap packs tiny objects, objects of 16 bytes
 * and less stay allocated. Errors: SW_INVALID, no such case, or 0 operations to count; SW_NOMEM. */
sw_status sw_lesson_run(sw_heap *heap, uint32_t which, uint64_t count, uint64_t counted_ops,
                        uint64_t ops, sw_lesson_cost *out);

/* Sum of the lengths of slices, as it is needed to merge them in two loops. SW_LIMIT: the sum, or
 * its bytes at `element_bytes` each, is beyond PTRDIFF_MAX; *out is untouched. */
sw_status sw_lesson_sum_lengths(const uint64_t *lengths, uint64_t count, uint64_t element_bytes,
                                uint64_t *out);

/* What becomes of NPCs that left the game. */
typedef enum sw_lesson_policy {
    SW_LESSON_NO_POOL = 0, /* the collector finds them */
    SW_LESSON_LIST_POOL,   /* a linked list under a lock, with a new element of 40 bytes for each */
    SW_LESSON_CAPPED_POOL, /* linked through themselves, up to a number; more are the collector's */
    /* Linked through themselves; those that two collections have found idle are dropped. */
    SW_LESSON_AGED_POOL,
    SW_LESSON_POLICY_COUNT
} sw_lesson_policy;

/* A game: each frame spawns NPCs, and those whose time has come leave. */
typedef struct sw_lesson_game {
    const sw_table *table; /* of the collected heap; NULL: the default */
    uint32_t policy;
    uint32_t frames;      /* 1 or more */
    uint32_t spawned;     /* in an ordinary frame */
    uint32_t wave;        /* in each `wave_frames`th frame instead */
    uint32_t wave_frames; /* 0: there is none */
    uint32_t life_frames; /* an NPC stays for 1 to so many frames, at most 256 */
    uint32_t capacity;    /* of the capped pool */
    uint32_t percent;     /* pace of the collector, as in sw_gc_pace */
    uint32_t in_steps;    /* as in sw_gc_pace */
    uint32_t seed;
} sw_lesson_game;

/* What a game came to. */
typedef struct sw_lesson_score {
    uint64_t collections;
    uint64_t spawned;         /* NPCs */
    uint64_t allocs;          /* objects that were asked for */
    uint64_t allocated_bytes; /* their slots */
    uint64_t held_bytes;      /* of the heap at the end */
    uint64_t idle;            /* NPCs in the pool at the end */
    uint64_t checksum;        /* of what NPCs did: it is the same for every policy */
} sw_lesson_score;

/* Plays a game. frame_ns, of `frames` words, gets the elapsed time of each frame.
 * Errors: SW_INVALID for a game outside these limits; SW_NOMEM. */
sw_status sw_lesson_play(const sw_lesson_game *game, uint64_t *frame_ns, sw_lesson_score *out);

/* What is made. Each value takes the place of the one before. */
typedef enum sw_lesson_made {
    SW_LESSON_COPIES = 0, /* structs of 80 bytes that are returned as values */
    SW_LESSON_STRUCTS,    /* the same structs, as objects of a collected heap */
    SW_LESSON_OBJECTS,    /* objects of `bytes`, of which the first word is written */
} sw_lesson_made;

typedef struct sw_lesson_making {
    const sw_table *table; /* of the collected heap; NULL: the default */
    uint64_t count;
    uint32_t made;     /* sw_lesson_made */
    uint32_t bytes;    /* of an object: a multiple of 8, not 0; not used for structs */
    uint64_t pointers; /* bit i: word i of such an object is a pointer */
    uint32_t percent;  /* pace of the collector, as in sw_gc_pace */
    uint32_t in_steps; /* as in sw_gc_pace */
} sw_lesson_making;

/* What the making came to. Events are those of sw_gc_event, by kind. */
typedef struct sw_lesson_creation {
    uint64_t ns; /* elapsed */
    uint64_t collections;
    uint64_t events[SW_GC_EVENT_FINALIZE + 1];
    uint64_t event_ns[SW_GC_EVENT_FINALIZE + 1];
} sw_lesson_creation;

/* Makes the values, and counts what the collector does meanwhile. Errors: SW_INVALID for a making
 * outside of these limits; SW_NOMEM; SW_STATE: events were lost. */
sw_status sw_lesson_create(const sw_lesson_making *making, sw_lesson_creation *out);

/* Nanoseconds of a clock that never goes back. */
uint64_t sw_lesson_now_ns(void);

#endif
