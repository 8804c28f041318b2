/* SPDX-License-Identifier: Apache-2.0 */
/* The canary: the bytes after an object, up to 16, depend on its address and on a key of the
 * process. The two low bits of each byte are the kind of allocation plus one, so no byte is 0, and
 * the end of a string that is one byte too long is detected.
 *
 *   byte i after the start of the object is byte i % 8 of the word, for
 *   size <= i < min(bytes, size / 8 * 8 + 16)
 *
 * So a canary is written and compared by two words: the one in which the object ends, and the next
 * one if the slot has it. `bytes` of the slot is a multiple of 8 and more than `size`. */
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

/* The bytes of the object in the word in which it ends. */
static inline uint64_t sw_canary_object_part(size_t size) {
    unsigned bits = size % 8 * 8;
#if __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
    return ~(~UINT64_C(0) >> bits);
#else
    return ~(~UINT64_C(0) << bits);
#endif
}

static inline void sw_canary_write(uint64_t word, void *object, size_t size, size_t bytes) {
    char *at = (char *)object + size / 8 * 8;
    uint64_t object_part = sw_canary_object_part(size), last;
    memcpy(&last, at, sizeof last);
    last = (last & object_part) | (word & ~object_part);
    memcpy(at, &last, sizeof last);
    if (size / 8 * 8 + 8 < bytes) memcpy(at + 8, &word, sizeof word);
}

/* Returns the bits in which the canary differs from the word's; 0: it is whole. */
static inline uint64_t sw_canary_damage(uint64_t word, const void *object, size_t size,
                                        size_t bytes) {
    const char *at = (const char *)object + size / 8 * 8;
    uint64_t last, next = word;
    memcpy(&last, at, sizeof last);
    if (size / 8 * 8 + 8 < bytes) memcpy(&next, at + 8, sizeof next);
    return ((last ^ word) & ~sw_canary_object_part(size)) | (next ^ word);
}

/* Returns whether the canary is whole, and in *kind who allocated the object. */
static inline bool sw_canary_read(uint64_t key, const void *object, size_t size, size_t bytes,
                                  sw_guard_kind *kind) {
    unsigned low = ((const uint8_t *)object)[size] & 3;
    if (low == 0) return false;
    *kind = (sw_guard_kind)(low - 1);
    return sw_canary_damage(sw_canary_word(key, object, *kind), object, size, bytes) == 0;
}

#endif
