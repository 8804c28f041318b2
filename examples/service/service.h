/* SPDX-License-Identifier: Apache-2.0 */
/* An instant-messaging server as a load: long-lived connections and short-lived messages. The
 * Python extension (spanwise.lessons.service) contains it so that no Python loop is measured; the
 * library does not.
 *
 * A connection has a state, a receive buffer and a send buffer, all in tiered slabs. A message
 * arrives in the receive buffer of its sender. It is decoded into a packet header, a message and
 * its bytes, routed to the receiver, encoded into a reply, and copied into send buffers. The
 * *strategy* says where these four objects come from; they are freed when the message, or its
 * batch, is served.
 *
 * Messages wait in one queue for the serving threads. With several threads the heap, the collected
 * heap, pools and slabs are shared, each thread has its own arenas and static blocks, and each
 * connection has a lock; nothing is allocated while it is held.
 *
 * Closed loop: the next message arrives when a thread is free. Open loop: arrival times
 * do not depend on the server (exponential gaps), and a latency counts from the intended arrival,
 * which avoids coordinated omission (Tene, "How NOT to Measure Latency", 2013). Design:
 * docs/design/service.md.
 */
#ifndef SW_SERVICE_SERVICE_H
#define SW_SERVICE_SERVICE_H

#include <stdint.h>

#include <spanwise/heap.h>

/* X(name): where the objects of a message come from; in the order of STRATEGIES in
 * python/spanwise/lessons/service.py.
 *   static       the same four blocks for each message: the cost without allocation
 *   heap         a heap; each object is freed
 *   collected    a collected heap
 *   pool         pools of items of a few sizes
 *   arena        one arena for each message
 *   batch        one arena for each batch of messages
 *   slab         tiered slabs
 *   arena_pool   an arena for each batch for header and message, pools for bytes and reply */
#define SW_SERVICE_STRATEGIES(X)                                                                   \
    X(static)                                                                                      \
    X(heap)                                                                                        \
    X(collected)                                                                                   \
    X(pool)                                                                                        \
    X(arena)                                                                                       \
    X(batch)                                                                                       \
    X(slab)                                                                                        \
    X(arena_pool)

#define SW_SERVICE_STRATEGY_ENUM(name) SW_SERVICE_##name,
typedef enum sw_service_strategy {
    SW_SERVICE_STRATEGIES(SW_SERVICE_STRATEGY_ENUM) SW_SERVICE_STRATEGY_COUNT
} sw_service_strategy;

enum {
    SW_SERVICE_PAYLOAD_MAX = 960, /* bytes */
    SW_SERVICE_THREADS_MAX = 64,
    SW_SERVICE_BIN_BITS = 7,
    SW_SERVICE_BINS = (64 - SW_SERVICE_BIN_BITS + 1) << SW_SERVICE_BIN_BITS,
};

typedef struct sw_service_load {
    uint32_t strategy;
    uint32_t connections; /* 1 or more */
    uint64_t messages;    /* 1 or more */
    uint32_t batch; /* messages in an arena of the strategies batch and arena_pool; 1 or more */
    /* Mean of the drawn payloads, 1 .. 240; a draw has 0 .. SW_SERVICE_PAYLOAD_MAX bytes. */
    uint32_t payload_bytes;
    uint32_t churn;   /* messages after which one connection closes and another opens; 0: never */
    uint32_t percent; /* as in sw_gc_pace */
    uint64_t live_bytes; /* of a list in the collected heap that stays live */
    double rate;         /* messages per second, open loop; 0: closed loop */
    uint32_t safe;       /* 1: arenas in safe mode */
    uint32_t seed;
    uint32_t threads; /* that serve, 1 .. SW_SERVICE_THREADS_MAX */
} sw_service_load;

/* The result of a load. */
typedef struct sw_service_result {
    uint64_t elapsed_ns;
    uint64_t cpu_ns; /* processor time of the threads, including the waits of an open loop */
    uint64_t allocs; /* objects of messages */
    uint64_t requested_bytes; /* their sizes */
    uint64_t opened;          /* connections, including the initial ones */
    uint64_t collections;
    uint64_t pause_ns;         /* of all collections */
    uint64_t longest_pause_ns; /* of one */
    uint64_t scanned_bytes;    /* live bytes that the collections marked */
    uint64_t rss_bytes;        /* of the process after the last message; 0: unknown */
    uint64_t checksum; /* of all replies: the same for every strategy and number of threads */
} sw_service_result;

/* Serve a load. bins[0 .. SW_SERVICE_BINS), or NULL: receives the number of latencies in each bin;
 * in a closed loop these are the times from one reply to the next. With NULL a closed loop reads no
 * clock per message. Errors: SW_INVALID for a load outside these limits; SW_NOMEM. */
sw_status sw_service_run(const sw_service_load *load, uint64_t *bins, sw_service_result *out);

/* The bin of a latency, and the lowest latency of a bin. Bins are as wide as HdrHistogram's with
 * two significant digits: exact below 2^SW_SERVICE_BIN_BITS, then within 1/128 of the latency. */
uint32_t sw_service_bin(uint64_t ns);
uint64_t sw_service_bin_floor(uint32_t bin);

#endif
