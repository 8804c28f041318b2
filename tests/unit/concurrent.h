/* SPDX-License-Identifier: Apache-2.0 */
/* A collector that marks in the background, with a list that it may reach. */
#ifndef TESTS_UNIT_CONCURRENT_H
#define TESTS_UNIT_CONCURRENT_H

#include "collector.h"

#define LONG_NS 20000000000u

typedef struct fixture {
    sw_gc *gc;
    uint32_t type;
    node *list, *other; /* roots */
} fixture;

static inline void start(fixture *f) {
    memset(f, 0, sizeof *f);
    f->gc = gc_begin(SW_GC_CLOBBER);
    CHECK_EQ(sw_gc_set_concurrent(f->gc, 1), SW_OK);
    CHECK_EQ(sw_gc_set_stop_ns(f->gc, LONG_NS), SW_OK); /* a busy machine delays threads */
    f->type = gc_type(f->gc, sizeof(node), 1);
    gc_roots(f->gc, &f->list, sizeof f->list + sizeof f->other);
}

static inline void push(fixture *f, uint64_t number) {
    node *made = sw_gc_new(f->gc, f->type, 1);
    CHECK(made != NULL);
    made->number = number;
    sw_gc_write(f->gc, &made->next, f->list);
    f->list = made;
}

static inline sw_gc_cycle wait_for_cycle(sw_gc *gc) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_wait(gc, &cycle), SW_OK);
    CHECK_EQ(sw_gc_current_phase(gc), SW_GC_IDLE);
    return cycle;
}

#endif
