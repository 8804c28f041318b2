/* SPDX-License-Identifier: Apache-2.0 */
/* NUMA nodes (node.h). */
#include "arena/node.h"

#include "base/attributes.h"
#include "os/os.h"

/* count is atomic; sw_node_set writes it after the other fields. */
static struct {
    uint32_t count;
    uint32_t (*node_of_thread)(void *context);
    void *context;
} topology = {.count = 1};

static uint32_t node_of_system(void *context) {
    (void)context;
    return sw_os_node();
}

void sw_node_set(uint32_t count, uint32_t (*node_of_thread)(void *context), void *context) {
    __atomic_store_n(&topology.count, 1, __ATOMIC_RELEASE);
    topology.node_of_thread = node_of_thread != NULL ? node_of_thread : node_of_system;
    topology.context = context;
    __atomic_store_n(&topology.count, count > 1 ? count : 1, __ATOMIC_RELEASE);
}

bool sw_node_is_used(void) {
    return sw_unlikely(__atomic_load_n(&topology.count, __ATOMIC_ACQUIRE) > 1);
}

uint32_t sw_node_here(void) {
    uint32_t count = __atomic_load_n(&topology.count, __ATOMIC_ACQUIRE);
    if (sw_likely(count == 1)) return 0;
    uint32_t node = topology.node_of_thread(topology.context);
    return node < count ? node : 0;
}
