/* SPDX-License-Identifier: Apache-2.0 */
/* What a recording tells beside its events: the program, and the modules that it loaded. */
#ifndef SW_RECORDER_META_H
#define SW_RECORDER_META_H

#include <stdbool.h>

/* Maps the buffer. False: no memory. */
bool record_meta_init(void);
/* Writes the META block. False: the recording has stopped. */
bool record_meta_write(void);
/* Writes a MODULES block of the modules that no block of this file has named yet. */
void record_modules_flush(void);
void record_meta_after_fork(void);

#endif
