/* SPDX-License-Identifier: Apache-2.0 */
/* The unwinder against glibc's backtrace(); the parser of call frame information on every address of
 * the loaded modules, and on hand-made modules: such a module is between two guard pages, so that a
 * read outside of it ends the test, as does undefined arithmetic under the sanitizers. */
#define _GNU_SOURCE
#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"
#include "os/linux/cfi.h"
#include "os/os.h"
#include "os/unwind.h"

enum { DEPTH_MAX = 64 };

#if defined(__x86_64__)
static uint64_t ours[DEPTH_MAX];
static void *theirs[DEPTH_MAX + 4];
static size_t our_depth, their_depth;

/* The first of `theirs` is inside this function (or sanitizers' wrappers): ours begins later. */
static __attribute__((noinline)) int innermost(int mix) {
    our_depth = sw_os_unwind(SW_OS_CALLER_FRAME(), sw_os_stack_high(), ours, DEPTH_MAX, NULL);
    their_depth = (size_t)backtrace(theirs, DEPTH_MAX + 4);
    return mix + (int)our_depth;
}

static __attribute__((noinline)) int recurse(int depth, int mix) {
    volatile char room[200];
    room[depth] = (char)mix;
    return (depth == 0 ? innermost(mix) : recurse(depth - 1, mix + depth)) + room[depth];
}

static void test_chain(int depth) {
    CHECK(recurse(depth, 7) != -1);
    CHECK(our_depth > (size_t)depth + 1);
    size_t skip = 0;
    while (skip < their_depth && (uintptr_t)theirs[skip] != ours[0]) skip++;
    CHECK(skip >= 1 && skip <= 3);
    CHECK_EQ(our_depth, their_depth - skip);
    for (size_t i = 0; i < our_depth && i + skip < their_depth; i++)
        CHECK_EQ(ours[i], (uintptr_t)theirs[i + skip]);
}

/* What a walk depends on: the words that it noted are those of the stack as long as the same
 * callers are there. */
enum { SHALLOW = 4 };
static sw_os_walk known;

static __attribute__((noinline)) int ask(int again) {
    uint64_t chain[SHALLOW];
    if (again != 0) return sw_os_walk_holds(&known) ? 2 : 3;
    CHECK_EQ(sw_os_unwind(SW_OS_CALLER_FRAME(), sw_os_stack_high(), chain, SHALLOW, &known),
             SHALLOW);
    return 1;
}
static __attribute__((noinline)) int between(int again) {
    volatile int reported = ask(again);
    return reported;
}
static __attribute__((noinline)) int one_caller(int again) {
    volatile int reported = between(again);
    return reported + 10;
}
static __attribute__((noinline)) int other_caller(int again) {
    volatile int reported = between(again);
    return reported + 20;
}

static void test_walks(void) {
    static int (*const callers[])(int) = {one_caller, one_caller, other_caller, one_caller};
    const int want[] = {11, 12, 23, 12};
    for (int i = 0; i < 4; i++) CHECK_EQ(callers[i](i), want[i]);
    CHECK(known.count >= SHALLOW - 1 && known.count <= SW_OS_WORDS_MAX);
    uint64_t chain[DEPTH_MAX];
    size_t depth = sw_os_unwind(SW_OS_CALLER_FRAME(), sw_os_stack_high(), chain, 1, &known);
    CHECK(depth == 1 && known.count == 0 && !known.uses_fp);
}

static void test_bounds(void) {
    uint64_t one[4];
    sw_os_frame here = SW_OS_CALLER_FRAME();
    CHECK_EQ(sw_os_unwind(here, here.sp, one, 4, NULL), 1);
    CHECK_EQ(sw_os_unwind(here, here.sp - 64, one, 4, NULL), 1);
    CHECK_EQ(sw_os_unwind(here, sw_os_stack_high(), one, 1, NULL), 1);
    CHECK_EQ(one[0], here.pc);
    sw_os_frame nowhere = {.pc = 0x1234, .sp = here.sp, .fp = here.fp};
    CHECK_EQ(sw_os_unwind(nowhere, sw_os_stack_high(), one, 4, NULL), 1);
}

typedef struct sweep {
    uint64_t looked_up, found;
} sweep;

static bool sweep_module(const sw_os_module *module, void *arg) {
    sweep *s = arg;
    uintptr_t start, end;
    const uint8_t *hdr = sw_os_eh_frame_hdr(module->start, &start, &end);
    if (hdr == NULL) return true;
    CHECK(start <= (uintptr_t)hdr && (uintptr_t)hdr < end);
    for (uintptr_t pc = module->start; pc < module->end; pc += 7) {
        sw_cfi_rule rule;
        s->looked_up++;
        s->found += sw_cfi_find(pc, hdr, start, end, &rule);
    }
    return true;
}

/* No crash anywhere, and a rule nearly everywhere. */
static void test_every_address(void) {
    sweep s = {0, 0};
    sw_os_each_module(sweep_module, &s);
    CHECK(s.looked_up > 10000);
    CHECK(s.found > s.looked_up / 2);
}

static bool count_module(const sw_os_module *module, void *arg) {
    CHECK(module->start < module->end);
    CHECK(module->path != NULL);
    ++*(int *)arg;
    return true;
}

/* --- the parser on hand-made modules -------------------------------------------------------------- */

/* Bytes of the module, from its start: the header with its one row, then CIE, FDE, and the code
 * (of which only the addresses matter). */
enum {
    HDR_AT = 64,
    CIE_AT = 128,
    FDE_AT = 192,
    CODE_AT = 512,
    CODE_BYTES = 64,
    RULES_MAX = 40,
};

static uint8_t *module; /* one page; the pages before and after it fault */
static size_t page;

static void put32(size_t at, int64_t value) {
    int32_t narrow = (int32_t)value;
    memcpy(module + at, &narrow, sizeof narrow);
}

/* A whole module whose FDE has these instructions. data_align is a SLEB128 as bytes. */
static void make_module(const char *data_align, size_t align_bytes, const char *rules,
                        size_t bytes) {
    memset(module, 0, page);
    memcpy(module + HDR_AT, "\x01\x1B\x03\x3B", 4); /* version, eh_frame, count, table */
    put32(HDR_AT + 4, CIE_AT - (HDR_AT + 4));
    put32(HDR_AT + 8, 1);
    put32(HDR_AT + 12, CODE_AT - HDR_AT);
    put32(HDR_AT + 16, FDE_AT - HDR_AT);
    uint8_t *cie = module + CIE_AT + 8;
    memcpy(cie, "\x01zR\0\x01", 5); /* version, augmentation, code alignment */
    memcpy(cie + 5, data_align, align_bytes);
    memcpy(cie + 5 + align_bytes, "\x10\x01\x1B", 3); /* return column, 1 byte: pc-relative */
    memcpy(cie + 8 + align_bytes, "\x0C\x07\x08\x90\x01", 5); /* cfa = sp + 8; ra at cfa - 8 */
    put32(CIE_AT, 4 + 13 + (int64_t)align_bytes);
    put32(FDE_AT, 4 + 8 + 1 + (int64_t)bytes);
    put32(FDE_AT + 4, FDE_AT + 4 - CIE_AT);
    put32(FDE_AT + 8, CODE_AT - (FDE_AT + 8));
    put32(FDE_AT + 12, CODE_BYTES);
    memcpy(module + FDE_AT + 17, rules, bytes);
}

static bool find(size_t code, sw_cfi_rule *rule) {
    uintptr_t start = (uintptr_t)module;
    *rule = (sw_cfi_rule){0};
    return sw_cfi_find(start + CODE_AT + code, module + HDR_AT, start, start + page, rule);
}

/* The hand-made module is a good one: what follows fails for the reason that it says. */
static void whole_module(void) {
    sw_cfi_rule rule;
    make_module("\x78", 1, "\x44\x0E\x10\x86\x02", 5); /* after 4 bytes: cfa 16, fp at cfa - 16 */
    CHECK(find(0, &rule));
    CHECK_EQ(rule.cfa_register, SW_CFI_SP);
    CHECK_EQ((uint64_t)rule.cfa_offset, 8);
    CHECK_EQ((int)rule.fp_saved, SW_CFI_SAME);
    CHECK(find(4, &rule));
    CHECK_EQ((uint64_t)rule.cfa_offset, 16);
    CHECK_EQ((int)rule.fp_saved, SW_CFI_AT_OFFSET);
    CHECK_EQ((uint64_t)rule.fp_offset, (uint64_t)-16);
    CHECK(!find(CODE_BYTES, &rule));
}

/* --- places outside of the module ------------------------------------------------------------- */

static void entry_outside(int64_t distance) {
    sw_cfi_rule rule;
    make_module("\x78", 1, "", 0);
    put32(HDR_AT + 16, distance);
    CHECK(!find(0, &rule));
}

static void cie_outside(int64_t distance) {
    sw_cfi_rule rule;
    make_module("\x78", 1, "", 0);
    put32(FDE_AT + 4, distance);
    CHECK(!find(0, &rule));
}

static void header_outside(void) {
    sw_cfi_rule rule;
    uintptr_t start = (uintptr_t)module, end = start + page;
    make_module("\x78", 1, "", 0);
    CHECK(!sw_cfi_find(start + CODE_AT, module - 8, start, end, &rule));
    CHECK(!sw_cfi_find(start + CODE_AT, module + page, start, end, &rule));
    CHECK(!sw_cfi_find(start + CODE_AT, module + page + 8, start, end, &rule));
    CHECK(!sw_cfi_find(start + CODE_AT, module + page - 2, start, end, &rule));
}

/* Lengths and counts that pass the end. */
static void lengths_outside(void) {
    static const int64_t lengths[] = {-1, -2, INT32_MAX, 1 << 16, 0};
    sw_cfi_rule rule;
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        make_module("\x78", 1, "\x0E\x10", 2);
        put32(FDE_AT, lengths[i]);
        CHECK(!find(0, &rule));
        make_module("\x78", 1, "\x0E\x10", 2);
        put32(CIE_AT, lengths[i]);
        CHECK(!find(0, &rule));
        make_module("\x78", 1, "\x0E\x10", 2);
        put32(HDR_AT + 8, lengths[i]);
        CHECK(!find(0, &rule));
    }
}

/* --- arithmetic ------------------------------------------------------------------------------- */

/* data_align -2^63 (SLEB128), and factors that make every product overflow. */
static void overflow(void) {
    static const char lowest[] = "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7F";
    static const char *const rules[] = {
        "\x86\x03",             /* offset fp */
        "\x05\x06\x03",         /* offset_extended */
        "\x11\x06\x7D",         /* offset_extended_sf, -3 */
        "\x12\x07\x7D",         /* def_cfa_sf */
        "\x13\x7D",             /* def_cfa_offset_sf */
        "\x0C\x07\xFF\xFF\x7F", /* def_cfa */
        "\x44\x44\x44",         /* advance_loc */
    };
    sw_cfi_rule rule;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        make_module(lowest, sizeof lowest - 1, rules[i], strlen(rules[i]));
        (void)find(0, &rule);
        make_module("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\0", 10, rules[i], strlen(rules[i]));
        (void)find(0, &rule);
    }
    make_module("\x78", 1, "\x86\x03", 2);
    CHECK(find(0, &rule));
    CHECK_EQ((uint64_t)rule.fp_offset, (uint64_t)-24);
}

/* Any bytes in place of any others. */
static void noise(void) {
    uint64_t seed = 5;
    for (int round = 0; round < 200000; round++) {
        sw_cfi_rule rule;
        char rules[RULES_MAX];
        for (size_t i = 0; i < sizeof rules; i++) rules[i] = (char)check_random(&seed);
        if (round % 16 == 0) make_module("\x78", 1, rules, sizeof rules);
        uint64_t r = check_random(&seed);
        size_t at = HDR_AT + (size_t)(r % (FDE_AT + 64 - HDR_AT));
        module[at] = (uint8_t)(r >> 32);
        (void)find((size_t)(r >> 40) % CODE_BYTES, &rule);
    }
}

static bool map_module(void) {
    page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *pages = mmap(NULL, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return false;
    module = pages + page;
    return mprotect(module, page, PROT_READ | PROT_WRITE) == 0;
}

static void test_hand_made_modules(void) {
    static const int64_t distances[] = {-HDR_AT - 1, -4096,         -8192 + 1, INT32_MIN,
                                        4096,        4096 - HDR_AT, INT32_MAX, 4096 - HDR_AT - 2};
    CHECK(map_module());
    whole_module();
    for (size_t i = 0; i < sizeof distances / sizeof *distances; i++) {
        entry_outside(distances[i]);
        cie_outside(-distances[i]);
        cie_outside(distances[i]);
    }
    header_outside();
    lengths_outside();
    overflow();
    noise();
}
#endif

int main(void) {
#if defined(__x86_64__)
    int modules = 0;
    CHECK(sw_os_unwind_init(sw_os_map));
    for (int depth = 0; depth < 40; depth += 13) test_chain(depth);
    sw_os_unwind_forget();
    test_chain(5);
    test_walks();
    test_bounds();
    test_every_address();
    sw_os_each_module(count_module, &modules);
    CHECK(modules >= 2);
    CHECK_EQ(sw_os_modules_generation(), sw_os_modules_generation());
    test_hand_made_modules();
#else
    CHECK(!sw_os_unwind_init(sw_os_map));
#endif
    return check_result();
}
