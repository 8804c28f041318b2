// SPDX-License-Identifier: Apache-2.0
// What the prototypes of bench/studies/limits stand on: one range of memory cut into spans of one slot size, with
// the records of a real heap (docs/design/limits.md) and nothing else: no classes, no page heap,
// no growth. Nothing of the library is used.
//
//   space:  | span 0 | span 1 | ...        8 KiB each
//   span:   | slot 0 | slot 1 | ...        SIZE bytes each, 64 slots a word, no tail
//
// One word of state a 64 slots: either bits[] (steps with one word) or words[] (free and local apart).
#ifndef SPANWISE_BENCH_LIMITS_SPACE_H
#define SPANWISE_BENCH_LIMITS_SPACE_H

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace limits {

enum : size_t { SPAN_BYTES = 8192, SLOTS = size_t{1} << 20, FRAME_BITS = 12, HINTS = 16 };

// A free object of a list.
struct Object {
    Object *next;
};

// 64 slots; a set bit means free. `free` is what allocation takes from, `local` what the owner freed
// since, `remote` what others freed.
struct alignas(32) Word {
    uint64_t free;
    uint64_t local;
    uint64_t remote;
    uint64_t claim; // claimed.h: who alone may write `remote`
};

enum class Place : uint8_t { WHOLE, CURRENT, FULL, PARTIAL };

struct Cache;

// Bit 0 of `owner` is set while a free must take the slow path (full spans).
struct alignas(64) Span {
    uintptr_t base;
    uint64_t magic; // ceil(2^64 / size)
    uintptr_t owner;
    Word *words;
    Span *next; // of its list; the library has these in a second record
    Span *prev;
    Place place;
    uint16_t cls; // where there are several classes (classes.h)
    Object *list; // of its free slots, where each span has a list
};

struct Hint {
    uint64_t at; // address << 6 | number of the bit
    Word *word;
};

// The record of one thread. Every step uses the part of it that it needs.
struct alignas(64) Cache {
    Object *head; // step list

    uintptr_t base; // what a free needs to find a span
    uint64_t frames;
    const uint32_t *page_map;
    Span *spans;
    uint64_t *bits; // of the whole space
    Word *words;

    uint64_t *bit; // the word that allocation takes from, in either layout
    Word *word;
    uintptr_t word_base; // address of that word's slot 0
    Span *span;

    size_t first, end, cursor; // its words, and the one that it is at
    uintptr_t fresh;           // step list: memory without an object so far
    Span *partial, *whole;

    void *parked;
    size_t hinted;
    Hint hints[HINTS];

    // Messages of other threads: a queue whose last consumed object is its first (Vyukov's MPSC queue).
    Object *pending_first, *pending_last;
    size_t pending;
    Object stub;
    Object *front;
    Word *claimed; // claimed.h: the one word whose `remote` this cache may write
    alignas(64) Object *back;
};

enum class Fault { NONE, OUTSIDE, INTERIOR, FOREIGN, DOUBLE };

// The self-test collects faults; in other programs a fault ends the program.
inline bool collect_faults = false;
inline std::atomic<Fault> fault{Fault::NONE};

[[gnu::noinline, gnu::cold]] inline void reject(Fault what) {
    if (!collect_faults) {
        fprintf(stderr, "limits: a bad free was detected (fault %d)\n", static_cast<int>(what));
        abort();
    }
    fault = what;
}

[[noreturn, gnu::noinline, gnu::cold]] inline void die(const char *what) {
    fprintf(stderr, "limits: %s\n", what);
    exit(1);
}

// Relaxed accesses, as the library's: the compiler neither keeps nor joins them.
template <class T> inline T load(const T &from) { return __atomic_load_n(&from, __ATOMIC_RELAXED); }
template <class T> inline void store(T &to, T value) {
    __atomic_store_n(&to, value, __ATOMIC_RELAXED);
}

// The space of one prototype (TAG keeps those of different steps apart) and its caches.
template <class TAG, size_t SIZE> struct Space {
    static constexpr size_t SPAN_SLOTS = SPAN_BYTES / SIZE;
    static constexpr size_t SPAN_WORDS = SPAN_SLOTS / 64;
    static constexpr size_t SPANS = SLOTS / SPAN_SLOTS;
    static constexpr size_t WORDS = SLOTS / 64;
    static constexpr size_t FRAMES = SLOTS * SIZE >> FRAME_BITS;
    static_assert(SPAN_SLOTS % 64 == 0 && SPAN_BYTES % SIZE == 0, "a word is 64 slots of one span");

    static inline uint32_t page_map[FRAMES];
    static inline Span spans[SPANS];
    static inline uint64_t bits[WORDS];
    static inline Word words[WORDS];
    static inline Cache caches[3]; // the last one owns nothing
    static inline uintptr_t base = 0;

    // Cache 1 owns the last `others` spans, cache 0 the rest.
    static void ready(size_t others) {
        if (base != 0) return;
        void *at = mmap(nullptr, SLOTS * SIZE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) die("mmap of a space failed");
        base = reinterpret_cast<uintptr_t>(at);
        for (size_t i = 0; i < FRAMES; i++)
            page_map[i] = static_cast<uint32_t>((i << FRAME_BITS) / SPAN_BYTES);
        for (size_t i = 0; i < WORDS; i++) {
            bits[i] = ~uint64_t{0};
            words[i].free = ~uint64_t{0};
        }
        ready_cache(caches[0], 0, SPANS - others);
        ready_cache(caches[1], SPANS - others, SPANS);
        ready_cache(caches[2], SPANS, SPANS);
    }

  private:
    static void ready_cache(Cache &cache, size_t first, size_t end) {
        cache.base = base;
        cache.frames = FRAMES;
        cache.page_map = page_map;
        cache.spans = spans;
        cache.bits = bits;
        cache.words = words;
        cache.first = first * SPAN_WORDS;
        cache.end = end * SPAN_WORDS;
        cache.cursor = cache.first;
        cache.fresh = base + first * SPAN_BYTES;
        static uint64_t no_bits = 0;
        static Word no_word{};
        cache.bit = &no_bits;
        cache.word = &no_word;
        cache.word_base = UINTPTR_MAX / 2 + 1; // far from any object
        cache.front = cache.back = &cache.stub;
        for (size_t i = end; i-- > first;) {
            Span &span = spans[i];
            span.base = base + i * SPAN_BYTES;
            span.magic = UINT64_MAX / SIZE + 1;
            span.owner = reinterpret_cast<uintptr_t>(&cache);
            span.words = &words[i * SPAN_WORDS];
            span.next = cache.whole;
            cache.whole = &span;
        }
    }
};

} // namespace limits
#endif
