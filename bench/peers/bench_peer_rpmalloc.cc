// SPDX-License-Identifier: Apache-2.0
// The rows on a linked rpmalloc. It tells no version; SPANWISE_PEER_RPMALLOC_VERSION of the build
// says it.
#include <rpmalloc.h>

#include "register.h"

namespace {

// Releases differ in its argument.
[[maybe_unused]] void finalize_thread(void (*finalize)(int)) { finalize(1); }
[[maybe_unused]] void finalize_thread(void (*finalize)()) { finalize(); }

struct Rpmalloc : bench::Policy {
    static void thread_start() { rpmalloc_thread_initialize(); }
    static void thread_stop() { finalize_thread(rpmalloc_thread_finalize); }
    template <size_t N> static void *get() { return rpmalloc(N); }
    template <size_t N> static void *zget() { return rpcalloc(1, N); }
    static void *get_any(size_t size) { return rpmalloc(size); }
    static void drop(void *p) { rpfree(p); }
    static size_t usable(void *p) { return rpmalloc_usable_size(p); }
};

} // namespace

int main(int argc, char **argv) {
    rpmalloc_initialize();
    bench::register_rows<Rpmalloc>("linked");
    return bench::run(argc, argv, BENCH_PEER_VERSION);
}
