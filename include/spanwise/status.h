/* SPDX-License-Identifier: Apache-2.0 */
/* Status codes, misuse codes, the last-error record and the fault handler.
 *
 * Two kinds of errors (docs/design/errors.md):
 *   - an *expected* failure (no memory, limit, bad argument, I/O) is a sw_status; out parameters
 *     are unchanged, the heap stays usable, nothing is printed;
 *   - *misuse* (double free, foreign pointer, closed handle, broken invariant) is a sw_misuse; the
 *     fault handler is called, and without one the process prints one line and aborts.
 *
 * Handles are heaps, caches, tables, recordings and their writers, runners, profiles, optimizers,
 * ranges, arenas and their trackers, pools, slabs, scalable allocators and stacks. A closed or
 * destroyed handle is reported as STALE_HANDLE. For NULL, a function that returns a status returns
 * SW_INVALID, and others report NULL_HANDLE; functions that destroy a handle ignore NULL. A
 * readable, aligned address that is not a handle of the kind is reported as FOREIGN_HANDLE. If the
 * fault handler continues, the call does nothing and returns SW_INVALID, NULL or 0.
 * docs/design/errors.md says how long a stale handle is recognised, and which calls check less.
 */
#ifndef SPANWISE_STATUS_H
#define SPANWISE_STATUS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef SW_API
#define SW_API __attribute__((visibility("default")))
#endif

/* Marks a parameter, by number, that is not checked for NULL. Compilers warn about NULL (-Wnonnull,
 * part of -Wall), and UBSan reports it at run time. */
#ifndef SW_NONNULL
#define SW_NONNULL(parameter) __attribute__((nonnull(parameter)))
#endif

/* X(name, text): every status; the order is the ABI. */
#define SW_STATUS_LIST(X)                                                                          \
    X(OK, "ok")                                                                                    \
    X(NOMEM, "out of memory")                                                                      \
    X(INVALID, "invalid argument")                                                                 \
    X(LIMIT, "limit reached")                                                                      \
    X(STATE, "not possible in this state")                                                         \
    X(IO, "input/output error")                                                                    \
    X(FORMAT, "malformed data")                                                                    \
    X(UNSUPPORTED, "not supported here")                                                           \
    X(BUSY, "busy")                                                                                \
    X(OVERLAP, "part of it is free already")                                                       \
    X(OWNER, "belongs to another thread")                                                          \
    X(SHORT, "fewer bytes are left")                                                               \
    X(OVERFLOW, "the stack is full")                                                               \
    X(ESCAPE, "a pointer would outlive what it points to")

/* X(name, text): every kind of misuse; the order is the ABI. */
#define SW_MISUSE_LIST(X)                                                                          \
    X(NONE, "no misuse")                                                                           \
    X(FOREIGN, "pointer was not allocated by this library")                                        \
    X(INTERIOR, "pointer is inside an object, not at its start")                                   \
    X(PAST_LAST_SLOT, "pointer is past the last slot of its span")                                 \
    X(DOUBLE_FREE, "object is already free")                                                       \
    X(SIZE_MISMATCH, "stated size is not the object's size class")                                 \
    X(WRONG_HEAP, "object belongs to another heap")                                                \
    X(COLLECTED, "object of a collected heap cannot be freed by hand")                             \
    X(CORRUPT, "heap invariant broken")                                                            \
    X(NULL_HANDLE, "handle is NULL")                                                               \
    X(STALE_HANDLE, "handle was closed or destroyed before")                                       \
    X(FOREIGN_HANDLE, "handle is not one of this kind")                                            \
    X(BUSY_HANDLE, "handle is in use, so it cannot be destroyed")                                  \
    X(ARENA, "object belongs to an arena, which frees all of its objects together")                \
    X(FREED_ARENA, "object belonged to an arena that was freed")                                   \
    X(DOUBLE_PUT, "item is in its pool already")                                                   \
    X(NOT_JOINED, "thread used a collected heap during a cycle without joining it")                \
    X(OVERFLOW, "bytes past the end of the object were overwritten")                               \
    X(WRITE_AFTER_FREE, "object was written to after it was freed")                                \
    X(USE_AFTER_FREE, "object was used after it was freed")                                        \
    X(OUT_OF_BOUNDS, "access outside the object")                                                  \
    X(MISMATCHED_FREE, "object was allocated by another family: malloc, new or new[]")

#define SW_STATUS_ENUM_(name, text) SW_##name,
typedef enum sw_status { SW_STATUS_LIST(SW_STATUS_ENUM_) SW_STATUS_COUNT } sw_status;

#define SW_MISUSE_ENUM_(name, text) SW_MISUSE_##name,
typedef enum sw_misuse { SW_MISUSE_LIST(SW_MISUSE_ENUM_) SW_MISUSE_COUNT } sw_misuse;

/* Return a constant string, never NULL; "unknown" for a value outside the lists. */
SW_API const char *sw_status_name(sw_status status);
SW_API const char *sw_status_text(sw_status status);
SW_API const char *sw_misuse_name(sw_misuse misuse);
SW_API const char *sw_misuse_text(sw_misuse misuse);

/* A report of misuse: plain data that may be copied. */
typedef struct sw_fault {
    sw_misuse code;
    const char *op;   /* the call that detected it: "free", "realloc", ... (constant string) */
    const void *ptr;  /* the offending pointer or handle */
    size_t size;      /* slot bytes, or the size stated by the caller; 0: unknown */
    uint32_t heap_id; /* 0: no heap owns the pointer */
    uint64_t thread;  /* the operating system's thread id */
} sw_fault;

/* The last failed call of this thread. */
typedef struct sw_error {
    sw_status status;
    const char *op; /* constant string */
    /* Constant string or a thread-local buffer; valid until the next failure. */
    const char *message;
    sw_fault fault; /* code is SW_MISUSE_NONE unless the failure was misuse */
} sw_error;

SW_API const sw_error *sw_last_error(void);
SW_API void sw_clear_error(void);

/* Result of a fault handler. LEAK_AND_CONTINUE: the call returns; the object is leaked, and a
 * handle is unchanged. */
typedef enum sw_fault_action { SW_FAULT_ABORT = 0, SW_FAULT_LEAK_AND_CONTINUE = 1 } sw_fault_action;

/* A fault handler. It is called with no lock of the library held. It must not allocate from the
 * heap in question. It may leave by longjmp; then the object is leaked. If it misuses the same
 * pointer or handle itself, the report is printed and the process aborts. */
typedef sw_fault_action sw_fault_handler(const sw_fault *fault, void *arg);

/* Set the process-wide handler; NULL: print and abort. Thread-safe. */
SW_API void sw_set_fault_handler(sw_fault_handler *handler, void *arg);

#ifdef __cplusplus
}
#endif
#endif
