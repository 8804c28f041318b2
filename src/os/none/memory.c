/* SPDX-License-Identifier: Apache-2.0 */
/* The memory functions of os.h in plain C. A reservation is a block of calloc, so all of it is
 * always accessible, and purging pages only clears them. That is enough for dry heaps, the reader
 * and small live heaps on any system. Ledgers are the same as elsewhere, because heaps count the
 * bytes that they hold.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "os/os.h"

enum { PAGE_BYTES = 4096 };

/* Maximum reservation; calloc may make all of it resident. */
#define RESERVATION_MAX ((size_t)1 << 30)
#define PLACE_MAX (2 * RESERVATION_MAX)

/* Header directly before each block. */
typedef struct origin {
    void *raw; /* the address that calloc returned */
} origin;

static void *take(size_t bytes, size_t align) {
    size_t extra = align + sizeof(origin);
    if (bytes > SIZE_MAX - extra) return NULL;
    char *raw = calloc(1, bytes + extra);
    if (raw == NULL) return NULL;
    char *block = (char *)(uintptr_t)sw_align_up((uintptr_t)raw + sizeof(origin), align);
    memcpy(block - sizeof(origin), &(origin){.raw = raw}, sizeof(origin));
    return block;
}

size_t sw_os_page_bytes(void) { return PAGE_BYTES; }

void *sw_os_reserve(size_t bytes, size_t align) {
    if (bytes > RESERVATION_MAX || align > RESERVATION_MAX) return NULL;
    return take(bytes, align > PAGE_BYTES ? align : PAGE_BYTES);
}

/* All of a place is accessible. */
void *sw_os_place(size_t bytes, size_t ready) {
    (void)ready;
    return bytes > PLACE_MAX ? NULL : take(bytes, (size_t)1 << sw_log2_ceil(bytes));
}

sw_os_mapped sw_os_map_at(void *p, size_t bytes) {
    (void)p;
    (void)bytes;
    return SW_OS_MAPPED;
}

bool sw_os_unmap_at(void *p, size_t bytes) { return sw_os_purge(p, bytes); }

bool sw_os_commit(void *p, size_t bytes) {
    (void)p;
    (void)bytes;
    return true;
}

bool sw_os_uncommit(void *p, size_t bytes) {
    (void)p;
    (void)bytes;
    return true;
}

static bool is_zero(const char *p, size_t bytes) {
    return p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0;
}

/* Clears pages. A page of zeroes is only read, because a write would make it resident. */
bool sw_os_purge(void *p, size_t bytes) {
    char *byte = p;
    while (bytes > 0) {
        size_t n = bytes < PAGE_BYTES ? bytes : PAGE_BYTES;
        if (!is_zero(byte, n)) memset(byte, 0, n);
        byte += n;
        bytes -= n;
    }
    return true;
}

bool sw_os_populate(void *p, size_t bytes) {
    (void)p;
    (void)bytes;
    return false;
}

bool sw_os_advise_huge(void *p, size_t bytes, bool huge) {
    (void)p;
    (void)bytes;
    return !huge;
}

bool sw_os_release(void *p, size_t bytes) {
    (void)bytes;
    origin from;
    memcpy(&from, (char *)p - sizeof(origin), sizeof from);
    free(from.raw);
    return true;
}

bool sw_os_shorten(void *p, size_t bytes, size_t kept) {
    (void)p;
    return bytes == kept;
}

void *sw_os_map(size_t bytes) { return take(bytes, PAGE_BYTES); }

bool sw_os_resident_pages(void *p, size_t pages, uint8_t *out) {
    (void)p;
    (void)pages;
    (void)out;
    return false;
}

uint64_t sw_os_resident_bytes(void) { return 0; }
