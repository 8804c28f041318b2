/* SPDX-License-Identifier: Apache-2.0 */
/* A bitmap of touched pages (touch_map.h). */
#include "page/touch_map.h"

#include <string.h>

#include "base/assert.h"
#include "base/bits.h"
#include "os/os.h"

void sw_touch_map_begin(sw_touch_map *touch) {
    *touch = (sw_touch_map){.on = true, .grain_shift = sw_log2_floor(sw_os_page_bytes())};
}

void sw_touch_map_end(sw_touch_map *touch) {
    if (touch->bits != NULL) (void)sw_os_release(touch->bits, touch->capacity / 8);
    *touch = (sw_touch_map){0};
}

void sw_touch_map_reserve(sw_touch_map *touch, uint64_t end) {
    uint64_t bits = sw_align_up(sw_div_up(end, 1ull << touch->grain_shift), 64);
    if (!touch->on || touch->failed || bits <= touch->capacity) return;
    bits = sw_max_u64(bits, touch->capacity * 2);
    uint64_t *wider = sw_os_map(bits / 8);
    if (wider == NULL) {
        touch->failed = true;
        return;
    }
    if (touch->bits != NULL) {
        memcpy(wider, touch->bits, touch->capacity / 8);
        (void)sw_os_release(touch->bits, touch->capacity / 8);
    }
    touch->bits = wider;
    touch->capacity = bits;
}

/* Returns the bits [first, end) of word w. */
static uint64_t mask_of(uint64_t w, uint64_t first, uint64_t end) {
    uint32_t low = first > w * 64 ? (uint32_t)(first - w * 64) : 0;
    uint32_t high = end < (w + 1) * 64 ? (uint32_t)(end - w * 64) : 64;
    return sw_low_mask(high) & ~sw_low_mask(low);
}

void sw_touch_map_add(sw_touch_map *touch, uint64_t from, uint64_t bytes) {
    uint64_t first = from >> touch->grain_shift;
    uint64_t end = ((from + bytes - 1) >> touch->grain_shift) + 1;
    if (bytes == 0 || end > touch->capacity) return;
    uint64_t mask = ~0ull >> (64 - (end - first)) % 64 << first % 64; /* if within one word */
    if (first / 64 == (end - 1) / 64 && (~touch->bits[first / 64] & mask) == 0) return; /* usual */
    for (uint64_t w = first / 64; w * 64 < end; w++) {
        uint64_t fresh = mask_of(w, first, end) & ~touch->bits[w];
        touch->bits[w] |= fresh;
        touch->count += sw_popcount(fresh);
    }
}

void sw_touch_map_remove(sw_touch_map *touch, uint64_t from, uint64_t bytes) {
    sw_check2(sw_touch_map_check(touch));
    uint64_t first = sw_div_up(from, 1ull << touch->grain_shift);
    uint64_t end = sw_min_u64((from + bytes) >> touch->grain_shift, touch->capacity);
    for (uint64_t w = first / 64; w * 64 < end; w++) {
        uint64_t gone = mask_of(w, first, end) & touch->bits[w];
        touch->bits[w] &= ~gone;
        touch->count -= sw_popcount(gone);
    }
}

uint64_t sw_touch_map_within(const sw_touch_map *touch, uint64_t from, uint64_t bytes) {
    uint64_t grain = 1ull << touch->grain_shift, end = from + bytes, sum = 0;
    for (uint64_t at = from; at < end;) {
        uint64_t next = sw_min_u64(sw_align_down(at, grain) + grain, end);
        uint64_t bit = at >> touch->grain_shift;
        if (bit < touch->capacity && (touch->bits[bit / 64] >> bit % 64 & 1) != 0) sum += next - at;
        at = next;
    }
    return sum;
}
