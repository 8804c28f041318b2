/* SPDX-License-Identifier: Apache-2.0 */
/* A file that the recorder keeps open in a program that may close any descriptor and reuse its
 * number. Used by file.c and area.c. */
#ifndef SW_RECORDER_DESCRIPTOR_H
#define SW_RECORDER_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "recorder/options.h"

/* Written under the lock of the struct that has the descriptor.
 *   fd >= -1;  path is absolute if fd >= 0 */
typedef struct record_descriptor {
    int fd; /* -1: none */
    int access;
    dev_t device;
    ino_t inode;
    bool regular; /* false: a device */
    char path[RECORD_PATH_MAX];
} record_descriptor;

/* Returns the first broken rule, or NULL (base/assert.h). Like all <type>_check functions of this
 * folder it only reads the struct, so that a signal handler may call it. */
const char *record_descriptor_check(const record_descriptor *file);

/* Takes over the open file `fd` and moves its descriptor to a high number. access: O_WRONLY or
 * O_RDWR, the mode for reopening the file. False: fd is closed, and errno is set. */
bool record_descriptor_adopt(record_descriptor *file, int fd, const char *path, int access);
/* Checks that the descriptor is open and refers to our file; else reopens the file. False: that
 * failed, and the descriptor is -1 from now on. */
bool record_descriptor_hold(record_descriptor *file);
/* Returns whether the descriptor is open and refers to the file. */
bool record_descriptor_is_ours(const record_descriptor *file);
/* Closes the descriptor, unless the program has reused it. */
void record_descriptor_close(record_descriptor *file);
/* False, with errno EFBIG: a write up to the offset `end` would exceed the size limit of files and
 * raise SIGXFSZ in the program. */
bool record_within_size_limit(uint64_t end);

#endif
