/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a table, as table.h states them. See base/assert.h. */
#include "base/assert.h"
#include "base/bits.h"
#include "sizeclass/table.h"

const char *sw_class_check(const sw_class *cls, uint32_t page_shift) {
    uint64_t span_bytes = (uint64_t)cls->pages << page_shift;
    return SW_RULE(cls->size % 8 == 0 && cls->size != 0)
               ?: SW_RULE(cls->slots == span_bytes / cls->size)
               ?: SW_RULE(cls->slots >= 1)
               ?: SW_RULE(cls->first_pages != 0 && sw_class_has_pages(cls, cls->pages))
               ?: SW_RULE(sw_class_slots(cls, cls->first_pages, page_shift) >= 1);
}

const char *sw_table_record_check(const struct sw_table *table) {
    return SW_RULE(table->page_shift >= SW_FRAME_SHIFT)
               ?: SW_RULE(table->class_count >= 2)
               ?: SW_RULE(table->max_size == table->classes[table->class_count - 1].size)
               ?: SW_RULE(table->small_map[0] <= 1)
               ?: sw_class_check(&table->classes[table->class_count - 1], table->page_shift);
}
