/* SPDX-License-Identifier: Apache-2.0 */
/* C prelude of the extension spanwise._spanwise. scripts/ffi_cdef.py declares to Python what it
 * includes and defines. */
#include <spanwise/spanwise.h>

#include "lessons/lesson.h"
#include "service/service.h"

/* A finalizer that only stores its object, so that C never calls into Python. */
static void sw_note_finalized(void *object, void *arg) { *(void **)arg = object; }
