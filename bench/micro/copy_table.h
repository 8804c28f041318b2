/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of a table, made at run time; no specialised path serves it. */
#ifndef SPANWISE_BENCH_COPY_TABLE_H
#define SPANWISE_BENCH_COPY_TABLE_H

#include <spanwise/spanwise.h>

/* Returns the copy, which is never destroyed, or NULL with the reason in sw_last_error. */
static inline const sw_table *copy_table(const sw_table *table) {
    static sw_class_spec specs[SW_TABLE_CLASSES_MAX];
    uint32_t count = sw_table_class_count(table), page_bytes = sw_table_page_bytes(table);
    for (uint32_t cls = 1; cls <= count; cls++) {
        sw_class_info info;
        if (sw_table_class(table, cls, &info) != SW_OK) return NULL;
        specs[cls - 1].size_bytes = info.size_bytes;
        specs[cls - 1].pages = info.span_bytes / page_bytes;
        specs[cls - 1].first_pages = info.first_span_bytes / page_bytes;
    }
    sw_table *copy;
    return sw_table_create("copy", page_bytes, specs, count, &copy) == SW_OK ? copy : NULL;
}

#endif
