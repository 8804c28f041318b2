/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs that begin with their own size in bytes, which identifies programs compiled with
 * an older or later header (docs/stability.md). No field crosses a multiple of 8 bytes, and each
 * new field begins at one, so that the bytes below such a size are whole fields. */
#ifndef SW_BASE_SIZED_H
#define SW_BASE_SIZED_H

#include <stdbool.h>

#include "base/fail.h"

/* The minimum is the size of the first field and one more; the maximum leaves room. */
enum { SW_SIZED_MIN = 16, SW_SIZED_MAX = 4096 };

static inline bool sw_sized_is_valid(uint64_t struct_bytes) {
    return struct_bytes >= SW_SIZED_MIN && struct_bytes <= SW_SIZED_MAX && struct_bytes % 8 == 0;
}

/* Returns SW_INVALID, with the value and what to do in the message. */
static inline sw_status sw_sized_refuse(uint64_t struct_bytes, const char *op, const char *advice) {
    return sw_fail(SW_INVALID, op, "struct_bytes is %llu: %s", (unsigned long long)struct_bytes,
                   advice);
}

#endif
