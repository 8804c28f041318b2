// SPDX-License-Identifier: Apache-2.0
// Prototypes of malloc and free of one size, each with one requirement more than the one before. They
// are policies (policy.h), so that the rows of rows.h time them with the very loops of the peers.
#ifndef SPANWISE_BENCH_LIMITS_STEPS_H
#define SPANWISE_BENCH_LIMITS_STEPS_H

#include <cstring>

#include "policy.h"
#include "space.h"

namespace limits {

enum class Step {
    LIST,         // a list threaded through the objects, no checks: what the peers do
    RECORD_WORD,  // the one word that the cache's record points to; its slots only
    RECORD_SPLIT, // the same, `free` and `local` apart
    WORD,         // dense words of the whole space, found by shifts
    SPLIT,        // the same, `free` and `local` apart, `remote` in the layout
    LOOKUP,       // free: frame -> page map -> record of the span; an address outside is found
    MAGIC,        // the slot by multiplication; an address inside a slot is found
    OWNER,        // a span of another cache is found
    DOUBLE,       // the slot's bit must be clear in both words
    TRANSITION,   // lists of partial and whole spans, marked owners of full ones: our plain free
};

inline bool all_set(uint64_t bits) { return bits == ~uint64_t{0}; }
inline uint64_t bit_of(uint64_t slot) { return uint64_t{1} << (slot % 64); }
inline uintptr_t address(const void *p) { return reinterpret_cast<uintptr_t>(p); }
inline unsigned lowest(uint64_t bits) { return static_cast<unsigned>(__builtin_ctzll(bits)); }

template <class SPAN> void link_in(SPAN *&list, SPAN *span) {
    span->prev = nullptr;
    span->next = list;
    if (list != nullptr) list->prev = span;
    list = span;
}

template <class SPAN> void unlink_from(SPAN *&list, SPAN *span) {
    (span->prev != nullptr ? span->prev->next : list) = span->next;
    if (span->next != nullptr) span->next->prev = span->prev;
}

// TAG gives a prototype that is made of another one a space of its own.
template <Step STEP, size_t SIZE, class TAG = void> struct Prototype : bench::Policy {
    using Memory = Space<Prototype, SIZE>;
    static constexpr bool RECORD = STEP == Step::RECORD_WORD || STEP == Step::RECORD_SPLIT;
    static constexpr bool ONE_WORD = STEP == Step::RECORD_WORD || STEP == Step::WORD;
    static constexpr bool LISTS = STEP >= Step::TRANSITION;

    static inline thread_local Cache *cache = &Memory::caches[0];

    static void ready() { Memory::ready(1); }
    // The calling thread becomes the owner of cache 0 or 1.
    static void use(unsigned index) { cache = &Memory::caches[index]; }

    template <size_t N> static void *get() {
        static_assert(N <= SIZE, "a prototype has one size");
        return take(cache);
    }
    template <size_t N> static void *zget() { return memset(get<N>(), 0, N); }
    static size_t usable(void *) { return SIZE; }

    static void drop(void *p) {
        Cache *c = cache;
        if constexpr (STEP == Step::LIST) {
            push(c, static_cast<Object *>(p));
        } else if constexpr (STEP < Step::LOOKUP) {
            drop_by_shift(c, address(p));
        } else {
            uint64_t slot;
            drop_by_span(c, address(p), &slot);
        }
    }

    // --- allocation -------------------------------------------------------------------------------

    static void *take(Cache *c) {
        if constexpr (STEP == Step::LIST) {
            Object *object = load(c->head);
            if (__builtin_expect(object == nullptr, 0)) return more(c);
            store(c->head, load(object->next));
            return object;
        } else {
            uint64_t *word = ONE_WORD ? c->bit : &c->word->free;
            uint64_t bits = load(*word);
            if (__builtin_expect(bits == 0, 0)) return refill(c);
            store(*word, bits & (bits - 1));
            return reinterpret_cast<void *>(c->word_base + lowest(bits) * SIZE);
        }
    }

    // Takes an object that another thread sent back, else one that was never handed out.
    [[gnu::noinline]] static void *more(Cache *c) {
        while (Object *next = __atomic_load_n(&c->front->next, __ATOMIC_ACQUIRE)) {
            if (c->front != &c->stub) push(c, c->front);
            c->front = next;
        }
        if (load(c->head) != nullptr) return take(c);
        uintptr_t at = c->fresh;
        if (at == c->base + c->end * 64 * SIZE) die("the space is used up");
        c->fresh = at + SIZE;
        return reinterpret_cast<void *>(at);
    }

    // Goes to another word with free slots and takes one.
    [[gnu::noinline]] static void *refill(Cache *c) {
        if constexpr (LISTS) {
            refill_from_lists(c);
        } else {
            for (size_t tried = 0; !collected(c, c->cursor); tried++) {
                if (tried > c->end - c->first) die("the space is used up");
                if (++c->cursor == c->end) c->cursor = c->first;
            }
            point_at(c, c->cursor);
        }
        return take(c);
    }

    // Whether a word has free slots; `local` is moved into `free`.
    static bool collected(Cache *c, size_t index) {
        if constexpr (ONE_WORD) return c->bits[index] != 0;
        Word &word = c->words[index];
        uint64_t bits = load(word.free) | load(word.local);
        if (load(word.remote) != 0) bits |= __atomic_exchange_n(&word.remote, 0, __ATOMIC_ACQ_REL);
        store(word.free, bits);
        store(word.local, uint64_t{0});
        return bits != 0;
    }

    static void point_at(Cache *c, size_t index) {
        c->bit = &c->bits[index];
        c->word = &c->words[index];
        c->word_base = c->base + index * 64 * SIZE;
        c->span = &c->spans[index / Memory::SPAN_WORDS];
    }

    // A word of the current span, else of the newest partial span, else of a whole one.
    static void refill_from_lists(Cache *c) {
        while (c->span == nullptr || !refill_from_span(c, c->span)) {
            if (c->span != nullptr) {
                c->span->place = Place::FULL;
                store(c->span->owner, address(c) | 1);
            }
            Span *&list = c->partial != nullptr ? c->partial : c->whole;
            if (list == nullptr) die("the space is used up");
            c->span = list;
            unlink_from(list, c->span);
            c->span->place = Place::CURRENT;
        }
    }

    static bool refill_from_span(Cache *c, Span *span) {
        size_t first = static_cast<size_t>(span->words - c->words);
        for (size_t i = first; i < first + Memory::SPAN_WORDS; i++) {
            if (!collected(c, i)) continue;
            point_at(c, i);
            return true;
        }
        return false;
    }

    // --- free -------------------------------------------------------------------------------------

    static void push(Cache *c, Object *object) {
        store(object->next, load(c->head));
        store(c->head, object);
    }

    static void drop_by_shift(Cache *c, uintptr_t p) {
        uint64_t slot = (p - (RECORD ? c->word_base : c->base)) / SIZE;
        uint64_t *to;
        if constexpr (ONE_WORD)
            to = RECORD ? c->bit : &c->bits[slot / 64];
        else
            to = RECORD ? &c->word->local : &c->words[slot / 64].local;
        store(*to, load(*to) | bit_of(slot));
    }

    // The span of an address and the slot that begins there; NULL: rejected.
    static Span *find(const Cache *c, uintptr_t p, uint64_t *slot) {
        uint64_t frame = (p - c->base) >> FRAME_BITS;
        if (__builtin_expect(frame >= c->frames, 0)) {
            reject(Fault::OUTSIDE);
            return nullptr;
        }
        Span *span = &c->spans[c->page_map[frame]];
        if constexpr (STEP >= Step::MAGIC) {
            __extension__ using Product = unsigned __int128;
            Product product = static_cast<Product>(p - span->base) * span->magic;
            *slot = static_cast<uint64_t>(product >> 64);
            if (__builtin_expect(static_cast<uint64_t>(product) >= span->magic, 0)) {
                reject(Fault::INTERIOR);
                return nullptr;
            }
        } else {
            *slot = (p - span->base) / SIZE;
        }
        return span;
    }

    // Sets the bit of a slot in a current or partial span; returns the span. NULL: drop_marked did
    // it, or the free was rejected.
    static Span *drop_by_span(Cache *c, uintptr_t p, uint64_t *slot) {
        Span *span = find(c, p, slot);
        if (__builtin_expect(span == nullptr, 0)) return nullptr;
        if constexpr (STEP >= Step::OWNER) {
            if (__builtin_expect(load(span->owner) != address(c), 0)) {
                drop_marked(c, span, *slot);
                return nullptr;
            }
        }
        Word *word = &span->words[*slot / 64];
        return set_local(c, span, word, bit_of(*slot)) ? span : nullptr;
    }

    static bool set_local(Cache *c, Span *span, Word *word, uint64_t bit) {
        uint64_t local = load(word->local);
        uint64_t both = local;
        if constexpr (STEP >= Step::DOUBLE) {
            both |= load(word->free);
            if (__builtin_expect((both & bit) != 0, 0)) {
                reject(Fault::DOUBLE);
                return false;
            }
        }
        store(word->local, local | bit);
        if constexpr (LISTS) {
            if (__builtin_expect(all_set(both | bit) && span->place == Place::PARTIAL, 0))
                emptied(c, span);
        }
        return true;
    }

    // The first free into a full span puts the span on the list of partial ones. If the owner is no
    // marked cache of ours, the span is another cache's.
    [[gnu::noinline]] static void drop_marked(Cache *c, Span *span, uint64_t slot) {
        if (load(span->owner) != (address(c) | 1)) return reject(Fault::FOREIGN);
        if (!set_local(c, span, &span->words[slot / 64], bit_of(slot))) return;
        store(span->owner, address(c));
        span->place = Place::PARTIAL;
        link_in(c->partial, span);
    }

    // Called when a word of a partial span is wholly free; if the whole span is, it changes its
    // list.
    [[gnu::noinline]] static void emptied(Cache *c, Span *span) {
        for (size_t i = 0; i < Memory::SPAN_WORDS; i++)
            if (!all_set(load(span->words[i].free) | load(span->words[i].local))) return;
        unlink_from(c->partial, span);
        span->place = Place::WHOLE;
        link_in(c->whole, span);
    }
};

// --- frees whose size is a constant ------------------------------------------------------------------

// The bit of a slot of the current word, after the checks of a free; 0: the slot is of another word
// (*elsewhere), or the free was rejected.
template <class P, size_t SIZE> uint64_t current_bit(Cache *c, void *p, bool *elsewhere) {
    uintptr_t offset = address(p) - c->word_base;
    *elsewhere = offset >= 64 * SIZE || load(c->span->owner) != address(c);
    if (__builtin_expect(*elsewhere, 0)) return 0;
    uint64_t bit = bit_of(offset / SIZE);
    bool interior = offset % SIZE != 0;
    if (__builtin_expect(interior || ((load(c->word->free) | load(c->word->local)) & bit) != 0,
                         0)) {
        reject(interior ? Fault::INTERIOR : Fault::DOUBLE);
        return 0;
    }
    return bit;
}

// A free into the current word is validated by the cache's record; others go to the plain free.
template <size_t SIZE, class TAG = struct SizedTag>
struct Sized : Prototype<Step::TRANSITION, SIZE, TAG> {
    using Plain = Prototype<Step::TRANSITION, SIZE, TAG>;

    static void drop(void *p) {
        Cache *c = Plain::cache;
        bool elsewhere;
        uint64_t bit = current_bit<Plain, SIZE>(c, p, &elsewhere);
        if (__builtin_expect(bit == 0, 0)) {
            if (elsewhere) Plain::drop(p);
            return;
        }
        store(c->word->local, load(c->word->local) | bit);
    }
};

// As Sized, and one freed slot of the current word is parked in the cache's record with its bit
// clear. The next allocation takes it, so it leaves before the cache changes its word. The price: a
// second free of it by another thread is not found until the owner checks.
template <size_t SIZE> struct Parked : Sized<SIZE, struct ParkedTag> {
    using Plain = typename Sized<SIZE, struct ParkedTag>::Plain;

    template <size_t N> static void *get() {
        Cache *c = Plain::cache;
        void *p = load(c->parked);
        if (__builtin_expect(p == nullptr, 0)) return Plain::take(c);
        store(c->parked, static_cast<void *>(nullptr));
        return p;
    }
    template <size_t N> static void *zget() { return memset(get<N>(), 0, N); }

    static void drop(void *p) {
        Cache *c = Plain::cache;
        void *parked = load(c->parked);
        if (__builtin_expect(p == parked, 0)) return reject(Fault::DOUBLE);
        bool elsewhere;
        uint64_t bit = current_bit<Plain, SIZE>(c, p, &elsewhere);
        if (__builtin_expect(bit == 0, 0)) {
            if (elsewhere) Plain::drop(p);
        } else if (__builtin_expect(parked == nullptr, 1)) {
            store(c->parked, p);
        } else {
            store(c->word->local, load(c->word->local) | bit);
        }
    }
};

// The plain free; in addition freed slots of the current span are remembered as hints, newest last,
// with their bits set.
template <size_t SIZE> struct Hinted : Prototype<Step::TRANSITION, SIZE, struct HintedTag> {
    using Plain = Prototype<Step::TRANSITION, SIZE, struct HintedTag>;

    template <size_t N> static void *get() {
        Cache *c = Plain::cache;
        for (size_t n = load(c->hinted); n != 0;) {
            store(c->hinted, --n);
            uint64_t at = load(c->hints[n].at);
            Word *word = load(c->hints[n].word);
            uint64_t local = load(word->local), bit = bit_of(at);
            if (__builtin_expect((local & bit) == 0, 0)) continue; // handed out since
            store(word->local, local & ~bit);
            return reinterpret_cast<void *>(at >> 6);
        }
        return Plain::take(c);
    }
    template <size_t N> static void *zget() { return memset(get<N>(), 0, N); }

    static void drop(void *p) {
        Cache *c = Plain::cache;
        uint64_t slot;
        Span *span = Plain::drop_by_span(c, address(p), &slot);
        // Hints are of the current span only, and are used up before another span becomes current.
        if (__builtin_expect(span == nullptr || span != c->span, 0)) return;
        size_t n = load(c->hinted);
        if (__builtin_expect(n == HINTS, 0)) return;
        store(c->hints[n].at, address(p) << 6 | slot % 64);
        store(c->hints[n].word, &span->words[slot / 64]);
        store(c->hinted, n + 1);
    }
};

} // namespace limits
#endif
