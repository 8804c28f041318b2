/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the recorder's structs, as the headers state them. See base/base.h. */
#include "base/base.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/meta.h"
#include "recorder/python.h"
#include "recorder/sample.h"
#include "recorder/site.h"
#include "recorder/state.h"
#include "recorder/thread.h"

const char *record_descriptor_check(const record_descriptor *file) {
    return SW_RULE(file->fd >= -1) ?: SW_RULE(file->fd < 0 || file->path[0] == '/');
}

const char *record_options_check(const record_options *options) {
    return SW_RULE(options->stacks <= SWT_SITE_DEPTH_MAX)
               ?: SW_RULE(options->python_stacks <= SWT_SITE_DEPTH_MAX)
               ?: SW_RULE(options->shallow ==
                          (options->stacks == 1 && options->python_stacks == 0))
               ?: SW_RULE(options->file[0] == '/' || options->file[0] == '\0');
}

const char *record_thread_check(const record_thread *thread) {
    uint32_t phase = __atomic_load_n(&thread->phase, __ATOMIC_RELAXED);
    return SW_RULE(phase <= RECORD_OWN)
               ?: SW_RULE(__atomic_load_n(&thread->taken, __ATOMIC_RELAXED) <= 1)
               ?: SW_RULE(thread->stride <= RECORD_STRIDE_MAX)
               ?: SW_RULE(thread->until_reading <= thread->stride)
               ?: SW_RULE(thread->uncounted <= swt_raw_count(&thread->raw))
               ?: swt_raw_check(&thread->raw);
}

const char *record_chunk_check(const record_chunk *chunk) {
    return SW_RULE(chunk->left <= RECORD_CHUNK_BYTES)
               ?: SW_RULE(chunk->next != NULL || chunk->left < sizeof(record_thread));
}

const char *record_samples_check(const record_samples *samples) {
    for (uint32_t b = 0; b < 1u << RECORD_BUCKETS_LOG2; b++) {
        const uint64_t *in = samples->buckets[b];
        bool empty = true, twice = false;
        for (uint32_t i = 0; i < RECORD_BUCKET_OBJECTS; i++) {
            empty = empty && in[i] == 0;
            for (uint32_t j = 0; j < i; j++) twice = twice || (in[i] != 0 && in[i] == in[j]);
        }
        const char *broken =
            SW_RULE(empty == ((samples->used[b / 64] >> b % 64 & 1) == 0)) ?: SW_RULE(!twice);
        if (broken != NULL) return broken;
    }
    return NULL;
}

const char *record_sites_check(const record_sites *sites) {
    return SW_RULE(sites->count <= (1u << sites->bits) / 4 * 3)
               ?: SW_RULE(sites->buffer.data != NULL)
               ?: swt_buffer_check(&sites->buffer);
}

const char *record_walk_check(const record_walk *walk) {
    return SW_RULE(walk->site == 0 || walk->walk.count <= SW_OS_WORDS_MAX);
}

const char *record_interpreter_check(const record_interpreter *interpreter) {
    return SW_RULE(interpreter->found <= (1u << RECORD_PYTHON_CODE_BITS) / 4 * 3)
               ?: SW_RULE(interpreter->numbered <= RECORD_PYTHON_CODES_MAX)
               ?: SW_RULE(!interpreter->on || interpreter->codes != NULL);
}

const char *record_areas_check(const record_areas *areas) {
    return SW_RULE(areas->count <= RECORD_AREAS_MAX)
               ?: SW_RULE(areas->count >= 1 || areas->sites == NULL)
               ?: record_descriptor_check(&areas->file);
}

const char *record_file_check(const record_file *file) {
    return SW_RULE(file->last_offset <= file->offset)
               ?: SW_RULE(file->offset != 0 || file->last_calls == 0)
               ?: record_descriptor_check(&file->at);
}

const char *record_modules_check(const record_modules *modules) {
    return SW_RULE(__atomic_load_n(&modules->busy, __ATOMIC_RELAXED) <= 1)
               ?: SW_RULE(modules->seen_count <= RECORD_SEEN_MAX)
               ?: SW_RULE(modules->whole <= modules->entries.used)
               ?: SW_RULE((modules->buffer == NULL) == (modules->entries.data == NULL))
               ?: SW_RULE((modules->buffer == NULL) == (modules->seen == NULL))
               ?: SW_RULE((modules->buffer == NULL) == (modules->arguments == NULL))
               ?: swt_buffer_check(&modules->entries);
}

const char *record_rss_check(const record_rss *rss) {
    return SW_RULE(__atomic_load_n(&rss->busy, __ATOMIC_RELAXED) <= 1)
               ?: SW_RULE(rss->count <= RECORD_RSS_POINTS)
               ?: SW_RULE(rss->step_ns > 0)
               ?: SW_RULE(rss->count < 2 ||
                          rss->points[rss->count - 2].ns < rss->points[rss->count - 1].ns);
}
