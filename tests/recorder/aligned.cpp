// SPDX-License-Identifier: Apache-2.0
// Every form of operator new with a size that no one else uses; and aligned allocations between
// them that no operator made. The driver (tests/recorder/test_counts.py) knows the sizes.
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

// Allocation in its usual forms, all of which must arrive as calls of the malloc family.
#ifdef OBJECTS
struct alignas(64) Wide {
    char bytes[192];
};

int main() {
    std::map<int, std::string> words;
    for (int i = 0; i < 500; i++) words[i] = std::string(static_cast<size_t>(i % 60), 'x');
    std::vector<std::unique_ptr<Wide>> wide;
    for (int i = 0; i < 100; i++) wide.push_back(std::make_unique<Wide>());
    int *array = new int[1000]();
    void *raw = ::operator new(321);
    int total = array[999] + static_cast<int>(words.size() + wide.size());
    ::operator delete(raw);
    delete[] array;
    std::printf("%d\n", total);
    return 0;
}
#else
struct alignas(128) Wide {
    char bytes[300]; // 384 with padding
};

#ifdef POOL
// Operators of this library's own, which take no memory from malloc.
static char pool[1 << 20] __attribute__((aligned(4096)));
static std::size_t used;
void *operator new(std::size_t size, std::align_val_t align) {
    std::size_t mask = static_cast<std::size_t>(align) - 1;
    used = (used + mask) & ~mask;
    void *p = pool + used;
    used += size;
    return p;
}
void operator delete(void *p, std::align_val_t) noexcept {
    char *byte = static_cast<char *>(p);
    if (byte < pool || byte >= pool + sizeof pool) std::abort();
}
void operator delete(void *p, std::size_t, std::align_val_t align) noexcept {
    operator delete(p, align);
}
#endif

static void *volatile kept; // so that no pair of calls is optimized away

static void release(void *p, std::size_t align) { ::operator delete(p, std::align_val_t(align)); }

extern "C" int allocate() {
    using std::align_val_t;
    release(::operator new(10021, align_val_t(4096)), 4096);
#ifndef POOL // the C++ library's, which call an operator that is found when it is loaded
    release(::operator new[](10023, align_val_t(256)), 256);
    release(::operator new(10025, align_val_t(64), std::nothrow), 64);
    release(::operator new[](10027, align_val_t(512), std::nothrow), 512);
#endif
    release(::operator new(10240, align_val_t(1024)), 1024); // a multiple: nothing is rounded
    release(::operator new(0, align_val_t(32)), 32);
    kept = new Wide;
    delete static_cast<Wide *>(kept);
#ifndef POOL
    volatile std::size_t huge = static_cast<std::size_t>(-1) / 2 - 4096;
    try {
        release(::operator new(huge, align_val_t(64)), 64);
        return 1;
    } catch (const std::bad_alloc &) {
    }
    if (::operator new(huge, align_val_t(64), std::nothrow) != nullptr) return 2;
#endif
    std::free(kept = std::aligned_alloc(64, 10048));
    std::free(kept = memalign(8192, 10011)); // of another alignment than the last operator's
    return 0;
}

#ifndef LIBRARY
int main() { std::_Exit(allocate()); }
#endif
#endif
