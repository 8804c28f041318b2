/* SPDX-License-Identifier: Apache-2.0 */
/* Functions outside the malloc family that the recorder defines; see record_hooks.c. */
#ifndef SW_FACE_RECORD_HOOKS_H
#define SW_FACE_RECORD_HOOKS_H

/* Finds the functions underneath. */
void record_resolve_hooks(void);

#endif
