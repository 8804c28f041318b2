// SPDX-License-Identifier: Apache-2.0
// The rows on the dynamically linked malloc, calloc and free: those of the C library, or of the
// library in LD_PRELOAD. This program does not link spanwise. -fno-builtin keeps the calls.
#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <malloc.h>

#include "register.h"

namespace {

struct Plt : bench::Policy {
    template <size_t N> static void *get() { return malloc(N); }
    template <size_t N> static void *zget() { return calloc(1, N); }
    static void *get_any(size_t size) { return malloc(size); }
    static void drop(void *p) { free(p); }
    template <size_t N> static void drop_of(void *p) { free(p); }
};

// The library that serves malloc; the driver rejects a preload that had no effect.
std::string malloc_library() {
    Dl_info info{};
    void *address = dlsym(RTLD_DEFAULT, "malloc");
    return dladdr(address, &info) != 0 ? info.dli_fname : "";
}

// Find a function of the preloaded library, which this program was not linked with.
template <class F> F *find(const char *name) {
    return reinterpret_cast<F *>(dlsym(RTLD_DEFAULT, name));
}

std::string malloc_version() {
    if (auto *mimalloc = find<int()>("mi_version")) return bench::mimalloc_version(mimalloc());
    if (auto *jemalloc = find<int(const char *, void *, size_t *, void *, size_t)>("mallctl")) {
        const char *text = nullptr;
        size_t size = sizeof text;
        jemalloc("version", &text, &size, nullptr, 0);
        return text == nullptr ? "" : text;
    }
    if (auto *tcmalloc = find<const char *(int *, int *, const char **)>("tc_version")) {
        int major = 0;
        int minor = 0;
        const char *patch = nullptr;
        tcmalloc(&major, &minor, &patch);
        return std::to_string(major) + "." + std::to_string(minor);
    }
    bool own = malloc_library().find("libc.so") != std::string::npos;
    return own ? gnu_get_libc_version() : "";
}

} // namespace

int main(int argc, char **argv) {
    bench::register_rows<Plt>("malloc");
    return bench::run(argc, argv, malloc_version(), malloc_library());
}
