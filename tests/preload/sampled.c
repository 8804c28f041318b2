/* SPDX-License-Identifier: Apache-2.0 */
/* Allocates and frees N objects, and prints how many were on pages of their own: such an object of
 * 4080 bytes begins 16 bytes after the start of a page, and a slot of 4096 bytes at it. sampled N
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

int main(int count, char **arguments) {
    long objects = count > 1 ? strtol(arguments[1], NULL, 10) : 0, sampled = 0;
    for (long i = 0; i < objects; i++) {
        void *p = malloc(4080);
        sampled += (uintptr_t)p % 4096 == 16;
        free(p);
    }
    printf("%ld\n", sampled);
    return 0;
}
