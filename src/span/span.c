/* SPDX-License-Identifier: Apache-2.0 */
/* Initialises spans, searches and drains their words, and links spans into lists (span.h). */
#include "span/span.h"

#include <stddef.h>
#include <string.h>

#include "base/base.h"

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

_Static_assert(sizeof(sw_span) == 64, "a span record is one cache line");
_Static_assert(sizeof(sw_word) == 32, "two words a cache line");
_Static_assert(SW_TABLE_SLOTS_MAX <= 2 * 64 * 64, "each word has a bit in remote_words");
_Static_assert(offsetof(sw_span, span_class) == offsetof(sw_span, own.unused), "after own's bits");
_Static_assert((int)SW_FAST_PARTIAL == (int)SW_SPAN_PARTIAL, "what inline frees compare with");

void sw_span_init(sw_span *span, uintptr_t base, uint32_t size, uint32_t slots, uint32_t span_class,
                  sw_word *words, bool needzero) {
    span->base = base;
    span->magic = UINT64_MAX / size + 1;
    span->words = words != NULL ? words : &span->own;
    span->slots = (uint16_t)slots;
    span->span_class = (uint16_t)span_class;
    span->cursor = 0;
    span->needzero = needzero;
    const sw_word *end = span->words + sw_words_of(size, slots);
    for (sw_word *word = span->words; word < end; word++) {
        word->free = ~0ull;
        word->local = word->remote = 0;
    }
    uint32_t last = sw_words_of(size, slots) - 1; /* only the last word has bits without a slot */
    span->words[last].local = sw_span_padding(span, last);
    span->words[last].free = ~span->words[last].local;
}

void sw_span_init_large(sw_span *span, uintptr_t base, bool noscan, bool needzero) {
    span->base = base;
    span->magic = 0;
    span->words = &sw_sentinel_word;
    span->slots = 0;
    span->span_class = (uint16_t)sw_span_class_of(0, noscan);
    span->needzero = needzero;
    sw_span_enter(span, SW_SPAN_LARGE);
}

void sw_span_clear(sw_span *span) { memset(span, 0, sizeof *span); }

static uintptr_t slot_address(const sw_span *span, uint32_t k, uint64_t bits) {
    return span->base + ((uintptr_t)k * 64 + sw_ctz(bits)) * sw_span_size(span);
}

/* Returns those of the given local bits that other threads have set in `remote` as well: their
 * slots were freed twice. The caller clears the local bits and keeps the remote ones, so that each
 * slot is allocated once, after the drain. Remote bits must stay set until the owner has processed
 * their announcement. */
static uint64_t doubled_bits(const sw_span *span, uint32_t k, uint64_t local, uintptr_t *doubled) {
    uint64_t both = sw_word_remote(&span->words[k]) & local;
    if (sw_unlikely(both != 0)) *doubled = slot_address(span, k, both);
    return both;
}

sw_word *sw_span_find_word(sw_span *span, uintptr_t *doubled) {
    sw_check2(sw_span_check(span));
    uint32_t count = sw_span_word_count(span);
    uint32_t k = span->cursor;
    *doubled = 0;
    for (uint32_t i = 0; i < count; i++, k++) {
        if (k >= count) k = 0;
        sw_word *word = &span->words[k];
        uint64_t padding = sw_span_padding(span, k);
        uint64_t local = sw_word_local(word) & ~padding;
        uint64_t bits = sw_word_free(word) | (local & ~doubled_bits(span, k, local, doubled));
        if (local != 0) sw_word_set_local(word, padding);
        if (bits == 0) continue;
        sw_word_set_free(word, bits);
        span->cursor = (uint8_t)k;
        return word;
    }
    return NULL;
}

/* Moves the remote bits of a word to the local ones; returns those that the owner had freed before.
 * A bit is set in `local` before it is cleared in `remote`, for sw_word_all_seen. */
static uint64_t drain_word(sw_word *word) {
    uint64_t local = sw_word_local(word), freed = sw_word_free(word) | local;
    uint64_t bits = __atomic_load_n(&word->remote, __ATOMIC_ACQUIRE);
    do {
        sw_word_set_local(word, local | (bits & ~freed));
    } while (!__atomic_compare_exchange_n(&word->remote, &bits, 0, false, __ATOMIC_ACQ_REL,
                                          __ATOMIC_ACQUIRE));
    return bits & freed;
}

void sw_span_drain(sw_space *space, sw_span *span, uint32_t half, uintptr_t *doubled) {
    uint64_t *announced = &sw_space_cold(space, span)->remote_words[half];
    uint64_t words = sw_span_has_single_word(span)
                         ? half == 0
                         : __atomic_exchange_n(announced, 0, __ATOMIC_ACQ_REL);
    *doubled = 0;
    sw_check2(sw_span_check(span));
    for (; words != 0; words &= words - 1) {
        uint32_t k = half * 64 + sw_ctz(words);
        uint64_t already = drain_word(&span->words[k]);
        if (already != 0) *doubled = slot_address(span, k, already);
    }
    sw_span_dirty(span);
}

uint64_t sw_span_free_bits(const sw_span *span, uint32_t k) {
    const sw_word *word = &span->words[k];
    return sw_word_all(word) & ~sw_span_padding(span, k);
}

uint32_t sw_span_free_slots(const sw_span *span) {
    uint32_t n = 0;
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        n += sw_popcount(sw_span_free_bits(span, k));
    return n;
}

/* Returns whether every slot of the word is free and no remote bit is pending. */
static bool is_word_empty(const sw_word *word) {
    return (sw_word_free(word) | sw_word_local(word)) == ~0ull && sw_word_remote(word) == 0;
}

bool sw_span_is_empty(const sw_span *span) {
    uint32_t count = sw_span_word_count(span);
    /* Check the last word first: if objects are freed in order, its objects are freed last. */
    if (count == 0 || !is_word_empty(&span->words[count - 1])) return count == 0;
    for (uint32_t k = 0; k + 1 < count; k++)
        if (!is_word_empty(&span->words[k])) return false;
    return true;
}

bool sw_span_has_free(const sw_span *span) {
    for (uint32_t k = 0; k < sw_span_word_count(span); k++)
        if (sw_word_free(&span->words[k]) != 0 ||
            sw_word_local(&span->words[k]) != sw_span_padding(span, k))
            return true;
    return false;
}

sw_slot_kind sw_span_locate(const sw_span *span, uintptr_t p, uint32_t *slot) {
    sw_product product = (sw_product)(p - span->base) * span->magic;
    *slot = (uint32_t)(product >> 64);
    if (*slot >= span->slots) return SW_SLOT_PAST_LAST;
    return (uint64_t)product < span->magic ? SW_SLOT_START : SW_SLOT_INTERIOR;
}

/* Called for any pointer that a program frees. If two threads free the same object at once, the
 * span may be released concurrently. So `words` is read only once; it is NULL if the record was
 * cleared. */
bool sw_span_slot_live(const sw_span *span, uint32_t slot) {
    const sw_word *words = __atomic_load_n(&span->words, __ATOMIC_RELAXED);
    if (words == NULL) return false;
    return (sw_word_all(&words[slot / 64]) >> (slot % 64) & 1) == 0;
}

/* --- lists ------------------------------------------------------------------------------------ */

static sw_span_cold *links(sw_space *space, uint32_t id) { return &space->cold[id]; }

void sw_span_list_push(sw_span_list *list, sw_space *space, sw_span *span) {
    uint32_t id = sw_space_span_id(space, span);
    sw_span_cold *own = links(space, id);
    sw_check2(sw_span_list_check(list) ?: sw_span_cold_check(own));
    own->prev = 0;
    own->next = list->head;
    if (list->head != 0) links(space, list->head)->prev = id;
    list->head = id;
    list->count++;
}

void sw_span_list_remove(sw_span_list *list, sw_space *space, sw_span *span) {
    sw_span_cold *own = sw_space_cold(space, span);
    sw_check2(sw_span_list_check(list) ?: sw_span_cold_check(own));
    if (own->prev != 0) {
        links(space, own->prev)->next = own->next;
    } else {
        sw_assert2(list->head == sw_space_span_id(space, span));
        list->head = own->next;
    }
    if (own->next != 0) links(space, own->next)->prev = own->prev;
    own->next = own->prev = 0;
    list->count--;
}

sw_swept sw_span_sweep(sw_span *span, const uint64_t *marks) {
    sw_swept swept = {0};
    for (uint32_t k = 0; k < sw_span_word_count(span); k++) {
        sw_word *word = &span->words[k];
        uint64_t used = ~sw_word_all(word), dead = used & ~marks[k];
        swept.kept += sw_popcount(used & marks[k]);
        swept.freed += sw_popcount(dead);
        if (dead != 0) sw_word_set_local(word, sw_word_local(word) | dead);
    }
    return swept;
}
