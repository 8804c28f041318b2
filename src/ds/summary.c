/* SPDX-License-Identifier: Apache-2.0 */
/* Hierarchical bitmaps (summary.h). */
#include "ds/summary.h"

#include <stddef.h>

#include "base/base.h"

uint64_t sw_summary_words(uint64_t bound) {
    uint64_t words = 0;
    do {
        bound = sw_div_up(bound, 64);
        words += bound;
    } while (bound > 1);
    return words;
}

void sw_summary_init(sw_summary *summary, uint64_t *words, uint64_t bound) {
    *summary = (sw_summary){.levels = 0};
    do {
        bound = sw_div_up(bound, 64);
        summary->words[summary->levels++] = words;
        words += bound;
    } while (bound > 1);
}

uint64_t sw_summary_first(const sw_summary *summary) {
    sw_check2(sw_summary_check(summary));
    uint64_t number = 0;
    for (uint32_t level = summary->levels; level-- > 0;)
        number = number * 64 + sw_ctz(summary->words[level][number]);
    return number;
}

const char *sw_summary_check(const sw_summary *summary) {
    const char *broken =
        SW_RULE(summary->levels >= 1) ?: SW_RULE(summary->levels <= SW_SUMMARY_LEVELS_MAX);
    uint64_t number = 0; /* on each level, index of the word that leads to the lowest member */
    for (uint32_t level = summary->levels; broken == NULL && level-- > 0;) {
        uint64_t word = summary->words[level][number];
        if (word == 0) return SW_RULE(level == summary->levels - 1);
        number = number * 64 + sw_ctz(word);
    }
    return broken;
}
