/* SPDX-License-Identifier: Apache-2.0 */
/* Range allocators against a map of bytes (range_model.h): random requests and frees of every kind, bad
 * ones among them; after each step the answer and the list of holes are those of the map. Every back end
 * with every placement that it has. One argument: operations of each combination (10,000,000 for the full
 * form, which takes some minutes; without one as many as are quick). */
#include "range_model.h"

#include "range_memory.h"

static void campaign(uint32_t backend, uint32_t placement, uint64_t size, uint64_t most,
                     uint64_t steps) {
    static model m;
    counted_memory memory = {0, 0, 0};
    sw_allocator allocator = counted_allocator(&memory);
    sw_range_options options;
    sw_range_options_init(&options);
    options.backend = backend;
    options.placement = placement;
    options.memory = &allocator;
    options.orders = size % 2 ? 5 : 0;
    sw_range *range = model_begin(&m, &options, size, most);
    if (range == NULL) return;
    uint64_t seed = size * 31 + placement;
    for (uint64_t i = 0; i < steps && !check_failed(); i++) {
        /* A look joins what a buddy has kept, and settles what grew: some steps go without one. */
        bool looks = (backend != SW_RANGE_BUDDY && i / 256 % 2 == 0) || i % 8 == 0;
        model_step(range, &m, &options, check_random(&seed), looks);
        if (i % 64 == 0) CHECK_EQ(sw_range_verify(range), SW_OK);
    }
    if (check_failed())
        fprintf(stderr, "backend %s placement %u size %" PRIu64 ": %s\n",
                sw_range_backend_name(backend), placement, size, sw_last_error()->message);
    sw_range_destroy(range);
    CHECK_EQ(memory.held_bytes, 0);
}

int main(int argc, char **argv) {
    uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 20000 / check_share();
    for (uint32_t backend = 0; backend < SW_RANGE_BACKEND_COUNT; backend++) {
        uint32_t usual = backend == SW_RANGE_TWO ? SW_RANGE_FIT_BEST : SW_RANGE_FIT_FIRST;
        uint32_t last = backend == SW_RANGE_BUDDY ? SW_RANGE_FIT_FIRST : SW_RANGE_FIT_WORST;
        for (uint32_t placement = SW_RANGE_FIT_FIRST; placement <= last; placement++) {
            uint64_t share = placement == usual ? steps : steps / 4;
            campaign(backend, placement, 300, 40, share);     /* a few holes */
            campaign(backend, placement, 24, 24, share / 4);  /* one or none, again and again */
            campaign(backend, placement, 4001, 3, share / 4); /* a thousand: nodes split and join */
        }
    }
    return check_result();
}
