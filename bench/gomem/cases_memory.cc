// SPDX-License-Identifier: Apache-2.0
// The cases of lists of buffers and of readers (cases_bytes.h).
#include "cases_bytes.h"

namespace {

constexpr size_t KIB = 1024;
const std::string ON = "spanwise";

using Bytes = std::vector<uint8_t>;

// `count` buffers of `size` bytes, and the list of them.
struct Listed {
    std::vector<Bytes> buffers;
    sw_memory memory;
    explicit Listed(size_t count = 0, size_t size = KIB) : buffers(count, Bytes(size)) {
        sw_memory_init(&memory, nullptr);
        for (Bytes &each : buffers) push(each);
    }
    ~Listed() { sw_memory_end(&memory); }
    Listed(const Listed &) = delete;
    Listed &operator=(const Listed &) = delete;
    void push(Bytes &bytes) {
        if (sw_memory_push(&memory, bytes.data(), bytes.size()) != SW_OK) abort();
    }
};

// --- lists ---------------------------------------------------------------------------------------

void push_one(State &state) {
    Listed list;
    Bytes bytes(KIB);
    for (auto _ : state) list.push(bytes);
}

void push_two(State &state) {
    Listed list;
    Bytes first(512), second(512);
    for (auto _ : state) {
        const sw_buffer both[] = {{first.data(), first.size()}, {second.data(), second.size()}};
        if (sw_memory_push_buffers(&list.memory, both, 2) != SW_OK) abort();
    }
}

void append(State &state) {
    Listed list(50), other(50);
    for (auto _ : state)
        if (sw_memory_append(&list.memory, &other.memory) != SW_OK) abort();
}

void to_bytes(State &state) {
    Listed list(100);
    for (auto _ : state) {
        void *bytes = sw_memory_to_bytes(&list.memory);
        DoNotOptimize(bytes);
        free(bytes);
    }
}

void copy_to(State &state) {
    Listed list(100);
    Bytes out(100 * KIB);
    for (auto _ : state) {
        if (sw_memory_copy_to(&list.memory, out.data(), out.size()) != SW_OK) abort();
        ClobberMemory();
    }
}

void count(State &state) {
    Listed list(100);
    for (auto _ : state) DoNotOptimize(sw_memory_count(&list.memory));
}

void range(State &state) {
    Listed list(100);
    for (auto _ : state) {
        const sw_buffer *buffers = sw_memory_buffers(&list.memory);
        for (size_t i = 0; i < sw_memory_count(&list.memory); i++) DoNotOptimize(buffers[i].size);
    }
}

// --- readers: each round makes one of `buffers` and goes through it ---------------------------------

template <typename Read> void read_all(State &state, std::vector<Bytes> buffers, Read read) {
    for (auto _ : state) {
        sw_memory memory;
        sw_memory_init(&memory, nullptr);
        for (Bytes &each : buffers)
            if (sw_memory_push(&memory, each.data(), each.size()) != SW_OK) abort();
        sw_reader reader = sw_reader_of(&memory);
        read(reader);
        sw_memory_end(&memory);
    }
}

void read(State &state) {
    Bytes out(KIB);
    read_all(state, std::vector<Bytes>(3, Bytes(KIB)), [&](sw_reader &reader) {
        while (sw_reader_read(&reader, out.data(), out.size()) != 0) ClobberMemory();
    });
}

void read_byte(State &state) {
    read_all(state, {Bytes(KIB)}, [](sw_reader &reader) {
        uint8_t byte;
        while (sw_reader_read_byte(&reader, &byte) == SW_OK) DoNotOptimize(byte);
    });
}

// Reads pieces of 64 bytes into one array; the original makes a slice for each of them.
void read_bytes(State &state) {
    uint8_t out[64];
    read_all(state, {Bytes(KIB)}, [&](sw_reader &reader) {
        while (sw_reader_read_bytes(&reader, out, sizeof out) == SW_OK) ClobberMemory();
    });
}

void read_be(State &state) {
    read_all(state, {Bytes(KIB)}, [](sw_reader &reader) {
        uint64_t number;
        while (sw_reader_length(&reader) >= 4)
            if (sw_reader_read_be(&reader, 4, &number) == SW_OK) DoNotOptimize(number);
    });
}

void skip(State &state) {
    read_all(state, {Bytes(KIB)}, [](sw_reader &reader) {
        while (sw_reader_length(&reader) > 0)
            if (sw_reader_skip(&reader, 64) != SW_OK) abort();
        DoNotOptimize(reader.at);
    });
}

void pieces(State &state, uint64_t limit) {
    read_all(state, std::vector<Bytes>(2, Bytes(512)), [=](sw_reader &reader) {
        sw_buffer piece;
        for (uint64_t left = limit; sw_reader_next(&reader, left, &piece); left -= piece.size)
            DoNotOptimize(piece.size);
    });
}

// 1,024 numbers of one byte each.
void leb128(State &state) {
    Bytes bytes(KIB);
    for (size_t i = 0; i < KIB; i++) bytes[i] = static_cast<uint8_t>(i % 128);
    read_all(state, {bytes}, [](sw_reader &reader) {
        uint64_t number;
        while (sw_reader_length(&reader) > 0)
            if (sw_reader_read_leb128(&reader, &number, nullptr) == SW_OK) DoNotOptimize(number);
    });
}

} // namespace

// A list that only grows has a fixed number of rounds: as many as Go does in the time in which its
// figures on record were taken.
void add_memories() {
    add(ON, "MemoryPushOne", push_one)->Iterations(400000);
    add(ON, "MemoryPush", push_two)->Iterations(200000);
    add(ON, "MemoryAppend", append)->Iterations(8192);
    add(ON, "MemoryToBytes", to_bytes);
    add(ON, "MemoryCopyTo", copy_to);
    add(ON, "MemoryCount", count);
    add(ON, "MemoryRange", range);
}

void add_readers() {
    add(ON, "MemoryReaderRead", read);
    add(ON, "MemoryReaderReadByte", read_byte);
    add(ON, "MemoryReaderReadBytes", read_bytes);
    add(ON, "MemoryReaderReadBE", read_be);
    add(ON, "MemoryReaderSkip", skip);
    add(ON, "MemoryReaderRange", [](State &s) { pieces(s, UINT64_MAX); });
    add(ON, "MemoryReaderRangeN", [](State &s) { pieces(s, 2); });
    add(ON, "MemoryReaderLEB128Unmarshal", leb128);
}
