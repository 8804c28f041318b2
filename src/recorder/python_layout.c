/* SPDX-License-Identifier: Apache-2.0 */
/* 3.13 and later publish their offsets for debuggers and profilers, as _Py_DebugOffsets at the start
 * of _PyRuntime. Those of earlier versions come from CPython's headers. tests/recorder/layout.c
 * compares both tables with the headers of installed versions. */
#include "recorder/python_layout.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define UNKNOWN "Python lines need CPython 3.9 to 3.14"
#define FREE_THREADED "Python lines need a CPython with a GIL"

enum {
    WORD_VERSION = 1, /* in _Py_DebugOffsets, in words of 8 bytes: as PY_VERSION_HEX */
    WORD_FREE_THREADED = 2,
    RELEASE_CANDIDATE = 0xC, /* lower levels are alpha and beta versions */
    LAST_OFFSET = 4096,      /* a larger one is not believed */
};

static const record_python_layout known[] = {
    {.minor = 9,
     .unit_bytes = 1,
     .state_frame = 24,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 104,
     .code_first_line = 40,
     .code_file = 104,
     .code_name = 112},
    {.minor = 10,
     .unit_bytes = 2,
     .state_frame = 24,
     .frame_code = 32,
     .frame_previous = 24,
     .frame_instruction = 96,
     .code_first_line = 40,
     .code_file = 104,
     .code_name = 112},
    {.minor = 11,
     .has_cframe = true,
     .state_frame = 56,
     .cframe_frame = 8,
     .frame_code = 32,
     .frame_previous = 48,
     .frame_instruction = 56,
     .code_first_line = 72,
     .code_file = 112,
     .code_name = 128,
     .code_instructions = 184},
    {.minor = 12,
     .has_cframe = true,
     .state_frame = 56,
     .cframe_frame = 0,
     .frame_code = 0,
     .frame_previous = 8,
     .frame_instruction = 56,
     .frame_owner = 70,
     .code_first_line = 68,
     .code_file = 112,
     .code_name = 128,
     .code_instructions = 192},
};

/* Where the groups of _Py_DebugOffsets begin, in words. They grow at their ends from version to
 * version; the fields that are read have kept their places in them. */
static const struct groups {
    uint8_t minor, thread_state, frame, code;
} published[] = {
    {.minor = 13, .thread_state = 19, .frame = 28, .code = 34},
    {.minor = 14, .thread_state = 22, .frame = 31, .code = 39},
};

static bool read_offset(const uint64_t *words, size_t index, uint16_t *out) {
    if (words[index] >= LAST_OFFSET) return false;
    *out = (uint16_t)words[index];
    return true;
}

static bool read_offsets(const uint64_t *words, const struct groups *at,
                         record_python_layout *out) {
    *out = (record_python_layout){.minor = at->minor};
    return read_offset(words, at->thread_state + 4u, &out->state_frame) &&
           read_offset(words, at->frame + 1u, &out->frame_previous) &&
           read_offset(words, at->frame + 2u, &out->frame_code) &&
           read_offset(words, at->frame + 3u, &out->frame_instruction) &&
           read_offset(words, at->code + 1u, &out->code_file) &&
           read_offset(words, at->code + 3u, &out->code_name) &&
           read_offset(words, at->code + 5u, &out->code_first_line) &&
           read_offset(words, at->code + 9u, &out->code_instructions);
}

static const char *published_layout(const struct groups *at, const void *runtime,
                                    record_python_layout *out) {
    const uint64_t *words = runtime;
    if (memcmp(runtime, "xdebugpy", 8) != 0) return UNKNOWN;
    uint64_t version = words[WORD_VERSION];
    if (version >> 16 != (3u << 8 | at->minor)) return UNKNOWN;
    if ((version >> 4 & 0xF) < RELEASE_CANDIDATE) return UNKNOWN;
    if (words[WORD_FREE_THREADED] != 0) return FREE_THREADED;
    return read_offsets(words, at, out) ? NULL : UNKNOWN;
}

const char *record_python_layout_of(const char *version, const void *runtime,
                                    record_python_layout *out) {
    if (strncmp(version, "3.", 2) != 0 || sizeof(void *) != 8) return UNKNOWN;
    long minor = strtol(version + 2, NULL, 10);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (known[i].minor != minor) continue;
        *out = known[i];
        return NULL;
    }
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++)
        if (published[i].minor == minor) return published_layout(&published[i], runtime, out);
    return UNKNOWN;
}
