/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of spanwise-replay:
 *
 *   spanwise-replay OPS [touch=none|ends|pages|all] [samples=N] [drain=MS,MS,...]
 *                       [malloc=NAME] [table=PAGE_BYTES/SIZE:PAGES:FIRST,...] [ledger=OPS_DONE]
 *
 * OPS is a file of ops_head and operations. malloc= refuses to go on unless malloc comes from a
 * library whose file name begins so: the loader only warns of a preload that it cannot find. table=
 * plays on a heap of ours with that table instead of malloc and free. ledger= plays, by one thread
 * and untimed, on such a heap that is tracked, and prints its ledger after so many operations and
 * at the end.
 */
#ifndef SW_PLAYER_OPTIONS_H
#define SW_PLAYER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "player/play.h"
#include "spanwise/sizeclass.h"

enum { REPLAY_DRAINS_MAX = 16 };

typedef struct replay_options {
    const char *path;  /* of the file of operations */
    const char *table; /* the heap to play on has this table; NULL: malloc and free are played on */
    const char *malloc; /* how the file name of malloc's library has to begin; NULL: in any way */
    touch touch;
    uint32_t samples;   /* about how many times memory is sampled */
    bool ledger;        /* an untimed replay on a tracked heap, which prints its ledgers */
    uint64_t ledger_op; /* the first ledger is taken after so many operations */
    uint32_t drain_ms[REPLAY_DRAINS_MAX]; /* after everything was freed, memory is sampled then */
    uint32_t drains;
} replay_options;

/* Reads the command line. Where it is wrong the process ends. */
replay_options replay_read_options(int argc, char **argv);
/* The table of the option: the built-in one where the classes are its own, because its specialised
 * paths serve then; else one that is made now. */
const sw_table *replay_make_table(const char *text);

#endif
