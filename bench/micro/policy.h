// SPDX-License-Identifier: Apache-2.0
// What every allocator under test looks like to the rows of rows.h, and the wrapper that counts.
//
// A policy is a struct of static functions, so that each row is compiled once per allocator with
// nothing between the loop and the call:
//   get<N>()   an object of N bytes, N known when compiled     zget<N>()   the same, zeroed
//   get_any(n) an object of n bytes                            drop(p)     frees
//   drop_of<N>(p) frees an object of N bytes, N known when compiled, as the allocator does best
//   usable(p)  bytes that p may hold
//   thread_start(), thread_stop()   around the life of each thread but the first
//   table_bytes(n)  what the class table alone makes of n bytes: slot and its share of the tail
#ifndef SPANWISE_BENCH_POLICY_H
#define SPANWISE_BENCH_POLICY_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace bench {

// The base of policies, with the defaults of what most of them do not need.
struct Policy {
    static constexpr bool has_table = false;
    static double table_bytes(size_t) { return 0; }
    static void thread_start() {}
    static void thread_stop() {}
};

// Counts of one memory run; filled by Counted, read by Memory (memory.h).
struct Counts {
    std::atomic<int64_t> allocs{0};
    std::atomic<int64_t> total_bytes{0};
    std::atomic<int64_t> live_bytes{0};
    std::atomic<int64_t> max_bytes{0};
};
inline Counts counts;

// True while google-benchmark runs a row to measure its memory.
inline bool counting = false;

// The policy P with every call counted, in bytes usable. Used in memory runs only: timed runs are
// instantiated from P itself.
template <class P> struct Counted : P {
    static void *note(void *p) {
        int64_t bytes = static_cast<int64_t>(P::usable(p));
        counts.allocs.fetch_add(1, std::memory_order_relaxed);
        counts.total_bytes.fetch_add(bytes, std::memory_order_relaxed);
        int64_t live = counts.live_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
        int64_t max = counts.max_bytes.load(std::memory_order_relaxed);
        while (live > max && !counts.max_bytes.compare_exchange_weak(max, live)) {
        }
        return p;
    }
    template <size_t N> static void *get() { return note(P::template get<N>()); }
    template <size_t N> static void *zget() { return note(P::template zget<N>()); }
    static void *get_any(size_t size) { return note(P::get_any(size)); }
    static void drop(void *p) {
        counts.live_bytes.fetch_sub(static_cast<int64_t>(P::usable(p)), std::memory_order_relaxed);
        P::drop(p);
    }
    template <size_t N> static void drop_of(void *p) {
        counts.live_bytes.fetch_sub(static_cast<int64_t>(P::usable(p)), std::memory_order_relaxed);
        P::template drop_of<N>(p);
    }
};

// The text of mimalloc's version number: 209 is 2.0.9; later releases use two digits each, 30302.
inline std::string mimalloc_version(int number) {
    int base = number >= 10000 ? 100 : 10;
    return std::to_string(number / base / base) + "." + std::to_string(number / base % base) + "." +
           std::to_string(number % base);
}

} // namespace bench
#endif
