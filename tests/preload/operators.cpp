// SPDX-License-Identifier: Apache-2.0
// Operators new and delete from static initialisers to the destructors after main, in threads, and
// with wrong sizes. Each form and each new handler is compared with libstdc++'s in
// tests/differential.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <malloc.h>
#include <map>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "check.h"

// Made before main and gone after it, in this order backwards.
static std::map<int, std::string> early = {{1, std::string(100, 'a')}, {2, std::string(5000, 'b')}};
struct Last {
    std::vector<int *> kept;
    ~Last() {
        for (int *p : kept) delete p;
        std::string more(10000, 'z');
        if (more[9999] != 'z') _Exit(9);
    }
};
static Last last;

thread_local std::vector<std::string> of_thread;

static size_t bytes_in_use() { return mallinfo2().uordblks; }

struct Base {
    int number;
};
struct Derived : Base {
    char more[300];
};

// Programs that delete through another type work under the C library's malloc: the size that such a
// delete is given is wrong, and the object is freed all the same, once.
static void wrong_sizes() {
    const auto a = std::align_val_t(64);
    size_t before = 0;
    for (int round = 0; round < 200; round++) {
        for (size_t size : {size_t{0}, size_t{1}, size_t{24}, size_t{1000}, size_t{100000}})
            for (size_t given : {size_t{0}, size_t{1}, size_t{16}, size_t{25}, size_t{1025},
                                 size_t{40000}, size_t{1} << 20, SIZE_MAX}) {
                operator delete(operator new(size), given);
                operator delete[](operator new[](size), given);
                operator delete(operator new(size, a), given, a);
                operator delete[](operator new[](size, a), given, a);
                delete static_cast<Base *>(new Derived);
            }
        if (round == 0) before = bytes_in_use();
    }
    CHECK(bytes_in_use() <= before);
}

int main() {
    CHECK(early[2].size() == 5000);
    wrong_sizes();
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([] {
            for (int i = 0; i < 1000; i++) of_thread.emplace_back(static_cast<size_t>(i), 'x');
        });
    for (auto &thread : threads) thread.join();
    for (int i = 0; i < 100; i++) last.kept.push_back(new int(i));
    return check_failed();
}
