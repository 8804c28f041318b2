/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/sample.h"

#include "base/base.h"
#include "base/thread_state.h"
#include "guard/state.h"
#include "os/os.h"

/* --- objects of size 0 ------------------------------------------------------------------------ */

enum { OBJECTS = 1 << 16, WORDS = OBJECTS / 64 };

static sw_os_lock empty_lock;
static char *empty_range; /* NULL: none */
static uint64_t live[WORDS];
static size_t next_word; /* where the search for a free address goes on */

void sw_empty_lock(void) { sw_os_lock_acquire(&empty_lock); }
void sw_empty_unlock(void) { sw_os_lock_release(&empty_lock); }
void sw_empty_reset(void) { sw_os_lock_reset(&empty_lock); }

void sw_empty_start(void) {
    empty_range = sw_os_reserve((size_t)OBJECTS * SW_EMPTY_ALIGN, sw_os_page_bytes());
}

bool sw_empty_owns(const void *p) {
    return empty_range != NULL &&
           (uintptr_t)p - (uintptr_t)empty_range < (size_t)OBJECTS * SW_EMPTY_ALIGN;
}

/* Marks a free address, and returns its index; OBJECTS: there is none. The lock is held. */
static size_t take(void) {
    for (size_t i = 0; i < WORDS; i++) {
        size_t word = (next_word + i) % WORDS;
        if (live[word] == UINT64_MAX) continue;
        size_t bit = (size_t)__builtin_ctzll(~live[word]);
        live[word] |= UINT64_C(1) << bit;
        next_word = (word + 1) % WORDS; /* an address is reused late */
        return word * 64 + bit;
    }
    return OBJECTS;
}

void *sw_empty_alloc(void) {
    if (empty_range == NULL) return NULL;
    sw_empty_lock();
    size_t index = take();
    sw_empty_unlock();
    return index == OBJECTS ? NULL : empty_range + index * SW_EMPTY_ALIGN;
}

/* Returns what is wrong with a pointer into the range; if `end`, the object ends. */
static sw_misuse look_up(const void *p, bool end) {
    size_t offset = (size_t)((const char *)p - empty_range), index = offset / SW_EMPTY_ALIGN;
    uint64_t bit = UINT64_C(1) << index % 64;
    if (offset % SW_EMPTY_ALIGN != 0) return SW_MISUSE_INTERIOR;
    sw_empty_lock();
    bool lives = (live[index / 64] & bit) != 0;
    if (lives && end) live[index / 64] &= ~bit;
    sw_empty_unlock();
    return lives ? SW_MISUSE_NONE : SW_MISUSE_DOUBLE_FREE;
}

bool sw_empty_check(sw_heap *heap, const void *p, const char *op, size_t *size) {
    sw_misuse misuse = look_up(p, false);
    if (misuse != SW_MISUSE_NONE) sw_guard_report(heap, misuse, op, p, 0);
    *size = 0;
    return misuse == SW_MISUSE_NONE;
}

void sw_empty_free(sw_heap *heap, void *p, const char *op) {
    sw_misuse misuse = look_up(p, true);
    if (misuse != SW_MISUSE_NONE) sw_guard_report(heap, misuse, op, p, 0);
}

/* --- sampled objects -------------------------------------------------------------------------- */

enum { SAMPLES = 1 << 8, SAMPLES_OF_ALL = 1 << 14, MALLOC_ALIGN = 16 };

/* A page with at most one object. Page i of the objects is page 2 i + 1 of the range. */
typedef struct place {
    char *object; /* NULL: never used */
    size_t size;
    sw_guard_kind kind;
    bool lives;
    uint32_t next;            /* in the queue of free places */
    sw_guard_stack stacks[2]; /* of the allocation and of the free */
} place;

/* `range` and `places` are set before the first allocation, and do not change. The rest is under
 * the lock. Free places are a queue, so that a page is reused as late as possible. */
static sw_os_lock lock;
static char *range;
static place *places;
static uint32_t count;
static uint32_t first, last; /* of the queue; count: it is empty */
static uint64_t key;
static bool matches;
static uint64_t draws; /* atomic */

void sw_sample_lock(void) { sw_os_lock_acquire(&lock); }
void sw_sample_unlock(void) { sw_os_lock_release(&lock); }
void sw_sample_reset(void) { sw_os_lock_reset(&lock); }

static size_t range_bytes(void) { return (2 * (size_t)count + 1) * sw_os_page_bytes(); }
static char *page_of(const place *at) {
    return range + (2 * (size_t)(at - places) + 1) * sw_os_page_bytes();
}

void sw_sample_start(uint64_t of_canaries, unsigned on) {
    key = of_canaries;
    matches = (on & SW_GUARD_MATCH) != 0;
    if ((on & (SW_GUARD_SAMPLE | SW_GUARD_PAGES)) == 0) return;
    count = (on & SW_GUARD_PAGES) != 0 ? SAMPLES_OF_ALL : SAMPLES;
    places = sw_os_map(count * sizeof *places);
    range = places == NULL ? NULL : sw_os_reserve(range_bytes(), sw_os_page_bytes());
    for (uint32_t i = 0; range != NULL && i < count; i++) places[i].next = i + 1;
    first = 0;
    last = count - 1;
}

bool sw_sample_owns(const void *p) {
    return range != NULL && (uintptr_t)p - (uintptr_t)range < range_bytes();
}

/* --- allocation ------------------------------------------------------------------------------- */

/* It is uniform around the mean, so that no pattern of allocations is left out. */
uint64_t sw_sample_draw(void) {
    uint64_t draw = __atomic_add_fetch(&draws, 1, __ATOMIC_RELAXED) ^ key;
    draw *= UINT64_C(0x9E3779B97F4A7C15);
    return 1 + (draw >> 40) % (2 * SW_GUARD_INTERVAL - 1);
}

/* Notes a call stack. False: this thread does already, and the C library allocates to find the
 * bounds of the stack. */
static bool note_stack(sw_guard_stack *stack) {
    sw_thread_state *own = sw_thread_state_find(true);
    if (own == NULL || own->guarding) return false;
    own->guarding = true;
    sw_guard_note_stack(stack);
    own->guarding = false;
    return true;
}

/* Takes the place that is free for longest; NULL: none is free, or its page was refused. */
static place *take_place(void) {
    sw_sample_lock();
    place *at = first == count ? NULL : &places[first];
    if (at != NULL && !sw_os_commit(page_of(at), sw_os_page_bytes())) at = NULL;
    if (at != NULL) first = first == last ? count : at->next;
    sw_sample_unlock();
    return at;
}

void *sw_sample_alloc(size_t size, size_t align, sw_guard_kind kind) {
    size_t page = sw_os_page_bytes(), step = align < MALLOC_ALIGN ? MALLOC_ALIGN : align;
    if (range == NULL || size == 0 || size > page || step > page) return NULL;
    sw_guard_stack stack;
    place *at = note_stack(&stack) ? take_place() : NULL;
    if (at == NULL) return NULL;
    char *end = page_of(at) + page;
    at->object = end - sw_align_up(size, step);
    at->size = size;
    at->kind = kind;
    at->stacks[0] = stack;
    at->stacks[1].thread = 0;
    size_t bytes = (size_t)(end - at->object);
    if (bytes != size)
        sw_canary_write(sw_canary_word(key, at->object, kind), at->object, size, bytes);
    __atomic_store_n(&at->lives, true, __ATOMIC_RELEASE);
    return at->object;
}

/* --- free ------------------------------------------------------------------------------------- */

static place *place_of(const void *p) {
    size_t page = (size_t)((const char *)p - range) / sw_os_page_bytes();
    size_t index = page == 0 ? 0 : (page - 1) / 2; /* a guard page belongs to the object before */
    return &places[index < count ? index : count - 1];
}

/* Returns what is wrong with a pointer to an object. */
static sw_misuse look_up_sampled(const place *at, const void *p) {
    if (p != at->object) return SW_MISUSE_INTERIOR;
    return __atomic_load_n(&at->lives, __ATOMIC_ACQUIRE) ? SW_MISUSE_NONE : SW_MISUSE_DOUBLE_FREE;
}

bool sw_sample_size(sw_heap *heap, const void *p, const char *op, size_t *size) {
    const place *at = place_of(p);
    sw_misuse misuse = look_up_sampled(at, p);
    if (misuse != SW_MISUSE_NONE) sw_guard_report_stacks(heap, misuse, op, p, at->size, at->stacks);
    *size = at->size;
    return misuse == SW_MISUSE_NONE;
}

static sw_misuse check_end(const place *at, size_t stated, sw_guard_kind kind) {
    size_t bytes = (size_t)(page_of(at) + sw_os_page_bytes() - at->object);
    sw_guard_kind found = at->kind;
    if (bytes != at->size && !sw_canary_read(key, at->object, at->size, bytes, &found))
        return SW_MISUSE_OVERFLOW;
    if (stated != SIZE_MAX && stated != at->size) return SW_MISUSE_SIZE_MISMATCH;
    return kind == at->kind || !matches ? SW_MISUSE_NONE : SW_MISUSE_MISMATCHED_FREE;
}

static void give(place *at) {
    char *page = page_of(at);
    size_t bytes = sw_os_page_bytes();
    bool closed = sw_os_purge(page, bytes) && sw_os_uncommit(page, bytes);
    sw_sample_lock();
    if (closed) { /* else the page is not used again */
        uint32_t index = (uint32_t)(at - places);
        if (first == count)
            first = index;
        else
            places[last].next = index;
        last = index;
    }
    sw_sample_unlock();
}

void sw_sample_free(sw_heap *heap, void *p, size_t stated, sw_guard_kind kind, const char *op) {
    place *at = place_of(p);
    sw_misuse misuse = look_up_sampled(at, p);
    if (misuse == SW_MISUSE_NONE) misuse = check_end(at, stated, kind);
    if (misuse == SW_MISUSE_NONE && !__atomic_exchange_n(&at->lives, false, __ATOMIC_ACQ_REL))
        misuse = SW_MISUSE_DOUBLE_FREE;
    if (misuse != SW_MISUSE_NONE) {
        sw_guard_report_stacks(heap, misuse, op, p, at->size, at->stacks);
        return;
    }
    (void)note_stack(&at->stacks[1]);
    give(at);
}

static void sw_sample_report_fault(sw_heap *heap, const void *address, const char *op) {
    const place *at = place_of(address);
    bool inside = (const char *)address >= page_of(at) &&
                  (const char *)address < page_of(at) + sw_os_page_bytes();
    bool lives = __atomic_load_n(&at->lives, __ATOMIC_ACQUIRE);
    sw_misuse misuse = !lives && inside ? SW_MISUSE_USE_AFTER_FREE : SW_MISUSE_OUT_OF_BOUNDS;
    sw_guard_report_stacks(heap, misuse, op, address, at->size, at->stacks);
}

/* --- accesses that fault ---------------------------------------------------------------------- */

static sw_heap *watched;

static bool on_fault(void *address, bool is_write) {
    const char *op = is_write ? "write" : "read";
    if (sw_empty_owns(address))
        sw_guard_report(watched, SW_MISUSE_OUT_OF_BOUNDS, op, address, 0);
    else if (sw_sample_owns(address))
        sw_sample_report_fault(watched, address, op);
    return false;
}

void sw_guard_watch_faults(sw_heap *heap) {
    watched = heap;
    (void)sw_os_at_fault(on_fault);
}
