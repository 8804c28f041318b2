/* SPDX-License-Identifier: Apache-2.0 */
/* Creates many values, as copies and as objects of a collected heap, and measures the collector's
 * share of the time (lesson.h). The event ring is drained every BETWEEN values, so that no event is
 * lost. */
#include "lessons/run.h"

enum { ROOM = 1 << 14, BETWEEN = 1 << 12, TAKEN = 256 };
static const uint64_t struct_pointers = 1 << 3 | 1 << 5 | 1 << 7; /* of its three strings */

typedef struct creation {
    const sw_lesson_making *making;
    sw_gc *gc;
    uint32_t type;
    void *newest; /* a root */
    bool is_lossy;
    sw_lesson_creation result;
} creation;

static sw_status begin(creation *one) {
    const sw_lesson_making *making = one->making;
    bool structs = making->made == SW_LESSON_STRUCTS;
    const uint64_t *pointers = structs ? &struct_pointers : &making->pointers;
    const sw_gc_type type = {.name = "made",
                             .bytes = structs ? sizeof(big_struct) : making->bytes,
                             .pointers = *pointers != 0 ? pointers : NULL};
    sw_gc_pace pace = {
        .struct_bytes = sizeof pace, .percent = making->percent, .in_steps = making->in_steps};
    sw_heap_options options;
    uint32_t id;
    sw_heap_options_init(&options);
    options.table = making->table;
    sw_status status = sw_gc_create(&options, &one->gc);
    if (status == SW_OK && making->made != SW_LESSON_COPIES)
        status = sw_gc_add_type(one->gc, &type, &one->type);
    if (status == SW_OK) status = sw_gc_add_roots(one->gc, &one->newest, sizeof(void *), &id);
    if (status == SW_OK) status = sw_gc_set_pace(one->gc, &pace);
    return status == SW_OK ? sw_gc_record_events(one->gc, ROOM) : status;
}

static void count_events(creation *one) {
    sw_gc_event events[TAKEN];
    uint64_t lost;
    size_t count;
    do {
        count = sw_gc_take_events(one->gc, events, TAKEN, &lost);
        one->is_lossy |= lost != 0;
        for (size_t i = 0; i < count; i++) {
            one->result.events[events[i].kind]++;
            one->result.event_ns[events[i].kind] += events[i].ns;
        }
    } while (count == TAKEN);
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    if (sw_gc_last_cycle(one->gc, &cycle) == SW_OK) one->result.collections = cycle.number;
}

static void copy_structs(uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        big_struct made = sw_lesson_make_struct();
        __asm__ volatile("" : : "r"(&made) : "memory");
    }
}

/* Allocate `count` objects. False: no memory. */
static bool make_objects(creation *one, uint64_t count) {
    bool structs = one->making->made == SW_LESSON_STRUCTS;
    for (uint64_t i = 0; i < count; i++) {
        void *made = sw_gc_new(one->gc, one->type, 1);
        if (made == NULL) return false;
        if (structs)
            sw_lesson_fill_struct(made);
        else
            *(void *volatile *)made = NULL;
        *(void *volatile *)&one->newest = made;
    }
    return true;
}

static sw_status make_all(creation *one) {
    uint64_t left = one->making->count, from = sw_lesson_now_ns();
    bool is_out = false;
    while (left > 0 && !is_out) {
        uint64_t now = left < BETWEEN ? left : BETWEEN;
        if (one->making->made == SW_LESSON_COPIES)
            copy_structs(now);
        else
            is_out = !make_objects(one, now);
        count_events(one);
        left -= now;
    }
    one->result.ns = sw_lesson_now_ns() - from;
    return is_out ? SW_NOMEM : one->is_lossy ? SW_STATE : SW_OK;
}

static bool is_valid(const sw_lesson_making *making) {
    if (making->made > SW_LESSON_OBJECTS || making->in_steps > 1) return false;
    return making->made != SW_LESSON_OBJECTS || (making->bytes >= 8 && making->bytes % 8 == 0);
}

sw_status sw_lesson_create(const sw_lesson_making *making, sw_lesson_creation *out) {
    if (!is_valid(making)) return SW_INVALID;
    creation one = {.making = making};
    sw_status status = begin(&one);
    if (status == SW_OK) status = make_all(&one);
    if (status == SW_OK) *out = one.result;
    if (one.gc != NULL) (void)sw_gc_destroy(one.gc);
    return status;
}
