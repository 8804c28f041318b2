/* SPDX-License-Identifier: Apache-2.0 */
/* The write barrier. While a cycle marks, it marks the overwritten value, so that the value
 * survives (snapshot at the beginning). */
#include "gc/inbox.h"
#include "gc/mark.h"

static sw_noinline void keep(sw_gc *gc, uintptr_t value) {
    sw_os_lock_acquire(&gc->lock);
    if (gc->phase == SW_GC_MARKING) sw_gc_mark_word(gc, value);
    sw_os_lock_release(&gc->lock);
}

/* A marker thread that reads the pointer sees the span of the object. */
static void store(void **word, void *value) { __atomic_store_n(word, value, __ATOMIC_RELEASE); }

/* Slow path: a cycle marks, or the handle is not a live collector, which is reported. */
static sw_noinline void write_kept(sw_gc *gc, void **word, void *value) {
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_write")) return;
    void *old = __atomic_load_n(word, __ATOMIC_RELAXED);
    if (sw_gc_is_concurrent(gc))
        sw_gc_inbox_keep(gc, (uintptr_t)old);
    else if (old != NULL)
        keep(gc, (uintptr_t)old);
    store(word, value);
}

/* write_kept is a tail call, so a write outside marking saves no register. */
void sw_gc_write(sw_gc *gc, void *at, void *value) {
    void **word = at;
    if (sw_unlikely(!sw_handle_lives(gc, offsetof(sw_gc, mark), SW_HANDLE_GC)) ||
        sw_unlikely(sw_gc_phase_seen(gc) == SW_GC_MARKING)) {
        write_kept(gc, word, value);
        return;
    }
    __atomic_store_n(word, value, __ATOMIC_RELAXED);
}

void sw_gc_write_all(sw_gc *gc, void *at, void *const *values, size_t count) {
    void **words = at;
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_write_all")) return;
    bool marking = sw_gc_phase_seen(gc) == SW_GC_MARKING;
    for (size_t i = 0; i < count; i++) {
        if (sw_unlikely(marking))
            write_kept(gc, &words[i], values[i]);
        else
            __atomic_store_n(&words[i], values[i], __ATOMIC_RELAXED);
    }
}
