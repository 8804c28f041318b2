/* SPDX-License-Identifier: Apache-2.0 */
/* A fault handler that records the last fault and continues. */
#ifndef TESTS_UNIT_FAULTS_H
#define TESTS_UNIT_FAULTS_H

#include "check.h"
#include "spanwise/status.h"

static sw_fault seen; /* the last one */
static int seen_count;

static sw_fault_action remember_fault(const sw_fault *fault, void *arg) {
    (void)arg;
    seen = *fault;
    seen_count++;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static inline void remember_faults(void) { sw_set_fault_handler(remember_fault, NULL); }

/* Runs the statement and checks that it was reported, once, as `code` on `bad`. */
#define EXPECT_FAULT(code_, bad, statement)                                                        \
    do {                                                                                           \
        seen_count = 0;                                                                            \
        seen.code = SW_MISUSE_NONE;                                                                \
        statement;                                                                                 \
        CHECK_EQ(seen_count, 1);                                                                   \
        CHECK_STR(sw_misuse_name(seen.code), #code_);                                              \
        CHECK(seen.ptr == (const void *)(bad));                                                    \
    } while (0)

#endif
