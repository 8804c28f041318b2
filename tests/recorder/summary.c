/* SPDX-License-Identifier: Apache-2.0 */
/* Prints what a recording holds, one "name value" a line, for the tests of the recorder.
 *   summary FILE          totals, form, metadata
 *   summary --salvage AREAS FILE  appends what is in the areas
 *   summary --sites FILE  each call site: id and addresses, then the modules
 *   summary --threads FILE  each thread: number, operations, ends, whether the last one is an end,
 *                           ends after an end
 * Exit 1 and the error message when the recording can not be read whole. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "spanwise/trace.h"

static int fail(void) {
    fprintf(stderr, "%s\n", sw_last_error()->message);
    return 1;
}

static void print_totals(const sw_trace_summary *s) {
#define LINE(field) printf("%s %" PRIu64 "\n", #field, s->field)
    LINE(ops);
    LINE(allocs);
    LINE(frees);
    LINE(reallocs);
    LINE(zeroed_allocs);
    LINE(aligned_allocs);
    LINE(allocated_bytes);
    LINE(reallocated_bytes);
    LINE(peak_requested_bytes);
    LINE(peak_live_objects);
    LINE(end_requested_bytes);
    LINE(end_live_objects);
    LINE(largest_bytes);
    LINE(duration_ns);
    LINE(threads);
    LINE(sites);
    LINE(unknown_frees);
    LINE(unknown_reallocs);
    LINE(missed_frees);
    LINE(calls);
    LINE(dropped_calls);
    LINE(drop_reason);
    LINE(children_unrecorded);
    LINE(children_recorded);
    LINE(incomplete);
    LINE(thread_ends);
#undef LINE
}

static int totals(sw_trace *trace) {
    sw_trace_summary summary;
    sw_trace_info info;
    if (sw_trace_get_summary(trace, &summary) != SW_OK) return fail();
    sw_trace_get_info(trace, &info);
    print_totals(&summary);
    printf("file_bytes %" PRIu64 "\npid %" PRIu64 "\nstack_depth %" PRIu64 "\n", info.file_bytes,
           info.pid, info.stack_depth);
    printf("page_bytes %" PRIu64 "\nstart_unix_ns %" PRIu64 "\npythonmalloc %u\n", info.page_bytes,
           info.start_unix_ns, info.pythonmalloc);
    const char *key, *value;
    for (size_t i = 0; sw_trace_meta_at(trace, i, &key, &value); i++)
        printf("meta.%s %s\n", key, value);
    return 0;
}

static int sites(const sw_trace *trace) {
    for (size_t place = 0; place < sw_trace_site_count(trace); place++) {
        const uint64_t *addresses;
        uint32_t id = sw_trace_site_at(trace, place, &addresses);
        size_t depth = sw_trace_site(trace, id, &addresses);
        printf("site %u", id);
        for (size_t i = 0; i < depth; i++) printf(" %" PRIx64, addresses[i]);
        printf("\n");
    }
    sw_trace_module m;
    for (size_t i = 0; sw_trace_module_at(trace, i, &m); i++)
        printf("module %" PRIx64 " %" PRIx64 " %" PRIx64 " %zu %s\n", m.start, m.end, m.bias,
               m.build_id_bytes, m.path);
    return 0;
}

/* The threads of the tests' programs are few. */
static int threads(sw_trace *trace) {
    static struct {
        unsigned ops, ends, ended, empty;
    } seen[4096];
    const sw_op *ops;
    size_t count = 1;
    while (count != 0) {
        if (sw_trace_next(trace, &ops, &count) != SW_OK) return fail();
        for (size_t i = 0; i < count && ops[i].thread < 4096; i++) {
            unsigned is_end = ops[i].kind == SW_OP_THREAD_END;
            seen[ops[i].thread].empty += is_end & seen[ops[i].thread].ended;
            seen[ops[i].thread].ended = is_end;
            seen[ops[i].thread].ends += is_end;
            seen[ops[i].thread].ops++;
        }
    }
    for (int i = 0; i < 4096 && seen[i].ops != 0; i++)
        printf("%d %u %u %u %u\n", i, seen[i].ops, seen[i].ends, seen[i].ended, seen[i].empty);
    return 0;
}

int main(int argc, char **argv) {
    sw_trace *trace;
    if (argc == 4 && strcmp(argv[1], "--salvage") == 0)
        return sw_trace_salvage(argv[3], argv[2], 0, 0) == SW_OK ? 0 : fail();
    int want_sites = argc == 3 && strcmp(argv[1], "--sites") == 0;
    int want_threads = argc == 3 && strcmp(argv[1], "--threads") == 0;
    unsigned flags = argc == 3 && !want_sites && !want_threads ? SW_TRACE_VALID_PREFIX : 0;
    if (argc < 2 || sw_trace_open(argv[argc - 1], flags, &trace) != SW_OK) return fail();
    int result = want_threads ? threads(trace) : want_sites ? sites(trace) : totals(trace);
    sw_trace_close(trace);
    return result;
}
