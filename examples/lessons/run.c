/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a case twice: first to count its allocations, then to time it (lesson.h). */
#include "lessons/run.h"

#include <stdlib.h>
#include <time.h>

/* Keep an object until the end of the run. False: no memory. */
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

uint64_t sw_lesson_now_ns(void) {
    struct timespec now = {0};
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

sw_status sw_lesson_run(sw_heap *heap, uint32_t which, uint64_t count, uint64_t counted_ops,
                        uint64_t ops, sw_lesson_cost *out) {
    sw_lesson_case_fn *one = sw_lesson_case(which);
    if (one == NULL || counted_ops == 0) return SW_INVALID;
    sw_lesson lesson = {.heap = heap,
                        .count = count,
                        .is_tiny = sw_heap_path(heap, 8, 0) == SW_PATH_TINY,
                        .counts = true};
    for (int i = 0; i < SW_LESSON_FILTERED; i++) lesson.input[i] = i;
    for (uint64_t i = 0; i < counted_ops && !lesson.is_out; i++) one(&lesson);
    sw_lesson_free_all(&lesson);
    lesson.counts = false;
    uint64_t start = sw_lesson_now_ns();
    for (uint64_t i = 0; i < ops && !lesson.is_out; i++) one(&lesson);
    lesson.cost.ns = sw_lesson_now_ns() - start;
    if (lesson.is_out) return SW_NOMEM;
    lesson.cost.ops = ops;
    lesson.cost.counted_ops = counted_ops;
    *out = lesson.cost;
    return SW_OK;
}
