/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of an arena. */
#include "arena/enter.h"
#include "base/fail.h"

sw_status sw_arena_get_stats(sw_arena *arena, sw_arena_stats *out) {
    if (out == NULL) return sw_fail_null("arena_stats", "out");
    sw_status status = sw_arena_enter(arena, "arena_stats");
    if (status != SW_OK) return status;
    *out = (sw_arena_stats){.chunks = arena->chunk_count,
                            .chunk_bytes = arena->chunk_bytes,
                            .slack_bytes = arena->slack_bytes,
                            .own_objects = arena->own_objects,
                            .own_bytes = arena->own_bytes,
                            .fallbacks = arena->fallbacks,
                            .resets = arena->resets};
    out->used_bytes = out->chunk_bytes - out->slack_bytes - sw_arena_room(arena);
    sw_arena_leave(arena);
    return SW_OK;
}
