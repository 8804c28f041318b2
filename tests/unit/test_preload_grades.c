/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the recorder, the preloaded malloc and the replayer: one damage per struct is found
 * from grade 2 on. Those structs are in preloaded libraries and in a program, so the test is linked
 * with the sources of the rules and applies them to its own structs. */
#include "base/assert.h"
#include "dying_words.h"
#include "preload/account.h"
#include "preload/json.h"
#include "preload/options.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/meta.h"
#include "recorder/options.h"
#include "recorder/python.h"
#include "recorder/site.h"
#include "recorder/thread.h"
#include "replay/play.h"
#include "replay/result.h"

/* --- the recorder ----------------------------------------------------------------------------- */

static swt_event events[4];
static uint8_t bytes[64];

static record_thread thread = {
    .raw = {.events = events, .next = events + 1, .limit = events + 3},
    .taken = 1,
    .stride = 1,
    .until_reading = 1,
};
static record_descriptor descriptor = {.fd = 3, .path = "/tmp/recording"};
static record_options recording = {.stacks = 1, .shallow = true, .file = "/tmp/recording"};
static record_chunk chunk;
static record_sites sites = {.bits = 17, .buffer = {.data = bytes, .capacity = sizeof bytes}};
static record_walk kept_walk = {.site = 1};
static record_areas areas = {.file = {.fd = -1}};
static record_file output = {.at = {.fd = -1}};
static record_modules modules;
static record_interpreter interpreter;

static void ask_thread(void) { sw_check2(record_thread_check(&thread)); }
static void ask_descriptor(void) { sw_check2(record_descriptor_check(&descriptor)); }
static void ask_recording(void) { sw_check2(record_options_check(&recording)); }
static void ask_chunk(void) { sw_check2(record_chunk_check(&chunk)); }
static void ask_sites(void) { sw_check2(record_sites_check(&sites)); }
static void ask_walk(void) { sw_check2(record_walk_check(&kept_walk)); }
static void ask_areas(void) { sw_check2(record_areas_check(&areas)); }
static void ask_output(void) { sw_check2(record_file_check(&output)); }
static void ask_modules(void) { sw_check2(record_modules_check(&modules)); }
static void ask_interpreter(void) { sw_check2(record_interpreter_check(&interpreter)); }

static void damage_thread(void) {
    thread.uncounted = 2;
    ask_thread();
}
static void damage_descriptor(void) {
    descriptor.path[0] = 't';
    ask_descriptor();
}
static void damage_recording(void) {
    recording.stacks = SWT_SITE_DEPTH_MAX + 1;
    ask_recording();
}
static void damage_chunk(void) {
    chunk.left = RECORD_CHUNK_BYTES;
    ask_chunk();
}
static void damage_sites(void) {
    sites.count = 98305; /* 3/4 of 2^17 is 98304 */
    ask_sites();
}
static void damage_walk(void) {
    kept_walk.walk.count = SW_OS_WORDS_MAX + 1;
    ask_walk();
}
static void damage_areas(void) {
    areas.count = RECORD_AREAS_MAX + 1;
    ask_areas();
}
static void damage_output(void) {
    output.last_offset = 1;
    ask_output();
}
static void damage_modules(void) {
    modules.seen_count = RECORD_SEEN_MAX + 1;
    ask_modules();
}

static void damage_interpreter(void) {
    interpreter.on = true; /* without a table */
    ask_interpreter();
}

/* --- the preloaded malloc --------------------------------------------------------------------- */

static preload_counts counts = {.ops = 3, .allocs = 2, .frees = 1};
static preload_ledger ledger;
static preload_json json;
static preload_options options = {.ledger_file = PRELOAD_NO_FILE};

static void ask_counts(void) { sw_check2(preload_counts_check(&counts)); }
static void ask_ledger(void) { sw_check2(preload_ledger_check(&ledger)); }
static void ask_json(void) { sw_check2(preload_json_check(&json)); }
static void ask_options(void) { sw_check2(preload_options_check(&options)); }

static void damage_counts(void) {
    counts.ops = 4;
    ask_counts();
}
static void damage_ledger(void) {
    ledger.row_count = PRELOAD_CLASSES_MAX + 1;
    ask_ledger();
}
static void damage_sum(void) {
    ledger.row_count = 1;
    ledger.sum.held_bytes = 1;
    ask_ledger();
}
static void damage_json(void) {
    json.used = sizeof json.buffer + 1;
    ask_json();
}
static void damage_options(void) {
    options.ledger[0] = 't';
    ask_options();
}

/* --- the player ------------------------------------------------------------------------------- */

static epoch epochs[1] = {{.ops = 5}};
static plan played = {.count = 5, .thread_count = 1, .epoch_count = 1, .epochs = epochs};
static object objects[1];
static sample samples[1];
static player self = {.plan = &played, .objects = objects, .samples = samples};
static result text = {.text = (char *)bytes, .room = sizeof bytes};

static void ask_plan(void) { sw_check2(plan_check(&played)); }
static void ask_player(void) { sw_check2(player_check(&self)); }
static void ask_result(void) { sw_check2(result_check(&text)); }

static void damage_plan(void) {
    epochs[0].ops = 4;
    ask_plan();
}
static void damage_player(void) {
    self.samples = NULL;
    ask_player();
}
static void damage_result(void) {
    text.length = sizeof bytes;
    ask_result();
}

/* --- the table -------------------------------------------------------------------------------- */

static const struct {
    const char *rule;
    void (*ask)(void), (*damage)(void);
} cases[] = {
    {"thread->uncounted <= swt_raw_count(&thread->raw)", ask_thread, damage_thread},
    {"file->fd < 0 || file->path[0] == '/'", ask_descriptor, damage_descriptor},
    {"options->stacks <= SWT_SITE_DEPTH_MAX", ask_recording, damage_recording},
    {"chunk->next != NULL || chunk->left < sizeof(record_thread)", ask_chunk, damage_chunk},
    {"sites->count <= (1u << sites->bits) / 4 * 3", ask_sites, damage_sites},
    {"walk->site == 0 || walk->walk.count <= SW_OS_WORDS_MAX", ask_walk, damage_walk},
    {"areas->count <= RECORD_AREAS_MAX", ask_areas, damage_areas},
    {"file->last_offset <= file->offset", ask_output, damage_output},
    {"modules->seen_count <= RECORD_SEEN_MAX", ask_modules, damage_modules},
    {"!interpreter->on || interpreter->codes != NULL", ask_interpreter, damage_interpreter},
    {"counts->ops == counts->allocs + counts->frees + counts->reallocs", ask_counts, damage_counts},
    {"ledger->row_count <= PRELOAD_CLASSES_MAX", ask_ledger, damage_ledger},
    {"sw_ledger_sum(ledger) == ledger->held_bytes", ask_ledger, damage_sum},
    {"json->used <= sizeof json->buffer", ask_json, damage_json},
    {"options->ledger[0] == '/' || options->ledger[0] == '\\0'", ask_options, damage_options},
    {"plan->epochs[plan->epoch_count - 1].ops == plan->count", ask_plan, damage_plan},
    {"self->samples != NULL", ask_player, damage_player},
    {"out->length < out->room", ask_result, damage_result},
};

int main(void) {
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char words[DYING_WORDS_MAX];
        CHECK(!died_with(cases[i].ask, words)); /* undamaged it holds to its rules */
        CHECK_EQ(words[0], 0);
        CHECK_EQ(died_with(cases[i].damage, words), SW_CHECK >= 2);
        bool reported = strstr(words, "ASSERT ") != NULL && strstr(words, cases[i].rule) != NULL;
        if (reported != (SW_CHECK >= 2)) fprintf(stderr, "%s: \"%s\"\n", cases[i].rule, words);
        CHECK_EQ(reported, SW_CHECK >= 2);
    }
    return check_result();
}
