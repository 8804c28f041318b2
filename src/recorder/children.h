/* SPDX-License-Identifier: Apache-2.0 */
/* The processes that a recorded one starts: the names of their files, and the list of them. */
#ifndef SW_RECORDER_CHILDREN_H
#define SW_RECORDER_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

/* The list of processes that this one started, in STEM.children: who is recorded begins it, each
 * child adds itself, who ends reads it. A file, because children outlive exec and share nothing. */
void record_children_begin(void);
void record_children_add(bool recorded);
void record_children_read(void);
/* Removes the list. */
void record_children_end(void);
uint64_t record_children_unrecorded(void);
uint64_t record_children_recorded(void);
/* Writes STEM.PID.swt, or for a number > 1 STEM.PID.NUMBER.swt, to out[RECORD_PATH_MAX]. */
void record_child_name(char *out, uint64_t pid, uint64_t number);

#endif
