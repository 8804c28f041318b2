/* SPDX-License-Identifier: Apache-2.0 */
/* Savepoints of an arena, the newest first. Callers: life.c. */
#ifndef SW_ARENA_SAVEPOINT_H
#define SW_ARENA_SAVEPOINT_H

#include "arena/arena.h"

/* Drops the savepoints newer than `last`; NULL: all. */
void sw_arena_savepoint_drop(sw_arena *arena, const sw_arena_saved *last);

#endif
