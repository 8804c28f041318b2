/* SPDX-License-Identifier: Apache-2.0 */
/* Computes the best tables of 1 .. N classes, by dynamic programming over the sizes that a class
 * may have.
 *
 * least[k][j] is the minimum cost of serving all requests up to candidate j by k classes, the last
 * of which is j. Let W be the cumulative weights, and let the span of j have slot cost g and charge
 * h:
 *
 *   least[k][j] = min over i < j, spans of j: least[k-1][i] + g * (W[j] - W[i]) + h
 *               = min over spans of j: (lowest at x = g of the lines least[k-1][i] - W[i] * x)
 *                                      + g * W[j] + h
 *
 * So a layer k is computed by one walk over j that queries a Li Chao tree and then adds line j, in
 * n log n steps. (Methods that need g to be convex in the size do not apply, because of tails.)
 * Under a bound on waste, i has a lower limit that rises with j, so lines leave in the order in
 * which they were added. That is a queue made of two stacks. One only gains lines. The other only
 * loses them: its lines were added from the last to the first, and their changes are undone one by
 * one. Each line is added at most twice. Design: docs/design/optimize.md.
 */
#include "optimize/optimizer.h"

#include <math.h>
#include <string.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"

static const char *sw_optimizer_record_check(const struct sw_optimizer *optimizer) {
    return SW_RULE(optimizer->classes >= 1)
               ?: SW_RULE(optimizer->classes <= optimizer->choices.count)
               ?: SW_RULE(optimizer->choices.fewest >= 1)
               ?: SW_RULE(optimizer->choices.fewest <= optimizer->classes)
               ?: SW_RULE(optimizer->stride == optimizer->choices.count + 1)
               ?: SW_RULE(optimizer->options.align >= 1)
               ?: SW_RULE(optimizer->options.page_bytes >= 1)
               ?: SW_RULE(optimizer->least == optimizer->block)
               ?: SW_RULE(optimizer->previous ==
                          (const uint32_t *)(optimizer->least + optimizer->classes))
               ?: sw_choices_check(&optimizer->choices);
}

#define OP_OPTIMIZE "optimize"

/* Arrays for the computation of all layers, in one mapping that is released at the end. */
typedef struct workspace {
    double *above;   /* least[k - 1][j] */
    double *now;     /* least[k][j] */
    double *weights; /* W[j] */
    sw_hull hull;    /* all lines; under a bound on waste, those from `middle` on */
    sw_hull front;   /* under a bound: the usable lines below `middle`, the lowest added last */
    uint32_t middle;
    uint32_t *marks; /* under a bound: change_count of `front` before line i was added */
    void *block;
    size_t block_bytes;
} workspace;

void sw_optimize_options_init(sw_optimize_options *options) {
    if (options == NULL) return;
    *options = (sw_optimize_options){
        .struct_bytes = sizeof *options,
        .classes = 24,
        .align = 16,
        .page_bytes = 8192,
        .pages_max = 10,
        .max_bytes = 32768,
    };
}

/* --- layers ----------------------------------------------------------------------------------- */

/* Maps the arrays. False: no memory. */
static bool open_workspace(workspace *w, const sw_choices *choices) {
    size_t columns = (size_t)choices->count + 1;
    uint32_t width = 1u << sw_log2_ceil(choices->cost_count);
    size_t nodes = 2 * (size_t)width, changes = 0;
    if (choices->waste_percent != 0) changes = columns * (sw_log2_ceil(choices->cost_count) + 1);
    size_t bytes = 3 * columns * sizeof(double) + 2 * nodes * sizeof(int32_t) +
                   changes * sizeof(sw_hull_change) + columns * sizeof(uint32_t);
    w->block_bytes = sw_align_up(bytes, sw_os_page_bytes());
    w->block = sw_os_map(w->block_bytes);
    if (w->block == NULL) return false;
    w->above = w->block;
    w->now = w->above + columns;
    w->weights = w->now + columns;
    for (size_t j = 0; j < columns; j++) w->weights[j] = choices->candidates[j].weight;
    w->hull = (sw_hull){
        .x = choices->costs,
        .count = choices->cost_count,
        .width = width,
        .b = w->weights,
        .nodes = (int32_t *)(w->weights + columns),
    };
    w->front = w->hull;
    w->front.nodes = w->hull.nodes + nodes;
    w->front.changes = (sw_hull_change *)(w->front.nodes + nodes);
    w->marks = (uint32_t *)(w->front.changes + changes);
    return true;
}

static void first_layer(workspace *w, const sw_choices *choices, uint32_t *previous) {
    w->now[0] = INFINITY;
    for (uint32_t j = 1; j <= choices->count; j++) {
        (void)sw_choices_best(choices, 0, j, &w->now[j]);
        previous[j] = 0;
    }
}

/* Returns the lowest line at x[index] in both hulls. SW_HULL_NONE: there is none. */
static int32_t lowest_line(const workspace *w, const sw_choices *choices, uint32_t index) {
    int32_t line = sw_hull_lowest(&w->hull, index);
    if (choices->waste_percent == 0) return line;
    int32_t other = sw_hull_lowest(&w->front, index);
    if (line == SW_HULL_NONE || other == SW_HULL_NONE) return line == SW_HULL_NONE ? other : line;
    double x = w->hull.x[index];
    return sw_hull_value(&w->hull, line, x) < sw_hull_value(&w->hull, other, x) ? line : other;
}

/* Returns the minimum cost of candidate j over its spans, given the lines in the hulls. *from: the
 * candidate below whose line gave it. */
static double least_of(const workspace *w, const sw_choices *choices, uint32_t j, uint32_t *from) {
    const sw_candidate *candidate = &choices->candidates[j];
    double least = INFINITY;
    for (uint32_t k = candidate->choice; k < candidate[1].choice; k++) {
        const sw_choice *choice = &choices->choices[k];
        int32_t line = lowest_line(w, choices, choice->x);
        if (line == SW_HULL_NONE) break;
        double cost = sw_hull_value(&w->hull, line, choice->slot_cost) +
                      choice->slot_cost * candidate->weight + choice->charge;
        if (cost >= least) continue;
        least = cost;
        *from = (uint32_t)line;
    }
    return least;
}

/* Makes the latest layer layer k - 1, and removes all lines. */
static void begin_layer(workspace *w) {
    double *done = w->above;
    w->above = w->now;
    w->now = done;
    w->now[0] = INFINITY;
    w->hull.a = w->front.a = w->above;
    sw_hull_clear(&w->hull);
    w->middle = 0;
}

static void add_line(workspace *w, sw_hull *hull, uint32_t i) {
    if (!isinf(w->above[i])) sw_hull_insert(hull, (int32_t)i);
}

/* Removes line i, the lowest one in use. Lines below `end` have been added. */
static void leave_line(workspace *w, uint32_t i, uint32_t end) {
    if (i >= w->middle) {
        sw_hull_clear(&w->front);
        sw_hull_clear(&w->hull);
        for (uint32_t k = end; k-- > i;) {
            w->marks[k] = w->front.change_count;
            add_line(w, &w->front, k);
        }
        w->middle = end;
    }
    sw_hull_undo(&w->front, w->marks[i]);
}

/* Computes a layer under a bound on waste. In the first layer only 0 is below: no class. */
static void near_layer(const sw_choices *choices, workspace *w, uint32_t *previous) {
    const sw_candidate *candidates = choices->candidates;
    begin_layer(w);
    sw_hull_clear(&w->front);
    for (uint32_t j = 1, lowest = 0; j <= choices->count; j++) {
        add_line(w, &w->hull, j - 1);
        while (!sw_choices_fit(choices, candidates[lowest].size, candidates[j].size))
            leave_line(w, lowest++, j);
        previous[j] = 0;
        w->now[j] = least_of(w, choices, j, &previous[j]);
    }
}

static void next_layer(workspace *w, const sw_choices *choices, uint32_t *previous) {
    begin_layer(w);
    for (uint32_t j = 1; j <= choices->count; j++) {
        previous[j] = 0;
        w->now[j] = least_of(w, choices, j, &previous[j]);
        add_line(w, &w->hull, j);
    }
}

/* Computes layer k = 0: without a class no request costs nothing, and any other is impossible. */
static void layer_of_no_class(workspace *w, const sw_choices *choices) {
    for (uint32_t j = 0; j <= choices->count; j++) w->now[j] = j == 0 ? 0 : INFINITY;
}

static void run_layers(sw_optimizer *o, workspace *w) {
    bool bounded = o->choices.waste_percent != 0;
    if (bounded) layer_of_no_class(w, &o->choices);
    for (uint32_t k = 0; k < o->classes; k++) {
        uint32_t *previous = o->previous + (size_t)k * o->stride;
        if (bounded) {
            near_layer(&o->choices, w, previous);
        } else if (k == 0) {
            first_layer(w, &o->choices, previous);
        } else {
            next_layer(w, &o->choices, previous);
        }
        o->least[k] = w->now[o->choices.count];
    }
}

/* --- an optimizer ----------------------------------------------------------------------------- */

static sw_status fill(sw_optimizer *o, const sw_optimize_options *options, uint32_t waste_percent,
                      const double *weights) {
    sw_status status = sw_choices_make(&o->choices, options, waste_percent, weights);
    if (status != SW_OK) return status;
    o->classes = (uint32_t)sw_min_u64(options->classes, o->choices.count);
    o->options = *options;
    o->stride = o->choices.count + 1;
    size_t layers = (size_t)o->classes * o->stride * sizeof *o->previous;
    o->block_bytes = sw_align_up(layers + (o->classes + 1) * sizeof *o->least, sw_os_page_bytes());
    o->block = sw_os_map(o->block_bytes);
    if (o->block == NULL)
        return sw_fail(SW_NOMEM, OP_OPTIMIZE, "no memory for %zu bytes of layers", o->block_bytes);
    o->least = o->block;
    o->previous = (uint32_t *)(o->least + o->classes);
    workspace w;
    if (!open_workspace(&w, &o->choices))
        return sw_fail(SW_NOMEM, OP_OPTIMIZE, "no memory to work in");
    run_layers(o, &w);
    (void)sw_os_release(w.block, w.block_bytes);
    return SW_OK;
}

sw_status sw_optimizer_create(const sw_optimize_options *options, const double *weights,
                              sw_optimizer **out) {
    return sw_optimizer_create_bounded(options, 0, weights, out);
}

sw_status sw_optimizer_create_bounded(const sw_optimize_options *options, uint32_t waste_percent,
                                      const double *weights, sw_optimizer **out) {
    if (options == NULL) return sw_fail_null(OP_OPTIMIZE, "options");
    if (weights == NULL) return sw_fail_null(OP_OPTIMIZE, "weights");
    if (out == NULL) return sw_fail_null(OP_OPTIMIZE, "out");
    sw_optimizer *optimizer = sw_os_map(sizeof *optimizer);
    if (optimizer == NULL) return sw_fail(SW_NOMEM, OP_OPTIMIZE, "no memory for an optimizer");
    sw_handle_begin(&optimizer->mark, SW_HANDLE_OPTIMIZER);
    sw_status status = fill(optimizer, options, waste_percent, weights);
    if (status != SW_OK) {
        sw_optimizer_destroy(optimizer);
        return status;
    }
    *out = optimizer;
    return SW_OK;
}

void sw_optimizer_destroy(sw_optimizer *optimizer) {
    if (optimizer == NULL || !sw_handle_check(optimizer, offsetof(sw_optimizer, mark),
                                              SW_HANDLE_OPTIMIZER, "optimizer_destroy"))
        return;
    sw_handle_end(&optimizer->mark, SW_HANDLE_OPTIMIZER);
    sw_choices_drop(&optimizer->choices);
    if (optimizer->block != NULL) (void)sw_os_release(optimizer->block, optimizer->block_bytes);
    sw_handle_retire(optimizer, sizeof *optimizer, sizeof *optimizer, SW_HANDLE_OPTIMIZER);
}

/* --- tables ----------------------------------------------------------------------------------- */

/* Returns the largest size below `limit` that fits into a span as often as `size` does. Such slots
 * cost the same and also serve sizes that the recording did not request. Go does the same at the
 * end; here the size is a multiple of the alignment and meets the bound on waste. The next smaller
 * class, of `below` bytes, may grow in the same way, which only reduces the waste. */
static uint32_t largest_of_equal_cost(const sw_optimizer *o, uint32_t below, uint32_t size,
                                      uint32_t span, uint32_t limit) {
    if (size < o->options.align) return size;
    uint32_t largest = span / (span / size);
    largest -= largest % o->options.align;
    if (largest >= limit) return size;
    while (largest > size && !sw_choices_fit(&o->choices, below, largest))
        largest -= o->options.align;
    return largest > size ? largest : size;
}

sw_status sw_optimizer_table(const sw_optimizer *optimizer, uint32_t classes, sw_class_spec *specs,
                             uint32_t *count, sw_optimize_result *out) {
    sw_status status = sw_handle_status(optimizer, offsetof(sw_optimizer, mark),
                                        SW_HANDLE_OPTIMIZER, "optimizer_table");
    if (status != SW_OK) return status;
    if (specs == NULL || count == NULL || out == NULL)
        return sw_fail_null("optimizer_table", "specs, count or out");
    sw_check2(sw_optimizer_record_check(optimizer));
    const sw_choices *c = &optimizer->choices;
    if (classes == 0) return sw_fail(SW_INVALID, OP_OPTIMIZE, "classes 0: must be at least 1");
    if (classes < c->fewest)
        return sw_fail(SW_INVALID, OP_OPTIMIZE, "classes %u: the bound on waste takes at least %u",
                       classes, c->fewest);
    uint32_t best = c->fewest;
    for (uint32_t k = best + 1; k <= classes && k <= optimizer->classes; k++) {
        if (optimizer->least[k - 1] < optimizer->least[best - 1]) best = k;
    }
    sw_optimize_result result = {.requested = c->candidates[c->count].requested};
    uint32_t j = c->count, limit = c->candidates[j].size + 1;
    for (uint32_t k = best; k > 0; k--) {
        uint32_t i = optimizer->previous[(size_t)(k - 1) * optimizer->stride + j];
        double cost = 0, weight = c->candidates[j].weight - c->candidates[i].weight;
        const sw_choice *span = sw_choices_best(c, i, j, &cost);
        uint32_t span_bytes = span->pages * optimizer->options.page_bytes;
        limit = largest_of_equal_cost(optimizer, c->candidates[i].size, c->candidates[j].size,
                                      span_bytes, limit);
        specs[k - 1] = (sw_class_spec){.size_bytes = limit, .pages = span->pages};
        result.cost += cost;
        result.slots += weight * limit;
        result.tails += weight * (span->slot_cost - limit);
        result.charges += span->charge;
        j = i;
    }
    *count = best;
    *out = result;
    return SW_OK;
}
