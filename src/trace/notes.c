/* SPDX-License-Identifier: Apache-2.0 */
/* Small blocks of a recording: metadata, call sites, modules, clock, end, summary. Lengths are
 * checked before use. The decoded blocks stay in memory, so their sum is limited by the length of
 * the file. */
#include <stdlib.h>

#include "base/base.h"
#include "trace/file.h"
#include "trace/ops.h"

const char *swt_notes_check(const swt_notes *notes) {
    return SW_RULE(notes->text_used <= notes->text_capacity)
               ?: SW_RULE(notes->meta_used <= notes->meta_capacity)
               ?: SW_RULE(notes->module_count <= notes->module_capacity)
               ?: SW_RULE(notes->frame_count <= notes->frame_capacity)
               ?: SW_RULE(notes->site_count <= notes->site_capacity);
}

/* Limits far above what programs need. They bound the memory that a malicious file can take. */
enum {
    NOTE_BYTES_MAX = 1 << 30,
    NOTE_BYTES_FREE = 1 << 20, /* bytes allowed for a file of any length */
    NOTE_RATIO_MAX = 64,       /* and this many times the length of the file */
    SITE_RATIO_MAX = 1024,     /* of call sites, which compress well with deep recursion */
};

static const char *const cut = "an entry of a block is cut short";

static bool add_text(swt_notes *notes, const void *data, size_t bytes, size_t *at) {
    if (!swt_grow(&notes->text, &notes->text_capacity, notes->text_used + bytes, 1)) return false;
    if (bytes != 0) memcpy(notes->text + notes->text_used, data, bytes);
    *at = notes->text_used;
    notes->text_used += bytes;
    return true;
}

/* Adds a META block: pairs of strings, each ended by a zero byte. */
static const char *add_meta(swt_notes *notes, const uint8_t *p, size_t bytes) {
    size_t strings = 0;
    while (bytes != 0) {
        const uint8_t *end = memchr(p, 0, bytes);
        if (end == NULL) return cut;
        size_t length = (size_t)(end - p) + 1, at;
        if (!swt_grow(&notes->meta, &notes->meta_capacity, notes->meta_used + 2,
                      sizeof *notes->meta) ||
            !add_text(notes, p, length, &at))
            return swt_no_memory;
        notes->meta[notes->meta_used++] = (uint32_t)at; /* fits: NOTE_BYTES_MAX is below 2^32 */
        strings++;
        p += length;
        bytes -= length;
    }
    if (strings % 2 == 0) return NULL;
    notes->meta_used--;
    return cut;
}

static const char *add_site(swt_notes *notes, uint32_t site, const uint8_t *frames,
                            uint32_t depth) {
    if (site == 0 || site > SWT_SITES_MAX) return "impossible id of a call site";
    if (notes->site_count != 0 && site <= notes->sites[notes->site_count - 1].id)
        return "call sites are not in the order of their ids";
    if (!swt_grow(&notes->sites, &notes->site_capacity, notes->site_count + 1,
                  sizeof *notes->sites) ||
        !swt_grow(&notes->frames, &notes->frame_capacity, notes->frame_count + depth,
                  sizeof *notes->frames))
        return swt_no_memory;
    notes->sites[notes->site_count++] =
        (swt_site){.id = site, .depth = depth, .frame = notes->frame_count};
    for (uint32_t i = 0; i < depth; i++)
        notes->frames[notes->frame_count++] = swt_get64(frames + (size_t)i * 8);
    return NULL;
}

static const char *add_sites(swt_notes *notes, const uint8_t *p, size_t bytes) {
    while (bytes != 0) {
        if (bytes < SWT_SITE_HEAD_BYTES) return cut;
        uint32_t site = swt_get32(p), depth = swt_get32(p + 4);
        if (depth > SWT_SITE_DEPTH_MAX) return "impossible depth of a call site";
        size_t length = SWT_SITE_HEAD_BYTES + (size_t)depth * 8;
        if (bytes < length) return cut;
        const char *wrong = add_site(notes, site, p + SWT_SITE_HEAD_BYTES, depth);
        if (wrong != NULL) return wrong;
        p += length;
        bytes -= length;
    }
    return NULL;
}

static const char *add_modules(swt_notes *notes, const uint8_t *p, size_t bytes) {
    while (bytes != 0) {
        if (bytes < SWT_MODULE_HEAD_BYTES) return cut;
        swt_module module = {
            .start = swt_get64(p), .end = swt_get64(p + 8), .bias = swt_get64(p + 16)};
        size_t path_bytes = swt_get32(p + 24);
        module.build_id_bytes = swt_get32(p + 28);
        p += SWT_MODULE_HEAD_BYTES;
        bytes -= SWT_MODULE_HEAD_BYTES;
        if (path_bytes > SWT_MODULE_PATH_MAX || module.build_id_bytes > SWT_MODULE_BUILD_ID_MAX)
            return "impossible length of a module's path or build id";
        if (path_bytes == 0 || path_bytes > bytes || module.build_id_bytes > bytes - path_bytes ||
            memchr(p, 0, path_bytes) != p + path_bytes - 1)
            return cut;
        if (!swt_grow(&notes->modules, &notes->module_capacity, notes->module_count + 1,
                      sizeof *notes->modules) ||
            !add_text(notes, p, path_bytes, &module.path) ||
            !add_text(notes, p + path_bytes, module.build_id_bytes, &module.build_id))
            return swt_no_memory;
        notes->modules[notes->module_count++] = module;
        p += path_bytes + module.build_id_bytes;
        bytes -= path_bytes + module.build_id_bytes;
    }
    return NULL;
}

static const char *add_clocks(swt_notes *notes, const uint8_t *p, size_t bytes) {
    if (bytes % SWT_CLOCK_BYTES != 0) return cut;
    for (; bytes != 0; p += SWT_CLOCK_BYTES, bytes -= SWT_CLOCK_BYTES) {
        swt_clock clock = {swt_get64(p), swt_get64(p + 8), swt_get64(p + 16)};
        if (notes->clock_count++ == 0) notes->first_clock = clock;
        notes->last_clock = clock;
    }
    return NULL;
}

static const char *add_end(swt_notes *notes, const uint8_t *p, size_t bytes) {
    if (bytes != SWT_END_BYTES) return cut;
    sw_trace_summary *sum = &notes->summary;
    sum->calls = swt_get64(p);
    sum->dropped_calls = swt_get64(p + 8);
    sum->drop_reason = swt_get64(p + 16); /* the merge counts the threads, at offset 24 */
    sum->children_unrecorded = swt_get64(p + 32);
    sum->children_recorded = swt_get64(p + 40);
    return sum->drop_reason < SWT_DROP_REASON_COUNT ? NULL : "unknown reason of dropping";
}

static const char *add_summary(swt_notes *notes, const uint8_t *p, size_t bytes) {
    uint64_t fields[SWT_SUMMARY_FIELDS];
    if (bytes != sizeof fields) return cut;
    for (size_t i = 0; i < SWT_SUMMARY_FIELDS; i++) fields[i] = swt_get64(p + 8 * i);
    memcpy(&notes->summary, fields, sizeof fields);
    return NULL;
}

const char *swt_notes_add(swt_notes *notes, const swt_block *block, const uint8_t *payload,
                          uint64_t file_bytes) {
    sw_check2(swt_notes_check(notes));
    size_t bytes = block->raw_bytes;
    bool sites = block->kind == SWT_BLOCK_SITES;
    uint64_t *sum = sites ? &notes->site_bytes : &notes->bytes;
    uint64_t ratio = sites ? SITE_RATIO_MAX : NOTE_RATIO_MAX;
    *sum += bytes;
    if (*sum > NOTE_BYTES_MAX || *sum / ratio > NOTE_BYTES_FREE / ratio + file_bytes)
        return "more metadata than any program has";
    switch (block->kind) {
    case SWT_BLOCK_META: return add_meta(notes, payload, bytes);
    case SWT_BLOCK_CLOCK: return add_clocks(notes, payload, bytes);
    case SWT_BLOCK_SITES: return add_sites(notes, payload, bytes);
    case SWT_BLOCK_MODULES: return add_modules(notes, payload, bytes);
    case SWT_BLOCK_END: return add_end(notes, payload, bytes);
    default: return add_summary(notes, payload, bytes);
    }
}

size_t swt_notes_site(const swt_notes *notes, uint32_t id) {
    size_t low = 0, high = notes->site_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (notes->sites[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void swt_notes_free(swt_notes *notes) {
    free(notes->text);
    free(notes->meta);
    free(notes->modules);
    free(notes->frames);
    free(notes->sites);
    *notes = (swt_notes){0};
}

const char *swt_notes_find(const swt_notes *notes, const char *key) {
    for (size_t i = 0; i + 1 < notes->meta_used; i += 2) {
        if (strcmp(notes->text + notes->meta[i], key) == 0) return notes->text + notes->meta[i + 1];
    }
    return NULL;
}

/* Computed from the first and the last CLOCK block. With one block: the recorder's estimate; with
 * none: 1 ns per tick. */
uint64_t swt_notes_tick_q32(const swt_notes *notes) {
    const swt_clock *a = &notes->first_clock, *b = &notes->last_clock;
    if (b->ticks > a->ticks && b->ns > a->ns) {
        __extension__ unsigned __int128 ns = (unsigned __int128)(b->ns - a->ns) << 32;
        ns /= b->ticks - a->ticks;
        if (ns != 0 && ns >> 64 == 0) return (uint64_t)ns;
    }
    return a->ns_per_tick_q32 != 0 ? a->ns_per_tick_q32 : 1ull << 32;
}
