/* SPDX-License-Identifier: Apache-2.0 */
/* Size-class tables: the built-in ones, and tables created at run time.
 *
 * Owns: a run-time table is one mapping [table_block | classes | small_map | large_map | name].
 * Creating one never calls malloc, because this library may be the process's malloc. After a table
 * is destroyed, the page with its mark stays mapped (ds/handle.h). Callers: every heap (look-up is
 * inline in table.h), the public API. The rules and their texts are those of
 * python/spanwise_sizeclasses/model.py, tested on both sides. Design: docs/design/sizeclass.md.
 */
#include "sizeclass/table.h"

#include <inttypes.h>
#include <string.h>

#include "base/base.h"
#include "ds/handle.h"
#include "os/os.h"

/* Returns the first broken rule, or NULL (base/base.h).
 *   class:  size is a multiple of 8;  slots == (pages << page_shift) / size, >= 1
 *           pages == first_pages times a power of two;  first_pages << page_shift >= size
 *   table:  max_size == classes[class_count - 1].size;  class_count >= 2 */
static const char *sw_class_check(const sw_class *cls, uint32_t page_shift) {
    uint64_t span_bytes = (uint64_t)cls->pages << page_shift;
    return SW_RULE(cls->size % 8 == 0 && cls->size != 0)
               ?: SW_RULE(cls->slots == span_bytes / cls->size)
               ?: SW_RULE(cls->slots >= 1)
               ?: SW_RULE(cls->first_pages != 0 && sw_class_has_pages(cls, cls->pages))
               ?: SW_RULE(sw_class_slots(cls, cls->first_pages, page_shift) >= 1);
}

static const char *sw_table_record_check(const struct sw_table *table) {
    return SW_RULE(table->page_shift >= SW_FRAME_SHIFT)
               ?: SW_RULE(table->class_count >= 2)
               ?: SW_RULE(table->max_size == table->classes[table->class_count - 1].size)
               ?: SW_RULE(table->small_map[0] <= 1)
               ?: sw_class_check(&table->classes[table->class_count - 1], table->page_shift);
}

enum {
    TABLE_NAME_MAX = 63,
    PAGE_BYTES_MIN = SW_FRAME_BYTES,
    PAGE_BYTES_MAX = 65536,
    SIZE_UNIT = 8,
    LARGE_SHIFT_MAX = 7,
};

/* A run-time table and the data needed to release it. `table` comes first, so that the sw_table *
 * that users have is the address of the block. */
typedef struct table_block {
    sw_table table;
    uint64_t mark;      /* ds/handle.h */
    uint32_t users;     /* heaps; atomic */
    size_t block_bytes; /* of the whole mapping */
} table_block;

_Static_assert(offsetof(table_block, table) == 0, "sw_table_destroy casts back");
_Static_assert(SW_SMALL_MAP_LEN == (SW_SMALL_LIMIT + SIZE_UNIT - 1) / SIZE_UNIT + 1,
               "the small map ends with the class of SW_SMALL_LIMIT");
_Static_assert(SW_TABLE_CLASSES_MAX <= UINT8_MAX + 1, "maps hold a class in a byte");

/* --- the built-in tables ---------------------------------------------------------------------- */

const sw_table *sw_table_go(void) { return &sw_table_go_data; }
const sw_table *sw_table_c16(void) { return &sw_table_c16_data; }

const sw_table *sw_table_builtin(const char *name) {
    if (name == NULL) return NULL;
    if (strcmp(name, sw_table_go_data.name) == 0) return &sw_table_go_data;
    if (strcmp(name, sw_table_c16_data.name) == 0) return &sw_table_c16_data;
    return NULL;
}

/* 0 in the preloaded malloc: its only table is the default one, so the others' constants would be
 * resident in vain. */
#ifndef SW_OTHER_TABLES
#define SW_OTHER_TABLES 1
#endif

static bool is_builtin(const sw_table *table) {
    bool is_other = SW_OTHER_TABLES && (table == &sw_table_go_data || table == &sw_table_c16_data);
    return is_other || table == sw_table_default();
}

/* --- tables as handles ------------------------------------------------------------------------ */

static table_block *block_of(const sw_table *table) { return (table_block *)(uintptr_t)table; }
enum { TABLE_MARK = offsetof(table_block, mark) };

bool sw_table_check(const sw_table *table, const char *op) {
    return is_builtin(table) || sw_handle_check(table, TABLE_MARK, SW_HANDLE_TABLE, op);
}

static sw_status table_status(const sw_table *table, const char *op) {
    if (is_builtin(table)) return SW_OK;
    return sw_handle_status(table, TABLE_MARK, SW_HANDLE_TABLE, op);
}

/* The heap is counted before the mark is read, and sw_table_destroy ends the mark before it reads
 * the count. So if both happen at once, at least one of them sees the other. */
bool sw_table_acquire(const sw_table *table, const char *op) {
    if (is_builtin(table)) return true;
    if (!sw_table_check(table, op)) return false;
    sw_check2(sw_table_record_check(table));
    __atomic_fetch_add(&block_of(table)->users, 1, __ATOMIC_SEQ_CST);
    bool lives = sw_table_check(table, op);
    if (!lives) sw_table_release(table);
    return lives;
}

void sw_table_release(const sw_table *table) {
    if (!is_builtin(table)) __atomic_fetch_sub(&block_of(table)->users, 1, __ATOMIC_SEQ_CST);
}

/* --- rules: SW_OK, or an error with the class, the rule and what to do ------------------------ */

#define OP_CREATE "table_create"
#define CLASS "class %" PRIu32 " (%" PRIu32 " bytes): " /* class number, size */

static sw_status check_size(const sw_class_spec *specs, uint32_t cls) {
    uint32_t size = specs[cls - 1].size_bytes;
    uint32_t below = cls > 1 ? specs[cls - 2].size_bytes : 0;
    if (size < SIZE_UNIT) {
        return sw_fail(SW_INVALID, OP_CREATE, CLASS "size must be at least 8", cls, size);
    }
    if (size % SIZE_UNIT != 0) {
        return sw_fail(SW_INVALID, OP_CREATE, CLASS "size must be a multiple of 8; use %" PRIu64,
                       cls, size, sw_align_up(size, SIZE_UNIT));
    }
    if (size <= below) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       CLASS "size must be above the %" PRIu32 " bytes of class %" PRIu32
                             "; list the classes in rising order",
                       cls, size, below, cls - 1);
    }
    if (size > SW_TABLE_SIZE_MAX) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       CLASS "size must be at most %d; leave it out, larger requests get whole "
                             "pages",
                       cls, size, SW_TABLE_SIZE_MAX);
    }
    return SW_OK;
}

static sw_status check_span(uint32_t page_bytes, const sw_class_spec *spec, uint32_t cls) {
    uint32_t size = spec->size_bytes;
    uint64_t span = (uint64_t)spec->pages * page_bytes;
    if (spec->pages == 0) {
        return sw_fail(SW_INVALID, OP_CREATE, CLASS "pages must be at least 1", cls, size);
    }
    if (span < size) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       CLASS "does not fit its span of %" PRIu64 " bytes; use %" PRIu64 " pages",
                       cls, size, span, sw_div_up(size, page_bytes));
    }
    if (span > SW_TABLE_SPAN_BYTES_MAX) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       CLASS "span of %" PRIu64 " bytes is above %d; use at most %" PRIu32 " pages",
                       cls, size, span, SW_TABLE_SPAN_BYTES_MAX,
                       SW_TABLE_SPAN_BYTES_MAX / page_bytes);
    }
    if (span / size > SW_TABLE_SLOTS_MAX) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       CLASS "span holds %" PRIu64 " objects, above %d; use at most %" PRIu32
                             " pages",
                       cls, size, span / size, SW_TABLE_SLOTS_MAX,
                       (uint32_t)SW_TABLE_SLOTS_MAX * size / page_bytes);
    }
    return SW_OK;
}

/* Returns the pages of the first span; 0 in a spec means a fixed length. */
static uint32_t first_pages_of(const sw_class_spec *spec) {
    return spec->first_pages == 0 ? spec->pages : spec->first_pages;
}

static sw_status check_first_span(uint32_t page_bytes, const sw_class_spec *spec, uint32_t cls) {
    uint32_t size = spec->size_bytes, first = first_pages_of(spec);
    if (first == 0 || spec->pages % first != 0 || !sw_is_pow2(spec->pages / first)) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       CLASS "first_pages %" PRIu32 ": %" PRIu32
                             " pages must be a power of two times as many",
                       cls, size, first, spec->pages);
    }
    if ((uint64_t)first * page_bytes < size) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       CLASS "does not fit its first span of %" PRIu32 " bytes; use %" PRIu64
                             " pages",
                       cls, size, first * page_bytes, sw_div_up(size, page_bytes));
    }
    return SW_OK;
}

static sw_status check_table(const char *name, uint32_t page_bytes, const sw_class_spec *specs,
                             uint32_t count) {
    if (name == NULL || name[0] == '\0' || memchr(name, 0, TABLE_NAME_MAX + 1) == NULL) {
        return sw_fail(SW_INVALID, OP_CREATE, "name: must have 1 to %d characters", TABLE_NAME_MAX);
    }
    if (!sw_is_pow2(page_bytes) || page_bytes < PAGE_BYTES_MIN || page_bytes > PAGE_BYTES_MAX) {
        return sw_fail(SW_INVALID, OP_CREATE,
                       "page_bytes %" PRIu32 ": must be a power of two from %d to %d", page_bytes,
                       PAGE_BYTES_MIN, PAGE_BYTES_MAX);
    }
    if (specs == NULL || count == 0 || count >= SW_TABLE_CLASSES_MAX) {
        return sw_fail(SW_INVALID, OP_CREATE, "%" PRIu32 " classes: must be 1 to %d",
                       specs == NULL ? 0 : count, SW_TABLE_CLASSES_MAX - 1);
    }
    for (uint32_t cls = 1; cls <= count; cls++) {
        const sw_class_spec *spec = &specs[cls - 1];
        sw_status status = check_size(specs, cls);
        if (status == SW_OK) status = check_span(page_bytes, spec, cls);
        if (status == SW_OK) status = check_first_span(page_bytes, spec, cls);
        if (status != SW_OK) return status;
    }
    return SW_OK;
}

/* --- making ----------------------------------------------------------------------------------- */

/* Returns log2 of the step of the large map: the largest, up to 128 B, at which every large class
 * has its own entry. */
static uint32_t large_shift_of(const sw_class_spec *specs, uint32_t count) {
    uint32_t bits = 1u << LARGE_SHIFT_MAX;
    for (uint32_t i = 0; i < count; i++) {
        if (specs[i].size_bytes > SW_SMALL_LIMIT) bits |= specs[i].size_bytes;
    }
    return sw_ctz(bits);
}

/* Fills map[i] with the class of first + i * step, 0 if every class is smaller. */
static void fill_map(const sw_table *table, uint8_t *map, size_t len, uint32_t first,
                     uint32_t step) {
    uint32_t cls = 1;
    for (size_t i = 0; i < len; i++) {
        size_t size = first + i * step;
        while (cls < table->class_count && table->classes[cls].size < size) cls++;
        map[i] = cls < table->class_count ? (uint8_t)cls : 0;
    }
}

static void hash_word(uint64_t *hash, uint32_t word) {
    for (int shift = 0; shift < 32; shift += 8) {
        *hash = (*hash ^ ((word >> shift) & 0xFF)) * UINT64_C(0x100000001B3);
    }
}

/* Returns FNV-1a, 64 bits, over page_bytes and each class's size and pages as little-endian u32. If
 * some class has spans of several lengths, the first_pages of all classes follow. */
static uint64_t hash_of(const sw_table *table) {
    uint64_t hash = UINT64_C(0xCBF29CE484222325);
    hash_word(&hash, 1u << table->page_shift);
    for (uint32_t cls = 1; cls < table->class_count; cls++) {
        hash_word(&hash, table->classes[cls].size);
        hash_word(&hash, table->classes[cls].pages);
    }
    if (!sw_table_grows(table)) return hash;
    for (uint32_t cls = 1; cls < table->class_count; cls++)
        hash_word(&hash, table->classes[cls].first_pages);
    return hash;
}

static size_t large_map_len(uint32_t max_size, uint32_t shift) {
    return max_size <= SW_SMALL_LIMIT ? 0 : ((max_size - SW_SMALL_LIMIT) >> shift) + 1;
}

static void fill_classes(sw_class *classes, uint32_t page_bytes, const sw_class_spec *specs,
                         uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        uint32_t size = specs[i].size_bytes;
        classes[i + 1] = (sw_class){
            .size = size,
            .slots = specs[i].pages * page_bytes / size,
            .pages = specs[i].pages,
            .first_pages = first_pages_of(&specs[i]),
        };
    }
}

sw_status sw_table_create(const char *name, uint32_t page_bytes, const sw_class_spec *specs,
                          uint32_t count, sw_table **out) {
    sw_status status = check_table(name, page_bytes, specs, count);
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail(SW_INVALID, OP_CREATE, "out: must not be NULL");
    uint32_t shift = large_shift_of(specs, count);
    uint32_t max_size = specs[count - 1].size_bytes;
    size_t large_len = large_map_len(max_size, shift);
    size_t name_bytes = strlen(name) + 1;
    size_t classes_bytes = (count + 1) * sizeof(sw_class);
    size_t bytes = sizeof(table_block) + classes_bytes + SW_SMALL_MAP_LEN + large_len + name_bytes;
    bytes = sw_align_up(bytes, sw_os_page_bytes());
    table_block *block = sw_os_map(bytes);
    if (block == NULL) {
        return sw_fail(SW_NOMEM, OP_CREATE, "no memory for the %zu bytes of table %s", bytes, name);
    }
    sw_class *classes = (sw_class *)(block + 1);
    uint8_t *small_map = (uint8_t *)classes + classes_bytes;
    uint8_t *large_map = small_map + SW_SMALL_MAP_LEN;
    char *name_copy = memcpy(large_map + large_len, name, name_bytes);
    fill_classes(classes, page_bytes, specs, count);
    block->block_bytes = bytes;
    block->table = (sw_table){
        .name = name_copy,
        .page_shift = sw_log2_floor(page_bytes),
        .class_count = count + 1,
        .max_size = max_size,
        .large_shift = shift,
        .classes = classes,
        .small_map = small_map,
        .large_map = large_map,
    };
    fill_map(&block->table, small_map, SW_SMALL_MAP_LEN, 0, SIZE_UNIT);
    fill_map(&block->table, large_map, large_len, SW_SMALL_LIMIT, 1u << shift);
    block->table.hash = hash_of(&block->table);
    sw_handle_begin(&block->mark, SW_HANDLE_TABLE);
    *out = &block->table;
    return SW_OK;
}

void sw_table_destroy(sw_table *table) {
    const char *op = "table_destroy";
    if (table == NULL || is_builtin(table) || !sw_table_check(table, op)) return;
    table_block *block = block_of(table);
    if (!sw_handle_try_end(&block->mark, SW_HANDLE_TABLE)) {
        sw_handle_report(table, TABLE_MARK, SW_HANDLE_TABLE, op);
    } else if (__atomic_load_n(&block->users, __ATOMIC_SEQ_CST) != 0) {
        sw_handle_begin(&block->mark, SW_HANDLE_TABLE);
        sw_misuse_report(&(sw_fault){
            .code = SW_MISUSE_BUSY_HANDLE, .op = op, .ptr = table, .thread = sw_os_thread_id()});
    } else {
        sw_handle_retire(block, block->block_bytes, sizeof *block, SW_HANDLE_TABLE);
    }
}

/* --- questions -------------------------------------------------------------------------------- */

const char *sw_table_name(const sw_table *table) {
    return sw_table_check(table, "table_name") ? table->name : "";
}
uint32_t sw_table_page_bytes(const sw_table *table) {
    return sw_table_check(table, "table_page_bytes") ? 1u << table->page_shift : 0;
}
uint32_t sw_table_class_count(const sw_table *table) {
    return sw_table_check(table, "table_class_count") ? table->class_count - 1 : 0;
}
uint32_t sw_table_max_bytes(const sw_table *table) {
    return sw_table_check(table, "table_max_bytes") ? table->max_size : 0;
}
uint64_t sw_table_hash(const sw_table *table) {
    return sw_table_check(table, "table_hash") ? table->hash : 0;
}

uint32_t sw_table_class_of(const sw_table *table, size_t size) {
    if (!sw_table_check(table, "table_class_of")) return 0;
    return size <= table->max_size ? sw_size_class(table, size) : 0;
}

/* Returns the percentage of a span of so many pages that round-up and tail waste if every request
 * is the smallest one of the class. */
static double waste_percent(const sw_table *table, uint32_t cls, uint32_t pages) {
    const sw_class *c = &table->classes[cls];
    uint32_t slots = sw_class_slots(c, pages, table->page_shift), span = pages << table->page_shift;
    /* Every slot holds one byte more than the next smaller class serves. Class 0 has size 0. */
    uint32_t round_up = c->size - table->classes[cls - 1].size - 1;
    uint64_t wasted = (uint64_t)round_up * slots + (span - slots * c->size);
    return 100.0 * ((double)wasted / span);
}

sw_status sw_table_class(const sw_table *table, uint32_t cls, sw_class_info *out) {
    sw_status status = table_status(table, "table_class");
    if (status != SW_OK) return status;
    if (out == NULL) return sw_fail_null("table_class", "out");
    if (cls == 0 || cls >= table->class_count) {
        return sw_fail(SW_INVALID, "table_class", "class %" PRIu32 ": table %s has 1 to %" PRIu32,
                       cls, table->name, table->class_count - 1);
    }
    const sw_class *c = &table->classes[cls];
    uint32_t span = c->pages << table->page_shift;
    double longest = waste_percent(table, cls, c->pages);
    double first = waste_percent(table, cls, c->first_pages);
    uint64_t align = sw_min_u64(1ull << sw_ctz(c->size), 1ull << table->page_shift);
    *out = (sw_class_info){
        .cls = cls,
        .size_bytes = c->size,
        .span_bytes = span,
        .slots = c->slots,
        .tail_bytes = span - c->slots * c->size,
        .min_align = (uint32_t)align,
        .max_waste_percent = first > longest ? first : longest,
        .first_span_bytes = c->first_pages << table->page_shift,
    };
    return SW_OK;
}

size_t sw_table_round_up(const sw_table *table, size_t size) {
    if (!sw_table_check(table, "table_round_up") || size == 0) return 0;
    if (size <= table->max_size) return table->classes[sw_size_class(table, size)].size;
    return sw_pages_of(table, size) << table->page_shift;
}
