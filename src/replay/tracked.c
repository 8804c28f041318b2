/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/tracked.h"

#include <unistd.h>

#include "base/bits.h"
#include "os/os.h"
#include "replay/process.h"
#include "replay/result.h"
#include "spanwise/replay.h"
#include "spanwise/stats.h"

enum { CHUNK_OPS = 1 << 15 };

static void must(sw_status status) {
    if (status != SW_OK) replay_die("%s", sw_last_error()->message);
}

static uint64_t read_ops(int fd, sw_op *into, uint64_t first, uint64_t until) {
    uint64_t count = sw_min_u64(CHUNK_OPS, until - first);
    off_t offset = (off_t)(sizeof(ops_head) + first * sizeof(sw_op));
    ssize_t want = (ssize_t)(count * sizeof(sw_op));
    if (pread(fd, into, (size_t)want, offset) != want) replay_die("operations end early");
    return count;
}

#define NUMBER(field) result_number(out, #field, ledger->field)

static void tell_ledger(result *out, const char *key, const sw_ledger *ledger) {
    result_format(out, "\"%s\":{", key);
    NUMBER(requested_bytes);
    NUMBER(roundup_bytes);
    NUMBER(tail_bytes);
    NUMBER(free_slot_bytes);
    NUMBER(cached_bytes);
    NUMBER(metadata_bytes);
    NUMBER(large_rounding_bytes);
    NUMBER(arena_slack_bytes);
    NUMBER(quarantine_bytes);
    NUMBER(free_page_bytes);
    NUMBER(held_bytes);
    NUMBER(live_objects);
    NUMBER(large_objects);
    NUMBER(spans);
    NUMBER(largest_hole_bytes);
    NUMBER(free_runs);
    NUMBER(returned_bytes);
    out->length--; /* removes the last comma */
    result_text(out, "},");
}

void tracked_replay(int fd, const ops_head *head, uint64_t ledger_op, bool touch,
                    const sw_table *table) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    options.tracked = 1;
    options.manual_clock = 1;
    sw_heap *heap;
    sw_runner *runner;
    must(sw_heap_create(&options, &heap));
    must(sw_runner_create(heap, &runner));
    sw_op *ops = replay_map(CHUNK_OPS * sizeof(sw_op));
    uint64_t stops[] = {sw_min_u64(ledger_op, head->count), head->count}, done = 0;
    sw_ledger ledgers[2];
    for (int i = 0; i < 2; i++) {
        while (done < stops[i]) {
            uint64_t count = read_ops(fd, ops, done, stops[i]);
            must(sw_runner_run(runner, ops, count, touch, NULL, NULL));
            done += count;
            (void)!pwrite(fd, &done, sizeof done, (off_t)offsetof(ops_head, progress));
        }
        must(sw_heap_ledger(heap, &ledgers[i], NULL, 0));
    }
    sw_replay_stats stats;
    sw_runner_stats(runner, &stats);
    result out;
    result_open(&out, 1 << 14);
    result_text(&out, "{");
    tell_ledger(&out, "ledger", &ledgers[0]);
    tell_ledger(&out, "end", &ledgers[1]);
    result_number(&out, "ops", stats.ops);
    result_number(&out, "failed", stats.failed);
    result_number(&out, "peak_held_bytes", stats.peak_held_bytes);
    result_close(&out, "}");
}
