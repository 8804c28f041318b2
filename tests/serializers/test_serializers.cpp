// SPDX-License-Identifier: Apache-2.0
// FlatBuffers and Protobuf (protobuf-c) that take their memory from a sw_allocator: that of an
// arena, and that of the C library. Messages are encoded and
// decoded, and what comes back is compared with what went in; the bytes do not depend on the
// memory; in an arena the finished buffer lies in a chunk, aligned as max_align_t, and nothing is
// freed before the arena is. Calls, bytes and copied bytes are counted and compared with what the
// sizes say.
#include <message.pb-c.h>
#include <message_generated.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include <spanwise/flatbuffers.hpp>
#include <spanwise/protobuf_c.h>
#include <spanwise/spanwise.h>

namespace {

struct Counts {
    uint64_t allocs = 0, frees = 0, bytes = 0, moves = 0, moved_bytes = 0;
};

// A sw_allocator in the way in which FlatBuffers takes one. It knows no sizes but those that it is
// told.
class FlatMemory : public flatbuffers::Allocator {
  public:
    FlatMemory(const sw_allocator &memory, Counts *counts) : memory_(memory), counts_(counts) {}
    uint8_t *allocate(size_t size) override {
        counts_->allocs++;
        counts_->bytes += size;
        void *block = memory_.allocate(memory_.context, size, alignof(max_align_t));
        if (block == nullptr) abort();
        return static_cast<uint8_t *>(block);
    }
    void deallocate(uint8_t *block, size_t size) override {
        counts_->frees++;
        memory_.release(memory_.context, block, size);
    }
    // A builder that grows: its buffer is filled from the back, so both ends move to the new one.
    uint8_t *reallocate_downward(uint8_t *block, size_t size, size_t larger, size_t back,
                                 size_t front) override {
        counts_->moves++;
        counts_->moved_bytes += back + front;
        return flatbuffers::Allocator::reallocate_downward(block, size, larger, back, front);
    }

  private:
    sw_allocator memory_;
    Counts *counts_;
};

// The same for protobuf-c, whose free does not tell sizes: neither an arena nor the C library asks
// for them.
struct ProtoMemory {
    sw_allocator memory;
    Counts *counts;
};
void *proto_alloc(void *context, size_t size) {
    ProtoMemory *own = static_cast<ProtoMemory *>(context);
    own->counts->allocs++;
    own->counts->bytes += size;
    return own->memory.allocate(own->memory.context, size, alignof(max_align_t));
}
void proto_free(void *context, void *block) {
    ProtoMemory *own = static_cast<ProtoMemory *>(context);
    if (block == nullptr) return;
    own->counts->frees++;
    own->memory.release(own->memory.context, block, 0);
}

struct Text {
    uint64_t from, to;
    uint32_t sequence;
    std::string room;
    std::vector<uint8_t> body;
};

Text text_of(uint32_t number) {
    Text made{number * UINT64_C(0x100000001), ~uint64_t{number}, number, "room ", {}};
    made.room += std::to_string(number % 7);
    made.body.resize(number * 37 % 1500);
    for (size_t i = 0; i < made.body.size(); i++) made.body[i] = static_cast<uint8_t>(i * number);
    return made;
}

bool lies_in(const sw_arena *arena, const void *p) {
    sw_arena *whose = sw_arena_pin(p);
    CHECK(whose == nullptr || sw_arena_unhold(whose) == SW_OK);
    return whose == arena;
}

bool is_aligned(const void *p) {
    return reinterpret_cast<uintptr_t>(p) % alignof(max_align_t) == 0;
}

// arena: where the buffer must lie; NULL: anywhere. first_bytes: of the builder's buffer before it
// grows.
std::vector<uint8_t> through_flatbuffers(const Text &text, const sw_allocator &memory,
                                         const sw_arena *arena, Counts *counts,
                                         size_t first_bytes) {
    FlatMemory flat(memory, counts);
    flatbuffers::FlatBufferBuilder builder(first_bytes, &flat, false, alignof(max_align_t));
    fb::Header header(text.from, text.to);
    builder.Finish(fb::CreateMessage(builder, &header, text.sequence,
                                     builder.CreateString(text.room),
                                     builder.CreateVector(text.body)));
    const uint8_t *buffer = builder.GetBufferPointer();
    size_t size = builder.GetSize();
    CHECK(is_aligned(buffer));
    CHECK(arena == nullptr || (lies_in(arena, buffer) && lies_in(arena, buffer + size - 1)));
    flatbuffers::Verifier verifier(buffer, size);
    CHECK(fb::VerifyMessageBuffer(verifier));
    const fb::Message *found = fb::GetMessage(buffer); // in place: decoding takes no memory
    CHECK(arena == nullptr || text.body.empty() || lies_in(arena, found->body()->data()));
    CHECK(is_aligned(found->header()));
    CHECK_EQ(found->header()->from(), text.from);
    CHECK_EQ(found->header()->to(), text.to);
    CHECK_EQ(found->sequence(), text.sequence);
    CHECK(found->room()->str() == text.room);
    CHECK_EQ(found->body()->size(), text.body.size());
    CHECK(text.body.empty() ||
          memcmp(found->body()->data(), text.body.data(), text.body.size()) == 0);
    return std::vector<uint8_t>(buffer, buffer + size);
}

std::vector<uint8_t> through_protobuf(const Text &text, const sw_allocator &memory,
                                      const sw_arena *arena, Counts *counts) {
    ProtoMemory own{memory, counts};
    ProtobufCAllocator allocator{proto_alloc, proto_free, &own};
    Message message = MESSAGE__INIT;
    message.from = text.from;
    message.to = text.to;
    message.sequence = text.sequence;
    message.room = const_cast<char *>(text.room.c_str());
    message.body.len = text.body.size();
    message.body.data = const_cast<uint8_t *>(text.body.data());
    size_t size = message__get_packed_size(&message);
    uint8_t *buffer = static_cast<uint8_t *>(proto_alloc(&own, size));
    CHECK(is_aligned(buffer));
    CHECK_EQ(message__pack(&message, buffer), size); // straight into its place
    CHECK(arena == nullptr || (lies_in(arena, buffer) && lies_in(arena, buffer + size - 1)));
    Message *found = message__unpack(&allocator, size, buffer);
    CHECK(found != nullptr && is_aligned(found));
    CHECK(arena == nullptr || (lies_in(arena, found) && lies_in(arena, found->room)));
    CHECK_EQ(found->from, text.from);
    CHECK_EQ(found->to, text.to);
    CHECK_EQ(found->sequence, text.sequence);
    CHECK(found->room == text.room);
    CHECK_EQ(found->body.len, text.body.size());
    CHECK(text.body.empty() || memcmp(found->body.data, text.body.data(), text.body.size()) == 0);
    std::vector<uint8_t> bytes(buffer, buffer + size);
    if (arena == nullptr)
        message__free_unpacked(found, &allocator); // an arena frees all at its end
    if (arena == nullptr) proto_free(&own, buffer);
    return bytes;
}

sw_arena *make() {
    sw_arena_options options;
    sw_arena *arena = nullptr;
    sw_arena_options_init(&options);
    options.mode = SW_ARENA_FORCE;
    if (sw_arena_create(&options, &arena) != SW_OK) abort();
    return arena;
}

void same_bytes_on_both() {
    for (uint32_t number = 0; number < 200; number++) {
        Text text = text_of(number);
        sw_arena *arena = make();
        Counts heap_flat, arena_flat, heap_proto, arena_proto;
        sw_allocator of_arena = sw_arena_allocator(arena), of_libc = *sw_allocator_libc();
        CHECK(through_flatbuffers(text, of_libc, nullptr, &heap_flat, 256) ==
              through_flatbuffers(text, of_arena, arena, &arena_flat, 256));
        CHECK(through_protobuf(text, of_libc, nullptr, &heap_proto) ==
              through_protobuf(text, of_arena, arena, &arena_proto));
        CHECK_EQ(heap_flat.bytes, arena_flat.bytes);
        CHECK_EQ(heap_flat.moved_bytes, arena_flat.moved_bytes);
        CHECK_EQ(heap_flat.frees, heap_flat.allocs);
        CHECK_EQ(heap_proto.bytes, arena_proto.bytes);
        CHECK_EQ(heap_proto.frees, heap_proto.allocs);
        CHECK_EQ(arena_proto.frees, 0);
        // The packed message; of the decoded one the record, the string with its end, and a body
        // that is not empty.
        CHECK_EQ(arena_proto.allocs, 3 + !text.body.empty());
        sw_arena_stats stats;
        CHECK_EQ(sw_arena_get_stats(arena, &stats), SW_OK);
        CHECK_EQ(stats.own_objects, 0);
        CHECK(stats.used_bytes >= arena_flat.bytes + arena_proto.bytes);
        CHECK_EQ(sw_arena_free(arena), SW_OK);
    }
}

// The adapters of the public headers: a message is built, packed and decoded in an arena, and a
// full arena is reported.
void adapters_of_an_arena() {
    Counts counts;
    for (uint32_t number = 0; number < 50; number++) {
        Text text = text_of(number);
        spanwise::arena arena;
        spanwise::flatbuffers_allocator<flatbuffers::Allocator> memory(arena);
        flatbuffers::FlatBufferBuilder builder(64, &memory, false, 16); // grows
        fb::Header header(text.from, text.to);
        builder.Finish(fb::CreateMessage(builder, &header, text.sequence,
                                         builder.CreateString(text.room),
                                         builder.CreateVector(text.body)));
        CHECK(lies_in(arena.get(), builder.GetBufferPointer()));
        const fb::Message *built = fb::GetMessage(builder.GetBufferPointer());
        CHECK(built->room()->str() == text.room && built->body()->size() == text.body.size());

        ProtobufCAllocator allocator = SW_PROTOBUF_C_ALLOCATOR(arena.get());
        std::vector<uint8_t> bytes = through_protobuf(text, *sw_allocator_libc(), nullptr, &counts);
        Message *found = message__unpack(&allocator, bytes.size(), bytes.data());
        CHECK(found != nullptr && is_aligned(found) && found->room == text.room);
        CHECK(lies_in(arena.get(), found) && lies_in(arena.get(), found->room));
        message__free_unpacked(found, &allocator); // does nothing
        CHECK(found->room == text.room);
    }
}

void adapters_of_a_full_arena() {
    sw_arena_options options;
    sw_arena_options_init(&options);
    options.mode = SW_ARENA_FORCE;
    options.limit_bytes = SW_ARENA_CHUNK_DEFAULT;
    spanwise::arena arena(&options);
    spanwise::flatbuffers_allocator<flatbuffers::Allocator> memory(arena);
    int blocks = 0;
    try {
        for (; blocks < 100; blocks++) (void)memory.allocate(1024);
    } catch (const std::bad_alloc &) {
    }
    CHECK(blocks >= 60 && blocks <= 64); // of 65,536 bytes
    Counts counts;
    std::vector<uint8_t> bytes =
        through_protobuf(text_of(40), *sw_allocator_libc(), nullptr, &counts); // of 1480 bytes
    ProtobufCAllocator allocator = SW_PROTOBUF_C_ALLOCATOR(arena.get());
    CHECK(message__unpack(&allocator, bytes.size(), bytes.data()) == nullptr);
}

} // namespace

int main() {
    same_bytes_on_both();
    adapters_of_an_arena();
    adapters_of_a_full_arena();
    return check_result();
}
