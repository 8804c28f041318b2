/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of a runner, as runner.h states them. See base/assert.h. */
#include "base/assert.h"
#include "simulator/runner.h"

const char *sw_runner_record_check(const struct sw_runner *runner) {
    return SW_RULE((runner->object_capacity == 0) == (runner->objects == NULL))
               ?: SW_RULE((runner->thread_capacity == 0) == (runner->threads == NULL))
               ?: SW_RULE(runner->sample_count <= SW_RUNNER_SAMPLES_MAX)
               ?: SW_RULE(runner->unread_count == 0 || runner->unread != NULL)
               ?: SW_RULE(runner->resident_peak_op <= runner->stats.ops)
               ?: SW_RULE(runner->resident_at_moment <= runner->resident_peak_bytes)
               ?: SW_RULE(runner->steady_count <= runner->stats.held_over_requested_count);
}
