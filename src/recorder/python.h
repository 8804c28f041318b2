/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites of CPython programs: the current lines of the calling thread's Python frames, because
 * all return addresses are in the interpreter. See docs/design/recorder.md. */
#ifndef SW_RECORDER_PYTHON_H
#define SW_RECORDER_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/os.h"
#include "recorder/python_layout.h"

/* A Python frame: its code object, which lives as long as the frame, and its current
 * instruction. */
typedef struct record_python_frame {
    const uint8_t *code;
    uint64_t place; /* number of the code object << 32 | offset of the instruction, in bytes */
} record_python_frame;

/* A bucket of the hash table of code objects by address. code is 0 in a free bucket, and never
 * changes once set. number is 0 once the code object is freed. number is written before code, so
 * that a reader that sees code also sees number. */
typedef struct record_python_code {
    uint64_t code;
    uint32_t number, padding;
} record_python_code;

/* The interpreter of this process. Under its lock:
 *   found <= 3/4 of the buckets;  numbered <= RECORD_PYTHON_CODES_MAX;  codes != NULL if on */
typedef struct record_interpreter {
    sw_os_lock lock; /* held while a function is entered and written */
    record_python_layout at;
    bool on;                  /* frames are read */
    bool checked;             /* Python objects are known to come from malloc */
    uint32_t found, numbered; /* addresses in the table; code objects with a number */
    record_python_code *codes;
    void (*free)(void *); /* the real free */
    void *(*own_state)(void);
    void *(*running_state)(void);
    int (*line)(const void *code, int offset);
    ptrdiff_t (*length)(const void *text);
    uint32_t (*character)(const void *text, ptrdiff_t index);
    const char *(*allocator)(void);
    const void *code_type;
} record_interpreter;

const char *record_interpreter_check(const record_interpreter *interpreter);

enum {
    RECORD_PYTHON_CODE_BITS = 17,      /* of the table of code objects */
    RECORD_PYTHON_CODES_MAX = 1 << 24, /* numbers of code objects */
};

/* If Python lines are requested, looks for an interpreter with a known layout; prints a line if it
 * has none. False: no memory. */
bool record_python_init(void);

/* Fills in the frames of the calling thread, innermost first, at most `max` >= 1, and returns their
 * number. 0: the thread does not run Python now, or its interpreter is unknown. It allocates
 * nothing, and takes a lock only to write the function of a new code object. */
size_t record_python_walk(record_python_frame *frames, size_t max);

/* Returns the line of a frame, as an address in the module that represents the function in the
 * recording (docs/design/trace.md). */
uint64_t record_python_line(const record_python_frame *frame);

void record_python_after_fork(void);

#endif
