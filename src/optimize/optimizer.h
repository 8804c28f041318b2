/* SPDX-License-Identifier: Apache-2.0 */
/* The records of the optimizer. */
#ifndef SW_OPTIMIZE_OPTIMIZER_H
#define SW_OPTIMIZE_OPTIMIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/base.h"
#include "spanwise/optimize.h"

/* --- a tree of lines -------------------------------------------------------------------------- */

/* A Li Chao tree: lines y = a - b * x are added one by one, and a query returns the lowest line at
 * one of the given x. Lines and queries may come in any order. After C. Li, lecture on line
 * segment trees (Zhejiang, 2012); this tree is over the sorted x of all queries. It owns nothing:
 * the caller provides the arrays. */

enum { SW_HULL_NONE = -1 };

/* The previous line of a node that an added line changed, for undo. */
typedef struct sw_hull_change {
    uint32_t node;
    int32_t line;
} sw_hull_change;

typedef struct sw_hull {
    const double *x; /* count values, ascending */
    uint32_t count;  /* >= 1 */
    uint32_t width;  /* leaves of the tree; a power of two >= count */
    const double *a; /* a and b of each line */
    const double *b;
    int32_t *nodes;          /* 2 * width: the line of each node, or SW_HULL_NONE; the root is 1 */
    sw_hull_change *changes; /* at most log2(width) + 1 per line; NULL: lines are not undone */
    uint32_t change_count;
} sw_hull;

void sw_hull_clear(sw_hull *hull);
void sw_hull_insert(sw_hull *hull, int32_t line);
/* Removes the lines added since change_count had this value. Needs `changes`. */
void sw_hull_undo(sw_hull *hull, uint32_t change_count);

static sw_always_inline double sw_hull_value(const sw_hull *hull, int32_t line, double x) {
    return hull->a[line] - hull->b[line] * x;
}

/* Returns the lowest line at x[index]. SW_HULL_NONE: there is no line. */
int32_t sw_hull_lowest(const sw_hull *hull, uint32_t index);

/* --- choices ---------------------------------------------------------------------------------- */

/* The choices of the optimizer: the sizes that a class may have, the weight of the requests that
 * each could serve, and the spans from which its slots may be cut. optimize.c creates and uses
 * them.
 *
 * A slot costs its share of the span including the tail: span bytes / slots of the span. */

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

/* --- the optimizer ---------------------------------------------------------------------------- */

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

/* --- profiles --------------------------------------------------------------------------------- */

/* Used by one thread at a time.
 *   (capacity == 0) == (objects == NULL);  capacity is 0 or a power of two */
struct sw_profile {
    uint64_t mark; /* ds/handle.h */
    double weights[SW_PROFILE_SIZES];
    sw_profile_large large;
    uint64_t *objects; /* [id]: requested bytes + 1 of the live object; 0: there is none */
    size_t capacity;   /* number of ids that fit into `objects` */
    uint64_t peak_op;
    uint64_t ops; /* number of operations so far */
};

#endif
