/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a plan. The first thread of this process replays recorded thread 0. Each other recorded
 * thread is replayed by a thread that starts before the epoch of its first operation and exits
 * after that of its last. For a recording of one thread no other is started, so that an allocator
 * may profit from a single-threaded process.
 *
 * The measured time is the CPU time of each thread in its part of an epoch, without waits for other
 * threads' operations on an object.
 */
#include "replay/play.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "replay/process.h"
#include "spanwise/replay.h"
#include "spanwise/stats.h"

enum { TOUCH_STEP = 4096, SPINS = 64, YIELDS = 256, NAP_NS = 20000 };

/* A thread that replays a recorded one. */
typedef struct worker {
    player *player;
    uint32_t number;
    sw_cache *cache; /* used if the replay is on a heap */
    pthread_t thread;
    bool started;
    uint64_t cpu_ns, waited_ns, waits, failed;
} worker;

/* Synchronises the threads, under the lock: the epochs that they may replay, and how many threads
 * are still replaying. */
typedef struct conductor {
    pthread_mutex_t lock;
    pthread_cond_t go, done;
    uint32_t open; /* epochs below this may be replayed */
    uint32_t busy;
    worker *workers;
} conductor;

static conductor stage = {.lock = PTHREAD_MUTEX_INITIALIZER,
                          .go = PTHREAD_COND_INITIALIZER,
                          .done = PTHREAD_COND_INITIALIZER};

/* --- waiting for another thread --------------------------------------------------------------- */

static sw_noinline void wait_for_turn(worker *me, const object *o, uint32_t turn) {
    uint64_t from = replay_cpu_ns();
    for (uint32_t tries = 0; __atomic_load_n(&o->turn, __ATOMIC_ACQUIRE) != turn; tries++) {
        if (tries < SPINS) continue;
        if (tries < SPINS + YIELDS) {
            (void)sched_yield();
            continue;
        }
        struct timespec nap = {.tv_nsec = NAP_NS};
        (void)nanosleep(&nap, NULL);
    }
    me->waits++;
    me->waited_ns += replay_cpu_ns() - from;
}

/* --- one operation ---------------------------------------------------------------------------- */

static sw_always_inline void touch_bytes(touch how, char *p, uint64_t from, uint64_t size) {
    if (size <= from || how == TOUCH_NONE) return;
    if (how == TOUCH_ALL) {
        memset(p + from, 1, size - from);
        return;
    }
    volatile char *bytes = p;
    bytes[from] = 1;
    bytes[size - 1] = 1;
    if (how == TOUCH_ENDS) return;
    for (uint64_t at = from + TOUCH_STEP; at < size; at += TOUCH_STEP) bytes[at] = 1;
}

static sw_always_inline void *take(const worker *me, sw_heap *heap, const step *s, uint64_t size) {
    uint32_t align_log2 = step_align_log2(s);
    bool zeroed = step_has(s, STEP_ZEROED);
    if (heap != NULL) {
        unsigned flags = zeroed ? SW_ZERO : 0u;
        return align_log2 == 0
                   ? sw_cache_alloc(me->cache, size, flags)
                   : sw_cache_alloc_aligned(me->cache, size, (size_t)1 << align_log2, flags);
    }
    if (sw_likely(align_log2 <= 3)) return zeroed ? calloc(1, size) : malloc(size);
    void *p = NULL;
    if (posix_memalign(&p, (size_t)1 << align_log2, size) != 0) return NULL;
    if (zeroed) memset(p, 0, size);
    return p;
}

static sw_always_inline void *resize(const worker *me, sw_heap *heap, void *p, uint64_t size) {
    if (heap != NULL) return sw_cache_realloc(me->cache, p, size, 0);
    return realloc(p, size == 0 ? 1 : size); /* realloc to 0 bytes could free the object */
}

static sw_always_inline void give(const worker *me, sw_heap *heap, void *p) {
    if (heap != NULL) {
        sw_cache_free(me->cache, p);
    } else {
        free(p);
    }
}

/* --- caches ----------------------------------------------------------------------------------- */

static void open_cache(worker *me) {
    if (me->player->heap == NULL || me->cache != NULL) return;
    if (sw_cache_open(me->player->heap, &me->cache) != SW_OK)
        replay_die("thread %u: %s", me->number, sw_last_error()->message);
}

static void close_cache(worker *me) {
    sw_cache_close(me->cache);
    me->cache = NULL;
}

/* Ends a recorded thread: closes its cache. The replaying thread continues to the end of the epoch
 * with a new cache, because a later recorded thread may have the same number. */
static sw_noinline void end_thread(worker *me, sw_heap *heap) {
    if (heap == NULL) return;
    close_cache(me);
    open_cache(me);
}

/* --- steps ------------------------------------------------------------------------------------ */

static sw_always_inline void do_step(worker *me, sw_heap *heap, touch how, object *o,
                                     const step *s) {
    uint64_t size = step_size(s), before = 0;
    void *p = NULL;
    switch (step_kind(s)) {
    case SW_OP_ALLOC: p = take(me, heap, s, size); break;
    case SW_OP_REALLOC:
        if (sw_unlikely(o->address == NULL)) return;
        before = o->size;
        p = resize(me, heap, o->address, size);
        break;
    case SW_OP_THREAD_END: end_thread(me, heap); return;
    case SW_OP_FREE:
    case SW_OP_KIND_COUNT:
        if (o->address != NULL) give(me, heap, o->address);
        o->address = NULL;
        return;
    }
    if (sw_unlikely(p == NULL)) {
        me->failed++;
        return;
    }
    o->address = p;
    o->size = (uint32_t)sw_min_u64(size, UINT32_MAX);
    touch_bytes(how, p, before, size);
}

/* Inlined once for malloc and once for a heap, so that the timed loop does not test which of them
 * is used. */
static sw_always_inline void play_steps(worker *me, sw_heap *heap, const step *s, const step *end) {
    object *objects = me->player->objects;
    touch how = me->player->touch;
    for (; s < end; s++) {
        object *o = &objects[s->object];
        if (sw_unlikely(step_has(s, STEP_WAITS)) &&
            __atomic_load_n(&o->turn, __ATOMIC_ACQUIRE) != s->turn)
            wait_for_turn(me, o, s->turn);
        do_step(me, heap, how, o, s);
        if (sw_unlikely(step_has(s, STEP_TELLS)))
            __atomic_store_n(&o->turn, s->turn + 1, __ATOMIC_RELEASE);
    }
}

static sw_noinline void play_malloc(worker *me, const step *from, const step *end) {
    play_steps(me, NULL, from, end);
}

static sw_noinline void play_heap(worker *me, const step *from, const step *end) {
    play_steps(me, me->player->heap, from, end);
}

static uint64_t steps_before(const plan_thread *thread, uint32_t e) {
    return e == 0 ? 0 : thread->ends[e - 1];
}

static bool plays_in(const plan_thread *thread, uint32_t e) {
    return thread->ends[e] != steps_before(thread, e);
}

static void play_epoch(worker *me, uint32_t e) {
    const plan *p = me->player->plan;
    const plan_thread *thread = &p->threads[me->number];
    const step *mine = &p->steps[p->starts[me->number]];
    const step *from = mine + steps_before(thread, e), *end = mine + thread->ends[e];
    uint64_t waited = me->waited_ns, start = replay_cpu_ns();
    if (me->player->heap == NULL) {
        play_malloc(me, from, end);
    } else {
        play_heap(me, from, end);
    }
    me->cpu_ns += replay_cpu_ns() - start - (me->waited_ns - waited);
}

/* --- threads ---------------------------------------------------------------------------------- */

static void *work(void *arg) {
    worker *me = arg;
    const plan_thread *thread = &me->player->plan->threads[me->number];
    open_cache(me);
    for (uint32_t e = thread->first; e <= thread->last; e++) {
        if (!plays_in(thread, e)) continue;
        (void)pthread_mutex_lock(&stage.lock);
        while (stage.open <= e) (void)pthread_cond_wait(&stage.go, &stage.lock);
        (void)pthread_mutex_unlock(&stage.lock);
        play_epoch(me, e);
        (void)pthread_mutex_lock(&stage.lock);
        if (--stage.busy == 0) (void)pthread_cond_signal(&stage.done);
        (void)pthread_mutex_unlock(&stage.lock);
    }
    close_cache(me);
    return NULL;
}

/* Starts the threads whose first operation is in this epoch. Returns how many threads except the
 * first replay in it. */
static uint32_t call_up(const plan *p, uint32_t e) {
    uint32_t busy = 0;
    for (uint32_t t = 1; t < p->thread_count; t++) {
        const plan_thread *thread = &p->threads[t];
        worker *w = &stage.workers[t];
        if (thread->first > thread->last || !plays_in(thread, e)) continue;
        busy++;
        if (w->started) continue;
        int error = pthread_create(&w->thread, NULL, work, w);
        if (error != 0) replay_die("thread %u: %s", t, strerror(error));
        w->started = true;
    }
    return busy;
}

static void dismiss(const plan *p, uint32_t e) {
    for (uint32_t t = 1; t < p->thread_count; t++) {
        worker *w = &stage.workers[t];
        if (!w->started || p->threads[t].last != e) continue;
        (void)pthread_join(w->thread, NULL);
        w->started = false;
    }
}

static void play_epoch_of_all(const plan *p, uint32_t e, bool first_plays) {
    uint32_t busy = p->thread_count > 1 ? call_up(p, e) : 0;
    if (busy != 0) {
        (void)pthread_mutex_lock(&stage.lock);
        stage.busy = busy;
        stage.open = e + 1;
        (void)pthread_cond_broadcast(&stage.go);
        (void)pthread_mutex_unlock(&stage.lock);
    }
    if (first_plays) play_epoch(&stage.workers[0], e);
    if (busy == 0) return;
    (void)pthread_mutex_lock(&stage.lock);
    while (stage.busy != 0) (void)pthread_cond_wait(&stage.done, &stage.lock);
    (void)pthread_mutex_unlock(&stage.lock);
}

/* --- public ----------------------------------------------------------------------------------- */

static void prepare(player *self) {
    const plan *p = self->plan;
    stage.workers = replay_map((p->thread_count + 1) * sizeof(worker));
    for (uint32_t t = 0; t < p->thread_count; t++)
        stage.workers[t] = (worker){.player = self, .number = t};
    if (p->thread_count != 0) open_cache(&stage.workers[0]);
}

static void add_up(player *self) {
    for (uint32_t t = 0; t < self->plan->thread_count; t++) {
        const worker *w = &stage.workers[t];
        self->cpu_ns += w->cpu_ns;
        self->waited_ns += w->waited_ns;
        self->waits += w->waits;
        self->failed += w->failed;
    }
}

void play(player *self, void (*at_epoch)(void *arg, uint32_t epoch), void *arg) {
    sw_check2(player_check(self));
    const plan *p = self->plan;
    prepare(self);
    (void)replay_resident_bytes(); /* the first call opens the file, which should not be timed */
    self->first_ns = replay_clock_ns();
    for (uint32_t e = 0; e < p->epoch_count; e++) {
        uint64_t start = replay_clock_ns();
        play_epoch_of_all(p, e, plays_in(&p->threads[0], e));
        uint64_t end = replay_clock_ns();
        self->elapsed_ns += end - start;
        self->samples[e] =
            (sample){.wall_ns = end - self->first_ns, .rss_bytes = replay_resident_bytes()};
        /* For the progress bar of the process that started the replay. A failure does not
         * matter. */
        (void)!pwrite(self->progress_fd, &p->epochs[e].ops, sizeof(uint64_t),
                      (off_t)offsetof(ops_head, progress));
        if (at_epoch != NULL) at_epoch(arg, e);
        if (p->thread_count > 1) dismiss(p, e);
    }
    add_up(self);
}

void play_drain(player *self) {
    if (self->plan->thread_count == 0) return;
    worker *me = &stage.workers[0];
    for (uint64_t i = 0; i < self->plan->objects; i++) {
        object *o = &self->objects[i];
        if (o->address != NULL) give(me, self->heap, o->address);
        o->address = NULL;
    }
    if (self->heap != NULL) close_cache(me);
}

static sw_noinline uint64_t walk(object *objects, const step *s, const step *end) {
    uint64_t sum = 0;
    for (; s < end; s++) {
        object *o = &objects[s->object];
        sum += step_size(s) + (uint64_t)step_kind(s) + step_align_log2(s);
        *(volatile uint32_t *)&o->size = step_has(s, STEP_WAITS);
    }
    return sum;
}

uint64_t play_overhead_ns(const player *self) {
    const plan *p = self->plan;
    uint64_t start = replay_cpu_ns();
    volatile uint64_t sum = walk(self->objects, p->steps, p->steps + p->count);
    (void)sum;
    return replay_cpu_ns() - start;
}

/* --- the untimed replay ----------------------------------------------------------------------- */

enum { CHUNK_OPS = 1 << 15 };

static void must(sw_status status) {
    if (status != SW_OK) replay_die("%s", sw_last_error()->message);
}

static uint64_t read_ops(int fd, sw_op *into, uint64_t first, uint64_t until) {
    uint64_t count = sw_min_u64(CHUNK_OPS, until - first);
    off_t offset = (off_t)(sizeof(ops_head) + first * sizeof(sw_op));
    ssize_t want = (ssize_t)(count * sizeof(sw_op));
    if (pread(fd, into, (size_t)want, offset) != want) replay_die("operations end early");
    return count;
}

#define NUMBER(field) result_number(out, #field, ledger->field)

static void tell_ledger(result *out, const char *key, const sw_ledger *ledger) {
    result_format(out, "\"%s\":{", key);
    NUMBER(requested_bytes);
    NUMBER(roundup_bytes);
    NUMBER(tail_bytes);
    NUMBER(free_slot_bytes);
    NUMBER(cached_bytes);
    NUMBER(metadata_bytes);
    NUMBER(large_rounding_bytes);
    NUMBER(free_page_bytes);
    NUMBER(held_bytes);
    NUMBER(live_objects);
    NUMBER(large_objects);
    NUMBER(spans);
    NUMBER(largest_hole_bytes);
    NUMBER(free_runs);
    NUMBER(returned_bytes);
    out->length--; /* removes the last comma */
    result_text(out, "},");
}

void tracked_replay(int fd, const ops_head *head, uint64_t ledger_op, bool touch,
                    const sw_table *table) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.tracked = 1;
    options.manual_clock = 1;
    sw_heap *heap;
    sw_runner *runner;
    must(sw_heap_create(&options, &heap));
    must(sw_runner_create(heap, &runner));
    sw_op *ops = replay_map(CHUNK_OPS * sizeof(sw_op));
    uint64_t stops[] = {sw_min_u64(ledger_op, head->count), head->count}, done = 0;
    sw_ledger ledgers[2];
    for (int i = 0; i < 2; i++) {
        while (done < stops[i]) {
            uint64_t count = read_ops(fd, ops, done, stops[i]);
            must(sw_runner_run(runner, ops, count, touch, NULL, NULL));
            done += count;
            (void)!pwrite(fd, &done, sizeof done, (off_t)offsetof(ops_head, progress));
        }
        must(sw_heap_ledger(heap, &ledgers[i], NULL, 0));
    }
    sw_replay_stats stats;
    sw_runner_stats(runner, &stats);
    result out;
    result_open(&out, 1 << 14);
    result_text(&out, "{");
    tell_ledger(&out, "ledger", &ledgers[0]);
    tell_ledger(&out, "end", &ledgers[1]);
    result_number(&out, "ops", stats.ops);
    result_number(&out, "failed", stats.failed);
    result_number(&out, "peak_held_bytes", stats.peak_held_bytes);
    result_close(&out, "}");
}
