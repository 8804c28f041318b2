/* SPDX-License-Identifier: Apache-2.0 */
/* The record of an optimizer. optimize.c creates it; after that it is constant. */
#ifndef SW_OPTIMIZE_OPTIMIZER_H
#define SW_OPTIMIZE_OPTIMIZER_H

#include "optimize/choices.h"

/* 1 <= classes <= choices.count;  stride == choices.count + 1;  align >= 1;  page_bytes >= 1
 *   1 <= choices.fewest <= classes
 *   least is at the start of the block, previous follows it;  and the rules of choices */
struct sw_optimizer {
    uint64_t mark; /* ds/handle.h */
    sw_choices choices;
    sw_optimize_options options; /* as the caller passed them */
    uint32_t classes;            /* number of layers: min(options.classes, candidates) */
    uint32_t stride;             /* candidates + 1: columns of a layer */
    uint32_t *previous; /* [k - 1][j]: candidate below j in the best table of k classes; 0: none */
    double *least;      /* [k - 1]: minimum cost of all requests with k classes */
    void *block;        /* one mapping for the two arrays */
    size_t block_bytes;
};

const char *sw_optimizer_record_check(const struct sw_optimizer *optimizer);

#endif
