/* SPDX-License-Identifier: Apache-2.0 */
/* The framing of a `.swt` file: file header, block headers, checksums, little-endian numbers,
 * varints. Shared by the recorder's encoder, the writer and the reader; no state, no allocation.
 * Every offset and unit: docs/design/trace.md.
 */
#ifndef SW_TRACE_FORMAT_H
#define SW_TRACE_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/base.h"
#include "trace/raw.h"

enum {
    SWT_BLOCK_HEADER_BYTES = 48,
    SWT_BLOCK_MAGIC = 0x42545753, /* "SWTB" */
    /* Maximum size of a payload of SWT_PAYLOAD_BYTES_MAX after zstd. */
    SWT_STORED_BYTES_MAX = SWT_PAYLOAD_BYTES_MAX + SWT_PAYLOAD_BYTES_MAX / 128 + 1024,
    SWT_VARINT_BYTES_MAX = 10,
    SWT_TICK_SHIFT = 4, /* ticks of RAW blocks are stored in units of 16, unless they are stamps */
};

enum { SWT_CODEC_STORED = 0, SWT_CODEC_ZSTD = 1 };

/* Payload of a RAW block: a byte each of flags, tick shift and address shift, 5 zero bytes; u64:
 * ticks of the first event (shifted); five u32: bytes of the columns address, size, ticks, stamp
 * and site; then a tag per event; then the columns. */
enum {
    SWT_RAW_HEAD_BYTES = 36,
    SWT_RAW_COLUMNS = 5,
    SWT_RAW_TAG_ALIGNED = 8,           /* bits 0-2 of a tag: swt_raw_kind */
    SWT_RAW_FLAG_TICKS_ARE_STAMPS = 1, /* the ticks serve as stamps, which have no column */
    SWT_RAW_FLAG_STAMPS = 2,           /* not set: each stamp is one more than the last */
    SWT_RAW_FLAG_SITES = 4,            /* not set: all sites are 0 */
};

/* Sizes of the small blocks' entries, or of their heads. */
enum {
    SWT_SITE_HEAD_BYTES = 8,
    SWT_MODULE_HEAD_BYTES = 32,
    SWT_SITES_MAX = 1 << 24,    /* ids of call sites; far above what programs need */
    SWT_MODULE_PATH_MAX = 4096, /* with its NUL; longer paths are cut */
    SWT_MODULE_BUILD_ID_MAX = 64,
    SWT_CLOCK_BYTES = 24,
    SWT_END_BYTES = 48,
};

typedef enum swt_verdict {
    SWT_HEADER_OK = 0,
    SWT_HEADER_FOREIGN, /* the file is not a spanwise recording */
    SWT_HEADER_DAMAGED, /* the header's checksum is wrong */
    SWT_HEADER_OTHER,   /* the recording is of an earlier or later version */
    SWT_HEADER_BAD,     /* the checksum is right, but a field has an impossible value */
} swt_verdict;

typedef struct swt_header {
    uint32_t version;
    uint32_t form; /* sw_trace_form */
} swt_header;

typedef struct swt_block {
    uint32_t kind;         /* swt_block_kind */
    uint32_t codec;        /* SWT_CODEC_... */
    uint32_t stored_bytes; /* of the payload in the file */
    uint32_t raw_bytes;    /* of the payload, decompressed */
    uint32_t count;        /* entries: events of RAW, operations of OPS; else 0 */
    uint32_t thread;       /* of RAW; else 0 */
    uint64_t first;        /* RAW: stamp of the first event; OPS: index of the first operation */
    uint64_t payload_sum;
} swt_block;

/* Returns a checksum of 64 bits. Each step is a bijection of the word that it adds, so a change
 * within one aligned 8-byte word always changes the checksum: every single-bit flip is detected. */
uint64_t swt_checksum(const void *data, size_t bytes);

void swt_header_encode(uint8_t out[SWT_FILE_HEADER_BYTES], const swt_header *header);
/* Fills in *header if the verdict is SWT_HEADER_OK, SWT_HEADER_OTHER or SWT_HEADER_BAD. */
swt_verdict swt_header_decode(const uint8_t in[SWT_FILE_HEADER_BYTES], swt_header *header);

void swt_block_encode(uint8_t out[SWT_BLOCK_HEADER_BYTES], const swt_block *block);
/* Returns NULL and fills in *block, or returns what is wrong (a constant string). */
const char *swt_block_decode(const uint8_t in[SWT_BLOCK_HEADER_BYTES], swt_block *block);

/* Compresses the payload and puts the block header before it. *out points into the encoder. The
 * caller has set kind, count, thread and first of `block`; the other fields are set here. Returns
 * the bytes of header and payload. */
size_t swt_seal(swt_encoder *encoder, swt_block *block, const void *payload, size_t bytes,
                const uint8_t **out);

/* --- numbers ---------------------------------------------------------------------------------- */

static inline uint64_t swt_le64_to_host(uint64_t v) {
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return __builtin_bswap64(v);
#else
    return v;
#endif
}

static inline uint64_t swt_get64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return swt_le64_to_host(v);
}
static inline uint32_t swt_get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void swt_put64(uint8_t *p, uint64_t v) {
    v = swt_le64_to_host(v);
    memcpy(p, &v, sizeof v);
}
static inline void swt_put32(uint8_t *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (uint8_t)(v >> (8 * i));
}

static inline uint64_t swt_zigzag(uint64_t difference) {
    return difference << 1 ^ (uint64_t)((int64_t)difference >> 63);
}
static inline uint64_t swt_unzigzag(uint64_t v) { return v >> 1 ^ (0 - (v & 1)); }

/* Writes a varint: seven bits per byte, low bits first; the high bit means that more follow. */
static sw_always_inline uint8_t *swt_varint_put(uint8_t *p, uint64_t v) {
    while (sw_unlikely(v >= 0x80)) {
        *p++ = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    *p++ = (uint8_t)v;
    return p;
}

/* Reads the rest of a varint of more than one byte. *bad: it does not fit into 64 bits. */
static inline uint64_t swt_varint_continue(const uint8_t **at, bool *bad) {
    const uint8_t *p = *at;
    uint64_t v = *p++ & 0x7F;
    for (uint32_t shift = 7;; shift += 7) {
        uint64_t byte = *p++;
        if (sw_unlikely(shift == 63 && byte > 1)) {
            *bad = true;
            break;
        }
        v |= (byte & 0x7F) << shift;
        if (byte < 0x80) break;
    }
    *at = p;
    return v;
}

/* Reads a varint without checking for the end of the column, because swt_varints_whole has counted
 * the column's varints. At most ten bytes are read, so the cursor stays inside the column. */
static sw_always_inline uint64_t swt_varint_get(const uint8_t **at, bool *bad) {
    uint64_t byte = **at;
    if (sw_likely(byte < 0x80)) {
        (*at)++;
        return byte;
    }
    return swt_varint_continue(at, bad);
}

/* Returns whether [p, p + bytes) is exactly `count` varints. */
static inline bool swt_varints_whole(const uint8_t *p, size_t bytes, size_t count) {
    size_t ends = 0;
    for (size_t i = 0; i < bytes; i++) ends += p[i] < 0x80;
    return ends == count && (bytes == 0 || p[bytes - 1] < 0x80);
}

#endif
