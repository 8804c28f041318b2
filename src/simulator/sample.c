/* SPDX-License-Identifier: Apache-2.0 */
/* Samples of a run: rows over time, at most 2048. */
#include <string.h>

#include "base/base.h"
#include "os/os.h"
#include "simulator/runner.h"
#include "spanwise/stats.h"

const char *sw_runner_record_check(const struct sw_runner *runner) {
    return SW_RULE((runner->object_capacity == 0) == (runner->objects == NULL))
               ?: SW_RULE((runner->thread_capacity == 0) == (runner->threads == NULL))
               ?: SW_RULE(runner->sample_count <= SW_RUNNER_SAMPLES_MAX)
               ?: SW_RULE(runner->unread_count == 0 || runner->unread != NULL)
               ?: SW_RULE(runner->resident_peak_op <= runner->stats.ops)
               ?: SW_RULE(runner->resident_at_moment <= runner->resident_peak_bytes)
               ?: SW_RULE(runner->steady_count <= runner->stats.held_over_requested_count);
}

/* Drops every second row and doubles the interval between later ones. */
static void thin_samples(sw_runner *runner) {
    for (size_t i = 0; i < SW_RUNNER_SAMPLES_MAX / 2; i++)
        runner->samples[i] = runner->samples[2 * i];
    runner->sample_count = SW_RUNNER_SAMPLES_MAX / 2;
    runner->sample_every *= 2;
}

void sw_runner_take_sample(sw_runner *runner, uint64_t time_ns) {
    if (runner->sample_count == SW_RUNNER_SAMPLES_MAX) thin_samples(runner);
    sw_ledger ledger;
    if (sw_heap_ledger(runner->heap, &ledger, NULL, 0) != SW_OK) return;
    runner->samples[runner->sample_count++] = (sw_replay_sample){
        .op = runner->stats.ops,
        .time_ns = time_ns,
        .requested_bytes = runner->stats.requested_bytes,
        .live_objects = runner->stats.live_objects,
        .slot_bytes = ledger.requested_bytes + ledger.roundup_bytes + ledger.large_rounding_bytes,
        .held_bytes = ledger.held_bytes,
        .free_page_bytes = ledger.free_page_bytes,
    };
    runner->sample_next = runner->stats.ops + runner->sample_every;
}

sw_status sw_runner_sample_every(sw_runner *runner, uint64_t every) {
    sw_status status = sw_runner_status(runner, "runner_sample_every");
    if (status != SW_OK) return status;
    if (every != 0 && runner->samples == NULL) {
        runner->samples = sw_os_map(SW_RUNNER_SAMPLES_MAX * sizeof *runner->samples);
        if (runner->samples == NULL) return sw_fail(SW_NOMEM, "runner", "no memory for samples");
    }
    runner->sample_every = every;
    runner->sample_next =
        every > UINT64_MAX - runner->stats.ops ? UINT64_MAX : runner->stats.ops + every;
    return SW_OK;
}

size_t sw_runner_samples(const sw_runner *runner, sw_replay_sample *rows, size_t capacity) {
    if (!sw_runner_check(runner, "runner_samples")) return 0;
    size_t n = runner->sample_count < capacity ? runner->sample_count : capacity;
    if (n > 0) memcpy(rows, runner->samples, n * sizeof *rows);
    return runner->sample_count;
}
