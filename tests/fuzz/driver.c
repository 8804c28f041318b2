/* SPDX-License-Identifier: Apache-2.0 */
/* What gives a fuzz target its inputs where there is no libFuzzer: random ones, or files.
 *
 *   fuzz_range_btree --operations 10000000 [--seed 1]    random inputs of up to 4,000 operations
 *   fuzz_range_btree FILE...                             each file once, to repeat what was found
 *
 * Before an input that aborts the program, its seed is known: it is printed every 100,000
 * operations. */
#include "check.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

enum { HEAD_BYTES = 6, STEP_BYTES = 8, STEPS_MAX = 4000 };

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
