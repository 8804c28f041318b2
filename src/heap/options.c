/* SPDX-License-Identifier: Apache-2.0 */
/* Options of heaps: defaults, structs of older and later versions, and the values that are
 * rejected. */
#include "heap/options.h"

#include <string.h>

#include "base/bits.h"
#include "base/fail.h"
#include "base/sized.h"
#include "sizeclass/table.h"

#define MEND "call sw_heap_options_init first"
enum { LARGE_TOUCHED_ALL = 1000000 };

static const sw_heap_options defaults = {.decay_ns = SW_DECAY_DEFAULT_MS * 1000000ull};

sw_status sw_heap_options_fill(sw_heap_options *options, uint64_t struct_bytes) {
    if (options == NULL) return sw_fail_null("heap_options_fill", "options");
    if (!sw_sized_is_valid(struct_bytes))
        return sw_sized_refuse(struct_bytes, "heap_options_fill", "give sizeof(sw_heap_options)");
    sw_heap_options filled = defaults;
    filled.struct_bytes = struct_bytes;
    filled.table = sw_table_default();
    memset(options, 0, struct_bytes);
    memcpy(options, &filled, sw_min_u64(struct_bytes, sizeof filled));
    return SW_OK;
}

/* Whether a heap with this table can pack tiny objects. They share blocks of the 16-byte class, and
 * the table must have a class of exactly 16 bytes, because that size distinguishes blocks from
 * other slots. */
static bool can_pack(const sw_table *table) {
    return table->max_size >= 16 && table->classes[sw_size_class(table, 16)].size == 16;
}

/* The share of large objects that programs write to may be given in one of the two units only, and
 * only for a heap that notes writes. */
static sw_status check_share(const sw_heap_options *options, const char *op) {
    if (options->large_touched_percent > 100)
        return sw_fail(SW_INVALID, op, "large_touched_percent %u is above 100",
                       options->large_touched_percent);
    if (options->large_touched_ppm > LARGE_TOUCHED_ALL)
        return sw_fail(SW_INVALID, op, "large_touched_ppm %llu is above %d",
                       (unsigned long long)options->large_touched_ppm, LARGE_TOUCHED_ALL);
    bool percent = options->large_touched_percent != 0, ppm = options->large_touched_ppm != 0;
    if (percent && ppm)
        return sw_fail(SW_INVALID, op,
                       "large_touched_percent and large_touched_ppm: give one of them");
    if ((percent || ppm) && !options->touch_map)
        return sw_fail(SW_INVALID, op, "%s is for heaps with touch_map",
                       percent ? "large_touched_percent" : "large_touched_ppm");
    return SW_OK;
}

/* Whether a heap can be made with these options; every field is set. */
static sw_status check_options(const sw_heap_options *options, const char *op) {
    if ((uint32_t)options->placement > SW_PLACE_LASTING)
        return sw_fail(
            SW_INVALID, op,
            "placement %d is unknown: use 0 (LIFO), 1 (address), 2 (fullest) or 3 (lasting)",
            (int)options->placement);
    if (options->batch_spans > UINT16_MAX)
        return sw_fail(SW_INVALID, op, "batch_spans %u is above %u", options->batch_spans,
                       (unsigned)UINT16_MAX);
    if (!sw_table_check(options->table, op)) return SW_INVALID;
    if (options->touch_map && !options->dry)
        return sw_fail(SW_INVALID, op, "touch_map: a real heap asks the system; leave it 0");
    if (check_share(options, op) != SW_OK) return SW_INVALID;
    if (options->tiny && !can_pack(options->table))
        return sw_fail(SW_INVALID, op, "tiny: table %s has no class of 16 bytes",
                       options->table->name);
    return SW_OK;
}

/* Whether every byte after the fields of this version is 0. */
static bool rest_is_zero(const sw_heap_options *given) {
    const unsigned char *bytes = (const unsigned char *)given;
    for (uint64_t at = sizeof *given; at < given->struct_bytes; at++)
        if (bytes[at] != 0) return false;
    return true;
}

sw_status sw_options_read(const sw_heap_options *given, const char *op, sw_heap_options *out) {
    *out = defaults;
    if (given != NULL) {
        if (!sw_sized_is_valid(given->struct_bytes))
            return sw_sized_refuse(given->struct_bytes, op, MEND);
        if (!rest_is_zero(given))
            return sw_fail(SW_UNSUPPORTED, op,
                           "options of %llu bytes use fields that this version lacks: it has %zu",
                           (unsigned long long)given->struct_bytes, sizeof *given);
        memcpy(out, given, sw_min_u64(given->struct_bytes, sizeof *out));
    }
    out->struct_bytes = sizeof *out;
    if (out->table == NULL) out->table = sw_table_default();
    if (out->decay_ns == 0) out->decay_ns = defaults.decay_ns;
    return check_options(out, op);
}
