/* SPDX-License-Identifier: Apache-2.0 */
#include "guard/sample.h"

#include "base/base.h"
#include "base/thread_state.h"
#include "guard/state.h"
#include "os/os.h"

/* --- objects of size 0 ------------------------------------------------------------------------ */

/* Marks a free address, and returns its index; SW_EMPTY_OBJECTS: there is none. The lock is
 * held. */
static size_t take(sw_empties *empties) {
    for (size_t i = 0; i < SW_EMPTY_WORDS; i++) {
        size_t word = (empties->next_word + i) % SW_EMPTY_WORDS;
        uint64_t live = empties->live[word];
        if (live == UINT64_MAX) continue;
        size_t bit = (size_t)__builtin_ctzll(~live);
        empties->live[word] = live | UINT64_C(1) << bit;
        empties->next_word = (word + 1) % SW_EMPTY_WORDS; /* an address is reused late */
        return word * 64 + bit;
    }
    return SW_EMPTY_OBJECTS;
}

void *sw_empty_alloc(sw_guard_state *guard) {
    sw_empties *empties = &guard->empties;
    if (empties->range == NULL) return NULL;
    sw_os_lock_acquire(&empties->lock);
    size_t index = take(empties);
    sw_os_lock_release(&empties->lock);
    return index == SW_EMPTY_OBJECTS ? NULL : empties->range + index * SW_EMPTY_ALIGN;
}

/* Returns what is wrong with a pointer into the range; if `end`, the object ends. */
static sw_misuse look_up(sw_empties *empties, const void *p, bool end) {
    size_t offset = (size_t)((const char *)p - empties->range), index = offset / SW_EMPTY_ALIGN;
    uint64_t bit = UINT64_C(1) << index % 64;
    if (offset % SW_EMPTY_ALIGN != 0) return SW_MISUSE_INTERIOR;
    sw_os_lock_acquire(&empties->lock);
    bool lives = (empties->live[index / 64] & bit) != 0;
    if (lives && end) empties->live[index / 64] &= ~bit;
    sw_os_lock_release(&empties->lock);
    return lives ? SW_MISUSE_NONE : SW_MISUSE_DOUBLE_FREE;
}

bool sw_empty_check(sw_guard_state *guard, const void *p, const char *op, size_t *size) {
    sw_misuse misuse = look_up(&guard->empties, p, false);
    if (misuse != SW_MISUSE_NONE) sw_guard_report(guard->heap, misuse, op, p, 0);
    *size = 0;
    return misuse == SW_MISUSE_NONE;
}

void sw_empty_free(sw_guard_state *guard, void *p, size_t stated, const char *op) {
    sw_misuse misuse = look_up(&guard->empties, p, true);
    if (misuse == SW_MISUSE_NONE && stated != 0 && stated != SIZE_MAX)
        misuse = SW_MISUSE_SIZE_MISMATCH;
    if (misuse != SW_MISUSE_NONE) sw_guard_report(guard->heap, misuse, op, p, 0);
}

/* --- sampled objects -------------------------------------------------------------------------- */

enum { SAMPLES = 1 << 8, SAMPLES_OF_ALL = 1 << 14, MALLOC_ALIGN = 16 };

/* A page with at most one object. Page i of the objects is page 2 i + 1 of the range. */
typedef struct sw_place {
    char *object; /* NULL: never used */
    size_t size;
    sw_guard_kind kind;
    bool lives;
    uint32_t next;            /* in the queue of free places */
    sw_guard_stack stacks[2]; /* of the allocation and of the free */
} place;

static size_t range_bytes(const sw_samples *all) {
    return (2 * (size_t)all->count + 1) * sw_os_page_bytes();
}
static char *page_of(const sw_samples *all, const place *at) {
    return all->range + (2 * (size_t)(at - all->places) + 1) * sw_os_page_bytes();
}

bool sw_sample_owns(const sw_guard_state *guard, const void *p) {
    const sw_samples *all = &guard->samples;
    return all->range != NULL && (uintptr_t)p - (uintptr_t)all->range < range_bytes(all);
}

struct sw_sampled sw_sample_range(const sw_guard_state *guard) {
    const sw_samples *all = &guard->samples;
    return (struct sw_sampled){(uintptr_t)all->range, all->range == NULL ? 0 : range_bytes(all)};
}

/* --- allocation ------------------------------------------------------------------------------- */

/* It is uniform around the mean, so that no pattern of allocations is left out. */
uint64_t sw_sample_draw(const sw_guard_state *guard) {
    static uint64_t draws; /* atomic */
    uint64_t draw = __atomic_add_fetch(&draws, 1, __ATOMIC_RELAXED) ^ guard->key;
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
static place *take_place(sw_samples *all) {
    sw_os_lock_acquire(&all->lock);
    place *at = all->first == all->count ? NULL : &all->places[all->first];
    if (at != NULL && !sw_os_commit(page_of(all, at), sw_os_page_bytes())) at = NULL;
    if (at != NULL) all->first = all->first == all->last ? all->count : at->next;
    sw_os_lock_release(&all->lock);
    return at;
}

void *sw_sample_alloc(sw_guard_state *guard, size_t size, size_t align, sw_guard_kind kind) {
    sw_samples *all = &guard->samples;
    size_t page = sw_os_page_bytes(), step = align < MALLOC_ALIGN ? MALLOC_ALIGN : align;
    if (all->range == NULL || size == 0 || size > page || step > page) return NULL;
    sw_guard_stack stack;
    place *at = note_stack(&stack) ? take_place(all) : NULL;
    if (at == NULL) return NULL;
    char *end = page_of(all, at) + page;
    at->object = end - sw_align_up(size, step);
    at->size = size;
    at->kind = kind;
    at->stacks[0] = stack;
    at->stacks[1].thread = 0;
    size_t bytes = (size_t)(end - at->object);
    if (bytes != size)
        sw_canary_write(sw_canary_word(guard->key, at->object, kind), at->object, size, bytes);
    __atomic_store_n(&at->lives, true, __ATOMIC_RELEASE);
    return at->object;
}

/* --- free ------------------------------------------------------------------------------------- */

static place *place_of(const sw_samples *all, const void *p) {
    size_t page = (size_t)((const char *)p - all->range) / sw_os_page_bytes();
    size_t index = page == 0 ? 0 : (page - 1) / 2; /* a guard page belongs to the object before */
    return &all->places[index < all->count ? index : all->count - 1];
}

/* Returns what is wrong with a pointer to an object. */
static sw_misuse look_up_sampled(const place *at, const void *p) {
    if (p != at->object) return SW_MISUSE_INTERIOR;
    return __atomic_load_n(&at->lives, __ATOMIC_ACQUIRE) ? SW_MISUSE_NONE : SW_MISUSE_DOUBLE_FREE;
}

bool sw_sample_size(sw_guard_state *guard, const void *p, const char *op, size_t *size) {
    const place *at = place_of(&guard->samples, p);
    sw_misuse misuse = look_up_sampled(at, p);
    if (misuse != SW_MISUSE_NONE)
        sw_guard_report_stacks(guard->heap, misuse, op, p, at->size, at->stacks);
    *size = at->size;
    return misuse == SW_MISUSE_NONE;
}

static bool is_whole(const sw_guard_state *guard, const place *at) {
    size_t bytes = (size_t)(page_of(&guard->samples, at) + sw_os_page_bytes() - at->object);
    sw_guard_kind found = at->kind;
    return bytes == at->size || sw_canary_read(guard->key, at->object, at->size, bytes, &found);
}

const void *sw_sample_find_damage(sw_guard_state *guard) {
    const sw_samples *all = &guard->samples;
    for (uint32_t i = 0; all->range != NULL && i < all->count; i++)
        if (all->places[i].lives && !is_whole(guard, &all->places[i])) return all->places[i].object;
    return NULL;
}

static sw_misuse check_end(const sw_guard_state *guard, const place *at, size_t stated,
                           sw_guard_kind kind) {
    if (!is_whole(guard, at)) return SW_MISUSE_OVERFLOW;
    if (stated != SIZE_MAX && stated != at->size) return SW_MISUSE_SIZE_MISMATCH;
    return kind == at->kind || (guard->on & SW_GUARD_MATCH) == 0 ? SW_MISUSE_NONE
                                                                 : SW_MISUSE_MISMATCHED_FREE;
}

static void give(sw_samples *all, place *at) {
    char *page = page_of(all, at);
    size_t bytes = sw_os_page_bytes();
    bool closed = sw_os_purge(page, bytes) && sw_os_uncommit(page, bytes);
    sw_os_lock_acquire(&all->lock);
    if (closed) { /* else the page is not used again */
        uint32_t index = (uint32_t)(at - all->places);
        if (all->first == all->count)
            all->first = index;
        else
            all->places[all->last].next = index;
        all->last = index;
    }
    sw_os_lock_release(&all->lock);
}

void sw_sample_free(sw_guard_state *guard, void *p, size_t stated, sw_guard_kind kind,
                    const char *op) {
    place *at = place_of(&guard->samples, p);
    sw_misuse misuse = look_up_sampled(at, p);
    if (misuse == SW_MISUSE_NONE) misuse = check_end(guard, at, stated, kind);
    if (misuse == SW_MISUSE_NONE && !__atomic_exchange_n(&at->lives, false, __ATOMIC_ACQ_REL))
        misuse = SW_MISUSE_DOUBLE_FREE;
    if (misuse != SW_MISUSE_NONE) {
        sw_guard_report_stacks(guard->heap, misuse, op, p, at->size, at->stacks);
        return;
    }
    (void)note_stack(&at->stacks[1]);
    give(&guard->samples, at);
}

static void report_fault(const sw_guard_state *guard, const void *address, const char *op) {
    const sw_samples *all = &guard->samples;
    const place *at = place_of(all, address);
    bool inside = (const char *)address >= page_of(all, at) &&
                  (const char *)address < page_of(all, at) + sw_os_page_bytes();
    bool lives = __atomic_load_n(&at->lives, __ATOMIC_ACQUIRE);
    sw_misuse misuse = !lives && inside ? SW_MISUSE_USE_AFTER_FREE : SW_MISUSE_OUT_OF_BOUNDS;
    sw_guard_report_stacks(guard->heap, misuse, op, address, at->size, at->stacks);
}

/* --- accesses that fault ---------------------------------------------------------------------- */

/* The heaps that may have inaccessible pages. The lock is for changes; a fault handler reads the list without
 * it, because no other thread may use a heap that is being destroyed. */
static sw_os_lock watch_lock;
static sw_guard_state *watched; /* atomic */

/* Reports the use of a held large object. */
static void report_held(const sw_guard_state *guard, const void *address, const char *op) {
    if ((guard->on & SW_GUARD_HOLD) == 0) return;
    sw_target target = sw_target_find(guard->heap, address);
    if (target.span == NULL || !target.large || target.misuse == SW_MISUSE_WRONG_HEAP) return;
    const sw_span_cold *cold = sw_space_cold(guard->heap->space, target.span);
    if (__atomic_load_n(&cold->requested, __ATOMIC_RELAXED) != 0) return;
    size_t bytes = (size_t)cold->pages << guard->heap->table->page_shift;
    sw_guard_report(guard->heap, SW_MISUSE_USE_AFTER_FREE, op, address, bytes);
}

static bool on_fault(void *address, bool is_write) {
    const char *op = is_write ? "write" : "read";
    const sw_guard_state *guard = __atomic_load_n(&watched, __ATOMIC_ACQUIRE);
    for (; guard != NULL; guard = guard->next) {
        if (sw_empty_owns(guard, address))
            sw_guard_report(guard->heap, SW_MISUSE_OUT_OF_BOUNDS, op, address, 0);
        else if (sw_sample_owns(guard, address))
            report_fault(guard, address, op);
        else
            report_held(guard, address, op);
    }
    return false;
}

static void watch(sw_guard_state *guard) {
    sw_os_lock_acquire(&watch_lock);
    guard->next = watched;
    __atomic_store_n(&watched, guard, __ATOMIC_RELEASE);
    sw_os_lock_release(&watch_lock);
    (void)sw_os_at_fault(on_fault);
}

static void unwatch(sw_guard_state *guard) {
    sw_os_lock_acquire(&watch_lock);
    sw_guard_state **link = &watched;
    while (*link != NULL && *link != guard) link = &(*link)->next;
    if (*link != NULL) __atomic_store_n(link, guard->next, __ATOMIC_RELEASE);
    sw_os_lock_release(&watch_lock);
}

/* --- both ------------------------------------------------------------------------------------- */

static void start_samples(sw_samples *all, uint32_t count) {
    all->count = count;
    all->places = sw_os_map(count * sizeof *all->places);
    if (all->places == NULL) return;
    all->range = sw_os_reserve(range_bytes(all), sw_os_page_bytes());
    for (uint32_t i = 0; i < count; i++) all->places[i].next = i + 1;
    all->first = 0;
    all->last = count - 1;
}

void sw_sample_start(sw_guard_state *guard) {
    size_t page = sw_os_page_bytes();
    if ((guard->on & SW_GUARD_EMPTY) != 0)
        guard->empties.range = sw_os_reserve((size_t)SW_EMPTY_OBJECTS * SW_EMPTY_ALIGN, page);
    if ((guard->on & SW_GUARD_PAGES) != 0)
        start_samples(&guard->samples, SAMPLES_OF_ALL);
    else if ((guard->on & SW_GUARD_SAMPLE) != 0)
        start_samples(&guard->samples, SAMPLES);
    if ((guard->on & (SW_GUARD_EMPTY | SW_GUARD_SAMPLE | SW_GUARD_PAGES | SW_GUARD_HOLD)) != 0)
        watch(guard);
}

void sw_sample_end(sw_guard_state *guard) {
    sw_samples *all = &guard->samples;
    unwatch(guard);
    if (guard->empties.range != NULL)
        (void)sw_os_release(guard->empties.range, (size_t)SW_EMPTY_OBJECTS * SW_EMPTY_ALIGN);
    if (all->range != NULL) (void)sw_os_release(all->range, range_bytes(all));
    if (all->places != NULL) (void)sw_os_release(all->places, all->count * sizeof *all->places);
    guard->empties.range = all->range = NULL;
    all->places = NULL;
}

void sw_sample_lock(sw_guard_state *guard) {
    sw_os_lock_acquire(&guard->empties.lock);
    sw_os_lock_acquire(&guard->samples.lock);
}

void sw_sample_unlock(sw_guard_state *guard) {
    sw_os_lock_release(&guard->samples.lock);
    sw_os_lock_release(&guard->empties.lock);
}

void sw_sample_reset(sw_guard_state *guard) {
    sw_os_lock_reset(&guard->samples.lock);
    sw_os_lock_reset(&guard->empties.lock);
}
