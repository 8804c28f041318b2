/* SPDX-License-Identifier: Apache-2.0 */
/* Makes a plan of operations in two passes over their file. The first pass counts the threads, and
 * the steps of each thread in each epoch. The second stores the steps, and marks where a thread
 * must wait for another thread's operation on the same object.
 *
 * An object has an element of the replayer's array of objects, which is called its place here.
 * Later objects reuse places, so the length of the array is about the peak number of live objects.
 */
#include "replay/plan.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "replay/process.h"

enum {
    CHUNK_OPS = 1 << 15, /* operations per read: 1 MiB */
    BLOCK_PLACES = 64,   /* new places that a thread takes at once, so that threads do not share
                          * cache lines */
};
static const uint32_t none = UINT32_MAX;

/* A place, while the plan is made. */
typedef struct place {
    uint64_t last_step;   /* index of the last step on it */
    uint64_t size;        /* of the live object in it */
    uint32_t last_thread; /* the thread of that step */
    uint32_t turns;       /* number of steps on it so far */
    uint32_t next_free;   /* the next in its thread's list of free places */
} place;

/* A thread, while the plan is made. */
typedef struct builder {
    uint64_t placed;                /* number of its steps so far */
    uint32_t free_places;           /* head of the list of places that this thread freed, last one
                                     * first, linked by next_free */
    uint32_t block_next, block_end; /* new places, never used */
} builder;

typedef struct maker {
    plan *plan;
    int fd;
    sw_op *chunk;
    uint32_t *live; /* by object id: 1 + place; 0: not live */
    uint64_t live_room;
    place *places;
    uint64_t places_room;
    builder *builders;
    uint64_t live_bytes, live_objects;
} maker;

/* --- reading ---------------------------------------------------------------------------------- */

static void read_at(int fd, void *into, uint64_t bytes, uint64_t offset) {
    for (uint64_t got = 0; got < bytes;) {
        ssize_t n = pread(fd, (char *)into + got, bytes - got, (off_t)(offset + got));
        if (n <= 0) replay_die("operations end at byte %" PRIu64, offset + got);
        got += (uint64_t)n;
    }
}

ops_head plan_read_head(int fd) {
    ops_head head;
    read_at(fd, &head, sizeof head, 0);
    if (memcmp(head.magic, OPS_MAGIC, sizeof head.magic) != 0)
        replay_die("not a file of operations; start the replayer by `spanwise replay`");
    return head;
}

/* Reads a chunk of operations from number `first`. Returns how many were read. */
static uint64_t read_chunk(const maker *m, uint64_t first) {
    uint64_t count = sw_min_u64(CHUNK_OPS, m->plan->count - first);
    read_at(m->fd, m->chunk, count * sizeof(sw_op), sizeof(ops_head) + first * sizeof(sw_op));
    return count;
}

static void *map_counted(plan *p, uint64_t bytes) {
    p->bytes += bytes;
    return replay_map(bytes);
}

/* Doubles a temporary array until it has room for `index`; new bytes are zero. */
static void *widen(void *array, uint64_t *room, uint64_t index, size_t item_bytes) {
    uint64_t wider = *room == 0 ? 4096 : *room;
    while (wider <= index) wider *= 2;
    void *fresh = replay_map(wider * item_bytes);
    if (array != NULL) {
        memcpy(fresh, array, *room * item_bytes);
        (void)sw_os_release(array, *room * item_bytes);
    }
    *room = wider;
    return fresh;
}

/* --- epochs ----------------------------------------------------------------------------------- */

/* Chooses the ends of epochs: every `every` operations, at the peak, and at the end, strictly
 * increasing. */
static void cut_epochs(plan *p, const ops_head *head, uint32_t samples) {
    if (samples > PLAN_EPOCHS_MAX - 2) samples = PLAN_EPOCHS_MAX - 2;
    uint64_t every = sw_max_u64(1, sw_div_up(p->count, samples == 0 ? 1 : samples));
    p->epochs = map_counted(p, PLAN_EPOCHS_MAX * sizeof *p->epochs);
    uint64_t end = 0;
    while (end < p->count) {
        uint64_t next = sw_min_u64(end - end % every + every, p->count);
        if (end < head->peak_op && head->peak_op < next) next = head->peak_op;
        p->epochs[p->epoch_count++].ops = end = next;
    }
}

/* --- first pass ------------------------------------------------------------------------------- */

static void check_op(const sw_op *op, uint64_t index) {
    if (op->kind >= SW_OP_KIND_COUNT)
        replay_die("operation %" PRIu64 ": kind %u is unknown", index, op->kind);
    if (op->align_log2 > 47)
        replay_die("operation %" PRIu64 ": alignment 2^%u is impossible", index, op->align_log2);
    if (op->thread >= PLAN_THREADS_MAX)
        replay_die("operation %" PRIu64 ": thread %u; at most %d threads are replayed", index,
                   op->thread, PLAN_THREADS_MAX);
}

/* Counts the steps of each thread in each epoch: counts[thread * epochs + epoch]. */
static void count_steps(maker *m, uint64_t *counts) {
    plan *p = m->plan;
    uint32_t now = 0;
    for (uint64_t first = 0, count; first < p->count; first += count) {
        count = read_chunk(m, first);
        for (uint64_t i = 0; i < count; i++) {
            const sw_op *op = &m->chunk[i];
            check_op(op, first + i);
            while (first + i >= p->epochs[now].ops) now++;
            if (op->thread >= p->thread_count) p->thread_count = op->thread + 1;
            counts[(uint64_t)op->thread * p->epoch_count + now]++;
        }
    }
}

static void lay_out_threads(plan *p, const uint64_t *counts) {
    p->threads = map_counted(p, p->thread_count * sizeof *p->threads);
    p->starts = map_counted(p, p->thread_count * sizeof *p->starts);
    uint64_t start = 0;
    for (uint32_t t = 0; t < p->thread_count; t++) {
        plan_thread *thread = &p->threads[t];
        thread->ends = map_counted(p, p->epoch_count * sizeof *thread->ends);
        thread->first = none;
        p->starts[t] = start;
        uint64_t steps = 0;
        for (uint32_t e = 0; e < p->epoch_count; e++) {
            uint64_t here = counts[(uint64_t)t * p->epoch_count + e];
            steps += here;
            thread->ends[e] = steps;
            if (here != 0 && thread->first == none) thread->first = e;
            if (here != 0) thread->last = e;
        }
        start += steps;
    }
}

/* --- second pass ------------------------------------------------------------------------------ */

/* Returns a place for a new object: the one that this thread freed last, because it need not wait
 * for another thread there, else a new place. */
static uint32_t take_place(maker *m, builder *own) {
    uint32_t at = own->free_places;
    if (at != none) {
        own->free_places = m->places[at].next_free;
        return at;
    }
    if (own->block_next == own->block_end) {
        own->block_next = (uint32_t)m->plan->objects;
        own->block_end = own->block_next + BLOCK_PLACES;
        m->plan->objects += BLOCK_PLACES;
        if (m->plan->objects >= none) replay_die("too many objects: at most 2^32 places");
        if (own->block_end >= m->places_room)
            m->places = widen(m->places, &m->places_room, own->block_end, sizeof *m->places);
    }
    return own->block_next++;
}

static uint32_t place_of(maker *m, const sw_op *op, uint64_t index) {
    if (op->object >= m->live_room)
        m->live = widen(m->live, &m->live_room, op->object, sizeof *m->live);
    uint32_t *entry = &m->live[op->object]; /* place + 1 */
    if ((*entry != 0) == (op->kind == SW_OP_ALLOC))
        replay_die("operation %" PRIu64 ": object %u is %s", index, op->object,
                   *entry != 0 ? "live already" : "not live");
    uint32_t at = op->kind == SW_OP_ALLOC ? take_place(m, &m->builders[op->thread]) : *entry - 1;
    if (op->kind == SW_OP_ALLOC) *entry = at + 1;
    if (op->kind == SW_OP_FREE) *entry = 0;
    return at;
}

static void count_live(maker *m, const sw_op *op, place *at) {
    uint64_t before = op->kind == SW_OP_ALLOC ? 0 : at->size;
    at->size = op->kind == SW_OP_FREE ? 0 : op->size;
    m->live_bytes += at->size - before;
    m->live_objects += (uint64_t)(op->kind == SW_OP_ALLOC) - (uint64_t)(op->kind == SW_OP_FREE);
}

static uint64_t what_of(const sw_op *op) {
    uint64_t most = (UINT64_C(1) << STEP_SIZE_BITS) - 1;
    return sw_min_u64(op->size, most) | (uint64_t)op->kind << STEP_KIND_SHIFT |
           (uint64_t)op->align_log2 << STEP_ALIGN_SHIFT |
           (uint64_t)((op->flags & SW_OP_ZEROED) != 0) << STEP_ZEROED;
}

static void place_end(maker *m, const sw_op *op) {
    plan *p = m->plan;
    p->steps[p->starts[op->thread] + m->builders[op->thread].placed++].what = what_of(op);
    p->ends++;
}

static void place_step(maker *m, const sw_op *op, uint64_t index) {
    plan *p = m->plan;
    if (op->kind == SW_OP_THREAD_END) {
        place_end(m, op);
        return;
    }
    uint32_t object = place_of(m, op, index);
    place *at = &m->places[object];
    builder *own = &m->builders[op->thread];
    uint64_t mine = p->starts[op->thread] + own->placed++;
    step *s = &p->steps[mine];
    *s = (step){.what = what_of(op), .object = object, .turn = at->turns};
    if (at->turns != 0 && at->last_thread != op->thread) {
        s->what |= UINT64_C(1) << STEP_WAITS;
        p->steps[at->last_step].what |= UINT64_C(1) << STEP_TELLS;
        p->crossings++;
    }
    count_live(m, op, at);
    at->last_step = mine;
    at->last_thread = op->thread;
    at->turns++;
    if (op->kind != SW_OP_FREE) return;
    at->next_free = own->free_places;
    own->free_places = object;
}

static void place_steps(maker *m) {
    plan *p = m->plan;
    uint32_t now = 0;
    for (uint64_t first = 0, count; first < p->count; first += count) {
        count = read_chunk(m, first);
        for (uint64_t i = 0; i < count; i++) {
            place_step(m, &m->chunk[i], first + i);
            epoch *e = &p->epochs[now];
            if (first + i + 1 < e->ops) continue;
            e->time_ns = m->chunk[i].time_ns;
            e->live_bytes = m->live_bytes;
            e->live_objects = m->live_objects;
            now++;
        }
    }
}

/* --- public ----------------------------------------------------------------------------------- */

static void release(void *array, uint64_t bytes) {
    if (array != NULL) (void)sw_os_release(array, bytes);
}

void plan_make(plan *out, int fd, const ops_head *head, uint32_t samples) {
    *out = (plan){.count = head->count};
    maker m = {.plan = out, .fd = fd};
    m.chunk = replay_map(CHUNK_OPS * sizeof(sw_op));
    cut_epochs(out, head, samples);
    uint64_t counts_bytes = (uint64_t)PLAN_THREADS_MAX * (out->epoch_count + 1) * sizeof(uint64_t);
    uint64_t *counts = replay_map(counts_bytes);
    count_steps(&m, counts);
    lay_out_threads(out, counts);
    release(counts, counts_bytes);
    out->steps = map_counted(out, (out->count + 1) * sizeof *out->steps);
    uint64_t builders_bytes = (out->thread_count + 1) * sizeof *m.builders;
    m.builders = replay_map(builders_bytes);
    for (uint32_t t = 0; t < out->thread_count; t++) m.builders[t].free_places = none;
    place_steps(&m);
    release(m.builders, builders_bytes);
    release(m.chunk, CHUNK_OPS * sizeof(sw_op));
    release(m.live, m.live_room * sizeof *m.live);
    release(m.places, m.places_room * sizeof *m.places);
    sw_check2(plan_check(out));
}
