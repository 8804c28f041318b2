/* SPDX-License-Identifier: Apache-2.0 */
/* The inline header against the exported calls: same classes, same validation, any size. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>

#include "check.h"
#include "spanwise/fast.h"
#include "spanwise/spanwise.h"

static int faults;
static sw_misuse last;

static sw_fault_action remember(const sw_fault *fault, void *arg) {
    (void)arg;
    last = fault->code;
    faults++;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static bool is_zero(const char *p, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (p[i] != 0) return false;
    return true;
}

/* The size must be a constant where sw_fast_malloc is written. */
#define SIZE_CASE(n)                                                                               \
    do {                                                                                           \
        char *p_ = sw_fast_malloc(n), *q_ = sw_malloc(n), *z_;                                     \
        CHECK(p_ != NULL && q_ != NULL && p_ != q_);                                               \
        CHECK_EQ(sw_usable_size(p_), sw_usable_size(q_));                                          \
        memset(p_, 0x3C, sw_usable_size(p_));                                                      \
        sw_fast_free(p_);                                                                          \
        for (int k_ = 0; k_ < 3; k_++) {                                                           \
            z_ = sw_fast_zalloc(n);                                                                \
            CHECK(z_ != NULL && is_zero(z_, (n)));                                                 \
            memset(z_, 0x77, sw_usable_size(z_));                                                  \
            sw_free(z_);                                                                           \
        }                                                                                          \
        sw_fast_free(q_);                                                                          \
    } while (0)

static void constant_sizes(void) {
    SIZE_CASE(0);
    SIZE_CASE(1);
    SIZE_CASE(8);
    SIZE_CASE(9);
    SIZE_CASE(16);
    SIZE_CASE(24);
    SIZE_CASE(33);
    SIZE_CASE(48);
    SIZE_CASE(100);
    SIZE_CASE(112);
    SIZE_CASE(255);
    SIZE_CASE(256);
    SIZE_CASE(500);
    SIZE_CASE(512);
    SIZE_CASE(513);
    SIZE_CASE(1000);
    SIZE_CASE(1024);
    SIZE_CASE(1025);
    SIZE_CASE(5000);
    SIZE_CASE(32768);
    SIZE_CASE(32769);
    SIZE_CASE(1000000);
}

/* Objects of the word in use and of other words, other sizes, and every kind of wrong pointer. */
static void sized_frees(void) {
    static char *p[200];
    for (int i = 0; i < 200; i++) p[i] = sw_fast_malloc(48);
    for (int i = 0; i < 200; i++) sw_fast_free_sized(p[i], 48);
    for (int i = 0; i < 200; i++) p[i] = sw_fast_malloc(40);
    for (int i = 199; i >= 0; i--) sw_fast_free_sized(p[i], 33); /* the same class */
    char *q = sw_fast_malloc(48);
    faults = 0;
    sw_fast_free_sized(q, 64);
    CHECK(faults == 1 && last == SW_MISUSE_SIZE_MISMATCH);
    sw_fast_free_sized(q + 16, 48);
    CHECK(faults == 2 && last == SW_MISUSE_INTERIOR);
    sw_fast_free_sized(q, 48);
    sw_fast_free_sized(q, 48);
    CHECK(faults == 3 && last == SW_MISUSE_DOUBLE_FREE);
    sw_fast_free_sized(NULL, 48);
    CHECK_EQ(faults, 3);
    CHECK_EQ(sw_heap_verify(sw_heap_default()), SW_OK);
    faults = 0;
}

static bool run_thread(void *(*body)(void *), void *arg) {
    pthread_t thread;
    return pthread_create(&thread, NULL, body, arg) == 0 && pthread_join(thread, NULL) == 0;
}

/* The first call of a thread may be any of them. */
static void *first_call(void *arg) {
    int which = *(int *)arg;
    char *p = NULL;
    switch (which) {
    case 0: sw_fast_free(NULL); break;
    case 1: sw_fast_free_sized(NULL, 16); break;
    case 2: p = sw_fast_zalloc(16); break;
    case 3: p = sw_fast_malloc(1024); break;
    case 4: p = sw_malloc(1024); break;
    case 5: p = sw_calloc(3, 100); break;
    case 6: sw_free(NULL); break;
    case 7: p = sw_realloc(NULL, 10); break;
    default: p = sw_malloc(100000); break;
    }
    CHECK((p != NULL) == (which != 0 && which != 1 && which != 6));
    if (p != NULL) p[0] = 1;
    sw_fast_free(p);
    return NULL;
}

static void first_calls(void) {
    for (int i = 0; i < 9; i++) {
        CHECK(run_thread(first_call, &i));
    }
}

/* The first act of a thread may also be to free what another one allocated. */
static void *free_first(void *p) {
    sw_fast_free(p);
    return NULL;
}

static void first_act_is_a_free(void) {
    for (int i = 0; i < 4; i++) {
        char *p = sw_malloc(i < 2 ? 32 : 200000);
        CHECK(run_thread(free_first, p));
        CHECK_EQ(faults, 0);
        if (i != 3) continue; /* of a small one the owner hears at the next drain */
        sw_free(p);
        CHECK(faults == 1 && last == SW_MISUSE_DOUBLE_FREE);
        faults = 0;
    }
}

/* Run-time sizes go to the library; a long mixed run keeps its contents. */
static void mixed_run(void) {
    enum { OBJECTS = 2000 };
    static struct {
        unsigned char *p;
        size_t size;
        unsigned char fill;
    } items[OBJECTS];
    uint64_t rng = 21;
    for (int step = 0; step < 200000; step++) {
        uint64_t r = check_random(&rng), i = r % OBJECTS;
        if (items[i].p != NULL) {
            CHECK(items[i].p[0] == items[i].fill && items[i].p[items[i].size - 1] == items[i].fill);
            if ((r & (1 << 20)) != 0) {
                sw_fast_free(items[i].p);
            } else {
                sw_free(items[i].p);
            }
            items[i].p = NULL;
            continue;
        }
        items[i].size = (r >> 32) % 8 == 0 ? 48 : (r >> 32) % 8 == 1 ? 200 : 1 + (r >> 36) % 2000;
        items[i].fill = (unsigned char)r;
        items[i].p = items[i].size == 48    ? sw_fast_malloc(48)
                     : items[i].size == 200 ? sw_fast_zalloc(200)
                                            : sw_fast_malloc(items[i].size);
        CHECK(items[i].p != NULL);
        memset(items[i].p, items[i].fill, items[i].size);
    }
    CHECK_EQ(sw_heap_verify(sw_heap_default()), SW_OK);
    for (int i = 0; i < OBJECTS; i++) sw_fast_free(items[i].p);
    CHECK_EQ(sw_heap_verify(sw_heap_default()), SW_OK);
}

#define EXPECT(code_, statement)                                                                   \
    do {                                                                                           \
        faults = 0;                                                                                \
        statement;                                                                                 \
        CHECK_EQ(faults, 1);                                                                       \
        CHECK_STR(sw_misuse_name(last), #code_);                                                   \
    } while (0)

static void misuse(void) {
    int local;
    char *p = sw_fast_malloc(48), *keep = sw_fast_malloc(48), *large = sw_fast_malloc(100000);
    sw_set_fault_handler(remember, NULL);
    EXPECT(INTERIOR, sw_fast_free(p + 1));
    EXPECT(INTERIOR, sw_fast_free(p + 16));
    EXPECT(INTERIOR, sw_fast_free(large + 4096));
    EXPECT(FOREIGN, sw_fast_free(&local));
    EXPECT(FOREIGN, sw_fast_free((void *)1));
    EXPECT(FOREIGN, sw_fast_free((void *)(uintptr_t)0xFFFFFFFFFFFFFFF0u));
    sw_fast_free(p);
    EXPECT(DOUBLE_FREE, sw_fast_free(p));
    sw_fast_free(large);
    EXPECT(DOUBLE_FREE, sw_fast_free(large));
    faults = 0;
    errno = 33;
    sw_fast_free(NULL);
    sw_fast_free(keep);
    CHECK_EQ(faults, 0);
    CHECK_EQ(errno, 33);
    sw_set_fault_handler(NULL, NULL);
}

static void explicit_caches(void) {
    sw_heap *heap;
    sw_cache *a, *b;
    CHECK_EQ(sw_heap_create(NULL, &heap), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &a), SW_OK);
    CHECK_EQ(sw_cache_open(heap, &b), SW_OK);
    void *p[1000];
    for (int i = 0; i < 1000; i++) p[i] = sw_fast_cache_alloc(i % 2 == 0 ? a : b, 80, 0);
    for (int i = 0; i < 1000; i++)
        for (int k = 0; k < i; k++) CHECK(p[i] != p[k]);
    for (int i = 0; i < 1000; i++) sw_fast_cache_free(i % 3 == 0 ? a : b, p[i]);
    CHECK(sw_fast_cache_alloc(a, 80, SW_SCAN) != NULL);
    CHECK(sw_fast_cache_alloc(a, SIZE_MAX, 0) == NULL);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    sw_cache_close(a);
    sw_cache_close(b);
    CHECK_EQ(sw_heap_verify(heap), SW_OK);
    CHECK_EQ(sw_heap_destroy(heap), SW_OK);
}

int main(void) {
    void *first = sw_fast_malloc(100); /* before this thread has a cache */
    CHECK(first != NULL);
    sw_fast_free(first);
    constant_sizes();
    mixed_run();
    misuse();
    sw_set_fault_handler(remember, NULL);
    sized_frees();
    first_calls();
    first_act_is_a_free();
    sw_set_fault_handler(NULL, NULL);
    explicit_caches();
    return check_result();
}
