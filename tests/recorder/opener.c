/* SPDX-License-Identifier: Apache-2.0 */
/* A C program that calls `allocate` of the libraries named, each opened with names of its own,
 * twice and in turns; unloads them and does it again. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

int main(int count, char **words) {
    for (int round = 0; round < 2; round++) {
        void *opened[8];
        for (int i = 1; i < count; i++) {
            if ((opened[i] = dlopen(words[i], RTLD_NOW | RTLD_LOCAL)) == NULL) {
                fprintf(stderr, "%s\n", dlerror());
                _exit(77);
            }
        }
        for (int i = 0; i < 2 * (count - 1); i++) {
            int (*allocate)(void);
            *(void **)&allocate = dlsym(opened[1 + i / 2], "allocate");
            int failed = allocate();
            if (failed != 0) _exit(failed);
        }
        for (int i = 1; i < count; i++) dlclose(opened[i]);
    }
    _exit(0);
}
