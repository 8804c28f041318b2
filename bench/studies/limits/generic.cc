// SPDX-License-Identifier: Apache-2.0
// See generic.h.
#include "generic.h"

namespace limits {
namespace {

// Made from a list of sizes when it is first asked for.
const Table *run_time_table() {
    static Table table;
    static uint8_t small_map[CLASS_BYTES_MAX / 8 + 1];
    if (table.max_size != 0) return &table;
    uint32_t bytes = CLASS_LEAST;
    for (uint32_t cls = 0; cls < CLASSES; cls++, bytes *= 2) {
        table.bytes[cls] = bytes;
        table.magic[cls] = UINT64_MAX / bytes + 1;
    }
    for (size_t i = 0, cls = 0; i < sizeof small_map; i++) {
        while (table.bytes[cls] < i * 8) cls++;
        small_map[i] = static_cast<uint8_t>(cls);
    }
    table.small_map = small_map;
    table.max_size = table.bytes[CLASSES - 1];
    return &table;
}

} // namespace

template <Path PATH> void *Generic<PATH>::allocate(ClassCache *c, size_t size, unsigned flags) {
    const Table *table = c->table;
    if (__builtin_expect(size > table->max_size, 0)) return nullptr;
    size_t cls = table->small_map[(size + 7) >> 3];
    return (flags & ZERO) == 0 ? Classed<PATH>::take(c, cls) : Classed<PATH>::take_zeroed(c, cls);
}

template <Path PATH> void Generic<PATH>::release(ClassCache *c, void *p) {
    Classed<PATH>::release(c, address(p));
}

template <Path PATH> size_t Generic<PATH>::usable(void *p) { return Classed<PATH>::usable(p); }

template <Path PATH> ClassCache *Generic<PATH>::open(unsigned index) {
    Classed<PATH>::ready(run_time_table());
    return &Classed<PATH>::caches[index];
}

template <Path PATH> Census Generic<PATH>::census() { return Classed<PATH>::census(); }

template struct Generic<Path::LIST>;
template struct Generic<Path::TRANSITION>;
template struct Generic<Path::HINTED>;

} // namespace limits
