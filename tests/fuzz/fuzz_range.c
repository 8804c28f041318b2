/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target for one back end of range allocators, FUZZ_BACKEND, in libFuzzer's form. An input
 * is 6 bytes that choose the range and then 8 bytes an operation: requests, frees of any part, and
 * wrong ones. After each operation the answer and the free list are those of a map of bytes
 * (tests/unit/range_model.h); the first difference aborts. Inputs are clang's (-fsanitize=fuzzer,
 * SPANWISE_FUZZ), or random ones or files:
 *
 *   fuzz_range_btree --operations 10000000 [--seed 1]    random inputs of up to 4,000 operations
 *   fuzz_range_btree FILE...                             each file once, to repeat what was found
 *
 * Before an input that aborts the program, its seed is known: it is printed every 100,000
 * operations. */
#include "range_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { HEAD_BYTES = 6, STEP_BYTES = 8 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    static model m;
    if (bytes < HEAD_BYTES) return 0;
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = FUZZ_BACKEND;
    options.placement = data[0] % SW_RANGE_FIT_COUNT;
    options.orders = data[1] % 8; /* of a buddy; the others ignore it */
    uint64_t size = 1 + (data[2] | (uint64_t)data[3] << 8) % SIZE_MAX_HERE;
    uint64_t most = 1 + (data[4] | (uint64_t)(data[5] & 1) << 8) % size;
    if (options.placement == SW_RANGE_FIT_DEFAULT)
        options.placement =
            FUZZ_BACKEND == SW_RANGE_TWO_TREAPS ? SW_RANGE_FIT_BEST : SW_RANGE_FIT_FIRST;
    if (FUZZ_BACKEND == SW_RANGE_BUDDY) options.placement = SW_RANGE_FIT_FIRST;
    bool looks_always = (data[5] & 6) != 0;
    sw_range *range = model_begin(&m, &options, size, most);
    if (range == NULL) return 0;
    uint64_t step = 0;
    for (size_t at = HEAD_BYTES; at + STEP_BYTES <= bytes; at += STEP_BYTES, step++) {
        uint64_t random;
        memcpy(&random, &data[at], STEP_BYTES);
        /* A look joins what a buddy has kept, and settles what grew: one input in four looks less
         * often. */
        bool looks = looks_always || step % 8 == 0;
        model_step(range, &m, &options, random, looks);
        if (step % 64 == 0) CHECK_EQ(sw_range_verify(range), SW_OK);
        if (check_failed()) abort();
    }
    sw_range_destroy(range);
    return 0;
}

#ifndef SPANWISE_FUZZ
enum { STEPS_MAX = 4000 };

static uint8_t input[HEAD_BYTES + STEPS_MAX * STEP_BYTES];

static void run_random(uint64_t operations, uint64_t seed) {
    uint64_t done = 0, reported = 0, inputs = 0;
    while (done < operations) {
        uint64_t state = seed + inputs++;
        /* Of 16 inputs 15 are ranges of up to 256: their maps are compared quickly. */
        uint64_t steps = 1 + check_random(&state) % STEPS_MAX;
        if (steps > operations - done) steps = operations - done;
        size_t bytes = HEAD_BYTES + steps * STEP_BYTES;
        for (size_t at = 0; at < bytes; at++) input[at] = (uint8_t)(check_random(&state) >> 56);
        if (inputs % 16 != 0) input[3] = 0;
        (void)LLVMFuzzerTestOneInput(input, bytes);
        done += steps;
        if (done - reported < 100000) continue;
        reported = done;
        fprintf(stderr, "%" PRIu64 " operations, next input --seed %" PRIu64 "\n", done,
                seed + inputs);
    }
    printf("%" PRIu64 " operations in %" PRIu64 " inputs\n", done, inputs);
}

static void run_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        exit(2);
    }
    size_t bytes = fread(input, 1, sizeof input, file);
    (void)fclose(file);
    (void)LLVMFuzzerTestOneInput(input, bytes);
}

int main(int argc, char **argv) {
    uint64_t operations = 0, seed = 1;
    for (int i = 1; i < argc; i++) {
        if (i + 1 < argc && strcmp(argv[i], "--operations") == 0) {
            operations = strtoull(argv[++i], NULL, 10) / check_share();
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            seed = strtoull(argv[++i], NULL, 10);
        } else {
            run_file(argv[i]);
        }
    }
    run_random(operations, seed);
    return 0;
}
#endif
