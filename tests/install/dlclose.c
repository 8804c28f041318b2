/* SPDX-License-Identifier: Apache-2.0 */
/* A thread loads a shared library, allocates with it, closes it, and ends. Its thread-specific keys
 * have destructors in the library, which must still be mapped then.
 *
 *   dlclose LIBRARY
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>

#include "../unit/check.h"

enum { THREADS = 8, OBJECTS = 100 };

static const char *path;

/* Function pointers are not object pointers in ISO C, so dlsym's result is copied. */
static int find(void *library, const char *name, void *function) {
    void *symbol = dlsym(library, name);
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

/* Create a heap, an arena and a joined collector and keep them: each registers an exit function. */
static void use_library(void *library) {
    int (*create)(const void *options, void **out);
    int (*join)(void *gc, const void *bottom);
    void *(*heap_alloc)(void *heap, size_t bytes, unsigned flags);
    void *(*arena_alloc)(void *arena, size_t bytes, size_t align, unsigned flags);
    void *heap = NULL, *arena = NULL, *gc = NULL;
    CHECK(find(library, "sw_heap_create", &create) && create(NULL, &heap) == 0);
    CHECK(find(library, "sw_heap_alloc", &heap_alloc));
    for (size_t i = 0; i < OBJECTS; i++) CHECK(heap_alloc(heap, 10 + i, 0) != NULL);
    CHECK(find(library, "sw_arena_create", &create) && create(NULL, &arena) == 0);
    CHECK(find(library, "sw_arena_alloc", &arena_alloc) && arena_alloc(arena, 64, 0, 0) != NULL);
    CHECK(find(library, "sw_gc_create", &create) && create(NULL, &gc) == 0);
    CHECK(find(library, "sw_gc_join", &join) && join(gc, "thread") == 0);
}

/* For libraries that replace malloc; dlsym finds theirs before the C library's. */
static void use_malloc(void *library) {
    void *(*allocate)(size_t bytes) = NULL;
    void (*release)(void *object) = NULL;
    CHECK(find(library, "malloc", &allocate) && find(library, "free", &release));
    for (size_t i = 0; i < OBJECTS; i++) release(allocate(100 + i));
}

static void *load_use_close(void *arg) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) fprintf(stderr, "%s\n", dlerror());
    CHECK(library != NULL);
    if (library == NULL) return arg;
    if (dlsym(library, "sw_heap_create") != NULL)
        use_library(library);
    else
        use_malloc(library);
    CHECK_EQ(dlclose(library), 0);
    return arg;
}

int main(int count, char **words) {
    if (count != 2) return 2;
    path = words[1];
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK_EQ(pthread_create(&thread, NULL, load_use_close, NULL), 0);
        CHECK_EQ(pthread_join(thread, NULL), 0);
    }
    CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL); /* still mapped, with or without a key */
    return check_result();
}
