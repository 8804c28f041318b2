/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts of types, and the arrays that hold them. */
#include "gc/type.h"

#include <string.h>

#include "base/base.h"
#include "heap/heap.h"

/* --- arrays ----------------------------------------------------------------------------------- */

static const char *sw_gc_array_check(const sw_gc_array *array) {
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

enum { COMMIT_BYTES = 64 << 10, LIMIT_LOG2 = 24, LEAST_LIMIT_LOG2 = 12 };

/* Chooses addresses for the layouts, and maps the first of them. */
static bool reserve_layouts(sw_gc *gc) {
    for (uint32_t log2 = LIMIT_LOG2; log2 >= LEAST_LIMIT_LOG2 && gc->layouts == NULL; log2 -= 4) {
        gc->layouts = sw_os_place(sizeof *gc->layouts << log2, COMMIT_BYTES);
        gc->layouts_reserved = 1u << log2;
    }
    gc->layouts_bytes = gc->layouts == NULL ? 0 : COMMIT_BYTES;
    return gc->layouts != NULL;
}

/* Makes room for one more layout. False: no memory, or no number is left. */
static bool make_room(sw_gc *gc) {
    if (gc->type_count == gc->layouts_reserved) return false;
    if ((gc->type_count + 1) * sizeof *gc->layouts <= gc->layouts_bytes) return true;
    if (sw_os_map_at((char *)gc->layouts + gc->layouts_bytes, COMMIT_BYTES) != SW_OS_MAPPED)
        return false;
    gc->layouts_bytes += COMMIT_BYTES;
    return true;
}

/* The layout is written before the count, so that a thread that has the number sees the layout. */
static void publish(sw_gc *gc, const sw_gc_layout *made) {
    gc->layouts[gc->type_count] = *made;
    __atomic_store_n(&gc->type_count, gc->type_count + 1, __ATOMIC_RELEASE);
}

bool sw_gc_types_start(sw_gc *gc) {
    sw_gc_layout untyped = {
        .pattern = ~0ull, .bytes = 8, .words = 1, .scan = true, .name = "untyped"};
    if (!reserve_layouts(gc) || !make_room(gc)) return false;
    publish(gc, &untyped);
    return true;
}

static size_t map_words(size_t words) { return (words + 63) / 64; }

void sw_gc_types_end(sw_gc *gc) {
    for (uint32_t i = 0; i < gc->type_count; i++) {
        const sw_gc_layout *type = sw_gc_layout_of(gc, i);
        if (type->map != NULL)
            (void)sw_os_release((void *)(uintptr_t)type->map, map_words(type->words) * 8);
    }
    if (gc->layouts != NULL) (void)sw_os_release(gc->layouts, gc->layouts_bytes);
    gc->layouts = NULL;
    gc->type_count = 0;
}

/* Returns whether no bit is set past the object's last whole word. */
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
                       "type %s: the map has a pointer after the last whole word of %zu bytes",
                       type->name, type->bytes);
    if (type->bytes % 8 != 0)
        return sw_fail(SW_INVALID, op,
                       "type %s has pointers and %zu bytes: its size must be a multiple of 8",
                       type->name, type->bytes);
    return SW_OK;
}

/* Copies the map if any bit is set; else *map is NULL. False: no memory. */
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

/* Finds the span class of a single object of the type, unless the object is large or packed. */
static void find_class(const sw_heap *heap, uint32_t id, sw_gc_layout *made) {
    const sw_table *table = heap->table;
    if (made->bytes > table->max_size) return;
    if ((heap->mode & SW_MODE_TINY) != 0 && !made->scan && made->bytes < 16) return;
    uint32_t cls = sw_size_class(table, made->bytes);
    made->span_class = sw_span_class_of(cls, !made->scan);
    made->bin_type = made->scan ? id : 0;
}

static sw_status add_type(sw_gc *gc, const sw_gc_type *type, uint32_t *id) {
    const char *op = "gc_add_type";
    if (gc->type_count == SW_GC_TYPES_MAX)
        return sw_fail(SW_LIMIT, op, "%d types are registered", SW_GC_TYPES_MAX - 1);
    sw_gc_layout made = {.bytes = type->bytes, .words = type->bytes / 8};
    if (!make_room(gc)) return sw_fail(SW_NOMEM, op, "no memory for a type");
    if (!copy_map(type, &made.map)) return sw_fail(SW_NOMEM, op, "no memory for a pointer map");
    made.scan = made.map != NULL;
    if (made.scan) made.pattern = sw_gc_pattern_at(&made, 0);
    find_class(gc->heap, gc->type_count, &made);
    strncpy(made.name, type->name, sizeof made.name - 1);
    *id = gc->type_count;
    publish(gc, &made);
    return SW_OK;
}

sw_status sw_gc_add_type(sw_gc *gc, const sw_gc_type *type, uint32_t *id) {
    sw_status status = sw_handle_status(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_add_type");
    if (status == SW_OK) status = check_type(type);
    if (status != SW_OK) return status;
    if (id == NULL) return sw_fail_null("gc_add_type", "id");
    sw_os_lock_acquire(&gc->lock);
    status = add_type(gc, type, id);
    sw_os_lock_release(&gc->lock);
    return status;
}

static void set_finalizer(const sw_gc *gc, sw_gc_layout *layout, uint32_t type,
                          sw_gc_finalizer_fn finalizer, void *arg) {
    layout->finalizer = finalizer;
    layout->finalizer_arg = arg;
    layout->span_class = layout->bin_type = 0; /* no fast path: each object gets an entry */
    if (finalizer == NULL) find_class(gc->heap, type, layout);
}

sw_status sw_gc_set_type_finalizer(sw_gc *gc, uint32_t type, sw_gc_finalizer_fn finalizer,
                                   void *arg) {
    const char *op = "gc_set_type_finalizer";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (!sw_gc_has_type(gc, type)) return sw_fail(SW_INVALID, op, "no type has number %u", type);
    sw_os_lock_acquire(&gc->lock);
    sw_gc_layout *layout = &gc->layouts[type];
    bool refused = layout->has_type_allocators && finalizer != NULL && layout->finalizer == NULL;
    if (!refused) set_finalizer(gc, layout, type, finalizer, arg);
    sw_os_lock_release(&gc->lock);
    if (!refused) return SW_OK;
    return sw_fail(SW_STATE, op, "type %s has type allocators, which set no finalizers",
                   layout->name);
}

/* --- graphs ----------------------------------------------------------------------------------- */

enum { DEGREE_MAX = 64 };

/* Finds the first pointer words of the type's objects, `most` of them at most and within 64 words.
 * Returns how many there are. */
static uint32_t pointer_words(const sw_gc_layout *layout, uint32_t most, uint8_t *words) {
    uint32_t found = 0;
    uint64_t limit = layout->words < 64 ? layout->words : 64;
    for (uint32_t i = 0; layout->scan && i < limit && found < most; i++)
        if (sw_gc_is_pointer(layout, i)) words[found++] = (uint8_t)i;
    return found;
}

static sw_status check_edges(const uint32_t *edges, size_t nodes, uint32_t degree) {
    for (size_t i = 0; i < nodes * degree; i++)
        if (edges[i] >= nodes && edges[i] != SW_GC_NO_EDGE)
            return sw_fail(SW_INVALID, "gc_build",
                           "edge %zu of object %zu goes to %u of %zu objects", i % degree,
                           i / degree, edges[i], nodes);
    return SW_OK;
}

/* Allocates the objects, and counts their bytes for the pace. Does not start a due cycle, because
 * nothing refers to the objects yet; the next sw_gc_new does. */
static sw_status make_nodes(sw_gc *gc, uint32_t type, size_t nodes, void **addresses) {
    const sw_gc_layout *layout = sw_gc_layout_of(gc, type);
    unsigned flags = layout->scan ? SW_SCAN | type << SW_TYPE_SHIFT : 0;
    size_t made = 0;
    for (; made < nodes; made++) {
        addresses[made] = sw_heap_alloc(gc->heap, layout->bytes, flags);
        if (addresses[made] == NULL) break; /* the last error is set */
    }
    (void)__atomic_add_fetch(&gc->fresh, made * layout->bytes, __ATOMIC_RELAXED);
    return made == nodes ? SW_OK : SW_NOMEM;
}

sw_status sw_gc_build(sw_gc *gc, uint32_t type, uint32_t degree, size_t nodes,
                      const uint32_t *edges, void **addresses) {
    const char *op = "gc_build";
    uint8_t words[DEGREE_MAX];
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (!sw_gc_has_type(gc, type)) return sw_fail(SW_INVALID, op, "no type has number %u", type);
    if (nodes > SW_GC_NO_EDGE || degree > DEGREE_MAX ||
        pointer_words(sw_gc_layout_of(gc, type), degree, words) < degree)
        return sw_fail(SW_INVALID, op, "type %s has fewer than %u pointers in its first 64 words",
                       sw_gc_layout_of(gc, type)->name, degree);
    status = check_edges(edges, nodes, degree);
    if (status == SW_OK) status = make_nodes(gc, type, nodes, addresses);
    if (status != SW_OK) return status;
    for (size_t i = 0; i < nodes; i++)
        for (uint32_t e = 0; e < degree; e++) {
            uint32_t to = edges[i * degree + e];
            if (to != SW_GC_NO_EDGE) ((void **)addresses[i])[words[e]] = addresses[to];
        }
    return SW_OK;
}
