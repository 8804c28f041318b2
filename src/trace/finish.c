/* SPDX-License-Identifier: Apache-2.0 */
/* sw_trace_finish: converts a recording of either form, with its small blocks, to an ordered
 * one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"
#include "trace/reader.h"
#include "trace/retained.h"
#include "trace/writer.h"

static const char *swt_retained_check(const swt_retained *retained) {
    for (uint32_t i = 1; i < retained->count; i++)
        if (retained->points[i - 1].ns > retained->points[i].ns) return "times of points rise";
    return SW_RULE(retained->next <= retained->count)
               ?: SW_RULE(retained->count <= SWT_RETAINED_POINTS);
}

/* --- what malloc retains ---------------------------------------------------------------------- */

/* The last value of a key, because the recorder writes a new one with each reading. */
static const char *last_value(const swt_notes *notes, const char *key) {
    const char *found = NULL;
    for (size_t i = 0; i + 1 < notes->meta_used; i += 2)
        if (strcmp(notes->text + notes->meta[i], key) == 0)
            found = notes->text + notes->meta[i + 1];
    return found;
}

static uint64_t last_number(const swt_notes *notes, const char *key) {
    const char *text = last_value(notes, key);
    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

/* Reads "ns:bytes " and moves on. False: the end, or another text. */
static bool read_point(const char **text, uint64_t *ns, uint64_t *bytes) {
    char *end;
    *ns = strtoull(*text, &end, 10);
    if (end == *text || *end != ':') return false;
    *bytes = strtoull(end + 1, &end, 10);
    *text = end + (*end == ' ');
    return true;
}

/* Where a search in the series is: the point at or after the last time asked for, and the bytes of
 * the one before it. */
typedef struct place {
    const char *text;
    uint64_t ns, bytes, before;
} place;

/* The lesser of the resident bytes at the points before and after a time. */
static uint64_t bytes_at(place *at, uint64_t ns) {
    uint64_t next_ns, next_bytes;
    while (at->ns < ns && read_point(&at->text, &next_ns, &next_bytes)) {
        at->before = at->bytes;
        at->ns = next_ns;
        at->bytes = next_bytes;
    }
    return sw_min_u64(at->before, at->bytes);
}

static uint64_t duration_of(const char *series) {
    uint64_t ns, bytes, last = 0;
    while (read_point(&series, &ns, &bytes)) last = sw_max_u64(last, ns);
    return last;
}

void swt_retained_init(swt_retained *r, const swt_notes *notes) {
    *r = (swt_retained){0};
    const char *series = last_value(notes, "rss_series");
    uint64_t duration_ns = series == NULL ? 0 : duration_of(series);
    if (duration_ns == 0) return;
    uint64_t others = last_number(notes, "rss_mapped") + last_number(notes, "rss_data") +
                      last_number(notes, "rss_file") + last_number(notes, "rss_recorder");
    place at = {.text = series};
    for (; r->count < SWT_RETAINED_POINTS; r->count++) {
        uint64_t ns = (2 * r->count + 1) * (duration_ns / (2 * SWT_RETAINED_POINTS));
        uint64_t bytes = bytes_at(&at, ns);
        r->points[r->count].ns = ns;
        r->points[r->count].malloc_bytes = bytes > others ? bytes - others : 0;
    }
    sw_check2(swt_retained_check(r));
}

void swt_retained_free(swt_retained *r) {
    free(r->sizes);
    *r = (swt_retained){0};
}

/* Counts the next point; `later` operations of those that were added come after it. */
static bool count_point(swt_retained *r, const swt_addresses *addresses, uint64_t later) {
    swt_retained_point *point = &r->points[r->next];
    point->requested_bytes = r->requested_bytes;
    point->op = r->op - later;
    return swt_addresses_page_bytes(addresses, r->sizes, &point->page_bytes);
}

bool swt_retained_add(swt_retained *r, const sw_op *ops, size_t count,
                      const swt_addresses *addresses) {
    if (r->count == 0 || count == 0) return true;
    for (size_t i = 0; i < count; i++) {
        size_t id = ops[i].object;
        if (ops[i].kind == SW_OP_THREAD_END) continue;
        if (id >= r->capacity && !swt_grow(&r->sizes, &r->capacity, id + 1, sizeof *r->sizes))
            return false;
        r->requested_bytes -= ops[i].kind == SW_OP_ALLOC ? 0 : r->sizes[id];
        r->sizes[id] = ops[i].kind == SW_OP_FREE ? 0 : ops[i].size;
        r->requested_bytes += r->sizes[id];
    }
    r->op += count;
    uint64_t last_ns = ops[count - 1].time_ns;
    for (; swt_retained_next_ns(r) <= last_ns; r->next++)
        if (!count_point(r, addresses, swt_retained_next_ns(r) < last_ns)) return false;
    return true;
}

bool swt_retained_end(swt_retained *r, const swt_addresses *addresses) {
    for (; r->next < r->count; r->next++)
        if (!count_point(r, addresses, 0)) return false;
    return true;
}

static uint64_t waste(const swt_retained_point *point) {
    uint64_t requested = point->requested_bytes;
    return point->malloc_bytes > requested ? point->malloc_bytes - requested : 0;
}

/* Whether the program frees its objects from this point to the next, as at its end. */
static bool is_teardown(const swt_retained *r, uint32_t i) {
    uint64_t now = r->points[i].requested_bytes;
    uint64_t next = i + 1 < r->count ? r->points[i + 1].requested_bytes : r->requested_bytes;
    return next < now && now - next > now / (2 * SWT_RETAINED_POINTS);
}

const swt_retained_point *swt_retained_best(const swt_retained *r) {
    const swt_retained_point *first = NULL, *second = NULL;
    for (uint32_t i = 0; i < r->count; i++) {
        const swt_retained_point *point = &r->points[i];
        if (is_teardown(r, i)) continue;
        if (first == NULL || waste(point) > waste(first)) {
            second = first;
            first = point;
        } else if (second == NULL || waste(point) > waste(second)) {
            second = point;
        }
    }
    return second != NULL && waste(second) != 0 ? second : NULL;
}

static sw_status write_number(sw_trace_writer *writer, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return swt_writer_meta(writer, key, text);
}

/* Writes the result as META: rss_kept_ns, _op, _malloc, _requested and _pages. */
static sw_status swt_retained_write(const swt_retained *r, sw_trace_writer *writer) {
    const swt_retained_point *point = swt_retained_best(r);
    if (point == NULL) return SW_OK;
    sw_status status = write_number(writer, "rss_kept_ns", point->ns);
    if (status == SW_OK) status = write_number(writer, "rss_kept_op", point->op);
    if (status == SW_OK) status = write_number(writer, "rss_kept_malloc", point->malloc_bytes);
    if (status == SW_OK)
        status = write_number(writer, "rss_kept_requested", point->requested_bytes);
    if (status == SW_OK) status = write_number(writer, "rss_kept_pages", point->page_bytes);
    return status;
}

/* --- conversion ------------------------------------------------------------------------------- */

/* Keys of which the recorder writes a new value when it has read the resident memory again. */
static const char *const replaced[] = {
    "rss_peak", "rss_ns",       "rss_malloc",     "rss_mapped", "rss_data",
    "rss_file", "rss_recorder", "rss_end_malloc", "rss_series", "rss_untouched"};
enum { REPLACED = sizeof replaced / sizeof replaced[0] };

static size_t replaced_index(const char *key) {
    size_t i = 0;
    while (i < REPLACED && strcmp(key, replaced[i]) != 0) i++;
    return i;
}

/* Copies the pairs in their order; of a replaced key only the last value. */
static sw_status copy_meta(const swt_notes *notes, sw_trace_writer *writer) {
    size_t last[REPLACED + 1] = {0};
    for (size_t i = 0; i + 1 < notes->meta_used; i += 2)
        last[replaced_index(notes->text + notes->meta[i])] = i;
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i + 1 < notes->meta_used; i += 2) {
        const char *key = notes->text + notes->meta[i];
        size_t index = replaced_index(key);
        if (index == REPLACED || last[index] == i)
            status = sw_trace_set_meta(writer, key, notes->text + notes->meta[i + 1]);
    }
    return status;
}

static sw_status copy_sites(const swt_notes *notes, sw_trace_writer *writer) {
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i < notes->site_count; i++) {
        const swt_site *site = &notes->sites[i];
        const uint64_t *frames = site->depth == 0 ? NULL : notes->frames + site->frame;
        status = swt_writer_site(writer, site->id, frames, site->depth);
    }
    return status;
}

static sw_status copy_modules(const swt_notes *notes, sw_trace_writer *writer) {
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i < notes->module_count; i++) {
        const swt_module *from = &notes->modules[i];
        sw_trace_module module = {from->start,
                                  from->end,
                                  from->bias,
                                  notes->text + from->path,
                                  (const uint8_t *)notes->text + from->build_id,
                                  from->build_id_bytes};
        status = swt_writer_module(writer, &module);
    }
    return status;
}

/* --- operations -------------------------------------------------------------------------------
 * One thread puts operations in order while another encodes, compresses and writes earlier ones.
 * The two halves take about the same time. */

enum { PART_BATCHES = 8 }; /* a part takes milliseconds, starting a thread much less */

/* Operations that a separate thread writes. */
typedef struct part {
    sw_trace_writer *writer;
    sw_op *ops; /* room for PART_BATCHES batches */
    size_t count;
    bool running;
    sw_os_thread thread;
    sw_status status;
    const char *op; /* name of the failed function, if any */
    char message[512];
} part;

static void write_part(void *arg) {
    part *p = arg;
    p->status = swt_writer_append_known(p->writer, p->ops, p->count);
    if (p->status == SW_OK) return;
    p->op = sw_last_error()->op;
    snprintf(p->message, sizeof p->message, "%s", sw_last_error()->message);
}

/* Waits until the part is written, if a thread is writing it. */
static sw_status end_part(part *p) {
    if (!p->running) return SW_OK;
    p->running = false;
    sw_os_thread_join(&p->thread);
    return p->status == SW_OK ? SW_OK : sw_fail(p->status, p->op, "%s", p->message);
}

/* Starts to write a part. This thread writes a short one, to save a thread. */
static sw_status begin_part(part *p) {
    p->running = p->count > SW_TRACE_OPS_MAX && sw_os_thread_start(&p->thread, write_part, p);
    return p->running ? SW_OK : swt_writer_append_known(p->writer, p->ops, p->count);
}

/* Fills the part with the next operations of the source; count 0: the source is at its end. A batch
 * of a raw recording ends where a point of `retained` is to be counted. */
static sw_status fill_part(part *p, swt_source *source, swt_retained *retained) {
    sw_op *own = source->ops;
    sw_status status = SW_OK;
    p->count = 0;
    for (size_t i = 0, count = 1; status == SW_OK && count != 0 && i < PART_BATCHES; i++) {
        source->ops = p->ops + p->count;
        source->merge.pause_ns = swt_retained_next_ns(retained);
        status = swt_source_next(source, &count);
        if (status == SW_OK &&
            !swt_retained_add(retained, source->ops, count, &source->merge.addresses))
            status = swt_file_no_memory(source->file);
        p->count += status == SW_OK ? count : 0;
    }
    source->ops = own;
    return status;
}

static sw_status copy_parts(part parts[2], swt_source *source, swt_retained *retained,
                            const volatile int *cancel, volatile uint64_t *done) {
    for (size_t i = 0;; i ^= 1) {
        if (cancel != NULL && *cancel != 0)
            return sw_fail(SW_STATE, "sw_trace_finish", "cancelled: nothing was written");
        sw_status status = fill_part(&parts[i], source, retained);
        if (status == SW_OK) status = end_part(&parts[i ^ 1]);
        if (status != SW_OK || parts[i].count == 0) return status;
        if (done != NULL) *done += parts[i].count;
        status = begin_part(&parts[i]);
        if (status != SW_OK) return status;
    }
}

static sw_status copy_ops(swt_source *source, swt_retained *retained, sw_trace_writer *writer,
                          const volatile int *cancel, volatile uint64_t *done) {
    part parts[2] = {{.writer = writer}, {.writer = writer}};
    sw_status status = swt_writer_append_known(writer, NULL, 0); /* file header and META */
    for (int i = 0; i < 2; i++) {
        parts[i].ops = malloc((size_t)PART_BATCHES * SW_TRACE_OPS_MAX * sizeof(sw_op));
        if (parts[i].ops == NULL) status = swt_file_no_memory(source->file);
    }
    if (status == SW_OK) status = copy_parts(parts, source, retained, cancel, done);
    for (int i = 0; i < 2; i++) {
        sw_status ended = end_part(&parts[i]);
        if (status == SW_OK) status = ended;
        free(parts[i].ops);
    }
    return status;
}

/* --- all of it -------------------------------------------------------------------------------- */

static sw_status copy_all(swt_source *source, sw_trace_writer *writer, const volatile int *cancel,
                          volatile uint64_t *done) {
    const swt_notes *notes = &source->file->notes;
    swt_retained retained = {0};
    if (source->file->header.form == SW_TRACE_RAW) swt_retained_init(&retained, notes);
    sw_status status = copy_meta(notes, writer);
    if (status == SW_OK) status = copy_ops(source, &retained, writer, cancel, done);
    if (status == SW_OK && !swt_retained_end(&retained, &source->merge.addresses))
        status = swt_file_no_memory(source->file);
    if (status == SW_OK) status = swt_retained_write(&retained, writer);
    swt_retained_free(&retained);
    if (status == SW_OK) status = copy_sites(notes, writer);
    if (status == SW_OK) status = copy_modules(notes, writer);
    sw_trace_summary stated = {0};
    swt_source_complete(source, &stated);
    swt_writer_set_summary(writer, &stated);
    return status;
}

sw_status sw_trace_finish(const char *path, const char *out_path, unsigned flags,
                          const volatile int *cancel, volatile uint64_t *done,
                          sw_trace_summary *out) {
    if (path == NULL || out_path == NULL || (flags & ~(unsigned)SW_TRACE_VALID_PREFIX) != 0)
        return sw_fail(SW_INVALID, "sw_trace_finish", "a path is NULL, or flags 0x%x unknown",
                       flags);
    swt_file file;
    swt_source source;
    sw_trace_writer *writer = NULL;
    sw_status status = swt_file_open(&file, path, (flags & SW_TRACE_VALID_PREFIX) != 0);
    if (status != SW_OK) return status;
    status = swt_source_init(&source, &file);
    if (status == SW_OK) {
        status = sw_trace_create(out_path, &writer);
        if (status == SW_OK) status = copy_all(&source, writer, cancel, done);
        swt_source_free(&source);
    }
    swt_file_close(&file); /* before the rename, because the two paths may be equal */
    if (status == SW_OK) return sw_trace_commit(writer, out);
    sw_trace_abort(writer);
    return status;
}
