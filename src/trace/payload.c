/* SPDX-License-Identifier: Apache-2.0 */
/* Payloads of the small blocks META, SITES, MODULES, CLOCK and END. The recorder calls these
 * functions inside malloc, so they use the caller's memory only. Each swt_put_ function appends a
 * whole entry or nothing. docs/design/trace.md. */
#include "base/assert.h"
#include "trace/format.h"
#include "trace/raw.h"

/* Reserves the next `bytes` bytes of the buffer. NULL: no room. */
static uint8_t *take(swt_buffer *buffer, size_t bytes) {
    sw_check2(swt_buffer_check(buffer));
    if (bytes > buffer->capacity - buffer->used) return NULL;
    uint8_t *p = buffer->data + buffer->used;
    buffer->used += bytes;
    return p;
}

static uint8_t *put_bytes(uint8_t *p, const void *data, size_t bytes) {
    if (bytes != 0) memcpy(p, data, bytes);
    return p + bytes;
}

bool swt_put_meta(swt_buffer *buffer, const char *key, const char *value) {
    size_t key_bytes = strlen(key) + 1, value_bytes = strlen(value) + 1;
    uint8_t *p = take(buffer, key_bytes + value_bytes);
    if (p == NULL) return false;
    put_bytes(put_bytes(p, key, key_bytes), value, value_bytes);
    return true;
}

bool swt_put_meta_u64(swt_buffer *buffer, const char *key, uint64_t value) {
    char text[21], *p = text + sizeof text - 1;
    *p = '\0';
    do *--p = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    return swt_put_meta(buffer, key, p);
}

bool swt_put_site(swt_buffer *buffer, uint32_t site, const uint64_t *addresses, uint32_t depth) {
    if (depth > SWT_SITE_DEPTH_MAX) depth = SWT_SITE_DEPTH_MAX;
    uint8_t *p = take(buffer, SWT_SITE_HEAD_BYTES + (size_t)depth * 8);
    if (p == NULL) return false;
    swt_put32(p, site);
    swt_put32(p + 4, depth);
    for (uint32_t i = 0; i < depth; i++)
        swt_put64(p + SWT_SITE_HEAD_BYTES + (size_t)i * 8, addresses[i]);
    return true;
}

bool swt_put_module(swt_buffer *buffer, uint64_t start, uint64_t end, uint64_t bias,
                    const char *path, const void *build_id, uint32_t build_id_bytes) {
    size_t path_bytes = strlen(path) + 1;
    if (path_bytes > SWT_MODULE_PATH_MAX) path_bytes = SWT_MODULE_PATH_MAX;
    if (build_id_bytes > SWT_MODULE_BUILD_ID_MAX) build_id_bytes = 0;
    uint8_t *p = take(buffer, SWT_MODULE_HEAD_BYTES + path_bytes + build_id_bytes);
    if (p == NULL) return false;
    swt_put64(p, start);
    swt_put64(p + 8, end);
    swt_put64(p + 16, bias);
    swt_put32(p + 24, (uint32_t)path_bytes);
    swt_put32(p + 28, build_id_bytes);
    p = put_bytes(p + SWT_MODULE_HEAD_BYTES, path, path_bytes);
    p[-1] = 0; /* terminates a truncated path, too */
    put_bytes(p, build_id, build_id_bytes);
    return true;
}

bool swt_put_clock(swt_buffer *buffer, uint64_t ticks, uint64_t ns, uint64_t ns_per_tick_q32) {
    uint8_t *p = take(buffer, SWT_CLOCK_BYTES);
    if (p == NULL) return false;
    swt_put64(p, ticks);
    swt_put64(p + 8, ns);
    swt_put64(p + 16, ns_per_tick_q32);
    return true;
}

bool swt_put_end(swt_buffer *buffer, const swt_end *end) {
    const uint64_t fields[] = {end->calls,   end->dropped_calls,       end->drop_reason,
                               end->threads, end->children_unrecorded, end->children_recorded};
    enum { COUNT = sizeof fields / sizeof fields[0] };
    _Static_assert(COUNT * 8 == SWT_END_BYTES, "as docs/design/trace.md says");
    uint8_t *p = take(buffer, SWT_END_BYTES);
    if (p == NULL) return false;
    for (size_t i = 0; i < COUNT; i++) swt_put64(p + 8 * i, fields[i]);
    return true;
}
