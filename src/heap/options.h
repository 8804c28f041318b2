/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the options of a heap that a caller gives. */
#ifndef SW_HEAP_OPTIONS_H
#define SW_HEAP_OPTIONS_H

#include "spanwise/heap.h"

/* Sets *out to the given options (NULL: the defaults) in the form of this version. Defaults replace
 * a table of NULL, a decay of 0, and the fields that the caller's version does not have.
 * SW_INVALID: the size of the struct or a value is wrong. SW_UNSUPPORTED: the caller's version is
 * later and uses a field that this one lacks. */
sw_status sw_options_read(const sw_heap_options *given, const char *op, sw_heap_options *out);

#endif
