/* SPDX-License-Identifier: Apache-2.0 */
/* A model of pymalloc, CPython's allocator for small objects. Recordings are made with
 * PYTHONMALLOC=malloc; the model replays them and says what the same program holds in arenas when
 * it runs as usual.
 *
 *   sw_pymalloc_options options = {.arena_bytes = 1 << 20, .pool_bytes = 1 << 14};
 *   sw_pymalloc *model;  sw_pymalloc_create(&options, &model);
 *   sw_pymalloc_run(model, ops, count);
 *   sw_pymalloc_state state;  sw_pymalloc_get_state(model, &state);
 *
 * Design: docs/design/pymalloc.md. Thread rule: one thread at a time per object.
 */
#ifndef SPANWISE_PYMALLOC_H
#define SPANWISE_PYMALLOC_H

#include <spanwise/ops.h>
#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_pymalloc sw_pymalloc;

enum {
    SW_PYMALLOC_SMALL_MAX = 512,   /* larger requests go to malloc */
    SW_PYMALLOC_POOLS_MAX = 256,   /* of an arena */
    SW_PYMALLOC_HEADER_BYTES = 48, /* of a pool */
};

/* The arrays must outlive the model; they may be NULL if their counts are 0. */
typedef struct sw_pymalloc_options {
    uint64_t arena_bytes;
    uint64_t pool_bytes; /* a power of two, 4 KiB to 16 KiB */
    uint64_t pools;      /* usable pools of an arena; 0: arena_bytes / pool_bytes. There is one less
                          * if an arena's address is no multiple of pool_bytes. */
    const uint8_t *outside; /* outside[site] != 0: the site calls malloc itself */
    size_t outside_count;
    const uint64_t *aside; /* ascending numbers of operations, the first being 0: the objects that
                            * these place are not in the arenas */
    size_t aside_count;
} sw_pymalloc_options;

typedef struct sw_pymalloc_state {
    uint64_t ops; /* so far */
    uint64_t arenas, peak_arenas;
    uint64_t arena_bytes;     /* of all arenas */
    uint64_t resident_bytes;  /* of these, pages that have been written */
    uint64_t pools;           /* with blocks */
    uint64_t blocks;          /* live */
    uint64_t slot_bytes;      /* of live blocks: requested_bytes and round-up */
    uint64_t requested_bytes; /* by live blocks */
    uint64_t skipped;         /* impossible operations: free of a dead object, an id in use, ... */
} sw_pymalloc_state;

/* A live block. */
typedef struct sw_pymalloc_block {
    uint64_t op;          /* number of the operation that placed it */
    uint32_t object;      /* id */
    uint32_t site;        /* that placed it */
    uint32_t arena, pool; /* arena: index; pool: index among the pools of all arenas */
    uint32_t size, slot_bytes;
} sw_pymalloc_block;

/* Create a model. Errors: SW_INVALID: impossible options; SW_NOMEM. */
SW_API sw_status sw_pymalloc_create(const sw_pymalloc_options *options, sw_pymalloc **out);
/* Destroy a model. NULL is ignored. */
SW_API void sw_pymalloc_destroy(sw_pymalloc *model);
/* Replay ops[0..count). Errors: SW_INVALID: an unknown kind; SW_NOMEM. */
SW_API sw_status sw_pymalloc_run(sw_pymalloc *model, const sw_op *ops, size_t count);
/* Return what the model holds now in *out. */
SW_API void sw_pymalloc_get_state(const sw_pymalloc *model, sw_pymalloc_state *out);
/* Copy up to `capacity` live blocks, by object id; return how many there are. */
SW_API size_t sw_pymalloc_blocks(const sw_pymalloc *model, sw_pymalloc_block *rows,
                                 size_t capacity);

#ifdef __cplusplus
}
#endif
#endif
