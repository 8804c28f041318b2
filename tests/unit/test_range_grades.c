/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of range allocators, as test_grades.c has those of heaps: a damage planted in each struct
 * ends a forked child with the broken rule at grade 2 and above, and is not looked for below. The
 * verification of a whole range finds what no local check can see, at every grade. */
#include "base/assert.h"
#include "dying_words.h"
#include "range/range.h"

static sw_range *range;

/* A range of 64 pieces of 16, every other one free. */
static void make(uint32_t backend) {
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = backend;
    options.unit = 16;
    if (sw_range_create(1024, &options, &range) != SW_OK) abort();
    for (int i = 0; i < 64; i++) (void)sw_range_alloc(range, 16);
    for (uint64_t i = 0; i < 64; i += 2) (void)sw_range_free(range, i * 16, 16);
}

static void damage_record(void) {
    make(SW_RANGE_WIDE);
    range->rover = 1025;
    (void)sw_range_alloc(range, 1);
}

static void damage_grown(void) {
    make(SW_RANGE_WIDE);
    range->grown.recorded = 17;
    (void)sw_range_alloc(range, 1);
}

static void damage_nodes(void) {
    make(SW_RANGE_SINGLE);
    range->as.tree.nodes.waiting_count = 1;
    (void)sw_range_alloc(range, 16);
}

static void damage_tree(void) {
    make(SW_RANGE_TWO);
    range->as.tree.seed = 0;
    (void)sw_range_alloc(range, 16);
}

static void damage_tree_node(void) {
    make(SW_RANGE_SINGLE);
    sw_tree_first(&range->as.tree, 1)->largest = 17;
    (void)sw_range_alloc(range, 16);
}

static void damage_wide(void) {
    make(SW_RANGE_WIDE);
    range->as.wide.height = SW_WIDE_HEIGHT_MAX;
    sw_wide_path path = {{{range->as.wide.root, 0}}};
    sw_wide_remove(&range->as.wide, &path);
}

static void damage_wide_node(void) {
    make(SW_RANGE_WIDE);
    sw_wide_path path;
    (void)sw_wide_before(&range->as.wide, 512, &path);
    path.at[0].node->low[0] = path.at[0].node->low[1];
    sw_wide_remove(&range->as.wide, &path);
}

static void damage_buddy(void) {
    make(SW_RANGE_BUDDY);
    range->as.buddy.free_units = range->as.buddy.units + 1;
    (void)sw_range_largest_hole(range);
}

static void damage_summary(void) {
    make(SW_RANGE_BUDDY);
    sw_buddy_join(&range->as.buddy);
    range->as.buddy.free[0].levels = SW_SUMMARY_LEVELS_MAX + 1;
    (void)sw_summary_first(&range->as.buddy.free[0]);
}

static const struct {
    const char *rule;
    void (*fn)(void);
} cases[] = {
    {"range->rover <= range->size", damage_record},
    {"grown->recorded <= grown->hole.size", damage_grown},
    {"(nodes->waiting == NULL) == (nodes->waiting_count == 0)", damage_nodes},
    {"tree->seed != 0", damage_tree},
    {"node->largest == largest", damage_tree_node},
    {"wide->height < SW_WIDE_HEIGHT_MAX", damage_wide},
    {"i == 0 || node->low[i] > node->low[i - 1]", damage_wide_node},
    {"buddy->free_units <= buddy->units", damage_buddy},
    {"summary->levels <= SW_SUMMARY_LEVELS_MAX", damage_summary},
};

static void local_damage(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[DYING_WORDS_MAX];
        if (SW_CHECK < 2) continue; /* what a damage does then is anybody's guess */
        bool died = died_with(cases[i].fn, words);
        if (!died || strstr(words, cases[i].rule) == NULL)
            fprintf(stderr, "%s: \"%s\"\n", cases[i].rule, words);
        CHECK(died);
        CHECK(strstr(words, cases[i].rule) != NULL);
    }
}

static void expect_verified(const char *rule) {
    CHECK_EQ(sw_range_verify(range), SW_FORMAT);
    if (strstr(sw_last_error()->message, rule) == NULL)
        fprintf(stderr, "not %s: \"%s\"\n", rule, sw_last_error()->message);
    CHECK(strstr(sw_last_error()->message, rule) != NULL);
}

static void whole_damage(void) {
    make(SW_RANGE_SINGLE);
    range->free_size--;
    expect_verified("sum == range->free_size");
    make(SW_RANGE_SINGLE);
    range->as.tree.root[SW_TREE_START]->priority = 0;
    expect_verified("child->priority <= node->priority");
    make(SW_RANGE_TWO);
    range->as.tree.root[SW_TREE_SIZE]->priority = 0;
    expect_verified("priority");
    make(SW_RANGE_WIDE);
    range->as.wide.root->wide[0]++;
    expect_verified("wide");
    make(SW_RANGE_BUDDY);
    range->as.buddy.waste++;
    expect_verified("waste == buddy->waste");
}

int main(void) {
    local_damage();
    whole_damage();
    return check_result();
}
