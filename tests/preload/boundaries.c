/* SPDX-License-Identifier: Apache-2.0 */
/* The malloc family at its boundaries: one line a case, the same under any allocator that behaves
 * as glibc's. What is printed: whether there was a result, errno, whether the alignment holds,
 * whether the old object of a failed resize is whole, whether zeroed memory is zero at both
 * ends. */
#define _GNU_SOURCE
#include <errno.h>
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MAX = 512 };

static size_t points[POINTS_MAX];
static int point_count;

static int compare(const void *a, const void *b) {
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return x < y ? -1 : x > y;
}

/* Where the answer depends on how much memory the machine has. */
static int is_open(size_t bytes) { return bytes > (size_t)1 << 26 && bytes < (size_t)1 << 48; }

/* Around powers of two, pages and the largest numbers. */
static void make_points(void) {
    for (int shift = 0; shift <= 63; shift++)
        for (int d = -1; d <= 1; d++) {
            size_t size = ((size_t)1 << shift) + (size_t)d;
            if (!is_open(size)) points[point_count++] = size;
        }
    for (int d = 0; d < 70; d += 3) {
        points[point_count++] = SIZE_MAX - (size_t)(d * 1000);
        points[point_count++] = (size_t)PTRDIFF_MAX - (size_t)(d * 1000);
        points[point_count++] = 4096 * (size_t)d + (size_t)(d % 5);
        points[point_count++] = 8192 * (size_t)d + 24;
    }
    qsort(points, (size_t)point_count, sizeof *points, compare);
}

static void line(const char *call, size_t a, size_t b, const void *p, size_t align, int extra) {
    int code = p == NULL ? errno : 0; /* glibc may leave any errno behind a success */
    int aligned = p == NULL || (uintptr_t)p % (align == 0 ? 1 : align) == 0;
    printf("%s(%zx, %zx): %d %d %d %d\n", call, a, b, p != NULL, code, aligned, extra);
}

static int is_zero(const unsigned char *p, size_t bytes) {
    return p == NULL || bytes == 0 || (p[0] == 0 && p[bytes / 2] == 0 && p[bytes - 1] == 0);
}

/* What C promises of an object of this size. */
static size_t natural(size_t size) { return size >= 16 ? 16 : 8; }

static void singles(size_t size) {
    errno = 0;
    void *p = malloc(size);
    line("malloc", size, 0, p, natural(size), malloc_usable_size(p) >= size);
    free(p);
    errno = 0;
    p = valloc(size);
    line("valloc", size, 0, p, 4096, 0);
    free(p);
    errno = 0;
    p = pvalloc(size);
    line("pvalloc", size, 0, p, 4096, malloc_usable_size(p) >= size);
    free(p);
}

static void pairs(size_t a, size_t b) {
    size_t product;
    if (!__builtin_mul_overflow(a, b, &product) && is_open(product)) return;
    errno = 0;
    void *p = calloc(a, b);
    line("calloc", a, b, p, 8, is_zero(p, a * b));
    free(p);
    errno = 0;
    p = reallocarray(NULL, a, b);
    line("reallocarray", a, b, p, 8, 0);
    free(p);
}

static void resizes(size_t from, size_t to) {
    if (from > (size_t)1 << 26) return;
    unsigned char *p = malloc(from);
    if (p == NULL || from == 0) {
        free(p);
        return;
    }
    p[0] = 0x3c;
    p[from - 1] = 0xc3;
    errno = 0;
    unsigned char *q = realloc(p, to);
    int whole = q != NULL ? q[0] == 0x3c && (to < from || q[from - 1] == 0xc3 || from == 1)
                          : to == 0 || (p[0] == 0x3c && p[from - 1] == 0xc3) || from == 1;
    line("realloc", from, to, q, natural(to), whole);
    if (to != 0) free(q != NULL ? q : p);
}

static void aligned(size_t align, size_t size) {
    int is_power = align != 0 && (align & (align - 1)) == 0;
    void *p = NULL;
    errno = 0;
    int result = posix_memalign(&p, align, size);
    line("posix_memalign", align, size, p, is_power ? align : 1, result);
    free(p);
    errno = 0;
    p = memalign(align, size);
    line("memalign", align, size, p, is_power ? align : 1, 0);
    free(p);
    errno = 0;
    p = aligned_alloc(align, size);
    line("aligned_alloc", align, size, p, is_power ? align : 1, 0);
    free(p);
}

int main(void) {
    make_points();
    for (int i = 0; i < point_count; i++) singles(points[i]);
    for (int i = 0; i < point_count; i += 3)
        for (int k = 1; k < point_count; k += 5) {
            pairs(points[i], points[k]);
            resizes(points[i], points[k]);
            aligned(points[i], points[k]);
        }
    return 0;
}
