/* SPDX-License-Identifier: Apache-2.0 */
/* Profiles: one pass over operations counts the objects of each requested size at the peak. A
 * profile is one mapping with the counts, and another one for the live objects, which grows with
 * their ids. Design: docs/design/optimize.md.
 */
#include "optimize/optimizer.h"

#include <string.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"
#include "trace/reader.h"

static const char *sw_profile_record_check(const struct sw_profile *profile) {
    return SW_RULE((profile->capacity == 0) == (profile->objects == NULL))
               ?: SW_RULE(profile->capacity == 0 || sw_is_pow2(profile->capacity));
}

#define OP_PROFILE "profile"

enum { PAGE_SHIFT_MIN = 12, FIRST_OBJECTS = 4096 };

static sw_status profile_status(const sw_profile *profile, const char *op) {
    return sw_handle_status(profile, offsetof(sw_profile, mark), SW_HANDLE_PROFILE, op);
}

static bool check(const sw_profile *profile, const char *op) {
    return sw_handle_check(profile, offsetof(sw_profile, mark), SW_HANDLE_PROFILE, op);
}

sw_status sw_profile_create(uint64_t peak_op, sw_profile **out) {
    if (out == NULL) return sw_fail_null(OP_PROFILE, "out");
    sw_profile *profile = sw_os_map(sizeof *profile);
    if (profile == NULL) return sw_fail(SW_NOMEM, OP_PROFILE, "no memory for a profile");
    profile->peak_op = peak_op;
    sw_handle_begin(&profile->mark, SW_HANDLE_PROFILE);
    *out = profile;
    return SW_OK;
}

void sw_profile_destroy(sw_profile *profile) {
    if (profile == NULL || !check(profile, "profile_destroy")) return;
    sw_handle_end(&profile->mark, SW_HANDLE_PROFILE);
    if (profile->objects != NULL)
        (void)sw_os_release(profile->objects, profile->capacity * sizeof *profile->objects);
    sw_handle_retire(profile, sizeof *profile, sizeof profile->mark, SW_HANDLE_PROFILE);
}

static sw_status make_room(sw_profile *profile, uint32_t object) {
    sw_check2(sw_profile_record_check(profile));
    size_t wider = profile->capacity == 0 ? FIRST_OBJECTS : profile->capacity;
    while (wider <= object) wider *= 2;
    uint64_t *fresh = sw_os_map(wider * sizeof *fresh);
    if (fresh == NULL) return sw_fail(SW_NOMEM, OP_PROFILE, "no memory for object %u", object);
    if (profile->objects != NULL) {
        memcpy(fresh, profile->objects, profile->capacity * sizeof *fresh);
        (void)sw_os_release(profile->objects, profile->capacity * sizeof *fresh);
    }
    profile->objects = fresh;
    profile->capacity = wider;
    return SW_OK;
}

/* Adds a weight, which may be negative, to a requested size. */
static void weigh(sw_profile *profile, uint64_t size, double weight) {
    if (sw_likely(size < SW_PROFILE_SIZES)) {
        profile->weights[size] += weight;
        return;
    }
    sw_profile_large *large = &profile->large;
    large->weight += weight;
    large->bytes += weight * (double)size;
    for (unsigned i = 0; i < SW_PROFILE_PAGE_SIZES; i++) {
        uint64_t pages = sw_div_up(size, 1ull << (PAGE_SHIFT_MIN + i));
        large->page_bytes[i] += weight * (double)(pages << (PAGE_SHIFT_MIN + i));
    }
}

static void add_one(sw_profile *profile, const sw_op *op) {
    uint64_t *object = &profile->objects[op->object];
    bool live = *object != 0, at_peak = profile->ops++ < profile->peak_op;
    if (op->kind == SW_OP_THREAD_END) return;
    if (op->kind == SW_OP_ALLOC ? live : !live) return;
    if (op->size > INT64_MAX) return;
    if (at_peak && live) weigh(profile, *object - 1, -1);
    *object = op->kind == SW_OP_FREE ? 0 : op->size + 1;
    if (at_peak && *object != 0) weigh(profile, op->size, 1);
}

sw_status sw_profile_add(sw_profile *profile, const sw_op *ops, size_t count) {
    sw_status known = profile_status(profile, "profile_add");
    if (known != SW_OK) return known;
    if (ops == NULL && count != 0) return sw_fail_null("profile_add", "ops");
    for (size_t i = 0; i < count; i++) {
        if (sw_unlikely(ops[i].object >= profile->capacity)) {
            sw_status status = make_room(profile, ops[i].object);
            if (status != SW_OK) return status;
        }
        add_one(profile, &ops[i]);
    }
    return SW_OK;
}

sw_status sw_profile_trace(sw_profile *profile, sw_trace *trace) {
    sw_status known = profile_status(profile, "profile_trace");
    if (known == SW_OK) known = swt_trace_status(trace, "profile_trace");
    if (known != SW_OK) return known;
    for (;;) {
        const sw_op *ops;
        size_t count;
        sw_status status = sw_trace_next(trace, &ops, &count);
        if (status != SW_OK || count == 0) return status;
        status = sw_profile_add(profile, ops, count);
        if (status != SW_OK) return status;
    }
}

const double *sw_profile_weights(const sw_profile *profile) {
    return check(profile, "profile_weights") ? profile->weights : NULL;
}

sw_status sw_profile_get_large(const sw_profile *profile, sw_profile_large *out) {
    sw_status known = profile_status(profile, "profile_get_large");
    if (known != SW_OK) return known;
    if (out == NULL) return sw_fail_null("profile_get_large", "out");
    *out = profile->large;
    return SW_OK;
}
