/* SPDX-License-Identifier: Apache-2.0 */
/* Fork: what the child makes of the heaps that it inherits. */
#ifndef SW_HEAP_FORK_H
#define SW_HEAP_FORK_H

/* Registers the fork handlers, unless that was done. The library's constructor does it; whoever
 * serves malloc does it at the first call, since handlers that are registered before ours run after
 * ours have locked the heaps. */
void sw_fork_register(void);

#endif
