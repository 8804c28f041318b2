/* SPDX-License-Identifier: Apache-2.0 */
/* Verification at the points of heap/checks.h, in builds of grade 3. */
#ifndef SW_WATCH_VERIFY_POINTS_H
#define SW_WATCH_VERIFY_POINTS_H

#include "heap/checks.h"

/* Verifies at every n-th event of a kind from now on; 0, the default: as often as the size of the
 * heap allows. The environment variable SPANWISE_VERIFY_EVERY sets n as well. */
void sw_verify_every(uint64_t n);
/* Returns the number of verifications that events of this kind have triggered in this process. */
uint64_t sw_verify_done(sw_verify_event event);

#endif
