/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the files of buffer/ share (spanwise/memory.h). */
#ifndef SW_BUFFER_MEMORY_H
#define SW_BUFFER_MEMORY_H

#include "base/base.h"
#include "spanwise/memory.h"
#include "spanwise/reader.h"
#include "spanwise/recyclable.h"

/* Returns the status for a negative result of sw_os_read_buffers or sw_os_write_buffers. */
sw_cold sw_status sw_memory_refuse_descriptor(const char *op, int descriptor, int64_t reason);

const char *sw_memory_check(const sw_memory *memory);
const char *sw_reader_check(const sw_reader *reader);

#endif
