/* SPDX-License-Identifier: Apache-2.0 */
/* A span against an array of slot states: allocation, frees by the owner and by others, drains,
 * double frees, classification of pointers; lists against an array; the protocol of announcers. */
#include <stdbool.h>

#include "check.h"
#include "ds/meta.h"
#include "heap/placement.h"
#include "heap/target.h"
#include "heaps.h"
#include "spanwise/spanwise.h"

enum { SLOTS_MAX = SW_TABLE_SLOTS_MAX };

typedef enum slot_state { LIVE, FREE, LOCAL, REMOTE } slot_state;

typedef struct bench {
    sw_space *space;
    sw_meta meta;
    sw_span *span;
    uint32_t size, slot_count;
    slot_state slots[SLOTS_MAX];
    bool announced[2]; /* the half is on the owner's stack */
} bench;

static bench b;

static size_t words_bytes(void) { return sw_words_bytes(b.size, b.slot_count); }

static void set_up(uint32_t size, uint32_t slots) {
    b.size = size;
    b.slot_count = slots;
    sw_word *words = words_bytes() == 0 ? NULL : sw_meta_alloc(&b.meta, words_bytes());
    sw_span_clear(b.span);
    sw_span_init(b.span, b.space->view.base + 65536, size, slots, 5, words, false);
    for (uint32_t i = 0; i < slots; i++) b.slots[i] = FREE;
    b.announced[0] = b.announced[1] = false;
    memset(sw_space_cold(b.space, b.span), 0, sizeof(sw_span_cold));
}

static void tear_down(void) {
    if (b.span->words != &b.span->own) sw_meta_free(&b.meta, b.span->words, words_bytes());
}

static void compare(void) {
    uint32_t wrong = 0, free_slots = 0, usable = 0, pending = 0;
    for (uint32_t i = 0; i < b.slot_count; i++) {
        wrong += sw_span_slot_live(b.span, i) != (b.slots[i] == LIVE);
        wrong += (sw_span_free_bits(b.span, i / 64) >> (i % 64) & 1) != (b.slots[i] != LIVE);
        free_slots += b.slots[i] != LIVE;
        usable += b.slots[i] == FREE || b.slots[i] == LOCAL;
        pending += b.slots[i] == REMOTE;
    }
    for (uint32_t k = 0; k < sw_span_word_count(b.span); k++)
        wrong += (sw_span_free_bits(b.span, k) & sw_span_padding(b.span, k)) != 0;
    CHECK_EQ(wrong, 0);
    CHECK_EQ(sw_span_free_slots(b.span), free_slots);
    CHECK_EQ(sw_span_has_free(b.span), usable > 0);
    CHECK_EQ(sw_span_is_empty(b.span), usable == b.slot_count && pending == 0);
}

/* Takes every slot of one word, as a cache would; what it gets must have been free. */
static void allocate(uint32_t most) {
    uintptr_t doubled;
    sw_word *word = sw_span_find_word(b.span, &doubled);
    CHECK_EQ(doubled, 0);
    if (word == NULL) {
        for (uint32_t i = 0; i < b.slot_count; i++)
            CHECK(b.slots[i] == LIVE || b.slots[i] == REMOTE);
        return;
    }
    uint32_t first = (uint32_t)(word - b.span->words) * 64;
    CHECK_EQ(sw_span_word_base(b.span, word, b.size), b.span->base + (uintptr_t)first * b.size);
    for (uint32_t i = first; i < first + 64 && i < b.slot_count; i++)
        if (b.slots[i] == LOCAL) b.slots[i] = FREE;
    for (uint32_t n = 0; n < most && sw_word_free(word) != 0; n++) {
        uint64_t bits = sw_word_free(word);
        uint32_t slot = first + sw_ctz(bits);
        CHECK(slot < b.slot_count && b.slots[slot] == FREE);
        b.slots[slot] = LIVE;
        sw_word_set_free(word, bits & (bits - 1));
    }
}

static void free_remotely(uint32_t slot) {
    bool pending_word = false, pending_half = false;
    for (uint32_t i = 0; i < b.slot_count; i++) {
        if (b.slots[i] != REMOTE) continue;
        pending_word = pending_word || i / 64 == slot / 64;
        pending_half = pending_half || sw_span_half(i) == sw_span_half(slot);
    }
    sw_remote_result want = b.slots[slot] != LIVE          ? SW_REMOTE_DOUBLE
                            : pending_word || pending_half ? SW_REMOTE_DONE
                                                           : SW_REMOTE_ANNOUNCE;
    CHECK_EQ(sw_span_remote_free(b.space, b.span, slot), want);
    if (want == SW_REMOTE_DOUBLE) return;
    b.slots[slot] = REMOTE;
    b.announced[sw_span_half(slot)] = true;
}

static void drain(uint32_t half) {
    uintptr_t doubled;
    if (!b.announced[half]) return;
    sw_span_drain(b.space, b.span, half, &doubled);
    CHECK_EQ(doubled, 0);
    b.announced[half] = false;
    for (uint32_t i = 0; i < b.slot_count; i++)
        if (b.slots[i] == REMOTE && sw_span_half(i) == half) b.slots[i] = LOCAL;
}

static void free_locally(uint32_t slot) {
    sw_word *word = &b.span->words[slot / 64];
    if (b.slots[slot] != LIVE) return;
    sw_word_set_local(word, sw_word_local(word) | 1ull << (slot % 64));
    b.slots[slot] = LOCAL;
}

static void random_work(uint32_t size, uint32_t slots, uint64_t seed, int steps) {
    set_up(size, slots);
    compare();
    for (int step = 0; step < steps; step++) {
        uint64_t r = check_random(&seed);
        uint32_t slot = (uint32_t)(r >> 32) % slots;
        switch (r % 5) {
        case 0: allocate(1 + (uint32_t)(r >> 8) % 64); break;
        case 1: free_remotely(slot); break;
        case 2:
        case 3: free_locally(slot); break;
        default: drain((r >> 8) & 1); break;
        }
        if (step % 16 == 0) compare();
    }
    tear_down();
}

/* --- lists ------------------------------------------------------------------------------------ */

static void lists(uint64_t seed) {
    enum { COUNT = 60 };
    sw_span_list list = {0};
    uint32_t first = sw_space_take_spans(b.space);
    uint32_t stack[COUNT], count = 0;
    CHECK(sw_placement_choose(&list, b.space, SW_PLACE_ADDRESS) == NULL);
    for (int step = 0; step < 4000; step++) {
        uint64_t r = check_random(&seed);
        uint32_t id = first + (uint32_t)(r >> 8) % COUNT, at = 0;
        sw_span *span = sw_space_span(b.space, id);
        while (at < count && stack[at] != id) at++;
        if (at == count) {
            sw_space_cold(b.space, span)->page =
                (uint32_t)(r >> 32) % 1000 * COUNT + (id - first); /* no two alike */
            sw_span_list_push(&list, b.space, span);
            stack[count++] = id;
        } else {
            sw_span_list_remove(&list, b.space, span);
            memmove(&stack[at], &stack[at + 1], (--count - at) * sizeof stack[0]);
        }
        CHECK_EQ(list.count, count);
        uint32_t walk = list.head, lowest = 0;
        for (uint32_t i = count; i-- > 0; walk = b.space->cold[walk].next) {
            CHECK_EQ(walk, stack[i]);
            if (lowest == 0 || b.space->cold[walk].page < b.space->cold[lowest].page) lowest = walk;
        }
        CHECK_EQ(walk, 0);
        if (count == 0) continue;
        CHECK(sw_placement_choose(&list, b.space, SW_PLACE_LIFO) ==
              sw_space_span(b.space, list.head));
        CHECK(sw_placement_choose(&list, b.space, SW_PLACE_ADDRESS) ==
              sw_space_span(b.space, lowest));
    }
}

int main(void) {
    b.space = sw_space_dry_create();
    CHECK(b.space != NULL);
    sw_meta_init(&b.meta);
    b.span = sw_space_span(b.space, sw_space_take_spans(b.space));
    const uint32_t slots[] = {1,   2,    63,   64,   65,   127,  128, 170,
                              512, 1024, 4095, 4096, 4097, 8191, 8192};
    for (size_t i = 0; i < sizeof slots / sizeof *slots; i++) {
        random_work(8, slots[i], i + 1, 3000);
        random_work(48, slots[i], i + 100, 1000);
    }
    lists(9);
    sw_meta_destroy(&b.meta);
    sw_space_dry_destroy(b.space);
    return check_result();
}
