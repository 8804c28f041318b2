// SPDX-License-Identifier: Apache-2.0
// Loops of the prototypes, to be counted under callgrind, named STEP/ROW: 16 B, remote: 64 B, replace:
// 8 .. 1024 B, as path face_replace of paths_malloc.c.
#include "paths.h"

#include "called.h"
#include "claimed.h"
#include "generic.h"
#include "mixed.h"
#include "remote.h"
#include "steps.h"

namespace limits {
namespace {

template <class P, size_t SIZE> void fill(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = P::template get<SIZE>();
}

template <class P, size_t SIZE> void fill_zeroed(size_t count) {
    for (size_t i = 0; i < count; i++) held[i] = P::template zget<SIZE>();
}

template <class P, size_t SIZE> void fill_shuffled(size_t count) {
    fill<P, SIZE>(count);
    shuffle(count);
}

template <class P> void drain(size_t count) {
    for (size_t i = 0; i < count; i++) P::drop(held[i]);
}

// Allocates and frees before the count, so that a prototype with lists has free objects in them.
template <class P, size_t SIZE> void fill_and_drain(size_t count) {
    fill<P, SIZE>(count);
    drain<P>(count);
}

template <class P> void pair(size_t count) {
    for (size_t i = 0; i < count; i++) {
        void *p = P::template get<16>();
        touch(p);
        P::drop(p);
    }
}

// Cache 1 allocates what cache 0 frees.
template <class P> void fill_other(size_t count) {
    P::use(1);
    fill<P, 64>(count);
    P::use(0);
}

// As fill_and_drain, with the objects freed in random order.
template <class P> void fill_shuffled_and_drain(size_t count) {
    fill_shuffled<P, 16>(count);
    drain<P>(count);
}

enum : uint32_t { REPLACED_LIVE = 100000 }; // as the bench row has it

template <class P> void replace(size_t count) {
    for (size_t n = 0; n < count; n++) {
        uint32_t i = random_below(REPLACED_LIVE);
        P::drop(held[i]);
        held[i] = P::get_any(replace_size());
    }
}

template <class P> void live(size_t) {
    for (size_t i = 0; i < REPLACED_LIVE; i++) held[i] = P::get_any(replace_size());
    replace<P>(2 * REPLACED_LIVE); // until the heap is in a steady state
}

template <Step STEP> using Of = Prototype<STEP, 16>;

} // namespace
} // namespace limits

#define PAIR(STEP, ...) {STEP "/pair", __VA_ARGS__::ready, nothing, pair<__VA_ARGS__>, 1}
#define BATCHES(STEP, ...)                                                                         \
    {STEP "/malloc", __VA_ARGS__::ready, fill_and_drain<__VA_ARGS__, 16>, fill<__VA_ARGS__, 16>,   \
     1},                                                                                           \
        {STEP "/calloc", __VA_ARGS__::ready, fill_and_drain<__VA_ARGS__, 16>,                      \
         fill_zeroed<__VA_ARGS__, 16>, 1},                                                         \
        {STEP "/free", __VA_ARGS__::ready, fill<__VA_ARGS__, 16>, drain<__VA_ARGS__>, 1},          \
        {STEP "/free_random", __VA_ARGS__::ready, fill_shuffled<__VA_ARGS__, 16>,                  \
         drain<__VA_ARGS__>, 1}
#define REMOTE(STEP, ...)                                                                          \
    {STEP "/remote", __VA_ARGS__::ready, fill_other<__VA_ARGS__>, drain<__VA_ARGS__>, 1}
#define CALLED(STEP, ...)                                                                          \
    PAIR(STEP, __VA_ARGS__), BATCHES(STEP, __VA_ARGS__),                                           \
        {STEP "/malloc_after", __VA_ARGS__::ready, fill_shuffled_and_drain<__VA_ARGS__>,           \
         fill<__VA_ARGS__, 16>, 1}
#define KEPT_OF(STEP, SIZE, ...)                                                                   \
    {STEP "/calloc_" #SIZE, __VA_ARGS__::ready, fill_and_drain<__VA_ARGS__, SIZE>,                 \
     fill_zeroed<__VA_ARGS__, SIZE>, 1}
#define KEPT(STEP, OF) KEPT_OF(STEP, 32, Prototype<OF, 32>), KEPT_OF(STEP, 64, Prototype<OF, 64>)
#define REPLACE(STEP, ...)                                                                         \
    {STEP "/replace", __VA_ARGS__::ready, live<__VA_ARGS__>, replace<__VA_ARGS__>, 1}

using namespace limits;

const path paths[] = {
    PAIR("list", Of<Step::LIST>),
    PAIR("record-word", Of<Step::RECORD_WORD>),
    PAIR("record-split", Of<Step::RECORD_SPLIT>),
    PAIR("lookup", Of<Step::LOOKUP>),
    PAIR("magic", Of<Step::MAGIC>),
    PAIR("owner", Of<Step::OWNER>),
    PAIR("double", Of<Step::DOUBLE>),
    PAIR("transition", Of<Step::TRANSITION>),
    PAIR("hinted", Hinted<16>),
    PAIR("sized", Sized<16>),
    PAIR("parked", Parked<16>),
    BATCHES("list", Of<Step::LIST>),
    BATCHES("word", Of<Step::WORD>),
    BATCHES("split", Of<Step::SPLIT>),
    BATCHES("lookup", Of<Step::LOOKUP>),
    BATCHES("magic", Of<Step::MAGIC>),
    BATCHES("owner", Of<Step::OWNER>),
    BATCHES("double", Of<Step::DOUBLE>),
    BATCHES("transition", Of<Step::TRANSITION>),
    REMOTE("store", Remote<How::STORE, 64>),
    REMOTE("messages", Messages<64>),
    REMOTE("bit", Remote<How::BIT, 64>),
    REMOTE("fetched", Remote<How::FETCHED, 64>),
    CALLED("called-list", Called<Path::LIST>),
    CALLED("called-sharded", Called<Path::SHARDED>),
    CALLED("called-split", Called<Path::SPLIT>),
    CALLED("called-double", Called<Path::DOUBLE>),
    CALLED("called-transition", Called<Path::TRANSITION>),
    CALLED("called-hinted", Called<Path::HINTED>),
    CALLED("generic-list", Generic<Path::LIST>),
    CALLED("generic-transition", Generic<Path::TRANSITION>),
    CALLED("generic-hinted", Generic<Path::HINTED>),
    KEPT("list", Step::LIST),
    KEPT("split", Step::SPLIT),
    KEPT("transition", Step::TRANSITION),
    REMOTE("claimed", Claimed<64>),
    REPLACE("list-byte", Mixed<Level::BYTE>),
    REPLACE("list-record", Mixed<Level::RECORD>),
    REPLACE("list-bit", Mixed<Level::BIT>),
    REPLACE("list-checked", Mixed<Level::CHECKED>),
    REPLACE("bitmap", Mixed<Level::BITMAP>),
    REPLACE("hints", Mixed<Level::HINTS>),
    REPLACE("hints-all", Mixed<Level::HINTS_ALL>),
    REPLACE("stack", Mixed<Level::STACK>),
};
const size_t path_count = sizeof paths / sizeof paths[0];
