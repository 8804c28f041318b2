/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the frames of CPython directly from memory: the interpreter's own functions would allocate
 * frame objects. Frames are stable only for the thread that holds the interpreter's lock, so only
 * calls of that thread get Python lines. Layouts: recorder/python_layout.h.
 *
 * A function gets a number when it is first seen, and is written at once as a module, so that the
 * recording of a killed program has its name. When a code object is freed, free_watched clears its
 * number, because another code object may get the same memory. */
#define _GNU_SOURCE
#include "recorder/python.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"
#include "recorder/file.h"
#include "recorder/memory.h"
#include "recorder/real.h"
#include "recorder/state.h"
#include "trace/raw.h"

/* In every object, 64 bits, with a GIL. Only the lower half of the count is read: since 3.14 the
 * upper one has flags. */
enum { OBJECT_REFERENCES = 0, OBJECT_TYPE = 8 };

enum {
    OWNED_BY_C = 3, /* the owner of frames that 3.12 enters for itself */
    TAG_BITS = 3,   /* of pointers in frames, since 3.14 */
    LINE_BITS = 20,
    LAST_LINE = (1 << LINE_BITS) - 1,
    NAME_BYTES = 3072, /* of the name and of the file; longer ones are truncated */
    NO_INSTRUCTION = UINT32_MAX,
};

static record_interpreter interpreter;

static size_t table_bytes(void) { return sizeof(record_python_code) << RECORD_PYTHON_CODE_BITS; }

static const uint8_t *pointer_at(const uint8_t *object, size_t offset) {
    const uint8_t *value;
    memcpy(&value, object + offset, sizeof value);
    return value;
}

static int32_t number_at(const uint8_t *object, size_t offset) {
    int32_t value;
    memcpy(&value, object + offset, sizeof value);
    return value;
}

/* --- finding the interpreter ------------------------------------------------------------------ */

static bool symbol(const char *name, void *out) {
    void *found = dlsym(RTLD_DEFAULT, name);
    if (found != NULL) memcpy(out, &found, sizeof found);
    return found != NULL;
}

static record_python_code *bucket_of(uint64_t code, uint64_t *found) {
    uint64_t mask = (1ull << RECORD_PYTHON_CODE_BITS) - 1;
    for (uint64_t i = code * 0x9E3779B97F4A7C15ull >> (64 - RECORD_PYTHON_CODE_BITS);;
         i = (i + 1) & mask) {
        *found = __atomic_load_n(&interpreter.codes[i].code, __ATOMIC_ACQUIRE);
        if (*found == code || *found == 0) return &interpreter.codes[i];
    }
}

/* Replaces the real free while Python lines are recorded, so that programs without Python do not
 * pay for it. */
static void free_watched(void *ptr) {
    uint64_t found;
    record_python_code *bucket = bucket_of((uintptr_t)ptr, &found);
    if (found != 0) __atomic_store_n(&bucket->number, 0, __ATOMIC_RELAXED);
    interpreter.free(ptr);
}

static bool find_functions(void) {
    return symbol("PyGILState_GetThisThreadState", &interpreter.own_state) &&
           (symbol("PyThreadState_GetUnchecked", &interpreter.running_state) ||
            symbol("_PyThreadState_UncheckedGet", &interpreter.running_state)) &&
           symbol("PyCode_Addr2Line", &interpreter.line) &&
           symbol("PyUnicode_GetLength", &interpreter.length) &&
           symbol("PyUnicode_ReadChar", &interpreter.character) &&
           symbol("_PyMem_GetCurrentAllocatorName", &interpreter.allocator) &&
           symbol("PyCode_Type", &interpreter.code_type);
}

/* Whether the program is a CPython that can be read. If it is another one, prints why. */
static bool find_interpreter(void) {
    const char *(*version)(void);
    const void *runtime;
    if (!symbol("Py_GetVersion", &version)) return false;
    const char *why = "Python lines need CPython 3.9 to 3.14";
    if (symbol("_PyRuntime", &runtime) && find_functions())
        why = record_python_layout_of(version(), runtime, &interpreter.at);
    if (why != NULL)
        sw_emergency_print("spanwise: record: %s; call sites are the interpreter's own\n", why);
    return why == NULL;
}

bool record_python_init(void) {
    if (record_option.python_stacks == 0 || !find_interpreter()) return true;
    if (interpreter.codes != NULL) /* an earlier window */
        record_python_after_fork();
    else
        interpreter.codes = record_map(table_bytes());
    if (interpreter.codes == NULL) return false;
    interpreter.checked = false;
    interpreter.free = record_real.free;
    record_real.free = free_watched;
    interpreter.on = true;
    return true;
}

/* free_watched sees that a code object is freed only if CPython takes its objects from malloc. */
static bool takes_from_malloc(void) {
    if (interpreter.checked) return true;
    const char *name = interpreter.allocator();
    interpreter.checked = name != NULL && strcmp(name, "malloc") == 0;
    if (!interpreter.checked) {
        __atomic_store_n(&interpreter.on, false, __ATOMIC_RELAXED);
        sw_emergency_print("spanwise: record: Python lines need PYTHONMALLOC=malloc, which this "
                           "process ignores; call sites are the interpreter's own\n");
    }
    return interpreter.checked;
}

/* --- functions -------------------------------------------------------------------------------- */

static size_t put_utf8(char *out, uint32_t c) {
    if (c < 0x20 || (c >= 0xD800 && c < 0xE000) || c > 0x10FFFF) c = '?';
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t bytes = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = bytes - 1; i > 0; i--, c >>= 6) out[i] = (char)(0x80 | (c & 0x3F));
    out[0] = (char)(0xF00 >> bytes | c);
    return bytes;
}

/* Appends a Python text and a zero byte. A text that is too long keeps its end, because the end of
 * a path is more informative. */
static size_t put_text(char *out, size_t room, const uint8_t *text) {
    ptrdiff_t length = interpreter.length(text), most = (ptrdiff_t)room / 4 - 1;
    size_t used = 0;
    for (ptrdiff_t i = length > most ? length - most : 0; i < length; i++)
        used += put_utf8(out + used, interpreter.character(text, i));
    out[used] = '\0';
    return used;
}

static uint64_t first_address(uint32_t number) {
    return SWT_PYTHON_BASE + ((uint64_t)number << LINE_BITS);
}

/* Writes the function as a module, whose path is the function's name, a line feed, and its file.
 * The buffers are static, because the lock is held. */
static void write_function(uint32_t number, const uint8_t *code) {
    static char name[2 * NAME_BYTES];
    static uint8_t memory[3 * NAME_BYTES];
    swt_buffer buffer = {.data = memory, .capacity = sizeof memory};
    size_t used = put_text(name, NAME_BYTES / 3, pointer_at(code, interpreter.at.code_name));
    name[used++] = '\n';
    (void)put_text(name + used, NAME_BYTES, pointer_at(code, interpreter.at.code_file));
    uint64_t start = first_address(number);
    if (swt_put_module(&buffer, start, start + LAST_LINE + 1, start, name, NULL, 0))
        (void)record_file_put(SWT_BLOCK_MODULES, &buffer);
}

/* With the lock held. A new code object gets a free bucket, one at a known address its bucket. */
static uint32_t enter_locked(const uint8_t *code) {
    uint64_t found;
    record_python_code *bucket = bucket_of((uintptr_t)code, &found);
    uint32_t room = (1u << RECORD_PYTHON_CODE_BITS) / 4 * 3;
    if (found != 0 && bucket->number != 0) return bucket->number; /* another thread was quicker */
    if ((found == 0 && interpreter.found == room) ||
        interpreter.numbered == RECORD_PYTHON_CODES_MAX)
        return 0;
    sw_check2(record_interpreter_check(&interpreter));
    uint32_t number = ++interpreter.numbered;
    write_function(number, code);
    __atomic_store_n(&bucket->number, number, __ATOMIC_RELAXED);
    if (found == 0) {
        interpreter.found++;
        __atomic_store_n(&bucket->code, (uintptr_t)code, __ATOMIC_RELEASE);
    }
    return number;
}

/* The lock is for interpreters of one process that have a GIL each. */
static sw_cold uint32_t enter_code(const uint8_t *code) {
    /* A fork child that has no file yet could not write the function. */
    if (record_gate != 0 || record_is_stray_copy()) return 0;
    int saved = errno;
    sw_os_lock_acquire(&interpreter.lock);
    uint32_t number = enter_locked(code);
    sw_os_lock_release(&interpreter.lock);
    errno = saved;
    return number;
}

/* Returns the number of a code object. 0: the table is full, or nothing can be written. */
static uint32_t number_of(const uint8_t *code) {
    uint64_t found;
    record_python_code *bucket = bucket_of((uintptr_t)code, &found);
    uint32_t number = found != 0 ? __atomic_load_n(&bucket->number, __ATOMIC_RELAXED) : 0;
    return sw_likely(number != 0) ? number : enter_code(code);
}

/* --- frames ----------------------------------------------------------------------------------- */

/* Returns false for a code object that is being destroyed: its reference count is 0, and its parts
 * may be freed. Also for code of the interpreter itself, which has no first line. */
static bool is_whole_code(const uint8_t *code) {
    return code != NULL && pointer_at(code, OBJECT_TYPE) == interpreter.code_type &&
           number_at(code, OBJECT_REFERENCES) != 0 &&
           number_at(code, interpreter.at.code_first_line) > 0;
}

/* Returns NULL if the frame is the interpreter's own, or its code is being destroyed. */
static const uint8_t *code_of(const uint8_t *frame) {
    uint16_t owner = interpreter.at.frame_owner;
    if (owner != 0 && frame[owner] == OWNED_BY_C) return NULL;
    const uint8_t *code = pointer_at(frame, interpreter.at.frame_code);
    code -= (uintptr_t)code & TAG_BITS;
    return is_whole_code(code) ? code : NULL;
}

/* Returns the offset of a frame's instruction in bytes. A frame that has not started is before the
 * first instruction: NO_INSTRUCTION. */
static uint32_t offset_in(const uint8_t *code, const uint8_t *frame) {
    const record_python_layout *at = &interpreter.at;
    ptrdiff_t offset =
        at->unit_bytes != 0
            ? (ptrdiff_t)number_at(frame, at->frame_instruction) * at->unit_bytes
            : pointer_at(frame, at->frame_instruction) - (code + at->code_instructions);
    return offset >= 0 && offset < INT32_MAX ? (uint32_t)offset : NO_INSTRUCTION;
}

static const uint8_t *innermost_frame(void) {
    const uint8_t *state = interpreter.own_state();
    if (state == NULL || state != interpreter.running_state()) return NULL;
    const uint8_t *frame = pointer_at(state, interpreter.at.state_frame);
    if (frame == NULL || !interpreter.at.has_cframe) return frame;
    return pointer_at(frame, interpreter.at.cframe_frame);
}

size_t record_python_walk(record_python_frame *frames, size_t max) {
    size_t count = 0;
    if (!__atomic_load_n(&interpreter.on, __ATOMIC_RELAXED)) return 0;
    uint16_t previous = interpreter.at.frame_previous;
    const uint8_t *frame = innermost_frame();
    if (frame == NULL || !takes_from_malloc()) return 0;
    for (; frame != NULL && count < max; frame = pointer_at(frame, previous)) {
        const uint8_t *code = code_of(frame);
        if (code == NULL) continue;
        uint64_t number = number_of(code);
        if (number == 0) break;
        frames[count++] = (record_python_frame){code, number << 32 | offset_in(code, frame)};
    }
    return count;
}

uint64_t record_python_line(const record_python_frame *frame) {
    uint32_t offset = (uint32_t)frame->place;
    int line = offset != NO_INSTRUCTION ? interpreter.line(frame->code, (int)offset) : -1;
    if (line <= 0) /* the instruction has no line */
        line = number_at(frame->code, interpreter.at.code_first_line);
    return first_address((uint32_t)(frame->place >> 32)) +
           (line < LAST_LINE ? (uint64_t)line : LAST_LINE);
}

/* A fork child has the same code objects, but its own file, without names of functions. */
void record_python_after_fork(void) {
    if (interpreter.codes == NULL) return;
    sw_os_lock_reset(&interpreter.lock);
    interpreter.found = interpreter.numbered = 0;
    if (!sw_os_purge(interpreter.codes, table_bytes())) memset(interpreter.codes, 0, table_bytes());
}
