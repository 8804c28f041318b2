/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped arrays that double; used by the runner and the model of pymalloc. */
#ifndef SW_SIMULATOR_GROWTH_H
#define SW_SIMULATOR_GROWTH_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "os/os.h"

/* Grows a mapped array until it has room for `index`; its contents stay, and the rest is zero. */
static inline bool sw_grow(void **array, size_t *capacity, size_t index, size_t item_bytes) {
    size_t wider = *capacity == 0 ? 4096 : *capacity;
    while (wider <= index) wider *= 2;
    void *fresh = sw_os_map(wider * item_bytes);
    if (fresh == NULL) return false;
    if (*array != NULL) {
        memcpy(fresh, *array, *capacity * item_bytes);
        (void)sw_os_release(*array, *capacity * item_bytes);
    }
    *array = fresh;
    *capacity = wider;
    return true;
}

#endif
