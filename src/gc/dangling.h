/* SPDX-License-Identifier: Apache-2.0 */
/* Words of reachable objects and of roots that point to memory outside of the heap whose use is over. They are noted while
 * the world stands, and reported when no lock is held. Callers: second_mark, cycle; arena/report.c.
 */
#ifndef SW_GC_DANGLING_H
#define SW_GC_DANGLING_H

#include "gc/gc.h"

/* Who knows of memory that ended: arenas. `has` takes no lock, because a fork takes the collector's lock after theirs. It is asked
 * for every word that points to no object of the heap; once all were, end_look is called, without a lock of theirs too. */
typedef struct sw_gc_ended {
    bool (*has)(uintptr_t p);
    void (*end_look)(void);
    void (*report)(const void *word, const void *p); /* word: where the pointer was found */
} sw_gc_ended;

/* From now on `ended` is asked; it stays for ever. */
void sw_gc_dangling_ask(const sw_gc_ended *ended);

/* Under the collector's lock: what was noted before is forgotten. */
void sw_gc_dangling_begin(sw_gc *gc);
/* Notes a word that points to no object of the heap, if it points to memory that ended. */
void sw_gc_dangling_note(sw_gc *gc, const uintptr_t *word);
/* Every word that is reached was looked at. */
void sw_gc_dangling_end(const sw_gc *gc);
/* Takes what was noted. */
sw_gc_dangling sw_gc_dangling_take(sw_gc *gc);
/* Reports it. The caller holds no lock. */
void sw_gc_dangling_report(const sw_gc_dangling *found);

#endif
