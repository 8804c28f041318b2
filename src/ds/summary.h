/* SPDX-License-Identifier: Apache-2.0 */
/* A set of numbers below a bound, as a hierarchical bitmap: a bit of a higher level is set iff its
 * word of 64 bits on the level below is not 0. The lowest member is found by reading one word per
 * level; the number of levels is log64 of the bound. Callers: buddies of ranges, tiers of slabs.
 */
#ifndef SW_DS_SUMMARY_H
#define SW_DS_SUMMARY_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

enum { SW_SUMMARY_LEVELS_MAX = 11 };

/* levels >= 1; the highest level is one word
 *   a bit above the lowest level is set iff its word below is not 0 */
typedef struct sw_summary {
    uint64_t *words[SW_SUMMARY_LEVELS_MAX]; /* [0] has a bit per number, set for members */
    uint32_t levels;
} sw_summary;

/* Returns the number of words for a set of numbers below `bound`, bound >= 1. */
uint64_t sw_summary_words(uint64_t bound);
/* Initialises an empty set in sw_summary_words(bound) words, which must be 0. */
void sw_summary_init(sw_summary *summary, uint64_t *words, uint64_t bound);
/* Returns the lowest member; the set must not be empty. */
uint64_t sw_summary_first(const sw_summary *summary);

static inline bool sw_summary_is_empty(const sw_summary *summary) {
    return summary->words[summary->levels - 1][0] == 0;
}

/* Adds a number, which must not be a member. */
static inline void sw_summary_add(sw_summary *summary, uint64_t number) {
    for (uint32_t level = 0; level < summary->levels; level++, number /= 64) {
        uint64_t *word = &summary->words[level][number / 64];
        uint64_t before = *word;
        *word |= UINT64_C(1) << number % 64;
        if (before != 0) return;
    }
}

static inline void sw_summary_remove(sw_summary *summary, uint64_t number) {
    for (uint32_t level = 0; level < summary->levels; level++, number /= 64) {
        uint64_t *word = &summary->words[level][number / 64];
        *word &= ~(UINT64_C(1) << number % 64);
        if (*word != 0) return;
    }
}

const char *sw_summary_check(const sw_summary *summary);

#endif
