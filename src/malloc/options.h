/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the preloaded malloc, from the environment. */
#ifndef SW_MALLOC_OPTIONS_H
#define SW_MALLOC_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "spanwise/heap.h"

enum { FACE_PATH_MAX = 4096, FACE_NO_FILE = -1 };

/* Read once, before the heap is made; a fork child takes the ledger's file away.
 *   ledger is absolute or "";  ledger_file >= FACE_NO_FILE
 *   heap.placement is an index of face_placements */
typedef struct face_options {
    sw_heap_options heap;
    char ledger[FACE_PATH_MAX]; /* absolute; %p not replaced; "": no file */
    int ledger_file;            /* a descriptor that the ledger goes to; FACE_NO_FILE: none */
    bool verbose;
} face_options;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *face_options_check(const face_options *options);

extern face_options face_option;

/* Reads the environment, without an allocation. For a malformed value one line is printed, and the
 * default stays. */
void face_read_options(void);
/* The words for sw_placement, by its value. */
extern const char *const face_placements[4];

#endif
