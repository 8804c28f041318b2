// SPDX-License-Identifier: Apache-2.0
// Proves that the prototypes of several classes hand out each slot once, in the class that was asked
// for, that they find the bad frees which they claim to find, and that their lists of spans are right.
#include "check_called.h"

#include <algorithm>
#include <string>
#include <vector>

#include "called.h"
#include "generic.h"
#include "measure.h"

namespace limits {
namespace {

int failures = 0;

void expect(bool holds, const std::string &step, const char *what) {
    if (holds) return;
    fprintf(stderr, "check_limits: %s: %s\n", step.c_str(), what);
    failures++;
}

size_t class_bytes(size_t size) {
    size_t bytes = CLASS_LEAST;
    while (bytes < size) bytes *= 2;
    return bytes;
}

// An object, filled with a byte that its address gives.
struct Live {
    unsigned char *at;
    size_t bytes;
    unsigned char stamp() const { return static_cast<unsigned char>(address(at) >> 4 | 1); }
    void fill() const { memset(at, stamp(), bytes); }
    bool whole() const {
        return std::all_of(at, at + bytes, [this](unsigned char byte) { return byte == stamp(); });
    }
};

template <class P> Live get_filled(const std::string &step, size_t size) {
    Live made{static_cast<unsigned char *>(P::get_any(size)), class_bytes(size)};
    expect(made.at != nullptr, step, "no object of a size that has a class");
    expect(address(made.at) % made.bytes == 0, step, "no start of a slot");
    made.fill();
    return made;
}

template <class P, size_t SIZE> void check_zeroed(const std::string &step) {
    std::vector<Live> live;
    for (size_t i = 0; i < 600; i++) {
        Live made{static_cast<unsigned char *>(P::template zget<SIZE>()), class_bytes(SIZE)};
        expect(std::all_of(made.at, made.at + made.bytes, [](unsigned char byte) { return !byte; }),
               step, "an object is not zero");
        made.fill();
        live.push_back(made);
    }
    for (const Live &each : live) P::drop(each.at);
}

// Random replacement of objects of every class, each of which keeps what was written to it.
template <class P> void check_slots(const std::string &step) {
    constexpr uint32_t LIVE_MOST = 8000;
    for (size_t size = 0; size <= CLASS_BYTES_MAX; size++) P::drop(get_filled<P>(step, size).at);
    expect(P::get_any(CLASS_BYTES_MAX + 1) == nullptr, step, "a size without a class was served");
    bench::Random random(1);
    std::vector<Live> live;
    for (size_t i = 0; i < 200000; i++) {
        uint64_t bits = random.next();
        size_t at = bench::below(static_cast<uint32_t>(bits >> 32), 2 * LIVE_MOST);
        if (at < live.size()) {
            expect(live[at].whole(), step, "a live object was handed out again");
            P::drop(live[at].at);
            live[at] = live.back();
            live.pop_back();
        } else if (live.size() < LIVE_MOST) {
            size_t size = bench::below(static_cast<uint32_t>(bits), CLASS_BYTES_MAX + 1);
            live.push_back(get_filled<P>(step, size));
        }
    }
    for (const Live &each : live) {
        expect(each.whole(), step, "a live object was written to");
        P::drop(each.at);
    }
    check_zeroed<P, 7>(step);
    check_zeroed<P, 16>(step);
    check_zeroed<P, 33>(step);
    check_zeroed<P, 128>(step);
    expect(P::found() == Fault::NONE, step, "a good free was rejected");
}

// After everything is freed, every span but the current ones is listed as whole.
template <class P> void check_lists(const std::string &step) {
    Census seen = P::census();
    expect(seen.partial == 0, step, "a wholly free span is listed as partial");
    expect(seen.hints_at_whole == 0, step, "a hint at a wholly free span was kept");
    expect(seen.current + seen.whole == seen.taken, step, "a wholly free span was not noticed");
}

template <class P> void check_faults(const std::string &step) {
    static char outside;
    auto *p = static_cast<char *>(P::get_any(64));
    P::drop(&outside);
    expect(P::found() == Fault::OUTSIDE, step, "an address outside was not found");
    for (size_t offset = 1; offset < 64; offset++) {
        P::drop(p + offset);
        expect(P::found() == Fault::INTERIOR, step, "an address inside a slot was not found");
    }
    P::use(1);
    P::drop(p);
    expect(P::found() == Fault::FOREIGN, step, "a foreign owner was not found");
    P::use(0);
    P::drop(p);
    expect(P::found() == Fault::NONE, step, "a good free was rejected");
    P::drop(p);
    expect(P::found() == Fault::DOUBLE, step, "a double free was not found");
}

// Double frees among many objects, in spans that are full, partial and whole.
template <class P> void check_doubles(const std::string &step) {
    constexpr size_t COUNT = 4000;
    std::vector<void *> live;
    for (size_t i = 0; i < COUNT; i++) live.push_back(P::get_any(16));
    for (size_t i = 0; i < COUNT; i++) {
        void *p = live[(i * 2777) % COUNT];
        P::drop(p);
        expect(P::found() == Fault::NONE, step, "a good free was rejected");
        P::drop(p);
        expect(P::found() == Fault::DOUBLE, step, "a double free among others was not found");
    }
}

// The slot of a full span that was freed last is handed out next; three frees in a row into one
// word put the span on the list of partial spans.
template <class P> void check_hints(const std::string &step) {
    std::vector<void *> live;
    for (size_t i = 0; i < 4000; i++) live.push_back(P::get_any(16));
    size_t partial = P::census().partial;
    for (size_t at : {700UL, 1400UL, 2100UL}) P::drop(live[at]);
    expect(P::census().partial == partial, step, "a free that was remembered moved its span");
    for (size_t at : {2100UL, 1400UL, 700UL})
        expect(P::get_any(16) == live[at], step, "a hint was not taken");
    for (size_t at : {700UL, 701UL, 702UL}) P::drop(live[at]);
    expect(P::census().partial == partial + 1, step, "three frees in a row did not list the span");
    expect(P::get_any(16) == live[701], step, "the newest hint was not taken");
    live.erase(live.begin() + 702);
    live.erase(live.begin() + 700);
    for (void *p : live) P::drop(p);
    expect(P::found() == Fault::NONE, step, "a good free was rejected");
}

template <class P> void check(const std::string &step) {
    P::ready();
    (void)P::found();
    check_slots<P>(step);
    if constexpr (P::path >= Path::TRANSITION) check_lists<P>(step);
    if constexpr (P::path >= Path::DOUBLE) {
        check_faults<P>(step);
        check_doubles<P>(step);
    }
    if constexpr (P::path == Path::HINTED) check_hints<P>(step);
    if constexpr (P::path >= Path::TRANSITION) check_lists<P>(step + ", at the end");
}

} // namespace

int check_called() {
    check<Called<Path::LIST>>("called-list");
    check<Called<Path::SHARDED>>("called-sharded");
    check<Called<Path::SPLIT>>("called-split");
    check<Called<Path::DOUBLE>>("called-double");
    check<Called<Path::TRANSITION>>("called-transition");
    check<Called<Path::HINTED>>("called-hinted");
    check<Generic<Path::LIST>>("generic-list");
    check<Generic<Path::TRANSITION>>("generic-transition");
    check<Generic<Path::HINTED>>("generic-hinted");
    return failures;
}

} // namespace limits
