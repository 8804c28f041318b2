/* SPDX-License-Identifier: Apache-2.0 */
/* Boundary cases of the C allocation functions, the same in every run: differential.py runs this
 * program under glibc and under libspanwise-malloc.so and compares it line by line.
 */
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#include "outcome.h"

enum { SIZES_MAX = 512 };

static size_t sizes[SIZES_MAX];
static size_t size_count;

static void add_around(size_t at, size_t before, size_t after) {
    for (size_t size = at - before; size != at + after + 1; size++) sizes[size_count++] = size;
}

/* 0, every class bound that someone could have, pages, what mmap begins to serve, and the edges of
 * the types. */
static void make_sizes(void) {
    add_around(0, 0, 33);
    for (uint32_t k = 6; k <= 16; k++) add_around((size_t)1 << k, 1, 1);
    for (uint32_t k = 6; k <= 15; k++) add_around((size_t)3 << (k - 1), 1, 1);
    for (size_t size = 5000; size < 40000; size += 2333) add_around(size, 0, 0);
    add_around(32768 + 16, 1, 1);
    add_around((size_t)128 << 10, 25, 1); /* glibc's threshold of mmap, less its header */
    for (uint32_t k = 18; k <= 24; k++) add_around((size_t)1 << k, 1, 1);
    add_around((size_t)1 << 30, 0, 0);
    add_around((size_t)1 << 36, 0, 0);
    add_around((size_t)1 << 46, 0, 0);
    add_around(VAST_END, 0, 1);
    for (uint32_t k = 48; k <= 62; k++) add_around((size_t)1 << k, 1, 1);
    add_around((size_t)PTRDIFF_MAX - 4096, 1, 1);
    add_around((size_t)PTRDIFF_MAX - 32, 0, 64);
    add_around(SIZE_MAX - 65536, 1, 1);
    add_around(SIZE_MAX - 4096, 1, 1);
    add_around(SIZE_MAX - 40, 0, 40);
}

/* Leaves freed, dirty memory for the next request of the size. */
static void leave_dirt(size_t bytes) {
    if (bytes >= (size_t)1 << 22) return;
    void *p = malloc(bytes);
    if (p == NULL) return;
    memset(p, 0xEE, bytes);
    __asm__ volatile("" : : "r"(p) : "memory");
    free(p);
}

/* A large object has a word a page in the page map, so that a block of TiB takes a second: of vast
 * ones few are requested. */
static int is_rare(size_t bytes, size_t i) {
    return is_vast(bytes) && (i % 4 != 0 || bytes >= (size_t)1 << 38);
}

static void plain_sizes(void) {
    for (size_t i = 0; i < size_count; i++) {
        size_t n = sizes[i];
        int vast = is_vast(n);
        name_case(vast, "malloc(%zu)", n);
        end_block(malloc(n), n, 16, 0);
        leave_dirt(n);
        name_case(vast, "calloc(1,%zu)", n);
        end_block(calloc(1, n), n, 16, 1);
        leave_dirt(n);
        name_case(vast, "calloc(%zu,1)", n);
        end_block(calloc(n, 1), n, 16, 1);
        name_case(vast, "realloc(NULL,%zu)", n);
        end_block(realloc(NULL, n), n, 16, 0);
        name_case(vast, "reallocarray(NULL,1,%zu)", n);
        end_block(reallocarray(NULL, 1, n), n, 16, 0);
        name_case(vast, "valloc(%zu)", n);
        end_block(valloc(n), n, 4096, 0);
        name_case(vast, "pvalloc(%zu)", n);
        end_block(pvalloc(n), n > SIZE_MAX - 4096 ? n : (n + 4095) & ~(size_t)4095, 4096, 0);
    }
}

/* Two blocks of size 0 are two blocks, and NULL is no block. */
static void nothings(void) {
    name_case(0, "malloc(0) twice");
    char *p = malloc(0), *q = malloc(0);
    printf(" null=%s distinct=%s errno=%s\n", yes(p == NULL || q == NULL), yes(p != q),
           errno_word(errno));
    free(p);
    free(q);
    name_case(0, "free(NULL)");
    free(NULL);
    printf(" errno=%s\n", errno_word(errno));
    name_case(0, "malloc_usable_size(NULL)");
    printf(" size=%zu errno=%s\n", malloc_usable_size(NULL), errno_word(errno));
}

/* --- count times size ------------------------------------------------------------------------- */

static const size_t factors[] = {0,           1,       2,           3,           7,
                                 8,           15,      16,          17,          100,
                                 255,         256,     1000,        4095,        4096,
                                 4097,        65535,   65536,       BIT(32) - 1, BIT(32),
                                 BIT(32) + 1, BIT(47), BIT(62) - 1, BIT(62),     BIT(62) + 1,
                                 MOST - 1,    MOST,    MOST + 1,    LAST / 3,    LAST / 3 + 1,
                                 LAST - 1,    LAST};
enum { FACTOR_COUNT = sizeof factors / sizeof *factors };

/* SIZE_MAX when the product does not fit. */
static size_t product(size_t a, size_t b) {
    size_t bytes;
    return __builtin_mul_overflow(a, b, &bytes) ? SIZE_MAX : bytes;
}

static void products_calloc(void) {
    for (size_t i = 0; i < FACTOR_COUNT; i++)
        for (size_t k = 0; k < FACTOR_COUNT; k++) {
            size_t bytes = product(factors[i], factors[k]);
            if (is_rare(bytes, k)) continue;
            leave_dirt(bytes);
            name_case(is_vast(bytes), "calloc(%zu,%zu)", factors[i], factors[k]);
            end_block(calloc(factors[i], factors[k]), bytes, 16, 1);
        }
}

/* What a resize did: with the block that it gave, or with the old one when it gave none. */
static void end_resize(unsigned char *old, size_t old_bytes, unsigned char *p, size_t bytes) {
    int code = errno;
    bool freed = p == NULL && bytes == 0;
    unsigned char *live = p != NULL ? p : old;
    size_t kept = p != NULL && bytes < old_bytes ? bytes : old_bytes;
    printf(" null=%s errno=%s", yes(p == NULL), errno_word(code));
    if (!freed) {
        printf(" contents=%s %s", yes(intact(live, old_bytes, kept, old_bytes)),
               alignment_word(live, 16, p != NULL ? bytes : old_bytes));
        if (p != NULL) printf(" room=%s", yes(malloc_usable_size(p) >= bytes));
        if (p != NULL && bytes < (size_t)1 << 22) fill(p, bytes, bytes);
        free(live);
    }
    putchar('\n');
}

static void products_resize(void) {
    const size_t olds[] = {1, 1000, 200000};
    for (size_t o = 0; o < 3; o++)
        for (size_t i = 0; i < FACTOR_COUNT; i++)
            for (size_t k = 0; k < FACTOR_COUNT; k++) {
                size_t bytes = product(factors[i], factors[k]);
                if (is_rare(bytes, o == 0 ? k : 1)) continue;
                unsigned char *old = malloc(olds[o]);
                fill(old, olds[o], olds[o]);
                name_case(is_vast(bytes), "reallocarray(%zu bytes,%zu,%zu)", olds[o], factors[i],
                          factors[k]);
                void *p = reallocarray(old, factors[i], factors[k]);
                end_resize(old, olds[o], p, bytes);
            }
}

static const size_t resizes[] = {
    0,     1,     8,      15,     16,     17,     24,      25,    31,       32,        33,    63,
    64,    65,    127,    128,    129,    255,    257,     500,   512,      1000,      1024,  1025,
    2048,  2049,  4096,   4097,   8191,   8192,   8193,    16384, 20000,    32767,     32768, 32769,
    40000, 65536, 131072, 131073, 200000, 700000, BIT(47), MOST,  MOST + 1, LAST - 16, LAST};
enum { RESIZE_COUNT = sizeof resizes / sizeof *resizes };

/* Blocks to resize, by how they are made: malloc, calloc, on a page, on an odd alignment. */
static void *make_block(int kind, size_t bytes) {
    switch (kind) {
    case 0: return malloc(bytes);
    case 1: return calloc(bytes, 1);
    case 2: return memalign(4096, bytes);
    default: return aligned_alloc(64, bytes);
    }
}

static void resize_grid(void) {
    for (int kind = 0; kind < 4; kind++)
        for (size_t i = 0; i < RESIZE_COUNT && resizes[i] < VAST; i++)
            for (size_t k = 0; k < RESIZE_COUNT; k++) {
                size_t from = resizes[i], to = resizes[k];
                unsigned char *old = make_block(kind, from);
                fill(old, from, from);
                name_case(is_vast(to), "realloc(%zu bytes of kind %d,%zu)", from, kind, to);
                void *p = realloc(old, to);
                end_resize(old, from, p, to);
            }
}

/* --- alignments ------------------------------------------------------------------------------- */

static size_t aligns[SIZES_MAX];
static size_t align_count;

static void make_aligns(void) {
    for (size_t a = 0; a <= 18; a++) aligns[align_count++] = a;
    const size_t odd[] = {24, 31, 33,  40,  48,   56,   63,   65,
                          72, 96, 100, 127, 1000, 4095, 4097, 12288};
    for (size_t i = 0; i < sizeof odd / sizeof *odd; i++) aligns[align_count++] = odd[i];
    for (uint32_t k = 5; k < 64; k++) {
        aligns[align_count++] = (size_t)1 << k;
        if (k > 12 && k % 6 == 1) aligns[align_count++] = ((size_t)1 << k) + 8;
        if (k > 12 && k % 6 == 2) aligns[align_count++] = ((size_t)1 << k) - 8;
    }
    aligns[align_count++] = ((size_t)1 << 63) + 1;
    aligns[align_count++] = SIZE_MAX - 7;
    aligns[align_count++] = SIZE_MAX;
}

/* What the alignment means: a power of two is itself; memalign rounds others up. */
static size_t meant(size_t align) {
    size_t power = 1;
    while (power < align && power != 0) power *= 2;
    return power == 0 ? 1 : power;
}

/* A block with a vast alignment needs vast addresses for a while. */
static int vast_align(size_t align, size_t bytes) {
    return is_vast(bytes) || is_vast(meant(align)) || is_vast(meant(align) + bytes);
}

static void one_posix_memalign(size_t align, size_t bytes) {
    char untouched;
    void *p = &untouched;
    name_case(vast_align(align, bytes), "posix_memalign(%zu,%zu)", align, bytes);
    int code = posix_memalign(&p, align, bytes);
    int after = errno;
    printf(" code=%s out=%s", errno_word(code), code != 0 ? yes(p == &untouched) : "set");
    errno = after;
    end_block(code == 0 ? p : NULL, bytes, meant(align), 0);
}

static void align_grid(void) {
    const size_t bytes[] = {0,        1,           8,     17,       100,         1000,
                            4096,     5000,        32768, 32769,    100000,      3000000,
                            VAST_END, MOST - 4096, MOST,  MOST + 1, LAST - 4096, LAST};
    for (size_t i = 0; i < align_count; i++)
        for (size_t k = 0; k < sizeof bytes / sizeof *bytes; k++) {
            size_t align = aligns[i], n = bytes[k];
            int vast = vast_align(align, n);
            if (vast && k != 1 && (k != 6 || align >= (size_t)1 << 38)) continue;
            one_posix_memalign(align, n);
            name_case(vast, "memalign(%zu,%zu)", align, n);
            end_block(memalign(align, n), n, meant(align), 0);
            name_case(vast, "aligned_alloc(%zu,%zu)", align, n);
            end_block(aligned_alloc(align, n), n, meant(align), 0);
        }
}

static void free_keeps_errno(void) {
    for (size_t i = 0; i < RESIZE_COUNT && resizes[i] < VAST; i++)
        for (int code = 0; code < 3; code++) {
            void *p[8];
            for (int k = 0; k < 8; k++) p[k] = malloc(resizes[i]);
            name_case(0, "free(%zu bytes) eight times, errno %d", resizes[i], code);
            errno = code;
            for (int k = 0; k < 8; k++) free(p[k]);
            printf(" kept=%s\n", yes(errno == code));
        }
}

/* Locked pages cannot be given back: whatever the allocator tries, free reports nothing. */
static void locked_pages(void) {
    enum { BYTES = 48 << 10, ROUNDS = 4 };
    const struct timespec pause = {.tv_nsec = 600000000};
    void *p[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) {
        p[i] = malloc(BYTES);
        memset(p[i], 1, BYTES);
        (void)mlock(p[i], BYTES / 2); /* where that is refused, an easier case */
    }
    for (int i = 0; i < ROUNDS; i++) {
        name_case(0, "free(locked block %d)", i);
        free(p[i]);
        printf(" errno=%s\n", errno_word(errno));
        if (i < ROUNDS - 1) nanosleep(&pause, NULL);
    }
    name_case(0, "malloc_trim with locked pages free");
    (void)malloc_trim(0);
    printf(" alive\n");
    (void)munlockall();
}

int main(void) {
    outcome_begin();
    make_sizes();
    make_aligns();
    plain_sizes();
    nothings();
    products_calloc();
    products_resize();
    resize_grid();
    align_grid();
    free_keeps_errno();
    locked_pages();
    return fflush(stdout) == 0 ? 0 : 1;
}
