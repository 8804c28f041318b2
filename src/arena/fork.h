/* SPDX-License-Identifier: Apache-2.0 */
/* Locked arenas, and what a fork does with locks. A thread that forks holds all locks of the
 * arenas, so that each arena is whole in the child; an arena without a lock belongs to one thread,
 * and is whole in the child if that is the thread that forked. Callers: life.c.
 */
#ifndef SW_ARENA_FORK_H
#define SW_ARENA_FORK_H

#include "arena/arena.h"

/* Registers the handlers, once. */
void sw_arena_fork_register(void);
/* A locked arena begins to be in the list, and ends. */
void sw_arena_fork_add(sw_arena *arena);
void sw_arena_fork_remove(sw_arena *arena);

#endif
