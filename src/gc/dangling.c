/* SPDX-License-Identifier: Apache-2.0 */
/* Pointers to freed memory (dangling.h). */
#include "gc/dangling.h"

static const sw_gc_ended *asked; /* the provider of freed memory; atomic; NULL: none */

void sw_gc_dangling_ask(const sw_gc_ended *ended) {
    __atomic_store_n(&asked, ended, __ATOMIC_RELEASE);
}

void sw_gc_dangling_begin(sw_gc *gc) { gc->dangling.count = 0; }

void sw_gc_dangling_note(sw_gc *gc, const uintptr_t *word) {
    const sw_gc_ended *ended = __atomic_load_n(&asked, __ATOMIC_ACQUIRE);
    sw_gc_dangling *found = &gc->dangling;
    if ((gc->debug & SW_GC_DANGLING) == 0 || ended == NULL) return;
    if (!ended->has(*word) || found->count == SW_GC_DANGLING_MOST) return;
    found->words[found->count] = word;
    found->targets[found->count++] = *word;
}

void sw_gc_dangling_end(const sw_gc *gc) {
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
