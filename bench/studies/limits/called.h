// SPDX-License-Identifier: Apache-2.0
// Prototypes that are called: malloc, calloc and free of a shared library, which programs reach
// through the dynamic linker, as they reach malloc of a preloaded library. The size is an argument,
// the thread's cache a thread-local variable of the library. called.cc is the library,
// bench_limits_called.so; only what is declared here is visible outside.
#ifndef SPANWISE_BENCH_LIMITS_CALLED_H
#define SPANWISE_BENCH_LIMITS_CALLED_H

#include "classes.h"
#include "policy.h"

namespace limits {

template <Path PATH> struct [[gnu::visibility("default")]] Called : bench::Policy {
    static constexpr Path path = PATH;

    static void *allocate(size_t size); // NULL: more than CLASS_BYTES_MAX
    static void *allocate_zeroed(size_t count, size_t size);
    static void release(void *p);
    static size_t usable(void *p);

    static void ready();
    static void use(unsigned index); // cache 0 or 1 becomes the calling thread's
    static Fault found();            // since the last call; the first one begins to collect
    static Census census();

    template <size_t N> static void *get() { return allocate(N); }
    template <size_t N> static void *zget() { return allocate_zeroed(1, N); }
    static void *get_any(size_t size) { return allocate(size); }
    static void drop(void *p) { release(p); }
};

extern template struct Called<Path::LIST>;
extern template struct Called<Path::SHARDED>;
extern template struct Called<Path::SPLIT>;
extern template struct Called<Path::DOUBLE>;
extern template struct Called<Path::TRANSITION>;
extern template struct Called<Path::HINTED>;

} // namespace limits
#endif
