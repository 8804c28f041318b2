/* SPDX-License-Identifier: Apache-2.0 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace/retained.h"

/* --- moments ---------------------------------------------------------------------------------- */

static const char *swt_retained_check(const swt_retained *retained) {
    for (uint32_t i = 1; i < retained->count; i++)
        if (retained->points[i - 1].ns > retained->points[i].ns) return "times of points rise";
    return SW_RULE(retained->next <= retained->count)
               ?: SW_RULE(retained->count <= SWT_RETAINED_ALL);
}

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

/* Reads the run's duration, and the points of the series. */
static void read_series(swt_retained *r, const char *series) {
    uint64_t ns, bytes, most = 0;
    swt_retained_peak *peak = &r->peak;
    while (peak->count < SWT_RETAINED_SERIES && read_point(&series, &ns, &bytes)) {
        peak->series[peak->count++] = (swt_retained_rss){ns, bytes};
        r->duration_ns = sw_max_u64(r->duration_ns, ns);
        most = sw_max_u64(most, bytes);
    }
    peak->near_bytes = most - most / 100;
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
    point->kind = SWT_RETAINED_PAUSE;
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
        r->count += r->points[r->count].end_ns > r->points[r->count].ns;
    qsort(r->points, r->count, sizeof r->points[0], compare_points);
}

void swt_retained_init(swt_retained *r, const swt_notes *notes) {
    *r = (swt_retained){0};
    const char *series = last_value(notes, "rss_series");
    if (series == NULL) return;
    read_series(r, series);
    if (r->duration_ns == 0) return;
    uint64_t others = last_number(notes, "rss_mapped") + last_number(notes, "rss_data") +
                      last_number(notes, "rss_file") + last_number(notes, "rss_recorder");
    place at = {.text = series};
    for (; r->count < SWT_RETAINED_POINTS; r->count++) {
        uint64_t ns = (2 * r->count + 1) * (r->duration_ns / (2 * SWT_RETAINED_POINTS));
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

/* --- counting --------------------------------------------------------------------------------- */

/* The next operation is at or after the next points: they begin. */
static void begin_points(swt_retained *r, uint64_t ns) {
    for (; swt_retained_next_ns(r) <= ns; r->next++) {
        swt_retained_point *point = &r->points[r->next];
        point->requested_bytes = point->least_bytes = r->requested_bytes;
        point->op = r->op;
        r->open_ns = sw_max_u64(r->open_ns, point->end_ns);
    }
}

/* The operation at a time was added, and may come before the end of points that have begun. */
static void extend_points(swt_retained *r, uint32_t counted, uint64_t ns) {
    for (uint32_t i = 0; i < r->next; i++) {
        swt_retained_point *point = &r->points[i];
        if (ns >= point->end_ns) continue;
        point->least_bytes = sw_min_u64(point->least_bytes, r->requested_bytes);
        if (r->requested_bytes <= point->requested_bytes) continue;
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
}

/* Keeps the most requested bytes of those times that are at or before a point near the peak. */
static void note_peak(swt_retained_peak *peak, const swt_retained *r) {
    if (peak->next == peak->count || peak->series[peak->next].bytes < peak->near_bytes) return;
    if (peak->op != 0 && r->requested_bytes <= peak->requested_bytes) return;
    peak->requested_bytes = r->requested_bytes;
    peak->op = r->op;
}

/* The operations before `ns` were added. */
static void pass_series(swt_retained *r, uint64_t ns) {
    swt_retained_peak *peak = &r->peak;
    for (; peak->next < peak->count && peak->series[peak->next].ns < ns; peak->next++)
        note_peak(peak, r);
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
        pass_series(r, ops[i].time_ns);
        add_op(r, &ops[i]);
        note_peak(&r->peak, r);
        if (ops[i].time_ns < r->open_ns) extend_points(r, first, ops[i].time_ns);
    }
    return count_pages(r, first, addresses);
}

bool swt_retained_end(swt_retained *r, const swt_addresses *addresses) {
    uint32_t first = r->next;
    begin_points(r, UINT64_MAX - 1);
    pass_series(r, UINT64_MAX);
    return count_pages(r, first, addresses);
}

/* --- choice ----------------------------------------------------------------------------------- */

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

/* What is requested in the middle of the next part of the run, or at its end. */
static uint64_t next_requested(const swt_retained *r, const swt_retained_point *point) {
    for (const swt_retained_point *next = point; next < r->points + r->count; next++)
        if (next->kind == SWT_RETAINED_PART && next->ns > point->end_ns)
            return next->requested_bytes;
    return r->requested_bytes;
}

/* Whether the pause is long, or the program goes on to use most of what it holds. */
static bool pause_counts(const swt_retained *r, const swt_retained_point *pause) {
    uint64_t long_ns = sw_min_u64(r->duration_ns / SWT_RETAINED_LONG, SWT_RETAINED_LONG_NS);
    uint64_t now = pause->least_bytes, next = next_requested(r, pause);
    return pause->end_ns - pause->ns >= long_ns || next >= now || now - next <= now / 8;
}

static bool counts(const swt_retained *r, const swt_retained_point *point,
                   const swt_retained_point *part) {
    if (point->kind == SWT_RETAINED_PART) return point == part;
    return pause_counts(r, point);
}

/* How long the state lasts at least. */
static uint64_t lasts_ns(const swt_retained *r, const swt_retained_point *point) {
    if (point->kind != SWT_RETAINED_PART) return point->end_ns - point->ns;
    return r->duration_ns / SWT_RETAINED_POINTS * 2;
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

void swt_retained_span(const swt_retained *r, const swt_retained_point *best, uint64_t *from_ns,
                       uint64_t *until_ns) {
    const swt_retained_point *first = best, *last = best, *end = r->points + r->count;
    uint64_t least = waste(best) - waste(best) / 4;
    while (first > r->points && waste(first - 1) >= least) first--;
    while (last + 1 < end && waste(last + 1) >= least) last++;
    *from_ns = first->ns;
    *until_ns = last + 1 < end ? last->end_ns : sw_max_u64(last->end_ns, r->duration_ns);
}

/* --- metadata --------------------------------------------------------------------------------- */

static sw_status write_number(sw_trace_writer *writer, const char *key, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    return swt_writer_meta(writer, key, text);
}

/* Writes a number of each key, of which there are `count`. */
static sw_status write_numbers(sw_trace_writer *writer, const char *const keys[],
                               const uint64_t values[], size_t count) {
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i < count; i++)
        status = write_number(writer, keys[i], values[i]);
    return status;
}

sw_status swt_retained_write(const swt_retained *r, sw_trace_writer *writer) {
    if (r->count == 0) return SW_OK;
    const swt_retained_point *point = swt_retained_best(r);
    static const char *const peak_keys[] = {"rss_peak_op", "rss_peak_requested"};
    sw_status status = write_numbers(writer, peak_keys,
                                     (const uint64_t[]){r->peak.op, r->peak.requested_bytes}, 2);
    if (status != SW_OK || point == NULL) return status;
    uint64_t from_ns, until_ns;
    swt_retained_span(r, point, &from_ns, &until_ns);
    static const char *const keys[] = {"rss_kept_ns",        "rss_kept_op",    "rss_kept_malloc",
                                       "rss_kept_requested", "rss_kept_pages", "rss_kept_from",
                                       "rss_kept_until"};
    const uint64_t values[] = {
        point->ns, point->op, point->malloc_bytes, point->requested_bytes, point->page_bytes,
        from_ns,   until_ns};
    return write_numbers(writer, keys, values, sizeof values / sizeof values[0]);
}
