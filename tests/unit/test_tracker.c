/* SPDX-License-Identifier: Apache-2.0 */
/* Trackers of arenas: the leak rule of five minutes on a fake clock, the two sources, events word
 * by word, alerts, threads, errors. Damage: test_memory_grades.c; forks: test_fork.c. */
#include "arena/track.h"
#include "arenas.h"
#include "faults.h"
#include "spawn.h"

#define SECOND UINT64_C(1000000000)

static sw_tracker *track(uint32_t allocs, uint64_t events) {
    return MADE(sw_tracker, o.allocs = allocs, o.events = events, o.manual_clock = 1);
}

/* Not by make_arena(): the call stack of an arena begins here. */
static __attribute__((noinline)) sw_arena *make(const char *tag) {
    return MADE(sw_arena, o.chunk_bytes = 4096, o.tag = tag);
}

static sw_tracker_totals totals_of(sw_tracker *tracker, sw_status expected) {
    sw_tracker_totals totals;
    CHECK_EQ(sw_tracker_check(tracker, &totals), expected);
    return totals;
}

/* An arena that has lived five minutes is a leak, one that was made a nanosecond later is none. */
static void finds_what_is_five_minutes_old(void) {
    const uint64_t rule = 300 * SECOND;
    sw_tracked_arena rows[4];
    sw_tracker *tracker = track(0, 0);
    sw_arena *first = make("request"), *freed = make("request");
    CHECK_EQ(sw_tracker_set_time(tracker, 10 * SECOND), SW_OK);
    sw_arena *second = make("batch");
    CHECK_EQ(sw_tracker_set_time(tracker, 10 * SECOND + 1), SW_OK);
    sw_arena *third = make(NULL);
    CHECK(sw_arena_alloc(second, 100, 0, 0) != NULL && sw_arena_alloc(second, 9000, 0, 0) != NULL);
    CHECK_EQ(sw_tracker_leaks(tracker, 0, NULL, rows, 4), 4);
    CHECK_EQ(sw_arena_free(freed), SW_OK);
    CHECK_EQ(sw_tracker_set_time(tracker, rule - 1), SW_OK);
    CHECK_EQ(sw_tracker_leaks(tracker, rule, NULL, rows, 4), 0);
    CHECK_EQ(sw_tracker_set_time(tracker, rule), SW_OK);
    CHECK_EQ(sw_tracker_leaks(tracker, rule, NULL, rows, 4), 1);
    CHECK(rows[0].arena == first && rows[0].id == 1 && rows[0].age_ns == rule);
    CHECK_EQ(sw_tracker_set_time(tracker, 10 * SECOND + rule), SW_OK);
    CHECK_EQ(sw_tracker_leaks(tracker, rule, NULL, rows, 4), 2);
    CHECK(rows[1].arena == second && rows[1].id == 3 && rows[1].made_ns == 10 * SECOND);
    CHECK(rows[1].chunk_bytes == 4096 && rows[1].own_bytes == 9000 && rows[0].chunk_bytes == 0);
    CHECK_STR(rows[1].tag, "batch");
    CHECK_EQ(sw_tracker_set_time(tracker, 10 * SECOND + 1 + rule), SW_OK);
    CHECK_EQ(sw_tracker_leaks(tracker, rule, NULL, rows, 4), 3);
    CHECK(rows[2].arena == third && rows[2].tag == NULL);
    CHECK_EQ(sw_tracker_leaks(tracker, rule, "batch", rows, 4), 1);
    CHECK(rows[0].arena == second);
    CHECK_EQ(sw_tracker_leaks(tracker, rule, "no such tag", rows, 4), 0);
    CHECK_EQ(sw_tracker_leaks(tracker, rule, NULL, NULL, 0), 3); /* how many there are */
    CHECK_EQ(sw_tracker_leaks(tracker, rule, NULL, rows, 1), 3);
    CHECK(rows[0].arena == first);
    CHECK_EQ(sw_arena_free(first), SW_OK);
    CHECK_EQ(sw_arena_free(third), SW_OK);
    CHECK_EQ(sw_arena_free(second), SW_OK);
    CHECK_EQ(sw_tracker_leaks(tracker, 0, NULL, rows, 4), 0);
    sw_tracker_destroy(tracker);
}

/* The frames begin in the program: the first one is the return address in make(). */
static void notes_who_made_it(void) {
    for (uint32_t frames = 0; frames <= SW_TRACKER_FRAMES_MAX; frames += 4) {
        sw_tracked_arena rows[2];
        sw_tracker *tracker = MADE(sw_tracker, o.frames = frames);
        sw_arena *one = make(NULL), *two = make(NULL);
        CHECK_EQ(sw_tracker_leaks(tracker, 0, NULL, rows, 2), 2);
        CHECK(rows[0].frame_count <= frames && (frames == 0 || rows[0].frame_count >= 1));
        CHECK(rows[0].thread != 0 && rows[0].thread == rows[1].thread);
        if (frames > 0) {
            uint64_t distance = rows[0].frames[0] - (uint64_t)(uintptr_t)make;
            CHECK(distance > 0 && distance < 4096);
            CHECK_EQ(rows[0].frames[0], rows[1].frames[0]);
        }
        CHECK_EQ(sw_arena_free(one), SW_OK);
        CHECK_EQ(sw_arena_free(two), SW_OK);
        sw_tracker_destroy(tracker);
    }
}

/* Arenas of every kind agree with the pool of chunks, which counts in another way. */
static void both_sources_agree(void) {
    enum { ARENAS = 30, STEPS = 4000 };
    sw_arena *arenas[ARENAS] = {NULL};
    static uint64_t first[1000];
    uint64_t seed = 3;
    sw_tracker *tracker = track(0, 16);
    for (int step = 0; step < STEPS / (int)check_share(); step++) {
        sw_arena **at = &arenas[check_random(&seed) % ARENAS];
        uint64_t draw = check_random(&seed) % 10;
        if (*at == NULL) {
            sw_arena_options options;
            sw_arena_options_init(&options);
            options.chunk_bytes = UINT64_C(4096) << draw % 3;
            options.mode = 1 + (uint32_t)(draw % 3);
            options.locked = draw % 2;
            if (at == &arenas[1]) {
                options.first = first;
                options.first_bytes = sizeof first;
            }
            if (sw_arena_create(&options, at) != SW_OK) *at = NULL;
        } else if (draw == 0) {
            CHECK_EQ(sw_arena_free(*at), SW_OK);
            *at = NULL;
        } else if (draw == 1) {
            CHECK_EQ(sw_arena_reset(*at), SW_OK);
        } else {
            CHECK(sw_arena_alloc(*at, check_random(&seed) % 9000, 0, 0) != NULL);
        }
        if (step % 8 == 0) (void)totals_of(tracker, SW_OK);
    }
    for (int i = 0; i < ARENAS; i++) CHECK_EQ(sw_arena_free(arenas[i]), SW_OK);
    CHECK_EQ(totals_of(tracker, SW_OK).tracked_own_bytes, 0);
    sw_tracker_destroy(tracker);
}

static void notes_events(void) {
    sw_tracker_event events[16];
    sw_tracker *tracker = track(1, 16);
    CHECK_EQ(sw_tracker_set_time(tracker, 7), SW_OK);
    sw_arena *arena = make("events");
    char *scanned = sw_arena_new(arena, 32, 16, SW_SCAN); /* in line, as programs do it */
    char *plain = sw_arena_new(arena, 24, 8, 0);
    char *own = sw_arena_alloc(arena, 5000, 0, 0);
    CHECK_EQ(sw_tracker_set_time(tracker, 9), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_tracker_read(tracker, events, 16), 5);
    static const uint32_t kinds[] = {SW_TRACKER_NEW, SW_TRACKER_ALLOC, SW_TRACKER_ALLOC,
                                     SW_TRACKER_ALLOC, SW_TRACKER_FREE};
    for (int i = 0; i < 5; i++) {
        CHECK(events[i].kind == kinds[i] && events[i].arena == 1);
        CHECK(events[i].time_ns == (i < 4 ? 7 : 9) && events[i].thread != 0);
    }
    CHECK(events[0].address == (uintptr_t)arena && events[0].size == 4096);
    CHECK_EQ(events[1].address + events[1].offset, (uintptr_t)scanned);
    CHECK(events[1].size == 4096 && events[1].length == 32 && events[1].offset == 0);
    CHECK_EQ(events[2].address + events[2].offset, (uintptr_t)plain);
    CHECK(events[2].address == events[1].address && events[2].length == 24);
    CHECK(events[3].address == (uintptr_t)own && events[3].offset == 0);
    CHECK(events[3].size == 5000 && events[3].length == 5000);
    CHECK(events[4].address == (uintptr_t)arena && events[4].size == 4096);
    CHECK_EQ(events[4].length, 5000);
    CHECK_EQ(sw_tracker_read(tracker, events, 16), 0);
    CHECK_EQ(totals_of(tracker, SW_OK).events, 5);
    sw_tracker_destroy(tracker);
    arena = make(NULL); /* nobody looks any more */
    CHECK(sw_arena_alloc(arena, 1, 0, 0) != NULL);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    static const char *const names[] = {"unknown",    "arena.new",   "arena.alloc",
                                        "arena.free", "arena.alert", "unknown"};
    for (uint32_t i = 0; i < 6; i++) CHECK_STR(sw_tracker_event_name(i), names[i]);
}

/* Of a full ring the oldest go. Objects are no events unless they are asked for. */
static void keeps_the_newest_events(void) {
    enum { RING = 5 };
    sw_tracker_event events[RING + 1];
    sw_tracker *tracker = track(0, RING);
    for (uint64_t i = 1; i <= 10; i++) {
        CHECK_EQ(sw_tracker_set_time(tracker, i), SW_OK);
        sw_arena *arena = make(NULL);
        CHECK(sw_arena_alloc(arena, 10, 0, 0) != NULL);
        CHECK_EQ(sw_arena_free(arena), SW_OK);
        if (i == 2) CHECK_EQ(sw_tracker_read(tracker, events, 3), 3);
    }
    sw_tracker_totals totals = totals_of(tracker, SW_OK);
    CHECK(totals.events == 20 && totals.lost == 20 - 3 - RING);
    CHECK_EQ(sw_tracker_read(tracker, events, 2), 2);
    CHECK(events[0].kind == SW_TRACKER_FREE && events[0].arena == 8 && events[0].time_ns == 8);
    CHECK(events[1].kind == SW_TRACKER_NEW && events[1].arena == 9);
    CHECK_EQ(sw_tracker_read(tracker, events, RING + 1), 3);
    CHECK(events[2].kind == SW_TRACKER_FREE && events[2].arena == 10);
    sw_tracker_destroy(tracker);
}

typedef struct alerts_seen {
    sw_tracker_alert last;
    sw_tracked_arena first, newest;
    int calls;
} alerts_seen;

/* It makes and frees an arena, which is a look inside a look. */
static void listen(const sw_tracker_alert *alert, void *context) {
    alerts_seen *one = context;
    one->last = *alert;
    one->calls++;
    if (alert->row_count > 0) {
        one->first = alert->rows[0];
        one->newest = alert->rows[alert->row_count - 1];
    }
    CHECK_EQ(sw_arena_free(make("inside")), SW_OK);
}

static void raises_alerts(void) {
    alerts_seen one = {.calls = 0};
    sw_tracker *tracker = track(0, 64);
    sw_tracker_rule rule = {.struct_bytes = sizeof rule,
                            .period_ns = 60 * SECOND,
                            .min_age_ns = 300 * SECOND,
                            .threshold_bytes = 2 * 4096,
                            .alert = listen,
                            .context = &one};
    CHECK_EQ(sw_tracker_set_alert(tracker, &rule), SW_OK);
    sw_arena *old[40];
    for (int i = 0; i < 3; i++) {
        old[i] = make(i == 0 ? "oldest" : NULL);
        CHECK(sw_arena_alloc(old[i], 10, 0, 0) != NULL);
    }
    CHECK_EQ(sw_tracker_set_time(tracker, 60 * SECOND - 1), SW_OK);
    CHECK_EQ(sw_tracker_look(tracker), 0); /* too early */
    CHECK_EQ(sw_tracker_set_time(tracker, 299 * SECOND), SW_OK);
    CHECK_EQ(sw_tracker_look(tracker), 0); /* nothing is old */
    CHECK_EQ(sw_arena_free(old[2]), SW_OK);
    CHECK_EQ(sw_tracker_set_time(tracker, 359 * SECOND), SW_OK);
    CHECK_EQ(sw_tracker_look(tracker), 0); /* two chunks are old, and that is the threshold */
    CHECK_EQ(one.calls, 0);
    CHECK(sw_arena_alloc(old[0], 4000, 0, 0) != NULL);
    CHECK(sw_arena_alloc(old[0], 1000, 0, 0) != NULL);
    CHECK_EQ(sw_tracker_look(tracker), 0); /* a look a period */
    CHECK_EQ(sw_tracker_set_time(tracker, 419 * SECOND), SW_OK);
    CHECK_EQ(sw_tracker_look(tracker), 1);
    CHECK(one.calls == 1 && one.last.old_arenas == 2 && one.last.untracked_bytes == 0);
    CHECK(one.last.row_count == 2 && one.last.now_ns == 419 * SECOND);
    CHECK_EQ(one.last.old_bytes, one.first.chunk_bytes + one.first.own_bytes + 4096);
    CHECK_STR(one.first.tag, "oldest");
    CHECK(one.first.frame_count > 0 && one.first.age_ns == 419 * SECOND);
    CHECK_EQ(totals_of(tracker, SW_OK).alerts, 1);
    CHECK_EQ(sw_tracker_set_time(tracker, 480 * SECOND), SW_OK);
    sw_arena *trigger = make(NULL); /* looks, too */
    CHECK_EQ(one.calls, 2);
    CHECK_EQ(sw_tracker_set_time(tracker, 540 * SECOND), SW_OK);
    CHECK_EQ(sw_arena_free(trigger), SW_OK);
    CHECK_EQ(one.calls, 3);
    CHECK_EQ(sw_tracker_set_alert(tracker, NULL), SW_OK);
    CHECK_EQ(sw_tracker_set_time(tracker, 900 * SECOND), SW_OK);
    CHECK_EQ(sw_tracker_look(tracker), 0);
    sw_tracker_event event;
    bool is_found = false;
    while (!is_found && sw_tracker_read(tracker, &event, 1) == 1)
        is_found = event.kind == SW_TRACKER_ALERT;
    CHECK(is_found && event.arena == 0 && event.size == 0 && event.length == one.last.old_bytes);
    for (int i = 0; i < 2; i++) CHECK_EQ(sw_arena_free(old[i]), SW_OK);
    sw_tracker_destroy(tracker);
}

/* What the tracker does not know raises one, too; of many old arenas the oldest are reported. */
static void raises_alerts_for_what_it_does_not_know(void) {
    alerts_seen one = {.calls = 0};
    sw_arena *before = make(NULL), *old[40];
    CHECK(sw_arena_alloc(before, 10, 0, 0) != NULL);
    sw_tracker *tracker = track(0, 0);
    sw_tracker_rule rule = {.struct_bytes = sizeof rule,
                            .period_ns = 1,
                            .min_age_ns = SECOND,
                            .threshold_bytes = 4095,
                            .alert = listen,
                            .context = &one};
    CHECK_EQ(sw_tracker_set_alert(tracker, &rule), SW_OK);
    CHECK_EQ(sw_tracker_set_time(tracker, 1), SW_OK);
    CHECK_EQ(sw_tracker_look(tracker), 1);
    CHECK(one.calls == 1 && one.last.untracked_bytes == 4096 && one.last.old_arenas == 0);
    CHECK_EQ(sw_arena_free(before), SW_OK);
    for (int i = 0; i < 40; i++) old[i] = make(NULL);
    CHECK(sw_arena_alloc(old[39], 10, 0, 0) != NULL);
    CHECK_EQ(sw_tracker_set_time(tracker, 2 * SECOND), SW_OK);
    CHECK_EQ(sw_tracker_look(tracker), 1);
    CHECK(one.last.old_arenas == 40 && one.last.row_count == SW_TRACKER_ALERT_ROWS);
    CHECK(one.first.arena == old[0] && one.newest.arena == old[SW_TRACKER_ALERT_ROWS - 1]);
    CHECK_EQ(one.last.old_bytes, 4096);
    for (int i = 0; i < 40; i++) CHECK_EQ(sw_arena_free(old[i]), SW_OK);
    sw_tracker_destroy(tracker);
}

static volatile bool stops;

static void *make_and_free(void *arg) {
    (void)arg;
    while (!__atomic_load_n(&stops, __ATOMIC_RELAXED)) {
        sw_arena *arena = make("thread");
        if (sw_arena_alloc(arena, 5000, 0, 0) == NULL || sw_arena_free(arena) != SW_OK) abort();
    }
    return NULL;
}

/* Trackers come and go, and are asked, while two threads make and free arenas. */
static void serves_threads_at_once(void) {
    enum { TURNS = 60, ROWS = 4 };
    pthread_t threads[2];
    sw_tracked_arena rows[ROWS];
    sw_tracker_event events[ROWS];
    stops = false;
    start_each(threads, 2, make_and_free, NULL, 0);
    for (int i = 0; i < TURNS; i++) {
        sw_tracker *tracker = track((uint32_t)(i % 2), 8);
        sw_tracker_totals totals;
        sw_tracker_rule rule = {.struct_bytes = sizeof rule, .period_ns = 1};
        CHECK_EQ(sw_tracker_set_alert(tracker, &rule), SW_OK);
        for (uint64_t k = 1; k < 20; k++) {
            CHECK(sw_tracker_leaks(tracker, 0, "thread", rows, ROWS) <= 2);
            CHECK(sw_tracker_read(tracker, events, ROWS) <= ROWS);
            (void)sw_tracker_check(tracker, &totals);
            CHECK_EQ(sw_tracker_set_time(tracker, k), SW_OK);
            (void)sw_tracker_look(tracker);
        }
        sw_tracker_destroy(tracker); /* while arenas that it knows live */
    }
    __atomic_store_n(&stops, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) CHECK_EQ(pthread_join(threads[i], NULL), 0);
    sw_tracker *tracker = track(0, 0);
    CHECK_EQ(totals_of(tracker, SW_OK).arenas, 0);
    sw_tracker_destroy(tracker);
}

static void refuses_what_is_wrong(void) {
    sw_tracker *tracker = NULL, *second = NULL;
    REFUSED(sw_tracker, SW_INVALID, o.frames = SW_TRACKER_FRAMES_MAX + 1);
    REFUSED(sw_tracker, SW_INVALID, o.events = (1 << 24) + 1);
    REFUSED(sw_tracker, SW_INVALID, o.struct_bytes = 8);
    CHECK_EQ(sw_tracker_create(NULL, &tracker), SW_OK);
    CHECK_EQ(sw_tracker_create(NULL, &second), SW_BUSY);
    CHECK(second == NULL);
    CHECK_EQ(sw_tracker_set_time(tracker, 1), SW_INVALID); /* the system's clock */
    sw_tracker_rule rule = {.struct_bytes = 8, .period_ns = 1};
    CHECK_EQ(sw_tracker_set_alert(tracker, &rule), SW_INVALID);
    rule = (sw_tracker_rule){.struct_bytes = sizeof rule};
    CHECK_EQ(sw_tracker_set_alert(tracker, &rule), SW_INVALID);
    sw_tracker_destroy(tracker);
    EXPECT_FAULT(STALE_HANDLE, tracker, CHECK_EQ(sw_tracker_leaks(tracker, 0, NULL, NULL, 0), 0));
    EXPECT_FAULT(STALE_HANDLE, tracker, CHECK_EQ(sw_tracker_look(tracker), 0));
    tracker = track(0, 0);
    CHECK_EQ(sw_tracker_set_time(tracker, 5), SW_OK);
    CHECK_EQ(sw_tracker_set_time(tracker, 4), SW_INVALID);
    CHECK_EQ(sw_tracker_set_time(tracker, 5), SW_OK);
    sw_tracker_destroy(tracker);
    sw_tracker_destroy(NULL);
}

int main(void) {
    remember_faults();
    finds_what_is_five_minutes_old();
    notes_who_made_it();
    both_sources_agree();
    notes_events();
    keeps_the_newest_events();
    raises_alerts();
    raises_alerts_for_what_it_does_not_know();
    serves_threads_at_once();
    refuses_what_is_wrong();
    return check_result();
}
