/* SPDX-License-Identifier: Apache-2.0 */
/* The checks of arenas, as test_grades.c has those of heaps: a damage planted in each struct ends a forked
 * child with the broken rule at grade 2 and above, and is not looked for below. */
#include "arena/arena.h"
#include "arena/chunk_cache.h"
#include "arena/log.h"
#include "arena/track.h"
#include "base/assert.h"
#include "dying_words.h"

static sw_arena *arena;

static void make(void) {
    if (sw_arena_create(NULL, &arena) != SW_OK) abort();
    (void)sw_arena_alloc(arena, 100, 0, 0);
}

static void damage_record(void) {
    make();
    arena->own_objects = 1;
    (void)sw_arena_reset(arena);
}

static void damage_ends(void) {
    make();
    arena->ends->front = arena->chunks->base - 1;
    (void)sw_arena_reset(arena);
}

static void damage_chunk(void) {
    make();
    sw_arena_set_keep(0, 0);
    arena->chunks->bytes *= 2;
    (void)sw_arena_free(arena);
}

static void damage_chunk_cache(void) {
    make();
    sw_arena_chunk_cache_own()->number = 0;
    (void)sw_arena_free(arena);
}

static void damage_region(void) {
    make();
    sw_region *region = (sw_region *)(void *)((char *)arena->chunks - offsetof(sw_region, chunks));
    region->taken = region->count + 1;
    (void)sw_chunk_take(16);
}

/* Of the process's idle chunks of this size the newest has a newer one. */
static void damage_node(void) {
    make();
    sw_arena_set_keep(0, 64 << 20);
    sw_chunk *chunk = arena->chunks;
    (void)sw_arena_free(arena);
    chunk->newer = chunk;
    (void)sw_chunk_take(16);
}

/* A chunk is idle so often that more bytes are than were reserved. */
static void damage_chunk_pool(void) {
    make();
    sw_arena_set_keep(0, UINT64_MAX);
    sw_chunk *chunk = arena->chunks;
    for (int i = 0; i < 20000; i++) sw_chunk_give(chunk);
    (void)sw_chunk_take(16);
}

/* False where the system takes no access away. */
static bool make_safe(void) {
    sw_arena_options options;
    sw_arena_options_init(&options);
    options.safe = 1;
    return sw_arena_create(&options, &arena) == SW_OK;
}

/* The newest chunk of the quarantine has one behind it. */
static void damage_queue(void) {
    if (!make_safe()) abort();
    (void)sw_arena_alloc(arena, 100, 0, 0);
    sw_chunk *chunk = arena->chunks;
    (void)sw_arena_free(arena);
    chunk->next = chunk;
    sw_arena_set_quarantine(UINT64_C(1) << 30);
}

static void damage_log(void) {
    sw_arena_log *log = sw_arena_log_new("log", 1);
    log->made.count = SW_LOG_FRAMES + 1;
    sw_arena_log_drop(log);
}

static void track(void) {
    sw_tracker *tracker;
    if (sw_tracker_create(NULL, &tracker) != SW_OK) abort();
    make();
}

static void damage_tracker(void) {
    track();
    sw_track_current()->ids = 0;
    make();
}

static void damage_track(void) {
    track();
    sw_track_current()->newest->id = 0;
    (void)sw_arena_free(arena);
}

static const planted cases[] = {
    {"(arena->own == NULL) == (arena->own_objects == 0)", damage_record},
    {"ends->front >= chunk->base", damage_ends},
    {"chunk->bytes == UINT64_C(1) << chunk->log2", damage_chunk},
    {"chunk_cache->number != 0", damage_chunk_cache},
    {"region->taken <= region->count", damage_region},
    {"newest == NULL || newest->newer == NULL", damage_node},
    {"pool->idle_bytes + pool->returned_bytes <= pool->reserved_bytes", damage_chunk_pool},
    {"queue->newest == NULL || queue->newest->next == NULL", damage_queue},
    {"log->made.count <= ", damage_log},
    {"tracker->count <= tracker->ids", damage_tracker},
    {"track->id != 0", damage_track},
};

int main(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[DYING_WORDS_MAX];
        bool has_chunk_cache =
            sw_arena_chunk_cache_own() != NULL; /* where the system tells of exits */
        bool can_be = (cases[i].fn != damage_chunk_cache || has_chunk_cache) &&
                      (cases[i].fn != damage_queue || make_safe());
        if (SW_CHECK < 2 || !can_be) {
            CHECK(cases[i].rule != NULL); /* what a damage does then is anybody's guess */
            continue;
        }
        bool died = died_with(cases[i].fn, words);
        if (!died || strstr(words, cases[i].rule) == NULL)
            fprintf(stderr, "%s: \"%s\"\n", cases[i].rule, words);
        CHECK(died);
        CHECK(strstr(words, cases[i].rule) != NULL);
    }
    return check_result();
}
