/* SPDX-License-Identifier: Apache-2.0 */
/* The public writer of ordered recordings (spanwise/trace.h): checks operations, replaces the
 * caller's object ids by those of the file, encodes blocks, and renames the finished file to its
 * path.
 */
#include "trace/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"
#include "trace/format.h"

/* Checks a writer that has not failed. Returns the first broken rule, or NULL (base/base.h). */
static const char *sw_trace_writer_record_check(const struct sw_trace_writer *writer) {
    return SW_RULE(writer->state.count == writer->totals.sum.ops)
               ?: SW_RULE(writer->columns.count <= writer->state.count)
               ?: SW_RULE(writer->headed || !writer->started)
               ?: SW_RULE(writer->object_capacity == 0 || writer->objects != NULL)
               ?: swt_buffer_check(&writer->small)
               ?: swt_ops_state_check(&writer->state)
               ?: swt_ops_columns_check(&writer->columns)
               ?: swt_totals_check(&writer->totals);
}

enum {
    SMALL_BYTES = 256 * 1024, /* per small block; more entries go to more blocks */
    /* The caller's ids may exceed 16 times the number of its allocations by this much. A larger id
     * is an error, so that it cannot cause an array of gigabytes. */
    DENSE_SLACK = 1 << 20,
    KNOWN_FLAGS = SW_OP_ZEROED | SW_OP_SCAN,
};

/* --- files ------------------------------------------------------------------------------------ */

static sw_status io_failed(sw_trace_writer *w, const char *what) {
    int error = errno;
    size_t length = strlen(w->path);
    w->failed = true;
    return sw_fail(SW_IO, "sw_trace_write", "%s%s: cannot %s: %s; nothing was left there",
                   length > 100 ? "..." : "", length > 100 ? w->path + length - 100 : w->path, what,
                   strerror(error));
}

static sw_status put(sw_trace_writer *w, const void *data, size_t bytes) {
    if (bytes == 0 || fwrite(data, 1, bytes, w->stream) == bytes) return SW_OK;
    return io_failed(w, "write the recording");
}

static sw_status write_block(sw_trace_writer *w, swt_block_kind kind, const void *payload,
                             size_t bytes) {
    const uint8_t *block;
    size_t length = swt_encode_block(w->encoder, kind, payload, bytes, &block);
    return put(w, block, length);
}

/* Writes the small block in progress; before it, once, the file header. */
static sw_status swt_writer_end_small(sw_trace_writer *w) {
    uint8_t bytes[SWT_FILE_HEADER_BYTES];
    swt_header header = {.version = SW_TRACE_VERSION, .form = SW_TRACE_ORDERED};
    sw_status status = SW_OK;
    swt_header_encode(bytes, &header);
    if (!w->headed) status = put(w, bytes, sizeof bytes);
    w->headed = true;
    if (status == SW_OK && w->small.used != 0)
        status = write_block(w, w->small_kind, w->small.data, w->small.used);
    w->small.used = 0;
    return status;
}

static sw_status start(sw_trace_writer *w) {
    if (w->started) return SW_OK;
    w->started = true;
    return swt_writer_end_small(w);
}

static sw_status open_stream(sw_trace_writer *w, const char *asked) {
    size_t bytes = strlen(asked) + SW_OS_PATH_BYTES;
    char *path = w->path = malloc(bytes);
    if (path == NULL) return sw_fail(SW_NOMEM, "sw_trace_create", "out of memory");
    if (!sw_os_output_path(asked, path, bytes)) { /* a rename would replace /dev/null */
        memcpy(path, asked, strlen(asked) + 1);
        w->stream = fopen(path, "wb");
        return w->stream != NULL ? SW_OK : io_failed(w, "open");
    }
    size_t length = strlen(path);
    w->part = malloc(length + 32);
    if (w->part == NULL) return sw_fail(SW_NOMEM, "sw_trace_create", "out of memory");
    for (unsigned attempt = 0; attempt < 100 && w->stream == NULL; attempt++) {
        snprintf(w->part, length + 32, "%s.%" PRIu64 ".%u.part", path,
                 sw_os_process_id() % 10000000, attempt);
        w->stream = fopen(w->part, "wbx");
        if (w->stream == NULL && errno != EEXIST) break;
    }
    if (w->stream != NULL) return SW_OK;
    sw_status status = io_failed(w, "create a file next to it");
    free(w->part);
    w->part = NULL; /* another process's file, which is not removed */
    return status;
}

static sw_status allocate(sw_trace_writer *w) {
    size_t bytes = (swt_encoder_bytes() + SW_CACHE_LINE - 1) & ~(size_t)(SW_CACHE_LINE - 1);
    w->memory = aligned_alloc(SW_CACHE_LINE, bytes);
    w->columns.scratch = malloc(SWT_OPS_SCRATCH_BYTES);
    w->small.data = malloc(SMALL_BYTES);
    w->small.capacity = SMALL_BYTES;
    if (w->memory == NULL || w->columns.scratch == NULL || w->small.data == NULL)
        return sw_fail(SW_NOMEM, "sw_trace_create", "out of memory");
    w->encoder = swt_encoder_init(w->memory, bytes);
    if (!swt_encoder_compress(w->encoder))
        return sw_fail(SW_NOMEM, "sw_trace_create", "out of memory");
    swt_ops_begin(&w->columns);
    return SW_OK;
}

static sw_status writer_status(const sw_trace_writer *w, const char *op) {
    return sw_handle_status(w, offsetof(sw_trace_writer, mark), SW_HANDLE_WRITER, op);
}

static void end(sw_trace_writer *w) {
    sw_handle_end(&w->mark, SW_HANDLE_WRITER);
    if (w->stream != NULL) fclose(w->stream);
    if (w->part != NULL) remove(w->part);
    free(w->path);
    free(w->part);
    swt_encoder_end(w->encoder);
    free(w->memory);
    free(w->columns.scratch);
    free(w->small.data);
    free(w->objects);
    swt_ids_free(&w->state.ids);
    swt_totals_free(&w->totals);
    sw_handle_retire(w, sizeof *w, sizeof w->mark, SW_HANDLE_WRITER);
}

sw_status sw_trace_create(const char *path, sw_trace_writer **out) {
    if (path == NULL || out == NULL || *path == '\0')
        return sw_fail(SW_INVALID, "sw_trace_create", "path or result is missing");
    sw_trace_writer *w = sw_os_map(sizeof *w);
    if (w == NULL) return sw_fail(SW_NOMEM, "sw_trace_create", "out of memory");
    sw_handle_begin(&w->mark, SW_HANDLE_WRITER);
    sw_status status = allocate(w);
    if (status == SW_OK) status = open_stream(w, path);
    if (status != SW_OK) {
        end(w);
        return status;
    }
    *out = w;
    return SW_OK;
}

void sw_trace_abort(sw_trace_writer *w) {
    if (w != NULL && writer_status(w, "sw_trace_abort") == SW_OK) end(w);
}

/* --- operations ------------------------------------------------------------------------------- */

static const char *check_end(const sw_trace_writer *w, const sw_op *op) {
    if (op->size != 0 || op->object != 0 || op->site != 0 || op->align_log2 != 0 || op->flags != 0)
        return "a THREAD_END has a time and a thread, nothing else";
    return op->thread < w->state.threads ? NULL : "its thread made no operation";
}

/* Checks an operation by itself and against the current state. Returns NULL, or what is wrong. */
static const char *check_op(const sw_trace_writer *w, const sw_op *op) {
    if (op->kind >= SW_OP_KIND_COUNT) return "its kind is unknown";
    if ((op->flags & ~(unsigned)KNOWN_FLAGS) != 0) return "its flags are unknown";
    if (op->time_ns < w->state.time_ns) return "its time is before the last operation's";
    if (op->thread > w->state.threads) return "its thread id skips (a new thread has the next id)";
    if (op->thread == UINT32_MAX) return "its thread id is too large";
    if (op->align_log2 > SWT_ALIGN_LOG2_MAX) return "its alignment is above 2^47";
    if (op->size > INT64_MAX) return "its size is above 2^63 - 1";
    if (op->kind == SW_OP_FREE && (op->size != 0 || op->align_log2 != 0 || op->flags != 0))
        return "a FREE has no size, alignment or flags";
    if (op->kind == SW_OP_THREAD_END) return check_end(w, op);
    if (op->object > w->totals.sum.allocs * 16 + DENSE_SLACK) return "its object id is not dense";
    return NULL;
}

/* Stores the file's id for the caller's object to *id. Returns NULL, or what is wrong. */
static const char *rename_object(sw_trace_writer *w, const sw_op *op, uint32_t *id) {
    if (op->kind == SW_OP_THREAD_END) return NULL;
    uint32_t known = op->object < w->object_capacity ? w->objects[op->object] : 0;
    *id = known - 1;
    if (op->kind == SW_OP_REALLOC || op->kind == SW_OP_FREE) {
        if (known == 0) return "its object is not live";
        if (op->kind == SW_OP_FREE) {
            w->objects[op->object] = 0;
            swt_ids_give(&w->state.ids, *id);
        }
        return NULL;
    }
    if (known != 0) return "its object is live already";
    if (!swt_grow(&w->objects, &w->object_capacity, (size_t)op->object + 1, sizeof *w->objects) ||
        !swt_ids_take(&w->state.ids, id))
        return swt_no_memory;
    w->objects[op->object] = *id + 1;
    return NULL;
}

static sw_status flush(sw_trace_writer *w) {
    const uint8_t *out;
    sw_check2(sw_trace_writer_record_check(w));
    if (w->columns.count == 0) return SW_OK;
    swt_block block = {.kind = SWT_BLOCK_OPS,
                       .count = w->columns.count,
                       .first = w->state.count - w->columns.count};
    size_t bytes = swt_ops_end(&w->columns);
    bytes = swt_seal(w->encoder, &block, w->columns.scratch, bytes, &out);
    sw_status status = put(w, out, bytes);
    swt_ops_begin(&w->columns);
    return status;
}

static sw_status append_one(sw_trace_writer *w, const sw_op *op) {
    sw_op renamed = *op;
    const char *wrong = check_op(w, op);
    if (wrong == NULL) wrong = rename_object(w, op, &renamed.object);
    if (wrong != NULL) {
        w->failed = true;
        if (wrong == swt_no_memory) return sw_fail(SW_NOMEM, "sw_trace_append", "%s", wrong);
        return sw_fail(SW_INVALID, "sw_trace_append",
                       "operation %" PRIu64 " (kind %d, object %" PRIu32 "): %s", w->state.count,
                       op->kind, op->object, wrong);
    }
    if (swt_totals_add(&w->totals, &renamed, 1) != SW_OK) {
        w->failed = true;
        return sw_fail(SW_NOMEM, "sw_trace_append", "%s", swt_no_memory);
    }
    if (op->thread == w->state.threads) w->state.threads++;
    swt_ops_put(&w->columns, &w->state, &renamed);
    w->state.count++;
    return w->columns.count == SW_TRACE_OPS_MAX ? flush(w) : SW_OK;
}

sw_status sw_trace_append(sw_trace_writer *w, const sw_op *ops, size_t count) {
    sw_status known = writer_status(w, "sw_trace_append");
    if (known != SW_OK) return known;
    if (ops == NULL && count != 0) return sw_fail_null("sw_trace_append", "ops");
    if (w->failed)
        return sw_fail(SW_STATE, "sw_trace_append", "the recording failed before: abort it");
    sw_status status = start(w);
    for (size_t i = 0; status == SW_OK && i < count; i++) status = append_one(w, &ops[i]);
    return status;
}

/* The operations are valid, and their objects have the ids of the file. */
sw_status swt_writer_append_known(sw_trace_writer *w, const sw_op *ops, size_t count) {
    sw_status status = start(w);
    w->state.gives_no_ids = true;
    for (size_t n; status == SW_OK && count != 0; ops += n, count -= n) {
        n = (size_t)sw_min_u64(count, SW_TRACE_OPS_MAX - w->columns.count);
        if (swt_totals_add(&w->totals, ops, n) != SW_OK) {
            w->failed = true;
            return sw_fail(SW_NOMEM, "sw_trace_append", "%s", swt_no_memory);
        }
        for (size_t i = 0; i < n; i++) {
            sw_check2(check_op(w, &ops[i]));
            if (ops[i].thread == w->state.threads) w->state.threads++;
            swt_ops_put(&w->columns, &w->state, &ops[i]);
        }
        w->state.count += n;
        if (w->columns.count == SW_TRACE_OPS_MAX) status = flush(w);
    }
    return status;
}

/* --- the end ---------------------------------------------------------------------------------- */

void swt_writer_set_summary(sw_trace_writer *w, const sw_trace_summary *given) {
    w->given = *given;
}

static void complete(sw_trace_writer *w) {
    sw_trace_summary *sum = &w->totals.sum;
    const sw_trace_summary *given = &w->given;
    sum->sites = given->sites;
    sum->unknown_frees = given->unknown_frees;
    sum->unknown_reallocs = given->unknown_reallocs;
    sum->missed_frees = given->missed_frees;
    sum->calls = given->calls;
    sum->dropped_calls = given->dropped_calls;
    sum->drop_reason = given->drop_reason;
    sum->children_unrecorded = given->children_unrecorded;
    sum->children_recorded = given->children_recorded;
    sum->incomplete = given->incomplete;
}

static sw_status write_summary(sw_trace_writer *w) {
    uint64_t fields[SWT_SUMMARY_FIELDS];
    uint8_t payload[sizeof fields];
    complete(w);
    memcpy(fields, &w->totals.sum, sizeof fields);
    for (size_t i = 0; i < SWT_SUMMARY_FIELDS; i++) swt_put64(payload + 8 * i, fields[i]);
    return write_block(w, SWT_BLOCK_SUMMARY, payload, sizeof payload);
}

static sw_status put_in_place(sw_trace_writer *w) {
    int closed = fclose(w->stream);
    w->stream = NULL;
    if (closed != 0) return io_failed(w, "write the recording");
    if (w->part == NULL) return SW_OK;
    if (rename(w->part, w->path) != 0) return io_failed(w, "put the recording in place");
    free(w->part);
    w->part = NULL;
    return SW_OK;
}

sw_status sw_trace_commit(sw_trace_writer *w, sw_trace_summary *out) {
    sw_status known = writer_status(w, "sw_trace_commit");
    if (known != SW_OK) return known;
    sw_status status = SW_OK;
    if (w->failed)
        status =
            sw_fail(SW_STATE, "sw_trace_commit", "the recording failed before: nothing written");
    if (status == SW_OK) status = start(w);
    if (status == SW_OK) status = flush(w);
    if (status == SW_OK) status = swt_writer_end_small(w);
    if (status == SW_OK) status = write_summary(w);
    if (status == SW_OK) status = put_in_place(w);
    if (status == SW_OK && out != NULL) *out = w->totals.sum;
    end(w); /* frees everything; after success there is no temporary file to remove */
    return status;
}

/* --- small blocks ----------------------------------------------------------------------------- */

/* Small blocks of a writer: metadata, call sites and modules. Entries of one kind are collected; a
 * block is written when it is full or when an entry of another kind follows. */

/* Begins a small block of a kind, unless it is in progress. */
static sw_status begin(sw_trace_writer *w, swt_block_kind kind) {
    sw_status status = w->small_kind == kind ? SW_OK : swt_writer_end_small(w);
    w->small_kind = kind;
    return status;
}

static sw_status small_status(const sw_trace_writer *w, const char *op) {
    sw_status known = sw_handle_status(w, offsetof(sw_trace_writer, mark), SW_HANDLE_WRITER, op);
    if (known != SW_OK || !w->started) return known;
    return sw_fail(SW_STATE, op,
                   "metadata, call sites and modules come before the first operation");
}

sw_status sw_trace_set_meta(sw_trace_writer *w, const char *key, const char *value) {
    sw_status status = small_status(w, "sw_trace_set_meta");
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
    sw_status status = small_status(w, "sw_trace_add_site");
    if (status != SW_OK) return status;
    const char *wrong = check_site(w, site, addresses, depth);
    if (wrong != NULL)
        return sw_fail(SW_INVALID, "sw_trace_add_site", "call site %" PRIu32 ": %s", site, wrong);
    w->last_site = site;
    w->given.sites++;
    return swt_writer_site(w, site, addresses, (uint32_t)depth);
}

sw_status sw_trace_add_module(sw_trace_writer *w, const sw_trace_module *module) {
    sw_status status = small_status(w, "sw_trace_add_module");
    if (status != SW_OK) return status;
    if (module == NULL || module->path == NULL || module->start >= module->end ||
        strlen(module->path) >= SWT_MODULE_PATH_MAX ||
        module->build_id_bytes > SWT_MODULE_BUILD_ID_MAX)
        return sw_fail(SW_INVALID, "sw_trace_add_module",
                       "a module has a range, a path below %d bytes and a build id of at most %d",
                       SWT_MODULE_PATH_MAX, SWT_MODULE_BUILD_ID_MAX);
    return swt_writer_module(w, module);
}
