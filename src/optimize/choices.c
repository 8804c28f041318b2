/* SPDX-License-Identifier: Apache-2.0 */
/* Lists the sizes and spans that the optimizer may choose from. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "optimize/optimizer.h"
#include "os/os.h"

/* --- checks ----------------------------------------------------------------------------------- */

const char *sw_choices_check(const sw_choices *choices) {
    return SW_RULE(choices->cost_count <= choices->choice_count)
               ?: SW_RULE(choices->waste_percent < 100)
               ?: SW_RULE(choices->candidates[0].weight == 0)
               ?: SW_RULE(choices->candidates[choices->count + 1].choice == choices->choice_count);
}

/* Returns the first broken rule, or NULL (base/base.h):
 *   1 <= count <= width, a power of two;  changes != NULL if change_count != 0 */
static const char *sw_hull_check(const sw_hull *hull) {
    return SW_RULE(hull->count >= 1)
               ?: SW_RULE(hull->count <= hull->width)
               ?: SW_RULE(sw_is_pow2(hull->width))
               ?: SW_RULE(hull->change_count == 0 || hull->changes != NULL);
}

/* --- the tree of lines ------------------------------------------------------------------------ */

void sw_hull_clear(sw_hull *hull) {
    sw_check2(sw_hull_check(hull));
    memset(hull->nodes, 0xFF, 2 * (size_t)hull->width * sizeof *hull->nodes);
    hull->change_count = 0;
}

static void set_node(sw_hull *hull, uint32_t node, int32_t line) {
    if (hull->changes != NULL)
        hull->changes[hull->change_count++] = (sw_hull_change){node, hull->nodes[node]};
    hull->nodes[node] = line;
}

void sw_hull_undo(sw_hull *hull, uint32_t change_count) {
    while (hull->change_count > change_count) {
        sw_hull_change change = hull->changes[--hull->change_count];
        hull->nodes[change.node] = change.line;
    }
}

/* Returns the x of a leaf. Leaves after the last x repeat it, so that x is non-decreasing. */
static double leaf_x(const sw_hull *hull, uint32_t leaf) {
    return hull->x[leaf < hull->count ? leaf : hull->count - 1];
}

void sw_hull_insert(sw_hull *hull, int32_t line) {
    uint32_t node = 1, first = 0, leaves = hull->width;
    for (;;) {
        int32_t held = hull->nodes[node];
        if (held == SW_HULL_NONE) {
            set_node(hull, node, line);
            return;
        }
        double middle = leaf_x(hull, first + leaves / 2);
        if (sw_hull_value(hull, line, middle) < sw_hull_value(hull, held, middle)) {
            set_node(hull, node, line);
            int32_t other = held;
            held = line;
            line = other;
        }
        if (leaves == 1) return;
        /* Two lines cross at most once. So the line that is higher in the middle can be the lower
         * one on one side only, and descends to the child of that side. */
        double left = leaf_x(hull, first), right = leaf_x(hull, first + leaves - 1);
        leaves /= 2;
        if (sw_hull_value(hull, line, left) < sw_hull_value(hull, held, left)) {
            node = 2 * node;
        } else if (sw_hull_value(hull, line, right) < sw_hull_value(hull, held, right)) {
            node = 2 * node + 1;
            first += leaves;
        } else {
            return;
        }
    }
}

int32_t sw_hull_lowest(const sw_hull *hull, uint32_t index) {
    double x = hull->x[index], lowest = 0;
    int32_t found = SW_HULL_NONE;
    for (uint32_t node = hull->width + index; node != 0; node /= 2) {
        int32_t line = hull->nodes[node];
        if (line == SW_HULL_NONE) continue;
        double value = sw_hull_value(hull, line, x);
        if (found == SW_HULL_NONE || value < lowest) {
            found = line;
            lowest = value;
        }
    }
    return found;
}

/* --- choices ---------------------------------------------------------------------------------- */

#define OP_OPTIMIZE "optimize"

enum { SIZE_UNIT = 8, PAGE_BYTES_MIN = 4096, PAGE_BYTES_MAX = 65536 };

/* --- checks ----------------------------------------------------------------------------------- */

static sw_status check_options(const sw_optimize_options *o) {
    if (o->struct_bytes != sizeof *o)
        return sw_fail(SW_INVALID, OP_OPTIMIZE, "struct_bytes %u: must be %zu", o->struct_bytes,
                       sizeof *o);
    if (o->classes == 0 || o->classes >= SW_TABLE_CLASSES_MAX)
        return sw_fail(SW_INVALID, OP_OPTIMIZE, "classes %u: must be 1 to %d", o->classes,
                       SW_TABLE_CLASSES_MAX - 1);
    if (o->align != SIZE_UNIT && o->align != 2 * SIZE_UNIT)
        return sw_fail(SW_INVALID, OP_OPTIMIZE, "align %u: must be 8 or 16", o->align);
    if (!sw_is_pow2(o->page_bytes) || o->page_bytes < PAGE_BYTES_MIN ||
        o->page_bytes > PAGE_BYTES_MAX)
        return sw_fail(SW_INVALID, OP_OPTIMIZE,
                       "page_bytes %u: must be a power of two from %d to %d", o->page_bytes,
                       PAGE_BYTES_MIN, PAGE_BYTES_MAX);
    if (o->max_bytes < o->align || o->max_bytes > SW_TABLE_SIZE_MAX || o->max_bytes % o->align != 0)
        return sw_fail(SW_INVALID, OP_OPTIMIZE,
                       "max_bytes %u: no class; must be a multiple of align %u up to %d",
                       o->max_bytes, o->align, SW_TABLE_SIZE_MAX);
    if ((uint64_t)o->pages_max * o->page_bytes < o->max_bytes)
        return sw_fail(
            SW_INVALID, OP_OPTIMIZE,
            "pages_max %u: a class of %u bytes needs %u pages of %u bytes; allow so many",
            o->pages_max, o->max_bytes, (uint32_t)sw_div_up(o->max_bytes, o->page_bytes),
            o->page_bytes);
    if (!(o->span_charge >= 0) || isinf(o->span_charge))
        return sw_fail(SW_INVALID, OP_OPTIMIZE, "span_charge %g: must be 0 or more",
                       o->span_charge);
    return SW_OK;
}

static sw_status check_weights(const sw_optimize_options *o, const double *weights) {
    double sum = 0;
    for (uint32_t size = 0; size <= o->max_bytes; size++) {
        if (!(weights[size] >= 0) || isinf(weights[size]))
            return sw_fail(SW_INVALID, OP_OPTIMIZE, "weight of size %u is %g: must be 0 or more",
                           size, weights[size]);
        sum += weights[size];
    }
    if (sum > 0 && !isinf(sum)) return SW_OK;
    if (sum > 0) return sw_fail(SW_INVALID, OP_OPTIMIZE, "the sum of the weights is too large");
    return sw_fail(SW_INVALID, OP_OPTIMIZE,
                   "no request of at most %u bytes: there is nothing to fit classes to",
                   o->max_bytes);
}

/* --- spans ------------------------------------------------------------------------------------ */

/* Lists the spans that may be the best for a size, shortest first: those that cost less per slot
 * than every shorter one. If spans have no charge, that is only the span with the minimum cost per
 * slot. out NULL: only counts them. */
static uint32_t list_spans(const sw_optimize_options *o, uint32_t size, sw_choice *out) {
    uint32_t found = 0;
    double least = INFINITY;
    uint64_t most = sw_min_u64((uint64_t)o->pages_max * o->page_bytes, SW_TABLE_SPAN_BYTES_MAX);
    uint64_t span = sw_align_up(size, o->page_bytes);
    for (; span <= most && span / size <= SW_TABLE_SLOTS_MAX; span += o->page_bytes) {
        uint64_t slots = span / size;
        double slot_cost = (double)span / (double)slots;
        if (slot_cost >= least) continue;
        least = slot_cost;
        if (found != 0 && o->span_charge == 0) found--;
        if (out != NULL)
            out[found] = (sw_choice){.slot_cost = slot_cost,
                                     .charge = o->span_charge * (double)span,
                                     .pages = (uint32_t)(span / o->page_bytes)};
        found++;
    }
    return found;
}

/* --- candidates ------------------------------------------------------------------------------- */

/* Returns the next larger size that a class may have. */
static uint32_t next_size(const sw_optimize_options *o, uint32_t size) {
    return size < o->align ? size + SIZE_UNIT : size + o->align;
}

/* Lists the sizes that a class may have. A larger slot never costs less than a smaller one. So only
 * requested sizes need a class, and the largest, which every table must have. Under a bound on
 * waste, all sizes are listed. Fills the arrays of `c`; if it has none yet, only counts. */
static void list_candidates(sw_choices *c, const sw_optimize_options *o, const double *weights) {
    bool writing = c->candidates != NULL, all = c->waste_percent != 0;
    double sum = weights[0], requested = 0;
    uint32_t below = 0;
    c->count = c->choice_count = 0;
    for (uint32_t size = SIZE_UNIT; size <= o->max_bytes; size = next_size(o, size)) {
        bool asked = below == 0 && weights[0] > 0;
        for (uint32_t n = below + 1; n <= size; n++) {
            asked |= weights[n] > 0;
            sum += weights[n];
            requested += weights[n] * n;
        }
        below = size;
        if (!asked && !all && size != o->max_bytes) continue;
        sw_choice *spans = writing ? &c->choices[c->choice_count] : NULL;
        uint32_t found = list_spans(o, size, spans);
        c->count++;
        if (writing)
            c->candidates[c->count] = (sw_candidate){
                .size = size, .choice = c->choice_count, .weight = sum, .requested = requested};
        c->choice_count += found;
    }
    if (writing) c->candidates[c->count + 1].choice = c->choice_count;
}

static int compare_costs(const void *left, const void *right) {
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Fills costs[] with the distinct slot costs, ascending, and sets x of each choice to its index. */
static void sort_costs(sw_choices *c) {
    for (uint32_t i = 0; i < c->choice_count; i++) c->costs[i] = c->choices[i].slot_cost;
    qsort(c->costs, c->choice_count, sizeof *c->costs, compare_costs);
    c->cost_count = 0;
    for (uint32_t i = 0; i < c->choice_count; i++) {
        if (i == 0 || c->costs[i] != c->costs[c->cost_count - 1])
            c->costs[c->cost_count++] = c->costs[i];
    }
    for (uint32_t i = 0; i < c->choice_count; i++) {
        const double *place = bsearch(&c->choices[i].slot_cost, c->costs, c->cost_count,
                                      sizeof *c->costs, compare_costs);
        c->choices[i].x = (uint32_t)(place - c->costs);
    }
}

bool sw_choices_fit(const sw_choices *choices, uint32_t below, uint32_t size) {
    uint32_t step = size <= choices->align ? SIZE_UNIT : choices->align;
    uint64_t waste = size - below - 1;
    return choices->waste_percent == 0 || size - below <= step ||
           waste * 100 <= (uint64_t)size * choices->waste_percent;
}

/* Returns the minimum number of classes that meets the bound on waste: each class is as far above
 * the last as the bound allows. */
static uint32_t count_fewest(const sw_choices *c) {
    uint32_t below = 0, classes = 0;
    while (below < c->count) {
        uint32_t next = below + 1;
        while (next < c->count &&
               sw_choices_fit(c, c->candidates[below].size, c->candidates[next + 1].size))
            next++;
        below = next;
        classes++;
    }
    return classes;
}

/* Checks that the allowed number of classes can meet the bound on waste. */
static sw_status check_bound(sw_choices *c, const sw_optimize_options *options) {
    c->fewest = c->waste_percent == 0 ? 1 : count_fewest(c);
    if (c->fewest <= options->classes) return SW_OK;
    sw_choices_drop(c);
    return sw_fail(SW_INVALID, OP_OPTIMIZE,
                   "waste_percent %u: takes at least %u classes up to %u bytes; allow so many, or "
                   "more waste",
                   c->waste_percent, c->fewest, options->max_bytes);
}

sw_status sw_choices_make(sw_choices *choices, const sw_optimize_options *options,
                          uint32_t waste_percent, const double *weights) {
    sw_status status = check_options(options);
    if (status == SW_OK) status = check_weights(options, weights);
    if (status != SW_OK) return status;
    if (waste_percent > 100)
        return sw_fail(SW_INVALID, OP_OPTIMIZE, "waste_percent %u: must be 0 to 100",
                       waste_percent);
    *choices = (sw_choices){.align = options->align, .waste_percent = waste_percent % 100};
    list_candidates(choices, options, weights);
    size_t candidates = ((size_t)choices->count + 2) * sizeof(sw_candidate);
    size_t spans = (size_t)choices->choice_count * sizeof(sw_choice);
    size_t costs = (size_t)choices->choice_count * sizeof(double);
    choices->block_bytes = sw_align_up(candidates + spans + costs, sw_os_page_bytes());
    choices->block = sw_os_map(choices->block_bytes);
    if (choices->block == NULL)
        return sw_fail(SW_NOMEM, OP_OPTIMIZE, "no memory for %zu bytes of sizes and spans",
                       choices->block_bytes);
    choices->candidates = choices->block;
    choices->choices = (sw_choice *)(choices->candidates + choices->count + 2);
    choices->costs = (double *)(choices->choices + choices->choice_count);
    list_candidates(choices, options, weights);
    sort_costs(choices);
    sw_check2(sw_choices_check(choices));
    return check_bound(choices, options);
}

void sw_choices_drop(sw_choices *choices) {
    if (choices->block != NULL) (void)sw_os_release(choices->block, choices->block_bytes);
    choices->block = NULL;
}

const sw_choice *sw_choices_best(const sw_choices *choices, uint32_t i, uint32_t j, double *cost) {
    const sw_candidate *candidate = &choices->candidates[j];
    double weight = candidate->weight - choices->candidates[i].weight;
    const sw_choice *best = NULL;
    for (uint32_t k = candidate->choice; k < candidate[1].choice; k++) {
        const sw_choice *choice = &choices->choices[k];
        double found = choice->slot_cost * weight + choice->charge;
        if (best != NULL && found >= *cost) continue;
        best = choice;
        *cost = found;
    }
    return best;
}
