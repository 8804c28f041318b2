/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of the recorder, the preloaded malloc and the replayer: one damage per struct is found
 * from grade 2 on. Those structs are in preloaded libraries and in a program, so the test is linked
 * with the sources of the rules and applies them to its own structs. */
#include "base/base.h"
#include "dying_words.h"
#include "preload/account.h"
#include "preload/json.h"
#include "preload/options.h"
#include "recorder/area.h"
#include "recorder/file.h"
#include "recorder/meta.h"
#include "recorder/python.h"
#include "recorder/site.h"
#include "recorder/state.h"
#include "recorder/thread.h"
#include "replay/play.h"
#include "replay/process.h"

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

static preload_counts counts = {.ops = 3, .allocs = 2, .frees = 1};
static preload_ledger ledger, summed = {.row_count = 1};
static preload_json json;
static preload_options options = {.ledger_file = PRELOAD_NO_FILE};

static epoch epochs[1] = {{.ops = 5}};
static plan played = {.count = 5, .thread_count = 1, .epoch_count = 1, .epochs = epochs};
static object objects[1];
static sample samples[1];
static player self = {.plan = &played, .objects = objects, .samples = samples};
static result text = {.text = (char *)bytes, .room = sizeof bytes};

/* Name, rule, check of the struct, damage. */
#define CASES(X)                                                                                   \
    X(thread, "thread->uncounted <= swt_raw_count(&thread->raw)", record_thread_check(&thread),    \
      thread.uncounted = 2)                                                                        \
    X(descriptor, "file->fd < 0 || file->path[0] == '/'", record_descriptor_check(&descriptor),    \
      descriptor.path[0] = 't')                                                                    \
    X(recording, "options->stacks <= SWT_SITE_DEPTH_MAX", record_options_check(&recording),        \
      recording.stacks = SWT_SITE_DEPTH_MAX + 1)                                                   \
    X(chunk, "chunk->next != NULL || chunk->left < sizeof(record_thread)",                         \
      record_chunk_check(&chunk), chunk.left = RECORD_CHUNK_BYTES)                                 \
    X(sites, "sites->count <= (1u << sites->bits) / 4 * 3", record_sites_check(&sites),            \
      sites.count = 98305) /* 3/4 of 2^17 is 98304 */                                              \
    X(walk, "walk->site == 0 || walk->walk.count <= SW_OS_WORDS_MAX",                              \
      record_walk_check(&kept_walk), kept_walk.walk.count = SW_OS_WORDS_MAX + 1)                   \
    X(areas, "areas->count <= RECORD_AREAS_MAX", record_areas_check(&areas),                       \
      areas.count = RECORD_AREAS_MAX + 1)                                                          \
    X(output, "file->last_offset <= file->offset", record_file_check(&output),                     \
      output.last_offset = 1)                                                                      \
    X(modules, "modules->seen_count <= RECORD_SEEN_MAX", record_modules_check(&modules),           \
      modules.seen_count = RECORD_SEEN_MAX + 1)                                                    \
    X(interpreter, "!interpreter->on || interpreter->codes != NULL",                               \
      record_interpreter_check(&interpreter), interpreter.on = true)                               \
    X(counts, "counts->ops == counts->allocs + counts->frees + counts->reallocs",                  \
      preload_counts_check(&counts), counts.ops = 4)                                               \
    X(ledger, "ledger->row_count <= PRELOAD_CLASSES_MAX", preload_ledger_check(&ledger),           \
      ledger.row_count = PRELOAD_CLASSES_MAX + 1)                                                  \
    X(sum, "sw_ledger_sum(ledger) == ledger->held_bytes", preload_ledger_check(&summed),           \
      summed.sum.held_bytes = 1)                                                                   \
    X(json, "json->used <= sizeof json->buffer", preload_json_check(&json),                        \
      json.used = sizeof json.buffer + 1)                                                          \
    X(options, "options->ledger[0] == '/' || options->ledger[0] == '\\0'",                         \
      preload_options_check(&options), options.ledger[0] = 't')                                    \
    X(plan, "plan->epochs[plan->epoch_count - 1].ops == plan->count", plan_check(&played),         \
      epochs[0].ops = 4)                                                                           \
    X(player, "self->samples != NULL", player_check(&self), self.samples = NULL)                   \
    X(result, "out->length < out->room", result_check(&text), text.length = sizeof bytes)

#define FUNCTIONS(name, rule, check, damage)                                                       \
    static void ask_##name(void) { sw_check2(check); }                                             \
    static void damage_##name(void) {                                                              \
        damage;                                                                                    \
        sw_check2(check);                                                                          \
    }
#define ROW(name, rule, check, damage) {rule, ask_##name, damage_##name},

CASES(FUNCTIONS)

static const struct {
    const char *rule;
    void (*ask)(void), (*damage)(void);
} cases[] = {CASES(ROW)};

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
