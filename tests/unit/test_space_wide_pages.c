/* SPDX-License-Identifier: Apache-2.0 */
/* A system whose pages are wider than a table's, as arm64 kernels with 16 or 64 KiB have them:
 * every page is accessible when it is allocated, and only whole free pages of the system are
 * purged. The system calls below behave like those of such a kernel. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bits.h"
#include "check.h"
#include "os/os.h"
#include "spanwise/spanwise.h"

static size_t wide;

long sysconf(int name) {
    if (name == _SC_PAGESIZE) return (long)wide;
    long (*real)(int);
    void *symbol = dlsym(RTLD_NEXT, "sysconf");
    memcpy(&real, &symbol, sizeof real);
    return real(name);
}

/* The result of a call whose length the kernel rounds up; a start within a page is refused. */
static int on_pages(long call, void *p, size_t bytes, int argument) {
    if ((uintptr_t)p % wide == 0) return (int)syscall(call, p, sw_align_up(bytes, wide), argument);
    errno = EINVAL;
    return -1;
}

int madvise(void *p, size_t bytes, int advice) { return on_pages(SYS_madvise, p, bytes, advice); }
int mprotect(void *p, size_t bytes, int access) { return on_pages(SYS_mprotect, p, bytes, access); }
int munmap(void *p, size_t bytes) { return on_pages(SYS_munmap, p, bytes, 0); }

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    size_t length = sw_align_up(bytes, wide);
    long answer = syscall(SYS_mmap, at, length + wide, access, flags, file, offset);
    if (answer == -1) return MAP_FAILED;
    uintptr_t start = (uintptr_t)answer, p = sw_align_up(start, wide);
    if (p > start) (void)syscall(SYS_munmap, start, p - start);
    (void)syscall(SYS_munmap, p + length, start + wide - p);
    return (void *)p;
}

/* --- two heaps under the same operations ------------------------------------------------------ */

enum { OBJECTS = 400, STEPS = 30000 };

static sw_heap *live, *dry;

static struct {
    unsigned char *live;
    void *dry;
    size_t size;
} objects[OBJECTS];

static unsigned char mark(size_t i, size_t at) { return (unsigned char)(i * 7 + at / 512 + 1); }

static void make_heaps(const sw_table *table) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.manual_clock = 1;
    options.decay_ns = 100;
    CHECK_EQ(sw_heap_create(&options, &live), SW_OK);
    options.dry = 1;
    CHECK_EQ(sw_heap_create(&options, &dry), SW_OK);
}

static void drop(size_t i) {
    const unsigned char *p = objects[i].live;
    for (size_t at = 0; at < objects[i].size; at += 512)
        if (p[at] != mark(i, at)) CHECK_EQ(p[at], mark(i, at));
    sw_heap_free(live, objects[i].live);
    sw_heap_free(dry, objects[i].dry);
    objects[i].live = NULL;
    objects[i].size = 0;
}

static void fill(size_t i, size_t size, bool zeroed) {
    unsigned char *p = sw_heap_alloc(live, size, zeroed ? SW_ZERO : 0);
    objects[i].dry = sw_heap_alloc(dry, size, zeroed ? SW_ZERO : 0);
    CHECK(p != NULL && objects[i].dry != NULL);
    if (p == NULL) exit(1);
    for (size_t at = 0; at < size; at += 512) {
        if (zeroed && p[at] != 0) CHECK_EQ(p[at], 0);
        p[at] = mark(i, at);
    }
    if (zeroed) CHECK(size == 0 || p[size - 1] == 0 || (size - 1) % 512 == 0);
    objects[i].live = p;
    objects[i].size = size;
}

static size_t random_size(uint64_t r) {
    if (r % 512 == 0) return ((size_t)4 << 20) + (r >> 20) % (1 << 20); /* cleared by exchange */
    return (r >> 20) % (r % 16 == 0 ? 200000 : 40000);
}

static void compare_ledgers(void) {
    sw_ledger a, b;
    sw_clear_error();
    CHECK_EQ(sw_heap_verify(live), SW_OK);
    if (sw_last_error()->status != SW_OK) puts(sw_last_error()->message);
    CHECK_EQ(sw_heap_ledger(live, &a, NULL, 0), SW_OK);
    CHECK_EQ(sw_heap_ledger(dry, &b, NULL, 0), SW_OK);
    CHECK_EQ(a.held_bytes, b.held_bytes);
    CHECK_EQ(a.free_page_bytes, b.free_page_bytes);
    CHECK_EQ(a.live_objects, b.live_objects);
}

static void churn(const sw_table *table) {
    uint64_t rng = 3;
    uint64_t steps = STEPS / check_share();
    make_heaps(table);
    for (uint64_t step = 0; step < steps; step++) {
        uint64_t r = check_random(&rng);
        size_t i = (size_t)(r >> 44) % OBJECTS;
        if (objects[i].live != NULL)
            drop(i);
        else
            fill(i, random_size(r), (r & 32) != 0);
        sw_heap_set_time(live, step);
        sw_heap_set_time(dry, step);
        if (step % 5000 == 0) {
            CHECK_EQ(sw_heap_trim(live), sw_heap_trim(dry));
            compare_ledgers();
        }
    }
    for (size_t i = 0; i < OBJECTS; i++)
        if (objects[i].live != NULL) drop(i);
    (void)sw_heap_trim(live);
    (void)sw_heap_trim(dry);
    compare_ledgers();
    /* What stays is what shares a page of the system with a span that its cache keeps. */
    sw_ledger ledger;
    CHECK_EQ(sw_heap_ledger(live, &ledger, NULL, 0), SW_OK);
    CHECK(ledger.free_page_bytes <= (ledger.spans + 1) * 2 * wide);
    CHECK_EQ(sw_heap_destroy(live), SW_OK);
    CHECK_EQ(sw_heap_destroy(dry), SW_OK);
}

static int with_pages(size_t bytes) {
    const sw_class_spec specs[] = {
        {16, 1, 0}, {64, 1, 0}, {512, 1, 0}, {4096, 2, 0}, {24576, 6, 0}};
    sw_table *narrow;
    wide = bytes;
    CHECK_EQ(sw_os_page_bytes(), wide);
    churn(sw_table_go());
    CHECK_EQ(sw_table_create("narrow", 4096, specs, 5, &narrow), SW_OK);
    churn(narrow);
    return check_result();
}

/* A process asks for the length of a page once. */
int main(void) {
    const size_t lengths[] = {4096, 16384, 65536};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) exit(with_pages(lengths[i]));
        int status = -1;
        CHECK_EQ(waitpid(child, &status, 0), child);
        CHECK_EQ(status, 0);
    }
    return check_result();
}
