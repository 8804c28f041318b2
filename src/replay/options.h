/* SPDX-License-Identifier: Apache-2.0 */
/* The command line of spanwise-replay:
 *
 *   spanwise-replay OPS [touch=none|ends|pages|all] [samples=N] [drain=MS,MS,...]
 *                       [malloc=NAME] [table=PAGE_BYTES/SIZE:PAGES:FIRST,...] [ledger=OPS_DONE]
 *
 * OPS is a file of ops_head and operations. malloc= ends the process unless malloc comes from a
 * library whose file name begins with NAME; without it a preload that the loader cannot find would
 * only be a warning. table= replays on a spanwise heap with that table instead of malloc and free.
 * ledger= replays untimed, in one thread, on a tracked heap with the table, and prints its ledger
 * after so many operations and at the end.
 */
#ifndef SW_PLAYER_OPTIONS_H
#define SW_PLAYER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "replay/play.h"
#include "spanwise/sizeclass.h"

enum { REPLAY_DRAINS_MAX = 16 };

typedef struct replay_options {
    const char *path;   /* of the file of operations */
    const char *table;  /* the table of the heap to replay on; NULL: malloc and free */
    const char *malloc; /* prefix of the file name of malloc's library; NULL: any library */
    touch touch;
    uint32_t samples;   /* approximate number of samples of memory */
    bool ledger;        /* untimed replay on a tracked heap, which prints its ledgers */
    uint64_t ledger_op; /* number of operations before the first ledger */
    uint32_t drain_ms[REPLAY_DRAINS_MAX]; /* times in ms after everything was freed at which memory
                                           * is sampled */
    uint32_t drains;
} replay_options;

/* Reads the command line. On an error the process ends with a message. */
replay_options replay_read_options(int argc, char **argv);
/* Returns the table of the option table=: a built-in table with the same classes, because it has
 * specialised paths, or else a new table. */
const sw_table *replay_make_table(const char *text);

#endif
