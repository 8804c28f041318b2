/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the recorder's layout of CPython is that of the headers with which this was compiled.
 * Prints the fields that differ; exit status 1: some do. */
#define Py_BUILD_CORE
#include <Python.h>
#if PY_VERSION_HEX >= 0x030B0000
#include <internal/pycore_frame.h>
typedef _PyInterpreterFrame frame;
#else
#include <frameobject.h>
typedef struct _frame frame;
#endif
#if PY_VERSION_HEX >= 0x030D0000
#include <internal/pycore_runtime.h>
#endif

#include <stddef.h>
#include <stdio.h>

#include "recorder/python_layout.h"

#if PY_VERSION_HEX >= 0x030D0000
#define FRAME_CODE offsetof(frame, f_executable)
#define INSTRUCTION offsetof(frame, instr_ptr)
#define STATE_FRAME offsetof(PyThreadState, current_frame)
#elif PY_VERSION_HEX >= 0x030B0000
#define FRAME_CODE offsetof(frame, f_code)
#define INSTRUCTION offsetof(frame, prev_instr)
#define STATE_FRAME offsetof(PyThreadState, cframe)
#else
#define FRAME_CODE offsetof(frame, f_code)
#define INSTRUCTION offsetof(frame, f_lasti)
#define STATE_FRAME offsetof(PyThreadState, frame)
#endif
#if PY_VERSION_HEX >= 0x030B0000
#define PREVIOUS offsetof(frame, previous)
#define NAME offsetof(PyCodeObject, co_qualname)
#define INSTRUCTIONS offsetof(PyCodeObject, co_code_adaptive)
#else
#define PREVIOUS offsetof(frame, f_back)
#define NAME offsetof(PyCodeObject, co_name)
#define INSTRUCTIONS 0
#endif

static int differing;

static void compare(const char *field, size_t have, size_t want) {
    if (have == want) return;
    printf("%s is %zu, in the headers %zu\n", field, have, want);
    differing++;
}

#if PY_VERSION_HEX >= 0x030D0000
static const struct _Py_DebugOffsets runtime = {
    .cookie = "xdebugpy",
    .version = PY_VERSION_HEX,
    .thread_state = {.current_frame = STATE_FRAME},
    .interpreter_frame = {.previous = PREVIOUS, .executable = FRAME_CODE, .instr_ptr = INSTRUCTION},
    .code_object = {.filename = offsetof(PyCodeObject, co_filename),
                    .qualname = NAME,
                    .firstlineno = offsetof(PyCodeObject, co_firstlineno),
                    .co_code_adaptive = INSTRUCTIONS},
};
#else
static const int runtime;
#endif

int main(void) {
    record_python_layout at;
    const char *why = record_python_layout_of(PY_VERSION, &runtime, &at);
    if (why != NULL) {
        puts(why);
        return 1;
    }
#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030D0000
    compare("cframe_frame", at.cframe_frame, offsetof(_PyCFrame, current_frame));
#endif
#if PY_VERSION_HEX >= 0x030C0000 && PY_VERSION_HEX < 0x030D0000
    compare("frame_owner", at.frame_owner, offsetof(frame, owner));
#endif
    compare("references", 0, offsetof(PyObject, ob_refcnt));
    compare("type", 8, offsetof(PyObject, ob_type));
    compare("state_frame", at.state_frame, STATE_FRAME);
    compare("frame_code", at.frame_code, FRAME_CODE);
    compare("frame_previous", at.frame_previous, PREVIOUS);
    compare("frame_instruction", at.frame_instruction, INSTRUCTION);
    compare("code_first_line", at.code_first_line, offsetof(PyCodeObject, co_firstlineno));
    compare("code_file", at.code_file, offsetof(PyCodeObject, co_filename));
    compare("code_name", at.code_name, NAME);
    compare("code_instructions", at.code_instructions, INSTRUCTIONS);
    return differing != 0;
}
