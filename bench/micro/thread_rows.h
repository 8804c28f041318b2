// SPDX-License-Identifier: Apache-2.0
// The rows with several threads, templates over an allocator policy (rows.h). Times are wall time.
#ifndef SPANWISE_BENCH_THREAD_ROWS_H
#define SPANWISE_BENCH_THREAD_ROWS_H

#include <thread>
#include <vector>

#include "rows.h"

namespace bench {

enum : size_t {
    PASSED = 500000,   // objects from producer to consumer per iteration
    RING = 4096,       // entries of the ring between them
    PUBLISH = 64,      // objects published at once
    CROSS = 10000,     // objects that each of two threads swaps with the other
    CROSS_ROUNDS = 20, // swaps per iteration
    OWN = 1000,        // live objects of each thread of the scaling rows
    SCALE_OPS = 200000,
    SCALE_PAIRS = 1000000,
    SCALE_ROUNDS = 5,
    THREADS_MAX = 8,
};

// --- running threads -----------------------------------------------------------------------------

// Start and end of a thread's body, in wall seconds.
struct Stretch {
    double from;
    double to;
};

// Run body(index) on `threads` new threads, which begin at a barrier. Return the wall seconds from
// the first begin to the last end.
//
// Each thread reads the clock itself. A thread that only waits for the others may be scheduled long
// after they begin or end, because a row of some milliseconds is shorter than a time slice.
template <class P, class BODY> double run_threads(unsigned threads, BODY body) {
    Barrier all(threads);
    std::vector<Stretch> taken(threads);
    std::vector<std::thread> team;
    for (unsigned index = 0; index < threads; index++) {
        team.emplace_back([&, index] {
            P::thread_start();
            all.wait();
            double from = wall_seconds();
            body(index);
            taken[index] = {from, wall_seconds()};
            all.wait(); // keep thread exits out of the measured time
            P::thread_stop();
        });
    }
    for (std::thread &thread : team) thread.join();
    Stretch whole = taken[0];
    for (const Stretch &one : taken)
        whole = {std::min(whole.from, one.from), std::max(whole.to, one.to)};
    return whole.to - whole.from;
}

// --- one allocates, the other frees --------------------------------------------------------------

// A ring with one writer and one reader. Each caches the other's counter, and reads the counter
// only if the cached value leaves no room.
struct Ring {
    alignas(64) std::atomic<size_t> written{0};
    alignas(64) std::atomic<size_t> taken{0};
    alignas(64) void *place[RING];
};

template <class P> void produce(Ring &ring) {
    size_t taken = 0;
    for (size_t at = 0; at < PASSED; at++) {
        for (unsigned spins = 0; at - taken == RING; relax(spins)) {
            taken = ring.taken.load(std::memory_order_acquire);
            if (at - taken < RING) break;
        }
        void *p = P::template get<64>();
        touch(p);
        ring.place[at % RING] = p;
        if ((at + 1) % PUBLISH == 0) ring.written.store(at + 1, std::memory_order_release);
    }
    ring.written.store(PASSED, std::memory_order_release);
}

template <class P> void consume(Ring &ring) {
    size_t at = 0;
    for (unsigned spins = 0; at < PASSED;) {
        size_t written = ring.written.load(std::memory_order_acquire);
        if (written == at) {
            relax(spins);
            continue;
        }
        for (; at < written; at++) {
            P::drop(ring.place[at % RING]);
            if ((at + 1) % PUBLISH == 0) ring.taken.store(at + 1, std::memory_order_release);
        }
    }
}

template <class P> void producer_consumer(State &state) {
    static Ring ring;
    for (auto _ : state) {
        ring.written = 0;
        ring.taken = 0;
        state.SetIterationTime(run_threads<P>(
            2, [](unsigned index) { index == 0 ? produce<P>(ring) : consume<P>(ring); }));
    }
    finish(state, PASSED);
}

// --- two threads free each other's objects -------------------------------------------------------

// The time is that of one thread for one of its pairs.
template <class P> void cross_free(State &state) {
    static void *swapped[2][CROSS];
    for (auto _ : state) {
        Barrier both(2);
        state.SetIterationTime(run_threads<P>(2, [&](unsigned index) {
            for (size_t round = 0; round < CROSS_ROUNDS; round++) {
                for (void *&place : swapped[index]) {
                    place = P::template get<64>();
                    touch(place);
                }
                both.wait();
                for (void *p : swapped[1 - index]) P::drop(p);
                both.wait();
            }
        }));
    }
    finish(state, static_cast<double>(CROSS * CROSS_ROUNDS));
}

// --- 1, 2, 4, 8 threads: wall time over the operations of all threads together -------------------

template <class P> void pairs() {
    for (size_t i = 0; i < SCALE_PAIRS; i++) {
        void *p = P::template get<64>();
        touch(p);
        P::drop(p);
    }
}

template <class P> void churn(uint64_t seed) {
    void *own[OWN];
    Random random(seed);
    for (void *&p : own) {
        p = P::get_any(16);
        touch(p);
    }
    for (size_t i = 0; i < SCALE_OPS; i++) {
        uint64_t bits = random.next();
        void *&p = own[below(static_cast<uint32_t>(bits >> 32), OWN)];
        P::drop(p);
        p = P::get_any(8 + below(static_cast<uint32_t>(bits), 505));
        touch(p);
    }
    for (void *p : own) P::drop(p);
}

template <class P> void scaling_pair(State &state, unsigned threads) {
    for (auto _ : state)
        state.SetIterationTime(run_threads<P>(threads, [](unsigned) { pairs<P>(); }));
    finish(state, static_cast<double>(SCALE_PAIRS) * threads);
}

template <class P> void scaling_replace(State &state, unsigned threads) {
    for (auto _ : state) {
        state.SetIterationTime(
            run_threads<P>(threads, [](unsigned index) { churn<P>(SEED + index); }));
    }
    finish(state, static_cast<double>(SCALE_OPS) * threads);
}

// Each thread frees the objects of the next one; a single thread frees its own.
template <class P> void scaling_cross(State &state, unsigned threads) {
    static void *passed[THREADS_MAX][CROSS];
    for (auto _ : state) {
        Barrier all(threads);
        state.SetIterationTime(run_threads<P>(threads, [&](unsigned index) {
            for (size_t round = 0; round < SCALE_ROUNDS; round++) {
                for (void *&place : passed[index]) {
                    place = P::template get<64>();
                    touch(place);
                }
                all.wait();
                for (void *p : passed[(index + 1) % threads]) P::drop(p);
                all.wait();
            }
        }));
    }
    finish(state, static_cast<double>(CROSS * SCALE_ROUNDS) * threads);
}

} // namespace bench
#endif
