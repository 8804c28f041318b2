/* SPDX-License-Identifier: Apache-2.0 */
/* The program's data in a recording: its command line and loaded modules. */
#ifndef SW_RECORDER_META_H
#define SW_RECORDER_META_H

#include <stdbool.h>
#include <stdint.h>

#include "trace/raw.h"

enum { RECORD_SEEN_MAX = 4096 }; /* modules that are known to be in the file */

/* The modules that were written to the file. Only the thread that has set busy writes it:
 *   busy <= 1;  seen_count <= RECORD_SEEN_MAX;  whole <= entries.used;  all four arrays are set, or none */
typedef struct record_modules {
    uint32_t busy;  /* 1: a thread is writing the list of modules */
    bool inherited; /* in a fork child: `entries` is the parent's, and not in the file yet */
    uint8_t *buffer, *arguments;
    swt_buffer entries; /* all that were written: a child may be unable to ask the loader */
    size_t whole;       /* bytes of entries without one that a thread is adding */
    uint64_t *seen;     /* RECORD_SEEN_MAX hashes */
    uint32_t seen_count;
    uint64_t generation; /* of the loader's list, when modules were last written */
    uint64_t version;    /* the same, by sw_os_data_version */
} record_modules;

const char *record_modules_check(const record_modules *modules);

/* Maps the buffers. False: no memory. */
bool record_meta_init(void);
/* Writes the META block. False: the recording has stopped. */
bool record_meta_write(void);
/* Writes a MODULES block of the modules that are in no block of this file yet. */
void record_modules_flush(void);
/* Returns whether the list that a fork child would inherit is complete. Takes no lock. */
bool record_modules_are_known(void);
/* Writes a META block of the resident memory, if it was read. */
void record_meta_put_memory(void);
/* Writes a META block of the resident bytes over time. */
void record_meta_put_rss(void);
/* In a fork child: the modules are in no file. */
void record_meta_after_fork(void);

/* --- child processes -------------------------------------------------------------------------- */

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
