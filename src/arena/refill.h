/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of an arena, as they come and go. Callers: life.c, savepoint.c, alloc.c. */
#ifndef SW_ARENA_REFILL_H
#define SW_ARENA_REFILL_H

#include "arena/arena.h"

/* The newest chunk is another one now. SW_LIMIT or SW_NOMEM: it is not. */
sw_status sw_arena_refill(sw_arena *arena);
/* A chunk of a safe arena for one big object, behind the newest one. NULL: as sw_arena_refill, with the status. */
sw_chunk *sw_arena_take_big(sw_arena *arena, size_t bytes, sw_status *status);
/* Makes the caller's memory the only chunk of an arena without chunks. */
void sw_arena_use_first(sw_arena *arena);
/* Gives chunks up, the newest first, until `last` is the newest; NULL: all. */
void sw_arena_drop_chunks(sw_arena *arena, const sw_chunk *last);
/* [front, back) of the newest chunk is free now; memory checkers are told. */
void sw_arena_set_ends(sw_arena *arena, uintptr_t front, uintptr_t back);

#endif
