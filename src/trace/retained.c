/* SPDX-License-Identifier: Apache-2.0 */
/* What the recorded malloc keeps resident without need (retained.h). */
#include "trace/retained.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/bits.h"

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

sw_status swt_retained_write(const swt_retained *r, sw_trace_writer *writer) {
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
