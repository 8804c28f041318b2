/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/guard.h"

#include <errno.h>
#include <string.h>

#include "guard/canary.h"
#include "guard/empty.h"
#include "guard/hold.h"
#include "guard/object.h"
#include "guard/report.h"
#include "guard/sample.h"
#include "heap/free.h"

enum {
    CHECKED_BYTES_MAX = 1 << 17, /* of a large object before it is reused */
    PURGED_BYTES_MIN = 1 << 17,  /* clearing such an object returns its pages */
};

static sw_heap *guarded;
static unsigned on;
static uint64_t key;

void sw_guard_start(sw_heap *heap, unsigned protections) {
    guarded = heap;
    on = protections;
    key = sw_os_random();
    if ((on & SW_GUARD_EMPTY) != 0) sw_empty_start();
    if ((on & (SW_GUARD_SAMPLE | SW_GUARD_PAGES)) != 0) sw_sample_start(key, on);
    sw_guard_watch_faults(heap);
}

/* --- clearing and checking -------------------------------------------------------------------- */

static void clear(void *p, size_t bytes) {
    if (bytes < PURGED_BYTES_MIN || !sw_os_purge(p, bytes)) memset(p, 0, bytes);
}

static bool is_clear(const void *p, size_t bytes) {
    const uint64_t *word = p;
    uint64_t found = 0;
    for (size_t i = 0; i < bytes / sizeof *word; i++) found |= word[i];
    return found == 0;
}

/* Reports a write to memory that is free or held. */
static void check_clear(const void *p, size_t bytes, const char *op) {
    if ((on & SW_GUARD_ZERO) == 0 || is_clear(p, bytes)) return;
    sw_guard_report(guarded, SW_MISUSE_WRITE_AFTER_FREE, op, p, bytes);
}

/* --- allocation ------------------------------------------------------------------------------- */

/* Writes the canary of an object that the heap made for `size` + 1 bytes. */
static void finish(void *p, size_t size, size_t bytes, sw_guard_kind kind) {
    size_t room = (on & SW_GUARD_CANARY) != 0 ? bytes - size : 1;
    sw_canary_write(key, p, size, room, kind);
}

/* Returns the bytes of the slot, or of the pages, that the heap made for `asked` bytes. */
static size_t bytes_of(const void *p, size_t asked, size_t align) {
    const sw_table *table = guarded->table;
    if (align == 0 && asked <= table->max_size)
        return table->classes[sw_size_class(table, asked)].size;
    return sw_guarded_find(guarded, p).bytes;
}

static void *alloc_in_heap(sw_cache *cache, size_t size, size_t align, unsigned flags,
                           sw_guard_kind kind) {
    size_t asked = size + (size <= PTRDIFF_MAX); /* a size that fails must fail */
    void *p = align == 0 ? sw_cache_alloc(cache, asked, flags)
                         : sw_cache_alloc_aligned(cache, asked, align, flags);
    if (sw_unlikely(p == NULL)) return NULL;
    size_t bytes = bytes_of(p, asked, align);
    check_clear(p, bytes < CHECKED_BYTES_MAX ? bytes : CHECKED_BYTES_MAX, "malloc");
    finish(p, size, bytes, kind);
    return p;
}

void *sw_guard_alloc(sw_cache *cache, size_t size, size_t align, unsigned flags,
                     sw_guard_kind kind) {
    void *p = NULL;
    if (size == 0 && align <= SW_EMPTY_ALIGN && (on & SW_GUARD_EMPTY) != 0) p = sw_empty_alloc();
    if (p == NULL && (on & (SW_GUARD_SAMPLE | SW_GUARD_PAGES)) != 0)
        p = sw_sample_alloc(size, align, kind);
    return p != NULL ? p : alloc_in_heap(cache, size, align, flags, kind);
}

/* --- free ------------------------------------------------------------------------------------- */

static void release(sw_cache *cache, void *p, const char *op) {
    if (!sw_fast_try_free(cache, p)) sw_free_slow(cache, p, op);
}

/* Checks the canary, the size that the caller states, and the family of the free. */
static void check_end(const void *p, const sw_guarded *object, size_t stated,
                      const sw_guard_kind *kind, const char *op) {
    size_t size = object->requested - 1;
    size_t room = (on & SW_GUARD_CANARY) != 0 ? object->bytes - size : 1;
    sw_guard_kind allocated;
    bool whole = sw_canary_read(key, p, size, room, &allocated);
    sw_misuse misuse = !whole && (on & SW_GUARD_CANARY) != 0  ? SW_MISUSE_OVERFLOW
                       : stated != SIZE_MAX && stated != size ? SW_MISUSE_SIZE_MISMATCH
                       : whole && kind != NULL && *kind != allocated && (on & SW_GUARD_MATCH) != 0
                           ? SW_MISUSE_MISMATCHED_FREE
                           : SW_MISUSE_NONE;
    if (misuse != SW_MISUSE_NONE) sw_guard_report(guarded, misuse, op, p, size);
}

static void free_in_heap(sw_cache *cache, void *p, size_t stated, sw_guard_kind kind,
                         const char *op) {
    sw_guarded object = sw_guarded_find(guarded, p);
    bool mine = object.target.misuse == SW_MISUSE_NONE;
    if (mine && !object.target.large && !sw_guarded_hold(guarded, &object)) {
        object.target.misuse = SW_MISUSE_DOUBLE_FREE;
        mine = false;
    }
    if (!mine) {
        sw_target_report(guarded, &object.target, op, p, 0);
        return;
    }
    check_end(p, &object, stated, &kind, op);
    if ((on & SW_GUARD_ZERO) != 0) clear(p, object.bytes);
    sw_held last = {p, 0};
    if ((on & SW_GUARD_HOLD) != 0 && !object.target.large) last = sw_hold(p, object.bytes);
    if (last.bytes != 0) check_clear(last.object, last.bytes, op);
    if (last.object != NULL) release(cache, last.object, op);
}

void sw_guard_free(sw_cache *cache, void *ptr, size_t stated, sw_guard_kind kind, const char *op) {
    if (sw_empty_owns(ptr)) {
        sw_empty_free(guarded, ptr, op);
    } else if (sw_sample_owns(ptr)) {
        sw_sample_free(guarded, ptr, stated, kind, op);
    } else {
        free_in_heap(cache, ptr, stated, kind, op);
    }
}

/* --- sizes ------------------------------------------------------------------------------------ */

/* Returns the requested size of a live object. False: misuse, which was reported. */
static bool size_of(const void *ptr, const char *op, size_t *size) {
    if (sw_empty_owns(ptr)) return sw_empty_check(guarded, ptr, op, size);
    if (sw_sample_owns(ptr)) return sw_sample_size(guarded, ptr, op, size);
    sw_guarded object = sw_guarded_find(guarded, ptr);
    if (object.target.misuse != SW_MISUSE_NONE) {
        sw_target_report(guarded, &object.target, op, ptr, 0);
        return false;
    }
    check_end(ptr, &object, SIZE_MAX, NULL, op);
    *size = object.requested - 1;
    return true;
}

size_t sw_guard_usable(sw_heap *heap, const void *ptr) {
    size_t size;
    (void)heap;
    return ptr != NULL && size_of(ptr, "malloc_usable_size", &size) ? size : 0;
}

/* Resizes an object in its slot, if it stays in its class. */
static bool resize_in_place(void *p, size_t before, size_t size) {
    if (sw_empty_owns(p) || sw_sample_owns(p) || size > guarded->table->max_size - 1) return false;
    sw_guarded object = sw_guarded_find(guarded, p);
    if (object.target.large || bytes_of(p, size + 1, 0) != object.bytes) return false;
    size_t room = object.bytes - before;
    memset((char *)p + before, 0, room < SW_CANARY_MAX ? room : SW_CANARY_MAX);
    sw_slack_set(sw_space_cold(guarded->space, object.target.span)->slack, (uint32_t)object.bytes,
                 object.target.slot, (uint32_t)(object.bytes - size - 1));
    finish(p, size, object.bytes, SW_GUARD_MALLOC);
    return true;
}

/* A move clears and holds the old object, as if the program had freed it. */
void *sw_guard_realloc(sw_cache *cache, void *ptr, size_t size) {
    if (ptr == NULL) return sw_guard_alloc(cache, size, 0, 0, SW_GUARD_MALLOC);
    size_t before;
    if (!size_of(ptr, "realloc", &before)) return NULL;
    if (size != 0 && resize_in_place(ptr, before, size)) return ptr;
    void *p = sw_guard_alloc(cache, size, 0, 0, SW_GUARD_MALLOC);
    if (p == NULL) return NULL;
    if (size != 0 && before != 0) memcpy(p, ptr, before < size ? before : size);
    sw_guard_free(cache, ptr, SIZE_MAX, SW_GUARD_MALLOC, "realloc");
    return p;
}

void sw_guard_fork_prepare(void) {
    sw_empty_lock();
    sw_sample_lock();
}

void sw_guard_fork_parent(void) {
    sw_sample_unlock();
    sw_empty_unlock();
}

void sw_guard_fork_child(void) {
    sw_sample_reset();
    sw_empty_reset();
}
