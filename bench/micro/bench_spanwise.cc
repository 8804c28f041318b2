// SPDX-License-Identifier: Apache-2.0
// The rows on spanwise, linked statically:
//   inline    fast.h with sizes known when compiled (`bare` in the build without checks)
//   exported  sw_malloc, sw_calloc, sw_free
//   generic   a heap of its own with a table made at run time, an explicit cache: no specialised path
// and, as class_TABLE/BYTES, a pair of each class: `special` (specialised path), `generic`, and for
// c16 inline; as kept/BYTES, objects of a class of c16 that are zeroed and kept.
#include <spanwise/fast.h>
#include <spanwise/spanwise.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "register.h"

namespace {

// Bytes that a table makes of each size in the rows: the slot and its share of the span's tail.
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
    static size_t usable(void *p) { return sw_usable_size(p); }
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

// Objects that may hold pointers have spans of their own, and are cleared if they hold old bytes.
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

// --- the generic path -----------------------------------------------------------------------------

[[noreturn]] [[maybe_unused]] void die(const char *what) {
    fprintf(stderr, "bench_spanwise: %s failed: %s\n", what, sw_last_error()->message);
    exit(1);
}

// A copy of a table made at run time: the library has no specialised path for it.
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
    static size_t usable(void *p) { return sw_heap_usable_size(heap, p); }
};

struct GenericScan : Generic {
    template <size_t N> static void *zget() { return sw_cache_alloc(cache, N, SW_SCAN); }
};

// --- one pair a class -----------------------------------------------------------------------------

// The classes of c16 that fast.h knows, as constants: class_sizes_hold() proves the list.
using ClassSizes =
    std::index_sequence<8, 16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256,
                        288, 320, 352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024>;

template <size_t... SIZE> [[maybe_unused]] bool class_sizes_hold(std::index_sequence<SIZE...>) {
    const std::array<uint32_t, sizeof...(SIZE) + 1> sizes{0, SIZE...};
    return sizeof sizes == sizeof sw_fast_class_bytes &&
           memcmp(sizes.data(), sw_fast_class_bytes, sizeof sizes) == 0;
}

[[maybe_unused]] void add_kept(const std::string &row,
                               const std::function<void(bench::State &)> &run) {
    bench::add(row, run, run)->UseManualTime();
}

template <size_t... SIZE>
[[maybe_unused]] void register_inline_classes(std::index_sequence<SIZE...>) {
    using C = bench::Counted<Inline>;
    (bench::add("inline/class_c16/" + std::to_string(SIZE), bench::pair<Inline, SIZE, false>,
                bench::pair<C, SIZE, false>),
     ...);
    (add_kept("inline/kept/" + std::to_string(SIZE),
              [](bench::State &state) {
                  bench::kept(
                      state, SIZE, [] { return Inline::template zget<SIZE>(); }, Inline::drop);
              }),
     ...);
}

// Both ways make the very same call, sw_cache_alloc with a size that is no constant; only the heap's
// table tells whether a specialised path serves it.
class ClassHeap {
  public:
    explicit ClassHeap(const sw_table *table) {
        sw_heap_options options;
        sw_heap_options_init(&options);
        options.table = table;
        if (sw_heap_create(&options, &heap_) != SW_OK || sw_cache_open(heap_, &cache) != SW_OK)
            die("a heap for the classes");
    }
    ClassHeap(const ClassHeap &) = delete;
    ClassHeap &operator=(const ClassHeap &) = delete;
    ~ClassHeap() {
        sw_cache_close(cache);
        if (sw_heap_destroy(heap_) != SW_OK) die("sw_heap_destroy");
    }

    sw_cache *cache = nullptr;

  private:
    sw_heap *heap_ = nullptr;
};

[[maybe_unused]] void class_pair(bench::State &state, const sw_table *table, size_t size) {
    ClassHeap heap(table);
    for (auto _ : state) {
        void *p = sw_cache_alloc(heap.cache, size, 0);
        bench::touch(p);
        sw_cache_free(heap.cache, p);
    }
    bench::finish(state, 1);
}

[[maybe_unused]] void class_kept(bench::State &state, const sw_table *table, size_t size) {
    ClassHeap heap(table);
    bench::kept(
        state, size, [&] { return sw_cache_alloc(heap.cache, size, SW_ZERO); },
        [&](void *p) { sw_cache_free(heap.cache, p); });
}

// Rows class_NAME/BYTES: `special` on the built-in table, `generic` on a copy of it.
[[maybe_unused]] void register_classes(const char *name, const sw_table *table) {
    const sw_table *copy = copy_table(table);
    for (uint32_t cls = 1; cls <= sw_table_class_count(table); cls++) {
        sw_class_info info;
        if (sw_table_class(table, cls, &info) != SW_OK) die("sw_table_class");
        std::string row = std::string("/class_") + name + "/" + std::to_string(info.size_bytes);
        size_t size = info.size_bytes;
        auto special = [=](bench::State &state) { class_pair(state, table, size); };
        auto generic = [=](bench::State &state) { class_pair(state, copy, size); };
        bench::add("special" + row, special, special);
        bench::add("generic" + row, generic, generic);
    }
}

// Rows kept/BYTES of the classes that have an inline path.
[[maybe_unused]] void register_kept() {
    const sw_table *table = sw_table_c16();
    const sw_table *copy = copy_table(table);
    for (size_t size : sw_fast_class_bytes) {
        if (size == 0) continue;
        std::string row = "/kept/" + std::to_string(size);
        add_kept("special" + row, [=](bench::State &state) { class_kept(state, table, size); });
        add_kept("generic" + row, [=](bench::State &state) { class_kept(state, copy, size); });
    }
}

} // namespace

int main(int argc, char **argv) {
#if BENCH_BARE
    bench::register_rows<Inline, InlineScan>("bare");
#else
    if (!class_sizes_hold(ClassSizes())) die("the proof of the class sizes");
    Generic::heap = make_generic_heap();
    Generic::thread_start();
    bench::register_rows<Inline, InlineScan>("inline");
    bench::register_rows<Exported, ExportedScan>("exported");
    bench::register_rows<Generic, GenericScan>("generic");
    register_inline_classes(ClassSizes());
    register_classes("c16", sw_table_c16());
    register_classes("go", sw_table_go());
    register_kept();
#endif
    return bench::run(argc, argv, SPANWISE_VERSION);
}
