/* SPDX-License-Identifier: Apache-2.0 */
/* Growth of the pool of ids and of the reader's other arrays. */
#include "trace/ids.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"

const char swt_no_memory[] = "out of memory";

bool swt_grow(void *array_pointer, size_t *capacity, size_t needed, size_t item_bytes) {
    if (needed <= *capacity) return true;
    size_t wanted = *capacity < 64 ? 64 : *capacity;
    while (wanted < needed) {
        if (wanted > SIZE_MAX / 2) return false;
        wanted *= 2;
    }
    if (wanted > SIZE_MAX / item_bytes) return false;
    void *old;
    memcpy(&old, array_pointer, sizeof old); /* bytes, because the pointer may have any type */
    char *grown = realloc(old, wanted * item_bytes);
    if (grown == NULL) return false;
    memset(grown + *capacity * item_bytes, 0, (wanted - *capacity) * item_bytes);
    memcpy(array_pointer, &grown, sizeof grown);
    *capacity = wanted;
    return true;
}

bool swt_ids_grow(swt_ids *ids) {
    sw_check2(swt_ids_check(ids));
    if (ids->capacity > UINT32_MAX / 2) return false;
    size_t ids_capacity = ids->capacity, word_capacity = ids->capacity / 64;
    size_t wanted = ids->capacity == 0 ? 4096 : ids->capacity * 2;
    if (!swt_grow(&ids->live, &word_capacity, wanted / 64, sizeof *ids->live)) return false;
    if (!swt_grow(&ids->free_ids, &ids_capacity, wanted, sizeof *ids->free_ids)) return false;
    ids->capacity = wanted;
    return true;
}

void swt_ids_free(swt_ids *ids) {
    free(ids->free_ids);
    free(ids->live);
    *ids = (swt_ids){0};
}
