/* SPDX-License-Identifier: Apache-2.0 */
/* The optimizer: the size-class table with the least waste for given requests.
 *
 *   sw_profile *p;  sw_profile_create(peak_op, &p);        a program's requests, by size
 *   sw_profile_trace(p, trace);
 *   const double *w = sw_profile_weights(p);
 *   sw_optimizer *o;  sw_optimizer_create(&options, w, &o);  every table of 1 .. classes classes
 *   sw_optimizer_table(o, 24, specs, &count, &result);
 *
 * Model and method: docs/design/optimize.md. Thread rule: one thread at a time per object.
 */
#ifndef SPANWISE_OPTIMIZE_H
#define SPANWISE_OPTIMIZE_H

#include <spanwise/ops.h>
#include <spanwise/sizeclass.h>
#include <spanwise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- profiles: the objects of each size that are live at the peak of requested bytes ---------- */

typedef struct sw_profile sw_profile;

enum {
    SW_PROFILE_SIZES = SW_TABLE_SIZE_MAX + 1, /* entries of a profile: sizes 0 .. 256 KiB */
    SW_PROFILE_PAGE_SIZES = 5,                /* 4, 8, 16, 32 and 64 KiB */
};

/* Requests above SW_TABLE_SIZE_MAX, which no class serves. Units: weight, weight * bytes. */
typedef struct sw_profile_large {
    double weight;
    double bytes;
    double page_bytes[SW_PROFILE_PAGE_SIZES]; /* in whole pages of 4 KiB << i */
} sw_profile_large;

/* Create an empty profile. peak_op: number of operations at the peak (sw_trace_summary.peak_op).
 * Errors: SW_NOMEM. */
SW_API sw_status sw_profile_create(uint64_t peak_op, sw_profile **out);
SW_API void sw_profile_destroy(sw_profile *profile); /* NULL is ignored */
/* Add operations in order. Impossible ones (a free of a dead object) are ignored. Errors:
 * SW_NOMEM. */
SW_API sw_status sw_profile_add(sw_profile *profile, const sw_op *ops, size_t count);
/* Add the remaining operations of a reader. Errors: as sw_profile_add and sw_trace_next. */
SW_API sw_status sw_profile_trace(sw_profile *profile, sw_trace *trace);
/* Return SW_PROFILE_SIZES numbers of objects, indexed by requested bytes. They are valid until the
 * profile is destroyed. */
SW_API const double *sw_profile_weights(const sw_profile *profile);
/* Return the requests above SW_TABLE_SIZE_MAX in *out. Errors: SW_INVALID. */
SW_API sw_status sw_profile_get_large(const sw_profile *profile, sw_profile_large *out);

/* --- tables ----------------------------------------------------------------------------------- */

typedef struct sw_optimizer sw_optimizer;

typedef struct sw_optimize_options {
    uint32_t struct_bytes; /* sizeof(sw_optimize_options), for later versions */
    uint32_t classes;      /* maximum number, 1 .. SW_TABLE_CLASSES_MAX - 1 */
    uint32_t align;        /* 8, or 16: classes from 16 bytes up are multiples of 16 */
    uint32_t page_bytes;   /* of the table */
    uint32_t pages_max;    /* maximum per span */
    uint32_t max_bytes;    /* largest class, a multiple of align; larger requests are ignored */
    double span_charge;    /* cost of one byte of one span per class; 0: none */
} sw_optimize_options;

/* The cost of a table in units of weight * bytes. */
typedef struct sw_optimize_result {
    double cost;      /* the objective: slots + tails + charges */
    double slots;     /* slot bytes of all requests */
    double tails;     /* their share of span tails */
    double charges;   /* span_charge * bytes of one span of each class */
    double requested; /* bytes requested from classes */
} sw_optimize_result;

/* Set the defaults: 24 classes, align 16, 8-KiB pages, at most 10 per span, 32 KiB, no charge. */
SW_API void sw_optimize_options_init(sw_optimize_options *options);
/* Find the best tables of 1 .. classes classes for weights[0 .. SW_PROFILE_SIZES), indexed by
 * requested bytes. Errors: SW_INVALID (an option out of range, a negative or NaN weight, no weight
 * up to max_bytes, a largest class that no allowed span holds), SW_NOMEM. */
SW_API sw_status sw_optimizer_create(const sw_optimize_options *options, const double *weights,
                                     sw_optimizer **out);
/* As sw_optimizer_create, with a bound: a class wastes at most `waste_percent` of its slot on its
 * smallest possible request, unless the next smaller class is one alignment step below. 0 or 100:
 * no bound. Errors: also SW_INVALID: more than 100, or options.classes is too small. */
SW_API sw_status sw_optimizer_create_bounded(const sw_optimize_options *options,
                                             uint32_t waste_percent, const double *weights,
                                             sw_optimizer **out);
SW_API void sw_optimizer_destroy(sw_optimizer *optimizer); /* NULL is ignored */
/* Read the best table of at most `classes` classes; ties: the fewest classes. specs: room for
 * `classes`; *count: the number used. Errors: SW_INVALID (0 classes, or too few for the bound on
 * waste). */
SW_API sw_status sw_optimizer_table(const sw_optimizer *optimizer, uint32_t classes,
                                    sw_class_spec *specs, uint32_t *count, sw_optimize_result *out);

#ifdef __cplusplus
}
#endif
#endif
