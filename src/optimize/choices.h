/* SPDX-License-Identifier: Apache-2.0 */
/* The choices of the optimizer: the sizes that a class may have, the weight of the requests that
 * each could serve, and the spans from which its slots may be cut. optimize.c creates and uses
 * them.
 *
 * A slot costs its share of the span including the tail: span bytes / slots of the span.
 */
#ifndef SW_OPTIMIZE_CHOICES_H
#define SW_OPTIMIZE_CHOICES_H

#include <stdbool.h>

#include "spanwise/optimize.h"

/* One span for slots of a size. */
typedef struct sw_choice {
    double slot_cost; /* span bytes / slots: bytes */
    double charge;    /* span_charge * span bytes */
    uint32_t pages;
    uint32_t x; /* index of slot_cost in sw_choices.costs */
} sw_choice;

/* A size that a class may have. */
typedef struct sw_candidate {
    uint32_t size;
    uint32_t choice;  /* its spans are choices[choice .. the next candidate's choice) */
    double weight;    /* of all requests of at most `size` bytes; non-decreasing */
    double requested; /* sum of weight * bytes over these requests */
} sw_candidate;

/* Written by sw_choices_make only.
 *   candidates[0].weight == 0;  candidates[count + 1].choice == choice_count
 *   cost_count <= choice_count;  waste_percent < 100;  1 <= fewest <= count */
typedef struct sw_choices {
    sw_candidate *candidates; /* [1..count] ascending; [0]: no class; [count + 1]: end of choices */
    uint32_t count;
    sw_choice *choices;
    uint32_t choice_count;
    double *costs; /* the distinct values of slot_cost, ascending */
    uint32_t cost_count;
    uint32_t align;         /* as in the options */
    uint32_t waste_percent; /* maximum waste of a class on its smallest request; 0: no bound */
    uint32_t fewest;        /* minimum number of classes that meets the bound */
    void *block;            /* one mapping for the three arrays */
    size_t block_bytes;
} sw_choices;

const char *sw_choices_check(const sw_choices *choices);

/* Checks options and weights, and lists the choices. Errors: those of
 * sw_optimizer_create_bounded. */
sw_status sw_choices_make(sw_choices *choices, const sw_optimize_options *options,
                          uint32_t waste_percent, const double *weights);
void sw_choices_drop(sw_choices *choices);

/* Returns whether the bound on waste allows a class of `size` after one of `below` bytes (0:
 * none). */
bool sw_choices_fit(const sw_choices *choices, uint32_t below, uint32_t size);

/* Returns the cheapest span for a class of candidate j that serves the requests above candidate i.
 * *cost is the total cost of that class. */
const sw_choice *sw_choices_best(const sw_choices *choices, uint32_t i, uint32_t j, double *cost);

#endif
