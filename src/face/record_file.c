/* SPDX-License-Identifier: Apache-2.0 */
/* The recording on disk. One descriptor, kept high and checked before each write, because programs
 * close and reuse descriptors that they did not open. System calls are made raw: the C library's
 * own are cancellation points, and a cancelled thread would leave malloc with our locks held. */
#define _GNU_SOURCE
#include "face/record_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/fail.h"
#include "face/record.h"
#include "face/record_meta.h"

enum {
    ENCODERS = 4,          /* threads that may compress at once */
    HIGH_DESCRIPTOR = 900, /* below the usual limit of 1024, above what programs use */
    TAIL_MAX = 1024,       /* CLOCK and END blocks */
    CLOCK_EVERY_NS = 1000000000,
};

typedef struct flusher {
    sw_os_lock lock;
    swt_encoder *encoder; /* made at its first use */
} flusher;

static struct {
    sw_os_lock lock; /* offset, the descriptor, writes */
    int fd;          /* -1: none */
    dev_t device;
    ino_t inode;
    bool regular;                     /* else a device: no cutting back */
    uint64_t offset;                  /* end of the last whole block that stays */
    uint64_t last_offset, last_calls; /* where that block begins, and the calls in it */
    uint64_t last_clock_ns, ns_per_tick_q32;
    uint64_t start_ticks, start_ns;
    char path[RECORD_PATH_MAX];
} file = {.fd = -1};

static flusher flushers[ENCODERS];
static uint64_t recorded_calls;
static uint64_t given_up_calls; /* recorded, and then cut off to make room for END */
static uint32_t drop_reason;

bool record_file_is_open(void) { return file.fd >= 0; }
bool record_file_is_regular(void) { return file.regular; }

/* --- writing ---------------------------------------------------------------------------------- */

void record_file_stop(swt_drop_reason reason) {
    uint32_t none = SWT_DROP_NONE;
    (void)__atomic_compare_exchange_n(&drop_reason, &none, (uint32_t)reason, false,
                                      __ATOMIC_RELAXED, __ATOMIC_RELAXED);
    __atomic_or_fetch(&record_special, RECORD_STOPPED, __ATOMIC_RELEASE);
}

static bool is_ours(int fd) {
    struct stat now;
    return fstat(fd, &now) == 0 && now.st_dev == file.device && now.st_ino == file.inode;
}

/* The program closed our descriptor, and perhaps opened something else there: open the file again
 * by name. The foreign descriptor is left alone. */
static bool regain(void) {
    int fd = (int)syscall(SYS_openat, AT_FDCWD, file.path, O_WRONLY | O_CLOEXEC | O_NOCTTY, 0);
    if (fd < 0) return false;
    if (!is_ours(fd)) {
        (void)syscall(SYS_close, fd);
        return false;
    }
    int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high >= 0) (void)syscall(SYS_close, fd);
    file.fd = high >= 0 ? high : fd;
    return true;
}

/* A write past this limit would raise SIGXFSZ in the program. */
static bool within_size_limit(uint64_t end) {
    struct rlimit limit;
    return getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY ||
           end <= limit.rlim_cur;
}

static bool write_at(uint64_t offset, const uint8_t *data, size_t bytes) {
    if (!within_size_limit(offset + bytes)) return false;
    while (bytes > 0) {
        long n = syscall(SYS_pwrite64, file.fd, data, bytes, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        data += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return true;
}

/* Cuts the file back to its last whole block, which also frees room for the END block. */
static void cut_back(void) {
    if (file.regular) (void)syscall(SYS_ftruncate, file.fd, file.offset);
}

/* With the lock held. On failure recording has stopped. */
static bool write_whole(const uint8_t *data, size_t bytes) {
    if (file.fd < 0) return false; /* closed in a fork child */
    if (!is_ours(file.fd) && !regain()) {
        file.fd = -1;
        record_file_stop(SWT_DROP_OTHER);
        return false;
    }
    if (write_at(file.offset, data, bytes)) return true;
    cut_back();
    record_file_stop(SWT_DROP_DISK);
    return false;
}

/* Appends one whole block that holds so many calls. */
static bool append(const uint8_t *data, size_t bytes, uint64_t calls) {
    sw_os_lock_acquire(&file.lock);
    bool done = write_whole(data, bytes);
    if (done) {
        file.last_offset = file.offset;
        file.last_calls = calls;
        file.offset += bytes;
        recorded_calls += calls;
    }
    sw_os_lock_release(&file.lock);
    return done;
}

/* Writes at the end without moving it, in place of what was written so before. */
static bool put_at_end(const uint8_t *data, size_t bytes) {
    sw_os_lock_acquire(&file.lock);
    if (file.fd >= 0 && is_ours(file.fd)) cut_back();
    bool done = write_whole(data, bytes);
    sw_os_lock_release(&file.lock);
    return done;
}

/* Not even END fits: the last block makes room. Nothing in the file refers to it: sites and modules
 * stand before the events that need them. */
static bool give_up_last_block(void) {
    sw_os_lock_acquire(&file.lock);
    bool possible = file.fd >= 0 && file.regular && file.last_offset != 0;
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

/* One of a few, by thread, with its lock held. NULL (no lock) without memory. */
static flusher *take_flusher(uint32_t thread) {
    flusher *f = &flushers[thread % ENCODERS];
    sw_os_lock_acquire(&f->lock);
    if (f->encoder == NULL) {
        size_t bytes = swt_encoder_bytes();
        f->encoder = swt_encoder_init(sw_os_map(bytes), bytes);
        if (f->encoder != NULL && !record_option.compress) swt_encoder_store(f->encoder);
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

/* The two readings lie some microseconds apart in the worst case (an interrupt between them). */
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

/* The frequency is not known at the start: the first estimate is over 50 microseconds. */
static void calibrate(void) {
    file.start_ns = sw_os_now_ns();
    file.start_ticks = record_read_ticks();
    while (sw_os_now_ns() - file.start_ns < 50000) {
    }
}

static bool write_clock(void) {
    uint8_t memory[64];
    swt_buffer buffer = {.data = memory, .capacity = sizeof memory};
    put_clock(&buffer);
    return put_block(SWT_BLOCK_CLOCK, buffer.data, buffer.used);
}

/* --- events ----------------------------------------------------------------------------------- */

static void lose(record_thread *thread, uint64_t calls) {
    __atomic_store_n(&thread->dropped, thread->dropped + calls, __ATOMIC_RELAXED);
}

void record_file_flush(record_thread *thread) {
    uint64_t calls = swt_raw_count(&thread->raw) - thread->reallocs;
    thread->reallocs = 0;
    if ((record_special & RECORD_STOPPED) != 0) {
        lose(thread, calls);
        swt_raw_clear(&thread->raw);
        return;
    }
    record_sites_flush();
    flusher *f = take_flusher(thread->raw.thread);
    bool done = false;
    if (f != NULL) {
        const uint8_t *block;
        size_t n = swt_encode_raw(f->encoder, &thread->raw, 0, &block);
        done = append(block, n, calls);
        sw_os_lock_release(&f->lock);
    }
    swt_raw_clear(&thread->raw);
    if (!done) {
        lose(thread, calls);
        return;
    }
    if (sw_os_now_ns() - __atomic_load_n(&file.last_clock_ns, __ATOMIC_RELAXED) > CLOCK_EVERY_NS)
        (void)write_clock();
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

static swt_end make_end(void) {
    uint64_t dropped = record_dropped() + given_up_calls;
    swt_end end = {.calls = recorded_calls + dropped,
                   .dropped_calls = dropped,
                   .drop_reason = __atomic_load_n(&drop_reason, __ATOMIC_RELAXED),
                   .threads = record_thread_count(),
                   .children_unrecorded = record_children_unrecorded(),
                   .children_recorded = record_children_recorded()};
    if (dropped != 0 && end.drop_reason == SWT_DROP_NONE) end.drop_reason = SWT_DROP_MEMORY;
    return end;
}

static bool write_tail(flusher *f) {
    uint8_t memory[TAIL_MAX], clock_payload[64], end_payload[128];
    swt_buffer tail = {.data = memory, .capacity = sizeof memory};
    swt_buffer clock = {.data = clock_payload, .capacity = sizeof clock_payload};
    swt_buffer last = {.data = end_payload, .capacity = sizeof end_payload};
    swt_end end = make_end();
    put_clock(&clock);
    (void)swt_put_end(&last, &end);
    add_block(f, &tail, SWT_BLOCK_CLOCK, &clock);
    add_block(f, &tail, SWT_BLOCK_END, &last);
    return put_at_end(tail.data, tail.used);
}

void record_file_tail(void) {
    flusher *f = take_flusher(0);
    if (f == NULL) return;
    if (!write_tail(f) && give_up_last_block()) (void)write_tail(f);
    sw_os_lock_release(&f->lock);
}

/* --- opening ---------------------------------------------------------------------------------- */

/* A new file in place of an old one, so that whoever has the old one mapped keeps it. What is no
 * regular file (/dev/full) is opened as it is. */
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

static bool adopt(int fd, const char *path) {
    int high = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high >= 0) {
        (void)syscall(SYS_close, fd);
        fd = high;
    }
    struct stat now;
    if (fstat(fd, &now) != 0) return false;
    file.fd = fd;
    file.device = now.st_dev;
    file.inode = now.st_ino;
    file.regular = S_ISREG(now.st_mode);
    file.offset = file.last_offset = file.last_calls = 0;
    memcpy(file.path, path, strlen(path) + 1); /* both are RECORD_PATH_MAX */
    return true;
}

static bool write_head(void) {
    uint8_t header[SWT_FILE_HEADER_BYTES];
    swt_file_header(header);
    if (!append(header, sizeof header, 0)) return false;
    calibrate();
    return record_meta_write() && write_clock();
}

bool record_file_open(const char *path, bool fresh) {
    int fd = fresh ? create(path)
                   : (int)syscall(SYS_openat, AT_FDCWD, path,
                                  O_WRONLY | O_CLOEXEC | O_NOCTTY | O_CREAT | O_EXCL, 0666);
    if (fd < 0 || !adopt(fd, path)) return false;
    drop_reason = SWT_DROP_NONE;
    recorded_calls = given_up_calls = 0;
    if (!write_head()) return true; /* stopped already, e.g. a full disk: the program goes on */
    record_modules_flush();
    return true;
}

void record_file_cut_tail(void) {
    sw_os_lock_acquire(&file.lock);
    if (file.fd >= 0 && is_ours(file.fd)) cut_back();
    sw_os_lock_release(&file.lock);
}

void record_file_after_fork(void) {
    if (file.fd >= 0 && is_ours(file.fd)) (void)syscall(SYS_close, file.fd);
    file.fd = -1;
    sw_os_lock_reset(&file.lock);
    for (int i = 0; i < ENCODERS; i++) sw_os_lock_reset(&flushers[i].lock);
}
