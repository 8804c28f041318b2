// SPDX-License-Identifier: Apache-2.0
// The stacks of bench_buffers.cc behind one set of names: ours by copy and as a chain, and one of fixed 8 MiB, as a
// C program's main thread has, without a guard: a push moves a pointer and looks at nothing. Ours
// releases by scopes.
#ifndef BENCH_BUFFERS_STACKS_H
#define BENCH_BUFFERS_STACKS_H

#include <cstdint>
#include <cstdlib>

#include "spanwise/stack.h"

// The stack's handle, which is passed from call to call in a register.
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
