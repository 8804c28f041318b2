/* SPDX-License-Identifier: Apache-2.0 */
/* The file of areas. The file system allocates the pages of an area before the area is mapped. If
 * it could not allocate a page at the first write to it, the program would get a SIGBUS. */
#define _GNU_SOURCE
#include "recorder/area.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "recorder/memory.h"
#include "recorder/state.h"

static record_areas areas = {.file = {.fd = -1}};

static size_t area_bytes(void) { return swt_area_bytes(sw_os_page_bytes()); }

/* Builds the name of the file of areas: its folder, the recording's file name, ".areas". False: the
 * name is too long. */
static bool name_of(char *out, const char *recording) {
    const char *base = strrchr(recording, '/');
    base = base == NULL ? recording : base + 1;
    size_t folder = strlen(record_option.areas), name = strlen(base);
    if (folder == 0 || folder + name + 16 > RECORD_PATH_MAX) return false;
    char *end = stpcpy(out, record_option.areas);
    *end++ = '/';
    end = stpcpy(end, base);
    (void)stpcpy(end, ".areas");
    return true;
}

/* --- areas ------------------------------------------------------------------------------------ */

/* Maps the next area of the file, zeroed and with its header; the lock is held. at: the address,
 * whose pages are replaced; NULL: any. NULL: the system refuses, or the file has its maximum
 * length. */
static struct swt_area *map_next(swt_area_kind kind, uint32_t thread, struct swt_area *at) {
    sw_check2(record_areas_check(&areas));
    size_t bytes = area_bytes();
    uint64_t offset = areas.count * bytes;
    if (areas.count == RECORD_AREAS_MAX || !record_within_size_limit(offset + bytes) ||
        !record_descriptor_hold(&areas.file))
        return NULL;
    if (syscall(SYS_fallocate, areas.file.fd, 0, offset, bytes) != 0) return NULL;
    long address =
        syscall(SYS_mmap, at, bytes, PROT_READ | PROT_WRITE,
                at != NULL ? MAP_SHARED | MAP_FIXED : MAP_SHARED, areas.file.fd, (off_t)offset);
    if (address == -1) return NULL;
    struct swt_area *area = (struct swt_area *)address;
    areas.count++;
    area->area_bytes = (uint32_t)bytes;
    area->kind = (uint32_t)kind;
    area->thread = thread;
    __atomic_store_n(&area->magic, SWT_AREA_MAGIC, __ATOMIC_RELEASE);
    return area;
}

static struct swt_area *take_shared(uint32_t thread) {
    if (areas.sites == NULL) return NULL;
    sw_os_lock_acquire(&areas.lock);
    struct swt_area *area = map_next(SWT_AREA_THREAD, thread, NULL);
    sw_os_lock_release(&areas.lock);
    if (area == NULL) record_area_mark_loss();
    return area;
}

struct swt_area *record_area_take(uint32_t thread, bool *shared) {
    struct swt_area *area = take_shared(thread);
    *shared = area != NULL;
    return area != NULL ? area : record_map(area_bytes());
}

static void map_private(struct swt_area *area) {
    (void)syscall(SYS_mmap, area, area_bytes(), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

void record_area_renew(struct swt_area *area, bool *shared) {
    if (!*shared) return;
    sw_os_lock_acquire(&areas.lock);
    *shared = areas.sites != NULL && map_next(SWT_AREA_THREAD, 0, area) != NULL;
    sw_os_lock_release(&areas.lock);
    if (*shared) return;
    map_private(area);
    record_area_mark_loss();
}

uint8_t *record_area_sites(size_t bytes) {
    if (areas.sites == NULL || bytes > area_bytes() - sizeof *areas.sites) return NULL;
    return swt_area_content(areas.sites);
}

void record_area_publish_sites(size_t used) {
    if (areas.sites != NULL) __atomic_store_n(&areas.sites->used, (uint32_t)used, __ATOMIC_RELEASE);
}

void record_area_mark_loss(void) {
    if (areas.sites != NULL && !record_is_stray_copy())
        __atomic_store_n(&areas.sites->lost, 1, __ATOMIC_RELAXED);
}

bool record_area_note_end(uint32_t drop_reason, uint64_t dropped_calls) {
    if (areas.sites == NULL || record_is_stray_copy()) return false;
    areas.sites->dropped_calls = dropped_calls;
    __atomic_store_n(&areas.sites->drop_reason, drop_reason, __ATOMIC_RELEASE);
    return true;
}

/* --- the file --------------------------------------------------------------------------------- */

void record_area_begin(const char *recording) {
    char path[RECORD_PATH_MAX];
    if (areas.sites != NULL) { /* of an earlier window */
        (void)syscall(SYS_munmap, areas.sites, area_bytes());
        areas.sites = NULL;
    }
    if (!record_marks_copies() || !name_of(path, recording)) return;
    (void)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path,
                          O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0600);
    if (fd < 0 || !record_descriptor_adopt(&areas.file, fd, path, O_RDWR)) return;
    areas.count = 0;
    areas.sites = map_next(SWT_AREA_SITES, 0, NULL);
    if (areas.sites == NULL) record_area_end();
}

/* Does not unmap the areas, because threads may still write to them. The unlinked file exists until
 * its last mapping is gone. */
void record_area_end(void) {
    bool kept = areas.sites != NULL && areas.sites->drop_reason != SWT_DROP_NONE;
    if (areas.file.fd >= 0 && !kept) (void)syscall(SYS_unlinkat, AT_FDCWD, areas.file.path, 0);
    record_descriptor_close(&areas.file);
}

void record_area_set_aside(const char *recording, const char *aside) {
    char from[RECORD_PATH_MAX], to[RECORD_PATH_MAX];
    if (name_of(from, recording) && name_of(to, aside))
        (void)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}

void record_area_after_fork(struct swt_area *area, bool shared) {
    if (area != NULL && shared) map_private(area);
    sw_os_lock_reset(&areas.lock);
    record_descriptor_close(&areas.file);
    areas.sites = NULL;
    areas.count = 0;
}
