/* SPDX-License-Identifier: Apache-2.0 */
/* C++11 and later: FlatBuffers in an arena. This header does not include theirs.
 *
 *     spanwise::arena arena; // outlives the builder
 *     spanwise::flatbuffers_allocator<flatbuffers::Allocator> memory(arena);
 *     flatbuffers::FlatBufferBuilder builder(1024, &memory);
 *
 * Buffers are aligned to 16 bytes; a schema with force_align above 8 needs the builder's argument
 * buffer_minalign, whatever the allocator. Buffers are freed with the arena, also those that a
 * builder outgrows. Allocations throw std::bad_alloc if memory or the arena's limit is exhausted.
 * The thread rule is that of arena.h. protobuf-c: protobuf_c.h.
 */
#ifndef SPANWISE_FLATBUFFERS_HPP
#define SPANWISE_FLATBUFFERS_HPP

#include <cstdint>

#include <spanwise/arena_allocator.hpp>

namespace spanwise {

/* The allocator of a builder, in an arena that outlives it. Base: flatbuffers::Allocator. */
template <typename Base> class flatbuffers_allocator final : public Base {
  public:
    explicit flatbuffers_allocator(const arena &from) noexcept : arena_(from.get()) {}
    explicit flatbuffers_allocator(sw_arena *from) noexcept : arena_(from) {}

    /* Allocate a buffer, aligned to 16 bytes. Throws std::bad_alloc. */
    std::uint8_t *allocate(std::size_t bytes) override {
        return static_cast<std::uint8_t *>(detail::arena_bytes(arena_, bytes, 16));
    }
    /* Do nothing: the buffer is freed with the arena. */
    void deallocate(std::uint8_t *, std::size_t) override {}

  private:
    sw_arena *arena_;
};

} // namespace spanwise

#endif
