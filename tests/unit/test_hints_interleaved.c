/* SPDX-License-Identifier: Apache-2.0 */
/* All interleavings of the steps of two short programs: an owner allocates, frees, drains and ends
 * while its hints are on, and another thread frees two of its objects. Such a free is split where
 * the owner can see it incomplete: the owner is read, the bit is set, the word is announced, the
 * half is pushed. One real thread does all steps, so each order is exact, and the program's own
 * list of live objects detects a slot that is allocated twice or lost.
 *
 * A drain is not split: ThreadSanitizer and test_hazard_race.c cover it.
 *
 * test_hints_interleaved [LENGTH]: number of steps of the owner's program (2; 4 take minutes). */
#include "heap/cache.h"
#include "heap/checks.h"
#include "heap/owned.h"
#include "heap/registry.h"
#include "heaps.h"
#include "live_list.h"
#include "spawn.h"

enum { SLOT = 512, SLOTS = 16 }; /* table go: a page, so 16 slots, a span */

static sw_heap *heap;
static sw_cache *owner, *other; /* owner: NULL after its thread has ended */
static bool of_thread;          /* the owner is the calling thread's own cache */
static bool reused;             /* else the next cache of the owner has another record */

static sw_fault_action refuse(const sw_fault *fault, void *arg) {
    (void)arg;
    CHECK_STR(sw_misuse_name(fault->code), "no misuse");
    return SW_FAULT_LEAK_AND_CONTINUE;
}

enum { FREES = 2, FREE_STEPS = 4, FREER_STEPS = FREES * FREE_STEPS };

/* A free by `other`, half done. */
typedef struct half_free {
    void *ptr;
    sw_span *span;
    sw_cache *owner;
    uint32_t slot;
    int next; /* step */
    sw_remote_result result;
} half_free;

static half_free frees[FREES];

static void set_bit(half_free *f) {
    if (f->owner == NULL) { /* no one's: under the heap's lock, in one step */
        sw_cache_free(other, f->ptr);
        f->result = SW_REMOTE_DONE;
        return;
    }
    f->result = sw_span_remote_set(f->span, f->slot);
    CHECK(f->result != SW_REMOTE_DOUBLE);
}

static void freer_step(half_free *f) {
    sw_space *space = heap->space;
    switch (f->next++) {
    case 0:
        sw_hazard_set(other, sw_space_id_of(space, (uintptr_t)f->ptr));
        f->span = other->hazard;
        f->owner = sw_span_owner(f->span);
        f->slot = sw_span_slot_of(f->span, (uintptr_t)f->ptr);
        break;
    case 1: set_bit(f); break;
    case 2:
        if (f->result != SW_REMOTE_ANNOUNCE) break;
        if (!sw_span_announce(space, f->span, f->slot)) f->result = SW_REMOTE_DONE;
        break;
    default:
        if (f->result == SW_REMOTE_ANNOUNCE)
            sw_remote_announce(f->owner, f->span, sw_span_half(f->slot));
    }
}

enum { OWNER_STEPS = 6, LENGTH_MAX = 5 };

/* The thread begins, or the next one does after it has ended. Its hints are on. */
static void open_owner(void) {
    if (owner != NULL) return;
    if (of_thread)
        owner = sw_thread_cache(heap);
    else
        CHECK_EQ(sw_cache_make(heap, reused ? SW_CACHE_OF_LIBRARY : SW_CACHE_OF_USER, &owner),
                 SW_OK);
    sw_hint_reset(owner);
    owner->unhinted_owner = SW_NO_CACHE;
}

static void owner_step(unsigned which) {
    if (which == 5 && owner != NULL && !of_thread) {
        sw_cache_shut(owner);
        owner = NULL;
        return;
    }
    open_owner();
    switch (which) {
    case 0: keep(sw_cache_alloc_aligned(owner, SLOT, 16, 0)); break; /* looks at hints first */
    case 1: keep(sw_cache_alloc(owner, SLOT, 0)); break;             /* at the word first */
    case 2: sw_cache_free(owner, take(0)); break;
    case 3: sw_cache_free(owner, take(live_count - 1)); break;
    case 4: sw_remote_drain(owner); break;
    default: sw_cache_trim(owner);
    }
}

/* Two full spans and a current one. apart: the freer's objects are in two spans, else in one word.
 */
static void begin(bool apart) {
    live_count = 0;
    sw_verify_hold(); /* a free that is half done would be reported as damage */
    open_owner();
    for (int i = 0; i < 2 * SLOTS + 2; i++) keep(sw_cache_alloc(owner, SLOT, 0));
    for (int i = 0; i < FREES; i++)
        frees[i] = (half_free){.ptr = take(apart && i > 0 ? SLOTS + 2 : 3)};
    for (int i = 0; i < 3; i++) sw_cache_free(owner, take(5 + i));
    keep(sw_cache_alloc(owner, SLOT, 0));
}

/* All objects are freed: neither a page nor a slot is lost. */
static void finish(void) {
    sw_verify_unhold();
    open_owner();
    sw_remote_drain(owner);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    for (int i = 0; i < 2 * SLOTS; i++) keep(sw_cache_alloc(owner, SLOT, 0));
    while (live_count > 0) sw_cache_free(owner, take(0));
    sw_cache_trim(other);
    sw_cache_trim(owner);
    sw_cache_trim(other); /* what was the other's hazard at the trim before */
    sw_ledger ledger = ledger_of(heap);
    CHECK_EQ(ledger.requested_bytes + ledger.roundup_bytes + ledger.cached_bytes, 0);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
}

/* Bit i of `turns` says that step i is the owner's. */
static void run(unsigned program, uint64_t turns, int steps) {
    int freed = 0;
    for (int i = 0; i < steps && !check_failed(); i++) {
        if ((turns >> i & 1) == 0) {
            freer_step(&frees[freed++ / FREE_STEPS]);
        } else {
            owner_step(program % OWNER_STEPS);
            program /= OWNER_STEPS;
        }
    }
}

static unsigned power(unsigned base, int exponent) {
    return exponent == 0 ? 1 : base * power(base, exponent - 1);
}

static void make_heap(void) {
    heap = MADE(sw_heap, o.table = sw_table_go(), o.manual_clock = 1);
    other = cache_of(heap);
    owner = NULL;
}

static void drop_heap(void) {
    if (owner != NULL && !of_thread) sw_cache_shut(owner);
    sw_cache_close(other);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

static void every_order(int length) {
    int steps = length + FREER_STEPS;
    unsigned programs = power(OWNER_STEPS, length);
    uint64_t orders = 0;
    make_heap();
    for (uint64_t turns = 0; turns < 1ull << steps && !check_failed(); turns++) {
        if ((int)sw_popcount(turns) != length) continue;
        for (unsigned program = 0; program < 2 * programs && !check_failed(); program++) {
            if (!check_mine(orders++)) continue;
            reused = orders % 2 != 0;
            begin(program < programs);
            run(program % programs, turns, steps);
            finish();
            if (check_failed())
                fprintf(stderr, "program %u, turns %" PRIx64 ": %s\n", program, turns,
                        sw_last_error()->message);
        }
    }
    CHECK(check_failed() || orders >= programs);
    drop_heap();
}

/* The child has no freer: what it had not marked as free lives on. */
static void play_on(void) {
    alarm(200);
    for (int i = 0; i < FREES; i++)
        if (frees[i].next < 2) keep(frees[i].ptr);
    open_owner();
    for (int i = 0; i < SLOTS; i++) keep(sw_cache_alloc_aligned(owner, SLOT, 16, 0));
    finish();
    _exit(check_failed());
}

/* A fork after two steps of the owner and so many of the freer, which come between them. */
static void fork_after(unsigned program, int freer_steps, bool apart) {
    begin(apart);
    owner_step(program % OWNER_STEPS);
    for (int i = 0; i < freer_steps; i++) freer_step(&frees[i / FREE_STEPS]);
    owner_step(program / OWNER_STEPS);
    pid_t child = child_begin();
    if (child == 0) play_on();
    expect_exit_0(child);
    for (int i = freer_steps; i < FREER_STEPS; i++) freer_step(&frees[i / FREE_STEPS]);
    finish();
    if (check_failed()) fprintf(stderr, "fork: program %u, %d steps\n", program, freer_steps);
}

static void forked(void) {
    unsigned number = 0;
    make_heap();
    for (unsigned program = 0; program < OWNER_STEPS * OWNER_STEPS; program++)
        for (int freer_steps = 0; freer_steps <= FREER_STEPS && !check_failed(); freer_steps++)
            if (number++ % 2 == 0 && check_mine(number))
                fork_after(program, freer_steps, number % 4 == 1);
    drop_heap();
}

int main(int count, char **words) {
    int length = count > 1 ? atoi(words[1]) : 2;
    sw_set_fault_handler(refuse, NULL);
    CHECK(length >= 1 && length <= LENGTH_MAX);
    if (check_failed()) return check_result();
    every_order(length);
    forked();
    of_thread = true;
    forked();
    return check_result();
}
