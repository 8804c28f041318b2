/* SPDX-License-Identifier: Apache-2.0 */
/* Compares call sites with glibc's backtrace(): functions of many frame shapes call each other in a
 * known order, and the deepest prints the chain that it sees, then allocates.
 *   stacks DEPTH      prints return addresses (hex), innermost first, of the malloc(12345)
 * Compile with -O2 -fomit-frame-pointer. */
#define _GNU_SOURCE
#include <alloca.h>
#include <execinfo.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uint64_t shape(int depth, uint64_t mix);

#ifdef __clang__
#define SHAPE __attribute__((noinline))
#else
#define SHAPE __attribute__((noinline, noclone))
#endif
static shape plain, big_frame, with_alloca, many_registers, aligned_frame;
static shape *const shapes[] = {plain, big_frame, with_alloca, many_registers, plain};
static volatile uint64_t sink;
static void *volatile block;
static void *seen[200];
static int seen_count;

/* The call of malloc and the call of backtrace have different return addresses in this frame: the
 * driver compares from the caller on. */
static SHAPE uint64_t deepest(uint64_t mix) {
    block = malloc(12345);
    seen_count = backtrace(seen, 200);
    return mix + (uintptr_t)block;
}

static SHAPE uint64_t next(int depth, uint64_t mix) {
    if (depth == 0) return deepest(mix) + 1;
    return shapes[mix % 5](depth - 1, mix * 7 + 1) + 1;
}

static SHAPE uint64_t plain(int depth, uint64_t mix) { return next(depth, mix) ^ 3; }

static SHAPE uint64_t big_frame(int depth, uint64_t mix) {
    volatile char room[5000];
    room[depth] = (char)mix;
    return next(depth, mix) + (uint64_t)room[depth];
}

static SHAPE uint64_t with_alloca(int depth, uint64_t mix) {
    char *room = alloca(16 + mix % 300);
    memset(room, (int)mix, 16);
    uint64_t result = next(depth, mix);
    return result + (uint64_t)room[result % 16];
}

static SHAPE uint64_t many_registers(int depth, uint64_t mix) {
    uint64_t a = mix, b = sink + 1, c = a * b, d = c ^ a, e = d + 5, f = e * 3;
    uint64_t result = next(depth, mix);
    return result + a * b + c * d + e * f;
}

/* Over-aligned locals make a frame whose canonical address is an expression: the walk may end. */
static SHAPE uint64_t aligned_frame(int depth, uint64_t mix) {
    volatile char room[64] __attribute__((aligned(64)));
    room[0] = (char)mix;
    return next(depth, mix) + (uint64_t)room[0];
}

int main(int argc, char **argv) {
    int depth = argc > 1 ? atoi(argv[1]) : 10;
    void *warm[4];
    (void)backtrace(warm, 4); /* loads libgcc, which allocates */
    sink = depth < 0 ? aligned_frame(3, 1) : next(depth, 1);
    for (int i = 0; i < seen_count; i++) printf("%lx ", (unsigned long)(uintptr_t)seen[i]);
    printf("\n");
    free(block);
    return 0;
}
