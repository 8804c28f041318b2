/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: each distinct call stack has an id. A known stack is found in a fixed hash table
 * without a lock. A new one is inserted under a lock and appended to a SITES block, which is
 * written before the events that refer to it. */
#define _GNU_SOURCE
#include "recorder/site.h"

#include <errno.h>
#include <string.h>

#include "base/base.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/memory.h"
#include "recorder/python.h"
#include "recorder/state.h"
#include "recorder/thread.h"

enum {
    BUCKET_BITS_SHALLOW = 17, /* depth 1: one bucket per return address after a call of malloc */
    BUCKET_BITS_DEEP = 20,
    BUFFER_BYTES = 128 * 1024,
    RECENT_BITS = 16, /* stacks of Python frames with a cached id */
    ID_BITS = 24,     /* ids are below 2^24 (docs/design/trace.md) */
};

record_site_bucket *record_site_buckets;
uint32_t record_site_shift;

static record_sites sites;

static size_t table_bytes(void) { return sizeof(record_site_bucket) << sites.bits; }
static size_t recent_bytes(void) { return sizeof(uint64_t) << RECENT_BITS; }

bool record_sites_init(void) {
    if (record_option.stacks == 0) return true;
    bool again = sites.own != NULL; /* a further window of an attached recorder */
    /* Without the unwinder, only lines of Python or single return addresses can be recorded. */
    if (record_option.stacks > 1 && !sw_os_unwind_init(record_map) &&
        record_option.python_stacks == 0) {
        record_option.stacks = 1;
        record_option.shallow = true;
    }
    bool deep = record_option.stacks > 1 || record_option.python_stacks != 0;
    uint32_t bits = deep ? BUCKET_BITS_DEEP : BUCKET_BITS_SHALLOW;
    if (bits != sites.bits) {
        sites.bits = bits;
        record_site_shift = 64 - sites.bits;
        record_site_buckets = record_map(table_bytes());
    }
    if (!again) sites.own = record_map(BUFFER_BYTES);
    sites.buffer.data = sites.own;
    sites.buffer.capacity = BUFFER_BYTES;
    if (record_option.python_stacks != 0 && sites.recent == NULL &&
        (sites.recent = record_map(recent_bytes())) == NULL)
        return false;
    if (record_site_buckets == NULL || sites.own == NULL) return false;
    if (again) record_sites_after_fork();
    return true;
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

/* Returns the bucket of the key, or the free bucket where it belongs. The table is at most 3/4
 * full, so the loop ends. */
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

/* Two different stacks have the same key with a probability of 2^-64. The last step is a
 * multiplication, because it mixes the upper bits best, which choose the bucket. */
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

/* --- walks that were made before -------------------------------------------------------------- */

static uint32_t walks_epoch;

void record_sites_forget_walks(void) { __atomic_fetch_add(&walks_epoch, 1, __ATOMIC_RELAXED); }

static sw_cold record_walk *new_walks(void) {
    int saved = errno;
    record_walk *walks =
        record_map(sizeof(record_walk) * RECORD_WALK_WAYS << RECORD_WALK_SETS_LOG2);
    errno = saved;
    return walks;
}

/* Returns the thread's set of cached walks for a frame. NULL: no memory. */
static record_walk *walks_of(record_thread *thread, sw_os_frame frame) {
    if (sw_unlikely(thread->walks == NULL)) thread->walks = new_walks();
    if (sw_unlikely(thread->walks == NULL)) return NULL;
    uint64_t mixed = (frame.pc ^ frame.sp << 20) * 0x9E3779B97F4A7C15ull;
    return &thread->walks[(mixed >> (64 - RECORD_WALK_SETS_LOG2)) * RECORD_WALK_WAYS];
}

/* Returns the site of a cached walk that began at this frame and still matches the stack. 0: the
 * set has none. */
static uint32_t known_site(const record_walk *set, sw_os_frame frame, uintptr_t high,
                           uint32_t epoch) {
    for (int i = 0; i < RECORD_WALK_WAYS; i++) {
        const record_walk *known = &set[i];
        if (known->from.pc == frame.pc && known->from.sp == frame.sp && known->site != 0 &&
            known->epoch == epoch && known->stack_high == high &&
            (!known->walk.uses_fp || known->from.fp == frame.fp) && sw_os_walk_holds(&known->walk))
            return known->site;
    }
    return 0;
}

static uint32_t walk_to_site(record_walk *kept, sw_os_frame frame, uintptr_t high, uint32_t epoch) {
    uint64_t addresses[SWT_SITE_DEPTH_MAX];
    sw_os_walk *walk = kept == NULL ? NULL : &kept->walk;
    size_t depth = sw_os_unwind(frame, high, addresses, record_option.stacks, walk);
    uint32_t site = find(chain_key(addresses, depth), addresses, depth);
    if (kept == NULL) return site;
    kept->from = frame;
    kept->stack_high = high;
    kept->epoch = epoch;
    kept->site = walk->count <= SW_OS_WORDS_MAX ? site : 0;
    sw_check2(record_walk_check(kept));
    return site;
}

static uint32_t deep_site(record_thread *thread, sw_os_frame frame) {
    uintptr_t high = thread->stack_high;
    uint32_t epoch = __atomic_load_n(&walks_epoch, __ATOMIC_RELAXED);
    /* On a stack other than the thread's (a signal handler's, a coroutine's) only the rest of the
     * page is known to be mapped. */
    if (frame.sp >= high || high - frame.sp > (uintptr_t)1 << 30)
        high = (frame.sp | (sw_os_page_bytes() - 1)) + 1;
    record_walk *set = walks_of(thread, frame);
    uint32_t site = set == NULL ? 0 : known_site(set, frame, high, epoch);
    if (sw_likely(site != 0)) return site;
    record_walk *kept = set == NULL ? NULL : &set[thread->walk_turns++ % RECORD_WALK_WAYS];
    return walk_to_site(kept, frame, high, epoch);
}

/* Returns the site of the stack of Python lines. Instructions of one line belong to one site, so
 * the table is keyed by lines. `recent` maps stacks of instructions to ids; an entry has the upper
 * 40 bits of the stack's key, and its index another 16, so 56 bits are compared. 0: the thread runs
 * no Python now. */
static uint32_t python_site(void) {
    record_python_frame frames[SWT_SITE_DEPTH_MAX];
    uint64_t chain[SWT_SITE_DEPTH_MAX];
    size_t depth = record_python_walk(frames, record_option.python_stacks);
    if (depth == 0) return 0;
    for (size_t i = 0; i < depth; i++) chain[i] = frames[i].place;
    uint64_t key = chain_key(chain, depth), low = (1u << ID_BITS) - 1;
    uint64_t *remembered = &sites.recent[key & ((1u << RECENT_BITS) - 1)];
    uint64_t seen = __atomic_load_n(remembered, __ATOMIC_RELAXED);
    if (sw_likely((seen ^ key) <= low && (seen & low) != 0)) return (uint32_t)(seen & low);
    for (size_t i = 0; i < depth; i++) chain[i] = record_python_line(&frames[i]);
    uint32_t id = find(chain_key(chain, depth), chain, depth);
    __atomic_store_n(remembered, (key & ~low) | id, __ATOMIC_RELAXED);
    return id;
}

uint32_t record_site_slow(record_thread *thread, sw_os_frame frame) {
    uint32_t line = record_option.python_stacks != 0 ? python_site() : 0;
    if (line != 0) return line;
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
    record_sites_forget_walks();
    if (sites.recent != NULL && !sw_os_purge(sites.recent, recent_bytes()))
        memset(sites.recent, 0, recent_bytes());
    record_python_after_fork();
    if (!sw_os_purge(record_site_buckets, table_bytes()))
        for (size_t i = 0; i < (size_t)1 << sites.bits; i++) record_site_buckets[i].key = 0;
}
