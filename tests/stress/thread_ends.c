/* SPDX-License-Identifier: Apache-2.0 */
/* What is left when threads end: `thread_ends [MIB | --full]`.
 *
 * The main thread has a live set. Eight threads allocate 64 MiB each (the short form: 16) in mixed
 * sizes, free half of it, some of it each other's, and end; the main thread frees the rest and
 * trims; three times. Each time resident bytes must come back to within 5 % of the start. Held
 * bytes (mallinfo2: arena + hblkhd) may have grown by what the allocator keeps of its own records
 * of the peak: about 1 % of what the threads had, and no more the second and the third time.
 */
#include <pthread.h>

#include "stress.h"

enum { THREADS = 8, BLOCKS_MAX = 400000, ROUNDS = 3, SECONDS = 600, LIVE_MIB = 64 };

typedef struct worker {
    block **blocks;
    size_t count, bytes;
    uint64_t seed;
    int actor;
} worker;

static worker workers[THREADS];
static size_t bytes_each;
static pthread_barrier_t all_have;

/* Mixed sizes, up to `bytes` in all. */
static size_t fill_up(block **blocks, size_t bytes, uint64_t *rng) {
    size_t count = 0;
    for (size_t sum = 0; sum < bytes && count < BLOCKS_MAX; count++) {
        blocks[count] = block_make(rng);
        REQUIRE(blocks[count] != NULL);
        memset(blocks[count] + 1, 1, blocks[count]->bytes - sizeof(block));
        block_sign(blocks[count], blocks[count]->bytes);
        sum += blocks[count]->bytes;
    }
    return count;
}

/* Frees the blocks whose index leaves `rest` modulo 4; of the next worker's, or one's own. */
static void free_quarter(worker *w, size_t rest) {
    for (size_t i = rest; i < w->count; i += 4) {
        block_free(w->blocks[i]);
        w->blocks[i] = NULL;
    }
}

static void *work(void *arg) {
    worker *w = arg;
    stage(w->actor, "worker", "allocate");
    w->count = fill_up(w->blocks, bytes_each, &w->seed);
    stage(w->actor, "worker", "wait for the others");
    pthread_barrier_wait(&all_have);
    stage(w->actor, "worker", "free");
    free_quarter(w, 0);
    free_quarter(&workers[(w - workers + 1) % THREADS], 1);
    stage(w->actor, "worker", "end");
    progress();
    return NULL;
}

static void one_round(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        REQUIRE(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    stage(0, "main", "free what the threads left");
    for (int i = 0; i < THREADS; i++)
        for (size_t k = 0; k < workers[i].count; k++) block_free(workers[i].blocks[k]);
    stage(0, "main", "trim");
    malloc_trim(0);
    progress();
}

static size_t held_bytes(void) {
    struct mallinfo2 info = mallinfo2();
    REQUIRE(info.arena == info.uordblks + info.fordblks);
    return info.arena + info.hblkhd;
}

static bool within(const char *what, int round, size_t before, size_t after, size_t more) {
    double percent = ((double)after / (double)before - 1) * 100;
    printf("round %d: %-14s %9zu KiB before, %9zu KiB after: %+.2f %%\n", round, what, before >> 10,
           after >> 10, percent);
    return after <= before + more;
}

/* Memory for the lists of blocks that is not the allocator's. */
static void *map(size_t bytes) {
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(p != MAP_FAILED);
    memset(p, 1, bytes); /* resident from the start */
    return p;
}

/* Bytes of records that may stay: of a peak for the first time, or of one like those before. */
static size_t may_keep(int round) {
    size_t peak = THREADS * bytes_each;
    return round == 1 ? peak / 100 + (512 << 10) : peak / 1000 + (128 << 10);
}

int main(int argc, char **argv) {
    bytes_each = length_asked(argc, argv, 16, 64) << 20;
    uint64_t rng = 99;
    bool good = true;
    watchdog_start(SECONDS);
    block **live = map(BLOCKS_MAX * sizeof *live);
    for (int i = 0; i < THREADS; i++)
        workers[i] = (worker){
            .blocks = map(BLOCKS_MAX * sizeof(block *)), .seed = (uint64_t)i + 1, .actor = i + 1};
    size_t live_count = fill_up(live, (size_t)LIVE_MIB << 20, &rng);
    (void)resident_bytes(); /* whatever stdio wants is there */
    pthread_barrier_init(&all_have, NULL, THREADS);
    malloc_trim(0);
    size_t held = held_bytes(), resident = resident_bytes(), settled = held;
    for (int round = 1; round <= ROUNDS; round++) {
        one_round();
        size_t now = held_bytes(), records = may_keep(round);
        good &= within("held bytes", round, round == 1 ? held : settled, now, records);
        good &= within("resident bytes", round, resident, resident_bytes(), resident / 20);
        if (round == 1) settled = now;
    }
    for (size_t i = 0; i < live_count; i++) block_free(live[i]);
    return good ? 0 : 1;
}
