/* SPDX-License-Identifier: Apache-2.0 */
/* Compiler attributes. Used by every layer. */
#ifndef SW_BASE_ATTRIBUTES_H
#define SW_BASE_ATTRIBUTES_H

#define sw_always_inline inline __attribute__((always_inline))
#define sw_noinline __attribute__((noinline))
#define sw_cold __attribute__((cold, noinline))
#define sw_printf_like(fmt, first) __attribute__((format(printf, fmt, first)))
#define sw_aligned(n) __attribute__((aligned(n)))
#define sw_unused __attribute__((unused))
/* No sanitizers, for functions that read the stack of a function that may have returned. */
#if defined(__clang__)
#define sw_left_stack __attribute__((no_sanitize("address", "memory", "thread")))
#else
#define sw_left_stack __attribute__((no_sanitize_address))
#endif

/* Returns the value of a call that leaves no frame of this function, so that the callee sees who
 * called this one. gcc does that whenever it optimises. */
#if defined(__clang__)
#define sw_return_as_caller __attribute__((musttail)) return
#else
#define sw_return_as_caller return
#endif

#define sw_likely(x) __builtin_expect(!!(x), 1)
#define sw_unlikely(x) __builtin_expect(!!(x), 0)

/* Thread-local variables that fast paths read: four words in all, because libraries that are loaded
 * by dlopen share a small reserve of static TLS. Data of slow paths is in thread_state.h. */
#define sw_tls_fast _Thread_local __attribute__((tls_model("initial-exec")))

enum { SW_CACHE_LINE = 64 };

/* Marks bytes as initialised that a library without MemorySanitizer's instrumentation wrote. */
#if defined(__has_feature)
#if __has_feature(memory_sanitizer)
#include <sanitizer/msan_interface.h>
#define sw_written_outside(p, bytes) __msan_unpoison(p, bytes)
#endif
#endif
#ifndef sw_written_outside
#define sw_written_outside(p, bytes) ((void)0)
#endif

#endif
