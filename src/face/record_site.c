/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: each distinct chain of return addresses has an id. Looking one up is a probe of a
 * fixed hash table without a lock; a new one is entered under a lock and put into a SITES block,
 * which is written before the events that refer to it. */
#define _GNU_SOURCE
#include <errno.h>

#include "face/record.h"
#include "face/record_file.h"

enum {
    SLOT_BITS_SHALLOW = 17, /* depth 1: a slot for each call of malloc in the program */
    SLOT_BITS_DEEP = 20,
    BUFFER_BYTES = 128 * 1024,
};

/* key: hash of the chain, 0 free. The id is written before the key. */
typedef struct slot {
    uint64_t key;
    uint32_t id;
    uint32_t padding;
} slot;

static struct {
    sw_os_lock lock; /* entering, buffer, writing */
    slot *slots;
    uint32_t bits, count;
    swt_buffer buffer;
} sites;

bool record_sites_init(void) {
    if (record_option.stacks == 0) return true;
    sites.bits = record_option.stacks > 1 ? SLOT_BITS_DEEP : SLOT_BITS_SHALLOW;
    sites.slots = sw_os_map(sizeof(slot) << sites.bits);
    sites.buffer.data = sw_os_map(BUFFER_BYTES);
    sites.buffer.capacity = BUFFER_BYTES;
    return sites.slots != NULL && sites.buffer.data != NULL &&
           (record_option.stacks == 1 || sw_os_unwind_init());
}

static void write_buffer(void) {
    swt_buffer ready = sites.buffer;
    sites.buffer.used = 0;
    (void)record_file_put(SWT_BLOCK_SITES, &ready);
}

void record_sites_flush(void) {
    if (record_option.stacks == 0) return;
    sw_os_lock_acquire(&sites.lock);
    if (sites.buffer.used > 0) write_buffer();
    sw_os_lock_release(&sites.lock);
}

/* The slot of the key, or the free one where it belongs. The table is never more than 3/4 full. */
static slot *probe(uint64_t key, uint64_t *found) {
    uint64_t mask = (1ull << sites.bits) - 1;
    for (uint64_t i = key >> (64 - sites.bits);; i = (i + 1) & mask) {
        *found = __atomic_load_n(&sites.slots[i].key, __ATOMIC_ACQUIRE);
        if (*found == key || *found == 0) return &sites.slots[i];
    }
}

static sw_cold uint32_t enter_site(uint64_t key, const uint64_t *addresses, uint32_t depth) {
    uint64_t found;
    uint32_t id = 0;
    int saved = errno;
    sw_os_lock_acquire(&sites.lock);
    slot *s = probe(key, &found);
    if (found == key) {
        id = s->id;
    } else if (sites.count < (1u << sites.bits) / 4 * 3) {
        id = ++sites.count;
        if (!swt_put_site(&sites.buffer, id, addresses, depth)) {
            write_buffer();
            (void)swt_put_site(&sites.buffer, id, addresses, depth);
        }
        s->id = id;
        __atomic_store_n(&s->key, key, __ATOMIC_RELEASE);
    }
    sw_os_lock_release(&sites.lock);
    errno = saved;
    return id;
}

static uint64_t mix(uint64_t hash, uint64_t address) {
    hash = (hash ^ address) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 32;
}

/* For depth 1 the key is a bijection of the address, so it can not collide; chains may, once in
 * 2^64 / pairs. Multiplied last: the upper bits choose the slot. */
static sw_always_inline uint32_t find(const uint64_t *addresses, uint32_t depth) {
    uint64_t key = 0, found;
    for (uint32_t i = 0; i < depth; i++) key = mix(key, addresses[i]);
    key = (key == 0 ? 1 : key) * 0xD6E8FEB86659FD93ull;
    const slot *s = probe(key, &found);
    return sw_likely(found == key) ? s->id : enter_site(key, addresses, depth);
}

static sw_noinline uint32_t deep_site(const record_thread *thread, sw_os_frame frame) {
    uint64_t addresses[SWT_SITE_DEPTH_MAX];
    uintptr_t high = thread->stack_high;
    /* Another stack (signal handler, coroutine): its page is all that is known to be there. */
    if (frame.sp >= high || high - frame.sp > (uintptr_t)1 << 30)
        high = (frame.sp | (sw_os_page_bytes() - 1)) + 1;
    size_t depth = sw_os_unwind(frame, high, addresses, record_option.stacks);
    return find(addresses, (uint32_t)depth);
}

uint32_t record_site(const record_thread *thread, sw_os_frame frame) {
    if (record_option.stacks > 1) return deep_site(thread, frame);
    uint64_t address = frame.pc;
    return find(&address, 1);
}

void record_sites_after_fork(void) {
    if (record_option.stacks == 0) return;
    sw_os_lock_reset(&sites.lock);
    sites.buffer.used = 0;
    sites.count = 0;
    if (!sw_os_purge(sites.slots, sizeof(slot) << sites.bits))
        for (size_t i = 0; i < (size_t)1 << sites.bits; i++) sites.slots[i].key = 0;
}
