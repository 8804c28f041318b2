/* SPDX-License-Identifier: Apache-2.0 */
/* File and block headers of `.swt`, and their checksum. docs/design/trace.md. */
#include "trace/format.h"

#include "spanwise/trace.h"

/* Maximum bytes of the head of a RAW or OPS payload, and of one entry: a tag, an alignment, and a
 * varint in each of five columns. */
enum { HEAD_BYTES_MAX = 64, ENTRY_BYTES_MAX = 2 + 5 * SWT_VARINT_BYTES_MAX };

enum {
    SUM_AT = SWT_FILE_HEADER_BYTES - 8,        /* offset of the file header's checksum */
    BLOCK_SUM_AT = SWT_BLOCK_HEADER_BYTES - 8, /* offset of a block header's checksum */
};

/* Like PNG's: a byte above 127, the name, and line ends, so that a copy in text mode changes it and
 * is detected. */
static const uint8_t file_magic[8] = {0x89, 'S', 'W', 'T', '\r', '\n', 0x1A, '\n'};

/* Odd constants with about as many ones as zeros, from the golden ratio and roots of primes. */
static const uint64_t lane_factor[4] = {0x9E3779B97F4A7C15ull, 0xBB67AE8584CAA73Bull,
                                        0x3C6EF372FE94F82Bull, 0xA54FF53A5F1D36F1ull};

static inline uint64_t mix(uint64_t h, uint64_t factor) {
    h *= factor;
    return h ^ h >> 32;
}

/* Four lanes of multiplications and shifts, structured as xxHash (Collet), with other steps. */
uint64_t swt_checksum(const void *data, size_t bytes) {
    const uint8_t *p = data;
    uint64_t lane[4] = {1, 2, 3, 4};
    size_t left = bytes;
    for (; left >= 32; left -= 32, p += 32) {
        for (int i = 0; i < 4; i++) lane[i] = mix(lane[i] ^ swt_get64(p + 8 * i), lane_factor[i]);
    }
    uint64_t h = mix((uint64_t)bytes ^ 0x5357543153756D36ull, lane_factor[0]);
    for (int i = 0; i < 4; i++) h = mix(h ^ lane[i], lane_factor[i]);
    for (; left >= 8; left -= 8, p += 8) h = mix(h ^ swt_get64(p), lane_factor[1]);
    uint64_t tail = 0;
    for (size_t i = 0; i < left; i++) tail |= (uint64_t)p[i] << (8 * i);
    h = mix(h ^ tail, lane_factor[2]);
    return mix(h, lane_factor[3]);
}

void swt_header_encode(uint8_t out[SWT_FILE_HEADER_BYTES], const swt_header *header) {
    memset(out, 0, SWT_FILE_HEADER_BYTES);
    memcpy(out, file_magic, sizeof file_magic);
    swt_put32(out + 8, header->version);
    swt_put32(out + 12, header->form);
    swt_put64(out + SUM_AT, swt_checksum(out, SUM_AT));
}

swt_verdict swt_header_decode(const uint8_t in[SWT_FILE_HEADER_BYTES], swt_header *header) {
    if (memcmp(in, file_magic, sizeof file_magic) != 0) return SWT_HEADER_FOREIGN;
    if (swt_get64(in + SUM_AT) != swt_checksum(in, SUM_AT)) return SWT_HEADER_DAMAGED;
    header->version = swt_get32(in + 8);
    header->form = swt_get32(in + 12);
    if (header->version != SW_TRACE_VERSION) return SWT_HEADER_OTHER;
    bool known = header->form == SW_TRACE_RAW || header->form == SW_TRACE_ORDERED;
    return known ? SWT_HEADER_OK : SWT_HEADER_BAD;
}

void swt_file_header(uint8_t out[SWT_FILE_HEADER_BYTES]) {
    swt_header header = {.version = SW_TRACE_VERSION, .form = SW_TRACE_RAW};
    swt_header_encode(out, &header);
}

void swt_block_encode(uint8_t out[SWT_BLOCK_HEADER_BYTES], const swt_block *block) {
    swt_put32(out, SWT_BLOCK_MAGIC);
    out[4] = (uint8_t)block->kind;
    out[5] = (uint8_t)block->codec;
    out[6] = out[7] = 0;
    swt_put32(out + 8, block->stored_bytes);
    swt_put32(out + 12, block->raw_bytes);
    swt_put32(out + 16, block->count);
    swt_put32(out + 20, block->thread);
    swt_put64(out + 24, block->first);
    swt_put64(out + 32, block->payload_sum);
    swt_put64(out + BLOCK_SUM_AT, swt_checksum(out, BLOCK_SUM_AT));
}

static const char *block_check(const swt_block *block) {
    if (block->kind == 0 || block->kind >= SWT_BLOCK_KIND_COUNT) return "unknown kind of block";
    if (block->codec > SWT_CODEC_ZSTD) return "unknown compression of a block";
    if (block->raw_bytes > SWT_PAYLOAD_BYTES_MAX || block->stored_bytes > SWT_STORED_BYTES_MAX)
        return "impossible length of a block";
    if (block->codec == SWT_CODEC_STORED && block->stored_bytes != block->raw_bytes)
        return "two lengths of a block disagree";
    uint32_t most = block->kind == SWT_BLOCK_RAW   ? SWT_RAW_EVENTS_MAX
                    : block->kind == SWT_BLOCK_OPS ? SW_TRACE_OPS_MAX
                                                   : 0;
    bool counted = most != 0;
    if (block->count > most || (counted && block->count == 0)) return "impossible count of a block";
    if (counted && (block->raw_bytes < block->count ||
                    block->raw_bytes > HEAD_BYTES_MAX + (uint64_t)block->count * ENTRY_BYTES_MAX))
        return "length and count of a block disagree";
    return NULL;
}

const char *swt_block_decode(const uint8_t in[SWT_BLOCK_HEADER_BYTES], swt_block *block) {
    if (swt_get32(in) != SWT_BLOCK_MAGIC) return "no block begins here";
    if (swt_get64(in + BLOCK_SUM_AT) != swt_checksum(in, BLOCK_SUM_AT))
        return "checksum of a block header is wrong";
    *block = (swt_block){
        .kind = in[4],
        .codec = in[5],
        .stored_bytes = swt_get32(in + 8),
        .raw_bytes = swt_get32(in + 12),
        .count = swt_get32(in + 16),
        .thread = swt_get32(in + 20),
        .first = swt_get64(in + 24),
        .payload_sum = swt_get64(in + 32),
    };
    return block_check(block);
}
