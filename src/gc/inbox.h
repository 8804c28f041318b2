/* SPDX-License-Identifier: Apache-2.0 */
/* Words from mutators to the thread that marks concurrently. Each joined thread has a buffer, to
 * which the write barrier adds without a lock; a full buffer goes to the collector's inbox, and the
 * others go there while the world is stopped. Callers: barrier, mark, threads, phases. */
#ifndef SW_GC_INBOX_H
#define SW_GC_INBOX_H

#include "gc/gc.h"

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

const char *sw_gc_buffer_check(const sw_gc_buffer *buffer);

/* Adds the overwritten value of a write. No lock is held. */
void sw_gc_inbox_keep(sw_gc *gc, uintptr_t value);

/* --- under the collector's lock --------------------------------------------------------------- */

/* Adds a word. Without memory for it, the cycle is abandoned later (gc->lost). */
void sw_gc_inbox_add(sw_gc *gc, uintptr_t value);
/* Gives a thread a buffer. Without memory, each of its words takes the lock. */
void sw_gc_inbox_join(sw_gc *gc, uintptr_t at);
/* The thread leaves: its buffer becomes unused. */
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
