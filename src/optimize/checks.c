/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the optimizer's structs, as the headers state them. See base/assert.h. */
#include "base/assert.h"
#include "base/bits.h"
#include "optimize/hull.h"
#include "optimize/optimizer.h"
#include "optimize/profile.h"

const char *sw_choices_check(const sw_choices *choices) {
    return SW_RULE(choices->cost_count <= choices->choice_count)
               ?: SW_RULE(choices->waste_percent < 100)
               ?: SW_RULE(choices->candidates[0].weight == 0)
               ?: SW_RULE(choices->candidates[choices->count + 1].choice == choices->choice_count);
}

const char *sw_hull_check(const sw_hull *hull) {
    return SW_RULE(hull->count >= 1)
               ?: SW_RULE(hull->count <= hull->width)
               ?: SW_RULE(sw_is_pow2(hull->width))
               ?: SW_RULE(hull->change_count == 0 || hull->changes != NULL);
}

const char *sw_optimizer_record_check(const struct sw_optimizer *optimizer) {
    return SW_RULE(optimizer->classes >= 1)
               ?: SW_RULE(optimizer->classes <= optimizer->choices.count)
               ?: SW_RULE(optimizer->choices.fewest >= 1)
               ?: SW_RULE(optimizer->choices.fewest <= optimizer->classes)
               ?: SW_RULE(optimizer->stride == optimizer->choices.count + 1)
               ?: SW_RULE(optimizer->options.align >= 1)
               ?: SW_RULE(optimizer->options.page_bytes >= 1)
               ?: SW_RULE(optimizer->least == optimizer->block)
               ?: SW_RULE(optimizer->previous ==
                          (const uint32_t *)(optimizer->least + optimizer->classes))
               ?: sw_choices_check(&optimizer->choices);
}

const char *sw_profile_record_check(const struct sw_profile *profile) {
    return SW_RULE((profile->capacity == 0) == (profile->objects == NULL))
               ?: SW_RULE(profile->capacity == 0 || sw_is_pow2(profile->capacity));
}
