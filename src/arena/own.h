/* SPDX-License-Identifier: Apache-2.0 */
/* Objects of an arena outside chunks. Callers: alloc.c, life.c, savepoint.c. */
#ifndef SW_ARENA_OWN_H
#define SW_ARENA_OWN_H

#include "arena/arena.h"

/* Allocates an object from the arena's heap or, in mode OFF, the C library, zeroed if flags say so.
 * NULL: no memory; the last error is set. */
void *sw_arena_own_alloc(sw_arena *arena, size_t size, size_t align, unsigned flags);
/* Frees the own objects that are newer than `last`; NULL: all of them. */
void sw_arena_own_free(sw_arena *arena, const sw_arena_own *last);

#endif
