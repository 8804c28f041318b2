/* SPDX-License-Identifier: Apache-2.0 */
/* C++11 and later: standard allocators on the default heap and on a heap object.
 *
 *     std::vector<int, spanwise::allocator<int>> v;
 *     std::map<K, V, std::less<K>, spanwise::allocator<std::pair<const K, V>>> m;
 *
 *     spanwise::heap heap;
 *     std::vector<int, spanwise::heap_allocator<int>> w{spanwise::heap_allocator<int>(heap)};
 *
 * allocator is stateless and uses the inline paths of fast.h; for node containers, which allocate
 * objects of constant size, the whole path is inline. heap_allocator holds its heap, which must
 * outlive the containers; two are equal if their heaps are. Frees are sized: a wrong size is misuse
 * (SIZE_MISMATCH). Both throw std::bad_alloc if memory is exhausted.
 */
#ifndef SPANWISE_ALLOCATOR_HPP
#define SPANWISE_ALLOCATOR_HPP

#include <cstddef>
#include <limits>
#include <new>
#include <stdexcept>
#include <type_traits>

#include <spanwise/fast.h>

namespace spanwise {

namespace detail {

/* Return the bytes of an array. Throws std::bad_alloc above PTRDIFF_MAX. */
template <typename T> std::size_t array_bytes(std::size_t count) {
    if (count > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T)) throw std::bad_alloc();
    return count * sizeof(T);
}

/* Throw if a handle was not created. */
inline void check_created(sw_status status) {
    if (status == SW_INVALID || status == SW_UNSUPPORTED)
        throw std::invalid_argument(sw_last_error()->message);
    if (status != SW_OK) throw std::bad_alloc();
}

/* The base of allocators that hold a handle: two are equal if their handles are. */
template <typename Handle> class of_handle {
  public:
    using is_always_equal = std::false_type;
    using propagate_on_container_copy_assignment = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;
    using propagate_on_container_swap = std::true_type;

    explicit of_handle(Handle *from) noexcept : handle_(from) {}

    Handle *get() const noexcept { return handle_; }

    friend bool operator==(const of_handle &a, const of_handle &b) noexcept {
        return a.handle_ == b.handle_;
    }
    friend bool operator!=(const of_handle &a, const of_handle &b) noexcept { return !(a == b); }

  private:
    Handle *handle_;
};

} // namespace detail

/* A standard allocator on the default heap. It has no state, so all are equal. */
template <typename T> class allocator {
  public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    constexpr allocator() noexcept = default;
    template <typename U> constexpr allocator(const allocator<U> &) noexcept {}

    /* Allocate an array of objects that are not constructed. Throws std::bad_alloc. */
    T *allocate(std::size_t count) {
        void *p = over_aligned ? allocate_aligned(count)
                  : count == 1 ? sw_fast_malloc(sizeof(T))
                               : allocate_many(count);
        if (__builtin_expect(p == nullptr, 0)) throw std::bad_alloc();
        return static_cast<T *>(p);
    }

    /* Free an array. count: as it was allocated. */
    void deallocate(T *p, std::size_t count) noexcept {
        if (over_aligned) {
            sw_fast_free(p); /* not sized: the alignment may have decided its class */
        } else if (count == 1) {
            sw_fast_free_sized(p, sizeof(T));
        } else {
            sw_free_sized(p, count * sizeof(T));
        }
    }

  private:
    /* Slots of the default table are 16-aligned from 16 bytes up, 8-aligned below. */
    static constexpr bool over_aligned = alignof(T) > (sizeof(T) >= 16 ? 16 : 8);

    static void *allocate_many(std::size_t count) {
        return sw_malloc(detail::array_bytes<T>(count));
    }
    static void *allocate_aligned(std::size_t count) {
        return sw_aligned_alloc(alignof(T), detail::array_bytes<T>(count));
    }
};

template <typename T, typename U>
constexpr bool operator==(const allocator<T> &, const allocator<U> &) noexcept {
    return true;
}
template <typename T, typename U>
constexpr bool operator!=(const allocator<T> &, const allocator<U> &) noexcept {
    return false;
}

/* A heap that is destroyed with its scope. */
class heap {
  public:
    /* Create a heap. options: nullptr for the defaults. Throws std::invalid_argument for invalid
     * options, and std::bad_alloc if there is no memory or the limit of heaps is reached. */
    explicit heap(const sw_heap_options *options = nullptr) : heap_(nullptr) {
        detail::check_created(sw_heap_create(options, &heap_));
    }
    ~heap() { (void)sw_heap_destroy(heap_); }
    heap(const heap &) = delete;
    heap &operator=(const heap &) = delete;

    /* Return the handle, for the functions of heap.h. */
    sw_heap *get() const noexcept { return heap_; }

  private:
    sw_heap *heap_;
};

/* A standard allocator on a heap, which must outlive the containers. Two are equal if their heaps
 * are. get() returns the handle. */
template <typename T> class heap_allocator : public detail::of_handle<sw_heap> {
  public:
    using value_type = T;

    explicit heap_allocator(const heap &from) noexcept : of_handle(from.get()) {}
    explicit heap_allocator(sw_heap *from) noexcept : of_handle(from) {}
    template <typename U>
    heap_allocator(const heap_allocator<U> &other) noexcept : of_handle(other.get()) {}

    /* Allocate an array of objects that are not constructed. Throws std::bad_alloc. */
    T *allocate(std::size_t count) {
        std::size_t bytes = detail::array_bytes<T>(count);
        void *p = over_aligned ? sw_heap_alloc_aligned(get(), bytes, alignof(T), 0)
                               : sw_heap_alloc(get(), bytes, 0);
        if (__builtin_expect(p == nullptr, 0)) throw std::bad_alloc();
        return static_cast<T *>(p);
    }

    /* Free an array. count: as it was allocated. */
    void deallocate(T *p, std::size_t count) noexcept {
        if (over_aligned) {
            sw_heap_free(get(), p); /* the alignment may have decided its class */
        } else {
            sw_heap_free_sized(get(), p, count * sizeof(T));
        }
    }

  private:
    /* Slots of every table are 8-aligned. */
    static constexpr bool over_aligned = alignof(T) > 8;
};

} // namespace spanwise

#endif
