/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a marking: finds what the roots reach in another way, and compares it with the marks
 * if SW_GC_CHECKMARK is set. dangling.c looks at the words that it meets. Callers: the cycle. */
#ifndef SW_GC_CHECKMARK_H
#define SW_GC_CHECKMARK_H

#include "gc/gc.h"

/* Under the collector's lock, at the end of marking. exact: nothing has run since the cycle began,
 * so that no other objects may be marked than those that are reached. SW_STATE: the marks are
 * wrong, and the last error has the address; SW_NOMEM. */
sw_status sw_gc_checkmark(sw_gc *gc, bool exact);

#endif
