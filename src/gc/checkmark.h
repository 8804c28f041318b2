/* SPDX-License-Identifier: Apache-2.0 */
/* An independent second marking, compared with the marks if SW_GC_CHECKMARK is set. dangling.c
 * checks the words that it visits. Callers: the cycle. */
#ifndef SW_GC_CHECKMARK_H
#define SW_GC_CHECKMARK_H

#include "gc/gc.h"

/* Compares the marks with a second marking, under the collector's lock, at the end of marking.
 * exact: no mutator has run since the cycle began, so exactly the reachable objects must be marked.
 * SW_STATE: the marks are wrong; the last error has the address; SW_NOMEM. */
sw_status sw_gc_checkmark(sw_gc *gc, bool exact);

#endif
