/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of a profile at the border between sizes that have an entry of their own and larger ones,
 * by hand. */
#include "check.h"
#include "spanwise/optimize.h"

enum { BORDER = SW_PROFILE_SIZES }; /* the smallest size without an entry */

int main(void) {
    const sw_op ops[] = {
        {.kind = SW_OP_ALLOC, .object = 0, .size = BORDER - 1},
        {.kind = SW_OP_ALLOC, .object = 1, .size = BORDER},
        {.kind = SW_OP_FREE, .object = 1, .time_ns = 2000000000},
        {.kind = SW_OP_ALLOC, .object = 1, .size = BORDER + 5, .time_ns = 2000000000},
    };
    sw_profile *profile;
    sw_profile_large large;
    CHECK_EQ(sw_profile_create(4, &profile), SW_OK);
    CHECK_EQ(sw_profile_add(profile, ops, 4), SW_OK);
    sw_profile_end(profile, 5000000000);
    CHECK(sw_profile_weights(profile, SW_WEIGH_ALLOCS)[BORDER - 1] == 1);
    CHECK(sw_profile_weights(profile, SW_WEIGH_PEAK)[BORDER - 1] == 1);
    CHECK_EQ(sw_profile_get_large(profile, SW_WEIGH_ALLOCS, &large), SW_OK);
    CHECK(large.weight == 2 && large.bytes == 2.0 * BORDER + 5);
    CHECK_EQ(sw_profile_get_large(profile, SW_WEIGH_PEAK, &large), SW_OK);
    CHECK(large.weight == 1 && large.bytes == BORDER + 5); /* the first is gone by then */
    CHECK_EQ(sw_profile_get_large(profile, SW_WEIGH_TIME, &large), SW_OK);
    CHECK(large.weight > 4.999 && large.weight < 5.001); /* two seconds, and three */
    double bytes = 2.0 * BORDER + 3.0 * (BORDER + 5);
    CHECK(large.bytes > bytes * 0.9999 && large.bytes < bytes * 1.0001);
    sw_profile_destroy(profile);
    return check_result();
}
