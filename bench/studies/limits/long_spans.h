// SPDX-License-Identifier: Apache-2.0
// What the prototypes of several classes (mixed.h) stand on: the records of space.h for spans of 64 KiB,
// each of one class. One thread, no page heap: a span keeps its class for ever.
#ifndef SPANWISE_BENCH_LIMITS_LONG_SPANS_H
#define SPANWISE_BENCH_LIMITS_LONG_SPANS_H

#include <cstring>

#include "space.h"

namespace limits {

enum : size_t {
    SIZE_STEP = 8, // of the size map
    SIZE_MAX_MIXED = 1024,
    LONG_CLASSES = 33, // class 0 is none
    LONG_SPAN = 65536,
    LONG_SPANS = 2048,
    LONG_WORDS = LONG_SPAN / 16 / 64 + 1, // of a span of the smallest slots, the tail's included
    LONG_FRAMES = LONG_SPANS * LONG_SPAN >> FRAME_BITS,
};

// Slots of 16, 32 .. 256, 288 .. 512, 576 .. 1024 B: at most an eighth is rounded up beyond 128 B.
struct SizeTable {
    uint16_t bytes[LONG_CLASSES];
    uint8_t of[SIZE_MAX_MIXED / SIZE_STEP + 1]; // (size + 7) / 8 -> class
};

constexpr SizeTable make_size_table() {
    SizeTable table{};
    size_t last = 0, cls = 0;
    for (size_t size = 16; size <= SIZE_MAX_MIXED;
         size += size < 256 ? 16 : (size < 512 ? 32 : 64)) {
        table.bytes[++cls] = static_cast<uint16_t>(size);
        for (; last <= size / SIZE_STEP; last++) table.of[last] = static_cast<uint8_t>(cls);
    }
    return table;
}
constexpr SizeTable SIZES = make_size_table();
static_assert(SIZES.bytes[LONG_CLASSES - 1] == SIZE_MAX_MIXED,
              "the last class is of the largest size");

// A free object in a list. `at` tells the place of its bit, so that allocation clears the bit
// without a look-up.
struct Node {
    Node *next;
    uint64_t at; // address of the 64 bits << 6 | number of the bit
};

// Bit 0 of `owner` is set while a free must take the slow path (full spans).
struct alignas(64) LongSpan {
    uintptr_t base;
    uint64_t magic; // ceil(2^64 / bytes of a slot)
    uintptr_t owner;
    union {
        Word *words;    // the steps with bitmaps; past the last slot: 0 in `free`, 1 in `local`
        uint64_t *bits; // the steps with lists: a set bit means free
    };
    LongSpan *next; // of its list; the library has these in a second record
    LongSpan *prev;
    uint16_t slots;
    uint16_t cls;
    uint8_t cursor; // the word that allocation looks at next
    Place place;
};
static_assert(sizeof(LongSpan) == 64, "a record is a line");

// Where allocation of one class takes from.
struct alignas(32) Point {
    Word *word;
    uintptr_t base; // address of that word's slot 0
    LongSpan *span;
    uint32_t bytes;
    uint32_t hints;
};

// The record of the one thread. Every step uses the part of it that it needs.
struct alignas(64) MixedCache {
    uintptr_t base;
    uint64_t frames;
    const uint32_t *page_map;
    LongSpan *spans;
    const uint8_t *frame_class;

    Node *heads[LONG_CLASSES];
    uintptr_t fresh[LONG_CLASSES], fresh_end[LONG_CLASSES]; // memory without an object so far

    Point points[LONG_CLASSES];
    LongSpan *partial[LONG_CLASSES], *whole[LONG_CLASSES];
    Hint *hints; // of all classes
};

// The space of one prototype (TAG keeps those of different steps apart) and its cache. BITMAP: spans
// have words, else one bit a slot. DEPTH: hints of a class.
template <class TAG, bool BITMAP, size_t DEPTH> struct LongSpace {
    static inline uint32_t page_map[LONG_FRAMES];
    static inline uint8_t frame_class[LONG_FRAMES];
    static inline LongSpan spans[LONG_SPANS];
    static inline Word words[BITMAP ? LONG_SPANS * LONG_WORDS : 1];
    static inline uint64_t bits[BITMAP ? 1 : LONG_SPANS * LONG_WORDS];
    static inline size_t used_spans, used_words;
    static inline MixedCache cache;
    // The hints of class i are hints[2 + i * DEPTH ...], the newest last. The two before a class's
    // first are another class's or unused, so code may read them.
    static inline Hint hints[2 + LONG_CLASSES * DEPTH];

    static void ready() {
        if (cache.base != 0) return;
        void *at = mmap(nullptr, LONG_SPANS * LONG_SPAN, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) die("mmap of a space of several classes failed");
        cache.base = reinterpret_cast<uintptr_t>(at);
        cache.frames = LONG_FRAMES;
        cache.page_map = page_map;
        cache.spans = spans;
        cache.frame_class = frame_class;
        cache.hints = hints;
        for (size_t frame = 0; frame < LONG_FRAMES; frame++)
            page_map[frame] = static_cast<uint32_t>((frame << FRAME_BITS) / LONG_SPAN);
        static Word no_word{};
        for (size_t cls = 0; cls < LONG_CLASSES; cls++)
            cache.points[cls] = {&no_word, 0, nullptr, SIZES.bytes[cls], 0};
    }

    // Takes an unused span for a class; its memory and words follow those of the span taken before.
    static LongSpan *fresh_span(unsigned cls) {
        if (used_spans == LONG_SPANS) die("the space is used up");
        size_t number = used_spans++;
        size_t bytes = SIZES.bytes[cls];
        LongSpan &span = spans[number];
        span.base = cache.base + number * LONG_SPAN;
        span.magic = UINT64_MAX / bytes + 1;
        span.owner = reinterpret_cast<uintptr_t>(&cache);
        span.slots = static_cast<uint16_t>(LONG_SPAN / bytes);
        span.cls = static_cast<uint16_t>(cls);
        ready_words(span);
        memset(&frame_class[number * LONG_SPAN >> FRAME_BITS], static_cast<int>(cls),
               LONG_SPAN >> FRAME_BITS);
        return &span;
    }

    // Bits of a word of the span that stand for no slot.
    static uint64_t padding(const LongSpan &span, size_t word) {
        size_t first = word * 64;
        if (span.slots >= first + 64) return 0;
        return span.slots <= first ? ~uint64_t{0} : ~uint64_t{0} << (span.slots - first);
    }
    // One more when the slots end on a word, so that the tail's index meets padding too.
    static size_t word_count(const LongSpan &span) { return span.slots / 64 + size_t{1}; }

  private:
    static void ready_words(LongSpan &span) {
        size_t first = used_words, count = word_count(span);
        used_words += count;
        if constexpr (BITMAP)
            span.words = &words[first];
        else
            span.bits = &bits[first];
        for (size_t i = 0; i < count; i++) {
            uint64_t beyond = padding(span, i);
            if constexpr (BITMAP)
                span.words[i] = {~beyond, beyond, 0, 0};
            else
                span.bits[i] = ~uint64_t{0};
        }
    }
};

} // namespace limits
#endif
