/* SPDX-License-Identifier: Apache-2.0 */
/* Verification at the points of heap/verify_point.h, in builds of grade 3. */
#ifndef SW_WATCH_VERIFY_POINTS_H
#define SW_WATCH_VERIFY_POINTS_H

#include "heap/verify_point.h"

/* Verify at every n-th event of a kind; 0, as it begins: as often as the size of the heap allows.
 * The environment variable SPANWISE_VERIFY_EVERY says the same. */
void sw_verify_every(uint64_t n);
/* Verifications that an event of this kind has led to, in the process so far. */
uint64_t sw_verify_done(sw_verify_event event);

#endif
