// SPDX-License-Identifier: Apache-2.0
// The allocators of C++, of heaps and arenas: containers, and frees with every wrong size. Compiled as
// C++11, and as C++17, which has resources.
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "spanwise/allocator.hpp"
#include "spanwise/arena_allocator.hpp"
#include "spanwise/spanwise.h"

namespace {

int faults;
sw_misuse last;
std::string called;

sw_fault_action remember(const sw_fault *fault, void *) {
    last = fault->code;
    called = fault->op;
    faults++;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

template <std::size_t N> struct Bytes {
    char bytes[N];
};
struct alignas(64) Wide {
    char bytes[72];
};

// Objects of `count`, allocated, and freed one half in order and the other in reverse.
template <typename T> void round_trip(std::size_t count, std::size_t objects) {
    spanwise::allocator<T> of;
    std::vector<T *> held;
    for (std::size_t i = 0; i < objects; i++) {
        held.push_back(of.allocate(count));
        CHECK(reinterpret_cast<std::uintptr_t>(held.back()) % alignof(T) == 0);
        CHECK(sw_usable_size(held.back()) >= count * sizeof(T));
    }
    for (std::size_t i = 0; i < objects / 2; i++) of.deallocate(held[i], count);
    for (std::size_t i = objects; i-- > objects / 2;) of.deallocate(held[i], count);
}

// One at a time, more than a class's word has, and arrays, up to whole pages.
template <typename T> void round_trips() {
    round_trip<T>(1, 150);
    round_trip<T>(0, 10);
    round_trip<T>(2, 150);
    round_trip<T>(3, 10);
    round_trip<T>(1000, 3);
    CHECK_EQ(faults, 0);
    CHECK_EQ(sw_heap_verify(sw_heap_default()), SW_OK);
}

// The object stays allocated, so that the right size frees it.
template <typename T, typename U> void another_type(std::size_t count, std::size_t wrong) {
    faults = 0;
    T *p = spanwise::allocator<T>().allocate(count);
    spanwise::allocator<U>().deallocate(reinterpret_cast<U *>(p), wrong);
    CHECK_EQ(faults, 1);
    CHECK_EQ(last, SW_MISUSE_SIZE_MISMATCH);
    CHECK_STR(called.c_str(), "free_sized");
    spanwise::allocator<T>().deallocate(p, count);
    CHECK_EQ(faults, 1);
    spanwise::allocator<T>().deallocate(p, count);
    CHECK_EQ(faults, 2);
    CHECK_EQ(last, SW_MISUSE_DOUBLE_FREE);
    faults = 0;
}

void containers() {
    std::list<int, spanwise::allocator<int>> nodes;
    std::vector<int, spanwise::allocator<int>> row;
    for (int i = 0; i < 10000; i++) {
        nodes.push_back(i);
        row.push_back(i);
        if (i % 3 == 0) nodes.pop_front();
    }
    nodes.clear();
    row.clear();
    row.shrink_to_fit();
    CHECK_EQ(faults, 0);
}

// Everything lies in the heap that was given, and is gone from it when the containers are.
void own_heap() {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    spanwise::heap heap(&options), second;
    spanwise::heap_allocator<int> of(heap);
    CHECK(of == spanwise::heap_allocator<char>(heap.get()));
    CHECK(of != spanwise::heap_allocator<int>(second));
    sw_ledger ledger;
    {
        std::list<int, spanwise::heap_allocator<int>> nodes{of};
        std::vector<Wide, spanwise::heap_allocator<Wide>> wide{of};
        for (int i = 0; i < 1000; i++) nodes.push_back(i);
        wide.resize(100);
        CHECK(reinterpret_cast<std::uintptr_t>(wide.data()) % alignof(Wide) == 0);
        CHECK_EQ(sw_heap_ledger(heap.get(), &ledger, nullptr, 0), SW_OK);
        CHECK_EQ(ledger.live_objects, 1001);
        CHECK_EQ(sw_heap_ledger(second.get(), &ledger, nullptr, 0), SW_OK);
        CHECK_EQ(ledger.live_objects, 0);
    }
    CHECK_EQ(sw_heap_ledger(heap.get(), &ledger, nullptr, 0), SW_OK);
    CHECK_EQ(ledger.live_objects, 0);
    CHECK_EQ(faults, 0);
    int *p = of.allocate(3);
    of.deallocate(p, 300);
    CHECK_EQ(last, SW_MISUSE_SIZE_MISMATCH);
    CHECK_EQ(faults, 1);
    of.deallocate(p, 3);
    CHECK_EQ(faults, 1);
    faults = 0;
}

// A class of 40 bytes: its slots are aligned to 8 only, so an object that wants 16 is of another.
void own_table() {
    struct alignas(16) Pair {
        char bytes[32];
    };
    const sw_class_spec specs[] = {{40, 1, 0}, {64, 1, 0}};
    sw_table *table;
    CHECK_EQ(sw_table_create("forty", 8192, specs, 2, &table), SW_OK);
    {
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.table = table;
        spanwise::heap heap(&options);
        std::list<Pair, spanwise::heap_allocator<Pair>> unused{
            spanwise::heap_allocator<Pair>(heap)};
        spanwise::heap_allocator<Pair> of(heap);
        std::vector<Pair *> held;
        for (int i = 0; i < 20; i++) {
            held.push_back(of.allocate(1));
            CHECK(reinterpret_cast<std::uintptr_t>(held.back()) % 16 == 0);
        }
        for (Pair *pair : held) of.deallocate(pair, 1);
        CHECK_EQ(faults, 0);
    }
    sw_table_destroy(table);
}

template <typename Error, typename Call> bool throws(Call call) {
    try {
        call();
    } catch (const Error &) {
        return true;
    }
    return false;
}

void refused() {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.batch_spans = 70000;
    std::string message;
    try {
        spanwise::heap heap(&options);
    } catch (const std::invalid_argument &error) {
        message = error.what();
    }
    CHECK_STR(message.c_str(), "batch_spans 70000 is above 65535");
    sw_heap_options_init(&options);
    options.limit_bytes = 1 << 20;
    spanwise::heap heap(&options);
    CHECK(throws<std::bad_alloc>([&] { spanwise::heap_allocator<char>(heap).allocate(2 << 20); }));
}

// spanwise::arena_allocator and spanwise::arena_resource: containers in an arena.

sw_arena_stats stats_of(const spanwise::arena &arena) {
    sw_arena_stats stats;
    CHECK_EQ(sw_arena_get_stats(arena.get(), &stats), SW_OK);
    return stats;
}

// 16 B per node and an int of 4: the list's nodes are of 24 B, so the arena holds at least 24,000.
void arena_containers() {
    spanwise::arena arena;
    std::list<int, spanwise::arena_allocator<int>> list{spanwise::arena_allocator<int>(arena)};
    for (int i = 0; i < 1000; i++) list.push_back(i);
    CHECK(stats_of(arena).used_bytes >= 24000);
    std::vector<Wide, spanwise::arena_allocator<Wide>> wide(3, Wide(),
                                                            spanwise::arena_allocator<Wide>(arena));
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(wide.data()) % 64, 0);
    int sum = 0;
    for (int value : list) sum += value;
    CHECK_EQ(sum, 499500);
    spanwise::arena other;
    CHECK(spanwise::arena_allocator<int>(arena) == spanwise::arena_allocator<Wide>(arena));
    CHECK(spanwise::arena_allocator<int>(arena) != spanwise::arena_allocator<int>(other));
}

void arena_limits() {
    sw_arena_options options;
    sw_arena_options_init(&options);
    options.mode = SW_ARENA_FORCE;
    options.chunk_bytes = SW_ARENA_CHUNK_MIN;
    options.limit_bytes = SW_ARENA_CHUNK_MIN;
    spanwise::arena arena(&options);
    spanwise::arena_allocator<char> of(arena);
    CHECK(throws<std::bad_alloc>([&] {
        for (int i = 0; i < 9; i++) of.allocate(512);
    }));
    CHECK(throws<std::bad_alloc>([&] { of.allocate(SIZE_MAX); }));
    options.chunk_bytes = 3;
    CHECK(throws<std::invalid_argument>([&] { spanwise::arena bad(&options); }));
}

#ifdef SPANWISE_HAS_ARENA_RESOURCE

// Words of more than 15 characters are outside of the string object.
void resources() {
    spanwise::arena arena;
    spanwise::arena_resource resource(arena), same(arena);
    std::pmr::map<int, std::pmr::string> words(&resource);
    for (int i = 0; i < 100; i++) words[i] = std::string(100, static_cast<char>('a' + i % 26));
    CHECK(stats_of(arena).used_bytes >= 100 * 100);
    CHECK(words[27] == std::string(100, 'b').c_str());
    CHECK(words.get_allocator().resource() == &resource);
    CHECK(resource != same);
    CHECK_EQ(reinterpret_cast<std::uintptr_t>(resource.allocate(1, 4096)) % 4096, 0);
}

#else
void resources() {}
#endif

} // namespace

int main() {
    sw_set_fault_handler(remember, nullptr);
    round_trips<char>();
    round_trips<Bytes<16>>();
    round_trips<Bytes<33>>();
    round_trips<Bytes<1024>>();
    round_trips<Wide>();
    containers();
    own_heap();
    own_table();
    refused();
    another_type<Bytes<48>, Bytes<64>>(1, 1);  // both of a constant size
    another_type<Bytes<48>, Bytes<48>>(1, 2);  // a constant one, freed as an array
    another_type<Bytes<48>, Bytes<48>>(3, 1);  // the reverse
    another_type<Bytes<48>, Bytes<48>>(3, 30); // both arrays
    another_type<Bytes<48>, Bytes<48>>(2000, 1);
    another_type<Bytes<48>, Bytes<48>>(2000, 1000);
    arena_containers();
    arena_limits();
    resources();
    return check_result();
}
