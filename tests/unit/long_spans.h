/* SPDX-License-Identifier: Apache-2.0 */
/* c16 with spans that do not grow: all are as long as its longest. For tests that say how many slots
 * a span has. */
#ifndef SPANWISE_TEST_LONG_SPANS_H
#define SPANWISE_TEST_LONG_SPANS_H

#include "check.h"
#include "sizeclass/table.h"

/* Made at the first call; it lives as long as the test. */
static inline const sw_table *long_spans(void) {
    static sw_table *made;
    if (made != NULL) return made;
    const sw_table *c16 = sw_table_c16();
    static sw_class_spec specs[SW_TABLE_CLASSES_MAX];
    for (uint32_t cls = 1; cls < c16->class_count; cls++)
        specs[cls - 1] = (sw_class_spec){c16->classes[cls].size, c16->classes[cls].pages, 0};
    CHECK_EQ(sw_table_create("long", 1u << c16->page_shift, specs, c16->class_count - 1, &made),
             SW_OK);
    return made;
}

#endif
