/* SPDX-License-Identifier: Apache-2.0 */
/* Four threads build lists that only C locals refer to, without registering anything, while a
 * background thread collects: cc threads.c $(pkg-config --cflags --libs spanwise) -pthread */
#include <pthread.h>
#include <spanwise/spanwise.h>
#include <stdio.h>

typedef struct node {
    struct node *next;
    long value;
} node;

enum { THREADS = 4, LISTS = 2000, NODES = 200 };
static sw_gc *gc;
static uint32_t node_type;

static void *build(void *wrong) {
    for (int n = 0; n < LISTS; n++) {
        node *list = NULL; /* a root, because it is on the stack */
        for (long i = 0; i < NODES; i++) {
            node *made = sw_gc_new(gc, node_type, 1); /* a safepoint */
            if (made == NULL) return NULL;
            made->value = i;
            sw_gc_write(gc, &made->next, list);
            list = made;
        }
        for (long i = NODES; i > 0; list = list->next) *(long *)wrong += list->value != --i;
    }
    return NULL;
}

int main(void) {
    uint64_t pointers = 1; /* word 0 of a node is a pointer */
    sw_gc_type type = {"node", sizeof(node), &pointers};
    sw_gc_pace pace = {.struct_bytes = sizeof pace, .percent = 100}; /* GOGC=100 */
    sw_gc_cycle last = {.struct_bytes = sizeof last};
    pthread_t threads[THREADS];
    long wrong[THREADS] = {0};

    if (sw_gc_create(NULL, &gc) != SW_OK || sw_gc_set_roots(gc, SW_GC_CONSERVATIVE) != SW_OK ||
        sw_gc_set_concurrent(gc, 1) != SW_OK || sw_gc_set_pace(gc, &pace) != SW_OK ||
        sw_gc_add_type(gc, &type, &node_type) != SW_OK)
        return 1;
    for (int t = 0; t < THREADS; t++)
        if (pthread_create(&threads[t], NULL, build, &wrong[t]) != 0) return 1;
    if (sw_gc_block(gc) != SW_OK) return 1; /* a stop does not wait for this thread */
    for (int t = 0; t < THREADS; t++) (void)pthread_join(threads[t], NULL);
    if (sw_gc_unblock(gc) != SW_OK || sw_gc_wait(gc, &last) != SW_OK) return 1;
    printf("%ld wrong values, cycles: %s\n", wrong[0] + wrong[1] + wrong[2] + wrong[3],
           last.number > 1 ? "several" : "few");
    return sw_gc_destroy(gc) != SW_OK;
}
