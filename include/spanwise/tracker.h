/* SPDX-License-Identifier: Apache-2.0 */
/* A tracker knows the arenas that were made since it was: when, by which calls, under which tag,
 * and what they hold. So it tells which arenas nobody has freed.
 *
 *   sw_tracker *tracker;
 *   sw_tracker_create(NULL, &tracker);
 *   ...
 *   sw_tracked_arena old[10];                  made five minutes ago or earlier, and not freed yet:
 *   size_t count = sw_tracker_leaks(tracker, 300 * 1000000000ull, NULL, old, 10);
 *   sw_tracker_destroy(tracker);
 *
 * Two sources tell how much memory arenas have. The tracker adds up what each arena that it knows
 * says of itself; the pool of chunks knows which chunks are an arena's. sw_tracker_check compares
 * them, and names what only one of them has. The live bytes of a heap do not include chunks, which
 * lie outside of every heap; they do include *own objects*, which an arena takes from its heap
 * because they are too big for a chunk.
 *
 * A tracker notes events, which a program reads when it likes (sw_tracker_read), and it raises an
 * alert when memory above a threshold is untracked, or is in arenas above an age
 * (sw_tracker_set_alert).
 *
 * There is one tracker at a time. An arena costs it one record, a walk over up to 8 frames of the
 * stack and one lock at its creation, and a lock at its end; nothing for an object, unless objects
 * are events.
 *
 * Thread rule: every thread may call.
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
    uint32_t frames; /* return addresses that are kept of the calls that made an arena, 0 .. 8 */
    /* 1: objects are events, too. Arenas that are made meanwhile then serve no call in line. */
    uint32_t allocs;
    uint32_t manual_clock; /* 1: time is 0 at first, and moves by sw_tracker_set_time only */
    /* Events that wait to be read, at most 2^24; a new one replaces the oldest. 0: none are
     * noted. */
    uint64_t events;
} sw_tracker_options;

/* 8 frames, 1024 events, none for objects, the system's monotonic clock. */
SW_API void sw_tracker_options_init(sw_tracker_options *options);

/* Tracks the arenas that are made from now on. options: NULL for those of sw_tracker_options_init.
 * Errors: SW_INVALID for options outside their limits, SW_NOMEM, SW_BUSY: there is a tracker
 * already. */
SW_API sw_status sw_tracker_create(const sw_tracker_options *options, sw_tracker **out);
/* Ends the tracking. The arenas go on. NULL is ignored. */
SW_API void sw_tracker_destroy(sw_tracker *tracker);

/* The time of a tracker with a manual clock, in nanoseconds; it may not go back. Errors:
 * SW_INVALID, it would; or the clock is the system's. */
SW_API sw_status sw_tracker_set_time(sw_tracker *tracker, uint64_t now_ns);

/* --- arenas ----------------------------------------------------------------------------------- */

typedef struct sw_tracked_arena {
    const sw_arena *arena;
    uint64_t id;          /* 1, 2, ... in the order of creation */
    const char *tag;      /* of its options; NULL: none */
    uint64_t made_ns;     /* on the tracker's clock */
    uint64_t age_ns;      /* at the time of the call */
    uint64_t thread;      /* the system's number of the one that made it */
    uint64_t chunk_bytes; /* chunks that it has, a first one of the caller's not counted */
    uint64_t own_bytes;   /* its own objects, as requested */
    uint64_t frame_count;
    uint64_t frames[SW_TRACKER_FRAMES_MAX]; /* return addresses, the innermost first */
} sw_tracked_arena;

/* Arenas that are at least min_age_ns old and not freed, the oldest first. tag: only those whose
 * tag is equal; NULL: all. Fills in up to `capacity` rows and returns how many there are. 0 after
 * misuse. */
SW_API size_t sw_tracker_leaks(sw_tracker *tracker, uint64_t min_age_ns, const char *tag,
                               sw_tracked_arena *out, size_t capacity);

typedef struct sw_tracker_totals {
    uint64_t now_ns;              /* on the tracker's clock */
    uint64_t arenas;              /* that live, by the library's own count */
    uint64_t tracked_arenas;      /* that live, by the tracker's */
    uint64_t chunk_bytes;         /* of chunks that are an arena's, by the pool of chunks */
    uint64_t tracked_chunk_bytes; /* by what tracked arenas say */
    /* Own objects of tracked arenas. They are among a heap's live bytes; in mode OFF the C library
     * has them instead. */
    uint64_t tracked_own_bytes;
    uint64_t missed; /* arenas for whose record there was no memory */
    uint64_t events; /* noted so far */
    uint64_t lost;   /* of these, replaced before they were read */
    uint64_t alerts; /* raised so far */
} sw_tracker_totals;

/* Reads both sources. They are read one behind the other: threads that make or free arenas
 * meanwhile are seen as a difference. Errors: SW_STATE, they differ, and the last error says by how
 * much; *out is filled in all the same. */
SW_API sw_status sw_tracker_check(sw_tracker *tracker, sw_tracker_totals *out);

/* --- events ----------------------------------------------------------------------------------- */

typedef enum sw_tracker_event_kind {
    /* arena.new: an arena was made. address: of the arena; size: of its chunks. */
    SW_TRACKER_NEW = 1,
    /* arena.alloc: an object. address, size: of its chunk; offset: of the object in it; length: of
     * the object. For an own object address is the object's, and size is its length. */
    SW_TRACKER_ALLOC = 2,
    /* arena.free: an arena was freed. address: of the arena; size: bytes of the chunks that it had;
     * length: bytes of its own objects. */
    SW_TRACKER_FREE = 3,
    SW_TRACKER_ALERT = 4, /* arena.alert: size: untracked bytes; length: bytes of old arenas */
} sw_tracker_event_kind;

/* "arena.new" and so on; "unknown" for another number. A constant string. */
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

/* Takes up to `capacity` events out, the oldest first; returns how many. 0 after misuse. */
SW_API size_t sw_tracker_read(sw_tracker *tracker, sw_tracker_event *out, size_t capacity);

/* --- alerts ----------------------------------------------------------------------------------- */

/* What an alert tells. `rows` lives as long as the call. */
typedef struct sw_tracker_alert {
    uint64_t now_ns;
    uint64_t untracked_bytes;     /* by how much the two sources differ */
    uint64_t old_bytes;           /* chunks and own objects of arenas above the age */
    uint64_t old_arenas;          /* how many these are */
    const sw_tracked_arena *rows; /* the oldest of them */
    size_t row_count;             /* SW_TRACKER_ALERT_ROWS at most */
} sw_tracker_alert;

enum { SW_TRACKER_ALERT_ROWS = 32 };

typedef void sw_tracker_alert_fn(const sw_tracker_alert *alert, void *context);

typedef struct sw_tracker_rule {
    uint32_t struct_bytes; /* sizeof(sw_tracker_rule), for later versions */
    uint32_t pad;
    uint64_t period_ns;       /* between two looks, 1 or more */
    uint64_t min_age_ns;      /* arenas of this age are old */
    uint64_t threshold_bytes; /* more than so many that are untracked, or old, raise an alert */
    /* Called in the thread that looks, without a lock; it may use arenas. NULL: only the event is
     * noted. */
    sw_tracker_alert_fn *alert;
    void *context;
} sw_tracker_rule;

/* From now on the tracker looks once a period: when an arena is made or freed, or sw_tracker_look
 * is called, and a period has passed since the last look. rule NULL: it looks no more. Errors:
 * SW_INVALID: struct_bytes is no such size, or the period is 0. */
SW_API sw_status sw_tracker_set_alert(sw_tracker *tracker, const sw_tracker_rule *rule);
/* Looks, if a period has passed. Whether an alert was raised; 0 after misuse. */
SW_API int sw_tracker_look(sw_tracker *tracker);

#ifdef __cplusplus
}
#endif
#endif
