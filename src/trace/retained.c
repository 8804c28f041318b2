/* SPDX-License-Identifier: Apache-2.0 */
/* What the recorded malloc keeps resident without need (retained.h). */
#include "trace/retained.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/bits.h"

enum { LASTS_PART = 10 }; /* of the run */

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

/* Keeps a point, if there is room or it lasts longer than another, which goes. */
static void keep(swt_retained *r, const swt_retained_point *point) {
    if (r->count == SWT_RETAINED_POINTS) {
        uint32_t least = 0;
        for (uint32_t i = 1; i < r->count; i++)
            if (r->points[i].lasts_ns < r->points[least].lasts_ns) least = i;
        if (r->points[least].lasts_ns >= point->lasts_ns) return;
        r->count--;
        memmove(&r->points[least], &r->points[least + 1], (r->count - least) * sizeof r->points[0]);
    }
    r->points[r->count++] = *point;
}

void swt_retained_init(swt_retained *r, const swt_notes *notes) {
    *r = (swt_retained){0};
    const char *text = last_value(notes, "rss_series");
    uint64_t others = last_number(notes, "rss_mapped") + last_number(notes, "rss_data") +
                      last_number(notes, "rss_file") + last_number(notes, "rss_recorder");
    uint64_t ns, bytes, begun = 0, before = 0;
    for (bool first = true; text != NULL && read_point(&text, &ns, &bytes) && ns >= begun;
         first = false) {
        uint64_t least = sw_min_u64(before, bytes);
        swt_retained_point point = {.ns = begun + (ns - begun) / 2,
                                    .lasts_ns = ns - begun,
                                    .malloc_bytes = least > others ? least - others : 0};
        if (!first) keep(r, &point);
        begun = ns;
        before = bytes;
    }
    r->duration_ns = begun;
    sw_check2(swt_retained_check(r));
}

void swt_retained_free(swt_retained *r) {
    free(r->sizes);
    *r = (swt_retained){0};
}

static bool count_point(swt_retained *r, const swt_addresses *addresses) {
    swt_retained_point *point = &r->points[r->next];
    point->requested_bytes = r->requested_bytes;
    point->op = r->op;
    return swt_addresses_page_bytes(addresses, r->sizes, &point->page_bytes);
}

bool swt_retained_add(swt_retained *r, const sw_op *ops, size_t count,
                      const swt_addresses *addresses) {
    if (r->next == r->count || count == 0) return true;
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
    for (; swt_retained_next_ns(r) <= ops[count - 1].time_ns; r->next++)
        if (!count_point(r, addresses)) return false;
    return true;
}

bool swt_retained_end(swt_retained *r, const swt_addresses *addresses) {
    for (; r->next < r->count; r->next++)
        if (!count_point(r, addresses)) return false;
    return true;
}

static uint64_t waste(const swt_retained_point *point) {
    uint64_t used = sw_max_u64(point->requested_bytes, point->page_bytes);
    return point->malloc_bytes > used ? point->malloc_bytes - used : 0;
}

const swt_retained_point *swt_retained_best(const swt_retained *r) {
    const swt_retained_point *found = NULL;
    for (uint32_t i = 0; i < r->count; i++) {
        uint64_t lasts = 0;
        for (uint32_t j = 0; j < r->count; j++)
            lasts += waste(&r->points[j]) >= waste(&r->points[i]) ? r->points[j].lasts_ns : 0;
        if (lasts >= r->duration_ns / LASTS_PART &&
            waste(&r->points[i]) > (found == NULL ? 0 : waste(found)))
            found = &r->points[i];
    }
    return found;
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
