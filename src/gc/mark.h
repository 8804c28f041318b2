/* SPDX-License-Identifier: Apache-2.0 */
/* Marking: from roots to everything reachable. Callers: the cycle. */
#ifndef SW_GC_MARK_H
#define SW_GC_MARK_H

#include "gc/gc.h"
#include "gc/span_meta.h"

enum { SW_GC_AHEAD = 32 }; /* objects between their prefetch and their scan; a power of two */
enum { SW_GC_PIECE_BYTES = 16 << 10, SW_GC_WORK_BYTES = 512 };

/* SW_GC_BATCH objects are scanned before their referents are marked; sw_gc_marker.found has room
 * for SW_GC_FOUND words. */
enum { SW_GC_BATCH = 8, SW_GC_FOUND = 192 };

/* A word that points into a span, buffered to be marked with others. word and slot are known once
 * the metadata was read.
 *   word is that of the slot's mark, or &sw_gc_marker.marked if there is no object */
typedef struct sw_gc_pointer {
    uintptr_t p;
    uint64_t *word;
    uint32_t id; /* of the span */
    uint32_t slot;
} sw_gc_pointer;

/* The state of a call that marks.
 *   found_count <= SW_GC_FOUND - 64 between two calls of scan_words;  0 if found == NULL */
typedef struct sw_gc_marker {
    sw_gc_span_meta *span_metas; /* span_metas, view, stamp: read per pointer */
    sw_space_view view;
    uint64_t stamp; /* of this cycle: sw_gc_span_meta.stamp */
    sw_gc_stack stack;
    sw_gc_stack *home; /* where the stack is between two calls */
    sw_gc *gc;
    int64_t work;         /* remaining work; <= 0: none */
    bool by_span;         /* the cycle's order */
    bool has_extras;      /* objects may be outside the range */
    bool is_shared;       /* other threads mark too */
    sw_os_lock *meeting;  /* taken to prepare a span; NULL: no other thread prepares any */
    uint64_t refused;     /* objects that did not fit on the stack */
    uint64_t marked;      /* bit 0 is set: the dummy mark of words without an object */
    sw_gc_pointer *found; /* NULL: this marker does not drain */
    uint32_t found_count;
} sw_gc_marker;

#define SW_GC_ALL_WORK INT64_MAX

/* Takes the collector's stack, or another one, and returns it at the end. Under the collector's
 * lock. */
void sw_gc_marker_start(sw_gc_marker *marker, sw_gc *gc, int64_t work);
void sw_gc_marker_start_with(sw_gc_marker *marker, sw_gc *gc, sw_gc_stack *stack, int64_t work);
void sw_gc_marker_end(sw_gc_marker *marker);
/* Marks the objects that the words of [start, start + bytes) point into. */
void sw_gc_mark_range(sw_gc_marker *marker, const void *start, size_t bytes);
/* Scans marked objects until no work is left. True: every marked object is scanned. */
bool sw_gc_mark_drain(sw_gc_marker *marker);
/* The same while mutators run, without the lock, after marking the referents of the words. True: no
 * object waits, but if some did not fit on the stack, sw_gc_mark_drain must scan them in a stopped
 * world. */
bool sw_gc_mark_concurrently(sw_gc_marker *marker, const uintptr_t *words, size_t count);
/* Marks the object that the word points into, now or in the next step. Under the collector's lock,
 * while a cycle marks and other threads may be inside the heap. If a background thread marks, the
 * word waits in the inbox. */
void sw_gc_mark_word(sw_gc *gc, uintptr_t value);

/* --- span by span ----------------------------------------------------------------------------- */

/* Marking span by span (Go, "The Green Tea garbage collector", 2025). A *grey* object is marked
 * but not scanned; each slot has a grey bit. A span with grey objects is in the queue once. */

/* The grey bits of a span, allocated when its first object turns grey. Bits of an abandoned cycle
 * are ignored later, because their stamp is older.
 *   in a marking cycle with this stamp: each grey slot is marked, and is_queued if there is
 *     one
 *   next == 0 unless is_queued */
typedef struct sw_gc_grey_bits {
    uint64_t stamp;
    uint32_t next;       /* id of the next span in the queue; 0: this is the last */
    uint32_t words : 31; /* words of the span's marks, and of `bits` */
    uint32_t is_queued : 1;
    uint64_t bits[];
} sw_gc_grey_bits;

/* By span id; NULL: no object of the span was ever grey. */
extern sw_gc_grey_bits **sw_gc_grey_bits_of;

const char *sw_gc_grey_bits_check(const sw_gc_grey_bits *grey_bits, const sw_gc_span_meta *meta);

/* Clears the grey bits of a span for this cycle; allocates them if needed. NULL: no memory. */
sw_gc_grey_bits *sw_gc_grey_bits_begin(const sw_gc_marker *marker, uint32_t id);
/* Under the heap's lock: free the grey bits of a released span. */
void sw_gc_grey_bits_end(sw_heap *heap, uint32_t id);

void sw_gc_queue_append(sw_gc_span_queue *queue, uint32_t id);
void sw_gc_queue_put_back(sw_gc_span_queue *queue, uint32_t id);
/* Remove the first span; the queue is not empty. */
void sw_gc_queue_take(sw_gc_span_queue *queue);

/* Set the grey bit of a slot that was just marked. False: no memory. */
static sw_always_inline bool sw_gc_grey_add(const sw_gc_marker *marker, uint32_t id,
                                            uint64_t slot) {
    sw_gc_grey_bits *grey_bits = sw_gc_grey_bits_of[id];
    if (sw_unlikely(grey_bits == NULL) || sw_unlikely(grey_bits->stamp != marker->stamp)) {
        grey_bits = sw_gc_grey_bits_begin(marker, id);
        if (grey_bits == NULL) return false;
    }
    grey_bits->bits[slot / 64] |= 1ull << slot % 64;
    if (!grey_bits->is_queued) sw_gc_queue_append(&marker->gc->queue, id);
    return true;
}

/* --- the inbox -------------------------------------------------------------------------------- */

/* Words that mutators pass to the marker thread. Each joined thread has a buffer, to which the
 * write barrier adds without a lock. A full buffer is moved to the collector's inbox; the others
 * are moved while the world is stopped. */

enum { SW_GC_BUFFER_WORDS = 509 };

/* A thread's buffer, a page. It does not move, and lives as long as the collector.
 *   count <= SW_GC_BUFFER_WORDS; the thread writes count and words; others read them only while the
 *   world is stopped */
typedef struct sw_gc_buffer {
    struct sw_gc_buffer *next; /* in sw_gc.buffers */
    uintptr_t at;              /* atomic: sw_gc_thread.at of the thread; 0: it is unused */
    uint64_t count;
    uintptr_t words[SW_GC_BUFFER_WORDS];
} sw_gc_buffer;

/* --- under the collector's lock --------------------------------------------------------------- */

/* Gives a thread a buffer. Without memory, each of its words takes the lock. */
void sw_gc_inbox_join(sw_gc *gc, uintptr_t at);
/* Releases the buffer of a thread that leaves. */
void sw_gc_inbox_leave(sw_gc *gc, uintptr_t at);
/* In a stopped world: adds the words of all buffers. */
void sw_gc_inbox_gather(sw_gc *gc);
/* Drops all words. */
void sw_gc_inbox_clear(sw_gc *gc);
static inline bool sw_gc_inbox_is_empty(const sw_gc *gc) { return gc->inbox.top == gc->inbox.base; }
/* Removes up to `most` words; returns how many. */
size_t sw_gc_inbox_take(sw_gc *gc, uintptr_t *words, size_t most);
/* In the child of a fork: the buffers of other threads become unused. */
void sw_gc_inbox_forked(sw_gc *gc);
/* When the collector ends. */
void sw_gc_inbox_end(sw_gc *gc);

#endif
