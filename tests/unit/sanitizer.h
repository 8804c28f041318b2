/* SPDX-License-Identifier: Apache-2.0 */
/* Defines which sanitizer a test is compiled for, which gcc reports by macros and clang by
 * features. */
#ifndef TESTS_UNIT_SANITIZER_H
#define TESTS_UNIT_SANITIZER_H

#if defined(__has_feature)
#define SANITIZER_FEATURE(name) __has_feature(name)
#else
#define SANITIZER_FEATURE(name) 0
#endif

#if defined(__SANITIZE_THREAD__) || SANITIZER_FEATURE(thread_sanitizer)
#define UNDER_TSAN 1
#else
#define UNDER_TSAN 0
#endif

#if UNDER_TSAN || defined(__SANITIZE_ADDRESS__) || SANITIZER_FEATURE(address_sanitizer) ||         \
    SANITIZER_FEATURE(memory_sanitizer)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

#endif
