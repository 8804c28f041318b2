/* SPDX-License-Identifier: Apache-2.0 */
/* Call frame information: finds the rule that computes the caller's frame for a return address.
 * Reads .eh_frame_hdr and .eh_frame (LSB 5.0 core, "Exception Frames"; DWARF 4, section 6.4). Used
 * only by the unwinder.
 */
#ifndef SW_OS_LINUX_CFI_H
#define SW_OS_LINUX_CFI_H

#include <stdbool.h>
#include <stdint.h>

/* DWARF register numbers of x86-64: rbp, rsp, return address. */
enum { SW_CFI_FP = 6, SW_CFI_SP = 7, SW_CFI_RA = 16 };

typedef enum sw_cfi_saved {
    SW_CFI_SAME = 0,      /* the register is unchanged */
    SW_CFI_AT_OFFSET = 1, /* saved at cfa + offset */
    SW_CFI_LOST = 2,      /* computed in another way: the value is unknown */
} sw_cfi_saved;

/* cfa = value of cfa_register + cfa_offset. The return address is at cfa - 8. */
typedef struct sw_cfi_rule {
    int64_t cfa_offset;
    int64_t fp_offset; /* if fp_saved is AT_OFFSET */
    uint32_t cfa_register;
    sw_cfi_saved fp_saved;
    bool outermost; /* the return address is undefined: there is no caller */
} sw_cfi_rule;

/* pc: an address inside the calling instruction (return address minus 1). hdr: the module's
 * .eh_frame_hdr. Nothing outside [module_start, module_end) is read. False: there is no entry
 * for pc, or it uses a form that is not supported (expressions, other registers). */
bool sw_cfi_find(uintptr_t pc, const uint8_t *hdr, uintptr_t module_start, uintptr_t module_end,
                 sw_cfi_rule *out);

#endif
