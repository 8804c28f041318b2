/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the recorder, from the environment. */
#ifndef SW_RECORDER_OPTIONS_H
#define SW_RECORDER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RECORD_PATH_MAX = 4096,
    RECORD_STACKS = 8, /* of a call site, unless asked otherwise */
};

/* Read once, before anything is recorded.
 *   stacks <= SWT_SITE_DEPTH_MAX;  shallow == (stacks == 1 && !python)
 *   file is absolute or "" */
typedef struct record_options {
    char file[RECORD_PATH_MAX]; /* absolute; "" when recording was not asked for */
    uint32_t stacks;            /* return addresses of a call site; 0: no call sites are recorded */
    bool python;                /* call sites of CPython are lines of Python, where it runs any */
    bool shallow;               /* a call site is one return address, looked up inline */
    bool children;              /* record child processes to files of their own */
    uint64_t root;              /* process that FILE belongs to; 0: not stated, so it is this one */
    char areas[RECORD_PATH_MAX]; /* folder for files of areas; "": open blocks in private memory */
} record_options;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *record_options_check(const record_options *options);

extern record_options record_option;

/* Reads the environment. For a malformed value one line is printed, and the default stays. False:
 * this process has nothing to record. */
bool record_read_options(void);

#endif
