/* SPDX-License-Identifier: Apache-2.0 */
/* sw_trace_finish: converts a recording of either form, with its small blocks, to an ordered
 * one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"
#include "trace/reader.h"
#include "trace/retained.h"
#include "trace/writer.h"

/* --- conversion ------------------------------------------------------------------------------- */

/* Keys of which the recorder writes a new value when it has read the resident memory again. */
static const char *const replaced[] = {
    "rss_peak",     "rss_ns",         "rss_malloc", "rss_mapped",    "rss_data",  "rss_file",
    "rss_recorder", "rss_end_malloc", "rss_series", "rss_untouched", "rss_pauses"};
enum { REPLACED = sizeof replaced / sizeof replaced[0] };

static size_t replaced_index(const char *key) {
    size_t i = 0;
    while (i < REPLACED && strcmp(key, replaced[i]) != 0) i++;
    return i;
}

/* Copies the pairs in their order; of a replaced key only the last value. */
static sw_status copy_meta(const swt_notes *notes, sw_trace_writer *writer) {
    size_t last[REPLACED + 1] = {0};
    for (size_t i = 0; i + 1 < notes->meta_used; i += 2)
        last[replaced_index(notes->text + notes->meta[i])] = i;
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i + 1 < notes->meta_used; i += 2) {
        const char *key = notes->text + notes->meta[i];
        size_t index = replaced_index(key);
        if (index == REPLACED || last[index] == i)
            status = sw_trace_set_meta(writer, key, notes->text + notes->meta[i + 1]);
    }
    return status;
}

static sw_status copy_sites(const swt_notes *notes, sw_trace_writer *writer) {
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i < notes->site_count; i++) {
        const swt_site *site = &notes->sites[i];
        const uint64_t *frames = site->depth == 0 ? NULL : notes->frames + site->frame;
        status = swt_writer_site(writer, site->id, frames, site->depth);
    }
    return status;
}

static sw_status copy_modules(const swt_notes *notes, sw_trace_writer *writer) {
    sw_status status = SW_OK;
    for (size_t i = 0; status == SW_OK && i < notes->module_count; i++) {
        const swt_module *from = &notes->modules[i];
        sw_trace_module module = {from->start,
                                  from->end,
                                  from->bias,
                                  notes->text + from->path,
                                  (const uint8_t *)notes->text + from->build_id,
                                  from->build_id_bytes};
        status = swt_writer_module(writer, &module);
    }
    return status;
}

/* --- operations -------------------------------------------------------------------------------
 * One thread puts operations in order while another encodes, compresses and writes earlier ones.
 * The two halves take about the same time. */

enum { PART_BATCHES = 8 }; /* a part takes milliseconds, starting a thread much less */

/* Operations that a separate thread writes. */
typedef struct part {
    sw_trace_writer *writer;
    sw_op *ops; /* room for PART_BATCHES batches */
    size_t count;
    bool running;
    sw_os_thread thread;
    sw_status status;
    const char *op; /* name of the failed function, if any */
    char message[512];
} part;

static void write_part(void *arg) {
    part *p = arg;
    p->status = swt_writer_append_known(p->writer, p->ops, p->count);
    if (p->status == SW_OK) return;
    p->op = sw_last_error()->op;
    snprintf(p->message, sizeof p->message, "%s", sw_last_error()->message);
}

/* Waits until the part is written, if a thread is writing it. */
static sw_status end_part(part *p) {
    if (!p->running) return SW_OK;
    p->running = false;
    sw_os_thread_join(&p->thread);
    return p->status == SW_OK ? SW_OK : sw_fail(p->status, p->op, "%s", p->message);
}

/* Starts to write a part. This thread writes a short one, to save a thread. */
static sw_status begin_part(part *p) {
    p->running = p->count > SW_TRACE_OPS_MAX && sw_os_thread_start(&p->thread, write_part, p);
    return p->running ? SW_OK : swt_writer_append_known(p->writer, p->ops, p->count);
}

/* Fills the part with the next operations of the source; count 0: the source is at its end. A batch
 * of a raw recording ends where a point of `retained` is to be counted. */
static sw_status fill_part(part *p, swt_source *source, swt_retained *retained) {
    sw_op *own = source->ops;
    sw_status status = SW_OK;
    p->count = 0;
    for (size_t i = 0, count = 1; status == SW_OK && count != 0 && i < PART_BATCHES; i++) {
        source->ops = p->ops + p->count;
        source->merge.pause_ns = swt_retained_next_ns(retained);
        status = swt_source_next(source, &count);
        if (status == SW_OK &&
            !swt_retained_add(retained, source->ops, count, &source->merge.addresses))
            status = swt_file_no_memory(source->file);
        p->count += status == SW_OK ? count : 0;
    }
    source->ops = own;
    return status;
}

static sw_status copy_parts(part parts[2], swt_source *source, swt_retained *retained,
                            const volatile int *cancel, volatile uint64_t *done) {
    for (size_t i = 0;; i ^= 1) {
        if (cancel != NULL && *cancel != 0)
            return sw_fail(SW_STATE, "sw_trace_finish", "cancelled: nothing was written");
        sw_status status = fill_part(&parts[i], source, retained);
        if (status == SW_OK) status = end_part(&parts[i ^ 1]);
        if (status != SW_OK || parts[i].count == 0) return status;
        if (done != NULL) *done += parts[i].count;
        status = begin_part(&parts[i]);
        if (status != SW_OK) return status;
    }
}

static sw_status copy_ops(swt_source *source, swt_retained *retained, sw_trace_writer *writer,
                          const volatile int *cancel, volatile uint64_t *done) {
    part parts[2] = {{.writer = writer}, {.writer = writer}};
    sw_status status = swt_writer_append_known(writer, NULL, 0); /* file header and META */
    for (int i = 0; i < 2; i++) {
        parts[i].ops = malloc((size_t)PART_BATCHES * SW_TRACE_OPS_MAX * sizeof(sw_op));
        if (parts[i].ops == NULL) status = swt_file_no_memory(source->file);
    }
    if (status == SW_OK) status = copy_parts(parts, source, retained, cancel, done);
    for (int i = 0; i < 2; i++) {
        sw_status ended = end_part(&parts[i]);
        if (status == SW_OK) status = ended;
        free(parts[i].ops);
    }
    return status;
}

/* --- all of it -------------------------------------------------------------------------------- */

static sw_status copy_all(swt_source *source, sw_trace_writer *writer, const volatile int *cancel,
                          volatile uint64_t *done) {
    const swt_notes *notes = &source->file->notes;
    swt_retained retained = {0};
    if (source->file->header.form == SW_TRACE_RAW) swt_retained_init(&retained, notes);
    sw_status status = copy_meta(notes, writer);
    if (status == SW_OK) status = copy_ops(source, &retained, writer, cancel, done);
    if (status == SW_OK && !swt_retained_end(&retained, &source->merge.addresses))
        status = swt_file_no_memory(source->file);
    if (status == SW_OK) status = swt_retained_write(&retained, writer);
    swt_retained_free(&retained);
    if (status == SW_OK) status = copy_sites(notes, writer);
    if (status == SW_OK) status = copy_modules(notes, writer);
    sw_trace_summary stated = {0};
    swt_source_complete(source, &stated);
    swt_writer_set_summary(writer, &stated);
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
    swt_file_close(&file); /* before the rename, because the two paths may be equal */
    if (status == SW_OK) return sw_trace_commit(writer, out);
    sw_trace_abort(writer);
    return status;
}
