// SPDX-License-Identifier: Apache-2.0
// Prototypes of the generic path: functions of the program, called directly, whose cache comes as an
// argument and whose table (class map, slot bytes, magic) is a record made at run time. generic.cc is
// a unit of its own, so that no compiler sees a caller's constants.
#ifndef SPANWISE_BENCH_LIMITS_GENERIC_H
#define SPANWISE_BENCH_LIMITS_GENERIC_H

#include "classes.h"
#include "policy.h"

namespace limits {

// The cache of the calling thread. It is not a member of the struct, whose members generic.cc
// defines.
template <Path PATH> inline thread_local ClassCache *open_cache = nullptr;

template <Path PATH> struct Generic : bench::Policy {
    static constexpr Path path = PATH;
    enum : unsigned { ZERO = 1 };

    static void *allocate(ClassCache *c, size_t size, unsigned flags); // NULL: no such class
    static void release(ClassCache *c, void *p);
    static size_t usable(void *p);

    static ClassCache *open(unsigned index); // cache 0 or 1
    static Census census();

    static void ready() { use(0); }
    static void use(unsigned index) { open_cache<PATH> = open(index); }
    static Fault found() {
        collect_faults = true;
        return fault.exchange(Fault::NONE);
    }
    template <size_t N> static void *get() { return allocate(open_cache<PATH>, N, 0); }
    template <size_t N> static void *zget() { return allocate(open_cache<PATH>, N, ZERO); }
    static void *get_any(size_t size) { return allocate(open_cache<PATH>, size, 0); }
    static void drop(void *p) { release(open_cache<PATH>, p); }
};

extern template struct Generic<Path::LIST>;
extern template struct Generic<Path::TRANSITION>;
extern template struct Generic<Path::HINTED>;

} // namespace limits
#endif
