/* SPDX-License-Identifier: Apache-2.0 */
/* Rows as a stream of the Arrow C stream interface: see ffi_arrow.c. */
#ifndef SPANWISE_FFI_ARROW_H
#define SPANWISE_FFI_ARROW_H

#include <stddef.h>
#include <stdint.h>

/* A column, whose bytes are copied. `format` is Arrow's; where it is a list of `width` items of
 * `child_format`, the buffers are those of the items. Buffers: of fixed-size values one; of texts
 * the offsets and the bytes; the others are NULL.
 */
typedef struct sw_arrow_column {
    const char *name;
    const char *format;
    const char *child_format; /* NULL: no list */
    int64_t width;
    const void *buffers[2];
    size_t buffer_bytes[2];
} sw_arrow_column;

/* Appends a capsule with the stream to the Python list at the address `list`. 0, or -1: there is
 * no memory. The caller keeps the list alive.
 */
int sw_arrow_capsule(uintptr_t list, int64_t rows, const sw_arrow_column *columns, int64_t count);

#endif
