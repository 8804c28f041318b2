/* SPDX-License-Identifier: Apache-2.0 */
/* Opens a recording: file header, index of the blocks, reads of blocks. docs/design/trace.md. */
#include "trace/file.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <zstd.h>

#include "base/base.h"
#include "trace/ops.h"

const char *swt_file_check(const swt_file *file) {
    return SW_RULE(file->entry_count <= file->entry_capacity)
               ?: SW_RULE(!file->damaged || file->prefix)
               ?: SW_RULE(file->damage_at <= file->bytes)
               ?: swt_notes_check(&file->notes);
}

static const char op[] = "sw_trace_open";

static bool seek(FILE *stream, uint64_t at) {
    if (at > INT64_MAX) return false;
    return fseeko(stream, (off_t)at, SEEK_SET) == 0;
}

static void set_name(swt_file *file, const char *path) {
    size_t length = strlen(path);
    bool whole = length < sizeof file->name;
    snprintf(file->name, sizeof file->name, "%s%s", whole ? "" : "...",
             whole ? path : path + length - (sizeof file->name - 4));
}

sw_status swt_file_no_memory(const swt_file *file) {
    return sw_fail(SW_NOMEM, op, "%s: out of memory while reading", file->name);
}

static sw_status io_failed(const swt_file *file, const char *what) {
    bool shrank = file->stream != NULL && feof(file->stream);
    return sw_fail(SW_IO, op, "%s: cannot %s: %s", file->name, what,
                   shrank ? "the file became shorter while it was read" : strerror(errno));
}

/* Returns the number of operations (or events) in the entries that begin before an offset. */
static uint64_t count_before(const swt_file *file, uint64_t at) {
    uint64_t count = 0;
    for (size_t i = 0; i < file->entry_count && file->entries[i].at < at; i++)
        count += file->entries[i].count;
    return count;
}

/* Returns an error that names the damage, and what --valid-prefix can still read. */
static sw_status damaged(const swt_file *file, uint64_t at, const char *reason) {
    uint64_t count = count_before(file, at);
    if (count == 0)
        return sw_fail(SW_FORMAT, op,
                       "%s: byte %" PRIu64 ": %s; nothing before it can be used, record again",
                       file->name, at, reason);
    return sw_fail(SW_FORMAT, op,
                   "%s: byte %" PRIu64
                   ": %s; use --valid-prefix (in Python valid_prefix=True) to read the %" PRIu64
                   " %s%s before it",
                   file->name, at, reason, count,
                   file->header.form == SW_TRACE_RAW ? "event" : "operation",
                   count == 1 ? "" : "s");
}

sw_status swt_file_damage(swt_file *file, uint64_t at, const char *reason) {
    if (reason == swt_no_memory) return swt_file_no_memory(file);
    if (!file->prefix) return damaged(file, at, reason);
    if (!file->damaged || at < file->damage_at) file->damage_at = at;
    file->damaged = true;
    return SW_OK;
}

/* Reads and checks the block header at an offset. Returns NULL, or what is wrong with it. *io:
 * reading itself failed, and the text names what was read. */
static const char *read_header(swt_file *file, uint64_t at, swt_block *block, bool *io) {
    *io = false;
    uint8_t bytes[SWT_BLOCK_HEADER_BYTES];
    if (file->bytes - at < sizeof bytes) return "the file is cut within a block header";
    if (!seek(file->stream, at) || fread(bytes, 1, sizeof bytes, file->stream) != sizeof bytes) {
        *io = true;
        return "read a block header";
    }
    const char *wrong = swt_block_decode(bytes, block);
    if (wrong != NULL) return wrong;
    if (file->bytes - at - SWT_BLOCK_HEADER_BYTES < block->stored_bytes)
        return "the file is cut within a block";
    return NULL;
}

static const char *decompress(swt_file *file, const swt_block *block) {
    const uint8_t *body = file->stored + SWT_BLOCK_HEADER_BYTES;
    if (swt_checksum(body, block->stored_bytes) != block->payload_sum)
        return "checksum of a block is wrong";
    if (!swt_grow(&file->payload, &file->payload_capacity, (size_t)block->raw_bytes + 1, 1))
        return swt_no_memory;
    if (block->codec == SWT_CODEC_STORED) {
        memcpy(file->payload, body, block->raw_bytes);
        return NULL;
    }
    size_t got = ZSTD_decompressDCtx(file->decompressor, file->payload, block->raw_bytes, body,
                                     block->stored_bytes);
    if (got != block->raw_bytes) return "a block does not decompress to its length";
    sw_written_outside(file->payload, got);
    return NULL;
}

/* Reads the header and the payload of a block; the header was checked before. */
static const char *read_payload(swt_file *file, uint64_t at, size_t stored_bytes, swt_block *block,
                                bool *io) {
    size_t bytes = SWT_BLOCK_HEADER_BYTES + stored_bytes;
    *io = false;
    if (!swt_grow(&file->stored, &file->stored_capacity, bytes, 1)) return swt_no_memory;
    if (!seek(file->stream, at) || fread(file->stored, 1, bytes, file->stream) != bytes) {
        *io = true;
        return "read a block";
    }
    const char *wrong = swt_block_decode(file->stored, block);
    if (wrong != NULL) return wrong;
    if (block->stored_bytes != stored_bytes) return "the file changed while it was read";
    return decompress(file, block);
}

sw_status swt_file_load(swt_file *file, const swt_entry *entry, swt_block *block, bool *whole) {
    bool io;
    sw_check2(swt_file_check(file));
    const char *wrong = read_payload(file, entry->at, entry->stored_bytes, block, &io);
    *whole = wrong == NULL;
    if (io) return io_failed(file, wrong);
    if (*whole && (block->count != entry->count || block->thread != entry->thread ||
                   block->first != entry->first)) {
        wrong = "the file changed while it was read";
        *whole = false;
    }
    return *whole ? SW_OK : swt_file_damage(file, entry->at, wrong);
}

/* --- the index -------------------------------------------------------------------------------- */

static const char *add_entry(swt_file *file, uint64_t at, const swt_block *block) {
    bool ordered = block->kind == SWT_BLOCK_OPS;
    if (ordered != (file->header.form == SW_TRACE_ORDERED))
        return "a kind of block that this form of recording does not have";
    if (ordered && block->first != file->count) return "operations are missing before this block";
    if (!swt_grow(&file->entries, &file->entry_capacity, file->entry_count + 1,
                  sizeof *file->entries))
        return swt_no_memory;
    file->entries[file->entry_count++] = (swt_entry){.at = at,
                                                     .first = block->first,
                                                     .stored_bytes = block->stored_bytes,
                                                     .count = block->count,
                                                     .thread = block->thread};
    file->count += block->count;
    return NULL;
}

/* Adds a block to the index. The payload of a small block is read now. That of a data block is read
 * now only if the valid prefix is requested, to find where the damage begins. */
static const char *take_block(swt_file *file, uint64_t at, swt_block *block, bool *io) {
    bool data = block->kind == SWT_BLOCK_RAW || block->kind == SWT_BLOCK_OPS;
    *io = false;
    if (!data || file->prefix) {
        const char *wrong = read_payload(file, at, block->stored_bytes, block, io);
        if (wrong != NULL) return wrong;
    }
    if (data) return add_entry(file, at, block);
    bool last = block->kind == SWT_BLOCK_END || block->kind == SWT_BLOCK_SUMMARY;
    bool ordered = file->header.form == SW_TRACE_ORDERED;
    if (last && (block->kind == SWT_BLOCK_SUMMARY) != ordered)
        return "a kind of block that this form of recording does not have";
    const char *wrong = swt_notes_add(&file->notes, block, file->payload, file->bytes);
    if (wrong == NULL && block->kind == SWT_BLOCK_SUMMARY && file->notes.summary.ops != file->count)
        wrong = "the summary counts other operations than the file holds";
    file->complete = last && wrong == NULL;
    return wrong;
}

static sw_status scan(swt_file *file) {
    uint64_t at = SWT_FILE_HEADER_BYTES;
    while (at < file->bytes) {
        swt_block block;
        bool io;
        if (file->complete) return swt_file_damage(file, at, "bytes after the last block");
        const char *wrong = read_header(file, at, &block, &io);
        if (wrong == NULL) wrong = take_block(file, at, &block, &io);
        if (wrong != NULL) return io ? io_failed(file, wrong) : swt_file_damage(file, at, wrong);
        at += SWT_BLOCK_HEADER_BYTES + block.stored_bytes;
    }
    if (file->complete) return SW_OK;
    return swt_file_damage(file, at,
                           file->header.form == SW_TRACE_RAW
                               ? "the recording has no end (program killed, or the file is cut)"
                               : "the recording has no end (the file is cut)");
}

/* --- the file header -------------------------------------------------------------------------- */

/* Finds the length of the file. A directory can be opened too, and the result of a seek in it
 * depends on the file system. Reading a directory always fails, so one byte is read first. */
static sw_status measure(swt_file *file) {
    if (fgetc(file->stream) == EOF && ferror(file->stream)) return io_failed(file, "read");
    off_t end = fseeko(file->stream, 0, SEEK_END) == 0 ? ftello(file->stream) : -1;
    if (end < 0) return io_failed(file, "seek (recordings are read from files, not pipes)");
    file->bytes = (uint64_t)end;
    return SW_OK;
}

static sw_status foreign(const swt_file *file) {
    return sw_fail(SW_FORMAT, op, "%s: not a spanwise recording: %s; make one with spanwise record",
                   file->name,
                   file->bytes == 0 ? "the file is empty"
                                    : "it does not begin with the .swt magic");
}

static sw_status other_version(const swt_file *file) {
    bool newer = file->header.version > SW_TRACE_VERSION;
    return sw_fail(SW_FORMAT, op,
                   "%s: byte 8: written by %s spanwise (format %" PRIu32 ", this reads %d): %s",
                   file->name, newer ? "a newer" : "an older", file->header.version,
                   SW_TRACE_VERSION, newer ? "upgrade spanwise" : "record again");
}

static sw_status read_file_header(swt_file *file) {
    uint8_t bytes[SWT_FILE_HEADER_BYTES] = {0}, magic[SWT_FILE_HEADER_BYTES];
    size_t wanted = file->bytes < sizeof bytes ? (size_t)file->bytes : sizeof bytes;
    if (!seek(file->stream, 0) || fread(bytes, 1, wanted, file->stream) != wanted)
        return io_failed(file, "read");
    swt_file_header(magic);
    if (wanted == 0 || memcmp(bytes, magic, wanted < 8 ? wanted : 8) != 0) return foreign(file);
    if (wanted < sizeof bytes)
        return sw_fail(SW_FORMAT, op,
                       "%s: byte %" PRIu64 ": the file is cut within its header; there is nothing "
                       "to read, record again",
                       file->name, file->bytes);
    switch (swt_header_decode(bytes, &file->header)) {
    case SWT_HEADER_OK: return SW_OK;
    case SWT_HEADER_OTHER: return other_version(file);
    case SWT_HEADER_FOREIGN: return foreign(file);
    case SWT_HEADER_DAMAGED:
    case SWT_HEADER_BAD:
    default:
        return sw_fail(SW_FORMAT, op,
                       "%s: byte 0: the file header is damaged; copy the file again from its "
                       "source, or record again",
                       file->name);
    }
}

static sw_status open_all(swt_file *file) {
    sw_status status = measure(file);
    if (status == SW_OK) status = read_file_header(file);
    if (status != SW_OK) return status;
    file->decompressor = ZSTD_createDCtx();
    return file->decompressor != NULL ? scan(file) : swt_file_no_memory(file);
}

sw_status swt_file_open(swt_file *file, const char *path, bool prefix) {
    *file = (swt_file){.prefix = prefix};
    set_name(file, path);
    file->stream = fopen(path, "rb");
    if (file->stream == NULL) return io_failed(file, "open the recording");
    setvbuf(file->stream, NULL, _IONBF, 0); /* each read is of a header or of a whole block */
    sw_status status = open_all(file);
    if (status != SW_OK) swt_file_close(file);
    return status;
}

void swt_file_close(swt_file *file) {
    if (file->stream != NULL) fclose(file->stream);
    ZSTD_freeDCtx(file->decompressor);
    swt_notes_free(&file->notes);
    free(file->entries);
    free(file->stored);
    free(file->payload);
    *file = (swt_file){0};
}
