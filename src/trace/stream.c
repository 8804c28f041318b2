/* SPDX-License-Identifier: Apache-2.0 */
/* The events of one thread's RAW blocks. When a block is loaded, the number of varints in its
 * columns is checked, so that reading an event needs no bounds checks. docs/design/trace.md. */
#include <stdlib.h>

#include "base/assert.h"
#include "trace/merge.h"

enum { OPEN_MAX = 1 << 16 }; /* threads with a loaded block at once; bounds the memory */

/* Returns how many varints the size column must have; SIZE_MAX: a tag is impossible. */
static size_t check_tags(const uint8_t *tags, size_t count) {
    size_t sizes = 0;
    bool moving = false;
    for (size_t i = 0; i < count; i++) {
        uint32_t kind = tags[i] & (SWT_RAW_TAG_ALIGNED - 1);
        bool aligned = (tags[i] & SWT_RAW_TAG_ALIGNED) != 0;
        if (kind >= SWT_RAW_KIND_COUNT || tags[i] >= 2 * SWT_RAW_TAG_ALIGNED) return SIZE_MAX;
        if (aligned && kind > SWT_RAW_CALLOC) return SIZE_MAX;
        if ((kind == SWT_RAW_REALLOC_NEW) != moving) return SIZE_MAX;
        moving = kind == SWT_RAW_REALLOC_OLD;
        sizes += (size_t)swt_raw_has_size(kind) + (size_t)aligned;
    }
    return moving ? SIZE_MAX : sizes;
}

static const char *open_columns(swt_stream *s, size_t bytes, size_t count) {
    const uint8_t *head = s->payload;
    if (bytes < SWT_RAW_HEAD_BYTES + count) return "columns of a block are cut short";
    s->flags = head[0];
    s->tick_shift = head[1];
    s->address_shift = head[2];
    s->last_ticks = swt_get64(head + 8);
    s->last_address = 0;
    if (s->flags > 7 || s->tick_shift > 63 || s->address_shift > 47)
        return "impossible head of a block";
    s->tag = head + SWT_RAW_HEAD_BYTES;
    size_t sizes = check_tags(s->tag, count);
    if (sizes == SIZE_MAX) return "unknown kind of event";
    bool stamps = (s->flags & SWT_RAW_FLAG_STAMPS) != 0, sites = s->flags & SWT_RAW_FLAG_SITES;
    size_t wanted[] = {count, sizes, count, stamps ? count : 0, sites ? count : 0};
    const uint8_t **starts[] = {&s->address, &s->size, &s->ticks, &s->stamp, &s->site};
    const uint8_t *at = s->tag + count, *end = head + bytes;
    for (int i = 0; i < SWT_RAW_COLUMNS; i++) {
        size_t length = swt_get32(head + 16 + 4 * i);
        if (length > (size_t)(end - at) || !swt_varints_whole(at, length, wanted[i]))
            return "a column of a block has the wrong length";
        *starts[i] = at;
        at += length;
    }
    return at == end ? NULL : "bytes are left over in a block";
}

/* Computes the stamp of the next event. `stamp` is that of the last event; for the first event it
 * is the block's first stamp. */
static bool advance_stamp(swt_stream *s, uint64_t stamp, bool first) {
    bool bad = false;
    if (s->flags & SWT_RAW_FLAG_TICKS_ARE_STAMPS) {
        uint64_t step = swt_varint_get(&s->ticks, &bad);
        bad |= step > UINT64_MAX - s->last_ticks;
        stamp = s->last_ticks += step;
    } else if (s->flags & SWT_RAW_FLAG_STAMPS) {
        stamp += swt_varint_get(&s->stamp, &bad);
    } else {
        stamp += !first;
    }
    if (stamp > s->next_stamp) s->next_stamp = stamp;
    return !bad;
}

static void release(swt_merge *merge, swt_stream *s) {
    s->left = 0;
    if (s->payload != NULL) merge->open_count--;
    free(s->payload);
    s->payload = NULL;
    s->payload_capacity = 0;
}

/* Copies the payload that the file has loaded to the stream. Returns NULL, or what is wrong. */
static const char *take_payload(swt_merge *merge, swt_stream *s, const swt_block *block) {
    if (s->payload == NULL) {
        if (merge->open_count == OPEN_MAX) return "more threads at once than any program has";
        merge->open_count++;
    }
    if (!swt_grow(&s->payload, &s->payload_capacity, block->raw_bytes, 1)) return swt_no_memory;
    memcpy(s->payload, merge->file->payload, block->raw_bytes);
    const char *wrong = open_columns(s, block->raw_bytes, block->count);
    if (wrong != NULL) return wrong;
    s->left = block->count;
    return advance_stamp(s, block->first, true) ? NULL : "a number runs over";
}

sw_status swt_stream_load(swt_merge *merge, swt_stream *s) {
    sw_check2(swt_stream_check(s));
    if (s->entry == s->entry_end) {
        release(merge, s);
        return SW_OK;
    }
    const swt_entry *entry = &merge->order[s->entry++];
    swt_block block;
    bool whole;
    s->at = entry->at;
    s->left = 0;
    sw_status status = swt_file_load(merge->file, entry, &block, &whole);
    if (status == SW_OK && whole) {
        const char *wrong = take_payload(merge, s, &block);
        if (wrong == NULL) return SW_OK;
        status = swt_file_damage(merge->file, s->at, wrong);
    }
    s->left = 0;
    merge->ended = true;
    return status;
}

bool swt_stream_next(swt_stream *s, swt_merge_event *event) {
    bool bad = false;
    uint32_t tag = *s->tag++;
    event->kind = tag & (SWT_RAW_TAG_ALIGNED - 1);
    event->align_log2 = 0;
    event->size = 0;
    s->last_address += swt_unzigzag(swt_varint_get(&s->address, &bad));
    event->address = s->last_address << s->address_shift;
    bad |= event->address >> 48 != 0;
    if (sw_unlikely(tag & SWT_RAW_TAG_ALIGNED)) {
        uint64_t align = swt_varint_get(&s->size, &bad);
        bad |= align == 0 || align > 47;
        event->align_log2 = (uint32_t)align & 63;
    }
    if (swt_raw_has_size(event->kind)) {
        event->size = swt_varint_get(&s->size, &bad);
        bad |= event->size > INT64_MAX;
    }
    if (!(s->flags & SWT_RAW_FLAG_TICKS_ARE_STAMPS))
        s->last_ticks += swt_varint_get(&s->ticks, &bad);
    event->ticks = s->last_ticks << s->tick_shift;
    uint64_t site = s->flags & SWT_RAW_FLAG_SITES ? swt_varint_get(&s->site, &bad) : 0;
    bad |= site > UINT32_MAX;
    event->site = (uint32_t)site;
    if (--s->left != 0) bad |= !advance_stamp(s, s->next_stamp, false);
    return !bad;
}
