/* SPDX-License-Identifier: Apache-2.0 */
/* C prelude of the extension spanwise._spanwise. scripts/ffi_cdef.py declares to Python what it
 * includes and defines. */
#include <spanwise/spanwise.h>

#include "lessons/lesson.h"
#include "service/service.h"

/* A finalizer that only stores its object, so that C never calls into Python. */
static void sw_note_finalized(void *object, void *arg) { *(void **)arg = object; }

/* --- numpy's memory in an arena --------------------------------------------------------------- */

/* numpy's PyDataMem_Handler, version 1 (NEP 49: "Data allocation strategies in NumPy"). */
typedef struct sw_numpy_handler {
    char name[127];
    unsigned char version;
    void *arena;
    void *(*alloc)(void *arena, size_t size);
    void *(*zeros)(void *arena, size_t count, size_t size);
    void *(*resize)(void *arena, void *data, size_t size);
    void (*release)(void *arena, void *data, size_t size);
} sw_numpy_handler;

/* The size of an array's data precedes it, for a later change of the size. */
static void *sw_numpy_new(void *arena, size_t size, unsigned flags) {
    if (size > PTRDIFF_MAX) return NULL;
    size_t *head = (size_t *)sw_arena_alloc((sw_arena *)arena, size + 16, 16, flags);
    if (head == NULL) return NULL;
    *head = size;
    return head + 2;
}

static void *sw_numpy_alloc(void *arena, size_t size) { return sw_numpy_new(arena, size, 0); }

static void *sw_numpy_zeros(void *arena, size_t count, size_t size) {
    if (size != 0 && count > PTRDIFF_MAX / size) return NULL;
    return sw_numpy_new(arena, count * size, SW_ZERO);
}

static void *sw_numpy_resize(void *arena, void *data, size_t size) {
    if (data == NULL) return sw_numpy_alloc(arena, size);
    size_t *head = (size_t *)data - 2;
    if (size <= *head) {
        *head = size;
        return data;
    }
    void *moved = sw_numpy_alloc(arena, size);
    if (moved != NULL) memcpy(moved, data, *head);
    return moved;
}

/* The arena frees it. */
static void sw_numpy_release(void *arena, void *data, size_t size) {
    (void)arena;
    (void)data;
    (void)size;
}

static void sw_numpy_handler_init(sw_numpy_handler *handler, sw_arena *arena, const char *name) {
    memset(handler, 0, sizeof *handler);
    for (int i = 0; i < 126 && name[i] != 0; i++) handler->name[i] = name[i];
    handler->version = 1;
    handler->arena = arena;
    handler->alloc = sw_numpy_alloc;
    handler->zeros = sw_numpy_zeros;
    handler->resize = sw_numpy_resize;
    handler->release = sw_numpy_release;
}

/* The destructor of a handler's capsule, which numpy destroys after the last array. The context is
 * a Python object. */
static void sw_numpy_drop(void *capsule) {
#ifdef Py_PYTHON_H
    Py_XDECREF((PyObject *)PyCapsule_GetContext((PyObject *)capsule));
#endif
    (void)capsule;
}
