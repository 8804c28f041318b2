// SPDX-License-Identifier: Apache-2.0
// Rows of multi-buffer memory and readers: CONTENDER/buffer/ROW, where a contender is ours (`spanwise`) or the
// plain one of reference_memory.h. Times are those of one round, such as 1024 bytes that are read.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "spanwise/recyclable.h"

extern "C" {
#include "reference_memory.h"
#include "reference_scalable.h"
}

namespace {

using State = benchmark::State;

constexpr size_t BUFFER_BYTES = 64, BYTES = 1024, NUMBERS = 1024, LIST = 100, KIB = 1024;

// The bytes that are read, in buffers of 64, behind both kinds of memory.
struct Input {
    std::vector<uint8_t> bytes;
    sw_memory ours;
    reference_memory theirs{};

    explicit Input(std::vector<uint8_t> of, size_t buffer_bytes = BUFFER_BYTES)
        : bytes(std::move(of)) {
        sw_memory_init(&ours, nullptr);
        for (size_t at = 0; at < bytes.size(); at += buffer_bytes) {
            size_t size = std::min(buffer_bytes, bytes.size() - at);
            if (sw_memory_push(&ours, &bytes[at], size) != SW_OK) abort();
            reference_push(&theirs, &bytes[at], size);
        }
    }
    ~Input() {
        sw_memory_end(&ours);
        free(theirs.buffers);
    }
    Input(const Input &) = delete;
    Input &operator=(const Input &) = delete;
};

std::vector<uint8_t> plain(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (size_t i = 0; i < count; i++) bytes[i] = static_cast<uint8_t>(i * 7);
    return bytes;
}

// 1024 numbers of one, two, one, three bytes and so on.
std::vector<uint8_t> numbers() {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < NUMBERS; i++) {
        size_t longer = i % 4 == 1 ? 1 : i % 4 == 3 ? 2 : 0;
        for (size_t j = 0; j < longer; j++) bytes.push_back(static_cast<uint8_t>(0x80 | (i + j)));
        bytes.push_back(static_cast<uint8_t>(1 + i % 127));
    }
    return bytes;
}

void ours_read_byte(State &state) {
    Input input(plain(BYTES));
    for (auto _ : state) {
        sw_reader reader = sw_reader_of(&input.ours);
        uint64_t sum = 0;
        uint8_t byte;
        while (sw_reader_read_byte(&reader, &byte) == SW_OK) sum += byte;
        benchmark::DoNotOptimize(sum);
    }
}

void theirs_read_byte(State &state) {
    Input input(plain(BYTES));
    for (auto _ : state) {
        reference_reader reader = reference_reader_of(&input.theirs);
        uint64_t sum = 0;
        uint8_t byte;
        while (reference_read_byte(&reader, &byte)) sum += byte;
        benchmark::DoNotOptimize(sum);
    }
}

void ours_read_be(State &state) {
    Input input(plain(BYTES));
    for (auto _ : state) {
        sw_reader reader = sw_reader_of(&input.ours);
        uint64_t sum = 0, number;
        for (size_t i = 0; i < BYTES / 4; i++)
            if (sw_reader_read_be(&reader, 4, &number) == SW_OK) sum += number;
        benchmark::DoNotOptimize(sum);
    }
}

void theirs_read_be(State &state) {
    Input input(plain(BYTES));
    for (auto _ : state) {
        reference_reader reader = reference_reader_of(&input.theirs);
        uint64_t sum = 0;
        uint32_t number;
        for (size_t i = 0; i < BYTES / 4; i++)
            if (reference_read_be(&reader, 4, &number)) sum += number;
        benchmark::DoNotOptimize(sum);
    }
}

void ours_leb128(State &state) {
    Input input(numbers());
    for (auto _ : state) {
        sw_reader reader = sw_reader_of(&input.ours);
        uint64_t sum = 0, number;
        for (size_t i = 0; i < NUMBERS; i++)
            if (sw_reader_read_leb128(&reader, &number, nullptr) == SW_OK) sum += number;
        benchmark::DoNotOptimize(sum);
    }
}

void theirs_leb128(State &state) {
    Input input(numbers());
    for (auto _ : state) {
        reference_reader reader = reference_reader_of(&input.theirs);
        uint64_t sum = 0, number;
        int used;
        for (size_t i = 0; i < NUMBERS; i++)
            if (reference_read_leb128(&reader, &number, &used)) sum += number;
        benchmark::DoNotOptimize(sum);
    }
}

void ours_push(State &state) {
    uint8_t bytes[16];
    for (auto _ : state) {
        sw_memory memory;
        sw_memory_init(&memory, nullptr);
        for (size_t i = 0; i < LIST; i++)
            if (sw_memory_push(&memory, bytes, sizeof bytes) != SW_OK) abort();
        benchmark::DoNotOptimize(memory.size);
        sw_memory_end(&memory);
    }
}

void theirs_push(State &state) {
    uint8_t bytes[16];
    for (auto _ : state) {
        reference_memory memory{};
        for (size_t i = 0; i < LIST; i++) reference_push(&memory, bytes, sizeof bytes);
        benchmark::DoNotOptimize(memory.size);
        free(memory.buffers);
    }
}

void ours_append(State &state) {
    Input input(plain(LIST * 4), 4);
    for (auto _ : state) {
        sw_memory memory;
        sw_memory_init(&memory, nullptr);
        for (size_t i = 0; i < 10; i++)
            if (sw_memory_append(&memory, &input.ours) != SW_OK) abort();
        benchmark::DoNotOptimize(memory.size);
        sw_memory_end(&memory);
    }
}

void theirs_append(State &state) {
    Input input(plain(LIST * 4), 4);
    for (auto _ : state) {
        reference_memory memory{};
        for (size_t i = 0; i < 10; i++) reference_append(&memory, &input.theirs);
        benchmark::DoNotOptimize(memory.size);
        free(memory.buffers);
    }
}

void ours_to_bytes(State &state) {
    Input input(plain(LIST * KIB), KIB);
    for (auto _ : state) {
        void *bytes = sw_memory_to_bytes(&input.ours);
        benchmark::DoNotOptimize(bytes);
        free(bytes);
    }
}

void theirs_to_bytes(State &state) {
    Input input(plain(LIST * KIB), KIB);
    for (auto _ : state) {
        uint8_t *bytes = reference_to_bytes(&input.theirs);
        benchmark::DoNotOptimize(bytes);
        free(bytes);
    }
}

void ours_copy_to(State &state) {
    Input input(plain(LIST * KIB), KIB);
    std::vector<uint8_t> out(LIST * KIB);
    for (auto _ : state) {
        if (sw_memory_copy_to(&input.ours, out.data(), out.size()) != SW_OK) abort();
        benchmark::ClobberMemory();
    }
}

void theirs_copy_to(State &state) {
    Input input(plain(LIST * KIB), KIB);
    std::vector<uint8_t> out(LIST * KIB);
    for (auto _ : state) {
        reference_copy_to(&input.theirs, out.data());
        benchmark::ClobberMemory();
    }
}

// A pair, and how many blocks of 1 KiB are recycled together.
constexpr size_t PAIR = 64, BATCH = 10;

void ours_scalable(State &state) {
    sw_scalable *scalable = nullptr;
    if (sw_scalable_create(nullptr, &scalable) != SW_OK) abort();
    for (auto _ : state) {
        void *bytes = sw_scalable_alloc(scalable, PAIR);
        benchmark::DoNotOptimize(bytes);
        if (sw_scalable_free(scalable, bytes, PAIR) != SW_OK) abort();
    }
    sw_scalable_destroy(scalable);
}

void theirs_scalable(State &state) {
    reference_scalable scalable;
    reference_scalable_begin(&scalable, 16 << 10);
    for (auto _ : state) {
        uint8_t *bytes = reference_scalable_malloc(&scalable, PAIR);
        benchmark::DoNotOptimize(bytes);
        if (!reference_scalable_free(&scalable, bytes, PAIR)) abort();
    }
    reference_scalable_end(&scalable);
}

void ours_batch(State &state) {
    sw_scalable *scalable = nullptr;
    if (sw_scalable_create(nullptr, &scalable) != SW_OK) abort();
    sw_recyclable recyclable;
    sw_recyclable_init(&recyclable, scalable);
    for (auto _ : state) {
        for (size_t i = 0; i < BATCH; i++)
            benchmark::DoNotOptimize(sw_recyclable_next(&recyclable, KIB));
        if (sw_recyclable_recycle(&recyclable) != SW_OK) abort();
    }
    if (sw_recyclable_end(&recyclable) != SW_OK) abort();
    sw_scalable_destroy(scalable);
}

void theirs_batch(State &state) {
    reference_scalable scalable;
    reference_scalable_begin(&scalable, 16 << 10);
    reference_recyclable recyclable{{}, &scalable};
    for (auto _ : state) {
        for (size_t i = 0; i < BATCH; i++)
            benchmark::DoNotOptimize(reference_next_n(&recyclable, KIB));
        reference_recycle(&recyclable);
    }
    free(recyclable.memory.buffers);
    reference_scalable_end(&scalable);
}

} // namespace

int main(int argc, char **argv) {
    const struct {
        const char *name;
        void (*run)(State &);
    } rows[] = {
        {"spanwise/buffer/read_byte", ours_read_byte},
        {"reference/buffer/read_byte", theirs_read_byte},
        {"spanwise/buffer/read_be", ours_read_be},
        {"reference/buffer/read_be", theirs_read_be},
        {"spanwise/buffer/leb128", ours_leb128},
        {"reference/buffer/leb128", theirs_leb128},
        {"spanwise/buffer/push", ours_push},
        {"reference/buffer/push", theirs_push},
        {"spanwise/buffer/append", ours_append},
        {"reference/buffer/append", theirs_append},
        {"spanwise/buffer/to_bytes", ours_to_bytes},
        {"reference/buffer/to_bytes", theirs_to_bytes},
        {"spanwise/buffer/scalable_pair", ours_scalable},
        {"reference/buffer/scalable_pair", theirs_scalable},
        {"spanwise/buffer/batch", ours_batch},
        {"reference/buffer/batch", theirs_batch},
        {"spanwise/buffer/copy_to", ours_copy_to},
        {"reference/buffer/copy_to", theirs_copy_to},
    };
    for (const auto &row : rows) benchmark::RegisterBenchmark(row.name, row.run);
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
