/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of what reads and writes recordings, as the headers state them. See base/assert.h. They
 * are about our own state: a damaged file is an error of its own (swt_file_damage). */
#include "base/assert.h"
#include "trace/merge.h"
#include "trace/raw.h"

const char *swt_ids_check(const swt_ids *ids) {
    return SW_RULE(ids->free_count <= ids->next)
               ?: SW_RULE(ids->next <= ids->capacity)
               ?: SW_RULE(ids->capacity % 64 == 0)
               ?: SW_RULE(ids->capacity == 0 || ids->live != NULL);
}

const char *swt_stream_check(const swt_stream *stream) {
    return SW_RULE(stream->entry <= stream->entry_end)
               ?: SW_RULE(stream->left == 0 || stream->payload != NULL)
               ?: SW_RULE(stream->tick_shift <= 63)
               ?: SW_RULE(stream->address_shift <= 47);
}

const char *swt_merge_check(const swt_merge *merge) {
    return SW_RULE(merge->queue_count <= merge->stream_count)
               ?: SW_RULE(merge->open_count <= merge->stream_count)
               ?: SW_RULE(merge->count <= SW_TRACE_OPS_MAX)
               ?: swt_ids_check(&merge->ids);
}

const char *swt_buffer_check(const swt_buffer *buffer) {
    return SW_RULE(buffer->used <= buffer->capacity)
               ?: SW_RULE(buffer->capacity == 0 || buffer->data != NULL);
}
