/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the preloaded malloc, from the environment. */
#ifndef SW_MALLOC_OPTIONS_H
#define SW_MALLOC_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "spanwise/heap.h"

enum { PRELOAD_PATH_MAX = 4096, PRELOAD_NO_FILE = -1 };

/* They are read once, before the heap is created. A fork child has no `ledger_file`, and its
 * `ledger` is cleared unless the path has %p, because it must not write to its parent's file.
 *   ledger is absolute or "";  ledger_file >= PRELOAD_NO_FILE
 *   heap.placement is an index of preload_placements */
typedef struct preload_options {
    sw_heap_options heap;
    char ledger[PRELOAD_PATH_MAX]; /* absolute path, with %p not yet replaced; "": no file */
    int ledger_file;               /* the descriptor for the ledger; PRELOAD_NO_FILE: none */
    bool verbose;
    unsigned protect; /* SW_GUARD_ bits; more than SW_GUARD_SAMPLE: the heap is tracked */
} preload_options;

const char *preload_options_check(const preload_options *options);

extern preload_options preload_option;

/* Reads the environment without an allocation. For each malformed value it prints one line and
 * keeps the default. */
void preload_read_options(void);
/* The names of the values of sw_placement, in their order. */
extern const char *const preload_placements[4];

#endif
