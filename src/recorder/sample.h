/* SPDX-License-Identifier: Apache-2.0 */
/* Sampled recording (SPANWISE_RECORD_SAMPLE): only some objects are recorded, each with its free.
 *
 * Sample points fall on the stream of allocated bytes of each thread as a Poisson process with one
 * point per `mean` bytes, and an object is recorded if at least one point falls on it. So an object
 * of n bytes is recorded with probability p = 1 - e^(-n / mean), independently of all others, and
 * counts for 1 / p objects: the method of the heap profilers of tcmalloc and Go. An object of 0
 * bytes counts as one of 1 byte.
 *
 * Live recorded objects are kept in a table by address, so that a free finds out whether it is to
 * be recorded. Most frees end at one bit of 8 KiB.
 */
#ifndef SW_RECORDER_SAMPLE_H
#define SW_RECORDER_SAMPLE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"
#include "os/os.h"
#include "recorder/state.h"
#include "recorder/thread.h"

enum {
    RECORD_BUCKETS_LOG2 = 16,
    RECORD_BUCKET_OBJECTS = 4, /* an object whose bucket is full is not recorded, but counted */
};

/* The live recorded objects. It is in memory that reads as zero in a fork child, whose recording
 * does not have the objects of its parent.
 *   bit b of `used` is set if and only if bucket b has an address;  no address occurs twice.
 * Changed under the lock, but read without it by a free, because the object was in its bucket
 * before malloc returned it. */
typedef struct record_samples {
    uint64_t used[1 << (RECORD_BUCKETS_LOG2 - 6)];
    uint64_t buckets[1 << RECORD_BUCKETS_LOG2][RECORD_BUCKET_OBJECTS];
    sw_os_lock lock;
} record_samples;

extern record_samples *record_sampled; /* NULL: every object is recorded */

const char *record_samples_check(const record_samples *samples);

/* Called once, before anything is recorded. False: no memory. */
bool record_sample_init(void);

/* The slow path of record_sample: draws the distance to the next point. */
bool record_sample_point(record_thread *thread, const void *p, size_t size);
/* Removes an address from the table. False: it was not in it. */
bool record_sample_remove(uintptr_t address);
/* Adds it again, after a reallocation that failed. */
void record_sample_restore(uintptr_t address);

static inline uint32_t record_bucket_of(uintptr_t address) {
    return (uint32_t)((address >> 4) * UINT64_C(0x9E3779B97F4A7C15) >> (64 - RECORD_BUCKETS_LOG2));
}

static sw_always_inline bool record_sample_passes(record_thread *thread, size_t size) {
    thread->until_sample -= (int64_t)(size + (size == 0));
    return sw_likely(thread->until_sample >= 0);
}

/* Returns true if an allocation of this thread is not to be recorded: then only the real function
 * is called. Otherwise record_sample decides, after the call. */
static sw_always_inline bool record_sample_skips(size_t size) {
    if (sw_likely(record_sampled == NULL)) return false;
    record_thread *thread = record_self;
    return sw_likely(thread != NULL && thread->phase == RECORD_IDLE) &&
           record_sample_passes(thread, size);
}

/* Returns whether the object that malloc has just returned is to be recorded. A distance below 0
 * has had the object's bytes taken off. */
static sw_always_inline bool record_sample(record_thread *thread, const void *p, size_t size) {
    if (sw_likely(record_sampled == NULL)) return true;
    if (thread->until_sample >= 0 && record_sample_passes(thread, size)) return false;
    return record_sample_point(thread, p, size);
}

/* Returns true if the object is not in the table, so that its free is not to be recorded. */
static sw_always_inline bool record_sample_skips_free(uintptr_t address) {
    if (sw_likely(record_sampled == NULL)) return false;
    uint32_t bucket = record_bucket_of(address);
    uint64_t bits = __atomic_load_n(&record_sampled->used[bucket / 64], __ATOMIC_RELAXED);
    return sw_likely((bits >> bucket % 64 & 1) == 0);
}

/* Returns whether the free of an object is to be recorded. */
static sw_always_inline bool record_sample_free(uintptr_t address) {
    if (sw_likely(record_sampled == NULL)) return true;
    return !record_sample_skips_free(address) && record_sample_remove(address);
}

#endif
