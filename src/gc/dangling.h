/* SPDX-License-Identifier: Apache-2.0 */
/* Dangling words: words of roots and of reachable objects that point to memory outside of the heap
 * which its owner has ended. They are noted while the world stands, and reported when no lock is
 * held. Callers: checkmark, cycle; arena/report.c.
 */
#ifndef SW_GC_DANGLING_H
#define SW_GC_DANGLING_H

#include "gc/gc.h"

/* Tells whether an address lies in memory that has ended; arenas provide one. `has` is called for
 * every word that points to no object of the heap, and end_look once, after the last of these
 * words. Neither may take a lock of the arenas, because a fork takes those before the collector's
 * lock. */
typedef struct sw_gc_ended {
    bool (*has)(uintptr_t p);
    void (*end_look)(void);
    void (*report)(const void *word, const void *p); /* word: where the pointer was found */
} sw_gc_ended;

/* From now on `ended` is asked. It must live until the process ends. */
void sw_gc_dangling_ask(const sw_gc_ended *ended);

/* Under the collector's lock: forgets what was noted before. */
void sw_gc_dangling_begin(sw_gc *gc);
/* Notes a word that points to no object of the heap, if it points to memory that ended. */
void sw_gc_dangling_note(sw_gc *gc, const uintptr_t *word);
/* Tells `ended` that every reachable word has been looked at. */
void sw_gc_dangling_end(const sw_gc *gc);
/* Returns what was noted, and forgets it. */
sw_gc_dangling sw_gc_dangling_take(sw_gc *gc);
/* Reports what was noted. The caller holds no lock. */
void sw_gc_dangling_report(const sw_gc_dangling *found);

#endif
