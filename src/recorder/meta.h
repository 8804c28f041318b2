/* SPDX-License-Identifier: Apache-2.0 */
/* What a recording says beside its events: the program, and the modules that it loaded. */
#ifndef SW_RECORDER_META_H
#define SW_RECORDER_META_H

#include <stdbool.h>

bool record_meta_init(void);  /* maps the buffer; false without memory */
bool record_meta_write(void); /* META; false: recording stopped */
/* MODULES: those that no block of this file has named yet. */
void record_modules_flush(void);
void record_meta_after_fork(void);

#endif
