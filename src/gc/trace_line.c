/* SPDX-License-Identifier: Apache-2.0 */
/* Nothing here allocates, because the line is written while the world is stopped. */
#include "gc/trace_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fail.h"
#include "os/os.h"

bool sw_gc_trace_asked(void) {
    const char *asked = "gctrace=1", *text = getenv("SPANWISE_DEBUG");
    size_t length = strlen(asked);
    while (text != NULL && *text != '\0') {
        if (strncmp(text, asked, length) == 0 && (text[length] == ',' || text[length] == '\0'))
            return true;
        text = strchr(text, ',');
        if (text != NULL) text++;
    }
    return false;
}

enum { LINE = 320, MB = 1 << 20 };

#define MS "%llu.%03llu" /* milliseconds with three decimals; MS_OF takes nanoseconds */
#define MS_OF(ns) (unsigned long long)(ns) / 1000000, (unsigned long long)(ns) / 1000 % 1000

void sw_gc_trace_print(const sw_gc *gc) {
    const sw_gc_cycle *cycle = &gc->cycle;
    char line[LINE];
    uint64_t age = gc->clock() - gc->born_ns, mark = cycle->mark_ns - gc->start_ns;
    unsigned long long after = cycle->marked_bytes;
    unsigned long long before = after + cycle->freed_bytes + cycle->pending_bytes;
    (void)snprintf(line, sizeof line,
                   "gc %llu @" MS "s %llu%%: " MS "+" MS "+" MS " ms clock, " MS "+0/" MS "/0+" MS
                   " ms cpu, %llu->%llu->%llu MB, %llu MB goal, 1 P",
                   (unsigned long long)cycle->number, MS_OF(age / 1000),
                   (unsigned long long)(age == 0 ? 0 : gc->spent_ns * 100 / age),
                   MS_OF(gc->start_ns), MS_OF(mark), MS_OF(cycle->sweep_ns), MS_OF(gc->start_ns),
                   MS_OF(mark), MS_OF(cycle->sweep_ns), before / MB, before / MB, after / MB,
                   (unsigned long long)gc->goal / MB);
    sw_emergency_print("%s\n", line);
}
