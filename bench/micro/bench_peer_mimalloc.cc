// SPDX-License-Identifier: Apache-2.0
// The rows on a linked mimalloc (2 or 3). Sizes up to MI_SMALL_SIZE_MAX use its fast paths.
#include <mimalloc.h>

#include "register.h"

namespace {

struct Mimalloc : bench::Policy {
    template <size_t N> static void *get() {
        if constexpr (N <= MI_SMALL_SIZE_MAX) return mi_malloc_small(N);
        return mi_malloc(N);
    }
    template <size_t N> static void *zget() {
        if constexpr (N <= MI_SMALL_SIZE_MAX) return mi_zalloc_small(N);
        return mi_zalloc(N);
    }
    static void *get_any(size_t size) { return mi_malloc(size); }
    static void drop(void *p) { mi_free(p); }
    template <size_t N> static void drop_of(void *p) { mi_free_size(p, N); }
};

} // namespace

int main(int argc, char **argv) {
    bench::register_rows<Mimalloc>("linked");
    return bench::run(argc, argv, bench::mimalloc_version(mi_version()));
}
