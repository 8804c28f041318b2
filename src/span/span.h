/* SPDX-License-Identifier: Apache-2.0 */
/* A span: a run of pages cut into slots, with its words of free bits. The functions here read and
 * change the bits of one record and link records into lists; they take no lock and allocate no
 * pages.
 *
 *   base                                   span end
 *   | slot 0 | slot 1 | ... | slot slots-1 | tail |
 *   words:  [free local remote] [free local remote] ...            one of each per 64 slots
 *
 * A slot is free when its bit is set in `free`, `local` or `remote`. Only a slot that the program
 * freed twice has its bit in two of them. sw_word (fast_abi.h) and the section "frees by other
 * threads" below say which thread writes which field. Only the owner writes `state` and the links;
 * while the span has no owner, the holder of the heap's lock does.
 * Callers: heap, and inspect, which reads.
 */
#ifndef SW_SPAN_SPAN_H
#define SW_SPAN_SPAN_H

#include "base/base.h"
#include "page/space.h"
#include "sizeclass/table.h"

typedef enum sw_span_state {
    SW_SPAN_UNUSED = 0,      /* the record describes no span */
    SW_SPAN_CURRENT,         /* its cache allocates from it now */
    SW_SPAN_PARTIAL,         /* owned, in its cache's partial list */
    SW_SPAN_FULL,            /* owned, in its cache's full list */
    SW_SPAN_CENTRAL_PARTIAL, /* no owner, in the heap's partial list */
    SW_SPAN_CENTRAL_FULL,    /* no owner, in the heap's full list */
    SW_SPAN_KEPT,            /* idle, without owner, kept by the heap for its class; in no list */
    SW_SPAN_LARGE,           /* one large object; not in any list */
    SW_SPAN_STATE_COUNT
} sw_span_state;

/* --- words ------------------------------------------------------------------------------------ */

static sw_always_inline uint64_t sw_word_free(const sw_word *word) {
    return __atomic_load_n(&word->free, __ATOMIC_RELAXED);
}
static sw_always_inline void sw_word_set_free(sw_word *word, uint64_t bits) {
    __atomic_store_n(&word->free, bits, __ATOMIC_RELAXED);
}
static sw_always_inline uint64_t sw_word_local(const sw_word *word) {
    return __atomic_load_n(&word->local, __ATOMIC_RELAXED);
}
static sw_always_inline void sw_word_set_local(sw_word *word, uint64_t bits) {
    __atomic_store_n(&word->local, bits, __ATOMIC_RELAXED);
}

static sw_always_inline uint64_t sw_word_remote(const sw_word *word) {
    return __atomic_load_n(&word->remote, __ATOMIC_RELAXED);
}

/* Returns the bits set in any of the three fields, including padding bits. */
static sw_always_inline uint64_t sw_word_all(const sw_word *word) {
    return sw_word_free(word) | sw_word_local(word) | sw_word_remote(word);
}

/* The same, while the owner may drain the word: a bit that moves from `remote` to `local` is seen in
 * one of them, because the owner sets it there first, and this reads `remote` first. The owner moves
 * no bit from `local` to `free` meanwhile. */
static sw_always_inline uint64_t sw_word_all_seen(const sw_word *word) {
    uint64_t remote = __atomic_load_n(&word->remote, __ATOMIC_ACQUIRE);
    return remote | sw_word_local(word) | sw_word_free(word);
}

/* Returns the number of words of a span of `slots` slots of `size` bytes. If the slots fill the
 * last word and leave a tail, the span has one more word of padding only: a pointer into the tail
 * gives an index in that word, whose bit is set, so its free is detected as invalid. (If `size` is
 * at most a frame and the slots end where a frame ends, the tail is shorter than a frame and made
 * of whole frames, so it is empty.) */
static inline uint32_t sw_words_of(uint32_t size, uint32_t slots) {
    bool filled = size <= SW_FRAME_BYTES && (uint64_t)slots * size % SW_FRAME_BYTES == 0;
    return (slots + (filled ? 63u : 64u)) / 64;
}

/* Returns the bytes of the span's words outside its record; 0 if the word in the record is
 * enough. */
static inline size_t sw_words_bytes(uint32_t size, uint32_t slots) {
    uint32_t words = sw_words_of(size, slots);
    return words == 1 ? 0 : words * sizeof(sw_word);
}

/* Returns the bits of word k without a slot. */
static inline uint64_t sw_span_padding(const sw_span *span, uint32_t k) {
    uint32_t first = k * 64;
    return span->slots >= first + 64 ? 0
                                     : ~sw_low_mask(span->slots > first ? span->slots - first : 0);
}

/* --- spans ------------------------------------------------------------------------------------ */

/* Checks the record of a span in use. The caller owns the span or holds the heap's lock. Returns
 * the first broken rule, or NULL (base/base.h):
 *   state < SW_SPAN_STATE_COUNT;  needzero <= 1;  idle <= 1;  idle only in state PARTIAL
 *   large object:   magic == 0, slots == 0, words == &sw_sentinel_word, span_class <= 1
 *   span of slots:  slots >= 1, span_class >= 2, cursor below the number of words
 *                   words == &own only if slots <= 64
 *                   no slot of the word at the cursor is both in `free` and in `local` */
const char *sw_span_check(const sw_span *span);

/* Returns class * 2 + noscan: 2 .. 511 for slots, 0 and 1 for large objects. */
static sw_always_inline uint32_t sw_span_class_of(uint32_t cls, bool noscan) {
    return cls * 2 + (noscan ? 1 : 0);
}

/* --- owner ------------------------------------------------------------------------------------ */

/* Marks in the two lowest bits of `owner`. A fast free compares `owner` with the address of its
 * cache; a mark makes that comparison fail, and the free takes the slow path. There the first free
 * into a fresh span sets needzero, and a free into a full span leaves a hint or moves the span to
 * another list. */
typedef enum sw_span_mark {
    SW_MARK_NONE = 0,
    SW_MARK_FULL = 1,
    SW_MARK_FRESH = 2,
    SW_MARKS = 3,
} sw_span_mark;

/* Returns the cache that owns the span, without the mark; NULL: no cache owns it. */
static inline sw_cache *sw_span_owner(const sw_span *span) {
    uintptr_t owner = (uintptr_t)__atomic_load_n(&span->owner, __ATOMIC_ACQUIRE);
    return (sw_cache *)(owner & ~(uintptr_t)SW_MARKS);
}

static inline void sw_span_set_owner(sw_span *span, sw_cache *cache, sw_span_mark mark) {
    uintptr_t owner = (uintptr_t)cache | mark;
    __atomic_store_n(&span->owner, (sw_cache *)owner, __ATOMIC_RELEASE);
}

#define SW_SPAN_ARENAS ((uintptr_t)1 << 63)

/* While a large object is live, `owner` of its record is the object's address, which differs from
 * every cache's. A free exchanges that address for NULL in one atomic step: only one of several
 * frees succeeds, and a free of an old pointer fails even if the record describes another span by
 * then. If `owner` is NULL, the span has no live object; a cache keeps it (heap/alloc.h), or it is
 * in transit. While an arena owns the object, `owner` also has the bit SW_SPAN_ARENAS, which no
 * address has, so that every free or resize by address fails. */

static inline bool sw_span_large_lives(const sw_span *span) {
    return __atomic_load_n(&span->owner, __ATOMIC_ACQUIRE) != NULL;
}
static sw_always_inline void sw_span_large_begin(sw_span *span) {
    __atomic_store_n(&span->owner, (sw_cache *)span->base, __ATOMIC_RELEASE);
}
/* Frees the large object at p, but not its pages. False: no live large object starts there. */
static sw_always_inline bool sw_span_large_end(sw_span *span, uintptr_t p) {
    sw_cache *live = (sw_cache *)p;
    return __atomic_compare_exchange_n(&span->owner, &live, NULL, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_RELAXED);
}

static inline bool sw_span_large_is_arenas(const sw_span *span) {
    return ((uintptr_t)__atomic_load_n(&span->owner, __ATOMIC_ACQUIRE) & SW_SPAN_ARENAS) != 0;
}
static inline void sw_span_large_set_arenas(sw_span *span, bool arenas) {
    uintptr_t owner = span->base | (arenas ? SW_SPAN_ARENAS : 0);
    __atomic_store_n(&span->owner, (sw_cache *)owner, __ATOMIC_RELEASE);
}

static inline void sw_span_enter(sw_span *span, sw_span_state state) {
    __atomic_store_n(&span->state, (uint8_t)state, __ATOMIC_RELAXED);
}
/* Records that the span's slots may hold old bytes. */
static inline void sw_span_dirty(sw_span *span) {
    __atomic_store_n(&span->needzero, 1, __ATOMIC_RELAXED);
}
/* For walks over the heap, while another thread may change the span. */
static inline sw_span_state sw_span_state_seen(const sw_span *span) {
    return (sw_span_state)__atomic_load_n(&span->state, __ATOMIC_RELAXED);
}
static inline bool sw_span_dirty_seen(const sw_span *span) {
    return __atomic_load_n(&span->needzero, __ATOMIC_RELAXED) != 0;
}

/* Initialises the record of a fresh span of `slots` free slots of `size` bytes. `words` has
 * sw_words_bytes(size, slots) bytes, and is NULL if that is 0. */
void sw_span_init(sw_span *span, uintptr_t base, uint32_t size, uint32_t slots, uint32_t span_class,
                  sw_word *words, bool needzero);
/* Initialises the record of a large object that is not live yet. */
void sw_span_init_large(sw_span *span, uintptr_t base, bool noscan, bool needzero);
void sw_span_clear(sw_span *span);

/* Finds the next word with a free slot, from the cursor to the end and then from the first word on,
 * moves its local bits into `free` and sets the cursor to it. NULL: no word has a free slot. Only
 * the span's owner, or the holder of the lock, may call it. *doubled: the address of a slot that
 * both the owner and another thread freed (the owner's free is undone); else 0. */
sw_word *sw_span_find_word(sw_span *span, uintptr_t *doubled);

/* Returns the index of the slot that contains p, an address within the slots. */
static sw_always_inline uint32_t sw_span_slot_of(const sw_span *span, uintptr_t p) {
    return (uint32_t)(((sw_product)(p - span->base) * span->magic) >> 64);
}

/* Returns whether the record is that of a large object. Unlike `state`, this does not change while
 * an object is live, so any thread that has the object may call it. */
static inline bool sw_span_is_large(const sw_span *span) { return span->magic == 0; }

/* Returns the bytes of a slot; 0 for large objects. It takes a division, so fast paths read the
 * size of the class. (magic is ceil(2^64 / size), so 2^64 / magic is in (size - 1, size].) */
static inline uint32_t sw_span_size(const sw_span *span) {
    uint64_t magic =
        __atomic_load_n(&span->magic, __ATOMIC_RELAXED); /* a racing free may clear it */
    return magic == 0 ? 0 : (uint32_t)(UINT64_MAX / magic + 1);
}

/* Returns the number of words with the bit of a slot. */
static inline uint32_t sw_span_word_count(const sw_span *span) { return (span->slots + 63u) / 64; }

/* Returns whether the span has one word for all its slots, in the record. */
static inline bool sw_span_has_single_word(const sw_span *span) {
    return span->words == &span->own;
}

/* Returns the address of the word's first slot; `bytes` is the slot size. */
static inline uintptr_t sw_span_word_base(const sw_span *span, const sw_word *word,
                                          uint32_t bytes) {
    return span->base + (uintptr_t)(word - span->words) * 64 * bytes;
}

/* --- frees by other threads -------------------------------------------------------------------
 * A bit in `remote` that the owner has not drained yet is *pending*. A thread that frees a slot of
 * another cache's span sets the slot's remote bit by an atomic OR. If no other bit of the word was
 * set, the thread is the word's *announcer*: it sets the word's bit in remote_words, and if
 * remote_words of that half was 0, it pushes the half span on the owner's remote stack. In a span
 * of one word the announcer pushes at once, and remote_words stays 0. The owner drains a word only
 * after the word was announced. Therefore
 *   - a span with pending bits is never given up;
 *   - only an announcer touches the record after its OR, and its word stays pending until the owner
 *     has popped the half, so no thread touches a record that was released;
 *   - no announcement is lost, because the first free after a drain announces again.
 */
typedef enum sw_remote_result {
    SW_REMOTE_DONE,     /* the bit is set; another thread announces the word */
    SW_REMOTE_ANNOUNCE, /* the caller must push the slot's half on the owner's stack */
    SW_REMOTE_DOUBLE,   /* the slot was free already: nothing changed */
} sw_remote_result;

/* Returns which half of the span's words the slot belongs to: 0 or 1, as the remote stack numbers
 * them. */
static inline uint32_t sw_span_half(uint32_t slot) { return slot / (64 * 64); }

/* Sets the slot's remote bit. SW_REMOTE_ANNOUNCE: the caller is the word's announcer and must call
 * sw_span_announce next. */
static sw_always_inline sw_remote_result sw_span_remote_set(sw_span *span, uint64_t slot) {
    sw_word *word = &span->words[slot / 64];
    uint64_t bit = 1ull << (slot % 64);
    if (((sw_word_free(word) | sw_word_local(word)) & bit) != 0) return SW_REMOTE_DOUBLE;
    uint64_t before = __atomic_fetch_or(&word->remote, bit, __ATOMIC_ACQ_REL);
    if ((before & bit) != 0) return SW_REMOTE_DOUBLE;
    return before != 0 ? SW_REMOTE_DONE : SW_REMOTE_ANNOUNCE;
}

/* Announces the slot's word. True: the caller must push the slot's half on the owner's stack. */
static inline bool sw_span_announce(sw_space *space, sw_span *span, uint32_t slot) {
    if (sw_span_has_single_word(span)) return true;
    uint64_t *announced = &sw_space_cold(space, span)->remote_words[sw_span_half(slot)];
    return __atomic_fetch_or(announced, 1ull << (slot / 64 % 64), __ATOMIC_ACQ_REL) == 0;
}

static inline sw_remote_result sw_span_remote_free(sw_space *space, sw_span *span, uint32_t slot) {
    sw_remote_result result = sw_span_remote_set(span, slot);
    if (result != SW_REMOTE_ANNOUNCE) return result;
    return sw_span_announce(space, span, slot) ? SW_REMOTE_ANNOUNCE : SW_REMOTE_DONE;
}

/* Clears the announcements of a half span and moves the remote bits of the announced words into
 * `local`. The caller has just popped the half, and owns the span, or holds the heap's lock if no
 * cache owns it. *doubled: the address of a slot that was free already, because two threads freed
 * it at once; else 0. */
void sw_span_drain(sw_space *space, sw_span *span, uint32_t half, uintptr_t *doubled);

uint32_t sw_span_free_slots(const sw_span *span); /* in any of the three fields */
bool sw_span_is_empty(const sw_span *span);       /* every slot is free, no remote bit pending */
bool sw_span_has_free(const sw_span *span);       /* some slot is in `free` or `local` */

/* Returns the slots of word k whose bit is set in `free`, `local` or `remote`. */
uint64_t sw_span_free_bits(const sw_span *span, uint32_t k);

/* The position of a pointer in a span of slots. */
typedef enum sw_slot_kind { SW_SLOT_START, SW_SLOT_INTERIOR, SW_SLOT_PAST_LAST } sw_slot_kind;
sw_slot_kind sw_span_locate(const sw_span *span, uintptr_t p, uint32_t *slot);
/* Returns whether the slot is allocated: its bit is set in none of the three fields. */
bool sw_span_slot_live(const sw_span *span, uint32_t slot);

/* Result of a sweep: objects that it kept, and objects that it freed. */
typedef struct sw_swept {
    uint32_t kept, freed;
} sw_swept;

/* Frees the allocated slots whose bit in `marks` is clear, by setting their bits in `local`. Only
 * the owner may call it, or the holder of the lock if the span has no owner. */
sw_swept sw_span_sweep(sw_span *span, const uint64_t *marks);

/* --- lists ------------------------------------------------------------------------------------ */

/* A doubly linked list of span ids; the links are in the cold records. Only the owner of the list
 * writes it: a cache's thread, or the holder of the heap's lock.
 *   (head == 0) == (count == 0) */
typedef struct sw_span_list {
    uint32_t head;
    uint32_t count;
} sw_span_list;

const char *sw_span_list_check(const sw_span_list *list);

void sw_span_list_push(sw_span_list *list, sw_space *space, sw_span *span);
void sw_span_list_remove(sw_span_list *list, sw_space *space, sw_span *span);

#endif
