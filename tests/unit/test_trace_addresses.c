/* SPDX-License-Identifier: Apache-2.0 */
/* The merge's address table against a plain array, and the id rule against a plain stack. */
#include "check.h"
#include "trace/addresses.h"
#include "trace/ids.h"

enum { PLACES = 3000, STEPS = 400000 };

/* Dense small objects, 8-byte neighbours, odd addresses, pages far apart, and the extremes. */
static uint64_t address_of(uint32_t place) {
    if (place < 1000) return 0x555500000000ull + (uint64_t)place * 16;
    if (place < 2000) return 0x7F0000000000ull + (uint64_t)(place - 1000) * 8;
    if (place < 2500) return 0x1000 + (place - 2000);
    if (place == 2500) return 0;
    if (place == 2501) return 0xFFFFFFFFFFFFull;
    return (uint64_t)place << 21;
}

static void addresses(void) {
    static uint32_t want[PLACES]; /* id + 1 */
    swt_addresses map = {0};
    uint64_t seed = 1;
    size_t live = 0, most = 0;
    uint32_t id;
    CHECK(!swt_addresses_remove(&map, 16, &id));
    for (int i = 0; i < STEPS; i++) {
        uint64_t r = check_random(&seed);
        uint32_t place = (uint32_t)(r >> 32) % PLACES;
        bool fill = i / 20000 % 2 == 0;
        if (r % 16 < (fill ? 11u : 5u)) {
            uint32_t old = 0, fresh = (uint32_t)r & 0xFFFFF;
            CHECK_EQ(swt_addresses_put(&map, address_of(place), fresh, &old), want[place] != 0);
            CHECK(want[place] == 0 || old == want[place] - 1);
            live += want[place] == 0;
            want[place] = fresh + 1;
        } else {
            CHECK_EQ(swt_addresses_remove(&map, address_of(place), &id), want[place] != 0);
            CHECK(want[place] == 0 || id == want[place] - 1);
            live -= want[place] != 0;
            want[place] = 0;
        }
        most = live > most ? live : most;
    }
    CHECK(map.leaf_count <= most);
    for (uint32_t place = 0; place < PLACES; place++)
        CHECK_EQ(swt_addresses_remove(&map, address_of(place), &id), want[place] != 0);
    CHECK_EQ(map.count, 0);
    CHECK_EQ(map.spare_count, map.leaf_count);
    swt_addresses_free(&map);
}

static void ids(void) {
    static uint32_t live[20000];
    swt_ids pool = {0};
    size_t count = 0;
    uint32_t id = 0;
    uint64_t seed = 2;
    for (uint32_t i = 0; i < 10000; i++) {
        CHECK(swt_ids_take(&pool, &id) && id == i);
        live[count++] = id;
    }
    for (int i = 0; i < 100000; i++) {
        size_t pick = check_random(&seed) % count;
        id = live[pick];
        live[pick] = live[--count];
        CHECK(swt_ids_live(&pool, id) && swt_ids_give(&pool, id));
        CHECK(!swt_ids_live(&pool, id) && !swt_ids_give(&pool, id));
        if (i % 3 == 0 && count > 10) continue;
        uint32_t again = 0;
        CHECK(swt_ids_take(&pool, &again) && again == id); /* the last freed first */
        live[count++] = again;
    }
    CHECK_EQ(pool.next, 10000);
    CHECK(!swt_ids_live(&pool, UINT64_MAX) && !swt_ids_give(&pool, 10000));
    swt_ids_reset(&pool);
    CHECK(!swt_ids_live(&pool, 0) && swt_ids_take(&pool, &id) && id == 0);
    swt_ids_free(&pool);
}

int main(void) {
    addresses();
    ids();
    return check_result();
}
