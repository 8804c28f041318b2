/* SPDX-License-Identifier: Apache-2.0 */
/* docs/design/preload.md describes each option. They are read at the first allocation, before any
 * constructor has run, so this code can use neither stdio nor a locale nor an allocation.
 */
#define _GNU_SOURCE
#include "preload/options.h"

#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/base.h"
#include "guard/guard.h"
#include "os/os.h"
#include "sizeclass/table.h"

preload_options preload_option = {.ledger_file = PRELOAD_NO_FILE};

const char *const preload_placements[4] = {"lifo", "address", "fullest", "lasting"};

/* --- values: each returns false when the text is malformed, and then changes nothing ---------- */

static bool parse_number(const char **text, uint64_t *out) {
    uint64_t value = 0;
    const char *c = *text;
    for (; *c >= '0' && *c <= '9'; c++)
        if (__builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*c - '0'), &value))
            return false;
    if (c == *text) return false;
    *text = c;
    *out = value;
    return true;
}

/* The same rule as python/spanwise/commands/_options.py: K and KiB are 1024, KB is 1000, in upper
 * or lower case. */
static bool parse_unit(const char *text, uint64_t *value) {
    static const char units[] = "KMGT";
    const char *unit = *text == '\0' ? NULL : strchr(units, *text & ~0x20);
    text += unit != NULL;
    bool binary = unit != NULL && (*text & ~0x20) == 'I';
    bool bytes = (text[binary] & ~0x20) == 'B';
    if ((binary && !bytes) || text[binary + bytes] != '\0') return false;
    uint64_t step = unit != NULL && bytes && !binary ? 1000 : 1024;
    for (long power = unit == NULL ? 0 : unit - units + 1; power > 0; power--)
        if (__builtin_mul_overflow(*value, step, value)) return false;
    return true;
}

static bool set_limit(const char *text) {
    uint64_t value;
    if (!parse_number(&text, &value) || !parse_unit(text, &value)) return false;
    preload_option.heap.limit_bytes = value;
    return true;
}

static bool set_decay(const char *text) {
    uint64_t value;
    if (strcmp(text, "never") == 0) {
        preload_option.heap.decay_ns = SW_DECAY_NEVER;
        return true;
    }
    if (!parse_number(&text, &value) || *text != '\0' || value > UINT64_MAX / 2000000) return false;
    preload_option.heap.decay_ns = value == 0 ? 1 : value * 1000000;
    return true;
}

static bool set_placement(const char *text) {
    for (int i = 0; i < 4; i++) {
        if (strcmp(text, preload_placements[i]) != 0) continue;
        preload_option.heap.placement = (sw_placement)i;
        return true;
    }
    return false;
}

static bool set_batch(const char *text) {
    uint64_t value;
    if (!parse_number(&text, &value) || *text != '\0' || value > UINT16_MAX) return false;
    preload_option.heap.batch_spans = (uint32_t)value;
    return true;
}

static bool set_huge(const char *text) {
    bool advise = strcmp(text, "advise") == 0;
    if (!advise && strcmp(text, "off") != 0) return false;
    preload_option.heap.huge_pages = advise;
    return true;
}

static bool parse_switch(const char *text, bool *out) {
    if ((text[0] != '0' && text[0] != '1') || text[1] != '\0') return false;
    *out = text[0] == '1';
    return true;
}

static bool set_tracked(const char *text) {
    bool on;
    if (!parse_switch(text, &on)) return false;
    preload_option.heap.tracked = on;
    return true;
}

static bool set_verbose(const char *text) { return parse_switch(text, &preload_option.verbose); }

/* A number is a descriptor, any other text a path. A relative path is made absolute, because the
 * program may change its directory. */
static bool set_ledger(const char *text) {
    const char *after = text;
    uint64_t file;
    if (parse_number(&after, &file) && *after == '\0') {
        if (file > INT32_MAX) return false;
        preload_option.ledger_file = (int)file;
        return true;
    }
    char path[PRELOAD_PATH_MAX];
    size_t used = 0, length = strlen(text);
    if (text[0] != '/') {
        if (syscall(SYS_getcwd, path, sizeof path) <= 0 || path[0] != '/') return false;
        used = strlen(path);
        if (used + 1 < sizeof path) path[used++] = '/';
    }
    if (used + length + 64 > sizeof path) return false; /* room for %p and a suffix */
    memcpy(path + used, text, length + 1);
    memcpy(preload_option.ledger, path, used + length + 1);
    return true;
}

static bool set_protect(const char *text) { return sw_guard_parse(text, &preload_option.protect); }

/* --- the environment -------------------------------------------------------------------------- */

typedef struct option {
    const char *name;
    bool (*set)(const char *text);
    const char *accepted, *otherwise;
} option;

static const option options[] = {
    {"LIMIT", set_limit, "bytes, such as 512M, 512MiB or 512MB", "no limit"},
    {"DECAY_MS", set_decay, "milliseconds, or never", "500"},
    {"PLACEMENT", set_placement, "lifo, address, fullest or lasting", "lifo"},
    {"BATCH", set_batch, "a number from 0 to 65535", "0"},
    {"THP", set_huge, "off or advise", "off"},
    {"TRACKED", set_tracked, "0 or 1", "0"},
    {"PROTECT", set_protect,
     "hardened, paranoid, or some of canary, zero, hold, empty, match, sample, random and pages",
     "none"},
    {"LEDGER", set_ledger, "a path (%p in it: the process id) or a descriptor", "none"},
    {"VERBOSE", set_verbose, "0 or 1", "0"},
};

enum { OPTION_COUNT = sizeof options / sizeof *options, SHOWN_MAX = 48 };

/* Copies a text of the environment for a one-line message: at most its first SHOWN_MAX characters,
 * with control characters replaced. */
static const char *shown(const char *text, size_t length, char out[SHOWN_MAX + 4]) {
    size_t used = 0;
    for (; used < length && used < SHOWN_MAX; used++)
        out[used] = (char)((unsigned char)text[used] < ' ' || text[used] == 127 ? '?' : text[used]);
    for (int i = 0; i < 3 && length > SHOWN_MAX; i++) out[used++] = '.';
    out[used] = '\0';
    return out;
}

/* Takes one setting, NAME=VALUE without the prefix. An empty value changes nothing. */
static void read_setting(const char *setting) {
    const char *equals = strchr(setting, '=');
    if (equals == NULL || equals[1] == '\0') return;
    size_t length = (size_t)(equals - setting);
    char name[SHOWN_MAX + 4], value[SHOWN_MAX + 4];
    for (int i = 0; i < OPTION_COUNT; i++) {
        const option *o = &options[i];
        if (strlen(o->name) != length || memcmp(o->name, setting, length) != 0) continue;
        if (!o->set(equals + 1))
            sw_emergency_print("spanwise: malloc: SPANWISE_%s=%s is not %s; using %s\n", o->name,
                               shown(equals + 1, strlen(equals + 1), value), o->accepted,
                               o->otherwise);
        return;
    }
    sw_emergency_print("spanwise: malloc: SPANWISE_%s=%s is unknown; there are SPANWISE_LIMIT, "
                       "DECAY_MS, PLACEMENT, BATCH, THP, TRACKED, PROTECT, LEDGER and VERBOSE\n",
                       shown(setting, length, name), shown(equals + 1, strlen(equals + 1), value));
}

/* Returns whether the variable is an option of another part of spanwise. */
static bool is_foreign(const char *setting) {
    static const char *const others[] = {
        "RECORD_", "REPLAY_", "NATIVE_DIR=", "PEER_", "BENCH", "CACHE="};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(setting, others[i], strlen(others[i])) == 0) return true;
    return false;
}

static void print_options(void) {
    const sw_heap_options *heap = &preload_option.heap;
    sw_emergency_print(
        "spanwise: malloc: process %u, table %s, limit %u bytes (0: none), decay %u ms, "
        "placement %s, huge pages %s, %s\n",
        sw_os_process_id(), sw_table_name(heap->table), heap->limit_bytes, heap->decay_ns / 1000000,
        preload_placements[heap->placement], heap->huge_pages ? "advised" : "off",
        heap->tracked ? "tracked" : "untracked");
}

void preload_read_options(void) {
    static const char prefix[] = "SPANWISE_";
    sw_heap_options_init(&preload_option.heap);
    if (getauxval(AT_SECURE) != 0 || environ == NULL) return;
    for (char **variable = environ; *variable != NULL; variable++) {
        if (strncmp(*variable, prefix, sizeof prefix - 1) != 0) continue;
        const char *setting = *variable + sizeof prefix - 1;
        if (!is_foreign(setting)) read_setting(setting);
    }
    if ((preload_option.protect & ~(unsigned)SW_GUARD_SAMPLE) != 0) preload_option.heap.tracked = 1;
    if (preload_option.verbose) print_options();
}
