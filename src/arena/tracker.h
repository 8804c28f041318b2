/* SPDX-License-Identifier: Apache-2.0 */
/* What arenas do for the tracker's alerts. Callers: life.c. */
#ifndef SW_ARENA_TRACKER_H
#define SW_ARENA_TRACKER_H

/* Called when an arena was made or freed and no lock is held. The tracker, if there is one, looks
 * for alerts when a period has passed. */
void sw_tracker_look_due(void);

#endif
