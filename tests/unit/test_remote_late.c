/* SPDX-License-Identifier: Apache-2.0 */
/* Frees by other threads at the worst moments: when the owner is closing, when it has closed, when
 * it has freed the same slot itself. The steps of a free are executed one by one, so that each
 * order is certain to occur. */
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>

#include "check.h"
#include "heap/hint.h"
#include "heap/remote.h"
#include "heap/target.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

enum { PAGE = 8192, SLOT = 512, SLOTS = 16 }; /* one page and one word a span */

static sw_heap *heap;
static sw_cache *owner;
static sw_table *table;
static int doubles;
static const void *doubled;

static sw_fault_action note(const sw_fault *fault, void *arg) {
    (void)arg;
    doubles += fault->code == SW_MISUSE_DOUBLE_FREE;
    doubled = fault->ptr;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* of: a built-in table, whose sizes have paths of their own, or NULL for one that has none. */
static void make(const sw_table *of) {
    static const sw_class_spec specs[] = {{SLOT, 1, 0}};
    table = NULL;
    if (of == NULL) table = table_of("sixteen", PAGE, specs, 1);
    heap = heap_with((heap_setting){.table = of == NULL ? table : of, .manual_clock = 1});
    owner = cache_of(heap);
}

static void end(void) {
    heap_end(heap);
    sw_table_destroy(table);
}

static void fill(void **objects) {
    for (int i = 0; i < SLOTS; i++) objects[i] = sw_cache_alloc(owner, SLOT, 0);
    CHECK((char *)objects[SLOTS - 1] - (char *)objects[0] == (SLOTS - 1) * SLOT);
}

/* The first step of a free by another thread: the slot's bit. What comes next is the push. */
static sw_span *set_remote(const void *p) {
    sw_target target = sw_target_find(heap, p);
    CHECK_EQ(target.misuse, SW_MISUSE_NONE);
    CHECK_EQ(sw_span_remote_free(heap->space, target.span, target.slot), SW_REMOTE_ANNOUNCE);
    return target.span;
}

static uint64_t count_spans(void) {
    sw_ledger l = ledger_of(heap);
    return l.spans;
}

/* --- while the owner closes ------------------------------------------------------------------- */

static void *close_owner(void *arg) {
    sw_cache_close(owner);
    return arg;
}

static void wait_for_waiter(const sw_os_lock *lock) {
    enum { CONTENDED = 2 };
    while (__atomic_load_n(&lock->state, __ATOMIC_ACQUIRE) != CONTENDED) sched_yield();
}

/* The owner has looked at its stack, and waits for the lock under which it says that it is closed.
 * The push that comes now sees an open cache and leaves the span to it. It was the last live
 * object: no one but the owner's last look gives the pages back. */
static void pushed_while_closing(void) {
    void *objects[SLOTS];
    pthread_t closer;
    make(NULL);
    fill(objects);
    CHECK(sw_cache_alloc(owner, SLOT, 0) != NULL); /* leaves the span, which is full */
    for (int i = 1; i < SLOTS; i++) sw_cache_free(owner, objects[i]);
    sw_span *span = set_remote(objects[0]);
    CHECK_EQ(count_spans(), 2);
    sw_os_lock_acquire(&heap->lock);
    CHECK_EQ(pthread_create(&closer, NULL, close_owner, NULL), 0);
    wait_for_waiter(&heap->lock);
    sw_remote_announce(owner, span, 0);
    sw_os_lock_release(&heap->lock);
    CHECK_EQ(pthread_join(closer, NULL), 0);
    CHECK_EQ(count_spans(), 1); /* the one with the object that still lives */
    end();
}

/* --- after the owner has closed --------------------------------------------------------------- */

/* The span, fresh when its object was freed, belongs to no cache. A cache that takes it over gets
 * zeroes out of it where it asks for them. */
static void pushed_after_closing(void) {
    sw_cache *next;
    make(NULL);
    unsigned char *p = sw_cache_alloc(owner, SLOT, 0);
    CHECK(sw_cache_alloc(owner, SLOT, 0) == p + SLOT);
    memset(p, 0xAA, SLOT);
    sw_span *span = set_remote(p);
    CHECK_EQ(span->needzero, 0);
    sw_cache_close(owner);
    sw_remote_announce(owner, span, 0);
    CHECK_EQ(span->needzero, 1);
    next = cache_of(heap);
    bool again = false;
    for (int i = 0; i < SLOTS - 1; i++) {
        unsigned char *q = sw_cache_alloc(next, SLOT, SW_ZERO);
        CHECK(sw_target_find(heap, q).span == span);
        again = again || q == p;
        for (int k = 0; k < SLOT; k++) CHECK_EQ(q[k], 0);
    }
    CHECK(again);
    sw_cache_close(next);
    end();
}

/* The same of an owner that drains: it takes a fresh span's slot back before it was full. */
static void drained_by_the_owner(void) {
    make(NULL);
    unsigned char *p = sw_cache_alloc(owner, SLOT, 0);
    memset(p, 0xAA, SLOT);
    sw_span *span = set_remote(p);
    sw_remote_announce(owner, span, 0);
    sw_remote_drain(owner);
    CHECK_EQ(span->needzero, 1);
    bool again = false;
    for (int i = 0; i < SLOTS; i++) {
        unsigned char *q = sw_cache_alloc(owner, SLOT, SW_ZERO);
        again = again || q == p;
        for (int k = 0; k < SLOT; k++) CHECK_EQ(q[k], 0);
    }
    CHECK(again);
    sw_cache_close(owner);
    end();
}

/* --- a slot that the owner frees too ---------------------------------------------------------- */

/* Announces the span, drains it, and expects that the object is handed out once and that the second
 * free is reported once. */
static void ends_once(sw_span *span, const void *object) {
    enum { LATER = 4 * SLOTS };
    int handed_out = 0;
    sw_remote_announce(owner, span, 0);
    for (int i = 0; i < LATER; i++) handed_out += sw_cache_alloc(owner, SLOT, 0) == object;
    sw_remote_drain(owner);
    for (int i = 0; i < LATER; i++) handed_out += sw_cache_alloc(owner, SLOT, 0) == object;
    CHECK_EQ(handed_out, 1);
    CHECK_EQ(doubles, 1);
    CHECK(doubled == object);
    sw_cache_close(owner);
    end();
}

/* The owner's free came first by a moment, so that neither saw the other's bit: the slot has a hint
 * and a bit by another thread. */
static void hinted_and_remote(const sw_table *of) {
    void *objects[SLOTS];
    make(of);
    doubles = 0;
    fill(objects);
    CHECK(sw_cache_alloc(owner, SLOT, 0) != NULL); /* leaves the span, which is full */
    sw_target target = sw_target_find(heap, objects[3]);
    sw_cache_free(owner, objects[3]);
    CHECK(sw_hint_names(owner, target.span, target.slot));
    (void)__atomic_fetch_or(&target.span->words->remote, 1ull << target.slot, __ATOMIC_ACQ_REL);
    CHECK(sw_span_announce(heap->space, target.span, target.slot));
    CHECK(sw_cache_alloc(owner, SLOT, 0) != objects[3]); /* not before it is drained */
    ends_once(target.span, objects[3]);
}

/* The same of the span that its cache allocates from: its only word is used up but for that slot.
 */
static void in_the_current_word(const sw_table *of) {
    void *objects[SLOTS];
    make(of);
    doubles = 0;
    fill(objects);
    sw_cache_free(owner, objects[3]);
    sw_span *span = sw_target_find(heap, objects[3]).span;
    (void)__atomic_fetch_or(&span->words->remote, 1ull << 3, __ATOMIC_ACQ_REL);
    CHECK(sw_span_announce(heap->space, span, 3));
    ends_once(span, objects[3]);
}

int main(void) {
    sw_set_fault_handler(note, NULL);
    pushed_while_closing();
    pushed_after_closing();
    drained_by_the_owner();
    hinted_and_remote(NULL);
    hinted_and_remote(sw_table_go());
    in_the_current_word(NULL);
    in_the_current_word(sw_table_go());
    return check_result();
}
