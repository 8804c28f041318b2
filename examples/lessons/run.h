/* SPDX-License-Identifier: Apache-2.0 */
/* Cases allocate and free through sw_lesson_take and sw_lesson_give. While a run counts, these
 * count the objects and keep them; while it measures, they allocate and free. */
#ifndef SW_LESSON_RUN_H
#define SW_LESSON_RUN_H

#include "lessons/lesson.h"

enum { SW_LESSON_FILTERED = 1024, SW_LESSON_TINY = 16 };

/* A run of one case, and the state that an operation passes to the next one.
 *   counts or kept_count == 0;  kept_count <= kept_capacity */
typedef struct sw_lesson {
    sw_heap *heap;
    uint64_t count; /* of books */
    bool is_tiny;   /* the heap packs objects below 16 bytes, so those up to 16 are not freed */
    bool counts;    /* objects are counted, and kept to the end of the run */
    bool is_out;    /* out of memory */
    void **kept;
    uint64_t kept_count, kept_capacity;
    uintptr_t tiny_block;              /* address / 16 of the last counted block */
    int64_t input[SW_LESSON_FILTERED]; /* 0, 1, 2, ... */
    uint64_t npc[12];                  /* an NPC */
    void *idle;                        /* list of the NPCs in the capped pool */
    uint32_t idle_count;
    sw_lesson_cost cost;
} sw_lesson;

/* Count an object of `size` bytes and keep it. NULL: the run is out of memory. */
void sw_lesson_count(sw_lesson *lesson, void *object, size_t size);
/* Free the kept objects. */
void sw_lesson_free_all(sw_lesson *lesson);

/* NULL: the run is out of memory and ends soon. */
static inline void *sw_lesson_take(sw_lesson *lesson, size_t size, unsigned flags) {
    void *object = sw_heap_alloc(lesson->heap, size, flags);
    if (__builtin_expect(object == NULL || lesson->counts, 0))
        sw_lesson_count(lesson, object, size);
    return object;
}

static inline void sw_lesson_give(sw_lesson *lesson, void *object, size_t size) {
    if (lesson->counts || (size <= SW_LESSON_TINY && lesson->is_tiny)) return;
    sw_heap_free(lesson->heap, object);
}

typedef struct big_struct { /* 80 bytes, as Go lays it out */
    int64_t numbers[3];
    struct {
        const char *bytes;
        int64_t length;
    } strings[3];
    bool flags[3];
} big_struct;
_Static_assert(sizeof(big_struct) == 80, "Go's layout");
big_struct sw_lesson_make_struct(void);
void sw_lesson_fill_struct(big_struct *one);

/* One operation of a case, by its index in SW_LESSON_CASES; NULL: no such case. */
typedef void sw_lesson_case_fn(sw_lesson *lesson);
sw_lesson_case_fn *sw_lesson_case(uint32_t which);

#endif
