/* SPDX-License-Identifier: Apache-2.0 */
/* No memory: `out_of_memory [ROUNDS | --full]`. Children live under limits of address space (ulimit
 * -v), of data, and under limits that are lowered while they run. Each allocates until it is
 * refused, in all ways and from several threads; is refused with NULL and ENOMEM; finds every block
 * whole; and goes on once it has freed some.
 */
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "stress.h"

enum { BLOCKS_MAX = 1 << 16, SECONDS = 600, THREADS = 3 };

/* Where the blocks are is written in memory that no limit refuses any more. */
typedef struct hoard {
    block *blocks[BLOCKS_MAX];
    size_t count;
} hoard;

static hoard hoards[THREADS];

/* --- what is required of a process without memory --------------------------------------------- */

/* Makes blocks until one is refused. Returns the bytes of those that were given. */
static size_t take_all(hoard *h, uint64_t *rng) {
    size_t bytes = 0;
    while (h->count < BLOCKS_MAX) {
        errno = 0;
        block *b = block_make(rng);
        if (b == NULL) {
            REQUIRE(errno == ENOMEM);
            break;
        }
        h->blocks[h->count++] = b;
        bytes += b->bytes;
    }
    return bytes;
}

/* Frees every n-th block, each verified. */
static void give_some(hoard *h, size_t n) {
    size_t kept = 0;
    for (size_t i = 0; i < h->count; i++) {
        if (i % n == 0) {
            block_free(h->blocks[i]);
        } else {
            h->blocks[kept++] = h->blocks[i];
        }
    }
    h->count = kept;
}

static void verify_all(const hoard *h) {
    for (size_t i = 0; i < h->count; i++) block_verify(h->blocks[i]);
}

/* A resize that is refused leaves the block what it was. */
static void refused_resizes(hoard *h) {
    for (size_t i = 0; i < h->count; i += 97) {
        block *b = h->blocks[i];
        errno = 0;
        void *p = realloc(b, (size_t)1 << 40);
        REQUIRE(p == NULL && errno == ENOMEM);
        block_verify(b);
        size_t bytes = b->bytes;
        p = realloc(b, bytes + 5000);
        if (p == NULL) {
            REQUIRE(errno == ENOMEM);
            block_verify(b);
            continue;
        }
        REQUIRE(((block *)p)->bytes == bytes);
        block_sign(p, bytes + 5000);
        h->blocks[i] = p;
    }
}

static void refused_others(void) {
    void *p = &p;
    errno = 0;
    REQUIRE(calloc(1 << 20, 1 << 20) == NULL && errno == ENOMEM);
    errno = 0;
    REQUIRE(memalign(4096, (size_t)1 << 42) == NULL && errno == ENOMEM);
    REQUIRE(posix_memalign(&p, 64, (size_t)1 << 42) == ENOMEM && p == &p);
}

/* Rounds of all that. Bytes that the first round got. Alone: no other thread takes what was freed.
 * A thread among others may have so little that what it frees makes up no whole span for a size of
 * which it has none. */
static size_t live_without(hoard *h, uint64_t seed, unsigned long rounds, bool alone) {
    uint64_t rng = seed;
    size_t first = 0;
    for (unsigned long round = 0; round < rounds; round++) {
        size_t bytes = take_all(h, &rng);
        if (round == 0) first = bytes;
        verify_all(h);
        refused_resizes(h);
        refused_others();
        give_some(h, 2 + round % 3);
        verify_all(h);
        size_t before = h->count;
        if (h->count > 10) {
            block *b = malloc(64); /* there is memory again */
            REQUIRE(b != NULL || !alone);
            free(b);
        }
        (void)take_all(h, &rng);
        REQUIRE(first < 100000 || h->count > before || !alone);
        if (round % 2 == 1) give_some(h, 1);
        progress();
    }
    give_some(h, 1);
    return first;
}

static void *live_in_thread(void *arg) {
    hoard *h = arg;
    (void)live_without(h, (uint64_t)(h - hoards) + 100, 2, false);
    return NULL;
}

/* Threads that all want the last bytes; they may not even start. */
static void live_in_threads(void) {
    pthread_t threads[THREADS];
    int started = 0;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 64 << 10);
    while (started < THREADS &&
           pthread_create(&threads[started], &attributes, live_in_thread, &hoards[started]) == 0)
        started++;
    for (int i = 0; i < started; i++) pthread_join(threads[i], NULL);
    pthread_attr_destroy(&attributes);
}

/* --- limits ----------------------------------------------------------------------------------- */

typedef struct limited {
    const char *what;
    int resource;
    size_t bytes;     /* the limit; 0: what is in use, and `more` */
    size_t more;      /* over what is in use when it is set */
    size_t least;     /* bytes that the first round must get */
    bool after_start; /* set when the allocator has started, not before */
} limited;

static const limited limits[] = {
    {"4 GiB of addresses", RLIMIT_AS, (size_t)4 << 30, 0, 64 << 20, false},
    {"256 MiB of addresses", RLIMIT_AS, 256 << 20, 0, 60 << 20, false},
    {"64 MiB of addresses", RLIMIT_AS, 64 << 20, 0, 8 << 20, false},
    {"32 MiB of addresses", RLIMIT_AS, 32 << 20, 0, 2 << 20, false},
    {"24 MiB of addresses", RLIMIT_AS, 24 << 20, 0, 1 << 20, false},
    {"16 MiB of addresses", RLIMIT_AS, 16 << 20, 0, 0, false},
    {"12 MiB of addresses", RLIMIT_AS, 12 << 20, 0, 0, false},
    {"10 MiB of addresses", RLIMIT_AS, 10 << 20, 0, 0, false},
    {"64 MiB of data", RLIMIT_DATA, 64 << 20, 0, 16 << 20, false},
    {"16 MiB of data", RLIMIT_DATA, 16 << 20, 0, 1 << 20, false},
    {"4 MiB of data", RLIMIT_DATA, 4 << 20, 0, 0, false},
    {"addresses lowered to what is in use", RLIMIT_AS, 0, 0, 0, true},
    {"addresses lowered to 16 MiB more", RLIMIT_AS, 0, 16 << 20, 8 << 20, true},
    {"data lowered to 16 MiB more", RLIMIT_DATA, 0, 16 << 20, 4 << 20, true},
    {"data lowered to nothing more", RLIMIT_DATA, 0, 0, 0, true},
};
enum { LIMITS = sizeof limits / sizeof *limits };

/* A line of /proc/self/status, in bytes. */
static size_t in_use(const char *key) {
    char line[256];
    size_t kib = 0, length = strlen(key);
    FILE *f = fopen("/proc/self/status", "r");
    REQUIRE(f != NULL);
    while (fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, length) == 0) kib = strtoul(line + length, NULL, 10);
    fclose(f);
    return kib * 1024;
}

static void set_limit(const limited *l) {
    const char *key = l->resource == RLIMIT_AS ? "VmSize:" : "VmData:";
    struct rlimit limit;
    size_t bytes = l->bytes != 0 ? l->bytes : in_use(key) + l->more;
    REQUIRE(getrlimit(l->resource, &limit) == 0);
    limit.rlim_cur = bytes;
    REQUIRE(setrlimit(l->resource, &limit) == 0);
}

/* In a process of its own image, which the limit was set for. */
static int live_under(int which, unsigned long rounds) {
    const limited *l = &limits[which];
    stage(1, l->what, "start");
    if (l->after_start) {
        uint64_t rng = 7;
        for (int i = 0; i < 3000; i++) REQUIRE((hoards[0].blocks[i] = block_make(&rng)) != NULL);
        hoards[0].count = 3000;
        set_limit(l);
    }
    stage(1, l->what, "one thread");
    size_t first = live_without(&hoards[0], 1, rounds, true);
    stage(1, l->what, "several threads");
    live_in_threads();
    stage(1, l->what, "again one thread");
    size_t again = live_without(&hoards[0], 2, 1, true);
    printf("%-40s %8zu KiB given at first, %8zu KiB at the end\n", l->what, first >> 10,
           again >> 10);
    REQUIRE(first >= l->least && again >= l->least / 2);
    return 0;
}

/* The program again under the limit, so that all of it, its loader too, starts there. */
static int run_limited(char *program, int which, const char *rounds) {
    char number[16];
    fflush(stdout);
    pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        char *arguments[] = {program, number, (char *)(uintptr_t)rounds, NULL};
        snprintf(number, sizeof number, "limit%d", which);
        if (!limits[which].after_start) set_limit(&limits[which]);
        execv("/proc/self/exe", arguments);
        _exit(126);
    }
    atomic_store(&the_board->child, child);
    int status = -1;
    waitpid(child, &status, 0);
    progress();
    /* Below some limit the loader itself can not start, with or without us. */
    if (WIFEXITED(status) && (WEXITSTATUS(status) == 127 || WEXITSTATUS(status) == 126)) {
        printf("%-40s the program cannot be loaded\n", limits[which].what);
        return limits[which].bytes != 0 && limits[which].bytes <= (size_t)16 << 20 ? 0 : 1;
    }
    if (status == 0) return 0;
    dprintf(2, "%s: status 0x%x\n", limits[which].what, (unsigned)status);
    return 1;
}

int main(int argc, char **argv) {
    if (argc == 3 && strncmp(argv[1], "limit", 5) == 0) {
        static board own;
        the_board = &own;
        return live_under(atoi(argv[1] + 5), strtoul(argv[2], NULL, 10));
    }
    char rounds[32];
    snprintf(rounds, sizeof rounds, "%lu", length_asked(argc, argv, 2, 20));
    watchdog_start(SECONDS);
    int failed = 0;
    for (int i = 0; i < LIMITS; i++) {
        stage(0, "main", limits[i].what);
        failed += run_limited(argv[0], i, rounds);
    }
    printf("%d limits, %d failed\n", LIMITS, failed);
    return failed != 0;
}
