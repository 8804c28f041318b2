/* SPDX-License-Identifier: Apache-2.0 */
/* The child processes of a recorded process: their list, and the names of their files. */
#ifndef SW_RECORDER_CHILDREN_H
#define SW_RECORDER_CHILDREN_H

#include <stdbool.h>
#include <stdint.h>

/* The list of child processes is the file STEM.children. The recorded process creates it, each
 * child appends an entry for itself, and the recorded process reads it when it ends. It is a file
 * because children share no memory with their parent after exec. */
void record_children_begin(void);
void record_children_add(bool recorded);
void record_children_read(void);
void record_children_end(void);
uint64_t record_children_unrecorded(void);
uint64_t record_children_recorded(void);
/* Writes STEM.PID.swt, or for a number > 1 STEM.PID.NUMBER.swt, to out[RECORD_PATH_MAX]. */
void record_child_name(char *out, uint64_t pid, uint64_t number);

#endif
