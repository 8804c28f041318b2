/* SPDX-License-Identifier: Apache-2.0 */
/* The slow paths of a reader, which cross into another buffer or fail (reader.h). Each works on a
 * copy of the reader, which replaces the original at the end, so that a call that fails consumes
 * nothing. */
#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "buffer/memory.h"
#include "os/os.h"
#include "spanwise/reader.h"

static sw_cold sw_status refuse_short(const sw_reader *reader, uint64_t size, const char *op) {
    return sw_fail(SW_SHORT, op, "%" PRIu64 " bytes wanted, %" PRIu64 " are left of %" PRIu64, size,
                   sw_reader_length(reader), reader->size);
}

/* SW_STATE, with the last error set, if the memory was changed since the reader was created;
 * additions do not count. */
static sw_status sw_reader_check_revision(const sw_reader *reader, const char *op) {
    if (reader->memory == NULL || reader->memory->revision == reader->revision) return SW_OK;
    return sw_fail(SW_STATE, op, "the memory was changed since the reader was made: make another");
}

/* If the current buffer is exhausted, moves to the next one with bytes, if there is one. The
 * memory's revision was checked before. */
static void settle(sw_reader *reader) {
    while (reader->at == reader->end && reader->later != 0) {
        const sw_buffer *buffer = &sw_memory_buffers(reader->memory)[++reader->index];
        if (buffer->size == 0) continue;
        reader->at = buffer->bytes;
        reader->end = reader->at + buffer->size;
        reader->later -= buffer->size;
    }
    sw_check2(sw_reader_check(reader));
}

/* Takes the next byte; there must be one. The memory's revision was checked before. */
static uint8_t take_byte(sw_reader *reader) {
    settle(reader);
    return *reader->at++;
}

sw_reader_step sw_reader_skip_slow(sw_reader reader, uint64_t size, const char *op) {
    sw_reader_step step = {reader, 0, SW_OK};
    if (size > sw_reader_length(&reader)) {
        step.status = refuse_short(&reader, size, op);
    } else {
        step.status = sw_reader_check_revision(&reader, op);
    }
    if (step.status != SW_OK) return step;
    while (size > sw_reader_here(&step.reader)) {
        size -= sw_reader_here(&step.reader);
        step.reader.at = step.reader.end;
        settle(&step.reader);
    }
    if (size != 0) step.reader.at += size;
    settle(&step.reader);
    return step;
}

sw_reader_step sw_reader_be_slow(sw_reader reader, uint32_t size) {
    sw_reader_step step = {reader, 0, SW_OK};
    if (size > SW_READER_BE_MAX) {
        step.status =
            sw_fail(SW_INVALID, "reader_read_be", "a number of %u bytes: read at most 8", size);
    } else if (size > sw_reader_length(&reader)) {
        step.status = refuse_short(&reader, size, "reader_read_be");
    } else {
        step.status = sw_reader_check_revision(&reader, "reader_read_be");
    }
    if (step.status != SW_OK) return step;
    while (size-- > 0) step.value = step.value << 8 | take_byte(&step.reader);
    return step;
}

sw_reader_step sw_reader_leb_slow(sw_reader reader) {
    static const char op[] = "reader_read_leb128";
    sw_reader_step step = {reader, 0, sw_reader_check_revision(&reader, op)};
    uint8_t byte = 0x80;
    for (uint32_t i = 0; step.status == SW_OK && byte >= 0x80; i++) {
        if (i == SW_READER_LEB_MAX) {
            step.status = sw_fail(SW_FORMAT, op, "over-long: more than 10 bytes");
        } else if (sw_reader_length(&step.reader) == 0) {
            step.status = refuse_short(&reader, i + 1, op);
        } else {
            byte = take_byte(&step.reader);
            if (i == SW_READER_LEB_MAX - 1 && (byte & 0x7f) > 1)
                step.status = sw_fail(SW_LIMIT, op, "overflow: a number of more than 64 bits");
            step.value |= (uint64_t)(byte & 0x7f) << 7 * i;
        }
    }
    return step;
}

/* Copies `size` bytes, which must be left. The memory's revision was checked before. */
static void copy_out(sw_reader *reader, uint8_t *out, size_t size) {
    while (size != 0) {
        settle(reader);
        size_t part = (size_t)sw_min_u64(size, sw_reader_here(reader));
        memcpy(out, reader->at, part);
        reader->at += part;
        out += part;
        size -= part;
    }
}

size_t sw_reader_read(sw_reader *reader, void *out, size_t size) {
    if (reader == NULL || out == NULL) return 0;
    size = (size_t)sw_min_u64(size, sw_reader_length(reader));
    if (sw_reader_check_revision(reader, "reader_read") != SW_OK) return 0;
    copy_out(reader, out, size);
    return size;
}

sw_status sw_reader_read_bytes(sw_reader *reader, void *out, size_t size) {
    if (reader == NULL || (out == NULL && size != 0))
        return sw_fail_null("reader_read_bytes", "the reader or its bytes");
    if (size > sw_reader_length(reader)) return refuse_short(reader, size, "reader_read_bytes");
    sw_status status = sw_reader_check_revision(reader, "reader_read_bytes");
    if (status == SW_OK) copy_out(reader, out, size);
    return status;
}

sw_status sw_reader_unread(sw_reader *reader, uint64_t size) {
    if (reader == NULL) return sw_fail_null("reader_unread", "the reader");
    uint64_t offset = sw_reader_offset(reader);
    if (size > offset)
        return sw_fail(SW_INVALID, "reader_unread", "%" PRIu64 " bytes back from offset %" PRIu64,
                       size, offset);
    sw_status status = sw_reader_check_revision(reader, "reader_unread");
    if (status != SW_OK || size == 0) return status;
    if (reader->memory == NULL) {
        reader->at -= size;
        return SW_OK;
    }
    const sw_buffer *buffer = &sw_memory_buffers(reader->memory)[reader->index];
    uint64_t front = (uint64_t)(reader->at - buffer->bytes);
    while (size > front) {
        size -= front;
        reader->later += buffer->size;
        buffer = &sw_memory_buffers(reader->memory)[--reader->index];
        reader->end = buffer->size != 0 ? buffer->bytes + buffer->size : buffer->bytes;
        reader->at = reader->end;
        front = buffer->size;
    }
    reader->at -= size;
    sw_check2(sw_reader_check(reader));
    return SW_OK;
}

sw_buffer sw_reader_current(const sw_reader *reader) {
    if (reader == NULL) return (sw_buffer){NULL, 0};
    sw_reader_step step = sw_reader_skip_slow(*reader, 0, "reader_current");
    if (step.status != SW_OK) return (sw_buffer){NULL, 0};
    return (sw_buffer){(uint8_t *)step.reader.at, sw_reader_here(&step.reader)};
}

/* --- what was consumed ------------------------------------------------------------------------ */

static void hand_out(const sw_memory *memory, uint64_t size,
                     void (*each)(void *context, sw_buffer part), void *context) {
    for (const sw_buffer *buffer = sw_memory_buffers(memory); size != 0; buffer++) {
        sw_buffer part = {buffer->bytes, (size_t)sw_min_u64(buffer->size, size)};
        if (part.size != 0) each(context, part);
        size -= part.size;
    }
}

sw_status sw_reader_clip_front(sw_reader *reader, sw_memory *memory,
                               void (*each)(void *context, sw_buffer part), void *context) {
    if (reader == NULL) return sw_fail_null("reader_clip_front", "the reader");
    if (reader->memory != memory || memory == NULL)
        return sw_fail(SW_INVALID, "reader_clip_front",
                       "the reader does not belong to that memory");
    sw_status status = sw_reader_check_revision(reader, "reader_clip_front");
    if (status != SW_OK) return status;
    uint64_t consumed = sw_reader_offset(reader), length = sw_reader_length(reader);
    if (each != NULL) hand_out(memory, consumed, each, context);
    status = sw_memory_drop_front(memory, consumed);
    sw_assert1(status == SW_OK);
    *reader = sw_reader_of(memory);
    reader->size = length;
    if (length == 0) reader->at = reader->end;
    reader->later = length - sw_reader_here(reader);
    return SW_OK;
}

const char *sw_reader_check(const sw_reader *reader) {
    return SW_RULE((reader->at == NULL) == (reader->end == NULL))
               ?: SW_RULE(reader->at <= reader->end)
               ?: SW_RULE(sw_reader_length(reader) <= reader->size)
               ?: SW_RULE(reader->memory != NULL || reader->later == 0);
}

/* --- descriptors ------------------------------------------------------------------------------ */

/* Reads from and writes to file descriptors, with one system call for many buffers. */

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
