/* SPDX-License-Identifier: Apache-2.0 */
/* The rule that gives objects their ids, the same when a recording is written, merged and read: the
 * id that was freed last is taken first, else the next one that was never used. So the id of an
 * ALLOC need not be stored. Callers: writer, merge, decoder of OPS blocks, totals. */
#ifndef SW_TRACE_IDS_H
#define SW_TRACE_IDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/attributes.h"

/* One thread at a time has it.
 *   free_count <= next <= capacity, a multiple of 64;  live != NULL where capacity != 0 */
typedef struct swt_ids {
    uint32_t *free_ids; /* [free_count): freed, not taken again; the last is next */
    uint64_t *live;     /* a bit for each id below `next` */
    size_t free_count;
    size_t capacity; /* ids that both arrays can hold; a multiple of 64 */
    uint32_t next;   /* ids below it were given out; live + free_count == next */
} swt_ids;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *swt_ids_check(const swt_ids *ids);

/* Makes room for more ids; false when memory or ids run out. */
bool swt_ids_grow(swt_ids *ids);
void swt_ids_free(swt_ids *ids);
/* Forgets every id, keeps the memory. */
void swt_ids_reset(swt_ids *ids);

/* False: no memory. */
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

/* False: the id is not live. */
static sw_always_inline bool swt_ids_give(swt_ids *ids, uint32_t id) {
    if (sw_unlikely(!swt_ids_live(ids, id))) return false;
    ids->live[id >> 6] &= ~(1ull << (id & 63));
    ids->free_ids[ids->free_count++] = id;
    return true;
}

/* The reason that decoders return when memory ran out. Callers compare its address. */
extern const char swt_no_memory[];

/* Grows an array to at least `needed` items by doubling, new bytes zero; *capacity counts items.
 * False when there is no memory: the array is as it was. */
bool swt_grow(void *array_pointer, size_t *capacity, size_t needed, size_t item_bytes);

#endif
