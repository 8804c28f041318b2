/* SPDX-License-Identifier: Apache-2.0 */
/* What an object of a task costs: tasks come one after the other, each makes objects, writes all of their bytes, lives
 * until so many later ones have come, is read once more and drops its objects. The strategy says
 * where the objects come from:
 *
 *   heap         a heap, which gets each object back
 *   arena        an arena a task
 *   pool         a pool of items of this size, of the thread
 *   arena_pool   half of a task's objects of its arena, half of the pool
 *
 *     bench_study_arenas tasks BYTES LIVE THREADS TASKS    each thread has LIVE tasks at once, and serves TASKS of them after
 *                                                          the first LIVE; a line a strategy: its name, processor ns of
 *                                                          an object, and ns that a task lived
 *     bench_study_arenas chunks BYTES CHUNK OBJECTS        an arena with chunks of CHUNK bytes after the other, each of which is
 *                                                          filled: processor ns of an object
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "spanwise/spanwise.h"

enum { OBJECTS = 8, THREADS_MAX = 16 };

typedef struct task {
    sw_arena *arena;
    void *objects[OBJECTS];
} task;

/* Each has cache lines of its own: threads write to them at every object. */
typedef struct job {
    size_t bytes, live, tasks;
    int strategy;
    sw_pool *pool; /* of the thread */
    double cpu_ns, lived_ns;
    uint64_t seen;
} __attribute__((aligned(128))) job;

enum { HEAP, ARENA, POOL, ARENA_POOL, STRATEGIES };
static const char *const names[STRATEGIES] = {"heap", "arena", "pool", "arena_pool"};

static void *must(void *object) {
    if (object == NULL) abort();
    return object;
}

static void must_be_ok(sw_status status) {
    if (status != SW_OK) abort();
}

static double clock_ns(clockid_t clock) {
    struct timespec now;
    if (clock_gettime(clock, &now) != 0) abort();
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static sw_arena *make_arena(size_t chunk_bytes) {
    sw_arena_options options;
    sw_arena *arena;
    sw_arena_options_init(&options);
    options.chunk_bytes = chunk_bytes;
    must_be_ok(sw_arena_create(&options, &arena));
    return arena;
}

/* The smallest chunk into which a task's objects fit. */
static size_t chunk_of(size_t bytes) {
    size_t chunk = SW_ARENA_CHUNK_MIN;
    while (chunk < OBJECTS * bytes || chunk < 4 * bytes + 64) chunk *= 2;
    return chunk;
}

static int is_of_arena(const job *own, int i) {
    return own->strategy == ARENA || (own->strategy == ARENA_POOL && i % 2 == 0);
}

static void begin(const job *own, task *made) {
    if (own->strategy == ARENA || own->strategy == ARENA_POOL)
        made->arena = make_arena(chunk_of(own->bytes));
    for (int i = 0; i < OBJECTS; i++) {
        void *object = is_of_arena(own, i)     ? sw_arena_alloc(made->arena, own->bytes, 16, 0)
                       : own->strategy == HEAP ? sw_heap_alloc(sw_heap_default(), own->bytes, 0)
                                               : sw_pool_get(own->pool);
        made->objects[i] = must(object);
        memset(object, i + 1, own->bytes);
    }
}

static void end(job *own, task *ended) {
    for (int i = 0; i < OBJECTS; i++) {
        unsigned char *object = ended->objects[i];
        own->seen += object[own->bytes - 1];
        if (is_of_arena(own, i)) continue;
        if (own->strategy == HEAP)
            sw_heap_free(sw_heap_default(), object);
        else
            must_be_ok(sw_pool_put(own->pool, object, own->bytes));
    }
    if (ended->arena != NULL) must_be_ok(sw_arena_free(ended->arena));
    ended->arena = NULL;
}

static sw_pool *make_pool(const job *own) {
    sw_pool_options options;
    sw_pool *pool;
    sw_pool_options_init(&options);
    options.item_bytes = own->bytes;
    options.capacity = OBJECTS * (own->live + 1);
    must_be_ok(sw_pool_create(&options, &pool));
    return pool;
}

static void *serve(void *argument) {
    job *own = argument;
    task *ring = must(calloc(own->live, sizeof *ring));
    own->pool = make_pool(own);
    for (size_t i = 0; i < own->live; i++) begin(own, &ring[i]);
    double cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID), elapsed = clock_ns(CLOCK_MONOTONIC);
    for (size_t i = 0, at = 0; i < own->tasks; i++) {
        end(own, &ring[at]);
        begin(own, &ring[at]);
        if (++at == own->live) at = 0;
    }
    double count = (double)own->tasks;
    own->cpu_ns = (clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu) / (count * OBJECTS);
    own->lived_ns = (clock_ns(CLOCK_MONOTONIC) - elapsed) / count * (double)own->live;
    for (size_t i = 0; i < own->live; i++) end(own, &ring[i]);
    sw_pool_destroy(own->pool);
    free(ring);
    return NULL;
}

static void measure(size_t bytes, size_t live, size_t threads, size_t tasks, int strategy) {
    job jobs[THREADS_MAX];
    pthread_t of[THREADS_MAX];
    double cpu_ns = 0, lived_ns = 0;
    for (size_t i = 0; i < threads; i++) {
        jobs[i] = (job){.bytes = bytes, .live = live, .tasks = tasks, .strategy = strategy};
        if (pthread_create(&of[i], NULL, serve, &jobs[i]) != 0) abort();
    }
    for (size_t i = 0; i < threads; i++) {
        if (pthread_join(of[i], NULL) != 0) abort();
        if (jobs[i].seen != (live + tasks) * OBJECTS * (OBJECTS + 1) / 2) abort();
        cpu_ns += jobs[i].cpu_ns / (double)threads;
        lived_ns += jobs[i].lived_ns / (double)threads;
    }
    printf("%s %.3f %.0f\n", names[strategy], cpu_ns, lived_ns);
}

static void measure_chunks(size_t bytes, size_t chunk, size_t objects) {
    size_t each = chunk / bytes, made = 0;
    sw_arena_set_keep(16 << 20, 64 << 20);
    double cpu = 0;
    for (size_t arenas = 0; made < objects || arenas < 2; arenas++) {
        if (arenas == 1)
            cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID); /* the first faults its chunk in */
        sw_arena *arena = make_arena(chunk);
        for (size_t i = 0; i < each; i++) {
            void *object = must(sw_arena_alloc(arena, bytes, 16, 0));
            memset(object, 1, bytes);
        }
        must_be_ok(sw_arena_free(arena));
        if (arenas > 0) made += each;
    }
    printf("%.3f\n", (clock_ns(CLOCK_THREAD_CPUTIME_ID) - cpu) / (double)made);
}

static size_t number(const char *text) { return strtoul(text, NULL, 10); }

int main(int argc, char **argv) {
    if (argc == 6 && strcmp(argv[1], "tasks") == 0) {
        size_t bytes = number(argv[2]), live = number(argv[3]), threads = number(argv[4]);
        if (bytes == 0 || live == 0 || threads == 0 || threads > THREADS_MAX) return 2;
        for (int strategy = 0; strategy < STRATEGIES; strategy++)
            measure(bytes, live, threads, number(argv[5]), strategy);
        return 0;
    }
    if (argc == 5 && strcmp(argv[1], "chunks") == 0 && number(argv[2]) > 0 &&
        number(argv[3]) >= 4 * number(argv[2])) {
        measure_chunks(number(argv[2]), number(argv[3]), number(argv[4]));
        return 0;
    }
    (void)fprintf(stderr, "usage: bench_study_arenas tasks BYTES LIVE THREADS TASKS\n"
                          "       bench_study_arenas chunks BYTES CHUNK OBJECTS\n");
    return 2;
}
