/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for open blocks. Where whoever started the program asked for it (SPANWISE_RECORD_AREAS),
 * it is areas (trace/area.h) of a file that outlives this process; otherwise, and where the system
 * refuses the file, it is private memory of the same layout. */
#ifndef SW_RECORDER_AREA_H
#define SW_RECORDER_AREA_H

#include <stdbool.h>

#include "os/os.h"
#include "recorder/descriptor.h"
#include "trace/area.h"

/* 132 MiB; as many threads may live at once, since areas are used again. */
enum { RECORD_AREAS_MAX = 1024 };

/* The file of areas. Under its lock:
 *   count <= RECORD_AREAS_MAX;  count >= 1 where sites != NULL;  and the rules of file */
typedef struct record_areas {
    sw_os_lock lock;
    record_descriptor file;
    struct swt_area *sites; /* area 0; NULL: there is no file */
    uint64_t count;         /* areas in the file */
} record_areas;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *record_areas_check(const record_areas *areas);

/* Begins the file of areas that belongs to a recording; record_area_end removes it. */
void record_area_begin(const char *recording);
void record_area_end(void);
/* Renames the file of the image before exec as its recording was renamed. */
void record_area_set_aside(const char *recording, const char *aside);

/* An area for a thread, in the file if there is one (*shared), else private. NULL: no memory. */
struct swt_area *record_area_take(uint32_t thread, bool *shared);
/* At least so many bytes in which call sites wait to be written. NULL: there is no file of
 * areas. */
uint8_t *record_area_sites(size_t bytes);
/* So many of those bytes are whole entries now. */
void record_area_publish_sites(size_t used);
/* Marks in the file that it does not have all that was recorded. */
void record_area_mark_loss(void);

/* In a fork child: the parent's file is forgotten, and `area`, if it is shared, becomes private and
 * empty in its place, so that a call which the fork interrupted writes nowhere else. */
void record_area_after_fork(struct swt_area *area, bool shared);

#endif
