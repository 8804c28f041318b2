/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE

#include "recorder/state.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "trace/format.h"
#include "trace/raw.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool record_off;
bool record_attached;
uint32_t record_gate;
record_process record_this;
bool record_has_cycles;
uint64_t record_stamp_counter;

static uint32_t *original; /* is 1; the kernel clears it in a fork child. NULL: not supported */

void record_mark_original(void) {
    if (original != NULL) { /* an earlier window */
        *original = 1;
        return;
    }
    original = sw_os_map(sw_os_page_bytes());
    if (original == NULL) return;
    if (syscall(SYS_madvise, original, sw_os_page_bytes(), MADV_WIPEONFORK) != 0) {
        (void)sw_os_release(original, sw_os_page_bytes());
        original = NULL;
        return;
    }
    *original = 1;
}

bool record_is_stray_copy(void) {
    return original != NULL && __atomic_load_n(original, __ATOMIC_RELAXED) == 0;
}

bool record_marks_copies(void) { return original != NULL; }

void record_adopt_copy(void) {
    if (original != NULL) *original = 1;
}

/* Ticks are cycles only if the processor counts them at a constant rate (an invariant TSC). */
void record_choose_clock(void) {
#if defined(__x86_64__)
    unsigned a = 0, b = 0, c = 0, d = 0;
    record_has_cycles = __get_cpuid(0x80000007u, &a, &b, &c, &d) != 0 && (d >> 8 & 1) != 0;
#endif
}

/* --- options ---------------------------------------------------------------------------------- */

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
 *                             sets it for its children */

record_options record_option = {.stacks = RECORD_STACKS};
const char *record_given_options;

/* NULL: the option is not given. */
static const char *option_of(const char *name) {
    if (record_given_options == NULL) return getenv(name);
    size_t length = strlen(name);
    for (const char *at = record_given_options; *at != '\0'; at += strlen(at) + 1)
        if (strncmp(at, name, length) == 0 && at[length] == '=') return at + length + 1;
    return NULL;
}

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
    const char *text = option_of(name);
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

static void read_label(const char *given) {
    if (given == NULL) return;
    size_t bytes = strlen(given);
    if (bytes >= RECORD_LABEL_MAX) bytes = RECORD_LABEL_MAX - 1;
    memcpy(record_option.label, given, bytes);
    record_option.label[bytes] = '\0';
}

/* Without a depth, each kind of call site has its default. */
static void read_stacks(void) {
    bool python = read_number("SPANWISE_RECORD_PYTHON", 1, 0) == 1;
    uint64_t stacks = read_number("SPANWISE_RECORD_STACKS", SWT_SITE_DEPTH_MAX, RECORD_STACKS);
    bool given = option_of("SPANWISE_RECORD_STACKS") != NULL;
    record_option.stacks = (uint32_t)stacks;
    record_option.python_stacks = !python ? 0 : given ? (uint32_t)stacks : RECORD_PYTHON_STACKS;
    record_option.shallow = record_option.stacks == 1 && record_option.python_stacks == 0;
}

bool record_read_options(void) {
    const char *file = option_of("SPANWISE_RECORD_FILE");
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
    read_areas(option_of("SPANWISE_RECORD_AREAS"));
    read_label(option_of("SPANWISE_RECORD_LABEL"));
    record_option.root = read_number("SPANWISE_RECORD_PID", INT32_MAX, 0);
    return true;
}

/* --- resident bytes --------------------------------------------------------------------------- */

enum { STEP_FIRST_NS = 1000 * 1000 };

static record_rss rss = {.step_ns = STEP_FIRST_NS};
static char text[RECORD_RSS_TEXT_BYTES];

/* Drops every second point; from now on they are twice as far apart. */
static void thin(void) {
    rss.count /= 2;
    for (uint32_t i = 0; i < rss.count; i++) rss.points[i] = rss.points[2 * i];
    rss.step_ns *= 2;
}

static bool differs(const record_rss_point *from, uint64_t ns, uint64_t bytes) {
    uint64_t change = bytes > from->bytes ? bytes - from->bytes : from->bytes - bytes;
    return change > from->bytes / 64 || ns - from->ns >= rss.step_ns;
}

void record_rss_note(uint64_t ns, uint64_t bytes, bool last) {
    if (__atomic_exchange_n(&rss.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
    sw_check2(record_rss_check(&rss));
    const record_rss_point *from = rss.count == 0 ? NULL : &rss.points[rss.count - 1];
    if (from == NULL || (ns > from->ns && (last || differs(from, ns, bytes)))) {
        if (rss.count == RECORD_RSS_POINTS) thin();
        rss.points[rss.count++] = (record_rss_point){ns, bytes};
    }
    __atomic_store_n(&rss.busy, 0, __ATOMIC_RELEASE);
}

char *record_put_decimal(char *p, uint64_t value) {
    char digits[20];
    uint32_t n = 0;
    do digits[n++] = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    while (n > 0) *p++ = digits[--n];
    return p;
}

bool record_rss_put(swt_buffer *buffer) {
    if (__atomic_exchange_n(&rss.busy, 1, __ATOMIC_ACQUIRE) != 0) return false;
    char *p = text;
    for (uint32_t i = 0; i < rss.count; i++) {
        if (i != 0) *p++ = ' ';
        p = record_put_decimal(p, rss.points[i].ns);
        *p++ = ':';
        p = record_put_decimal(p, rss.points[i].bytes);
    }
    *p = '\0';
    bool done = rss.count != 0 && swt_put_meta(buffer, "rss_series", text);
    __atomic_store_n(&rss.busy, 0, __ATOMIC_RELEASE);
    return done;
}

void record_rss_after_fork(void) {
    rss.busy = 0;
    rss.count = 0;
    rss.step_ns = STEP_FIRST_NS;
}
