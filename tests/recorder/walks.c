/* SPDX-License-Identifier: Apache-2.0 */
/* Twelve functions of equal frames call one that allocates: its calls of malloc have the same
 * return address and the same stack pointer, and only what is further up decides whose they are.
 * Object k has 1000 + k bytes.
 *   walks ROUNDS */
#include <stdint.h>
#include <stdlib.h>

#ifdef __clang__
#define SHAPE __attribute__((noinline))
#else
#define SHAPE __attribute__((noinline, noclone))
#endif

static void *volatile block;

static SHAPE size_t allocate(size_t size) {
    block = malloc(size);
    size_t known = block != NULL;
    free(block);
    return known;
}

static SHAPE size_t between(size_t size) { return allocate(size) * 3 + size; }

#define CALLER(k)                                                                                  \
    static SHAPE size_t caller_##k(size_t more) { return between(1000 + k) * more + k; }
CALLER(0)
CALLER(1)
CALLER(2)
CALLER(3)
CALLER(4)
CALLER(5)
CALLER(6)
CALLER(7)
CALLER(8)
CALLER(9)
CALLER(10)
CALLER(11)

int main(int argc, char **argv) {
    static size_t (*const callers[])(size_t) = {caller_0, caller_1, caller_2,  caller_3,
                                                caller_4, caller_5, caller_6,  caller_7,
                                                caller_8, caller_9, caller_10, caller_11};
    size_t sum = 0;
    uint64_t seed = 1;
    for (long i = argc > 1 ? atol(argv[1]) : 0; i > 0; i--) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        sum += callers[(seed >> 33) % 12]((size_t)i | 1);
    }
    return sum == 1;
}
