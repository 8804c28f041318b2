/* SPDX-License-Identifier: Apache-2.0 */
/* Dangling pointers: words of roots and of reachable objects that point to freed memory outside the
 * heap. They are collected while the world is stopped, and reported without a lock. Callers:
 * checkmark, cycle; arena/report.c.
 */
#ifndef SW_GC_DANGLING_H
#define SW_GC_DANGLING_H

#include "gc/gc.h"

/* A provider of freed memory; arenas have one. `has` is called for every word that points to no
 * object of the heap, end_look once after the last of them. Neither may take an arena's lock,
 * because fork handlers take those before the collector's. */
typedef struct sw_gc_ended {
    bool (*has)(uintptr_t p);
    void (*end_look)(void);
    void (*report)(const void *word, const void *p); /* word: where the pointer was found */
} sw_gc_ended;

/* Set the provider, which must live until the process ends. */
void sw_gc_dangling_ask(const sw_gc_ended *ended);

/* Under the collector's lock: reset. */
void sw_gc_dangling_begin(sw_gc *gc);
/* Record a word that points to no object of the heap, if it points to freed memory. */
void sw_gc_dangling_note(sw_gc *gc, const uintptr_t *word);
/* Notify the provider that every reachable word was visited. */
void sw_gc_dangling_end(const sw_gc *gc);
/* Return and reset the recorded words. */
sw_gc_dangling sw_gc_dangling_take(sw_gc *gc);
/* Report the words. The caller holds no lock. */
void sw_gc_dangling_report(const sw_gc_dangling *found);

#endif
