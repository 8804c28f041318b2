/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the recorder, from the environment. */
#ifndef SW_RECORDER_OPTIONS_H
#define SW_RECORDER_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    RECORD_PATH_MAX = 4096,
    RECORD_STACKS = 16,        /* default number of return addresses per call site */
    RECORD_PYTHON_STACKS = 40, /* default number of lines of Python per call site */
};

/* Set once, before anything is recorded.
 *   stacks, python_stacks <= SWT_SITE_DEPTH_MAX;  shallow == (stacks == 1 && python_stacks == 0)
 *   file is absolute or "" */
typedef struct record_options {
    char file[RECORD_PATH_MAX];  /* absolute; "": no recording */
    uint32_t stacks;             /* return addresses per call site; 0: no call sites are recorded */
    uint32_t python_stacks;      /* lines of Python, if the thread runs Python; 0: not read */
    bool shallow;                /* a call site is one return address, looked up inline */
    bool children;               /* record child processes to their own files */
    uint64_t sample;             /* mean bytes between sample points; 0: every object is recorded */
    uint64_t root;               /* the process that FILE belongs to; 0: this process */
    char areas[RECORD_PATH_MAX]; /* folder for files of areas; "": open blocks are in private
                                  * memory */
} record_options;

const char *record_options_check(const record_options *options);

extern record_options record_option;

/* Reads the environment. If a value is malformed, prints a line and keeps the default. False: this
 * process records nothing. */
bool record_read_options(void);

#endif
