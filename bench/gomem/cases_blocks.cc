// SPDX-License-Identifier: Apache-2.0
// The cases of memory allocators, scalable allocators and recyclable memory (cases_bytes.h).
#include "cases_bytes.h"

namespace {

constexpr size_t KIB = 1024, MIB = KIB * KIB;
constexpr size_t SIZES[] = {64, 128, 256, 512, KIB, 2 * KIB, 4 * KIB};
constexpr size_t RANDOM = 7, DOUBLED = 5;

// A scalable allocator under its lock, which begins with 1 KiB; or bytes of one size that one thread has, which is
// what the original calls a memory allocator.
struct Blocks {
    sw_scalable *scalable = nullptr;
    explicit Blocks(sw_range_backend backend) { begin(backend, KIB, 0, SW_BACKING_SYSTEM); }
    Blocks(sw_range_backend backend, size_t size, sw_backing backing = SW_BACKING_SYSTEM) {
        begin(backend, size, size, backing);
    }
    ~Blocks() { sw_scalable_destroy(scalable); }
    Blocks(const Blocks &) = delete;
    Blocks &operator=(const Blocks &) = delete;

    void begin(sw_range_backend backend, size_t first, size_t limit, sw_backing backing) {
        sw_scalable_options options;
        sw_scalable_options_init(&options);
        options.backend = backend;
        options.first_bytes = first;
        options.memory = sw_allocator_of(backing);
        if (limit != 0) {
            options.locked = 0;
            options.child_bytes_max = options.limit_bytes = limit;
        }
        if (sw_scalable_create(&options, &scalable) != SW_OK) abort();
    }
    uint8_t *alloc(size_t size) {
        void *bytes = sw_scalable_alloc(scalable, size);
        if (bytes == nullptr) abort();
        return static_cast<uint8_t *>(bytes);
    }
    void free(uint8_t *bytes, size_t size) {
        if (sw_scalable_free(scalable, bytes, size) != SW_OK) abort();
    }
    void pair(size_t size) { free(alloc(size), size); }
    void borrow(size_t size) {
        void *bytes = sw_scalable_borrow(scalable, size);
        if (bytes == nullptr) abort();
        DoNotOptimize(bytes);
    }
};

// --- what both kinds do --------------------------------------------------------------------------

void pairs(State &state, Blocks &blocks, size_t size) {
    for (auto _ : state) blocks.pair(size);
}

void sequence(State &state, Blocks &blocks, size_t count) {
    std::vector<uint8_t *> taken(count);
    for (auto _ : state) {
        for (uint8_t *&each : taken) each = blocks.alloc(KIB);
        for (uint8_t *each : taken) blocks.free(each, KIB);
    }
}

void random_sizes(State &state, Blocks &blocks) {
    size_t i = 0;
    for (auto _ : state) blocks.pair(SIZES[i++ % RANDOM]);
}

void borrows(State &state, Blocks &blocks, size_t size) {
    for (auto _ : state) blocks.borrow(size);
}

// --- memory allocators ---------------------------------------------------------------------------

// Ours takes its memory at the first request, so one request is a part of the creation.
void creation(State &state, sw_range_backend backend, size_t size, sw_backing backing) {
    for (auto _ : state) Blocks(backend, size, backing).borrow(1);
}

// These loops time the code that the compiler makes of them.
void write_access(State &state, Blocks &blocks) {
    uint8_t *bytes = blocks.alloc(KIB);
    for (auto _ : state) {
        for (size_t i = 0; i < KIB; i++) bytes[i] = static_cast<uint8_t>(i);
        ClobberMemory();
    }
}

void read_access(State &state, Blocks &blocks) {
    uint8_t *bytes = blocks.alloc(KIB);
    for (size_t i = 0; i < KIB; i++) bytes[i] = static_cast<uint8_t>(i);
    uint64_t sum = 0;
    for (auto _ : state) {
        for (size_t i = 0; i < KIB; i++) sum += bytes[i];
        DoNotOptimize(sum);
        ClobberMemory();
    }
}

void copy_access(State &state, Blocks &blocks) {
    uint8_t *bytes = blocks.alloc(KIB), out[KIB];
    for (size_t i = 0; i < KIB; i++) bytes[i] = static_cast<uint8_t>(i);
    for (auto _ : state) {
        std::copy_n(bytes, KIB, out);
        benchmark::DoNotOptimize(out);
        ClobberMemory();
    }
}

void add_allocators(sw_range_backend backend) {
    const std::string on = sw_range_backend_name(backend);
    auto with_one = [&](const char *name, auto run) {
        add(on, name, [=](State &state) {
            Blocks blocks(backend, MIB);
            run(state, blocks);
        });
    };
    with_one("MemoryAllocatorMalloc", [](State &s, Blocks &b) { pairs(s, b, KIB); });
    with_one("MemoryAllocatorMallocSmall", [](State &s, Blocks &b) { pairs(s, b, 64); });
    with_one("MemoryAllocatorMallocLarge", [](State &s, Blocks &b) { pairs(s, b, 8 * KIB); });
    with_one("MemoryAllocatorSequential", [](State &s, Blocks &b) { sequence(s, b, 100); });
    with_one("MemoryAllocatorRandom", random_sizes);
    with_one("MemoryAllocatorFind", [](State &s, Blocks &b) { borrows(s, b, KIB); });
    with_one("MemoryAllocatorWriteAccess", write_access);
    with_one("MemoryAllocatorReadAccess", read_access);
    with_one("MemoryAllocatorCopyAccess", copy_access);
    auto made = [&](const char *name, size_t size, sw_backing backing) {
        add(on, name, [=](State &state) { creation(state, backend, size, backing); });
    };
    made("MemoryAllocatorCreation", MIB, SW_BACKING_SYSTEM);
    made("MemoryAllocatorCreationSmall", 16 * KIB, SW_BACKING_POOLS); // as the original's pools
    made("MemoryAllocatorCreationLarge", 16 * MIB, SW_BACKING_SYSTEM);
}

// --- scalable allocators -------------------------------------------------------------------------

void random_borrows(State &state, Blocks &blocks) {
    size_t i = 0;
    for (auto _ : state) blocks.borrow(SIZES[i++ % RANDOM]);
}

void mixed(State &state, Blocks &blocks) {
    size_t i = 0;
    for (auto _ : state) {
        if (i++ % 2 == 0) {
            blocks.pair(KIB);
        } else {
            blocks.borrow(KIB);
        }
    }
}

void get_stats(State &state, Blocks &blocks) {
    sw_scalable_stats stats;
    for (auto _ : state) {
        if (sw_scalable_get_stats(blocks.scalable, &stats) != SW_OK) abort();
        DoNotOptimize(stats.taken_bytes);
    }
}

void free_rest(State &state, Blocks &blocks) {
    for (auto _ : state) {
        uint8_t *bytes = blocks.alloc(KIB);
        if (sw_scalable_shrink(blocks.scalable, bytes, KIB, 256) != SW_OK) abort();
        blocks.free(bytes, 256);
    }
}

void scaling(State &state, Blocks &blocks) {
    size_t i = 0;
    for (auto _ : state) blocks.pair(KIB << i++ % DOUBLED);
}

// Twenty sizes at once, by one thread in spite of the case's name.
void concurrent(State &state, Blocks &blocks) {
    uint8_t *taken[20];
    for (auto _ : state) {
        for (size_t i = 0; i < 20; i++) taken[i] = blocks.alloc(64 * (i + 1));
        for (size_t i = 0; i < 20; i++) blocks.free(taken[i], 64 * (i + 1));
    }
}

// A hundred growing sizes; at every third request the oldest block is freed.
void pressure(State &state, Blocks &blocks) {
    constexpr size_t COUNT = 100;
    uint8_t *taken[COUNT];
    for (auto _ : state) {
        size_t oldest = 0;
        auto drop = [&] {
            blocks.free(taken[oldest], KIB + oldest * 64);
            oldest++;
        };
        for (size_t i = 0; i < COUNT; i++) {
            taken[i] = blocks.alloc(KIB + i * 64);
            if (i % 3 == 0) drop();
        }
        while (oldest < COUNT) drop();
    }
}

void add_scalable(sw_range_backend backend) {
    const std::string on = sw_range_backend_name(backend);
    auto with_one = [&](const char *name, auto run) {
        add(on, std::string("ScalableMemoryAllocator") + name, [=](State &state) {
            Blocks blocks(backend);
            run(state, blocks);
        });
    };
    with_one("Malloc", [](State &s, Blocks &b) { pairs(s, b, KIB); });
    with_one("MallocSmall", [](State &s, Blocks &b) { pairs(s, b, 64); });
    with_one("MallocLarge", [](State &s, Blocks &b) { pairs(s, b, 8 * KIB); });
    with_one("Borrow", [](State &s, Blocks &b) { borrows(s, b, KIB); });
    with_one("BorrowSmall", [](State &s, Blocks &b) { borrows(s, b, 64); });
    with_one("BorrowLarge", [](State &s, Blocks &b) { borrows(s, b, 8 * KIB); });
    with_one("SequentialAlloc", [](State &s, Blocks &b) { sequence(s, b, 50); });
    with_one("RandomAlloc", random_sizes);
    with_one("RandomBorrow", random_borrows);
    with_one("MixedPattern", mixed);
    with_one("GetStats", get_stats);
    with_one("FreeRest", free_rest);
    with_one("Scaling", scaling);
    with_one("Concurrent", concurrent);
    with_one("MemoryPressure", pressure);
}

// --- recyclable memory ---------------------------------------------------------------------------

// A round takes `pieces` blocks; the first round, and every `each`-th after it, recycles them.
void recycling(State &state, sw_range_backend backend, size_t pieces, size_t each) {
    Blocks blocks(backend);
    sw_recyclable frame;
    sw_recyclable_init(&frame, blocks.scalable);
    size_t i = 0;
    for (auto _ : state) {
        for (size_t piece = 0; piece < pieces; piece++)
            if (sw_recyclable_next(&frame, KIB) == nullptr) abort();
        if (i++ % each == 0 && sw_recyclable_recycle(&frame) != SW_OK) abort();
    }
    if (sw_recyclable_end(&frame) != SW_OK) abort();
}

void add_recyclable(sw_range_backend backend) {
    const std::string on = sw_range_backend_name(backend);
    auto made = [&](const char *name, size_t pieces, size_t each) {
        add(on, name, [=](State &state) { recycling(state, backend, pieces, each); });
    };
    made("RecyclableMemoryNextN", 1, 100);
    made("RecyclableMemoryBatchRecycle", 10, 1);
    made("RecyclableMemoryWithRecycleIndexes", 10, 1); // ours always knows which blocks it owns
}

} // namespace

void add_blocks(sw_range_backend backend) {
    add_allocators(backend);
    add_scalable(backend);
    add_recyclable(backend);
}
