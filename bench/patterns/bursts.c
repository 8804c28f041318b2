/* SPDX-License-Identifier: Apache-2.0 */
/* Short-lived objects: big numbers, bursts, short-lived threads. */
#include <string.h>

#include "patterns.h"

/* --- numbers of a few limbs ------------------------------------------------------------------- */

enum { LIMBS = 5 };

/* A natural number below 2^160; each operation allocates its result. */
struct number {
    uint32_t limbs;
    uint32_t limb[];
};

static struct number *number_new(uint32_t limbs) {
    struct number *made = pattern_must(malloc(sizeof *made + limbs * sizeof made->limb[0]));
    made->limbs = limbs;
    return made;
}

static struct number *number_of(uint32_t value) {
    struct number *made = number_new(1);
    made->limb[0] = value;
    return made;
}

/* Return a * b + c modulo 2^160; b has one limb. */
static struct number *number_scale(const struct number *a, const struct number *b, uint32_t c) {
    uint32_t limbs = a->limbs < LIMBS ? a->limbs + 1 : LIMBS;
    struct number *made = number_new(limbs);
    uint64_t carry = c;
    for (uint32_t i = 0; i < limbs; i++) {
        carry += (uint64_t)(i < a->limbs ? a->limb[i] : 0) * b->limb[0];
        made->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return made;
}

static struct number *number_add(const struct number *a, const struct number *b) {
    uint32_t limbs = a->limbs > b->limbs ? a->limbs : b->limbs;
    struct number *made = number_new(limbs);
    uint64_t carry = 0;
    for (uint32_t i = 0; i < limbs; i++) {
        carry += i < a->limbs ? a->limb[i] : 0;
        carry += i < b->limbs ? b->limb[i] : 0;
        made->limb[i] = (uint32_t)carry;
        carry >>= 32;
    }
    return made;
}

static uint32_t number_modulo(const struct number *a, uint32_t divisor) {
    uint64_t left = 0;
    for (uint32_t i = a->limbs; i-- > 0;) left = ((left << 32) | a->limb[i]) % divisor;
    return (uint32_t)left;
}

enum { NUMBERS = 64 };

/* Compute x[i] = x[i] * small + x[j]; each operation allocates a number, as in interpreters. */
static void big_numbers(uint64_t percent, struct pattern_result *result) {
    struct number *held[NUMBERS];
    struct pattern_random random = {11};
    uint64_t times = pattern_share(8000000, percent);
    for (uint32_t i = 0; i < NUMBERS; i++) held[i] = number_of(i + 1);
    *result = (struct pattern_result){4 * times, 0};
    for (uint64_t i = 0; i < times; i++) {
        uint32_t to = pattern_below(&random, NUMBERS), from = pattern_below(&random, NUMBERS);
        struct number *factor = number_of((uint32_t)i | 1);
        struct number *product = number_scale(held[to], factor, 1);
        struct number *sum = number_add(product, held[from]);
        struct number *digit = number_of(number_modulo(sum, 65521));
        result->check += digit->limb[0];
        free(digit);
        free(product);
        free(factor);
        free(held[to]);
        held[to] = sum;
    }
    for (uint32_t i = 0; i < NUMBERS; i++) free(held[i]);
}

/* --- last in, first out ----------------------------------------------------------------------- */

enum { BURST = 256, BURST_BYTES = 64 };

/* A thread's share of the bursts. */
struct bursts {
    uint64_t times;
    struct pattern_result result;
};

static void *burst(void *argument) {
    struct bursts *bursts = argument;
    struct pattern_random random = {13};
    void *held[BURST];
    for (uint64_t i = 0; i < bursts->times; i++) {
        uint32_t count = pattern_between(&random, 1, BURST);
        for (uint32_t k = 0; k < count; k++) held[k] = pattern_new(BURST_BYTES, k);
        for (uint32_t k = count; k-- > 0;) bursts->result.check += pattern_drop(held[k]);
        bursts->result.ops += count;
    }
    return NULL;
}

static void lifo_1(uint64_t percent, struct pattern_result *result) {
    struct bursts bursts = {pattern_share(700000, percent), {0, 0}};
    burst(&bursts);
    *result = bursts.result;
}

static void lifo_2(uint64_t percent, struct pattern_result *result) {
    struct bursts here = {pattern_share(400000, percent), {0, 0}}, there = here;
    pthread_t thread = pattern_start(burst, &there);
    burst(&here);
    pattern_join(thread);
    result->ops = here.result.ops + there.result.ops;
    result->check = here.result.check + there.result.check;
}

/* --- short-lived threads that allocate little ------------------------------------------------- */

enum { BIRTHS = 50000, BORN_OBJECTS = 20 };

static void *live_shortly(void *argument) {
    struct pattern_random random = {*(uint64_t *)argument};
    void *held[BORN_OBJECTS];
    for (uint32_t i = 0; i < BORN_OBJECTS; i++) {
        held[i] = pattern_new(pattern_between(&random, 8, 512), i);
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < BORN_OBJECTS; i++) sum += pattern_drop(held[i]);
    *(uint64_t *)argument = sum;
    return NULL;
}

static void births(uint64_t percent, struct pattern_result *result) {
    uint64_t count = pattern_share(BIRTHS, percent);
    *result = (struct pattern_result){count * BORN_OBJECTS, 0};
    for (uint64_t i = 0; i < count; i++) {
        uint64_t value = i;
        pattern_join(pattern_start(live_shortly, &value));
        result->check += value;
    }
}

const struct pattern_program pattern_bursting[] = {
    {"big-numbers", big_numbers}, {"lifo-1", lifo_1}, {"lifo-2", lifo_2},
    {"births", births},           {NULL, NULL},
};
