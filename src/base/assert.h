/* SPDX-License-Identifier: Apache-2.0 */
/* Internal assertions of graded cost. SW_CHECK: 0 none, 1 as shipped, 2 local invariants, 3 the
 * whole heap. Conditions are compiled at every grade, so renaming cannot break them unnoticed. They
 * are not for a caller's errors (status.h) or misuse (sw_misuse_report).
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
 * verification of the whole heap (inspect/) calls it for every struct that it meets. Design:
 * docs/design/checks.md.
 */
#ifndef SW_BASE_ASSERT_H
#define SW_BASE_ASSERT_H

#include <stddef.h>

#include "base/attributes.h"

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

#endif
