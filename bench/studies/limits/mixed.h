// SPDX-License-Identifier: Apache-2.0
// Prototypes of malloc and free of 1 .. 1024 B for the rows that replace objects of random sizes, each
// with one requirement more than the one before. malloc and free are called, not inlined, as in a
// program whose malloc is preloaded.
#ifndef SPANWISE_BENCH_LIMITS_MIXED_H
#define SPANWISE_BENCH_LIMITS_MIXED_H

#include <cstring>

#include "long_spans.h"
#include "steps.h"

namespace limits {

enum class Level {
    BYTE, // a list a class, threaded through the objects; one byte a page tells the class of an object
    RECORD,  // the class from the page map and the record of the span; an address outside is found
    BIT,     // a bit a slot, set at free, cleared at malloc; a double free is found
    CHECKED, // addresses inside a slot and foreign owners are found
    BITMAP,  // bits alone: words and transitions, as our plain free and malloc without hints
    HINTS,   // a stack of slots of full spans that were just freed: ours
    HINTS_ALL, // the same with slots of all spans
    STACK, // the same, 1024 a class; full spans are not marked, so a free has no slow path for them
};

template <Level LEVEL> struct Mixed : bench::Policy {
    static constexpr bool LISTS = LEVEL < Level::BITMAP;
    static constexpr uint32_t DEPTH = LEVEL == Level::STACK ? 1024 : 32; // hints of a class
    using Memory = LongSpace<Mixed, !LISTS, DEPTH>;

    static inline thread_local MixedCache *cache = &Memory::cache;

    static void ready() { Memory::ready(); }
    template <size_t N> static void *get() { return get_any(N); }
    template <size_t N> static void *zget() { return memset(get_any(N), 0, N); }
    static size_t usable(void *p) {
        return SIZES.bytes[Memory::frame_class[(address(p) - Memory::cache.base) >> FRAME_BITS]];
    }

    [[gnu::noinline]] static void *get_any(size_t size) {
        MixedCache *c = cache;
        unsigned cls = SIZES.of[(size + SIZE_STEP - 1) / SIZE_STEP];
        if constexpr (LISTS)
            return pop(c, cls);
        else
            return take(c, cls);
    }

    [[gnu::noinline]] static void drop(void *p) {
        MixedCache *c = cache;
        if constexpr (LEVEL == Level::BYTE) {
            push(c, c->frame_class[(address(p) - c->base) >> FRAME_BITS], static_cast<Node *>(p));
        } else if constexpr (LISTS) {
            drop_listed(c, p);
        } else if constexpr (LEVEL == Level::STACK) {
            drop_on_stack(c, address(p));
        } else {
            drop_bit(c, address(p));
        }
    }

    // The span of an address and, where the step needs it, the slot that begins there; NULL: rejected.
    static LongSpan *find(const MixedCache *c, uintptr_t p, uint64_t *slot) {
        uint64_t frame = (p - c->base) >> FRAME_BITS;
        if (__builtin_expect(frame >= c->frames, 0)) {
            reject(Fault::OUTSIDE);
            return nullptr;
        }
        LongSpan *span = &c->spans[c->page_map[frame]];
        if constexpr (LEVEL >= Level::BIT) {
            __extension__ using Product = unsigned __int128;
            Product product = static_cast<Product>(p - span->base) * span->magic;
            *slot = static_cast<uint64_t>(product >> 64);
            if (LEVEL >= Level::CHECKED &&
                __builtin_expect(static_cast<uint64_t>(product) >= span->magic, 0)) {
                reject(Fault::INTERIOR);
                return nullptr;
            }
        }
        return span;
    }

    // --- lists ------------------------------------------------------------------------------------

    static void *pop(MixedCache *c, unsigned cls) {
        Node *node = load(c->heads[cls]);
        if (__builtin_expect(node == nullptr, 0)) return carve(c, cls);
        store(c->heads[cls], load(node->next));
        if constexpr (LEVEL >= Level::BIT) {
            uint64_t at = load(node->at), *bits = reinterpret_cast<uint64_t *>(at >> 6);
            store(*bits, load(*bits) & ~bit_of(at));
        }
        return node;
    }

    static void push(MixedCache *c, unsigned cls, Node *node) {
        store(node->next, load(c->heads[cls]));
        store(c->heads[cls], node);
    }

    static void drop_listed(MixedCache *c, void *p) {
        uint64_t slot;
        LongSpan *span = find(c, address(p), &slot);
        if (__builtin_expect(span == nullptr, 0)) return;
        if constexpr (LEVEL >= Level::CHECKED) {
            if (__builtin_expect(load(span->owner) != address(c), 0)) return reject(Fault::FOREIGN);
        }
        Node *node = static_cast<Node *>(p);
        if constexpr (LEVEL >= Level::BIT) {
            uint64_t *place = &span->bits[slot / 64], bits = load(*place), bit = bit_of(slot);
            if (__builtin_expect((bits & bit) != 0, 0)) return reject(Fault::DOUBLE);
            store(*place, bits | bit);
            store(node->at, address(place) << 6 | slot % 64);
        }
        push(c, span->cls, node);
    }

    // An object that was never handed out.
    [[gnu::noinline]] static void *carve(MixedCache *c, unsigned cls) {
        size_t bytes = SIZES.bytes[cls];
        if (c->fresh_end[cls] - c->fresh[cls] < bytes) {
            c->fresh[cls] = Memory::fresh_span(cls)->base;
            c->fresh_end[cls] = c->fresh[cls] + LONG_SPAN;
        }
        uintptr_t p = c->fresh[cls];
        c->fresh[cls] += bytes;
        if constexpr (LEVEL >= Level::BIT) {
            uint64_t slot;
            LongSpan *span = find(c, p, &slot);
            span->bits[slot / 64] &= ~bit_of(slot);
        }
        return reinterpret_cast<void *>(p);
    }

    // --- allocation from words --------------------------------------------------------------------

    static void *take(MixedCache *c, unsigned cls) {
        Point *point = &c->points[cls];
        if constexpr (LEVEL >= Level::HINTS) {
            if (point->hints != 0) return take_hinted(c, cls);
        }
        uint64_t bits = load(point->word->free);
        if (__builtin_expect(bits == 0, 0)) return refill(c, cls);
        store(point->word->free, bits & (bits - 1));
        return reinterpret_cast<void *>(point->base + size_t{lowest(bits)} * point->bytes);
    }

    static Hint *stack_of(MixedCache *c, unsigned cls) { return &c->hints[2 + cls * DEPTH]; }

    // The newest hint's slot, unless it was handed out meanwhile.
    static void *take_hinted(MixedCache *c, unsigned cls) {
        Point *point = &c->points[cls];
        const Hint *hint = &stack_of(c, cls)[--point->hints];
        Word *word = hint->word;
        uint64_t local = load(word->local), bit = bit_of(hint->at);
        if (__builtin_expect((local & ~load(word->remote) & bit) == 0, 0)) return again(c, cls);
        store(word->local, local & ~bit);
        return reinterpret_cast<void *>(hint->at >> 6);
    }

    [[gnu::noinline]] static void *again(MixedCache *c, unsigned cls) { return take(c, cls); }

    // Goes to another word with free slots: of the current span, else of the newest partial span,
    // of a whole one, or of an unused one.
    [[gnu::noinline]] static void *refill(MixedCache *c, unsigned cls) {
        Point *point = &c->points[cls];
        while (point->span == nullptr || !point_at_word(point)) {
            if (point->span != nullptr) {
                point->span->place = Place::FULL;
                if constexpr (LEVEL != Level::STACK) store(point->span->owner, address(c) | 1);
            }
            LongSpan *&list = c->partial[cls] != nullptr ? c->partial[cls] : c->whole[cls];
            LongSpan *span = list;
            if (span != nullptr)
                unlink_from(list, span);
            else
                span = Memory::fresh_span(cls);
            span->place = Place::CURRENT;
            point->span = span;
        }
        return take(c, cls);
    }

    // The next word at or after the cursor with free slots; `local` is moved into `free`.
    static bool point_at_word(Point *point) {
        LongSpan *span = point->span;
        size_t count = Memory::word_count(*span);
        for (size_t tried = 0; tried < count; tried++) {
            size_t index = span->cursor;
            span->cursor = static_cast<uint8_t>(index + 1 == count ? 0 : index + 1);
            Word *word = &span->words[index];
            uint64_t beyond = Memory::padding(*span, index);
            uint64_t bits = load(word->free) | (load(word->local) & ~beyond);
            if (bits == 0) continue;
            store(word->free, bits);
            store(word->local, beyond);
            point->word = word;
            point->base = span->base + index * 64 * point->bytes;
            return true;
        }
        return false;
    }

    // --- frees into words -------------------------------------------------------------------------

    static void drop_on_stack(MixedCache *c, uintptr_t p) {
        uint64_t slot;
        LongSpan *span = find(c, p, &slot);
        if (__builtin_expect(span == nullptr, 0)) return;
        if (__builtin_expect(load(span->owner) != address(c), 0)) return reject(Fault::FOREIGN);
        Word *word = &span->words[slot / 64];
        uint64_t local = load(word->local), both = local | load(word->free), bit = bit_of(slot);
        if (__builtin_expect((both & bit) != 0, 0)) return reject(Fault::DOUBLE);
        store(word->local, local | bit);
        Point *point = &c->points[span->cls];
        uint32_t hints = point->hints;
        if (__builtin_expect(hints == DEPTH, 0)) return freed_beyond(c, span);
        stack_of(c, span->cls)[hints] = {p << 6 | slot % 64, word};
        point->hints = hints + 1;
        if (__builtin_expect(all_set(both | bit), 0)) emptied(c, span);
    }

    // A free for which there is no room for a hint.
    [[gnu::noinline]] static void freed_beyond(MixedCache *c, LongSpan *span) {
        if (span->place == Place::FULL) {
            span->place = Place::PARTIAL;
            link_in(c->partial[span->cls], span);
        }
        emptied(c, span);
    }

    static void drop_bit(MixedCache *c, uintptr_t p) {
        uint64_t slot;
        LongSpan *span = find(c, p, &slot);
        if (__builtin_expect(span == nullptr, 0)) return;
        if (__builtin_expect(load(span->owner) != address(c), 0))
            return drop_marked(c, span, slot, p);
        Word *word = &span->words[slot / 64];
        if (__builtin_expect(!set_local(c, span, word, bit_of(slot)), 0)) return;
        if constexpr (LEVEL == Level::HINTS_ALL) {
            Point *point = &c->points[span->cls];
            if (point->hints < DEPTH && span->place != Place::WHOLE) remember(c, span, p, slot);
        }
    }

    static bool set_local(MixedCache *c, LongSpan *span, Word *word, uint64_t bit) {
        uint64_t local = load(word->local), both = local | load(word->free);
        if (__builtin_expect((both & bit) != 0, 0)) {
            reject(Fault::DOUBLE);
            return false;
        }
        store(word->local, local | bit);
        if (__builtin_expect(all_set(both | bit) && span->place == Place::PARTIAL, 0))
            emptied(c, span);
        return true;
    }

    static void remember(MixedCache *c, LongSpan *span, uintptr_t p, uint64_t slot) {
        Point *point = &c->points[span->cls];
        stack_of(c, span->cls)[point->hints++] = {p << 6 | slot % 64, &span->words[slot / 64]};
    }

    // A free into a full span; if the owner is no marked cache of ours, the span is another
    // cache's. The span stays full while a hint leads to the slot. Three frees in a row into one
    // word mean that objects are freed in the order of their addresses, and then the span becomes
    // partial.
    [[gnu::noinline]] static void drop_marked(MixedCache *c, LongSpan *span, uint64_t slot,
                                              uintptr_t p) {
        if (load(span->owner) != (address(c) | 1)) return reject(Fault::FOREIGN);
        Word *word = &span->words[slot / 64];
        if constexpr (LEVEL >= Level::HINTS) {
            uint32_t hints = c->points[span->cls].hints;
            const Hint *next = &stack_of(c, span->cls)[hints];
            uint64_t local = load(word->local), bit = bit_of(slot);
            if (hints < DEPTH && !(next[-1].word == word && next[-2].word == word) &&
                (local & bit) == 0) {
                remember(c, span, p, slot);
                store(word->local, local | bit);
                return;
            }
        }
        if (!set_local(c, span, word, bit_of(slot))) return;
        store(span->owner, address(c));
        span->place = Place::PARTIAL;
        link_in(c->partial[span->cls], span);
        if (all_set(load(word->free) | load(word->local))) emptied(c, span);
    }

    // Called when a word of a span is wholly free. If the whole span is, the span becomes whole,
    // and hints at its slots are dropped.
    [[gnu::noinline]] static void emptied(MixedCache *c, LongSpan *span) {
        if (span->place != Place::PARTIAL && span->place != Place::FULL) return;
        size_t count = Memory::word_count(*span);
        for (size_t i = 0; i < count; i++)
            if (!all_set(load(span->words[i].free) | load(span->words[i].local))) return;
        Point *point = &c->points[span->cls];
        Hint *hints = stack_of(c, span->cls);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < point->hints; i++)
            if (hints[i].word < span->words || hints[i].word >= span->words + count)
                hints[kept++] = hints[i];
        point->hints = kept;
        if (span->place == Place::PARTIAL) unlink_from(c->partial[span->cls], span);
        span->place = Place::WHOLE;
        link_in(c->whole[span->cls], span);
    }
};

} // namespace limits
#endif
