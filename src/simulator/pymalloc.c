/* SPDX-License-Identifier: Apache-2.0 */
/* The model of pymalloc (spanwise/pymalloc.h). It has no addresses: which block of a pool an object
 * gets changes nothing, so a pool is the number of its live blocks and of those carved from it.
 * Which pool, and from which arena it comes, follows the rules of CPython 3.9 to 3.14
 * (docs/design/pymalloc.md).
 */
#include <inttypes.h>

#include "base/base.h"
#include "ds/handle.h"
#include "simulator/growth.h"
#include "spanwise/pymalloc.h"

enum { GRANULE = 16, CLASSES = SW_PYMALLOC_SMALL_MAX / GRANULE, PAGE_BYTES = 4096 };
#define NONE UINT32_MAX

/* A pool. It is in the list of its class's used pools if 0 < live < blocks that fit, in its arena's
 * list of free pools if live == 0, and in no list if it is full.
 *   live <= carved <= blocks that fit;  carved > live unless it is full
 *   pages <= pool_bytes / PAGE_BYTES */
typedef struct pool {
    uint32_t next, prev; /* NONE: the first, the last; free pools have no prev */
    uint16_t live;       /* blocks */
    uint16_t carved;     /* blocks that have been handed out once, and the next one */
    uint16_t pages;      /* written since the arena was mapped */
    uint8_t cls;         /* of its blocks, of the latest ones if it is free */
    bool is_new;         /* it was not used since the arena was mapped */
} pool;

/* An arena. It is in the list of usable arenas, which is sorted by free_pools, if it has any.
 *   free_pools == pools in the list free + pools that were never used */
typedef struct arena {
    uint32_t next, prev; /* usable arenas; NONE: the last, the first */
    uint32_t free;       /* its free pools, latest first */
    uint32_t used_once;  /* pools that have been used */
    uint32_t free_pools;
    bool is_mapped;
} arena;

/* The object that currently has an id. */
typedef struct object {
    uint64_t op : 48; /* that placed it */
    uint64_t size : 16;
    uint32_t site;
    uint32_t pool; /* its pool + 1; 0: it is not live; NONE: it is not in an arena */
} object;

/*   last[n]: the last usable arena with n free pools, or NONE
 *   state.slot_bytes >= state.requested_bytes */
struct sw_pymalloc {
    uint64_t mark; /* ds/handle.h */
    sw_pymalloc_options options;
    uint32_t pools_per_arena;
    size_t next_aside; /* index in options.aside of the first operation that is still to come */
    object *objects;   /* by id */
    size_t object_capacity;
    pool *pools; /* pools_per_arena for each arena */
    size_t pool_capacity;
    arena *arenas;
    size_t arena_capacity;
    uint32_t arena_count;   /* arenas with an index, mapped or not */
    uint32_t unmapped;      /* arenas that are not mapped, latest first */
    uint32_t usable;        /* the usable arena with the fewest free pools */
    uint32_t used[CLASSES]; /* used pools, of which the first is allocated from */
    uint16_t fit[CLASSES];  /* blocks that fit into a pool */
    uint32_t last[SW_PYMALLOC_POOLS_MAX + 1];
    sw_pymalloc_state state;
};

#define MARK offsetof(sw_pymalloc, mark)

static uint32_t slot_bytes_of(uint32_t cls) { return (cls + 1) * GRANULE; }

/* --- arenas ----------------------------------------------------------------------------------- */

static bool map_arena(sw_pymalloc *model) {
    uint32_t index = model->unmapped;
    if (index == NONE) {
        index = model->arena_count;
        size_t last_pool = ((size_t)index + 1) * model->pools_per_arena - 1;
        if (index >= model->arena_capacity &&
            !sw_grow((void **)&model->arenas, &model->arena_capacity, index, sizeof(arena)))
            return false;
        if (last_pool >= model->pool_capacity &&
            !sw_grow((void **)&model->pools, &model->pool_capacity, last_pool, sizeof(pool)))
            return false;
        model->arena_count++;
    } else {
        model->unmapped = model->arenas[index].next;
    }
    uint32_t pools = model->pools_per_arena;
    model->arenas[index] =
        (arena){.next = NONE, .prev = NONE, .free = NONE, .free_pools = pools, .is_mapped = true};
    memset(&model->pools[(size_t)index * pools], 0, pools * sizeof(pool));
    model->usable = model->last[pools] = index;
    if (++model->state.arenas > model->state.peak_arenas)
        model->state.peak_arenas = model->state.arenas;
    return true;
}

static void unlink_arena(sw_pymalloc *model, arena *a) {
    if (a->prev == NONE)
        model->usable = a->next;
    else
        model->arenas[a->prev].next = a->next;
    if (a->next != NONE) model->arenas[a->next].prev = a->prev;
}

static void unmap_arena(sw_pymalloc *model, uint32_t index) {
    arena *a = &model->arenas[index];
    unlink_arena(model, a);
    const pool *p = &model->pools[(size_t)index * model->pools_per_arena];
    for (uint32_t i = 0; i < a->used_once; i++)
        model->state.resident_bytes -= (uint64_t)p[i].pages * PAGE_BYTES;
    a->is_mapped = false;
    a->next = model->unmapped;
    model->unmapped = index;
    model->state.arenas--;
}

/* Moves an arena whose free pools have just become one more after those with as many as it had
 * before; after: the last of them. */
static void move_arena(sw_pymalloc *model, uint32_t index, uint32_t after) {
    arena *a = &model->arenas[index];
    unlink_arena(model, a);
    arena *left = &model->arenas[after];
    a->prev = after;
    a->next = left->next;
    if (a->next != NONE) model->arenas[a->next].prev = index;
    left->next = index;
}

/* --- pools ------------------------------------------------------------------------------------ */

/* Takes a free pool from the usable arena with the fewest. NONE: no memory. */
static uint32_t take_pool(sw_pymalloc *model) {
    if (model->usable == NONE && !map_arena(model)) return NONE;
    uint32_t index = model->usable;
    arena *a = &model->arenas[index];
    if (model->last[a->free_pools] == index) model->last[a->free_pools] = NONE;
    if (a->free_pools > 1) model->last[a->free_pools - 1] = index;
    uint32_t taken = a->free;
    if (taken != NONE) {
        a->free = model->pools[taken].next;
    } else {
        taken = index * model->pools_per_arena + a->used_once++;
        model->pools[taken].is_new = true;
    }
    if (--a->free_pools == 0) {
        model->usable = a->next;
        if (a->next != NONE) model->arenas[a->next].prev = NONE;
    }
    model->state.pools++;
    return taken;
}

/* Returns a pool without blocks to its arena, and the arena to the system if all its pools are
 * free, but for the usable arena that is last. */
static void return_pool(sw_pymalloc *model, uint32_t freed) {
    uint32_t index = freed / model->pools_per_arena;
    arena *a = &model->arenas[index];
    uint32_t had = a->free_pools, last = model->last[had];
    model->pools[freed].next = a->free;
    a->free = freed;
    model->state.pools--;
    if (last == index && had != 0) {
        bool same = a->prev != NONE && model->arenas[a->prev].free_pools == had;
        model->last[had] = same ? a->prev : NONE;
    }
    a->free_pools = ++had;
    if (had == model->pools_per_arena && had > 1 && a->next != NONE) {
        unmap_arena(model, index);
        return;
    }
    if (had == 1) {
        a->next = model->usable;
        a->prev = NONE;
        if (a->next != NONE) model->arenas[a->next].prev = index;
        model->usable = index;
    }
    if (model->last[had] == NONE) model->last[had] = index;
    if (had > 1 && last != index) move_arena(model, index, last);
}

static void link_used(sw_pymalloc *model, uint32_t which) {
    pool *p = &model->pools[which];
    uint32_t first = model->used[p->cls];
    p->prev = NONE;
    p->next = first;
    if (first != NONE) model->pools[first].prev = which;
    model->used[p->cls] = which;
}

static void unlink_used(sw_pymalloc *model, const pool *p) {
    if (p->prev == NONE)
        model->used[p->cls] = p->next;
    else
        model->pools[p->prev].next = p->next;
    if (p->next != NONE) model->pools[p->next].prev = p->prev;
}

/* Counts the pages of blocks that have been handed out, and of the link in the next one. */
static void note_pages(sw_pymalloc *model, pool *p) {
    uint32_t slot = slot_bytes_of(p->cls);
    uint32_t bytes = p->live == p->carved ? p->carved * slot
                                          : (p->carved - 1u) * slot + (uint32_t)sizeof(uint64_t);
    uint16_t pages = (uint16_t)sw_div_up(SW_PYMALLOC_HEADER_BYTES + bytes, PAGE_BYTES);
    if (pages <= p->pages) return;
    model->state.resident_bytes += (uint64_t)(pages - p->pages) * PAGE_BYTES;
    p->pages = pages;
}

/* Returns the pool with a new block of the class. NONE: no memory. */
static uint32_t place_block(sw_pymalloc *model, uint32_t cls) {
    uint32_t which = model->used[cls];
    if (which == NONE) {
        which = take_pool(model);
        if (which == NONE) return NONE;
        pool *fresh = &model->pools[which];
        if (fresh->is_new || fresh->cls != cls) fresh->carved = 2;
        fresh->is_new = false;
        fresh->cls = (uint8_t)cls;
        link_used(model, which);
    }
    pool *p = &model->pools[which];
    if (++p->live == p->carved) {
        if (p->carved < model->fit[cls])
            p->carved++;
        else
            unlink_used(model, p);
    }
    note_pages(model, p);
    return which;
}

static void drop_block(sw_pymalloc *model, uint32_t which) {
    pool *p = &model->pools[which];
    if (p->live-- == model->fit[p->cls]) link_used(model, which);
    if (p->live != 0) return;
    unlink_used(model, p);
    return_pool(model, which);
}

/* --- operations ------------------------------------------------------------------------------- */

static bool is_aside(sw_pymalloc *model, uint64_t op) {
    const sw_pymalloc_options *o = &model->options;
    if (model->next_aside == o->aside_count || o->aside[model->next_aside] != op) return false;
    model->next_aside++;
    return true;
}

static void count_block(sw_pymalloc *model, const object *o, int64_t sign) {
    model->state.blocks += (uint64_t)sign;
    model->state.requested_bytes += (uint64_t)(sign * (int64_t)o->size);
    uint64_t slot = slot_bytes_of(model->pools[o->pool - 1].cls);
    model->state.slot_bytes += (uint64_t)(sign * (int64_t)slot);
}

static void drop(sw_pymalloc *model, object *o) {
    if (o->pool != NONE) {
        count_block(model, o, -1);
        drop_block(model, o->pool - 1);
    }
    o->pool = 0;
}

/* Places an object, in an arena or outside. False: no memory. */
static bool put(sw_pymalloc *model, object *o, const sw_op *op, bool is_out) {
    *o = (object){.op = model->state.ops & ((UINT64_C(1) << 48) - 1), .site = op->site};
    o->pool = NONE;
    if (is_out || op->size == 0 || op->size > SW_PYMALLOC_SMALL_MAX || op->align_log2 != 0)
        return true;
    uint32_t which = place_block(model, (uint32_t)(op->size - 1) / GRANULE);
    if (which == NONE) return false;
    o->size = op->size & UINT16_MAX;
    o->pool = which + 1;
    count_block(model, o, 1);
    return true;
}

/* A block that shrinks by less than a quarter of its slot stays where it is. Others move; the new
 * one is placed before the old one is freed. What is outside stays outside. */
static bool resize(sw_pymalloc *model, object *o, const sw_op *op, bool is_out) {
    if (o->pool == NONE) return true;
    uint32_t slot = slot_bytes_of(model->pools[o->pool - 1].cls);
    object old = *o;
    if (!is_out && op->size <= slot && 4 * op->size > 3 * (uint64_t)slot) {
        model->state.requested_bytes += op->size - o->size;
        o->size = op->size & UINT16_MAX;
        o->op = model->state.ops & ((UINT64_C(1) << 48) - 1);
        o->site = op->site;
        return true;
    }
    if (!put(model, o, op, is_out)) return false;
    drop(model, &old);
    return true;
}

static sw_status run_one(sw_pymalloc *model, const sw_op *op) {
    const sw_pymalloc_options *options = &model->options;
    bool is_out = is_aside(model, model->state.ops) ||
                  (op->site < options->outside_count && options->outside[op->site] != 0);
    if (op->kind >= SW_OP_KIND_COUNT)
        return sw_fail(SW_INVALID, "pymalloc_run", "op %" PRIu64 ": kind %u is unknown",
                       model->state.ops, op->kind);
    if (op->kind == SW_OP_THREAD_END) return SW_OK;
    if (op->object >= model->object_capacity &&
        !sw_grow((void **)&model->objects, &model->object_capacity, op->object, sizeof(object)))
        return sw_fail(SW_NOMEM, "pymalloc_run", "no memory for object %u", op->object);
    object *o = &model->objects[op->object];
    if ((op->kind == SW_OP_ALLOC) != (o->pool == 0)) {
        model->state.skipped++;
        return SW_OK;
    }
    bool done = true;
    if (op->kind == SW_OP_ALLOC)
        done = put(model, o, op, is_out);
    else if (op->kind == SW_OP_REALLOC)
        done = resize(model, o, op, is_out);
    else
        drop(model, o);
    return done ? SW_OK : sw_fail(SW_NOMEM, "pymalloc_run", "no memory for an arena");
}

/* --- public ----------------------------------------------------------------------------------- */

static sw_status options_status(const sw_pymalloc_options *o) {
    const char *op = "pymalloc_create";
    if (o == NULL) return sw_fail_null(op, "options");
    bool whole = sw_is_pow2(o->pool_bytes) && o->pool_bytes >= PAGE_BYTES && o->pool_bytes <= 16384;
    uint64_t most = whole ? o->arena_bytes / o->pool_bytes : 0;
    if (most == 0 || most > SW_PYMALLOC_POOLS_MAX || o->pools > most)
        return sw_fail(SW_INVALID, op, "%" PRIu64 " pools of %" PRIu64 " bytes in %" PRIu64,
                       o->pools, o->pool_bytes, o->arena_bytes);
    if ((o->outside == NULL && o->outside_count != 0) || (o->aside == NULL && o->aside_count != 0))
        return sw_fail_null(op, o->outside == NULL ? "outside" : "aside");
    return SW_OK;
}

sw_status sw_pymalloc_create(const sw_pymalloc_options *options, sw_pymalloc **out) {
    sw_status status = options_status(options);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("pymalloc_create", "out");
    sw_pymalloc *model = sw_os_map(sizeof *model);
    if (model == NULL) return sw_fail(SW_NOMEM, "pymalloc_create", "no memory for a model");
    model->options = *options;
    uint64_t pools = options->pools;
    if (pools == 0) pools = options->arena_bytes / options->pool_bytes;
    model->pools_per_arena = (uint32_t)pools;
    model->unmapped = model->usable = NONE;
    uint64_t room = options->pool_bytes - SW_PYMALLOC_HEADER_BYTES;
    for (uint32_t i = 0; i < CLASSES; i++) {
        model->used[i] = NONE;
        model->fit[i] = (uint16_t)(room / slot_bytes_of(i));
    }
    for (uint32_t i = 0; i <= SW_PYMALLOC_POOLS_MAX; i++) model->last[i] = NONE;
    sw_handle_begin(&model->mark, SW_HANDLE_PYMALLOC);
    *out = model;
    return SW_OK;
}

void sw_pymalloc_destroy(sw_pymalloc *model) {
    const char *op = "pymalloc_destroy";
    if (model == NULL || !sw_handle_check(model, MARK, SW_HANDLE_PYMALLOC, op)) return;
    if (!sw_handle_try_end(&model->mark, SW_HANDLE_PYMALLOC)) return;
    if (model->objects != NULL)
        (void)sw_os_release(model->objects, model->object_capacity * sizeof(object));
    if (model->pools != NULL)
        (void)sw_os_release(model->pools, model->pool_capacity * sizeof(pool));
    if (model->arenas != NULL)
        (void)sw_os_release(model->arenas, model->arena_capacity * sizeof(arena));
    sw_handle_retire(model, sizeof *model, sizeof model->mark, SW_HANDLE_PYMALLOC);
}

sw_status sw_pymalloc_run(sw_pymalloc *model, const sw_op *ops, size_t count) {
    sw_status status = sw_handle_status(model, MARK, SW_HANDLE_PYMALLOC, "pymalloc_run");
    if (status != SW_OK) return status;
    if (ops == NULL && count != 0) return sw_fail_null("pymalloc_run", "ops");
    enum { AHEAD = 16 };
    for (size_t i = 0; i < count && status == SW_OK; i++) {
        if (i + AHEAD < count && ops[i + AHEAD].object < model->object_capacity)
            __builtin_prefetch(&model->objects[ops[i + AHEAD].object], 1);
        status = run_one(model, &ops[i]);
        if (status == SW_OK) model->state.ops++;
    }
    return status;
}

void sw_pymalloc_get_state(const sw_pymalloc *model, sw_pymalloc_state *out) {
    if (!sw_handle_check(model, MARK, SW_HANDLE_PYMALLOC, "pymalloc_get_state") || out == NULL)
        return;
    *out = model->state;
    out->arena_bytes = out->arenas * model->options.arena_bytes;
}

size_t sw_pymalloc_blocks(const sw_pymalloc *model, sw_pymalloc_block *rows, size_t capacity) {
    if (!sw_handle_check(model, MARK, SW_HANDLE_PYMALLOC, "pymalloc_blocks")) return 0;
    size_t count = 0;
    for (size_t id = 0; id < model->object_capacity; id++) {
        const object *o = &model->objects[id];
        if (o->pool == 0 || o->pool == NONE) continue;
        uint32_t which = o->pool - 1;
        if (rows != NULL && count < capacity)
            rows[count] = (sw_pymalloc_block){.op = o->op,
                                              .object = (uint32_t)id,
                                              .site = o->site,
                                              .arena = which / model->pools_per_arena,
                                              .pool = which,
                                              .size = o->size,
                                              .slot_bytes = slot_bytes_of(model->pools[which].cls)};
        count++;
    }
    return count;
}
