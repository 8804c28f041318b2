/* SPDX-License-Identifier: Apache-2.0 */
/* Every function of the preloaded malloc, once, with what it promises. Exit status 0: all kept. Only the
 * preload has free_sized and free_aligned_sized here, so they are looked up. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int is_aligned(const void *p, size_t align) { return (uintptr_t)p % align == 0; }

static void sizes(void) {
    for (size_t size = 0; size < 70000; size = size * 9 / 8 + 1) {
        char *p = malloc(size);
        CHECK(p != NULL && is_aligned(p, size >= 16 ? 16 : 8));
        CHECK(malloc_usable_size(p) >= size);
        memset(p, 0x5a, size);
        p = realloc(p, size * 2 + 1);
        CHECK(p != NULL && (size == 0 || (p[0] == 0x5a && p[size - 1] == 0x5a)));
        free(p);
        char *zero = calloc(size, 3);
        for (size_t i = 0; i < size * 3; i++) CHECK(zero[i] == 0);
        free(zero);
    }
}

static void alignments(void) {
    for (size_t align = 8; align <= 1 << 22; align *= 2) {
        void *p = NULL;
        CHECK(posix_memalign(&p, align, 100) == 0 && is_aligned(p, align));
        free(p);
        p = memalign(align, 3000);
        CHECK(p != NULL && is_aligned(p, align));
        free(p);
        p = aligned_alloc(align, align * 2);
        CHECK(p != NULL && is_aligned(p, align));
        free(p);
    }
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *v = valloc(10), *pv = pvalloc(10);
    CHECK(is_aligned(v, page) && is_aligned(pv, page) && malloc_usable_size(pv) >= page);
    free(v);
    free(pv);
}

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

static void errors(void) {
    volatile size_t huge = SIZE_MAX;
    errno = 0;
    CHECK(malloc(huge) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(calloc(huge / 2, 3) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(reallocarray(NULL, huge / 2, 3) == NULL && errno == ENOMEM);
    void *p = malloc(10), *unset = &p;
    errno = 0;
    CHECK(realloc(p, huge) == NULL && errno == ENOMEM);
    errno = 77;
    CHECK(posix_memalign(&unset, 24, 10) == EINVAL && posix_memalign(&unset, 64, huge) == ENOMEM);
    CHECK(unset == &p && errno == 77);
    free(p);
    free(NULL);
    CHECK(errno == 77 && malloc_usable_size(NULL) == 0);
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
    sizes();
    alignments();
    sized();
    other_names();
    errors();
    questions();
    return check_failed();
}
