/* SPDX-License-Identifier: Apache-2.0 */
/* The malloc family of the recorder: each function calls the real one and records one event. The
 * stamp of an allocation is taken after it returned, and that of a free before it begins, so that
 * in the order of stamps no address is allocated before it was freed. errno is that of the real
 * function. */
#define _GNU_SOURCE

#include <string.h>

#include "base/base.h"
#include "recorder/memory.h"
#include "recorder/recorder.h"

/* --- the way in and out ----------------------------------------------------------------------- */

/* Returns the record of the thread, in its calling phase. NULL: the call is not recorded. */
static sw_always_inline record_thread *enter(void) {
    record_thread *thread = record_self;
    if (sw_unlikely(thread == NULL || thread->phase != RECORD_IDLE)) thread = record_enter_slow();
    if (sw_likely(thread != NULL)) record_set_phase(thread, RECORD_CALLING);
    return thread;
}

static sw_always_inline void leave(record_thread *thread) {
    record_set_phase(thread, RECORD_IDLE);
    if (sw_unlikely(record_self == NULL)) record_leave_slow(thread);
}

/* --- events ----------------------------------------------------------------------------------- */

static sw_noinline void slow_alloc(record_thread *thread, swt_raw_kind kind, uint64_t stamp,
                                   uint64_t ticks, const void *p, size_t size, uint32_t align_log2,
                                   uint32_t site) {
    record_event event = {.kind = RECORD_ALLOC,
                          .raw_kind = kind,
                          .stamp = stamp,
                          .ticks = ticks,
                          .address = (uintptr_t)p,
                          .size = size,
                          .align_log2 = align_log2,
                          .site = site};
    record_slow_put(thread, &event);
}

static sw_always_inline void count_bytes(record_thread *thread, const void *p, size_t size) {
    thread->unmarked += size;
    if (sw_unlikely(thread->unmarked >= RECORD_LARGE_BYTES))
        record_thread_allocated(thread, p, size);
}

static sw_always_inline void note_alloc(record_thread *thread, swt_raw_kind kind, const void *p,
                                        size_t size, uint32_t align_log2, sw_os_frame frame) {
    if (!record_sample(thread, p, size)) return;
    uint64_t stamp = record_stamp(), ticks = record_ticks(thread);
    record_set_phase(thread, RECORD_WRITING);
    uint32_t site = record_site(thread, frame);
    if (sw_unlikely(record_gate != 0 || !swt_raw_alloc(&thread->raw, kind, stamp, ticks,
                                                       (uintptr_t)p, size, align_log2, site)))
        slow_alloc(thread, kind, stamp, ticks, p, size, align_log2, site);
    count_bytes(thread, p, size);
}

static sw_noinline void slow_free(record_thread *thread, uint64_t stamp, uint64_t ticks,
                                  const void *p, uint32_t site) {
    record_event event = {
        .kind = RECORD_FREE, .stamp = stamp, .ticks = ticks, .address = (uintptr_t)p, .site = site};
    record_slow_put(thread, &event);
}

/* Whether glibc may have mapped the object: it is then 16 bytes into pages of its own, and the word
 * before it has their bytes with bit 1 set. */
static sw_always_inline bool is_mapped(const void *p) {
    return (uintptr_t)p % 4096 == 16 && (((const size_t *)p)[-1] & 4095) == 2;
}

/* False: glibc did not map the object. */
static sw_noinline bool before_unmap(const void *p) {
    record_threads_read_memory(false);
    return record_memory_unmark_mapped(p);
}

/* Events of frees have no call site, because studies are about where objects are allocated. */
static sw_always_inline void put_free(record_thread *thread, uint64_t stamp, uint64_t ticks,
                                      const void *p) {
    record_set_phase(thread, RECORD_WRITING);
    if (sw_unlikely(record_gate != 0 || !swt_raw_free(&thread->raw, stamp, ticks, (uintptr_t)p, 0)))
        slow_free(thread, stamp, ticks, p, 0);
}

static sw_always_inline void note_free(record_thread *thread, const void *p) {
    if (!record_sample_free((uintptr_t)p)) return;
    uint64_t stamp = record_stamp(), ticks = record_ticks(thread);
    put_free(thread, stamp, ticks, p);
    if (sw_unlikely(is_mapped(p))) (void)before_unmap(p);
}

static sw_always_inline void note_realloc(record_thread *thread, uint64_t old_stamp,
                                          uint64_t old_ticks, uintptr_t old, const void *p,
                                          size_t size, sw_os_frame frame) {
    uint64_t stamp = record_stamp(), ticks = record_ticks(thread);
    record_set_phase(thread, RECORD_WRITING);
    uint32_t site = record_site(thread, frame);
    if (sw_likely(record_gate == 0 && swt_raw_realloc(&thread->raw, old_stamp, old_ticks, old,
                                                      stamp, ticks, (uintptr_t)p, size, site))) {
        thread->uncounted++;
        count_bytes(thread, p, size);
        return;
    }
    record_event event = {.kind = RECORD_REALLOC,
                          .stamp = stamp,
                          .ticks = ticks,
                          .old_stamp = old_stamp,
                          .old_ticks = old_ticks,
                          .old_address = old,
                          .address = (uintptr_t)p,
                          .size = size,
                          .site = site};
    record_slow_put(thread, &event);
}

/* --- calls that are not recorded -------------------------------------------------------------- */

static sw_noinline void *pass_alloc(size_t size, size_t align) {
    /* After an attached recorder has left, the program's free would get the scratch memory. */
    if (record_attached || !record_is_own_call()) return NULL;
    return record_scratch_alloc(size, align);
}

/* --- allocation ------------------------------------------------------------------------------- */

/* The exported malloc, calloc, realloc and free end in tail calls (-foptimize-sibling-calls), so
 * functions that record find the frame of the program's caller. The path of an object that is not
 * in the sample saves no registers. */
static sw_noinline void *record_malloc(size_t size) {
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) {
        void *own = pass_alloc(size, 16);
        return own != NULL ? own : record_real.malloc(size);
    }
    void *p = record_real.malloc(size);
    if (sw_likely(p != NULL)) note_alloc(thread, SWT_RAW_MALLOC, p, size, 0, SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

RECORD_EXPORT void *malloc(size_t size) {
    return record_sample_skips(size) ? record_real.malloc(size) : record_malloc(size);
}

static sw_noinline void *record_calloc(size_t count, size_t size) {
    record_thread *thread = enter();
    size_t bytes;
    if (sw_unlikely(thread == NULL)) {
        void *own = sw_mul_overflow(count, size, &bytes) ? NULL : pass_alloc(bytes, 16);
        return own != NULL ? own : record_real.calloc(count, size);
    }
    void *p = record_real.calloc(count, size);
    if (sw_likely(p != NULL))
        note_alloc(thread, SWT_RAW_CALLOC, p, count * size, 0, SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

RECORD_EXPORT void *calloc(size_t count, size_t size) {
    size_t bytes;
    bool skip = !sw_mul_overflow(count, size, &bytes) && record_sample_skips(bytes);
    return skip ? record_real.calloc(count, size) : record_calloc(count, size);
}

static uint32_t align_log2(size_t align) { return align == 0 ? 0 : sw_log2_ceil(align); }

RECORD_EXPORT void *aligned_alloc(size_t align, size_t size) {
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) return record_real.aligned_alloc(align, size);
    size_t requested = record_requested_size(align, size);
    void *p = record_real.aligned_alloc(align, size);
    if (sw_likely(p != NULL))
        note_alloc(thread, SWT_RAW_MALLOC, p, requested, align_log2(align), SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

RECORD_EXPORT void *memalign(size_t align, size_t size) {
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) {
        void *own = align <= 4096 ? pass_alloc(size, align) : NULL;
        return own != NULL ? own : record_real.memalign(align, size);
    }
    size_t requested = record_requested_size(align, size);
    void *p = record_real.memalign(align, size);
    if (sw_likely(p != NULL))
        note_alloc(thread, SWT_RAW_MALLOC, p, requested, align_log2(align), SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

RECORD_EXPORT int posix_memalign(void **out, size_t align, size_t size) {
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) return record_real.posix_memalign(out, align, size);
    size_t requested = record_requested_size(align, size);
    int error = record_real.posix_memalign(out, align, size);
    if (sw_likely(error == 0))
        note_alloc(thread, SWT_RAW_MALLOC, *out, requested, align_log2(align),
                   SW_OS_CALLER_FRAME());
    leave(thread);
    return error;
}

RECORD_EXPORT void *valloc(size_t size) {
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) return record_real.valloc(size);
    void *p = record_real.valloc(size);
    if (sw_likely(p != NULL))
        note_alloc(thread, SWT_RAW_MALLOC, p, size, align_log2(sw_os_page_bytes()),
                   SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

RECORD_EXPORT void *pvalloc(size_t size) {
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) return record_real.pvalloc(size);
    void *p = record_real.pvalloc(size);
    if (sw_likely(p != NULL))
        note_alloc(thread, SWT_RAW_MALLOC, p, size, align_log2(sw_os_page_bytes()),
                   SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

/* --- reallocation ----------------------------------------------------------------------------- */

/* Reallocates a block of scratch memory: copies it to a new object of the real allocator, which is
 * recorded as an allocation. */
static sw_noinline void *grow_scratch_block(void *old, size_t size) {
    size_t had = record_scratch_size(old);
    void *p = malloc(size);
    if (p != NULL) memcpy(p, old, had < size ? had : size);
    return p;
}

/* Records a reallocation that returned p: a new object if old is 0, a free if p is NULL and size is
 * 0, otherwise a resized object. */
static sw_always_inline void note_resized(record_thread *thread, uint64_t old_stamp,
                                          uint64_t old_ticks, uintptr_t old, void *p, size_t size,
                                          sw_os_frame frame) {
    if (sw_likely(p != NULL && old != 0)) {
        note_realloc(thread, old_stamp, old_ticks, old, p, size, frame);
    } else if (p != NULL) {
        note_alloc(thread, SWT_RAW_MALLOC, p, size, 0, frame);
    } else if (old != 0 && size == 0) {
        put_free(thread, old_stamp, old_ticks, (const void *)old);
    }
}

/* Clears the marks of an object that glibc mapped and may now move; returns its bytes, else 0. */
static sw_always_inline size_t unmap(const void *p) {
    if (sw_likely(p == NULL || !is_mapped(p))) return 0;
    size_t bytes = ((const size_t *)p)[-1] & ~(size_t)4095;
    return before_unmap(p) ? bytes : 0;
}

static sw_cold void map_again(const void *p, size_t bytes) {
    record_memory_mark_object((uintptr_t)p - 16, bytes);
}

/* A reallocation in a sampled recording is a free and an allocation, each recorded or not. */
static sw_noinline void *resize_sampled(record_thread *thread, void *old, size_t size,
                                        sw_os_frame frame) {
    bool recorded = old != NULL && record_sample_free((uintptr_t)old);
    uint64_t stamp = recorded ? record_stamp() : 0, ticks = recorded ? record_ticks(thread) : 0;
    void *p = record_real.realloc(old, size);
    if (p == NULL && size != 0) {
        if (recorded) record_sample_restore((uintptr_t)old);
    } else {
        if (recorded) put_free(thread, stamp, ticks, old);
        if (p != NULL) note_alloc(thread, SWT_RAW_MALLOC, p, size, 0, frame);
    }
    leave(thread);
    return p;
}

static sw_noinline void *record_realloc(void *ptr, size_t size) {
    if (record_scratch_owns(ptr)) return grow_scratch_block(ptr, size);
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) {
        void *own = ptr == NULL ? pass_alloc(size, 16) : NULL;
        return own != NULL ? own : record_real.realloc(ptr, size);
    }
    if (sw_unlikely(record_sampled != NULL))
        return resize_sampled(thread, ptr, size, SW_OS_CALLER_FRAME());
    uintptr_t old = (uintptr_t)ptr;
    uint64_t old_stamp = record_stamp(), old_ticks = record_ticks(thread);
    if (sw_unlikely(thread->pause_to != 0)) record_thread_end_pause(thread);
    size_t mapped = unmap(ptr);
    void *p = record_real.realloc(ptr, size);
    if (sw_unlikely(mapped != 0 && p == NULL && size != 0)) map_again(ptr, mapped);
    note_resized(thread, old_stamp, old_ticks, old, p, size, SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

RECORD_EXPORT void *realloc(void *ptr, size_t size) {
    bool skip = !record_scratch_owns(ptr) && record_sample_skips_free((uintptr_t)ptr) &&
                record_sample_skips(size);
    return skip ? record_real.realloc(ptr, size) : record_realloc(ptr, size);
}

RECORD_EXPORT void *reallocarray(void *ptr, size_t count, size_t size) {
    size_t bytes = 0;
    bool overflow = sw_mul_overflow(count, size, &bytes);
    if (record_scratch_owns(ptr) && !overflow) return grow_scratch_block(ptr, bytes);
    record_thread *thread = enter();
    if (sw_unlikely(thread == NULL)) return record_real.reallocarray(ptr, count, size);
    if (sw_unlikely(record_sampled != NULL && !overflow))
        return resize_sampled(thread, ptr, bytes, SW_OS_CALLER_FRAME());
    uintptr_t old = (uintptr_t)ptr;
    uint64_t old_stamp = record_stamp(), old_ticks = record_ticks(thread);
    if (sw_unlikely(thread->pause_to != 0)) record_thread_end_pause(thread);
    size_t mapped = unmap(ptr);
    void *p = record_real.reallocarray(ptr, count, size);
    if (sw_unlikely(mapped != 0 && p == NULL && (overflow || bytes != 0))) map_again(ptr, mapped);
    if (!overflow) note_resized(thread, old_stamp, old_ticks, old, p, bytes, SW_OS_CALLER_FRAME());
    leave(thread);
    return p;
}

/* --- free ------------------------------------------------------------------------------------- */

static sw_noinline void record_free(void *ptr) {
    record_thread *thread = enter();
    if (sw_likely(thread != NULL)) {
        note_free(thread, ptr);
        record_set_phase(thread, RECORD_CALLING);
    }
    record_real.free(ptr);
    if (sw_likely(thread != NULL)) leave(thread);
}

RECORD_EXPORT void free(void *ptr) {
    if (sw_unlikely(ptr == NULL) || record_scratch_owns(ptr)) return;
    if (record_sample_skips_free((uintptr_t)ptr))
        record_real.free(ptr);
    else
        record_free(ptr);
}

RECORD_EXPORT void free_sized(void *ptr, size_t size) {
    if (ptr == NULL || record_scratch_owns(ptr)) return;
    record_thread *thread = enter();
    if (thread != NULL) {
        note_free(thread, ptr);
        record_set_phase(thread, RECORD_CALLING);
    }
    record_real.free_sized(ptr, size);
    if (thread != NULL) leave(thread);
}

RECORD_EXPORT void free_aligned_sized(void *ptr, size_t align, size_t size) {
    if (ptr == NULL || record_scratch_owns(ptr)) return;
    record_thread *thread = enter();
    if (thread != NULL) {
        note_free(thread, ptr);
        record_set_phase(thread, RECORD_CALLING);
    }
    record_real.free_aligned_sized(ptr, align, size);
    if (thread != NULL) leave(thread);
}
