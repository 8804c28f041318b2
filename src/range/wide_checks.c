/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the B+-tree of holes, as wide.h states them. See base/assert.h. */
#include "base/assert.h"
#include "range/wide.h"
#include "range/wide_node.h"

const char *sw_wide_check(const sw_wide *wide) {
    return SW_RULE(wide->height < SW_WIDE_HEIGHT_MAX)
               ?: SW_RULE((wide->count == 0) == (wide->largest == 0))
               ?: SW_RULE((wide->root->count == 0) == (wide->count == 0))
               ?: SW_RULE(wide->count > 0 || wide->height == 0)
               ?: sw_nodes_check(&wide->nodes);
}

const char *sw_wide_node_check(const sw_wide_node *node) {
    const char *broken = SW_RULE(node->count <= SW_WIDE_ENTRIES);
    for (uint64_t i = 0; broken == NULL && i < node->count; i++)
        broken = SW_RULE(node->wide[i] >= 1) ?: SW_RULE(i == 0 || node->low[i] > node->low[i - 1]);
    return broken;
}

/* Checks the entries of a node against its children, and all nodes below. Adds the number of holes
 * to `count`. */
static const char *verify_node(const sw_wide_node *node, uint32_t level, uint64_t *count,
                               uint64_t *end) {
    const char *broken = sw_wide_node_check(node);
    for (uint64_t i = 0; broken == NULL && i < node->count; i++) {
        const sw_wide_node *child = node->child[i];
        if (level == 0) {
            broken = SW_RULE(*count == 0 || node->low[i] > *end);
            *end = node->low[i] + node->wide[i];
            (*count)++;
            continue;
        }
        broken = SW_RULE(child->count >= 1)
                     ?: SW_RULE(child->low[0] == node->low[i])
                     ?: SW_RULE(sw_wide_node_largest(child) == node->wide[i])
                     ?: verify_node(child, level - 1, count, end);
    }
    return broken;
}

const char *sw_wide_verify(const sw_wide *wide) {
    uint64_t count = 0, end = 0;
    return sw_wide_check(wide)
               ?: verify_node(wide->root, wide->height, &count, &end)
               ?: SW_RULE(count == wide->count)
               ?: SW_RULE(sw_wide_node_largest(wide->root) == wide->largest);
}
