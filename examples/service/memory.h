/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of the objects of a message, by strategy. */
#ifndef SW_SERVICE_MEMORY_H
#define SW_SERVICE_MEMORY_H

#include <stdbool.h>

#include "service/service.h"
#include <spanwise/arena.h>
#include <spanwise/gc.h>
#include <spanwise/pool.h>
#include <spanwise/slab.h>

/* The objects of a message, in the order of allocation. */
typedef enum sw_service_part {
    SW_SERVICE_HEADER,
    SW_SERVICE_MESSAGE,
    SW_SERVICE_BYTES,
    SW_SERVICE_REPLY,
    SW_SERVICE_PARTS
} sw_service_part;

enum {
    SW_SERVICE_POOLS = 6,
    SW_SERVICE_BLOCK = 1024, /* bytes of a block of `static`, enough for any object */
};

/* State of the strategy. The fields of other strategies are NULL or 0.
 *   parts[i] is a root of the collector */
typedef struct sw_service_memory {
    uint32_t strategy;
    uint32_t batch;  /* messages per arena */
    uint32_t served; /* messages of this batch so far */
    uint32_t safe;
    void *parts[SW_SERVICE_PARTS]; /* objects of the current message; NULL: not allocated */
    uint64_t sizes[SW_SERVICE_PARTS];
    sw_heap *heap;
    sw_gc *gc;
    uint32_t types[SW_SERVICE_PARTS]; /* of the collector */
    sw_arena *arena;
    sw_pool *pools[SW_SERVICE_POOLS];
    sw_slabs *slabs; /* shared with the connections */
    void *live;      /* in the collected heap: root of a list that is never freed */
    uint64_t cycles; /* number of the last cycle in the result */
    char (*blocks)[SW_SERVICE_BLOCK];
} sw_service_memory;

/* Create the heaps, pools or arenas of the strategy. False: no memory. */
bool sw_service_memory_begin(sw_service_memory *memory, const sw_service_load *load,
                             sw_slabs *slabs);
void sw_service_memory_end(sw_service_memory *memory);

/* Allocate an object of a message, not zeroed. NULL: no memory. */
void *sw_service_take(sw_service_memory *memory, sw_service_part part, uint64_t size);
/* Free the objects of a message that was served, or the arena of its batch. False: no memory for
 * the next arena. */
bool sw_service_served(sw_service_memory *memory, sw_service_result *result);

#endif
