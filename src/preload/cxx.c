/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ operators new and delete of libspanwise-malloc.so. They are C functions with the names of
 * the Itanium ABI, so that the library needs no C++ runtime. The functions of a C++ runtime that
 * they need (the new handler, bad_alloc) are looked up in the program when needed.
 *
 * A nothrow operator without memory calls the same operator of the C++ runtime, which calls the
 * throwing operator inside a try block, because C has no such block. Sizes passed to delete are
 * checked only in guarded heaps, because many working programs delete an object through a pointer
 * to another type.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "base/base.h"
#include "preload/malloc.h"

#if SIZE_MAX != UINT64_MAX
#error "the operator names below spell size_t as unsigned long"
#endif

#define OPERATOR(symbol) __asm__(symbol) __attribute__((visibility("default")))

typedef void new_handler(void);

/* Calls std::get_new_handler()(). False: there is no handler. */
static bool call_new_handler(void) {
    new_handler *(*get)(void);
    *(void **)&get = dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv");
    new_handler *handler = get == NULL ? NULL : get();
    if (handler == NULL) return false;
    handler();
    return true;
}

/* Calls std::__throw_bad_alloc(). A program without a C++ runtime, which does not normally call
 * operator new, cannot throw and is aborted. */
_Noreturn static void throw_bad_alloc(size_t size) {
    void (*throw_it)(void);
    *(void **)&throw_it = dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    if (throw_it != NULL) throw_it();
    sw_emergency_print("spanwise: fatal: operator new(%u): out of memory and no C++ runtime\n",
                       (uint64_t)size);
    __builtin_trap();
}

static sw_noinline void *retry(size_t size, size_t align, unsigned flags) {
    for (;;) {
        if (!call_new_handler()) throw_bad_alloc(size);
        void *p = align == 0 ? preload_allocate(size, flags)
                             : preload_allocate_aligned(size, align, flags);
        if (p != NULL) return p;
    }
}

static sw_always_inline void *new_object(size_t size, unsigned flags) {
    void *p = preload_allocate(size, flags);
    return sw_likely(p != NULL) ? p : retry(size, 0, flags);
}

/* The new handler is not called for an alignment that is not a power of two, because freeing memory
 * would not help. */
static void *new_aligned(size_t size, size_t align, unsigned flags) {
    void *p = preload_allocate_aligned(size, align, flags);
    if (sw_likely(p != NULL)) return p;
    if (!sw_is_pow2(align)) throw_bad_alloc(size);
    return retry(size, align, flags);
}

void *sw_op_new(size_t size) OPERATOR("_Znwm");
void *sw_op_new_array(size_t size) OPERATOR("_Znam");
void *sw_op_new_aligned(size_t size, size_t align) OPERATOR("_ZnwmSt11align_val_t");
void *sw_op_new_array_aligned(size_t size, size_t align) OPERATOR("_ZnamSt11align_val_t");

void *sw_op_new(size_t size) { return new_object(size, PRELOAD_NEW); }
void *sw_op_new_array(size_t size) { return new_object(size, PRELOAD_NEW_ARRAY); }
void *sw_op_new_aligned(size_t size, size_t align) { return new_aligned(size, align, PRELOAD_NEW); }
void *sw_op_new_array_aligned(size_t size, size_t align) {
    return new_aligned(size, align, PRELOAD_NEW_ARRAY);
}

/* --- nothrow ---------------------------------------------------------------------------------- */

/* `tag` is the reference to std::nothrow, which is not read. */
typedef void *nothrow_new(size_t size, const void *tag);
typedef void *nothrow_new_aligned(size_t size, size_t align, const void *tag);

static sw_noinline void *runtime_new(const char *name, size_t size, const void *tag) {
    nothrow_new *next;
    *(void **)&next = dlsym(RTLD_NEXT, name);
    return next == NULL ? NULL : next(size, tag);
}

static sw_noinline void *runtime_new_aligned(const char *name, size_t size, size_t align,
                                             const void *tag) {
    nothrow_new_aligned *next;
    *(void **)&next = dlsym(RTLD_NEXT, name);
    return next == NULL ? NULL : next(size, align, tag);
}

void *sw_op_new_nothrow(size_t size, const void *tag) OPERATOR("_ZnwmRKSt9nothrow_t");
void *sw_op_new_array_nothrow(size_t size, const void *tag) OPERATOR("_ZnamRKSt9nothrow_t");
void *sw_op_new_aligned_nothrow(size_t size, size_t align, const void *tag)
    OPERATOR("_ZnwmSt11align_val_tRKSt9nothrow_t");
void *sw_op_new_array_aligned_nothrow(size_t size, size_t align, const void *tag)
    OPERATOR("_ZnamSt11align_val_tRKSt9nothrow_t");

void *sw_op_new_nothrow(size_t size, const void *tag) {
    void *p = preload_allocate(size, PRELOAD_NEW);
    return sw_likely(p != NULL) ? p : runtime_new("_ZnwmRKSt9nothrow_t", size, tag);
}

void *sw_op_new_array_nothrow(size_t size, const void *tag) {
    void *p = preload_allocate(size, PRELOAD_NEW_ARRAY);
    return sw_likely(p != NULL) ? p : runtime_new("_ZnamRKSt9nothrow_t", size, tag);
}

void *sw_op_new_aligned_nothrow(size_t size, size_t align, const void *tag) {
    void *p = preload_allocate_aligned(size, align, PRELOAD_NEW);
    return p != NULL ? p
                     : runtime_new_aligned("_ZnwmSt11align_val_tRKSt9nothrow_t", size, align, tag);
}

void *sw_op_new_array_aligned_nothrow(size_t size, size_t align, const void *tag) {
    void *p = preload_allocate_aligned(size, align, PRELOAD_NEW_ARRAY);
    return p != NULL ? p
                     : runtime_new_aligned("_ZnamSt11align_val_tRKSt9nothrow_t", size, align, tag);
}

/* --- delete ----------------------------------------------------------------------------------- */

void sw_op_delete(void *ptr) OPERATOR("_ZdlPv");
void sw_op_delete_array(void *ptr) OPERATOR("_ZdaPv");
void sw_op_delete_sized(void *ptr, size_t size) OPERATOR("_ZdlPvm");
void sw_op_delete_array_sized(void *ptr, size_t size) OPERATOR("_ZdaPvm");

void sw_op_delete(void *ptr) { preload_release(ptr, "delete"); }
void sw_op_delete_array(void *ptr) { preload_release(ptr, "delete[]"); }
void sw_op_delete_sized(void *ptr, size_t size) { preload_release_sized(ptr, size, "delete"); }
void sw_op_delete_array_sized(void *ptr, size_t size) {
    preload_release_sized(ptr, size, "delete[]");
}

/* The other forms have further arguments after these, an alignment or std::nothrow, which do not
 * matter. So they are other names of the same functions. */
#define ALSO(function, symbol, of)                                                                 \
    void function(void *ptr) OPERATOR(symbol) __attribute__((alias(of)))
#define ALSO_SIZED(function, symbol, of)                                                           \
    void function(void *ptr, size_t size) OPERATOR(symbol) __attribute__((alias(of)))

ALSO(sw_op_delete_aligned, "_ZdlPvSt11align_val_t", "_ZdlPv");
ALSO(sw_op_delete_nothrow, "_ZdlPvRKSt9nothrow_t", "_ZdlPv");
ALSO(sw_op_delete_aligned_nothrow, "_ZdlPvSt11align_val_tRKSt9nothrow_t", "_ZdlPv");
ALSO(sw_op_delete_array_aligned, "_ZdaPvSt11align_val_t", "_ZdaPv");
ALSO(sw_op_delete_array_nothrow, "_ZdaPvRKSt9nothrow_t", "_ZdaPv");
ALSO(sw_op_delete_array_aligned_nothrow, "_ZdaPvSt11align_val_tRKSt9nothrow_t", "_ZdaPv");
ALSO_SIZED(sw_op_delete_both, "_ZdlPvmSt11align_val_t", "_ZdlPvm");
ALSO_SIZED(sw_op_delete_array_both, "_ZdaPvmSt11align_val_t", "_ZdaPvm");
