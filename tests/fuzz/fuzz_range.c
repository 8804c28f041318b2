/* SPDX-License-Identifier: Apache-2.0 */
/* A fuzz target for one back end of range allocators, FUZZ_BACKEND, in libFuzzer's form. An input
 * is 6 bytes that choose the range and then 8 bytes an operation: requests, frees of any part, and
 * wrong ones. After each operation the answer and the free list are those of a map of bytes
 * (tests/unit/range_model.h); the first difference aborts. Built with driver.c, or with clang's
 * -fsanitize=fuzzer (SPANWISE_FUZZ). */
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
