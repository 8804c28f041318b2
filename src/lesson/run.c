/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a case twice: to count what it takes, then to take its time (lesson.h). */
#include "lesson/run.h"

#include <time.h>

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
