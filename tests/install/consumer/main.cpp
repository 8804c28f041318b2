// SPDX-License-Identifier: Apache-2.0
// Uses containers on an installed spanwise, in the default heap, two other heaps and an arena, and
// the adapters of serializers without their headers; prints "consumer ok".
#include <cstdio>
#include <functional>
#include <map>
#include <spanwise/allocator.hpp>
#include <spanwise/arena_allocator.hpp>
#include <spanwise/flatbuffers.hpp>
#include <spanwise/protobuf_c.h>
#include <spanwise/spanwise.h>
#include <vector>

namespace {

std::uint64_t live_objects(const spanwise::heap &heap) {
    sw_ledger ledger;
    return sw_heap_ledger(heap.get(), &ledger, nullptr, 0) == SW_OK ? ledger.live_objects : 0;
}

// What the adapters need of flatbuffers::Allocator and ProtobufCAllocator.
struct buffers {
    virtual ~buffers() = default;
    virtual std::uint8_t *allocate(std::size_t bytes) = 0;
    virtual void deallocate(std::uint8_t *block, std::size_t bytes) = 0;
};
struct messages {
    void *(*alloc)(void *, std::size_t);
    void (*free)(void *, void *);
    void *data;
};

} // namespace

int main() {
    using pair = std::pair<const int, int>;
    std::map<int, int, std::less<int>, spanwise::allocator<pair>> squares;
    for (int i = 0; i < 1000; i++) squares[i] = i * i;
    if (squares[31] != 961) return 1;

    spanwise::heap first, second;
    using words = std::vector<int, spanwise::heap_allocator<int>>;
    words one{spanwise::heap_allocator<int>(first)}, two{spanwise::heap_allocator<int>(second)};
    one.assign(100, 7);
    if (live_objects(first) != 1 || live_objects(second) != 0) return 2;
    two = one; // takes the heap with the values
    if (two.get_allocator() != one.get_allocator()) return 3;
    if (live_objects(first) != 2 || live_objects(second) != 0) return 4;
    swap(one, two);

    spanwise::arena arena;
    using numbers = std::vector<int, spanwise::arena_allocator<int>>;
    numbers three{spanwise::arena_allocator<int>(arena)};
    three.assign(100, 7);
    sw_arena_stats stats;
    if (sw_arena_get_stats(arena.get(), &stats) != SW_OK || stats.used_bytes < 400) return 5;

    spanwise::flatbuffers_allocator<buffers> flat(arena);
    messages proto = SW_PROTOBUF_C_ALLOCATOR(arena.get());
    flat.deallocate(flat.allocate(1000), 1000);
    proto.free(proto.data, proto.alloc(proto.data, 1000));
    if (sw_arena_get_stats(arena.get(), &stats) != SW_OK || stats.used_bytes < 2400) return 6;
    std::puts("consumer ok");
    return 0;
}
