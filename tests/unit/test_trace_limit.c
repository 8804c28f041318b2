/* SPDX-License-Identifier: Apache-2.0 */
/* A disk without room: the writer says so and leaves no file behind. */
#include <dirent.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "trace_fixture.h"

enum { COUNT = 60000 };

static sw_op ops[COUNT];

static void device_full(void) {
    sw_trace_writer *w;
    CHECK_EQ(sw_trace_create("/dev/full", &w), SW_OK);
    sw_status status = sw_trace_append(w, ops, COUNT);
    if (status == SW_OK)
        status = sw_trace_commit(w, NULL);
    else
        sw_trace_abort(w);
    CHECK_EQ(status, SW_IO);
    CHECK_STR(sw_last_error()->message,
              "/dev/full: cannot write the recording: No space left on device; nothing was left "
              "there");
    CHECK_EQ(access("/dev/full", F_OK), 0); /* a device is never replaced or removed */
    CHECK_EQ(sw_trace_create("/dev/null", &w), SW_OK);
    CHECK_EQ(sw_trace_append(w, ops, COUNT), SW_OK);
    CHECK_EQ(sw_trace_commit(w, NULL), SW_OK);
    CHECK_EQ(access("/dev/null", F_OK), 0);
}

/* Files in the working directory whose names begin so. */
static int files_like(const char *start) {
    int found = 0;
    DIR *here = opendir(".");
    for (struct dirent *e; here != NULL && (e = readdir(here)) != NULL;)
        found += strncmp(e->d_name, start, strlen(start)) == 0;
    if (here != NULL) closedir(here);
    return found;
}

static void file_limit(rlim_t bytes_allowed) {
    const char *path = fixture_path("full.swt");
    const struct rlimit tight = {bytes_allowed, RLIM_INFINITY},
                        loose = {RLIM_INFINITY, RLIM_INFINITY};
    sw_trace_writer *w;
    file_write(path, "old", 3);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
    CHECK_EQ(sw_trace_create(path, &w), SW_OK);
    sw_status status = sw_trace_append(w, ops, COUNT);
    if (status == SW_OK)
        status = sw_trace_commit(w, NULL);
    else
        sw_trace_abort(w);
    CHECK_EQ(setrlimit(RLIMIT_FSIZE, &loose), 0);
    CHECK_EQ(status, SW_IO);
    CHECK(strstr(sw_last_error()->message, "File too large") != NULL);
    CHECK_EQ(files_like(path), 1); /* only what was there before, as it was */
    bytes old = file_read(path);
    CHECK(old.used == 3 && memcmp(old.data, "old", 3) == 0);
    free(old.data);
    remove(path);
}

static void no_such_place(void) {
    sw_trace_writer *w;
    CHECK_EQ(sw_trace_create("no/such/place.swt", &w), SW_IO);
    CHECK_STR(sw_last_error()->message,
              "no/such/place.swt: cannot create a file beside it: No such "
              "file or directory; nothing was left there");
}

int main(void) {
    uint64_t seed = 1;
    random_ops(&seed, ops, COUNT, 5000);
    signal(SIGXFSZ, SIG_IGN);
    device_full();
    const rlim_t limits[] = {0, 50, 64, 1000, 40000, 65536};
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) file_limit(limits[i]);
    no_such_place();
    return check_result();
}
