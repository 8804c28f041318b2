/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: each distinct chain of return addresses has an id. Looking one up is a probe of a
 * fixed hash table without a lock; a new one is entered under a lock and put into a SITES block,
 * which is written before the events that refer to it. */
#define _GNU_SOURCE
#include "recorder/site.h"

#include <errno.h>
#include <string.h>

#include "base/assert.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/state.h"
#include "recorder/thread.h"

enum {
    BUCKET_BITS_SHALLOW = 17, /* depth 1: a bucket for each call of malloc in the program */
    BUCKET_BITS_DEEP = 20,
    BUFFER_BYTES = 128 * 1024,
};

record_site_bucket *record_site_buckets;
uint32_t record_site_shift;

static record_sites sites;

static size_t table_bytes(void) { return sizeof(record_site_bucket) << sites.bits; }

bool record_sites_init(void) {
    if (record_option.stacks == 0) return true;
    sites.bits = record_option.stacks > 1 ? BUCKET_BITS_DEEP : BUCKET_BITS_SHALLOW;
    record_site_shift = 64 - sites.bits;
    record_site_buckets = sw_os_map(table_bytes());
    sites.own = sites.buffer.data = sw_os_map(BUFFER_BYTES);
    sites.buffer.capacity = BUFFER_BYTES;
    return record_site_buckets != NULL && sites.own != NULL &&
           (record_option.stacks == 1 || sw_os_unwind_init());
}

static void write_buffer(void) {
    swt_buffer ready = sites.buffer;
    sites.buffer.used = 0;
    (void)record_file_put(SWT_BLOCK_SITES, &ready);
    record_area_publish_sites(0);
}

void record_sites_share(void) {
    if (record_option.stacks == 0) return;
    sw_os_lock_acquire(&sites.lock);
    uint8_t *shared = record_area_sites(BUFFER_BYTES);
    if (shared != NULL) {
        memcpy(shared, sites.buffer.data, sites.buffer.used);
        sites.buffer.data = shared;
        record_area_publish_sites(sites.buffer.used);
    }
    sw_os_lock_release(&sites.lock);
}

void record_sites_flush(void) {
    if (record_option.stacks == 0) return;
    sw_os_lock_acquire(&sites.lock);
    if (sites.buffer.used > 0) write_buffer();
    sw_os_lock_release(&sites.lock);
}

/* The bucket of the key, or the free one where it belongs. The table is never more than 3/4
 * full. */
static record_site_bucket *probe(uint64_t key, uint64_t *found) {
    uint64_t mask = (1ull << sites.bits) - 1;
    for (uint64_t i = key >> record_site_shift;; i = (i + 1) & mask) {
        *found = __atomic_load_n(&record_site_buckets[i].key, __ATOMIC_ACQUIRE);
        if (*found == key || *found == 0) return &record_site_buckets[i];
    }
}

static sw_cold uint32_t enter_site(uint64_t key, const uint64_t *addresses, uint32_t depth) {
    uint64_t found;
    uint32_t id = 0;
    if (record_is_stray_copy()) return 0; /* the buffer and the lock are the parent's */
    int saved = errno;
    sw_os_lock_acquire(&sites.lock);
    sw_check2(record_sites_check(&sites));
    record_site_bucket *s = probe(key, &found);
    if (found == key) {
        id = s->id;
    } else if (sites.count < (1u << sites.bits) / 4 * 3) {
        id = ++sites.count;
        if (!swt_put_site(&sites.buffer, id, addresses, depth)) {
            write_buffer();
            (void)swt_put_site(&sites.buffer, id, addresses, depth);
        }
        record_area_publish_sites(sites.buffer.used);
        s->id = id;
        __atomic_store_n(&s->key, key, __ATOMIC_RELEASE);
    }
    sw_os_lock_release(&sites.lock);
    errno = saved;
    return id;
}

/* Two chains have the same key once in 2^64 pairs. The multiplication comes last, because it mixes
 * the upper bits best, and these choose the bucket. */
static uint64_t chain_key(const uint64_t *addresses, size_t depth) {
    uint64_t key = 0;
    for (size_t i = 0; i < depth; i++) {
        key = (key ^ addresses[i]) * 0x9E3779B97F4A7C15ull;
        key ^= key >> 32;
    }
    key *= 0xD6E8FEB86659FD93ull;
    return key == 0 ? 1 : key;
}

static uint32_t find(uint64_t key, const uint64_t *addresses, size_t depth) {
    uint64_t found;
    const record_site_bucket *s = probe(key, &found);
    return sw_likely(found == key) ? s->id : enter_site(key, addresses, (uint32_t)depth);
}

static uint32_t deep_site(const record_thread *thread, sw_os_frame frame) {
    uint64_t addresses[SWT_SITE_DEPTH_MAX];
    uintptr_t high = thread->stack_high;
    /* On another stack (of a signal handler, or of a coroutine) only the rest of the page is known
     * to be mapped. */
    if (frame.sp >= high || high - frame.sp > (uintptr_t)1 << 30)
        high = (frame.sp | (sw_os_page_bytes() - 1)) + 1;
    size_t depth = sw_os_unwind(frame, high, addresses, record_option.stacks);
    return find(chain_key(addresses, depth), addresses, depth);
}

uint32_t record_site_slow(const record_thread *thread, sw_os_frame frame) {
    if (record_option.stacks > 1) return deep_site(thread, frame);
    uint64_t address = frame.pc;
    return find(record_site_key(address), &address, 1);
}

void record_sites_after_fork(void) {
    if (record_option.stacks == 0) return;
    sw_os_lock_reset(&sites.lock);
    sites.buffer.data = sites.own;
    sites.buffer.used = 0;
    sites.count = 0;
    if (!sw_os_purge(record_site_buckets, table_bytes()))
        for (size_t i = 0; i < (size_t)1 << sites.bits; i++) record_site_buckets[i].key = 0;
}
