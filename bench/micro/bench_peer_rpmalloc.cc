// SPDX-License-Identifier: Apache-2.0
// The rows on a linked rpmalloc. Its header has the version since 2.0; for older releases, the
// build sets SPANWISE_PEER_RPMALLOC_VERSION.
#include <rpmalloc.h>

#include "register.h"

namespace {

#ifndef RPMALLOC_VERSION
#define RPMALLOC_VERSION BENCH_PEER_VERSION
#endif

// Releases differ in their arguments.
[[maybe_unused]] void initialize(int (*start)()) { start(); }
template <class T> [[maybe_unused]] void initialize(int (*start)(T *)) { start(nullptr); }
[[maybe_unused]] void finalize_thread(void (*finalize)(int)) { finalize(1); }
[[maybe_unused]] void finalize_thread(void (*finalize)()) { finalize(); }

struct Rpmalloc : bench::Policy {
    static void thread_start() { rpmalloc_thread_initialize(); }
    static void thread_stop() { finalize_thread(rpmalloc_thread_finalize); }
    template <size_t N> static void *get() { return rpmalloc(N); }
    template <size_t N> static void *zget() { return rpcalloc(1, N); }
    static void *get_any(size_t size) { return rpmalloc(size); }
    static void drop(void *p) { rpfree(p); }
    template <size_t N> static void drop_of(void *p) { rpfree(p); }
};

} // namespace

int main(int argc, char **argv) {
    initialize(rpmalloc_initialize);
    bench::register_rows<Rpmalloc>("linked");
    return bench::run(argc, argv, RPMALLOC_VERSION);
}
