/* SPDX-License-Identifier: Apache-2.0 */
/* Savepoints: restores an earlier state of an arena, which frees everything allocated since. */
#include "arena/savepoint.h"

#include "arena/enter.h"
#include "arena/own.h"
#include "arena/refill.h"
#include "base/fail.h"

void sw_arena_savepoint_drop(sw_arena *arena, const sw_arena_saved *last) {
    while (arena->saved != last) {
        sw_arena_saved *saved = arena->saved;
        arena->saved = saved->previous;
        sw_chunk_drop_record(saved, sizeof *saved);
    }
}

sw_status sw_arena_mark(sw_arena *arena, sw_arena_savepoint *out) {
    if (out == NULL) return sw_fail_null("arena_mark", "out");
    sw_status status = sw_arena_enter(arena, "arena_mark");
    if (status != SW_OK) return status;
    sw_arena_saved *saved = sw_chunk_new_record(sizeof *saved);
    if (saved != NULL) {
        *saved = (sw_arena_saved){.previous = arena->saved,
                                  .serial = ++arena->serial,
                                  .chunk = arena->chunks,
                                  .front = arena->ends->front,
                                  .back = arena->ends->back,
                                  .slack_bytes = arena->slack_bytes,
                                  .own = arena->own};
        arena->saved = saved;
        *out = (sw_arena_savepoint){.record = saved, .serial = saved->serial};
    } else {
        status = sw_fail(SW_NOMEM, "arena_mark", "no memory for a savepoint");
    }
    sw_arena_leave(arena);
    return status;
}

/* Searches the record in the arena's list, because the caller's address may be invalid. */
static sw_arena_saved *find(const sw_arena *arena, sw_arena_savepoint savepoint) {
    sw_arena_saved *saved = arena->saved;
    while (saved != NULL && (saved != savepoint.record || saved->serial != savepoint.serial))
        saved = saved->previous;
    return saved;
}

static void go_back(sw_arena *arena, sw_arena_saved *saved) {
    if (arena->log != NULL) { /* a safe arena reuses no byte before it was protected */
        sw_arena_savepoint_drop(arena, saved->previous);
        return;
    }
    sw_arena_own_free(arena, saved->own);
    sw_arena_drop_chunks(arena, saved->chunk);
    arena->slack_bytes = saved->slack_bytes;
    sw_arena_set_ends(arena, saved->front, saved->back);
    sw_arena_savepoint_drop(arena, saved->previous);
}

sw_status sw_arena_release(sw_arena *arena, sw_arena_savepoint savepoint) {
    sw_status status = sw_arena_enter(arena, "arena_release");
    if (status != SW_OK) return status;
    sw_check2(sw_arena_record_check(arena));
    sw_arena_saved *saved = find(arena, savepoint);
    if (saved != NULL)
        go_back(arena, saved);
    else
        status = sw_fail(SW_STATE, "arena_release",
                         "savepoint %llu was released or reset before, or is of another arena: "
                         "release each once, the newest first or by an older one",
                         (unsigned long long)savepoint.serial);
    sw_arena_leave(arena);
    return status;
}
