/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the path that serves a request: a generated one in plain heaps with the table go or the
 * default table, else the generic one. */
#include "heap/paths.h"

#include "gen/paths.h"
#include "heap/default.h"

static const sw_paths *generated_paths(const sw_table *table) {
    if (!SW_SPECIALISED) return NULL;
    if (table == sw_table_go()) return &sw_paths_go;
    return table == sw_table_default() ? &SW_DEFAULT_PATHS : NULL;
}

const sw_paths *sw_paths_for(const sw_table *table, uint64_t mode) {
    return mode == 0 ? generated_paths(table) : NULL;
}

sw_path_fn *const *sw_paths_tiny(const sw_table *table) {
    const sw_paths *paths = generated_paths(table);
    return paths == NULL ? NULL : paths->tiny;
}

sw_path sw_heap_path(const sw_heap *heap, size_t size, unsigned flags) {
    if (!sw_heap_check(heap, "heap_path")) return SW_PATH_SPECIALISED;
    const sw_paths *paths = sw_paths_for(heap->table, heap->mode);
    if (size > heap->table->max_size) return SW_PATH_LARGE;
    if (paths != NULL && size <= paths->cutoff && (flags & SW_SCAN) != 0)
        return SW_PATH_SPECIALISED;
    bool tiny = (heap->mode & SW_MODE_TINY) != 0 && (flags & SW_SCAN) == 0 && size > 0 && size < 16;
    return tiny ? SW_PATH_TINY : SW_PATH_GENERIC;
}
