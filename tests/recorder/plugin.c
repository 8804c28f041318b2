/* SPDX-License-Identifier: Apache-2.0 */
/* A library with one function, whose frame has ROOM bytes. With another ROOM (of more than 128, so
 * that the code is as long) the function has the same offset, and so has its call. For reloads.c.
 */
#include <stddef.h>

void *plugin_call(void *(*made)(size_t), size_t bytes) {
    volatile char room[ROOM];
    void *block = made(bytes);
    room[0] = 0; /* nothing is written before: what an earlier call left there stays */
    return block;
}
