/* SPDX-License-Identifier: Apache-2.0 */
#include "recorder/sample.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "recorder/memory.h"
#include "recorder/state.h"

record_samples *record_sampled;

bool record_sample_init(void) {
    record_sampled = NULL;
    if (record_option.sample == 0) return true;
    static record_samples *samples; /* of an earlier window, too */
    size_t bytes = (size_t)sw_align_up(sizeof *samples, sw_os_page_bytes());
    if (samples == NULL)
        samples = record_map(bytes);
    else if (!sw_os_purge(samples, bytes))
        memset(samples, 0, sizeof *samples);
    if (samples == NULL) return false;
    if (record_marks_copies())
        (void)syscall(SYS_madvise, samples, sizeof *samples, MADV_WIPEONFORK);
    record_sampled = samples;
    return true;
}

/* --- points ----------------------------------------------------------------------------------- */

/* The next number of a thread (xorshift64*, Vigna 2016); never 0. */
static uint64_t next_random(record_thread *thread) {
    uint64_t x = thread->random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    thread->random = x;
    return x * UINT64_C(0x2545F4914F6CDD1D);
}

/* Seeds differ by thread and by run. The finalizer of splitmix64 spreads them. */
static uint64_t seed_of(const record_thread *thread) {
    uint64_t x = record_read_ticks() ^ (uint64_t)(uintptr_t)thread << 20 ^ record_this.pid << 48;
    x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
    return (x ^ x >> 31) | 1;
}

/* The natural logarithm of 1 <= m < 2, to 1e-9: the series of 2 artanh((m - 1) / (m + 1)), for m
 * between the square roots of 1/2 and 2. */
static double log_of_mantissa(double m) {
    double half = 0;
    if (m > 1.4142135623730951) {
        m /= 2;
        half = 0.6931471805599453;
    }
    double z = (m - 1) / (m + 1), square = z * z, sum = 0;
    for (int odd = 11; odd > 0; odd -= 2) sum = sum * square + 1.0 / odd;
    return half + 2 * z * sum;
}

/* Bytes until the next point: exponential, -mean ln u with u uniform in (0, 1]. libm is avoided,
 * because the recorded program need not have it. */
static int64_t distance(record_thread *thread) {
    uint64_t bits = next_random(thread);
    int lead = __builtin_clzll(bits);
    double mantissa = (double)(bits << lead >> 11) * 0x1p-52; /* u = mantissa 2^-(lead + 1) */
    double minus_log = (lead + 1) * 0.6931471805599453 - log_of_mantissa(mantissa);
    return (int64_t)(minus_log * (double)record_option.sample);
}

/* An address may be there already, if its free was a nested call. False: the bucket is full. */
static bool insert(uintptr_t address) {
    uint32_t bucket = record_bucket_of(address);
    uint64_t *places = record_sampled->buckets[bucket], *place = NULL;
    sw_os_lock_acquire(&record_sampled->lock);
    for (uint32_t i = 0; i < RECORD_BUCKET_OBJECTS; i++)
        if (places[i] == address || (places[i] == 0 && place == NULL)) place = &places[i];
    if (place != NULL) {
        __atomic_store_n(place, address, __ATOMIC_RELAXED);
        (void)__atomic_fetch_or(&record_sampled->used[bucket / 64], UINT64_C(1) << bucket % 64,
                                __ATOMIC_RELEASE);
    }
    sw_os_lock_release(&record_sampled->lock);
    return place != NULL;
}

/* The first call of a thread, and of a fork child, finds no seed; the caller has subtracted the
 * object's bytes from 0. */
sw_cold bool record_sample_point(record_thread *thread, const void *p, size_t size) {
    if (thread->random == 0) {
        thread->random = seed_of(thread);
        thread->until_sample = distance(thread) - (int64_t)(size + (size == 0));
        if (thread->until_sample >= 0) return false;
    }
    thread->until_sample = distance(thread);
    thread->unmarked += record_option.sample; /* about the bytes since the last point */
    if (insert((uintptr_t)p)) return true;
    record_count(&thread->dropped);
    return false;
}

/* --- objects ---------------------------------------------------------------------------------- */

sw_cold bool record_sample_remove(uintptr_t address) {
    uint32_t bucket = record_bucket_of(address), i = 0;
    uint64_t *places = record_sampled->buckets[bucket];
    while (i < RECORD_BUCKET_OBJECTS && __atomic_load_n(&places[i], __ATOMIC_RELAXED) != address)
        i++;
    if (i == RECORD_BUCKET_OBJECTS) return false;
    sw_os_lock_acquire(&record_sampled->lock);
    bool mine = places[i] == address; /* else the program frees it twice, at once */
    if (mine) __atomic_store_n(&places[i], 0, __ATOMIC_RELAXED);
    uint64_t others = 0;
    for (i = 0; i < RECORD_BUCKET_OBJECTS; i++) others |= places[i];
    if (others == 0)
        (void)__atomic_fetch_and(&record_sampled->used[bucket / 64], ~(UINT64_C(1) << bucket % 64),
                                 __ATOMIC_RELAXED);
    sw_check2(record_samples_check(record_sampled));
    sw_os_lock_release(&record_sampled->lock);
    return mine;
}

sw_cold void record_sample_restore(uintptr_t address) {
    if (!insert(address)) record_count(&record_self->dropped);
}
