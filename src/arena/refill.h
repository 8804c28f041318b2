/* SPDX-License-Identifier: Apache-2.0 */
/* Adds and removes chunks of an arena. Callers: life.c, savepoint.c, alloc.c. */
#ifndef SW_ARENA_REFILL_H
#define SW_ARENA_REFILL_H

#include "arena/arena.h"

/* Adds a chunk. SW_LIMIT or SW_NOMEM, without setting the last error. */
sw_status sw_arena_try_refill(sw_arena *arena);
/* As sw_arena_try_refill, but sets the last error. */
sw_status sw_arena_refill(sw_arena *arena);
/* Adds a chunk for one big object of a safe arena, after the newest one. NULL: *status as
 * sw_arena_refill. */
sw_chunk *sw_arena_take_big(sw_arena *arena, size_t bytes, sw_status *status);
/* Makes the caller's memory the only chunk. */
void sw_arena_use_first(sw_arena *arena);
/* Releases chunks, the newest first, until `last` is the newest; NULL: all. */
void sw_arena_drop_chunks(sw_arena *arena, const sw_chunk *last);
/* Makes [front, back) the free part of the newest chunk, also for memory checkers. */
void sw_arena_set_ends(sw_arena *arena, uintptr_t front, uintptr_t back);

#endif
