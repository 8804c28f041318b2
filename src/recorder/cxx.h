/* SPDX-License-Identifier: Apache-2.0 */
/* The aligned operator new of a recorded C++ program. */
#ifndef SW_RECORDER_CXX_H
#define SW_RECORDER_CXX_H

/* Called when a module was unloaded: a cached operator may have gone with it. */
void record_operators_forget(void);

#endif
