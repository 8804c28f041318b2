// SPDX-License-Identifier: Apache-2.0
// The rows on snmalloc, header-only: it computes size classes at compile time. It does not report a
// version, so the build sets SPANWISE_PEER_SNMALLOC_VERSION.
#include <snmalloc/snmalloc.h>

#include "register.h"

namespace {

struct Snmalloc : bench::Policy {
    template <size_t N> static void *get() { return snmalloc::alloc<N>(); }
    template <size_t N> static void *zget() { return snmalloc::alloc<N, snmalloc::Zero>(); }
    static void *get_any(size_t size) { return snmalloc::alloc(size); }
    static void drop(void *p) { snmalloc::dealloc(p); }
    template <size_t N> static void drop_of(void *p) { snmalloc::dealloc<N>(p); }
};

} // namespace

int main(int argc, char **argv) {
    bench::register_rows<Snmalloc>("linked");
    return bench::run(argc, argv, BENCH_PEER_VERSION);
}
