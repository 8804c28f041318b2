/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers for the test_trace_* programs: files in the working directory, raw recordings from the
 * recorder's encoder, random operations, and a reader that checks the rules of sw_op. */
#ifndef TESTS_UNIT_TRACE_FIXTURE_H
#define TESTS_UNIT_TRACE_FIXTURE_H

#include "check.h"
#include "os/os.h"
#include "spanwise/trace.h"
#include "trace/format.h"
#include "trace/raw.h"

/* A growing array of bytes: a file in the making. */
typedef struct bytes {
    uint8_t *data;
    size_t used, capacity;
} bytes;

static inline void bytes_add(bytes *b, const void *data, size_t n) {
    if (b->used + n > b->capacity) {
        b->capacity = (b->used + n) * 2;
        b->data = realloc(b->data, b->capacity);
        if (b->data == NULL) exit(1);
    }
    if (n != 0) memcpy(b->data + b->used, data, n);
    b->used += n;
}

/* A name of this process in the working directory. */
static inline const char *fixture_path(const char *name) {
    static char path[4][96];
    static int next;
    char *p = path[next++ % 4];
    snprintf(p, sizeof path[0], "tmp-%" PRIu64 "-%s", sw_os_process_id(), name);
    return p;
}

static inline void file_write(const char *path, const void *data, size_t n) {
    FILE *f = fopen(path, "wb");
    if (f == NULL || fwrite(data, 1, n, f) != n || fclose(f) != 0) {
        fprintf(stderr, "cannot write %s\n", path);
        exit(1);
    }
}

/* Overwrites a part in place: far cheaper than a new file where a test makes thousands. */
static inline void file_patch(const char *path, size_t at, const void *data, size_t n) {
    FILE *f = fopen(path, "r+b");
    if (f == NULL || fseek(f, (long)at, SEEK_SET) != 0 || fwrite(data, 1, n, f) != n ||
        fclose(f) != 0) {
        fprintf(stderr, "cannot patch %s\n", path);
        exit(1);
    }
}

static inline bytes file_read(const char *path) {
    bytes b = {0};
    uint8_t chunk[4096];
    FILE *f = fopen(path, "rb");
    if (f == NULL) return b;
    for (size_t n; (n = fread(chunk, 1, sizeof chunk, f)) != 0;) bytes_add(&b, chunk, n);
    fclose(f);
    return b;
}

static swt_encoder *fixture_encoder_;

static inline void end_fixture_encoder(void) { swt_encoder_end(fixture_encoder_); }

/* The encoder of all fixtures, which ends with the program. */
static inline swt_encoder *fixture_encoder(void) {
    if (fixture_encoder_ == NULL) {
        swt_encoder *made = swt_encoder_init(sw_os_map(swt_encoder_bytes()), swt_encoder_bytes());
        if (made == NULL || !swt_encoder_compress(made) || atexit(end_fixture_encoder) != 0)
            abort();
        fixture_encoder_ = made;
    }
    return fixture_encoder_;
}

static inline void add_block(bytes *file, swt_block_kind kind, const void *payload, size_t n) {
    const uint8_t *block;
    size_t length = swt_encode_block(fixture_encoder(), kind, payload, n, &block);
    bytes_add(file, block, length);
}

/* A block that may lie about itself. */
static inline void add_sealed(bytes *file, swt_block block, const void *payload, size_t n) {
    const uint8_t *out;
    size_t length = swt_seal(fixture_encoder(), &block, payload, n, &out);
    bytes_add(file, out, length);
}

static inline void add_raw(bytes *file, const swt_raw *raw, uint32_t flags) {
    const uint8_t *block;
    size_t length = swt_encode_raw(fixture_encoder(), raw, flags, &block);
    bytes_add(file, block, length);
}

/* Header, META, CLOCK of a raw recording: one tick is 2 ns, time 0 is tick 1000. */
static inline void begin_raw(bytes *file) {
    uint8_t header[SWT_FILE_HEADER_BYTES], room[512];
    swt_buffer b = {room, 0, sizeof room};
    swt_file_header(header);
    bytes_add(file, header, sizeof header);
    swt_put_meta(&b, "tool", "test");
    swt_put_meta(&b, "arg", "prog");
    swt_put_meta(&b, "arg", "-x");
    swt_put_meta_u64(&b, "pid", 4242);
    swt_put_meta_u64(&b, "page_bytes", 4096);
    swt_put_meta_u64(&b, "pythonmalloc", 1);
    add_block(file, SWT_BLOCK_META, b.data, b.used);
    b.used = 0;
    swt_put_clock(&b, 1000, 5000000, 1ull << 32);
    add_block(file, SWT_BLOCK_CLOCK, b.data, b.used);
}

static inline void end_raw(bytes *file, const swt_end *end) {
    uint8_t room[128];
    swt_buffer b = {room, 0, sizeof room};
    swt_put_clock(&b, 1000 + 1000000, 5000000 + 2000000, 1ull << 32);
    add_block(file, SWT_BLOCK_CLOCK, b.data, b.used);
    b.used = 0;
    swt_put_end(&b, end);
    add_block(file, SWT_BLOCK_END, b.data, b.used);
}

/* Valid random operations with ids of the caller's own choice (any free one); returns the count.
 * Four threads that end at times and come back, sites, alignments, some huge sizes. */
static inline size_t random_ops(uint64_t *seed, sw_op *ops, size_t count, uint32_t ids) {
    uint32_t *live = calloc(ids, sizeof *live), *dead = calloc(ids, sizeof *dead);
    uint32_t live_count = 0, dead_count = ids, threads = 0;
    uint64_t time = 0;
    for (uint32_t i = 0; i < ids; i++) dead[i] = i;
    for (size_t i = 0; i < count; i++) {
        uint64_t r = check_random(seed);
        uint32_t thread = (uint32_t)(r >> 40) % 4;
        if (thread > threads) thread = threads;
        time += (r >> 20) % 300;
        sw_op op = {.time_ns = time, .thread = thread, .site = (uint32_t)(r >> 50) % 20};
        bool can_alloc = dead_count != 0, can_free = live_count != 0;
        if (i > 0 && r >> 20 & 1 && (r >> 21) % 64 == 0) {
            op.thread = ops[i - 1].thread;
            op.kind = SW_OP_THREAD_END;
            op.site = 0;
        } else if (can_alloc && (!can_free || r % 10 < 5)) {
            uint32_t pick = (uint32_t)(r >> 8) % dead_count;
            op.object = live[live_count++] = dead[pick];
            dead[pick] = dead[--dead_count];
            op.kind = SW_OP_ALLOC;
            op.size = r >> 60 == 0 ? r >> 3 : (r >> 12) % 3000;
            op.flags = (uint16_t)(r >> 30) & (SW_OP_ZEROED | SW_OP_SCAN);
            if (r >> 56 == 1) op.align_log2 = (uint8_t)(1 + (r >> 33) % 20);
        } else {
            uint32_t pick = (uint32_t)(r >> 8) % live_count;
            op.object = live[pick];
            op.kind = SW_OP_REALLOC;
            if (r % 10 < 9) {
                op.kind = SW_OP_FREE;
                dead[dead_count++] = live[pick];
                live[pick] = live[--live_count];
            } else {
                op.size = (r >> 12) % 100000;
            }
        }
        if (op.thread == threads) threads++;
        ops[i] = op;
    }
    free(live);
    free(dead);
    return count;
}

/* Reads a whole recording; *ops is malloc'ed. The rules of sw_op are checked on the way. */
static inline sw_status read_all(const char *path, unsigned flags, sw_op **ops, size_t *count) {
    sw_trace *trace;
    const sw_op *batch;
    size_t n;
    *ops = NULL;
    *count = 0;
    sw_status status = sw_trace_open(path, flags, &trace);
    if (status != SW_OK) return status;
    while ((status = sw_trace_next(trace, &batch, &n)) == SW_OK && n != 0) {
        CHECK(n <= SW_TRACE_OPS_MAX);
        *ops = realloc(*ops, (*count + n) * sizeof **ops);
        memcpy(*ops + *count, batch, n * sizeof *batch);
        *count += n;
    }
    sw_trace_close(trace);
    return status;
}

/* What a recording says of itself. */
static inline sw_trace_summary summary_of(const char *path, unsigned flags) {
    sw_trace *trace;
    sw_trace_summary sum = {0};
    CHECK_EQ(sw_trace_open(path, flags, &trace), SW_OK);
    CHECK_EQ(sw_trace_get_summary(trace, &sum), SW_OK);
    sw_trace_close(trace);
    return sum;
}

/* Two histories are the same up to the names of objects. */
static inline bool same_history(const sw_op *a, const sw_op *b, size_t count, uint32_t ids) {
    uint32_t *name = calloc(ids, sizeof *name); /* a's id -> b's id + 1 */
    bool same = true;
    for (size_t i = 0; same && i < count; i++) {
        same = a[i].kind == b[i].kind && a[i].size == b[i].size && a[i].time_ns == b[i].time_ns &&
               a[i].thread == b[i].thread && a[i].site == b[i].site && a[i].flags == b[i].flags &&
               a[i].align_log2 == b[i].align_log2 && a[i].object < ids;
        if (!same) break;
        if (a[i].kind == SW_OP_THREAD_END) {
            same = b[i].object == 0;
            continue;
        }
        uint32_t *known = &name[a[i].object];
        if (a[i].kind == SW_OP_ALLOC)
            same = *known == 0;
        else
            same = *known == b[i].object + 1;
        *known = a[i].kind == SW_OP_FREE ? 0 : b[i].object + 1;
    }
    free(name);
    return same;
}

#endif
