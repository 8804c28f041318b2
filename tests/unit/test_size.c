/* SPDX-License-Identifier: Apache-2.0 */
/* Size-class tables: the generator's proofs repeated in C, Go's numbers, run-time tables,
 * messages. */
#include "sizeclass/table.h"

#include "check.h"
#include "spanwise/gen/fast.h"

/* Go 1.26.8, internal/runtime/gc/sizeclasses.go: bytes and pages of classes 1..67. */
static const sw_class_spec go_numbers[] = {
    {8, 1, 0},     {16, 1, 0},    {24, 1, 0},    {32, 1, 0},    {48, 1, 0},     {64, 1, 0},
    {80, 1, 0},    {96, 1, 0},    {112, 1, 0},   {128, 1, 0},   {144, 1, 0},    {160, 1, 0},
    {176, 1, 0},   {192, 1, 0},   {208, 1, 0},   {224, 1, 0},   {240, 1, 0},    {256, 1, 0},
    {288, 1, 0},   {320, 1, 0},   {352, 1, 0},   {384, 1, 0},   {416, 1, 0},    {448, 1, 0},
    {480, 1, 0},   {512, 1, 0},   {576, 1, 0},   {640, 1, 0},   {704, 1, 0},    {768, 1, 0},
    {896, 1, 0},   {1024, 1, 0},  {1152, 1, 0},  {1280, 1, 0},  {1408, 2, 0},   {1536, 1, 0},
    {1792, 2, 0},  {2048, 1, 0},  {2304, 2, 0},  {2688, 1, 0},  {3072, 3, 0},   {3200, 2, 0},
    {3456, 3, 0},  {4096, 1, 0},  {4864, 3, 0},  {5376, 2, 0},  {6144, 3, 0},   {6528, 4, 0},
    {6784, 5, 0},  {6912, 6, 0},  {8192, 1, 0},  {9472, 7, 0},  {9728, 6, 0},   {10240, 5, 0},
    {10880, 4, 0}, {12288, 3, 0}, {13568, 5, 0}, {14336, 7, 0}, {16384, 2, 0},  {18432, 9, 0},
    {19072, 7, 0}, {20480, 5, 0}, {21760, 8, 0}, {24576, 3, 0}, {27264, 10, 0}, {28672, 7, 0},
    {32768, 4, 0},
};
enum { GO_CLASSES = sizeof go_numbers / sizeof go_numbers[0] };

/* Every offset 0..span of every class against real division. */
static void check_division(const sw_table *table) {
    for (uint32_t cls = 1; cls < table->class_count; cls++) {
        const sw_class *c = &table->classes[cls];
        uint32_t span = c->pages << table->page_shift;
        uint32_t wrong = 0;
        uint64_t magic = UINT64_MAX / c->size + 1; /* span/span.c */
        for (uint32_t n = 0; n <= span; n++)
            wrong += (uint32_t)(((unsigned __int128)n * magic) >> 64) != n / c->size;
        CHECK_EQ(wrong, 0);
        CHECK_EQ(c->slots, span / c->size);
        CHECK(c->slots >= 1);
    }
}

/* Every size has the smallest class that holds it; classes rise; both maps agree with that. */
static void check_lookup(const sw_table *table) {
    uint32_t cls = 1;
    uint32_t wrong = 0;
    for (uint32_t size = 0; size <= table->max_size; size++) {
        if (size > table->classes[cls].size) cls++;
        wrong += sw_size_class(table, size) != cls;
        wrong += sw_table_class_of(table, size) != cls;
    }
    CHECK_EQ(wrong, 0);
    CHECK_EQ(cls, sw_table_class_count(table));
    for (cls = 1; cls < table->class_count; cls++) {
        CHECK(table->classes[cls].size > table->classes[cls - 1].size);
        CHECK_EQ(sw_size_class(table, table->classes[cls].size), cls);
    }
    CHECK_EQ(sw_table_class_of(table, (size_t)table->max_size + 1), 0);
    CHECK_EQ(sw_table_class_of(table, SIZE_MAX), 0);
}

static void check_proofs(const sw_table *table) {
    check_division(table);
    check_lookup(table);
}

static void test_go_is_go(void) {
    const sw_table *go = sw_table_go();
    CHECK_STR(sw_table_name(go), "go");
    CHECK_EQ(sw_table_page_bytes(go), 8192);
    CHECK_EQ(sw_table_class_count(go), GO_CLASSES);
    CHECK_EQ(sw_table_max_bytes(go), 32768);
    CHECK_EQ(go->large_shift, 7);
    for (uint32_t cls = 1; cls <= GO_CLASSES; cls++) {
        CHECK_EQ(go->classes[cls].size, go_numbers[cls - 1].size_bytes);
        CHECK_EQ(go->classes[cls].pages, go_numbers[cls - 1].pages);
    }
    check_proofs(go);
}

static void test_builtin_names(void) {
    CHECK(sw_table_builtin("go") == sw_table_go());
    CHECK(sw_table_builtin("c16") == sw_table_c16());
    CHECK(sw_table_builtin("c17") == NULL);
    CHECK(sw_table_builtin("") == NULL);
    CHECK(sw_table_builtin(NULL) == NULL);
    CHECK(sw_table_default() == sw_table_c16());
    const sw_table *ignored[] = {NULL, sw_table_go(), sw_table_c16(), sw_table_default()};
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++)
        sw_table_destroy((sw_table *)(uintptr_t)ignored[i]);
    CHECK_STR(sw_table_name(sw_table_default()), "c16");
    CHECK_EQ(sw_table_max_bytes(sw_table_go()), 32768);
}

static void test_round_up(void) {
    static const size_t go_cases[][2] = {
        {0, 0},         {1, 8},         {8, 8},       {33, 48},       {40, 48},
        {66, 80},       {1024, 1024},   {1025, 1152}, {32768, 32768}, {32769, 40960},
        {40960, 40960}, {40961, 49152}, {17, 24},
    };
    for (size_t i = 0; i < sizeof go_cases / sizeof go_cases[0]; i++) {
        CHECK_EQ(sw_table_round_up(sw_table_go(), go_cases[i][0]), go_cases[i][1]);
    }
    CHECK_EQ(sw_table_round_up(sw_table_c16(), 17), 32);
    CHECK_EQ(sw_table_round_up(sw_table_go(), SIZE_MAX), 0);
    CHECK_EQ(sw_table_round_up(sw_table_go(), (size_t)PTRDIFF_MAX), 0);
    CHECK_EQ(sw_table_round_up(sw_table_go(), (size_t)PTRDIFF_MAX - 8192), PTRDIFF_MAX - 8191);
}

/* Percent as Go prints it: two decimals. */
static uint64_t hundredths(double percent) { return (uint64_t)(percent * 100 + 0.5); }

static void test_class_info(void) {
    sw_class_info info = {0};
    CHECK_EQ(sw_table_class(sw_table_go(), 5, &info), SW_OK);
    CHECK_EQ(info.cls, 5);
    CHECK_EQ(info.size_bytes, 48);
    CHECK_EQ(info.span_bytes, 8192);
    CHECK_EQ(info.slots, 170);
    CHECK_EQ(info.tail_bytes, 32);
    CHECK_EQ(info.min_align, 16);
    CHECK_EQ(hundredths(info.max_waste_percent), 3152);
    CHECK_EQ(sw_table_class(sw_table_go(), 1, &info), SW_OK);
    CHECK_EQ(hundredths(info.max_waste_percent), 8750);
    CHECK_EQ(sw_table_class(sw_table_go(), 67, &info), SW_OK);
    CHECK_EQ(info.min_align, 8192); /* capped at the page */
    CHECK_EQ(sw_table_class(sw_table_go(), 0, &info), SW_INVALID);
    CHECK_STR(sw_last_error()->message, "class 0: table go has 1 to 67");
    CHECK_EQ(sw_table_class(sw_table_c16(), 67, &info), SW_INVALID);
    CHECK_STR(sw_last_error()->message, "class 67: table c16 has 1 to 66");
    CHECK_EQ(info.cls, 67); /* untouched by failures */
}

/* Inline code's view of the default table, and the identity of a table that lists the same
 * classes. */
static void test_fast_header(void) {
    const sw_table *table = sw_table_default();
    CHECK_EQ(SW_FAST_TABLE_HASH, sw_table_hash(table));
    CHECK_EQ(SW_FAST_TABLE_SYMBOL, 1);
    CHECK_STR(SW_FAST_TABLE_NAME, table->name);
    for (uint32_t n = 0; n <= SW_FAST_SIZE_MAX; n++) {
        uint32_t cls = sw_fast_size_map[(n + 7) >> 3];
        CHECK_EQ(cls, sw_size_class(table, n));
        CHECK_EQ(sw_fast_class_bytes[cls], table->classes[cls].size);
    }
}

/* Random lists: what is accepted obeys the proofs by brute force; a refusal names its class. */
static void test_random_tables(void) {
    uint64_t state = 2;
    uint32_t accepted = 0, refused = 0;
    for (int round = 0; round < 150; round++) {
        sw_class_spec specs[40];
        uint32_t count = (uint32_t)(check_random(&state) % 40 + 1);
        uint32_t page = 4096u << check_random(&state) % 5;
        uint32_t size = 0;
        for (uint32_t i = 0; i < count; i++) {
            size += (uint32_t)(8 + 8 * (check_random(&state) % (1 + size / 32)));
            uint32_t most = round % 3 == 0 ? SW_TABLE_SPAN_BYTES_MAX / page : 2;
            uint32_t pages = size / page + 1 + (uint32_t)(check_random(&state) % most);
            specs[i] = (sw_class_spec){size, pages, 0};
        }
        sw_table *table = NULL;
        if (sw_table_create("random", page, specs, count, &table) == SW_OK) {
            check_proofs(table);
            sw_table_destroy(table);
            accepted++;
        } else {
            CHECK(table == NULL);
            CHECK(strncmp(sw_last_error()->message, "class ", 6) == 0);
            refused++;
        }
    }
    CHECK(accepted > 20);
    CHECK(refused > 5);
}

static void check_refused(const char *name, uint32_t page, const sw_class_spec *specs,
                          uint32_t count, const char *message) {
    sw_table *table = NULL;
    CHECK_EQ(sw_table_create(name, page, specs, count, &table), SW_INVALID);
    CHECK_STR(sw_last_error()->message, message);
    CHECK(table == NULL);
}

static void test_refused_tables(void) {
    static const char long_name[] =
        "0123456789012345678901234567890123456789012345678901234567890123";
    const sw_class_spec ok[] = {{8, 1, 0}};
    check_refused(NULL, 8192, ok, 1, "name: must have 1 to 63 characters");
    check_refused("", 8192, ok, 1, "name: must have 1 to 63 characters");
    check_refused(long_name, 8192, ok, 1, "name: must have 1 to 63 characters");
    check_refused("t", 0, ok, 1, "page_bytes 0: must be a power of two from 4096 to 65536");
    check_refused("t", 2048, ok, 1, "page_bytes 2048: must be a power of two from 4096 to 65536");
    check_refused("t", 12288, ok, 1, "page_bytes 12288: must be a power of two from 4096 to 65536");
    check_refused("t", 131072, ok, 1,
                  "page_bytes 131072: must be a power of two from 4096 to 65536");
    check_refused("t", 8192, ok, 0, "0 classes: must be 1 to 255");
    check_refused("t", 8192, NULL, 7, "0 classes: must be 1 to 255");
    check_refused("t", 8192, ok, 256, "256 classes: must be 1 to 255");
    CHECK_EQ(sw_table_create("t", 8192, ok, 1, NULL), SW_INVALID);
    CHECK_STR(sw_last_error()->message, "out: must not be NULL");
}

static void test_refused_classes(void) {
    static const struct {
        sw_class_spec specs[2];
        const char *message;
    } cases[] = {
        {{{0, 1, 0}}, "class 1 (0 bytes): size must be at least 8"},
        {{{8, 1, 0}, {20, 1, 0}}, "class 2 (20 bytes): size must be a multiple of 8; use 24"},
        {{{16, 1, 0}, {16, 1, 0}},
         "class 2 (16 bytes): size must be above the 16 bytes of class 1; list the classes in "
         "rising order"},
        {{{262152, 40, 0}},
         "class 1 (262152 bytes): size must be at most 262144; leave it out, larger requests get "
         "whole pages"},
        {{{8, 0, 0}}, "class 1 (8 bytes): pages must be at least 1"},
        {{{8, 1, 0}, {10240, 1, 0}},
         "class 2 (10240 bytes): does not fit its span of 8192 bytes; use 2 pages"},
        {{{8, 513, 0}},
         "class 1 (8 bytes): span of 4202496 bytes is above 4194304; use at most 512 "
         "pages"},
        {{{8, UINT32_MAX, 0}},
         "class 1 (8 bytes): span of 35184372080640 bytes is above 4194304; use "
         "at most 512 pages"},
        {{{16, 12, 5}},
         "class 1 (16 bytes): first_pages 5: 12 pages must be a power of two times as many"},
        {{{16, 12, 4}},
         "class 1 (16 bytes): first_pages 4: 12 pages must be a power of two times as many"},
        {{{8, 4, 8}},
         "class 1 (8 bytes): first_pages 8: 4 pages must be a power of two times as many"},
        {{{8, 2, 1}, {10240, 2, 1}},
         "class 2 (10240 bytes): does not fit its first span of 8192 bytes; use 2 pages"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint32_t count = cases[i].specs[1].size_bytes ? 2 : 1;
        check_refused("t", 8192, cases[i].specs, count, cases[i].message);
    }
}

int main(void) {
    test_go_is_go();
    test_builtin_names();
    test_round_up();
    test_class_info();
    test_fast_header();
    test_random_tables();
    test_refused_tables();
    test_refused_classes();
    return check_result();
}
