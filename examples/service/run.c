/* SPDX-License-Identifier: Apache-2.0 */
/* The main loop: arrivals, the path of a message, bins of latencies (service.h). */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "service/connection.h"
#include "service/memory.h"

/* The head of a message in a receive buffer; the payload follows. */
typedef struct wire {
    uint32_t length; /* of the payload */
    uint32_t from, to;
    uint32_t sequence;
} wire;

typedef struct packet_header {
    wire wire;
    uint64_t arrived_ns; /* the message's number, which is the same in every run */
    uint64_t flags;
} packet_header;

typedef struct message {
    packet_header *header;
    unsigned char *bytes;
    sw_service_connection *from, *to;
    uint64_t number;
    uint64_t routed, length, flags, priority;
} message;

_Static_assert(sizeof(packet_header) == 32 && sizeof(message) == 72, "types of the collector");

/* A message that the network delivers. */
typedef struct arrival {
    uint64_t number;
    uint64_t due_ns;    /* open loop: when */
    uint32_t reconnect; /* connection to replace before; NOBODY: none */
    wire head;
} arrival;

enum { NOBODY = -1 };

/* The server. Fields below `lock` are under it if several threads serve. */
typedef struct server {
    const sw_service_load *load;
    sw_service_connections connections;
    sw_service_memory memory;
    sw_service_result *result;
    unsigned char text[2 * SW_SERVICE_PAYLOAD_MAX]; /* payloads are pieces of it */
    pthread_mutex_t lock;
    uint64_t seed, gaps;
    uint64_t next; /* number of the next message */
    double due_ns; /* open loop: arrival of the last message */
    bool is_failed;
} server;

/* A thread that serves. */
typedef struct worker {
    server *server;
    sw_service_share share;
    sw_service_result result; /* its part of the counts */
    uint64_t *bins;           /* NULL: latencies are not measured */
    pthread_t thread;
} worker;

static uint64_t clock_ns(clockid_t clock) {
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* splitmix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators", 2014) */
static uint64_t draw(uint64_t *seed) {
    uint64_t z = (*seed += UINT64_C(0x9E3779B97F4A7C15));
    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
    return z ^ (z >> 31);
}

/* A number below `bound`; bound << 2^32. */
static uint32_t draw_below(uint64_t *seed, uint32_t bound) {
    return (uint32_t)(((draw(seed) >> 32) * bound) >> 32);
}

/* A number above 0 and at most 1. */
static double draw_share(uint64_t *seed) {
    return (double)((draw(seed) >> 11) + 1) / (double)(UINT64_C(1) << 53);
}

/* --- arrivals --------------------------------------------------------------------------------- */

/* Draw a message. Three of four payloads are uniform in 0 .. mean; the fourth is uniform in
 * mean / 2 .. mean / 2 + 4 * mean. So the average of all is the mean. */
static void draw_message(server *one, arrival *next) {
    const sw_service_load *load = one->load;
    uint32_t mean = load->payload_bytes, count = load->connections;
    bool is_replaced = load->churn != 0 && (next->number + 1) % load->churn == 0;
    next->reconnect = is_replaced ? draw_below(&one->seed, count) : (uint32_t)NOBODY;
    next->head = (wire){.sequence = (uint32_t)next->number};
    next->head.from = draw_below(&one->seed, count);
    next->head.to = draw_below(&one->seed, count);
    uint32_t size = draw_below(&one->seed, mean + 1);
    if (draw_below(&one->seed, 4) == 0) size = draw_below(&one->seed, 4 * mean + 1) + mean / 2;
    next->head.length = size < SW_SERVICE_PAYLOAD_MAX ? size : SW_SERVICE_PAYLOAD_MAX;
}

/* The next message of the queue. False: there is none, or a thread has failed. */
static bool next_arrival(server *one, arrival *next) {
    bool is_shared = one->load->threads > 1;
    if (is_shared) (void)pthread_mutex_lock(&one->lock);
    bool is_there = one->next < one->load->messages && !one->is_failed;
    if (is_there) {
        next->number = one->next++;
        draw_message(one, next);
        /* Gaps have their own seed, so that messages are the same in both loops. */
        if (one->load->rate > 0) one->due_ns -= log(draw_share(&one->gaps)) * 1e9 / one->load->rate;
        next->due_ns = (uint64_t)one->due_ns;
    }
    if (is_shared) (void)pthread_mutex_unlock(&one->lock);
    return is_there;
}

/* --- a message -------------------------------------------------------------------------------- */

static void *take(worker *one, sw_service_part part, uint64_t size) {
    one->result.allocs++;
    one->result.requested_bytes += size;
    return sw_service_take(&one->share, part, size);
}

/* Put a message into the receive buffer of its sender, as the network would. */
static void arrive(const server *one, sw_service_connection *from, const arrival *next) {
    memcpy(from->receive, &next->head, sizeof next->head);
    memcpy(from->receive + sizeof next->head, one->text + next->number % SW_SERVICE_PAYLOAD_MAX,
           next->head.length);
}

/* Allocate the header, the message and its bytes, and decode them. NULL: no memory. */
static message *decode(worker *one, const arrival *next) {
    uint32_t length = next->head.length;
    packet_header *header = take(one, SW_SERVICE_HEADER, sizeof *header);
    if (header == NULL) return NULL;
    message *made = take(one, SW_SERVICE_MESSAGE, sizeof *made);
    if (made == NULL) return NULL;
    unsigned char *bytes = take(one, SW_SERVICE_BYTES, length > 0 ? length : 1);
    if (bytes == NULL) return NULL;
    sw_service_connections *all = &one->server->connections;
    sw_service_connection *from = sw_service_lock(all, next->head.from);
    arrive(one->server, from, next);
    memcpy(&header->wire, from->receive, sizeof header->wire);
    memcpy(bytes, from->receive + sizeof header->wire, length);
    from->received_messages++;
    sw_service_unlock(all, next->head.from);
    header->arrived_ns = next->number;
    header->flags = length > SW_SERVICE_PAYLOAD_MAX / 2;
    *made = (message){.header = header, .bytes = bytes, .from = from, .length = length};
    made->number = next->number;
    return made;
}

/* Route the message, send the reply to the receiver, and its header to the sender. False: no
 * memory. */
static bool encode_and_reply(worker *one, message *made) {
    sw_service_connections *all = &one->server->connections;
    uint32_t size = (uint32_t)(sizeof(wire) + made->length);
    unsigned char *reply = take(one, SW_SERVICE_REPLY, size);
    if (reply == NULL) return false;
    memcpy(reply, &made->header->wire, sizeof(wire));
    memcpy(reply + sizeof(wire), made->bytes, made->length);
    uint32_t from = made->header->wire.from, to = made->header->wire.to;
    made->to = sw_service_lock(all, to);
    made->routed = made->to->number;
    made->priority = made->header->flags;
    one->result.checksum += sw_service_send(made->to, reply, size);
    sw_service_unlock(all, to);
    one->result.checksum -= sw_service_send(sw_service_lock(all, from), reply, sizeof(wire));
    sw_service_unlock(all, from);
    return true;
}

static bool serve(worker *one, const arrival *next) {
    if (next->reconnect != (uint32_t)NOBODY &&
        !sw_service_reconnect(&one->server->connections, next->reconnect))
        return false;
    message *made = decode(one, next);
    return made != NULL && encode_and_reply(one, made) && sw_service_served(&one->share);
}

/* --- bins of latencies: as in HdrHistogram (Tene) --------------------------------------------- */

enum { FIRST = 1 << SW_SERVICE_BIN_BITS };

/* Above FIRST, bins keep the highest SW_SERVICE_BIN_BITS + 1 bits of a latency. */
uint32_t sw_service_bin(uint64_t ns) {
    if (ns < FIRST) return (uint32_t)ns;
    uint32_t shift = 63 - (uint32_t)__builtin_clzll(ns) - SW_SERVICE_BIN_BITS;
    return shift * FIRST + (uint32_t)(ns >> shift);
}

uint64_t sw_service_bin_floor(uint32_t bin) {
    if (bin < FIRST) return bin;
    uint32_t shift = bin / FIRST - 1;
    return (uint64_t)(bin - shift * FIRST) << shift;
}

/* --- loops ------------------------------------------------------------------------------------ */

static bool run_closed(worker *one) {
    uint64_t before = one->bins == NULL ? 0 : clock_ns(CLOCK_MONOTONIC);
    for (arrival next; next_arrival(one->server, &next);) {
        if (!serve(one, &next)) return false;
        if (one->bins == NULL) continue;
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        one->bins[sw_service_bin(now - before)]++;
        before = now;
    }
    return true;
}

/* Spin until a message is due. A late one is served at once, and its latency includes the delay. */
static bool run_open(worker *one) {
    for (arrival next; next_arrival(one->server, &next);) {
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        for (; now < next.due_ns; now = clock_ns(CLOCK_MONOTONIC)) sw_service_wait(&one->share);
        if (!serve(one, &next)) return false;
        now = clock_ns(CLOCK_MONOTONIC);
        if (one->bins != NULL) one->bins[sw_service_bin(now - next.due_ns)]++;
    }
    return true;
}

static void *work(void *argument) {
    worker *one = argument;
    server *all = one->server;
    uint64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    bool is_done = sw_service_share_begin(&one->share, &all->memory) &&
                   (all->load->rate > 0 ? run_open(one) : run_closed(one));
    sw_service_share_end(&one->share);
    one->result.cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (is_done) return NULL;
    (void)pthread_mutex_lock(&all->lock);
    all->is_failed = true;
    (void)pthread_mutex_unlock(&all->lock);
    return NULL;
}

/* Resident bytes of the process; 0: unknown. */
static uint64_t resident_bytes(void) {
    unsigned long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL) return 0;
    if (fscanf(file, "%*u %llu", &pages) != 1) pages = 0;
    (void)fclose(file);
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Add a thread's counts and latencies. */
static void add_results(const worker *one, sw_service_result *result, uint64_t *bins) {
    result->cpu_ns += one->result.cpu_ns;
    result->allocs += one->result.allocs;
    result->requested_bytes += one->result.requested_bytes;
    result->checksum += one->result.checksum;
    for (uint32_t i = 0; bins != NULL && i < SW_SERVICE_BINS; i++) bins[i] += one->bins[i];
}

/* Serve with all threads; the calling thread is the first. */
static void run_workers(server *one, worker *workers, uint64_t *bins) {
    uint32_t started = 1, threads = one->load->threads;
    for (uint32_t i = 0; i < threads; i++) {
        workers[i].server = one;
        if (bins != NULL) workers[i].bins = calloc(SW_SERVICE_BINS, sizeof *bins);
        if (bins != NULL && workers[i].bins == NULL) one->is_failed = true;
    }
    one->due_ns = (double)clock_ns(CLOCK_MONOTONIC);
    for (; started < threads && !one->is_failed; started++)
        if (pthread_create(&workers[started].thread, NULL, work, &workers[started]) != 0) break;
    (void)work(&workers[0]);
    for (uint32_t i = 1; i < started; i++) (void)pthread_join(workers[i].thread, NULL);
    if (started < threads) one->is_failed = true;
    for (uint32_t i = 0; i < threads; i++) {
        if (!one->is_failed) add_results(&workers[i], one->result, bins);
        free(workers[i].bins);
    }
}

static bool run(server *one, uint64_t *bins) {
    worker *workers = calloc(one->load->threads, sizeof *workers);
    if (workers == NULL) return false;
    uint64_t elapsed = clock_ns(CLOCK_MONOTONIC);
    run_workers(one, workers, bins);
    free(workers);
    one->result->elapsed_ns = clock_ns(CLOCK_MONOTONIC) - elapsed;
    one->result->rss_bytes = resident_bytes();
    one->result->opened = one->connections.opened;
    return !one->is_failed;
}

static bool is_valid(const sw_service_load *load) {
    return load->strategy < SW_SERVICE_STRATEGY_COUNT && load->connections >= 1 &&
           load->messages >= 1 && load->batch >= 1 && load->payload_bytes >= 1 &&
           load->payload_bytes <= SW_SERVICE_PAYLOAD_MAX / 4 && load->rate >= 0 &&
           load->threads >= 1 && load->threads <= SW_SERVICE_THREADS_MAX;
}

sw_status sw_service_run(const sw_service_load *load, uint64_t *bins, sw_service_result *out) {
    if (!is_valid(load)) return SW_INVALID;
    sw_service_result result = {0};
    server one = {.load = load, .result = &result, .seed = load->seed};
    one.gaps = load->seed ^ UINT64_C(0xA5A5A5A5A5A5A5A5);
    (void)pthread_mutex_init(&one.lock, NULL);
    for (size_t i = 0; i < sizeof one.text; i++) one.text[i] = (unsigned char)(i * 7 + i / 251);
    if (bins != NULL) memset(bins, 0, SW_SERVICE_BINS * sizeof *bins);
    bool is_good =
        sw_service_connections_begin(&one.connections, load->connections, load->threads > 1) &&
        sw_service_memory_begin(&one.memory, load, one.connections.slabs, &result) &&
        run(&one, bins);
    sw_service_memory_end(&one.memory);
    sw_service_connections_end(&one.connections);
    (void)pthread_mutex_destroy(&one.lock);
    if (!is_good) return SW_NOMEM;
    *out = result;
    return SW_OK;
}
