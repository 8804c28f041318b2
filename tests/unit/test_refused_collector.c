/* SPDX-License-Identifier: Apache-2.0 */
/* A system that refuses memory to a collector: the k-th mapping alone, or all from it on, for every k that a
 * small program reaches. Nothing that is reachable is lost, and the heap stays whole. The system calls
 * below refuse. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "gc/grey.h"
#include "spanwise/gc.h"
#include "spanwise/stats.h"

/* In a child: calls with these numbers, the first being 1, are refused. */
static struct {
    unsigned from, to, made;
} sys;

static int is_refused(void) {
    unsigned number = ++sys.made;
    if (number < sys.from || number > sys.to) return 0;
    errno = ENOMEM;
    return 1;
}

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    if (is_refused()) return MAP_FAILED;
    long answer = syscall(SYS_mmap, at, bytes, access, flags, file, offset);
    return answer == -1 ? MAP_FAILED : (void *)answer; /* NOLINT(performance-no-int-to-ptr) */
}

int mprotect(void *p, size_t bytes, int access) {
    return is_refused() ? -1 : (int)syscall(SYS_mprotect, p, bytes, access);
}

/* A list of objects of two types in turn, each with its number; every step may be refused. */
static unsigned grow(sw_gc *gc, const uint32_t *types, void ***head) {
    unsigned made = 0;
    for (unsigned i = 0; i < 1000; i++) {
        void **node = sw_gc_new(gc, types[i % 2], 1);
        if (node == NULL) {
            CHECK_EQ(errno, ENOMEM);
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

static void program(void) {
    sw_gc *gc;
    if (sw_gc_create(NULL, &gc) != SW_OK) return;
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

/* Returns the calls that the program makes. */
static unsigned run(unsigned from, unsigned to) {
    int ends[2];
    unsigned calls = 0;
    CHECK_EQ(pipe(ends), 0);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(200);
        sys.from = from;
        sys.to = to;
        sys.made = 0;
        program();
        calls = sys.made;
        sys.to = 0;
        if (write(ends[1], &calls, sizeof calls) != sizeof calls) _exit(9);
        _exit(check_failed());
    }
    int status = -1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_EQ(status, 0);
    CHECK_EQ(read(ends[0], &calls, sizeof calls), sizeof calls);
    close(ends[0]);
    close(ends[1]);
    if (status != 0) fprintf(stderr, "calls %u to %u were refused\n", from, to);
    return calls;
}

/* --- types without memory ---------------------------------------------------------------------- */

/* A span with objects of two types, for which there is no memory: each word of each object
 * counts, so that all that they point to is kept. */
static void test_types_refused(void) {
    sw_gc *gc;
    CHECK_EQ(sw_gc_create(NULL, &gc), SW_OK);
    uint64_t first = 1, second = 2;
    sw_gc_type kinds[2] = {{"first", 32, &first}, {"second", 32, &second}};
    uint32_t types[2], id;
    void **pair[2];
    for (int k = 0; k < 2; k++) CHECK_EQ(sw_gc_add_type(gc, &kinds[k], &types[k]), SW_OK);
    CHECK_EQ(sw_gc_add_roots(gc, pair, sizeof pair, &id), SW_OK);
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
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK_EQ(cycle.marked_objects, 4);
    CHECK_EQ(sw_gc_destroy(gc), SW_OK);
}

/* --- grey bits without memory ------------------------------------------------------------------- */

static void collect_list(sw_gc *gc, sw_gc_order order, uint64_t objects) {
    sw_gc_cycle cycle = {.struct_bytes = sizeof cycle};
    CHECK_EQ(sw_gc_set_order(gc, order), SW_OK);
    CHECK_EQ(sw_gc_collect(gc, &cycle), SW_OK);
    CHECK_EQ(cycle.marked_objects, objects);
    CHECK_EQ(cycle.overflows, 0);
}

/* Marking by span where there is no memory for the bits of a span: its objects wait on the stack, which has room. */
static void test_bits_refused(void) {
    enum { NODES = 500 };
    sw_gc *gc;
    CHECK_EQ(sw_gc_create(NULL, &gc), SW_OK);
    uint64_t first = 1;
    uint32_t type, id;
    void **head = NULL;
    CHECK_EQ(sw_gc_add_type(gc, &(sw_gc_type){"node", 64, &first}, &type), SW_OK);
    CHECK_EQ(sw_gc_add_roots(gc, &head, sizeof head, &id), SW_OK);
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
    test_types_refused();
    test_bits_refused();
    unsigned calls = run(1, 0);
    CHECK(calls > 10);
    for (unsigned k = 1; k <= calls; k++) {
        (void)run(k, k);
        (void)run(k, UINT32_MAX);
    }
    return check_result();
}
