/* SPDX-License-Identifier: Apache-2.0 */
/* The main loop: arrivals, the path of a message, bins of latencies (service.h). */
#include <math.h>
#include <stdio.h>
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

typedef struct server {
    const sw_service_load *load;
    sw_service_connections connections;
    sw_service_memory memory;
    sw_service_result *result;
    uint64_t seed;
    unsigned char text[2 * SW_SERVICE_PAYLOAD_MAX]; /* payloads are pieces of it */
} server;

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

/* --- a message -------------------------------------------------------------------------------- */

/* Act as the network: put a message into the receive buffer of its sender. Three of four payloads
 * are uniform in 0 .. mean; the fourth is uniform in mean / 2 .. mean / 2 + 4 * mean. So the
 * average of all is the mean. */
static sw_service_connection *arrive(server *one, uint64_t number) {
    uint32_t mean = one->load->payload_bytes, count = one->connections.count;
    wire head = {.sequence = (uint32_t)number};
    head.from = draw_below(&one->seed, count);
    head.to = draw_below(&one->seed, count);
    uint32_t size = draw_below(&one->seed, mean + 1);
    if (draw_below(&one->seed, 4) == 0) size = draw_below(&one->seed, 4 * mean + 1) + mean / 2;
    head.length = size < SW_SERVICE_PAYLOAD_MAX ? size : SW_SERVICE_PAYLOAD_MAX;
    sw_service_connection *from = one->connections.open[head.from];
    memcpy(from->receive, &head, sizeof head);
    memcpy(from->receive + sizeof head, one->text + number % SW_SERVICE_PAYLOAD_MAX, head.length);
    return from;
}

static void *take(server *one, sw_service_part part, uint64_t size) {
    one->result->allocs++;
    one->result->requested_bytes += size;
    return sw_service_take(&one->memory, part, size);
}

/* Allocate the header, the message and its bytes. NULL: no memory. */
static message *decode(server *one, sw_service_connection *from, uint64_t number) {
    packet_header *header = take(one, SW_SERVICE_HEADER, sizeof *header);
    if (header == NULL) return NULL;
    memcpy(&header->wire, from->receive, sizeof header->wire);
    header->arrived_ns = number;
    header->flags = header->wire.length > SW_SERVICE_PAYLOAD_MAX / 2;
    message *made = take(one, SW_SERVICE_MESSAGE, sizeof *made);
    if (made == NULL) return NULL;
    uint32_t length = header->wire.length;
    unsigned char *bytes = take(one, SW_SERVICE_BYTES, length > 0 ? length : 1);
    if (bytes == NULL) return NULL;
    memcpy(bytes, from->receive + sizeof header->wire, length);
    *made = (message){.header = header, .bytes = bytes, .from = from, .length = length};
    made->number = number;
    from->received_messages++;
    return made;
}

static void route(const server *one, message *routed) {
    routed->to = one->connections.open[routed->header->wire.to];
    routed->routed = routed->to->number;
    routed->priority = routed->header->flags;
}

/* Send the reply to the receiver, and its header to the sender. False: no memory. */
static bool encode_and_reply(server *one, const message *routed) {
    uint32_t size = (uint32_t)(sizeof(wire) + routed->length);
    unsigned char *reply = take(one, SW_SERVICE_REPLY, size);
    if (reply == NULL) return false;
    memcpy(reply, &routed->header->wire, sizeof(wire));
    memcpy(reply + sizeof(wire), routed->bytes, routed->length);
    one->result->checksum += sw_service_send(routed->to, reply, size);
    one->result->checksum ^= sw_service_send(routed->from, reply, sizeof(wire));
    return true;
}

static bool serve(server *one, uint64_t number) {
    uint32_t churn = one->load->churn;
    if (churn != 0 && (number + 1) % churn == 0 &&
        !sw_service_reconnect(&one->connections, draw_below(&one->seed, one->connections.count)))
        return false;
    message *made = decode(one, arrive(one, number), number);
    if (made == NULL) return false;
    route(one, made);
    return encode_and_reply(one, made) && sw_service_served(&one->memory, one->result);
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

static bool run_closed(server *one, uint64_t *bins) {
    uint64_t before = bins == NULL ? 0 : clock_ns(CLOCK_MONOTONIC);
    for (uint64_t i = 0; i < one->load->messages; i++) {
        if (!serve(one, i)) return false;
        if (bins == NULL) continue;
        uint64_t now = clock_ns(CLOCK_MONOTONIC);
        bins[sw_service_bin(now - before)]++;
        before = now;
    }
    return true;
}

/* Spin until a message is due. A late one is served at once, and its latency includes the delay. */
static bool run_open(server *one, uint64_t *bins) {
    double gap_ns = 1e9 / one->load->rate, due_ns = (double)clock_ns(CLOCK_MONOTONIC);
    /* Gaps have their own seed, so that messages are the same in both loops. */
    uint64_t gaps = one->seed ^ UINT64_C(0xA5A5A5A5A5A5A5A5);
    for (uint64_t i = 0; i < one->load->messages; i++) {
        due_ns += -log(draw_share(&gaps)) * gap_ns;
        uint64_t due = (uint64_t)due_ns, now = clock_ns(CLOCK_MONOTONIC);
        while (now < due) now = clock_ns(CLOCK_MONOTONIC);
        if (!serve(one, i)) return false;
        now = clock_ns(CLOCK_MONOTONIC);
        if (bins != NULL) bins[sw_service_bin(now - due)]++;
    }
    return true;
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

static bool run(server *one, uint64_t *bins) {
    uint64_t elapsed = clock_ns(CLOCK_MONOTONIC), cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
    bool is_done = one->load->rate > 0 ? run_open(one, bins) : run_closed(one, bins);
    one->result->cpu_ns = clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu;
    one->result->elapsed_ns = clock_ns(CLOCK_MONOTONIC) - elapsed;
    one->result->rss_bytes = resident_bytes();
    one->result->opened = one->connections.opened;
    return is_done;
}

static bool is_valid(const sw_service_load *load) {
    return load->strategy < SW_SERVICE_STRATEGY_COUNT && load->connections >= 1 &&
           load->messages >= 1 && load->batch >= 1 && load->payload_bytes >= 1 &&
           load->payload_bytes <= SW_SERVICE_PAYLOAD_MAX / 4 && load->rate >= 0;
}

sw_status sw_service_run(const sw_service_load *load, uint64_t *bins, sw_service_result *out) {
    if (!is_valid(load)) return SW_INVALID;
    sw_service_result result = {0};
    server one = {.load = load, .result = &result, .seed = load->seed};
    for (size_t i = 0; i < sizeof one.text; i++) one.text[i] = (unsigned char)(i * 7 + i / 251);
    if (bins != NULL) memset(bins, 0, SW_SERVICE_BINS * sizeof *bins);
    bool is_good = sw_service_connections_begin(&one.connections, load->connections) &&
                   sw_service_memory_begin(&one.memory, load, one.connections.slabs) &&
                   run(&one, bins);
    sw_service_memory_end(&one.memory);
    sw_service_connections_end(&one.connections);
    if (!is_good) return SW_NOMEM;
    *out = result;
    return SW_OK;
}
