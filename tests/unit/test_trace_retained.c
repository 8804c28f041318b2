/* SPDX-License-Identifier: Apache-2.0 */
/* What malloc keeps without need, and what is requested at the peak (trace/retained.h): by hand. */
#include "trace/merge.h"
#include "trace/retained.h"
#include "trace_fixture.h"

/* The run lasts 6,400 ns, so parts are 200 ns. Of 5,000 resident bytes 500 are others'. Object 0, of
 * 4,000 bytes in one page, is freed at 3000 ns; object 1, of 100 bytes, stays. At 6000 ns 90,000
 * bytes are resident, but for two parts only: the one of less waste, at 6100 ns, is the result. */
static void retained(void) {
    uint8_t memory[256];
    swt_buffer meta = {.data = memory, .capacity = sizeof memory};
    CHECK(swt_put_meta(&meta, "rss_mapped", "400") && swt_put_meta(&meta, "rss_file", "100"));
    CHECK(swt_put_meta(&meta, "rss_series", "50:5000 2000:5000 6000:80000 6200:90000 6400:85000"));
    swt_notes notes = {0};
    swt_block block = {.kind = SWT_BLOCK_META, .raw_bytes = (uint32_t)meta.used};
    CHECK(swt_notes_add(&notes, &block, memory, 1000) == NULL);
    swt_retained r;
    swt_retained_init(&r, &notes);
    CHECK_EQ(r.count, 32);
    CHECK_EQ(swt_retained_next_ns(&r), 100);
    CHECK_EQ(r.points[0].malloc_bytes, 4500);   /* 100 ns */
    CHECK_EQ(r.points[29].malloc_bytes, 4500);  /* 5900 ns: before the growth */
    CHECK_EQ(r.points[30].malloc_bytes, 79500); /* 6100 ns: the lesser of 80,000 and 90,000 */
    CHECK_EQ(r.points[31].malloc_bytes, 84500);
    static const sw_op op[] = {{.time_ns = 10, .size = 4000, .kind = SW_OP_ALLOC},
                               {.time_ns = 1650, .size = 100, .object = 1, .kind = SW_OP_ALLOC},
                               {.time_ns = 3000, .kind = SW_OP_FREE},
                               {.time_ns = 8000, .kind = SW_OP_THREAD_END},
                               {.time_ns = 9000, .object = 1, .kind = SW_OP_FREE}};
    swt_addresses map = {0};
    uint32_t id;
    CHECK_EQ(swt_addresses_put(&map, 0x10000, 0, &id), 0);
    CHECK(swt_retained_add(&r, &op[0], 1, &map));
    CHECK_EQ(swt_addresses_put(&map, 0x20000, 1, &id), 0);
    CHECK(swt_retained_add(&r, &op[1], 1, &map));
    CHECK_EQ(swt_retained_next_ns(&r), 1700);
    CHECK_EQ(r.points[7].requested_bytes, 4000); /* 1500 ns: before object 1, of which 100 bytes */
    CHECK_EQ(r.points[7].page_bytes, 2 * 4096 - 100);
    CHECK(swt_addresses_remove(&map, 0x10000, &id));
    CHECK(swt_retained_add(&r, &op[2], 2, &map) && swt_retained_end(&r, &map));
    CHECK_EQ(r.next, 32);
    /* The RSS is at its peak at 6200 ns; object 1 lives since the point before, and only that. */
    CHECK_EQ(r.peak.requested_bytes, 100);
    CHECK_EQ(r.peak.op, 3);
    const swt_retained_point *best = swt_retained_best(&r);
    CHECK(best != NULL && best->ns == 6100);
    CHECK_EQ(best->malloc_bytes, 79500);
    CHECK_EQ(best->requested_bytes, 100);
    CHECK_EQ(best->page_bytes, 4096);
    CHECK_EQ(best->op, 3); /* the last one comes after it */
    uint64_t from_ns, until_ns;
    swt_retained_span(&r, best, &from_ns, &until_ns);
    CHECK_EQ(from_ns, 6100);
    CHECK_EQ(until_ns, 6400); /* the last point lasts until the end */
    /* Once object 1 is freed too, the last moment is part of that, and 4,400 bytes are next. */
    CHECK(swt_retained_add(&r, &op[4], 1, &map));
    best = swt_retained_best(&r);
    CHECK(best != NULL && best->ns == 3100);
    CHECK_EQ(best->malloc_bytes, 4500);
    CHECK_EQ(best->requested_bytes, 100);
    swt_retained_span(&r, best, &from_ns, &until_ns);
    CHECK_EQ(from_ns, 3100); /* 400 bytes were wasted until 2900 ns */
    CHECK_EQ(until_ns, 6400);
    swt_retained_free(&r);
    swt_addresses_free(&map);
    swt_notes_free(&notes);
}

/* The retained memory of a run of 6,400 ns with 5,000 resident bytes, of which pauses add their own,
 * in a tick of 1 ns. 10 objects of 400 bytes in one page are allocated at 0 ns. At 900 ns eight are
 * freed, and then `last_size` bytes allocated at the same reading of the clock, perhaps after the
 * pause that ends at 950 ns. At `end_ns` the first two objects but `left` are freed. */
static swt_retained_point retained_by(const char *pauses, uint64_t last_size, uint32_t left,
                                      uint64_t end_ns) {
    uint8_t memory[256];
    swt_buffer meta = {.data = memory, .capacity = sizeof memory};
    CHECK(swt_put_meta(&meta, "rss_series", "0:5000 6400:5000"));
    CHECK(swt_put_meta(&meta, "rss_pauses", pauses));
    swt_notes notes = {.first_clock = {.ticks = 1000, .ns_per_tick_q32 = UINT64_C(1) << 32}};
    swt_block block = {.kind = SWT_BLOCK_META, .raw_bytes = (uint32_t)meta.used};
    CHECK(swt_notes_add(&notes, &block, memory, 1000) == NULL);
    swt_retained r;
    swt_retained_init(&r, &notes);
    swt_addresses map = {0};
    uint32_t gone;
    sw_op op;
    for (uint32_t id = 0; id < 10; id++) {
        op = (sw_op){.size = 400, .object = id, .kind = SW_OP_ALLOC};
        CHECK_EQ(swt_addresses_put(&map, 0x10000 + 400 * id, id, &gone), 0);
        CHECK(swt_retained_add(&r, &op, 1, &map));
    }
    for (uint32_t id = 2; id < 10; id++) {
        op = (sw_op){.time_ns = 900, .object = id, .kind = SW_OP_FREE};
        CHECK(swt_addresses_remove(&map, 0x10000 + 400 * id, &gone));
        CHECK(swt_retained_add(&r, &op, 1, &map));
    }
    op = (sw_op){.time_ns = 900, .size = last_size, .object = 10, .kind = SW_OP_ALLOC};
    CHECK_EQ(swt_addresses_put(&map, 0x20000, 10, &gone), 0);
    CHECK(swt_retained_add(&r, &op, 1, &map));
    op = (sw_op){.time_ns = 950, .object = 10, .kind = SW_OP_FREE};
    CHECK(swt_addresses_remove(&map, 0x20000, &gone));
    CHECK(swt_retained_add(&r, &op, 1, &map));
    for (uint32_t id = left; id < 2; id++) {
        op = (sw_op){.time_ns = end_ns, .object = id, .kind = SW_OP_FREE};
        CHECK(swt_addresses_remove(&map, 0x10000 + 400 * id, &gone));
        CHECK(swt_retained_add(&r, &op, 1, &map));
    }
    CHECK(swt_retained_end(&r, &map));
    const swt_retained_point *best = swt_retained_best(&r);
    swt_retained_point copy = best != NULL ? *best : (swt_retained_point){0};
    swt_retained_free(&r);
    swt_addresses_free(&map);
    swt_notes_free(&notes);
    return copy;
}

static swt_retained_point best_of(const char *pauses, uint64_t last_size, uint32_t left) {
    return retained_by(pauses, last_size, left, 6350);
}

static swt_retained_point freed_at(const char *pauses, uint64_t ns) {
    return retained_by(pauses, 0, 1, ns);
}

/* The RSS grows from 10 to 20 us: requested are 40 bytes before, then 100, 70 at the end. Until 30 us
 * it is lower, and then again within 1 % of the peak. */
static void requested_at_the_peak(void) {
    uint8_t memory[128];
    swt_buffer meta = {.data = memory, .capacity = sizeof memory};
    CHECK(swt_put_meta(&meta, "rss_series",
                       "0:100 10000:500 20000:900 30000:800 40000:892 50000:890"));
    swt_notes notes = {0};
    swt_block block = {.kind = SWT_BLOCK_META, .raw_bytes = (uint32_t)meta.used};
    CHECK(swt_notes_add(&notes, &block, memory, 1000) == NULL);
    swt_retained r;
    swt_retained_init(&r, &notes);
    static const sw_op ops[] = {
        {.time_ns = 1, .size = 999, .kind = SW_OP_ALLOC},
        {.time_ns = 2, .size = 40, .kind = SW_OP_REALLOC},
        {.time_ns = 12000, .size = 60, .object = 1, .kind = SW_OP_ALLOC},
        {.time_ns = 19000, .size = 30, .object = 1, .kind = SW_OP_REALLOC},
        {.time_ns = 25000, .size = 500, .object = 2, .kind = SW_OP_ALLOC},
        {.time_ns = 29000, .object = 2, .kind = SW_OP_FREE},
        {.time_ns = 35000, .size = 40, .object = 3, .kind = SW_OP_ALLOC},
        {.time_ns = 45000, .size = 900, .object = 3, .kind = SW_OP_REALLOC}};
    swt_addresses map = {0};
    for (size_t i = 0; i < 6; i++) CHECK(swt_retained_add(&r, &ops[i], 1, &map));
    CHECK_EQ(r.peak.requested_bytes, 100);
    CHECK_EQ(r.peak.op, 3);
    for (size_t i = 6; i < 8; i++) CHECK(swt_retained_add(&r, &ops[i], 1, &map));
    CHECK(swt_retained_end(&r, &map));
    CHECK_EQ(r.peak.requested_bytes, 110); /* not the 970 of a time when the RSS was lower */
    CHECK_EQ(r.peak.op, 7);
    /* Without an operation since then, that before counts. */
    swt_retained_free(&r);
    swt_retained_init(&r, &notes);
    for (size_t i = 0; i < 2; i++) CHECK(swt_retained_add(&r, &ops[i], 1, &map));
    CHECK(swt_retained_end(&r, &map));
    CHECK_EQ(r.peak.requested_bytes, 40);
    CHECK_EQ(r.peak.op, 2);
    swt_retained_free(&r);
    swt_notes_free(&notes);
}

/* Ticks are 1000 more than times. */
static void pauses(void) {
    /* Only parts: at 1100 ns and later 800 bytes are requested. */
    swt_retained_point best = best_of("", 0, 2);
    CHECK(best.kind == SWT_RETAINED_PART && best.ns == 1300);
    CHECK_EQ(best.requested_bytes, 800);
    /* A pause counts however short it is for the run, if little is freed soon after it. Its last frees may come after it, so all that
     * was requested before them counts. */
    best = best_of("1900:1950:20000", 0, 2);
    CHECK(best.kind == SWT_RETAINED_PAUSE && best.ns == 900);
    CHECK_EQ(best.malloc_bytes, 20000);
    CHECK_EQ(best.requested_bytes, 4000);
    CHECK_EQ(best.op, 10);
    /* So may an allocation come before it, but not the free at its end. */
    best = best_of("1900:1950:20000", 9000, 2);
    CHECK_EQ(best.requested_bytes, 9800);
    CHECK_EQ(best.op, 19);
    /* It surely came before, and most of what was live in the pause is freed after it. */
    CHECK(best_of("1901:1950:20000", 9000, 2).kind == SWT_RETAINED_PART);
    /* The last pause reaches to the end. The end without one is no pause. */
    best = best_of("1900:1950:5000 7360:8000:20000", 0, 1);
    CHECK(best.kind == SWT_RETAINED_PAUSE && best.ns == 6360);
    CHECK_EQ(best.requested_bytes, 400);
    CHECK(best_of("7400:7400:20000", 0, 2).kind == SWT_RETAINED_PART);
    /* Half is freed before the middle of the next part: only a long pause counts, of 400 ns. */
    CHECK(freed_at("2000:2250:20000", 1260).kind == SWT_RETAINED_PART);
    CHECK(freed_at("2000:2250:20000", 1310).kind == SWT_RETAINED_PAUSE);
    CHECK(freed_at("2000:2400:20000", 1410).kind == SWT_RETAINED_PAUSE);
    /* Of two pauses with about the same waste the longer one counts. */
    best = best_of("1960:1990:19000 3000:3020:20000", 0, 2);
    CHECK(best.kind == SWT_RETAINED_PAUSE && best.ns == 960);
    best = best_of("1960:1990:17000 3000:3020:20000", 0, 2);
    CHECK(best.kind == SWT_RETAINED_PAUSE && best.ns == 2000);
    /* What is malformed is left out. */
    CHECK(best_of("1950:1900:20000", 0, 2).kind == SWT_RETAINED_PART);
    CHECK(best_of("1900:1950", 0, 2).kind == SWT_RETAINED_PART);
    CHECK(best_of("x", 0, 2).kind == SWT_RETAINED_PART);
}

int main(void) {
    retained();
    requested_at_the_peak();
    pauses();
    return check_result();
}
