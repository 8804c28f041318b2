/* SPDX-License-Identifier: Apache-2.0 */
/* A file that the recorder keeps open in a program which may close every descriptor, or put files
 * of its own where ours were. Used by file.c and area.c. */
#ifndef SW_RECORDER_DESCRIPTOR_H
#define SW_RECORDER_DESCRIPTOR_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "recorder/options.h"

/* Written under the lock of whoever owns it.
 *   fd >= -1;  path is absolute where fd >= 0 */
typedef struct record_descriptor {
    int fd; /* -1: none */
    int access;
    dev_t device;
    ino_t inode;
    bool regular; /* else a device */
    char path[RECORD_PATH_MAX];
} record_descriptor;

/* The rule that does not hold, or NULL (base/assert.h), as of all that this folder's headers
 * declare. They read the struct only, so that they may be asked in a signal handler, too. */
const char *record_descriptor_check(const record_descriptor *file);

/* Takes an open file over and moves its descriptor to a high number. access: O_WRONLY or O_RDWR,
 * as it is to be opened again. False, and the file closed: errno tells why. */
bool record_descriptor_adopt(record_descriptor *file, int fd, const char *path, int access);
/* Makes sure that the descriptor is open and leads to our file, if need be by opening it again.
 * False: it can not, and the descriptor is -1 from now on. */
bool record_descriptor_hold(record_descriptor *file);
/* Whether the descriptor is open and leads to the file. */
bool record_descriptor_is_ours(const record_descriptor *file);
/* Closes the descriptor, unless the program has put something else there. */
void record_descriptor_close(record_descriptor *file);
/* False, and errno EFBIG, where a write up to `end` would raise SIGXFSZ in the program. */
bool record_within_size_limit(uint64_t end);

#endif
