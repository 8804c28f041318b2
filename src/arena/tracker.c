/* SPDX-License-Identifier: Apache-2.0 */
/* Trackers of arenas (spanwise/tracker.h): creation and end, queries, alerts. */
#include "arena/track.h"

#include <string.h>

#include "arena/arena.h"
#include "arena/chunk_cache.h"
#include "base/base.h"

#define MARK offsetof(sw_tracker, mark)

enum { EVENTS_MAX = 1 << 24, EVENTS_USUAL = 1024 };

/* --- life ------------------------------------------------------------------------------------- */

void sw_tracker_options_init(sw_tracker_options *options) {
    if (options == NULL) return;
    *options = (sw_tracker_options){
        .struct_bytes = sizeof *options, .frames = SW_TRACKER_FRAMES_MAX, .events = EVENTS_USUAL};
}

static sw_status check_options(const sw_tracker_options *options) {
    if (options->struct_bytes != sizeof *options)
        return sw_fail(SW_INVALID, "tracker_create",
                       "options of %u bytes: fill them with sw_tracker_options_init first",
                       options->struct_bytes);
    if (options->frames > SW_TRACKER_FRAMES_MAX)
        return sw_fail(SW_INVALID, "tracker_create", "%u frames: use 0 to 8", options->frames);
    if (options->events > EVENTS_MAX)
        return sw_fail(SW_INVALID, "tracker_create", "%llu events: use at most 2^24",
                       (unsigned long long)options->events);
    return SW_OK;
}

static void release_events(const sw_tracker *tracker) {
    if (tracker->events != NULL)
        (void)sw_os_release(tracker->events, tracker->capacity * sizeof *tracker->events);
}

static sw_tracker *new_tracker(const sw_tracker_options *options) {
    sw_tracker *tracker = sw_os_map(sizeof *tracker);
    if (tracker == NULL) return NULL;
    tracker->frame_max = options->frames;
    tracker->has_allocs = options->allocs != 0 && options->events != 0;
    tracker->manual_clock = options->manual_clock != 0;
    tracker->capacity = options->events;
    if (options->events == 0) return tracker;
    tracker->events = sw_os_map(options->events * sizeof *tracker->events);
    if (tracker->events != NULL) return tracker;
    (void)sw_os_release(tracker, sizeof *tracker);
    return NULL;
}

sw_status sw_tracker_create(const sw_tracker_options *options, sw_tracker **out) {
    if (out == NULL) return sw_fail_null("tracker_create", "out");
    sw_tracker_options usual;
    sw_tracker_options_init(&usual);
    if (options == NULL) options = &usual;
    sw_status status = check_options(options);
    if (status != SW_OK) return status;
    sw_arena_fork_register();
    sw_tracker *tracker = new_tracker(options);
    if (tracker == NULL)
        return sw_fail(SW_NOMEM, "tracker_create", "no memory for a tracker of %llu events",
                       (unsigned long long)options->events);
    sw_handle_begin(&tracker->mark, SW_HANDLE_TRACKER);
    sw_track_lock();
    bool is_first = sw_track_current() == NULL;
    if (is_first) sw_track_set_current(tracker);
    sw_track_unlock();
    if (is_first) {
        *out = tracker;
        return SW_OK;
    }
    release_events(tracker);
    (void)sw_os_release(tracker, sizeof *tracker);
    return sw_fail(SW_BUSY, "tracker_create", "there is a tracker already: destroy it first");
}

void sw_tracker_destroy(sw_tracker *tracker) {
    if (tracker == NULL) return;
    if (!sw_handle_check(tracker, MARK, SW_HANDLE_TRACKER, "tracker_destroy")) return;
    sw_track_lock();
    bool is_ours = sw_handle_try_end(&tracker->mark, SW_HANDLE_TRACKER);
    if (is_ours) {
        sw_track_set_current(NULL);
        for (sw_arena_track *track = tracker->oldest; track != NULL; track = track->newer)
            track->tracker = NULL;
    }
    sw_track_unlock();
    if (!is_ours) return;
    release_events(tracker);
    sw_handle_retire(tracker, sizeof *tracker, sizeof tracker->mark, SW_HANDLE_TRACKER);
}

/* Takes the lock. False: the tracker has ended meanwhile, and the lock is free. */
static bool enter_live(const sw_tracker *tracker) {
    sw_track_lock();
    if (sw_handle_lives(tracker, MARK, SW_HANDLE_TRACKER)) return true;
    sw_track_unlock();
    return false;
}

static sw_status enter(const sw_tracker *tracker, const char *op) {
    sw_status status = sw_handle_status(tracker, MARK, SW_HANDLE_TRACKER, op);
    if (status != SW_OK || enter_live(tracker)) return status;
    return sw_handle_refuse(tracker, MARK, SW_HANDLE_TRACKER, op);
}

static bool has_entered(const sw_tracker *tracker, const char *op) {
    if (!sw_handle_check(tracker, MARK, SW_HANDLE_TRACKER, op)) return false;
    if (enter_live(tracker)) return true;
    sw_handle_report(tracker, MARK, SW_HANDLE_TRACKER, op);
    return false;
}

sw_status sw_tracker_set_time(sw_tracker *tracker, uint64_t now_ns) {
    sw_status status = enter(tracker, "tracker_set_time");
    if (status != SW_OK) return status;
    bool is_manual = tracker->manual_clock != 0, goes_on = now_ns >= tracker->now_ns;
    if (is_manual && goes_on) __atomic_store_n(&tracker->now_ns, now_ns, __ATOMIC_RELAXED);
    sw_track_unlock();
    if (!is_manual)
        return sw_fail(SW_INVALID, "tracker_set_time",
                       "the clock is the system's: make the tracker with manual_clock");
    if (!goes_on)
        return sw_fail(SW_INVALID, "tracker_set_time", "%llu ns is before the current time",
                       (unsigned long long)now_ns);
    return SW_OK;
}

/* --- arenas ----------------------------------------------------------------------------------- */

static void fill_row(const sw_arena_track *track, uint64_t now_ns, sw_tracked_arena *out) {
    *out = (sw_tracked_arena){.arena = track->arena,
                              .id = track->id,
                              .tag = track->tag,
                              .made_ns = track->made_ns,
                              .age_ns = now_ns - track->made_ns,
                              .thread = track->thread,
                              .chunk_bytes = __atomic_load_n(&track->chunk_bytes, __ATOMIC_RELAXED),
                              .own_bytes = __atomic_load_n(&track->own_bytes, __ATOMIC_RELAXED),
                              .frame_count = track->frame_count};
    memcpy(out->frames, track->frames, track->frame_count * sizeof *out->frames);
}

static bool has_tag(const sw_arena_track *track, const char *tag) {
    return tag == NULL || (track->tag != NULL && strcmp(track->tag, tag) == 0);
}

/* Finds arenas of at least that age, under the lock; *bytes receives their bytes. */
static size_t find_old(const sw_tracker *tracker, uint64_t min_age_ns, const char *tag,
                       sw_tracked_arena *out, size_t capacity, uint64_t *bytes) {
    uint64_t now_ns = sw_track_now_ns(tracker);
    size_t count = 0;
    *bytes = 0;
    for (const sw_arena_track *track = tracker->oldest; track != NULL; track = track->newer) {
        if (now_ns - track->made_ns < min_age_ns) break; /* the remaining arenas are younger */
        if (!has_tag(track, tag)) continue;
        sw_tracked_arena row;
        fill_row(track, now_ns, &row);
        *bytes += row.chunk_bytes + row.own_bytes;
        if (count < capacity) out[count] = row;
        count++;
    }
    return count;
}

size_t sw_tracker_leaks(sw_tracker *tracker, uint64_t min_age_ns, const char *tag,
                        sw_tracked_arena *out, size_t capacity) {
    if (!has_entered(tracker, "tracker_leaks")) return 0;
    uint64_t bytes;
    size_t count = find_old(tracker, min_age_ns, tag, out, capacity, &bytes);
    sw_track_unlock();
    return count;
}

/* Adds the tracker's sums; under the lock. */
static void add_tracked(const sw_tracker *tracker, sw_tracker_totals *out) {
    out->now_ns = sw_track_now_ns(tracker);
    out->tracked_arenas = tracker->count;
    for (const sw_arena_track *track = tracker->oldest; track != NULL; track = track->newer) {
        out->tracked_chunk_bytes += __atomic_load_n(&track->chunk_bytes, __ATOMIC_RELAXED);
        out->tracked_own_bytes += __atomic_load_n(&track->own_bytes, __ATOMIC_RELAXED);
    }
    out->missed = tracker->missed;
    out->events = tracker->noted;
    out->lost = tracker->lost;
    out->alerts = tracker->alerts;
}

/* Adds the library's own counts; without the lock. */
static void add_counted(sw_tracker_totals *out) {
    out->arenas = sw_arena_chunk_cache_used();
    out->chunk_bytes = sw_chunk_owned_bytes();
}

static uint64_t difference(uint64_t a, uint64_t b) { return a > b ? a - b : b - a; }

sw_status sw_tracker_check(sw_tracker *tracker, sw_tracker_totals *out) {
    sw_status status = enter(tracker, "tracker_check");
    if (status != SW_OK) return status;
    if (out == NULL) {
        sw_track_unlock();
        return sw_fail_null("tracker_check", "out");
    }
    *out = (sw_tracker_totals){0};
    add_tracked(tracker, out);
    sw_track_unlock();
    add_counted(out);
    uint64_t arenas = difference(out->arenas, out->tracked_arenas);
    uint64_t bytes = difference(out->chunk_bytes, out->tracked_chunk_bytes);
    if (arenas == 0 && bytes == 0) return SW_OK;
    return sw_fail(SW_STATE, "tracker_check",
                   "%llu arenas with %llu bytes of chunks live, the tracker knows %llu with %llu: "
                   "the others were made before it, or for %llu of them there was no memory",
                   (unsigned long long)out->arenas, (unsigned long long)out->chunk_bytes,
                   (unsigned long long)out->tracked_arenas,
                   (unsigned long long)out->tracked_chunk_bytes, (unsigned long long)out->missed);
}

/* --- events ----------------------------------------------------------------------------------- */

const char *sw_tracker_event_name(uint32_t kind) {
    static const char *const names[] = {"unknown", "arena.new", "arena.alloc", "arena.free",
                                        "arena.alert"};
    return kind < sizeof names / sizeof *names ? names[kind] : names[0];
}

size_t sw_tracker_read(sw_tracker *tracker, sw_tracker_event *out, size_t capacity) {
    if (!has_entered(tracker, "tracker_read")) return 0;
    size_t count = 0;
    for (; count < capacity && tracker->waiting > 0; count++) {
        out[count] = tracker->events[tracker->first];
        tracker->first = tracker->first + 1 == tracker->capacity ? 0 : tracker->first + 1;
        tracker->waiting--;
    }
    sw_check2(sw_tracker_record_check(tracker));
    sw_track_unlock();
    return count;
}

/* --- alerts ----------------------------------------------------------------------------------- */

sw_status sw_tracker_set_alert(sw_tracker *tracker, const sw_tracker_rule *rule) {
    sw_status status = enter(tracker, "tracker_set_alert");
    if (status != SW_OK) return status;
    bool is_good = rule == NULL || (rule->struct_bytes == sizeof *rule && rule->period_ns != 0);
    if (is_good) {
        tracker->rule = rule == NULL ? (sw_tracker_rule){0} : *rule;
        tracker->due_ns = sw_track_now_ns(tracker) + tracker->rule.period_ns;
    }
    sw_track_unlock();
    if (is_good) return SW_OK;
    return sw_fail(SW_INVALID, "tracker_set_alert",
                   "a rule of %u bytes with a period of %llu ns: use sizeof(sw_tracker_rule), and "
                   "1 ns or more",
                   rule->struct_bytes, (unsigned long long)rule->period_ns);
}

/* Returns whether a check is due and this caller must do it; under the lock. */
static bool claim_look(sw_tracker *tracker) {
    uint64_t now_ns = sw_track_now_ns(tracker);
    if (tracker->rule.period_ns == 0 || tracker->looks != 0 || now_ns < tracker->due_ns)
        return false;
    tracker->looks = 1;
    tracker->due_ns = now_ns + tracker->rule.period_ns;
    return true;
}

/* Fills in the alert, and returns whether to raise it; under the lock. */
static bool weigh(sw_tracker *tracker, const sw_tracker_totals *totals, sw_tracker_alert *alert,
                  sw_tracked_arena *rows) {
    const sw_tracker_rule *rule = &tracker->rule;
    alert->now_ns = totals->now_ns;
    alert->untracked_bytes = difference(totals->chunk_bytes, totals->tracked_chunk_bytes);
    alert->old_arenas =
        find_old(tracker, rule->min_age_ns, NULL, rows, SW_TRACKER_ALERT_ROWS, &alert->old_bytes);
    alert->rows = rows;
    alert->row_count = alert->old_arenas < SW_TRACKER_ALERT_ROWS ? (size_t)alert->old_arenas
                                                                 : SW_TRACKER_ALERT_ROWS;
    if (alert->untracked_bytes <= rule->threshold_bytes &&
        alert->old_bytes <= rule->threshold_bytes)
        return false;
    tracker->alerts++;
    sw_track_add_event(tracker, (sw_tracker_event){.kind = SW_TRACKER_ALERT,
                                                   .size = alert->untracked_bytes,
                                                   .length = alert->old_bytes});
    return true;
}

/* Called with the tracker's lock, which it releases: checks for an alert if one is due. Returns
 * whether one was raised. */
static bool look_and_leave(sw_tracker *tracker) {
    sw_tracker_totals totals = {0};
    sw_tracker_alert alert = {0};
    sw_tracked_arena rows[SW_TRACKER_ALERT_ROWS];
    bool looks = claim_look(tracker), raises = false;
    if (looks) add_tracked(tracker, &totals);
    sw_track_unlock();
    if (!looks) return false;
    add_counted(&totals);
    if (!enter_live(tracker)) return false;
    raises = weigh(tracker, &totals, &alert, rows);
    sw_tracker_rule rule = tracker->rule;
    sw_track_unlock();
    if (raises && rule.alert != NULL) rule.alert(&alert, rule.context);
    if (!enter_live(tracker)) return raises; /* the alert function has destroyed it */
    tracker->looks = 0;
    sw_track_unlock();
    return raises;
}

int sw_tracker_look(sw_tracker *tracker) {
    if (!has_entered(tracker, "tracker_look")) return 0;
    return look_and_leave(tracker);
}

void sw_tracker_look_due(void) {
    if (sw_likely(sw_track_current() == NULL)) return;
    sw_track_lock();
    sw_tracker *tracker = sw_track_current();
    if (tracker != NULL)
        (void)look_and_leave(tracker);
    else
        sw_track_unlock();
}
