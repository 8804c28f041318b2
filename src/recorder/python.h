/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites of CPython programs: the lines that the calling thread's Python frames are at, in place
 * of return addresses, which are all the interpreter's own. docs/design/recorder.md. */
#ifndef SW_RECORDER_PYTHON_H
#define SW_RECORDER_PYTHON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A Python frame: its code object, which lives as long as the frame, and where it is in it. */
typedef struct record_python_frame {
    const uint8_t *code;
    uint64_t place; /* number of the code object << 32 | offset of the instruction, in bytes */
} record_python_frame;

/* A bucket of the hash table of code objects by address. code is 0 while it is free, and stays after
 * that; number is 0 once the code object is gone. number is written before code. */
typedef struct record_python_code {
    uint64_t code;
    uint32_t number, padding;
} record_python_code;

/* The interpreter of this process. Written by whoever holds the interpreter's lock:
 *   found <= 3/4 of the buckets;  numbered <= RECORD_PYTHON_CODES_MAX;  codes != NULL where on */
typedef struct record_interpreter {
    bool on;                  /* frames are read */
    bool checked;             /* its objects come from malloc */
    uint32_t found, numbered; /* addresses in the table; numbers given to code objects */
    record_python_code *codes;
    void (*free)(void *); /* the free underneath ours */
    void *(*own_state)(void);
    void *(*running_state)(void);
    int (*line)(const void *code, int offset);
    ptrdiff_t (*length)(const void *text);
    uint32_t (*character)(const void *text, ptrdiff_t index);
    const char *(*allocator)(void);
    const void *code_type;
} record_interpreter;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *record_interpreter_check(const record_interpreter *interpreter);

enum {
    RECORD_PYTHON_CODE_BITS = 17,      /* of the table of code objects */
    RECORD_PYTHON_CODES_MAX = 1 << 24, /* numbers of code objects */
};

/* Looks for an interpreter whose frames are known, when that was asked for. One line says so where
 * there is one of another version. False: no memory. */
bool record_python_init(void);

/* The frames of the calling thread, innermost first, at most `max` >= 1. 0: the thread does not run
 * Python now, or nothing is known of its interpreter. Nothing is allocated, and no lock is taken but
 * to write the function of a code object that was not met before. */
size_t record_python_walk(record_python_frame *frames, size_t max);

/* The line that a frame of the walk is at, as an address in the module that stands for its function
 * in the recording (docs/design/trace.md). */
uint64_t record_python_line(const record_python_frame *frame);

void record_python_after_fork(void);

#endif
