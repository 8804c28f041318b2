/* SPDX-License-Identifier: Apache-2.0 */
/* sw_trace_salvage: reads the events that a program had not written when it ended from the areas
 * (area.h), and appends them to its raw recording, after the last whole block. Every field of an
 * area is checked, because the program may have corrupted it. docs/design/recorder.md.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/base.h"
#include "trace/area.h"
#include "trace/file.h"

static const char op[] = "sw_trace_salvage";

enum { EVENT_ALIGN_MAX = 47 };

typedef struct salvage {
    const char *path;
    swt_file file; /* the recording, opened for its valid prefix */
    FILE *areas;
    size_t area_bytes;
    uint64_t area_count;
    struct swt_area *area; /* the area that was read last */
    FILE *out;
    void *memory; /* of the encoder */
    swt_encoder *encoder;
    uint64_t calls;                      /* in the recording, and in the appended blocks */
    uint64_t drop_reason, dropped_calls; /* of the END that the recorder could not write */
    bool lost; /* some recorded calls are neither in the recording nor in the areas */
} salvage;

static sw_status no_memory(void) { return sw_fail(SW_NOMEM, op, "out of memory"); }

static sw_status io_failed(const salvage *s, const char *what) {
    return sw_fail(SW_IO, op, "%s: cannot %s: %s", s->file.name, what, strerror(errno));
}

/* --- areas ------------------------------------------------------------------------------------ */

static bool read_area(salvage *s, uint64_t index) {
    return fseeko(s->areas, (off_t)(index * s->area_bytes), SEEK_SET) == 0 &&
           fread(s->area, 1, s->area_bytes, s->areas) == s->area_bytes;
}

/* Returns whether a head belongs to an area of call sites whose length fits the file. */
static bool plausible(const struct swt_area *head, uint64_t file_bytes) {
    return head->magic == SWT_AREA_MAGIC && head->kind == SWT_AREA_SITES &&
           head->area_bytes >= swt_area_bytes(1) && head->area_bytes <= SWT_AREA_BYTES_MAX &&
           head->area_bytes <= file_bytes;
}

/* False: there is no file of areas, or no recorder has written its head. */
static bool open_areas(salvage *s, const char *path) {
    struct swt_area head;
    s->areas = fopen(path, "rb");
    if (s->areas == NULL) return false;
    off_t end = fseeko(s->areas, 0, SEEK_END) == 0 ? ftello(s->areas) : -1;
    if (end < 0 || fseeko(s->areas, 0, SEEK_SET) != 0) return false;
    if (fread(&head, 1, sizeof head, s->areas) != sizeof head) return false;
    if (!plausible(&head, (uint64_t)end)) return false;
    s->area_bytes = head.area_bytes;
    s->area_count = (uint64_t)end / head.area_bytes;
    return true;
}

/* Returns how many of the first events are written, valid and in order. A reallocation counts only
 * if both of its events do. */
static uint32_t count_events(const swt_event *events) {
    uint32_t whole = 0;
    bool moving = false;
    for (uint32_t i = 0; i < SWT_RAW_EVENTS_MAX && events[i].word != 0; i++) {
        uint64_t kind = events[i].word >> 48 & 0xFF, align = events[i].word >> 56;
        if (kind >= SWT_RAW_KIND_COUNT || (kind == SWT_RAW_REALLOC_NEW) != moving) break;
        if (align > EVENT_ALIGN_MAX || events[i].size > INT64_MAX) break;
        if (i != 0 && events[i].stamp < events[i - 1].stamp) break;
        moving = kind == SWT_RAW_REALLOC_OLD;
        if (!moving) whole = i + 1;
    }
    return whole;
}

/* --- the recording ---------------------------------------------------------------------------- */

/* Returns whether the thread's block is in the recording already: the program was killed between
 * writing the block and emptying it. */
static bool is_written(const salvage *s, const struct swt_area *area) {
    for (size_t i = 0; i < s->file.entry_count; i++) {
        const swt_entry *entry = &s->file.entries[i];
        if (entry->thread == area->thread && entry->first == area->base_stamp) return true;
    }
    return false;
}

/* Returns whether an event counts as a call. Of a reallocation's two events the second counts. */
static bool is_call(uint64_t kind) { return kind <= SWT_RAW_FREE || kind == SWT_RAW_REALLOC_NEW; }

static uint64_t count_calls(const uint8_t *payload, const swt_block *block) {
    uint64_t calls = 0;
    if (block->raw_bytes < SWT_RAW_HEAD_BYTES + (size_t)block->count) return 0;
    for (uint32_t i = 0; i < block->count; i++)
        calls += is_call(payload[SWT_RAW_HEAD_BYTES + i] & (SWT_RAW_TAG_ALIGNED - 1));
    return calls;
}

static sw_status count_recorded(salvage *s) {
    for (size_t i = 0; i < s->file.entry_count; i++) {
        swt_block block;
        bool whole;
        sw_status status = swt_file_load(&s->file, &s->file.entries[i], &block, &whole);
        if (status != SW_OK) return status;
        if (!whole) break;
        s->calls += count_calls(s->file.payload, &block);
    }
    return SW_OK;
}

static sw_status append(salvage *s, const uint8_t *block, size_t bytes) {
    return fwrite(block, 1, bytes, s->out) == bytes ? SW_OK : io_failed(s, "append to it");
}

/* Returns whether the call sites of the area are in the recording already. They are written all at
 * once with ascending ids, so only the first is searched for. */
static bool are_written(const swt_notes *notes, const uint8_t *entries) {
    return notes->site_count != 0 && swt_get32(entries) <= notes->sites[notes->site_count - 1].id;
}

static sw_status append_sites(salvage *s) {
    const uint8_t *block;
    size_t room = s->area_bytes - sizeof *s->area;
    if (!read_area(s, 0)) return io_failed(s, "read its open blocks");
    s->lost = s->area->lost != 0;
    if (s->area->drop_reason < SWT_DROP_REASON_COUNT) s->drop_reason = s->area->drop_reason;
    if (s->drop_reason != SWT_DROP_NONE) s->dropped_calls = s->area->dropped_calls;
    if (s->area->used == 0) return SW_OK;
    swt_block sites = {.kind = SWT_BLOCK_SITES, .raw_bytes = s->area->used};
    const uint8_t *entries = swt_area_content(s->area);
    if (are_written(&s->file.notes, entries)) return SW_OK;
    if (s->area->used > room ||
        swt_notes_add(&s->file.notes, &sites, entries, s->file.bytes + s->area->used) != NULL) {
        s->lost = true;
        return SW_OK;
    }
    size_t bytes = swt_encode_block(s->encoder, SWT_BLOCK_SITES, entries, s->area->used, &block);
    return append(s, block, bytes);
}

static sw_status append_thread(salvage *s) {
    const uint8_t *block;
    swt_event *events = swt_area_content(s->area);
    uint32_t count = count_events(events);
    if (count == 0 || is_written(s, s->area)) return SW_OK;
    swt_raw raw = {.events = events,
                   .next = events + count,
                   .limit = events + SWT_RAW_EVENTS_MAX,
                   .base_stamp = s->area->base_stamp,
                   .thread = s->area->thread};
    size_t bytes = swt_encode_raw(s->encoder, &raw, 0, &block);
    for (uint32_t i = 0; i < count; i++) s->calls += is_call(events[i].word >> 48 & 0xFF);
    return append(s, block, bytes);
}

static sw_status append_threads(salvage *s) {
    sw_status status = SW_OK;
    for (uint64_t i = 1; status == SW_OK && i < s->area_count; i++) {
        if (!read_area(s, i)) return io_failed(s, "read its open blocks");
        if (s->area->magic == SWT_AREA_MAGIC && s->area->kind == SWT_AREA_THREAD)
            status = append_thread(s);
    }
    return status;
}

/* Appends the END block. It is omitted if an unknown number of calls was lost, so that the
 * recording counts as incomplete. */
static sw_status append_end(salvage *s, uint64_t unrecorded, uint64_t recorded) {
    uint8_t payload[128];
    const uint8_t *block;
    swt_buffer buffer = {.data = payload, .capacity = sizeof payload};
    swt_end end = {.calls = s->calls + s->dropped_calls,
                   .dropped_calls = s->dropped_calls,
                   .drop_reason = s->drop_reason,
                   .children_unrecorded = unrecorded,
                   .children_recorded = recorded};
    if (s->lost && s->drop_reason == SWT_DROP_NONE) return SW_OK;
    (void)swt_put_end(&buffer, &end);
    size_t bytes = swt_encode_block(s->encoder, SWT_BLOCK_END, payload, buffer.used, &block);
    return append(s, block, bytes);
}

/* Opens the recording for appending, after truncating it after its last whole block. */
static sw_status open_out(salvage *s) {
    off_t end = (off_t)(s->file.damaged ? s->file.damage_at : s->file.bytes);
    s->out = fopen(s->path, "rb+");
    if (s->out == NULL || ftruncate(fileno(s->out), end) != 0 || fseeko(s->out, end, SEEK_SET) != 0)
        return io_failed(s, "append to it");
    return SW_OK;
}

static sw_status allocate(salvage *s) {
    size_t bytes = (swt_encoder_bytes() + SW_CACHE_LINE - 1) & ~(size_t)(SW_CACHE_LINE - 1);
    s->area = malloc(s->area_bytes);
    s->memory = aligned_alloc(SW_CACHE_LINE, bytes);
    if (s->area == NULL || s->memory == NULL) return no_memory();
    s->encoder = swt_encoder_init(s->memory, bytes);
    return SW_OK;
}

static sw_status append_all(salvage *s, uint64_t unrecorded, uint64_t recorded) {
    sw_status status = allocate(s);
    if (status == SW_OK) status = count_recorded(s);
    if (status == SW_OK) status = open_out(s);
    if (status == SW_OK) status = append_sites(s);
    if (status == SW_OK) status = append_threads(s);
    if (status == SW_OK) status = append_end(s, unrecorded, recorded);
    if (s->out != NULL && fclose(s->out) != 0 && status == SW_OK)
        status = io_failed(s, "append to it");
    return status;
}

sw_status sw_trace_salvage(const char *path, const char *areas_path, uint64_t children_unrecorded,
                           uint64_t children_recorded) {
    if (path == NULL || areas_path == NULL) return sw_fail(SW_INVALID, op, "a path is NULL");
    salvage s = {.path = path};
    sw_status status = swt_file_open(&s.file, path, true);
    if (status != SW_OK) return status;
    bool cut = s.file.header.form == SW_TRACE_RAW && !s.file.complete;
    if (cut && open_areas(&s, areas_path))
        status = append_all(&s, children_unrecorded, children_recorded);
    if (s.areas != NULL) fclose(s.areas);
    swt_file_close(&s.file);
    free(s.area);
    free(s.memory);
    return status;
}
