// SPDX-License-Identifier: Apache-2.0
// The contenders of bench_buffers.cc, with common names, so that each row is written once. Memory:
// Ours is the library, Plain the reference (reference_buffers.h). Stacks: ours, which grow by copy
// or as a chain and are released by scopes; and a fixed one of 8 MiB without a guard page, where a
// push moves a pointer without checks. Everything is inline.
#ifndef BENCH_BUFFERS_CONTENDERS_H
#define BENCH_BUFFERS_CONTENDERS_H

#include <cstdint>
#include <cstdlib>

#include "spanwise/recyclable.h"
#include "spanwise/stack.h"

extern "C" {
#include "reference_buffers.h"
}

struct Ours {
    static constexpr const char *name = "spanwise";

    // --- lists of buffers ---
    using Memory = sw_memory;
    static void begin(Memory &memory) { sw_memory_init(&memory, nullptr); }
    static void end(Memory &memory) { sw_memory_end(&memory); }
    static void push(Memory &memory, uint8_t *bytes, size_t size) {
        if (sw_memory_push(&memory, bytes, size) != SW_OK) abort();
    }
    static void append(Memory &memory, const Memory &other) {
        if (sw_memory_append(&memory, &other) != SW_OK) abort();
    }
    static void *to_bytes(const Memory &memory) { return sw_memory_to_bytes(&memory); }
    static void copy_to(const Memory &memory, uint8_t *out, size_t size) {
        if (sw_memory_copy_to(&memory, out, size) != SW_OK) abort();
    }

    // --- readers; false at the end ---
    using Reader = sw_reader;
    static Reader reader_of(const Memory &memory) { return sw_reader_of(&memory); }
    static bool read_byte(Reader &reader, uint8_t &byte) {
        return sw_reader_read_byte(&reader, &byte) == SW_OK;
    }
    static bool read_be4(Reader &reader, uint64_t &number) {
        return sw_reader_read_be(&reader, 4, &number) == SW_OK;
    }
    static bool read_leb128(Reader &reader, uint64_t &number) {
        return sw_reader_read_leb128(&reader, &number, nullptr) == SW_OK;
    }

    // --- blocks ---
    struct Blocks {
        sw_scalable *scalable = nullptr;
        sw_recyclable recyclable;
        Blocks() {
            if (sw_scalable_create(nullptr, &scalable) != SW_OK) abort();
            sw_recyclable_init(&recyclable, scalable);
        }
        ~Blocks() {
            if (sw_recyclable_end(&recyclable) != SW_OK) abort();
            sw_scalable_destroy(scalable);
        }
        Blocks(const Blocks &) = delete;
        Blocks &operator=(const Blocks &) = delete;
        void *alloc(size_t size) { return sw_scalable_alloc(scalable, size); }
        void free(void *bytes, size_t size) {
            if (sw_scalable_free(scalable, bytes, size) != SW_OK) abort();
        }
        void *next(size_t size) { return sw_recyclable_next(&recyclable, size); }
        void recycle() {
            if (sw_recyclable_recycle(&recyclable) != SW_OK) abort();
        }
    };
};

struct Plain {
    static constexpr const char *name = "reference";

    // --- lists of buffers ---
    using Memory = reference_memory;
    static void begin(Memory &memory) { memory = Memory{}; }
    static void end(Memory &memory) { free(memory.buffers); }
    static void push(Memory &memory, uint8_t *bytes, size_t size) {
        reference_push(&memory, bytes, size);
    }
    static void append(Memory &memory, const Memory &other) { reference_append(&memory, &other); }
    static void *to_bytes(const Memory &memory) { return reference_to_bytes(&memory); }
    static void copy_to(const Memory &memory, uint8_t *out, size_t) {
        reference_copy_to(&memory, out);
    }

    // --- readers; false at the end ---
    using Reader = reference_reader;
    static Reader reader_of(const Memory &memory) { return reference_reader_of(&memory); }
    static bool read_byte(Reader &reader, uint8_t &byte) {
        return reference_read_byte(&reader, &byte);
    }
    static bool read_be4(Reader &reader, uint64_t &number) {
        uint32_t found = 0;
        bool is_read = reference_read_be(&reader, 4, &found);
        number = found;
        return is_read;
    }
    static bool read_leb128(Reader &reader, uint64_t &number) {
        int used;
        return reference_read_leb128(&reader, &number, &used);
    }

    // --- blocks ---
    struct Blocks {
        reference_scalable scalable;
        reference_recyclable recyclable;
        Blocks() : recyclable{{}, &scalable} { reference_scalable_begin(&scalable, 16 << 10); }
        ~Blocks() {
            ::free(recyclable.memory.buffers);
            reference_scalable_end(&scalable);
        }
        Blocks(const Blocks &) = delete;
        Blocks &operator=(const Blocks &) = delete;
        void *alloc(size_t size) { return reference_scalable_malloc(&scalable, size); }
        void free(void *bytes, size_t size) {
            if (!reference_scalable_free(&scalable, static_cast<uint8_t *>(bytes), size)) abort();
        }
        void *next(size_t size) { return reference_next_n(&recyclable, size); }
        void recycle() { reference_recycle(&recyclable); }
    };
};

// --- stacks --------------------------------------------------------------------------------------

// The stack's handle, which calls pass in a register.
struct GrowingHandle {
    sw_stack *stack;
    sw_stack_scope mark() const { return {stack, sw_stack_fast_depth(stack)}; }
    void *push(size_t size) const { return sw_stack_fast_push(stack, size); }
    void release(sw_stack_scope &scope) const { sw_stack_scope_leave(&scope); }
};

template <sw_stack_growth Growth> struct GrowingStack {
    static constexpr const char *name = Growth == SW_STACK_COPY ? "copy" : "chain";
    GrowingHandle handle{};
    GrowingStack() {
        sw_stack_options options;
        sw_stack_options_init(&options);
        options.growth = Growth;
        if (sw_stack_create(&options, &handle.stack) != SW_OK) abort();
    }
    ~GrowingStack() { sw_stack_destroy(handle.stack); }
    GrowingStack(const GrowingStack &) = delete;
    GrowingStack &operator=(const GrowingStack &) = delete;
};

struct FixedHandle {
    uintptr_t *top;
    uintptr_t mark() const { return *top; }
    void *push(size_t size) const {
        uintptr_t bytes = *top;
        *top = bytes + ((size + 15) & ~static_cast<size_t>(15));
        return reinterpret_cast<void *>(bytes);
    }
    void release(uintptr_t mark) const { *top = mark; }
};

struct FixedStack {
    static constexpr const char *name = "fixed";
    static constexpr size_t BYTES = 8 << 20;
    uint8_t *base = static_cast<uint8_t *>(aligned_alloc(4096, BYTES));
    uintptr_t top = reinterpret_cast<uintptr_t>(base);
    FixedHandle handle{&top};
    FixedStack() {
        if (base == nullptr) abort();
    }
    ~FixedStack() { free(base); }
    FixedStack(const FixedStack &) = delete;
    FixedStack &operator=(const FixedStack &) = delete;
};

#endif
