/* SPDX-License-Identifier: Apache-2.0 */
/* operator new(size_t, std::align_val_t) of a recorded program. A C++ library rounds the size up to
 * a multiple of the alignment before it calls aligned_alloc, so the requested size would be lost.
 * The function here stores it and calls the next definition of the operator; its call of
 * aligned_alloc then records the stored size. The other aligned forms (arrays, nothrow) call this
 * one. */
#define _GNU_SOURCE
#include "recorder/cxx.h"

#include <dlfcn.h>
#include <malloc.h>

#include "base/fail.h"
#include "recorder/process.h"
#include "recorder/recorder.h"

static const char symbol[] = "_ZnwmSt11align_val_t";

/* --- the operator underneath ------------------------------------------------------------------ */

/* Operators of libraries that dlopen loaded with RTLD_LOCAL, as Python does with modules, by return
 * address. The search reads symbol tables, which is slow. */
enum { KNOWN_MAX = 64 };
typedef struct known_operator {
    uintptr_t caller;
    record_new_aligned *found; /* NULL: free */
    uint64_t epoch;            /* number of unloads when it was found; older entries are not used */
} known_operator;

/* A caller that finds `known_busy` set searches instead of waiting: it may be a signal handler, or
 * a fork child whose parent was in here. */
static known_operator known[KNOWN_MAX];
static uint32_t known_busy;
static uint64_t unloads;

static bool take_known(void) { return __atomic_exchange_n(&known_busy, 1, __ATOMIC_ACQUIRE) == 0; }

static void give_known(void) { __atomic_store_n(&known_busy, 0, __ATOMIC_RELEASE); }

void record_operators_forget(void) { __atomic_fetch_add(&unloads, 1, __ATOMIC_RELAXED); }

/* Finds the operator that the caller's library would have called without the recorder. */
static record_new_aligned *search(void *caller) {
    record_new_aligned *found = NULL;
    Dl_info where;
    uint32_t before = record_own_call_begin();
    if (dladdr(caller, &where) != 0 && where.dli_fname != NULL) {
        void *handle = record_real.dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        if (handle != NULL) {
            *(void **)&found = dlsym(handle, symbol);
            (void)record_real.dlclose(handle);
        }
    }
    record_own_call_end(before);
    return found;
}

static sw_noinline record_new_aligned *local_operator(void *caller) {
    uintptr_t key = (uintptr_t)caller;
    known_operator *slot = &known[key * 0x9E3779B97F4A7C15ull >> 58];
    uint64_t epoch = __atomic_load_n(&unloads, __ATOMIC_RELAXED);
    record_new_aligned *found = NULL;
    if (take_known()) {
        if (slot->caller == key && slot->epoch == epoch) found = slot->found;
        give_known();
    }
    if (found != NULL || (found = search(caller)) == NULL) return found;
    if (take_known()) {
        *slot = (known_operator){.caller = key, .found = found, .epoch = epoch};
        give_known();
    }
    return found;
}

/* Serves code that belongs to no library, such as that of a JIT compiler. */
static sw_noinline void *new_without_library(size_t size, size_t align) {
    void *p = memalign(align, size);
    if (p != NULL) return p;
    sw_emergency_print("spanwise: fatal: operator new(%u): out of memory and no C++ runtime\n",
                       (uint64_t)size);
    __builtin_trap();
}

/* --- the operator ----------------------------------------------------------------------------- */

void *record_op_new_aligned(size_t size, size_t align) __asm__("_ZnwmSt11align_val_t")
    __attribute__((visibility("default")));

/* The last call is a tail call in optimized builds, so that call stacks are those of an unrecorded
 * program. */
void *record_op_new_aligned(size_t size, size_t align) {
    record_start();
    record_new_aligned *next = record_real.new_aligned;
    if (sw_unlikely(next == NULL)) next = local_operator(__builtin_return_address(0));
    if (sw_unlikely(next == NULL)) return new_without_library(size, align);
    record_requested = (record_request){.size = size, .align = align};
    return next(size, align);
}
