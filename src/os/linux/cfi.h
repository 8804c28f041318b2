/* SPDX-License-Identifier: Apache-2.0 */
/* Call frame information: from a return address to the rule that finds the caller's frame. Reads
 * .eh_frame_hdr and .eh_frame (LSB 5.0 core, "Exception Frames"; DWARF 4, section 6.4). Private to
 * the unwinder.
 */
#ifndef SW_OS_LINUX_CFI_H
#define SW_OS_LINUX_CFI_H

#include <stdbool.h>
#include <stdint.h>

/* DWARF numbers of x86-64: rbp, rsp, return address. */
enum { SW_CFI_FP = 6, SW_CFI_SP = 7, SW_CFI_RA = 16 };

typedef enum sw_cfi_saved {
    SW_CFI_SAME = 0,      /* the register was not touched */
    SW_CFI_AT_OFFSET = 1, /* saved at cfa + offset */
    SW_CFI_LOST = 2,      /* computed some other way: unknown from here on */
} sw_cfi_saved;

/* cfa = register + offset; the return address is at cfa - 8. */
typedef struct sw_cfi_rule {
    int64_t cfa_offset;
    int64_t fp_offset; /* where fp_saved is AT_OFFSET */
    uint32_t cfa_register;
    sw_cfi_saved fp_saved;
    bool outermost; /* the return address is undefined: no caller */
} sw_cfi_rule;

/* pc: an address inside the calling instruction (return address minus 1). hdr: the module's
 * .eh_frame_hdr; nothing outside of [module_start, module_end) is read. False: no entry for pc, or one that uses
 * something unusual (expressions, other registers). */
bool sw_cfi_find(uintptr_t pc, const uint8_t *hdr, uintptr_t module_start, uintptr_t module_end,
                 sw_cfi_rule *out);

#endif
