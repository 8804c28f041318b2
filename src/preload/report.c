/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the ledgers at the end of a process and at its peak as one JSON object
 * (docs/design/preload.md lists its members), when main returns and when the process calls exit,
 * quick_exit or _exit. A process that a signal ends, or that calls exec, writes nothing.
 */
#define _GNU_SOURCE

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "os/unwind.h"
#include "preload/account.h"
#include "preload/json.h"
#include "preload/malloc.h"
#include "preload/options.h"
#include "spanwise/spanwise.h"

/* --- JSON ------------------------------------------------------------------------------------- */

bool preload_json_flush(preload_json *json) {
    sw_check2(preload_json_check(json));
    for (size_t done = 0; done < json->used && !json->failed;) {
        ssize_t n = write(json->file, json->buffer + done, json->used - done);
        if (n > 0) {
            done += (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            json->failed = true;
        }
    }
    json->used = 0;
    return !json->failed;
}

static void put(preload_json *json, char c) {
    if (json->used == sizeof json->buffer) (void)preload_json_flush(json);
    json->buffer[json->used++] = c;
}

static void put_text(preload_json *json, const char *text) {
    while (*text != '\0') put(json, *text++);
}

static void put_quoted(preload_json *json, const char *text) {
    put(json, '"');
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;
        if (c >= ' ' && c < 127 && c != '"' && c != '\\') {
            put(json, (char)c);
            continue;
        }
        put_text(json, c < 128 ? "\\u00" : "\\udc"); /* \udc is Python's surrogateescape */
        put(json, "0123456789abcdef"[c >> 4]);
        put(json, "0123456789abcdef"[c & 15]);
    }
    put(json, '"');
}

/* Writes the comma before a member, and the member's name. */
static void begin_member(preload_json *json, const char *name) {
    if (!json->first) put(json, ',');
    if (!json->first) put(json, '\n');
    json->first = false;
    if (name == NULL) return;
    put_quoted(json, name);
    put(json, ':');
}

void preload_json_open(preload_json *json, const char *name, char bracket) {
    begin_member(json, name);
    put(json, bracket);
    json->first = true;
}

void preload_json_close(preload_json *json, char bracket) {
    put(json, bracket);
    json->first = false;
}

void preload_json_number(preload_json *json, const char *name, uint64_t value) {
    char digits[20];
    size_t n = 0;
    begin_member(json, name);
    do {
        digits[n++] = (char)('0' + value % 10);
    } while ((value /= 10) != 0);
    while (n > 0) put(json, digits[--n]);
}

void preload_json_text(preload_json *json, const char *name, const char *text) {
    begin_member(json, name);
    if (text == NULL) {
        put_text(json, "null");
    } else {
        put_quoted(json, text);
    }
}

/* --- the report ------------------------------------------------------------------------------- */

/* --- the members ------------------------------------------------------------------------------ */

static preload_json json;
static preload_ledger end_ledger;

static void put_rows(const preload_ledger *ledger) {
    preload_json_open(&json, "classes", '[');
    for (uint32_t i = 0; i < ledger->row_count; i++) {
        const sw_ledger_class *row = &ledger->rows[i];
        preload_json_open(&json, NULL, '[');
        preload_json_number(&json, NULL, row->size_bytes);
        preload_json_number(&json, NULL, row->spans);
        preload_json_number(&json, NULL, row->span_bytes);
        preload_json_number(&json, NULL, row->slots);
        preload_json_number(&json, NULL, row->live_objects);
        preload_json_number(&json, NULL, row->requested_bytes);
        preload_json_number(&json, NULL, row->roundup_bytes);
        preload_json_number(&json, NULL, row->tail_bytes);
        preload_json_number(&json, NULL, row->free_slot_bytes);
        preload_json_number(&json, NULL, row->cached_bytes);
        for (int k = 0; k < SW_OCCUPANCY_BINS; k++)
            preload_json_number(&json, NULL, row->occupancy[k]);
        preload_json_close(&json, ']');
    }
    preload_json_close(&json, ']');
}

#define PUT(from, member) preload_json_number(&json, #member, (from)->member)

static void put_parts(const sw_ledger *sum) {
    PUT(sum, requested_bytes);
    PUT(sum, roundup_bytes);
    PUT(sum, tail_bytes);
    PUT(sum, free_slot_bytes);
    PUT(sum, cached_bytes);
    PUT(sum, metadata_bytes);
    PUT(sum, large_rounding_bytes);
    PUT(sum, free_page_bytes);
    PUT(sum, held_bytes);
}

static void put_touched(const sw_ledger *touched) {
    if (touched->held_bytes == 0) return;
    preload_json_open(&json, "resident", '{');
    put_parts(touched);
    preload_json_close(&json, '}');
}

static void put_ledger(const char *name, const preload_ledger *ledger) {
    if (ledger == NULL) {
        preload_json_text(&json, name, NULL);
        return;
    }
    const sw_ledger *sum = &ledger->sum;
    preload_json_open(&json, name, '{');
    PUT(ledger, ops);
    put_parts(sum);
    put_touched(&ledger->touched);
    PUT(sum, live_objects);
    PUT(sum, large_objects);
    PUT(sum, spans);
    PUT(sum, largest_hole_bytes);
    PUT(sum, free_runs);
    PUT(sum, returned_bytes);
    PUT(sum, retry_bytes);
    PUT(sum, instrument_bytes);
    put_rows(ledger);
    preload_json_close(&json, '}');
}

static void put_counts(const preload_counts *counts) {
    preload_json_open(&json, "run", '{');
    PUT(counts, ops);
    PUT(counts, allocs);
    PUT(counts, frees);
    PUT(counts, reallocs);
    PUT(counts, failed);
    PUT(counts, requested_bytes);
    PUT(counts, live_objects);
    PUT(counts, allocated_bytes);
    PUT(counts, peak_requested_bytes);
    PUT(counts, peak_op);
    PUT(counts, peak_live_objects);
    PUT(counts, held_bytes);
    PUT(counts, peak_held_bytes);
    PUT(counts, held_at_peak);
    PUT(counts, requested_at_peak_held);
    preload_json_close(&json, '}');
}

/* Returns the peak RSS of this process in bytes; 0: unknown. getrusage is not used, because its
 * value includes the programs that the process ran before its last exec. */
static uint64_t peak_resident_bytes(void) {
    char text[4096];
    int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    if (file < 0) return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    (void)close(file);
    text[length < 0 ? 0 : length] = '\0';
    const char *c = strstr(text, "VmHWM:");
    uint64_t kib = 0;
    if (c == NULL) return 0;
    for (c += strcspn(c, "0123456789"); *c >= '0' && *c <= '9'; c++)
        kib = kib * 10 + (uint64_t)(*c - '0');
    return kib * 1024;
}

static void put_process(void) {
    static char program[PRELOAD_PATH_MAX];
    sw_os_program_path(program, sizeof program);
    preload_json_number(&json, "pid", sw_os_process_id());
    preload_json_text(&json, "program", program[0] != '\0' ? program : NULL);
    preload_json_number(&json, "rss_bytes", sw_os_resident_bytes());
    preload_json_number(&json, "peak_rss_bytes", peak_resident_bytes());
}

static void put_heap(sw_heap *heap) {
    const sw_heap_options *options = &preload_option.heap;
    const sw_table *table = sw_heap_table(heap);
    preload_json_text(&json, "table", sw_table_name(table));
    preload_json_number(&json, "page_bytes", (uint64_t)1 << table->page_shift);
    preload_json_number(&json, "tracked", options->tracked);
    preload_json_number(&json, "limit_bytes", options->limit_bytes);
    preload_json_number(&json, "decay_ns", options->decay_ns);
    preload_json_text(&json, "placement", preload_placements[options->placement]);
    preload_json_text(&json, "huge_pages", options->huge_pages ? "advise" : "off");
    preload_json_number(&json, "peak_held_bytes", sw_pages_peak_held_bytes(&heap->pages));
}

static bool put_all(sw_heap *heap, int file) {
    json = (preload_json){.file = file, .first = true};
    preload_json_open(&json, NULL, '{');
    preload_json_text(&json, "format", "spanwise-ledger");
    preload_json_number(&json, "version", 1);
    preload_json_text(&json, "library", sw_version());
    put_process();
    put_heap(heap);
    bool tracked = preload_option.heap.tracked != 0;
    if (tracked) {
        preload_counts counts = preload_read_counts(heap);
        put_counts(&counts);
        end_ledger.ops = counts.ops;
    }
    put_ledger("end", preload_take_ledger(heap, &end_ledger) ? &end_ledger : NULL);
    put_ledger("peak", tracked ? preload_peak_ledger(heap) : NULL);
    preload_json_close(&json, '}');
    return preload_json_flush(&json) && write(file, "\n", 1) == 1;
}

/* --- the file --------------------------------------------------------------------------------- */

/* Writes the path of the option to `out`, with the process id in place of %p. */
static void make_path(char *out) {
    char digits[20];
    char *end = out + PRELOAD_PATH_MAX - 1;
    for (const char *c = preload_option.ledger; *c != '\0' && out < end; c++) {
        if (c[0] != '%' || c[1] != 'p') {
            *out++ = *c;
            continue;
        }
        c++;
        size_t n = 0;
        for (uint64_t pid = sw_os_process_id(); pid != 0; pid /= 10)
            digits[n++] = (char)('0' + pid % 10);
        while (n > 0 && out < end) *out++ = digits[--n];
    }
    *out = '\0';
}

static bool could_not_write(const char *path) {
    const char *why = strerrordesc_np(errno);
    sw_emergency_print("spanwise: malloc: cannot write the ledger to %s: %s\n", path,
                       why == NULL ? "unknown error" : why);
    return false;
}

/* Writes the ledger to the open file and closes it. */
static bool put_and_close(sw_heap *heap, int file) {
    bool put = put_all(heap, file);
    int saved_errno = errno;
    bool closed = close(file) == 0;
    if (!put) errno = saved_errno;
    return put && closed;
}

/* Writes the ledger to the file of the option. A regular file is written under another name and
 * then renamed, so that it appears atomically; a pipe or a terminal is written to directly. */
static bool write_file(sw_heap *heap) {
    static char asked[PRELOAD_PATH_MAX], path[PRELOAD_PATH_MAX], fresh[PRELOAD_PATH_MAX + 4];
    make_path(asked);
    bool renames = sw_os_output_path(asked, path, sizeof path);
    const char *name = renames ? fresh : asked;
    (void)snprintf(fresh, sizeof fresh, "%s.new", path);
    int file = open(name, O_WRONLY | O_CLOEXEC | (renames ? O_CREAT | O_TRUNC : 0), 0666);
    if (file < 0) return could_not_write(asked);
    bool put = put_and_close(heap, file) && (!renames || rename(fresh, path) == 0);
    if (put) return true;
    int saved_errno = errno;
    if (renames) (void)unlink(fresh);
    errno = saved_errno;
    return could_not_write(asked);
}

static void print_ledger(sw_heap *heap) {
    sw_emergency_print("spanwise: malloc: process %u held %u bytes at its end, %u at most\n",
                       sw_os_process_id(), sw_heap_held_bytes(heap),
                       sw_pages_peak_held_bytes(&heap->pages));
}

/* Writes the ledger of this process, unless it is written already or not requested. */
static void write_report(void) {
    int saved_errno = errno;
    if (!preload_claim_report()) return;
    sw_heap *heap = sw_heap_default();
    if (!preload_locks_are_idle(heap)) {
        sw_emergency_print("spanwise: malloc: process %u ended inside malloc: no ledger\n",
                           sw_os_process_id());
        return;
    }
    if (preload_option.verbose) print_ledger(heap);
    if (preload_option.ledger_file != PRELOAD_NO_FILE) {
        if (!put_all(heap, preload_option.ledger_file))
            sw_emergency_print("spanwise: malloc: cannot write the ledger to descriptor %u\n",
                               (uint64_t)preload_option.ledger_file);
    } else if (preload_option.ledger[0] != '\0') {
        (void)write_file(heap);
    }
    errno = saved_errno;
}

/* --- the end ---------------------------------------------------------------------------------- */

static void at_last(int status, void *arg) {
    (void)status;
    (void)arg;
    write_report();
}

static void at_quick_exit_last(void *arg) {
    (void)arg;
    write_report();
}

int __cxa_at_quick_exit(void (*fn)(void *), void *library);

/* Exit functions run in reverse order of their registration, so one that is registered when the
 * library is loaded runs late. */
__attribute__((constructor)) static void library_loaded(void) {
    if (preload_heap() != NULL && preload_report_is_due())
        (void)__cxa_at_quick_exit(at_quick_exit_last, NULL);
}

/* Registers the report when this library is unloaded, because libraries that are unloaded after it
 * still free objects: an exit function that is registered while exit functions run is called after
 * all of them, even after the loader's. */
__attribute__((destructor)) static void library_unloaded(void) {
    if (preload_report_is_due() && on_exit(at_last, NULL) != 0) write_report();
}

PRELOAD_EXPORT _Noreturn void _exit(int status) {
    write_report();
    for (;;) (void)syscall(SYS_exit_group, status);
}

PRELOAD_EXPORT _Noreturn void _Exit(int status) { _exit(status); }
