/* SPDX-License-Identifier: Apache-2.0 */
/* The second marking is independent of the first: it is breadth first, reads span records instead
 * of span metadata, follows type maps word by word, and uses a table of addresses instead of mark
 * bits. */
#include "base/base.h"
#include "gc/events.h"
#include "gc/phases.h"
#include "gc/refs.h"
#include "gc/roots.h"
#include "gc/span_meta.h"
#include "gc/type.h"
#include "os/os.h"

/* --- dangling pointers ------------------------------------------------------------------------ */

static const sw_gc_ended *asked; /* the provider of freed memory; atomic; NULL: none */

void sw_gc_dangling_ask(const sw_gc_ended *ended) {
    __atomic_store_n(&asked, ended, __ATOMIC_RELEASE);
}

/* Under the collector's lock: reset. */
static void sw_gc_dangling_begin(sw_gc *gc) { gc->dangling.count = 0; }

/* Record a word that points to no object of the heap, if it points to freed memory. */
static void sw_gc_dangling_note(sw_gc *gc, const uintptr_t *word) {
    const sw_gc_ended *ended = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
    sw_gc_dangling *found = &gc->dangling;
    if ((gc->debug & SW_GC_DANGLING) == 0 || ended == NULL) return;
    if (!ended->has(*word) || found->count == SW_GC_DANGLING_MOST) return;
    found->words[found->count] = word;
    found->targets[found->count++] = *word;
}

/* Notify the provider that every reachable word was visited. */
static void sw_gc_dangling_end(const sw_gc *gc) {
    const sw_gc_ended *ended = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
    if ((gc->debug & SW_GC_DANGLING) != 0 && ended != NULL) ended->end_look();
}

sw_gc_dangling sw_gc_dangling_take(sw_gc *gc) {
    sw_gc_dangling found = gc->dangling;
    gc->dangling.count = 0;
    return found;
}

void sw_gc_dangling_report(const sw_gc_dangling *found) {
    const sw_gc_ended *ended = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
    for (uint32_t i = 0; i < found->count; i++)
        ended->report(found->words[i],
                      (const void *)found->targets[i]); /* NOLINT(performance-no-int-to-ptr) */
}

/* --- the second marking ----------------------------------------------------------------------- */

/* Addresses of reached objects, in the order of discovery; those from index `done` on are still to
 * be scanned. The buckets are an open hash table of the same addresses.
 *   done <= reached.count <= capacity / 2;  capacity is a power of two, or 0 */
typedef struct second_search {
    sw_gc *gc;
    sw_gc_array reached; /* uintptr_t */
    uint32_t done;
    uint64_t capacity;
    uintptr_t *buckets; /* 0: empty */
    bool no_memory;
    bool has_frames; /* no frame of the shadow stacks was overwritten */
} second_search;

/* An object; at == 0: none. */
typedef struct reached_object {
    uintptr_t at;
    sw_span *span;
    uint32_t slot;
} reached_object;

/* Returns the object that contains the address. */
static reached_object find(const sw_gc *gc, uintptr_t p) {
    const sw_space *space = gc->heap->space;
    uint32_t id = sw_space_id_of(space, p), slot = 0;
    if (id < SW_SPAN_FIRST || space->cold[id].heap != gc->heap) return (reached_object){0};
    sw_span *span = sw_space_span(space, id);
    if (sw_span_is_large(span))
        return sw_span_large_lives(span) ? (reached_object){span->base, span, 0}
                                         : (reached_object){0};
    if (sw_span_locate(span, p, &slot) == SW_SLOT_PAST_LAST || !sw_span_slot_live(span, slot))
        return (reached_object){0};
    return (reached_object){span->base + (uintptr_t)slot * sw_span_size(span), span, slot};
}

/* --- the table -------------------------------------------------------------------------------- */

static uint64_t bucket_of(const second_search *s, uintptr_t at) {
    uint64_t i = at * 0x9E3779B97F4A7C15ull >> 20 & (s->capacity - 1);
    while (s->buckets[i] != 0 && s->buckets[i] != at) i = (i + 1) & (s->capacity - 1);
    return i;
}

static bool grow(second_search *s) {
    uint64_t capacity = s->capacity == 0 ? 4096 : 2 * s->capacity, before = s->capacity;
    uintptr_t *buckets = sw_os_map(capacity * sizeof *buckets), *old = s->buckets;
    if (buckets == NULL) return false;
    s->buckets = buckets;
    s->capacity = capacity;
    for (uint32_t i = 0; i < s->reached.count; i++) {
        uintptr_t at = ((const uintptr_t *)s->reached.items)[i];
        s->buckets[bucket_of(s, at)] = at;
    }
    if (old != NULL) (void)sw_os_release(old, before * sizeof *old);
    return true;
}

static void reach(second_search *s, const uintptr_t *word) {
    reached_object object = find(s->gc, *word);
    if (object.at == 0) sw_gc_dangling_note(s->gc, word);
    if (object.at == 0 || s->no_memory) return;
    if (2 * ((uint64_t)s->reached.count + 1) > s->capacity && !grow(s)) {
        s->no_memory = true;
        return;
    }
    uintptr_t *bucket = &s->buckets[bucket_of(s, object.at)], *item;
    if (*bucket != 0) return;
    item = sw_gc_array_add(&s->reached, sizeof *item);
    s->no_memory = item == NULL;
    if (item != NULL) *item = *bucket = object.at;
}

/* --- the search ------------------------------------------------------------------------------- */

static size_t bytes_of(const sw_gc *gc, const sw_span *span) {
    if (!sw_span_is_large(span)) return sw_span_size(span);
    return (size_t)sw_space_cold(gc->heap->space, span)->pages << gc->heap->table->page_shift;
}

static void scan(second_search *s, uintptr_t at) {
    const sw_gc *gc = s->gc;
    reached_object object = find(gc, at);
    if (object.at == 0 || (object.span->span_class & 1) != 0) return;
    uint32_t id = sw_space_span_id(gc->heap->space, object.span);
    const uint32_t *types = sw_gc_slot_types[id];
    uint32_t type = types != NULL ? types[object.slot] : sw_gc_span_metas[id].type;
    if (type == SW_GC_TYPE_UNSET) return; /* the first object of the span is being created */
    const sw_gc_layout *layout = sw_gc_layout_of(gc, type);
    for (size_t i = 0; i < bytes_of(gc, object.span) / sizeof at; i++)
        if (sw_gc_is_pointer(layout, i)) reach(s, (const uintptr_t *)at + i);
}

static void reach_words(void *search, const void *start, size_t bytes) {
    for (size_t i = 0; i < bytes / sizeof(uintptr_t); i++)
        reach(search, (const uintptr_t *)start + i);
}

/* Copies of words of stacks and modules. Most are not pointers, so none counts as dangling. */
static void reach_copies(void *search, const void *start, size_t bytes) {
    second_search *s = search;
    const uintptr_t *words = start;
    for (size_t i = 0; i < bytes / sizeof *words; i++)
        if (find(s->gc, words[i]).at != 0) reach(s, &words[i]);
}

/* Values of keys that were reached; what they lead to may include further keys. */
static bool reach_values(second_search *s) {
    const sw_gc_refs *refs = &s->gc->refs;
    uint32_t before = s->reached.count;
    for (uint32_t i = 0; i < refs->entries.count && !s->no_memory; i++) {
        const sw_gc_ref_entry *key = sw_gc_refs_entry(refs, i),
                              *value = sw_gc_refs_value(refs, key);
        bool lives = value != NULL && value->object != 0 && s->capacity != 0;
        if (lives && s->buckets[bucket_of(s, key->object)] != 0) reach(s, &value->object);
    }
    return s->reached.count != before;
}

static void scan_reached(second_search *s) {
    while (s->done < s->reached.count && !s->no_memory)
        scan(s, ((const uintptr_t *)s->reached.items)[s->done++]);
}

static void reach_ranges(second_search *s, const sw_gc_array *ranges) {
    const sw_gc_roots *roots = ranges->items;
    for (uint32_t r = 0; r < ranges->count; r++) reach_words(s, roots[r].start, roots[r].bytes);
}

/* Finds everything reachable from the roots. exact: nothing was allocated since the cycle began.
 * Otherwise the caches' current words may have changed, so their slots are not roots; nor are words
 * of stacks, which may now hold numbers that look like pointers. */
static void search_all(second_search *s, bool exact) {
    reach_ranges(s, &s->gc->roots);
    reach_ranges(s, &s->gc->lent);
    sw_gc_visit_tiny(s->gc, reach_words, s);
    if (exact) sw_gc_visit_inside(s->gc, reach_words, s);
    if (exact) (void)sw_gc_visit_conservative(s->gc, reach_copies, s);
    s->has_frames = sw_gc_shadows_visit(s->gc, reach_words, s);
    for (uint32_t i = 0; i < s->gc->refs.entries.count; i++) {
        const sw_gc_ref_entry *entry = sw_gc_refs_entry(&s->gc->refs, i);
        if (sw_gc_refs_is_root(entry)) reach(s, &entry->object);
    }
    do scan_reached(s);
    while (reach_values(s));
}

/* --- the comparison --------------------------------------------------------------------------- */

static bool is_marked(const sw_gc *gc, uintptr_t at) {
    reached_object object = find(gc, at);
    const sw_gc_span_meta *meta = sw_gc_span_meta_of(gc->heap, object.span);
    return meta->stamp == sw_gc_stamp(gc, gc->epoch) &&
           (meta->marks[object.slot / 64] >> object.slot % 64 & 1) != 0;
}

static uint64_t count_marked(const sw_gc *gc, uint32_t id) {
    const sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    const sw_span *span = sw_space_span(gc->heap->space, id);
    if (meta->stamp != sw_gc_stamp(gc, gc->epoch)) return 0;
    if (sw_span_is_large(span)) return sw_span_large_lives(span) ? meta->own & 1 : 0;
    uint64_t count = 0;
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        count += sw_popcount(meta->marks[k] & ~sw_word_all(&span->words[k]));
    return count;
}

static sw_status compare(const second_search *s, bool exact) {
    const sw_gc *gc = s->gc;
    if ((gc->debug & SW_GC_CHECKMARK) == 0) return SW_OK;
    for (uint32_t i = 0; i < s->reached.count; i++) {
        uintptr_t at = ((const uintptr_t *)s->reached.items)[i];
        if (!is_marked(gc, at))
            return sw_fail(SW_STATE, "gc_checkmark",
                           "the object at %p is reachable and not marked: was a pointer written "
                           "without sw_gc_write?",
                           (void *)at);
    }
    uint64_t marked = 0;
    sw_gc_span_cursor place = sw_gc_span_cursor_begin(gc->heap);
    while (exact && !sw_gc_span_cursor_at_end(&place))
        marked += count_marked(gc, sw_gc_span_cursor_next(gc->heap, &place));
    if (exact && marked != s->reached.count)
        return sw_fail(SW_STATE, "gc_checkmark", "%llu objects are marked, %u are reachable",
                       (unsigned long long)marked, s->reached.count);
    return SW_OK;
}

sw_status sw_gc_checkmark(sw_gc *gc, bool exact) {
    second_search s = {.gc = gc};
    exact = exact && sw_gc_conservative_is_exact(gc);
    sw_gc_dangling_begin(gc); /* a cycle may be checked twice, then with more roots */
    search_all(&s, exact);
    if (!s.no_memory && s.has_frames) sw_gc_dangling_end(gc);
    sw_status status = s.no_memory ? sw_fail(SW_NOMEM, "gc_checkmark", "no memory for the check")
                       : s.has_frames
                           ? compare(&s, exact)
                           : sw_fail(SW_STATE, "gc_checkmark",
                                     "a frame was overwritten: was it left by a longjmp?");
    sw_gc_array_end(&s.reached, sizeof(uintptr_t));
    if (s.buckets != NULL) (void)sw_os_release(s.buckets, s.capacity * sizeof *s.buckets);
    return status;
}
