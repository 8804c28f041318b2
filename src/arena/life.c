/* SPDX-License-Identifier: Apache-2.0 */
/* Creates, resets and frees arenas, and restores earlier states. */
#include <stdlib.h>
#include <string.h>

#include "arena/arena.h"
#include "arena/chunk.h"
#include "arena/chunk_cache.h"
#include "arena/track.h"
#include "base/base.h"
#include "gc/type.h"
#include "heap/target.h"

/* --- savepoints ------------------------------------------------------------------------------- */

/* Drops the savepoints newer than `last`; NULL: all. */
static void sw_arena_savepoint_drop(sw_arena *arena, const sw_arena_saved *last) {
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

/* --- life ------------------------------------------------------------------------------------- */

/* --- options ---------------------------------------------------------------------------------- */

void sw_arena_options_init(sw_arena_options *options) {
    if (options == NULL) return;
    *options =
        (sw_arena_options){.struct_bytes = sizeof *options, .chunk_bytes = SW_ARENA_CHUNK_DEFAULT};
}

static sw_status check_options(const sw_arena_options *options) {
    unsigned long long chunk = options->chunk_bytes;
    if (options->struct_bytes != sizeof *options)
        return sw_fail(SW_INVALID, "arena_create",
                       "options of %u bytes: fill them with sw_arena_options_init first",
                       options->struct_bytes);
    if (options->mode >= SW_ARENA_MODE_COUNT)
        return sw_fail(SW_INVALID, "arena_create", "mode %u: use one of sw_arena_mode",
                       options->mode);
    if (!sw_is_pow2(chunk) || chunk < SW_ARENA_CHUNK_MIN || chunk > SW_ARENA_CHUNK_MAX)
        return sw_fail(SW_INVALID, "arena_create",
                       "chunks of %llu bytes: use a power of two from 4096 to 2^30", chunk);
    if ((options->first == NULL) != (options->first_bytes == 0))
        return sw_fail(SW_INVALID, "arena_create",
                       "a first chunk at %p of %llu bytes: give both or neither", options->first,
                       (unsigned long long)options->first_bytes);
    if (options->safe != 0 && (options->mode == SW_ARENA_OFF || options->first != NULL))
        return sw_fail(SW_UNSUPPORTED, "arena_create",
                       "a safe arena has its own chunks: use neither mode OFF nor a first chunk");
    return SW_OK;
}

/* Returns the mode set by the environment variable SPANWISE_ARENA, which is read once.
 * SW_ARENA_MODE_COUNT: another value. */
static uint32_t usual_mode(void) {
    static uint32_t known; /* atomic; 0: not read yet */
    uint32_t mode = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (mode != 0) return mode;
    static const char *const names[] = {"", "off", "auto", "force"};
    const char *text = getenv("SPANWISE_ARENA");
    mode = text == NULL || *text == '\0' ? SW_ARENA_AUTO : SW_ARENA_OFF;
    while (text != NULL && *text != '\0' && mode < SW_ARENA_MODE_COUNT &&
           strcmp(text, names[mode]) != 0)
        mode++;
    __atomic_store_n(&known, mode, __ATOMIC_RELAXED);
    return mode;
}

/* Returns the kind of misuse when a heap must free a foreign address. */
static sw_misuse misuse_of(const void *ptr) {
    const sw_chunk *chunk = sw_chunk_find(ptr);
    if (chunk == NULL) return SW_MISUSE_FOREIGN;
    bool lives = __atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE) != NULL;
    return lives ? SW_MISUSE_ARENA : SW_MISUSE_FREED_ARENA;
}

/* Registers misuse_of with heaps, once, so that not each create writes to a shared cache line. */
static void install_misuse(void) {
    if (sw_likely(__atomic_load_n(&sw_target_foreign, __ATOMIC_RELAXED) != NULL)) return;
    __atomic_store_n(&sw_target_foreign, misuse_of, __ATOMIC_RELEASE);
}

/* --- beginning -------------------------------------------------------------------------------- */

static void begin(sw_arena *arena, const sw_arena_options *options, uint32_t mode) {
    bool reports_allocs = sw_track_wants_allocs();
    bool is_guarded =
        options->locked != 0 || options->safe != 0 || sw_os_is_watched() || reports_allocs;
    uint64_t generation = arena->generation;
    *arena = (sw_arena){.heap = options->heap, .tag = options->tag, .mode = mode};
    arena->generation = generation;
    arena->limit_bytes = options->limit_bytes;
    arena->log2 = sw_log2_floor(options->chunk_bytes);
    arena->is_locked = options->locked != 0;
    arena->is_watched = sw_os_is_watched();
    arena->reports_allocs = reports_allocs;
    arena->first.base = (uintptr_t)options->first;
    arena->first.bytes = options->first_bytes;
    arena->ends = is_guarded ? &arena->hidden : &arena->open;
    sw_os_watch_begin(arena);
    if (mode != SW_ARENA_OFF) sw_arena_use_first(arena);
}

static sw_arena_log *new_log(const sw_arena *arena) {
    static uint64_t numbers; /* atomic */
    return sw_arena_log_new(arena->tag, __atomic_add_fetch(&numbers, 1, __ATOMIC_RELAXED));
}

/* Makes an arena safe: it gets a log, and unless it is locked, it belongs to the calling thread,
 * whose number is in its chunk cache. */
static sw_status make_safe(sw_arena *arena) {
    const sw_arena_chunk_cache *chunk_cache = sw_arena_chunk_cache_own();
    if (!sw_arena_report_install())
        return sw_fail(SW_UNSUPPORTED, "arena_create", "the system does not report faults");
    if (chunk_cache != NULL) arena->log = new_log(arena);
    if (chunk_cache == NULL || arena->log == NULL)
        return sw_fail(SW_NOMEM, "arena_create", "no memory for the log of a safe arena");
    if (arena->is_locked == 0) arena->owner = chunk_cache->number;
    arena->is_noted = !sw_arena_is_observed(arena);
    return SW_OK;
}

sw_status sw_arena_create(const sw_arena_options *options, sw_arena **out) {
    if (out == NULL) return sw_fail_null("arena_create", "out");
    sw_arena_options usual;
    sw_arena_options_init(&usual);
    if (options == NULL) options = &usual;
    sw_status status = check_options(options);
    if (status != SW_OK) return status;
    uint32_t mode = options->mode != SW_ARENA_DEFAULT ? options->mode : usual_mode();
    if (mode == SW_ARENA_MODE_COUNT)
        return sw_fail(SW_INVALID, "arena_create", "SPANWISE_ARENA must be off, auto or force");
    sw_arena_fork_register();
    install_misuse();
    sw_arena *arena = sw_arena_chunk_cache_record();
    if (arena == NULL) return sw_fail(SW_NOMEM, "arena_create", "no memory for an arena");
    begin(arena, options, options->safe != 0 ? SW_ARENA_FORCE : mode);
    if (options->safe != 0) status = make_safe(arena);
    if (status != SW_OK) {
        sw_os_watch_end(arena);
        sw_handle_end(&arena->mark, SW_HANDLE_ARENA);
        sw_arena_chunk_cache_retire(arena);
        return status;
    }
    sw_track_begin(arena, (uintptr_t)__builtin_return_address(0));
    if (arena->is_locked != 0) sw_arena_fork_add(arena);
    sw_handle_begin(&arena->mark, SW_HANDLE_ARENA);
    *out = arena;
    sw_tracker_look_due();
    return SW_OK;
}

/* --- the end ---------------------------------------------------------------------------------- */

/* Fails if the arena is held; else no thread can hold it from now on. */
static sw_status begin_end(sw_arena *arena, const char *op) {
    uint32_t holds = 0;
    if (__atomic_compare_exchange_n(&arena->holds, &holds, SW_ARENA_ENDING, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_RELAXED))
        return SW_OK;
    return sw_fail(SW_BUSY, op, "the arena is held %u times: call sw_arena_unhold as often first",
                   holds & ~SW_ARENA_ENDING);
}

static void end_objects(sw_arena *arena, const sw_chunk *kept) {
    (void)__atomic_add_fetch(&arena->generation, 1, __ATOMIC_RELEASE);
    if (arena->log != NULL) sw_arena_log_end(arena->log);
    sw_arena_savepoint_drop(arena, NULL);
    sw_arena_own_free(arena, NULL);
    sw_os_watch_end(arena);
    sw_arena_drop_chunks(arena, kept);
    if (arena->log != NULL) sw_arena_log_drop(arena->log);
    arena->slack_bytes = 0;
}

sw_status sw_arena_free(sw_arena *arena) {
    if (arena == NULL) return SW_OK;
    sw_status status = sw_arena_enter(arena, "arena_free");
    if (status != SW_OK) return status;
    sw_check2(sw_arena_record_check(arena));
    status = begin_end(arena, "arena_free");
    if (status != SW_OK) {
        sw_arena_leave(arena);
        return status;
    }
    if (!sw_handle_try_end(&arena->mark, SW_HANDLE_ARENA)) { /* another thread was faster */
        sw_arena_leave(arena);
        return sw_handle_refuse(arena, SW_ARENA_MARK, SW_HANDLE_ARENA, "arena_free");
    }
    sw_track_end(arena);
    sw_gc_remove_source(&arena->source); /* before the ranges that it lends are freed */
    end_objects(arena, NULL);
    arena->open = arena->hidden = (sw_arena_ends){0};
    if (arena->first.bytes != 0) /* it belongs to the caller again */
        sw_os_watch_allow((const void *)arena->first.base, arena->first.bytes);
    sw_arena_leave(arena);
    if (arena->is_locked != 0) sw_arena_fork_remove(arena);
    sw_arena_chunk_cache_retire(arena);
    sw_tracker_look_due();
    return SW_OK;
}

/* Frees all objects and keeps one chunk: the caller's, if there is one, else the newest, which is
 * still in the CPU caches. A safe arena keeps none. */
static void keep_one(sw_arena *arena) {
    sw_chunk *kept = arena->log != NULL ? NULL : arena->chunks;
    if (kept == NULL) {
        end_objects(arena, NULL);
        sw_arena_set_ends(arena, 0, 0);
    } else if (arena->first.bytes != 0) {
        end_objects(arena, &arena->first);
        kept = &arena->first;
    } else {
        sw_chunk *older = kept->next;
        kept->next = NULL;
        arena->chunks = older;
        arena->chunk_count--;
        arena->chunk_bytes -= kept->bytes;
        end_objects(arena, NULL);
        arena->chunks = kept;
        arena->chunk_count = 1;
        arena->chunk_bytes = kept->bytes;
    }
    if (kept != NULL) sw_arena_set_ends(arena, kept->base, kept->base + kept->bytes);
    sw_os_watch_begin(arena);
}

sw_status sw_arena_reset(sw_arena *arena) {
    sw_status status = sw_arena_enter(arena, "arena_reset");
    if (status != SW_OK) return status;
    sw_check2(sw_arena_record_check(arena));
    sw_arena_log *next = arena->log == NULL ? NULL : new_log(arena);
    if (arena->log != NULL && next == NULL)
        status = sw_fail(SW_NOMEM, "arena_reset", "no memory for the log of a safe arena");
    else
        status = begin_end(arena, "arena_reset");
    if (status == SW_OK) {
        keep_one(arena);
        arena->log = next;
        arena->resets++;
        __atomic_store_n(&arena->holds, 0, __ATOMIC_RELEASE);
    } else if (next != NULL) {
        sw_arena_log_drop(next);
    }
    sw_arena_leave(arena);
    return status;
}

/* --- the process ------------------------------------------------------------------------------ */

void sw_arena_get_pool_stats(sw_arena_pool_stats *out) {
    if (out == NULL) return;
    *out = (sw_arena_pool_stats){.arenas = sw_arena_chunk_cache_used()};
    sw_chunk_add_stats(out);
    sw_quarantine_add_stats(out);
}

void sw_arena_set_keep(uint64_t thread_bytes, uint64_t idle_bytes) {
    sw_arena_chunk_cache_set_limit(thread_bytes);
    sw_chunk_set_idle_limit(idle_bytes);
}

void sw_arena_set_decay(uint64_t decay_ns, uint64_t (*now_ns)(void *context), void *context) {
    sw_chunk_set_decay(decay_ns, now_ns, context);
}

uint64_t sw_arena_decay(void) { return sw_chunk_decay(); }

sw_status sw_arena_set_nodes(uint32_t count, uint32_t (*node_of_thread)(void *context),
                             void *context) {
    if (count > SW_ARENA_NODES_MAX)
        return sw_fail(SW_INVALID, "arena", "%u nodes: use at most %u", count, SW_ARENA_NODES_MAX);
    sw_node_set(count, node_of_thread, context);
    return SW_OK;
}

void sw_arena_set_quarantine(uint64_t bytes) { sw_quarantine_set_limit(bytes); }

uint64_t sw_arena_trim(void) {
    sw_arena_chunk_cache_empty();
    return sw_chunk_trim();
}

/* --- unreachable arenas ----------------------------------------------------------------------- */

/* Unreachable arenas: the finalizer of an object of a collected heap frees them, as in the Go
 * runtime. Records of arenas stay mapped, so a finalizer can detect an earlier free. */

static const void *object_of(const sw_arena *arena) {
    return __atomic_load_n(&arena->dropped_with, __ATOMIC_ACQUIRE);
}

/* The finalizer. It may run in a thread other than the owner's. If the arena is held, it is not
 * freed, and the object gets the finalizer again, for the next cycle. */
static void free_dropped(void *object, void *arg) {
    sw_arena *arena = arg;
    if (!sw_handle_lives(arena, SW_ARENA_MARK, SW_HANDLE_ARENA) || object_of(arena) != object)
        return;
    sw_gc *gc = arena->dropped_by;
    uint64_t owner = __atomic_load_n(&arena->owner, __ATOMIC_RELAXED);
    (void)sw_arena_adopt(arena);
    if (sw_arena_free(arena) == SW_OK) return;
    __atomic_store_n(&arena->owner, owner, __ATOMIC_RELEASE);
    (void)sw_gc_set_finalizer(gc, object, free_dropped, arena);
}

sw_status sw_arena_free_with(sw_arena *arena, sw_gc *gc, const void *object) {
    sw_status status = sw_arena_enter(arena, "arena_free_with");
    if (status != SW_OK) return status;
    if (object != NULL) status = sw_gc_set_finalizer(gc, object, free_dropped, arena);
    if (status == SW_OK) {
        arena->dropped_by = object == NULL ? NULL : gc;
        __atomic_store_n(&arena->dropped_with, object, __ATOMIC_RELEASE);
    }
    sw_arena_leave(arena);
    return status;
}
