/* SPDX-License-Identifier: Apache-2.0 */
/* The rule for object ids: the id freed last is reused first; if none is free, the next unused one
 * is taken. The rule is the same when a recording is written, merged and read, so the id of an
 * ALLOC need not be stored. Callers: writer, merge, decoder of OPS blocks, totals. */
#ifndef SW_TRACE_IDS_H
#define SW_TRACE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"

/* Used by one thread at a time.
 *   free_count <= next <= capacity, a multiple of 64;  live != NULL if capacity != 0 */
typedef struct swt_ids {
    uint32_t *free_ids; /* [free_count]: freed ids; the last one is reused next */
    uint64_t *live;     /* a bit per id below `next`: 1: live */
    size_t free_count;
    size_t capacity; /* ids that both arrays can hold; a multiple of 64 */
    uint32_t next;   /* ids below it were used: number of live ids + free_count == next */
} swt_ids;

const char *swt_ids_check(const swt_ids *ids);

/* Makes room for more ids. False: no memory, or no more 32-bit ids. */
bool swt_ids_grow(swt_ids *ids);
void swt_ids_free(swt_ids *ids);

/* Takes an id. False: no memory. */
static sw_always_inline bool swt_ids_take(swt_ids *ids, uint32_t *id) {
    if (ids->free_count != 0) {
        *id = ids->free_ids[--ids->free_count];
    } else {
        if (sw_unlikely(ids->next == ids->capacity) && !swt_ids_grow(ids)) return false;
        *id = ids->next++;
    }
    ids->live[*id >> 6] |= 1ull << (*id & 63);
    return true;
}

static sw_always_inline bool swt_ids_live(const swt_ids *ids, uint64_t id) {
    return id < ids->next && (ids->live[id >> 6] >> (id & 63) & 1) != 0;
}

/* Frees an id. False: the id is not live. */
static sw_always_inline bool swt_ids_give(swt_ids *ids, uint32_t id) {
    if (sw_unlikely(!swt_ids_live(ids, id))) return false;
    ids->live[id >> 6] &= ~(1ull << (id & 63));
    ids->free_ids[ids->free_count++] = id;
    return true;
}

/* The result of decoders if there is no memory. Callers compare its address. */
extern const char swt_no_memory[];

/* Grows an array by doubling until it has room for `needed` items; new bytes are zero. *capacity is
 * in items. False: no memory, and the array is as it was. */
bool swt_grow(void *array_pointer, size_t *capacity, size_t needed, size_t item_bytes);

#endif
