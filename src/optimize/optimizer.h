/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an optimiser, which optimize.c makes; it does not change after that. */
#ifndef SW_OPTIMIZE_OPTIMIZER_H
#define SW_OPTIMIZE_OPTIMIZER_H

#include "optimize/choices.h"

/* 1 <= classes <= choices.count;  stride == choices.count + 1;  align >= 1;  page_bytes >= 1
 * choices.fewest <= classes
 * least and previous lie in the block, one behind the other;  and the rules of choices */
struct sw_optimizer {
    uint64_t mark; /* ds/handle.h */
    sw_choices choices;
    sw_optimize_options options; /* as given */
    uint32_t classes;   /* layers: those of the options, or as many as there are candidates */
    uint32_t stride;    /* candidates + 1: columns of a layer */
    uint32_t *previous; /* [k - 1][j]: candidate of the class below j; 0: none */
    double *least;      /* [k - 1]: least[k][last candidate] */
    void *block;        /* one mapping for the two */
    size_t block_bytes;
};

/* The rule that does not hold, or NULL (base/assert.h). */
const char *sw_optimizer_record_check(const struct sw_optimizer *optimizer);

#endif
