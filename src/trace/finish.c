/* SPDX-License-Identifier: Apache-2.0 */
/* sw_trace_finish: a recording of either form -> an ordered recording with all its notes. */
#include <stdlib.h>

#include "base/fail.h"
#include "trace/source.h"
#include "trace/writer.h"

enum { SMALL_BLOCK_BYTES = 64 * 1024 };

/* Gathers entries of one kind of small block and writes each block when it is full. */
typedef struct gather {
    sw_trace_writer *writer;
    swt_block_kind kind;
    swt_buffer buffer;
} gather;

static sw_status flush(gather *g) {
    if (g->buffer.used == 0) return SW_OK;
    sw_status status = swt_writer_block(g->writer, g->kind, g->buffer.data, g->buffer.used);
    g->buffer.used = 0;
    return status;
}

static sw_status copy_meta(const swt_notes *notes, sw_trace_writer *writer) {
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i + 1 < notes->meta_used; i += 2)
        status = sw_trace_set_meta(writer, notes->text + notes->meta[i],
                                   notes->text + notes->meta[i + 1]);
    return status;
}

static sw_status copy_sites(const swt_notes *notes, gather *g) {
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i < notes->site_count; i++) {
        const swt_site *site = &notes->sites[i];
        const uint64_t *frames = site->depth == 0 ? NULL : notes->frames + site->frame;
        if (swt_put_site(&g->buffer, site->id, frames, site->depth)) continue;
        status = flush(g);
        swt_put_site(&g->buffer, site->id, frames, site->depth);
    }
    return status == SW_OK ? flush(g) : status;
}

static bool put_module(gather *g, const swt_notes *notes, const swt_module *module) {
    return swt_put_module(&g->buffer, module->start, module->end, module->bias,
                          notes->text + module->path, notes->text + module->build_id,
                          (uint32_t)module->build_id_bytes);
}

static sw_status copy_modules(const swt_notes *notes, gather *g) {
    sw_status status = SW_OK;
    g->kind = SWT_BLOCK_MODULES;
    for (size_t i = 0; status == SW_OK && i < notes->module_count; i++) {
        if (put_module(g, notes, &notes->modules[i])) continue;
        status = flush(g);
        put_module(g, notes, &notes->modules[i]);
    }
    return status == SW_OK ? flush(g) : status;
}

static sw_status copy_ops(swt_source *source, sw_trace_writer *writer, const volatile int *cancel,
                          volatile uint64_t *done) {
    for (size_t count = 1; count != 0;) {
        if (cancel != NULL && *cancel != 0)
            return sw_fail(SW_STATE, "sw_trace_finish", "cancelled: nothing was written");
        sw_status status = swt_source_next(source, &count);
        if (status == SW_OK) status = sw_trace_append(writer, source->ops, count);
        if (status != SW_OK) return status;
        if (done != NULL) *done += count;
    }
    return SW_OK;
}

static sw_status copy_all(swt_source *source, sw_trace_writer *writer, const volatile int *cancel,
                          volatile uint64_t *done) {
    const swt_notes *notes = &source->file->notes;
    gather g = {writer, SWT_BLOCK_SITES, {malloc(SMALL_BLOCK_BYTES), 0, SMALL_BLOCK_BYTES}};
    if (g.buffer.data == NULL) return swt_file_no_memory(source->file);
    sw_status status = copy_meta(notes, writer);
    if (status == SW_OK) status = copy_ops(source, writer, cancel, done);
    if (status == SW_OK) status = copy_sites(notes, &g);
    if (status == SW_OK) status = copy_modules(notes, &g);
    free(g.buffer.data);
    sw_trace_summary told = {0};
    swt_source_complete(source, &told);
    swt_writer_set_summary(writer, &told);
    return status;
}

sw_status sw_trace_finish(const char *path, const char *out_path, unsigned flags,
                          const volatile int *cancel, volatile uint64_t *done,
                          sw_trace_summary *out) {
    if (path == NULL || out_path == NULL || (flags & ~(unsigned)SW_TRACE_VALID_PREFIX) != 0)
        return sw_fail(SW_INVALID, "sw_trace_finish", "a path is NULL, or flags 0x%x unknown",
                       flags);
    swt_file file;
    swt_source source;
    sw_trace_writer *writer = NULL;
    sw_status status = swt_file_open(&file, path, (flags & SW_TRACE_VALID_PREFIX) != 0);
    if (status != SW_OK) return status;
    status = swt_source_init(&source, &file);
    if (status == SW_OK) {
        status = sw_trace_create(out_path, &writer);
        if (status == SW_OK) status = copy_all(&source, writer, cancel, done);
        swt_source_free(&source);
    }
    swt_file_close(&file); /* before the rename: the paths may be the same */
    if (status == SW_OK) return sw_trace_commit(writer, out);
    sw_trace_abort(writer);
    return status;
}
