// SPDX-License-Identifier: Apache-2.0
// A container on an installed spanwise; prints "consumer ok".
#include <cstdio>
#include <map>
#include <spanwise/allocator.hpp>

int main() {
    using pair = std::pair<const int, int>;
    std::map<int, int, std::less<int>, spanwise::allocator<pair>> squares;
    for (int i = 0; i < 1000; i++) squares[i] = i * i;
    if (squares[31] != 961) return 1;
    std::puts("consumer ok");
    return 0;
}
