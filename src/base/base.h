/* SPDX-License-Identifier: Apache-2.0 */
/* What every layer uses: attributes, bits, failures, assertions. */
#ifndef SW_BASE_BASE_H
#define SW_BASE_BASE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "spanwise/status.h"

/* --- attributes ------------------------------------------------------------------------------- */

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
/* States what the compiler and its analyzer cannot see. */
#define sw_assume(x) ((x) ? (void)0 : __builtin_unreachable())

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

/* For functions that read what other threads write, and what nobody has written. */
#if defined(__clang__)
#define sw_unchecked __attribute__((no_sanitize("address", "memory", "thread"), noinline))
#else
#define sw_unchecked __attribute__((no_sanitize_address, no_sanitize_thread, noinline))
#endif

/* --- bits ------------------------------------------------------------------------------------- */

/* Bit operations on 64-bit words, checked arithmetic on sizes, counters. */

/* Returns the index of the lowest set bit. w must not be 0. */
static inline uint32_t sw_ctz(uint64_t w) { return (uint32_t)__builtin_ctzll(w); }
static inline uint32_t sw_clz(uint64_t w) { return (uint32_t)__builtin_clzll(w); }
/* Without the POPCNT instruction a compiler calls a library function; this is faster. */
static inline uint32_t sw_popcount(uint64_t w) {
#if defined(__x86_64__) && !defined(__POPCNT__)
    w -= w >> 1 & 0x5555555555555555u; /* sums of 2, 4 and 8 bits, and then of all bytes */
    w = (w & 0x3333333333333333u) + (w >> 2 & 0x3333333333333333u);
    w = (w + (w >> 4)) & 0x0F0F0F0F0F0F0F0Fu;
    return (uint32_t)(w * 0x0101010101010101u >> 56);
#else
    return (uint32_t)__builtin_popcountll(w);
#endif
}

/* Clears bit `index % 64` and returns whether it was set. In assembly, like sw_fast_set_bit
 * (fast_slots.h), because x86-64 has one instruction for it; compilers emit several. */
static inline bool sw_bit_clear(uint64_t *bits, uint64_t index) {
#if defined(__x86_64__)
    bool was;
    __asm__("btrq %2, %0" : "+r"(*bits), "=@ccc"(was) : "r"(index));
    return was;
#else
    uint64_t before = *bits;
    *bits &= ~(UINT64_C(1) << (index % 64));
    return before != *bits;
#endif
}

/* Returns a word whose n lowest bits are set, n in 0..64. */
static inline uint64_t sw_low_mask(uint32_t n) { return n >= 64 ? ~0ull : (1ull << n) - 1; }

static inline bool sw_is_pow2(uint64_t x) { return x != 0 && (x & (x - 1)) == 0; }

/* Returns the smallest k with 2^k >= x, x in 1..2^63. */
static inline uint32_t sw_log2_ceil(uint64_t x) { return x <= 1 ? 0 : 64 - sw_clz(x - 1); }
/* Returns the largest k with 2^k <= x, x >= 1. */
static inline uint32_t sw_log2_floor(uint64_t x) { return 63 - sw_clz(x); }

/* align must be a power of two. */
static inline uint64_t sw_align_up(uint64_t x, uint64_t align) {
    return (x + align - 1) & ~(align - 1);
}
static inline uint64_t sw_align_down(uint64_t x, uint64_t align) { return x & ~(align - 1); }
static inline uint64_t sw_div_up(uint64_t x, uint64_t d) { return (x + d - 1) / d; }

static inline uint64_t sw_min_u64(uint64_t a, uint64_t b) { return a < b ? a : b; }
static inline uint64_t sw_max_u64(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Writes a number that is changed under a lock and read by other threads without it. */
static inline void sw_set_counter(uint64_t *counter, uint64_t value) {
    __atomic_store_n(counter, value, __ATOMIC_RELAXED);
}

/* Returns true if the product overflows; *out is unspecified then. */
static inline bool sw_mul_overflow(size_t a, size_t b, size_t *out) {
    return __builtin_mul_overflow(a, b, out);
}

/* --- failures --------------------------------------------------------------------------------- */

/* How layers report failure. sw_fail is for expected failures: it sets the thread's last error and
 * returns the status. sw_misuse_report is for misuse: it calls the handler, or prints and aborts.
 * Nothing here allocates. */

/* Stores op, status and the formatted message as the thread's last error. Returns status. */
sw_status sw_fail(sw_status status, const char *op, const char *format, ...) sw_printf_like(3, 4);

/* Fails with SW_INVALID: the named argument is NULL. */
sw_cold sw_status sw_fail_null(const char *op, const char *argument);

/* Calls the fault handler. If there is none, or it does not return LEAK_AND_CONTINUE, prints
 * "spanwise: fatal: <CODE> op=.. ptr=.. size=.. heap=.. thread=.." and aborts. The caller must hold
 * no lock. */
sw_cold void sw_misuse_report(const sw_fault *fault);

/* As sw_misuse_report; before an abort, calls print(arg) to print details. */
sw_cold void sw_misuse_report_with(const sw_fault *fault, void (*print)(const void *arg),
                                   const void *arg);

/* Prints a line to fd 2; safe in signal handlers. Conversions: %s, %u (uint64), %x (uint64), %p. */
void sw_emergency_print(const char *format, ...);

/* --- assertions ------------------------------------------------------------------------------- */

/* Internal assertions of graded cost. SW_CHECK: 0 none, 1 as shipped, 2 local invariants, 3 the
 * whole heap. Conditions are compiled at every grade, so renaming cannot break them unnoticed.
 * They are not for a caller's errors (status.h) or misuse (sw_misuse_report).
 *
 * A struct with invariants has a function `<type>_check` that returns the text of the first broken
 * rule, or NULL:
 *
 *     const char *sw_span_list_check(const sw_span_list *list) {
 *         return SW_RULE((list->head == 0) == (list->count == 0));
 *     }
 *
 * Rules are joined by `?:`. A check reads only its own struct and what that struct owns, takes no
 * lock, and takes the same time in a larger heap. Slow paths call it by sw_check2, and the
 * verification of the whole heap (inspect/) calls it for every struct that it meets. */

#ifndef SW_CHECK
#define SW_CHECK 1
#endif

/* Prints "spanwise: fatal: ASSERT <condition> at <file>:<line>" and aborts. */
_Noreturn sw_cold void sw_assert_failed(const char *condition, const char *file, int line);

#define SW_ASSERT_AT(grade, condition)                                                             \
    ((SW_CHECK >= (grade) && !(condition)) ? sw_assert_failed(#condition, __FILE__, __LINE__)      \
                                           : (void)0)
#define sw_assert1(condition) SW_ASSERT_AT(1, condition)
#define sw_assert2(condition) SW_ASSERT_AT(2, condition)

/* One rule of a check: NULL if it holds, else its text. */
#define SW_RULE(condition) ((condition) ? (const char *)NULL : #condition)

static inline void sw_hold_to(const char *broken_rule, const char *file, int line) {
    if (sw_unlikely(broken_rule != NULL)) sw_assert_failed(broken_rule, file, line);
}
/* At grade 2 and above: aborts with the broken rule that a `<type>_check` returned, if any. */
#define sw_check2(broken_rule)                                                                     \
    (SW_CHECK >= 2 ? sw_hold_to((broken_rule), __FILE__, __LINE__) : (void)0)

/* --- structs with a size ---------------------------------------------------------------------- */

/* Public structs that begin with their own size in bytes, which identifies programs compiled with
 * an older or later header (docs/stability.md). No field crosses a multiple of 8 bytes, and each
 * new field begins at one, so that the bytes below such a size are whole fields. */

/* The minimum is the size of the first field and one more; the maximum leaves room. */
enum { SW_SIZED_MIN = 16, SW_SIZED_MAX = 4096 };

static inline bool sw_sized_is_valid(uint64_t struct_bytes) {
    return struct_bytes >= SW_SIZED_MIN && struct_bytes <= SW_SIZED_MAX && struct_bytes % 8 == 0;
}

/* Returns SW_INVALID, with the value and what to do in the message. */
static inline sw_status sw_sized_refuse(uint64_t struct_bytes, const char *op, const char *advice) {
    return sw_fail(SW_INVALID, op, "struct_bytes is %llu: %s", (unsigned long long)struct_bytes,
                   advice);
}

#endif
