/* SPDX-License-Identifier: Apache-2.0 */
/* The public reader of spanwise/trace.h. file.c reads blocks and their checksums, notes.c the small
 * blocks; ops.c decodes an ordered recording, merge.c a raw one. */
#include "trace/reader.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"
#include "trace/ops.h"

/* Checks a reader that has not failed. Returns the first broken rule, or NULL (base/base.h). */
static const char *sw_trace_record_check(const struct sw_trace *trace) {
    return SW_RULE(trace->source.file == &trace->file)
               ?: SW_RULE(trace->rest_count <= SW_TRACE_OPS_MAX)
               ?: SW_RULE(trace->rest_count == 0 || trace->rest != NULL)
               ?: swt_file_check(&trace->file)
               ?: swt_source_check(&trace->source);
}

const char *swt_source_check(const swt_source *source) {
    return SW_RULE(source->entry <= source->file->entry_count)
               ?: (source->file->damaged ? NULL : swt_ops_state_check(&source->state));
}

/* --- operations in order ---------------------------------------------------------------------- */

sw_status swt_source_init(swt_source *source, swt_file *file) {
    *source = (swt_source){.file = file, .ops = malloc(SW_TRACE_OPS_MAX * sizeof(sw_op))};
    if (source->ops == NULL) return swt_file_no_memory(file);
    if (file->header.form != SW_TRACE_RAW) return SW_OK;
    sw_status status = swt_merge_init(&source->merge, file);
    if (status != SW_OK) swt_source_free(source);
    return status;
}

void swt_source_free(swt_source *source) {
    swt_merge_free(&source->merge);
    swt_ids_free(&source->state.ids);
    free(source->ops);
    *source = (swt_source){0};
}

static sw_status bad_op(swt_source *source, uint64_t at, uint64_t index, const char *wrong) {
    char reason[96];
    if (wrong == swt_no_memory) return swt_file_no_memory(source->file);
    snprintf(reason, sizeof reason, "operation %llu: %s", (unsigned long long)index, wrong);
    return swt_file_damage(source->file, at, reason);
}

static sw_status next_ordered(swt_source *source, sw_op *ops, size_t *count) {
    *count = 0;
    if (source->entry == source->file->entry_count) return SW_OK;
    const swt_entry *entry = &source->file->entries[source->entry];
    swt_block block;
    bool whole;
    size_t good = 0;
    sw_status status = swt_file_load(source->file, entry, &block, &whole);
    const char *wrong = NULL;
    if (status == SW_OK && whole)
        wrong = swt_ops_decode(&source->state, source->file->payload, block.raw_bytes, block.count,
                               ops, &good);
    if (wrong != NULL) status = bad_op(source, entry->at, source->state.count + good, wrong);
    if (status == SW_OK && whole && wrong == NULL) {
        source->entry++;
        *count = block.count;
    } else {
        source->entry = source->file->entry_count; /* the valid prefix ends here */
    }
    return status;
}

sw_status swt_source_next(swt_source *source, size_t *count) {
    sw_check2(swt_source_check(source));
    if (source->file->header.form == SW_TRACE_RAW)
        return swt_merge_next(&source->merge, source->ops, count);
    return next_ordered(source, source->ops, count);
}

void swt_source_complete(const swt_source *source, sw_trace_summary *sum) {
    const swt_file *file = source->file;
    const sw_trace_summary *stated = &file->notes.summary, *lost = &source->merge.lost;
    bool raw = file->header.form == SW_TRACE_RAW;
    sum->sites = file->notes.site_count;
    sum->unknown_frees = raw ? lost->unknown_frees : stated->unknown_frees;
    sum->unknown_reallocs = raw ? lost->unknown_reallocs : stated->unknown_reallocs;
    sum->missed_frees = raw ? lost->missed_frees : stated->missed_frees;
    sum->calls = stated->calls;
    sum->dropped_calls = stated->dropped_calls;
    sum->drop_reason = stated->drop_reason;
    sum->children_unrecorded = stated->children_unrecorded;
    sum->children_recorded = stated->children_recorded;
    sum->incomplete = file->damaged ? 1 : stated->incomplete;
}

/* Computes the summary of a file: reads it through a separate source, and takes the recorder's
 * statistics from the file's notes. Damage that it meets is recorded in the file. */
static sw_status swt_source_summarise(swt_file *file, sw_trace_summary *out) {
    swt_source source;
    swt_totals totals = {0};
    sw_status status = swt_source_init(&source, file);
    if (status != SW_OK) return status;
    for (size_t count = 1; status == SW_OK && count != 0;) {
        status = swt_source_next(&source, &count);
        if (status == SW_OK && swt_totals_add(&totals, source.ops, count) != SW_OK)
            status = swt_file_no_memory(file);
    }
    if (status == SW_OK) {
        swt_source_complete(&source, &totals.sum);
        *out = totals.sum;
    }
    swt_totals_free(&totals);
    swt_source_free(&source);
    return status;
}

/* --- the public reader ------------------------------------------------------------------------ */

static bool check(const sw_trace *trace, const char *op) {
    return sw_handle_check(trace, offsetof(sw_trace, mark), SW_HANDLE_TRACE, op);
}

sw_status swt_trace_status(const sw_trace *trace, const char *op) {
    return sw_handle_status(trace, offsetof(sw_trace, mark), SW_HANDLE_TRACE, op);
}

static sw_status remember(sw_trace *trace, sw_status status) {
    trace->failed = status;
    snprintf(trace->message, sizeof trace->message, "%s", sw_last_error()->message);
    return status;
}

sw_status sw_trace_open(const char *path, unsigned flags, sw_trace **out) {
    const unsigned known = SW_TRACE_VALID_PREFIX | SW_TRACE_SAMPLED;
    if (path == NULL || out == NULL || (flags & ~known) != 0)
        return sw_fail(SW_INVALID, "sw_trace_open", "path or result is NULL, or flags 0x%x unknown",
                       flags);
    sw_trace *trace = sw_os_map(sizeof *trace);
    if (trace == NULL) return sw_fail(SW_NOMEM, "sw_trace_open", "out of memory");
    sw_handle_begin(&trace->mark, SW_HANDLE_TRACE);
    sw_status status = swt_file_open(&trace->file, path, (flags & SW_TRACE_VALID_PREFIX) != 0);
    if (status == SW_OK) status = swt_source_init(&trace->source, &trace->file);
    if (status == SW_OK && (flags & SW_TRACE_SAMPLED) == 0 &&
        swt_notes_find(&trace->file.notes, "sample_bytes") != NULL)
        status = sw_fail(SW_UNSUPPORTED, "sw_trace_open",
                         "%s: is a sample of the objects; open it with SW_TRACE_SAMPLED", path);
    if (status != SW_OK) {
        sw_trace_close(trace);
        return status;
    }
    *out = trace;
    return SW_OK;
}

void sw_trace_close(sw_trace *trace) {
    if (trace == NULL || !check(trace, "sw_trace_close")) return;
    sw_handle_end(&trace->mark, SW_HANDLE_TRACE);
    swt_source_free(&trace->source);
    swt_file_close(&trace->file);
    sw_handle_retire(trace, sizeof *trace, sizeof trace->mark, SW_HANDLE_TRACE);
}

sw_status sw_trace_next(sw_trace *trace, const sw_op **ops, size_t *count) {
    sw_status known = swt_trace_status(trace, "sw_trace_next");
    if (known != SW_OK) return known;
    if (ops == NULL || count == NULL) return sw_fail_null("sw_trace_next", "ops or count");
    if (trace->failed != SW_OK)
        return sw_fail(trace->failed, "sw_trace_next", "%s", trace->message);
    sw_check2(sw_trace_record_check(trace));
    size_t n;
    sw_status status = swt_source_next(&trace->source, &n);
    if (status != SW_OK) return remember(trace, status);
    *ops = trace->source.ops;
    *count = n;
    return SW_OK;
}

sw_status sw_trace_read(sw_trace *trace, sw_op *out, size_t capacity, size_t *count) {
    sw_status known = swt_trace_status(trace, "sw_trace_read");
    if (known != SW_OK) return known;
    if ((out == NULL && capacity != 0) || count == NULL)
        return sw_fail_null("sw_trace_read", "out or count");
    size_t got = 0;
    while (got < capacity) {
        if (trace->rest_count == 0) {
            sw_status status = sw_trace_next(trace, &trace->rest, &trace->rest_count);
            if (status != SW_OK) return status;
            if (trace->rest_count == 0) break;
        }
        size_t n = trace->rest_count < capacity - got ? trace->rest_count : capacity - got;
        memcpy(out + got, trace->rest, n * sizeof *out);
        got += n;
        trace->rest += n;
        trace->rest_count -= n;
    }
    *count = got;
    return SW_OK;
}

sw_status sw_trace_rewind(sw_trace *trace) {
    sw_status known = swt_trace_status(trace, "sw_trace_rewind");
    if (known != SW_OK) return known;
    swt_source_free(&trace->source);
    trace->rest_count = 0;
    sw_status status = swt_source_init(&trace->source, &trace->file);
    trace->failed = SW_OK;
    return status == SW_OK ? SW_OK : remember(trace, status);
}

static uint64_t number(const swt_file *file, const char *key) {
    const char *text = swt_notes_find(&file->notes, key);
    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

void sw_trace_get_info(const sw_trace *trace, sw_trace_info *out) {
    if (!check(trace, "sw_trace_get_info") || out == NULL) return;
    const swt_file *file = &trace->file;
    *out = (sw_trace_info){
        .file_bytes = file->bytes,
        .ops = file->count,
        .pid = number(file, "pid"),
        .page_bytes = number(file, "page_bytes"),
        .stack_depth = number(file, "stack_depth"),
        .start_unix_ns = number(file, "start_unix_ns"),
        .damage_offset = file->damage_at,
        .version = file->header.version,
        .form = file->header.form,
        .pythonmalloc = number(file, "pythonmalloc") != 0,
        .damaged = file->damaged,
    };
}

sw_status sw_trace_get_summary(sw_trace *trace, sw_trace_summary *out) {
    sw_status known = swt_trace_status(trace, "sw_trace_get_summary");
    if (known != SW_OK) return known;
    if (out == NULL) return sw_fail_null("sw_trace_get_summary", "out");
    const swt_file *file = &trace->file;
    if (!trace->summarised && file->complete && !file->damaged &&
        file->header.form == SW_TRACE_ORDERED) {
        trace->summary = file->notes.summary;
        trace->summarised = true;
    }
    if (!trace->summarised) {
        sw_status status = swt_source_summarise(&trace->file, &trace->summary);
        if (status != SW_OK) return status;
        trace->summarised = true;
    }
    *out = trace->summary;
    return SW_OK;
}

/* --- notes ------------------------------------------------------------------------------------ */

size_t sw_trace_meta_count(const sw_trace *trace) {
    return check(trace, "sw_trace_meta_count") ? trace->file.notes.meta_used / 2 : 0;
}

int sw_trace_meta_at(const sw_trace *trace, size_t index, const char **key, const char **value) {
    if (!check(trace, "sw_trace_meta_at")) return 0;
    const swt_notes *notes = &trace->file.notes;
    if (index >= notes->meta_used / 2) return 0;
    *key = notes->text + notes->meta[2 * index];
    *value = notes->text + notes->meta[2 * index + 1];
    return 1;
}

const char *sw_trace_meta_find(const sw_trace *trace, const char *key) {
    return check(trace, "sw_trace_meta_find") ? swt_notes_find(&trace->file.notes, key) : NULL;
}

size_t sw_trace_site_count(const sw_trace *trace) {
    return check(trace, "sw_trace_site_count") ? trace->file.notes.site_count : 0;
}

uint32_t sw_trace_site_at(const sw_trace *trace, size_t index, const uint64_t **addresses) {
    if (!check(trace, "sw_trace_site_at")) return 0;
    const swt_notes *notes = &trace->file.notes;
    if (index >= notes->site_count) return 0;
    const swt_site *site = &notes->sites[index];
    if (site->depth != 0) *addresses = notes->frames + site->frame;
    return site->id;
}

size_t sw_trace_site(const sw_trace *trace, uint32_t site, const uint64_t **addresses) {
    if (!check(trace, "sw_trace_site")) return 0;
    const swt_notes *notes = &trace->file.notes;
    size_t place = swt_notes_site(notes, site);
    if (sw_trace_site_at(trace, place, addresses) != site || site == 0) return 0;
    return notes->sites[place].depth;
}

size_t sw_trace_module_count(const sw_trace *trace) {
    return check(trace, "sw_trace_module_count") ? trace->file.notes.module_count : 0;
}

int sw_trace_module_at(const sw_trace *trace, size_t index, sw_trace_module *out) {
    if (!check(trace, "sw_trace_module_at")) return 0;
    const swt_notes *notes = &trace->file.notes;
    if (index >= notes->module_count) return 0;
    const swt_module *module = &notes->modules[index];
    size_t bytes = module->build_id_bytes;
    *out = (sw_trace_module){
        .start = module->start,
        .end = module->end,
        .bias = module->bias,
        .path = notes->text + module->path,
        .build_id = bytes != 0 ? (const uint8_t *)notes->text + module->build_id : NULL,
        .build_id_bytes = bytes,
    };
    return 1;
}
