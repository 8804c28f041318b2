/* SPDX-License-Identifier: Apache-2.0 */
/* Fork: how the child recovers the heaps that it inherits. */
#ifndef SW_HEAP_FORK_H
#define SW_HEAP_FORK_H

/* Registers the fork handlers, unless that was done already. The library's constructor calls it.
 * The preloaded malloc calls it at its first allocation, because handlers that are registered
 * before ours run while ours hold the heaps' locks. */
void sw_fork_register(void);

#endif
