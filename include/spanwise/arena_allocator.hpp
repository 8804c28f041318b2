/* SPDX-License-Identifier: Apache-2.0 */
/* C++11 and later: containers whose memory is freed with an arena, in one step.
 *
 *     spanwise::arena arena; // outlives the containers
 *     std::vector<int, spanwise::arena_allocator<int>> v{spanwise::arena_allocator<int>(arena)};
 *
 *     spanwise::arena_resource resource(arena); // C++17
 *     std::pmr::vector<std::pmr::string> words(&resource);
 *
 * deallocate does nothing: memory that a container gives up, e.g. when it grows, is freed with the
 * arena. Allocations throw std::bad_alloc if memory or the arena's limit is exhausted. The thread
 * rule is that of arena.h.
 */
#ifndef SPANWISE_ARENA_ALLOCATOR_HPP
#define SPANWISE_ARENA_ALLOCATOR_HPP

#include <spanwise/allocator.hpp>
#include <spanwise/arena.h>

#if __cplusplus >= 201703L && defined __has_include
#if __has_include(<memory_resource>)
#include <memory_resource>
#define SPANWISE_HAS_ARENA_RESOURCE 1
#endif
#endif

namespace spanwise {

/* An arena that is freed with its scope, before which the objects in it must be destroyed. */
class arena {
  public:
    /* Create an arena. options: nullptr for the defaults. Throws as heap does. */
    explicit arena(const sw_arena_options *options = nullptr) : arena_(nullptr) {
        detail::check_created(sw_arena_create(options, &arena_));
    }
    ~arena() { (void)sw_arena_free(arena_); }
    arena(const arena &) = delete;
    arena &operator=(const arena &) = delete;

    /* Return the handle, for the functions of arena.h. */
    sw_arena *get() const noexcept { return arena_; }

  private:
    sw_arena *arena_;
};

namespace detail {

inline void *arena_bytes(sw_arena *arena, std::size_t bytes, std::size_t align) {
    void *p = sw_arena_alloc(arena, bytes, align, 0);
    if (__builtin_expect(p == nullptr, 0)) throw std::bad_alloc();
    return p;
}

} // namespace detail

/* A standard allocator in an arena, which must outlive the containers. Two are equal if their
 * arenas are. get() returns the handle. */
template <typename T> class arena_allocator : public detail::of_handle<sw_arena> {
  public:
    using value_type = T;

    explicit arena_allocator(const arena &from) noexcept : of_handle(from.get()) {}
    explicit arena_allocator(sw_arena *from) noexcept : of_handle(from) {}
    template <typename U>
    arena_allocator(const arena_allocator<U> &other) noexcept : of_handle(other.get()) {}

    /* Allocate an array of objects that are not constructed. Throws std::bad_alloc. */
    T *allocate(std::size_t count) {
        return static_cast<T *>(
            detail::arena_bytes(get(), detail::array_bytes<T>(count), alignof(T)));
    }
    /* Do nothing: the array is freed with the arena. */
    void deallocate(T *, std::size_t) noexcept {}
};

#ifdef SPANWISE_HAS_ARENA_RESOURCE

/* C++17: a memory resource in an arena, which must outlive the containers. Two are equal only if
 * they are the same object. */
class arena_resource final : public std::pmr::memory_resource {
  public:
    explicit arena_resource(const arena &from) noexcept : arena_(from.get()) {}
    explicit arena_resource(sw_arena *from) noexcept : arena_(from) {}

    /* Return the handle, for the functions of arena.h. */
    sw_arena *get() const noexcept { return arena_; }

  private:
    void *do_allocate(std::size_t bytes, std::size_t align) override {
        return detail::arena_bytes(arena_, bytes, align);
    }
    void do_deallocate(void *, std::size_t, std::size_t) override {}
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
        return this == &other;
    }

    sw_arena *arena_;
};

#endif

} // namespace spanwise

#endif
