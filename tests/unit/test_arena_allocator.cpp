// SPDX-License-Identifier: Apache-2.0
// spanwise::arena_allocator and spanwise::arena_resource: containers in an arena.
#include <cstdint>
#include <list>
#include <map>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "spanwise/arena_allocator.hpp"

namespace {

struct alignas(64) Wide {
    char bytes[64];
};

sw_arena_stats stats_of(const spanwise::arena &arena) {
    sw_arena_stats stats;
    CHECK_EQ(sw_arena_get_stats(arena.get(), &stats), SW_OK);
    return stats;
}

// 16 B per node and an int of 4: the list's nodes are of 24 B, so the arena holds at least 24,000.
void containers() {
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

template <typename Call> bool throws_bad_alloc(Call call) {
    try {
        call();
    } catch (const std::bad_alloc &) {
        return true;
    }
    return false;
}

void limits() {
    sw_arena_options options;
    sw_arena_options_init(&options);
    options.mode = SW_ARENA_FORCE;
    options.chunk_bytes = SW_ARENA_CHUNK_MIN;
    options.limit_bytes = SW_ARENA_CHUNK_MIN;
    spanwise::arena arena(&options);
    spanwise::arena_allocator<char> of(arena);
    CHECK(throws_bad_alloc([&] {
        for (int i = 0; i < 9; i++) of.allocate(512);
    }));
    CHECK(throws_bad_alloc([&] { of.allocate(SIZE_MAX); }));
    options.chunk_bytes = 3;
    bool refused = false;
    try {
        spanwise::arena bad(&options);
    } catch (const std::invalid_argument &) {
        refused = true;
    }
    CHECK(refused);
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
    containers();
    limits();
    resources();
    return check_result();
}
