/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the structs that read and write recordings, as the headers state them. See
 * base/assert.h. They concern the state of this process; swt_file_damage reports damage in a
 * file. */
#include "base/assert.h"
#include "base/bits.h"
#include "trace/merge.h"
#include "trace/raw.h"
#include "trace/reader.h"
#include "trace/retained.h"
#include "trace/writer.h"

const char *swt_ids_check(const swt_ids *ids) {
    return SW_RULE(ids->free_count <= ids->next)
               ?: SW_RULE(ids->next <= ids->capacity)
               ?: SW_RULE(ids->capacity % 64 == 0)
               ?: SW_RULE(ids->capacity == 0 || ids->live != NULL);
}

const char *swt_addresses_check(const swt_addresses *map) {
    return SW_RULE((map->mask == 0) == (map->entries == NULL))
               ?: SW_RULE(map->mask == 0 || 1ull << (64 - map->shift) == map->mask + 1)
               ?: SW_RULE(map->count <= (map->mask + 1) / 2)
               ?: SW_RULE(map->leaf_count <= map->leaf_capacity)
               ?: SW_RULE(map->count + map->spare_count == map->leaf_count);
}

const char *swt_stream_check(const swt_stream *stream) {
    return SW_RULE(stream->entry <= stream->entry_end)
               ?: SW_RULE(stream->left == 0 || stream->payload != NULL)
               ?: SW_RULE(stream->tick_shift <= 63)
               ?: SW_RULE(stream->address_shift <= 47);
}

const char *swt_retained_check(const swt_retained *retained) {
    for (uint32_t i = 1; i < retained->count; i++)
        if (retained->points[i - 1].ns > retained->points[i].ns) return "times of points rise";
    return SW_RULE(retained->next <= retained->count)
               ?: SW_RULE(retained->count <= SWT_RETAINED_POINTS);
}

const char *swt_merge_check(const swt_merge *merge) {
    return SW_RULE(merge->queue_count <= merge->stream_count)
               ?: SW_RULE(merge->open_count <= merge->stream_count)
               ?: SW_RULE(merge->count <= SW_TRACE_OPS_MAX)
               ?: swt_ids_check(&merge->ids)
               ?: swt_addresses_check(&merge->addresses);
}

const char *swt_raw_check(const swt_raw *raw) {
    return SW_RULE(raw->events <= raw->next)
               ?: SW_RULE(raw->next <= raw->limit)
               ?: SW_RULE(raw->limit - raw->events <= SWT_RAW_EVENTS_MAX);
}

const char *swt_buffer_check(const swt_buffer *buffer) {
    return SW_RULE(buffer->used <= buffer->capacity)
               ?: SW_RULE(buffer->capacity == 0 || buffer->data != NULL);
}

/* --- files and their operations --------------------------------------------------------------- */

const char *swt_notes_check(const swt_notes *notes) {
    return SW_RULE(notes->text_used <= notes->text_capacity)
               ?: SW_RULE(notes->meta_used <= notes->meta_capacity)
               ?: SW_RULE(notes->module_count <= notes->module_capacity)
               ?: SW_RULE(notes->frame_count <= notes->frame_capacity)
               ?: SW_RULE(notes->site_count <= notes->site_capacity);
}

const char *swt_file_check(const swt_file *file) {
    return SW_RULE(file->entry_count <= file->entry_capacity)
               ?: SW_RULE(!file->damaged || file->prefix)
               ?: SW_RULE(file->damage_at <= file->bytes)
               ?: swt_notes_check(&file->notes);
}

const char *swt_ops_state_check(const swt_ops_state *state) {
    return SW_RULE(state->thread == 0 || state->thread < state->threads)
               ?: SW_RULE(state->object == 0 || state->gives_no_ids ||
                          state->object < state->ids.next)
               ?: swt_ids_check(&state->ids);
}

const char *swt_ops_columns_check(const swt_ops_columns *columns) {
    return SW_RULE(columns->count <= SW_TRACE_OPS_MAX)
               ?: SW_RULE(columns->tag == columns->scratch + SWT_OPS_HEAD_BYTES + columns->count);
}

const char *swt_source_check(const swt_source *source) {
    return SW_RULE(source->entry <= source->file->entry_count)
               ?: (source->file->damaged ? NULL : swt_ops_state_check(&source->state));
}

const char *swt_totals_check(const swt_totals *totals) {
    const sw_trace_summary *sum = &totals->sum;
    return SW_RULE(sum->frees + sum->end_live_objects == sum->allocs)
               ?: SW_RULE(sum->end_live_objects <= sum->peak_live_objects)
               ?: SW_RULE(sum->end_requested_bytes <= sum->peak_requested_bytes)
               ?: SW_RULE(sum->peak_op <= sum->ops);
}

/* --- handles ---------------------------------------------------------------------------------- */

const char *sw_trace_record_check(const struct sw_trace *trace) {
    return SW_RULE(trace->source.file == &trace->file)
               ?: SW_RULE(trace->rest_count <= SW_TRACE_OPS_MAX)
               ?: SW_RULE(trace->rest_count == 0 || trace->rest != NULL)
               ?: swt_file_check(&trace->file)
               ?: swt_source_check(&trace->source);
}

const char *sw_trace_writer_record_check(const struct sw_trace_writer *writer) {
    return SW_RULE(writer->state.count == writer->totals.sum.ops)
               ?: SW_RULE(writer->columns.count <= writer->state.count)
               ?: SW_RULE(writer->headed || !writer->started)
               ?: SW_RULE(writer->object_capacity == 0 || writer->objects != NULL)
               ?: swt_buffer_check(&writer->small)
               ?: swt_ops_state_check(&writer->state)
               ?: swt_ops_columns_check(&writer->columns)
               ?: swt_totals_check(&writer->totals);
}
