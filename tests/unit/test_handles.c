/* SPDX-License-Identifier: Apache-2.0 */
/* Every public function that takes a handle, called with NULL, with a stale handle, and with an
 * address that is no handle of the kind. The functions are read from the headers: a new one without
 * a row in handle_rows.h fails. Sequences of calls with stale handles: test_stale.c. */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "faults.h"
#include "handle_rows.h"
#include "spanwise/fast.h"

/* Continuations of inline code, which calls them with a cache that it has looked at. */
static const char *const continuations[] = {"sw_alloc_slow", "sw_free_slow", "sw_cache_emptied"};

/* --- are they all? ---------------------------------------------------------------------------- */

static bool has_row(const char *name, size_t length, kind of) {
    for (size_t i = 0; i < ROW_COUNT; i++)
        if (rows[i].kind == of && strlen(rows[i].name) == length &&
            strncmp(rows[i].name, name, length) == 0)
            return true;
    for (size_t i = 0; i < sizeof continuations / sizeof *continuations; i++)
        if (strlen(continuations[i]) == length && strncmp(continuations[i], name, length) == 0)
            return true;
    return false;
}

/* Whether the text has `type` as a word, and no pointer to a pointer follows it. */
static bool takes(const char *text, const char *end, const char *type) {
    size_t length = strlen(type);
    for (const char *at = text; (at = strstr(at, type)) != NULL && at < end; at += length)
        if ((at[-1] == ' ' || at[-1] == '(') && at[length] != '*') return true;
    return false;
}

/* One declaration, after SW_API. Returns how many handles it takes. */
static int check_declaration(const char *text) {
    const char *end = strchr(text, ';'), *open = strchr(text, '('), *name = open;
    int handles = 0;
    if (end == NULL || open == NULL || open > end) return 0;
    while (name > text && (name[-1] == '_' || (name[-1] >= '0' && name[-1] <= '9') ||
                           (name[-1] >= 'a' && name[-1] <= 'z')))
        name--;
    for (kind of = 0; of < KINDS; of++) {
        if (!takes(open, end, types[of])) continue;
        handles++;
        if (has_row(name, (size_t)(open - name), of)) continue;
        fprintf(stderr, "%.*s(%s) has no row\n", (int)(open - name), name, types[of]);
        CHECK(false);
    }
    return handles;
}

static int check_header(const char *name) {
    static char text[1 << 20];
    char path[4096];
    int handles = 0;
    snprintf(path, sizeof path, "%s/%s", TESTS_PUBLIC_HEADERS, name);
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        perror(path);
        exit(1);
    }
    size_t bytes = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[bytes] = '\0';
    for (const char *at = text; (at = strstr(at, "\nSW_API ")) != NULL; at++)
        handles += check_declaration(at + strlen("\nSW_API "));
    return handles;
}

static void every_function_has_rows(void) {
    static const char *const headers[] = {
        "arena.h",  "fast.h",      "fast_abi.h", "fast_slots.h", "heap.h",     "ops.h",
        "gc.h",     "optimize.h",  "pool.h",     "gc_fast.h",    "range.h",    "replay.h",
        "status.h", "sizeclass.h", "stats.h",    "trace.h",      "spanwise.h", "scalable.h",
        "stack.h",  "slab.h",      "tracker.h"};
    int handles = 0;
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++)
        handles += check_header(headers[i]);
    /* One row is of a table that is in options, three functions have none. */
    CHECK_EQ(handles, ROW_COUNT - 1 + sizeof continuations / sizeof *continuations);
}

/* --- cases ------------------------------------------------------------------------------------ */

/* Told of once, with the name and the handle; the call does nothing. */
static void expect_named(const row *r, void *handle, sw_misuse want) {
    seen_count = 0;
    sw_clear_error();
    uint64_t got = r->call(handle);
    bool good = seen_count == 1 && seen.code == want && seen.ptr == handle && strlen(seen.op) > 2 &&
                got == r->result && sw_last_error()->fault.code == want;
    if (!good)
        fprintf(stderr, "%s of a %s: %d faults, the last %s op=%s, result %" PRIu64 "\n", r->name,
                types[r->kind], seen_count, sw_misuse_name(seen.code), seen.op, got);
    CHECK(good);
}

static void with_null(const row *r) {
    if (r->null == ALLOWED || (r->null == GRADED && SW_CHECK < 2)) return;
    if (r->null == NAMED || r->null == GRADED) {
        expect_named(r, NULL, SW_MISUSE_NULL_HANDLE);
        return;
    }
    seen_count = 0;
    sw_clear_error();
    uint64_t got = r->call(NULL);
    CHECK_EQ(seen_count, 0);
    CHECK_EQ(got, r->null == STATUS ? (uint64_t)SW_INVALID : 0);
    CHECK_EQ(sw_last_error()->status, r->null == STATUS ? SW_INVALID : SW_OK);
    if (r->null == STATUS) CHECK(strstr(sw_last_error()->message, "is NULL") != NULL);
}

static void with_ended(const row *r) {
    if (r->kind == TRACKER) end(TRACKER, live[TRACKER]); /* there is one at a time */
    void *handle = make(r->kind);
    end(r->kind, handle);
    expect_named(r, handle, SW_MISUSE_STALE_HANDLE);
    expect_named(r, handle, SW_MISUSE_STALE_HANDLE);
    if (r->kind == TRACKER) live[TRACKER] = make(TRACKER);
}

static void with_foreign(const row *r) {
    static _Alignas(4096) unsigned char garbage[16384];
    if (!r->looks) return;
    for (int fill = 0; fill < 256; fill += 85) {
        memset(garbage, fill, sizeof garbage);
        expect_named(r, garbage, SW_MISUSE_FOREIGN_HANDLE);
        expect_named(r, garbage + 3, SW_MISUSE_FOREIGN_HANDLE);
    }
    for (kind other = 0; other < KINDS; other++)
        if (other != r->kind) expect_named(r, live[other], SW_MISUSE_FOREIGN_HANDLE);
}

static void each_case(void) {
    for (size_t i = 0; i < ROW_COUNT; i++) {
        with_null(&rows[i]);
        with_ended(&rows[i]);
        with_foreign(&rows[i]);
    }
    CHECK_EQ(sw_heap_verify(live[HEAP]), SW_OK);
}

/* --- where the processor faults --------------------------------------------------------------- */

static void *fast_alloc(void *h) { return sw_fast_cache_alloc(h, 33, 0); }
static void *fast_alloc_largest(void *h) { return sw_fast_cache_alloc(h, SW_FAST_SIZE_MAX, 0); }
static void *fast_free(void *h) { return sw_fast_cache_free(h, &op), NULL; }
static void *plain_alloc(void *h) { return cache_alloc(h, 33, 0); }
static void *plain_alloc_large(void *h) { return cache_alloc(h, 1 << 20, SW_ZERO); }
static void *plain_free(void *h) { return cache_free(h, &op), NULL; }

/* Nothing is mapped there unless the program itself asks for it. A call of the library reads the
 * first lines of the cache; inline code reads the slot of the class, up to 4.2 KB after them. */
enum { FAULTS_BELOW = 8192, FAULTED = 7 };

static void end_by_address(int signal, siginfo_t *info, void *context) {
    (void)signal;
    (void)context;
    _exit((uintptr_t)info->si_addr < FAULTS_BELOW ? FAULTED : 1);
}

static int status_of_child(void *(*fn)(void *h)) {
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        struct sigaction action = {.sa_sigaction = end_by_address, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &action, NULL);
        void *volatile null = NULL;
        fn(null);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child);
    return status;
}

static void null_caches_fault(void) {
    static void *(*const calls[])(void *h) = {fast_alloc,  fast_alloc_largest, fast_free,
                                              plain_alloc, plain_alloc_large,  plain_free};
    for (size_t i = 0; SW_CHECK < 2 && i < sizeof calls / sizeof *calls; i++) {
        int status = status_of_child(calls[i]);
        CHECK(WIFEXITED(status));
        CHECK_EQ(WEXITSTATUS(status), FAULTED);
    }
}

int main(void) {
    sw_trace_writer *writer;
    null_caches_fault(); /* first: an emulator copies what its process holds into each child */
    sw_heap_options_init(&options);
    weights[33] = 1;
    snprintf(path, sizeof path, "/tmp/spanwise-handles-%d.swt", (int)getpid());
    CHECK_EQ(sw_trace_create(path, &writer), SW_OK);
    CHECK_EQ(sw_trace_commit(writer, NULL), SW_OK);
    every_function_has_rows();
    for (kind of = 0; of < KINDS; of++) live[of] = make(of);
    remember_faults();
    each_case();
    sw_set_fault_handler(NULL, NULL);
    for (kind of = KINDS; of-- > 0;) end(of, live[of]);
    remove(path);
    return check_result();
}
