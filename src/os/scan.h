/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the program that may hold pointers, for a conservative collector: stacks and registers
 * of threads, thread-local storage, writable data of modules. All of it is read by
 * sw_os_copy_words, so unreadable pages cause no error, and memory checkers do not see the reads.
 * Linux on x86-64 and arm64 with glibc; elsewhere sw_os_can_scan returns false. */
#ifndef SW_OS_SCAN_H
#define SW_OS_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- threads ---------------------------------------------------------------------------------- */

enum { SW_OS_REGISTERS = 20, SW_OS_CONTEXT_WORDS = 512 };

/* Where a thread has stopped. `words` has its registers, then a copy of the stack from its stack
 * pointer on, because the functions that have stopped it may return meanwhile (a blocking region).
 * The rest of the stack, [sp, end), is read in place.
 *   low < high;  sp <= end if end != 0;  count <= SW_OS_CONTEXT_WORDS */
typedef struct sw_os_context {
    uintptr_t low, high; /* the thread's stack */
    uintptr_t pointer;   /* thread pointer, near its thread-local storage */
    uintptr_t sp;
    uintptr_t end;    /* of the stack in use; 0: sp is on no stack that the system knows */
    uintptr_t base;   /* return address into the thread's first function; 0: unknown */
    bool is_aside;    /* that is an alternate signal stack; the thread's own one is in use, too */
    void *fake_stack; /* of AddressSanitizer (detect_stack_use_after_return); NULL: none */
    size_t count;
    uintptr_t words[SW_OS_CONTEXT_WORDS];
} sw_os_context;

/* Finds the calling thread's stack. False: unknown. May call malloc. */
bool sw_os_context_begin(sw_os_context *context);
/* Saves where the calling thread is. Calls neither malloc nor the loader. */
void sw_os_context_save(sw_os_context *context);

typedef void sw_os_words_fn(void *arg, const uintptr_t *words, size_t count);
/* Calls fn for all words of the thread, which has not run on since the save, or only within the
 * functions that called that one: saved words, stacks, thread-local storage next to the thread
 * pointer. buffer: SW_OS_SCAN_BYTES bytes, for copies. False: the stack in use is unknown. */
bool sw_os_context_visit(const sw_os_context *context, void *buffer, sw_os_words_fn *fn, void *arg);
enum { SW_OS_SCAN_BYTES = 64 << 10 };

/* Copies the name of the calling thread, with its terminator; "" if it is unknown. */
void sw_os_thread_name(char *name, size_t bytes);

/* --- a signal that stops threads -------------------------------------------------------------- */

/* Runs in a signal handler of the thread that is to stop. at: where it was interrupted. */
typedef void sw_os_halt_fn(const void *at);
/* Calls fn in threads that get the signal, SIGURG, from sw_os_halt. False: refused; or it is not
 * known whether a thread is inside this library, because the library is not a separate module, or
 * the processor is not x86-64. */
bool sw_os_at_halt(sw_os_halt_fn *fn);
/* Call it before, with sw_os_data_version: other modules may have other code at an address. */
void sw_os_halt_modules(uint64_t version);
/* Sends the signal to a thread of this process, by the system's id. */
void sw_os_halt(uint64_t thread);
/* Returns whether the calling thread was interrupted outside this library, so that it holds none
 * of its locks. False: it may be inside, or on another stack. */
bool sw_os_halts_outside(const sw_os_context *thread, const void *at);

/* --- modules ---------------------------------------------------------------------------------- */

/* Writable data of a module, or its thread-local storage, of which each thread has a copy. */
typedef struct sw_os_data {
    uintptr_t start; /* 0: thread-local storage */
    size_t bytes;
    size_t tls_module; /* the loader's number; 0: not thread-local */
} sw_os_data;

/* Returns whether this system reports all that is needed. May call malloc. */
bool sw_os_can_scan(void);
/* Calls fn for the data of all modules, except for pages that are read-only after relocation.
 * False: fn has returned false. Holds the loader's lock, as a thread inside dlopen does. */
bool sw_os_each_data(bool (*fn)(void *arg, const sw_os_data *data), void *arg);
/* Returns a number that changes when a module is loaded or unloaded. Takes no lock. */
uint64_t sw_os_data_version(void);
/* Calls fn for the words of some data, in a thread's copy if it is thread-local. */
void sw_os_data_visit(const sw_os_data *data, const sw_os_context *thread, void *buffer,
                      sw_os_words_fn *fn, void *arg);

/* Copies words from any address, which is aligned to 8; returns how many bytes could be read. */
size_t sw_os_copy_words(void *to, uintptr_t from, size_t bytes);
/* Copies words that can be read. */
void sw_os_copy_direct(uintptr_t *to, uintptr_t from, size_t words);

#endif
