/* SPDX-License-Identifier: Apache-2.0 */
/* spanwise-replay: replays operations in a separate process and prints its measurements as JSON.
 * `spanwise replay` starts it, with LD_PRELOAD set to the allocator to be measured. The command
 * line: options.h.
 */
#define _GNU_SOURCE /* for dladdr */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "os/os.h"
#include "replay/play.h"
#include "replay/process.h"
#include <stdbool.h>
#include <stdint.h>

#include "spanwise/sizeclass.h"

enum { REPLAY_DRAINS_MAX = 16 };

typedef struct replay_options {
    const char *path;   /* of the file of operations */
    const char *table;  /* the table of the heap to replay on; NULL: malloc and free */
    const char *malloc; /* prefix of the file name of malloc's library; NULL: any library */
    touch touch;
    uint32_t samples;   /* approximate number of samples of memory */
    bool ledger;        /* untimed replay on a tracked heap, which prints its ledgers */
    uint64_t ledger_op; /* number of operations before the first ledger */
    uint32_t drain_ms[REPLAY_DRAINS_MAX]; /* times in ms after everything was freed at which memory
                                           * is sampled */
    uint32_t drains;
} replay_options;

/* Reads the command line. On an error the process ends with a message. */
replay_options replay_read_options(int argc, char **argv);
/* Returns the table of the option table=: a built-in table with the same classes, because it has
 * specialised paths, or else a new table. */
const sw_table *replay_make_table(const char *text);

/* --- the command line ------------------------------------------------------------------------- */

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

/* --- the program ------------------------------------------------------------------------------ */

#define ONCE "SPANWISE_REPLAY_FIXED"

/* --- the same addresses every time ------------------------------------------------------------ */

/* Executes this program again without address space randomisation. If the system forbids that, the
 * replay continues with addresses that differ between runs. */
static void fix_addresses(char **argv) {
    int now = personality(0xFFFFFFFF);
    if (now == -1 || (now & ADDR_NO_RANDOMIZE) != 0 || getenv(ONCE) != NULL) return;
    if (personality((unsigned long)now | ADDR_NO_RANDOMIZE) == -1) return;
    static char own[4096]; /* the real path: after exec of "/proc/self/exe" the process would have
                            * the name "exe" */
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    if (n <= 0 || setenv(ONCE, "1", 1) != 0) return;
    (void)execv(own, argv);
}

/* --- timed replay ----------------------------------------------------------------------------- */

typedef struct digests {
    const player *player;
    uint64_t peak_op;
    uint64_t at_peak, at_end;
} digests;

/* Returns FNV-1a over the index of each live object and its distance from the lowest one, so that
 * two runs whose addresses differ only in the heap's base have the same digest. */
static uint64_t digest(const player *pl) {
    uintptr_t lowest = UINTPTR_MAX;
    for (uint64_t i = 0; i < pl->plan->objects; i++) {
        uintptr_t a = (uintptr_t)pl->objects[i].address;
        if (a != 0 && a < lowest) lowest = a;
    }
    uint64_t hash = 0xcbf29ce484222325u;
    for (uint64_t i = 0; i < pl->plan->objects; i++) {
        uintptr_t a = (uintptr_t)pl->objects[i].address;
        if (a == 0) continue;
        hash = (hash ^ i) * 0x100000001b3u;
        hash = (hash ^ (a - lowest)) * 0x100000001b3u;
    }
    return hash;
}

static void note_digests(void *arg, uint32_t e) {
    digests *d = arg;
    const plan *p = d->player->plan;
    if (p->thread_count > 1) return;
    if (p->epochs[e].ops == d->peak_op) d->at_peak = digest(d->player);
    if (e + 1 == p->epoch_count) d->at_end = digest(d->player);
}

static void sleep_until(uint64_t until_ns) {
    for (uint64_t now; (now = replay_clock_ns()) < until_ns;) {
        uint64_t left = until_ns - now;
        struct timespec nap = {.tv_sec = (time_t)(left / 1000000000u),
                               .tv_nsec = (long)(left % 1000000000u)};
        (void)nanosleep(&nap, NULL);
    }
}

static const char *malloc_library(void) {
    Dl_info info;
    void *own = dlsym(RTLD_DEFAULT, "malloc");
    return own != NULL && dladdr(own, &info) != 0 && info.dli_fname != NULL ? info.dli_fname : "";
}

static void check_malloc(const char *wanted) {
    const char *path = malloc_library(), *slash = strrchr(path, '/');
    const char *name = slash == NULL ? path : slash + 1;
    if (wanted != NULL && strncmp(name, wanted, strlen(wanted)) != 0)
        replay_die("malloc comes from %s, not from %s", path, wanted);
}

static uint64_t minor_faults(void) {
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (uint64_t)usage.ru_minflt;
}

/* Writes one row per epoch: operations done, recorded time, live bytes, live objects, time since
 * the replay began, resident bytes. */
static void tell_samples(result *out, const player *pl) {
    result_text(out, "\"samples\":[");
    for (uint32_t e = 0; e < pl->plan->epoch_count; e++) {
        const epoch *at = &pl->plan->epochs[e];
        result_format(out,
                      "%s[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 "]",
                      e == 0 ? "" : ",", at->ops, at->time_ns, at->live_bytes, at->live_objects,
                      pl->samples[e].wall_ns, pl->samples[e].rss_bytes);
    }
    result_text(out, "],");
}

static void tell_drain(result *out, player *pl, const replay_options *o) {
    uint64_t before = replay_clock_ns();
    play_drain(pl);
    uint64_t drained = replay_clock_ns();
    result_number(out, "drain_ns", drained - before);
    result_number(out, "drained_rss_bytes", replay_resident_bytes());
    result_text(out, "\"returned\":[");
    for (uint32_t i = 0; i < o->drains; i++) {
        sleep_until(drained + (uint64_t)o->drain_ms[i] * 1000000u);
        result_format(out, "%s[%u,%" PRIu64 "]", i == 0 ? "" : ",", o->drain_ms[i],
                      replay_resident_bytes());
    }
    result_text(out, "],");
}

/* Writes to every page of an array. Otherwise a page that becomes resident during the replay would
 * count as the allocator's. */
static void fault_in(void *array, uint64_t bytes) {
    for (uint64_t at = 0; at < bytes; at += sw_os_page_bytes()) {
        volatile char *byte = (char *)array + at;
        *byte = *byte;
    }
}

static sw_heap *make_heap(const sw_table *table) {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = table;
    sw_heap *heap;
    if (sw_heap_create(&options, &heap) != SW_OK) replay_die("heap: %s", sw_last_error()->message);
    return heap;
}

/* Measurements before the first operation, and of the process during the replay. */
typedef struct measured {
    uint64_t startup_rss_bytes, own_rss_bytes; /* resident bytes before the plan was made; those of
                                                * plan, objects and result */
    uint64_t objects_bytes, overhead_ns, minor_faults;
} measured;

static void print_result(result *out, const player *pl, const measured *m, const digests *d) {
    const plan *p = pl->plan;
    result_text(out, "{");
    result_string(out, "malloc", malloc_library());
    result_number(out, "ops", p->count - p->ends);
    result_number(out, "threads", p->thread_count);
    result_number(out, "crossings", p->crossings);
    result_number(out, "plan_bytes", p->bytes + m->objects_bytes);
    result_number(out, "startup_rss_bytes", m->startup_rss_bytes);
    result_number(out, "own_rss_bytes", m->own_rss_bytes);
    result_number(out, "first_ns", pl->first_ns);
    result_number(out, "cpu_ns", pl->cpu_ns);
    result_number(out, "elapsed_ns", pl->elapsed_ns);
    result_number(out, "overhead_ns", m->overhead_ns);
    result_number(out, "waits", pl->waits);
    result_number(out, "waited_ns", pl->waited_ns);
    result_number(out, "failed", pl->failed);
    result_number(out, "minor_faults", m->minor_faults);
    result_number(out, "address_digest_peak", d->at_peak);
    result_number(out, "address_digest_end", d->at_end);
}

static void replay(const replay_options *o, int fd, const ops_head *head) {
    measured m = {.startup_rss_bytes = replay_resident_bytes()};
    plan p;
    plan_make(&p, fd, head, o->samples);
    player pl = {.plan = &p, .touch = o->touch, .progress_fd = fd};
    m.objects_bytes = (p.objects + 1) * sizeof(object);
    pl.objects = replay_map(m.objects_bytes);
    pl.samples = replay_map((p.epoch_count + 1) * sizeof(sample));
    fault_in(pl.objects, m.objects_bytes);
    fault_in(pl.samples, (p.epoch_count + 1) * sizeof(sample));
    result out;
    result_open(&out, ((uint64_t)p.epoch_count + 64) * 128);
    m.overhead_ns = play_overhead_ns(&pl);
    m.own_rss_bytes = replay_resident_bytes() - m.startup_rss_bytes;
    uint64_t faults = minor_faults();
    if (o->table != NULL) pl.heap = make_heap(replay_make_table(o->table));
    digests d = {.player = &pl, .peak_op = head->peak_op};
    play(&pl, note_digests, &d);
    m.minor_faults = minor_faults() - faults;
    print_result(&out, &pl, &m, &d);
    tell_samples(&out, &pl);
    tell_drain(&out, &pl, o);
    result_close(&out, "}");
}

int main(int argc, char **argv) {
    fix_addresses(argv);
    replay_options o = replay_read_options(argc, argv);
    check_malloc(o.malloc);
    int fd = open(o.path, O_RDWR | O_CLOEXEC);
    if (fd < 0) replay_die("%s: %s", o.path, strerror(errno));
    ops_head head = plan_read_head(fd);
    if (o.ledger) {
        tracked_replay(fd, &head, o.ledger_op, o.touch != TOUCH_NONE, replay_make_table(o.table));
    } else {
        replay(&o, fd, &head);
    }
    return 0;
}
