/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for plain test programs: they are on in every build, print place and values, count, and
 * set the exit code. */
#ifndef TESTS_UNIT_CHECK_H
#define TESTS_UNIT_CHECK_H

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Which sanitizer a test is compiled for: gcc reports it by macros, clang by features. */
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

/* Any thread may check. */
static int check_count_;
static int check_failures_;

static inline void check_counted_(void) {
    (void)__atomic_add_fetch(&check_count_, 1, __ATOMIC_RELAXED);
}
/* After its failure was printed; so many end the program. */
static inline void check_has_failed_(void) {
    if (__atomic_add_fetch(&check_failures_, 1, __ATOMIC_RELAXED) >= 20) exit(1);
}

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        check_counted_();                                                                          \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            check_has_failed_();                                                                   \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(got, want)                                                                        \
    do {                                                                                           \
        uint64_t got_ = (uint64_t)(got), want_ = (uint64_t)(want);                                 \
        check_counted_();                                                                          \
        if (got_ != want_) {                                                                       \
            fprintf(stderr, "%s:%d: %s is %" PRIu64 ", expected %" PRIu64 "\n", __FILE__,          \
                    __LINE__, #got, got_, want_);                                                  \
            check_has_failed_();                                                                   \
        }                                                                                          \
    } while (0)

#define CHECK_STR(got, want)                                                                       \
    do {                                                                                           \
        const char *got_ = (got), *want_ = (want);                                                 \
        check_counted_();                                                                          \
        if (got_ == NULL || strcmp(got_, want_) != 0) {                                            \
            fprintf(stderr, "%s:%d: %s is \"%s\", expected \"%s\"\n", __FILE__, __LINE__, #got,    \
                    got_ ? got_ : "(null)", want_);                                                \
            check_has_failed_();                                                                   \
        }                                                                                          \
    } while (0)

/* A new `type` of its default options after the assignments to `o`, which a comma separates; or of
 * the options of another one. */
#define MADE(type, ...) MADE_FROM(type, type##_options, __VA_ARGS__)
#define MADE_FROM(type, options, ...)                                                              \
    __extension__({                                                                                \
        options o;                                                                                 \
        type *made_ = NULL;                                                                        \
        options##_init(&o);                                                                        \
        __VA_ARGS__;                                                                               \
        CHECK_EQ(type##_create(&o, &made_), SW_OK);                                                \
        made_;                                                                                     \
    })

/* The statistics of a `type`. */
#define STATS(type, of)                                                                            \
    __extension__({                                                                                \
        type##_stats stats_;                                                                       \
        CHECK_EQ(type##_get_stats(of, &stats_), SW_OK);                                            \
        stats_;                                                                                    \
    })

/* A `type` is not created from such options. */
#define REFUSED(type, want, ...) REFUSED_FROM(type, type##_options, want, __VA_ARGS__)
#define REFUSED_FROM(type, options, want, ...)                                                     \
    do {                                                                                           \
        options o;                                                                                 \
        type *made_ = NULL;                                                                        \
        options##_init(&o);                                                                        \
        __VA_ARGS__;                                                                               \
        CHECK_EQ(type##_create(&o, &made_), want);                                                 \
        CHECK(made_ == NULL);                                                                      \
    } while (0)

static inline int all_are(const void *bytes, size_t count, unsigned char byte) {
    const unsigned char *p = (const unsigned char *)bytes;
    return count == 0 || (p[0] == byte && memcmp(p, p + 1, count - 1) == 0);
}

/* Whether a check has failed. */
static inline int check_failed(void) { return check_failures_ != 0; }

/* The grade of assertions is the one that the test preset promises, where there is one. Every
 * program asks for itself: some presets leave out test_grades.c, which shows that a grade's checks
 * are there. Programs that run on the preloaded malloc are compiled without a grade, and no preset
 * runs them. */
static inline void check_grade_(void) {
    const char *promise = getenv("SPANWISE_GRADE");
    if (promise == NULL) return;
#ifdef SW_CHECK
    CHECK_EQ(SW_CHECK, strtoull(promise, NULL, 10));
#else
    CHECK(promise == NULL);
#endif
}

/* Last line of main: a program that checked nothing fails. */
static inline int check_result(void) {
    int none = check_count_ == 0;
    check_grade_();
    printf("%d checks, %d failed\n", check_count_, check_failures_);
    return check_failed() || none;
}

/* Long loops do a part of their cases, PART of OF, where the environment has
 * SPANWISE_TEST_SHARE=PART/OF. Test presets set it: `release`, `stress` and `asan-ubsan` so that
 * together they do every case of an exhaustive loop once. Every kind of case is done by each of
 * them. */
static inline unsigned check_share_(unsigned *part) {
    static __thread unsigned its_part, its_of; /* read once */
    if (its_of == 0) {
        const char *text = getenv("SPANWISE_TEST_SHARE");
        unsigned of = 1;
        if (text != NULL && (sscanf(text, "%u/%u", &its_part, &of) != 2 || its_part >= of)) {
            fprintf(stderr, "SPANWISE_TEST_SHARE=%s: give PART/OF, as 0/4\n", text);
            exit(2);
        }
        its_of = of;
    }
    *part = its_part;
    return its_of;
}

/* Loops of random cases do one in so many. */
static inline unsigned check_share(void) {
    unsigned part;
    return check_share_(&part);
}

/* How often a long loop runs: as often as the variable of the environment says, which full forms
 * set, else a share of `usual`. */
static inline unsigned check_rounds(const char *variable, unsigned usual) {
    const char *text = getenv(variable);
    unsigned rounds = text != NULL ? (unsigned)strtoul(text, NULL, 10) : usual / check_share();
    return rounds != 0 ? rounds : 1;
}

/* Whether case `i` of an exhaustive loop is of this part. Neighbours fall into different parts,
 * whatever the digits of i mean. */
static inline int check_mine(uint64_t i) {
    unsigned part, of = check_share_(&part);
    return (i * 0x9E3779B97F4A7C15ull >> 40) % of == part;
}

/* A small, good generator for tests (splitmix64); the state is the caller's. */
static inline uint64_t check_random(uint64_t *state) {
    uint64_t z = (*state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

#endif
