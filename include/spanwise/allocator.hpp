/* SPDX-License-Identifier: Apache-2.0 */
/* C++11 and later: a standard allocator over the default heap, with the inline paths of fast.h.
 *
 *     std::vector<int, spanwise::allocator<int>> v;
 *     std::map<K, V, std::less<K>, spanwise::allocator<std::pair<const K, V>>> m;
 *
 * Node containers allocate one object of a constant size at a time: there the whole path is inline.
 * A free tells the size, which must be the object's (else misuse SIZE_MISMATCH), as the standard
 * asks. Throws std::bad_alloc when memory is exhausted. Stateless: all allocators are equal.
 */
#ifndef SPANWISE_ALLOCATOR_HPP
#define SPANWISE_ALLOCATOR_HPP

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>

#include <spanwise/fast.h>

namespace spanwise {

template <typename T> class allocator {
  public:
    using value_type = T;
    using is_always_equal = std::true_type;
    using propagate_on_container_move_assignment = std::true_type;

    constexpr allocator() noexcept = default;
    template <typename U> constexpr allocator(const allocator<U> &) noexcept {}

    T *allocate(std::size_t count) {
        void *p = over_aligned ? allocate_aligned(count)
                  : count == 1 ? sw_fast_malloc(sizeof(T))
                               : allocate_many(count);
        if (__builtin_expect(p == nullptr, 0)) throw std::bad_alloc();
        return static_cast<T *>(p);
    }

    void deallocate(T *p, std::size_t count) noexcept {
        if (over_aligned) {
            sw_fast_free(p); /* of a class that the alignment decided, too */
        } else if (count == 1) {
            sw_fast_free_sized(p, sizeof(T));
        } else {
            sw_free_sized(p, count * sizeof(T));
        }
    }

  private:
    /* Slots of the default table are 16-aligned from 16 bytes up, 8-aligned below. */
    static constexpr bool over_aligned = alignof(T) > (sizeof(T) >= 16 ? 16 : 8);

    static std::size_t bytes(std::size_t count) {
        if (count > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T)) throw std::bad_alloc();
        return count * sizeof(T);
    }
    static void *allocate_many(std::size_t count) { return sw_malloc(bytes(count)); }
    static void *allocate_aligned(std::size_t count) {
        return sw_aligned_alloc(alignof(T), bytes(count));
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

} // namespace spanwise

#endif
