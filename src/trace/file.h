/* SPDX-License-Identifier: Apache-2.0 */
/* An open `.swt` file: the index of its data blocks, its decoded small blocks, and the payload of
 * one block at a time, checked and decompressed. It uses only stdio, so that it builds without
 * os/linux. Callers: the sources of operations (reader.h), sw_trace_finish and sw_trace_salvage.
 *
 * All damage is reported by swt_file_damage, which returns an error with the file, the offset, the
 * reason and what to do. If the file was opened for its valid prefix, it returns SW_OK, and the
 * file ends at the damage.
 */
#ifndef SW_TRACE_FILE_H
#define SW_TRACE_FILE_H

#include <stdio.h>

#include "spanwise/trace.h"
#include "trace/format.h"

/* A RAW or OPS block. Entries are in file order. */
typedef struct swt_entry {
    uint64_t at;    /* offset of the block's header */
    uint64_t first; /* swt_block.first */
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

/* The content of the small blocks.
 *   text_used <= text_capacity;  meta_used, module_count, frame_count and site_count likewise */
typedef struct swt_notes {
    char *text; /* all strings and build ids */
    size_t text_used, text_capacity;
    uint32_t *meta; /* offsets into text: key, value, key, value ... */
    size_t meta_used, meta_capacity;
    swt_module *modules;
    size_t module_count, module_capacity;
    uint64_t *frames; /* return addresses of all sites */
    size_t frame_count, frame_capacity;
    swt_site *sites; /* ascending ids; only those in the file, so a large id takes no memory */
    size_t site_count, site_capacity;
    swt_clock first_clock, last_clock;
    size_t clock_count;
    sw_trace_summary summary;   /* from SUMMARY; of a raw file, the fields of END */
    uint64_t bytes, site_bytes; /* decompressed bytes of the small blocks so far, which are limited;
                                 * call sites are counted separately */
} swt_notes;

const char *swt_notes_check(const swt_notes *notes);

/* Used by one thread at a time.
 *   entry_count <= entry_capacity;  damaged only if prefix;  damage_at <= bytes;
 *   and the rules of notes */
typedef struct swt_file {
    FILE *stream;
    char name[112]; /* the path or its end, for messages */
    swt_header header;
    uint64_t bytes;
    swt_entry *entries;
    size_t entry_count, entry_capacity;
    uint64_t count; /* operations or events of all entries */
    swt_notes notes;
    void *decompressor;
    uint8_t *stored;  /* header and payload as in the file */
    uint8_t *payload; /* of the block loaded last */
    size_t stored_capacity, payload_capacity;
    bool prefix;        /* opened to read the valid prefix */
    bool complete;      /* the last block is END or SUMMARY */
    bool damaged;       /* damage was found: only the prefix is read */
    uint64_t damage_at; /* offset of the damage; 0: none */
} swt_file;

const char *swt_file_check(const swt_file *file);

sw_status swt_file_open(swt_file *file, const char *path, bool prefix);
void swt_file_close(swt_file *file);

/* Reads a block into file->payload and compares its header with the entry. Returns SW_OK, or the
 * status of a failed read or of swt_file_damage. *whole false: the block is damaged, and the valid
 * prefix ends before it. */
sw_status swt_file_load(swt_file *file, const swt_entry *entry, swt_block *block, bool *whole);

/* Reports damage. Returns SW_FORMAT with a message, or SW_OK if the file was opened for its prefix:
 * then the caller treats the damage as the end of the file. */
sw_status swt_file_damage(swt_file *file, uint64_t at, const char *reason);
sw_status swt_file_no_memory(const swt_file *file);

/* In notes.c: decodes a small block of a file of `file_bytes`. Returns NULL, or what is wrong. */
const char *swt_notes_add(swt_notes *notes, const swt_block *block, const uint8_t *payload,
                          uint64_t file_bytes);
/* Returns the index of the first site whose id is not below `id`. */
size_t swt_notes_site(const swt_notes *notes, uint32_t id);
void swt_notes_free(swt_notes *notes);
const char *swt_notes_find(const swt_notes *notes, const char *key);
/* Returns the nanoseconds per tick times 2^32, from the CLOCK blocks. */
uint64_t swt_notes_tick_q32(const swt_notes *notes);

#endif
