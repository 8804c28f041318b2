/* SPDX-License-Identifier: Apache-2.0 */
/* Chunks of safe arenas that ended: without access, until so many bytes have come after them, and, where a collector looks for
 * pointers into them (SW_GC_DANGLING), until it finds none. Callers: refill.c, report.c, life.c. */
#ifndef SW_ARENA_QUARANTINE_H
#define SW_ARENA_QUARANTINE_H

#include "arena/log.h"

/* Takes a chunk with its log. */
void sw_quarantine_put(sw_chunk *chunk);
/* The chunk can be read and written from now on, and is never used again. False: the system refuses. */
bool sw_quarantine_open(sw_chunk *chunk);
/* For a collector that looks at all words which it reaches, while the world stands: one of them points into the chunk, which
 * waits, so the chunk stays until a later look finds none. No lock is taken. */
void sw_quarantine_note_pointer(sw_chunk *chunk);
/* It has looked at all of them. */
void sw_quarantine_end_look(void);
void sw_quarantine_set_limit(uint64_t bytes);
/* Adds quarantine_bytes and unprotected; takes the former off used_chunk_bytes. */
void sw_quarantine_add_stats(sw_arena_pool_stats *stats);

/* Around a fork. */
void sw_quarantine_lock(void);
void sw_quarantine_unlock(void);
void sw_quarantine_recover(void);

#endif
