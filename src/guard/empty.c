/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/empty.h"

#include "guard/report.h"

enum { OBJECTS = 1 << 16, WORDS = OBJECTS / 64 };

static sw_os_lock lock;
static char *range; /* NULL: none */
static uint64_t live[WORDS];
static size_t next_word; /* where the search for a free address goes on */

void sw_empty_lock(void) { sw_os_lock_acquire(&lock); }
void sw_empty_unlock(void) { sw_os_lock_release(&lock); }
void sw_empty_reset(void) { sw_os_lock_reset(&lock); }

void sw_empty_start(void) {
    range = sw_os_reserve((size_t)OBJECTS * SW_EMPTY_ALIGN, sw_os_page_bytes());
}

bool sw_empty_owns(const void *p) {
    return range != NULL && (uintptr_t)p - (uintptr_t)range < (size_t)OBJECTS * SW_EMPTY_ALIGN;
}

/* Marks a free address, and returns its index; OBJECTS: there is none. The lock is held. */
static size_t take(void) {
    for (size_t i = 0; i < WORDS; i++) {
        size_t word = (next_word + i) % WORDS;
        if (live[word] == UINT64_MAX) continue;
        size_t bit = (size_t)__builtin_ctzll(~live[word]);
        live[word] |= UINT64_C(1) << bit;
        next_word = (word + 1) % WORDS; /* an address is reused late */
        return word * 64 + bit;
    }
    return OBJECTS;
}

void *sw_empty_alloc(void) {
    if (range == NULL) return NULL;
    sw_empty_lock();
    size_t index = take();
    sw_empty_unlock();
    return index == OBJECTS ? NULL : range + index * SW_EMPTY_ALIGN;
}

/* Returns what is wrong with a pointer into the range; if `end`, the object ends. */
static sw_misuse look_up(const void *p, bool end) {
    size_t offset = (size_t)((const char *)p - range), index = offset / SW_EMPTY_ALIGN;
    uint64_t bit = UINT64_C(1) << index % 64;
    if (offset % SW_EMPTY_ALIGN != 0) return SW_MISUSE_INTERIOR;
    sw_empty_lock();
    bool lives = (live[index / 64] & bit) != 0;
    if (lives && end) live[index / 64] &= ~bit;
    sw_empty_unlock();
    return lives ? SW_MISUSE_NONE : SW_MISUSE_DOUBLE_FREE;
}

bool sw_empty_check(sw_heap *heap, const void *p, const char *op, size_t *size) {
    sw_misuse misuse = look_up(p, false);
    if (misuse != SW_MISUSE_NONE) sw_guard_report(heap, misuse, op, p, 0);
    *size = 0;
    return misuse == SW_MISUSE_NONE;
}

void sw_empty_free(sw_heap *heap, void *p, const char *op) {
    sw_misuse misuse = look_up(p, true);
    if (misuse != SW_MISUSE_NONE) sw_guard_report(heap, misuse, op, p, 0);
}
