/* SPDX-License-Identifier: Apache-2.0 */
/* Fork handlers for arenas. The forking thread holds all arena locks, so that locked arenas are
 * consistent in the child; an unlocked arena is consistent if its thread forks. Callers: life.c.
 */
#ifndef SW_ARENA_FORK_H
#define SW_ARENA_FORK_H

#include "arena/arena.h"

void sw_arena_fork_register(void);
void sw_arena_fork_add(sw_arena *arena);
void sw_arena_fork_remove(sw_arena *arena);

#endif
