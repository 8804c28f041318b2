// SPDX-License-Identifier: Apache-2.0
// The self-test's part for the rows of several classes, of claimed words and of first touches.
#ifndef SPANWISE_BENCH_LIMITS_CHECK_ROWS_H
#define SPANWISE_BENCH_LIMITS_CHECK_ROWS_H

#include <algorithm>
#include <vector>

#include "claimed.h"
#include "expect.h"
#include "fresh.h"
#include "mixed.h"

namespace limits {

// --- several classes ------------------------------------------------------------------------------

// An object's first words hold its address and its size. 16 B is the smallest slot.
struct Stamped {
    uintptr_t at;
    uint64_t size;
};

inline void stamp(void *p, size_t size, const std::string &step) {
    expect(address(p) % 16 == 0, step, "no start of a slot");
    memset(p, static_cast<int>(size & 255), size);
    *static_cast<Stamped *>(p) = {address(p), size};
}

inline bool is_whole(const void *p) {
    const auto *stamped = static_cast<const Stamped *>(p);
    const auto *bytes = static_cast<const uint8_t *>(p);
    return stamped->at == address(p) &&
           std::all_of(bytes + sizeof *stamped, bytes + stamped->size,
                       [&](uint8_t byte) { return byte == (stamped->size & 255); });
}

// Objects of random sizes replace each other; each keeps what was written until it is freed.
template <class P> void check_replacement(const std::string &step) {
    constexpr uint32_t LIVE_OBJECTS = 6000;
    bench::Random random(bench::SEED);
    std::vector<void *> live(LIVE_OBJECTS, nullptr);
    for (size_t i = 0; i < 300000; i++) {
        uint64_t bits = random.next();
        void *&p = live[bench::below(static_cast<uint32_t>(bits >> 32), LIVE_OBJECTS)];
        if (p != nullptr) {
            expect(is_whole(p), step, "a live object was handed out again");
            P::drop(p);
        }
        // In a third of the rounds nearly all objects are freed again, so that spans become wholly
        // free.
        bool shrinking = i / 50000 % 3 == 2;
        size_t size = 16 + bench::below(static_cast<uint32_t>(bits), 1009);
        p = shrinking && bits % 64 != 0 ? nullptr : P::get_any(size);
        if (p == nullptr) continue;
        expect(P::usable(p) >= size, step, "an object is too small");
        stamp(p, size, step);
    }
    for (void *p : live)
        if (p != nullptr) P::drop(p);
    expect(found() == Fault::NONE, step, "a good free was rejected");
}

template <Level LEVEL> void check_mixed_faults(const std::string &step) {
    using P = Mixed<LEVEL>;
    for (size_t size = 1; size <= SIZE_MAX_MIXED; size++) {
        char *p = static_cast<char *>(P::get_any(size));
        char *other = static_cast<char *>(P::get_any(size));
        static char apart;
        char *volatile outside = &apart; // or the compiler warns of the bad free
        if constexpr (LEVEL >= Level::RECORD) {
            P::drop(outside);
            expect(found() == Fault::OUTSIDE, step, "an address outside was not found");
        }
        if constexpr (LEVEL >= Level::CHECKED) {
            for (size_t offset :
                 {size_t{1}, size_t{8}, SIZES.bytes[SIZES.of[(size + 7) / 8]] - 1UL}) {
                P::drop(p + offset);
                expect(found() == Fault::INTERIOR, step, "an address inside a slot was not found");
            }
            MixedCache *own = P::cache;
            static MixedCache stranger;
            stranger = *own;
            P::cache = &stranger;
            P::drop(p);
            P::cache = own;
            expect(found() == Fault::FOREIGN, step, "a foreign owner was not found");
        }
        P::drop(p);
        expect(found() == Fault::NONE, step, "a good free was rejected");
        P::drop(other);
        if constexpr (LEVEL >= Level::BIT) {
            for (char *freed : {p, other}) {
                P::drop(freed);
                expect(found() == Fault::DOUBLE, step, "a double free was not found");
            }
        }
    }
}

// After everything is freed, no span but the current one of each class is left partial.
template <class P> void check_mixed_lists(const std::string &step) {
    std::vector<void *> live;
    bench::Random random(bench::SEED + 1);
    for (size_t i = 0; i < 20000; i++)
        live.push_back(
            P::get_any(1 + bench::below(static_cast<uint32_t>(random.next()), SIZE_MAX_MIXED)));
    for (size_t i = live.size(); i > 1; i--)
        std::swap(
            live[i - 1],
            live[bench::below(static_cast<uint32_t>(random.next()), static_cast<uint32_t>(i))]);
    for (void *p : live) P::drop(p);
    size_t whole = 0;
    for (size_t cls = 1; cls < LONG_CLASSES; cls++) {
        expect(P::cache->partial[cls] == nullptr, step, "a wholly free span is listed as partial");
        expect(P::cache->points[cls].span != nullptr, step, "a class has no current span");
        whole++;
        for (LongSpan *span = P::cache->whole[cls]; span != nullptr; span = span->next) whole++;
    }
    expect(whole == P::Memory::used_spans, step, "a wholly free span was not noticed");
}

template <Level LEVEL> void check_mixed(const std::string &step) {
    using P = Mixed<LEVEL>;
    P::ready();
    check_replacement<P>(step);
    if constexpr (!P::LISTS) check_mixed_lists<P>(step);
    check_mixed_faults<LEVEL>(step);
    check_replacement<P>(step);
}

// --- claimed words --------------------------------------------------------------------------------

// Three caches: 1 owns the objects, 2 claims their word, 0 has to put its frees aside.
inline void check_aside() {
    using P = Claimed<64>;
    const std::string step = "claimed, put aside";
    P::ready();
    P::use(1);
    void *p[5];
    for (void *&each : p) each = P::get<64>();
    Word *word = P::Plain::cache->word;
    P::use(2);
    P::drop(p[0]);
    expect(word->claim == 3 && word->remote != 0, step, "a freer did not claim the word");
    P::use(0);
    P::drop(p[1]);
    expect(word->claim == 3, step, "a claim was taken from another cache");
    expect(found() == Fault::NONE, step, "a good free was rejected");
    for (int i = 0; i < 2; i++) {
        P::drop(p[i]);
        expect(found() == Fault::DOUBLE, step, "a second free was not found by who puts aside");
    }
    P::use(2);
    P::drop(p[2]);
    P::use(1);
    for (int i = 0; i < 3; i++) { // the claim lasts: no slot of it may be handed out
        P::drop(p[i]);
        expect(found() == Fault::NONE, step, "the owner looked at what others freed at once");
    }
    std::vector<void *> all(p + 3, p + 5);
    for (size_t i = 0; i < 64; i++) {
        void *q = P::get<64>();
        all.push_back(q);
        expect(std::find(p, p + 3, q) == p + 3, step, "a slot of a claimed word was handed out");
    }
    expect(found() == Fault::DOUBLE, step, "the owner's second free was not found");
    P::use(2);
    P::drop(p[1]); // only the list has this free
    expect(found() == Fault::NONE, step, "the list was looked at by the claim's holder");
    P::flush();
    expect(word->claim == 0, step, "a claim was not given up");
    P::use(1);
    size_t back = 0;
    while (all.size() < SLOTS / 2) {
        void *q = P::get<64>();
        all.push_back(q);
        if (std::find(p, p + 3, q) != p + 3) back++;
        expect(q != p[3] && q != p[4], step, "a live object was handed out");
    }
    expect(back == 3, step, "not every slot came back, each once");
    expect(found() == Fault::DOUBLE, step, "a second free was not found at the drain");
    for (void *q : all) P::drop(q);
    P::use(0);
}

// --- first touches --------------------------------------------------------------------------------

template <class P> void check_fresh(const std::string &step) {
    P::ready();
    std::vector<uintptr_t> got;
    for (size_t i = 0; i < 20000; i++) got.push_back(address(P::template get<16>()));
    bool zero = std::all_of(got.begin(), got.end(), [](uintptr_t p) {
        return *reinterpret_cast<const uint64_t *>(p) == 0;
    });
    expect(zero, step, "memory was touched before");
    bool aligned = std::all_of(got.begin(), got.end(), [](uintptr_t p) { return p % 16 == 0; });
    expect(aligned, step, "no start of a slot");
    std::sort(got.begin(), got.end());
    expect(std::adjacent_find(got.begin(), got.end()) == got.end(), step,
           "a slot was handed out twice");
    for (uintptr_t p : got) P::drop(reinterpret_cast<void *>(p));
}

inline void check_rows() {
    check_mixed<Level::BYTE>("list-byte");
    check_mixed<Level::RECORD>("list-record");
    check_mixed<Level::BIT>("list-bit");
    check_mixed<Level::CHECKED>("list-checked");
    check_mixed<Level::BITMAP>("bitmap");
    check_mixed<Level::HINTS>("hints");
    check_mixed<Level::HINTS_ALL>("hints-all");
    check_mixed<Level::STACK>("stack");
    check_fresh<Fresh<Backing::FAULTS>>("fresh");
    check_fresh<Fresh<Backing::AHEAD>>("fresh-ahead");
    check_fresh<Fresh<Backing::HUGE>>("fresh-huge");
    check_fresh<FreshSplit<Backing::FAULTS>>("fresh-split");
    check_fresh<FreshSplit<Backing::HUGE>>("fresh-split-huge");
}

} // namespace limits
#endif
