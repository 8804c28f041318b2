/* SPDX-License-Identifier: Apache-2.0 */
/* Uses an installed spanwise as other projects do; prints "consumer ok VERSION". */
#include <spanwise/spanwise.h>
#include <stdio.h>
#include <string.h>

int main(void) {
    sw_heap_options options;
    sw_heap *heap;
    sw_heap_options_init(&options);
    options.table = sw_table_go();
    if (sw_heap_create(&options, &heap) != SW_OK) return 1;

    char *text = sw_heap_alloc(heap, 33, SW_ZERO);
    if (text == NULL || text[32] != 0) return 2;
    if (sw_heap_usable_size(heap, text) != 48) return 3;
    sw_heap_free(heap, text);
    if (sw_heap_destroy(heap) != SW_OK) return 4;

    void *p = sw_malloc(100);
    if (p == NULL) return 5;
    memset(p, 1, 100);
    sw_free(p);
    if (strcmp(sw_version(), SPANWISE_VERSION) != 0) return 6;
    printf("consumer ok %s\n", sw_version());
    return 0;
}
