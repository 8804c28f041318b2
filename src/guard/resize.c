/* SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "guard/end.h"

/* Resizes an object in its slot, if it stays in its class. The canary's bytes that the object gets
 * are cleared. */
static bool resize_in_place(sw_cache *cache, void *p, const sw_guarded *object, size_t size) {
    const sw_table *table = cache->table;
    uint32_t bytes = (uint32_t)object->bytes;
    if (size - 1 >= sw_guard.quick_max ||
        table->classes[sw_size_class(table, size + 1)].size != bytes)
        return false;
    size_t before = object->requested - 1, room = bytes - before;
    memset((char *)p + before, 0, room < SW_CANARY_MAX ? room : SW_CANARY_MAX);
    sw_slack_set(object->slack, bytes, object->target.slot, bytes - (uint32_t)size - 1);
    (void)sw_guarded_end(p, size, bytes, SW_GUARD_MALLOC);
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
    if (!sw_guard_size(ptr, "realloc", &before)) return NULL;
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
