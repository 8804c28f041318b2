/* SPDX-License-Identifier: Apache-2.0 */
/* A system that refuses memory: the k-th call of a kind alone, or from the k-th on, for every k
 * that a small program reaches. The heap stays intact and continues to work; addresses, resident
 * bytes and the number of further system calls are bounded, whatever is requested. The system calls
 * below refuse. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "spanwise/spanwise.h"
#include "spawn.h"

/* --- the system ------------------------------------------------------------------------------- */

typedef enum call { CALL_MMAP, CALL_MPROTECT, CALL_MADVISE, CALL_MUNMAP, CALLS } call;

static const char *const call_names[CALLS] = {"mmap", "mprotect", "madvise", "munmap"};

/* In a child: what is refused, and what was seen. */
static struct {
    uint64_t from, to; /* calls of `kind` with these numbers, the first being 1, are refused */
    call kind;
    uint64_t made[CALLS];
    uint64_t mapped_bytes, most_mapped_bytes;
} sys;

static bool is_refused(call kind) {
    uint64_t number = ++sys.made[kind];
    if (kind != sys.kind || number < sys.from || number > sys.to) return false;
    errno = ENOMEM;
    return true;
}

void *mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
    if (is_refused(CALL_MMAP)) return MAP_FAILED;
    long answer = syscall(SYS_mmap, at, bytes, access, flags, file, offset);
    if (answer == -1) return MAP_FAILED;
    sys.mapped_bytes += bytes;
    if (sys.mapped_bytes > sys.most_mapped_bytes) sys.most_mapped_bytes = sys.mapped_bytes;
    return (void *)answer; /* NOLINT(performance-no-int-to-ptr) */
}

int munmap(void *p, size_t bytes) {
    if (is_refused(CALL_MUNMAP)) return -1;
    int answer = (int)syscall(SYS_munmap, p, bytes);
    if (answer == 0) sys.mapped_bytes -= bytes;
    return answer;
}

int mprotect(void *p, size_t bytes, int access) {
    return is_refused(CALL_MPROTECT) ? -1 : (int)syscall(SYS_mprotect, p, bytes, access);
}

int madvise(void *p, size_t bytes, int advice) {
    return is_refused(CALL_MADVISE) ? -1 : (int)syscall(SYS_madvise, p, bytes, advice);
}

static uint64_t all_calls(void) {
    uint64_t sum = 0;
    for (int kind = 0; kind < CALLS; kind++) sum += sys.made[kind];
    return sum;
}

/* --- the program ------------------------------------------------------------------------------ */

enum {
    ROUNDS = 2,
    OBJECTS = 2000,
    MIB = 1 << 20,
    REFUSAL_CALLS = 48, /* most system calls of one request that is refused */
};

typedef struct outcome {
    uint64_t made[CALLS], calls, requests_refused, worst_request_calls;
    uint64_t most_mapped_bytes, resident_bytes;
    bool finished;
} outcome;

static outcome seen;
static unsigned char *objects[OBJECTS];
static size_t sizes[OBJECTS];

/* A request, its answer, its price in system calls. */
static void *ask(sw_heap *heap, void *old, size_t size, unsigned flags) {
    uint64_t before = all_calls();
    errno = 0;
    void *p =
        old == NULL ? sw_heap_alloc(heap, size, flags) : sw_heap_realloc(heap, old, size, flags);
    uint64_t calls = all_calls() - before;
    if (p != NULL) return p;
    CHECK_EQ(errno, ENOMEM);
    seen.requests_refused++;
    if (calls > seen.worst_request_calls) seen.worst_request_calls = calls;
    return NULL;
}

/* Small spans, spans of few slots, large objects, and windows of all lengths. */
static size_t size_of(size_t i) {
    if (i == OBJECTS / 2 || i == OBJECTS - 1) return (size_t)90 * MIB * (1 + i / (OBJECTS - 1));
    if (i % 200 == 0) return (size_t)300 * 1024;
    return i % 7 == 0 ? 5000 : 40 + i % 300;
}

static void sign(size_t i) {
    objects[i][0] = objects[i][sizes[i] - 1] = (unsigned char)(i * 5 + 1);
}

static void check_and_free(sw_heap *heap, size_t i) {
    unsigned char *p = objects[i];
    objects[i] = NULL;
    if (p == NULL) return;
    CHECK(p[0] == (unsigned char)(i * 5 + 1) && p[sizes[i] - 1] == p[0]);
    sw_heap_free(heap, p);
}

/* The largest are not cleared: where pages can not be exchanged that is to write them. */
static void fill(sw_heap *heap) {
    for (size_t i = 0; i < OBJECTS; i++) {
        sizes[i] = size_of(i);
        bool zero = i % 3 == 0 && sizes[i] < MIB;
        objects[i] = ask(heap, NULL, sizes[i], zero ? SW_ZERO : 0);
        if (objects[i] == NULL) continue;
        if (zero) CHECK(objects[i][0] == 0 && objects[i][sizes[i] - 1] == 0);
        sign(i);
    }
}

static void grow_one(sw_heap *heap, size_t i) {
    for (size_t size = sizes[i]; objects[i] != NULL && size < 4 * MIB; size += MIB) {
        unsigned char *p = ask(heap, objects[i], size, 0);
        if (p == NULL) return;
        CHECK_EQ(p[0], (unsigned char)(i * 5 + 1));
        objects[i] = p;
        sizes[i] = size;
        sign(i);
    }
}

static void live(sw_heap *heap) {
    for (int round = 0; round < ROUNDS; round++) {
        fill(heap);
        grow_one(heap, 200);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
        for (size_t i = 0; i < OBJECTS; i++)
            if (i % 4 != 0) check_and_free(heap, i);
        (void)sw_heap_trim(heap);
        for (size_t i = 0; i < OBJECTS; i++) check_and_free(heap, i);
        CHECK_EQ(sw_heap_verify(heap), SW_OK);
    }
}

static void work(void) {
    for (int heaps = 0; heaps < 2; heaps++) {
        sw_heap_options options;
        sw_heap *heap = NULL;
        uint64_t before = all_calls();
        sw_heap_options_init(&options);
        options.decay_ns = SW_DECAY_NEVER;
        options.tracked = heaps == 1;
        sw_status status = sw_heap_create(&options, &heap);
        if (status == SW_OK) {
            live(heap);
            CHECK_EQ(sw_heap_destroy(heap), SW_OK);
        } else {
            CHECK_EQ(status, SW_NOMEM);
            seen.requests_refused++;
            before = all_calls() - before;
            if (before > seen.worst_request_calls) seen.worst_request_calls = before;
        }
    }
}

/* --- one process a way of refusing ------------------------------------------------------------ */

static _Noreturn void in_child(int out, call kind, uint64_t from, uint64_t to) {
    struct rusage usage;
    alarm(250);
    sys.kind = kind;
    sys.from = from;
    sys.to = to;
    work();
    memcpy(seen.made, sys.made, sizeof seen.made);
    seen.calls = all_calls();
    seen.most_mapped_bytes = sys.most_mapped_bytes;
    seen.resident_bytes = getrusage(RUSAGE_SELF, &usage) == 0 ? (uint64_t)usage.ru_maxrss << 10 : 0;
    seen.finished = true;
    CHECK_EQ(write(out, &seen, sizeof seen), sizeof seen);
    _exit(check_failed());
}

static outcome run(call kind, uint64_t from, uint64_t to) {
    outcome result = {.finished = false};
    int ends[2], status = -1;
    CHECK_EQ(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) in_child(ends[1], kind, from, to);
    (void)close(ends[1]);
    bool reported = read(ends[0], &result, sizeof result) == (ssize_t)sizeof result;
    (void)close(ends[0]);
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK(reported && result.finished);
    CHECK_EQ(status, 0);
    return result;
}

/* What a refusal may cost beyond the run in which nothing was refused. A refused unmapping keeps
 * its addresses: as many again at most, since those of the reservation are most of them. */
static void check_bounds(const outcome *whole, const outcome *got, call kind) {
    uint64_t addresses = whole->most_mapped_bytes + 64 * (uint64_t)MIB;
    CHECK(got->most_mapped_bytes <= (kind == CALL_MUNMAP ? 2 * addresses : addresses));
    CHECK(SANITIZED || got->resident_bytes <= whole->resident_bytes + 16 * (uint64_t)MIB);
    CHECK(got->worst_request_calls <= REFUSAL_CALLS);
    CHECK(got->calls <= 2 * whole->calls + REFUSAL_CALLS * got->requests_refused);
}

static void refuse_each(const outcome *whole, call kind) {
    outcome worst = {.finished = true};
    uint64_t k = 0;
    for (bool reached = true; reached && !check_failed();) {
        k++;
        for (int on = 0; on < 2; on++) {
            if (on && !check_mine(k)) continue; /* the other run says whether call k was made */
            outcome got = run(kind, k, on ? UINT64_MAX : k);
            reached = got.made[kind] >= k;
            check_bounds(whole, &got, kind);
            if (check_failed())
                fprintf(stderr,
                        "%s refused: call %llu%s: %llu MiB mapped, %llu MiB resident, "
                        "%llu calls, %llu requests refused, the worst by %llu calls\n",
                        call_names[kind], (unsigned long long)k, on ? " and on" : "",
                        (unsigned long long)got.most_mapped_bytes >> 20,
                        (unsigned long long)got.resident_bytes >> 20, (unsigned long long)got.calls,
                        (unsigned long long)got.requests_refused,
                        (unsigned long long)got.worst_request_calls);
            if (got.worst_request_calls > worst.worst_request_calls)
                worst.worst_request_calls = got.worst_request_calls;
            if (got.requests_refused > worst.requests_refused)
                worst.requests_refused = got.requests_refused;
        }
    }
    printf("%-8s %llu places; at most %llu requests refused, %llu calls for one of them\n",
           call_names[kind], (unsigned long long)k - 1, (unsigned long long)worst.requests_refused,
           (unsigned long long)worst.worst_request_calls);
}

/* Another thread may give memory back between a thread's refused mapping and its own search for
 * memory to give back. It then finds none, but a second mapping succeeds. */
static void first_call_of_a_thread(void) {
    IN_CHILD() {
        sw_heap *heap = MADE(sw_heap, (void)o);
        sys.kind = CALL_MMAP;
        sys.from = sys.to = sys.made[CALL_MMAP] + 1;
        CHECK(sw_heap_alloc(heap, 100, 0) != NULL);
        CHECK(sys.made[CALL_MMAP] > sys.from);
    }
}

int main(void) {
    (void)prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* huge pages would be resident whole */
    outcome whole = run(CALLS, 1, 0);
    CHECK_EQ(whole.requests_refused, 0);
    printf("nothing refused: %llu calls, %llu MiB resident\n", (unsigned long long)whole.calls,
           (unsigned long long)whole.resident_bytes >> 20);
    first_call_of_a_thread();
    for (call kind = 0; kind < CALLS; kind++) refuse_each(&whole, kind);
    return check_result();
}
