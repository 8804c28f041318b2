/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps with sw_heap_options.protect. The heap passes every call on them to this file
 * (sw_heap_guard), which finds the record of the cache and continues in guard.c. */
#include <string.h>

#include "base/base.h"
#include "guard/guard.h"
#include "guard/sample.h"
#include "guard/state.h"
#include "heap/alloc.h"

/* --- names ------------------------------------------------------------------------------------ */

static const struct protection {
    char name[10];
    uint16_t bits;
} protections[] = {
    {"default", 0},
    {"canary", SW_GUARD_CANARY},
    {"zero", SW_GUARD_ZERO},
    {"hold", SW_GUARD_HOLD},
    {"empty", SW_GUARD_EMPTY},
    {"match", SW_GUARD_MATCH},
    {"sample", SW_GUARD_SAMPLE},
    {"random", SW_GUARD_RANDOM},
    {"pages", SW_GUARD_PAGES},
    {"hardened", SW_GUARD_HARDENED},
    {"paranoid", SW_GUARD_PARANOID},
};

bool sw_guard_parse(const char *text, unsigned *on) {
    unsigned bits = 0;
    for (const char *name = text;; name++) {
        size_t length = strcspn(name, ","), i = 0, count = sizeof protections / sizeof *protections;
        while (i < count && (strlen(protections[i].name) != length ||
                             memcmp(protections[i].name, name, length) != 0))
            i++;
        if (i == count) return false;
        bits |= protections[i].bits;
        name += length;
        if (*name == '\0') break;
    }
    *on = bits;
    return true;
}

/* --- calls ------------------------------------------------------------------------------------ */

/* The record of a cache. NULL: no memory; then nothing is held or sampled. */
static sw_guard_thread *record_of(sw_cache *cache) {
    struct sw_cache_cold *cold = cache->cold;
    if (sw_unlikely(cold->guard == NULL)) cold->guard = sw_guard_record_make(cache);
    return cold->guard;
}

static void *alloc(sw_cache *cache, size_t size, size_t align, unsigned flags) {
    if (!sw_cache_is_open(cache)) return sw_report_ended_cache(cache);
    return sw_guard_alloc_any(cache, record_of(cache), size, align, flags, SW_GUARD_MALLOC);
}

static void release(sw_cache *cache, void *ptr, size_t stated, const char *op) {
    sw_guard_free_any(cache, record_of(cache), ptr, stated, SW_GUARD_MALLOC, op);
}

/* Every resize moves the object, so a pointer to the old one is found. */
static void *resize(sw_cache *cache, void *ptr, size_t size, unsigned flags) {
    size_t before;
    if (!sw_guard_size(cache->heap, ptr, "realloc", &before)) return sw_object_no_memory();
    void *p = alloc(cache, size, 0, flags);
    if (p == NULL) return NULL;
    size_t kept = before < size ? before : size;
    if (kept != 0) memcpy(p, ptr, kept);
    release(cache, ptr, SIZE_MAX, "realloc");
    return p;
}

static size_t usable(sw_heap *heap, const void *ptr, const char *op) {
    size_t size;
    return sw_guard_size(heap, ptr, op, &size) ? size : 0;
}

static bool requested(uint64_t asked, uint64_t *size) {
    *size = asked - 1;
    return asked != 0;
}

static void leave(sw_cache *cache) {
    sw_guard_thread *own = cache->cold->guard;
    cache->cold->guard = NULL;
    if (own != NULL) sw_guard_record_end(own, "cache close");
}

static void end(sw_heap *heap) {
    sw_guard_state *guard = sw_guard_of(heap);
    for (sw_cache *cache = heap->caches; cache != NULL; cache = cache->cold->next) {
        if (cache->cold->guard != NULL) sw_guard_record_end(cache->cold->guard, NULL);
        cache->cold->guard = NULL;
    }
    sw_guard_end(guard);
    (void)sw_os_release(guard, sizeof *guard);
}

static void lock(sw_heap *heap) { sw_sample_lock(sw_guard_of(heap)); }
static void unlock(sw_heap *heap) { sw_sample_unlock(sw_guard_of(heap)); }
static void reset(sw_heap *heap) { sw_sample_reset(sw_guard_of(heap)); }

/* --- verification ----------------------------------------------------------------------------- */

#define BROKEN(...) sw_fail(SW_STATE, "verify", __VA_ARGS__)

/* Checks the bytes that the heap has for an object: `asked` were asked for, 0: it is free. */
static sw_status check_bytes(const sw_guard_state *guard, const void *p, size_t bytes,
                             size_t asked) {
    sw_guard_kind kind;
    bool zero = (guard->on & SW_GUARD_ZERO) != 0, ends = (guard->on & SW_GUARD_ENDS) != 0;
    if (asked == 0 && zero && !sw_guard_is_clear(p, bytes))
        return BROKEN("free object at %p of %zu bytes: it was written to", p, bytes);
    if (asked != 0 && ends && !sw_canary_read(guard->key, p, asked - 1, bytes, &kind))
        return BROKEN("object at %p of %zu bytes: the bytes after it were written to", p,
                      asked - 1);
    return SW_OK;
}

static bool check_span(sw_heap *heap, sw_span *span, void *arg) {
    sw_status *status = arg;
    const sw_guard_state *guard = sw_guard_of(heap);
    const sw_span_cold *cold = sw_space_cold(heap->space, span);
    if (sw_span_is_large(span)) {
        if (sw_span_large_lives(span) && !sw_span_large_is_arenas(span) && cold->requested != 0)
            *status = check_bytes(guard, (const void *)span->base,
                                  (size_t)cold->pages << heap->table->page_shift, cold->requested);
        return *status == SW_OK;
    }
    uint32_t bytes = sw_slot_bytes(heap->table, span);
    for (uint32_t slot = 0; slot < span->slots && *status == SW_OK; slot++) {
        bool live = sw_span_slot_live(span, slot);
        size_t asked = live ? bytes - sw_slack_get(cold->slack, bytes, slot) : 0;
        const void *p = (const void *)(span->base + (uintptr_t)slot * bytes);
        *status = check_bytes(guard, p, bytes, asked);
    }
    return *status == SW_OK;
}

static sw_status verify(sw_heap *heap) {
    sw_status status = SW_OK;
    sw_heap_each_span(heap, check_span, &status);
    const void *damaged = status == SW_OK ? sw_sample_find_damage(sw_guard_of(heap)) : NULL;
    if (damaged != NULL)
        status =
            BROKEN("object at %p on its own page: the bytes after it were written to", damaged);
    return status;
}

/* --- creation --------------------------------------------------------------------------------- */

static const sw_heap_guard calls = {
    .alloc = alloc,
    .realloc = resize,
    .free = release,
    .usable = usable,
    .requested = requested,
    .verify = verify,
    .leave = leave,
    .end = end,
    .lock = lock,
    .unlock = unlock,
    .reset = reset,
};

static sw_status create(const sw_heap_options *options, unsigned on, sw_heap **out) {
    sw_guard_state *guard = sw_os_map(sizeof *guard);
    if (guard == NULL) return sw_fail(SW_NOMEM, "heap_create", "no memory for a heap");
    sw_status status = sw_heap_create_guarded(options, &calls, guard, out);
    if (status == SW_OK)
        sw_guard_begin(guard, *out, on);
    else
        (void)sw_os_release(guard, sizeof *guard);
    return status;
}

sw_status sw_heap_create(const sw_heap_options *options, sw_heap **out) {
    const char *op = "heap_create";
    sw_heap_options read;
    unsigned on = 0;
    if (out == NULL) return sw_fail_null(op, "out");
    sw_status status = sw_heap_options_read(options, op, &read);
    if (status != SW_OK) return status;
    if (read.protect != NULL && read.protect[0] != '\0' && !sw_guard_parse(read.protect, &on))
        return sw_fail(SW_INVALID, op,
                       "protect \"%.40s\": use hardened, paranoid, or some of canary, zero, hold, "
                       "empty, match, sample, random and pages",
                       read.protect);
    return on == 0 ? sw_heap_create_guarded(&read, NULL, NULL, out) : create(&read, on, out);
}
