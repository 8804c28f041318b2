/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for open blocks. If SPANWISE_RECORD_AREAS is set, it consists of areas (trace/area.h) in a
 * file that outlives this process. If it is not set, or the system refuses the file, it is private
 * memory of the same layout. */
#ifndef SW_RECORDER_AREA_H
#define SW_RECORDER_AREA_H

#include <stdbool.h>

#include "os/os.h"
#include "recorder/file.h"
#include "trace/area.h"

/* 132 MiB. This bounds the threads that live at once, because the area of an ended thread is
 * reused. */
enum { RECORD_AREAS_MAX = 1024 };

/* The file of areas. Under its lock:
 *   count <= RECORD_AREAS_MAX;  count >= 1 if sites != NULL;  and the rules of file */
typedef struct record_areas {
    sw_os_lock lock;
    record_descriptor file;
    struct swt_area *sites; /* area 0; NULL: there is no file */
    uint64_t count;         /* areas in the file */
} record_areas;

const char *record_areas_check(const record_areas *areas);

/* Creates the file of areas of a recording; record_area_end removes it, unless record_area_note_end
 * gave a reason. */
void record_area_begin(const char *recording);
void record_area_end(void);
/* Renames the file of areas of the image before exec to match `aside`, the new name of its
 * recording. */
void record_area_set_aside(const char *recording, const char *aside);

/* Returns an area for a thread, in the file if there is one (*shared), else private. NULL: no
 * memory. */
struct swt_area *record_area_take(uint32_t thread, bool *shared);
/* Returns shared memory of at least `bytes` bytes for call sites that are not written yet. NULL:
 * there is no area file, or an area is too small. */
uint8_t *record_area_sites(size_t bytes);
/* Publishes the first `used` of those bytes as complete entries. */
void record_area_publish_sites(size_t used);
/* Marks the file of areas as incomplete: an open block is not in it. */
void record_area_mark_loss(void);

/* Stores why END could not be written, and the number of dropped calls that it would contain.
 * SWT_DROP_NONE: END was written. False: there is no file of areas. */
bool record_area_note_end(uint32_t drop_reason, uint64_t dropped_calls);

/* Before a further window of an attached recorder: empties an area of the last one, at its address.
 * A shared one becomes part of the new file (*shared; false: private memory). */
void record_area_renew(struct swt_area *area, bool *shared);

/* In a fork child: forgets the parent's file. If `area` is shared, private memory that reads as
 * zero is mapped in its place, so that a call which the fork interrupted cannot write into the
 * parent's area. */
void record_area_after_fork(struct swt_area *area, bool shared);

#endif
