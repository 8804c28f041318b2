// SPDX-License-Identifier: Apache-2.0
// A prototype of frees of another cache's objects that are visible at once without an atomic step each:
// the freer claims a word, and writes its bits with plain stores until it claims another.
//
// Who may write what of a word:
//   free, local   the owner of the span only, as everywhere
//   claim         0 -> own number by compare and exchange; own number -> 0 by a release store
//   remote        whoever holds the claim, with plain (relaxed) stores
// A freer holds one claim at most, over all its frees into that word. The owner drains a word by claiming
// it as well, for those few instructions. So one party at a time writes `remote`, knows what is in it, and
// needs no atomic step to add to it. A freer that finds a word claimed by somebody else puts its free
// aside: (word, bits) in a list under a lock, and a counter that the owner looks at.
//
// No free is lost.
//   1. Only the holder of the claim writes `remote`: no store is overwritten by one that did not see it.
//   2. The owner empties `remote` only between its own claim (acquire) and the end of it (release). It
//      sees all that earlier holders stored before their release, and whatever the freer did with the
//      object before: on arm64 by the pairs stlr / casa, on x86-64 by the order of plain stores.
//   3. What is put aside stays in the list until the owner, holding both claim and lock, takes it.
//
// A second free of a slot that happens after the first is found, before the slot can be handed out. Bits
// travel from local, remote and aside to `free`, never elsewhere, and whoever moves them sets `free` first
// and clears the place that they came from by a release store. Whoever asks reads `free` last, the others
// by acquire loads. Such a reader, to whom the first free is visible, meets the bit in one of them, or the
// slot was handed out again in between, and this is a free of the new object. So
//   - a freer with the claim reads local, remote (its own: exact) and free, and finds what the owner
//     freed, and what was freed in this claim and before it;
//   - one without the claim reads the list, local, remote and free under the lock: all there is. (What it
//     reads of `remote` is a plain store of somebody who had acquired the claim after the drain, and
//     ldar then orders its look at `free` because arm64 and x86-64 are multi-copy atomic; for the letter
//     of C++ that store would have to be a release);
//   - what only the list knows (put aside during a claim, then freed by the claim's holder) is found when
//     the owner takes the list: it is not moved before the claim ends, and overlaps with `remote` then;
//   - a free by the owner of what others have freed is found when `local` is moved: the bits of remote
//     and of the list are looked at first, also while the word is claimed. Those of a claimed word need
//     no order beyond coherence: the first free happens before.
// Two frees that race may both pass; the second is found at the drain as an overlap, or frees the object
// that got the slot in between.
//
// The price: up to 64 slots a freer wait while a claim is kept, if the freer frees nothing else. A real
// heap needs a way to end the claims of idle threads, and must not give a span up while a word is claimed.
#ifndef SPANWISE_BENCH_LIMITS_CLAIMED_H
#define SPANWISE_BENCH_LIMITS_CLAIMED_H

#include <mutex>
#include <vector>

#include "remote.h"

namespace limits {

template <size_t SIZE> struct Claimed : Prototype<Step::DOUBLE, SIZE, struct ClaimedTag> {
    using Plain = Prototype<Step::DOUBLE, SIZE, struct ClaimedTag>;
    using Memory = typename Plain::Memory;

    static void ready() { Memory::ready(Memory::SPANS / 2); }
    static void thread_start() { Seats<Claimed>::sit(); }
    static void thread_stop() {
        flush();
        Seats<Claimed>::rise();
    }
    // The calling thread gives its claim up.
    static void flush() { unclaim(Plain::cache); }

    template <size_t N> static void *get() { return take(Plain::cache); }
    template <size_t N> static void *zget() { return memset(get<N>(), 0, N); }

    static void drop(void *p) {
        drop_of_any<Plain>(p, [](Cache *c, Word *word, uint64_t bit) {
            if (__builtin_expect(word == load(c->claimed), 1))
                set_remote(word, bit);
            else
                send(c, word, bit);
        });
    }

  private:
    struct Aside {
        Word *word;
        uint64_t bits;
    };
    static inline std::mutex lock;
    static inline std::vector<Aside> list;        // under the lock
    static inline std::atomic<size_t> waiting{0}; // its length; changed under the lock

    static uint64_t number_of(const Cache *c) {
        return static_cast<uint64_t>(c - Memory::caches) + 1;
    }

    static bool claim(const Cache *c, Word *word) {
        uint64_t nobody = 0;
        return load(word->claim) == 0 &&
               __atomic_compare_exchange_n(&word->claim, &nobody, number_of(c), false,
                                           __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
    }

    static void unclaim(Cache *c) {
        if (c->claimed == nullptr) return;
        __atomic_store_n(&c->claimed->claim, uint64_t{0}, __ATOMIC_RELEASE);
        c->claimed = nullptr;
    }

    // The bits of all free slots, read in the order that the protocol requires.
    static uint64_t free_bits(const Word *word) {
        uint64_t local = __atomic_load_n(&word->local, __ATOMIC_ACQUIRE);
        uint64_t remote = __atomic_load_n(&word->remote, __ATOMIC_ACQUIRE);
        return local | remote | load(word->free);
    }

    // Called by the holder of the word's claim only.
    static void set_remote(Word *word, uint64_t bit) {
        uint64_t remote = load(word->remote);
        uint64_t others = __atomic_load_n(&word->local, __ATOMIC_ACQUIRE);
        others |= load(word->free);
        if (__builtin_expect(((remote | others) & bit) != 0, 0)) return reject(Fault::DOUBLE);
        store(word->remote, remote | bit);
    }

    // A free into another word than the claimed one: claims that word, or puts the free aside.
    [[gnu::noinline]] static void send(Cache *c, Word *word, uint64_t bit) {
        unclaim(c);
        if (!claim(c, word)) return put_aside(word, bit);
        c->claimed = word;
        store(c->pending, load(c->pending) + 1); // announces a claim once
        set_remote(word, bit);
    }

    [[gnu::noinline, gnu::cold]] static void put_aside(Word *word, uint64_t bit) {
        std::lock_guard<std::mutex> held(lock);
        if (((listed(word) | free_bits(word)) & bit) != 0) return reject(Fault::DOUBLE);
        list.push_back({word, bit});
        waiting.store(list.size(), std::memory_order_release);
    }

    // The bits of a word that were put aside; the caller holds the lock.
    static uint64_t listed(const Word *word) {
        uint64_t bits = 0;
        for (const Aside &each : list)
            if (each.word == word) bits |= each.bits;
        return bits;
    }

    // --- the owner --------------------------------------------------------------------------------

    static void *take(Cache *c) {
        uint64_t bits = load(c->word->free);
        if (__builtin_expect(bits == 0, 0)) return refill(c);
        store(c->word->free, bits & (bits - 1));
        return reinterpret_cast<void *>(c->word_base + lowest(bits) * SIZE);
    }

    [[gnu::noinline]] static void *refill(Cache *c) {
        for (size_t tried = 0; !collected(c, &c->words[c->cursor]); tried++) {
            if (tried > c->end - c->first) die("the space is used up");
            if (++c->cursor == c->end) c->cursor = c->first;
        }
        Plain::point_at(c, c->cursor);
        return take(c);
    }

    // Moves freed bits to `free`, those of others only if nobody else claims the word; returns
    // whether the word has free slots.
    static bool collected(const Cache *c, Word *word) {
        if (__builtin_expect(waiting.load(std::memory_order_acquire) != 0, 0))
            return collected_with_list(c, word);
        if (load(word->remote) != 0 && claim(c, word)) {
            move(word, 0, true);
            __atomic_store_n(&word->claim, uint64_t{0}, __ATOMIC_RELEASE);
        } else {
            move(word, 0, false);
        }
        return load(word->free) != 0;
    }

    [[gnu::noinline]] static bool collected_with_list(const Cache *c, Word *word) {
        std::lock_guard<std::mutex> held(lock);
        uint64_t aside = listed(word);
        bool mine = claim(c, word);
        move(word, aside, mine);
        if (mine) {
            for (size_t i = list.size(); i-- > 0;)
                if (list[i].word == word) list.erase(list.begin() + static_cast<ptrdiff_t>(i));
            waiting.store(list.size(), std::memory_order_release);
            __atomic_store_n(&word->claim, uint64_t{0}, __ATOMIC_RELEASE);
        }
        return load(word->free) != 0;
    }

    // `aside`: the bits of the word in the list. With the claim (`mine`) all freed bits move;
    // without it only bits of `local` that no other cache has freed as well. `free` is stored
    // first, the sources are cleared afterwards.
    static void move(Word *word, uint64_t aside, bool mine) {
        uint64_t free = load(word->free), local = load(word->local), remote = load(word->remote);
        uint64_t others = remote | aside;
        if (__builtin_expect(((free | local) & others) != 0 || (remote & aside) != 0, 0))
            reject(Fault::DOUBLE);
        store(word->free, free | (mine ? local | others : local & ~others));
        __atomic_store_n(&word->local, uint64_t{0}, __ATOMIC_RELEASE);
        if (mine) __atomic_store_n(&word->remote, uint64_t{0}, __ATOMIC_RELEASE);
    }
};

// P on so few words that its objects stay in the processors' caches, as with an allocator that
// reuses freed objects first. For rows in which few objects live.
template <class P> struct Near : P {
    enum : size_t { WORDS = 256 };

    static void thread_start() {
        P::thread_start();
        Cache *c = P::Plain::cache;
        if (c->end - c->first <= WORDS) return;
        c->end = c->first + WORDS;
        if (c->cursor >= c->end) c->cursor = c->first;
    }
};

} // namespace limits
#endif
