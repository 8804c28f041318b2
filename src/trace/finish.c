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
               ?: SW_RULE(retained->count <= SWT_RETAINED_ALL);
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

static uint64_t ns_of(const swt_notes *notes, uint64_t ticks) {
    __extension__ typedef unsigned __int128 wide;
    uint64_t origin = notes->first_clock.ticks;
    return ticks <= origin ? 0
                           : (uint64_t)((wide)(ticks - origin) * swt_notes_tick_q32(notes) >> 32);
}

/* Reads "from:to:malloc" and moves on. False: the end, or another text. */
static bool read_pause(const char **text, const swt_notes *notes, swt_retained_point *point) {
    char *end;
    uint64_t from = strtoull(*text, &end, 10);
    if (end == *text || *end != ':') return false;
    *text = end + 1;
    uint64_t to;
    if (!read_point(text, &to, &point->malloc_bytes) || to < from) return false;
    point->kind = from == to ? SWT_RETAINED_LAST : SWT_RETAINED_PAUSE;
    point->ns = ns_of(notes, from);
    point->end_ns = ns_of(notes, to);
    return true;
}

static int compare_points(const void *a, const void *b) {
    const swt_retained_point *left = a, *right = b;
    return (left->ns > right->ns) - (left->ns < right->ns);
}

static void add_pauses(swt_retained *r, const swt_notes *notes) {
    const char *text = last_value(notes, "rss_pauses");
    while (text != NULL && r->count < SWT_RETAINED_ALL &&
           read_pause(&text, notes, &r->points[r->count]))
        r->count++;
    qsort(r->points, r->count, sizeof r->points[0], compare_points);
}

void swt_retained_init(swt_retained *r, const swt_notes *notes) {
    *r = (swt_retained){0};
    const char *series = last_value(notes, "rss_series");
    uint64_t duration_ns = series == NULL ? 0 : duration_of(series);
    if (duration_ns == 0) return;
    uint64_t others = last_number(notes, "rss_mapped") + last_number(notes, "rss_data") +
                      last_number(notes, "rss_file") + last_number(notes, "rss_recorder");
    place at = {.text = series};
    r->part_ns = duration_ns / SWT_RETAINED_POINTS;
    for (; r->count < SWT_RETAINED_POINTS; r->count++) {
        uint64_t ns = (2 * r->count + 1) * (duration_ns / (2 * SWT_RETAINED_POINTS));
        uint64_t bytes = bytes_at(&at, ns);
        r->points[r->count].ns = r->points[r->count].end_ns = ns;
        r->points[r->count].malloc_bytes = bytes > others ? bytes - others : 0;
    }
    add_pauses(r, notes);
    sw_check2(swt_retained_check(r));
}

void swt_retained_free(swt_retained *r) {
    free(r->sizes);
    *r = (swt_retained){0};
}

/* The next operation is at or after the next points: they begin. */
static void begin_points(swt_retained *r, uint64_t ns) {
    for (; swt_retained_next_ns(r) <= ns; r->next++) {
        swt_retained_point *point = &r->points[r->next];
        point->requested_bytes = r->requested_bytes;
        point->op = r->op;
        r->open_ns = sw_max_u64(r->open_ns, point->end_ns);
    }
}

/* The operation at a time was added, and may come before the end of points that have begun. */
static void extend_points(swt_retained *r, uint32_t counted, uint64_t ns) {
    for (uint32_t i = 0; i < r->next; i++) {
        swt_retained_point *point = &r->points[i];
        if (ns >= point->end_ns || r->requested_bytes <= point->requested_bytes) continue;
        if (i < counted) point->page_bytes += r->requested_bytes - point->requested_bytes;
        point->requested_bytes = r->requested_bytes;
        point->op = r->op;
    }
}

/* Counts the pages of points from `first` on. The objects are those after a later operation, whose
 * bytes are taken off or added. */
static bool count_pages(swt_retained *r, uint32_t first, const swt_addresses *addresses) {
    uint64_t bytes;
    if (first == r->next) return true;
    if (!swt_addresses_page_bytes(addresses, r->sizes, &bytes)) return false;
    for (uint32_t i = first; i < r->next; i++) {
        uint64_t sum = bytes + r->points[i].requested_bytes;
        r->points[i].page_bytes = sum > r->requested_bytes ? sum - r->requested_bytes : 0;
    }
    return true;
}

static void add_op(swt_retained *r, const sw_op *op) {
    r->op++;
    if (op->kind == SW_OP_THREAD_END) return;
    r->requested_bytes -= op->kind == SW_OP_ALLOC ? 0 : r->sizes[op->object];
    r->sizes[op->object] = op->kind == SW_OP_FREE ? 0 : op->size;
    r->requested_bytes += r->sizes[op->object];
    r->most_bytes = sw_max_u64(r->most_bytes, r->requested_bytes);
}

bool swt_retained_add(swt_retained *r, const sw_op *ops, size_t count,
                      const swt_addresses *addresses) {
    if (r->count == 0) return true;
    uint32_t first = r->next;
    for (size_t i = 0; i < count; i++) {
        size_t id = ops[i].object;
        if (ops[i].kind != SW_OP_THREAD_END && id >= r->capacity &&
            !swt_grow(&r->sizes, &r->capacity, id + 1, sizeof *r->sizes))
            return false;
        begin_points(r, ops[i].time_ns);
        add_op(r, &ops[i]);
        if (ops[i].time_ns < r->open_ns) extend_points(r, first, ops[i].time_ns);
    }
    return count_pages(r, first, addresses);
}

bool swt_retained_end(swt_retained *r, const swt_addresses *addresses) {
    uint32_t first = r->next;
    begin_points(r, UINT64_MAX - 1);
    return count_pages(r, first, addresses);
}

static uint64_t waste(const swt_retained_point *point) {
    uint64_t requested = point->requested_bytes;
    return point->malloc_bytes > requested ? point->malloc_bytes - requested : 0;
}

/* Whether the program frees its objects from one point to the next, as at its end. */
static bool is_teardown(uint64_t now, uint64_t next) {
    return next < now && now - next > now / (2 * SWT_RETAINED_POINTS);
}

/* The point with the second most waste of those in the middle of parts of the run. */
static const swt_retained_point *best_part(const swt_retained *r) {
    const swt_retained_point *first = NULL, *second = NULL;
    uint64_t next = r->requested_bytes;
    for (uint32_t i = r->count; i-- > 0;) {
        const swt_retained_point *point = &r->points[i];
        if (point->kind != SWT_RETAINED_PART) continue;
        if (!is_teardown(point->requested_bytes, next)) {
            if (first == NULL || waste(point) >= waste(first)) {
                second = first;
                first = point;
            } else if (second == NULL || waste(point) >= waste(second)) {
                second = point;
            }
        }
        next = point->requested_bytes;
    }
    return second;
}

/* Whether the program has freed most of what it held when this point, its last, comes. */
static bool is_empty(const swt_retained *r, const swt_retained_point *last) {
    uint64_t before = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (r->points[i].kind == SWT_RETAINED_PART) before = r->points[i].requested_bytes;
    return last->requested_bytes < sw_max_u64(before / 2, r->most_bytes / 16);
}

static bool counts(const swt_retained *r, const swt_retained_point *point,
                   const swt_retained_point *part) {
    if (point->kind == SWT_RETAINED_PART) return point == part;
    return point->kind == SWT_RETAINED_PAUSE || !is_empty(r, point);
}

/* How long the state lasts at least. */
static uint64_t lasts_ns(const swt_retained *r, const swt_retained_point *point) {
    return point->kind == SWT_RETAINED_PART ? r->part_ns * 2 : point->end_ns - point->ns;
}

const swt_retained_point *swt_retained_best(const swt_retained *r) {
    const swt_retained_point *part = best_part(r), *best = NULL;
    uint64_t most = 0;
    for (uint32_t i = 0; i < r->count; i++)
        if (counts(r, &r->points[i], part)) most = sw_max_u64(most, waste(&r->points[i]));
    for (uint32_t i = 0; most != 0 && i < r->count; i++) {
        const swt_retained_point *point = &r->points[i];
        if (counts(r, point, part) && waste(point) >= most - most / 10 &&
            (best == NULL || lasts_ns(r, point) > lasts_ns(r, best)))
            best = point;
    }
    return best;
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
    "rss_peak",     "rss_ns",         "rss_malloc", "rss_mapped",    "rss_data",  "rss_file",
    "rss_recorder", "rss_end_malloc", "rss_series", "rss_untouched", "rss_pauses"};
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
