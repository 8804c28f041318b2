/* SPDX-License-Identifier: Apache-2.0 */
/* Reports uses of memory after its arena's end (report.h). All of it may run in a signal handler:
 * it allocates nothing, and takes only locks that are held for a few instructions. */
#include "arena/report.h"

#include "arena/quarantine.h"
#include "base/fail.h"
#include "gc/dangling.h"

/* The details of a report. */
typedef struct report_details {
    uintptr_t at;
    const sw_arena_log *log;
    const sw_log_object *object; /* NULL: the address is between objects */
    const void *word;            /* where a cycle found the pointer; NULL: the address was used */
} report_details;

static void print_calls(const char *what, const sw_arena_calls *calls) {
    sw_emergency_print("spanwise: arena %s by thread %u at", what, calls->thread);
    for (uint64_t i = 0; i < calls->count && i < SW_LOG_FRAMES; i++)
        sw_emergency_print(" %p", (const void *)(uintptr_t)calls->frames[i]);
    sw_emergency_print("\n");
}

static void print_details(const void *arg) {
    const report_details *details = arg;
    const sw_log_object *object = details->object;
    const char *tag = details->log->tag;
    if (details->word != NULL) sw_emergency_print("spanwise: pointer found at %p\n", details->word);
    if (object != NULL)
        sw_emergency_print("spanwise: offset %u of %s, %u bytes, allocated at %p\n",
                           (uint64_t)(details->at - object->at),
                           object->type == NULL ? "an object" : object->type, object->bytes,
                           (const void *)object->caller);
    sw_emergency_print("spanwise: arena %u, tag %s\n", details->log->arena_id,
                       tag == NULL ? "none" : tag);
    print_calls("made", &details->log->made);
    print_calls("freed", &details->log->freed);
}

static void report(const char *op, const void *p, const sw_arena_log *log, const void *word) {
    report_details details = {.at = (uintptr_t)p, .log = log, .word = word};
    if (log != NULL) details.object = sw_arena_log_find(log, details.at);
    sw_fault fault = {.code = SW_MISUSE_FREED_ARENA,
                      .op = op,
                      .ptr = p,
                      .size = details.object == NULL ? 0 : details.object->bytes,
                      .thread = sw_os_thread_id()};
    sw_misuse_report_with(&fault, log == NULL ? NULL : print_details, &details);
}

static const sw_arena_log *log_of(const void *p) {
    const sw_chunk *chunk = sw_chunk_find(p);
    return chunk == NULL ? NULL : __atomic_load_n(&chunk->log, __ATOMIC_ACQUIRE);
}

void sw_arena_report_use(const char *op, const void *p) { report(op, p, log_of(p), NULL); }

/* If the program's fault handler continues, the chunk is unprotected for this and later uses. */
static bool on_fault(void *address, bool is_write) {
    sw_chunk *chunk = sw_chunk_find(address);
    if (chunk == NULL || __atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE) != NULL) return false;
    const sw_arena_log *log = __atomic_load_n(&chunk->log, __ATOMIC_ACQUIRE);
    if (log == NULL) return false;
    report(is_write ? "write" : "read", address, log, NULL);
    return sw_quarantine_open(chunk);
}

/* --- pointers that a collection finds --------------------------------------------------------- */

static bool has_ended(uintptr_t p) {
    sw_chunk *chunk = sw_chunk_locate(p);
    if (chunk == NULL || __atomic_load_n(&chunk->arena, __ATOMIC_ACQUIRE) != NULL ||
        __atomic_load_n(&chunk->log, __ATOMIC_ACQUIRE) == NULL)
        return false;
    sw_quarantine_note_pointer(chunk);
    return true;
}

static void report_pointer(const void *word, const void *p) { report("gc", p, log_of(p), word); }

bool sw_arena_report_install(void) {
    static const sw_gc_ended ended = {
        .has = has_ended, .end_look = sw_quarantine_end_look, .report = report_pointer};
    sw_gc_dangling_ask(&ended);
    return sw_os_at_fault(on_fault);
}
