# SPDX-License-Identifier: Apache-2.0
"""Writes a template-heavy C++ file: containers of own types, tuples, recursion at compile time.

Usage: cxx_source.py SIZE (own types) OUTPUT. The same size gives the same file.
"""

from __future__ import annotations

import sys
from pathlib import Path

HEAD = """#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <variant>
#include <vector>

template <int N> struct fibonacci {
    static constexpr long value = fibonacci<N - 1>::value + fibonacci<N - 2>::value;
};
template <> struct fibonacci<1> { static constexpr long value = 1; };
template <> struct fibonacci<0> { static constexpr long value = 0; };

template <class... Parts> struct pack {
    std::tuple<Parts...> parts;
    template <class Visit> void each(Visit visit) {
        std::apply([&](auto &...part) { (visit(part), ...); }, parts);
    }
};
"""

TYPE = """
struct type_{i} {{ int key; std::string name; std::vector<int> numbers; }};

long use_{i}(std::vector<type_{i}> &all) {{
    std::map<std::string, std::shared_ptr<type_{i}>> by_name;
    std::unordered_map<int, std::vector<type_{i}>> by_key;
    for (auto &one : all) {{
        by_name.emplace(one.name, std::make_shared<type_{i}>(one));
        by_key[one.key % {modulus}].push_back(one);
    }}
    std::sort(all.begin(), all.end(),
              [](const auto &a, const auto &b) {{ return a.name < b.name; }});
    std::variant<int, std::string, type_{i}> either = all.front();
    pack<type_{i}, std::string, std::function<long(const type_{i} &)>> bundle;
    long total = fibonacci<{depth}>::value;
    bundle.each([&](auto &part) {{ total += static_cast<long>(sizeof part); }});
    std::visit([&](auto &held) {{ total += static_cast<long>(sizeof held); }}, either);
    return total + static_cast<long>(by_name.size() + by_key.size());
}}
"""


def main() -> None:
    """Writes the file."""
    parts = [HEAD]
    parts += [TYPE.format(i=i, modulus=3 + i, depth=20 + i) for i in range(int(sys.argv[1]))]
    Path(sys.argv[2]).write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
