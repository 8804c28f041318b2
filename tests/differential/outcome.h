/* SPDX-License-Identifier: Apache-2.0 */
/* How a case says what it saw: one line, `NAME(ARGUMENTS) OUTCOME`, equal under every allocator
 * that behaves equally. C and C++. Nothing here allocates.
 */
#ifndef TESTS_DIFFERENTIAL_OUTCOME_H
#define TESTS_DIFFERENTIAL_OUTCOME_H

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIT(k) ((size_t)1 << (k))
#define MOST ((size_t)PTRDIFF_MAX) /* bytes that an object can have */
#define LAST SIZE_MAX              /* the largest size */

enum { ERRNO_BEFORE = 77 }; /* a value that no allocation function sets */

/* Bytes from here up to VAST_END may or may not be there: it depends on the machine and on whether
 * the allocator reserves what it hands out. Such cases are named `vast-...`. Nothing has VAST_END
 * bytes. */
static const size_t VAST = (size_t)1 << 28, VAST_END = (size_t)1 << 47;

static inline int is_vast(size_t bytes) { return bytes >= VAST && bytes < VAST_END; }

static inline void outcome_begin(void) {
    static char buffer[1 << 16];
    setvbuf(stdout, buffer, _IOFBF, sizeof buffer);
}

__attribute__((format(printf, 2, 3))) static inline void name_case(int vast, const char *format,
                                                                   ...) {
    va_list args;
    va_start(args, format);
    fputs(vast ? "vast-" : "", stdout);
    (void)vprintf(format, args);
    va_end(args);
    errno = ERRNO_BEFORE;
}

static inline const char *errno_word(int code) {
    switch (code) {
    case ERRNO_BEFORE: return "kept";
    case ENOMEM: return "ENOMEM";
    case EINVAL: return "EINVAL";
    case 0: return "0";
    default: return "other";
    }
}

/* Whether p, a block for `bytes`, is aligned as expected; no object of 8 bytes needs more than
 * 8. */
static inline const char *alignment_word(const void *p, size_t align, size_t bytes) {
    if ((uintptr_t)p % align == 0) return "aligned";
    return bytes <= 8 && align == 16 && (uintptr_t)p % 8 == 0 ? "aligned-to-8" : "UNALIGNED";
}

static inline const char *yes(int condition) { return condition ? "yes" : "NO"; }

static inline void put_byte(unsigned char *p, size_t i, size_t seed) {
    p[i] = (unsigned char)(seed * 31 + i * 7 + 1);
}

static inline int byte_kept(const unsigned char *p, size_t i, size_t seed) {
    return p[i] == (unsigned char)(seed * 31 + i * 7 + 1);
}

/* A pattern in the first bytes of a block, and whether it is still there. Of a long block the ends
 * are written, and a byte of every page between them. */
enum { WHOLE_MAX = 8192, STRIDE = 4096 };

static inline size_t step_from(size_t i, size_t bytes) {
    return i >= WHOLE_MAX && i + WHOLE_MAX < bytes ? STRIDE : 1;
}

static inline void fill(void *block, size_t bytes, size_t seed) {
    for (size_t i = 0; i < bytes; i += step_from(i, bytes))
        put_byte((unsigned char *)block, i, seed);
}

/* filled: the length that fill was given, of which the first `bytes` are looked at. */
static inline int intact(const void *block, size_t filled, size_t bytes, size_t seed) {
    for (size_t i = 0; i < bytes; i += step_from(i, filled))
        if (!byte_kept((const unsigned char *)block, i, seed)) return 0;
    return 1;
}

static inline int is_zero(const void *block, size_t bytes) {
    const unsigned char *p = (const unsigned char *)block;
    return bytes == 0 || (p[0] == 0 && memcmp(p, p + 1, bytes - 1) == 0);
}

/* The end of a case that gave `p`: NULL and errno, or an aligned block with room for `bytes`, all
 * of which can be written. Frees it. zeroed: 1 when it must read as zero. */
static inline void end_block(void *p, size_t bytes, size_t align, int zeroed) {
    int code = errno;
    printf(" null=%s errno=%s", yes(p == NULL), errno_word(code));
    if (p != NULL) {
        size_t usable = malloc_usable_size(p);
        size_t looked = bytes < ((size_t)1 << 22) ? bytes : 0;
        printf(" %s room=%s", alignment_word(p, align, bytes), yes(usable >= bytes));
        if (zeroed) printf(" zero=%s", yes(is_zero(p, looked)));
        if (looked != 0) fill(p, usable < WHOLE_MAX ? usable : looked, bytes);
        errno = ERRNO_BEFORE;
        free(p);
        printf(" free-errno=%s", errno_word(errno));
    }
    putchar('\n');
}

#endif
