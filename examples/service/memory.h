/* SPDX-License-Identifier: Apache-2.0 */
/* Allocation of the objects of a message, by strategy. */
#ifndef SW_SERVICE_MEMORY_H
#define SW_SERVICE_MEMORY_H

#include <pthread.h>
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

/* The memory that all serving threads share. The fields of other strategies are NULL or 0. */
typedef struct sw_service_memory {
    uint32_t strategy;
    uint32_t batch; /* messages per arena */
    uint32_t safe;
    sw_heap *heap;
    sw_gc *gc;
    uint32_t types[SW_SERVICE_PARTS]; /* of the collector */
    sw_pool *pools[SW_SERVICE_POOLS];
    sw_slabs *slabs; /* shared with the connections */
    void *live;      /* in the collected heap: root of a list that is never freed */
    pthread_mutex_t lock;
    uint64_t cycles;         /* under the lock: number of the last cycle in `seen` */
    sw_service_result *seen; /* under the lock: the sums of cycles */
} sw_service_memory;

/* The memory of one serving thread.
 *   parts[i] is a root of the collector */
typedef struct sw_service_share {
    sw_service_memory *memory;
    uint32_t served;               /* messages of this batch so far */
    void *parts[SW_SERVICE_PARTS]; /* objects of the current message; NULL: not allocated */
    uint64_t sizes[SW_SERVICE_PARTS];
    sw_arena *arena;
    char (*blocks)[SW_SERVICE_BLOCK];
    uint32_t root; /* of parts */
} sw_service_share;

/* Create the heap, pools or collector of the strategy. seen receives the collector's cycles. False:
 * no memory; call sw_service_memory_end nevertheless. */
bool sw_service_memory_begin(sw_service_memory *memory, const sw_service_load *load,
                             sw_slabs *slabs, sw_service_result *seen);
void sw_service_memory_end(sw_service_memory *memory);

/* Begin and end in the serving thread. False: no memory; call sw_service_share_end nevertheless. */
bool sw_service_share_begin(sw_service_share *share, sw_service_memory *memory);
void sw_service_share_end(sw_service_share *share);

/* Wait while another thread collects. */
void sw_service_wait(const sw_service_share *share);
/* Allocate an object of a message, not zeroed. NULL: no memory. */
void *sw_service_take(sw_service_share *share, sw_service_part part, uint64_t size);
/* Free the objects of a message that was served, or the arena of its batch. False: no memory for
 * the next arena. */
bool sw_service_served(sw_service_share *share);

#endif
