/* SPDX-License-Identifier: Apache-2.0 */
/* The canary: up to 16 bytes after an object, which depend on its address and on a key of the
 * process. The two low bits of each byte are the kind of allocation plus one, so no byte is 0, and
 * the end of a string that is one byte too long is seen. */
#ifndef SW_GUARD_CANARY_H
#define SW_GUARD_CANARY_H

#include <string.h>

#include "guard/guard.h"

enum { SW_CANARY_MAX = 16 };

static inline uint64_t sw_canary_word(uint64_t key, const void *object, sw_guard_kind kind) {
    uint64_t word = (key ^ (uintptr_t)object) * UINT64_C(0x9E3779B97F4A7C15);
    word ^= word >> 32;
    return (word & UINT64_C(0xFCFCFCFCFCFCFCFC)) | UINT64_C(0x0101010101010101) * (kind + 1u);
}

static inline uint8_t sw_canary_byte(uint64_t word, size_t i) {
    return (uint8_t)(word >> (i % 8 * 8));
}

/* Writes the canary of an object of `size` bytes, which `room` bytes follow, at least one. */
static inline void sw_canary_write(uint64_t key, void *object, size_t size, size_t room,
                                   sw_guard_kind kind) {
    uint64_t word = sw_canary_word(key, object, kind);
    uint8_t *end = (uint8_t *)object + size;
    if (sw_likely(room >= SW_CANARY_MAX)) {
        memcpy(end, &word, sizeof word);
        memcpy(end + sizeof word, &word, sizeof word);
    } else {
        for (size_t i = 0; i < room; i++) end[i] = sw_canary_byte(word, i);
    }
}

static inline bool sw_canary_is_whole(const uint8_t *end, size_t room, uint64_t word) {
    if (sw_likely(room >= SW_CANARY_MAX)) {
        uint64_t found[2];
        memcpy(found, end, sizeof found);
        return found[0] == word && found[1] == word;
    }
    for (size_t i = 0; i < room; i++)
        if (end[i] != sw_canary_byte(word, i)) return false;
    return true;
}

/* Returns whether the canary is whole, and in *kind who allocated the object. */
static inline bool sw_canary_read(uint64_t key, const void *object, size_t size, size_t room,
                                  sw_guard_kind *kind) {
    const uint8_t *end = (const uint8_t *)object + size;
    if ((end[0] & 3) == 0) return false;
    *kind = (sw_guard_kind)((end[0] & 3) - 1);
    return sw_canary_is_whole(end, room, sw_canary_word(key, object, *kind));
}

#endif
