/* SPDX-License-Identifier: Apache-2.0 */
/* The C++ operators of libspanwise-malloc.so, under their Itanium ABI names, so that the library needs
 * no C++ runtime of its own. What only a C++ runtime has (the new handler, bad_alloc) is looked up in
 * the program when it is needed.
 *
 * The nothrow forms are left to libstdc++: they call these inside a try block, which C can not
 * write. Sizes given to delete are not checked: many working programs delete through another type.
 */
#define _GNU_SOURCE
#include <dlfcn.h>

#include "base/bits.h"
#include "base/fail.h"
#include "spanwise/heap.h"

#if SIZE_MAX != UINT64_MAX
#error "the operator names below spell size_t as unsigned long"
#endif

#define OPERATOR(symbol) __asm__(symbol) __attribute__((visibility("default")))

typedef void new_handler(void);

/* std::get_new_handler()(): true when there was one to call. */
static bool call_new_handler(void) {
    new_handler *(*get)(void);
    *(void **)&get = dlsym(RTLD_DEFAULT, "_ZSt15get_new_handlerv");
    new_handler *handler = get == NULL ? NULL : get();
    if (handler == NULL) return false;
    handler();
    return true;
}

/* std::__throw_bad_alloc(); a program without a C++ runtime has no business here. */
_Noreturn static void throw_bad_alloc(size_t size) {
    void (*throw_it)(void);
    *(void **)&throw_it = dlsym(RTLD_DEFAULT, "_ZSt17__throw_bad_allocv");
    if (throw_it != NULL) throw_it();
    sw_emergency_print("spanwise: fatal: operator new(%u): out of memory and no C++ runtime\n",
                       (uint64_t)size);
    __builtin_trap();
}

static sw_noinline void *retry(size_t size, size_t align) {
    for (;;) {
        if (!call_new_handler()) throw_bad_alloc(size);
        void *p = align == 0 ? sw_malloc(size) : sw_aligned_alloc(align, size);
        if (p != NULL) return p;
    }
}

static inline void *new_object(size_t size) {
    void *p = sw_malloc(size);
    return sw_likely(p != NULL) ? p : retry(size, 0);
}

static void *new_aligned(size_t size, size_t align) {
    void *p = sw_aligned_alloc(align, size);
    return sw_likely(p != NULL) ? p : retry(size, align);
}

void *sw_op_new(size_t size) OPERATOR("_Znwm");
void *sw_op_new_array(size_t size) OPERATOR("_Znam");
void *sw_op_new_aligned(size_t size, size_t align) OPERATOR("_ZnwmSt11align_val_t");
void *sw_op_new_array_aligned(size_t size, size_t align) OPERATOR("_ZnamSt11align_val_t");
void sw_op_delete(void *p) OPERATOR("_ZdlPv");
void sw_op_delete_array(void *p) OPERATOR("_ZdaPv");
void sw_op_delete_sized(void *p, size_t size) OPERATOR("_ZdlPvm");
void sw_op_delete_array_sized(void *p, size_t size) OPERATOR("_ZdaPvm");
void sw_op_delete_aligned(void *p, size_t align) OPERATOR("_ZdlPvSt11align_val_t");
void sw_op_delete_array_aligned(void *p, size_t align) OPERATOR("_ZdaPvSt11align_val_t");
void sw_op_delete_both(void *p, size_t size, size_t align) OPERATOR("_ZdlPvmSt11align_val_t");
void sw_op_delete_array_both(void *p, size_t size, size_t align) OPERATOR("_ZdaPvmSt11align_val_t");

void *sw_op_new(size_t size) { return new_object(size); }
void *sw_op_new_array(size_t size) { return new_object(size); }
void *sw_op_new_aligned(size_t size, size_t align) { return new_aligned(size, align); }
void *sw_op_new_array_aligned(size_t size, size_t align) { return new_aligned(size, align); }
void sw_op_delete(void *p) { sw_free(p); }
void sw_op_delete_array(void *p) { sw_free(p); }

void sw_op_delete_sized(void *p, size_t size) {
    (void)size;
    sw_free(p);
}

void sw_op_delete_array_sized(void *p, size_t size) {
    (void)size;
    sw_free(p);
}

void sw_op_delete_aligned(void *p, size_t align) {
    (void)align;
    sw_free(p);
}

void sw_op_delete_array_aligned(void *p, size_t align) {
    (void)align;
    sw_free(p);
}

void sw_op_delete_both(void *p, size_t size, size_t align) {
    (void)size;
    (void)align;
    sw_free(p);
}

void sw_op_delete_array_both(void *p, size_t size, size_t align) {
    (void)size;
    (void)align;
    sw_free(p);
}
