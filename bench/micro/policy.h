// SPDX-License-Identifier: Apache-2.0
// What every allocator under test looks like to the rows of rows.h.
//
// A policy is a struct of static functions, so that each row is compiled once per allocator with
// nothing between the loop and the call:
//   get<N>()   an object of N bytes, N known when compiled     zget<N>()   the same, zeroed
//   get_any(n) an object of n bytes                            drop(p)     frees
//   drop_of<N>(p) frees an object of N bytes, N known when compiled, as the allocator does best
//   thread_start(), thread_stop()   around the life of each thread but the first
//   table_bytes(n)  what the class table alone makes of n bytes: slot and its share of the tail
#ifndef SPANWISE_BENCH_POLICY_H
#define SPANWISE_BENCH_POLICY_H

#include <cstddef>
#include <string>

namespace bench {

// The base of policies, with the defaults of what most of them do not need.
struct Policy {
    static constexpr bool has_table = false;
    static double table_bytes(size_t) { return 0; }
    static void thread_start() {}
    static void thread_stop() {}
};

// The text of mimalloc's version number: 209 is 2.0.9; later releases use two digits each, 30302.
inline std::string mimalloc_version(int number) {
    int base = number >= 10000 ? 100 : 10;
    return std::to_string(number / base / base) + "." + std::to_string(number / base % base) + "." +
           std::to_string(number % base);
}

} // namespace bench
#endif
