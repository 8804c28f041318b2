/* SPDX-License-Identifier: Apache-2.0 */
/* The unwinder against glibc's backtrace(), and the parser on every address of the loaded
 * modules. */
#define _GNU_SOURCE
#include <execinfo.h>

#include "check.h"
#include "os/linux/cfi.h"
#include "os/modules.h"
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
#else
    CHECK(!sw_os_unwind_init(sw_os_map));
#endif
    return check_result();
}
