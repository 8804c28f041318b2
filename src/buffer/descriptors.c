/* SPDX-License-Identifier: Apache-2.0 */
/* Reads from and writes to file descriptors, with one system call for many buffers (reader.h). */
#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "buffer/memory.h"
#include "os/os.h"

sw_status sw_memory_refuse_descriptor(const char *op, int descriptor, int64_t reason) {
    if (reason == SW_OS_NO_CALL)
        return sw_fail(SW_UNSUPPORTED, op, "this build makes no system calls");
    if (reason == SW_OS_WOULD_BLOCK)
        return sw_fail(SW_STATE, op, "descriptor %d is not ready: wait until it is", descriptor);
    return sw_fail(SW_IO, op, "descriptor %d: %s", descriptor, strerror((int)-reason));
}

/* Collects the next pieces of a reader, at most `limit` bytes in all. Returns their number. */
static size_t gather(sw_reader reader, uint64_t limit, sw_buffer pieces[SW_OS_BUFFERS_MAX]) {
    size_t count = 0;
    while (count < SW_OS_BUFFERS_MAX && sw_reader_next(&reader, limit, &pieces[count]))
        limit -= pieces[count++].size;
    return count;
}

sw_status sw_memory_read_from(sw_memory *memory, int descriptor, uint64_t *got) {
    if (memory == NULL || got == NULL)
        return sw_fail_null("memory_read_from", "the memory or its count");
    sw_buffer pieces[SW_OS_BUFFERS_MAX];
    size_t count = gather(sw_reader_of(memory), UINT64_MAX, pieces);
    if (count == 0)
        return sw_fail(SW_INVALID, "memory_read_from",
                       "a memory without bytes: add the buffers that are to be filled");
    int64_t done = sw_os_read_buffers(descriptor, pieces, count);
    if (done < 0) return sw_memory_refuse_descriptor("memory_read_from", descriptor, done);
    *got = (uint64_t)done;
    return SW_OK;
}

sw_status sw_reader_write_to(sw_reader *reader, int descriptor, uint64_t limit, uint64_t *written) {
    if (reader == NULL || written == NULL)
        return sw_fail_null("reader_write_to", "the reader or its count");
    *written = 0;
    sw_status status = sw_reader_check_revision(reader, "reader_write_to");
    limit = sw_min_u64(limit, sw_reader_length(reader));
    while (status == SW_OK && limit != 0) {
        sw_buffer pieces[SW_OS_BUFFERS_MAX];
        size_t count = gather(*reader, limit, pieces);
        int64_t done = sw_os_write_buffers(descriptor, pieces, count);
        if (done < 0) return sw_memory_refuse_descriptor("reader_write_to", descriptor, done);
        *written += (uint64_t)done;
        limit -= (uint64_t)done;
        status = sw_reader_skip(reader, (uint64_t)done);
    }
    return status;
}
