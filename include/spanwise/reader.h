/* SPDX-License-Identifier: Apache-2.0 */
/* A reader reads one or more buffers as one sequence. It copies only to out parameters.
 *
 *   sw_reader reader = sw_reader_of(&memory);
 *   uint64_t length;
 *   if (sw_reader_read_be(&reader, 4, &length) != SW_OK) ...     nothing was consumed
 *   sw_buffer piece;
 *   while (sw_reader_next(&reader, length, &piece)) { ...; length -= piece.size; }
 *
 * The reader's length is fixed when it is created: bytes appended to the memory later are not read.
 * A call that fails consumes nothing. The common case, a value inside one buffer, is inline. The
 * operations are those of GoMem's MemoryReader (Go): docs/design/buffer.md.
 *
 * Statuses: SW_SHORT: too few bytes are left; SW_STATE: the memory was changed since the reader was
 * created (other than by appending), detected when a read crosses into another buffer.
 *
 * Thread rule: one thread at a time per reader; several readers of one memory may read at once.
 */
#ifndef SPANWISE_READER_H
#define SPANWISE_READER_H

#include <string.h>

#include <spanwise/memory.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
    SW_READER_BE_MAX = 8,   /* bytes of the longest big-endian number */
    SW_READER_LEB_MAX = 10, /* bytes of the longest LEB128 number */
};

/* Read the fields through the functions below. A reader may be copied; the copies are
 * independent. */
typedef struct sw_reader {
    const uint8_t *at;       /* the next byte */
    const uint8_t *end;      /* of the current buffer; at <= end; both are NULL, or neither */
    uint64_t later;          /* bytes after the current buffer */
    uint64_t size;           /* bytes at creation;  end - at + later <= size */
    size_t index;            /* of the current buffer */
    uint64_t revision;       /* of the memory at creation */
    const sw_memory *memory; /* NULL: it reads one buffer, `size` bytes that end at `end` */
} sw_reader;

/* --- life and place --------------------------------------------------------------------------- */

/* Return a reader of one buffer. */
static inline sw_reader sw_reader_of_bytes(const void *bytes, size_t size) {
    sw_reader reader = {NULL, NULL, 0, 0, 0, 0, NULL};
    reader.at = (const uint8_t *)bytes;
    reader.end = size != 0 ? reader.at + size : reader.at;
    reader.size = size;
    return reader;
}

/* Return a reader of a memory, at its beginning. The memory must outlive the reader. */
static inline sw_reader sw_reader_of(const sw_memory *memory) {
    const sw_buffer *first = sw_memory_buffers(memory);
    sw_reader reader = sw_reader_of_bytes(first->bytes, memory->count != 0 ? first->size : 0);
    reader.later = memory->size - reader.size;
    reader.size = memory->size;
    reader.revision = memory->revision;
    reader.memory = memory;
    return reader;
}

/* Return the bytes left in the current buffer. */
static inline size_t sw_reader_here(const sw_reader *reader) {
    return (size_t)(reader->end - reader->at);
}
/* Return the bytes left. */
static inline uint64_t sw_reader_length(const sw_reader *reader) {
    return sw_reader_here(reader) + reader->later;
}
/* Return the bytes consumed. */
static inline uint64_t sw_reader_offset(const sw_reader *reader) {
    return reader->size - sw_reader_length(reader);
}

/* The result of a slow path. Reader and result are passed by value, so that a compiler may keep the
 * reader of a loop in registers. */
typedef struct sw_reader_step {
    sw_reader reader;
    uint64_t value;
    sw_status status;
} sw_reader_step;

/* Slow paths of the calls below, for reads that cross buffers or fail. sw_reader_skip_slow also
 * moves to the buffer of the next byte, if any byte is left. */
SW_API sw_reader_step sw_reader_skip_slow(sw_reader reader, uint64_t size, const char *op);
SW_API sw_reader_step sw_reader_be_slow(sw_reader reader, uint32_t size);
SW_API sw_reader_step sw_reader_leb_slow(sw_reader reader);

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define SW_READER_BE_(bits, number) (number)
#else
#define SW_READER_BE_(bits, number) __builtin_bswap##bits(number)
#endif

/* --- numbers ---------------------------------------------------------------------------------- */

/* At the end of a buffer, enter the next one if it has bytes. False: nothing changes. */
static inline bool sw_reader_has_entered_next(sw_reader *reader) {
    if (reader->later == 0 || reader->memory->revision != reader->revision) return false;
    const sw_buffer *next = &reader->memory->buffers[reader->index + 1];
    if (next->size == 0) return false;
    reader->index++;
    reader->at = next->bytes;
    reader->end = next->bytes + next->size;
    reader->later -= next->size;
    return true;
}

/* Read one byte. Errors: SW_SHORT, SW_STATE; *out is unchanged then. */
static inline sw_status sw_reader_read_byte(sw_reader *reader, uint8_t *out) {
    if (__builtin_expect(reader->at == reader->end, 0) && !sw_reader_has_entered_next(reader)) {
        sw_reader_step step = sw_reader_be_slow(*reader, 1);
        *reader = step.reader;
        if (step.status == SW_OK) *out = (uint8_t)step.value;
        return step.status;
    }
    *out = *reader->at++;
    return SW_OK;
}

/* Read one byte & mask. Errors: as sw_reader_read_byte. */
static inline sw_status sw_reader_read_byte_mask(sw_reader *reader, uint8_t mask, uint8_t *out) {
    sw_status status = sw_reader_read_byte(reader, out);
    if (status == SW_OK) *out &= mask;
    return status;
}

/* Read a big-endian number of 0 to 8 bytes; 0 bytes read as 0. Errors: SW_INVALID (more than 8
 * bytes), SW_SHORT, SW_STATE; *out is unchanged then. */
static inline sw_status sw_reader_read_be(sw_reader *reader, uint32_t size, uint64_t *out) {
    if (__builtin_expect(reader->at == reader->end, 0)) (void)sw_reader_has_entered_next(reader);
    if (__builtin_expect(size - 1 < SW_READER_BE_MAX && size <= sw_reader_here(reader), 1)) {
        uint64_t value;
        if (__builtin_constant_p(size) ? (size & (size - 1)) != 0
                                       : sw_reader_here(reader) < sizeof value) {
            value = 0;
            for (uint32_t i = 0; i < size; i++) value = value << 8 | reader->at[i];
        } else if (__builtin_constant_p(size) && size == 1) {
            value = reader->at[0];
        } else if (__builtin_constant_p(size) && size == 2) {
            uint16_t two;
            memcpy(&two, reader->at, sizeof two);
            value = SW_READER_BE_(16, two);
        } else if (__builtin_constant_p(size) && size == 4) {
            uint32_t four;
            memcpy(&four, reader->at, sizeof four);
            value = SW_READER_BE_(32, four);
        } else {
            memcpy(&value, reader->at, sizeof value);
            value = SW_READER_BE_(64, value) >> (64 - 8 * size);
        }
        reader->at += size;
        *out = value;
        return SW_OK;
    }
    sw_reader_step step = sw_reader_be_slow(*reader, size);
    *reader = step.reader;
    if (step.status == SW_OK) *out = step.value;
    return step.status;
}

/* Read an unsigned LEB128 number (DWARF 5, 7.6) of at most 64 bits. Padding with bytes 0x80 is
 * accepted, because AV1 and WebAssembly use it. *used (may be NULL): its bytes, 1 to 10. Errors:
 * SW_FORMAT (more than ten bytes), SW_LIMIT (more than 64 bits), SW_SHORT, SW_STATE; *out and *used
 * are unchanged then. */
static inline sw_status sw_reader_read_leb128(sw_reader *reader, uint64_t *out, uint32_t *used) {
    if (__builtin_expect(reader->at == reader->end, 0)) (void)sw_reader_has_entered_next(reader);
    const uint8_t *at = reader->at;
    uint64_t value = 0;
    if (__builtin_expect(sw_reader_here(reader) >= 3, 1)) {
        /* One comparison covers three bytes. Each further byte subtracts the continuation bit of
         * its predecessor. */
        uint32_t size = 1;
        value = at[0];
        if (value >= 0x80) {
            value += ((uint64_t)at[1] << 7) - 0x80;
            size = 2;
            if (at[1] >= 0x80) {
                value += ((uint64_t)at[2] << 14) - (0x80 << 7);
                size = 3;
            }
        }
        if (__builtin_expect(at[size - 1] < 0x80, 1)) {
            if (used != NULL) *used = size;
            reader->at = at + size;
            *out = value;
            return SW_OK;
        }
        value = 0;
    }
    for (uint32_t shift = 0; at != reader->end && shift < 63;
         shift += 7) { /* the slow path reads a tenth byte */
        uint8_t byte = *at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte >= 0x80) continue;
        if (used != NULL) *used = (uint32_t)(at - reader->at);
        reader->at = at;
        *out = value;
        return SW_OK;
    }
    sw_reader_step step = sw_reader_leb_slow(*reader);
    if (step.status != SW_OK) return step.status;
    if (used != NULL) *used = (uint32_t)(sw_reader_length(reader) - sw_reader_length(&step.reader));
    *out = step.value;
    *reader = step.reader;
    return SW_OK;
}

/* --- bytes ------------------------------------------------------------------------------------ */

/* Copy up to `size` bytes to `out`; return how many. 0: none left, or the memory was changed (the
 * last error is SW_STATE). */
SW_API size_t sw_reader_read(sw_reader *reader, void *out, size_t size);
/* Copy `size` bytes to `out`. Errors: SW_SHORT, SW_STATE; nothing is copied then. */
SW_API sw_status sw_reader_read_bytes(sw_reader *reader, void *out, size_t size);

/* Advance by `size` bytes. Errors: SW_SHORT, SW_STATE. */
static inline sw_status sw_reader_skip(sw_reader *reader, uint64_t size) {
    if (__builtin_expect(size <= sw_reader_here(reader), 1)) {
        if (size != 0) reader->at += size;
        return SW_OK;
    }
    sw_reader_step step = sw_reader_skip_slow(*reader, size, "reader_skip");
    *reader = step.reader;
    return step.status;
}
/* Go back by `size` bytes. Errors: SW_INVALID (past the beginning), SW_STATE. */
SW_API sw_status sw_reader_unread(sw_reader *reader, uint64_t size);
/* Advance to the end. Errors: SW_STATE. */
static inline sw_status sw_reader_move_to_end(sw_reader *reader) {
    return sw_reader_skip(reader, sw_reader_length(reader));
}

/* Return the rest of the current buffer, or the next non-empty one, without consuming it; size 0:
 * the end, or the memory was changed (the last error is SW_STATE). */
SW_API sw_buffer sw_reader_current(const sw_reader *reader);

/* Consume up to `limit` contiguous bytes without a copy. False: limit is 0, nothing is left, or the
 * memory was changed (SW_STATE, as above). A loop with SIZE_MAX reads everything; with n minus the
 * sizes so far, it reads the next n bytes. */
static inline bool sw_reader_next(sw_reader *reader, uint64_t limit, sw_buffer *out) {
    if (limit == 0) return false;
    if (__builtin_expect(reader->at == reader->end, 0) && !sw_reader_has_entered_next(reader)) {
        sw_reader_step step = sw_reader_skip_slow(*reader, 0, "reader_next");
        *reader = step.reader;
        if (reader->at == reader->end) return false;
    }
    size_t here = sw_reader_here(reader), size = here < limit ? here : (size_t)limit;
    out->bytes = (uint8_t *)reader->at;
    out->size = size;
    reader->at += size;
    return true;
}

/* Remove the consumed bytes from the reader's memory, so that it begins at the reader's next byte.
 * `each` (may be NULL) receives the removed parts, buffer by buffer. Other readers are invalidated.
 * Errors: SW_INVALID (another memory, or a reader of one buffer), SW_STATE. */
SW_API sw_status sw_reader_clip_front(sw_reader *reader, sw_memory *memory,
                                      void (*each)(void *context, sw_buffer part), void *context);

/* Write up to `limit` of the remaining bytes to a file descriptor by writev, 64 buffers at a time,
 * retried after EINTR, and consume what was written: *written bytes, also on failure. Errors:
 * SW_IO, SW_STATE (it would block; or the memory was changed), SW_UNSUPPORTED (a build without
 * system calls). */
SW_API sw_status sw_reader_write_to(sw_reader *reader, int descriptor, uint64_t limit,
                                    uint64_t *written);

#ifdef __cplusplus
}
#endif
#endif
