/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder's cached walks, on hand-made stacks: a walk may be reused only if a new walk would
 * return the same call stack. Sites are numbered in order of appearance, so the number of each call
 * is known, and `walk_turns` counts the new walks. The code that the stacks return to is at the
 * end: the frame rules of each of its three parts are known. */
#include <sys/mman.h>

#include "check.h"
#include "os/unwind.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/python.h"
#include "recorder/site.h"
#include "recorder/state.h"
#include "recorder/thread.h"

/* --- what is underneath in the recorder ------------------------------------------------------- */

record_options record_option = {.stacks = 64};
bool record_is_stray_copy(void) { return false; }
bool record_file_put(swt_block_kind kind, const swt_buffer *payload) {
    (void)kind, (void)payload;
    return true;
}
uint8_t *record_area_sites(size_t bytes) {
    (void)bytes;
    return NULL;
}
void record_area_publish_sites(size_t used) { (void)used; }
size_t record_python_walk(record_python_frame *frames, size_t max) {
    (void)frames, (void)max;
    return 0;
}
uint64_t record_python_line(const record_python_frame *frame) { return frame->place; }
void record_python_after_fork(void) {}
void *record_map(size_t bytes) { return sw_os_map(bytes); }

/* --- code with known frames ------------------------------------------------------------------------
 * leaf:  cfa = sp + 16; the caller's fp is the same
 * based: cfa = fp + 16; the caller's fp is at cfa - 16
 * saves: cfa = sp + 32; the caller's fp is at cfa - 16
 * loses: cfa = sp + 16; the caller's fp is lost
 * below: cfa = sp + 16; the caller's fp would be below the frame
 * other: cfa = sp + 16, as the last of two rules; the first one is met nowhere else
 * An instruction is a byte long, and any of them may be one that a call returns to. */

#define CODE(name, rules)                                                                          \
    "test_walks_" name ":\n.cfi_startproc\nnop\n" rules ".fill 70000, 1, 0x90\n.cfi_endproc\n"

__asm__(".text\n" CODE("leaf", ".cfi_def_cfa_offset 16\n")
            CODE("based", ".cfi_def_cfa 6, 16\n.cfi_offset 6, -16\n")
                CODE("saves", ".cfi_def_cfa_offset 32\n.cfi_offset 6, -16\n")
                    CODE("loses", ".cfi_def_cfa_offset 16\n.cfi_undefined 6\n")
                        CODE("below", ".cfi_def_cfa_offset 16\n.cfi_offset 6, -48\n")
                            CODE("other", ".cfi_def_cfa_offset 98768\n.cfi_def_cfa_offset 16\n"));
extern const char test_walks_leaf[], test_walks_based[], test_walks_saves[], test_walks_loses[],
    test_walks_other[], test_walks_below[];

static uintptr_t leaf(int k) { return (uintptr_t)test_walks_leaf + 10 + (uintptr_t)k; }
static uintptr_t based(int k) { return (uintptr_t)test_walks_based + 10 + (uintptr_t)k; }
static uintptr_t saves(int k) { return (uintptr_t)test_walks_saves + 10 + (uintptr_t)k; }

/* --- calls ------------------------------------------------------------------------------------ */

enum { WORDS = 1024 };
static uintptr_t stack[WORDS] __attribute__((aligned(8192)));
static record_thread thread;
static uint32_t sites_known; /* how many there are */

/* The site of a call that returns to pc with the stack from word `low` on. */
static uint32_t call(uintptr_t pc, size_t low, uintptr_t fp) {
    return record_site_slow(&thread, (sw_os_frame){pc, (uintptr_t)&stack[low], fp});
}
static uintptr_t place(size_t word) { return (uintptr_t)&stack[word]; }

static void clear(void) {
    memset(stack, 0, sizeof stack);
    thread.stack_high = (uintptr_t)&stack[WORDS];
}

/* A call that is expected to be walked anew, or to be known, and to have a site of its own or an
 * earlier one. */
static void expect(uint32_t got, uint32_t site, uint32_t turns) {
    CHECK_EQ(got, site);
    CHECK_EQ(thread.walk_turns, turns);
    if (site > sites_known) sites_known = site;
}
#define KNOWN(call_, site_) expect(call_, site_, thread_turns)
#define WALKED(call_, site_) expect(call_, site_, ++thread_turns)
#define NEW(call_) WALKED(call_, sites_known + 1)
static uint32_t thread_turns;

/* --- what a walk depends on ------------------------------------------------------------------- */

/* leaf at word 0 returns by word 1, that one by word 3, and so on. */
static void return_addresses(void) {
    clear();
    stack[1] = leaf(1), stack[3] = leaf(2), stack[5] = leaf(3);
    uint32_t first = sites_known + 1;
    NEW(call(leaf(0), 0, 0));
    KNOWN(call(leaf(0), 0, 0), first);
    KNOWN(call(leaf(0), 0, 999), first); /* fp plays no part */
    stack[0] = stack[2] = stack[4] = 77; /* locals */
    KNOWN(call(leaf(0), 0, 0), first);
    for (size_t word = 1; word <= 5;
         word += 2) { /* another caller, at each depth; the old walk is kept as well */
        uintptr_t before = stack[word];
        uint32_t other = sites_known + 1;
        stack[word] = leaf(40 + (int)word);
        NEW(call(leaf(0), 0, 0));
        KNOWN(call(leaf(0), 0, 0), other);
        stack[word] = before;
        KNOWN(call(leaf(0), 0, 0), first);
    }
    stack[7] = leaf(4); /* the outermost frame is no longer one */
    NEW(call(leaf(0), 0, 0));
    stack[7] = 0;
    KNOWN(call(leaf(0), 0, 0), first);
    NEW(call(leaf(9), 0, 0)); /* another call of the same frame */
    KNOWN(call(leaf(0), 0, 0), first);
}

/* Calls from other places, with the same stack: there are many more of them than sets of walks. */
static void places(void) {
    enum { CALLS = 200 };
    clear();
    stack[1] = leaf(1);
    for (int k = 0; k < CALLS; k++) NEW(call(leaf(100 + k), 0, 0));
    for (size_t low = 4; low < 4 * CALLS; low += 4) {
        stack[low + 1] = leaf((int)low);
        NEW(call(leaf(0), low, 0));
    }
    KNOWN(call(leaf(0), 4 * CALLS - 4, 0), sites_known);
}

/* Frames of `based` are where fp says. At word 100 there are two callers' frames, and fp chooses.
 */
static void frame_pointers(void) {
    clear();
    uint32_t first = sites_known + 1;
    stack[101] = leaf(1),
    stack[111] = leaf(2); /* cfa - 8 of the frames whose fp is at word 100, 110 */
    NEW(call(based(0), 50, place(100)));
    NEW(call(based(0), 50, place(110)));
    KNOWN(call(based(0), 50, place(100)), first);
    KNOWN(call(based(0), 50, place(110)), first + 1);
    /* saves at word 200 has cfa at 204, and its caller's fp at 202; that caller is based. */
    stack[203] = based(1), stack[202] = place(300);
    stack[301] = leaf(3), stack[311] = leaf(4);
    NEW(call(saves(0), 200, place(100)));
    KNOWN(call(saves(0), 200, place(110)), first + 2); /* it saved another one, which no one uses */
    stack[202] = place(310);
    NEW(call(saves(0), 200, place(100)));
    stack[202] = place(300);
    KNOWN(call(saves(0), 200, place(100)), first + 2);
    /* leaf at word 400 keeps the register for its caller, which is based. */
    stack[401] = based(2);
    stack[501] = leaf(5), stack[511] = leaf(6);
    NEW(call(leaf(20), 400, place(500)));
    NEW(call(leaf(20), 400, place(510)));
    KNOWN(call(leaf(20), 400, place(500)), first + 4);
    /* saves at word 600 finds its caller's fp, and that one loses it: the walk ends with the next.
     */
    stack[603] = (uintptr_t)test_walks_loses + 10, stack[602] = place(700);
    stack[605] = based(3), stack[701] = leaf(7);
    uint64_t chain[8];
    const sw_os_frame from = {saves(0), place(600), 0};
    CHECK_EQ(sw_os_unwind(from, thread.stack_high, chain, 8, NULL), 3);
    const sw_os_frame below = {(uintptr_t)test_walks_below + 10, place(602), 0};
    CHECK_EQ(sw_os_unwind(below, thread.stack_high, chain, 8, NULL), 1); /* it is damaged */
    CHECK_EQ(sw_os_unwind(from, thread.stack_high, chain, 8, NULL), 3);
    CHECK(chain[0] == saves(0) && chain[1] == stack[603] && chain[2] == based(3));
}

/* MANY words are kept; of a walk that read one more nothing is known the next time. */
static void many_words(void) {
    enum { MANY = SW_OS_WORDS_MAX, LAST = 2 * MANY - 1 }; /* LAST is the place of the zero */
    clear();
    uint32_t first = sites_known + 1;
    for (size_t i = 0; i < MANY - 1; i++)
        stack[2 * i + 1] = leaf(60); /* and the zero that ends them */
    NEW(call(leaf(21), 0, 0));
    KNOWN(call(leaf(21), 0, 0), first);
    stack[LAST - 2] = leaf(61);
    NEW(call(leaf(21), 0, 0));
    stack[LAST - 2] = leaf(60);
    stack[LAST] = leaf(62);
    NEW(call(leaf(21), 0, 0));
    WALKED(call(leaf(21), 0, 0), first + 2);
    stack[LAST + 2] = leaf(63);
    NEW(call(leaf(21), 0, 0));
    for (size_t i = 0; i < 40; i++) stack[2 * i + 1] = leaf(64);
    NEW(call(leaf(21), 0, 0));
    stack[61] = leaf(65);
    NEW(call(leaf(21), 0, 0));
}

/* The end of the stack is where the thread's is; on another stack, the end of the page. */
static void ends_of_stacks(void) {
    clear();
    size_t page_words = sw_os_page_bytes() / sizeof *stack;
    for (size_t word = 1; word < WORDS; word += 2) stack[word] = leaf(30);
    stack[11] = 0;
    uint32_t first = sites_known + 1;
    NEW(call(leaf(22), 2, 0)); /* 3, 5, 7, 9 */
    thread.stack_high = place(8);
    NEW(call(leaf(22), 2, 0)); /* 3, 5, 7 */
    thread.stack_high = place(6);
    NEW(call(leaf(22), 2, 0));
    thread.stack_high = place(8);
    KNOWN(call(leaf(22), 2, 0), first + 1);
    if (page_words >= WORDS) return;
    clear();
    for (size_t word = page_words - 5; word < page_words + 4; word += 2) stack[word] = leaf(31);
    NEW(call(leaf(23), page_words - 6, 0)); /* five words */
    first = sites_known;
    thread.stack_high = 1;                  /* another thread's, or none */
    NEW(call(leaf(23), page_words - 6, 0)); /* the three of the page */
    thread.stack_high = place(page_words);  /* the same end */
    KNOWN(call(leaf(23), page_words - 6, 0), first + 1);
    thread.stack_high = place(0) + ((uintptr_t)1 << 31); /* far away: */
    KNOWN(call(leaf(23), page_words - 6, 0), first + 1);
    stack[page_words + 1] = leaf(32);
    KNOWN(call(leaf(23), page_words - 6, 0), first + 1);
    thread.stack_high = place(WORDS);
    NEW(call(leaf(23), page_words - 6, 0));
}

/* The depth of chains is what the options say. */
static void depth(void) {
    clear();
    for (size_t word = 1; word < 40; word += 2) stack[word] = leaf(70);
    record_option.stacks = 3;
    uint32_t first = sites_known + 1;
    NEW(call(leaf(24), 0, 0));
    stack[5] = leaf(71); /* the fourth address */
    KNOWN(call(leaf(24), 0, 0), first);
    stack[3] = leaf(71); /* the third */
    NEW(call(leaf(24), 0, 0));
    record_option.stacks = 64;
}

/* --- what becomes of kept walks --------------------------------------------------------------- */

/* A set keeps the latest eight walks of a frame. */
static void turns(void) {
    clear();
    uint32_t first = sites_known + 1;
    for (int k = 0; k < 8; k++) {
        stack[1] = leaf(80 + k);
        NEW(call(leaf(25), 0, 0));
    }
    for (int k = 0; k < 8; k++) {
        stack[1] = leaf(80 + k);
        KNOWN(call(leaf(25), 0, 0), first + (uint32_t)k);
    }
    stack[1] = leaf(88);
    NEW(call(leaf(25), 0, 0)); /* takes the place of the oldest */
    stack[1] = leaf(81);
    KNOWN(call(leaf(25), 0, 0), first + 1);
    stack[1] = leaf(80);
    WALKED(call(leaf(25), 0, 0), first);
}

/* After dlclose other code may have the addresses; in a fork child the sites are counted from 1
 * again. */
static void forgotten(void) {
    clear();
    stack[1] = leaf(1);
    NEW(call(leaf(26), 0, 0));
    uint32_t site = sites_known;
    record_sites_forget_walks();
    WALKED(call(leaf(26), 0, 0), site);
    KNOWN(call(leaf(26), 0, 0), site);
    stack[1] = leaf(2);
    NEW(call(leaf(26), 0, 0));
    record_sites_after_fork();
    sites_known = 0;
    NEW(call(leaf(26), 0, 0));
    CHECK_EQ(sites_known, 1);
    stack[1] = leaf(1);
    NEW(call(leaf(26), 0, 0));
    stack[1] = leaf(2);
    KNOWN(call(leaf(26), 0, 0), 1);
}

/* Changes the second rule of `other` to 32, as if other code had come to its addresses. */
static void change_rule(void) {
    static const uint8_t rules[] = {0x0E, 0xD0, 0x83, 0x06, 0x0E, 16}; /* 98768 in base 128 */
    uintptr_t start, end, page = sw_os_page_bytes();
    const uint8_t *hdr = sw_os_eh_frame_hdr((uintptr_t)test_walks_other + 9, &start, &end);
    int32_t to_frames; /* from the word itself */
    CHECK(hdr != NULL);
    if (hdr == NULL) return;
    memcpy(&to_frames, hdr + 4, sizeof to_frames);
    uint8_t *found = (uint8_t *)(uintptr_t)(hdr + 4 + to_frames),
            *last = (uint8_t *)end - sizeof rules;
    while (found < last && memcmp(found, rules, sizeof rules) != 0) found++;
    CHECK(found < last);
    if (found >= last) return;
    CHECK_EQ(mprotect((void *)((uintptr_t)found & ~(page - 1)), 2 * page, PROT_READ | PROT_WRITE),
             0);
    found[5] = 32;
}

/* After dlclose no rule is used that was learned before. */
static void rules_forgotten(void) {
    uint64_t chain[8];
    clear();
    stack[1] = leaf(1), stack[3] = leaf(2);
    const sw_os_frame from = {(uintptr_t)test_walks_other + 10, place(0), 0};
    CHECK_EQ(sw_os_unwind(from, thread.stack_high, chain, 8, NULL), 3);
    CHECK(chain[1] == leaf(1) && chain[2] == leaf(2));
    change_rule();
    sw_os_unwind_forget();
    CHECK_EQ(sw_os_unwind(from, thread.stack_high, chain, 8, NULL), 2);
    CHECK(chain[1] == leaf(2));
}

/* The table of rules has a row for several addresses, which are not taken for each other: calls
 * from every byte of 70,000 of each part, by turns, give chains of the right depth. */
static void rows(void) {
    uint64_t addresses[4];
    clear();
    stack[1] = stack[3] =
        leaf(1); /* of a leaf, of which cfa is at word 2, and of saves, at word 4 */
    for (int k = 0; k < 60000; k += 1) {
        CHECK_EQ(sw_os_unwind((sw_os_frame){leaf(k), place(0), 0}, place(4), addresses, 4, NULL),
                 3);
        CHECK_EQ(sw_os_unwind((sw_os_frame){saves(k), place(0), 0}, place(4), addresses, 4, NULL),
                 2);
    }
}

int main(void) {
    if (!record_sites_init() || record_option.stacks == 1) return 1;
    return_addresses();
    places();
    frame_pointers();
    many_words();
    ends_of_stacks();
    depth();
    turns();
    forgotten();
    rules_forgotten();
    rows();
    return check_result();
}
