/* SPDX-License-Identifier: Apache-2.0 */
/* Options of the recorder, from the environment:
 *
 *   SPANWISE_RECORD_FILE      the recording; without it nothing is recorded
 *   SPANWISE_RECORD_STACKS    depth of a call site, 0..128 (0: no call sites); default 16 return
 *                             addresses, 40 lines of Python
 *   SPANWISE_RECORD_PYTHON    1: call sites of CPython are lines of Python; default 0
 *   SPANWISE_RECORD_CHILDREN  1: record child processes too, to STEM.PID.swt; default 0
 *   SPANWISE_RECORD_SAMPLE    mean bytes between sample points, 0..2^40; default 0: record every
 *                             object (sample.h)
 *   SPANWISE_RECORD_AREAS     folder for files of open blocks. The process that started the
 *                             program appends them to the recordings of killed processes
 *   SPANWISE_RECORD_PID       id of the root process, to which FILE belongs. The process that
 *                             starts the program may set it; otherwise the recorded process
 *                             sets it for its children
 */
#define _GNU_SOURCE
#include "recorder/options.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fail.h"
#include "trace/raw.h"

record_options record_option = {.stacks = RECORD_STACKS};

/* Accepts digits only, and no number above `max`. */
static bool parse_number(const char *text, uint64_t max, uint64_t *out) {
    uint64_t value = 0;
    if (*text == '\0') return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9') return false;
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > max) return false;
    }
    *out = value;
    return true;
}

static uint64_t read_number(const char *name, uint64_t max, uint64_t otherwise) {
    const char *text = getenv(name);
    uint64_t value;
    if (text == NULL) return otherwise;
    if (parse_number(text, max, &value)) return value;
    sw_emergency_print("spanwise: record: %s is not a number from 0 to %u; using %u\n", name, max,
                       otherwise);
    return otherwise;
}

/* Makes the path absolute, because the program may change its working directory. */
static bool read_file_name(const char *text) {
    size_t used = 0, length = strlen(text);
    char *out = record_option.file;
    if (text[0] != '/') {
        if (syscall(SYS_getcwd, out, (size_t)RECORD_PATH_MAX) <= 0 || out[0] != '/') return false;
        used = strlen(out);
        if (used + 1 < RECORD_PATH_MAX) out[used++] = '/';
    }
    /* The 64 bytes are for the process id and the suffix in the names of children's files. */
    if (used + length + 64 > RECORD_PATH_MAX) return false;
    memcpy(out + used, text, length + 1);
    return true;
}

/* The folder must exist: the process that requests files of areas creates it, and reads the files
 * when the program has ended. */
static void read_areas(const char *text) {
    if (text == NULL || text[0] == '\0') return;
    if (text[0] == '/' && strlen(text) < RECORD_PATH_MAX) {
        memcpy(record_option.areas, text, strlen(text) + 1);
        return;
    }
    sw_emergency_print("spanwise: record: SPANWISE_RECORD_AREAS is not absolute; not used\n");
}

/* Without a depth, each kind of call site has its default. */
static void read_stacks(void) {
    bool python = read_number("SPANWISE_RECORD_PYTHON", 1, 0) == 1;
    uint64_t stacks = read_number("SPANWISE_RECORD_STACKS", SWT_SITE_DEPTH_MAX, RECORD_STACKS);
    bool given = getenv("SPANWISE_RECORD_STACKS") != NULL;
    record_option.stacks = (uint32_t)stacks;
    record_option.python_stacks = !python ? 0 : given ? (uint32_t)stacks : RECORD_PYTHON_STACKS;
    record_option.shallow = record_option.stacks == 1 && record_option.python_stacks == 0;
}

bool record_read_options(void) {
    const char *file = getenv("SPANWISE_RECORD_FILE");
    if (file == NULL || file[0] == '\0') {
        sw_emergency_print("spanwise: record: SPANWISE_RECORD_FILE is not set; not recording\n");
        return false;
    }
    if (!read_file_name(file)) {
        sw_emergency_print("spanwise: record: SPANWISE_RECORD_FILE is too long, or the current "
                           "directory is gone; not recording\n");
        record_option.file[0] = '\0';
        return false;
    }
    read_stacks();
    record_option.children = read_number("SPANWISE_RECORD_CHILDREN", 1, 0) == 1;
    record_option.sample = read_number("SPANWISE_RECORD_SAMPLE", UINT64_C(1) << 40, 0);
    read_areas(getenv("SPANWISE_RECORD_AREAS"));
    record_option.root = read_number("SPANWISE_RECORD_PID", INT32_MAX, 0);
    return true;
}
