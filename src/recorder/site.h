/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: each call stack of an allocation has an id. */
#ifndef SW_RECORDER_SITE_H
#define SW_RECORDER_SITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "os/os.h"
#include "os/unwind.h"
#include "recorder/state.h"
#include "trace/raw.h"

struct record_thread;

/* Maps the table. If there is no unwinder, call stacks have one address from now on. False: no
 * memory. */
bool record_sites_init(void);

/* A bucket of the hash table. Its key is 0 while it is free. The id is written before the key, so a
 * reader that sees the key also sees the id. */
typedef struct record_site_bucket {
    uint64_t key;
    uint32_t id, padding;
} record_site_bucket;

/* Each thread caches some of its latest walks and their sites. Most calls repeat an earlier walk,
 * and comparing a few words of the stack with those of the cached walk costs less than a new walk.
 * The cache is set-associative, indexed by pc and sp of the first frame.
 *   site != 0 only if walk.count <= SW_OS_WORDS_MAX */
enum { RECORD_WALK_SETS_LOG2 = 5, RECORD_WALK_WAYS = 8 };
typedef struct record_walk {
    sw_os_frame from;
    uintptr_t stack_high;
    uint32_t site;  /* 0: none */
    uint32_t epoch; /* walks_epoch of the walk; older walks are not used */
    sw_os_walk walk;
} record_walk;

const char *record_walk_check(const record_walk *walk);

/* The data of new sites. Under its lock:
 *   count <= 3/4 of 2^bits buckets;  buffer.data != NULL, `own` if there is no file of areas
 *   and the rules of buffer. `recent` is read and written without the lock. */
typedef struct record_sites {
    sw_os_lock lock; /* held while a site is inserted and while the buffer is used */
    uint32_t bits, count;
    swt_buffer buffer;
    uint8_t *own;     /* private memory, the buffer if there is no file of areas */
    uint64_t *recent; /* keys and ids of stacks of Python frames; NULL: none */
} record_sites;

const char *record_sites_check(const record_sites *sites);

extern record_site_bucket *record_site_buckets;
extern uint32_t record_site_shift; /* the upper bits of a key choose its bucket */

/* Returns the id of the call stack that starts at `frame`; 0 if the table is full. */
uint32_t record_site_slow(struct record_thread *thread, sw_os_frame frame);

/* With one return address per site, the key is a bijection of the address: two sites never have the
 * same key. */
static sw_always_inline uint64_t record_site_key(uint64_t address) {
    return address * 0x9E3779B97F4A7C15ull;
}

static sw_always_inline uint32_t record_site(struct record_thread *thread, sw_os_frame frame) {
    if (sw_likely(record_option.shallow)) {
        uint64_t key = record_site_key(frame.pc);
        const record_site_bucket *bucket = &record_site_buckets[key >> record_site_shift];
        if (sw_likely(__atomic_load_n(&bucket->key, __ATOMIC_ACQUIRE) == key)) return bucket->id;
    } else if (record_option.stacks == 0) {
        return 0;
    }
    return record_site_slow(thread, frame);
}

/* Writes a SITES block with the sites that are in no block yet. */
void record_sites_flush(void);
/* Called when the process has created its file of areas: moves the buffer of new sites there. */
void record_sites_share(void);
void record_sites_after_fork(void);
/* Called when a module was unloaded: cached walks may have passed through it, so none is used
 * again. */
void record_sites_forget_walks(void);

#endif
