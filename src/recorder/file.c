/* SPDX-License-Identifier: Apache-2.0 */
/* The recording on disk. It makes system calls with syscall(): the functions of the C library are
 * cancellation points, and a cancelled thread would leave malloc with the recorder's locks held. */
#define _GNU_SOURCE

#include "recorder/file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "recorder/memory.h"
#include "recorder/state.h"

/* --- descriptors ------------------------------------------------------------------------------ */

/* A descriptor with a high number that is checked before each use, because programs close
 * descriptors that they did not open, and reuse their numbers. The recorder makes system calls
 * with syscall(): the functions of the C library are cancellation points, and a cancelled thread
 * would leave malloc with the recorder's locks held. */

enum { HIGH_DESCRIPTOR = 900 }; /* below the usual limit of 1024, above what programs use */

static bool leads_to(int fd, const record_descriptor *file) {
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == file->device && now.st_ino == file->inode;
}

/* Returns whether the descriptor is open and refers to the file. */
static bool record_descriptor_is_ours(const record_descriptor *file) {
    return file->fd >= 0 && leads_to(file->fd, file);
}

static int moved_up(int fd) {
    int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high < 0) return fd;
    (void)syscall(SYS_close, fd);
    return high;
}

bool record_descriptor_adopt(record_descriptor *file, int fd, const char *path, int access) {
    struct stat now;
    fd = moved_up(fd);
    if (fstat(fd, &now) != 0) {
        int saved = errno;
        (void)syscall(SYS_close, fd);
        errno = saved;
        return false;
    }
    file->fd = fd;
    file->access = access;
    file->device = now.st_dev;
    file->inode = now.st_ino;
    file->regular = S_ISREG(now.st_mode);
    memcpy(file->path, path, strlen(path) + 1); /* both arrays have RECORD_PATH_MAX bytes */
    return true;
}

/* Reopens the file by its name, after the program has closed our descriptor. If the program has
 * reused the number, its file stays open. */
static bool regain(record_descriptor *file) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file->path,
                          file->access | O_CLOEXEC | O_NOCTTY | O_NOFOLLOW, 0);
    if (fd < 0) return false;
    if (!leads_to(fd, file)) {
        (void)syscall(SYS_close, fd);
        return false;
    }
    file->fd = moved_up(fd);
    return true;
}

bool record_descriptor_hold(record_descriptor *file) {
    sw_check2(record_descriptor_check(file));
    if (file->fd < 0) return false; /* closed in a fork child, or lost before */
    if (record_descriptor_is_ours(file) || regain(file)) return true;
    file->fd = -1;
    return false;
}

void record_descriptor_close(record_descriptor *file) {
    if (record_descriptor_is_ours(file)) (void)syscall(SYS_close, file->fd);
    file->fd = -1;
}

bool record_within_size_limit(uint64_t end) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
        end <= limit.rlim_cur)
        return true;
    errno = EFBIG;
    return false;
}

/* --- the recording ---------------------------------------------------------------------------- */

enum {
    ENCODERS = 4,    /* threads that may encode at once */
    TAIL_MAX = 1024, /* bytes of a CLOCK and an END block together */
    CLOCK_EVERY_NS = 1000000000,
};

typedef struct flusher {
    sw_os_lock lock;
    swt_encoder *encoder; /* created when it is first needed */
} flusher;

static record_file file = {.at = {.fd = -1}};

static flusher flushers[ENCODERS];
static uint64_t recorded_calls;
static uint64_t given_up_calls; /* calls in a block that was cut off to make room for END */
static uint32_t drop_reason;

bool record_file_is_open(void) { return file.at.fd >= 0; }
bool record_file_is_regular(void) { return file.at.regular; }

/* --- writing ---------------------------------------------------------------------------------- */

/* Stops recording in this process. The first of several reasons is kept. */
static void record_file_stop(swt_drop_reason reason) {
    uint32_t none = SWT_DROP_NONE;
    (void)__atomic_compare_exchange_n(&drop_reason, &none, (uint32_t)reason, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    __atomic_or_fetch(&record_gate, RECORD_STOPPED, __ATOMIC_RELEASE);
}

static bool write_at(uint64_t offset, const uint8_t *data, size_t bytes) {
    if (!record_within_size_limit(offset + bytes)) return false;
    while (bytes > 0) {
        long n = syscall(SYS_pwrite64, file.at.fd, data, bytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n == 0) errno = ENOSPC;
        if (n <= 0) return false;
        data += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

/* Cuts the file back to its last whole block, which also frees room for the END block. */
static void cut_back(void) {
    if (file.at.regular) (void)syscall(SYS_ftruncate, file.at.fd, file.offset);
}

/* Writes at the end of the file; the lock is held. False: it failed, and the recording has
 * stopped. */
static bool write_whole(const uint8_t *data, size_t bytes) {
    sw_check2(record_file_check(&file));
    if (file.at.fd < 0) return false; /* it was closed in a fork child */
    if (!record_descriptor_hold(&file.at)) {
        record_file_stop(SWT_DROP_OTHER);
        return false;
    }
    if (write_at(file.offset, data, bytes)) return true;
    int saved = errno;
    cut_back();
    record_file_stop(SWT_DROP_DISK);
    errno = saved;
    return false;
}

/* Appends one whole block that holds `calls` calls. */
static bool append(const uint8_t *data, size_t bytes, uint64_t calls) {
    sw_os_lock_acquire(&file.lock);
    bool done = !file.ended && write_whole(data, bytes);
    if (done) {
        file.last_offset = file.offset;
        file.last_calls = calls;
        file.offset += bytes;
        recorded_calls += calls;
    }
    sw_os_lock_release(&file.lock);
    return done;
}

/* Writes after the end of the last block without advancing `offset`, so that after a failed exec the
 * next block overwrites it. Until then no block follows: a thread that was stopped for long in the
 * middle of a call may still try. */
static bool put_at_end(const uint8_t *data, size_t bytes) {
    sw_os_lock_acquire(&file.lock);
    if (record_descriptor_is_ours(&file.at)) cut_back();
    bool done = write_whole(data, bytes);
    file.ended = done;
    sw_os_lock_release(&file.lock);
    return done;
}

/* Called if the END block does not fit on the disk: cuts off the last block to make room for it. No
 * other block refers to a block of events; sites and modules are written before the events that
 * need them. */
static bool give_up_last_block(void) {
    sw_os_lock_acquire(&file.lock);
    bool possible = file.at.fd >= 0 && file.at.regular && file.last_offset != 0;
    if (possible) {
        file.offset = file.last_offset;
        file.last_offset = 0;
        recorded_calls -= file.last_calls;
        given_up_calls += file.last_calls;
        cut_back();
    }
    sw_os_lock_release(&file.lock);
    return possible;
}

/* --- encoders --------------------------------------------------------------------------------- */

/* Takes the lock of one of the encoders, chosen by the thread's number. NULL, without a lock: no
 * memory for the encoder. */
static flusher *take_flusher(uint32_t thread) {
    flusher *f = &flushers[thread % ENCODERS];
    sw_os_lock_acquire(&f->lock);
    if (f->encoder == NULL) {
        size_t bytes = swt_encoder_bytes();
        f->encoder = swt_encoder_init(record_map(bytes), bytes);
    }
    if (f->encoder != NULL) return f;
    sw_os_lock_release(&f->lock);
    record_file_stop(SWT_DROP_MEMORY);
    return NULL;
}

static bool put_block(swt_block_kind kind, const void *payload, size_t bytes) {
    flusher *f = take_flusher(0);
    if (f == NULL) return false;
    const uint8_t *block;
    size_t n = swt_encode_block(f->encoder, kind, payload, bytes, &block);
    bool done = append(block, n, 0);
    sw_os_lock_release(&f->lock);
    return done;
}

bool record_file_put(swt_block_kind kind, const swt_buffer *payload) {
    return payload->used == 0 || put_block(kind, payload->data, payload->used);
}

/* --- clock ------------------------------------------------------------------------------------ */

/* The clock and the counter are read one after the other; an interrupt in between makes them differ
 * by some microseconds. */
static void put_clock(swt_buffer *buffer) {
    uint64_t ns = sw_os_now_ns();
    uint64_t ticks = record_read_ticks();
    if (ticks > file.start_ticks && ns > file.start_ns) {
        __extension__ typedef unsigned __int128 wide;
        wide ratio = ((wide)(ns - file.start_ns) << 32) / (ticks - file.start_ticks);
        file.ns_per_tick_q32 = (uint64_t)ratio;
    }
    (void)swt_put_clock(buffer, ticks, ns, file.ns_per_tick_q32);
    __atomic_store_n(&file.last_clock_ns, ns, __ATOMIC_RELAXED);
}

uint64_t record_file_ns(uint64_t ticks) {
    __extension__ typedef unsigned __int128 wide;
    return (uint64_t)((wide)ticks * __atomic_load_n(&file.ns_per_tick_q32, __ATOMIC_RELAXED) >> 32);
}

/* Spends 50 microseconds, so that the first CLOCK block has an estimate of the counter's frequency,
 * which is not known at the start. */
static void calibrate(void) {
    file.start_ns = sw_os_now_ns();
    file.start_ticks = record_read_ticks();
    while (sw_os_now_ns() - file.start_ns < 50000) {
    }
}

bool record_file_put_clock(void) {
    uint8_t memory[64];
    swt_buffer buffer = {.data = memory, .capacity = sizeof memory};
    put_clock(&buffer);
    return put_block(SWT_BLOCK_CLOCK, buffer.data, buffer.used);
}

void record_file_keep_clock(void) {
    if (sw_os_now_ns() - __atomic_load_n(&file.last_clock_ns, __ATOMIC_RELAXED) > CLOCK_EVERY_NS)
        (void)record_file_put_clock();
}

/* --- events ----------------------------------------------------------------------------------- */

bool record_file_put_events(const swt_raw *events, uint64_t calls) {
    flusher *f = take_flusher(events->thread);
    bool done = false;
    if (f != NULL) {
        const uint8_t *block;
        size_t n = swt_encode_raw(f->encoder, events, 0, &block);
        done = append(block, n, calls);
        sw_os_lock_release(&f->lock);
    }
    return done;
}

/* --- the last blocks -------------------------------------------------------------------------- */

/* Appends one encoded block to `tail`. */
static void add_block(flusher *f, swt_buffer *tail, swt_block_kind kind,
                      const swt_buffer *payload) {
    const uint8_t *block;
    size_t n = swt_encode_block(f->encoder, kind, payload->data, payload->used, &block);
    if (n > tail->capacity - tail->used) return;
    memcpy(tail->data + tail->used, block, n);
    tail->used += n;
}

static swt_end complete(swt_end end) {
    end.dropped_calls += given_up_calls;
    end.calls = recorded_calls + end.dropped_calls;
    end.drop_reason = __atomic_load_n(&drop_reason, __ATOMIC_RELAXED);
    if (end.dropped_calls != 0 && end.drop_reason == SWT_DROP_NONE)
        end.drop_reason = SWT_DROP_MEMORY;
    return end;
}

static bool write_tail(flusher *f, const swt_end *end) {
    uint8_t memory[TAIL_MAX], clock_payload[64], end_payload[128];
    swt_buffer tail = {.data = memory, .capacity = sizeof memory};
    swt_buffer clock = {.data = clock_payload, .capacity = sizeof clock_payload};
    swt_buffer last = {.data = end_payload, .capacity = sizeof end_payload};
    put_clock(&clock);
    (void)swt_put_end(&last, end);
    add_block(f, &tail, SWT_BLOCK_CLOCK, &clock);
    add_block(f, &tail, SWT_BLOCK_END, &last);
    return put_at_end(tail.data, tail.used);
}

bool record_file_put_tail(swt_end *end) {
    swt_end counts = *end;
    flusher *f = take_flusher(0);
    *end = complete(counts);
    bool done = f != NULL && write_tail(f, end);
    if (f != NULL && !done) {
        bool retry = give_up_last_block();
        *end = complete(counts); /* with the reason of the failure */
        done = retry && write_tail(f, end);
    }
    if (f != NULL) sw_os_lock_release(&f->lock);
    return done;
}

/* --- opening ---------------------------------------------------------------------------------- */

/* Unlinks an old regular file and makes a new one, so that a process which has the old one mapped
 * keeps its bytes. A character device such as /dev/full is opened as it is. */
static int create(const char *path) {
    struct stat old;
    int flags = O_WRONLY | O_CLOEXEC | O_NOCTTY;
    if (lstat(path, &old) == 0) {
        if (S_ISCHR(old.st_mode)) return (int)syscall(SYS_openat, AT_FDCWD, path, flags, 0);
        if (!S_ISREG(old.st_mode) && !S_ISLNK(old.st_mode)) {
            errno = EINVAL;
            return -1;
        }
        if (syscall(SYS_unlinkat, AT_FDCWD, path, 0) != 0) return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CREAT | O_EXCL, 0666);
}

void record_file_discard(void) {
    int saved = errno;
    if (file.at.regular) (void)syscall(SYS_unlinkat, AT_FDCWD, file.at.path, 0);
    record_descriptor_close(&file.at);
    errno = saved;
}

bool record_file_create(const char *path, bool fresh) {
    int fd = fresh ? create(path)
                   : (int)syscall(SYS_openat, AT_FDCWD, path,
                                  O_WRONLY | O_CLOEXEC | O_NOCTTY | O_CREAT | O_EXCL, 0666);
    if (fd < 0 || !record_descriptor_adopt(&file.at, fd, path, O_WRONLY)) return false;
    file.offset = file.last_offset = file.last_calls = 0;
    file.ended = false;
    drop_reason = SWT_DROP_NONE;
    recorded_calls = given_up_calls = 0;
    uint8_t header[SWT_FILE_HEADER_BYTES];
    swt_file_header(header);
    if (!append(header, sizeof header, 0)) {
        record_file_discard();
        return false;
    }
    calibrate();
    return true;
}

void record_file_cut_tail(void) {
    sw_os_lock_acquire(&file.lock);
    if (record_descriptor_is_ours(&file.at)) cut_back();
    file.ended = false;
    sw_os_lock_release(&file.lock);
}

void record_file_close(void) {
    sw_os_lock_acquire(&file.lock);
    record_descriptor_close(&file.at);
    sw_os_lock_release(&file.lock);
}

void record_file_after_fork(void) {
    record_descriptor_close(&file.at);
    sw_os_lock_reset(&file.lock);
    for (int i = 0; i < ENCODERS; i++) sw_os_lock_reset(&flushers[i].lock);
}
