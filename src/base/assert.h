/* SPDX-License-Identifier: Apache-2.0 */
/* Graded internal assertions. SW_CHECK: 0 none, 1 shipping, 2 local invariants, 3 whole heap.
 * Conditions compile at every grade, so they can not rot. Not for user errors (status.h) and not
 * for misuse (sw_misuse_report).
 */
#ifndef SW_BASE_ASSERT_H
#define SW_BASE_ASSERT_H

#include "base/attributes.h"

#ifndef SW_CHECK
#define SW_CHECK 1
#endif

_Noreturn sw_cold void sw_assert_failed(const char *condition, const char *file, int line);

#define SW_ASSERT_AT(grade, condition)                                                             \
    ((SW_CHECK >= (grade) && !(condition)) ? sw_assert_failed(#condition, __FILE__, __LINE__)      \
                                           : (void)0)
#define sw_assert1(condition) SW_ASSERT_AT(1, condition)
#define sw_assert2(condition) SW_ASSERT_AT(2, condition)
#define sw_assert3(condition) SW_ASSERT_AT(3, condition)

#endif
