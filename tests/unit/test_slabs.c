/* SPDX-License-Identifier: Apache-2.0 */
/* Tiered slabs: hand-written cases, a model that knows every slot, misuse, alerts, threads, refused
 * options. Damage: test_memory_grades.c, forks: test_fork.c. */
#include <errno.h>

#include "arenas.h"
#include "faults.h"
#include "pool/slabs.h"
#include "spawn.h"

static sw_heap *heap;

static sw_slabs *make(uint64_t capacity, uint32_t locked) {
    return MADE(sw_slabs, o.capacity = capacity, o.heap = heap, o.locked = locked);
}

static sw_slab_tier_stats tier_of(sw_slabs *slabs, uint32_t tier) {
    sw_slab_tier_stats stats;
    CHECK_EQ(sw_slabs_get_tier(slabs, tier, &stats), SW_OK);
    return stats;
}

static void sizes_find_their_tier(void) {
    static const struct {
        size_t size, usable;
    } cases[] = {{0, 256},     {1, 256},     {256, 256},   {257, 1024},
                 {1024, 1024}, {1025, 4096}, {4096, 4096}, {4097, 0}};
    sw_slabs *slabs = make(100, 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        unsigned char *p = sw_slabs_alloc(slabs, cases[i].size, SW_ZERO);
        CHECK(p != NULL && (uintptr_t)p % 16 == 0 && all_are(p, cases[i].size, 0));
        size_t usable = sw_slabs_usable_size(slabs, p);
        CHECK(cases[i].usable == 0 ? usable >= 4097 : usable == cases[i].usable);
        memset(p, 0xAA, cases[i].size);
    }
    sw_slabs_stats stats = STATS(sw_slabs, slabs);
    CHECK(stats.tiers == 3 && stats.used_slots == 7 && stats.used_bytes == 3 * 256 + 2 * 5120);
    CHECK(stats.over_tier == 1 && stats.full == 0 && stats.own_objects == 1);
    CHECK_EQ(stats.held_bytes, 3 * 65536);
    sw_slab_tier_stats small = tier_of(slabs, 0);
    CHECK(small.slot_bytes == 256 && small.capacity == 100 && small.used_slots == 3);
    CHECK(small.allocs == 3 && small.requested_bytes == 257 && small.held_bytes == 65536);
    CHECK_EQ(live_objects(heap), 1);
    void *slot = sw_slabs_alloc(slabs, 1, 0);
    memset(slot, 0xAA, 256);
    CHECK_EQ(sw_slabs_free(slabs, slot), SW_OK);
    CHECK(tier_of(slabs, 0).peak_used_slots == 4 && tier_of(slabs, 0).used_slots == 3);
    unsigned char *zeroed = sw_slabs_alloc(slabs, 256, SW_ZERO);
    CHECK(zeroed == slot && all_are(zeroed, 256, 0));
    CHECK_EQ(sw_slabs_free(slabs, NULL), SW_OK);
    CHECK_EQ(sw_slabs_usable_size(slabs, NULL), 0);
    sw_slabs_destroy(slabs); /* with what it has of the heap */
    CHECK_EQ(live_objects(heap), 0);
    sw_slabs_destroy(NULL);
}

/* Pages after the last slot in use are returned, and can be taken again. */
static void returns_pages_past_the_last_slot(void) {
    enum { SLOTS = 80 }; /* of 4 KiB, so five slabs of 64 KiB */
    sw_slabs *slabs = make(SLOTS, 0);
    char *slots[SLOTS];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < SLOTS; i++) {
            slots[i] = sw_slabs_alloc(slabs, 4096, SW_ZERO);
            CHECK(slots[i][0] == 0 && slots[i][4095] == 0);
            memset(slots[i], 7, 4096);
        }
        CHECK_EQ(tier_of(slabs, 2).held_bytes, 5 * 65536);
        CHECK_EQ(sw_slabs_trim(slabs), 0);
        for (int i = 0; i < SLOTS; i++)
            if (i != 20) CHECK_EQ(sw_slabs_free(slabs, slots[i]), SW_OK);
        CHECK_EQ(sw_slabs_trim(slabs), 3 * 65536);
        CHECK_EQ(tier_of(slabs, 2).held_bytes, 2 * 65536);
        CHECK_EQ(slots[20][4095], 7);
        EXPECT_FAULT(FOREIGN, slots[21], CHECK_EQ(sw_slabs_free(slabs, slots[21]), SW_INVALID));
        CHECK_EQ(sw_slabs_free(slabs, slots[20]), SW_OK);
        CHECK_EQ(sw_slabs_trim(slabs), 2 * 65536);
        CHECK_EQ(STATS(sw_slabs, slabs).held_bytes, 0);
    }
    sw_slabs_destroy(slabs);
}

static void names_misuse(void) {
    sw_slabs *slabs = make(100, 0), *others = make(100, 0);
    char *slot = sw_slabs_alloc(slabs, 1000, 0), *big = sw_slabs_alloc(slabs, 9000, 0);
    char *of_others = sw_slabs_alloc(others, 1000, 0), *of_heap = sw_heap_alloc(heap, 9000, 0);
    char local = 0;
    char *const inside[] = {slot + 1, slot + 16, slot + 1023};
    for (int i = 0; i < 3; i++) {
        EXPECT_FAULT(INTERIOR, inside[i], CHECK_EQ(sw_slabs_free(slabs, inside[i]), SW_INVALID));
        CHECK(seen.size == 1024 && strcmp(seen.op, "slabs_free") == 0);
        EXPECT_FAULT(INTERIOR, inside[i], CHECK_EQ(sw_slabs_usable_size(slabs, inside[i]), 0));
        CHECK_STR(seen.op, "slabs_usable_size");
    }
    char *const foreign[] = {slot + 1024, of_others, of_heap,
                             &local,      (char *)8, (char *)UINTPTR_MAX};
    for (int i = 0; i < 6; i++) {
        EXPECT_FAULT(FOREIGN, foreign[i], CHECK_EQ(sw_slabs_free(slabs, foreign[i]), SW_INVALID));
        CHECK_STR(seen.op, "slabs_free");
        EXPECT_FAULT(FOREIGN, foreign[i], CHECK_EQ(sw_slabs_usable_size(slabs, foreign[i]), 0));
        CHECK_STR(seen.op, "slabs_usable_size");
    }
    EXPECT_FAULT(FOREIGN, slot, sw_heap_free(heap, slot));
    CHECK_EQ(STATS(sw_slabs, slabs).used_slots, 1);
    CHECK_EQ(sw_slabs_free(slabs, slot), SW_OK);
    EXPECT_FAULT(DOUBLE_FREE, slot, CHECK_EQ(sw_slabs_free(slabs, slot), SW_INVALID));
    EXPECT_FAULT(DOUBLE_FREE, slot, CHECK_EQ(sw_slabs_usable_size(slabs, slot), 0));
    EXPECT_FAULT(INTERIOR, big + 8, CHECK_EQ(sw_slabs_free(slabs, big + 8), SW_INVALID));
    CHECK_STR(seen.op, "slabs_free");
    CHECK_EQ(sw_slabs_free(slabs, big), SW_OK);
    EXPECT_FAULT(DOUBLE_FREE, big, CHECK_EQ(sw_slabs_free(slabs, big), SW_INVALID));
    CHECK(STATS(sw_slabs, slabs).used_slots == 0 && STATS(sw_slabs, slabs).own_objects == 0);
    sw_heap_free(heap, of_heap);
    sw_slabs_destroy(others);
    sw_slabs_destroy(slabs);
    EXPECT_FAULT(STALE_HANDLE, slabs, CHECK(sw_slabs_alloc(slabs, 1, 0) == NULL));
    CHECK_EQ(errno, EINVAL);
    CHECK_EQ(live_objects(heap), 0);
}

typedef struct alerts_seen {
    sw_slabs *slabs;
    sw_slabs_alert last;
    int calls;
} alerts_seen;

static void listen(const sw_slabs_alert *alert, void *context) {
    alerts_seen *one = context;
    one->last = *alert;
    one->calls++;
    CHECK_EQ(STATS(sw_slabs, one->slabs).over_tier + STATS(sw_slabs, one->slabs).full,
             alert->count);
}

static void reports_what_gets_no_slot(void) {
    for (uint32_t locked = 0; locked < 2; locked++) {
        sw_slabs *slabs = make(2, locked);
        alerts_seen one = {.slabs = slabs};
        CHECK_EQ(sw_slabs_set_alert(slabs, listen, &one, 0), SW_INVALID);
        CHECK_EQ(sw_slabs_set_alert(slabs, listen, &one, 3), SW_OK);
        void *objects[12];
        for (int i = 0; i < 5; i++) objects[i] = sw_slabs_alloc(slabs, 300, 0);
        CHECK(one.calls == 1 && one.last.reason == SW_SLABS_FULL && one.last.tier == 1);
        CHECK(one.last.size == 300 && one.last.count == 1);
        for (int i = 5; i < 12; i++) objects[i] = sw_slabs_alloc(slabs, 5000, 0);
        CHECK(one.calls == 4 && one.last.reason == SW_SLABS_OVER_TIER && one.last.tier == 3);
        CHECK(one.last.size == 5000 && one.last.count == 10);
        sw_slabs_stats stats = STATS(sw_slabs, slabs);
        CHECK(stats.full == 3 && stats.over_tier == 7 && stats.own_objects == 10);
        for (int i = 0; i < 12; i++) CHECK_EQ(sw_slabs_free(slabs, objects[i]), SW_OK);
        stats = STATS(sw_slabs, slabs);
        CHECK(stats.full == 3 && stats.over_tier == 7 && stats.own_objects == 0);
        CHECK(sw_slabs_alloc(slabs, PTRDIFF_MAX, 0) == NULL && errno == ENOMEM);
        CHECK(one.calls == 4 && STATS(sw_slabs, slabs).over_tier == 8);
        sw_slabs_destroy(slabs);
        CHECK_EQ(live_objects(heap), 0);
    }
}

enum { CAPACITY = 70, LIVE = 300 };

/* Which slots of a tier are in use; the rules are in slab.h. */
static int lowest_free(const bool *used) {
    for (int i = 0; i < CAPACITY; i++)
        if (!used[i]) return i;
    return -1;
}

static void walks_as_the_model(uint64_t seed) {
    static const uint64_t bytes[] = {48, 64, 1040}; /* slots straddle pages and slabs */
    sw_slabs *slabs = MADE(sw_slabs, memcpy(o.slot_bytes, bytes, sizeof bytes),
                           o.capacity = CAPACITY, o.heap = heap);
    bool used[3][CAPACITY] = {{false}};
    struct {
        unsigned char *at;
        int tier, slot; /* slot -1: of the heap */
        size_t size;
    } live[LIVE];
    int count = 0, own = 0, steps = (int)(40000 / check_share());
    for (int step = 0; step < steps; step++) {
        uint64_t draw = check_random(&seed);
        if (count < LIVE && (count == 0 || draw % 2 == 0)) {
            size_t size = (draw >> 8) % 1200;
            int tier = size <= 48 ? 0 : size <= 64 ? 1 : size <= 1040 ? 2 : 3;
            int slot = tier == 3 ? -1 : lowest_free(used[tier]);
            unsigned char *at = sw_slabs_alloc(slabs, size, 0);
            if (slot >= 0) {
                used[tier][slot] = true;
                CHECK_EQ(at, slabs->tiers[tier].base + (uint64_t)slot * bytes[tier]);
            }
            own += slot < 0;
            memset(at, count, size);
            live[count].at = at;
            live[count].tier = tier;
            live[count].slot = slot;
            live[count++].size = size;
        } else {
            int i = (int)(draw >> 8) % count;
            i = i < 0 ? -i : i;
            size_t same = 1;
            while (same < live[i].size && live[i].at[same] == live[i].at[0]) same++;
            CHECK(same >= live[i].size);
            CHECK_EQ(sw_slabs_free(slabs, live[i].at), SW_OK);
            if (live[i].slot >= 0) used[live[i].tier][live[i].slot] = false;
            own -= live[i].slot < 0;
            live[i] = live[--count];
        }
        if (step % 500 == 0) (void)sw_slabs_trim(slabs);
        CHECK_EQ(STATS(sw_slabs, slabs).used_slots, count - own);
        CHECK_EQ(STATS(sw_slabs, slabs).own_objects, own);
    }
    sw_slabs_destroy(slabs);
    CHECK_EQ(live_objects(heap), 0);
}

/* Slots in several groups of 4096: they become free in any order, in all, in some and in one of the
 * groups, and the lowest is always next. */
static void finds_the_lowest_of_many(uint64_t seed) {
    enum { MANY = 3 * 4096 + 70, BYTES = 16 };
    static char is_free[MANY]; /* 1: free, or never given; what memchr finds is the lowest */
    sw_slabs *slabs = MADE(sw_slabs, o.tier_count = 1, o.slot_bytes[0] = BYTES, o.capacity = MANY);
    char *base = sw_slabs_alloc(slabs, 1, 0);
    CHECK_EQ(sw_slabs_free(slabs, base), SW_OK);
    memset(is_free, 1, MANY);
    uint64_t used = 0;
    for (uint64_t round = 0; round < 12; round++) {
        uint64_t keep = check_random(&seed) % 4, from = keep * 4096, takes = MANY - used;
        if (round % 3 == 1) takes /= 2;
        for (uint64_t i = 0; i < takes; i++) {
            char *next = memchr(is_free, 1, MANY);
            CHECK_EQ(sw_slabs_alloc(slabs, BYTES, 0), base + (size_t)(next - is_free) * BYTES);
            *next = 0;
        }
        used += takes;
        for (uint64_t i = 0; i < MANY; i++) {
            uint64_t slot =
                (i * 4099 + round) % MANY; /* each once: 4099 and MANY have no divisor in common */
            bool stays = round % 4 == 3 ? slot >= from : slot - from < 4096;
            if (is_free[slot] || (stays && check_random(&seed) % 64 != 0)) continue;
            CHECK_EQ(sw_slabs_free(slabs, base + slot * BYTES), SW_OK);
            is_free[slot] = 1;
            used--;
        }
        CHECK_EQ(tier_of(slabs, 0).used_slots, used);
        if (round % 2 == 1) (void)sw_slabs_trim(slabs);
    }
    sw_slabs_destroy(slabs);
}

/* The multiplication equals the division that it replaces. */
static void divides_as_the_processor(uint64_t seed) {
    for (uint64_t bytes = SW_SLABS_SLOT_MIN; bytes <= SW_SLABS_SLOT_MAX;
         bytes += bytes < 4096 ? 16 : 16 * (1 + check_random(&seed) % 64)) {
        sw_slab_tier tier;
        CHECK(sw_slab_tier_begin(&tier, bytes, 1));
        for (int i = 0; i < 64; i++) {
            uint64_t offset = check_random(&seed) >> (15 + (i & 31)), index;
            if (i % 2 == 0) offset -= offset % bytes;
            if (i % 8 == 4 && offset > 0) offset--;
            bool is_slot = sw_slab_tier_index(&tier, offset, &index);
            CHECK(index == offset / bytes && is_slot == (offset % bytes == 0));
        }
        sw_slab_tier_end(&tier);
    }
}

enum { THREADS = 4, TURNS = 3000 };

static void *turn(void *arg) {
    for (int i = 0; i < TURNS; i++) {
        uint64_t *slot = sw_slabs_alloc(arg, i % 7 == 0 ? 5000 : 256, SW_ZERO);
        if (slot == NULL || slot[0] != 0) return arg; /* another thread has it, too */
        slot[0] = 1;
        slot[31] = 1;
        if (sw_slabs_free(arg, slot) != SW_OK) return arg;
    }
    return NULL;
}

static void serves_threads_at_once(void) {
    sw_slabs *slabs = make(3, 1);
    in_threads(THREADS, turn, slabs, 0);
    CHECK(STATS(sw_slabs, slabs).used_slots == 0 && STATS(sw_slabs, slabs).own_objects == 0);
    sw_slabs_destroy(slabs);
    CHECK_EQ(live_objects(heap), 0);
}

static void refuses_bad_options(void) {
    sw_slabs *slabs = NULL;
    REFUSED(sw_slabs, SW_INVALID, o.tier_count = 0);
    REFUSED(sw_slabs, SW_INVALID, o.tier_count = 9);
    REFUSED(sw_slabs, SW_INVALID, o.slot_bytes[0] = 0);
    REFUSED(sw_slabs, SW_INVALID, o.slot_bytes[0] = 24);
    REFUSED(sw_slabs, SW_INVALID, o.slot_bytes[0] = o.slot_bytes[1]);
    REFUSED(sw_slabs, SW_INVALID, o.slot_bytes[0] = 2 * o.slot_bytes[1]);
    REFUSED(sw_slabs, SW_INVALID, o.slot_bytes[2] = 2 << 20);
    REFUSED(sw_slabs, SW_INVALID, o.tier_count = 1, o.slot_bytes[0] = UINT64_MAX - 15);
    REFUSED(sw_slabs, SW_INVALID, o.capacity = 0);
    REFUSED(sw_slabs, SW_INVALID, o.capacity = SW_SLABS_CAPACITY_MAX + 1);
    REFUSED(sw_slabs, SW_INVALID, o.struct_bytes = 8);
    CHECK_EQ(sw_slabs_create(NULL, &slabs), SW_OK); /* 5 GiB of addresses, or fewer */
    sw_slab_tier_stats tier;
    CHECK_EQ(sw_slabs_get_tier(slabs, 3, &tier), SW_INVALID);
    CHECK(tier_of(slabs, 2).capacity >= 1024 && tier_of(slabs, 2).held_bytes == 0);
    sw_slabs_destroy(slabs);
}

int main(void) {
    remember_faults();
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    sizes_find_their_tier();
    returns_pages_past_the_last_slot();
    names_misuse();
    reports_what_gets_no_slot();
    walks_as_the_model(11);
    finds_the_lowest_of_many(12);
    divides_as_the_processor(13);
    serves_threads_at_once();
    refuses_bad_options();
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
    return check_result();
}
