/* SPDX-License-Identifier: Apache-2.0 */
/* A library that test_collector_conservative loads and unloads. */
#define EXPORTED __attribute__((visibility("default")))

EXPORTED extern void *holder_variable;
EXPORTED void **holder_thread_variable(void);

void *holder_variable;
static _Thread_local void *in_thread[100]; /* allocated at the thread's first use */
void **holder_thread_variable(void) { return &in_thread[50]; }
