/* SPDX-License-Identifier: Apache-2.0 */
/* A library that is loaded and unloaded: it allocates when it comes and frees when it goes. */
#include <stdlib.h>
#include <string.h>

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
