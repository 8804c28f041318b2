/* SPDX-License-Identifier: Apache-2.0 */
/* File and block headers of `.swt`, and their checksum. docs/design/trace.md. */
#include "trace/format.h"

#include <zstd.h>

#include "base/base.h"
#include "spanwise/trace.h"
#include "trace/raw.h"

const char *swt_buffer_check(const swt_buffer *buffer) {
    return SW_RULE(buffer->used <= buffer->capacity)
               ?: SW_RULE(buffer->capacity == 0 || buffer->data != NULL);
}

const char *swt_raw_check(const swt_raw *raw) {
    return SW_RULE(raw->events <= raw->next)
               ?: SW_RULE(raw->next <= raw->limit)
               ?: SW_RULE(raw->limit - raw->events <= SWT_RAW_EVENTS_MAX);
}

/* --- headers and checksums -------------------------------------------------------------------- */

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

/* --- small blocks ----------------------------------------------------------------------------- */

/* Payloads of the small blocks META, SITES, MODULES, CLOCK and END. The recorder calls these
 * functions inside malloc, so they use the caller's memory only. Each swt_put_ function appends a
 * whole entry or nothing. docs/design/trace.md. */

/* Reserves the next `bytes` bytes of the buffer. NULL: no room. */
static uint8_t *take(swt_buffer *buffer, size_t bytes) {
    sw_check2(swt_buffer_check(buffer));
    if (bytes > buffer->capacity - buffer->used) return NULL;
    uint8_t *p = buffer->data + buffer->used;
    buffer->used += bytes;
    return p;
}

static uint8_t *put_bytes(uint8_t *p, const void *data, size_t bytes) {
    if (bytes != 0) memcpy(p, data, bytes);
    return p + bytes;
}

bool swt_put_meta(swt_buffer *buffer, const char *key, const char *value) {
    size_t key_bytes = strlen(key) + 1, value_bytes = strlen(value) + 1;
    uint8_t *p = take(buffer, key_bytes + value_bytes);
    if (p == NULL) return false;
    put_bytes(put_bytes(p, key, key_bytes), value, value_bytes);
    return true;
}

bool swt_put_meta_u64(swt_buffer *buffer, const char *key, uint64_t value) {
    char text[21], *p = text + sizeof text - 1;
    *p = '\0';
    do *--p = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    return swt_put_meta(buffer, key, p);
}

bool swt_put_site(swt_buffer *buffer, uint32_t site, const uint64_t *addresses, uint32_t depth) {
    if (depth > SWT_SITE_DEPTH_MAX) depth = SWT_SITE_DEPTH_MAX;
    uint8_t *p = take(buffer, SWT_SITE_HEAD_BYTES + (size_t)depth * 8);
    if (p == NULL) return false;
    swt_put32(p, site);
    swt_put32(p + 4, depth);
    for (uint32_t i = 0; i < depth; i++)
        swt_put64(p + SWT_SITE_HEAD_BYTES + (size_t)i * 8, addresses[i]);
    return true;
}

bool swt_put_module(swt_buffer *buffer, uint64_t start, uint64_t end, uint64_t bias,
                    const char *path, const void *build_id, uint32_t build_id_bytes) {
    size_t path_bytes = strlen(path) + 1;
    if (path_bytes > SWT_MODULE_PATH_MAX) path_bytes = SWT_MODULE_PATH_MAX;
    if (build_id_bytes > SWT_MODULE_BUILD_ID_MAX) build_id_bytes = 0;
    uint8_t *p = take(buffer, SWT_MODULE_HEAD_BYTES + path_bytes + build_id_bytes);
    if (p == NULL) return false;
    swt_put64(p, start);
    swt_put64(p + 8, end);
    swt_put64(p + 16, bias);
    swt_put32(p + 24, (uint32_t)path_bytes);
    swt_put32(p + 28, build_id_bytes);
    p = put_bytes(p + SWT_MODULE_HEAD_BYTES, path, path_bytes);
    p[-1] = 0; /* terminates a truncated path, too */
    put_bytes(p, build_id, build_id_bytes);
    return true;
}

bool swt_put_clock(swt_buffer *buffer, uint64_t ticks, uint64_t ns, uint64_t ns_per_tick_q32) {
    uint8_t *p = take(buffer, SWT_CLOCK_BYTES);
    if (p == NULL) return false;
    swt_put64(p, ticks);
    swt_put64(p + 8, ns);
    swt_put64(p + 16, ns_per_tick_q32);
    return true;
}

bool swt_put_end(swt_buffer *buffer, const swt_end *end) {
    const uint64_t fields[] = {end->calls,   end->dropped_calls,       end->drop_reason,
                               end->threads, end->children_unrecorded, end->children_recorded};
    enum { COUNT = sizeof fields / sizeof fields[0] };
    _Static_assert(COUNT * 8 == SWT_END_BYTES, "as docs/design/trace.md says");
    uint8_t *p = take(buffer, SWT_END_BYTES);
    if (p == NULL) return false;
    for (size_t i = 0; i < COUNT; i++) swt_put64(p + 8 * i, fields[i]);
    return true;
}

/* --- blocks of events ------------------------------------------------------------------------- */

/* The encoder of blocks: RAW events into columns, payloads of small blocks, compression. The
 * recorder calls it inside malloc. So the caller passes all memory, only memcpy and memset of the
 * C library are used, and encoding cannot fail. Compression allocates memory and is off by default
 * (swt_encoder_compress); a payload that does not shrink is stored. Format: docs/design/trace.md.
 */

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
