/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the preloaded malloc's structs, as the headers state them. See base/base.h. */
#include "base/base.h"
#include "inspect/ledger.h"
#include "preload/account.h"
#include "preload/json.h"
#include "preload/options.h"

const char *preload_counts_check(const preload_counts *counts) {
    return SW_RULE(counts->ops == counts->allocs + counts->frees + counts->reallocs)
               ?: SW_RULE(counts->failed <= counts->allocs + counts->reallocs)
               ?: SW_RULE(counts->peak_op <= counts->ops)
               ?: SW_RULE(counts->requested_bytes <= counts->peak_requested_bytes)
               ?: SW_RULE(counts->live_objects <= counts->peak_live_objects);
}

const char *preload_ledger_check(const preload_ledger *ledger) {
    return SW_RULE(ledger->row_count <= PRELOAD_CLASSES_MAX)
               ?: (ledger->row_count == 0 ? NULL : sw_ledger_check(&ledger->sum));
}

const char *preload_json_check(const preload_json *json) {
    return SW_RULE(json->used <= sizeof json->buffer) ?: SW_RULE(json->file >= 0);
}

const char *preload_options_check(const preload_options *options) {
    return SW_RULE(options->ledger[0] == '/' || options->ledger[0] == '\0')
               ?: SW_RULE(options->ledger_file >= PRELOAD_NO_FILE)
               ?: SW_RULE((unsigned)options->heap.placement <= 3);
}
