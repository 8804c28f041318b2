/* SPDX-License-Identifier: Apache-2.0 */
/* Functions outside the malloc family that the recorder defines; see hooks.c. */
#ifndef SW_RECORDER_RECORDER_HOOKS_H
#define SW_RECORDER_RECORDER_HOOKS_H

/* Finds the functions underneath. */
void record_resolve_hooks(void);

#endif
