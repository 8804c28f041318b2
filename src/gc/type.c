/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of types, and the arrays that hold them. */
#include "gc/type.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "base/fail.h"

/* --- arrays ----------------------------------------------------------------------------------- */

const char *sw_gc_array_check(const sw_gc_array *array) {
    return SW_RULE(array->count <= array->capacity)
               ?: SW_RULE((array->items == NULL) == (array->capacity == 0));
}

void *sw_gc_array_add(sw_gc_array *array, size_t item_bytes) {
    sw_check2(sw_gc_array_check(array));
    if (array->count == array->capacity) {
        uint32_t capacity = array->capacity == 0 ? 64 : 2 * array->capacity;
        void *items = sw_os_map(capacity * item_bytes);
        if (items == NULL) return NULL;
        uint32_t count = array->count;
        if (count != 0) memcpy(items, array->items, count * item_bytes);
        sw_gc_array_end(array, item_bytes);
        *array = (sw_gc_array){.items = items, .count = count, .capacity = capacity};
    }
    return (char *)array->items + array->count++ * item_bytes;
}

void sw_gc_array_end(sw_gc_array *array, size_t item_bytes) {
    if (array->items != NULL) (void)sw_os_release(array->items, array->capacity * item_bytes);
    *array = (sw_gc_array){0};
}

/* --- layouts ------------------------------------------------------------------------------ */

uint64_t sw_gc_pattern_at(const sw_gc_layout *layout, uint64_t word) {
    if (layout->map == NULL) return ~0ull;
    uint64_t bits = 0, at = word % layout->words;
    for (uint32_t i = 0; i < 64; i++) {
        bits |= (layout->map[at / 64] >> at % 64 & 1) << i;
        if (++at == layout->words) at = 0;
    }
    return bits;
}

bool sw_gc_types_start(sw_gc *gc) {
    sw_gc_layout *untyped = sw_gc_array_add(&gc->types, sizeof *untyped);
    if (untyped == NULL) return false;
    *untyped = (sw_gc_layout){.pattern = ~0ull, .bytes = 8, .words = 1, .scan = true};
    memcpy(untyped->name, "untyped", sizeof "untyped");
    return true;
}

static size_t map_words(size_t words) { return (words + 63) / 64; }

void sw_gc_types_end(sw_gc *gc) {
    for (uint32_t i = 0; i < gc->types.count; i++) {
        const sw_gc_layout *type = sw_gc_layout_of(gc, i);
        if (type->map != NULL)
            (void)sw_os_release((void *)(uintptr_t)type->map, map_words(type->words) * 8);
    }
    sw_gc_array_end(&gc->types, sizeof(sw_gc_layout));
}

/* Whether no bit is set behind the object's last whole word. */
static bool map_ends(const sw_gc_type *type) {
    size_t words = type->bytes / 8;
    if (words % 64 == 0) return true;
    return (type->pointers[words / 64] & ~sw_low_mask((uint32_t)(words % 64))) == 0;
}

static sw_status check_type(const sw_gc_type *type) {
    enum { BYTES_MAX = 1u << 31 };
    const char *op = "gc_add_type";
    if (type == NULL || type->name == NULL)
        return sw_fail(SW_INVALID, op, "the type, or its name, is NULL");
    if (type->bytes == 0 || type->bytes > BYTES_MAX)
        return sw_fail(SW_INVALID, op, "type %s has %zu bytes: 1 to 2147483648 are possible",
                       type->name, type->bytes);
    if (type->pointers == NULL) return SW_OK;
    if (type->bytes < 8 || !map_ends(type))
        return sw_fail(SW_INVALID, op,
                       "type %s: the map has a pointer behind the last whole word of %zu bytes",
                       type->name, type->bytes);
    if (type->bytes % 8 != 0)
        return sw_fail(SW_INVALID, op,
                       "type %s has pointers and %zu bytes: its size must be a multiple of 8",
                       type->name, type->bytes);
    return SW_OK;
}

/* A copy of the map that has a bit; *map NULL: none has. False: no memory. */
static bool copy_map(const sw_gc_type *type, const uint64_t **map) {
    size_t words = map_words(type->bytes / 8), used = 0;
    *map = NULL;
    for (size_t i = 0; type->pointers != NULL && i < words; i++) used |= type->pointers[i] != 0;
    if (used == 0) return true;
    uint64_t *copy = sw_os_map(words * sizeof *copy);
    if (copy == NULL) return false;
    memcpy(copy, type->pointers, words * sizeof *copy);
    *map = copy;
    return true;
}

static sw_status add_type(sw_gc *gc, const sw_gc_type *type, uint32_t *id) {
    const char *op = "gc_add_type";
    if (gc->types.count == SW_GC_TYPES_MAX)
        return sw_fail(SW_LIMIT, op, "%d types are registered", SW_GC_TYPES_MAX - 1);
    sw_gc_layout made = {.bytes = type->bytes, .words = type->bytes / 8};
    if (!copy_map(type, &made.map)) return sw_fail(SW_NOMEM, op, "no memory for a pointer map");
    made.scan = made.map != NULL;
    if (made.scan) made.pattern = sw_gc_pattern_at(&made, 0);
    strncpy(made.name, type->name, sizeof made.name - 1);
    sw_gc_layout *layout = sw_gc_array_add(&gc->types, sizeof *layout);
    if (layout == NULL) {
        if (made.scan) (void)sw_os_release((void *)(uintptr_t)made.map, map_words(made.words) * 8);
        return sw_fail(SW_NOMEM, op, "no memory for a type");
    }
    *layout = made;
    *id = gc->types.count - 1;
    return SW_OK;
}

sw_status sw_gc_add_type(sw_gc *gc, const sw_gc_type *type, uint32_t *id) {
    sw_status status = sw_handle_status(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_add_type");
    if (status == SW_OK) status = check_type(type);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    status = add_type(gc, type, id);
    sw_os_lock_release(&gc->lock);
    return status;
}
