/* SPDX-License-Identifier: Apache-2.0 */
/* Where a version of CPython keeps its frames and code objects. */
#ifndef SW_RECORDER_PYTHON_LAYOUT_H
#define SW_RECORDER_PYTHON_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

/* Offsets in bytes in the structs of one minor version, 64 bits, with a GIL. */
typedef struct record_python_layout {
    uint8_t minor;         /* 3.minor */
    bool has_cframe;       /* the thread state points to a struct that points to the frame */
    uint8_t unit_bytes;    /* of the index of an instruction that a frame has; 0: it has a pointer
                            * into the code object instead */
    uint16_t state_frame;  /* in the thread state: the frame, or the struct that points to it */
    uint16_t cframe_frame; /* in that struct */
    uint16_t frame_code;   /* in a frame */
    uint16_t frame_previous;
    uint16_t frame_instruction;
    uint16_t frame_owner;     /* 3 in frames of the interpreter itself; 0: not used */
    uint16_t code_first_line; /* in a code object */
    uint16_t code_file;
    uint16_t code_name;
    uint16_t code_instructions; /* only where unit_bytes is 0 */
} record_python_layout;

/* Finds the layout. version: the text of Py_GetVersion. runtime: _PyRuntime, read where the version
 * publishes its offsets in it (3.13 and later). Returns NULL, or why lines cannot be read. */
const char *record_python_layout_of(const char *version, const void *runtime,
                                    record_python_layout *out);

#endif
