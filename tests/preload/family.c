/* SPDX-License-Identifier: Apache-2.0 */
/* The preloaded malloc's functions that have no counterpart in tests/differential: sized frees,
 * which only the preload has here, so that they are looked up; names of the C library's own;
 * statistics. Exit status 0: all promises are kept. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static void sized(void) {
    void (*free_sized)(void *, size_t), (*free_aligned_sized)(void *, size_t, size_t);
    void (*old_free)(void *);
    *(void **)&free_sized = dlsym(RTLD_DEFAULT, "free_sized");
    *(void **)&free_aligned_sized = dlsym(RTLD_DEFAULT, "free_aligned_sized");
    *(void **)&old_free = dlsym(RTLD_DEFAULT, "cfree");
    CHECK(free_sized != NULL && free_aligned_sized != NULL && old_free != NULL);
    if (check_failed()) return;
    for (size_t size = 0; size < 200000; size = size * 2 + 7) {
        free_sized(malloc(size), size);
        free_sized(calloc(1, size), size);
        free_aligned_sized(aligned_alloc(64, size), 64, size);
        old_free(malloc(size));
    }
    free_sized(NULL, 7);
    free_aligned_sized(NULL, 64, 7);
}

static void other_names(void) {
    void *(*libc_malloc)(size_t);
    void *(*libc_memalign)(size_t, size_t);
    *(void **)&libc_malloc = dlsym(RTLD_DEFAULT, "__libc_malloc");
    *(void **)&libc_memalign = dlsym(RTLD_DEFAULT, "__libc_memalign");
    CHECK(libc_malloc != NULL && libc_memalign != NULL);
    if (check_failed()) return;
    free(libc_malloc(100));
    free(libc_memalign(128, 100));
}

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"

static void questions(void) {
    void *p = malloc(1 << 20);
    struct mallinfo2 wide = mallinfo2();
    struct mallinfo narrow = mallinfo();
    CHECK(wide.hblkhd >= 1 << 20 && wide.arena == wide.uordblks + wide.fordblks);
    CHECK(narrow.hblkhd == (int)wide.hblkhd);
    free(p);
    CHECK(malloc_trim(0) == 1 && malloc_trim(0) == 0);
    CHECK(mallinfo2().hblkhd == wide.hblkhd - (1 << 20));
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 16) == 1);
    char *text = NULL;
    size_t length = 0;
    FILE *memory = open_memstream(&text, &length);
    CHECK(malloc_info(0, memory) == 0 && malloc_info(1, memory) == EINVAL);
    fclose(memory);
    CHECK(strncmp(text, "<malloc version=\"1\">", 20) == 0 && strstr(text, "</malloc>") != NULL);
    free(text);
    malloc_stats();
}

int main(void) {
    sized();
    other_names();
    questions();
    return check_failed();
}
