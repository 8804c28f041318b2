/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "recorder/memory.h"

#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "recorder/state.h"

enum {
    PAGE_LOG2 = 12,  /* the bitmap counts in 4 KiB, whatever the system's pages are */
    CHUNK_LOG2 = 15, /* pages of a chunk, which is one page of bits: 128 MiB of addresses */
    CHUNKS = 1 << (48 - PAGE_LOG2 - CHUNK_LOG2),
    CHUNK_WORDS = 1 << (CHUNK_LOG2 - 6),
    CHUNKS_MAX = 4096, /* 512 GiB of addresses; objects outside count as not malloc's */
    RECENT_PAGES = 32,
    TEXT_BYTES = 16 * 1024,
};

static uint64_t **chunks;  /* atomic pointers, CHUNKS of them, of which few are touched */
static uint64_t *pool;     /* the bits of CHUNKS_MAX chunks, mapped at once */
static uint32_t pool_used; /* atomic */

static struct {
    uint64_t start, bytes;
} own_maps[RECORD_MAPS_MAX];
static uint32_t own_count; /* atomic; may be above RECORD_MAPS_MAX */

static struct {
    uint32_t busy;     /* atomic; 1: a thread is reading */
    uint64_t rss;      /* atomic; bytes at the highest reading */
    uint64_t rss_now;  /* bytes at the reading under way */
    uint32_t is_new;   /* atomic; 1: the reading is not in the file yet */
    uint64_t start_ns; /* of the recording */
    uint64_t at_ns;    /* of the highest reading, since start_ns */
    record_resident most;
    uint64_t latest_malloc_bytes, latest_other_bytes;
    uint64_t spent_ns; /* by readings of the parts */
    uint64_t clock_ns,
        work_ns;         /* atomic; the time, and work_ns, at the latest reading of the RSS */
    record_pause *pause; /* that the reading under way is for; NULL: none */
    char text[TEXT_BYTES];
} reading;

/* Only the thread that has set reading.busy uses it.
 *   count <= RECORD_PAUSES_MAX;  end.to == 0: not noted */
static struct {
    uint32_t count;
    record_pause longest[RECORD_PAUSES_MAX], end;
    char text[RECORD_PAUSES_TEXT_BYTES];
} pauses;

/* Core dumps leave the recorder's memory out. So the kernel never joins it to a mapping of the
 * program, and each mapping of smaps is the recorder's as a whole or not at all. */
void *record_map(size_t bytes) {
    void *p = sw_os_map(bytes);
    if (p == NULL) return NULL;
    (void)syscall(SYS_madvise, p, bytes, MADV_DONTDUMP);
    (void)syscall(SYS_madvise, p, bytes, MADV_NOHUGEPAGE); /* the tables are sparse */
    uint32_t i = __atomic_fetch_add(&own_count, 1, __ATOMIC_RELAXED);
    if (i < RECORD_MAPS_MAX) {
        own_maps[i].start = (uintptr_t)p;
        __atomic_store_n(&own_maps[i].bytes, bytes, __ATOMIC_RELEASE);
    }
    return p;
}

void record_memory_init(void) {
    record_memory_after_fork();
    /* Pages of unrecorded objects are not marked: no parts. */
    if (record_option.sample != 0 || record_attached) return;
    pool = record_map((size_t)CHUNKS_MAX * CHUNK_WORDS * sizeof *pool);
    if (pool != NULL) chunks = record_map(CHUNKS * sizeof *chunks);
}

/* --- marks ------------------------------------------------------------------------------------ */

/* The bits of a chunk, taken from the pool if there are none. NULL: the pool is used up. */
static uint64_t *chunk_of(uint64_t page) {
    uint64_t **place = &chunks[(page >> CHUNK_LOG2) % CHUNKS], *empty = NULL;
    uint64_t *bits = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    if (sw_likely(bits != NULL)) return bits;
    if (__atomic_load_n(&pool_used, __ATOMIC_RELAXED) >= CHUNKS_MAX) return NULL;
    uint32_t next = __atomic_fetch_add(&pool_used, 1, __ATOMIC_RELAXED);
    if (next >= CHUNKS_MAX) return NULL;
    bits = pool + (size_t)next * CHUNK_WORDS;
    return __atomic_compare_exchange_n(place, &empty, bits, false, __ATOMIC_ACQ_REL,
                                       __ATOMIC_ACQUIRE)
               ? bits
               : empty;
}

/* The bits of one word in [first, last]; `word` counts words from page 0. */
static uint64_t bits_between(uint64_t word, uint64_t first, uint64_t last) {
    uint64_t bits = ~UINT64_C(0);
    if (word == first / 64) bits &= ~UINT64_C(0) << first % 64;
    if (word == last / 64) bits &= ~UINT64_C(0) >> (63 - last % 64);
    return bits;
}

static void mark(uint64_t address, uint64_t bytes) {
    uint64_t first = address >> PAGE_LOG2;
    uint64_t last = (address + (bytes != 0 ? bytes - 1 : 0)) >> PAGE_LOG2;
    for (uint64_t word = first / 64; word <= last / 64; word++) {
        uint64_t *chunk = chunk_of(word * 64);
        if (chunk == NULL) return;
        uint64_t *to = &chunk[word % CHUNK_WORDS], bits = bits_between(word, first, last);
        if ((__atomic_load_n(to, __ATOMIC_RELAXED) & bits) != bits)
            (void)__atomic_fetch_or(to, bits, __ATOMIC_RELAXED);
    }
}

/* Clears the marks of whole pages. */
static void unmark(uint64_t address, uint64_t bytes) {
    uint64_t first = address >> PAGE_LOG2, last = (address + bytes - 1) >> PAGE_LOG2;
    for (uint64_t word = first / 64; word <= last / 64; word++) {
        uint64_t *chunk =
            __atomic_load_n(&chunks[(word * 64 >> CHUNK_LOG2) % CHUNKS], __ATOMIC_ACQUIRE);
        if (chunk == NULL)
            word |= CHUNK_WORDS - 1; /* on to the next chunk */
        else
            (void)__atomic_fetch_and(&chunk[word % CHUNK_WORDS], ~bits_between(word, first, last),
                                     __ATOMIC_RELAXED);
    }
}

/* Most objects are in a page that one of the last objects was in. */
void record_memory_mark(const swt_raw *block) {
    if (chunks == NULL || block->events == NULL) return;
    uint64_t recent[RECENT_PAGES] = {0};
    const swt_event *end = block->events + SWT_RAW_EVENTS_MAX;
    for (const swt_event *e = block->events; e < end; e++) {
        uint64_t word = __atomic_load_n(&e->word, __ATOMIC_ACQUIRE);
        if (word == 0) break;
        uint64_t size = __atomic_load_n(&e->size, __ATOMIC_RELAXED);
        if (size - 1 >= RECORD_LARGE_BYTES - 1) continue; /* large, or none: a free */
        uint64_t first = word & 0xFFFFFFFFFFFFull, page = first >> PAGE_LOG2;
        if (recent[page % RECENT_PAGES] == page && (first + size - 1) >> PAGE_LOG2 == page)
            continue;
        recent[page % RECENT_PAGES] = page;
        if (swt_raw_has_size((uint32_t)(word >> 48) & 0x7F)) mark(first, size);
    }
}

/* A word of the bitmap; 0 where nothing near it was ever marked. */
static uint64_t marks_of(uint64_t word) {
    uint64_t **place = &chunks[(word * 64 >> CHUNK_LOG2) % CHUNKS];
    const uint64_t *chunk = __atomic_load_n(place, __ATOMIC_ACQUIRE);
    return chunk == NULL ? 0 : __atomic_load_n(&chunk[word % CHUNK_WORDS], __ATOMIC_RELAXED);
}

/* Bytes of the marked pages in [start, end). */
static uint64_t marked_bytes(uint64_t start, uint64_t end) {
    uint64_t first = start >> PAGE_LOG2, last = (end - 1) >> PAGE_LOG2, pages = 0;
    for (uint64_t word = first / 64; word <= last / 64; word++) {
        if (chunks[(word * 64 >> CHUNK_LOG2) % CHUNKS] == NULL)
            word |= CHUNK_WORDS - 1; /* on to the next chunk */
        else
            pages +=
                (uint64_t)__builtin_popcountll(marks_of(word) & bits_between(word, first, last));
    }
    return pages << PAGE_LOG2;
}

/* --- /proc ------------------------------------------------------------------------------------ */

static int open_proc(const char *path) {
    return (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);
}

static uint64_t decimal(const char *p) {
    while (*p == ' ' || *p == '\t') p++;
    uint64_t value = 0;
    for (; *p >= '0' && *p <= '9'; p++) value = value * 10 + (uint64_t)(*p - '0');
    return value;
}

static uint64_t hexadecimal(const char **at) {
    uint64_t value = 0;
    for (;; ++*at) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value << 4 | (uint64_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value << 4 | (uint64_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* The second number of a file of one line; 0: not known. */
static uint64_t second_of(const char *path) {
    char text[128];
    int fd = open_proc(path);
    if (fd < 0) return 0;
    long n = syscall(SYS_read, fd, text, sizeof text - 1);
    (void)syscall(SYS_close, fd);
    text[n > 0 ? n : 0] = '\0';
    const char *second = strchr(text, ' ');
    return second == NULL ? 0 : decimal(second);
}

/* The resident bytes of the process now; 0: not known. */
static uint64_t rss_now(void) { return second_of("/proc/self/statm") * sw_os_page_bytes(); }

/* How long the process has had work: its CPU time, and how long its first thread waited for a
 * processor. */
static uint64_t work_ns(void) { return sw_os_cpu_ns() + second_of("/proc/self/schedstat"); }

/* One mapping of /proc/self/smaps. */
typedef struct mapping {
    uint64_t start, end, rss, anonymous;
    bool is_heap, is_area, is_data, is_writable_file;
} mapping;

static uint64_t own_bytes(const mapping *m) {
    uint64_t sum = 0;
    uint32_t count = __atomic_load_n(&own_count, __ATOMIC_RELAXED);
    for (uint32_t i = 0; i < count && i < RECORD_MAPS_MAX; i++) {
        uint64_t bytes = __atomic_load_n(&own_maps[i].bytes, __ATOMIC_ACQUIRE);
        uint64_t first = own_maps[i].start, last = first + bytes;
        if (first < m->start) first = m->start;
        if (last > m->end) last = m->end;
        if (first < last) sum += last - first;
    }
    return sum;
}

/* Of the 64 pages of a bitmap word, those that are in memory, as bits. */
static uint64_t present_bits(int pagemap, uint64_t word) {
    uint64_t entries[64], bits = 0;
    long n = syscall(SYS_pread64, pagemap, entries, sizeof entries, word * sizeof entries);
    for (long i = 0; i < n / (long)sizeof *entries; i++) bits |= entries[i] >> 63 << i;
    return bits;
}

/* Resident bytes of the marked pages of [start, end), by /proc/self/pagemap. */
static uint64_t marked_and_present(uint64_t start, uint64_t end, uint64_t marked) {
    int pagemap = sw_os_page_bytes() == 1 << PAGE_LOG2 ? open_proc("/proc/self/pagemap") : -1;
    if (pagemap < 0) return marked;
    uint64_t first = start >> PAGE_LOG2, last = (end - 1) >> PAGE_LOG2, pages = 0;
    for (uint64_t word = first / 64; word <= last / 64; word++) {
        uint64_t bits = marks_of(word) & bits_between(word, first, last);
        if (bits != 0) pages += (uint64_t)__builtin_popcountll(bits & present_bits(pagemap, word));
    }
    (void)syscall(SYS_close, pagemap);
    return pages << PAGE_LOG2;
}

/* The kernel joins neighbouring mappings, so one may have pages of malloc that were never touched
 * next to pages that the program mapped. Only there single pages are looked up. */
static uint64_t malloc_bytes(const mapping *m, uint64_t marked) {
    if (m->is_heap) return m->anonymous;
    uint64_t unmarked = m->end - m->start - marked;
    if (marked == 0 || m->anonymous == 0) return 0;
    uint64_t least = m->anonymous > unmarked ? m->anonymous - unmarked : 0;
    uint64_t most = marked < m->anonymous ? marked : m->anonymous;
    return most - least < m->anonymous / 64 ? most : marked_and_present(m->start, m->end, most);
}

static void add_mapping(record_resident *sum, const mapping *m) {
    uint64_t left = m->anonymous;
    *(m->is_area ? &sum->own_bytes : &sum->file_bytes) += m->rss - left;
    uint64_t marked = marked_bytes(m->start, m->end), of_malloc = malloc_bytes(m, marked);
    if (of_malloc > left) of_malloc = left;
    if (marked > of_malloc) sum->untouched_bytes += marked - of_malloc;
    sum->malloc_bytes += of_malloc;
    left -= of_malloc;
    uint64_t own = own_bytes(m);
    if (own > left) own = left;
    sum->own_bytes += own;
    left -= own;
    if (m->is_data)
        sum->data_bytes += left;
    else
        sum->mapped_bytes += left;
}

/* The first line of a mapping: start-end perms offset device inode [path]. The zeroed data of a
 * file follow its writable mapping, without a name. */
static mapping mapping_of(const char *line, const mapping *before) {
    mapping m = {.start = hexadecimal(&line)};
    line++;
    m.end = hexadecimal(&line);
    const char *name = strchr(line, '/');
    bool has_file = name != NULL;
    m.is_area = has_file && record_option.areas[0] != '\0' &&
                strncmp(name, record_option.areas, strlen(record_option.areas)) == 0;
    m.is_writable_file = has_file && line[2] == 'w' && line[4] == 'p'; /* not the areas */
    m.is_heap = !has_file && strstr(line, "[heap]") != NULL;
    m.is_data = has_file || strstr(line, "[stack]") != NULL ||
                (before->is_writable_file && before->end == m.start);
    return m;
}

/* Adds one line of smaps; a mapping is added to the sum when the next one begins. */
static void add_line(record_resident *sum, mapping *m, const char *line) {
    if ((*line >= '0' && *line <= '9') || (*line >= 'a' && *line <= 'f')) {
        if (m->end != 0) add_mapping(sum, m);
        *m = mapping_of(line, m);
    } else if (strncmp(line, "Rss:", 4) == 0) {
        m->rss = decimal(line + 4) * 1024;
    } else if (strncmp(line, "Anonymous:", 10) == 0) {
        m->anonymous = decimal(line + 10) * 1024;
    }
}

/* Reads a file of /proc line by line; a line that is longer than the buffer is cut. */
static bool each_line(const char *path, void (*take)(record_resident *, mapping *, const char *),
                      record_resident *sum, mapping *m) {
    int fd = open_proc(path);
    if (fd < 0) return false;
    size_t used = 0;
    for (;;) {
        long n = syscall(SYS_read, fd, reading.text + used, TEXT_BYTES - 1 - used);
        if (n <= 0) break;
        used += (size_t)n;
        char *line = reading.text, *stop;
        while ((stop = memchr(line, '\n', used - (size_t)(line - reading.text))) != NULL) {
            *stop = '\0';
            take(sum, m, line);
            line = stop + 1;
        }
        used -= (size_t)(line - reading.text);
        if (used == TEXT_BYTES - 1) used = 0;
        memmove(reading.text, line, used);
    }
    (void)syscall(SYS_close, fd);
    return true;
}

/* While smaps is read, other threads may move memory from mappings that were read to mappings that
 * were not. The parts then add up to more than was ever resident: malloc's is reduced. */
static void bound_by_rss(record_resident *sum, uint64_t rss) {
    uint64_t others = sum->mapped_bytes + sum->data_bytes + sum->file_bytes + sum->own_bytes;
    uint64_t most = rss > others ? rss - others : 0;
    /* The kernel's account of the RSS may lag by some pages per thread. */
    if (rss != 0 && sum->malloc_bytes > most + rss / 64) sum->malloc_bytes = most;
}

static void read_mappings(uint64_t rss) {
    record_resident sum = {0};
    mapping m = {0};
    if (!each_line("/proc/self/smaps", add_line, &sum, &m)) return;
    if (m.end != 0) add_mapping(&sum, &m);
    bound_by_rss(&sum, sw_max_u64(rss, rss_now()));
    reading.latest_malloc_bytes = sum.malloc_bytes;
    reading.latest_other_bytes = sum.mapped_bytes + sum.data_bytes + sum.file_bytes + sum.own_bytes;
    if (rss <= reading.rss) return; /* the last reading may be below the highest */
    reading.most = sum;
    reading.at_ns = sw_os_now_ns() - reading.start_ns;
    __atomic_store_n(&reading.rss, rss, __ATOMIC_RELAXED);
    __atomic_store_n(&reading.is_new, 1, __ATOMIC_RELAXED);
}

/* --- readings --------------------------------------------------------------------------------- */

/* Notes the moment of the highest RSS of a sampled recording, which is not divided into parts. */
static void note_most(uint64_t rss, uint64_t ns) {
    if (__atomic_exchange_n(&reading.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
    reading.at_ns = ns;
    __atomic_store_n(&reading.rss, rss, __ATOMIC_RELAXED);
    __atomic_store_n(&reading.is_new, 1, __ATOMIC_RELAXED);
    __atomic_store_n(&reading.busy, 0, __ATOMIC_RELEASE);
}

static void note_clocks(void) {
    __atomic_store_n(&reading.clock_ns, sw_os_now_ns(), __ATOMIC_RELAXED);
    __atomic_store_n(&reading.work_ns, work_ns(), __ATOMIC_RELAXED);
}

bool record_memory_begin(bool last) {
    uint64_t rss = rss_now(), most = __atomic_load_n(&reading.rss, __ATOMIC_RELAXED);
    uint64_t ns = sw_os_now_ns() - reading.start_ns;
    record_rss_note(ns, rss, last);
    note_clocks();
    if (chunks == NULL) {
        if (rss > most) note_most(rss, ns);
        return false;
    }
    if (!last && rss <= most + most / 16) return false;
    if (__atomic_exchange_n(&reading.busy, 1, __ATOMIC_ACQUIRE) != 0) return false;
    reading.rss_now = rss;
    return true;
}

void record_memory_end(void) {
    uint64_t start_ns = sw_os_now_ns();
    read_mappings(reading.rss_now);
    reading.spent_ns += sw_os_now_ns() - start_ns;
    if (reading.pause != NULL) reading.pause->malloc_bytes = reading.latest_malloc_bytes;
    reading.pause = NULL;
    __atomic_store_n(&reading.busy, 0, __ATOMIC_RELEASE);
}

/* --- pauses ----------------------------------------------------------------------------------- */

/* Before the pause, since the latest reading of the RSS, each thread may have used a processor. */
bool record_memory_was_idle(uint64_t pause_ns, uint64_t threads) {
    uint64_t clock = __atomic_load_n(&reading.clock_ns, __ATOMIC_RELAXED);
    uint64_t work = __atomic_load_n(&reading.work_ns, __ATOMIC_RELAXED);
    uint64_t passed = sw_os_now_ns() - clock, used = work_ns() - work;
    uint64_t before = passed > pause_ns ? passed - pause_ns : 0;
    return used <= before * threads + pause_ns / 2;
}

/* A free place, or that of the shortest pause if it is shorter. NULL: the pause is not kept. */
static record_pause *place_for(uint64_t from, uint64_t to) {
    record_pause *shortest = &pauses.longest[0];
    for (uint32_t i = 0; i < pauses.count; i++) {
        record_pause *other = &pauses.longest[i];
        if (other->from == from) return NULL; /* two threads noticed its end */
        if (other->to - other->from < shortest->to - shortest->from) shortest = other;
    }
    if (pauses.count < RECORD_PAUSES_MAX) return &pauses.longest[pauses.count++];
    return to - from > shortest->to - shortest->from ? shortest : NULL;
}

bool record_memory_begin_pause(uint64_t from, uint64_t to) {
    if (chunks == NULL || __atomic_exchange_n(&reading.busy, 1, __ATOMIC_ACQUIRE) != 0)
        return false;
    record_pause *place = place_for(from, to);
    if (place != NULL) {
        uint64_t rss = rss_now(), others = reading.latest_other_bytes;
        uint64_t ns = sw_os_now_ns() - reading.start_ns;
        record_rss_note(ns, rss, false);
        note_clocks();
        *place = (record_pause){from, to, rss > others ? rss - others : 0};
        if (reading.spent_ns <= ns / 64) {
            reading.pause = place;
            reading.rss_now = rss;
            return true;
        }
    }
    __atomic_store_n(&reading.busy, 0, __ATOMIC_RELEASE);
    return false;
}

void record_memory_note_end(uint64_t from, uint64_t to) {
    if (chunks == NULL || __atomic_exchange_n(&reading.busy, 1, __ATOMIC_ACQUIRE) != 0) return;
    pauses.end = (record_pause){from, to, reading.latest_malloc_bytes};
    __atomic_store_n(&reading.busy, 0, __ATOMIC_RELEASE);
}

static char *put_pause(char *p, const record_pause *pause) {
    p = record_put_decimal(p, pause->from);
    *p++ = ':';
    p = record_put_decimal(p, pause->to);
    *p++ = ':';
    p = record_put_decimal(p, pause->malloc_bytes);
    *p++ = ' ';
    return p;
}

bool record_memory_put_pauses(swt_buffer *buffer) {
    if (__atomic_exchange_n(&reading.busy, 1, __ATOMIC_ACQUIRE) != 0) return false;
    char *p = pauses.text;
    for (uint32_t i = 0; i < pauses.count; i++) p = put_pause(p, &pauses.longest[i]);
    if (pauses.end.to != 0) p = put_pause(p, &pauses.end);
    bool done = p != pauses.text;
    if (done) {
        p[-1] = '\0';
        done = swt_put_meta(buffer, "rss_pauses", pauses.text);
    }
    __atomic_store_n(&reading.busy, 0, __ATOMIC_RELEASE);
    return done;
}

/* --- what is written -------------------------------------------------------------------------- */

bool record_memory_is_new(void) { return __atomic_load_n(&reading.is_new, __ATOMIC_RELAXED) != 0; }

void record_memory_mark_object(uint64_t address, uint64_t bytes) {
    if (chunks != NULL) mark(address, bytes);
}

void record_memory_unmark(uint64_t address, uint64_t bytes) {
    if (chunks != NULL && bytes != 0) unmark(address, bytes);
}

bool record_memory_unmark_mapped(const void *p) {
    uint64_t start = (uintptr_t)p - 16, bytes = ((const size_t *)p)[-1] & ~(size_t)4095;
    if (chunks == NULL || bytes < RECORD_LARGE_BYTES || bytes > UINT64_C(1) << 40) return false;
    /* The object may end a page before its mapping does. */
    if (marked_bytes(start, start + bytes) + 4096 < bytes) return false;
    unmark(start, bytes);
    return true;
}

/* The peak RSS by the system's account: of this image of the process, not of an earlier one. */
static void take_peak(record_resident *peak, mapping *unused, const char *line) {
    (void)unused;
    if (strncmp(line, "VmHWM:", 6) == 0) peak->file_bytes = decimal(line + 6) * 1024;
}

bool record_memory_put(swt_buffer *buffer) {
    record_resident peak = {0};
    if (__atomic_load_n(&reading.rss, __ATOMIC_RELAXED) == 0 ||
        __atomic_exchange_n(&reading.busy, 1, __ATOMIC_ACQUIRE) != 0)
        return false;
    (void)each_line("/proc/self/status", take_peak, &peak, NULL);
    const record_resident *most = &reading.most;
    bool done = swt_put_meta_u64(buffer, "rss_peak", peak.file_bytes) &&
                swt_put_meta_u64(buffer, "rss_ns", reading.at_ns);
    if (chunks != NULL)
        done = done && swt_put_meta_u64(buffer, "rss_malloc", most->malloc_bytes) &&
               swt_put_meta_u64(buffer, "rss_mapped", most->mapped_bytes) &&
               swt_put_meta_u64(buffer, "rss_data", most->data_bytes) &&
               swt_put_meta_u64(buffer, "rss_file", most->file_bytes) &&
               swt_put_meta_u64(buffer, "rss_recorder", most->own_bytes) &&
               swt_put_meta_u64(buffer, "rss_untouched", most->untouched_bytes) &&
               swt_put_meta_u64(buffer, "rss_end_malloc", reading.latest_malloc_bytes);
    __atomic_store_n(&reading.is_new, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&reading.busy, 0, __ATOMIC_RELEASE);
    return done;
}

void record_memory_after_fork(void) {
    reading.busy = 0;
    reading.rss = 0;
    reading.is_new = 0;
    reading.start_ns = sw_os_now_ns();
    reading.spent_ns = 0;
    reading.pause = NULL;
    pauses.count = 0;
    pauses.end.to = 0;
    record_rss_after_fork();
}
