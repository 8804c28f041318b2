/* SPDX-License-Identifier: Apache-2.0 */
/* The chunks of arenas that threads and the process keep: their age, their node, their return. */
#include "arena/arena.h"
#include "arena/chunk.h"
#include "arenas.h"
#include "os/os.h"
#include "spawn.h"

enum { CHUNK = 64 * 1024, QUARTER = CHUNK / 4 - 16, SECOND = 1000000000, NODES = 3 };

static uint64_t now_ns;
static int readings;

static uint64_t clock_of_test(void *context) {
    CHECK(context == &now_ns);
    readings++;
    return now_ns;
}

static sw_arena *make_chunked(uint64_t chunk_bytes) {
    return make_arena((sw_arena_options){.chunk_bytes = chunk_bytes, .mode = SW_ARENA_FORCE});
}

/* An arena with one chunk, whose first object it returns. */
static char *fill(sw_arena *arena) {
    char *object = sw_arena_alloc(arena, 1000, 0, SW_SCAN);
    CHECK(object != NULL);
    memset(object, 1, 1000);
    return object;
}

static uint64_t idle_bytes(void) { return chunk_stats().idle_chunk_bytes; }

/* An empty process, whose threads keep nothing. */
static void begin(uint64_t decay_ns) {
    sw_arena_set_keep(0, 64 << 20);
    (void)sw_arena_trim();
    sw_arena_set_decay(decay_ns, clock_of_test, &now_ns);
    CHECK_EQ(idle_bytes(), 0);
}

static void end(void) {
    sw_arena_set_decay(0, NULL, NULL);
    CHECK_EQ(sw_arena_set_nodes(0, NULL, NULL), SW_OK);
    (void)sw_arena_trim();
    sw_arena_set_keep(1 << 20, 64 << 20);
}

static void keeps_and_returns_chunks(void) {
    (void)sw_arena_trim();
    sw_arena_set_keep(1 << 20, 64 << 20);
    sw_arena_pool_stats before = chunk_stats();
    for (int round = 0; round < 50; round++) {
        sw_arena *arena = make_chunked(CHUNK);
        for (int i = 0; i < 100; i++) memset(sw_arena_alloc(arena, 10000, 1, 0), 1, 10000);
        CHECK_EQ(chunk_stats().arenas, before.arenas + 1);
        CHECK_EQ(sw_arena_free(arena), SW_OK);
    }
    sw_arena_pool_stats after = chunk_stats();
    CHECK(after.reserved_bytes - before.reserved_bytes <= 4 << 20); /* one region of 64 chunks */
    uint64_t kept = after.idle_chunk_bytes + after.used_chunk_bytes;
    CHECK(kept >= 17 * 65536); /* used_chunk_bytes has what the thread keeps */
    CHECK_EQ(sw_arena_trim(), kept);
    CHECK_EQ(chunk_stats().used_chunk_bytes, 0);
    CHECK_EQ(chunk_stats().idle_chunk_bytes, 0);
    sw_arena_set_keep(0, 0);
    sw_arena *arena = make_chunked(CHUNK);
    (void)sw_arena_alloc(arena, 1, 1, 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(chunk_stats().used_chunk_bytes + chunk_stats().idle_chunk_bytes, 0);
    sw_arena_set_keep(1 << 20, 64 << 20);
}

static void returns_what_is_old(void) {
    begin(10 * (uint64_t)SECOND);
    sw_arena *first = make_chunked(CHUNK), *second = make_chunked(2 * CHUNK);
    (void)fill(first), (void)fill(second);
    now_ns = 100 * (uint64_t)SECOND;
    CHECK_EQ(sw_arena_free(first), SW_OK); /* idle since 100 s */
    now_ns = 104 * (uint64_t)SECOND;
    CHECK_EQ(sw_arena_free(second), SW_OK); /* since 104 s */
    CHECK_EQ(idle_bytes(), 3 * CHUNK);
    now_ns = 110 * (uint64_t)SECOND - 1;
    CHECK_EQ(sw_arena_decay(), 0);
    now_ns++;
    CHECK_EQ(sw_arena_decay(), CHUNK);
    CHECK_EQ(idle_bytes(), 2 * CHUNK);
    CHECK_EQ(sw_arena_decay(), 0);
    now_ns = 114 * (uint64_t)SECOND;
    CHECK_EQ(sw_arena_decay(), 2 * CHUNK);
    CHECK_EQ(idle_bytes(), 0);
    end();
}

/* Without a request to trim, a call returns at most 8 chunks to the system; the next continue. */
static void returns_few_at_a_time(void) {
    enum { MANY = 20 };
    begin(SECOND);
    sw_arena *arena = make_chunked(CHUNK), *late = make_chunked(2 * CHUNK);
    for (int i = 0; i < 4 * MANY; i++) CHECK(sw_arena_alloc(arena, QUARTER, 16, 0) != NULL);
    (void)fill(late);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(idle_bytes(), MANY * CHUNK);
    now_ns += SECOND;
    CHECK_EQ(sw_arena_free(late), SW_OK);
    CHECK_EQ(idle_bytes(), (MANY - 8 + 2) * CHUNK);
    late = make_chunked(2 * CHUNK);
    (void)fill(late);
    CHECK_EQ(idle_bytes(), (MANY - 16) * CHUNK);
    CHECK_EQ(sw_arena_decay(), 4 * CHUNK);
    CHECK_EQ(sw_arena_free(late), SW_OK);
    end();
}

/* Without a decay no clock is read, and what was idle before it was set is as old as the setting.
 */
static void begins_when_it_is_set(void) {
    begin(0);
    sw_arena *arena = make_chunked(CHUNK);
    (void)fill(arena);
    readings = 0;
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_arena_decay(), 0);
    CHECK_EQ(readings, 0);
    now_ns = 1000 * (uint64_t)SECOND;
    sw_arena_set_decay(SECOND, clock_of_test, &now_ns);
    CHECK_EQ(sw_arena_decay(), 0);
    now_ns -= 5; /* a clock that goes back is wrong, and returns nothing early */
    CHECK_EQ(sw_arena_decay(), 0);
    now_ns += SECOND + 5;
    CHECK_EQ(sw_arena_decay(), CHUNK);
    sw_arena_set_decay(UINT64_MAX, clock_of_test, &now_ns);
    arena = make_chunked(CHUNK);
    (void)fill(arena);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    now_ns = UINT64_MAX - 1;
    CHECK_EQ(sw_arena_decay(), 0);
    now_ns = 0;
    end();
}

/* --- by node ---------------------------------------------------------------------------------- */

static _Thread_local uint32_t node; /* of the calling thread, in the test's machine */

static uint32_t node_of_test(void *context) {
    CHECK(context == &now_ns);
    return node;
}

/* The chunk of an arena that a thread of a node makes and frees. */
static uintptr_t chunk_at(uint32_t where) {
    node = where;
    sw_arena *arena = make_chunked(CHUNK);
    uintptr_t chunk = (uintptr_t)fill(arena) / CHUNK;
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    return chunk;
}

static void keeps_nodes_apart(void) {
    begin(0);
    CHECK_EQ(sw_arena_set_nodes(NODES, node_of_test, &now_ns), SW_OK);
    uintptr_t of[NODES];
    for (uint32_t i = 0; i < NODES; i++) of[i] = chunk_at(i);
    CHECK(of[0] != of[1] && of[1] != of[2] && of[2] != of[0]);
    CHECK_EQ(idle_bytes(), NODES * CHUNK);
    for (uint32_t i = NODES; i-- > 0;) CHECK_EQ(chunk_at(i), of[i]);
    CHECK_EQ(chunk_at(NODES + 4), of[0]); /* no node of the machine */
    CHECK_EQ(sw_arena_trim(), NODES * CHUNK);
    for (uint32_t i = 0; i < NODES; i++) CHECK_EQ(chunk_at(i), of[i]); /* returned ones, too */
    CHECK_EQ(sw_arena_set_nodes(1, node_of_test, &now_ns), SW_OK);
    CHECK_EQ(chunk_at(2), of[0]); /* one pool */
    end();
}

/* What is freed on another node goes back to where it came from. */
static void returns_chunks_to_their_node(void) {
    begin(0);
    CHECK_EQ(sw_arena_set_nodes(NODES, node_of_test, &now_ns), SW_OK);
    uintptr_t first = chunk_at(1), second = chunk_at(2);
    node = 1;
    sw_arena *arena = make_chunked(CHUNK);
    CHECK_EQ((uintptr_t)fill(arena) / CHUNK, first);
    node = 2;
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(chunk_at(2), second);
    CHECK_EQ(chunk_at(1), first);
    end();
}

/* A thread that moved to another node does not use what it kept on the old one. */
static void leaves_kept_chunks_behind(void) {
    begin(0);
    CHECK_EQ(sw_arena_set_nodes(NODES, node_of_test, &now_ns), SW_OK);
    sw_arena_set_keep(1 << 20, 64 << 20);
    uintptr_t first = chunk_at(1);
    CHECK_EQ(chunk_at(1), first);
    uintptr_t second = chunk_at(2);
    CHECK(second != first);
    CHECK_EQ(chunk_at(2), second);
    CHECK_EQ(chunk_at(1), first);
    end();
}

static void refuses_bad_counts(void) {
    CHECK_EQ(sw_arena_set_nodes(SW_ARENA_NODES_MAX + 1, NULL, NULL), SW_INVALID);
    CHECK_EQ(sw_arena_set_nodes(UINT32_MAX, NULL, NULL), SW_INVALID);
    CHECK_EQ(sw_arena_set_nodes(SW_ARENA_NODES_MAX, NULL, NULL), SW_OK); /* the system's nodes */
    CHECK(sw_os_node() < 1024);
    uintptr_t chunk = chunk_at(0);
    CHECK(chunk != 0);
    end();
}

/* --- threads ---------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 200 };

static void *leave_an_arena(void *arg) {
    (void)arg;
    sw_arena *ended = make_chunked(CHUNK), *arena = make_chunked(CHUNK);
    memset(sw_arena_alloc(ended, 100, 0, 0), 5, 100);
    CHECK_EQ(sw_arena_free(ended), SW_OK);
    memset(sw_arena_alloc(arena, 100, 0, 0), 5, 100);
    return arena;
}

/* The arena of a thread that has exited lives, and other threads can use and free it; what the
 * thread kept is the process's. */
static void outlives_its_thread(void) {
    uint64_t arenas = chunk_stats().arenas, reserved = 0;
    for (int round = 0; round < 20; round++) {
        sw_arena *arena = in_thread(leave_an_arena, NULL);
        CHECK_EQ(chunk_stats().arenas, arenas + 1);
        CHECK(sw_arena_alloc(arena, 100, 0, 0) != NULL);
        CHECK_EQ(sw_arena_free(arena), SW_OK);
        CHECK_EQ(chunk_stats().arenas, arenas);
        if (round == 0) reserved = chunk_stats().reserved_bytes;
    }
    CHECK_EQ(chunk_stats().reserved_bytes, reserved);
}

static void *work(void *argument) {
    uint32_t own = *(uint32_t *)argument;
    for (uint32_t i = 0; i < ROUNDS; i++) {
        node = (own + i / 50) % NODES; /* moves a few times */
        sw_arena *arena = make_chunked(CHUNK);
        for (int j = 0; j < 6; j++) {
            unsigned char *object = sw_arena_alloc(arena, QUARTER, 16, 0);
            if (object == NULL) continue;
            memset(object, (int)own, QUARTER);
            CHECK_EQ(object[CHUNK / 8], own);
        }
        CHECK_EQ(sw_arena_free(arena), SW_OK);
        if (i % 10 == 0) (void)sw_arena_decay();
    }
    return NULL;
}

static void survives_threads(void) {
    begin(0);
    CHECK_EQ(sw_arena_set_nodes(NODES, node_of_test, &now_ns), SW_OK);
    sw_arena_set_decay(1000, NULL, NULL);
    uint32_t numbers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) numbers[i] = i;
    in_threads(THREADS, work, numbers, sizeof *numbers);
    sw_arena_pool_stats stats = chunk_stats();
    CHECK_EQ(stats.used_chunk_bytes, 0);
    CHECK(stats.idle_chunk_bytes + stats.returned_bytes <= stats.reserved_bytes);
    end();
}

int main(void) {
    keeps_and_returns_chunks();
    returns_what_is_old();
    returns_few_at_a_time();
    begins_when_it_is_set();
    keeps_nodes_apart();
    returns_chunks_to_their_node();
    leaves_kept_chunks_behind();
    refuses_bad_counts();
    outlives_its_thread();
    survives_threads();
    return check_result();
}
