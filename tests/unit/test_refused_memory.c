/* SPDX-License-Identifier: Apache-2.0 */
/* A system that refuses memory to a collector, to arenas with their tracker, to slabs and to a
 * guarded heap: call k alone, or all calls from k on, for every k that a small program reaches. Requests fail with their
 * status, no reachable object is lost, objects keep their bytes, and a later request succeeds. The
 * system calls below refuse. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "collector.h"
#include "faults.h"
#include "gc/mark.h"
#include "guard/state.h"
#include "heaps.h"
#include "spawn.h"

static struct {
    uint64_t from, to; /* calls with these numbers, the first being 1, are refused */
    uint64_t made;
    bool all; /* munmap and madvise count, too */
} sys;

static uint64_t refused; /* requests of the program that failed */

static bool is_refused(void) {
    uint64_t number = ++sys.made;
    if (number < sys.from || number > sys.to) return false;
    errno = ENOMEM;
    return true;
}

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    if (is_refused()) return MAP_FAILED;
    return (void *)syscall(SYS_mmap, at, bytes, access, flags, file, offset);
}
int munmap(void *p, size_t bytes) {
    return sys.all && is_refused() ? -1 : (int)syscall(SYS_munmap, p, bytes);
}
int mprotect(void *p, size_t bytes, int access) {
    return is_refused() ? -1 : (int)syscall(SYS_mprotect, p, bytes, access);
}
int madvise(void *p, size_t bytes, int advice) {
    return sys.all && is_refused() ? -1 : (int)syscall(SYS_madvise, p, bytes, advice);
}

/* Runs the program in a child with these calls refused, and again with none refused. Returns the
 * calls of the first run, and adds its failed requests to `refused`. */
static uint64_t run(void (*program)(uint32_t), uint32_t arg, uint64_t from, uint64_t to) {
    uint64_t report[2] = {0, 0};
    int ends[2];
    CHECK_EQ(pipe(ends), 0);
    pid_t child = child_begin();
    if (child == 0) {
        sys.made = refused = 0;
        sys.from = from;
        sys.to = to;
        program(arg);
        sys.to = 0;
        report[0] = sys.made;
        report[1] = refused;
        refused = 0;
        program(arg);
        CHECK_EQ(refused, 0);
        CHECK_EQ(write(ends[1], report, sizeof report), sizeof report);
        _exit(check_failed());
    }
    close(ends[1]);
    CHECK_EQ(read(ends[0], report, sizeof report), sizeof report);
    close(ends[0]);
    expect_exit_0(child);
    if (check_failed()) fprintf(stderr, "program %u, calls %d to %d\n", arg, (int)from, (int)to);
    refused += report[1];
    return report[0];
}

static void refuse_each(void (*program)(uint32_t), uint32_t arg) {
    uint64_t calls = run(program, arg, 1, 0);
    CHECK_EQ(refused, 0);
    CHECK(calls > 10);
    for (uint64_t k = 1; k <= calls; k++) {
        if (sys.all && SANITIZED) break; /* sanitizers die of it */
        if (sys.all && !check_mine(k)) continue;
        (void)run(program, arg, k, k);
        (void)run(program, arg, k, UINT32_MAX);
    }
    CHECK((sys.all && SANITIZED) || refused > 0);
    refused = 0;
}

/* --- arenas, their tracker, slabs ------------------------------------------------------------- */

enum { ARENA_OBJECTS = 60 };

/* Some objects of chunks, some of the heap; all keep their bytes. */
static void fill(sw_arena *arena) {
    unsigned char *objects[ARENA_OBJECTS];
    for (int i = 0; i < ARENA_OBJECTS; i++) {
        size_t size = i % 20 == 0 ? 20000 : 700;
        objects[i] = sw_arena_alloc(arena, size, 16, SW_ZERO);
        if (objects[i] == NULL) {
            CHECK_EQ(errno, ENOMEM);
            refused++;
            continue;
        }
        CHECK(objects[i][0] == 0 && objects[i][699] == 0);
        objects[i][0] = objects[i][699] = (unsigned char)(i + 1);
    }
    for (int i = 0; i < ARENA_OBJECTS; i++)
        if (objects[i] != NULL)
            CHECK(objects[i][0] == (unsigned char)(i + 1) && objects[i][699] == objects[i][0]);
}

/* Slots, or objects of the heap where a slot has no memory; all keep their bytes. */
static void use_slabs(void) {
    enum { SLOTS = 40 };
    sw_slabs_options options;
    sw_slabs *slabs = NULL;
    unsigned char *slots[SLOTS];
    sw_slabs_options_init(&options);
    options.capacity = 30;
    if (sw_slabs_create(&options, &slabs) != SW_OK) {
        refused++;
        return;
    }
    for (int i = 0; i < SLOTS; i++) {
        slots[i] = sw_slabs_alloc(slabs, 4000, SW_ZERO);
        if (slots[i] == NULL) {
            CHECK_EQ(errno, ENOMEM);
            refused++;
            continue;
        }
        CHECK(slots[i][0] == 0 && slots[i][3999] == 0);
        slots[i][0] = slots[i][3999] = (unsigned char)(i + 1);
    }
    for (int i = 0; i < SLOTS; i++) {
        if (slots[i] == NULL) continue;
        CHECK(slots[i][0] == (unsigned char)(i + 1) && slots[i][3999] == slots[i][0]);
        CHECK_EQ(sw_slabs_free(slabs, slots[i]), SW_OK);
        if (i % 8 == 0) (void)sw_slabs_trim(slabs);
    }
    sw_slabs_destroy(slabs);
}

static void live_with_arena(uint32_t mode) {
    sw_arena_options options;
    sw_arena *arena = NULL;
    sw_arena_savepoint point;
    sw_arena_options_init(&options);
    options.chunk_bytes = 16384;
    options.mode = mode;
    sw_status status = sw_arena_create(&options, &arena);
    if (status != SW_OK) {
        CHECK_EQ(status, SW_NOMEM);
        refused++;
        return;
    }
    fill(arena);
    status = sw_arena_mark(arena, &point);
    fill(arena);
    if (status == SW_OK) CHECK_EQ(sw_arena_release(arena, point), SW_OK);
    CHECK_EQ(sw_arena_reset(arena), SW_OK);
    fill(arena);
    CHECK_EQ(sw_arena_free(arena), SW_OK);
    (void)sw_arena_trim();
}

/* All of it under a tracker, whose two sources agree if it could note each arena. */
static void use_arenas(uint32_t mode) {
    sw_tracker *tracker = NULL;
    sw_tracker_totals totals;
    if (sw_tracker_create(NULL, &tracker) != SW_OK) refused++;
    live_with_arena(mode);
    use_slabs();
    if (tracker != NULL) {
        sw_status status = sw_tracker_check(tracker, &totals);
        CHECK_EQ(status, SW_OK);
        CHECK(totals.arenas == 0 && totals.tracked_arenas == 0 && totals.chunk_bytes == 0);
    }
    sw_tracker_destroy(tracker);
}

/* --- a collector ------------------------------------------------------------------------------ */

/* A list of objects of two types in turn, each with its number; every step may be refused. */
static unsigned grow(sw_gc *gc, const uint32_t *types, void ***head) {
    unsigned made = 0;
    for (unsigned i = 0; i < 1000; i++) {
        void **node = sw_gc_new(gc, types[i % 2], 1);
        if (node == NULL) {
            CHECK_EQ(errno, ENOMEM);
            refused++;
            continue;
        }
        node[2] = (void *)(uintptr_t)made++;
        node[i % 2] = *head;
        node[3] = (void *)(uintptr_t)(i % 2);
        *head = node;
    }
    return made;
}

static void check_list(void **head, unsigned made) {
    for (; head != NULL; head = head[(uintptr_t)head[3]]) CHECK_EQ((uintptr_t)head[2], --made);
    CHECK_EQ(made, 0);
}

enum { REFS = 200 };

static unsigned called;
static void count_call(void *object, void *arg) {
    (void)object, (void)arg;
    called++;
}

/* Weak references to the head, and garbage with finalizers, of each object or of its type, where
 * there is memory for them. Returns how many finalizers there are. */
static unsigned refer(sw_gc *gc, uint32_t plain, uint32_t watched, void *head, sw_gc_ref *refs) {
    unsigned finalizers = 0;
    for (int i = 0; i < REFS; i++) {
        sw_status status = sw_gc_ref_new(gc, SW_GC_WEAK, head, &refs[i]);
        CHECK(status == SW_OK || (status == SW_NOMEM && refs[i] == 0));
        if (i % 8 != 0) continue;
        errno = 0;
        void *object = sw_gc_new(gc, i % 16 == 0 ? plain : watched, 1);
        CHECK(object != NULL || errno == ENOMEM);
        if (object == NULL) continue;
        status = i % 16 == 0 ? sw_gc_set_finalizer(gc, object, count_call, NULL) : SW_OK;
        CHECK(status == SW_OK || status == SW_NOMEM);
        finalizers += status == SW_OK;
    }
    return finalizers;
}

static void check_refs(sw_gc *gc, const sw_gc_ref *refs, const void *head) {
    for (int i = 0; i < REFS; i++) {
        void *held = NULL;
        if (refs[i] == 0) continue;
        CHECK_EQ(sw_gc_ref_get(gc, refs[i], &held), SW_OK);
        CHECK(held == head);
    }
}

static void use_collector(uint32_t arg) {
    sw_gc *gc;
    called = arg; /* 0 */
    if (sw_gc_create(NULL, &gc) != SW_OK) {
        refused++;
        return;
    }
    uint64_t first = 1, second = 2;
    sw_gc_type kinds[3] = {{"first", 32, &first}, {"second", 32, &second}, {"third", 48, &first}};
    uint32_t types[3], id;
    void **head = NULL;
    sw_gc_ref refs[REFS] = {0};
    sw_gc_shadow *shadow = NULL;
    sw_gc_frame frame = {0};
    if (sw_gc_add_type(gc, &kinds[0], &types[0]) == SW_OK &&
        sw_gc_add_type(gc, &kinds[1], &types[1]) == SW_OK &&
        sw_gc_add_type(gc, &kinds[2], &types[2]) == SW_OK &&
        sw_gc_set_type_finalizer(gc, types[2], count_call, NULL) == SW_OK &&
        sw_gc_add_roots(gc, &head, sizeof head, &id) == SW_OK) {
        bool stacked = sw_gc_shadow_create(gc, &shadow) == SW_OK;
        if (stacked) CHECK_EQ(sw_gc_shadow_push(shadow, &frame, &head, sizeof head), SW_OK);
        unsigned made = grow(gc, types, &head);
        unsigned finalizers = refer(gc, types[0], types[2], head, refs);
        if (sw_gc_record_events(gc, 4) ==
            SW_OK) /* else none are kept, and nothing else is different */
            CHECK_EQ(sw_gc_take_events(gc, NULL, 0, NULL), 0);
        sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
        for (int n = 0; n < 3; n++) {
            sw_gc_order order = n == 1 ? SW_GC_BY_SPAN : SW_GC_BY_OBJECT;
            CHECK_EQ(sw_gc_set_order(gc, order), SW_OK);
            sw_status status = sw_gc_collect(gc, &cycle);
            CHECK(status == SW_OK || (made == 0 && status == SW_NOMEM));
            if (status == SW_OK) CHECK_EQ(cycle.marked_objects, made + finalizers);
        }
        check_refs(gc, refs, head);
        CHECK_EQ(sw_gc_finalize(gc, SIZE_MAX), finalizers);
        CHECK_EQ(called, finalizers);
        check_list(head, made);
        CHECK_EQ(sw_gc_verify(gc), SW_OK);
        CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    }
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

enum { GUARDED = 300 };
static uint8_t *guarded[GUARDED];

static size_t guarded_size(int i) { return i % 50 == 7 ? 300000 : (size_t)(i * 37 % 2000); }

/* Allocates, resizes and frees objects of many sizes, some sampled; the thread has a record if there
 * is memory for it. */
static void use_guarded(sw_heap *heap) {
    sw_cache *cache = sw_thread_cache(heap);
    if (cache == NULL) {
        refused++;
        return;
    }
    sw_guard_thread *own = sw_guard_thread_own();
    if (own == NULL) own = sw_guard_thread_make(cache);
    for (int i = 0; i < GUARDED; i++) {
        if (own != NULL && i % 20 == 0) own->countdown = 1;
        guarded[i] = sw_guard_alloc_any(cache, own, guarded_size(i), 0, 0, SW_GUARD_MALLOC);
        if (guarded[i] != NULL)
            memset(guarded[i], i % 2 + 1, guarded_size(i) == 0 ? 0 : guarded_size(i));
        else
            refused += errno == ENOMEM;
    }
    for (int i = 0; i < GUARDED; i += 3) {
        if (guarded[i] == NULL) continue;
        uint8_t *moved = sw_guard_realloc(cache, own, guarded[i], guarded_size(i) + 100);
        refused += moved == NULL;
        if (moved != NULL) guarded[i] = moved;
    }
    for (int i = 0; i < GUARDED; i++) {
        if (guarded[i] != NULL && guarded_size(i) != 0) {
            CHECK_EQ(guarded[i][0], i % 2 + 1);
            CHECK_EQ(guarded[i][guarded_size(i) - 1], i % 2 + 1);
        }
        sw_guard_free_any(cache, own, guarded[i], SIZE_MAX, SW_GUARD_MALLOC, "free");
    }
    CHECK_EQ(seen_count, 0);
}

/* Nothing is reported as misuse. Protections start once in a process. */
static void use_guard(uint32_t on) {
    static sw_heap *heap;
    if (heap == NULL) {
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.tracked = 1;
        if (sw_heap_create(&options, &heap) != SW_OK) {
            refused++;
            return;
        }
        sw_guard_start(heap, on);
    }
    use_guarded(heap);
    CHECK(heap_is_whole(heap));
}

/* A span in which objects of two types lie, and for whose types there is no memory: each word of
 * each object counts, so that all that they point to is kept. */
static void test_types_refused(void) {
    sw_gc *gc = gc_begin(0);
    uint32_t types[2] = {gc_type(gc, 32, 1), gc_type(gc, 32, 2)};
    void **pair[2];
    gc_roots(gc, pair, sizeof pair);
    void **text = sw_heap_alloc(sw_gc_heap(gc), 500, 0),
         **other = sw_heap_alloc(sw_gc_heap(gc), 500, 0);
    pair[0] = sw_gc_new(gc, types[0], 1);
    sw_meta *meta = &sw_gc_heap(gc)->meta;
    char *bump = meta->bump;
    meta->bump = meta->bump_end; /* nothing is left, and the system has nothing */
    sys.from = sys.made + 1;
    sys.to = UINT32_MAX;
    pair[1] = sw_gc_new(gc, types[1], 1);
    sys.to = 0;
    meta->bump = bump;
    uint32_t span = sw_space_id_of(sw_gc_heap(gc)->space, (uintptr_t)pair[1]);
    CHECK_EQ(span, sw_space_id_of(sw_gc_heap(gc)->space, (uintptr_t)pair[0]));
    CHECK(sw_gc_slot_types[span] == NULL);
    CHECK_EQ(sw_gc_span_metas[span].type, SW_GC_UNTYPED);
    pair[0][0] = text;
    pair[1][1] = other;
    CHECK_EQ(gc_collect(gc).marked_objects, 4);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

static void collect_list(sw_gc *gc, sw_gc_order order, uint64_t objects) {
    CHECK_EQ(sw_gc_set_order(gc, order), SW_OK);
    sw_gc_cycle cycle = gc_collect(gc);
    CHECK_EQ(cycle.marked_objects, objects);
    CHECK_EQ(cycle.overflows, 0);
}

/* Marking by span where there is no memory for the bits of a span: its objects wait on the stack,
 * which has room. */
static void test_bits_refused(void) {
    enum { NODES = 500 };
    sw_gc *gc = gc_begin(0);
    uint32_t type = gc_type(gc, 64, 1);
    void **head = NULL;
    gc_roots(gc, &head, sizeof head);
    for (int i = 0; i < NODES; i++) {
        void **node = sw_gc_new(gc, type, 1);
        node[0] = head;
        head = node;
    }
    collect_list(gc, SW_GC_BY_OBJECT, NODES);
    sw_meta *meta = &sw_gc_heap(gc)->meta;
    char *bump = meta->bump;
    meta->bump = meta->bump_end; /* nothing is left, and the system has nothing */
    sys.from = sys.made + 1;
    sys.to = UINT32_MAX;
    collect_list(gc, SW_GC_BY_SPAN, NODES);
    CHECK(sw_gc_grey_bits_of[sw_space_id_of(sw_gc_heap(gc)->space, (uintptr_t)head)] == NULL);
    sys.to = 0;
    meta->bump = bump;
    collect_list(gc, SW_GC_BY_SPAN, NODES);
    CHECK(sw_gc_grey_bits_of[sw_space_id_of(sw_gc_heap(gc)->space, (uintptr_t)head)] != NULL);
    CHECK_EQ(sw_heap_verify(sw_gc_heap(gc)), SW_OK);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

int main(void) {
    remember_faults();
    sys.all = !SANITIZED; /* first: the children make their space under refusals */
    refuse_each(use_guard, SW_GUARD_HARDENED);
    refuse_each(use_guard, SW_GUARD_CANARY);
    sys.all = false;
    test_types_refused();
    test_bits_refused();
    refuse_each(use_collector, 0);
    sys.all = true;
    for (uint32_t mode = SW_ARENA_AUTO; mode <= SW_ARENA_FORCE; mode++)
        refuse_each(use_arenas, mode);
    return check_result();
}
