/* SPDX-License-Identifier: Apache-2.0 */
/* Which versions of CPython have a known layout, and what is believed of the offsets that an
 * interpreter publishes. tests/recorder/layout.c compares the layouts with CPython's headers. */
#include "check.h"
#include "recorder/python_layout.h"

#define UNKNOWN "Python lines need CPython 3.9 to 3.14"
#define FREE_THREADED "Python lines need a CPython with a GIL"

/* The start of _PyRuntime of 3.13.0: cookie, version, whether it has no GIL, then offsets. */
static uint64_t words[64];

static void publish(uint64_t version) {
    memset(words, 0xFF, sizeof words); /* what is not read is not believable */
    memcpy(words, "xdebugpy", 8);
    words[1] = version;
    words[2] = 0;
}

static void publish_3_13(void) {
    publish(0x030D00F0);
    words[23] = 72;                                   /* thread state: frame */
    words[29] = 8, words[30] = 0, words[31] = 56;     /* frame: previous, code, instruction */
    words[35] = 112, words[37] = 128, words[39] = 68; /* code: file, qualified name, line */
    words[43] = 200;                                  /* code: instructions */
}

static void check_refused(const char *version, const char *reason) {
    record_python_layout at;
    const char *why = record_python_layout_of(version, words, &at);
    CHECK(why != NULL && strcmp(why, reason) == 0);
}

static void versions(void) {
    record_python_layout at;
    CHECK(record_python_layout_of("3.9.18 (main, Aug 24 2023)", words, &at) == NULL);
    CHECK_EQ(at.frame_instruction, 104);
    CHECK_EQ(at.unit_bytes, 1);
    CHECK(record_python_layout_of("3.10.13 (main)", words, &at) == NULL);
    CHECK_EQ(at.unit_bytes, 2);
    CHECK(record_python_layout_of("3.12.1+ (main)", words, &at) == NULL);
    CHECK_EQ(at.frame_owner, 70);
    check_refused("3.8.18 (default)", UNKNOWN);
    check_refused("3.15.0 (main)", UNKNOWN);
    check_refused("2.7.18 (default)", UNKNOWN);
    check_refused("3.", UNKNOWN);
}

static void published(void) {
    record_python_layout at;
    publish_3_13();
    CHECK(record_python_layout_of("3.13.0 (main)", words, &at) == NULL);
    CHECK_EQ(at.state_frame, 72);
    CHECK_EQ(at.frame_previous, 8);
    CHECK_EQ(at.frame_code, 0);
    CHECK_EQ(at.frame_instruction, 56);
    CHECK_EQ(at.code_file, 112);
    CHECK_EQ(at.code_name, 128);
    CHECK_EQ(at.code_first_line, 68);
    CHECK_EQ(at.code_instructions, 200);
    CHECK(!at.has_cframe && at.unit_bytes == 0 && at.frame_owner == 0);
}

static void not_believed(void) {
    publish_3_13();
    check_refused("3.14.0 (main)", UNKNOWN); /* the offsets are those of another version */
    words[1] = 0x030D00B1;
    check_refused("3.13.0b1 (main)", UNKNOWN);
    publish_3_13();
    words[43] = 4096;
    check_refused("3.13.0 (main)", UNKNOWN);
    publish_3_13();
    memcpy(words, "xdebugpx", 8);
    check_refused("3.13.0 (main)", UNKNOWN);
    publish_3_13();
    words[2] = 1;
    check_refused("3.13.0 experimental free-threading build (main)", FREE_THREADED);
}

int main(void) {
    versions();
    published();
    not_believed();
    return check_result();
}
