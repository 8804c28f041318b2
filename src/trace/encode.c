/* SPDX-License-Identifier: Apache-2.0 */
/* The encoder of blocks: RAW events into columns, payloads of small blocks, compression. The
 * recorder calls it inside malloc. So the caller passes all memory, only memcpy and memset of the C
 * library are used, and encoding cannot fail. Compression allocates memory and is off by default
 * (swt_encoder_compress); a payload that does not shrink is stored. Format: docs/design/trace.md.
 */
#include <zstd.h>

#include "base/assert.h"
#include "base/attributes.h"
#include "base/bits.h"
#include "trace/format.h"
#include "trace/raw.h"

/* Maximum bytes of an event in each column. A difference of two addresses has 49 bits with its
 * sign. */
enum {
    ADDRESS_MAX = 7,
    SIZED_MAX = SWT_VARINT_BYTES_MAX + 1, /* with the alignment, which precedes the size */
    TICKS_MAX = SWT_VARINT_BYTES_MAX,
    STAMP_MAX = 5,
    SITE_MAX = 5,
    COLUMN_COUNT = SWT_RAW_COLUMNS,
    HEAD_BYTES = SWT_RAW_HEAD_BYTES,
    SCRATCH_BYTES = HEAD_BYTES +
        SWT_RAW_EVENTS_MAX * (1 + ADDRESS_MAX + SIZED_MAX + TICKS_MAX + STAMP_MAX + SITE_MAX),
    OUT_BYTES = SWT_BLOCK_HEADER_BYTES + SWT_STORED_BYTES_MAX,
};
_Static_assert((size_t)SCRATCH_BYTES <= (size_t)SWT_PAYLOAD_BYTES_MAX, "a RAW block always fits");

struct swt_encoder {
    /* Compresses, and returns the bytes written; 0: the result does not fit. NULL: blocks are
     * stored. A pointer, so that the recorder, which never sets it, is linked without a
     * compressor. */
    size_t (*compress)(ZSTD_CCtx *context, void *out, size_t room, const void *in, size_t bytes);
    ZSTD_CCtx *context;
    uint8_t *scratch; /* SCRATCH_BYTES */
    uint8_t *out;     /* OUT_BYTES */
};

size_t swt_encoder_bytes(void) {
    return (size_t)sw_align_up(sizeof(swt_encoder), SW_CACHE_LINE) +
           (size_t)sw_align_up(SCRATCH_BYTES, SW_CACHE_LINE) +
           (size_t)sw_align_up(OUT_BYTES, SW_CACHE_LINE);
}

swt_encoder *swt_encoder_init(void *memory, size_t bytes) {
    if (memory == NULL || (uintptr_t)memory % SW_CACHE_LINE != 0 || bytes < swt_encoder_bytes())
        return NULL;
    uint8_t *p = memory;
    swt_encoder *encoder = memory;
    p += sw_align_up(sizeof(swt_encoder), SW_CACHE_LINE);
    encoder->compress = NULL;
    encoder->context = NULL;
    encoder->scratch = p;
    encoder->out = p + sw_align_up(SCRATCH_BYTES, SW_CACHE_LINE);
    return encoder;
}

static size_t compress_block(ZSTD_CCtx *context, void *out, size_t room, const void *in,
                             size_t bytes) {
    size_t written = ZSTD_compress2(context, out, room, in, bytes);
    if (ZSTD_isError(written)) return 0;
    sw_written_outside(out, written);
    return written;
}

/* zstd's fastest strategy, with a window of 128 KiB and a hash table that fits into the first-level
 * cache. targetLength is 0, because a larger value, which speeds up the search, also disables
 * Huffman coding. A parameter unknown to this version of zstd keeps its default. */
bool swt_encoder_compress(swt_encoder *encoder) {
    ZSTD_CCtx *context = ZSTD_createCCtx();
    if (context == NULL) return false;
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, 1);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, 17);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_chainLog, 12);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_hashLog, 12);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_searchLog, 1);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_minMatch, 6);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_targetLength, 0);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_strategy, ZSTD_fast);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0); /* in the block header */
    encoder->context = context;
    encoder->compress = compress_block;
    return true;
}

void swt_encoder_end(swt_encoder *encoder) {
    if (encoder != NULL) (void)ZSTD_freeCCtx(encoder->context);
}

size_t swt_seal(swt_encoder *encoder, swt_block *block, const void *payload, size_t bytes,
                const uint8_t **out) {
    uint8_t *body = encoder->out + SWT_BLOCK_HEADER_BYTES;
    size_t stored = 0;
    block->codec = SWT_CODEC_ZSTD;
    if (encoder->compress != NULL && bytes != 0)
        stored = encoder->compress(encoder->context, body, SWT_STORED_BYTES_MAX, payload, bytes);
    if (stored == 0 || stored >= bytes) {
        if (bytes != 0) memcpy(body, payload, bytes);
        block->codec = SWT_CODEC_STORED;
        stored = bytes;
    }
    block->stored_bytes = (uint32_t)stored;
    block->raw_bytes = (uint32_t)bytes;
    block->payload_sum = swt_checksum(body, stored);
    swt_block_encode(encoder->out, block);
    *out = encoder->out;
    return SWT_BLOCK_HEADER_BYTES + stored;
}

size_t swt_encode_block(swt_encoder *encoder, swt_block_kind kind, const void *payload,
                        size_t bytes, const uint8_t **out) {
    swt_block block = {.kind = (uint32_t)kind};
    return swt_seal(encoder, &block, payload, bytes, out);
}

/* --- RAW -------------------------------------------------------------------------------------- */

/* The ends of the columns while they are written, and the last values, from which the next ones are
 * stored as differences. */
typedef struct columns {
    uint8_t *tag, *address, *size, *ticks, *stamp, *site;
    uint64_t last_address, last_ticks, last_stamp;
    uint32_t address_shift, tick_shift;
} columns;

/* Scans the block. Returns how many low bits are zero in every address; *sites: an event has a call
 * site; *gaps: stamps must be stored, because they do not increase by one each. */
static uint32_t scan_events(const swt_raw *raw, bool *sites, bool *gaps, uint32_t flags) {
    uint64_t low = 0, site = 0, gap = 0;
    uint32_t expected = 0; /* stamps that increase by one each need no column */
    for (const swt_event *e = raw->events; e < raw->next; e++, expected++) {
        low |= e->word;
        site |= e->site;
        gap |= e->stamp ^ expected;
    }
    *sites = site != 0;
    *gaps = gap != 0 && (flags & SWT_RAW_TICKS_ARE_STAMPS) == 0;
    return sw_ctz(low | 1u << 12);
}

static sw_always_inline void put_event(columns *c, const swt_event *e, bool sites, bool gaps) {
    uint64_t address = (e->word & 0xFFFFFFFFFFFFull) >> c->address_shift;
    uint32_t kind = (uint32_t)(e->word >> 48) & 0x7F;
    uint32_t align = (uint32_t)(e->word >> 56);
    *c->tag++ = (uint8_t)(kind | (align != 0 ? SWT_RAW_TAG_ALIGNED : 0));
    c->address = swt_varint_put(c->address, swt_zigzag(address - c->last_address));
    c->last_address = address;
    if (swt_raw_has_size(kind)) {
        if (align != 0) *c->size++ = (uint8_t)(align & 0x3F);
        c->size = swt_varint_put(c->size, e->size);
    }
    uint64_t ticks = e->ticks >> c->tick_shift;
    if (ticks < c->last_ticks)
        ticks = c->last_ticks; /* counters of two cores may differ, if the thread has migrated */
    c->ticks = swt_varint_put(c->ticks, ticks - c->last_ticks);
    c->last_ticks = ticks;
    if (gaps) {
        uint64_t stamp = e->stamp < c->last_stamp ? c->last_stamp : e->stamp;
        c->stamp = swt_varint_put(c->stamp, stamp - c->last_stamp);
        c->last_stamp = stamp;
    }
    if (sites) c->site = swt_varint_put(c->site, e->site);
}

/* Moves a column down to `at` and writes its length to the next field of the head. */
static uint8_t *close_column(uint8_t *at, uint8_t **field, const uint8_t *begin,
                             const uint8_t *end) {
    size_t bytes = (size_t)(end - begin);
    memmove(at, begin, bytes);
    swt_put32(*field, (uint32_t)bytes);
    *field += 4;
    return at + bytes;
}

size_t swt_encode_raw(swt_encoder *encoder, const swt_raw *raw, uint32_t flags,
                      const uint8_t **out) {
    sw_check2(swt_raw_check(raw));
    bool sites, gaps, timed = (flags & SWT_RAW_TICKS_ARE_STAMPS) != 0;
    size_t n = swt_raw_count(raw);
    columns c = {.address_shift = scan_events(raw, &sites, &gaps, flags),
                 .tick_shift = timed ? 0 : SWT_TICK_SHIFT};
    uint8_t *head = encoder->scratch, *at[COLUMN_COUNT];
    c.tag = head + HEAD_BYTES;
    c.address = at[0] = c.tag + n;
    c.size = at[1] = at[0] + n * ADDRESS_MAX;
    c.ticks = at[2] = at[1] + n * SIZED_MAX;
    c.stamp = at[3] = at[2] + n * TICKS_MAX;
    c.site = at[4] = at[3] + n * STAMP_MAX;
    uint64_t base_ticks = raw->events->ticks >> c.tick_shift;
    c.last_ticks = base_ticks;
    for (const swt_event *e = raw->events; e < raw->next; e++) put_event(&c, e, sites, gaps);

    memset(head, 0, HEAD_BYTES);
    head[0] = (uint8_t)((timed ? SWT_RAW_FLAG_TICKS_ARE_STAMPS : 0) |
                        (gaps ? SWT_RAW_FLAG_STAMPS : 0) | (sites ? SWT_RAW_FLAG_SITES : 0));
    head[1] = (uint8_t)c.tick_shift;
    head[2] = (uint8_t)c.address_shift;
    swt_put64(head + 8, base_ticks);
    uint8_t *field = head + 16, *end = at[0];
    end = close_column(end, &field, at[0], c.address);
    end = close_column(end, &field, at[1], c.size);
    end = close_column(end, &field, at[2], c.ticks);
    end = close_column(end, &field, at[3], c.stamp);
    end = close_column(end, &field, at[4], c.site);
    swt_block block = {.kind = SWT_BLOCK_RAW,
                       .count = (uint32_t)n,
                       .thread = raw->thread,
                       .first = timed ? base_ticks : raw->base_stamp};
    return swt_seal(encoder, &block, head, (size_t)(end - head), out);
}
