/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the preloaded malloc's structs, as the headers state them. See base/assert.h. */
#include "base/assert.h"
#include "malloc/account.h"
#include "malloc/json.h"
#include "malloc/options.h"
#include "watch/ledger.h"

const char *face_counts_check(const face_counts *counts) {
    return SW_RULE(counts->ops == counts->allocs + counts->frees + counts->reallocs)
               ?: SW_RULE(counts->failed <= counts->allocs + counts->reallocs)
               ?: SW_RULE(counts->peak_op <= counts->ops)
               ?: SW_RULE(counts->requested_bytes <= counts->peak_requested_bytes)
               ?: SW_RULE(counts->live_objects <= counts->peak_live_objects);
}

const char *face_ledger_check(const face_ledger *ledger) {
    return SW_RULE(ledger->row_count <= FACE_CLASSES_MAX)
               ?: (ledger->row_count == 0 ? NULL : sw_ledger_check(&ledger->sum));
}

const char *face_json_check(const face_json *json) {
    return SW_RULE(json->used <= sizeof json->buffer) ?: SW_RULE(json->file >= 0);
}

const char *face_options_check(const face_options *options) {
    return SW_RULE(options->ledger[0] == '/' || options->ledger[0] == '\0')
               ?: SW_RULE(options->ledger_file >= FACE_NO_FILE)
               ?: SW_RULE((unsigned)options->heap.placement <= 3);
}
