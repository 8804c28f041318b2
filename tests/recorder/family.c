/* SPDX-License-Identifier: Apache-2.0 */
/* Each function of the malloc family a known number of times, with sizes that no one else uses, and
 * errno checked around them. Ends through _exit, so that nothing of the C library comes after.
 * The driver (tests/recorder/test_counts.py) knows what must be counted. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(condition)                                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static volatile size_t huge = SIZE_MAX / 2 + 7;

static void aligned(void) {
    void *p = NULL;
    errno = 4711;
    MUST(posix_memalign(&p, 256, 1000) == 0 && (uintptr_t)p % 256 == 0);
    free(p);
    MUST((p = aligned_alloc(64, 640)) != NULL && (uintptr_t)p % 64 == 0);
    free(p);
    MUST((p = memalign(128, 333)) != NULL && (uintptr_t)p % 128 == 0);
    free(p);
    MUST((p = valloc(77)) != NULL && (uintptr_t)p % 4096 == 0);
    free(p);
    MUST((p = pvalloc(78)) != NULL && (uintptr_t)p % 4096 == 0);
    free(p);
    p = (void *)(uintptr_t)&huge;
    MUST(posix_memalign(&p, 3, 10) == EINVAL && p == (void *)(uintptr_t)&huge);
    MUST(errno == 4711);
}

static void refusals(void) {
    char *keep = malloc(50);
    errno = 0;
    MUST(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(calloc(huge, 4) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(realloc(keep, huge) == NULL && errno == ENOMEM);
    errno = 0;
    MUST(reallocarray(keep, huge, 16) == NULL && errno == ENOMEM);
    free(keep);
    free(NULL);
    errno = 4711;
    free(malloc(51));
    MUST(errno == 4711);
}

int main(void) {
    char *p = malloc(100); /* 100 */
    MUST(p != NULL);
    strcpy(p, "kept");
    p = realloc(p, 100000);
    MUST(p != NULL && strcmp(p, "kept") == 0);
    p = reallocarray(p, 20, 10);
    MUST(p != NULL && strcmp(p, "kept") == 0);
    free(p);
    p = realloc(NULL, 300);
    MUST(p != NULL && realloc(p, 0) == NULL);
    p = calloc(7, 11);
    for (int i = 0; i < 77; i++) MUST(p[i] == 0);
    free(p);
    free(malloc(0));
    aligned();
    refusals();
    _exit(0);
}
