// SPDX-License-Identifier: Apache-2.0
// bench_limits_called.so: see called.h. Compiled like the malloc face: position-independent, hidden
// but for its interface, thread-local variables in the initial block of the thread.
#include <cerrno>

#include "called.h"

namespace limits {
namespace {

// The table is known: 16, 32, 64, 128 B.
constexpr Table TABLE = [] {
    Table made{CLASS_BYTES_MAX, {16, 32, 64, 128}, {}, SIZE_MAP};
    for (size_t i = 0; i < CLASSES; i++) made.magic[i] = UINT64_MAX / made.bytes[i] + 1;
    return made;
}();

template <Path PATH> thread_local ClassCache *mine = &Classed<PATH>::caches[0];

// A function of its own, so that the fast path has only a jump for an overflow.
[[gnu::noinline, gnu::cold]] void *no_memory() {
    errno = ENOMEM;
    return nullptr;
}

} // namespace

template <Path PATH> void *Called<PATH>::allocate(size_t size) {
    if (__builtin_expect(size > CLASS_BYTES_MAX, 0)) return nullptr;
    return Classed<PATH>::take(mine<PATH>, SIZE_MAP[(size + 7) >> 3]);
}

template <Path PATH> void *Called<PATH>::allocate_zeroed(size_t count, size_t size) {
    size_t bytes;
    if (__builtin_expect(__builtin_mul_overflow(count, size, &bytes), 0)) return no_memory();
    if (__builtin_expect(bytes > CLASS_BYTES_MAX, 0)) return nullptr;
    return Classed<PATH>::take_zeroed(mine<PATH>, SIZE_MAP[(bytes + 7) >> 3]);
}

template <Path PATH> void Called<PATH>::release(void *p) {
    Classed<PATH>::release(mine<PATH>, address(p));
}

template <Path PATH> size_t Called<PATH>::usable(void *p) { return Classed<PATH>::usable(p); }

template <Path PATH> void Called<PATH>::ready() { Classed<PATH>::ready(&TABLE); }

template <Path PATH> void Called<PATH>::use(unsigned index) {
    mine<PATH> = &Classed<PATH>::caches[index];
}

template <Path PATH> Fault Called<PATH>::found() {
    collect_faults = true;
    return fault.exchange(Fault::NONE);
}

template <Path PATH> Census Called<PATH>::census() { return Classed<PATH>::census(); }

template struct Called<Path::LIST>;
template struct Called<Path::SHARDED>;
template struct Called<Path::SPLIT>;
template struct Called<Path::DOUBLE>;
template struct Called<Path::TRANSITION>;
template struct Called<Path::HINTED>;

} // namespace limits
