/* SPDX-License-Identifier: Apache-2.0 */
/* A span is swept once per cycle; its stamp records that. The slots that are allocated and not
 * marked, and the pending ones, are freed together (heap/sweep.h). */
#include "gc/sweep.h"

#include <errno.h>
#include <string.h>

#include "gc/span_cursor.h"
#include "heap/cache.h"
#include "heap/reclaim.h"
#include "heap/sweep.h"

/* --- one span --------------------------------------------------------------------------------- */

/* The data of a span that a sweep needs, copied before the sweep, which may release the span. */
typedef struct swept_span {
    sw_span *span;
    uint64_t *marks;
    uint64_t bytes; /* of an object */
    uint32_t words;
    uint32_t pending; /* objects */
} swept_span;

/* Clears marks and pending bits of objects that the program has freed. Returns their number. */
static uint32_t take_pending(uint64_t *marks, uint64_t *pending, uint32_t words) {
    uint32_t count = 0;
    for (uint32_t k = 0; k < words; k++) {
        if (sw_likely(pending[k] == 0)) continue;
        count += sw_popcount(pending[k]);
        marks[k] &= ~pending[k];
        __atomic_store_n(&pending[k], 0, __ATOMIC_RELAXED);
    }
    return count;
}

/* Marks the span as swept, and stores what to sweep. False: the id is not a span of the heap, or
 * the span was swept before. */
static bool claim_span(sw_gc *gc, uint32_t id, swept_span *made) {
    sw_heap *heap = gc->heap;
    sw_gc_span_meta *meta = &sw_gc_span_metas[id];
    uint64_t swept = sw_gc_stamp(gc, gc->epoch);
    if (!sw_gc_span_meta_is_of(heap, id) || meta->stamp == swept) return false;
    sw_span *span = sw_space_span(heap->space, id);
    uint32_t words = sw_gc_mark_words(heap, span);
    if (meta->stamp != sw_gc_stamp(gc, gc->epoch - 1)) sw_gc_span_meta_prepare(heap, id, swept);
    if (gc->given_up) memset(meta->marks, 0xFF, words * sizeof *meta->marks);
    sw_gc_span_meta_set_stamp(meta, swept);
    uint64_t pages = heap->space->cold[id].pages;
    *made =
        (swept_span){.span = span,
                     .marks = meta->marks,
                     .bytes = meta->bytes != 0 ? meta->bytes : pages << heap->table->page_shift,
                     .words = words,
                     .pending = take_pending(meta->marks, sw_gc_pending(heap, span, meta), words)};
    return true;
}

/* Fills the dead slots, so that a program that still uses one soon fails. */
static void clobber(const swept_span *made) {
    const sw_span *span = made->span;
    if (sw_span_is_large(span) && sw_span_large_lives(span) && !sw_span_large_is_arenas(span) &&
        (made->marks[0] & 1) == 0)
        memset((void *)span->base, SW_GC_CLOBBER_BYTE, made->bytes);
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        for (uint64_t dead = ~sw_word_all(&span->words[k]) & ~made->marks[k]; dead != 0;
             dead &= dead - 1)
            memset((void *)(span->base + (k * 64 + sw_ctz(dead)) * made->bytes), SW_GC_CLOBBER_BYTE,
                   made->bytes);
}

static void count(sw_gc *gc, const swept_span *made, sw_swept swept) {
    sw_gc_cycle *cycle = &gc->cycle;
    uint32_t unreached = swept.freed - made->pending;
    cycle->marked_objects += swept.kept;
    cycle->marked_bytes += swept.kept * made->bytes;
    cycle->freed_objects += unreached;
    cycle->freed_bytes += unreached * made->bytes;
    cycle->pending_objects += made->pending;
    cycle->pending_bytes += made->pending * made->bytes;
}

/* Sweeps the span with this id. Returns its number of mark words; 0: there was nothing to do. */
static uint32_t sweep_id(sw_gc *gc, sw_cache *cache, uint32_t id) {
    swept_span made;
    if (!claim_span(gc, id, &made)) return 0;
    if ((gc->debug & SW_GC_CLOBBER) != 0) clobber(&made);
    count(gc, &made, sw_sweep_span(cache, made.span, made.marks));
    return made.words;
}

void sw_gc_sweep_own(sw_gc *gc, sw_cache *cache, sw_span *span) {
    (void)sweep_id(gc, cache, sw_space_span_id(gc->heap->space, span));
}

bool sw_gc_sweep(sw_gc *gc, sw_cache *cache, int64_t work) {
    while (!sw_gc_span_cursor_at_end(&gc->sweep)) {
        if (work <= 0) return false;
        work -= sweep_id(gc, cache, sw_gc_span_cursor_next(gc->heap, &gc->sweep));
    }
    return true;
}

/* --- in the background ------------------------------------------------------------------------ */

/* Under the heap's lock, which keeps the record and the owner. */
static uint32_t sweep_id_concurrently(sw_gc *gc, uint32_t id) {
    swept_span made;
    if (!claim_span(gc, id, &made)) return 0;
    if ((gc->debug & SW_GC_CLOBBER) != 0) clobber(&made);
    count(gc, &made, sw_sweep_concurrently(gc->heap, made.span, made.marks));
    return made.words;
}

bool sw_gc_sweep_concurrently(sw_gc *gc, int64_t work) {
    sw_heap *heap = gc->heap;
    sw_os_lock_acquire(&heap->lock);
    while (work > 0 && !sw_gc_span_cursor_at_end(&gc->sweep))
        work -= 1 + sweep_id_concurrently(gc, sw_gc_span_cursor_next(heap, &gc->sweep));
    sw_reclaim_unlock(heap);
    return sw_gc_span_cursor_at_end(&gc->sweep);
}

/* --- for an allocation ------------------------------------------------------------------------ */

/* The maximum work of an allocation before it takes a fresh span: spans of its own cache that it
 * sweeps, and records that it examines. */
enum { SOUGHT_SPANS = 32, SOUGHT_RECORDS = 1024 };

/* Under the heap's lock, which keeps the records stable: sweeps the span if no cache owns it. True:
 * this cache owns the span, and sweeps it without the lock. */
static bool look_at(sw_gc *gc, const sw_cache *cache, uint32_t id) {
    if (!sw_gc_span_meta_is_of(gc->heap, id)) return false;
    sw_span *span = sw_space_span(gc->heap->space, id);
    const sw_cache *owner = sw_span_is_large(span) ? NULL : sw_span_owner(span);
    if (owner == cache) return true;
    swept_span made;
    if (owner != NULL || !claim_span(gc, id, &made)) return false;
    if ((gc->debug & SW_GC_CLOBBER) != 0) clobber(&made);
    count(gc, &made, sw_sweep_unowned(gc->heap, span, made.marks));
    return false;
}

/* Collects ids of the cache's own spans, and sweeps central ones; returns the number of ids. */
static uint32_t look_for(sw_gc *gc, const sw_cache *cache, uint32_t *own) {
    sw_heap *heap = gc->heap;
    uint32_t found = 0, looks = 0;
    int saved_errno = errno;
    sw_os_lock_acquire(&heap->lock);
    for (; found < SOUGHT_SPANS && looks < SOUGHT_RECORDS; looks++) {
        if (sw_gc_span_cursor_at_end(&gc->unswept)) break;
        uint32_t id = sw_gc_span_cursor_next(heap, &gc->unswept);
        if (look_at(gc, cache, id)) own[found++] = id;
    }
    sw_reclaim_unlock(heap);
    errno = saved_errno;
    return found;
}

bool sw_gc_sweep_for(sw_gc *gc, sw_cache *cache, uint32_t span_class) {
    uint32_t own[SOUGHT_SPANS], found = look_for(gc, cache, own);
    for (uint32_t i = 0; i < found; i++) (void)sweep_id(gc, cache, own[i]);
    return cache->cold->partial[span_class].count != 0;
}
