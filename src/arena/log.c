/* SPDX-License-Identifier: Apache-2.0 */
/* Logs of safe arenas (log.h). */
#include "arena/log.h"

#include "base/assert.h"

void sw_arena_log_recover(void) { sw_os_forget_thread_id(); }

static void note_calls(sw_arena_calls *calls) {
    calls->thread = sw_os_known_thread_id();
    calls->count = sw_os_call_stack(calls->frames, SW_LOG_FRAMES);
}

sw_arena_log *sw_arena_log_new(const char *tag, uint64_t arena_id) {
    sw_arena_log *log = sw_chunk_new_record(sizeof *log);
    if (log == NULL) return NULL;
    *log = (sw_arena_log){.uses = 1, .tag = tag, .arena_id = arena_id};
    note_calls(&log->made);
    return log;
}

bool sw_arena_log_add(sw_arena_log *log, const sw_log_object *object) {
    sw_log_page *page = log->pages;
    if (page == NULL || page->count == SW_LOG_OBJECTS) {
        page = sw_chunk_new_record(sizeof *page);
        if (page == NULL) return false;
        page->count = 0;
        page->next = log->pages;
        log->pages = page;
    }
    page->objects[page->count++] = *object;
    return true;
}

void sw_arena_log_end(sw_arena_log *log) { note_calls(&log->freed); }

void sw_arena_log_use(sw_arena_log *log) {
    (void)__atomic_add_fetch(&log->uses, 1, __ATOMIC_RELAXED);
}

void sw_arena_log_drop(sw_arena_log *log) {
    sw_check2(sw_arena_log_check(log));
    if (__atomic_sub_fetch(&log->uses, 1, __ATOMIC_ACQ_REL) != 0) return;
    while (log->pages != NULL) {
        sw_log_page *page = log->pages;
        log->pages = page->next;
        sw_chunk_drop_record(page, sizeof *page);
    }
    sw_chunk_drop_record(log, sizeof *log);
}

const sw_log_object *sw_arena_log_find(const sw_arena_log *log, uintptr_t p) {
    for (const sw_log_page *page = log->pages; page != NULL; page = page->next)
        for (uint64_t i = page->count; i-- > 0;)
            if (p - page->objects[i].at < page->objects[i].bytes) return &page->objects[i];
    return NULL;
}
