/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: read and write `.swt` files (format: docs/design/trace.md).
 *
 * A recording is *raw* (as the recorder wrote it: events per thread, with addresses) or *ordered*
 * (one sequence of sw_op). The reader accepts both, and merges a raw one on the fly.
 *
 *   sw_trace *t;                                          reading, in batches
 *   if (sw_trace_open("a.swt", 0, &t)) ...                sw_last_error()->message says why not
 *   while (!(status = sw_trace_next(t, &ops, &n)) && n) sw_runner_run(r, ops, n, ...);
 *   sw_trace_close(t);
 *
 *   sw_trace_writer *w;                                  writing: the file appears at commit, whole
 *   sw_trace_create("b.swt", &w); sw_trace_append(w, ops, n); sw_trace_commit(w, NULL);
 *
 * Thread rule: one thread at a time per sw_trace and sw_trace_writer. Paths are byte strings.
 * Messages are one line: file, byte offset, error, what to do. Memory is bounded by the peak of
 * live objects, the number of threads and call sites, and the index: 32 bytes per block of up to
 * 8192 operations (64 when merging).
 */
#ifndef SPANWISE_TRACE_H
#define SPANWISE_TRACE_H

#include <spanwise/ops.h>
#include <spanwise/status.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sw_trace sw_trace;
typedef struct sw_trace_writer sw_trace_writer;

enum {
    SW_TRACE_VERSION = 3,    /* the only version that is written or read */
    SW_TRACE_OPS_MAX = 8192, /* maximum batch of sw_trace_next */
    /* Flag: read the valid prefix of a truncated or damaged file. */
    SW_TRACE_VALID_PREFIX = 1,
    /* Flag: also open sampled recordings (spanwise record --sample). */
    SW_TRACE_SAMPLED = 2,
};

typedef enum sw_trace_form { SW_TRACE_RAW = 1, SW_TRACE_ORDERED = 2 } sw_trace_form;

/* Why the recorder lost calls. */
typedef enum sw_trace_drop {
    SW_TRACE_DROP_NONE = 0,
    SW_TRACE_DROP_DISK = 1,   /* disk full, or file size limit */
    SW_TRACE_DROP_MEMORY = 2, /* no memory for a thread's buffer */
    SW_TRACE_DROP_OTHER = 3,
} sw_trace_drop;

/* The file header. Missing numbers are 0. */
typedef struct sw_trace_info {
    uint64_t file_bytes;
    uint64_t ops; /* ordered: number of operations; raw: number of events */
    uint64_t pid;
    uint64_t page_bytes;    /* of the recorded system */
    uint64_t stack_depth;   /* requested return addresses per call; 0: no call sites */
    uint64_t start_unix_ns; /* wall clock when the recording began */
    uint64_t damage_offset; /* with SW_TRACE_VALID_PREFIX: start of the damage */
    uint32_t version;
    uint32_t form;         /* sw_trace_form */
    uint32_t pythonmalloc; /* 1: the recorder set PYTHONMALLOC=malloc for the program */
    uint32_t damaged;      /* 1: valid prefix of a truncated or damaged file */
} sw_trace_info;

/* Totals of a recording, in the order of the file's SUMMARY block. ops == allocs + frees + reallocs
 * + thread_ends. */
typedef struct sw_trace_summary {
    uint64_t ops, allocs, frees, reallocs;
    uint64_t zeroed_allocs;        /* of allocs: calloc */
    uint64_t aligned_allocs;       /* of allocs: with an alignment */
    uint64_t allocated_bytes;      /* requested by allocs */
    uint64_t reallocated_bytes;    /* new sizes of reallocs */
    uint64_t peak_requested_bytes; /* most requested bytes live at once */
    uint64_t peak_op;              /* number of operations when that was first reached */
    uint64_t peak_live_objects;
    uint64_t end_requested_bytes; /* still live after the last operation */
    uint64_t end_live_objects;
    uint64_t largest_bytes; /* largest single request */
    uint64_t duration_ns;   /* time of the last operation */
    uint64_t threads;       /* that made at least one operation */
    uint64_t sites;         /* in the call-site table */
    /* Events of a raw recording that could not be ordered. */
    uint64_t unknown_frees;    /* free of an address that is not live: omitted */
    uint64_t unknown_reallocs; /* realloc of such an address: an ALLOC */
    uint64_t missed_frees;     /* allocation of a live address: a FREE was inserted */
    /* Statistics of the recorder. */
    uint64_t calls;               /* allocation calls; 0 if it was killed */
    uint64_t dropped_calls;       /* of these, not in the file */
    uint64_t drop_reason;         /* sw_trace_drop */
    uint64_t children_unrecorded; /* child processes not recorded */
    uint64_t children_recorded;   /* child processes recorded to their own files */
    uint64_t incomplete;          /* 1: from the valid prefix of a truncated or damaged file */
    uint64_t thread_ends;
} sw_trace_summary;

/* A mapped segment of a module. Strings and bytes live as long as the sw_trace. */
typedef struct sw_trace_module {
    uint64_t start, end; /* run-time addresses, end excluded */
    uint64_t bias;       /* run-time address - virtual address in the file */
    const char *path;
    const uint8_t *build_id; /* NULL when unknown */
    size_t build_id_bytes;
} sw_trace_module;

/* --- reading ---------------------------------------------------------------------------------- */

/* Open a recording: read all block headers, the metadata, the call sites and the modules. flags: 0,
 * or a sum of SW_TRACE_VALID_PREFIX and SW_TRACE_SAMPLED. Errors: SW_IO (cannot open or read),
 * SW_FORMAT (not a recording, truncated, damaged, newer version), SW_UNSUPPORTED (a sample of the
 * objects, without SW_TRACE_SAMPLED), SW_NOMEM, SW_INVALID. */
SW_API sw_status sw_trace_open(const char *path, unsigned flags, sw_trace **out);
SW_API void sw_trace_close(sw_trace *trace); /* NULL is ignored */

/* Read the next batch, at most SW_TRACE_OPS_MAX operations; *count 0: the end. The array is valid
 * until the next call. Errors: as sw_trace_open; they are sticky. */
SW_API sw_status sw_trace_next(sw_trace *trace, const sw_op **ops, size_t *count);
/* As sw_trace_next, copied into out[0 .. capacity); *count < capacity: the end. Rewind before
 * mixing with sw_trace_next. */
SW_API sw_status sw_trace_read(sw_trace *trace, sw_op *out, size_t capacity, size_t *count);
/* Go back to the first operation. */
SW_API sw_status sw_trace_rewind(sw_trace *trace);

SW_API void sw_trace_get_info(const sw_trace *trace, sw_trace_info *out);
/* Read the summary from the file, or compute it in one pass (raw recordings and valid prefixes).
 * Keeps the position. */
SW_API sw_status sw_trace_get_summary(sw_trace *trace, sw_trace_summary *out);

/* Metadata: pairs of strings in file order; keys may repeat ("arg"). at: 0 past the last one. find:
 * the first value of a key, or NULL. */
SW_API size_t sw_trace_meta_count(const sw_trace *trace);
SW_API int sw_trace_meta_at(const sw_trace *trace, size_t index, const char **key,
                            const char **value);
SW_API const char *sw_trace_meta_find(const sw_trace *trace, const char *key);

/* Return the depth of a call site, and its return addresses, innermost first; 0: unknown id. */
SW_API size_t sw_trace_site(const sw_trace *trace, uint32_t site, const uint64_t **addresses);
/* Return the id of the call site at an index below the count, with its addresses as above; 0 past
 * the last one. Ids increase and may have gaps. */
SW_API size_t sw_trace_site_count(const sw_trace *trace);
SW_API uint32_t sw_trace_site_at(const sw_trace *trace, size_t index, const uint64_t **addresses);

SW_API size_t sw_trace_module_count(const sw_trace *trace);
/* Read the module at an index; return 0 past the last one. */
SW_API int sw_trace_module_at(const sw_trace *trace, size_t index, sw_trace_module *out);

/* --- writing an ordered recording ------------------------------------------------------------- */

/* Write to a temporary file in the same directory; commit renames it to `path`. Errors: SW_IO,
 * SW_NOMEM, SW_INVALID. */
SW_API sw_status sw_trace_create(const char *path, sw_trace_writer **out);
/* Add a metadata pair, before the first append (else SW_STATE). */
SW_API sw_status sw_trace_set_meta(sw_trace_writer *writer, const char *key, const char *value);
/* Add a call site; addresses[0] is the innermost return address. Ids are 1 .. 2^24, increasing;
 * depth is at most 128. Before the first append (else SW_STATE). SW_INVALID. */
SW_API sw_status sw_trace_add_site(sw_trace_writer *writer, uint32_t site,
                                   const uint64_t *addresses, size_t depth);
/* Add a module, used to symbolise call sites: start < end, a path below 4096 bytes, a build id of
 * at most 64. Errors: as sw_trace_add_site. */
SW_API sw_status sw_trace_add_module(sw_trace_writer *writer, const sw_trace_module *module);
/* Append operations. The file renumbers objects (the last freed id is reused first), so ids read
 * back differ but identify the same objects. SW_INVALID, with the operation's index: unknown kind
 * or flag, ALLOC of a live object, FREE or REALLOC of a dead one, decreasing time, a thread id that
 * skips numbers, alignment above 2^47, size above 2^63 - 1, FREE with a size, THREAD_END of an
 * unknown thread. Nothing can be appended after an error. */
SW_API sw_status sw_trace_append(sw_trace_writer *writer, const sw_op *ops, size_t count);
/* Write the summary (also to *out unless NULL), rename the file and destroy the writer. On failure
 * there is no file, and the writer is destroyed as well. */
SW_API sw_status sw_trace_commit(sw_trace_writer *writer, sw_trace_summary *out);
/* Destroy the writer and remove its file. NULL is ignored. */
SW_API void sw_trace_abort(sw_trace_writer *writer);

/* Convert a raw (or ordered) recording to an ordered one, with metadata, sites, modules and the
 * recorder's statistics. The paths may be equal. flags: as open. *cancel (may be NULL) nonzero:
 * stop with SW_STATE and no file. *done (may be NULL) counts operations. */
SW_API sw_status sw_trace_finish(const char *path, const char *out_path, unsigned flags,
                                 const volatile int *cancel, volatile uint64_t *done,
                                 sw_trace_summary *out);

/* Complete the raw recording of a killed program, whose last blocks are in the recorder's area file
 * (docs/design/recorder.md). Truncates a partial block, appends those blocks, and then, unless data
 * is known to be lost, the END block with these counts of children. Does nothing if the recording
 * has an END block or is ordered, or if there is no area file. The program must have ended. Errors:
 * SW_IO, SW_FORMAT, SW_NOMEM, SW_INVALID. */
SW_API sw_status sw_trace_salvage(const char *path, const char *areas_path,
                                  uint64_t children_unrecorded, uint64_t children_recorded);

#ifdef __cplusplus
}
#endif
#endif
