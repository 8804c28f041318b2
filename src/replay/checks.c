/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the replayer's structs, as the headers state them. See base/base.h. */
#include "base/base.h"
#include "replay/play.h"
#include "replay/process.h"

const char *plan_check(const plan *plan) {
    return SW_RULE(plan->thread_count <= PLAN_THREADS_MAX)
               ?: SW_RULE(plan->epoch_count <= PLAN_EPOCHS_MAX)
               ?: SW_RULE((plan->count == 0) == (plan->epoch_count == 0))
               ?: SW_RULE((plan->count == 0) == (plan->thread_count == 0))
               ?: SW_RULE(plan->ends + plan->crossings <= plan->count)
               ?: SW_RULE(plan->count == 0 ||
                          plan->epochs[plan->epoch_count - 1].ops == plan->count);
}

const char *player_check(const player *self) {
    return SW_RULE(self->touch <= TOUCH_ALL)
               ?: SW_RULE(self->samples != NULL)
               ?: SW_RULE(self->objects != NULL)
               ?: plan_check(self->plan);
}

const char *result_check(const result *out) {
    return SW_RULE(out->text != NULL) ?: SW_RULE(out->length < out->room);
}
