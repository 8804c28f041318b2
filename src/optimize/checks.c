/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of what the optimiser chooses from, as the headers state them. See base/assert.h. */
#include "base/assert.h"
#include "base/bits.h"
#include "optimize/choices.h"
#include "optimize/hull.h"

const char *sw_choices_check(const sw_choices *choices) {
    return SW_RULE(choices->cost_count <= choices->choice_count)
               ?: SW_RULE(choices->candidates[0].weight == 0)
               ?: SW_RULE(choices->candidates[choices->count + 1].choice == choices->choice_count);
}

const char *sw_hull_check(const sw_hull *hull) {
    return SW_RULE(hull->count >= 1)
               ?: SW_RULE(hull->count <= hull->width)
               ?: SW_RULE(sw_is_pow2(hull->width));
}
