/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the writer, for sw_trace_finish: the small blocks that a raw recording brings along. */
#ifndef SW_TRACE_WRITER_H
#define SW_TRACE_WRITER_H

#include "spanwise/trace.h"
#include "trace/raw.h"

/* Writes a payload as a block of its own between the operations. */
sw_status swt_writer_block(sw_trace_writer *writer, swt_block_kind kind, const void *payload,
                           size_t bytes);
/* Takes from `told` what can not be counted from operations, for the summary. */
void swt_writer_tell(sw_trace_writer *writer, const sw_trace_summary *told);

#endif
