// SPDX-License-Identifier: Apache-2.0
// Rows of multi-buffer memory, readers, recyclable memory and stacks: CONTENDER/buffer/ROW. A
// contender is `spanwise` or the plain `reference`; in stack rows, our stacks `copy` and `chain`,
// or a `fixed` stack (contenders.h). A time is that of one round, such as reading 1024 bytes.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "contenders.h"

namespace {

using State = benchmark::State;

constexpr size_t BUFFER_BYTES = 64, BYTES = 1024, NUMBERS = 1024, LIST = 100, KIB = 1024;

// The input bytes, in buffers of 64 bytes, as a memory of either kind.
template <typename Kind> struct Input {
    std::vector<uint8_t> bytes;
    typename Kind::Memory memory;

    explicit Input(std::vector<uint8_t> of, size_t buffer_bytes = BUFFER_BYTES)
        : bytes(std::move(of)) {
        Kind::begin(memory);
        for (size_t at = 0; at < bytes.size(); at += buffer_bytes)
            Kind::push(memory, &bytes[at], std::min(buffer_bytes, bytes.size() - at));
    }
    ~Input() { Kind::end(memory); }
    Input(const Input &) = delete;
    Input &operator=(const Input &) = delete;
};

std::vector<uint8_t> plain(size_t count) {
    std::vector<uint8_t> bytes(count);
    for (size_t i = 0; i < count; i++) bytes[i] = static_cast<uint8_t>(i * 7);
    return bytes;
}

// 1024 LEB128 numbers of 1, 2, 1, 3 bytes, repeated.
std::vector<uint8_t> numbers() {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < NUMBERS; i++) {
        size_t longer = i % 4 == 1 ? 1 : i % 4 == 3 ? 2 : 0;
        for (size_t j = 0; j < longer; j++) bytes.push_back(static_cast<uint8_t>(0x80 | (i + j)));
        bytes.push_back(static_cast<uint8_t>(1 + i % 127));
    }
    return bytes;
}

// --- readers -------------------------------------------------------------------------------------

template <typename Kind> void read_byte(State &state) {
    Input<Kind> input(plain(BYTES));
    for (auto _ : state) {
        auto reader = Kind::reader_of(input.memory);
        uint64_t sum = 0;
        uint8_t byte;
        while (Kind::read_byte(reader, byte)) sum += byte;
        benchmark::DoNotOptimize(sum);
    }
}

template <typename Kind> void read_be(State &state) {
    Input<Kind> input(plain(BYTES));
    for (auto _ : state) {
        auto reader = Kind::reader_of(input.memory);
        uint64_t sum = 0, number;
        for (size_t i = 0; i < BYTES / 4; i++)
            if (Kind::read_be4(reader, number)) sum += number;
        benchmark::DoNotOptimize(sum);
    }
}

template <typename Kind> void leb128(State &state) {
    Input<Kind> input(numbers());
    for (auto _ : state) {
        auto reader = Kind::reader_of(input.memory);
        uint64_t sum = 0, number;
        for (size_t i = 0; i < NUMBERS; i++)
            if (Kind::read_leb128(reader, number)) sum += number;
        benchmark::DoNotOptimize(sum);
    }
}

// --- memories ------------------------------------------------------------------------------------

template <typename Kind> void push(State &state) {
    uint8_t bytes[16];
    for (auto _ : state) {
        typename Kind::Memory memory;
        Kind::begin(memory);
        for (size_t i = 0; i < LIST; i++) Kind::push(memory, bytes, sizeof bytes);
        benchmark::DoNotOptimize(memory.size);
        Kind::end(memory);
    }
}

template <typename Kind> void append(State &state) {
    Input<Kind> input(plain(LIST * 4), 4);
    for (auto _ : state) {
        typename Kind::Memory memory;
        Kind::begin(memory);
        for (size_t i = 0; i < 10; i++) Kind::append(memory, input.memory);
        benchmark::DoNotOptimize(memory.size);
        Kind::end(memory);
    }
}

template <typename Kind> void to_bytes(State &state) {
    Input<Kind> input(plain(LIST * KIB), KIB);
    for (auto _ : state) {
        void *bytes = Kind::to_bytes(input.memory);
        benchmark::DoNotOptimize(bytes);
        free(bytes);
    }
}

// Both contenders use the same bytes, because their alignment changes the time by a tenth. The
// bytes are written first, because untouched pages all map the kernel's zero page.
alignas(4096) uint8_t from[LIST * KIB], out[LIST * KIB];

template <typename Kind> void copy_to(State &state) {
    typename Kind::Memory memory;
    Kind::begin(memory);
    for (size_t i = 0; i < sizeof from; i++) from[i] = static_cast<uint8_t>(i * 7);
    for (size_t i = 0; i < LIST; i++) Kind::push(memory, from + i * KIB, KIB);
    for (auto _ : state) {
        Kind::copy_to(memory, out, sizeof out);
        benchmark::ClobberMemory();
    }
    Kind::end(memory);
}

// --- blocks --------------------------------------------------------------------------------------

// Bytes of the block of a pair, and number of blocks of 1 KiB that are recycled together.
constexpr size_t PAIR = 64, BATCH = 10;

template <typename Kind> void scalable_pair(State &state) {
    typename Kind::Blocks blocks;
    for (auto _ : state) {
        void *bytes = blocks.alloc(PAIR);
        benchmark::DoNotOptimize(bytes);
        blocks.free(bytes, PAIR);
    }
}

template <typename Kind> void batch(State &state) {
    typename Kind::Blocks blocks;
    for (auto _ : state) {
        for (size_t i = 0; i < BATCH; i++) benchmark::DoNotOptimize(blocks.next(KIB));
        blocks.recycle();
    }
}

// --- stacks --------------------------------------------------------------------------------------

constexpr int CALLS = 32;
constexpr size_t FRAME = 64, FILL = 1 << 20;

// Nested calls, each of which writes the first and last word of its frame.
template <typename Handle> __attribute__((noinline)) uint64_t call(Handle stack, int depth) {
    auto mark = stack.mark();
    auto *frame = static_cast<volatile uint64_t *>(stack.push(FRAME));
    frame[0] = static_cast<uint64_t>(depth);
    frame[FRAME / sizeof *frame - 1] = 1;
    uint64_t below = depth > 1 ? call(stack, depth - 1) : 0;
    stack.release(mark);
    return below + 1;
}

template <typename Stack> void stack_calls(State &state) {
    Stack stack;
    for (auto _ : state) benchmark::DoNotOptimize(call(stack.handle, CALLS));
}

// Fill an empty stack to 1 MiB, including its growth.
template <typename Stack> void stack_fill(State &state) {
    for (auto _ : state) {
        Stack stack;
        for (size_t at = 0; at < FILL; at += FRAME)
            *static_cast<volatile uint64_t *>(stack.handle.push(FRAME)) = at;
    }
}

// --- all of them ---------------------------------------------------------------------------------

void add(const char *contender, const char *row, void (*run)(State &)) {
    benchmark::RegisterBenchmark((std::string(contender) + "/buffer/" + row).c_str(), run);
}

template <typename Kind> void add_rows() {
    add(Kind::name, "read_byte", read_byte<Kind>);
    add(Kind::name, "read_be", read_be<Kind>);
    add(Kind::name, "leb128", leb128<Kind>);
    add(Kind::name, "push", push<Kind>);
    add(Kind::name, "append", append<Kind>);
    add(Kind::name, "to_bytes", to_bytes<Kind>);
    add(Kind::name, "scalable_pair", scalable_pair<Kind>);
    add(Kind::name, "batch", batch<Kind>);
    add(Kind::name, "copy_to", copy_to<Kind>);
}

template <typename Stack> void add_stack_rows() {
    add(Stack::name, "stack_calls", stack_calls<Stack>);
    add(Stack::name, "stack_fill", stack_fill<Stack>);
}

} // namespace

int main(int argc, char **argv) {
    add_rows<Ours>();
    add_rows<Plain>();
    add_stack_rows<GrowingStack<SW_STACK_COPY>>();
    add_stack_rows<GrowingStack<SW_STACK_CHAIN>>();
    add_stack_rows<FixedStack>();
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
