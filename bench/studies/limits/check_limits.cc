// SPDX-License-Identifier: Apache-2.0
// Proves that the prototypes of bench/studies/limits do what their names say: slots are handed out once, and each
// step finds the bad frees that it claims to find.
#include <algorithm>
#include <thread>
#include <vector>

#include "check_called.h"
#include "check_rows.h"
#include "expect.h"
#include "remote.h"
#include "steps.h"

namespace limits {
namespace {

template <class P, size_t SIZE> void *get_one() { return P::template get<SIZE>(); }

// Random allocations and frees: no live slot is handed out, each is aligned and keeps what was written.
// `live_max` is 64 for the steps that have one word only.
template <class P, size_t SIZE> void check_slots(const std::string &step, size_t live_max) {
    bench::Random random(bench::SEED);
    std::vector<void *> live;
    for (size_t i = 0; i < 200000; i++) {
        size_t at =
            bench::below(static_cast<uint32_t>(random.next()), 2 * static_cast<uint32_t>(live_max));
        if (at < live.size()) {
            auto *text = static_cast<uintptr_t *>(live[at]);
            expect(text[1] == address(text), step, "a live object was handed out again");
            P::drop(text);
            live[at] = live.back();
            live.pop_back();
        } else if (live.size() < live_max) {
            auto *text = static_cast<uintptr_t *>(get_one<P, SIZE>());
            expect(address(text) % SIZE == 0, step, "no start of a slot");
            text[1] = address(text);
            live.push_back(text);
        }
    }
    std::vector<void *> sorted(live);
    std::sort(sorted.begin(), sorted.end());
    expect(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), step,
           "a slot was handed out twice");
    for (void *p : live) P::drop(p);
    expect(found() == Fault::NONE, step, "a good free was rejected");
    for (size_t i = 0; i < 64; i++) {
        void *p = P::template zget<SIZE>();
        expect(std::all_of(static_cast<char *>(p), static_cast<char *>(p) + SIZE,
                           [](char byte) { return byte == 0; }),
               step, "an object is not zero");
        memset(p, 1, SIZE);
        P::drop(p);
    }
}

template <class P, size_t SIZE> void check_faults(const std::string &step, Step level) {
    char *p = static_cast<char *>(get_one<P, SIZE>());
    if (level >= Step::LOOKUP) {
        static char outside;
        P::drop(&outside);
        expect(found() == Fault::OUTSIDE, step, "an address outside was not found");
    }
    if (level >= Step::MAGIC) {
        for (size_t offset = 1; offset < SIZE; offset++) {
            P::drop(p + offset);
            expect(found() == Fault::INTERIOR, step, "an address inside a slot was not found");
        }
    }
    if (level >= Step::OWNER) {
        P::use(1);
        P::drop(p);
        P::use(0);
        expect(found() == Fault::FOREIGN, step, "a foreign owner was not found");
    }
    P::drop(p);
    expect(found() == Fault::NONE, step, "a good free was rejected");
    if (level >= Step::DOUBLE) {
        P::drop(p);
        expect(found() == Fault::DOUBLE, step, "a double free was not found");
        std::vector<void *> others;
        for (size_t i = 0; i < 40; i++) others.push_back(get_one<P, SIZE>());
        for (void *other : others) P::drop(other);
        for (void *other : others) {
            P::drop(other);
            expect(found() == Fault::DOUBLE, step, "a double free among others was not found");
        }
        expect(get_one<P, SIZE>() != nullptr, step, "no object after bad frees");
    }
}

// After everything is freed, every span but the current one is whole.
template <class P, size_t SIZE> void check_lists(const std::string &step) {
    constexpr size_t COUNT = 5000;
    std::vector<void *> live;
    for (size_t i = 0; i < COUNT; i++) live.push_back(get_one<P, SIZE>());
    for (size_t i = 0; i < COUNT; i++) P::drop(live[(i * 7919) % COUNT]);
    size_t whole = 0;
    for (Span *span = P::cache->whole; span != nullptr; span = span->next) whole++;
    expect(whole + 2 == P::Memory::SPANS, step, "a wholly free span was not noticed");
    expect(P::cache->partial == nullptr, step, "a wholly free span is listed as partial");
}

template <class P, size_t SIZE>
void check(const std::string &name, Step level, size_t live_max = 3000) {
    std::string step = name + " " + std::to_string(SIZE);
    P::ready();
    check_slots<P, SIZE>(step, live_max);
    if (P::LISTS) check_lists<P, SIZE>(step);
    check_faults<P, SIZE>(step, level);
}

// Objects of cache 1 that cache 0 frees come back to cache 1, each once.
template <class P> void check_remote(const std::string &step, bool validated) {
    P::ready();
    std::vector<void *> sent;
    P::use(1);
    for (size_t i = 0; i < 1000; i++) sent.push_back(get_one<P, 64>());
    P::use(0);
    for (void *p : sent) {
        P::drop(p);
        expect(found() == Fault::NONE, step, "a good free was rejected");
        if (!validated) continue;
        P::drop(p);
        expect(found() == Fault::DOUBLE, step, "a second remote free was not found");
        P::drop(static_cast<char *>(p) + 8);
        expect(found() == Fault::INTERIOR, step, "an address inside a slot was not found");
    }
    P::flush();
    P::use(1);
    void *own = get_one<P, 64>();
    P::drop(own);
    P::use(0);
    if (validated) P::drop(own);
    expect(found() == (validated ? Fault::DOUBLE : Fault::NONE), step,
           "a remote free of what the owner freed was not found");
    P::flush();
    P::use(1);
    std::sort(sent.begin(), sent.end());
    // All slots come back, except that the queue of messages keeps its last object.
    size_t all = SLOTS / 2 - (validated ? 0 : 1);
    size_t back = 0;
    for (size_t i = 0; i < all; i++) {
        void *p = get_one<P, 64>();
        if (std::binary_search(sent.begin(), sent.end(), p)) back++;
    }
    expect(back + (validated ? 0 : 1) >= sent.size(), step, "not every object came back");
    P::use(0);
}

// Two threads pass stamped objects to each other and free them: nobody's object is handed out twice.
template <class P> void check_threads(const std::string &step) {
    constexpr size_t COUNT = 2000;
    P::ready();
    static uint64_t *passed[2][COUNT];
    std::atomic<bool> spoilt{false};
    bench::Barrier both(2);
    bench::run_threads<P>(2, [&](unsigned index) {
        for (size_t round = 0; round < 200; round++) {
            for (size_t i = 0; i < COUNT; i++) {
                passed[index][i] = static_cast<uint64_t *>(get_one<P, 64>());
                passed[index][i][1] = index << 16 | i;
            }
            both.wait();
            for (size_t i = 0; i < COUNT; i++)
                if (passed[1 - index][i][1] != ((1 - index) << 16 | i)) spoilt = true;
            both.wait();
            for (uint64_t *p : passed[round % 2 != 0 ? index : 1 - index]) P::drop(p);
            both.wait();
        }
    });
    expect(!spoilt, step, "an object was handed out to two threads");
    expect(found() == Fault::NONE, step, "a good free was rejected");
}

template <size_t SIZE> void check_steps() {
    check<Prototype<Step::LIST, SIZE>, SIZE>("list", Step::LIST);
    check<Prototype<Step::RECORD_WORD, SIZE>, SIZE>("record-word", Step::RECORD_WORD, 60);
    check<Prototype<Step::RECORD_SPLIT, SIZE>, SIZE>("record-split", Step::RECORD_SPLIT, 60);
    check<Prototype<Step::WORD, SIZE>, SIZE>("word", Step::WORD);
    check<Prototype<Step::SPLIT, SIZE>, SIZE>("split", Step::SPLIT);
    check<Prototype<Step::LOOKUP, SIZE>, SIZE>("lookup", Step::LOOKUP);
    check<Prototype<Step::MAGIC, SIZE>, SIZE>("magic", Step::MAGIC);
    check<Prototype<Step::OWNER, SIZE>, SIZE>("owner", Step::OWNER);
    check<Prototype<Step::DOUBLE, SIZE>, SIZE>("double", Step::DOUBLE);
    check<Prototype<Step::TRANSITION, SIZE>, SIZE>("transition", Step::TRANSITION);
    check<Hinted<SIZE>, SIZE>("hinted", Step::TRANSITION);
    check<Sized<SIZE>, SIZE>("sized", Step::TRANSITION);
    check<Parked<SIZE>, SIZE>("parked", Step::TRANSITION);
}

} // namespace
} // namespace limits

int main() {
    using namespace limits;
    collect_faults = true;
    check_steps<16>();
    check_steps<64>();
    check_threads<Messages<64>>("messages, two threads");
    check_threads<Remote<How::BIT, 64>>("bit, two threads");
    check_threads<Remote<How::FETCHED, 64>>("fetched, two threads");
    check_remote<Messages<64>>("messages", false);
    check_remote<Remote<How::STORE, 64>>("store", true);
    check_remote<Remote<How::BIT, 64>>("bit", true);
    check_remote<Remote<How::FETCHED, 64>>("fetched", true);
    check_threads<Claimed<64>>("claimed, two threads");
    check_aside();
    check_remote<Claimed<64>>("claimed", true);
    check_rows();
    failures += check_called();
    if (failures == 0) printf("check_limits: all steps hold\n");
    return failures == 0 ? 0 : 1;
}
