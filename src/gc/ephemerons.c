/* SPDX-License-Identifier: Apache-2.0 */
/* Ephemerons: entries of weak maps. A key and its value are two entries, so that the free of either
 * object finds its entry. The value of a key that was freed keeps its object until the end of
 * marking, where it is cleared. */
#include "gc/mark.h"
#include "gc/refs.h"

/* --- cycles ----------------------------------------------------------------------------------- */

static bool mark_value(sw_gc_marker *marker, uint32_t index) {
    sw_gc *gc = marker->gc;
    const sw_gc_ref_entry *key = sw_gc_refs_entry(&gc->refs, index);
    const sw_gc_ref_entry *value = sw_gc_refs_value(&gc->refs, key);
    if (value == NULL || value->object == 0 || !sw_gc_refs_is_marked(gc, key->object)) return false;
    if (sw_gc_refs_is_marked(gc, value->object)) return false;
    sw_gc_mark_range(marker, &value->object, sizeof value->object);
    return true;
}

/* Both directions, because a value that is marked here may be the key of another ephemeron. */
bool sw_gc_ephemerons_mark(sw_gc_marker *marker) {
    const sw_gc_refs *refs = &marker->gc->refs;
    uint32_t count = refs->ephemerons == 0 ? 0 : refs->entries.count;
    bool found = false;
    for (uint32_t i = 0; i < count; i++) found |= mark_value(marker, i);
    for (uint32_t i = count; found && i-- > 0;) (void)mark_value(marker, i);
    return found;
}

void sw_gc_ephemerons_settle(sw_gc *gc) {
    sw_gc_refs *refs = &gc->refs;
    for (uint32_t i = 0; refs->ephemerons != 0 && i < refs->entries.count; i++) {
        sw_gc_ref_entry *value = sw_gc_refs_entry(refs, i), *key;
        if (value->state != SW_GC_ENTRY_VALUE) continue;
        key = sw_gc_refs_entry(refs, value->pair - 1);
        if (key->object != 0 && sw_gc_refs_is_marked(gc, key->object)) continue;
        gc->cycle.cleared_refs += key->object != 0;
        sw_gc_refs_clear(refs, key);
        sw_gc_refs_clear(refs, value);
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

static sw_gc_ref_entry *find_key(const sw_gc_refs *refs, sw_gc_ref ref) {
    return sw_gc_refs_find(refs, ref, SW_GC_ENTRY_KEY, SW_GC_ENTRY_KEY);
}

/* Adds the two entries of an ephemeron. NULL: no memory. */
static sw_gc_ref_entry *add_pair(sw_gc_refs *refs, uintptr_t key, uintptr_t value) {
    sw_gc_ref_entry *added = sw_gc_refs_add(refs, value, SW_GC_ENTRY_VALUE);
    if (added == NULL) return NULL;
    uint32_t of_value = sw_gc_refs_number(refs, added);
    sw_gc_ref_entry *entry = sw_gc_refs_add(refs, key, SW_GC_ENTRY_KEY);
    added = sw_gc_refs_entry(refs, of_value - 1); /* the array may have moved */
    if (entry == NULL) {
        sw_gc_refs_drop(refs, added);
        return NULL;
    }
    added->pair = sw_gc_refs_number(refs, entry);
    entry->pair = of_value;
    refs->ephemerons++;
    return entry;
}

sw_status sw_gc_ephemeron_new(sw_gc *gc, const void *key, const void *value, sw_gc_ref *out) {
    const char *op = "gc_ephemeron_new";
    sw_status status = sw_gc_refs_enter(gc, op, key);
    if (status != SW_OK) return status;
    bool is_value = value == NULL || sw_gc_refs_is_object(gc, value);
    bool is_valid = key != NULL && is_value && out != NULL;
    sw_gc_ref_entry *entry =
        is_valid ? add_pair(&gc->refs, (uintptr_t)key, (uintptr_t)value) : NULL;
    if (entry != NULL) *out = sw_gc_refs_id(&gc->refs, entry);
    sw_os_lock_release(&gc->lock);
    if (!is_value) return sw_fail(SW_INVALID, op, "no object of the heap begins at %p", value);
    if (!is_valid) return sw_fail(SW_INVALID, op, "the key or out is NULL");
    return entry != NULL ? SW_OK : sw_fail(SW_NOMEM, op, "no memory for an ephemeron");
}

sw_status sw_gc_ephemeron_get(sw_gc *gc, sw_gc_ref ref, void **key, void **value) {
    const char *op = "gc_ephemeron_get";
    sw_status status = sw_gc_refs_enter(gc, op, NULL);
    if (status != SW_OK) return status;
    const sw_gc_ref_entry *entry = find_key(&gc->refs, ref);
    if (entry != NULL) {
        const sw_gc_ref_entry *of_key = sw_gc_refs_value(&gc->refs, entry);
        *key = sw_gc_refs_give(gc, entry);
        *value = of_key == NULL ? NULL : sw_gc_refs_give(gc, of_key);
    }
    sw_os_lock_release(&gc->lock);
    return entry != NULL ? SW_OK : sw_gc_refs_unknown(op, ref);
}

sw_status sw_gc_ephemeron_set(sw_gc *gc, sw_gc_ref ref, const void *value) {
    const char *op = "gc_ephemeron_set";
    sw_status status = sw_gc_refs_enter(gc, op, value);
    if (status != SW_OK) return status;
    const sw_gc_ref_entry *entry = find_key(&gc->refs, ref);
    sw_gc_ref_entry *of_key = entry == NULL ? NULL : sw_gc_refs_value(&gc->refs, entry);
    if (of_key != NULL) {
        sw_gc_refs_clear(&gc->refs, of_key);
        sw_gc_refs_put(&gc->refs, of_key, (uintptr_t)value);
    }
    sw_os_lock_release(&gc->lock);
    return entry != NULL ? SW_OK : sw_gc_refs_unknown(op, ref);
}
