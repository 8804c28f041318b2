/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of pools and slabs, as test_grades.c has those of heaps: a damage planted in each struct ends a
 * forked child with the broken rule at grade 2 and above, and is not looked for below. */
#include "base/assert.h"
#include "dying_words.h"
#include "pool/pool.h"
#include "pool/slabs.h"

static sw_pool *make(void) {
    sw_pool_options options;
    sw_pool *pool;
    sw_pool_options_init(&options);
    options.item_bytes = 64;
    options.locked = 1;
    if (sw_pool_create(&options, &pool) != SW_OK) abort();
    return pool;
}

static void damage_pool(void) {
    sw_pool *pool = make();
    pool->victims = 1;
    (void)sw_pool_get(pool);
}

/* A pool that is watched has its idle items in a set. */
static void damage_address_set(void) {
    sw_pool *pool = make();
    if (sw_pool_watch_puts(pool) != SW_OK) abort();
    pool->idle.mask = 2;
    (void)sw_pool_get(pool);
}

static void damage_fork_lock(void) {
    sw_pool *pool = make();
    *pool->fork.back = NULL;
    sw_pool_destroy(pool);
}

static sw_slabs *make_slabs(void) {
    sw_slabs *slabs;
    if (sw_slabs_create(NULL, &slabs) != SW_OK) abort();
    (void)sw_slabs_alloc(slabs, 100, 0);
    return slabs;
}

/* What is above the largest tier is noted. */
static void damage_slabs(void) {
    sw_slabs *slabs = make_slabs();
    slabs->tiers[1].slot_bytes = slabs->tiers[0].slot_bytes;
    (void)sw_slabs_alloc(slabs, 1 << 20, 0);
}

static void damage_slab_tier(void) {
    sw_slabs *slabs = make_slabs();
    slabs->tiers[0].frees = slabs->tiers[0].allocs + 1;
    (void)sw_slabs_alloc(slabs, 100, 0);
}

static const planted cases[] = {
    {"pool->victims <= pool->count", damage_pool},
    {"(set->mask & (set->mask + 1)) == 0", damage_address_set},
    {"*entry->back == entry", damage_fork_lock},
    {"slabs->tiers[i - 1].slot_bytes < slabs->tiers[i].slot_bytes", damage_slabs},
    {"tier->frees <= tier->allocs", damage_slab_tier},
};

int main(void) {
    check_planted(cases, sizeof cases / sizeof *cases);
    return check_result();
}
