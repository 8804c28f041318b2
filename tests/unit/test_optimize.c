/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer against brute force over every set of classes and every span, on random small
 * cases; profiles against a plain count, and by hand at the border between sizes with their own
 * entry and larger ones; messages. */
#include <math.h>

#include "check.h"
#include "spanwise/optimize.h"

enum { CASES = 10000, SMALL_MAX = 80, SIZES = SW_PROFILE_SIZES };

static double weights[SIZES];
static uint32_t waste_percent; /* the bound under which tables are made and judged */

static sw_optimize_options options_of(uint32_t classes, uint32_t align, uint32_t max_bytes) {
    sw_optimize_options o;
    sw_optimize_options_init(&o);
    o.classes = classes;
    o.align = align;
    o.max_bytes = max_bytes;
    return o;
}

/* The least cost of serving requests of below + 1 .. size bytes by slots of `size` bytes. */
static double group_cost(const sw_optimize_options *o, uint32_t below, uint32_t size) {
    double weight = 0, least = INFINITY;
    for (uint32_t n = below == 0 ? 0 : below + 1; n <= size; n++) weight += weights[n];
    for (uint32_t pages = 1; pages <= o->pages_max; pages++) {
        uint64_t span = (uint64_t)pages * o->page_bytes, slots = span / size;
        if (slots == 0 || slots > SW_TABLE_SLOTS_MAX) continue;
        double cost = (double)span / (double)slots * weight + o->span_charge * (double)span;
        if (cost < least) least = cost;
    }
    return least;
}

/* Whether a class may follow another under the bound on waste, said as a sum over its requests:
 * each unseen one wastes at most so much, unless no size that is allowed is between the two. */
static int may_follow(const sw_optimize_options *o, uint32_t below, uint32_t size) {
    int between = 0, wasteful = 0;
    for (uint32_t n = below + 1; n < size; n++) {
        between |= n % 8 == 0 && (n < o->align || n % o->align == 0);
        wasteful |= (double)(size - n) > (double)size * waste_percent / 100;
    }
    return waste_percent == 0 || !between || !wasteful;
}

/* The least cost over all sets of at most `classes` sizes that end with max_bytes. */
static double brute_force(const sw_optimize_options *o, uint32_t classes) {
    uint32_t sizes[32], count = 0;
    double group[33][33], least = INFINITY;
    for (uint32_t n = 8; n <= o->max_bytes; n += 8)
        if (n < o->align || n % o->align == 0) sizes[count++] = n;
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = i; j < count; j++)
            group[i][j] = may_follow(o, i == 0 ? 0 : sizes[i - 1], sizes[j])
                              ? group_cost(o, i == 0 ? 0 : sizes[i - 1], sizes[j])
                              : INFINITY;
    for (uint32_t set = 0; set < 1u << (count - 1); set++) {
        if ((uint32_t)__builtin_popcount(set) >= classes) continue;
        uint32_t first = 0;
        double cost = 0;
        for (uint32_t j = 0; j < count; j++) {
            if (j + 1 < count && (set >> j & 1) == 0) continue;
            cost += group[first][j];
            first = j + 1;
        }
        if (cost < least) least = cost;
    }
    return least;
}

/* What the table that was found really costs, from its classes alone. */
static double table_cost(const sw_optimize_options *o, const sw_class_spec *specs, uint32_t count) {
    double cost = 0;
    for (uint32_t k = 0; k < count; k++) {
        uint32_t below = k == 0 ? 0 : specs[k - 1].size_bytes, size = specs[k].size_bytes;
        uint64_t span = (uint64_t)specs[k].pages * o->page_bytes;
        double weight = 0;
        for (uint32_t n = below == 0 ? 0 : below + 1; n <= size; n++) weight += weights[n];
        cost += weight * ((double)span / (double)(span / size)) + o->span_charge * (double)span;
    }
    return cost;
}

static int close_to(double a, double b) { return fabs(a - b) <= 1e-9 * (fabs(a) + fabs(b)); }

static void check_legal(const sw_optimize_options *o, const sw_class_spec *specs, uint32_t count,
                        uint32_t classes) {
    sw_table *table = NULL;
    CHECK(count >= 1 && count <= classes);
    CHECK_EQ(specs[count - 1].size_bytes, o->max_bytes);
    for (uint32_t k = 0; k < count; k++) {
        CHECK(specs[k].pages >= 1 && specs[k].pages <= o->pages_max);
        CHECK(specs[k].size_bytes < o->align || specs[k].size_bytes % o->align == 0);
        CHECK(may_follow(o, k == 0 ? 0 : specs[k - 1].size_bytes, specs[k].size_bytes));
    }
    CHECK_EQ(sw_table_create("found", o->page_bytes, specs, count, &table), SW_OK);
    sw_table_destroy(table);
}

/* Every number of classes up to the options' against another way to find the least cost. */
static void check_all(const sw_optimize_options *o,
                      double (*least_of)(const sw_optimize_options *, uint32_t)) {
    sw_optimizer *optimizer = NULL;
    if (isinf(least_of(o, o->classes))) { /* no table keeps the bound on waste */
        CHECK_EQ(sw_optimizer_create_bounded(o, waste_percent, weights, &optimizer), SW_INVALID);
        return;
    }
    CHECK_EQ(sw_optimizer_create_bounded(o, waste_percent, weights, &optimizer), SW_OK);
    for (uint32_t classes = 1; classes <= o->classes; classes++) {
        sw_class_spec specs[16];
        uint32_t count = 0;
        sw_optimize_result result;
        double least = least_of(o, classes);
        sw_status status = sw_optimizer_table(optimizer, classes, specs, &count, &result);
        CHECK_EQ(status, isinf(least) ? SW_INVALID : SW_OK);
        if (status != SW_OK) continue;
        check_legal(o, specs, count, classes);
        CHECK(close_to(result.cost, least));
        CHECK(close_to(table_cost(o, specs, count), least));
        CHECK(close_to(result.slots + result.tails + result.charges, result.cost));
    }
    sw_optimizer_destroy(optimizer);
}

static void random_case(uint64_t *seed) {
    uint64_t r = check_random(seed);
    uint32_t align = (r & 1) != 0 ? 8 : 16, units = 1 + (uint32_t)(r >> 8) % (SMALL_MAX / align);
    sw_optimize_options o = options_of(1 + (uint32_t)(r >> 16) % 6, align, units * align);
    o.pages_max = 1 + (uint32_t)(r >> 24) % 4;
    o.span_charge = (r & 2) != 0 ? (double)(r >> 32 & 255) / 4096 : 0;
    waste_percent = (r >> 40 & 3) == 0 ? 20 + (uint32_t)(r >> 44) % 60 : 0;
    double sum = 0;
    for (uint32_t n = 0; n <= o.max_bytes; n++) {
        uint64_t w = check_random(seed);
        weights[n] = (w & 3) == 0 ? (double)(w >> 8 & 1023) : 0;
        sum += weights[n];
    }
    if (sum == 0) weights[1] = 1;
    check_all(&o, brute_force);
    waste_percent = 0;
}

static double least[16][SIZES / 8 + 2];

static double quadratic(const sw_optimize_options *o, uint32_t classes) {
    static double slot_cost[64][SIZES / 8 + 2], sums[SIZES / 8 + 2];
    uint32_t count = 0;
    double sum = weights[0];
    for (uint32_t n = 1; n <= o->max_bytes; n++) {
        sum += weights[n];
        if (n % 8 != 0 || (n >= o->align && n % o->align != 0)) continue;
        sums[++count] = sum;
        for (uint32_t pages = 1; pages <= o->pages_max; pages++) {
            uint64_t span = (uint64_t)pages * o->page_bytes, slots = span / n;
            int fits = slots > 0 && slots <= SW_TABLE_SLOTS_MAX;
            slot_cost[pages][count] = fits ? (double)span / (double)slots : INFINITY;
        }
    }
    sums[0] = 0;
    double best = INFINITY;
    for (uint32_t k = 1; k <= classes; k++) {
        for (uint32_t j = 1; j <= count; j++) {
            least[k][j] = INFINITY;
            for (uint32_t i = 0; i < j && (k > 1 || i == 0); i++) {
                double before = k == 1 ? 0 : least[k - 1][i];
                if (i == 0 && k > 1) continue;
                for (uint32_t pages = 1; pages <= o->pages_max; pages++) {
                    if (isinf(slot_cost[pages][j])) continue;
                    double cost = before + slot_cost[pages][j] * (sums[j] - sums[i]) +
                                  o->span_charge * pages * o->page_bytes;
                    if (cost < least[k][j]) least[k][j] = cost;
                }
            }
        }
        if (least[k][count] < best) best = least[k][count];
    }
    return best;
}

static void tail_case(uint64_t *seed) {
    uint64_t r = check_random(seed);
    uint32_t align = (r & 1) != 0 ? 8 : 16;
    sw_optimize_options o =
        options_of(1 + (uint32_t)(r >> 4) % 5, align, 2048 + 16 * (uint32_t)(r >> 8 & 63));
    o.page_bytes = 4096;
    o.pages_max = 1 + (uint32_t)(r >> 16) % 8;
    o.span_charge = (r & 2) != 0 ? (double)(r >> 32 & 255) / 1024 : 0;
    memset(weights, 0, sizeof weights);
    for (uint32_t n = 0; n < 60; n++) {
        uint64_t w = check_random(seed);
        weights[w % (o.max_bytes + 1)] += (double)(w >> 32 & 255);
    }
    weights[o.max_bytes / 2] += 1;
    check_all(&o, quadratic);
}

static sw_op op_of(sw_op_kind kind, uint32_t object, uint64_t size) {
    return (sw_op){.size = size, .object = object, .kind = (uint8_t)kind};
}

static void test_profile(void) {
    const uint64_t huge = (1u << 20) + 1;
    const sw_op ops[] = {
        op_of(SW_OP_ALLOC, 0, 100),   op_of(SW_OP_ALLOC, 5000, 100), op_of(SW_OP_ALLOC, 2, huge),
        op_of(SW_OP_REALLOC, 0, 300), op_of(SW_OP_ALLOC, 3, 0), /* the peak */
        op_of(SW_OP_FREE, 2, 0),      op_of(SW_OP_FREE, 2, 0),       op_of(SW_OP_REALLOC, 9, 8),
        op_of(SW_OP_ALLOC, 3, 50),    op_of(SW_OP_FREE, 5000, 0),
    };
    sw_profile *profile = NULL;
    sw_profile_large large;
    CHECK_EQ(sw_profile_create(5, &profile), SW_OK);
    CHECK_EQ(sw_profile_add(profile, ops, sizeof ops / sizeof ops[0]), SW_OK);
    const double *peak = sw_profile_weights(profile);
    CHECK(peak[100] == 1 && peak[300] == 1 && peak[0] == 1 && peak[50] == 0 && peak[8] == 0);
    CHECK_EQ(sw_profile_get_large(profile, &large), SW_OK);
    CHECK(large.weight == 1 && large.bytes == (double)huge);
    CHECK(large.page_bytes[0] == (1 << 20) + 4096 && large.page_bytes[4] == (1 << 20) + 65536);
    sw_profile_destroy(profile);
}

static void check_refused(const sw_optimize_options *o, const char *message) {
    sw_optimizer *optimizer = NULL;
    CHECK_EQ(sw_optimizer_create_bounded(o, waste_percent, weights, &optimizer), SW_INVALID);
    CHECK_STR(sw_last_error()->message, message);
    CHECK(optimizer == NULL);
}

static void test_refused(void) {
    memset(weights, 0, sizeof weights);
    sw_optimize_options o = options_of(24, 16, 32768);
    check_refused(&o, "no request of at most 32768 bytes: there is nothing to fit classes to");
    weights[40000] = 1;
    check_refused(&o, "no request of at most 32768 bytes: there is nothing to fit classes to");
    weights[40] = -1;
    check_refused(&o, "weight of size 40 is -1: must be 0 or more");
    weights[40] = 1;
    o = options_of(0, 16, 32768);
    check_refused(&o, "classes 0: must be 1 to 255");
    o = options_of(256, 16, 32768);
    check_refused(&o, "classes 256: must be 1 to 255");
    o = options_of(24, 12, 32768);
    check_refused(&o, "align 12: must be 8 or 16");
    o = options_of(24, 16, 24);
    check_refused(&o, "max_bytes 24: no class; must be a multiple of align 16 up to 262144");
    o = options_of(24, 16, 1 << 20);
    check_refused(&o, "max_bytes 1048576: no class; must be a multiple of align 16 up to 262144");
    o = options_of(24, 16, 32768);
    o.pages_max = 3;
    check_refused(&o, "pages_max 3: a class of 32768 bytes needs 4 pages of 8192 bytes; allow so "
                      "many");
    o = options_of(24, 16, 32768);
    o.page_bytes = 1000;
    check_refused(&o, "page_bytes 1000: must be a power of two from 4096 to 65536");
    o = options_of(24, 16, 32768);
    o.span_charge = -1;
    check_refused(&o, "span_charge -1: must be 0 or more");
    o = options_of(24, 16, 32768);
    waste_percent = 101;
    check_refused(&o, "waste_percent 101: must be 0 to 100");
    waste_percent = 25;
    check_refused(&o, "waste_percent 25: takes at least 28 classes up to 32768 bytes; allow so "
                      "many, or more waste");
    waste_percent = 0;
    o.struct_bytes = 8;
    check_refused(&o, "struct_bytes 8: must be 32");
}

enum { BORDER = SW_PROFILE_SIZES }; /* the smallest size without an entry */

static void profile_at_the_border(void) {
    const sw_op ops[] = {
        op_of(SW_OP_ALLOC, 0, BORDER - 1), op_of(SW_OP_ALLOC, 1, BORDER),
        op_of(SW_OP_ALLOC, 2, BORDER + 9), op_of(SW_OP_FREE, 2, 0),
        op_of(SW_OP_ALLOC, 2, BORDER + 5),
    };
    sw_profile *profile;
    sw_profile_large large;
    CHECK_EQ(sw_profile_create(5, &profile), SW_OK);
    CHECK_EQ(sw_profile_add(profile, ops, 5), SW_OK);
    CHECK(sw_profile_weights(profile)[BORDER - 1] == 1);
    CHECK_EQ(sw_profile_get_large(profile, &large), SW_OK);
    CHECK(large.weight == 2 && large.bytes == 2.0 * BORDER + 5); /* the freed one is gone */
    sw_profile_destroy(profile);
}

int main(void) {
    uint64_t seed = 20261120;
    int cases = CASES / (int)check_share();
    for (int i = 0; i < cases; i++) random_case(&seed);
    for (int i = 0; i < cases / 100; i++) tail_case(&seed);
    test_profile();
    profile_at_the_border();
    test_refused();
    return check_result();
}
