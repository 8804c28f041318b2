/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of an arena, as they come and go. Callers: life.c, savepoint.c, alloc.c. */
#ifndef SW_ARENA_REFILL_H
#define SW_ARENA_REFILL_H

#include "arena/arena.h"

/* Makes another chunk the newest one. SW_LIMIT or SW_NOMEM: there is none; the last error stays. */
sw_status sw_arena_try_refill(sw_arena *arena);
/* The same; a failure is the last error. */
sw_status sw_arena_refill(sw_arena *arena);
/* Takes a chunk for one big object of a safe arena, and links it behind the newest one. NULL: the
 * status is one of sw_arena_refill's. */
sw_chunk *sw_arena_take_big(sw_arena *arena, size_t bytes, sw_status *status);
/* Makes the caller's memory the only chunk of an arena without chunks. */
void sw_arena_use_first(sw_arena *arena);
/* Gives chunks up, the newest first, until `last` is the newest one; NULL: all of them. */
void sw_arena_drop_chunks(sw_arena *arena, const sw_chunk *last);
/* Makes [front, back) the free part of the newest chunk, and tells memory checkers. */
void sw_arena_set_ends(sw_arena *arena, uintptr_t front, uintptr_t back);

#endif
