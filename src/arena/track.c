/* SPDX-License-Identifier: Apache-2.0 */
/* Records of arenas, and events, for a tracker (track.h). */
#include "arena/track.h"

#include "base/base.h"

static sw_os_lock lock;
static sw_tracker *current; /* atomic; written under the lock */

void sw_track_lock(void) { sw_os_lock_acquire(&lock); }
void sw_track_unlock(void) { sw_os_lock_release(&lock); }
void sw_track_recover(void) { sw_os_lock_reset(&lock); }

sw_tracker *sw_track_current(void) { return __atomic_load_n(&current, __ATOMIC_ACQUIRE); }
void sw_track_set_current(sw_tracker *tracker) {
    __atomic_store_n(&current, tracker, __ATOMIC_RELEASE);
}

uint64_t sw_track_now_ns(const sw_tracker *tracker) {
    if (tracker->manual_clock == 0) return sw_os_now_ns();
    return __atomic_load_n(&tracker->now_ns, __ATOMIC_RELAXED);
}

/* --- events ----------------------------------------------------------------------------------- */

void sw_track_add_event(sw_tracker *tracker, sw_tracker_event event) {
    if (tracker->events == NULL) return;
    event.time_ns = sw_track_now_ns(tracker);
    event.thread = sw_os_thread_id();
    uint64_t at = tracker->first + tracker->waiting;
    if (at >= tracker->capacity) at -= tracker->capacity;
    tracker->events[at] = event;
    tracker->noted++;
    if (tracker->waiting < tracker->capacity) {
        tracker->waiting++;
        return;
    }
    tracker->lost++; /* the newest has replaced the oldest */
    tracker->first = tracker->first + 1 == tracker->capacity ? 0 : tracker->first + 1;
}

static void add_event_of(const sw_arena_track *track, sw_tracker_event event) {
    sw_track_lock();
    event.arena = track->id;
    if (track->tracker != NULL) sw_track_add_event(track->tracker, event);
    sw_track_unlock();
}

/* --- arenas ----------------------------------------------------------------------------------- */

static void append(sw_tracker *tracker, sw_arena_track *track) {
    sw_check2(sw_tracker_record_check(tracker));
    track->tracker = tracker;
    track->id = ++tracker->ids;
    track->made_ns = sw_track_now_ns(tracker);
    track->older = tracker->newest;
    if (tracker->newest != NULL)
        tracker->newest->newer = track;
    else
        tracker->oldest = track;
    tracker->newest = track;
    tracker->count++;
}

static void take_out(sw_tracker *tracker, sw_arena_track *track) {
    sw_check2(sw_arena_track_check(track));
    if (track->older != NULL)
        track->older->newer = track->newer;
    else
        tracker->oldest = track->newer;
    if (track->newer != NULL)
        track->newer->older = track->older;
    else
        tracker->newest = track->older;
    tracker->count--;
}

bool sw_track_wants_allocs(void) {
    bool wants = false;
    if (sw_likely(sw_track_current() == NULL)) return false;
    sw_track_lock();
    if (sw_track_current() != NULL) wants = sw_track_current()->has_allocs != 0;
    sw_track_unlock();
    return wants;
}

/* Stores the call stack from the program's call on; frames before `caller` are the library's. */
static void note_calls(sw_arena_track *track, uint64_t caller) {
    enum { OURS_MAX = 6 };
    uint64_t frames[SW_TRACKER_FRAMES_MAX + OURS_MAX];
    size_t count = sw_os_call_stack(frames, SW_TRACKER_FRAMES_MAX + OURS_MAX), first = 0;
    while (first < count && frames[first] != caller) first++;
    if (first == count) { /* no backtrace available */
        frames[0] = caller;
        first = 0;
        count = 1;
    }
    for (; first < count && track->frame_count < SW_TRACKER_FRAMES_MAX; first++)
        track->frames[track->frame_count++] = frames[first];
}

/* Allocates a record that belongs to no tracker yet. NULL: no memory. */
static sw_arena_track *make(const sw_arena *arena, uint64_t caller) {
    sw_arena_track *track = sw_chunk_new_record(sizeof *track);
    if (track == NULL) return NULL;
    *track = (sw_arena_track){.arena = arena, .tag = arena->tag, .thread = sw_os_thread_id()};
    note_calls(track, caller);
    return track;
}

static sw_noinline void begin(sw_arena *arena, uint64_t caller) {
    sw_arena_track *track = make(arena, caller);
    sw_track_lock();
    sw_tracker *tracker = sw_track_current();
    bool is_noted = tracker != NULL && track != NULL;
    if (is_noted) {
        if (track->frame_count > tracker->frame_max) track->frame_count = tracker->frame_max;
        append(tracker, track);
        sw_track_add_event(tracker, (sw_tracker_event){.kind = SW_TRACKER_NEW,
                                                       .arena = track->id,
                                                       .address = (uintptr_t)arena,
                                                       .size = UINT64_C(1) << arena->log2});
    } else if (tracker != NULL) {
        tracker->missed++;
    }
    sw_track_unlock();
    if (is_noted)
        arena->track = track;
    else if (track != NULL)
        sw_chunk_drop_record(track, sizeof *track);
}

void sw_track_begin(sw_arena *arena, uint64_t caller) {
    arena->track = NULL;
    if (sw_unlikely(sw_track_current() != NULL)) begin(arena, caller);
}

static sw_noinline void end(sw_arena *arena) {
    sw_arena_track *track = arena->track;
    sw_tracker_event event = {.kind = SW_TRACKER_FREE,
                              .arena = track->id,
                              .address = (uintptr_t)arena,
                              .size = __atomic_load_n(&track->chunk_bytes, __ATOMIC_RELAXED),
                              .length = __atomic_load_n(&track->own_bytes, __ATOMIC_RELAXED)};
    sw_track_lock();
    if (track->tracker != NULL) {
        take_out(track->tracker, track);
        sw_track_add_event(track->tracker, event);
    }
    sw_track_unlock();
    sw_chunk_drop_record(track, sizeof *track);
    arena->track = NULL;
}

void sw_track_end(sw_arena *arena) {
    if (sw_unlikely(arena->track != NULL)) end(arena);
}

void sw_track_add_chunks(const sw_arena *arena, int64_t bytes) {
    if (sw_likely(arena->track == NULL)) return;
    (void)__atomic_add_fetch(&arena->track->chunk_bytes, (uint64_t)bytes, __ATOMIC_RELAXED);
}

void sw_track_add_own(const sw_arena *arena, int64_t bytes) {
    if (sw_likely(arena->track == NULL)) return;
    (void)__atomic_add_fetch(&arena->track->own_bytes, (uint64_t)bytes, __ATOMIC_RELAXED);
}

/* Returns the chunk of an object that was just allocated: the newest or, for a big object of a safe
 * arena, the one after it. NULL: no chunk contains the object. */
static const sw_chunk *chunk_of(const sw_arena *arena, const void *object) {
    const sw_chunk *chunk = arena->chunks;
    for (int i = 0; i < 2 && chunk != NULL; i++, chunk = chunk->next)
        if ((uintptr_t)object - chunk->base < chunk->bytes) return chunk;
    return NULL;
}

static sw_noinline void note_alloc(const sw_arena *arena, const void *object, size_t size) {
    const sw_chunk *chunk = chunk_of(arena, object);
    sw_tracker_event event = {
        .kind = SW_TRACKER_ALLOC, .address = (uintptr_t)object, .size = size, .length = size};
    if (chunk != NULL) {
        event.address = chunk->base;
        event.size = chunk->bytes;
        event.offset = (uintptr_t)object - chunk->base;
    }
    add_event_of(arena->track, event);
}

void sw_track_alloc(const sw_arena *arena, const void *object, size_t size) {
    if (sw_unlikely(arena->track != NULL && arena->reports_allocs != 0))
        note_alloc(arena, object, size);
}

/* --- rules ------------------------------------------------------------------------------------ */

const char *sw_arena_track_check(const sw_arena_track *track) {
    return SW_RULE(track->frame_count <= SW_TRACKER_FRAMES_MAX) ?: SW_RULE(track->id != 0);
}

const char *sw_tracker_record_check(const sw_tracker *tracker) {
    return SW_RULE((tracker->oldest == NULL) == (tracker->count == 0))
               ?: SW_RULE((tracker->newest == NULL) == (tracker->count == 0))
               ?: SW_RULE(tracker->count <= tracker->ids)
               ?: SW_RULE(tracker->waiting <= tracker->capacity)
               ?: SW_RULE(tracker->first < tracker->capacity ||
                              (tracker->first == 0 && tracker->capacity == 0))
               ?: SW_RULE(tracker->lost + tracker->waiting <= tracker->noted);
}
