/* SPDX-License-Identifier: Apache-2.0 */
/* protobuf-c in an arena. This header does not include that of protobuf-c.
 *
 *     ProtobufCAllocator allocator = SW_PROTOBUF_C_ALLOCATOR(arena);
 *     Message *message = message__unpack(&allocator, bytes, data);
 *
 * A message is freed with the arena: __free_unpacked does nothing. __unpack returns NULL if the
 * arena's limit is reached. The thread rule is that of arena.h. FlatBuffers: flatbuffers.hpp.
 */
#ifndef SPANWISE_PROTOBUF_C_H
#define SPANWISE_PROTOBUF_C_H

#include <spanwise/arena.h>

/* Initialise a ProtobufCAllocator; arena: a sw_arena *. */
#define SW_PROTOBUF_C_ALLOCATOR(arena) {sw_protobuf_c_alloc, sw_protobuf_c_free, (arena)}

static inline void *sw_protobuf_c_alloc(void *arena, size_t bytes) {
    return sw_arena_alloc((sw_arena *)arena, bytes, 16, 0);
}

static inline void sw_protobuf_c_free(void *arena, void *block) {
    (void)arena;
    (void)block;
}

#endif
