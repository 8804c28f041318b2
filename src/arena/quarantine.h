/* SPDX-License-Identifier: Apache-2.0 */
/* The quarantine: chunks of safe arenas that ended. A chunk is without access until more bytes than
 * a limit have come after it and, where a collector looks for pointers into it (SW_GC_DANGLING),
 * until that finds none. Callers: refill.c, report.c, life.c. */
#ifndef SW_ARENA_QUARANTINE_H
#define SW_ARENA_QUARANTINE_H

#include "arena/log.h"

/* Takes away the access to a chunk that has a log, and lets it wait. */
void sw_quarantine_put(sw_chunk *chunk);
/* Gives a chunk its access back, and takes it out of the quarantine for ever. False: the system
 * refuses. */
bool sw_quarantine_open(sw_chunk *chunk);
/* For a collector that looks at all words which it reaches, while the world stands. One of them
 * points into the chunk, which waits, so the chunk stays until a later look finds none. No lock is
 * taken. */
void sw_quarantine_note_pointer(sw_chunk *chunk);
/* The look at all words has ended. */
void sw_quarantine_end_look(void);
void sw_quarantine_set_limit(uint64_t bytes);
/* Adds quarantine_bytes and unprotected; subtracts the former from used_chunk_bytes. */
void sw_quarantine_add_stats(sw_arena_pool_stats *stats);

/* Around a fork. */
void sw_quarantine_lock(void);
void sw_quarantine_unlock(void);
void sw_quarantine_recover(void);

#endif
