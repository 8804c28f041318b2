/* SPDX-License-Identifier: Apache-2.0 */
/* A library that tests load and unload. Its constructor calls the function whose address is in the
 * environment. */
#include <stdint.h>
#include <stdlib.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED extern void *holder_variable;
EXPORTED void **holder_thread_variable(void);

void *holder_variable;
static _Thread_local void *in_thread[100]; /* allocated at the thread's first use */
void **holder_thread_variable(void) { return &in_thread[50]; }

__attribute__((constructor)) static void call(void) {
    const char *address = getenv("HOLDER_CALLS");
    if (address == NULL) return;
    void (*function)(void) = (void (*)(void))(uintptr_t)strtoull(address, NULL, 10);
    function();
}
