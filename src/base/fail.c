/* SPDX-License-Identifier: Apache-2.0 */
/* Status texts, the thread's last error, the fault handler and the fatal line. Nothing here
 * allocates or takes a lock, because it is called inside malloc and with corrupt heaps. */
#include "base/base.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread_state.h"
#include "spanwise/arena.h"
#include "spanwise/gc_fast.h"
#include "spanwise/pool.h"
#include "spanwise/range.h"
#include "spanwise/stack.h"

/* --- failures --------------------------------------------------------------------------------- */

static sw_thread_state *find_unthreaded(bool makes) {
    static sw_thread_state state;
    (void)makes;
    return &state;
}

sw_thread_state *(*sw_thread_state_find)(bool makes) = find_unthreaded;

static _Atomic(sw_fault_handler *) fault_handler;
static _Atomic(void *) fault_handler_arg;

#define NAME_CASE(name, text)                                                                      \
    case SW_##name: return #name;
#define TEXT_CASE(name, text)                                                                      \
    case SW_##name: return text;
#define MISUSE_NAME_CASE(name, text)                                                               \
    case SW_MISUSE_##name: return #name;
#define MISUSE_TEXT_CASE(name, text)                                                               \
    case SW_MISUSE_##name: return text;

const char *sw_status_name(sw_status status) {
    switch (status) {
        SW_STATUS_LIST(NAME_CASE)
    case SW_STATUS_COUNT:
    default: return "unknown";
    }
}

const char *sw_status_text(sw_status status) {
    switch (status) {
        SW_STATUS_LIST(TEXT_CASE)
    case SW_STATUS_COUNT:
    default: return "unknown";
    }
}

const char *sw_misuse_name(sw_misuse misuse) {
    switch (misuse) {
        SW_MISUSE_LIST(MISUSE_NAME_CASE)
    case SW_MISUSE_COUNT:
    default: return "unknown";
    }
}

const char *sw_misuse_text(sw_misuse misuse) {
    switch (misuse) {
        SW_MISUSE_LIST(MISUSE_TEXT_CASE)
    case SW_MISUSE_COUNT:
    default: return "unknown";
    }
}

static const sw_error no_error = {.op = "", .message = ""};

const sw_error *sw_last_error(void) {
    const sw_thread_state *own = sw_thread_state_find(false);
    return own == NULL || own->error.message == NULL ? &no_error : &own->error;
}

void sw_clear_error(void) {
    sw_thread_state *own = sw_thread_state_find(false);
    if (own != NULL) own->error = no_error;
}

sw_status sw_fail(sw_status status, const char *op, const char *format, ...) {
    sw_thread_state *own = sw_thread_state_find(true);
    if (own == NULL) return status;
    va_list args;
    va_start(args, format);
    (void)vsnprintf(own->message, sizeof own->message, format, args);
    va_end(args);
    own->error = (sw_error){.status = status, .op = op, .message = own->message};
    return status;
}

sw_status sw_fail_null(const char *op, const char *argument) {
    return sw_fail(SW_INVALID, op, "%s is NULL: give an address", argument);
}

void sw_set_fault_handler(sw_fault_handler *handler, void *arg) {
    atomic_store(&fault_handler_arg, arg);
    atomic_store(&fault_handler, handler);
}

/* --- the emergency printer ------------------------------------------------------------------ */

typedef struct line {
    char text[400];
    size_t used;
} line;

static void put_char(line *out, char c) {
    if (out->used < sizeof out->text) out->text[out->used++] = c;
}

static void put_text(line *out, const char *text) {
    while (*text != '\0') put_char(out, *text++);
}

static void put_number(line *out, uint64_t value, unsigned base) {
    char digits[24];
    size_t n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value != 0);
    while (n > 0) put_char(out, digits[--n]);
}

static void put_conversion(line *out, char conversion, va_list *args) {
    switch (conversion) {
    case 's': put_text(out, va_arg(*args, const char *)); break;
    case 'u': put_number(out, va_arg(*args, uint64_t), 10); break;
    case 'x': put_number(out, va_arg(*args, uint64_t), 16); break;
    case 'p':
        put_text(out, "0x");
        put_number(out, (uint64_t)(uintptr_t)va_arg(*args, const void *), 16);
        break;
    default: put_char(out, conversion); break;
    }
}

void sw_emergency_print(const char *format, ...) {
    line out = {.used = 0};
    va_list args;
    va_start(args, format);
    for (const char *c = format; *c != '\0'; c++) {
        if (*c == '%' && c[1] != '\0') {
            put_conversion(&out, *++c, &args);
        } else {
            put_char(&out, *c);
        }
    }
    va_end(args);
    ssize_t written = write(2, out.text, out.used);
    (void)written; /* if fd 2 is closed, the error cannot be reported */
}

/* --- misuse --------------------------------------------------------------------------------- */

static void print_fault(const sw_fault *fault) {
    sw_emergency_print("spanwise: fatal: %s op=%s ptr=%p size=%u heap=%u thread=%u\n",
                       sw_misuse_name(fault->code), fault->op, fault->ptr, (uint64_t)fault->size,
                       (uint64_t)fault->heap_id, fault->thread);
    sw_emergency_print("spanwise: %s\n", sw_misuse_text(fault->code));
}

/* A report of misuse while its handler runs, on the stack of the reporting thread. A handler may
 * leave by longjmp; then later calls overwrite the record and its stamp. So a record with a valid
 * stamp belongs to a running handler, and a longjmp needs no cleanup. */
typedef struct report {
    const struct report *outer; /* the report whose handler caused this one; NULL: none */
    const void *ptr;
    uint64_t stamp;
} report;

/* Returns the innermost report whose handler still runs; NULL: none. `here` is an address in the
 * caller's frame. The stack grows downwards, so frames of outer calls are above `here`, and a
 * record below it belongs to a call that has ended. */
static sw_noinline sw_left_stack const report *running_report(const sw_thread_state *own,
                                                              const volatile report *here) {
    const volatile report *last = own->report_at;
    bool runs =
        last != NULL && (uintptr_t)last > (uintptr_t)here && last->stamp == own->report_stamp;
    return runs ? own->report_at : NULL;
}

static uint64_t new_stamp(sw_thread_state *own) {
    return ++own->stamps * UINT64_C(0x9E3779B97F4A7C15); /* unlikely to be on a stack by chance */
}

static bool is_handler_running_for(const report *running, const void *ptr) {
    while (running != NULL && running->ptr != ptr) running = running->outer;
    return running != NULL;
}

/* Calls the handler, unless it is already running for the same pointer: a handler that misuses the
 * pointer itself would recurse without end. */
static sw_fault_action ask_handler(sw_fault_handler *handler, const sw_fault *fault) {
    volatile report mine = {.ptr = fault->ptr};
    sw_fault copy = *fault;
    sw_thread_state *own = sw_thread_state_find(true);
    if (own == NULL) return handler(&copy, atomic_load(&fault_handler_arg));
    mine.outer = running_report(own, &mine);
    if (is_handler_running_for(mine.outer, fault->ptr)) return SW_FAULT_ABORT;
    own->report_stamp = mine.stamp = new_stamp(own);
    own->report_at = (const void *)&mine;
    sw_fail(SW_INVALID, fault->op, "%s", sw_misuse_text(fault->code));
    own->error.fault = copy;
    sw_fault_action action = handler(&copy, atomic_load(&fault_handler_arg));
    own->report_at = mine.outer;
    own->report_stamp = mine.outer == NULL ? 0 : mine.outer->stamp;
    return action;
}

void sw_misuse_report(const sw_fault *fault) { sw_misuse_report_with(fault, NULL, NULL); }

void sw_misuse_report_with(const sw_fault *fault, void (*print)(const void *arg), const void *arg) {
    sw_fault_handler *handler = atomic_load(&fault_handler);
    if (handler != NULL && ask_handler(handler, fault) == SW_FAULT_LEAK_AND_CONTINUE) return;
    print_fault(fault);
    if (print != NULL) print(arg);
    abort();
}

void sw_assert_failed(const char *condition, const char *file, int line_number) {
    sw_emergency_print("spanwise: fatal: ASSERT %s at %s:%u\n", condition, file,
                       (uint64_t)(line_number < 0 ? 0 : line_number));
    abort();
}

/* --- versions of records ---------------------------------------------------------------------- */

/* Symbols for the versions of the records that inline code of public headers reads. A program
 * compiled for another version does not find its symbol, so it fails to link or load. */

const uint32_t sw_arena_abi_1 = 1;
const uint32_t sw_gc_abi_1 = 1;
const uint32_t sw_pool_abi_1 = 1;
const uint32_t sw_range_abi_1 = 1;
const uint32_t sw_stack_abi_1 = 1;
