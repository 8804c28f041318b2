/* SPDX-License-Identifier: Apache-2.0 */
/* The data of a tracker (spanwise/tracker.h): a record per arena, and a ring of events. track.c
 * records, tracker.c queries.
 *
 *   tracker: oldest -> track -> track -> newest       an arena refers to its track, until its end
 *            ring of events: first .. first + waiting - 1, modulo capacity
 *
 * One lock covers the tracker and the links of all tracks. It is a leaf lock, taken inside an
 * arena's lock. Design: docs/design/arena.md.
 */
#ifndef SW_ARENA_TRACK_H
#define SW_ARENA_TRACK_H

#include "arena/arena.h"
#include "spanwise/tracker.h"

/* A tracked arena. The lock protects the links and `tracker`; chunk_bytes and own_bytes are atomic,
 * written by the arena's thread; the rest is constant.
 *   frame_count <= SW_TRACKER_FRAMES_MAX;  id != 0 */
typedef struct sw_arena_track {
    struct sw_arena_track *older, *newer;
    struct sw_tracker *tracker; /* NULL: the tracker ended before the arena */
    const sw_arena *arena;
    const char *tag;
    uint64_t id;
    uint64_t made_ns;
    uint64_t thread;
    uint64_t chunk_bytes;
    uint64_t own_bytes;
    uint64_t frame_count;
    uint64_t frames[SW_TRACKER_FRAMES_MAX];
} sw_arena_track;

/* The lock protects every field except now_ns and constant ones.
 *   (oldest == NULL) == (newest == NULL) == (count == 0);  count <= ids
 *   waiting <= capacity;  first < capacity, or capacity == 0 == first
 *   lost + waiting <= noted */
struct sw_tracker {
    uint64_t mark;         /* ds/handle.h */
    uint32_t frame_max;    /* constant */
    uint32_t has_allocs;   /* constant */
    uint32_t manual_clock; /* constant */
    uint32_t looks;        /* 1: a check or an alert is in progress */
    uint64_t now_ns;       /* atomic: of a manual clock */
    sw_arena_track *oldest, *newest;
    uint64_t count, ids, missed;
    sw_tracker_event *events; /* NULL: events are off */
    uint64_t capacity;        /* constant */
    uint64_t first, waiting, noted, lost;
    sw_tracker_rule rule; /* period_ns 0: none */
    uint64_t due_ns;      /* of the next check */
    uint64_t alerts;
};

/* Takes and releases the lock, and resets it in the child of a fork. */
void sw_track_lock(void);
void sw_track_unlock(void);
void sw_track_recover(void);

/* Returns the tracker of the process, or NULL. Under the lock, unless only compared with NULL. */
sw_tracker *sw_track_current(void);
/* Sets the tracker of the process, or NULL. Under the lock. */
void sw_track_set_current(sw_tracker *tracker);
uint64_t sw_track_now_ns(const sw_tracker *tracker);
/* Adds an event, with time and thread. Under the lock. */
void sw_track_add_event(sw_tracker *tracker, sw_tracker_event event);

/* Returns whether arenas created now report each object. */
bool sw_track_wants_allocs(void);
/* Begins and ends tracking an arena, if there is a tracker. caller: the program's return
 * address. */
void sw_track_begin(sw_arena *arena, uint64_t caller);
void sw_track_end(sw_arena *arena);
/* Adds to the arena's bytes of chunks or own objects; may be negative. */
void sw_track_add_chunks(const sw_arena *arena, int64_t bytes);
void sw_track_add_own(const sw_arena *arena, int64_t bytes);
void sw_track_alloc(const sw_arena *arena, const void *object, size_t size);

const char *sw_tracker_record_check(const struct sw_tracker *tracker);
const char *sw_arena_track_check(const sw_arena_track *track);

/* --- alerts ----------------------------------------------------------------------------------- */

/* Checks for alerts if a period has passed. Called without locks after a creation or free. */
void sw_tracker_look_due(void);

#endif
