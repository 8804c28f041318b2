/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for open blocks: areas (trace/area.h) of a file that outlives this process, where
 * whoever started us asked for one (SPANWISE_RECORD_AREAS); private memory of the same layout
 * otherwise, and where the file is refused. */
#ifndef SW_RECORDER_AREA_H
#define SW_RECORDER_AREA_H

#include <stdbool.h>

#include "trace/area.h"

/* Begins the file of areas that belongs to a recording; record_area_end removes it. */
void record_area_begin(const char *recording);
void record_area_end(void);
/* The file of an earlier image of this process goes along with its recording. */
void record_area_set_aside(const char *recording, const char *aside);

/* Of a thread: shared if it can be, else private; NULL without memory. *shared tells which. */
struct swt_area *record_area_take(uint32_t thread, bool *shared);
/* Where call sites wait to be written, at least so many bytes; NULL: no file, use your own. */
uint8_t *record_area_sites(size_t bytes);
/* So many bytes of them are whole. */
void record_area_publish_sites(size_t used);
/* The file does not have all that was recorded. */
void record_area_mark_loss(void);

/* In a fork child: the parent's file is forgotten, and `area`, if it is shared, becomes private and
 * empty in its place, so that a call which the fork interrupted writes nowhere else. */
void record_area_after_fork(struct swt_area *area, bool shared);

#endif
