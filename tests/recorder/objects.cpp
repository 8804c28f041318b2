// SPDX-License-Identifier: Apache-2.0
// C++ allocation in its usual forms, all of which must arrive as calls of the malloc family.
#include <cstdio>
#include <map>
#include <memory>
#include <new>
#include <string>
#include <vector>

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
