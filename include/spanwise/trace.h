/* SPDX-License-Identifier: Apache-2.0 */
/* Recordings: read and write `.swt` files (bytes: docs/design/trace.md).
 *
 * A recording is *raw* (what the recorder wrote: each thread's events, by address) or *ordered*
 * (one history of sw_op). The reader takes both: it merges a raw one on the fly.
 *
 *   sw_trace *t;                                          reading, in batches
 *   if (sw_trace_open("a.swt", 0, &t)) ...                sw_last_error()->message says why not
 *   while (!(status = sw_trace_next(t, &ops, &n)) && n) sw_runner_run(r, ops, n, ...);
 *   sw_trace_close(t);
 *
 *   sw_trace_writer *w;                                  writing: the file appears at commit, whole
 *   sw_trace_create("b.swt", &w); sw_trace_append(w, ops, n); sw_trace_commit(w, NULL);
 *
 * Thread rule: one thread at a time for each sw_trace and each sw_trace_writer. Paths are byte
 * strings, as the system takes them. Messages are one line: the file, the byte offset, what is
 * wrong, the mend. Memory is bounded by the peak of live objects, the number of threads and call
 * sites, and the index: 32 bytes for each block of up to 8192 operations (64 when merging).
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
    SW_TRACE_VERSION = 2,    /* of the format that this library writes; it reads 1..this */
    SW_TRACE_OPS_MAX = 8192, /* most operations in one batch of sw_trace_next */
    /* Flag: of a cut or damaged file, what is whole before the damage is read. */
    SW_TRACE_VALID_PREFIX = 1,
};

typedef enum sw_trace_form { SW_TRACE_RAW = 1, SW_TRACE_ORDERED = 2 } sw_trace_form;

/* Why the recorder lost calls. */
typedef enum sw_trace_drop {
    SW_TRACE_DROP_NONE = 0,
    SW_TRACE_DROP_DISK = 1,   /* the disk was full or the file at its size limit */
    SW_TRACE_DROP_MEMORY = 2, /* no memory for a thread's buffer */
    SW_TRACE_DROP_OTHER = 3,
} sw_trace_drop;

/* What the head of the file says. Numbers that the file does not state are 0. */
typedef struct sw_trace_info {
    uint64_t file_bytes;
    uint64_t ops; /* ordered: operations in the file; raw: events, about as many */
    uint64_t pid;
    uint64_t page_bytes;    /* of the recorded system */
    uint64_t stack_depth;   /* return addresses asked for at each call; 0: call sites off */
    uint64_t start_unix_ns; /* wall clock when the recording began */
    uint64_t damage_offset; /* with SW_TRACE_VALID_PREFIX: where the damage begins */
    uint32_t version;
    uint32_t form;         /* sw_trace_form */
    uint32_t pythonmalloc; /* 1: the recorder set PYTHONMALLOC=malloc for the program */
    uint32_t damaged;      /* 1: the file is cut or damaged and this is its valid prefix */
} sw_trace_info;

/* Totals of a whole recording: all of them 64 bits, in the order of the file's SUMMARY block.
 * ops == allocs + frees + reallocs + thread_ends. */
typedef struct sw_trace_summary {
    uint64_t ops, allocs, frees, reallocs;
    uint64_t zeroed_allocs;        /* of allocs: calloc */
    uint64_t aligned_allocs;       /* of allocs: with an alignment asked for */
    uint64_t allocated_bytes;      /* requested by allocs */
    uint64_t reallocated_bytes;    /* new sizes asked for by reallocs */
    uint64_t peak_requested_bytes; /* most requested bytes live at once */
    uint64_t peak_op;              /* after how many operations that was first reached */
    uint64_t peak_live_objects;
    uint64_t end_requested_bytes; /* still live after the last operation */
    uint64_t end_live_objects;
    uint64_t largest_bytes; /* largest single request */
    uint64_t duration_ns;   /* time of the last operation */
    uint64_t threads;       /* that made at least one operation */
    uint64_t sites;         /* in the call-site table */
    /* What could not be ordered when a raw recording was merged; never dropped silently. */
    uint64_t unknown_frees;    /* free of an address that was not live: no operation */
    uint64_t unknown_reallocs; /* realloc of such an address: became an ALLOC */
    uint64_t missed_frees;     /* address given out while live: a FREE was put before it */
    /* What the recorder says of itself. */
    uint64_t calls;               /* allocation calls that it saw; 0 when it was killed */
    uint64_t dropped_calls;       /* of these, not in the file */
    uint64_t drop_reason;         /* sw_trace_drop */
    uint64_t children_unrecorded; /* processes that the program started, not recorded */
    uint64_t children_recorded;   /* ... recorded to files of their own */
    uint64_t incomplete;          /* 1: made from the valid prefix of a cut or damaged file */
    /* Since version 2. Files of version 1 do not tell where threads end: each thread but the first
     * is taken to end after its last operation. */
    uint64_t thread_ends;
    uint64_t inferred_ends; /* of these, so taken */
} sw_trace_summary;

/* A mapped range of a module of the recorded program. Strings and bytes live as long as the
 * sw_trace. */
typedef struct sw_trace_module {
    uint64_t start, end; /* run-time addresses, end excluded */
    uint64_t bias;       /* run-time address - virtual address in the file */
    const char *path;
    const uint8_t *build_id; /* NULL when unknown */
    size_t build_id_bytes;
} sw_trace_module;

/* --- reading ---------------------------------------------------------------------------------- */

/* flags: 0 or SW_TRACE_VALID_PREFIX. Reads the block headers of the whole file, the metadata, the
 * call sites and the modules. Errors: SW_IO (cannot open or read), SW_FORMAT (not a recording, cut,
 * damaged, of a newer version), SW_NOMEM, SW_INVALID. */
SW_API sw_status sw_trace_open(const char *path, unsigned flags, sw_trace **out);
SW_API void sw_trace_close(sw_trace *trace); /* NULL is ignored */

/* The next batch, at most SW_TRACE_OPS_MAX operations; *count 0: the end. The array belongs to the
 * reader and holds until its next call. Errors as for open; after an error every call returns it
 * again. */
SW_API sw_status sw_trace_next(sw_trace *trace, const sw_op **ops, size_t *count);
/* As next, copied into out[0..capacity); *count < capacity: the end was reached. Do not mix with
 * sw_trace_next without a rewind between. */
SW_API sw_status sw_trace_read(sw_trace *trace, sw_op *out, size_t capacity, size_t *count);
/* Back to the first operation. */
SW_API sw_status sw_trace_rewind(sw_trace *trace);

SW_API void sw_trace_get_info(const sw_trace *trace, sw_trace_info *out);
/* From the file, or computed by reading it through once (raw recordings and valid prefixes). Does
 * not move the reading position. */
SW_API sw_status sw_trace_get_summary(sw_trace *trace, sw_trace_summary *out);

/* Metadata as pairs of strings, in the order of the file; keys may repeat ("arg"). at: false past
 * the last. find: the first value of a key, NULL when there is none. */
SW_API size_t sw_trace_meta_count(const sw_trace *trace);
SW_API int sw_trace_meta_at(const sw_trace *trace, size_t index, const char **key,
                            const char **value);
SW_API const char *sw_trace_meta_find(const sw_trace *trace, const char *key);

/* The depth of a call site, with *addresses pointed at its return addresses, innermost caller
 * first; 0 for an unknown id. */
SW_API size_t sw_trace_site(const sw_trace *trace, uint32_t site, const uint64_t **addresses);
/* The id of the call site at an index below the count, with its addresses as above; 0 past the
 * last. Ids rise with the index, and may have gaps. */
SW_API size_t sw_trace_site_count(const sw_trace *trace);
SW_API uint32_t sw_trace_site_at(const sw_trace *trace, size_t index, const uint64_t **addresses);

SW_API size_t sw_trace_module_count(const sw_trace *trace);
/* False past the last. */
SW_API int sw_trace_module_at(const sw_trace *trace, size_t index, sw_trace_module *out);

/* --- writing an ordered recording ------------------------------------------------------------- */

/* Nothing appears at `path` before commit; an existing file is replaced then. Writes to a file
 * beside it, so that the last step is a rename. Errors: SW_IO, SW_NOMEM, SW_INVALID. */
SW_API sw_status sw_trace_create(const char *path, sw_trace_writer **out);
/* Adds a metadata pair; only before the first append (SW_STATE). */
SW_API sw_status sw_trace_set_meta(sw_trace_writer *writer, const char *key, const char *value);
/* Adds a call site, which operations name by its id; addresses[0] is the innermost caller's return
 * address. Ids are 1..2^24 and rise; depth is at most 128. Only before the first append
 * (SW_STATE); SW_INVALID. */
SW_API sw_status sw_trace_add_site(sw_trace_writer *writer, uint32_t site,
                                   const uint64_t *addresses, size_t depth);
/* Adds a module, in which addresses of call sites are looked up: start < end, a path below 4096
 * bytes, a build id of at most 64. Errors as for sw_trace_add_site. */
SW_API sw_status sw_trace_add_module(sw_trace_writer *writer, const sw_trace_module *module);
/* Appends operations. The caller's object ids may be any dense ids; the file has its own (the last
 * freed id is taken first), so ids read back differ but name the same objects.
 * SW_INVALID, naming the operation's index: unknown kind or flag, ALLOC of a live object, FREE or
 * REALLOC of one that is not, time that falls, thread id that skips (a new thread has the next id),
 * alignment above 2^47, size above 2^63 - 1, FREE with a size, THREAD_END of a thread that made no
 * operation. Nothing after it may be appended. */
SW_API sw_status sw_trace_append(sw_trace_writer *writer, const sw_op *ops, size_t count);
/* Writes the summary (also to *out unless NULL), puts the file in place and ends the writer, also
 * when it fails (then there is no file). */
SW_API sw_status sw_trace_commit(sw_trace_writer *writer, sw_trace_summary *out);
/* Ends the writer and removes what it wrote. NULL is ignored. */
SW_API void sw_trace_abort(sw_trace_writer *writer);

/* Raw (or ordered) recording -> ordered recording, with metadata, sites, modules and what the
 * recorder said of itself. The paths may be the same. flags as for open. *cancel (may be NULL)
 * nonzero: stops with SW_STATE and no file. *done (may be NULL) counts operations as they go. */
SW_API sw_status sw_trace_finish(const char *path, const char *out_path, unsigned flags,
                                 const volatile int *cancel, volatile uint64_t *done,
                                 sw_trace_summary *out);

/* Completes a raw recording whose program ended without writing its last blocks: they are in a file
 * of the recorder's (docs/design/recorder.md). Cuts off a block that was not written whole, appends
 * those blocks, and then the END block with these counts of children, unless something is known to
 * be lost. Does nothing when the recording has its END, is ordered, or there is no such file. The
 * program must have ended. Errors: SW_IO, SW_FORMAT, SW_NOMEM, SW_INVALID. */
SW_API sw_status sw_trace_salvage(const char *path, const char *areas_path,
                                  uint64_t children_unrecorded, uint64_t children_recorded);

#ifdef __cplusplus
}
#endif
#endif
