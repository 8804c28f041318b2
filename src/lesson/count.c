/* SPDX-License-Identifier: Apache-2.0 */
/* Counts what the operations of a case take (run.h). */
#include <stdlib.h>

#include "lesson/run.h"

/* Keeps an object until the end of the run. False: no memory. */
static bool keep(sw_lesson *lesson, void *object) {
    if (lesson->kept_count == lesson->kept_capacity) {
        uint64_t capacity = lesson->kept_capacity == 0 ? 64 : 2 * lesson->kept_capacity;
        void **more = realloc((void *)lesson->kept, capacity * sizeof *more);
        if (more == NULL) return false;
        lesson->kept = more;
        lesson->kept_capacity = capacity;
    }
    lesson->kept[lesson->kept_count++] = object;
    return true;
}

void sw_lesson_count(sw_lesson *lesson, void *object, size_t size) {
    if (object == NULL) {
        lesson->is_out = true;
        return;
    }
    lesson->cost.allocs++;
    lesson->cost.requested_bytes += size;
    if (lesson->is_tiny &&
        size <= SW_LESSON_TINY) { /* the next one joins the block while it fits */
        uintptr_t block = (uintptr_t)object / SW_LESSON_TINY;
        if (block != lesson->tiny_block) lesson->cost.allocated_bytes += SW_LESSON_TINY;
        lesson->tiny_block = block;
        return;
    }
    lesson->cost.allocated_bytes += sw_heap_usable_size(lesson->heap, object);
    if (keep(lesson, object)) return;
    sw_heap_free(lesson->heap, object);
    lesson->is_out = true;
}

void sw_lesson_free_all(sw_lesson *lesson) {
    for (uint64_t i = 0; i < lesson->kept_count; i++) sw_heap_free(lesson->heap, lesson->kept[i]);
    free((void *)lesson->kept);
    lesson->kept = NULL;
    lesson->kept_count = lesson->kept_capacity = 0;
}
