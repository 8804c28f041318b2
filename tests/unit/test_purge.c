/* SPDX-License-Identifier: Apache-2.0 */
/* Purging of free pages. No thread waits for the heap during the system call: the call below uses
 * the heap itself, from the purging thread and from another, and a fork during it leaves the child
 * a consistent heap. Pages that the system refuses to purge stay held, and are cleared before they
 * are allocated as zeroed. */
#define _GNU_SOURCE
#include <errno.h>
#include <semaphore.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "heaps.h"
#include "spawn.h"

enum { LARGE = 200 * 8192, SPAN = 1 << 16, OBJECTS = 100, SECOND = 1000000000 };

static sw_heap *heap;
static void (*meanwhile)(void); /* what is done while pages go back; NULL: nothing */
static int calls;

static bool refuse; /* the system takes no pages back */

enum { DONTNEED_LOCKED = 24 }; /* the advice that the library tries after EINVAL */

/* In place of libc's. */
int madvise(void *p, size_t bytes, int advice) {
    bool gives_back = advice == MADV_DONTNEED || advice == DONTNEED_LOCKED;
    void (*act)(void) = advice == MADV_DONTNEED ? meanwhile : NULL;
    if (refuse && gives_back) {
        errno = EINVAL; /* as for locked pages */
        return -1;
    }
    calls += advice == MADV_DONTNEED;
    meanwhile = NULL; /* once a case */
    if (act != NULL) act();
    return (int)syscall(SYS_madvise, p, bytes, advice);
}

static void make(void) { heap = MADE(sw_heap, o.manual_clock = 1); }

static sw_heap_stats stats(void) {
    sw_heap_stats s = {.struct_bytes = sizeof s};
    CHECK_EQ(sw_heap_stats_read(heap, &s), SW_OK);
    return s;
}

static uint64_t free_page_bytes(void) { return ledger_of(heap).free_page_bytes; }

/* Large objects in a row; every second one is freed, so that as many runs of pages are free. */
static void *objects[OBJECTS];
static void leave_some_holes(int holes) {
    for (int i = 0; i < OBJECTS; i++) objects[i] = sw_heap_alloc(heap, LARGE, 0);
    for (int i = 0; i < 2 * holes; i += 2) sw_heap_free(heap, objects[i]);
    CHECK_EQ(free_page_bytes(), (uint64_t)holes * LARGE);
}
static void leave_holes(void) { leave_some_holes(OBJECTS / 2); }

static void end(void) {
    CHECK(meanwhile == NULL); /* it was reached */
    heap_end(heap);
}

static void use_heap(void) {
    void *p = sw_heap_alloc(heap, LARGE, 0);
    CHECK(p != NULL);
    sw_heap_free(heap, p);
    sw_heap_free(heap, sw_heap_alloc(heap, 100, 0));
    CHECK(free_page_bytes() < (uint64_t)OBJECTS / 2 * LARGE);
}

static void *use_heap_there(void *arg) {
    use_heap();
    return arg;
}

static void use_heap_by_thread(void) { in_thread(use_heap_there, NULL); }

static void tick(void) {
    sw_heap_set_time(heap, SECOND);
    sw_heap_set_time(heap, 2 * (uint64_t)SECOND);
}

static void trim(void) {
    size_t bytes = sw_heap_trim(heap);
    CHECK(bytes >= (uint64_t)(OBJECTS / 2 - 1) * LARGE &&
          bytes <= (uint64_t)OBJECTS / 2 * LARGE + SPAN);
}

static void gives_back(void (*how)(void), void (*act)(void)) {
    make();
    leave_holes();
    calls = 0;
    meanwhile = act;
    how();
    int runs = OBJECTS / 2 - (act != NULL); /* one was in use at the time: it stays */
    CHECK(free_page_bytes() <= (act == NULL ? 0 : LARGE + SPAN));
    CHECK(calls >= runs && calls <= OBJECTS / 2 + 1);
    CHECK_EQ(stats().purge_calls, calls);
    end();
}

/* Meanwhile a thread frees 16 MB at low addresses, where the search for pages has been, and ends:
 * its end does not wait, and these pages go back as well. */
static void *end_there(void *arg) {
    CHECK(sw_heap_alloc(heap, 100, 0) != NULL); /* opens its cache */
    for (int i = 1; i < 20; i += 2) sw_heap_free(heap, objects[i]);
    return arg;
}
static void end_by_thread(void) {
    in_thread(end_there, NULL);
    CHECK(free_page_bytes() >= 10 * (uint64_t)LARGE);
}
static void thread_ends_meanwhile(void (*how)(void), int holes) {
    make();
    leave_some_holes(holes);
    meanwhile = end_by_thread;
    how();
    CHECK_EQ(free_page_bytes(), 0);
    end();
}
static void trim_more(void) { CHECK(sw_heap_trim(heap) >= 20 * (uint64_t)LARGE); }

/* A heap is verified meanwhile: it waits until the runs are free pages again. */
static sem_t reached;
static void *verify_there(void *arg) {
    CHECK_EQ(sem_wait(&reached), 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    return arg;
}
static void linger(void) {
    CHECK_EQ(sem_post(&reached), 0);
    (void)usleep(20000);
}

/* The child has all pages, and gives back what its parent was giving back. */
static void *fork_there(void *arg) {
    CHECK_EQ(sem_wait(&reached), 0);
    IN_CHILD() {
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        sw_heap_set_time(heap, 3 * (uint64_t)SECOND);
        sw_heap_set_time(heap, 4 * (uint64_t)SECOND);
        CHECK_EQ(free_page_bytes(), 0);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
    return arg;
}

static void while_other_runs(void *(*other)(void *)) {
    pthread_t thread;
    make();
    leave_holes();
    CHECK_EQ(sem_init(&reached, 0, 0), 0);
    CHECK_EQ(pthread_create(&thread, NULL, other, NULL), 0);
    meanwhile = linger;
    tick();
    CHECK_EQ(pthread_join(thread, NULL), 0);
    end();
}

static void large_object(void) {
    make();
    unsigned char *p = sw_heap_alloc(heap, LARGE, 0);
    memset(p, 0xAA, LARGE);
    sw_heap_free(heap, p);
    refuse = true;
    CHECK_EQ(sw_heap_trim(heap), 0);
    CHECK_EQ(ledger_of(heap).retry_bytes, LARGE);
    CHECK_EQ(sw_heap_trim(heap), 0);
    sw_ledger l = ledger_of(heap);
    CHECK_EQ(l.free_page_bytes, LARGE);
    CHECK_EQ(l.retry_bytes, 2 * LARGE); /* summed over attempts */
    CHECK_EQ(l.returned_bytes, 0);
    unsigned char *q = sw_heap_alloc(heap, LARGE, SW_ZERO);
    CHECK(q == p && all_are(q, LARGE, 0));
    memset(q, 0xAA, LARGE);
    sw_heap_free(heap, q);
    refuse = false;
    CHECK_EQ(sw_heap_trim(heap), LARGE);
    l = ledger_of(heap);
    CHECK_EQ(l.free_page_bytes, 0);
    CHECK_EQ(l.returned_bytes, LARGE);
    CHECK_EQ(l.retry_bytes, 2 * LARGE);
    q = sw_heap_alloc(heap, LARGE, SW_ZERO);
    CHECK(q == p && all_are(q, LARGE, 0));
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    alarm(250); /* who calls the system under the heap's lock hangs here */
    gives_back(tick, NULL);
    gives_back(trim, NULL);
    gives_back(tick, use_heap);
    gives_back(tick, use_heap_by_thread);
    gives_back(trim, use_heap_by_thread);
    thread_ends_meanwhile(tick, OBJECTS / 2); /* more runs than one turn takes out */
    thread_ends_meanwhile(trim_more, OBJECTS / 2);
    thread_ends_meanwhile(trim_more, 10);
    while_other_runs(verify_there);
    if (!UNDER_TSAN)
        while_other_runs(
            fork_there); /* its runtime does not survive forks of processes with threads */
    large_object();
    return check_result();
}
