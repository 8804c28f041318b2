// SPDX-License-Identifier: Apache-2.0
// The rows on spanwise, linked statically:
//   inline    fast.h with sizes known at compile time (`bare` in the build without checks)
//   exported  sw_malloc, sw_calloc, sw_free
//   generic   a heap with a table created at run time, and an explicit cache: no specialised path
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>

#include <array>
#include <cstdio>
#include <cstdlib>

#include "register.h"

namespace {

// Bytes per object of each size under a table: the slot and its share of the span's tail.
struct TableBytes {
    std::array<double, bench::REPLACE_MAX + 1> of{};
    TableBytes() {
        const sw_table *table = sw_table_c16();
        for (size_t size = 0; size < of.size(); size++) {
            sw_class_info info;
            if (sw_table_class(table, sw_table_class_of(table, size), &info) != SW_OK) abort();
            of[size] = static_cast<double>(info.span_bytes) / info.slots;
        }
    }
};

struct Spanwise : bench::Policy {
    static constexpr bool has_table = true;
    static double table_bytes(size_t size) {
        static const TableBytes bytes;
        return bytes.of[size];
    }
    static void *get_any(size_t size) { return sw_malloc(size); }
};

struct Inline : Spanwise {
    template <size_t N> static void *get() { return sw_fast_malloc(N); }
    template <size_t N> static void *zget() { return sw_fast_zalloc(N); }
    static void drop(void *p) { sw_fast_free(p); }
    template <size_t N> static void drop_of(void *p) { sw_fast_free_sized(p, N); }
};

[[maybe_unused]] sw_cache *default_cache() {
    if (sw_tls.cache->heap == nullptr) sw_free(sw_malloc(1));
    return sw_tls.cache;
}

// Objects that may hold pointers have separate spans, and are cleared if they hold old bytes.
struct InlineScan : Inline {
    template <size_t N> static void *zget() {
        sw_cache *cache = sw_tls.cache;
        if (__builtin_expect(cache->heap == nullptr, 0)) cache = default_cache();
        return sw_fast_cache_alloc(cache, N, SW_SCAN);
    }
};

struct Exported : Spanwise {
    template <size_t N> static void *get() { return sw_malloc(N); }
    template <size_t N> static void *zget() { return sw_calloc(1, N); }
    static void drop(void *p) { sw_free(p); }
    template <size_t N> static void drop_of(void *p) { sw_free_sized(p, N); }
};

struct ExportedScan : Exported {
    template <size_t N> static void *zget() { return sw_heap_alloc(sw_heap_default(), N, SW_SCAN); }
};

// --- the generic path ----------------------------------------------------------------------------

[[noreturn]] [[maybe_unused]] void die(const char *what) {
    fprintf(stderr, "bench_spanwise: %s failed: %s\n", what, sw_last_error()->message);
    exit(1);
}

// Copy a table at run time, so that the library has no specialised path for it.
[[maybe_unused]] const sw_table *copy_table(const sw_table *from) {
    std::array<sw_class_spec, SW_TABLE_CLASSES_MAX> specs{};
    uint32_t count = sw_table_class_count(from);
    for (uint32_t cls = 1; cls <= count; cls++) {
        sw_class_info info;
        if (sw_table_class(from, cls, &info) != SW_OK) die("sw_table_class");
        uint32_t page = sw_table_page_bytes(from);
        specs[cls - 1] = {info.size_bytes, info.span_bytes / page, info.first_span_bytes / page};
    }
    sw_table *table = nullptr;
    if (sw_table_create("copy", sw_table_page_bytes(from), specs.data(), count, &table) != SW_OK)
        die("sw_table_create");
    return table;
}

[[maybe_unused]] sw_heap *make_generic_heap() {
    sw_heap_options options;
    sw_heap_options_init(&options);
    options.table = copy_table(sw_table_c16());
    sw_heap *heap = nullptr;
    if (sw_heap_create(&options, &heap) != SW_OK) die("sw_heap_create");
    return heap;
}

struct Generic : Spanwise {
    static inline sw_heap *heap = nullptr;
    static inline thread_local sw_cache *cache = nullptr;

    static void thread_start() {
        if (sw_cache_open(heap, &cache) != SW_OK) die("sw_cache_open");
    }
    static void thread_stop() { sw_cache_close(cache); }
    template <size_t N> static void *get() { return sw_cache_alloc(cache, N, 0); }
    template <size_t N> static void *zget() { return sw_cache_alloc(cache, N, SW_ZERO); }
    static void *get_any(size_t size) { return sw_cache_alloc(cache, size, 0); }
    static void drop(void *p) { sw_cache_free(cache, p); }
    template <size_t N> static void drop_of(void *p) { sw_heap_free_sized(heap, p, N); }
};

struct GenericScan : Generic {
    template <size_t N> static void *zget() { return sw_cache_alloc(cache, N, SW_SCAN); }
};

} // namespace

int main(int argc, char **argv) {
#if BENCH_BARE
    bench::register_rows<Inline, InlineScan>("bare");
#else
    Generic::heap = make_generic_heap();
    Generic::thread_start();
    bench::register_rows<Inline, InlineScan>("inline");
    bench::register_rows<Exported, ExportedScan>("exported");
    bench::register_rows<Generic, GenericScan>("generic");
#endif
    return bench::run(argc, argv, SPANWISE_VERSION);
}
