/* SPDX-License-Identifier: Apache-2.0 */
/* Parser of .eh_frame_hdr and .eh_frame; see cfi.h. Every read is bounded by the end of the module
 * or of the entry, and unknown data leads to "no rule". Arithmetic on numbers of the file is modulo
 * 2^64, so that no value causes undefined behaviour. */
#include "os/linux/cfi.h"

#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* --- a bounded reader ------------------------------------------------------------------------- */

typedef struct cursor {
    const uint8_t *at, *end;
    bool bad; /* a read went past the end; it and all later ones returned 0 */
} cursor;

static void take(cursor *c, void *out, size_t bytes) {
    memset(out, 0, bytes);
    if ((size_t)(c->end - c->at) < bytes) {
        c->bad = true;
        c->at = c->end;
        return;
    }
    memcpy(out, c->at, bytes);
    c->at += bytes;
}

static uint8_t take_u8(cursor *c) {
    uint8_t value;
    take(c, &value, sizeof value);
    return value;
}

static uint32_t take_u32(cursor *c) {
    uint32_t value;
    take(c, &value, sizeof value);
    return value;
}

static uint64_t take_uleb(cursor *c) {
    uint64_t value = 0;
    for (unsigned shift = 0;; shift += 7) {
        uint8_t byte = take_u8(c);
        if (shift < 64) value |= (uint64_t)(byte & 0x7F) << shift;
        if ((byte & 0x80) == 0) return value;
    }
}

static int64_t take_sleb(cursor *c) {
    uint64_t value = 0;
    for (unsigned shift = 0;;) {
        uint8_t byte = take_u8(c);
        if (shift < 64) value |= (uint64_t)(byte & 0x7F) << shift;
        shift += 7;
        if ((byte & 0x80) == 0) {
            if (shift < 64 && (byte & 0x40) != 0) value |= ~0ull << shift;
            return (int64_t)value;
        }
    }
}

/* Returns an offset that is stored divided by data_align. */
static int64_t scaled(uint64_t factor, int64_t data_align) {
    return (int64_t)(factor * (uint64_t)data_align);
}

static void skip(cursor *c, uint64_t bytes) {
    if (bytes > (uint64_t)(c->end - c->at)) {
        c->bad = true;
        c->at = c->end;
    } else {
        c->at += bytes;
    }
}

/* --- encoded pointers ------------------------------------------------------------------------- */

enum {
    ENC_FORMAT = 0x0F,
    ENC_ABSPTR = 0x00,
    ENC_UDATA2 = 0x02,
    ENC_UDATA4 = 0x03,
    ENC_UDATA8 = 0x04,
    ENC_SDATA2 = 0x0A,
    ENC_SDATA4 = 0x0B,
    ENC_SDATA8 = 0x0C,
    ENC_RELATIVE = 0x70,
    ENC_PCREL = 0x10,
    ENC_INDIRECT = 0x80,
    ENC_OMIT = 0xFF,
    ENC_DATAREL_SDATA4 = 0x3B,
    ENC_PCREL_SDATA4 = 0x1B,
};

/* Reads the value without adding its base. Sets bad for an unknown format. */
static uint64_t take_format(cursor *c, uint8_t encoding) {
    int16_t s2;
    int32_t s4;
    uint64_t u8;
    uint16_t u2;
    switch (encoding & ENC_FORMAT) {
    case ENC_ABSPTR:
    case ENC_UDATA8:
    case ENC_SDATA8: take(c, &u8, sizeof u8); return u8;
    case ENC_UDATA4: return take_u32(c);
    case ENC_UDATA2: take(c, &u2, sizeof u2); return u2;
    case ENC_SDATA4: take(c, &s4, sizeof s4); return (uint64_t)(int64_t)s4;
    case ENC_SDATA2: take(c, &s2, sizeof s2); return (uint64_t)(int64_t)s2;
    default: c->bad = true; return 0;
    }
}

static uint64_t take_pointer(cursor *c, uint8_t encoding) {
    uint64_t place = (uint64_t)(uintptr_t)c->at;
    uint64_t value = take_format(c, encoding);
    if ((encoding & ENC_INDIRECT) != 0) c->bad = true;
    if ((encoding & ENC_RELATIVE) == ENC_PCREL) return value + place;
    if ((encoding & ENC_RELATIVE) != 0) c->bad = true;
    return value;
}

/* --- finding the entry ------------------------------------------------------------------------ */

/* The addresses to which the module is mapped: [start, end). */
typedef struct module {
    uintptr_t start, end;
} module;

/* Returns the address at a distance from another one. NULL: it is outside the module. */
static const uint8_t *at_distance(const uint8_t *from, int64_t distance, const module *in) {
    uintptr_t to = (uintptr_t)from + (uintptr_t)distance;
    return to >= in->start && to < in->end ? (const uint8_t *)to : NULL;
}

typedef struct hdr_row {
    int32_t start, entry; /* relative to the .eh_frame_hdr */
} hdr_row;

/* Returns the entry of the last row in the search table that starts at or below pc. Only the form
 * that linkers write is supported: version 1, a sorted table of pairs of 32-bit offsets. */
static const uint8_t *find_fde(uintptr_t pc, const uint8_t *hdr, const module *in) {
    if ((uintptr_t)hdr < in->start || (uintptr_t)hdr >= in->end) return NULL;
    cursor c = {.at = hdr, .end = (const uint8_t *)in->end};
    uint8_t head[4];
    take(&c, head, sizeof head);
    if (head[0] != 1 || head[3] != ENC_DATAREL_SDATA4 || head[1] == ENC_OMIT) return NULL;
    (void)take_format(&c, head[1]);
    uint64_t rows = take_format(&c, head[2]);
    if (c.bad || rows == 0 || rows > (uint64_t)(c.end - c.at) / sizeof(hdr_row)) return NULL;
    int64_t target = (int64_t)(pc - (uintptr_t)hdr);
    size_t low = 0, high = (size_t)rows;
    hdr_row row = {0, 0};
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        memcpy(&row, c.at + middle * sizeof row, sizeof row);
        if (row.start <= target) {
            low = middle;
        } else {
            high = middle;
        }
    }
    memcpy(&row, c.at + low * sizeof row, sizeof row);
    return row.start <= target ? at_distance(hdr, row.entry, in) : NULL;
}

typedef struct cie {
    uint64_t code_align;
    int64_t data_align;
    uint8_t pointer_encoding;
    bool augmented; /* its entries have augmentation data */
    cursor program;
} cie;

/* Finds the body of an entry, after its length word. False: there is no entry, or it is the end
 * marker or has the 64-bit form. */
static bool open_entry(const uint8_t *entry, const module *in, cursor *body) {
    if (entry == NULL) return false;
    *body = (cursor){.at = entry, .end = (const uint8_t *)in->end};
    uint32_t length = take_u32(body);
    if (length == 0 || length == UINT32_MAX || length > (uint64_t)(body->end - body->at))
        return false;
    body->end = body->at + length;
    return !body->bad;
}

/* Reads the data of each letter in the augmentation string. False: a letter is unknown, or it marks
 * a signal frame, whose pc is not a return address. */
static bool read_augmentation(const char *letters, cursor *c, cie *out) {
    for (; *letters != '\0'; letters++) {
        switch (*letters) {
        case 'z':
            out->augmented = true;
            (void)take_uleb(c);
            break;
        case 'R': out->pointer_encoding = take_u8(c); break;
        case 'L': (void)take_u8(c); break;
        case 'P': (void)take_format(c, take_u8(c)); break;
        default: return false;
        }
    }
    return !c->bad;
}

static bool read_cie(const uint8_t *entry, const module *in, cie *out) {
    cursor c;
    if (!open_entry(entry, in, &c) || take_u32(&c) != 0) return false;
    uint8_t version = take_u8(&c);
    if (version != 1 && version != 3) return false;
    const char *letters = (const char *)c.at;
    while (take_u8(&c) != 0) {
    }
    out->code_align = take_uleb(&c);
    out->data_align = take_sleb(&c);
    uint64_t return_column = version == 1 ? take_u8(&c) : take_uleb(&c);
    out->augmented = false;
    out->pointer_encoding = ENC_ABSPTR;
    if (c.bad || return_column != SW_CFI_RA || !read_augmentation(letters, &c, out)) return false;
    out->program = c;
    return true;
}

/* --- the program ------------------------------------------------------------------------------ */

enum { REMEMBERED_MAX = 8 };

typedef struct machine {
    sw_cfi_rule rule, initial, remembered[REMEMBERED_MAX];
    uint64_t pc, code_align;
    int64_t data_align;
    uint32_t depth;
    bool cfa_known, failed;
} machine;

static void set_saved(machine *m, uint64_t reg, sw_cfi_saved saved, int64_t offset) {
    if (reg == SW_CFI_FP) {
        m->rule.fp_saved = saved;
        m->rule.fp_offset = offset;
    } else if (reg == SW_CFI_RA && (saved != SW_CFI_AT_OFFSET || offset != -8)) {
        m->failed = true;
    }
}

static void restore(machine *m, uint64_t reg) {
    if (reg == SW_CFI_FP) {
        m->rule.fp_saved = m->initial.fp_saved;
        m->rule.fp_offset = m->initial.fp_offset;
    } else if (reg == SW_CFI_RA) {
        m->rule.outermost = m->initial.outermost;
    }
}

static void set_cfa(machine *m, uint64_t reg, int64_t offset) {
    m->rule.cfa_register = (uint32_t)reg;
    m->rule.cfa_offset = offset;
    m->cfa_known = reg == SW_CFI_FP || reg == SW_CFI_SP;
}

static void skip_block(cursor *c) { skip(c, take_uleb(c)); }

static void undefine(machine *m, uint64_t reg) {
    if (reg == SW_CFI_RA) {
        m->rule.outermost = true;
    } else {
        set_saved(m, reg, SW_CFI_LOST, 0);
    }
}

static void remember(machine *m) {
    if (m->depth == REMEMBERED_MAX) {
        m->failed = true;
    } else {
        m->remembered[m->depth++] = m->rule;
    }
}

/* Restores the saved row, including the CFA rule, as gcc expects. */
static void recall(machine *m) {
    if (m->depth == 0) {
        m->failed = true;
    } else {
        m->rule = m->remembered[--m->depth];
        set_cfa(m, m->rule.cfa_register, m->rule.cfa_offset);
    }
}

/* Executes instructions of DWARF 4, table 7.23, and the two GNU ones that x86-64 compilers emit. */
static void run_cfa(machine *m, cursor *c, uint8_t op) {
    uint64_t reg;
    switch (op) {
    case 0x0C:
        reg = take_uleb(c);
        set_cfa(m, reg, (int64_t)take_uleb(c));
        break;
    case 0x0D: set_cfa(m, take_uleb(c), m->rule.cfa_offset); break;
    case 0x0E: m->rule.cfa_offset = (int64_t)take_uleb(c); break;
    case 0x0F:
        m->cfa_known = false;
        skip_block(c);
        break;
    case 0x12:
        reg = take_uleb(c);
        set_cfa(m, reg, scaled((uint64_t)take_sleb(c), m->data_align));
        break;
    case 0x13: m->rule.cfa_offset = scaled((uint64_t)take_sleb(c), m->data_align); break;
    default: m->failed = true; break;
    }
}

static void run_register(machine *m, cursor *c, uint8_t op) {
    uint64_t reg;
    switch (op) {
    case 0x05:
        reg = take_uleb(c);
        set_saved(m, reg, SW_CFI_AT_OFFSET, scaled(take_uleb(c), m->data_align));
        break;
    case 0x06: restore(m, take_uleb(c)); break;
    case 0x07: undefine(m, take_uleb(c)); break;
    case 0x08: set_saved(m, take_uleb(c), SW_CFI_SAME, 0); break;
    case 0x09:
        set_saved(m, take_uleb(c), SW_CFI_LOST, 0);
        (void)take_uleb(c);
        break;
    case 0x10:
    case 0x16:
        set_saved(m, take_uleb(c), SW_CFI_LOST, 0);
        skip_block(c);
        break;
    case 0x11:
        reg = take_uleb(c);
        set_saved(m, reg, SW_CFI_AT_OFFSET, scaled((uint64_t)take_sleb(c), m->data_align));
        break;
    case 0x14:
        set_saved(m, take_uleb(c), SW_CFI_LOST, 0);
        (void)take_uleb(c);
        break;
    case 0x15:
        set_saved(m, take_uleb(c), SW_CFI_LOST, 0);
        (void)take_sleb(c);
        break;
    default: run_cfa(m, c, op); break;
    }
}

static void run_extended(machine *m, cursor *c, uint8_t op) {
    uint16_t u2;
    switch (op) {
    case 0x00: break;                                      /* nop */
    case 0x02: m->pc += take_u8(c) * m->code_align; break; /* advance_loc1 */
    case 0x03:
        take(c, &u2, sizeof u2);
        m->pc += u2 * m->code_align;
        break;
    case 0x04: m->pc += take_u32(c) * m->code_align; break;
    case 0x0A: remember(m); break;
    case 0x0B: recall(m); break;
    case 0x2E: (void)take_uleb(c); break; /* GNU_args_size */
    default: run_register(m, c, op); break;
    }
}

/* Runs the program until the row of `target` is complete or the program ends. */
static void run(machine *m, cursor *c, uint64_t target) {
    while (c->at < c->end && !m->failed && !c->bad && m->pc <= target) {
        uint8_t op = take_u8(c);
        uint64_t low = op & 0x3F;
        switch (op & 0xC0) {
        case 0x40: m->pc += low * m->code_align; break; /* advance_loc */
        case 0x80: set_saved(m, low, SW_CFI_AT_OFFSET, scaled(take_uleb(c), m->data_align)); break;
        case 0xC0: restore(m, low); break;
        default: run_extended(m, c, op); break;
        }
    }
}

bool sw_cfi_find(uintptr_t pc, const uint8_t *hdr, uintptr_t module_start, uintptr_t module_end,
                 sw_cfi_rule *out) {
    const module in = {module_start, module_end};
    cursor fde;
    cie common;
    if (!open_entry(find_fde(pc, hdr, &in), &in, &fde)) return false;
    const uint8_t *id_place = fde.at;
    uint32_t cie_distance = take_u32(&fde);
    if (cie_distance == 0 ||
        !read_cie(at_distance(id_place, -(int64_t)cie_distance, &in), &in, &common))
        return false;
    uint64_t start = take_pointer(&fde, common.pointer_encoding);
    uint64_t bytes = take_format(&fde, common.pointer_encoding);
    if (common.augmented) skip_block(&fde);
    if (fde.bad || pc < start || pc - start >= bytes) return false;

    machine m = {.pc = 0, .code_align = common.code_align, .data_align = common.data_align};
    run(&m, &common.program, UINT64_MAX);
    m.initial = m.rule;
    m.pc = start;
    run(&m, &fde, pc);
    if (m.failed || common.program.bad || fde.bad) return false;
    *out = m.rule;
    return m.rule.outermost || m.cfa_known;
}
