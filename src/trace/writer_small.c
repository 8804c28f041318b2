/* SPDX-License-Identifier: Apache-2.0 */
/* Small blocks of a writer: metadata, call sites and modules. Entries of one kind are collected; a
 * block is written when it is full or when an entry of another kind follows. */
#include <inttypes.h>

#include "base/fail.h"
#include "ds/handle.h"
#include "trace/format.h"
#include "trace/writer.h"

/* Begins a small block of a kind, unless it is in progress. */
static sw_status begin(sw_trace_writer *w, swt_block_kind kind) {
    sw_status status = w->small_kind == kind ? SW_OK : swt_writer_end_small(w);
    w->small_kind = kind;
    return status;
}

static sw_status writer_status(const sw_trace_writer *w, const char *op) {
    sw_status known = sw_handle_status(w, offsetof(sw_trace_writer, mark), SW_HANDLE_WRITER, op);
    if (known != SW_OK || !w->started) return known;
    return sw_fail(SW_STATE, op,
                   "metadata, call sites and modules come before the first operation");
}

sw_status sw_trace_set_meta(sw_trace_writer *w, const char *key, const char *value) {
    sw_status status = writer_status(w, "sw_trace_set_meta");
    if (status != SW_OK) return status;
    if (key == NULL || value == NULL) return sw_fail_null("sw_trace_set_meta", "key or value");
    return swt_writer_meta(w, key, value);
}

sw_status swt_writer_meta(sw_trace_writer *w, const char *key, const char *value) {
    sw_status status = begin(w, SWT_BLOCK_META);
    if (status != SW_OK || swt_put_meta(&w->small, key, value)) return status;
    status = swt_writer_end_small(w);
    if (status != SW_OK || swt_put_meta(&w->small, key, value)) return status;
    return sw_fail(SW_LIMIT, "sw_trace_set_meta", "a pair of more than %zu bytes",
                   w->small.capacity);
}

/* The buffer is far longer than any site or module, so an entry fits when the buffer is empty. */
sw_status swt_writer_site(sw_trace_writer *w, uint32_t site, const uint64_t *addresses,
                          uint32_t depth) {
    sw_status status = begin(w, SWT_BLOCK_SITES);
    if (status != SW_OK || swt_put_site(&w->small, site, addresses, depth)) return status;
    status = swt_writer_end_small(w);
    if (status == SW_OK) swt_put_site(&w->small, site, addresses, depth);
    return status;
}

static bool put_module(sw_trace_writer *w, const sw_trace_module *module) {
    return swt_put_module(&w->small, module->start, module->end, module->bias, module->path,
                          module->build_id, (uint32_t)module->build_id_bytes);
}

sw_status swt_writer_module(sw_trace_writer *w, const sw_trace_module *module) {
    sw_status status = begin(w, SWT_BLOCK_MODULES);
    if (status != SW_OK || put_module(w, module)) return status;
    status = swt_writer_end_small(w);
    if (status == SW_OK) put_module(w, module);
    return status;
}

/* Returns what is wrong with a call site, or NULL. */
static const char *check_site(const sw_trace_writer *w, uint32_t site, const uint64_t *addresses,
                              size_t depth) {
    if (site <= w->last_site) return "ids of call sites start at 1 and rise";
    if (site > SWT_SITES_MAX) return "the id is above 2^24";
    if (depth > SWT_SITE_DEPTH_MAX) return "it has more than 128 addresses";
    return addresses == NULL && depth != 0 ? "its addresses are missing" : NULL;
}

sw_status sw_trace_add_site(sw_trace_writer *w, uint32_t site, const uint64_t *addresses,
                            size_t depth) {
    sw_status status = writer_status(w, "sw_trace_add_site");
    if (status != SW_OK) return status;
    const char *wrong = check_site(w, site, addresses, depth);
    if (wrong != NULL)
        return sw_fail(SW_INVALID, "sw_trace_add_site", "call site %" PRIu32 ": %s", site, wrong);
    w->last_site = site;
    w->given.sites++;
    return swt_writer_site(w, site, addresses, (uint32_t)depth);
}

sw_status sw_trace_add_module(sw_trace_writer *w, const sw_trace_module *module) {
    sw_status status = writer_status(w, "sw_trace_add_module");
    if (status != SW_OK) return status;
    if (module == NULL || module->path == NULL || module->start >= module->end ||
        strlen(module->path) >= SWT_MODULE_PATH_MAX ||
        module->build_id_bytes > SWT_MODULE_BUILD_ID_MAX)
        return sw_fail(SW_INVALID, "sw_trace_add_module",
                       "a module has a range, a path below %d bytes and a build id of at most %d",
                       SWT_MODULE_PATH_MAX, SWT_MODULE_BUILD_ID_MAX);
    return swt_writer_module(w, module);
}
