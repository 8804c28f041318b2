/* SPDX-License-Identifier: Apache-2.0 */
/* Call sites: chains of return addresses, each of which has an id. */
#ifndef SW_RECORDER_SITE_H
#define SW_RECORDER_SITE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/attributes.h"
#include "os/unwind.h"
#include "recorder/options.h"

struct record_thread;

bool record_sites_init(void);

/* A bucket of the table. key: 0 free; the id is written before the key. */
typedef struct record_site_bucket {
    uint64_t key;
    uint32_t id, padding;
} record_site_bucket;

extern record_site_bucket *record_site_buckets;
extern uint32_t record_site_shift; /* the upper bits of a key choose its bucket */

/* The id of the chain that starts at `frame`; 0 when the table is full. */
uint32_t record_site_slow(const struct record_thread *thread, sw_os_frame frame);

/* For depth 1 the key is a bijection of the address: it can not collide. */
static sw_always_inline uint64_t record_site_key(uint64_t address) {
    return address * 0x9E3779B97F4A7C15ull;
}

static sw_always_inline uint32_t record_site(const struct record_thread *thread,
                                             sw_os_frame frame) {
    if (sw_likely(record_option.stacks == 1)) {
        uint64_t key = record_site_key(frame.pc);
        const record_site_bucket *bucket = &record_site_buckets[key >> record_site_shift];
        if (sw_likely(__atomic_load_n(&bucket->key, __ATOMIC_ACQUIRE) == key)) return bucket->id;
    } else if (record_option.stacks == 0) {
        return 0;
    }
    return record_site_slow(thread, frame);
}

void record_sites_flush(void); /* writes what is new */
/* The process has a file of areas now: new sites wait there. */
void record_sites_share(void);
void record_sites_after_fork(void);

#endif
