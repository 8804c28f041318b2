// SPDX-License-Identifier: Apache-2.0
// Prototypes of frees of another cache's objects, and the row that times them without a second thread.
#ifndef SPANWISE_BENCH_LIMITS_REMOTE_H
#define SPANWISE_BENCH_LIMITS_REMOTE_H

#include "steps.h"
#include "thread_rows.h"

namespace limits {

// How the bit gets into the word `remote`.
enum class How {
    STORE,   // by a plain store: the floor, right for one thread only
    BIT,     // atomically; only the own bit of the old word is tested (x86: lock bts)
    FETCHED, // atomically; the old word is read, to announce the first free into it (x86: a loop)
};

// Gives each thread of a row a cache, and takes it back.
template <class P> class Seats {
  public:
    static void sit() {
        for (unsigned index = 0;; index = 1 - index) {
            if (taken_[index].exchange(true, std::memory_order_acquire)) continue;
            mine_ = index;
            P::use(index);
            return;
        }
    }
    static void rise() { taken_[mine_].store(false, std::memory_order_release); }

  private:
    static inline std::atomic<bool> taken_[2];
    static inline thread_local unsigned mine_ = 0;
};

// Frees an object of any cache: marks an own one as free, and passes another cache's to `send`.
template <class Plain, class Send>
[[gnu::always_inline]] inline void drop_of_any(void *p, Send send) {
    Cache *c = Plain::cache;
    uint64_t slot;
    Span *span = Plain::find(c, address(p), &slot);
    if (__builtin_expect(span == nullptr, 0)) return;
    Word *word = &span->words[slot / 64];
    if (load(span->owner) == address(c))
        Plain::set_local(c, span, word, bit_of(slot));
    else
        send(c, word, bit_of(slot));
}

template <How HOW> struct HowTag;
template <How HOW, size_t SIZE> struct Remote : Prototype<Step::DOUBLE, SIZE, HowTag<HOW>> {
    using Plain = Prototype<Step::DOUBLE, SIZE, HowTag<HOW>>;
    using Memory = typename Plain::Memory;

    static void ready() { Memory::ready(Memory::SPANS / 2); }
    static void thread_start() { Seats<Remote>::sit(); }
    static void thread_stop() { Seats<Remote>::rise(); }
    static void flush() {}

    static void drop(void *p) { drop_of_any<Plain>(p, send); }

  private:
    static void send(Cache *c, Word *word, uint64_t bit) {
        uint64_t before = load(word->free) | load(word->local);
        if (__builtin_expect((before & bit) != 0, 0)) return reject(Fault::DOUBLE);
        if constexpr (HOW == How::STORE) {
            before = load(word->remote);
            store(word->remote, before | bit);
        } else if constexpr (HOW == How::BIT) {
            before = __atomic_fetch_or(&word->remote, bit, __ATOMIC_ACQ_REL) & bit;
        } else {
            before = __atomic_fetch_or(&word->remote, bit, __ATOMIC_ACQ_REL);
            if (before == 0) store(c->pending, load(c->pending) + 1);
        }
        if (__builtin_expect((before & bit) != 0, 0)) reject(Fault::DOUBLE);
    }
};

// Objects of others are gathered in a list and handed over 64 at a time by one exchange, as snmalloc
// does (Liétar et al., "snmalloc: a message passing allocator", 2019). No checks.
template <size_t SIZE> struct Messages : Prototype<Step::LIST, SIZE, struct MessagesTag> {
    using Plain = Prototype<Step::LIST, SIZE, struct MessagesTag>;
    using Memory = typename Plain::Memory;
    enum : size_t { BATCH = 64 };

    static void ready() { Memory::ready(Memory::SPANS / 2); }
    static void thread_start() { Seats<Messages>::sit(); }
    static void thread_stop() { Seats<Messages>::rise(); }

    static void drop(void *p) {
        Cache *c = Plain::cache;
        uint64_t slot;
        Span *span = Plain::find(c, address(p), &slot);
        Object *object = static_cast<Object *>(p);
        if (load(span->owner) == address(c)) return Plain::push(c, object);
        store(object->next, load(c->pending_first));
        if (load(c->pending) == 0) store(c->pending_last, object);
        store(c->pending_first, object);
        store(c->pending, load(c->pending) + 1);
        if (__builtin_expect(load(c->pending) == BATCH, 0)) send(c, span);
    }

    // Hands all waiting objects over. There are two caches, so all of them are the other one's.
    static void flush() {
        Cache *c = Plain::cache;
        if (c->pending == 0) return;
        send(c, &c->spans[c->page_map[(address(c->pending_first) - c->base) >> FRAME_BITS]]);
    }

  private:
    [[gnu::noinline]] static void send(Cache *c, Span *span) {
        Cache *owner = reinterpret_cast<Cache *>(load(span->owner));
        Object *last = c->pending_last;
        store(last->next, static_cast<Object *>(nullptr));
        Object *before = __atomic_exchange_n(&owner->back, last, __ATOMIC_ACQ_REL);
        __atomic_store_n(&before->next, c->pending_first, __ATOMIC_RELEASE);
        c->pending = 0;
        c->pending_first = nullptr;
    }
};

// One thread is both sides: cache 1 allocates, then cache 0 frees, and only that is timed. So every
// line is in the core's own cache, and the time is that of the work itself and of uncontended
// atomic steps.
template <class P> void remote_free(bench::State &state) {
    for (auto _ : state) {
        P::use(1);
        bench::fill<P, 64, false>(bench::CROSS);
        P::use(0);
        double start = bench::cpu_seconds();
        bench::drain<P>(bench::CROSS);
        P::flush();
        state.SetIterationTime(bench::cpu_seconds() - start);
    }
    bench::finish(state, bench::CROSS);
}

} // namespace limits
#endif
