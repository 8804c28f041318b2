/* SPDX-License-Identifier: Apache-2.0 */
/* An open `.swt` file: its index of data blocks, its small blocks decoded, and one block's payload
 * at a time, checked and decompressed. stdio only, so it builds without os/linux.
 * Callers: the sources of operations (source.h), sw_trace_finish and sw_trace_salvage.
 *
 * Damage. Whatever is wrong with the content goes to swt_file_damage. It gives an error that names file,
 * offset, reason and mend; but in a file that was opened for its valid prefix the file ends there.
 */
#ifndef SW_TRACE_FILE_H
#define SW_TRACE_FILE_H

#include <stdio.h>

#include "spanwise/trace.h"
#include "trace/format.h"

/* One RAW or OPS block. In file order. */
typedef struct swt_entry {
    uint64_t at;    /* offset of its header */
    uint64_t first; /* as in the header */
    uint32_t stored_bytes;
    uint32_t count;
    uint32_t thread;
    uint32_t unused;
} swt_entry;

typedef struct swt_module {
    uint64_t start, end, bias;
    size_t path; /* offsets into `text` */
    size_t build_id;
    size_t build_id_bytes;
} swt_module;

typedef struct swt_site {
    uint32_t id;
    uint32_t depth;
    size_t frame; /* index in `frames` of the innermost caller */
} swt_site;

typedef struct swt_clock {
    uint64_t ticks, ns, ns_per_tick_q32;
} swt_clock;

/* What the small blocks of the file say.
 *   text_used <= text_capacity;  meta_used, module_count, frame_count and site_count likewise */
typedef struct swt_notes {
    char *text; /* all strings and bytes */
    size_t text_used, text_capacity;
    uint32_t *meta; /* offsets into text: key, value, key, value ... */
    size_t meta_used, meta_capacity;
    swt_module *modules;
    size_t module_count, module_capacity;
    uint64_t *frames; /* return addresses of all sites */
    size_t frame_count, frame_capacity;
    swt_site *sites; /* by rising id: one for each in the file, so a large id takes no memory */
    size_t site_count, site_capacity;
    swt_clock first_clock, last_clock;
    size_t clock_count;
    sw_trace_summary summary;   /* of SUMMARY, or only the recorder's part of it from END */
    uint64_t bytes, site_bytes; /* of small blocks so far, decompressed, for the limits; call
                                 * sites are counted apart */
} swt_notes;

/* The rule that does not hold, or NULL (base/assert.h). */
const char *swt_notes_check(const swt_notes *notes);

/* One thread at a time has it.
 *   entry_count <= entry_capacity;  last_ops_count <= last_ops_capacity
 *   damaged only where prefix;  damage_at <= bytes;  and the rules of notes */
typedef struct swt_file {
    FILE *stream;
    char name[112]; /* the path, or its tail, for messages */
    swt_header header;
    uint64_t bytes;
    swt_entry *entries;
    size_t entry_count, entry_capacity;
    uint64_t count; /* operations or events of all entries */
    swt_notes notes;
    void *decompressor;
    uint8_t *stored;  /* header and payload as in the file */
    uint8_t *payload; /* of the block that was loaded last */
    size_t stored_capacity, payload_capacity;
    uint64_t *last_ops; /* by thread: index of its last operation (source.c); NULL: not sought */
    size_t last_ops_count, last_ops_capacity;
    bool prefix;        /* opened for the valid prefix */
    bool complete;      /* the last block is END or SUMMARY */
    bool damaged;       /* it is, and only the valid prefix is read */
    uint64_t damage_at; /* offset; 0: none */
} swt_file;

const char *swt_file_check(const swt_file *file);

sw_status swt_file_open(swt_file *file, const char *path, bool prefix);
void swt_file_close(swt_file *file);

/* Reads a block into file->payload; the header must agree with the entry. The status of a failed
 * read or of swt_file_damage, else SW_OK; *whole false: damage where the valid prefix ends. */
sw_status swt_file_load(swt_file *file, const swt_entry *entry, swt_block *block, bool *whole);

/* Reports damage. SW_OK in a file that was opened for its prefix: the caller treats it as the end. Else
 * SW_FORMAT with a message. */
sw_status swt_file_damage(swt_file *file, uint64_t at, const char *reason);
sw_status swt_file_no_memory(const swt_file *file);

/* notes.c: takes in a small block of a file of so many bytes. NULL or what is wrong. */
const char *swt_notes_add(swt_notes *notes, const swt_block *block, const uint8_t *payload,
                          uint64_t file_bytes);
/* The index of the first site whose id is not below `id`. */
size_t swt_notes_site(const swt_notes *notes, uint32_t id);
void swt_notes_free(swt_notes *notes);
const char *swt_notes_find(const swt_notes *notes, const char *key);
/* Nanoseconds of a tick times 2^32, from the CLOCK blocks. */
uint64_t swt_notes_tick_q32(const swt_notes *notes);

#endif
