/* SPDX-License-Identifier: Apache-2.0 */
/* The stack walk of unwind.h, and its table of rules.
 *
 * A rule is one 64-bit word, so that readers and writers need no lock:
 *
 *   63            33 32 31 30      14 13         0
 *   [ tag of the pc ][kind][ cfa / 8 ][ fp slot   ]
 *
 * A return address has 47 bits. It is multiplied by an odd number modulo 2^47, which is a
 * bijection: different addresses have different products. The upper 16 bits of the product choose
 * the row, and the lower 31 bits are the tag, so the same tag in a row means the same address. cfa
 * = (sp or fp) + 8 * field. fp slot: 0: fp is unchanged; 1: fp is lost; otherwise fp is saved at
 * cfa - 8 * slot.
 */
#define _GNU_SOURCE
#include "os/unwind.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/attributes.h"
#include "os/linux/cfi.h"
#include "os/modules.h"
#include "os/os.h"

enum {
    ROW_BITS = 16,
    PC_BITS = 47,
    TAG_BITS = PC_BITS - ROW_BITS,
    KIND_SHIFT = 31,
    CFA_SHIFT = 14,
    CFA_MAX = (1 << 17) - 1,
    FP_SLOT_MAX = (1 << CFA_SHIFT) - 1,
    FP_SAME = 0,
    FP_LOST = 1,
};

typedef enum rule_kind {
    RULE_STOP = 0, /* the outermost frame, or one whose caller cannot be found */
    RULE_SP = 1,
    RULE_FP = 2,
} rule_kind;

static uint64_t *rules; /* 1 << ROW_BITS words; 0: an empty row */

extern void *__libc_stack_end __attribute__((weak)); /* top of the first thread's stack */

bool sw_os_unwind_init(void *(*map)(size_t bytes)) {
#if defined(__x86_64__)
    sw_os_modules_init();
    rules = map(sizeof *rules << ROW_BITS);
#else
    (void)map;
#endif
    return rules != NULL;
}

void sw_os_unwind_forget(void) {
    if (rules == NULL) return;
    for (size_t i = 0; i < (size_t)1 << ROW_BITS; i++)
        if (__atomic_load_n(&rules[i], __ATOMIC_RELAXED) != 0)
            __atomic_store_n(&rules[i], 0, __ATOMIC_RELAXED);
}

/* --- rules ------------------------------------------------------------------------------------ */

/* Packs a rule into a word, without its tag. */
static uint64_t pack(const sw_cfi_rule *rule) {
    int64_t cfa = rule->cfa_offset;
    if (rule->outermost || cfa < 8 || cfa % 8 != 0 || cfa / 8 > CFA_MAX) return RULE_STOP;
    uint64_t fp_slot = FP_SAME;
    if (rule->fp_saved != SW_CFI_SAME) {
        uint64_t below = 0 - (uint64_t)rule->fp_offset;
        bool fits = rule->fp_saved == SW_CFI_AT_OFFSET && below >= 16 && below % 8 == 0 &&
                    below / 8 <= FP_SLOT_MAX;
        fp_slot = fits ? below / 8 : FP_LOST;
    }
    uint64_t kind = rule->cfa_register == SW_CFI_FP ? RULE_FP : RULE_SP;
    return kind << KIND_SHIFT | (uint64_t)(cfa / 8) << CFA_SHIFT | fp_slot;
}

static sw_cold uint64_t learn(uintptr_t pc) {
    uintptr_t start, end;
    const uint8_t *hdr = sw_os_eh_frame_hdr(pc - 1, &start, &end);
    sw_cfi_rule rule;
    if (hdr == NULL || !sw_cfi_find(pc - 1, hdr, start, end, &rule)) return RULE_STOP;
    return pack(&rule);
}

static uint64_t rule_of(uintptr_t pc) {
    uint64_t mixed = (pc * 0x9E3779B97F4A7C15ull) & ((1ull << PC_BITS) - 1);
    uint64_t *row = &rules[mixed >> TAG_BITS];
    uint64_t tag = mixed & ((1ull << TAG_BITS) - 1);
    uint64_t word = __atomic_load_n(row, __ATOMIC_RELAXED);
    if (sw_unlikely(word >> (64 - TAG_BITS) != tag || word == 0)) {
        word = learn(pc) | tag << (64 - TAG_BITS);
        __atomic_store_n(row, word, __ATOMIC_RELAXED);
    }
    return word;
}

/* --- the walk --------------------------------------------------------------------------------- */

/* The state of a walk. fp_at: where frame.fp was saved on the stack; NULL: it has been in the
 * register since the start. */
typedef struct climb {
    sw_os_frame frame;
    bool fp_known;
    const uintptr_t *fp_at;
    sw_os_walk *walk; /* NULL: no words are recorded */
} climb;

static void note(const climb *c, const uintptr_t *at) {
    sw_os_walk *walk = c->walk;
    if (walk == NULL || walk->count > SW_OS_WORDS_MAX) return;
    if (walk->count < SW_OS_WORDS_MAX)
        walk->words[walk->count] = (struct sw_os_stack_word){at, *at};
    walk->count++;
}

/* Records the frame pointer, or the stack word from which it was read, because the caller's frame
 * depends on it. Most functions only save the register, with any value in it, so a saved value is
 * recorded only when it is used. */
static void note_fp(const climb *c) {
    if (c->fp_at != NULL)
        note(c, c->fp_at);
    else if (c->walk != NULL)
        c->walk->uses_fp = true;
}

/* Steps to the caller's frame. False: there is no caller, or it cannot be found. */
static bool step(climb *c, uintptr_t stack_high) {
    sw_os_frame *frame = &c->frame;
    uint64_t word = rule_of(frame->pc);
    rule_kind kind = (rule_kind)(word >> KIND_SHIFT & 3);
    if (kind == RULE_STOP || (kind == RULE_FP && !c->fp_known)) return false;
    if (kind == RULE_FP) note_fp(c);
    uintptr_t cfa = (kind == RULE_FP ? frame->fp : frame->sp) + (word >> CFA_SHIFT & CFA_MAX) * 8;
    if (cfa <= frame->sp || cfa > stack_high || cfa % 8 != 0) return false;
    uint64_t fp_slot = word & FP_SLOT_MAX;
    if (fp_slot == FP_LOST) {
        c->fp_known = false;
    } else if (fp_slot != FP_SAME) {
        uintptr_t saved = cfa - fp_slot * 8;
        if (saved < frame->sp) return false;
        c->fp_at = (const uintptr_t *)saved;
        frame->fp = *c->fp_at;
        c->fp_known = true;
    }
    note(c, (const uintptr_t *)(cfa - 8));
    frame->pc = *(const uintptr_t *)(cfa - 8);
    frame->sp = cfa;
    return frame->pc > 0xFFF && frame->pc >> PC_BITS == 0;
}

size_t sw_os_unwind(sw_os_frame from, uintptr_t stack_high, uint64_t *addresses, size_t max,
                    sw_os_walk *walk) {
    size_t count = 0;
    climb c = {.frame = from, .fp_known = true, .walk = walk};
    if (walk != NULL) {
        walk->count = 0;
        walk->uses_fp = false;
    }
    addresses[count++] = from.pc;
    if (rules == NULL || from.sp >= stack_high || from.pc >> PC_BITS != 0) return count;
    while (count < max && step(&c, stack_high)) addresses[count++] = c.frame.pc;
    return count;
}

uintptr_t sw_os_stack_high(void) {
    if (sw_os_thread_id() == sw_os_process_id() && &__libc_stack_end != NULL)
        return (uintptr_t)__libc_stack_end;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return 0;
    void *low = NULL;
    size_t bytes = 0;
    int failed = pthread_attr_getstack(&attributes, &low, &bytes);
    (void)pthread_attr_destroy(&attributes);
    return failed != 0 ? 0 : (uintptr_t)low + bytes;
}
