/* SPDX-License-Identifier: Apache-2.0 */
/* Alerts of the tracker. Callers: life.c. */
#ifndef SW_ARENA_TRACKER_H
#define SW_ARENA_TRACKER_H

/* Checks for alerts if a period has passed. Called without locks after a creation or free. */
void sw_tracker_look_due(void);

#endif
