/* SPDX-License-Identifier: Apache-2.0 */
/* Reads bytes in several buffers, or in one, as one sequence. Nothing is copied but what a call
 * writes to its out parameters.
 *
 *   sw_reader reader = sw_reader_of(&memory);
 *   uint64_t length;
 *   if (sw_reader_read_be(&reader, 4, &length) != SW_OK) ...     nothing was consumed
 *   sw_buffer piece;
 *   while (sw_reader_next(&reader, length, &piece)) { ...; length -= piece.size; }
 *
 * How much there is to read is fixed when the reader is made: what is added to the memory later is
 * not read. A call that fails consumes nothing. The usual case, a value inside one buffer, is
 * inline. The operations are those of the Go library GoMem (its type MemoryReader):
 * docs/design/buffer.md.
 *
 * Statuses: SW_SHORT, fewer bytes are left than the call needs; SW_STATE, the memory was changed
 * since the reader was made (other than by additions at its end), found when a read leaves a
 * buffer.
 *
 * Thread rule: a reader belongs to one thread at a time; several readers of one memory may read at
 * once.
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

/* Fields are read through the functions below. A reader may be copied: both go on from there. */
typedef struct sw_reader {
    const uint8_t *at;       /* the next byte */
    const uint8_t *end;      /* of the current buffer; at <= end; both are NULL, or neither */
    uint64_t later;          /* bytes behind the current buffer */
    uint64_t size;           /* bytes when it was made;  end - at + later <= size */
    size_t index;            /* of the current buffer */
    uint64_t revision;       /* of the memory when it was made */
    const sw_memory *memory; /* NULL: it reads one buffer, `size` bytes that end at `end` */
} sw_reader;

/* --- life and place --------------------------------------------------------------------------- */

/* Reads one buffer. */
static inline sw_reader sw_reader_of_bytes(const void *bytes, size_t size) {
    sw_reader reader = {NULL, NULL, 0, 0, 0, 0, NULL};
    reader.at = (const uint8_t *)bytes;
    reader.end = size != 0 ? reader.at + size : reader.at;
    reader.size = size;
    return reader;
}

/* Reads a memory from its beginning. The memory must outlive the reader. */
static inline sw_reader sw_reader_of(const sw_memory *memory) {
    const sw_buffer *first = sw_memory_buffers(memory);
    sw_reader reader = sw_reader_of_bytes(first->bytes, memory->count != 0 ? first->size : 0);
    reader.later = memory->size - reader.size;
    reader.size = memory->size;
    reader.revision = memory->revision;
    reader.memory = memory;
    return reader;
}

/* Bytes that are left in the current buffer. */
static inline size_t sw_reader_here(const sw_reader *reader) {
    return (size_t)(reader->end - reader->at);
}
/* Bytes that are left. */
static inline uint64_t sw_reader_length(const sw_reader *reader) {
    return sw_reader_here(reader) + reader->later;
}
/* Bytes that were consumed. */
static inline uint64_t sw_reader_offset(const sw_reader *reader) {
    return reader->size - sw_reader_length(reader);
}

/* What a step across buffers gives back. It is passed by value, as the reader is, so that a
 * compiler may keep the reader of a loop in registers. */
typedef struct sw_reader_step {
    sw_reader reader;
    uint64_t value;
    sw_status status;
} sw_reader_step;

/* The parts of the calls below that leave a buffer, or fail. sw_reader_skip_slow also moves on to
 * the next byte that can be read, if one is left behind the `size` bytes that it skips. */
SW_API sw_reader_step sw_reader_skip_slow(sw_reader reader, uint64_t size, const char *op);
SW_API sw_reader_step sw_reader_be_slow(sw_reader reader, uint32_t size);
SW_API sw_reader_step sw_reader_leb_slow(sw_reader reader);

#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define SW_READER_BE_(bits, number) (number)
#else
#define SW_READER_BE_(bits, number) __builtin_bswap##bits(number)
#endif

/* --- numbers ---------------------------------------------------------------------------------- */

/* Goes from the end of a buffer to the next one, if that has bytes. False: it stays where it is. */
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

/* One byte. Errors: SW_SHORT, SW_STATE; *out is unchanged then. */
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

/* One byte, of which the bits of a mask are kept. Errors: as sw_reader_read_byte. */
static inline sw_status sw_reader_read_byte_mask(sw_reader *reader, uint8_t mask, uint8_t *out) {
    sw_status status = sw_reader_read_byte(reader, out);
    if (status == SW_OK) *out &= mask;
    return status;
}

/* A number of 0 to 8 bytes, the most significant first; of 0 bytes it is 0.
 * Errors: SW_INVALID (more than 8 bytes), SW_SHORT, SW_STATE; *out is unchanged then. */
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

/* An unsigned LEB128 number (DWARF 5, 7.6) of at most 64 bits: seven bits a byte, the least
 * significant first; the top bit says that another byte follows. Padding by bytes 0x80 is read, as
 * formats demand it that reserve room (AV1, WebAssembly). *used: its bytes, 1 to 10; NULL: not
 * wanted.
 * Errors: SW_FORMAT (over-long: the tenth byte says that another follows), SW_LIMIT (overflow: the
 * number has more than 64 bits), SW_SHORT, SW_STATE; *out and *used are unchanged then. */
static inline sw_status sw_reader_read_leb128(sw_reader *reader, uint64_t *out, uint32_t *used) {
    if (__builtin_expect(reader->at == reader->end, 0)) (void)sw_reader_has_entered_next(reader);
    const uint8_t *at = reader->at;
    uint64_t value = 0;
    if (__builtin_expect(sw_reader_here(reader) >= 3, 1)) {
        /* One comparison tells that three bytes can be read. Each byte after the first takes away
         * the bit of the byte before that announced it. */
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

/* Copies up to `size` bytes to `out`. Returns how many; 0: none are left, or the memory was changed
 * (then the last error is SW_STATE). */
SW_API size_t sw_reader_read(sw_reader *reader, void *out, size_t size);
/* Copies `size` bytes to `out`. Errors: SW_SHORT, SW_STATE; nothing is copied then. */
SW_API sw_status sw_reader_read_bytes(sw_reader *reader, void *out, size_t size);

/* Goes on by `size` bytes. Errors: SW_SHORT, SW_STATE. */
static inline sw_status sw_reader_skip(sw_reader *reader, uint64_t size) {
    if (__builtin_expect(size <= sw_reader_here(reader), 1)) {
        if (size != 0) reader->at += size;
        return SW_OK;
    }
    sw_reader_step step = sw_reader_skip_slow(*reader, size, "reader_skip");
    *reader = step.reader;
    return step.status;
}
/* Goes back by `size` bytes. Errors: SW_INVALID (past the beginning), SW_STATE. */
SW_API sw_status sw_reader_unread(sw_reader *reader, uint64_t size);
/* Goes behind the last byte. Errors: SW_STATE. */
static inline sw_status sw_reader_move_to_end(sw_reader *reader) {
    return sw_reader_skip(reader, sw_reader_length(reader));
}

/* What is left of the first buffer that has bytes left, without consuming it; size 0: nothing is
 * left, or the memory was changed (then the last error is SW_STATE). */
SW_API sw_buffer sw_reader_current(const sw_reader *reader);

/* Hands out the next bytes that lie in one buffer, at most `limit` of them, without a copy, and
 * consumes them. False: limit is 0, nothing is left, or the memory was changed (SW_STATE, as
 * above). A loop with SIZE_MAX goes through all that is left, one with n less what was handed out
 * through the next n. */
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

/* Takes what this reader has consumed out of the memory, which is the one it reads: the next byte
 * to be read becomes the first of the memory. `each` is given the parts that go, buffer by buffer;
 * NULL: they are forgotten. Other readers of the memory are out of date.
 * Errors: SW_INVALID (another memory, or a reader of one buffer), SW_STATE. */
SW_API sw_status sw_reader_clip_front(sw_reader *reader, sw_memory *memory,
                                      void (*each)(void *context, sw_buffer part), void *context);

/* Writes up to `limit` of the bytes that are left to a file descriptor, by writev, 64 buffers at a
 * time, and consumes what was written: *written bytes, also when it fails. Interrupted calls are
 * made again.
 * Errors: SW_IO, SW_STATE (it would block; or the memory was changed), SW_UNSUPPORTED (a build
 * without system calls). */
SW_API sw_status sw_reader_write_to(sw_reader *reader, int descriptor, uint64_t limit,
                                    uint64_t *written);

#ifdef __cplusplus
}
#endif
#endif
