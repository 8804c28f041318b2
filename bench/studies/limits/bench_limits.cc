// SPDX-License-Identifier: Apache-2.0
// The prototypes on the rows of rows.h and thread_rows.h, as STEP/ROW. ./dev study limits runs
// them beside the peers and ours.
#include "called_rows.h"
#include "claimed.h"
#include "fresh.h"
#include "mixed.h"
#include "register.h"
#include "remote.h"
#include "steps.h"

namespace limits {
namespace {

using bench::Order;
using bench::Phase;

template <class P> void register_pair(const std::string &step) {
    P::ready();
    bench::add(step + "/pair/16", bench::pair<P, 16, false>, bench::pair<P, 16, false>);
}

template <Step STEP> void register_batches(const std::string &step) {
    using P = Prototype<STEP, 16>;
    using Q = Prototype<STEP, 64>;
    constexpr size_t SOME = 100000;
    constexpr size_t MANY = bench::OBJECTS_MAX;
    P::ready();
    Q::ready();
    bench::register_batch<P, 16, false, Order::IN_ORDER, Phase::ALLOC>(step + "/malloc/16x100k",
                                                                       SOME);
    bench::register_batch<P, 16, true, Order::IN_ORDER, Phase::ALLOC>(step + "/calloc/16x100k",
                                                                      SOME);
    bench::register_batch<P, 16, false, Order::IN_ORDER, Phase::FREE>(step + "/free/16x100k", SOME);
    bench::register_batch<P, 16, false, Order::RANDOM, Phase::FREE>(step + "/free_random/16x100k",
                                                                    SOME);
    bench::register_batch<P, 16, false, Order::RANDOM, Phase::FREE>(step + "/free_random/16x1M",
                                                                    MANY);
    bench::register_batch<Q, 64, false, Order::RANDOM, Phase::FREE>(step + "/free_random/64x1M",
                                                                    MANY);
}

template <class P> void register_remote(const std::string &step) {
    P::ready();
    bench::add(step + "/remote/64x10k", remote_free<P>, remote_free<P>)->UseManualTime();
}

template <class P> void register_cross(const std::string &step) {
    bench::add(step + "/cross_free/64", bench::cross_free<P>, bench::cross_free<P>)
        ->UseManualTime();
}

template <class P> void register_handed(const std::string &step) {
    bench::add(step + "/producer_consumer/64", bench::producer_consumer<P>,
               bench::producer_consumer<P>)
        ->UseManualTime();
}

template <class P> void register_replace(const std::string &step) {
    P::ready();
    auto alone = [](bench::State &state) { bench::scaling_replace<P>(state, 1); };
    bench::add(step + "/replace/8-1024", bench::replace<P, P>, bench::replace<P, P>);
    bench::add(step + "/scaling_replace/1", alone, alone)->UseManualTime();
}

template <class P> void register_cold(const std::string &step) {
    P::ready();
    bench::add(step + "/cold/16x1M", bench::cold<P>, bench::cold<P>)
        ->UseManualTime()
        ->Iterations(1);
}

// In the order in which each adds to the one before.
void register_all() {
    register_pair<Prototype<Step::LIST, 16>>("list");
    register_pair<Prototype<Step::RECORD_WORD, 16>>("record-word");
    register_pair<Prototype<Step::RECORD_SPLIT, 16>>("record-split");
    register_pair<Prototype<Step::LOOKUP, 16>>("lookup");
    register_pair<Prototype<Step::MAGIC, 16>>("magic");
    register_pair<Prototype<Step::OWNER, 16>>("owner");
    register_pair<Prototype<Step::DOUBLE, 16>>("double");
    register_pair<Prototype<Step::TRANSITION, 16>>("transition");
    register_pair<Hinted<16>>("hinted");
    register_pair<Sized<16>>("sized");
    register_pair<Parked<16>>("parked");

    register_batches<Step::LIST>("list");
    register_batches<Step::WORD>("word");
    register_batches<Step::SPLIT>("split");
    register_batches<Step::LOOKUP>("lookup");
    register_batches<Step::MAGIC>("magic");
    register_batches<Step::OWNER>("owner");
    register_batches<Step::DOUBLE>("double");
    register_batches<Step::TRANSITION>("transition");

    register_remote<Remote<How::STORE, 64>>("store");
    register_remote<Messages<64>>("messages");
    register_remote<Remote<How::BIT, 64>>("bit");
    register_remote<Remote<How::FETCHED, 64>>("fetched");
    register_cross<Messages<64>>("messages");
    register_cross<Remote<How::BIT, 64>>("bit");
    register_cross<Remote<How::FETCHED, 64>>("fetched");

    register_called<Called<Path::LIST>>("called-list");
    register_called<Called<Path::SHARDED>>("called-sharded");
    register_called<Called<Path::SPLIT>>("called-split");
    register_called<Called<Path::DOUBLE>>("called-double");
    register_called<Called<Path::TRANSITION>>("called-transition");
    register_called<Called<Path::HINTED>>("called-hinted");
    register_called<Generic<Path::LIST>>("generic-list");
    register_called<Generic<Path::TRANSITION>>("generic-transition");
    register_called<Generic<Path::HINTED>>("generic-hinted");

    register_kept<Step::LIST>("list");
    register_kept<Step::SPLIT>("split");
    register_kept<Step::TRANSITION>("transition");

    register_remote<Claimed<64>>("claimed");
    register_cross<Claimed<64>>("claimed");
    register_handed<Messages<64>>("messages");
    register_handed<Near<Remote<How::BIT, 64>>>("bit");
    register_handed<Near<Remote<How::FETCHED, 64>>>("fetched");
    register_handed<Near<Claimed<64>>>("claimed");

    register_replace<Mixed<Level::BYTE>>("list-byte");
    register_replace<Mixed<Level::RECORD>>("list-record");
    register_replace<Mixed<Level::BIT>>("list-bit");
    register_replace<Mixed<Level::CHECKED>>("list-checked");
    register_replace<Mixed<Level::BITMAP>>("bitmap");
    register_replace<Mixed<Level::HINTS>>("hints");
    register_replace<Mixed<Level::HINTS_ALL>>("hints-all");
    register_replace<Mixed<Level::STACK>>("stack");

    register_cold<Fresh<Backing::FAULTS>>("fresh");
    register_cold<FreshSplit<Backing::FAULTS>>("fresh-split");
    register_cold<Fresh<Backing::AHEAD>>("fresh-ahead");
    register_cold<Fresh<Backing::HUGE>>("fresh-huge");
    register_cold<FreshSplit<Backing::HUGE>>("fresh-split-huge");
}

} // namespace
} // namespace limits

int main(int argc, char **argv) {
    limits::register_all();
    return bench::run(argc, argv, "prototype");
}
