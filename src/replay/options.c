/* SPDX-License-Identifier: Apache-2.0 */
#include "replay/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "replay/process.h"

static uint64_t number(const char *text, char **end) {
    errno = 0;
    uint64_t value = strtoull(text, end, 10);
    if (*end == text || errno != 0) replay_die("'%s' is not a number", text);
    return value;
}

static uint64_t only_number(const char *text) {
    char *end;
    uint64_t value = number(text, &end);
    if (*end != '\0') replay_die("'%s' is not a number", text);
    return value;
}

static touch touch_named(const char *name) {
    static const char *const names[] = {"none", "ends", "pages", "all"};
    for (int i = 0; i < 4; i++)
        if (strcmp(name, names[i]) == 0) return (touch)i;
    replay_die("touch=%s: use none, ends, pages or all", name);
}

static void parse_drains(replay_options *o, const char *text) {
    char *at = (char *)text;
    while (*at != '\0') {
        if (o->drains == REPLAY_DRAINS_MAX)
            replay_die("drain=: at most %d times", REPLAY_DRAINS_MAX);
        o->drain_ms[o->drains++] = (uint32_t)number(at, &at);
        if (*at == ',') at++;
    }
}

static bool is_word(const char *text, size_t length, const char *word) {
    return strlen(word) == length && memcmp(text, word, length) == 0;
}

static sw_table *make_table(const char *text) {
    static sw_class_spec specs[SW_TABLE_CLASSES_MAX];
    uint32_t count = 0;
    char *at;
    uint32_t page_bytes = (uint32_t)number(text, &at);
    while (*at != '\0' && count < SW_TABLE_CLASSES_MAX) {
        specs[count].size_bytes = (uint32_t)number(at + 1, &at);
        if (*at != ':') replay_die("table=: class %u has no pages", count + 1);
        specs[count].pages = (uint32_t)number(at + 1, &at);
        if (*at == ':') specs[count].first_pages = (uint32_t)number(at + 1, &at);
        count++;
    }
    sw_table *table;
    if (sw_table_create("replay", page_bytes, specs, count, &table) != SW_OK)
        replay_die("table=: %s", sw_last_error()->message);
    return table;
}

const sw_table *replay_make_table(const char *text) {
    sw_table *made = make_table(text);
    const sw_table *builtin[] = {sw_table_c16(), sw_table_go()};
    for (int i = 0; i < 2; i++)
        if (sw_table_hash(builtin[i]) == sw_table_hash(made)) return builtin[i];
    return made;
}

static void parse_option(replay_options *o, char *text) {
    char *value = strchr(text, '=');
    if (value == NULL) replay_die("'%s' is no OPTION=VALUE", text);
    size_t length = (size_t)(value++ - text);
    if (is_word(text, length, "touch")) {
        o->touch = touch_named(value);
    } else if (is_word(text, length, "samples")) {
        o->samples = (uint32_t)only_number(value);
    } else if (is_word(text, length, "drain")) {
        parse_drains(o, value);
    } else if (is_word(text, length, "malloc")) {
        o->malloc = value;
    } else if (is_word(text, length, "table")) {
        o->table = value;
    } else if (is_word(text, length, "ledger")) {
        o->ledger = true;
        o->ledger_op = only_number(value);
    } else {
        replay_die("option '%.*s' is unknown", (int)length, text);
    }
}

replay_options replay_read_options(int argc, char **argv) {
    if (argc < 2) replay_die("usage: spanwise-replay OPS [OPTION=VALUE...]");
    replay_options o = {.path = argv[1], .touch = TOUCH_PAGES, .samples = 256};
    for (int i = 2; i < argc; i++) parse_option(&o, argv[i]);
    if (o.ledger && o.table == NULL) replay_die("ledger= needs a table=");
    return o;
}
