// SPDX-License-Identifier: Apache-2.0
// Prototypes of malloc and free of several classes, the class known at run time only: what a
// function that is called can do, where those of steps.h are inlined for one size. called.h has them
// behind the dynamic linker, generic.h with a cache and a table that come as arguments. Nothing of the
// library is used.
//
// One range of memory is cut into spans of 8 KiB, which each class takes as it needs them and keeps.
// Every class has whole words of slots: no span has a tail.
#ifndef SPANWISE_BENCH_LIMITS_CLASSES_H
#define SPANWISE_BENCH_LIMITS_CLASSES_H

#include <cstring>

#include "steps.h"

namespace limits {

enum class [[gnu::visibility("default")]] Path {
    LIST,       // a list a class, no checks; free: page map and record tell the class
    SHARDED,    // a list a span, as in mimalloc (Leijen, Zorn, de Moura, 2019)
    SPLIT,      // words with `free` and `local` apart, the slot by multiplication, no checks
    DOUBLE,     // address outside, inside a slot, of another cache, free twice: found
    TRANSITION, // lists of partial and whole spans, marked owners of full ones
    HINTED,     // frees into full spans are remembered; allocation chooses between hint and word
};

enum : uint32_t { CLASSES = 4, CLASS_BYTES_MAX = 128, CLASS_LEAST = 16, HINTS_KEPT = 32 };
enum : size_t { OTHER_SPANS = 32 }; // spans of cache 1

// A table that is made at run time.
struct Table {
    uint32_t max_size;
    uint32_t bytes[CLASSES];
    uint64_t magic[CLASSES];  // ceil(2^64 / bytes)
    const uint8_t *small_map; // (size + 7) / 8 -> class
};

// The map of sizes to classes for code that knows its table: 16, 32, 64 and 128 B.
inline constexpr uint8_t SIZE_MAP[] = {0, 0, 0, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3};
static_assert(sizeof SIZE_MAP == CLASS_BYTES_MAX / 8 + 1, "a class for every size");

// Where a cache allocates next for one class.
struct ClassSlot {
    __extension__ union {
        Word *word;
        Object *head; // a list's
    };
    uintptr_t word_base; // address of that word's slot 0; Path::LIST: memory never handed out
    Span *span;
    uint32_t bytes;
    uint16_t hints;
    uint16_t hints_max;
};

struct ClassLists {
    Span *partial, *whole;
};

// The record of one thread.
struct alignas(64) ClassCache {
    uintptr_t base; // what a free needs to find a span
    uint64_t frames;
    const uint32_t *page_map;
    Span *spans;
    const Table *table;
    Hint (*hints)[HINTS_KEPT]; // of a class, newest last
    alignas(64) ClassSlot slots[CLASSES];
    ClassLists lists[CLASSES];
    size_t fresh, end; // its spans that no class has taken yet
};

// Counts for the self-test: spans of cache 0 by their place, and hints at whole spans.
struct Census {
    size_t taken, current, partial, whole, hints_at_whole;
};

// Memory, records and caches of one prototype, and what is common to its paths.
template <Path PATH> struct Classed {
    static constexpr size_t SPANS = SLOTS * CLASS_LEAST / SPAN_BYTES;
    static constexpr size_t SPAN_WORDS = SPAN_BYTES / CLASS_LEAST / 64; // at most
    static constexpr size_t FRAMES = SPANS * SPAN_BYTES >> FRAME_BITS;
    static constexpr bool LIST = PATH < Path::SPLIT;
    static constexpr bool CHECKS = PATH >= Path::DOUBLE;
    static constexpr bool LISTS = PATH >= Path::TRANSITION;

    static inline uint32_t page_map[FRAMES];
    static inline Span spans[SPANS];
    static inline Word words[SPANS * SPAN_WORDS];
    static inline ClassCache caches[2];
    static inline Hint hints[2][CLASSES][HINTS_KEPT];

    static void ready(const Table *table) {
        if (caches[0].base != 0) return;
        void *at = mmap(nullptr, SPANS * SPAN_BYTES, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (at == MAP_FAILED) die("mmap of a space failed");
        for (size_t i = 0; i < FRAMES; i++)
            page_map[i] = static_cast<uint32_t>((i << FRAME_BITS) / SPAN_BYTES);
        for (size_t i = 0; i < 2; i++) {
            ClassCache &c = caches[i];
            c.base = address(at);
            c.frames = FRAMES;
            c.page_map = page_map;
            c.spans = spans;
            c.table = table;
            c.hints = hints[i];
            c.fresh = i == 0 ? 0 : SPANS - OTHER_SPANS;
            c.end = i == 0 ? SPANS - OTHER_SPANS : SPANS;
            for (size_t cls = 0; cls < CLASSES; cls++) ready_slot(c.slots[cls], table->bytes[cls]);
        }
    }

    static size_t usable(const void *p) {
        const ClassCache &c = caches[0];
        return c.slots[c.spans[c.page_map[(address(p) - c.base) >> FRAME_BITS]].cls].bytes;
    }

    static Census census() {
        ClassCache &c = caches[0];
        Census seen{c.fresh, 0, 0, 0, 0};
        for (size_t cls = 0; cls < CLASSES; cls++) {
            seen.current += c.slots[cls].span != nullptr;
            for (Span *s = c.lists[cls].partial; s != nullptr; s = s->next) seen.partial++;
            for (Span *s = c.lists[cls].whole; s != nullptr; s = s->next) seen.whole++;
            for (size_t i = 0; i < c.slots[cls].hints; i++) {
                Word *word = c.hints[cls][i].word;
                size_t id = static_cast<size_t>(word - words) / SPAN_WORDS;
                seen.hints_at_whole += spans[id].place == Place::WHOLE;
            }
        }
        return seen;
    }

    // --- allocation -----------------------------------------------------------------------------

    [[gnu::always_inline]] static void *take(ClassCache *c, size_t cls) {
        void *p = take_at_once(c, cls);
        return __builtin_expect(p == nullptr, 0) ? take_slowly(c, cls) : p;
    }

    // The whole slot is zero. 16 B, which the rows ask for, in line.
    [[gnu::always_inline]] static void *take_zeroed(ClassCache *c, size_t cls) {
        if (__builtin_expect(c->slots[cls].bytes != CLASS_LEAST, 0))
            return take_zeroed_slowly(c, cls);
        void *p = take_at_once(c, cls);
        if (__builtin_expect(p == nullptr, 0)) return take_zeroed_slowly(c, cls);
        return memset(p, 0, CLASS_LEAST);
    }

    // --- free -----------------------------------------------------------------------------------

    [[gnu::always_inline]] static void release(ClassCache *c, uintptr_t p) {
        uint64_t frame = (p - c->base) >> FRAME_BITS;
        if constexpr (CHECKS)
            if (__builtin_expect(frame >= c->frames, 0)) return reject(Fault::OUTSIDE);
        Span *span = &c->spans[c->page_map[frame]];
        if constexpr (LIST) {
            Object *object = reinterpret_cast<Object *>(p);
            Object *&list = PATH == Path::SHARDED ? span->list : c->slots[span->cls].head;
            store(object->next, load(list));
            store(list, object);
        } else {
            __extension__ using Product = unsigned __int128;
            Product product = static_cast<Product>(p - span->base) * span->magic;
            uint64_t index = static_cast<uint64_t>(product >> 64);
            if constexpr (CHECKS) {
                if (__builtin_expect(static_cast<uint64_t>(product) >= span->magic, 0))
                    return reject(Fault::INTERIOR);
                if (__builtin_expect(load(span->owner) != address(c), 0))
                    return release_marked(c, span, index, p);
            }
            set_local(c, span, index);
        }
    }

  private:
    static void ready_slot(ClassSlot &slot, uint32_t bytes) {
        static Word no_word{};
        if (!LIST) slot.word = &no_word;
        slot.bytes = bytes;
        slot.hints_max = HINTS_KEPT;
    }

    // Takes a slot on the fast path; NULL: there is none there.
    [[gnu::always_inline]] static void *take_at_once(ClassCache *c, size_t cls) {
        ClassSlot &slot = c->slots[cls];
        if constexpr (LIST) {
            Object *object = load(slot.head);
            if (__builtin_expect(object != nullptr, 1)) store(slot.head, load(object->next));
            return object;
        } else {
            if (PATH == Path::HINTED && slot.hints != 0) return take_hinted(c, cls);
            uint64_t bits = load(slot.word->free);
            return __builtin_expect(bits == 0, 0) ? nullptr : pop(slot, bits);
        }
    }

    [[gnu::always_inline]] static void *pop(ClassSlot &slot, uint64_t bits) {
        store(slot.word->free, bits & (bits - 1));
        uintptr_t p = slot.word_base + static_cast<uintptr_t>(lowest(bits)) * slot.bytes;
        if (p == 0) __builtin_unreachable(); // callers need no test for NULL
        return reinterpret_cast<void *>(p);
    }

    [[gnu::noinline]] static void *take_zeroed_slowly(ClassCache *c, size_t cls) {
        return memset(take(c, cls), 0, c->slots[cls].bytes);
    }

    // The slot of the newest hint; NULL: it was handed out or moved to `free` meanwhile.
    [[gnu::always_inline]] static void *take_hinted(ClassCache *c, size_t cls) {
        ClassSlot &slot = c->slots[cls];
        uint32_t newest = slot.hints - 1u;
        Hint &hint = c->hints[cls][newest];
        Word *word = load(hint.word);
        uint64_t at = load(hint.at), local = load(word->local), bit = bit_of(at);
        if (__builtin_expect((local & ~load(word->remote) & bit) == 0, 0)) return nullptr;
        slot.hints = static_cast<uint16_t>(newest);
        store(word->local, local & ~bit);
        return reinterpret_cast<void *>(at >> 6);
    }

    // A hint that holds, else a slot of the current word, else of another one.
    [[gnu::noinline]] static void *take_slowly(ClassCache *c, size_t cls) {
        if constexpr (PATH == Path::LIST) return carve(c, cls);
        ClassSlot &slot = c->slots[cls];
        if constexpr (PATH == Path::SHARDED) {
            refill_from_ring(c, cls);
            return take_at_once(c, cls);
        }
        for (; slot.hints != 0; slot.hints--)
            if (void *p = take_hinted(c, cls)) return p;
        if (slot.word->free == 0) LISTS ? refill_from_lists(c, cls) : refill_from_ring(c, cls);
        return pop(slot, slot.word->free);
    }

    // Path::LIST: an object that was never handed out.
    static void *carve(ClassCache *c, size_t cls) {
        ClassSlot &slot = c->slots[cls];
        if (slot.span == nullptr || slot.word_base == slot.span->base + SPAN_BYTES) {
            slot.span = fresh_span(c, cls);
            slot.word_base = slot.span->base;
        }
        slot.word_base += slot.bytes;
        return reinterpret_cast<void *>(slot.word_base - slot.bytes);
    }

    static Span *fresh_span(ClassCache *c, size_t cls) {
        if (c->fresh == c->end) die("the space is used up");
        size_t id = c->fresh++;
        Span *span = &spans[id];
        span->base = c->base + id * SPAN_BYTES;
        span->magic = c->table->magic[cls];
        span->owner = address(c);
        span->words = &words[id * SPAN_WORDS];
        span->cls = static_cast<uint16_t>(cls);
        for (size_t i = 0; i < words_of(c, cls); i++) span->words[i].free = ~uint64_t{0};
        if constexpr (PATH == Path::SHARDED) thread(span, c->slots[cls].bytes);
        return span;
    }

    // All slots become the span's list, in their order.
    static void thread(Span *span, size_t bytes) {
        for (uintptr_t at = span->base + SPAN_BYTES; at != span->base;) {
            Object *object = reinterpret_cast<Object *>(at -= bytes);
            object->next = span->list;
            span->list = object;
        }
    }

    static size_t words_of(const ClassCache *c, size_t cls) {
        return SPAN_BYTES / 64 / c->slots[cls].bytes;
    }

    // Takes the span's list, or points at its first word with free slots and moves `local` to
    // `free`.
    static bool refill_from_span(ClassCache *c, size_t cls, Span *span) {
        if constexpr (PATH == Path::SHARDED) {
            c->slots[cls].span = span;
            c->slots[cls].head = span->list;
            span->list = nullptr;
            return c->slots[cls].head != nullptr;
        }
        for (size_t i = 0; i < words_of(c, cls); i++) {
            Word *word = &span->words[i];
            uint64_t bits = load(word->free) | load(word->local);
            if (load(word->remote) != 0)
                bits |= __atomic_exchange_n(&word->remote, 0, __ATOMIC_ACQ_REL);
            if (bits == 0) continue;
            store(word->free, bits);
            store(word->local, uint64_t{0});
            ClassSlot &slot = c->slots[cls];
            slot.word = word;
            slot.word_base = span->base + i * 64 * slot.bytes;
            slot.span = span;
            return true;
        }
        return false;
    }

    // For paths without lists of partial spans: walks the spans of a class, which form a ring.
    static void refill_from_ring(ClassCache *c, size_t cls) {
        Span *const current = c->slots[cls].span;
        Span *span = current;
        if (span != nullptr) {
            do {
                if (refill_from_span(c, cls, span)) return;
                span = span->next;
            } while (span != current);
        }
        Span *fresh = fresh_span(c, cls);
        fresh->next = span == nullptr ? fresh : span->next;
        if (span != nullptr) span->next = fresh;
        refill_from_span(c, cls, fresh);
    }

    // The current span, else the newest partial one, else a whole one, else one never used.
    static void refill_from_lists(ClassCache *c, size_t cls) {
        ClassLists &lists = c->lists[cls];
        Span *span = c->slots[cls].span;
        while (span == nullptr || !refill_from_span(c, cls, span)) {
            if (span != nullptr) {
                span->place = Place::FULL;
                store(span->owner, address(c) | 1);
            }
            Span *&list = lists.partial != nullptr ? lists.partial : lists.whole;
            span = list;
            if (span != nullptr)
                unlink_from(list, span);
            else
                span = fresh_span(c, cls);
            span->place = Place::CURRENT;
        }
    }

    [[gnu::always_inline]] static void set_local(ClassCache *c, Span *span, uint64_t index) {
        Word *word = &span->words[index / 64];
        uint64_t local = load(word->local), bit = bit_of(index), both = local;
        if constexpr (CHECKS) {
            both |= load(word->free);
            if (__builtin_expect((both & bit) != 0, 0)) return reject(Fault::DOUBLE);
        }
        store(word->local, local | bit);
        if constexpr (LISTS)
            if (__builtin_expect(all_set(both | bit) && span->place == Place::PARTIAL, 0))
                emptied(c, span);
    }

    // A free into a full span is remembered as a hint, or else puts the span on the list of partial
    // ones. If the owner is no marked cache of ours, the span is another cache's.
    [[gnu::noinline]] static void release_marked(ClassCache *c, Span *span, uint64_t index,
                                                 uintptr_t p) {
        if (!LISTS || load(span->owner) != (address(c) | 1)) return reject(Fault::FOREIGN);
        Word *word = &span->words[index / 64];
        uint64_t local = load(word->local), bit = bit_of(index);
        if (__builtin_expect((local & bit) != 0, 0)) return reject(Fault::DOUBLE);
        if constexpr (PATH == Path::HINTED) {
            if (remember(c, span->cls, word, p << 6 | index % 64)) {
                store(word->local, local | bit);
                return;
            }
        }
        store(span->owner, address(c));
        span->place = Place::PARTIAL;
        link_in(c->lists[span->cls].partial, span);
        store(word->local, local | bit); // with 64 slots and more the span is not whole yet
    }

    // Notes a hint. False: there is no room, or it would be the third hint in a row for one word,
    // which means that objects are freed in the order of their addresses.
    [[gnu::always_inline]] static bool remember(ClassCache *c, size_t cls, Word *word,
                                                uint64_t at) {
        ClassSlot &slot = c->slots[cls];
        Hint *list = c->hints[cls];
        uint32_t n = slot.hints;
        if (__builtin_expect(n >= slot.hints_max, 0)) return false;
        if (n >= 2 && list[n - 1].word == word && list[n - 2].word == word) return false;
        store(list[n].at, at);
        store(list[n].word, word);
        slot.hints = static_cast<uint16_t>(n + 1);
        return true;
    }

    // Called when a word of a partial span is wholly free. If the whole span is, the span moves to
    // the list of whole ones, and hints at it are dropped.
    [[gnu::noinline]] static void emptied(ClassCache *c, Span *span) {
        size_t count = words_of(c, span->cls);
        for (size_t i = 0; i < count; i++)
            if (!all_set(load(span->words[i].free) | load(span->words[i].local))) return;
        unlink_from(c->lists[span->cls].partial, span);
        span->place = Place::WHOLE;
        link_in(c->lists[span->cls].whole, span);
        ClassSlot &slot = c->slots[span->cls];
        Hint *list = c->hints[span->cls];
        uint16_t kept = 0;
        for (uint32_t i = 0; i < slot.hints; i++)
            if (list[i].word < span->words || list[i].word >= span->words + count)
                list[kept++] = list[i];
        slot.hints = kept;
    }
};

} // namespace limits
#endif
