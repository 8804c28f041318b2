/* SPDX-License-Identifier: Apache-2.0 */
/* The check of a marking: what the roots reach, found in another way, and compared with the marks if SW_GC_CHECKMARK is set.
 * Words that it meets are looked at by dangling.c. Callers: the cycle. */
#ifndef SW_GC_SECOND_MARK_H
#define SW_GC_SECOND_MARK_H

#include "gc/gc.h"

/* Under the collector's lock, at the end of marking. exact: nothing has run since the cycle began, so that
 * only what is reached may be marked. SW_STATE, with the address: the marks are wrong; SW_NOMEM. */
sw_status sw_gc_second_mark(sw_gc *gc, bool exact);

#endif
