/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of spans and their lists, as span.h states them. See base/assert.h. */
#include "base/assert.h"
#include "span/span.h"

static const char *check_large(const sw_span *span) {
    return SW_RULE(span->slots == 0)
               ?: SW_RULE(span->words == &sw_sentinel_word)
               ?: SW_RULE(span->span_class <= 1)
               ?: SW_RULE(span->idle == 0);
}

/* Checks only the word at the cursor, so that the time does not depend on the span's length. */
static const char *check_slots(const sw_span *span) {
    const sw_word *word = &span->words[span->cursor];
    return SW_RULE(span->slots >= 1)
               ?: SW_RULE(span->span_class >= 2)
               ?: SW_RULE(span->cursor < sw_span_word_count(span))
               ?: SW_RULE(span->words != &span->own || span->slots <= 64)
               ?: SW_RULE((sw_word_free(word) & sw_word_local(word)) == 0)
               ?: SW_RULE((sw_word_free(word) & sw_span_padding(span, span->cursor)) == 0);
}

const char *sw_span_check(const sw_span *span) {
    return SW_RULE(span->state < SW_SPAN_STATE_COUNT)
               ?: SW_RULE(span->needzero <= 1)
               ?: SW_RULE(span->idle <= 1)
               ?: SW_RULE(span->idle == 0 || span->state == SW_SPAN_PARTIAL)
               ?: (sw_span_is_large(span) ? check_large(span) : check_slots(span));
}

const char *sw_span_list_check(const sw_span_list *list) {
    return SW_RULE((list->head == 0) == (list->count == 0));
}
