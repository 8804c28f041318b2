/* SPDX-License-Identifier: Apache-2.0 */
/* Safe arenas: each kind of use after free, with the exact report; holds, owners and references;
 * the quarantine's bounds and the order in which chunks leave it. Full form:
 * build/release/test_arena_safe 1000000 */
#define _GNU_SOURCE
#include "arena/chunk.h"
#include "arenas.h"
#include "collector.h"
#include "ds/handle.h"
#include "dying_words.h"
#include "faults.h"
#include "os/os.h"
#include "spawn.h"

typedef struct message {
    struct message *next;
    char text[32];
} message;

static sw_arena *make(uint64_t chunk, uint32_t locked) {
    return make_arena(
        (sw_arena_options){.chunk_bytes = chunk, .safe = 1, .locked = locked, .tag = "traps"});
}

/* Called through pointers that hide them from the compiler: the fault handler may change any
 * variable. */
static char read_it(const volatile char *p) { return *p; }
static void write_it(volatile char *p) { *p = 1; }
static char (*volatile read_byte)(const volatile char *) = read_it;
static void (*volatile write_byte)(volatile char *) = write_it;

/* --- the traps, each in a child --------------------------------------------------------------- */

static message *stale;

static void free_one(void) {
    sw_arena *arena = make(4096, 0);
    (void)SW_ARENA_NEW(arena, message);
    stale = SW_ARENA_NEW(arena, message);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

static void *use_in_thread(void *arg) {
    (void)read_byte((char *)arg + 8);
    return NULL;
}
static void used_by_another_thread(void) {
    pthread_t thread;
    free_one();
    if (pthread_create(&thread, NULL, use_in_thread, stale) == 0) (void)pthread_join(thread, NULL);
}

/* It takes what it is given for memory of malloc. */
static void given_to_a_library(void) {
    sw_arena *arena = make(4096, 0);
    stale = SW_ARENA_NEW(arena, message);
    sw_free(stale->text);
}

/* Hands out places in the arena that it reads from. */
static const char *read_line(sw_arena *arena) {
    char *line = sw_arena_alloc_typed(arena, 40, 1, 0, "message");
    memcpy(line, "0123456789", 11);
    return line + 8;
}
static void outlives_the_reader(void) {
    sw_arena *arena = make(4096, 0);
    const char *line = read_line(arena);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    (void)read_byte(line);
}

static void kept_in_a_pool(void) {
    free_one();
    message *pool = stale; /* the head of a free list */
    write_byte((char *)pool + 8);
}

static void cloned_when_stale(void) {
    sw_arena *arena = make(4096, 0);
    free_one();
    (void)sw_arena_clone(arena, (char *)stale + 8, 8, 0);
}

static void freed_twice(void) {
    sw_arena *arena = make(4096, 0);
    (void)sw_arena_free(arena);
    (void)sw_arena_free(arena);
}

/* What each says as it dies; after "ptr=" an address follows. */
static const struct {
    void (*fn)(void);
    const char *first, *second;
} traps[] = {
    {used_by_another_thread, "FREED_ARENA op=read ptr=", "offset 8 of message, 40 bytes"},
    {given_to_a_library, "ARENA op=free ptr=", "belongs to an arena"},
    {outlives_the_reader, "FREED_ARENA op=read ptr=", "offset 8 of message, 40 bytes"},
    {kept_in_a_pool, "FREED_ARENA op=write ptr=", "offset 8 of message, 40 bytes"},
    {cloned_when_stale, "FREED_ARENA op=arena_clone ptr=", "offset 8 of message, 40 bytes"},
    {freed_twice, "STALE_HANDLE op=arena_free ptr=", "closed or destroyed before"},
};

/* How many addresses follow the words in the text. */
static int addresses_behind(const char *text, const char *words) {
    const char *at = strstr(text, words);
    int count = 0;
    if (at == NULL) return 0;
    for (at = strstr(at, " at "); at != NULL && *at != '\0' && *at != '\n'; at++)
        if (strncmp(at, " 0x", 3) == 0) count++;
    return count;
}

/* The steps of all traps but the first are made by the thread that faults, which is new in a child.
 */
static bool names_one_thread(const char *words) {
    const char *fault = strstr(words, " thread="), *made = strstr(words, "made by thread "),
               *freed = strstr(words, "freed by thread ");
    if (fault == NULL || made == NULL || freed == NULL) return false;
    long thread = atol(fault + strlen(" thread="));
    return thread == atol(made + strlen("made by thread ")) &&
           thread == atol(freed + strlen("freed by thread "));
}

static bool tells_all(const char *words, const char *first, const char *second) {
    if (strstr(words, "spanwise: fatal: ") != words || strstr(words, second) == NULL) return false;
    if (strncmp(words + 17, first, strlen(first)) != 0) return false;
    if (strncmp(first, "FREED", 5) != 0) return true;
    return strstr(words, "object belonged to an arena that was freed\n") != NULL &&
           strstr(words, ", tag traps\n") != NULL && addresses_behind(words, "bytes, all") == 1 &&
           addresses_behind(words, "arena made by thread ") >= 1 &&
           addresses_behind(words, "arena freed by thread ") >= 1;
}

static void every_trap_is_reported(void) {
    CHECK_EQ(sw_arena_free(make(4096, 0)), SW_OK); /* the parent knows its number already */
    for (size_t i = 0; i < sizeof traps / sizeof *traps; i++) {
        char words[DYING_WORDS_MAX];
        bool died = died_with(traps[i].fn, words);
        if (sw_os_is_watched() && strncmp(traps[i].first, "FREED", 5) == 0) {
            CHECK(strlen(words) > 0); /* the memory checker was first */
            continue;
        }
        CHECK(died);
        if (i > 0 && strncmp(traps[i].first, "FREED", 5) == 0) CHECK(names_one_thread(words));
        CHECK(tells_all(words, traps[i].first, traps[i].second));
        if (!died || !tells_all(words, traps[i].first, traps[i].second))
            fprintf(stderr, "trap %d: \"%s\"\n", (int)i, words);
    }
}

enum { REPEATS = 1000 };

static void finds_every_use(void) {
    if (sw_os_is_watched()) return;
    for (uint64_t i = 0; i < REPEATS; i++) {
        sw_arena *arena = make(i % 2 == 0 ? 4096 : 65536, i % 3 == 0);
        size_t size = i % 10 == 0 ? 100000 : 1 + i % 300; /* some in chunks of their own */
        char *object = sw_arena_alloc(arena, size, 8, i % 5 == 0 ? SW_SCAN : 0);
        memset(object, 1, size);
        CHECK_EQ(i % 4 == 0 ? sw_arena_reset(arena) : sw_arena_free(arena), SW_OK);
        volatile char *use = object + i * 7 % size;
        if (i % 2 == 0)
            EXPECT_FAULT(FREED_ARENA, use, (void)read_byte(use));
        else
            EXPECT_FAULT(FREED_ARENA, use, write_byte(use));
        CHECK_EQ(seen.size, size);
        if (i % 4 == 0) CHECK_EQ(sw_arena_free(arena), SW_OK);
    }
}

/* --- the quarantine --------------------------------------------------------------------------- */

static int mappings(void) {
    FILE *file = fopen("/proc/self/maps", "r");
    int lines = 0, c;
    if (file == NULL) return 0;
    while ((c = fgetc(file)) != EOF) lines += c == '\n';
    fclose(file);
    return lines;
}

static void stays_within_bounds(uint64_t arenas) {
    sw_arena_set_quarantine(1 << 20);
    int most = 0;
    for (uint64_t i = 0; i < arenas; i++) {
        sw_arena *arena = make((uint64_t)4096 << i % 3, 0);
        for (uint64_t k = 0; k <= i % 7; k++) write_byte(sw_arena_alloc(arena, 900, 8, 0));
        CHECK_EQ(sw_arena_free(arena), SW_OK);
        if (i % (arenas / 10) == arenas / 10 - 1) {
            int now = mappings();
            if (most == 0) most = now;
            CHECK(now <= most + 300); /* 256 chunks of 4 KiB at most have access of their own */
        }
        if (i % 100 == 0) CHECK(chunk_stats().quarantine_bytes <= 1 << 20);
    }
    CHECK(chunk_stats().quarantine_bytes > (1 << 20) - 16384);
    CHECK_EQ(chunk_stats().unprotected, 0);
    sw_arena_set_quarantine(0);
    CHECK_EQ(chunk_stats().quarantine_bytes, 0);
    sw_arena_set_quarantine(64 << 20);
}

/* Chunks that lie side by side leave the quarantine together, up to 1/64 of its limit, and are used
 * again from the lowest on. 32 KiB is a size that no other test has. */
static void leaves_in_runs(void) {
    enum { CHUNK = 32768, RUN = 4, MOST = 64 * RUN };
    static sw_arena *arenas[MOST + 1];
    static char *objects[MOST + 1];
    sw_arena_set_quarantine(0);
    sw_arena_set_quarantine((uint64_t)MOST * CHUNK);
    for (int i = 0; i <= MOST; i++) {
        arenas[i] = make(CHUNK, 0);
        objects[i] = sw_arena_alloc(arenas[i], 8, 8, 0);
    }
    for (int i = 1; i < RUN; i++) CHECK(objects[i] == objects[0] + (size_t)i * CHUNK);
    for (int i = 0; i <= MOST; i++) {
        CHECK_EQ(chunk_stats().quarantine_bytes, (uint64_t)i * CHUNK);
        CHECK_EQ(sw_arena_free(arenas[i]), SW_OK);
    }
    CHECK_EQ(chunk_stats().quarantine_bytes, (uint64_t)(MOST + 1 - RUN) * CHUNK);
    for (int i = 0; i < RUN; i++) {
        arenas[i] = make(CHUNK, 0);
        CHECK(sw_arena_alloc(arenas[i], 8, 8, 0) == objects[i]);
        write_byte(objects[i]);
    }
    for (int i = 0; i < RUN; i++) CHECK_EQ(sw_arena_free(arenas[i]), SW_OK);
    CHECK_EQ(chunk_stats().quarantine_bytes, (uint64_t)(MOST + 1 - RUN) * CHUNK);
    sw_arena_set_quarantine(64 << 20);
}

/* The flags that the system has of the mapping in which p lies (proc(5), VmFlags); "": it does not
 * say. */
static const char *flags_of(const void *p) {
    static char line[1024];
    FILE *file = fopen("/proc/self/smaps", "r");
    bool is_here = false, is_found = false;
    while (file != NULL && !is_found && fgets(line, sizeof line, file) != NULL) {
        uintptr_t low, high;
        if (sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &low, &high) == 2)
            is_here = (uintptr_t)p >= low && (uintptr_t)p < high;
        is_found = is_here && strncmp(line, "VmFlags:", 8) == 0;
    }
    if (file != NULL) fclose(file);
    return is_found ? line : "";
}

/* The system makes no huge page of chunks that will lose their access one by one. Chunks of a huge
 * page and more begin at one. */
static void splits_no_huge_page(void) {
    sw_arena *arena = make(65536, 0), *large = make((uint64_t)2 << 20, 0);
    write_byte(sw_arena_alloc(arena, 8, 8, 0));
    const char *flags = flags_of(sw_arena_alloc(arena, 8, 8, 0));
    if (flags[0] != 0 && access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0)
        CHECK(strstr(flags, " nh") != NULL);
    char *first = sw_arena_alloc(large, 8, 8, SW_SCAN);
    CHECK_EQ((uintptr_t)first % ((uintptr_t)2 << 20), 0);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK_EQ(sw_arena_free(large), SW_OK);
}

/* Big objects have chunks of their own, and nothing is shared or used again at once. */
static void shares_nothing(void) {
    sw_arena *first = make(4096, 0), *second = make(4096, 0);
    char *a = sw_arena_alloc(first, 10, 1, 0), *b = sw_arena_alloc(second, 10, 1, 0);
    CHECK((uintptr_t)a / 4096 != (uintptr_t)b / 4096);
    char *big = sw_arena_alloc(first, 9000, 16384, SW_ZERO);
    CHECK((uintptr_t)big % 16384 == 0);
    CHECK(all_are(big, 9000, 0));
    CHECK(sw_arena_alloc(second, 1030, 8, 0) != NULL); /* it would fit into the newest chunk */
    CHECK_EQ(arena_stats(second).chunks, 2);
    CHECK_EQ(arena_stats(first).own_objects, 0);
    CHECK_EQ(arena_stats(first).chunks, 2);
    CHECK_EQ(sw_arena_reset(first), SW_OK);
    for (int i = 0; i < 100; i++) {
        char *c = sw_arena_alloc(first, 1000, 1, 0);
        CHECK(c + 1000 <= a - 4096 || c >= a + 4096);
    }
    CHECK(sw_arena_alloc(first, (size_t)2 << 30, 1, 0) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_NOMEM);
    CHECK(sw_arena_alloc(first, 9000, (size_t)1 << 62, 0) == NULL);
    CHECK_EQ(sw_arena_free(first), SW_OK);
    CHECK_EQ(sw_arena_free(second), SW_OK);
}

/* --- holds, owners, references ---------------------------------------------------------------- */

static void is_not_freed_while_held(void) {
    sw_arena *arena = make(4096, 0);
    char *object = sw_arena_alloc(arena, 10, 1, 0);
    CHECK_EQ(sw_arena_hold(arena), SW_OK);
    CHECK(sw_arena_pin(object + 5) == arena);
    CHECK_EQ(sw_arena_free(arena), SW_BUSY);
    CHECK_STR(sw_last_error()->message,
              "the arena is held 2 times: call sw_arena_unhold as often first");
    CHECK_EQ(sw_arena_reset(arena), SW_BUSY);
    write_byte(object);
    CHECK_EQ(sw_arena_unhold(arena), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_BUSY);
    CHECK_EQ(sw_arena_unhold(arena), SW_OK);
    CHECK_EQ(sw_arena_unhold(arena), SW_STATE);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    CHECK_EQ(sw_arena_hold(arena), SW_OK); /* again after a reset */
    CHECK_EQ(sw_arena_unhold(arena), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    CHECK(sw_arena_pin(object) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_STATE);
    CHECK(sw_arena_pin(&arena) == NULL);
    EXPECT_FAULT(STALE_HANDLE, arena, CHECK_EQ(sw_arena_hold(arena), SW_INVALID));
}

static void *call_from_outside(void *arg) {
    sw_arena_savepoint point;
    CHECK(sw_arena_alloc(arg, 10, 1, 0) == NULL);
    CHECK_EQ(sw_last_error()->status, SW_OWNER);
    CHECK(strstr(sw_last_error()->message, "belongs to another thread") != NULL);
    CHECK_EQ(sw_arena_free(arg), SW_OWNER);
    CHECK_EQ(sw_arena_reset(arg), SW_OWNER);
    CHECK_EQ(sw_arena_mark(arg, &point), SW_OWNER);
    CHECK_EQ(sw_arena_hold(arg), SW_OK);
    CHECK_EQ(sw_arena_unhold(arg), SW_OK);
    CHECK_EQ(sw_arena_adopt(arg), SW_OK);
    CHECK(sw_arena_alloc(arg, 10, 1, 0) != NULL);
    return NULL;
}

static void belongs_to_a_thread(void) {
    sw_arena *arena = make(4096, 0);
    CHECK(sw_arena_alloc(arena, 10, 1, 0) !=
          NULL); /* there is room for more, in the chunk and in the log */
    (void)in_thread(call_from_outside, arena);
    CHECK_EQ(sw_arena_free(arena), SW_OWNER);
    CHECK_EQ(sw_arena_adopt(arena), SW_OK);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
}

static void references_tell(void) {
    sw_arena *arena = make(4096, 0), *plain = NULL;
    CHECK_EQ(sw_arena_create(NULL, &plain), SW_OK);
    sw_arena *both[] = {arena, plain};
    for (int i = 0; i < 2; i++) {
        void *object = sw_arena_alloc(both[i], 10, 1, 0);
        sw_arena_ref ref = sw_arena_make_ref(both[i], object);
        CHECK(sw_arena_get(ref) == object);
        CHECK_EQ(sw_arena_reset(both[i]), SW_OK);
        CHECK(sw_arena_get(ref) == NULL);
        ref = sw_arena_make_ref(both[i], sw_arena_alloc(both[i], 10, 1, 0));
        CHECK_EQ(sw_arena_free(both[i]), SW_OK);
        CHECK(sw_arena_get(ref) == NULL);
        for (int k = 0; k < 3 * SW_HANDLES_ENDED; k++) { /* the record serves others */
            sw_arena *next = MADE(sw_arena, (void)o);
            CHECK(sw_arena_get(ref) == NULL);
            CHECK_EQ(sw_arena_free(next), SW_OK);
        }
    }
    CHECK(sw_arena_get((sw_arena_ref){0}) == NULL);
}

static void refuses_what_it_can_not_be(void) {
    char memory[100];
    REFUSED(sw_arena, SW_UNSUPPORTED, o.safe = 1, o.mode = SW_ARENA_OFF);
    REFUSED(sw_arena, SW_UNSUPPORTED, o.safe = 1, o.mode = SW_ARENA_AUTO, o.first = memory,
            o.first_bytes = sizeof memory);
}

/* --- quarantine ------------------------------------------------------------------------------- */

enum { CHUNK = 4096, MANY = 576, RUNS = 512 };

static sw_gc *gc;
static const char *words[MANY]; /* roots */
static sw_arena *arenas[MANY];
static const char *objects[MANY]; /* one of each arena */

static bool make_held(int count) {
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
    if (!make_held(MANY)) return;
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
    CHECK(make_held(1));
    end(0, 1);
    CHECK(chunks_waiting() <= RUNS);
    for (int i = 1; i < 64; i += 3) CHECK(!waits(i));
}

/* The limit counts whole chunks, for those that are pointed to as well. */
static void bounds(void) {
    begin(4);
    if (!make_held(16)) return;
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
    if (!make_held(1)) return;
    const char *first = objects[0];
    words[0] = first;
    end(0, 1);
    CHECK_EQ(found(), 1);
    sw_arena_set_quarantine(0);
    CHECK(!waits(0));
    sw_arena_set_quarantine((uint64_t)4 * CHUNK);
    CHECK(make_held(16));
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
    if (!make_held(16)) return;
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
    if (sw_os_is_watched() || !make_held(16)) return; /* a memory checker forbids the use */
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

/* With a quarantine that nothing used before. */
static void quarantine(void) {
    gc = gc_begin(0);
    (void)gc_roots(gc, words, sizeof words);
    neighbours();
    bounds();
    another_life();
    looks_that_are_none();
    opened();
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

int main(int argc, char **argv) {
    every_trap_is_reported(); /* without a handler of this program's */
    remember_faults();
    check_child(quarantine);
    finds_every_use();
    leaves_in_runs();
    splits_no_huge_page();
    shares_nothing();
    is_not_freed_while_held();
    belongs_to_a_thread();
    references_tell();
    refuses_what_it_can_not_be();
    stays_within_bounds(argc > 1 ? strtoull(argv[1], NULL, 10) : 4000);
    return check_result();
}
