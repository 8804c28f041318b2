/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a heap as a caller gives them, made whole. */
#ifndef SW_HEAP_OPTIONS_H
#define SW_HEAP_OPTIONS_H

#include "spanwise/heap.h"

/* *out: the given options (NULL: the defaults) in the form of this version, with the defaults in place of
 * fields that the caller's version does not have, of a table NULL and of a decay of 0. SW_INVALID: their
 * size or a value is wrong; SW_UNSUPPORTED: they are of a later version and use what this one lacks. */
sw_status sw_options_read(const sw_heap_options *given, const char *op, sw_heap_options *out);

#endif
