/* SPDX-License-Identifier: Apache-2.0 */
/* The order in which chunks leave the quarantine: a chunk into which the last scan of a collector
 * found a pointer stays, even if its neighbours are released, and leaves when no pointer is left.
 * Each arena here is safe and has one chunk. */
#include "arena/chunk.h"
#include "arenas.h"
#include "collector.h"
#include "faults.h"
#include "os/os.h"

enum { CHUNK = 4096, MANY = 576, RUNS = 512 };

static sw_gc *gc;
static const char *words[MANY]; /* roots */
static sw_arena *arenas[MANY];
static const char *objects[MANY]; /* one of each arena */

static bool make(int count) {
    for (int i = 0; i < count; i++) {
        arenas[i] = make_arena((sw_arena_options){.chunk_bytes = CHUNK, .safe = 1});
        if (arenas[i] == NULL) return false;
        objects[i] = sw_arena_alloc(arenas[i], 40, 8, 0);
        CHECK_EQ(sw_chunk_find(objects[i])->bytes, CHUNK);
    }
    return true;
}

static void end(int from, int to) {
    for (int i = from; i < to; i++) CHECK_EQ(sw_arena_free(arenas[i]), SW_OK);
}

/* Whether the chunk of object i is in the quarantine, or was taken out of it with its log. */
static bool waits(int i) { return sw_chunk_find(objects[i])->log != NULL; }

/* A letter for each of the first objects: whether its chunk waits. */
static const char *now(int count) {
    static char text[MANY + 1];
    for (int i = 0; i < count; i++) text[i] = waits(i) ? 'w' : '-';
    text[count] = '\0';
    return text;
}
#define EXPECT(which) CHECK_STR(now((int)sizeof(which) - 1), which)

static uint64_t chunks_waiting(void) {
    CHECK_EQ(chunk_stats().quarantine_bytes % CHUNK, 0);
    return chunk_stats().quarantine_bytes / CHUNK;
}

/* Empties the quarantine, and gives it room for so many chunks. */
static void begin(int chunks) {
    memset(words, 0, sizeof words);
    sw_arena_set_quarantine(0);
    CHECK_EQ(chunks_waiting(), 0);
    sw_arena_set_quarantine((uint64_t)chunks * CHUNK);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_DANGLING), SW_OK);
}

static int found(void) {
    seen_count = 0;
    CHECK_EQ(sw_gc_collect(gc, NULL), SW_OK);
    return seen_count;
}

/* The room is 512 chunks, and up to 8 neighbours are released at once. Each third chunk is pointed
 * to: of the first 64, 21, which are more than a look reports. 64 chunks too many release the
 * others, and those that stay are the newest 512, and 21. */
static void neighbours(void) {
    begin(RUNS);
    if (!make(MANY)) return;
    end(0, RUNS);
    CHECK_EQ(chunks_waiting(), RUNS);
    for (int i = 1; i < 64; i += 3) words[i] = objects[i] + 39;
    CHECK_EQ(found(), 16);
    end(RUNS, MANY);
    for (int i = 0; i < 64; i++) CHECK_EQ(waits(i), i % 3 == 1);
    CHECK(chunks_waiting() <= RUNS + 21);
    memset(words, 0, sizeof words);
    CHECK_EQ(found(), 0);
    for (int i = 1; i < 64; i += 3) CHECK(waits(i)); /* their turn comes with the next chunk */
    CHECK(make(1));
    end(0, 1);
    CHECK(chunks_waiting() <= RUNS);
    for (int i = 1; i < 64; i += 3) CHECK(!waits(i));
}

/* The limit counts whole chunks, for those that are pointed to as well. */
static void bounds(void) {
    begin(4);
    if (!make(16)) return;
    end(0, 4);
    EXPECT("wwww");
    end(4, 5);
    EXPECT("-wwww");
    for (int i = 1; i < 6; i++) words[i] = objects[i];
    end(5, 6);
    EXPECT("--wwww");
    CHECK_EQ(found(), 4); /* 2 to 5, as 1 has ended for good */
    end(6, 10);
    EXPECT("--wwwwwwww");
    CHECK_EQ(chunks_waiting(), 8);
    words[6] = objects[6];
    CHECK_EQ(found(), 5);
    end(10, 11); /* 2 to 5 fill the room of those that are pointed to */
    EXPECT("--wwww-wwww");
    sw_arena_set_quarantine(2 * CHUNK);
    EXPECT("--ww-----ww");
    CHECK_EQ(chunks_waiting(), 4);
    end(11, 16);
    EXPECT("--ww----------ww");
    CHECK_EQ(chunks_waiting(), 4);
}

/* What was pointed to in an earlier life of a chunk says nothing of the next one. */
static void another_life(void) {
    begin(4);
    if (!make(1)) return;
    const char *first = objects[0];
    words[0] = first;
    end(0, 1);
    CHECK_EQ(found(), 1);
    sw_arena_set_quarantine(0);
    CHECK(!waits(0));
    sw_arena_set_quarantine((uint64_t)4 * CHUNK);
    CHECK(make(16));
    int again = -1;
    for (int i = 0; i < 16; i++)
        if (sw_chunk_find(objects[i]) == sw_chunk_find(first)) again = i;
    CHECK(again >= 0);
    sw_arena *own = arenas[again];
    arenas[again] = arenas[15];
    CHECK_EQ(sw_arena_free(own), SW_OK);
    end(0, 15);
    CHECK(sw_chunk_find(first)->log == NULL);
}

/* A cycle that looks at no words, or not at all of them, changes nothing. */
static void looks_that_are_none(void) {
    sw_gc_shadow *shadow;
    sw_gc_frame frame = {0};
    begin(4);
    if (!make(16)) return;
    words[0] = objects[0];
    end(0, 1);
    CHECK_EQ(found(), 1);
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_CHECKMARK), SW_OK);
    CHECK_EQ(found(), 0);
    end(1, 6);
    EXPECT("w-wwww");
    CHECK_EQ(sw_gc_set_debug(gc, SW_GC_DANGLING), SW_OK);
    words[0] = NULL;
    const char *local = objects[0];
    CHECK_EQ(sw_gc_shadow_create(gc, &shadow), SW_OK);
    CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &local, sizeof local), SW_OK);
    CHECK_EQ(found(), 1);
    CHECK_EQ(sw_gc_start(gc), SW_OK);
    frame.bytes *= 2; /* it is not read any more */
    sw_status status = SW_OK;
    while (status == SW_OK && sw_gc_current_phase(gc) != SW_GC_IDLE) status = sw_gc_step(gc, 100);
    CHECK_EQ(status, SW_STATE);
    if (sw_gc_current_phase(gc) != SW_GC_IDLE) CHECK_EQ(sw_gc_finish(gc, NULL), SW_OK);
    frame.bytes /= 2;
    end(6, 11);
    EXPECT("w------wwww");
    CHECK_EQ(sw_gc_shadow_pop(shadow, &frame), SW_OK);
    CHECK_EQ(found(), 0);
    end(11, 12);
    EXPECT("-");
    CHECK_EQ(sw_gc_shadow_destroy(shadow), SW_OK);
}

/* A use that the program lets pass gives the chunk back to it for ever: the first, the last and one
 * between of those that are pointed to, and of the others. */
static void opened(void) {
    begin(4);
    if (sw_os_is_watched() || !make(16)) return; /* a memory checker forbids the use */
    for (int i = 0; i < 4; i++) words[i] = objects[i];
    end(0, 4);
    CHECK_EQ(found(), 4);
    end(4, 8);
    CHECK_EQ(chunks_waiting(), 8);
    static const int order[] = {3, 0, 2, 7, 5};
    for (int i = 0; i < 5; i++) {
        int k = order[i];
        EXPECT_FAULT(FREED_ARENA, objects[k], (void)*(const volatile char *)objects[k]);
        CHECK_EQ(chunks_waiting(), (uint64_t)(7 - i));
        CHECK(waits(k));
    }
    words[8] = objects[8];
    end(8, 10); /* after the newest that are left */
    CHECK_EQ(found(), 5);
    end(10, 16);
    EXPECT("wwww-w-ww---wwww"); /* of the others the newest four; 1 and 8 are pointed to */
    CHECK_EQ(chunks_waiting(), 6);
    memset(words, 0, sizeof words);
    sw_arena_set_quarantine(0);
    CHECK_EQ(chunks_waiting(), 0);
    EXPECT("w-ww-w-w--------");
}

int main(void) {
    gc = gc_begin(0);
    (void)gc_roots(gc, words, sizeof words);
    remember_faults();
    neighbours();
    bounds();
    another_life();
    looks_that_are_none();
    opened();
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
    return check_result();
}
