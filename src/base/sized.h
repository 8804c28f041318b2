/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs that begin with their own size in bytes, so that programs which were compiled with an
 * older or a later header can be told (docs/stability.md). No field straddles a multiple of 8 bytes,
 * and new ones begin at one, so what lies below such a size is whole fields. */
#ifndef SW_BASE_SIZED_H
#define SW_BASE_SIZED_H

#include <stdbool.h>

#include "base/fail.h"

/* The first field and one behind it; more than any version will have. */
enum { SW_SIZED_MIN = 16, SW_SIZED_MAX = 4096 };

static inline bool sw_sized_is_valid(uint64_t struct_bytes) {
    return struct_bytes >= SW_SIZED_MIN && struct_bytes <= SW_SIZED_MAX && struct_bytes % 8 == 0;
}

/* SW_INVALID, with the value and the mend. */
static inline sw_status sw_sized_refuse(uint64_t struct_bytes, const char *op, const char *mend) {
    return sw_fail(SW_INVALID, op, "struct_bytes is %llu: %s", (unsigned long long)struct_bytes,
                   mend);
}

#endif
