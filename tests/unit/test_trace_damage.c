/* SPDX-License-Identifier: Apache-2.0 */
/* Truncated, damaged and hostile recordings: always one clear error or the valid prefix, never a
 * crash and never operations that were not written.
 */
#include <unistd.h>
#include <zstd.h>

#include "trace_fixture.h"

enum { COUNT = 1500, IDS = 200 };

static sw_op ops[COUNT];
static const char *path;

/* The good file and what it says when it is whole. */
typedef struct sample {
    bytes file;
    sw_op *ops;
    size_t count;
} sample;

static sample make_ordered(size_t count) {
    sample s = {0};
    sw_trace_writer *w;
    uint64_t seed = 5;
    random_ops(&seed, ops, count, IDS);
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    CHECK_EQ(sw_trace_set_meta(w, "pid", "77"), SW_OK);
    CHECK_EQ(sw_trace_append(w, ops, count), SW_OK);
    CHECK_EQ(sw_trace_commit(w, NULL), SW_OK);
    s.file = file_read(path);
    CHECK_EQ(read_all(path, 0, &s.ops, &s.count), SW_OK);
    return s;
}

/* Two threads that take turns, in small blocks. */
static sample make_raw(uint64_t steps) {
    sample s = {0};
    swt_event events[2][41];
    swt_raw raw[2];
    uint64_t seed = 3, address[2] = {0};
    uint64_t frame = 0x401000;
    uint8_t room[64];
    swt_buffer b = {room, 0, sizeof room};
    begin_raw(&s.file);
    swt_put_site(&b, 1, &frame, 1);
    add_block(&s.file, SWT_BLOCK_SITES, b.data, b.used);
    for (uint32_t i = 0; i < 2; i++) swt_raw_init(&raw[i], events[i], 40, i, NULL);
    for (uint64_t i = 1; i <= steps; i++) {
        uint64_t r = check_random(&seed), who = r & 1;
        swt_raw *own = &raw[who];
        if (own->limit - own->next < 2) {
            add_raw(&s.file, own, 0);
            swt_raw_clear(own);
        }
        if (address[who] == 0) {
            address[who] = 0x10000 + (r >> 8) % 1000 * 16;
            swt_raw_alloc(own, SWT_RAW_MALLOC, i, 1000 + i * 90, address[who], (r >> 20) % 900, 0,
                          1);
        } else {
            swt_raw_free(own, i, 1000 + i * 90, address[who], 0);
            address[who] = 0;
        }
    }
    for (int i = 0; i < 2; i++) add_raw(&s.file, &raw[i], 0);
    end_raw(&s.file, &(swt_end){.calls = steps});
    file_write(path, s.file.data, s.file.used);
    CHECK_EQ(read_all(path, 0, &s.ops, &s.count), SW_OK);
    return s;
}

static void drop(sample *s) {
    free(s->file.data);
    free(s->ops);
}

static bool one_line(const char *message) {
    return strstr(message, path) != NULL && strchr(message, '\n') == NULL;
}

/* Reads a damaged file in both modes. is_prefix: the operations of the valid prefix must be the
 * first ones of the whole (an ordered file); a raw prefix may lack a thread's later events. */
static void check_damaged(const sample *s, bool is_prefix) {
    sw_op *got;
    size_t n;
    sw_status status = read_all(path, 0, &got, &n);
    CHECK(status == SW_FORMAT && one_line(sw_last_error()->message));
    CHECK(n <= s->count && (n == 0 || !is_prefix || memcmp(got, s->ops, n * sizeof *got) == 0));
    free(got);
    status = read_all(path, SW_TRACE_VALID_PREFIX, &got, &n);
    CHECK(status == SW_OK || status == SW_FORMAT); /* FORMAT: the file header itself */
    CHECK(n <= s->count + 8);
    CHECK(n == 0 || !is_prefix || memcmp(got, s->ops, n * sizeof *got) == 0);
    free(got);
}

static void cut_everywhere(sample *s, bool is_prefix) {
    file_write(path, s->file.data, s->file.used);
    for (size_t length = s->file.used; length-- > 0;) {
        if (!check_mine(length)) continue;
        CHECK_EQ(truncate(path, (off_t)length), 0);
        check_damaged(s, is_prefix);
    }
    file_write(path, s->file.data, s->file.used);
    file_patch(path, s->file.used, "x", 1); /* one byte too many */
    check_damaged(s, is_prefix);
}

static void flip_everywhere(sample *s, bool is_prefix) {
    size_t flipped = s->file.used < 4096 ? s->file.used : 4096;
    file_write(path, s->file.data, s->file.used);
    for (size_t at = 0; at < flipped; at++) {
        if (!check_mine(at)) continue;
        /* Every bit of the first headers; of payload, which a checksum guards, one of each byte. */
        unsigned bits = at < 512 ? 0xFF : 1u << at % 8;
        for (int bit = 0; bit < 8; bit++) {
            if ((bits >> bit & 1) == 0) continue;
            uint8_t byte = (uint8_t)(s->file.data[at] ^ 1u << bit);
            file_patch(path, at, &byte, 1);
            check_damaged(s, is_prefix);
        }
        file_patch(path, at, &s->file.data[at], 1);
    }
}

/* The message for a file, without its name at the front. */
static const char *message_of(const void *data, size_t n) {
    sw_trace *t = NULL;
    file_write(path, data, n);
    CHECK_EQ(sw_trace_open(path, 0, &t), SW_FORMAT);
    const char *message = sw_last_error()->message;
    CHECK(strncmp(message, path, strlen(path)) == 0);
    return message + strlen(path);
}

static void messages(sample *s) {
    uint8_t header[SWT_FILE_HEADER_BYTES];
    char want[160];
    CHECK_STR(message_of("", 0),
              ": not a spanwise recording: the file is empty; make one with spanwise record");
    CHECK_STR(message_of("hello", 5),
              ": not a spanwise recording: it does not begin with the .swt magic; make one with "
              "spanwise record");
    CHECK_STR(
        message_of(s->file.data, 20),
        ": byte 20: the file is cut within its header; there is nothing to read, record again");
    swt_header_encode(header, &(swt_header){.version = 9, .form = 1});
    CHECK_STR(message_of(header, sizeof header),
              ": byte 8: written by a newer spanwise (format 9, this reads 3): upgrade spanwise");
    swt_header_encode(header, &(swt_header){.version = 2, .form = 1});
    CHECK_STR(message_of(header, sizeof header),
              ": byte 8: written by an older spanwise (format 2, this reads 3): record again");
    memcpy(header, s->file.data, sizeof header);
    header[20] ^= 1;
    CHECK_STR(
        message_of(header, sizeof header),
        ": byte 0: the file header is damaged; copy the file again from its source, or record "
        "again");
    snprintf(want, sizeof want,
             ": byte %zu: the recording has no end (the file is cut); nothing before it can be "
             "used, record again",
             (size_t)SWT_FILE_HEADER_BYTES);
    CHECK_STR(message_of(s->file.data, 64), want);
    CHECK_EQ(sw_trace_open("no/such/file.swt", 0, &(sw_trace *){0}), SW_IO);
    CHECK_STR(sw_last_error()->message,
              "no/such/file.swt: cannot open the recording: No such file or directory");
    CHECK_EQ(sw_trace_open(".", 0, &(sw_trace *){0}), SW_IO);
    CHECK_STR(sw_last_error()->message, ".: cannot read: Is a directory");
    CHECK_EQ(sw_trace_open(path, 6, &(sw_trace *){0}), SW_INVALID);
}

/* The middle of three blocks is damaged: the first one's operations are given. */
static void prefix_of_blocks(void) {
    enum { MANY = 2 * SW_TRACE_OPS_MAX + 500 };
    static sw_op many[MANY];
    sw_trace_writer *w;
    sw_trace_info info;
    sw_trace_summary sum;
    sw_trace *t;
    sw_op *got;
    size_t n;
    uint64_t seed = 8;
    random_ops(&seed, many, MANY, IDS);
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    CHECK_EQ(sw_trace_append(w, many, MANY), SW_OK);
    CHECK_EQ(sw_trace_commit(w, NULL), SW_OK);
    bytes file = file_read(path);
    uint64_t first = 64 + 48 + swt_get32(file.data + 64 + 8); /* offset of the second block */
    file.data[first + 1000] ^= 0x10;
    file_write(path, file.data, file.used);
    CHECK_EQ(read_all(path, 0, &got, &n), SW_FORMAT);
    CHECK_EQ(n, SW_TRACE_OPS_MAX);
    CHECK(strstr(sw_last_error()->message, "checksum of a block is wrong; use --valid-prefix (in "
                                           "Python valid_prefix=True) to read the 8192 "
                                           "operations before it") != NULL);
    free(got);
    CHECK_EQ(sw_trace_open(path, SW_TRACE_VALID_PREFIX, &t), SW_OK);
    sw_trace_get_info(t, &info);
    CHECK_EQ(info.ops, SW_TRACE_OPS_MAX);
    CHECK_EQ(info.damaged, 1);
    CHECK_EQ(info.damage_offset, first);
    CHECK_EQ(sw_trace_get_summary(t, &sum), SW_OK);
    CHECK_EQ(sum.ops, SW_TRACE_OPS_MAX);
    CHECK_EQ(sum.incomplete, 1);
    sw_trace_close(t);
    CHECK_EQ(sw_trace_finish(path, path, 0, NULL, NULL, NULL), SW_FORMAT);
    CHECK_EQ(sw_trace_finish(path, path, SW_TRACE_VALID_PREFIX, NULL, NULL, &sum), SW_OK);
    CHECK_EQ(sum.incomplete, 1);
    CHECK_EQ(read_all(path, 0, &got, &n), SW_OK);
    CHECK_EQ(n, SW_TRACE_OPS_MAX);
    CHECK(same_history(many, got, n, IDS));
    free(got);
    free(file.data);
}

/* The file with every block unpacked, a few bytes of one payload changed, and sealed again. */
static bytes resealed(const sample *s, uint64_t *seed) {
    static uint8_t payload[SWT_PAYLOAD_BYTES_MAX];
    bytes file = {0};
    size_t victim = check_random(seed) % 12, index = 0;
    bytes_add(&file, s->file.data, SWT_FILE_HEADER_BYTES);
    for (size_t at = SWT_FILE_HEADER_BYTES; at < s->file.used; index++) {
        swt_block block;
        CHECK(swt_block_decode(s->file.data + at, &block) == NULL);
        const uint8_t *body = s->file.data + at + SWT_BLOCK_HEADER_BYTES;
        if (block.codec == SWT_CODEC_STORED)
            memcpy(payload, body, block.raw_bytes);
        else
            ZSTD_decompress(payload, sizeof payload, body, block.stored_bytes);
        at += SWT_BLOCK_HEADER_BYTES + block.stored_bytes;
        size_t n = block.raw_bytes;
        for (uint64_t k = 1 + check_random(seed) % 3; index == victim && n != 0 && k > 0; k--) {
            uint64_t r = check_random(seed);
            size_t place = r >> 60 < 4 ? (size_t)(r % 36) : (size_t)r; /* often in the head */
            payload[place % n] = (uint8_t)(r >> 50);
            if (r >> 58 == 1) n -= (r >> 8) % n;
            if (r >> 58 == 2) block.first = r;
            if (r >> 58 == 3 && block.count > 1) block.count--;
        }
        add_sealed(&file, block, payload, n);
    }
    return file;
}

/* Whatever comes out keeps the rules of sw_op. */
static bool rules_hold(const sw_op *got, size_t n) {
    uint8_t *live = calloc(n + 1, 1);
    uint64_t time = 0;
    bool good = true;
    for (size_t i = 0; good && i < n; i++) {
        good = got[i].object < n && got[i].time_ns >= time && got[i].kind < SW_OP_KIND_COUNT &&
               got[i].size <= INT64_MAX;
        time = got[i].time_ns;
        if (good && got[i].kind == SW_OP_THREAD_END) {
            good = got[i].object == 0 && got[i].size == 0 && got[i].align_log2 == 0;
            continue;
        }
        good = good && (live[got[i].object] != 0) == (got[i].kind != 0);
        if (good) live[got[i].object] = got[i].kind != SW_OP_FREE;
    }
    free(live);
    return good;
}

static void hostile_changes(const sample *s) {
    uint64_t seed = 31;
    file_write(path, "", 0);
    int rounds = 4000 / (int)check_share();
    for (int round = 0; round < rounds; round++) {
        bytes file = resealed(s, &seed);
        file_patch(path, 0, file.data, file.used);
        CHECK_EQ(truncate(path, (off_t)file.used), 0);
        free(file.data);
        for (unsigned flags = 0; flags < 2; flags++) {
            sw_op *got;
            size_t n;
            sw_status status = read_all(path, flags, &got, &n);
            CHECK(status == SW_OK || (status == SW_FORMAT && flags == 0));
            CHECK(rules_hold(got, n));
            free(got);
        }
    }
}

/* An OPS payload by hand: tags and columns as given. */
static size_t ops_payload(uint8_t *out, const uint8_t *tags, size_t count,
                          const uint8_t *const columns[5], const size_t lengths[5]) {
    uint8_t *at = out + 28;
    memset(out, 0, 28);
    memcpy(at, tags, count);
    at += count;
    for (int i = 0; i < 5; i++) {
        swt_put32(out + 8 + 4 * i, (uint32_t)lengths[i]);
        if (lengths[i] != 0) memcpy(at, columns[i], lengths[i]);
        at += lengths[i];
    }
    return (size_t)(at - out);
}

static void hostile_op(const char *reason, uint8_t tag, const char *size, size_t size_bytes,
                       const char *object, size_t object_bytes, const char *thread) {
    uint8_t payload[256], header[SWT_FILE_HEADER_BYTES];
    const uint8_t tags[2] = {SW_OP_ALLOC, tag};
    uint8_t sizes[32] = {1};
    const uint8_t *columns[5] = {sizes, (const uint8_t *)object, (const uint8_t *)"\0\0",
                                 (const uint8_t *)thread, NULL};
    size_t lengths[5] = {1 + size_bytes, object_bytes, 2, thread != NULL, 0};
    if (size_bytes != 0) memcpy(sizes + 1, size, size_bytes);
    bytes file = {0};
    sw_op *got;
    size_t n = ops_payload(payload, tags, 2, columns, lengths);
    swt_header_encode(header, &(swt_header){.version = SW_TRACE_VERSION, .form = SW_TRACE_ORDERED});
    bytes_add(&file, header, sizeof header);
    add_sealed(&file, (swt_block){.kind = SWT_BLOCK_OPS, .count = 2}, payload, n);
    memset(payload, 0, sizeof payload);
    payload[0] = 2; /* summary: two operations */
    add_sealed(&file, (swt_block){.kind = SWT_BLOCK_SUMMARY}, payload, sizeof(sw_trace_summary));
    file_write(path, file.data, file.used);
    free(file.data);
    CHECK_EQ(read_all(path, 0, &got, &n), SW_FORMAT);
    const char *message = sw_last_error()->message;
    if (strstr(message, reason) == NULL) fprintf(stderr, "%s, not %s\n", message, reason);
    CHECK(strstr(message, reason) != NULL && strstr(message, ": byte 64: ") != NULL);
    free(got);
    CHECK_EQ(read_all(path, SW_TRACE_VALID_PREFIX, &got, &n), SW_OK);
    CHECK_EQ(n, 0);
    free(got);
}

static void hostile_ops(void) {
    static const char two_to_63[] = "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01";
    static const char past_64_bits[] = "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02";
    hostile_op("operation 1: impossible size", SW_OP_ALLOC, two_to_63, 10, NULL, 0, NULL);
    hostile_op("operation 1: a number runs over", SW_OP_REALLOC, past_64_bits, 10, "\0", 1, NULL);
    hostile_op("operation 1: operation on an object that is not live", SW_OP_FREE, NULL, 0, "\2", 1,
               NULL);
    hostile_op("operation 1: operation on an object that is not live", SW_OP_FREE, NULL, 0, "\1", 1,
               NULL);
    hostile_op("operation 1: operation on an object that is not live", SW_OP_REALLOC, "\1", 1,
               "\x80\x80\x80\x80\x20", 5, NULL);
    hostile_op("unknown kind of operation", SW_OP_THREAD_END | 4, NULL, 0, NULL, 0, NULL);
    hostile_op("unknown kind of operation", SW_OP_FREE | 4, NULL, 0, "\0", 1, NULL);
    hostile_op("a column of a block has the wrong length", SW_OP_ALLOC, NULL, 0, NULL, 0, NULL);
    hostile_op("a column of a block has the wrong length", SW_OP_ALLOC, "\1\1", 2, NULL, 0, NULL);
    hostile_op("operation 1: impossible thread", 32, "\1", 1, NULL, 0, "\2");
    hostile_op("operation 1: impossible alignment", 16, "\x30\1", 2, NULL, 0, NULL);
}

int main(void) {
    path = fixture_path("damage.swt");
    for (int form = 0; form < 2; form++) {
        sample s = form == 0 ? make_ordered(COUNT) : make_raw(900);
        CHECK(s.count > 0 && s.file.used > 1000);
        cut_everywhere(&s, form == 0);
        flip_everywhere(&s, form == 0);
        hostile_changes(&s);
        if (form == 0) messages(&s);
        drop(&s);
    }
    prefix_of_blocks();
    hostile_ops();
    remove(path);
    return check_result();
}
