/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the page layer's structs, as the headers state them. See base/assert.h. */
#include "base/assert.h"
#include "page/pages.h"
#include "sizeclass/table.h"

const char *sw_span_cold_check(const sw_span_cold *cold) {
    return SW_RULE(cold->next == 0 || cold->next != cold->prev)
               ?: SW_RULE(cold->page + cold->pages >= cold->page);
}

const char *sw_window_check(const sw_window *window) {
    return SW_RULE(window->frontier <= window->pages)
               ?: SW_RULE(window->pages <= window->frames)
               ?: SW_RULE(window->base % SW_FRAME_BYTES == 0)
               ?: SW_RULE(window->map != NULL);
}

const char *sw_space_check(const sw_space *space) {
    return SW_RULE(space->view.frames <= space->range_frames)
               ?: SW_RULE(space->span_next >= SW_SPAN_FIRST)
               ?: SW_RULE((space->span_next - SW_SPAN_FIRST) % SW_SPAN_BATCH == 0)
               ?: SW_RULE(space->span_next <= space->span_committed)
               ?: SW_RULE(space->span_committed <= space->span_limit)
               ?: SW_RULE(space->free_batches < space->span_next)
               ?: SW_RULE(space->free_window_count <= SW_SPACE_FREE_WINDOWS)
               ?: SW_RULE(space->extra_count <= SW_SPACE_EXTRAS);
}

const char *sw_pages_check(const sw_pages *pages) {
    return SW_RULE(pages->free_held_pages <= pages->held_pages)
               ?: SW_RULE(pages->held_pages <= pages->frontier_pages)
               ?: SW_RULE(pages->frontier_pages <= pages->page_end)
               ?: SW_RULE(pages->page_end <= pages->capacity)
               ?: SW_RULE(pages->capacity <= 64 * pages->runs.leaves)
               ?: SW_RULE((pages->capacity == 0) == (pages->held == NULL))
               ?: SW_RULE(pages->window_count <= SW_WINDOWS_MAX)
               ?: SW_RULE(sw_is_pow2(pages->unit))
               ?: SW_RULE(pages->take_out_pages << pages->page_shift == SW_TAKE_OUT_BYTES)
               ?: SW_RULE((pages->purge_state == SW_PURGE_NONE) == (pages->purge_count == 0))
               ?: SW_RULE(pages->purge_count <= SW_PURGE_RUNS);
}

const char *sw_touch_map_check(const sw_touch_map *touch) {
    return SW_RULE((touch->capacity == 0) == (touch->bits == NULL))
               ?: SW_RULE(touch->capacity % 64 == 0)
               ?: SW_RULE(touch->count <= touch->capacity);
}
