/* SPDX-License-Identifier: Apache-2.0 */
/* The quarantine: protected chunks of freed safe arenas. A chunk leaves when more than a limit of
 * bytes was added after it and, with SW_GC_DANGLING, a scan finds no pointer into it. Callers:
 * refill.c, report.c, life.c. */
#ifndef SW_ARENA_QUARANTINE_H
#define SW_ARENA_QUARANTINE_H

#include "arena/log.h"

/* Protects a chunk that has a log, and adds it. */
void sw_quarantine_put(sw_chunk *chunk);
/* Unprotects a chunk and removes it. False: the system refuses. */
bool sw_quarantine_open(sw_chunk *chunk);
/* Called by a collector's scan in a stopped world, without a lock: a reachable word points into the
 * chunk, which stays until a later scan finds none. */
void sw_quarantine_note_pointer(sw_chunk *chunk);
void sw_quarantine_end_look(void);
void sw_quarantine_set_limit(uint64_t bytes);
/* Adds quarantine_bytes and unprotected; subtracts the former from used_chunk_bytes. */
void sw_quarantine_add_stats(sw_arena_pool_stats *stats);

/* Fork handlers. */
void sw_quarantine_lock(void);
void sw_quarantine_unlock(void);
void sw_quarantine_recover(void);

#endif
