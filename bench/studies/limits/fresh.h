// SPDX-License-Identifier: Apache-2.0
// Prototypes of the very first objects of a process: what the page faults cost, and what a bitmap adds.
// Nothing that they touch was touched before; the self-test and other rows must not run first.
#ifndef SPANWISE_BENCH_LIMITS_FRESH_H
#define SPANWISE_BENCH_LIMITS_FRESH_H

#include <cstring>

#include "steps.h"

namespace limits {

enum class Backing {
    FAULTS, // made accessible at once; the kernel gives each page at its first touch
    AHEAD,  // the kernel is asked for AHEAD_BYTES of pages at a time (Linux 5.14; else as FAULTS)
    HUGE,   // as FAULTS after madvise(MADV_HUGEPAGE), from a 2 MiB boundary on
};

enum : size_t {
    FRESH_SIZE = 16, // of every object
    FRESH_BYTES = size_t{64} << 20,
    HUGE_PAGE = size_t{2} << 20,
    AHEAD_BYTES = 65536,
    ADVICE_POPULATE_WRITE = 23, // MADV_POPULATE_WRITE, which older headers lack
};

// Untouched memory that begins at a 2 MiB boundary, its end in *end.
inline uintptr_t fresh_memory(Backing backing, size_t bytes, uintptr_t *end) {
    void *at = mmap(nullptr, bytes + HUGE_PAGE, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) die("mmap of fresh memory failed");
    uintptr_t base = (address(at) + HUGE_PAGE - 1) & ~uintptr_t{HUGE_PAGE - 1};
    int advice = backing == Backing::HUGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE;
    // A kernel without huge pages refuses either advice: all pages are small, and FAULTS and HUGE
    // are the same.
    (void)madvise(reinterpret_cast<void *>(base), bytes, advice);
    *end = base + bytes;
    return base;
}

// A bump through untouched memory; nothing is freed. No allocator can do less.
template <Backing BACKING> struct Fresh : bench::Policy {
    static inline uintptr_t next = 0, end = 0, backed = 0;

    static void ready() {
        if (next == 0) next = backed = fresh_memory(BACKING, FRESH_BYTES, &end);
    }
    template <size_t N> static void *get() {
        static_assert(N <= FRESH_SIZE, "a prototype has one size");
        uintptr_t p = next;
        if constexpr (BACKING == Backing::AHEAD) {
            if (__builtin_expect(p == backed, 0)) back();
        }
        if (__builtin_expect(p == end, 0)) die("the space is used up");
        next = p + FRESH_SIZE;
        return reinterpret_cast<void *>(p);
    }
    template <size_t N> static void *zget() { return memset(get<N>(), 0, N); }
    static void drop(void *) {}
    static size_t usable(void *) { return FRESH_SIZE; }

  private:
    [[gnu::noinline]] static void back() {
        if (backed != end)
            (void)madvise(reinterpret_cast<void *>(backed), AHEAD_BYTES, ADVICE_POPULATE_WRITE);
        backed += AHEAD_BYTES;
    }
};

// Words as in step `split`, set up one after the other in memory that is as fresh as the objects'.
template <Backing BACKING> struct FreshSplit : bench::Policy {
    enum : size_t { WORDS = FRESH_BYTES / FRESH_SIZE / 64 };

    static inline uintptr_t base = 0, word_base = 0;
    static inline Word *words = nullptr, *word = nullptr, *words_end = nullptr;

    static void ready() {
        if (base != 0) return;
        uintptr_t end;
        base = fresh_memory(BACKING, FRESH_BYTES, &end);
        words = reinterpret_cast<Word *>(fresh_memory(Backing::FAULTS, WORDS * sizeof(Word), &end));
        words_end = words + WORDS;
        static Word none{};
        word = &none;
    }
    template <size_t N> static void *get() {
        static_assert(N <= FRESH_SIZE, "a prototype has one size");
        uint64_t bits = load(word->free);
        if (__builtin_expect(bits == 0, 0)) bits = refill();
        store(word->free, bits & (bits - 1));
        return reinterpret_cast<void *>(word_base + lowest(bits) * FRESH_SIZE);
    }
    template <size_t N> static void *zget() { return memset(get<N>(), 0, N); }
    static void drop(void *p) {
        uint64_t slot = (address(p) - base) / FRESH_SIZE;
        Word &to = words[slot / 64];
        store(to.local, load(to.local) | bit_of(slot));
    }
    static size_t usable(void *) { return FRESH_SIZE; }

  private:
    // Goes to the next unused word; once all were used, to a word with freed slots.
    [[gnu::noinline]] static uint64_t refill() {
        static size_t used = 0, cursor = 0;
        size_t at = used;
        if (used < WORDS) {
            used++;
            word = &words[at];
            word->free = ~uint64_t{0};
        } else {
            for (size_t tried = 0; words[cursor].local == 0; tried++) {
                if (tried > WORDS) die("the space is used up");
                if (++cursor == WORDS) cursor = 0;
            }
            at = cursor;
            word = &words[at];
            word->free = word->local;
            word->local = 0;
        }
        word_base = base + at * 64 * FRESH_SIZE;
        return word->free;
    }
};

} // namespace limits
#endif
