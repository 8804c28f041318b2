/* SPDX-License-Identifier: Apache-2.0 */
/* Entries are in an array, indexed by number. Entries with an object are also in the chains of a
 * hash table, by which the explicit free of an object finds all of them. Nothing here is allocated
 * while a cycle works. */
#include "gc/refs.h"

#include "base/base.h"
#include "gc/events.h"
#include "gc/mark.h"
#include "gc/span_meta.h"
#include "gc/stop.h"
#include "gc/type.h"
#include "heap/target.h"

/* --- references ------------------------------------------------------------------------------- */

enum { BUCKETS_FIRST = 1024, BUCKETS_MAX = 1 << 30 };

const char *sw_gc_refs_check(const sw_gc_refs *refs) {
    return SW_RULE((refs->buckets == NULL) == (refs->bucket_count == 0))
        ?: SW_RULE((refs->bucket_count & (refs->bucket_count - 1)) == 0)
        ?: SW_RULE(refs->hashed <= refs->entries.count)
        ?: SW_RULE(refs->hashed == 0 || refs->buckets != NULL)
        ?: SW_RULE((refs->due_first == 0) == (refs->due_last == 0));
}

/* --- by object -------------------------------------------------------------------------------- */

static uint32_t *bucket_of(const sw_gc_refs *refs, uintptr_t object) {
    uint64_t hash = (uint64_t)object * 0x9E3779B97F4A7C15u >> 32;
    return &refs->buckets[hash & (refs->bucket_count - 1)];
}

uint32_t sw_gc_refs_number(const sw_gc_refs *refs, const sw_gc_ref_entry *entry) {
    return (uint32_t)(entry - (const sw_gc_ref_entry *)refs->entries.items) + 1;
}

static void chain(const sw_gc_refs *refs, sw_gc_ref_entry *entry) {
    uint32_t *bucket = bucket_of(refs, entry->object);
    entry->next = *bucket;
    *bucket = sw_gc_refs_number(refs, entry);
}

static void count_hashed(sw_gc_refs *refs, uint32_t hashed) {
    __atomic_store_n(&refs->hashed, hashed, __ATOMIC_RELAXED);
}

/* Allocates the buckets, and doubles them at a load factor of 1. If the system refuses memory, the
 * chains get longer. False: there are no buckets at all. */
static bool make_buckets(sw_gc_refs *refs) {
    uint32_t before = refs->bucket_count, count = before == 0 ? BUCKETS_FIRST : 2 * before;
    if (refs->hashed < before || before >= BUCKETS_MAX) return true;
    uint32_t *buckets = sw_os_map(count * sizeof *buckets);
    if (buckets == NULL) return before != 0;
    if (before != 0) (void)sw_os_release(refs->buckets, before * sizeof *buckets);
    refs->buckets = buckets;
    refs->bucket_count = count;
    for (uint32_t i = 0; i < refs->entries.count; i++) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(refs, i);
        if (entry->object != 0) chain(refs, entry);
    }
    return true;
}

void sw_gc_refs_put(sw_gc_refs *refs, sw_gc_ref_entry *entry, uintptr_t object) {
    entry->object = object;
    if (object == 0) return;
    chain(refs, entry);
    count_hashed(refs, refs->hashed + 1);
}

/* Unlinks the entry from its chain; *at points to it. */
static void unchain(sw_gc_refs *refs, uint32_t *at, sw_gc_ref_entry *entry) {
    *at = entry->next;
    entry->next = 0;
    entry->object = 0;
    count_hashed(refs, refs->hashed - 1);
}

void sw_gc_refs_clear(sw_gc_refs *refs, sw_gc_ref_entry *entry) {
    if (entry->object == 0) return;
    uint32_t *at = bucket_of(refs, entry->object), number = sw_gc_refs_number(refs, entry);
    while (*at != number) at = &sw_gc_refs_entry(refs, *at - 1)->next;
    unchain(refs, at, entry);
}

/* Returns the entry of the object's finalizer that was not called yet; NULL: none. */
static sw_gc_ref_entry *sw_gc_refs_finalizer(const sw_gc_refs *refs, uintptr_t object) {
    if (refs->hashed == 0) return NULL;
    for (uint32_t number = *bucket_of(refs, object); number != 0;) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(refs, number - 1);
        bool waits = entry->state == SW_GC_ENTRY_FINALIZER || entry->state == SW_GC_ENTRY_DUE;
        if (waits && entry->object == object) return entry;
        number = entry->next;
    }
    return NULL;
}

/* A due finalizer stays in its queue without an object; take_due skips it. */
void sw_gc_refs_forget(sw_gc_refs *refs, uintptr_t object) {
    if (refs->hashed == 0) return;
    for (uint32_t *at = bucket_of(refs, object); *at != 0;) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(refs, *at - 1);
        if (entry->object != object) {
            at = &entry->next;
            continue;
        }
        unchain(refs, at, entry);
        if (entry->state == SW_GC_ENTRY_FINALIZER) sw_gc_refs_drop(refs, entry);
    }
}

/* --- entries ---------------------------------------------------------------------------------- */

/* Returns an unused entry. NULL: no memory. */
static sw_gc_ref_entry *take_entry(sw_gc_refs *refs) {
    if (refs->unused == 0) {
        sw_gc_ref_entry *added = sw_gc_array_add(&refs->entries, sizeof *added);
        if (added != NULL) *added = (sw_gc_ref_entry){0};
        return added;
    }
    sw_gc_ref_entry *entry = sw_gc_refs_entry(refs, refs->unused - 1);
    refs->unused = entry->next;
    entry->next = 0;
    return entry;
}

sw_gc_ref_entry *sw_gc_refs_add(sw_gc_refs *refs, uintptr_t object, sw_gc_entry_state state) {
    sw_check2(sw_gc_refs_check(refs));
    if (!make_buckets(refs)) return NULL;
    sw_gc_ref_entry *entry = take_entry(refs);
    if (entry == NULL) return NULL;
    entry->state = state;
    sw_gc_refs_put(refs, entry, object);
    return entry;
}

void sw_gc_refs_drop(sw_gc_refs *refs, sw_gc_ref_entry *entry) {
    sw_gc_refs_clear(refs, entry);
    *entry = (sw_gc_ref_entry){.generation = entry->generation + 1, .next = refs->unused};
    refs->unused = sw_gc_refs_number(refs, entry);
}

void sw_gc_refs_end(sw_gc_refs *refs) {
    sw_gc_array_end(&refs->entries, sizeof(sw_gc_ref_entry));
    if (refs->buckets != NULL)
        (void)sw_os_release(refs->buckets, refs->bucket_count * sizeof *refs->buckets);
    *refs = (sw_gc_refs){0};
}

/* --- objects ---------------------------------------------------------------------------------- */

bool sw_gc_refs_is_object(const sw_gc *gc, const void *object) {
    sw_target target = sw_target_find(gc->heap, object);
    return target.misuse == SW_MISUSE_NONE && !sw_target_is_shared(gc->heap, &target);
}

bool sw_gc_refs_is_marked(const sw_gc *gc, uintptr_t object) {
    uint32_t id = sw_space_id_of(gc->heap->space, object);
    const sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    if (meta->stamp != sw_gc_stamp(gc, gc->epoch)) return false; /* the cycle never visited it */
    uint64_t slot = (uint64_t)(((sw_product)(object - meta->base) * meta->magic) >> 64);
    return (meta->marks[slot / 64] >> slot % 64 & 1) != 0;
}

void sw_gc_refs_settle(sw_gc *gc, sw_gc_entry_state state) {
    for (uint32_t i = 0; i < gc->refs.entries.count; i++) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (entry->state != state || entry->object == 0) continue;
        if (sw_gc_refs_is_marked(gc, entry->object)) continue;
        sw_gc_refs_clear(&gc->refs, entry);
        gc->cycle.cleared_refs++;
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

sw_status sw_gc_refs_unknown(const char *op, sw_gc_ref ref) {
    return sw_fail(SW_INVALID, op, "no reference has number %llu, or it was freed",
                   (unsigned long long)ref);
}

sw_gc_ref_entry *sw_gc_refs_find(const sw_gc_refs *refs, sw_gc_ref ref, sw_gc_entry_state first,
                                 sw_gc_entry_state last) {
    uint32_t number = (uint32_t)ref;
    if (number == 0 || number > refs->entries.count) return NULL;
    sw_gc_ref_entry *entry = sw_gc_refs_entry(refs, number - 1);
    bool is_among = entry->state >= first && entry->state <= last;
    return is_among && entry->generation == ref >> 32 ? entry : NULL;
}

static sw_gc_ref_entry *find(const sw_gc_refs *refs, sw_gc_ref ref) {
    return sw_gc_refs_find(refs, ref, SW_GC_ENTRY_STRONG, SW_GC_ENTRY_LONG);
}

sw_gc_ref sw_gc_refs_id(const sw_gc_refs *refs, const sw_gc_ref_entry *entry) {
    return (sw_gc_ref)entry->generation << 32 | sw_gc_refs_number(refs, entry);
}

void *sw_gc_refs_give(sw_gc *gc, const sw_gc_ref_entry *entry) {
    if (gc->phase == SW_GC_MARKING && entry->object != 0) sw_gc_mark_word(gc, entry->object);
    return (void *)entry->object; /* NOLINT(performance-no-int-to-ptr) */
}

sw_status sw_gc_refs_enter(sw_gc *gc, const char *op, const void *object) {
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    if (object == NULL || sw_gc_refs_is_object(gc, object)) return SW_OK;
    sw_os_lock_release(&gc->lock);
    return sw_fail(SW_INVALID, op, "no object of the heap begins at %p", object);
}

sw_status sw_gc_ref_new(sw_gc *gc, sw_gc_ref_kind kind, const void *object, sw_gc_ref *out) {
    const char *op = "gc_ref_new";
    sw_status status = sw_gc_refs_enter(gc, op, object);
    if (status != SW_OK) return status;
    bool known = (unsigned)kind <= SW_GC_WEAK_LONG && out != NULL;
    sw_gc_entry_state state = (sw_gc_entry_state)(SW_GC_ENTRY_STRONG + (unsigned)kind);
    sw_gc_ref_entry *entry = known ? sw_gc_refs_add(&gc->refs, (uintptr_t)object, state) : NULL;
    if (entry != NULL) *out = sw_gc_refs_id(&gc->refs, entry);
    sw_os_lock_release(&gc->lock);
    if (!known) return sw_fail(SW_INVALID, op, "out is NULL, or there is no kind %d", (int)kind);
    return entry != NULL ? SW_OK : sw_fail(SW_NOMEM, op, "no memory for a reference");
}

sw_status sw_gc_ref_get(sw_gc *gc, sw_gc_ref ref, void **object) {
    const char *op = "gc_ref_get";
    sw_status status = sw_gc_refs_enter(gc, op, NULL);
    if (status != SW_OK) return status;
    const sw_gc_ref_entry *entry = find(&gc->refs, ref);
    if (entry != NULL) *object = sw_gc_refs_give(gc, entry);
    sw_os_lock_release(&gc->lock);
    return entry != NULL ? SW_OK : sw_gc_refs_unknown(op, ref);
}

sw_status sw_gc_ref_set(sw_gc *gc, sw_gc_ref ref, const void *object) {
    const char *op = "gc_ref_set";
    sw_status status = sw_gc_refs_enter(gc, op, object);
    if (status != SW_OK) return status;
    sw_gc_ref_entry *entry = find(&gc->refs, ref);
    if (entry != NULL) {
        sw_gc_refs_clear(&gc->refs, entry);
        sw_gc_refs_put(&gc->refs, entry, (uintptr_t)object);
    }
    sw_os_lock_release(&gc->lock);
    return entry != NULL ? SW_OK : sw_gc_refs_unknown(op, ref);
}

static void drop_ref(sw_gc_refs *refs, sw_gc_ref_entry *entry) {
    if (entry->state == SW_GC_ENTRY_KEY) {
        sw_gc_refs_drop(refs, sw_gc_refs_entry(refs, entry->pair - 1));
        refs->ephemerons--;
    }
    sw_gc_refs_drop(refs, entry);
}

sw_status sw_gc_ref_free(sw_gc *gc, sw_gc_ref ref) {
    const char *op = "gc_ref_free";
    sw_status status = sw_gc_refs_enter(gc, op, NULL);
    if (status != SW_OK) return status;
    sw_gc_ref_entry *entry = sw_gc_refs_find(&gc->refs, ref, SW_GC_ENTRY_STRONG, SW_GC_ENTRY_KEY);
    if (entry != NULL) drop_ref(&gc->refs, entry);
    sw_os_lock_release(&gc->lock);
    return entry != NULL ? SW_OK : sw_gc_refs_unknown(op, ref);
}

/* --- finalizers ------------------------------------------------------------------------------- */

/* Due finalizers are linked into a queue through their entries, so the end of marking needs no
 * memory. All finalizers of one cycle become due at once and in no order, so a chain or a ring of
 * objects is finalized in one cycle. A collector that calls an object's finalizer before those of
 * the objects that it points to needs a cycle per link, and never finalizes a ring (Boehm,
 * "Destructors, finalizers, and synchronization", 2003, argues for that order). */

/* --- the queue -------------------------------------------------------------------------------- */

static void append_due(sw_gc_refs *refs, sw_gc_ref_entry *entry, uint32_t number) {
    entry->state = SW_GC_ENTRY_DUE;
    entry->due_next = 0;
    if (refs->due_last == 0)
        refs->due_first = number;
    else
        sw_gc_refs_entry(refs, refs->due_last - 1)->due_next = number;
    refs->due_last = number;
}

/* Takes the next due entry, and marks it as being called. Returns its number; 0: none is due.
 * Entries whose objects were freed meanwhile are dropped. */
static uint32_t take_due(sw_gc_refs *refs) {
    while (refs->due_first != 0) {
        uint32_t number = refs->due_first;
        sw_gc_ref_entry *entry = sw_gc_refs_entry(refs, number - 1);
        refs->due_first = entry->due_next;
        if (refs->due_first == 0) refs->due_last = 0;
        if (entry->object != 0) {
            entry->state = SW_GC_ENTRY_CALLED;
            entry->thread = sw_gc_here();
            return number;
        }
        sw_gc_refs_drop(refs, entry);
    }
    return 0;
}

bool sw_gc_finalizers_settle(sw_gc_marker *marker) {
    sw_gc *gc = marker->gc;
    uint64_t before = gc->cycle.due_finalizers;
    for (uint32_t i = 0; i < gc->refs.entries.count; i++) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (entry->state != SW_GC_ENTRY_FINALIZER) continue;
        if (sw_gc_refs_is_marked(gc, entry->object)) continue;
        append_due(&gc->refs, entry, i + 1);
        gc->cycle.due_finalizers++;
        sw_gc_mark_range(marker, &entry->object, sizeof entry->object);
    }
    return gc->cycle.due_finalizers != before;
}

void sw_gc_finalizers_forked(sw_gc *gc) {
    for (uint32_t i = 0; i < gc->refs.entries.count; i++) {
        sw_gc_ref_entry *entry = sw_gc_refs_entry(&gc->refs, i);
        if (entry->state == SW_GC_ENTRY_CALLED && entry->thread != sw_gc_here())
            sw_gc_refs_drop(&gc->refs, entry);
    }
}

/* --- calls ------------------------------------------------------------------------------------ */

/* Sets or replaces the finalizer of an object; NULL removes it. False: no memory. */
static bool set(sw_gc_refs *refs, uintptr_t object, sw_gc_finalizer_fn finalizer, void *arg) {
    sw_gc_ref_entry *entry = sw_gc_refs_finalizer(refs, object);
    if (finalizer == NULL) {
        if (entry == NULL) return true;
        bool due = entry->state == SW_GC_ENTRY_DUE; /* it stays in the queue, without an object */
        (due ? sw_gc_refs_clear : sw_gc_refs_drop)(refs, entry);
        return true;
    }
    if (entry == NULL) entry = sw_gc_refs_add(refs, object, SW_GC_ENTRY_FINALIZER);
    if (entry == NULL) return false;
    entry->finalizer = finalizer;
    entry->arg = arg;
    return true;
}

sw_status sw_gc_set_finalizer(sw_gc *gc, const void *object, sw_gc_finalizer_fn finalizer,
                              void *arg) {
    const char *op = "gc_set_finalizer";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    sw_os_lock_acquire(&gc->lock);
    bool is_object = object != NULL && sw_gc_refs_is_object(gc, object);
    bool done = is_object && set(&gc->refs, (uintptr_t)object, finalizer, arg);
    sw_os_lock_release(&gc->lock);
    if (!is_object) return sw_fail(SW_INVALID, op, "no object of the heap begins at %p", object);
    return done ? SW_OK : sw_fail(SW_NOMEM, op, "no memory for a finalizer");
}

/* Calls a due finalizer. 0: none is due; 1: called; 2: called, and it has ended the collector. */
static int finalize_one(sw_gc *gc) {
    if (sw_gc_is_stopping(gc)) sw_gc_stop_here(gc);
    sw_os_lock_acquire(&gc->lock);
    uint32_t number = take_due(&gc->refs);
    sw_gc_ref_entry called = {0};
    if (number != 0) called = *sw_gc_refs_entry(&gc->refs, number - 1);
    sw_os_lock_release(&gc->lock);
    if (number == 0) return 0;
    uint64_t begin = sw_gc_events_now(gc);
    called.finalizer((void *)called.object, called.arg); /* NOLINT(performance-no-int-to-ptr) */
    if (!sw_handle_lives(gc, offsetof(sw_gc, mark), SW_HANDLE_GC)) return 2;
    sw_os_lock_acquire(&gc->lock);
    sw_gc_refs_drop(&gc->refs, sw_gc_refs_entry(&gc->refs, number - 1));
    sw_gc_events_note(gc, SW_GC_EVENT_FINALIZE, begin);
    sw_os_lock_release(&gc->lock);
    return 1;
}

size_t sw_gc_finalize(sw_gc *gc, size_t most) {
    if (!sw_handle_check(gc, offsetof(sw_gc, mark), SW_HANDLE_GC, "gc_finalize")) return 0;
    size_t count = 0;
    int called = 1;
    while (count < most && called == 1) {
        called = finalize_one(gc);
        count += called != 0;
    }
    return count;
}
