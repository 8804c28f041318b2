/* SPDX-License-Identifier: Apache-2.0 */
/* The optimiser: the size-class table that wastes least for given requests.
 *
 *   sw_profile *p;  sw_profile_create(peak_op, &p);        what a program asked for, by size
 *   sw_profile_trace(p, trace);  sw_profile_end(p, 0);
 *   const double *w = sw_profile_weights(p, SW_WEIGH_PEAK);
 *   sw_optimizer *o;  sw_optimizer_create(&options, w, &o);  every table of 1 .. classes classes
 *   sw_optimizer_table(o, 24, specs, &count, &result);
 *
 * Rules under which the table is exact, and the method: docs/design/optimize.md.
 * Thread rule: one thread at a time for each object; different objects are independent.
 */
#ifndef SPANWISE_OPTIMIZE_H
#define SPANWISE_OPTIMIZE_H

#include <spanwise/ops.h>
#include <spanwise/sizeclass.h>
#include <spanwise/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- profiles: how much each size weighs ------------------------------------------------------ */

typedef struct sw_profile sw_profile;

typedef enum sw_weigh {
    SW_WEIGH_ALLOCS = 0, /* objects asked for; a realloc asks for its new size */
    SW_WEIGH_TIME = 1,   /* object-seconds: how long objects of the size lived, added up */
    SW_WEIGH_PEAK = 2,   /* objects live at the peak of requested bytes */
    SW_WEIGH_COUNT
} sw_weigh;

enum {
    SW_PROFILE_SIZES = SW_TABLE_SIZE_MAX + 1, /* entries of a profile: sizes 0 .. 256 KiB */
    SW_PROFILE_PAGE_SIZES = 5,                /* 4, 8, 16, 32 and 64 KiB */
};

/* Requests above SW_TABLE_SIZE_MAX: no class serves them. Units: weight, weight * bytes. */
typedef struct sw_profile_large {
    double weight;
    double bytes;
    double page_bytes[SW_PROFILE_PAGE_SIZES]; /* in whole pages of 4 KiB << i */
} sw_profile_large;

/* peak_op: after how many operations the peak is (sw_trace_summary.peak_op). SW_NOMEM. */
SW_API sw_status sw_profile_create(uint64_t peak_op, sw_profile **out);
SW_API void sw_profile_destroy(sw_profile *profile); /* NULL is ignored */
/* Adds operations, in order. Impossible ones (a free of what is not live) are ignored.
 * Errors: SW_NOMEM; SW_STATE after sw_profile_end. */
SW_API sw_status sw_profile_add(sw_profile *profile, const sw_op *ops, size_t count);
/* Adds all operations that a reader has not read yet. Errors: those of sw_profile_add and of
 * sw_trace_next. */
SW_API sw_status sw_profile_trace(sw_profile *profile, sw_trace *trace);
/* Ends the profile: what is still live dies at `time_ns`, or at the last operation if that is
 * later. */
SW_API void sw_profile_end(sw_profile *profile, uint64_t time_ns);
/* SW_PROFILE_SIZES weights, by requested bytes; they live as long as the profile. NULL: no such
 * kind, or the profile has not ended. */
SW_API const double *sw_profile_weights(const sw_profile *profile, sw_weigh weigh);
SW_API sw_status sw_profile_get_large(const sw_profile *profile, sw_weigh weigh,
                                      sw_profile_large *out);

/* --- tables ----------------------------------------------------------------------------------- */

typedef struct sw_optimizer sw_optimizer;

typedef struct sw_optimize_options {
    uint32_t struct_bytes; /* sizeof(sw_optimize_options), for later versions */
    uint32_t classes;      /* at most so many, 1 .. SW_TABLE_CLASSES_MAX - 1 */
    uint32_t align;        /* 8, or 16: then each class of 16 bytes and more is a multiple of 16 */
    uint32_t page_bytes;   /* of the table */
    uint32_t pages_max;    /* a span has at most so many */
    uint32_t max_bytes;    /* the largest class: a multiple of align; larger requests are ignored */
    uint32_t narrow;       /* 1: only spans that Go's 32-bit magic divides exactly */
    uint32_t pad;
    double span_charge; /* weight of one byte of one span of each class; 0: spans are free */
} sw_optimize_options;

/* What the optimiser says of one of its tables, in weight * bytes. */
typedef struct sw_optimize_result {
    double cost;      /* what was minimised: slots + tails + charges */
    double slots;     /* slot bytes of all requests */
    double tails;     /* their share of the ends of spans */
    double charges;   /* span_charge * bytes of one span of each class */
    double requested; /* of the requests that classes serve */
} sw_optimize_result;

/* 24 classes, align 16, pages of 8 KiB, 10 of them, 32 KiB, no charge. */
SW_API void sw_optimize_options_init(sw_optimize_options *options);
/* Finds the best tables of 1 .. classes classes for weights[0 .. SW_PROFILE_SIZES), by requested
 * bytes. Errors: SW_INVALID (an option out of range, a weight that is negative or no number, no
 * weight at all up to max_bytes, a largest class that no allowed span holds), SW_NOMEM. */
SW_API sw_status sw_optimizer_create(const sw_optimize_options *options, const double *weights,
                                     sw_optimizer **out);
/* The same under a bound: a class may waste at most `waste_percent` of its slot on the smallest
 * request that it serves, whether such a request was seen or not, unless the class below is one
 * step of the alignment away. 0 or 100: no bound. Errors: also SW_INVALID for more than 100, and
 * where options.classes are too few. */
SW_API sw_status sw_optimizer_create_bounded(const sw_optimize_options *options,
                                             uint32_t waste_percent, const double *weights,
                                             sw_optimizer **out);
SW_API void sw_optimizer_destroy(sw_optimizer *optimizer); /* NULL is ignored */
/* The best table of at most `classes` classes (at most those of the options); of equally good ones
 * one with the fewest classes. specs: room for `classes`; *count: how many it has.
 * Errors: SW_INVALID (0 classes, or fewer than the bound on waste needs). */
SW_API sw_status sw_optimizer_table(const sw_optimizer *optimizer, uint32_t classes,
                                    sw_class_spec *specs, uint32_t *count, sw_optimize_result *out);

#ifdef __cplusplus
}
#endif
#endif
