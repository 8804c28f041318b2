/* SPDX-License-Identifier: Apache-2.0 */
/* The calls that most programs make most often: allocation and free of slots, by a thread with a
 * record. Every other case continues in guard.c, which decides and reports. */
#include <string.h>

#include "guard/sample.h"
#include "guard/state.h"
#include "heap/refill.h"

/* --- allocation ------------------------------------------------------------------------------- */

/* Small objects belong to the classes for objects with pointers, which have no hints
 * (heap/cache.h): a hint serves an allocation soon after a free, and held objects are freed late
 * and in any order. */
static sw_always_inline uint32_t span_class_of(const sw_table *table, size_t size) {
    return sw_span_class_of(sw_size_class(table, size + 1), false);
}

/* The index of a set bit: the lowest one, or the first after a random one. */
static sw_always_inline unsigned choose(sw_guard_thread *own, uint64_t bits) {
    if ((own->guard->on & SW_GUARD_RANDOM) == 0) return SW_FAST_LOWEST(bits);
    unsigned turn = (unsigned)(sw_guard_next_random(own) >> 58);
    uint64_t turned = bits >> turn | bits << (-turn & 63);
    return (SW_FAST_LOWEST(turned) + turn) % 64;
}

/* Takes a slot of the bin's word, and notes the requested size. */
static sw_always_inline void *take(sw_guard_thread *own, sw_cache_bin *bin, uint64_t bits,
                                   uint32_t asked) {
    const sw_span *span = bin->span;
    unsigned index = choose(own, bits);
    uint32_t slot = (uint32_t)(bin->word - span->words) * 64 + index;
    uint16_t *slack = sw_space_cold(own->cache->heap->space, span)->slack;
    __atomic_store_n(&slack[slot], (uint16_t)(bin->bytes - asked), __ATOMIC_RELAXED);
    sw_word_set_free(bin->word, bits & ~(UINT64_C(1) << index));
    return (void *)(bin->base + (uintptr_t)index * bin->bytes);
}

/* The rest of an allocation that has a slot, with calls. (Here and below, a function that calls
 * nothing but by its last statement saves no registers.) */
static sw_cold void *finish_slowly(const sw_guard_state *guard, void *p, size_t size, size_t bytes,
                                   sw_guard_kind kind, unsigned flags) {
    sw_guard_check_clear(guard, p, bytes, "malloc");
    if ((flags & SW_ZERO) != 0) memset(p, 0, size);
    return sw_guarded_end(guard, p, size, bytes, kind);
}

static sw_cold void *refill(sw_guard_thread *own, size_t size, unsigned flags, sw_guard_kind kind) {
    sw_cache *cache = own->cache;
    uint32_t span_class = span_class_of(cache->table, size);
    void *p = sw_refill_alloc(cache, size + 1, 0, span_class);
    if (p == NULL) return NULL;
    return finish_slowly(own->guard, p, size, cache->bins[span_class].bytes, kind, flags);
}

void *sw_guard_alloc(sw_guard_thread *own, size_t size, unsigned flags, sw_guard_kind kind) {
    sw_cache *cache = own->cache;
    const sw_guard_state *guard = own->guard;
    if (sw_unlikely(size - 1 >= guard->quick_max) || sw_unlikely(--own->countdown == 0))
        return sw_guard_alloc_any(cache, own, size, 0, flags, kind);
    sw_cache_bin *bin = &cache->bins[span_class_of(cache->table, size)];
    uint64_t bits = sw_word_free(bin->word);
    if (sw_unlikely(bits == 0)) return refill(own, size, flags, kind);
    void *p = take(own, bin, bits, (uint32_t)size + 1);
    bool zero = (guard->on & SW_GUARD_ZERO) != 0;
    if (sw_unlikely(zero ? !sw_guard_is_clear(p, bin->bytes) : (flags & SW_ZERO) != 0))
        return finish_slowly(guard, p, size, bin->bytes, kind, flags);
    return sw_guarded_end_quick(guard, p, size, bin->bytes, kind);
}

/* --- free ------------------------------------------------------------------------------------- */

static sw_always_inline void hold(sw_guard_thread *own, void *p, const char *op) {
    if ((own->guard->on & SW_GUARD_HOLD) != 0)
        sw_hold(own, p, op);
    else
        sw_guard_release(own->cache, p, op);
}

/* Not marked cold, because the compiler would then clear with a slow string instruction. */
static sw_noinline void clear_and_hold(sw_guard_thread *own, void *p, size_t bytes,
                                       const char *op) {
    memset(p, 0, bytes);
    hold(own, p, op);
}

void sw_guard_free(sw_guard_thread *own, void *ptr, size_t stated, sw_guard_kind kind,
                   const char *op) {
    sw_cache *cache = own->cache;
    sw_guarded object;
    if (sw_unlikely(!sw_guarded_find_quick(cache, ptr, &object)) ||
        sw_unlikely(!sw_guarded_ends_well(own->guard, ptr, &object, stated, kind)) ||
        sw_unlikely(!sw_guarded_hold_quick(cache, &object))) {
        sw_guard_free_any(cache, own, ptr, stated, kind, op);
        return;
    }
    if ((own->guard->on & SW_GUARD_ZERO) != 0) {
        if (object.bytes > SW_TEMPLATE_SHORT) {
            clear_and_hold(own, ptr, object.bytes, op);
            return;
        }
        (void)sw_template_clear_short(ptr, (uint32_t)object.bytes);
    }
    hold(own, ptr, op);
}

/* --- resizing --------------------------------------------------------------------------------- */

/* Resizes an object in its slot, if it stays in its class. The canary's bytes that the object gets
 * are cleared. */
static bool resize_in_place(sw_cache *cache, void *p, const sw_guarded *object, size_t size) {
    const sw_table *table = cache->table;
    const sw_guard_state *guard = sw_guard_of(cache->heap);
    uint32_t bytes = (uint32_t)object->bytes;
    if (size - 1 >= guard->quick_max ||
        table->classes[sw_size_class(table, size + 1)].size != bytes)
        return false;
    size_t before = object->requested - 1, room = bytes - before;
    memset((char *)p + before, 0, room < SW_CANARY_MAX ? room : SW_CANARY_MAX);
    sw_slack_set(object->slack, bytes, object->target.slot, bytes - (uint32_t)size - 1);
    (void)sw_guarded_end(guard, p, size, bytes, SW_GUARD_MALLOC);
    return true;
}

static void *allocate(sw_cache *cache, sw_guard_thread *own, size_t size) {
    return sw_likely(own != NULL) ? sw_guard_alloc(own, size, 0, SW_GUARD_MALLOC)
                                  : sw_guard_alloc_any(cache, NULL, size, 0, 0, SW_GUARD_MALLOC);
}

/* A move clears and holds the old object, as if the program had freed it. */
void *sw_guard_realloc(sw_cache *cache, sw_guard_thread *own, void *ptr, size_t size) {
    if (ptr == NULL) return allocate(cache, own, size);
    sw_guarded object;
    size_t before;
    if (!sw_guard_size(cache->heap, ptr, "realloc", &before)) return NULL;
    if (sw_guarded_find_quick(cache, ptr, &object) && resize_in_place(cache, ptr, &object, size))
        return ptr;
    void *p = allocate(cache, own, size);
    if (p == NULL) return NULL;
    if (size != 0 && before != 0) memcpy(p, ptr, before < size ? before : size);
    if (sw_likely(own != NULL))
        sw_guard_free(own, ptr, SIZE_MAX, SW_GUARD_MALLOC, "realloc");
    else
        sw_guard_free_any(cache, NULL, ptr, SIZE_MAX, SW_GUARD_MALLOC, "realloc");
    return p;
}
