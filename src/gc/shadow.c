/* SPDX-License-Identifier: Apache-2.0 */
/* A frame is filled in before it becomes the top, so the stack is always consistent. */
#include "gc/shadow.h"

#include "base/assert.h"
#include "base/fail.h"
#include "ds/handle.h"
#include "gc/stop.h"
#include "os/os.h"

#define MARK offsetof(sw_gc_shadow, mark)

/* Returns the field `depth` of a frame: its depth in the lower half, and in the upper half a sum of
 * the depth and the fields that a cycle reads. A frame is in the program's memory, which may be
 * overwritten. */
static uint64_t seal_of(const sw_gc_frame *frame, uint64_t depth) {
    uint64_t sum = (uintptr_t)frame->below * UINT64_C(0x9E3779B97F4A7C15) +
                   (uintptr_t)frame->start * UINT64_C(0xC2B2AE3D27D4EB4F) +
                   frame->bytes * UINT64_C(0x165667B19E3779F9) +
                   (uint32_t)depth * UINT64_C(0xD6E8FEB86659FD93);
    return (sum & UINT64_C(0xFFFFFFFF00000000)) | (uint32_t)depth;
}
static uint32_t depth_of(const sw_gc_frame *frame) { return (uint32_t)frame->depth; }

/* Returns whether the frame is on the stack and unchanged since its push. */
static bool is_whole(const sw_gc_shadow *shadow, const sw_gc_frame *frame) {
    return frame->shadow == shadow && frame->depth == seal_of(frame, depth_of(frame));
}

const char *sw_gc_shadow_check(const sw_gc_shadow *shadow) {
    return SW_RULE((shadow->top == NULL) == (shadow->depth == 0))
        ?: SW_RULE(shadow->top == NULL || shadow->top->shadow == shadow)
        ?: SW_RULE(shadow->top == NULL || depth_of(shadow->top) == shadow->depth)
        ?: SW_RULE(*shadow->back == shadow);
}

static void set_top(sw_gc_shadow *shadow, sw_gc_frame *top) {
    shadow->depth = top != NULL ? depth_of(top) : 0;
    __atomic_store_n(&shadow->top, top, __ATOMIC_RELEASE);
}

/* --- frames ----------------------------------------------------------------------------------- */

/* Enters a call that only the thread that created the stack may make. */
static sw_always_inline sw_status enter(const sw_gc_shadow *shadow, const char *op) {
    sw_status status = sw_handle_status(shadow, MARK, SW_HANDLE_SHADOW, op);
    if (status != SW_OK) return status;
    if (sw_likely(shadow->thread == sw_gc_here())) return SW_OK;
    return sw_fail(SW_STATE, op, "the stack belongs to another thread");
}

static sw_noinline sw_status refuse_words(const void *start, size_t bytes) {
    return sw_fail(SW_INVALID, "gc_shadow_push", "%zu bytes at %p are not aligned words", bytes,
                   start);
}

static sw_noinline sw_status refuse_damaged(const char *op, const sw_gc_frame *frame) {
    return sw_fail(SW_STATE, op, "the frame at %p was overwritten since it was pushed",
                   (const void *)frame);
}

sw_status sw_gc_shadow_push(sw_gc_shadow *shadow, sw_gc_frame *frame, const void *start,
                            size_t bytes) {
    const char *op = "gc_shadow_push";
    sw_status status = enter(shadow, op);
    if (status != SW_OK) return status;
    if (frame == NULL) return sw_fail(SW_INVALID, op, "the frame is NULL");
    if (start == NULL || (uintptr_t)start % sizeof(uintptr_t) != 0 || bytes < sizeof(uintptr_t))
        return refuse_words(start, bytes);
    if (frame->shadow != NULL)
        return sw_fail(SW_STATE, op, "the frame is on a stack, or was not zeroed before");
    *frame = (sw_gc_frame){.below = shadow->top, .shadow = shadow, .start = start, .bytes = bytes};
    frame->depth = seal_of(frame, shadow->depth + 1);
    set_top(shadow, frame);
    return SW_OK;
}

sw_status sw_gc_shadow_pop(sw_gc_shadow *shadow, sw_gc_frame *frame) {
    const char *op = "gc_shadow_pop";
    sw_status status = enter(shadow, op);
    if (status != SW_OK) return status;
    if (frame == NULL || frame != shadow->top)
        return sw_fail(SW_STATE, op, "the frame at %p is not the one that was pushed last",
                       (void *)frame);
    if (!is_whole(shadow, frame)) return refuse_damaged(op, frame);
    set_top(shadow, frame->below);
    frame->shadow = NULL;
    return SW_OK;
}

sw_status sw_gc_shadow_cut(sw_gc_shadow *shadow, sw_gc_frame *frame) {
    const char *op = "gc_shadow_cut";
    sw_status status = enter(shadow, op);
    if (status != SW_OK) return status;
    if (frame != NULL && (!is_whole(shadow, frame) || depth_of(frame) > shadow->depth))
        return sw_fail(SW_STATE, op, "the frame at %p is not on the stack", (void *)frame);
    set_top(shadow, frame);
    return SW_OK;
}

/* --- what cycles read ------------------------------------------------------------------------- */

static bool visit_frames(const sw_gc_shadow *shadow, sw_gc_root_visit visit, void *arg) {
    size_t depth = shadow->depth;
    for (const sw_gc_frame *frame = shadow->top; frame != NULL; frame = frame->below, depth--) {
        if (!is_whole(shadow, frame) || depth_of(frame) != (uint32_t)depth) return false;
        visit(arg, frame->start, frame->bytes);
    }
    return true;
}

bool sw_gc_shadows_visit(const sw_gc *gc, sw_gc_root_visit visit, void *arg) {
    bool whole = true;
    for (const sw_gc_shadow *shadow = gc->shadows; shadow != NULL; shadow = shadow->next)
        whole = visit_frames(shadow, visit, arg) && whole;
    return whole;
}

void sw_gc_shadows_drop_own(sw_gc *gc) {
    sw_os_lock_acquire(&gc->lock);
    for (sw_gc_shadow *shadow = gc->shadows; shadow != NULL; shadow = shadow->next)
        if (shadow->thread == sw_gc_here()) set_top(shadow, NULL);
    sw_os_lock_release(&gc->lock);
}

void sw_gc_shadows_forked(sw_gc *gc) {
    for (sw_gc_shadow *shadow = gc->shadows; shadow != NULL; shadow = shadow->next)
        if (shadow->thread != sw_gc_here()) set_top(shadow, NULL);
}

/* --- life ------------------------------------------------------------------------------------- */

/* Under the lock of a live collector. */
static void link(sw_gc *gc, sw_gc_shadow *shadow) {
    shadow->next = gc->shadows;
    shadow->back = &gc->shadows;
    if (shadow->next != NULL) shadow->next->back = &shadow->next;
    gc->shadows = shadow;
}

static void unlink(sw_gc_shadow *shadow) {
    sw_check2(sw_gc_shadow_check(shadow));
    *shadow->back = shadow->next;
    if (shadow->next != NULL) shadow->next->back = shadow->back;
}

sw_status sw_gc_shadow_create(sw_gc *gc, sw_gc_shadow **out) {
    const char *op = "gc_shadow_create";
    sw_status status = SW_GC_STATUS(gc, op);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail(SW_INVALID, op, "out is NULL");
    sw_gc_shadow *shadow = sw_os_map(sizeof *shadow);
    if (shadow == NULL) return sw_fail(SW_NOMEM, op, "no memory for a shadow stack");
    shadow->gc = gc;
    shadow->thread = sw_gc_here();
    sw_os_lock_acquire(&gc->lock);
    link(gc, shadow);
    sw_os_lock_release(&gc->lock);
    sw_handle_begin(&shadow->mark, SW_HANDLE_SHADOW);
    *out = shadow;
    return SW_OK;
}

sw_status sw_gc_shadow_destroy(sw_gc_shadow *shadow) {
    const char *op = "gc_shadow_destroy";
    if (shadow == NULL) return SW_OK;
    sw_status status = sw_handle_status(shadow, MARK, SW_HANDLE_SHADOW, op);
    if (status != SW_OK) return status;
    sw_gc *gc = shadow->gc;
    if (!sw_handle_try_end(&shadow->mark, SW_HANDLE_SHADOW))
        return sw_handle_refuse(shadow, MARK, SW_HANDLE_SHADOW, op);
    sw_os_lock_acquire(&gc->lock);
    unlink(shadow);
    sw_os_lock_release(&gc->lock);
    sw_handle_retire(shadow, sizeof *shadow, sizeof *shadow, SW_HANDLE_SHADOW);
    return SW_OK;
}

void sw_gc_shadows_end(sw_gc *gc) {
    for (sw_gc_shadow *shadow = gc->shadows, *next; shadow != NULL; shadow = next) {
        next = shadow->next;
        sw_handle_end(&shadow->mark, SW_HANDLE_SHADOW);
        sw_handle_retire(shadow, sizeof *shadow, sizeof *shadow, SW_HANDLE_SHADOW);
    }
    gc->shadows = NULL;
}
