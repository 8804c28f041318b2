/* SPDX-License-Identifier: Apache-2.0 */
/* Status and misuse names, the thread's last error, the fault handler, the fatal lines. */
#include <setjmp.h>

#include "base/base.h"
#include "dying_words.h"

#define STATUS_PAIR(name, text) {SW_##name, #name, text},
#define MISUSE_PAIR(name, text) {SW_MISUSE_##name, #name, text},

static void names(void) {
    static const struct {
        sw_status status;
        const char *name, *text;
    } statuses[] = {SW_STATUS_LIST(STATUS_PAIR)};
    static const struct {
        sw_misuse misuse;
        const char *name, *text;
    } misuses[] = {SW_MISUSE_LIST(MISUSE_PAIR)};
    for (size_t i = 0; i < SW_STATUS_COUNT; i++) {
        CHECK_EQ(statuses[i].status, i);
        CHECK_STR(sw_status_name((sw_status)i), statuses[i].name);
        CHECK_STR(sw_status_text((sw_status)i), statuses[i].text);
    }
    for (size_t i = 0; i < SW_MISUSE_COUNT; i++) {
        CHECK_EQ(misuses[i].misuse, i);
        CHECK_STR(sw_misuse_name((sw_misuse)i), misuses[i].name);
        CHECK_STR(sw_misuse_text((sw_misuse)i), misuses[i].text);
    }
    CHECK_EQ(SW_OK, 0);
    CHECK_STR(sw_status_name(SW_STATUS_COUNT), "unknown");
    CHECK_STR(sw_status_text((sw_status)12345), "unknown");
    CHECK_STR(sw_misuse_name(SW_MISUSE_COUNT), "unknown");
    CHECK_STR(sw_misuse_text((sw_misuse)12345), "unknown");
}

static void last_error(void) {
    sw_clear_error();
    CHECK_EQ(sw_last_error()->status, SW_OK);
    CHECK_STR(sw_last_error()->op, "");
    CHECK_STR(sw_last_error()->message, "");
    CHECK_EQ(sw_fail(SW_LIMIT, "grow", "heap %u: %d bytes", 7u, -1), SW_LIMIT);
    CHECK_EQ(sw_last_error()->status, SW_LIMIT);
    CHECK_STR(sw_last_error()->op, "grow");
    CHECK_STR(sw_last_error()->message, "heap 7: -1 bytes");
    CHECK_EQ(sw_last_error()->fault.code, SW_MISUSE_NONE);
    char text[1000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    (void)sw_fail(SW_IO, "write", "%s", text); /* cut, not overrun */
    CHECK(strlen(sw_last_error()->message) < 400);
    CHECK(sw_last_error()->message[0] == 'x');
    sw_clear_error();
    CHECK_EQ(sw_last_error()->status, SW_OK);
}

static sw_fault seen;
static int calls;

static sw_fault_action go_on(const sw_fault *fault, void *arg) {
    seen = *fault;
    calls += *(int *)arg;
    return SW_FAULT_LEAK_AND_CONTINUE;
}

static sw_fault_action give_up(const sw_fault *fault, void *arg) {
    (void)fault;
    (void)arg;
    return SW_FAULT_ABORT;
}

static const sw_fault example = {.code = SW_MISUSE_INTERIOR,
                                 .op = "realloc",
                                 .ptr = (const void *)(uintptr_t)0xABCDE,
                                 .size = 48,
                                 .heap_id = 3,
                                 .thread = 12345};

static void handler(void) {
    int step = 2;
    sw_set_fault_handler(go_on, &step);
    sw_misuse_report(&example);
    CHECK_EQ(calls, 2);
    CHECK_EQ(seen.code, SW_MISUSE_INTERIOR);
    CHECK(seen.ptr == example.ptr);
    CHECK_EQ(sw_last_error()->fault.code, SW_MISUSE_INTERIOR);
    CHECK_EQ(sw_last_error()->fault.size, 48);
    CHECK_STR(sw_last_error()->op, "realloc");
    sw_set_fault_handler(NULL, NULL);
}

/* --- handlers that misuse something themselves ------------------------------------------------ */

static sw_fault nested;

/* Misuses another pointer, then, in that report's handler, the first one again. */
static sw_fault_action go_round(const sw_fault *fault, void *arg) {
    calls++;
    nested = *fault;
    nested.ptr = (const char *)fault->ptr + (calls % 2 == 0 ? -8 : 8);
    if (calls < *(int *)arg) sw_misuse_report(&nested);
    return SW_FAULT_LEAK_AND_CONTINUE;
}

/* Told of once: without an end to it the stack would overflow, by SIGSEGV. */
static void report_for_ever(void) {
    int most = INT32_MAX;
    sw_set_fault_handler(go_round, &most);
    sw_misuse_report(&example);
}

static void handlers_that_misuse(void) {
    char text[DYING_WORDS_MAX];
    int most = 2;
    calls = 0;
    sw_set_fault_handler(go_round, &most);
    sw_misuse_report(&example); /* another pointer: reported, too */
    CHECK_EQ(calls, 2);
    calls = 0;
    sw_misuse_report(&example); /* the handler has returned: reported again */
    CHECK_EQ(calls, 2);
    sw_set_fault_handler(NULL, NULL);
    calls = 0;
    dying_words(report_for_ever, text);
    CHECK_STR(text, "spanwise: fatal: INTERIOR op=realloc ptr=0xabcde size=48 heap=3 thread=12345\n"
                    "spanwise: pointer is inside an object, not at its start\n");
}

static jmp_buf outside;

static sw_fault_action jump_out(const sw_fault *fault, void *arg) {
    (void)fault;
    calls += *(int *)arg;
    longjmp(outside, 1);
}

/* `depth` frames deeper than the caller. */
static sw_noinline int report_deep(int depth) {
    volatile char frame[200];
    memset((void *)(uintptr_t)frame, depth, sizeof frame);
    if (depth == 0) sw_misuse_report(&example);
    return depth == 0 ? frame[0] : report_deep(depth - 1) + frame[1];
}

/* A report that the handler jumped out of is over: the same pointer is reported again, from
 * wherever it is misused. */
static void handlers_that_jump(void) {
    static const int depths[] = {3, 3, 0, 8, 1, 20, 20, 2};
    static volatile size_t i;
    int step = 1;
    calls = 0;
    sw_set_fault_handler(jump_out, &step);
    for (i = 0; i < sizeof depths / sizeof *depths; i++) {
        if (setjmp(outside) == 0) (void)report_deep(depths[i]);
        CHECK_EQ(calls, i + 1);
    }
    sw_set_fault_handler(NULL, NULL);
}

/* --- what goes to fd 2 before an abort -------------------------------------------------------- */

static void report(void) { sw_misuse_report(&example); }
static void report_refused(void) {
    sw_set_fault_handler(give_up, NULL);
    sw_misuse_report(&example);
}
static void failed_assert(void) { sw_assert_failed("x == y", "file.c", 12); }
static void just_print(void) {
    sw_emergency_print("%s|%u|%x|%p|%%|%u\n", "text", UINT64_MAX, (uint64_t)0xDEADBEEF, NULL,
                       (uint64_t)0);
    raise(SIGABRT);
}

static void check_dying_words(void (*fn)(void), const char *want) {
    char text[DYING_WORDS_MAX];
    dying_words(fn, text);
    CHECK_STR(text, want);
}

static void bit_tricks(void) {
    CHECK_EQ(sw_low_mask(0), 0);
    CHECK_EQ(sw_low_mask(63), UINT64_MAX >> 1);
    CHECK_EQ(sw_low_mask(64), UINT64_MAX);
    for (uint32_t k = 0; k < 63; k++) {
        uint64_t x = 1ull << k;
        CHECK_EQ(sw_log2_ceil(x), k);
        CHECK_EQ(sw_log2_floor(x), k);
        CHECK(sw_is_pow2(x));
        if (k > 1) CHECK_EQ(sw_log2_ceil(x + 1), k + 1);
        if (k > 1) CHECK_EQ(sw_log2_ceil(x - 1), k);
        if (k > 1) CHECK_EQ(sw_log2_floor(x - 1), k - 1);
        if (k > 1) CHECK(!sw_is_pow2(x + 1));
        CHECK_EQ(sw_ctz(x), k);
        CHECK_EQ(sw_clz(x), 63 - k);
        CHECK_EQ(sw_align_up(x + 1, x), 2 * x);
        CHECK_EQ(sw_align_down(2 * x - 1, x), x);
    }
    CHECK(!sw_is_pow2(0));
    CHECK_EQ(sw_div_up(10, 4), 3);
    CHECK_EQ(sw_div_up(12, 4), 3);
    size_t product;
    CHECK(sw_mul_overflow(SIZE_MAX, 2, &product));
    CHECK(!sw_mul_overflow(SIZE_MAX, 1, &product) && product == SIZE_MAX);
}

int main(void) {
    names();
    last_error();
    handler();
    handlers_that_misuse();
    handlers_that_jump();
    bit_tricks();
    const char *words =
        "spanwise: fatal: INTERIOR op=realloc ptr=0xabcde size=48 heap=3 thread=12345\n"
        "spanwise: pointer is inside an object, not at its start\n";
    check_dying_words(report, words);
    check_dying_words(report_refused, words);
    check_dying_words(failed_assert, "spanwise: fatal: ASSERT x == y at file.c:12\n");
    check_dying_words(just_print, "text|18446744073709551615|deadbeef|0x0|%|0\n");
    return check_result();
}
