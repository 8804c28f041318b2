/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a safe arena between resets: the call sites of its creation, its allocations and its
 * free. Chunks refer to the log until they leave the quarantine. Callers: life.c, alloc.c,
 * quarantine.c, report.c, fork.c.
 */
#ifndef SW_ARENA_LOG_H
#define SW_ARENA_LOG_H

#include "arena/chunk.h"

enum { SW_LOG_FRAMES = 8, SW_LOG_OBJECTS = 127 };

/* A backtrace and its thread. */
typedef struct sw_arena_calls {
    uint64_t thread;
    uint64_t count; /* <= SW_LOG_FRAMES */
    uint64_t frames[SW_LOG_FRAMES];
} sw_arena_calls;

typedef struct sw_log_object {
    uintptr_t at;
    uint64_t bytes;
    const char *type; /* NULL: unknown */
    uintptr_t caller; /* return address of the call that allocated it */
} sw_log_object;

/* Objects in the order of allocation.
 *   count <= SW_LOG_OBJECTS */
typedef struct sw_log_page {
    struct sw_log_page *next; /* the previous page */
    uint64_t count;
    sw_log_object objects[SW_LOG_OBJECTS];
} sw_log_page;

/* `uses` counts the arena and each chunk that refers to the log, and is atomic. The other fields
 * are the arena's until it ends.
 *   uses >= 1 */
typedef struct sw_arena_log {
    uint64_t uses;
    sw_log_page *pages; /* the newest first */
    const char *tag;
    uint64_t arena_id;
    sw_arena_calls made, freed;
} sw_arena_log;

/* Creates a log with the caller's backtrace. NULL: no memory. */
sw_arena_log *sw_arena_log_new(const char *tag, uint64_t arena_id);
/* Records an object. False: no memory. */
bool sw_arena_log_add(sw_arena_log *log, const sw_log_object *object);
void sw_arena_log_end(sw_arena_log *log);
void sw_arena_log_use(sw_arena_log *log);
/* Drops a use; the last one frees the log. */
void sw_arena_log_drop(sw_arena_log *log);
/* Returns the object that contains p; NULL: none. */
const sw_log_object *sw_arena_log_find(const sw_arena_log *log, uintptr_t p);

/* In the child of a fork: discards the cached thread id. */
void sw_arena_log_recover(void);

const char *sw_arena_log_check(const sw_arena_log *log);

#endif
