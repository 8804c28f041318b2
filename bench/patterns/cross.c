/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads that free each other's objects. */
#include <stdatomic.h>
#include <string.h>

#include "patterns.h"

/* --- 8 B to 16 KiB at random ------------------------------------------------------------------ */

enum { LARGEST = 16384, HELD = 1000, COUNTERS = 256 };

/* Slots through which the two threads exchange objects. */
static _Atomic(void *) counters[COUNTERS];

struct trader {
    uint64_t seed, times, check;
};

/* Replace objects at random. Exchange every other object for the one in a slot, and free that. */
static void *trade(void *argument) {
    struct trader *trader = argument;
    struct pattern_random random = {trader->seed};
    void **held = pattern_must(calloc(HELD, sizeof *held));
    for (uint64_t i = 0; i < trader->times; i++) {
        void **place = &held[pattern_below(&random, HELD)];
        void *leaving = *place;
        *place = pattern_new(pattern_between(&random, 8, LARGEST), 1);
        if (i % 2 == 0)
            leaving = atomic_exchange(&counters[pattern_below(&random, COUNTERS)], leaving);
        if (leaving != NULL) trader->check += pattern_drop(leaving);
    }
    for (uint32_t i = 0; i < HELD; i++) trader->check += held[i] ? pattern_drop(held[i]) : 0;
    free(held);
    return NULL;
}

static void cross_16k(uint64_t percent, struct pattern_result *result) {
    uint64_t times = pattern_share(3000000, percent);
    struct trader here = {1, times, 0}, there = {2, times, 0};
    pthread_t thread = pattern_start(trade, &there);
    trade(&here);
    pattern_join(thread);
    *result = (struct pattern_result){2 * times, here.check + there.check};
    for (uint32_t i = 0; i < COUNTERS; i++) {
        void *left = atomic_load(&counters[i]);
        result->check += left != NULL ? pattern_drop(left) : 0;
    }
}

/* --- messages from one thread to another ------------------------------------------------------ */

enum { MESSAGES = 64, BOXES = 8 };

/* A bounded queue of batches of messages. The sender waits while it is full. */
struct box {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    void **batch[BOXES];
    uint32_t count;
};

static void box_put(struct box *box, void **batch) {
    pthread_mutex_lock(&box->lock);
    while (box->count == BOXES) pthread_cond_wait(&box->changed, &box->lock);
    box->batch[box->count++] = batch;
    pthread_cond_signal(&box->changed);
    pthread_mutex_unlock(&box->lock);
}

static void **box_take(struct box *box) {
    pthread_mutex_lock(&box->lock);
    while (box->count == 0) pthread_cond_wait(&box->changed, &box->lock);
    void **batch = box->batch[0];
    memmove(&box->batch[0], &box->batch[1], --box->count * sizeof batch);
    pthread_cond_signal(&box->changed);
    pthread_mutex_unlock(&box->lock);
    return batch;
}

struct sender {
    struct box *box;
    uint64_t batches;
};

static void *send_messages(void *argument) {
    struct sender *sender = argument;
    struct pattern_random random = {17};
    for (uint64_t i = 0; i < sender->batches; i++) {
        void **batch = pattern_must(malloc(MESSAGES * sizeof *batch));
        for (uint32_t k = 0; k < MESSAGES; k++) {
            uint32_t bytes = pattern_between(&random, 16, 400);
            batch[k] = pattern_new(bytes, bytes);
            memset((char *)batch[k] + sizeof(uint64_t), (int)k, bytes - sizeof(uint64_t));
        }
        box_put(sender->box, batch);
    }
    return NULL;
}

static void mailbox(uint64_t percent, struct pattern_result *result) {
    struct box box = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};
    struct sender sender = {&box, pattern_share(150000, percent)};
    pthread_t thread = pattern_start(send_messages, &sender);
    *result = (struct pattern_result){sender.batches * MESSAGES, 0};
    for (uint64_t i = 0; i < sender.batches; i++) {
        void **batch = box_take(&box);
        for (uint32_t k = 0; k < MESSAGES; k++) result->check += pattern_drop(batch[k]);
        free(batch);
    }
    pattern_join(thread);
}

const struct pattern_program pattern_crossing[] = {
    {"cross-16k", cross_16k},
    {"mailbox", mailbox},
    {NULL, NULL},
};
