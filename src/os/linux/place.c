/* SPDX-License-Identifier: Apache-2.0 */
/* Places (os.h): chosen addresses, mapped piece by piece. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#include "base/bits.h"
#include "os/os.h"

/* Places of about the same length share a part of the address space, which is divided into slots.
 * The ends of the parts are given in sixteenths of it: programs and their heaps are above two
 * thirds, and the system puts mappings below the stack, which is at the top, or above one third if
 * the stack is unlimited. */
typedef struct place_kind {
    uint32_t log2; /* bytes of a slot */
    uint32_t slots, sixteenths;
} place_kind;

static const place_kind kinds[] = {{30, 2048, 12}, {SW_OS_PLACE_LOG2, 1024, 13}};
enum {
    KINDS = sizeof kinds / sizeof *kinds,
    LONG_SLOTS = 4,
    LONG_SIXTEENTHS = 14,
    LONGEST_LOG2 = 44
};

/* The address is a hint, which the system follows unless something is mapped there. (Under
 * ThreadSanitizer MAP_FIXED_NOREPLACE would end the process where only an address is refused.) */
sw_os_mapped sw_os_map_at(void *p, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    int saved_errno = errno; /* the caller may succeed elsewhere */
    void *there = mmap(p, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (there != MAP_FAILED && there != p) (void)munmap(there, bytes);
    errno = saved_errno;
    if (there == p) return SW_OS_MAPPED;
    return there == MAP_FAILED ? SW_OS_REFUSED : SW_OS_OCCUPIED;
}

bool sw_os_unmap_at(void *p, size_t bytes) { return munmap(p, bytes) == 0; }

/* Finds an unused slot, downwards from the one below `end`, starting with the `first`th, and takes
 * it by mapping its first bytes. Returns its number; kind.slots: none is free, or the system
 * refused. */
static uint32_t take_slot(place_kind kind, uintptr_t end, uint32_t first, size_t ready,
                          void **out) {
    uintptr_t top = (uintptr_t)sw_align_down(end, (uintptr_t)1 << kind.log2);
    for (uint32_t i = 0; i < kind.slots; i++) {
        uint32_t slot = (first + i) % kind.slots;
        uintptr_t below = (uintptr_t)(slot + 1) << kind.log2;
        if (top <= below) continue;
        *out = (void *)(top - below);
        sw_os_mapped mapped = sw_os_map_at(*out, ready);
        if (mapped == SW_OS_MAPPED) return slot;
        if (mapped == SW_OS_REFUSED) break;
    }
    return kind.slots;
}

/* If a process may not map the usual part, as under ThreadSanitizer, its places are not far below
 * the stack. The part that served last is tried first, because thousands of slots may be refused
 * before the other one is. */
void *sw_os_place(size_t bytes, size_t ready) {
    static uint32_t next[KINDS + 1];   /* atomic: the slot where the search begins */
    static uint32_t served[KINDS + 1]; /* atomic: the part that served last */
    uint32_t log2 = sw_log2_ceil(bytes), k = 0;
    if (log2 > LONGEST_LOG2) return NULL;
    while (k < KINDS && log2 > kinds[k].log2) k++;
    place_kind kind = {log2, LONG_SLOTS, LONG_SIXTEENTHS};
    if (k < KINDS) kind = kinds[k];
    uintptr_t stack = (uintptr_t)getauxval(AT_RANDOM);
    uintptr_t ends[] = {stack / 16 * kind.sixteenths, stack - ((uintptr_t)4 << kind.log2)};
    void *place = NULL;
    uint32_t begin = __atomic_load_n(&served[k], __ATOMIC_RELAXED);
    for (uint32_t turn = 0; turn < 2; turn++) {
        uint32_t i = begin ^ turn;
        if (ends[i] > stack) continue; /* wrapped round */
        uint32_t first = __atomic_load_n(&next[k], __ATOMIC_RELAXED);
        uint32_t slot = take_slot(kind, ends[i], first, ready, &place);
        if (slot == kind.slots) continue;
        __atomic_store_n(&next[k], (slot + 1) % kind.slots, __ATOMIC_RELAXED);
        __atomic_store_n(&served[k], i, __ATOMIC_RELAXED);
        return place;
    }
    return NULL;
}
