/* SPDX-License-Identifier: Apache-2.0 */
/* A program that opens a library with RTLD_DEEPBIND, by a name that only its own RUNPATH finds, and
 * the library (-DLIBRARY): each frees what the other allocated.
 * moments.c loads and unloads the library: it allocates when it comes and frees when it goes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef LIBRARY
char *exchange(char *given);

char *exchange(char *given) {
    free(given);
    return strdup("of the library");
}

static char *kept;

__attribute__((constructor)) static void come(void) { kept = calloc(300, 10); }
__attribute__((destructor)) static void go(void) { free(kept); }

char *plugin_take(size_t size);

char *plugin_take(size_t size) {
    static _Thread_local char *before;
    free(before);
    before = strdup(kept);
    return malloc(size);
}
#else
int main(void) {
    void *library = dlopen("libdeepbind.so", RTLD_NOW | RTLD_DEEPBIND);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    char *(*exchange)(char *);
    *(void **)&exchange = dlsym(library, "exchange");
    for (int i = 0; i < 1000; i++) free(exchange(malloc(100)));
    return puts("ok") < 0;
}
#endif
