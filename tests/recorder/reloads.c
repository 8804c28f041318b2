/* SPDX-License-Identifier: Apache-2.0 */
/* Loads one library, calls it, unloads it, and does the same with another one, which comes to the
 * same addresses and has another frame. Block k of the first has 2000 + k bytes, that of the second
 * 4000 + k. In one of the rounds the second call has the stack pointer of the first, and the words
 * that the first has left. Prints how many rounds had the same addresses.
 *   reloads FIRST SECOND ROUNDS
 * Compiled with ROOM it is such a library, with one function, whose frame has ROOM bytes. With
 * another ROOM (of more than 128, so that the code is as long) the function has the same offset, and
 * so has its call. */
#include <alloca.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef ROOM
void *plugin_call(void *(*made)(size_t), size_t bytes) {
    volatile char room[ROOM];
    void *block = made(bytes);
    room[0] = 0; /* nothing is written before: what an earlier call left there stays */
    return block;
}
#else

#define APART __attribute__((noinline))
enum { DEEP = 1 << 18 }; /* the loader does not use as much of the stack */

typedef void *plugin(void *(*made)(size_t), size_t bytes);

static void *volatile block;
static volatile size_t used;

static APART void *allocate(size_t bytes) {
    block = malloc(bytes);
    return block;
}

static APART void call_first(plugin *call, size_t k) {
    volatile char *deep = alloca(DEEP);
    (void)call(allocate, 2000 + k);
    used = used + (deep != NULL);
}

static APART void call_second(plugin *call, size_t k) {
    volatile char *deep = alloca(DEEP - 4096 + 16 * k);
    (void)call(allocate, 4000 + k);
    used = used + (deep != NULL);
}

static APART void *load(const char *file, void (*run)(plugin *, size_t), size_t k) {
    void *library = dlopen(file, RTLD_NOW);
    plugin *call = library == NULL ? NULL : (plugin *)dlsym(library, "plugin_call");
    if (call == NULL) exit(1);
    run(call, k);
    free(block); /* far from what the call left on the stack */
    if (dlclose(library) != 0) exit(1);
    return (void *)call;
}

int main(int argc, char **argv) {
    static void (*const runs[])(plugin *, size_t) = {call_first, call_second};
    size_t same = 0, rounds = argc > 3 ? (size_t)atol(argv[3]) : 0;
    const void *at[2] = {NULL, NULL};
    for (size_t i = 0; i < 2 * rounds; i++) { /* one call of load, for both */
        at[i % 2] = load(argv[1 + i % 2], runs[i % 2], i / 2);
        same += i % 2 != 0 && at[0] == at[1];
    }
    printf("%zu\n", same);
    return 0;
}
#endif
