/* SPDX-License-Identifier: Apache-2.0 */
/* Checks that creation with invalid options fails. */
#ifndef TESTS_UNIT_OPTIONS_H
#define TESTS_UNIT_OPTIONS_H

#include "check.h"

/* A `type` is not created from its default options after the assignments to `o`, which a comma
 * separates. */
#define REFUSED(type, want, ...)                                                                   \
    do {                                                                                           \
        type##_options o;                                                                          \
        type *made_ = NULL;                                                                        \
        type##_options_init(&o);                                                                   \
        __VA_ARGS__;                                                                               \
        CHECK_EQ(type##_create(&o, &made_), want);                                                 \
        CHECK(made_ == NULL);                                                                      \
    } while (0)

#endif
