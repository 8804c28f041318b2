/* SPDX-License-Identifier: Apache-2.0 */
/* Operations of a file of either form, in order. */
#include "trace/source.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/assert.h"
#include "trace/totals.h"

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

sw_status swt_source_summarise(swt_file *file, sw_trace_summary *out) {
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
