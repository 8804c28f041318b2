/* SPDX-License-Identifier: Apache-2.0 */
/* A tracker lists the arenas created while it exists, with time of creation, backtrace, tag and
 * size, to find arenas that were never freed.
 *
 *   sw_tracker *tracker;
 *   sw_tracker_create(NULL, &tracker);
 *   ...
 *   sw_tracked_arena old[10];                  created at least five minutes ago and not freed:
 *   size_t count = sw_tracker_leaks(tracker, 300 * 1000000000ull, NULL, old, 10);
 *   sw_tracker_destroy(tracker);
 *
 * The size of all arenas is computed twice: as the sum over tracked arenas, and from the chunk
 * pool. sw_tracker_check compares both and reports the difference. Chunks do not count as live
 * bytes of a heap; *own objects* do: an arena allocates them from its heap because they are too big
 * for a chunk.
 *
 * A tracker records events (sw_tracker_read), and raises an alert if more than a threshold of
 * memory is untracked or in old arenas (sw_tracker_set_alert).
 *
 * There is at most one tracker. Creating an arena costs a record, a backtrace of up to 8 frames and
 * a lock; freeing it costs a lock. Objects cost nothing unless they are recorded as events.
 *
 * Thread rule: any thread may call.
 */
#ifndef SPANWISE_TRACKER_H
#define SPANWISE_TRACKER_H

#include <spanwise/arena.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_tracker sw_tracker;

enum { SW_TRACKER_FRAMES_MAX = 8 };

typedef struct sw_tracker_options {
    uint32_t struct_bytes; /* sizeof(sw_tracker_options), for later versions */
    uint32_t frames;       /* depth of the backtrace of an arena's creation, 0 .. 8 */
    /* 1: objects are events too; arenas created then have no inline allocation. */
    uint32_t allocs;
    uint32_t manual_clock; /* 1: time starts at 0 and is set by sw_tracker_set_time only */
    /* Capacity of the event ring, at most 2^24; the oldest is overwritten. 0: no events. */
    uint64_t events;
} sw_tracker_options;

/* Set the defaults: 8 frames, 1024 events, none for objects, the system's monotonic clock. */
SW_API void sw_tracker_options_init(sw_tracker_options *options);

/* Track arenas created from now on. options: NULL for the defaults. Errors: SW_INVALID: options out
 * of range; SW_NOMEM; SW_BUSY: there is a tracker. */
SW_API sw_status sw_tracker_create(const sw_tracker_options *options, sw_tracker **out);
/* Stop tracking. Arenas are unaffected. NULL is ignored. */
SW_API void sw_tracker_destroy(sw_tracker *tracker);

/* Set the time of a manual clock, in nanoseconds. Errors: SW_INVALID: it would go back, or the
 * clock is the system's. */
SW_API sw_status sw_tracker_set_time(sw_tracker *tracker, uint64_t now_ns);

/* --- arenas ----------------------------------------------------------------------------------- */

typedef struct sw_tracked_arena {
    const sw_arena *arena;
    uint64_t id;          /* 1, 2, ... in the order of creation */
    const char *tag;      /* from its options; NULL: none */
    uint64_t made_ns;     /* on the tracker's clock */
    uint64_t age_ns;      /* at the time of the call */
    uint64_t thread;      /* system thread id of the creator */
    uint64_t chunk_bytes; /* without a first chunk of the caller */
    uint64_t own_bytes;   /* requested bytes of own objects */
    uint64_t frame_count;
    uint64_t frames[SW_TRACKER_FRAMES_MAX]; /* return addresses, innermost first */
} sw_tracked_arena;

/* Find arenas that are at least min_age_ns old and not freed, the oldest first. tag: only arenas
 * with this tag; NULL: all. Fill in up to `capacity` rows; return the full count, 0 after
 * misuse. */
SW_API size_t sw_tracker_leaks(sw_tracker *tracker, uint64_t min_age_ns, const char *tag,
                               sw_tracked_arena *out, size_t capacity);

typedef struct sw_tracker_totals {
    uint64_t now_ns;              /* on the tracker's clock */
    uint64_t arenas;              /* live arenas, by the library's own count */
    uint64_t tracked_arenas;      /* live arenas, by the tracker's count */
    uint64_t chunk_bytes;         /* bytes of chunks in use by arenas, by the pool of chunks */
    uint64_t tracked_chunk_bytes; /* the same, by the tracked arenas */
    /* Own objects of tracked arenas. They are live bytes of a heap, or in mode OFF of the C
     * library. */
    uint64_t tracked_own_bytes;
    uint64_t missed; /* arenas not recorded for lack of memory */
    uint64_t events; /* total */
    uint64_t lost;   /* of these, overwritten before they were read */
    uint64_t alerts; /* raised so far */
} sw_tracker_totals;

/* Compare both sums. They are not read atomically, so concurrent creations and frees appear as a
 * difference. Errors: SW_STATE: they differ; the last error has the difference, and *out is filled
 * in. */
SW_API sw_status sw_tracker_check(sw_tracker *tracker, sw_tracker_totals *out);

/* --- events ----------------------------------------------------------------------------------- */

typedef enum sw_tracker_event_kind {
    /* arena.new: an arena was created. address: of the arena; size: of its chunks. */
    SW_TRACKER_NEW = 1,
    /* arena.alloc: an object. address, size: of its chunk; offset: of the object in it; length: of
     * the object. For an own object address is the object's, and size is its length. */
    SW_TRACKER_ALLOC = 2,
    /* arena.free: an arena was freed. address: of the arena; size: bytes of its chunks; length:
     * bytes of its own objects. */
    SW_TRACKER_FREE = 3,
    SW_TRACKER_ALERT = 4, /* arena.alert: size: untracked bytes; length: bytes of old arenas */
} sw_tracker_event_kind;

/* Return "arena.new" and so on; "unknown" for another number. A constant string. */
SW_API const char *sw_tracker_event_name(uint32_t kind);

typedef struct sw_tracker_event {
    uint64_t time_ns; /* on the tracker's clock */
    uint64_t arena;   /* id of the tracked arena; 0: an alert */
    uint64_t address;
    uint64_t size;   /* bytes */
    uint64_t offset; /* bytes */
    uint64_t length; /* bytes */
    uint64_t thread; /* the system's number */
    uint32_t kind;   /* sw_tracker_event_kind */
    uint32_t pad;
} sw_tracker_event;

/* Remove up to `capacity` events, the oldest first; return how many. 0 after misuse. */
SW_API size_t sw_tracker_read(sw_tracker *tracker, sw_tracker_event *out, size_t capacity);

/* --- alerts ----------------------------------------------------------------------------------- */

/* `rows` is valid during the call. */
typedef struct sw_tracker_alert {
    uint64_t now_ns;
    uint64_t untracked_bytes;     /* difference of the two sums */
    uint64_t old_bytes;           /* chunks and own objects of old arenas */
    uint64_t old_arenas;          /* number of old arenas */
    const sw_tracked_arena *rows; /* the oldest of them */
    size_t row_count;             /* SW_TRACKER_ALERT_ROWS at most */
} sw_tracker_alert;

enum { SW_TRACKER_ALERT_ROWS = 32 };

typedef void sw_tracker_alert_fn(const sw_tracker_alert *alert, void *context);

typedef struct sw_tracker_rule {
    uint32_t struct_bytes; /* sizeof(sw_tracker_rule), for later versions */
    uint32_t pad;
    uint64_t period_ns;       /* between two checks, 1 or more */
    uint64_t min_age_ns;      /* arenas of at least this age are old */
    uint64_t threshold_bytes; /* an alert is raised if untracked or old bytes exceed this */
    /* Called in the checking thread without a lock; it may use arenas. NULL: only the event. */
    sw_tracker_alert_fn *alert;
    void *context;
} sw_tracker_rule;

/* Check the rule once per period, when an arena is created or freed, or in sw_tracker_look. rule
 * NULL: no checks. Errors: SW_INVALID: wrong struct_bytes, or the period is 0. */
SW_API sw_status sw_tracker_set_alert(sw_tracker *tracker, const sw_tracker_rule *rule);
/* Check the rule if a period has passed. Return whether an alert was raised; 0 after misuse. */
SW_API int sw_tracker_look(sw_tracker *tracker);

#ifdef __cplusplus
}
#endif
#endif
