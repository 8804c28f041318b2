/* SPDX-License-Identifier: Apache-2.0 */
/* Bins of latencies (service.h): 2^SW_SERVICE_BIN_BITS of equal width for each power of two, as in
 * HdrHistogram (Tene). */
#include "service/service.h"

enum { FIRST = 1 << SW_SERVICE_BIN_BITS };

/* Above FIRST a latency keeps its highest SW_SERVICE_BIN_BITS + 1 bits. */
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
