# SPDX-License-Identifier: Apache-2.0
"""Writes the input of a program; the same size always gives the same file.

Usage: sources.py KIND SIZE OUTPUT
    c       a large C file of SIZE functions, for `gcc -O2`
    cxx     a template-heavy C++ file of SIZE types
    sqlite  SQL for the sqlite3 shell, SIZE hundreds of rows
    redis   commands for `redis-cli --pipe`, SIZE thousands of keys. The data grows with one mix of
            sizes, loses most keys at random, and grows with another mix, which fragments servers
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

SEED = 20261120

C_HEAD = """#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct record {
    uint32_t key, flags;
    double weight;
    char name[24];
    struct record *next;
} record;

static uint32_t mix(uint32_t x) { x ^= x >> 16; x *= 0x7feb352dU; x ^= x >> 15; return x; }
"""

C_FUNCTION = """
static const uint16_t table_{i}[64] = {{ {numbers} }};

static double walk_{i}(const record *list, uint32_t limit) {{
    double sum = 0;
    for (const record *r = list; r != NULL && limit-- != 0; r = r->next) {{
        switch (mix(r->key + {a}u) % 7) {{
        case 0: sum += r->weight * {b}; break;
        case 1: sum -= table_{i}[r->flags & 63]; break;
        case 2: sum += r->name[r->key % sizeof r->name]; break;
        case 3: sum = sum > {a} ? sum / 2 : sum * 2; break;
        case 4: sum += (double)(r->flags >> {shift}); break;
        default: sum += {b}; break;
        }}
    }}
    return sum;
}}

int64_t reduce_{i}(record *records, size_t count, const int32_t *input, int32_t *output) {{
    int64_t total = {a};
    for (size_t k = 0; k < count; k++) {{
        int32_t value = input[k] ^ table_{i}[k & 63];
        if (value & (1 << {shift})) value = -value;
        output[k] = value * {b} + (k > 0 ? output[k - 1] : 0);
        records[k].flags |= mix((uint32_t)value) & {a}u;
        total += output[k] >> {shift};
    }}
    if (count > 1) memcpy(records[0].name, records[count - 1].name, sizeof records[0].name);
    {call}
    return total + (int64_t)walk_{i}(records, {a}u);
}}
"""


def c_source(size: int) -> str:
    """Return C code with structs, tables, switches, loops, and calls between functions."""
    source = random.Random(SEED)
    parts = [C_HEAD]
    for i in range(size):
        numbers = ", ".join(str(source.randrange(65536)) for _ in range(64))
        callee = f"reduce_{source.randrange(max(i, 1))}"
        parts.append(
            C_FUNCTION.format(
                i=i,
                numbers=numbers,
                a=source.randrange(1, 1000),
                b=source.randrange(2, 50),
                shift=source.randrange(1, 15),
                call=f"if (total & 1) total ^= {callee}(records, 1, input, output);" if i else "",
            )
        )
    return "".join(parts)


CXX_HEAD = """#include <algorithm>
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

CXX_TYPE = """
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


def cxx_source(size: int) -> str:
    """Return C++ code with containers of user types, tuples, and recursive templates."""
    types = [CXX_TYPE.format(i=i, modulus=3 + i, depth=20 + i) for i in range(size)]
    return "".join([CXX_HEAD, *types])


SQL_HEAD = """PRAGMA journal_mode = MEMORY;
PRAGMA cache_size = 20000;
CREATE TABLE item (id INTEGER PRIMARY KEY, kind TEXT, price REAL, facts TEXT);
CREATE TABLE sale (id INTEGER PRIMARY KEY, item INTEGER, day TEXT, count INTEGER, note TEXT);
CREATE INDEX sale_item ON sale (item, day);
"""

SQL_QUERIES = """SELECT kind, count(*), round(sum(price), 2) FROM item GROUP BY kind ORDER BY kind;
SELECT i.kind, s.day, sum(s.count) FROM sale s JOIN item i ON i.id = s.item
    GROUP BY i.kind, s.day ORDER BY 3 DESC, 1, 2 LIMIT 20;
WITH RECURSIVE chain (n, text) AS (SELECT 1, 'x' UNION ALL
    SELECT n + 1, text || hex(n) FROM chain WHERE n < 400) SELECT max(length(text)) FROM chain;
SELECT json_extract(facts, '$.size'), count(*) FROM item GROUP BY 1 ORDER BY 1;
SELECT length(group_concat(note, ',')) FROM sale;
UPDATE sale SET note = upper(note) || '!' WHERE item % 3 = 0;
DELETE FROM sale WHERE count % 5 = 1;
SELECT count(DISTINCT note), min(note), max(note) FROM sale;
CREATE INDEX sale_note ON sale (note);
SELECT day, count(*) FROM sale WHERE note LIKE '%9%' GROUP BY day ORDER BY day;
SELECT item, group_concat(count, ' ') FROM (SELECT * FROM sale ORDER BY id)
    GROUP BY item ORDER BY sum(count) DESC, item LIMIT 10;
VACUUM;
PRAGMA integrity_check;
"""


def sqlite_source(size: int) -> str:
    """Return SQL with indexes, joins, updates, deletes, JSON and aggregates; one insert per row."""
    source = random.Random(SEED)
    rows = 100 * size
    lines = [SQL_HEAD, "BEGIN;"]
    for i in range(rows // 4):
        facts = f'{{"size": {source.randrange(9)}, "tags": ["a{i}", "b{source.randrange(99)}"]}}'
        price = source.randrange(1, 10**5) / 100
        lines.append(f"INSERT INTO item VALUES ({i}, 'kind {i % 17}', {price}, '{facts}');")
    for i in range(rows):
        item, day = source.randrange(rows // 4), f"2026-11-{source.randrange(1, 31):02}"
        note = "n" * source.randrange(60) + str(source.randrange(10**6))
        lines.append(
            f"INSERT INTO sale VALUES ({i}, {item}, '{day}', {source.randrange(40)}, '{note}');"
        )
    lines += ["COMMIT;", SQL_QUERIES]
    return "\n".join(lines)


def encode(*words: str) -> str:
    """Encode one command."""
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts)


def grow(source: random.Random, keys: int, longest: int, prefix: str) -> list[str]:
    """Return commands that add strings, hashes, lists and sorted sets, by random sizes."""
    made = []
    for i in range(keys):
        key, value = f"{prefix}:{i}", "v" * source.randrange(1, longest)
        member = str(source.randrange(10**6))
        made.append(
            [
                encode("SET", key, value),
                encode("SET", key, value[: longest // 4] + member),
                encode("HSET", f"h:{prefix}:{i // 10}", f"field{member}", value),
                encode("RPUSH", f"l:{prefix}:{i // 50}", value, member),
                encode("ZADD", f"z:{prefix}:{i // 200}", member, f"member{member}"),
                encode("APPEND", f"{prefix}:{source.randrange(i + 1)}", member * 3),
            ][source.randrange(6)]
        )
    return made


def redis_source(size: int) -> str:
    """Return commands in the protocol of Redis."""
    source = random.Random(SEED)
    keys = 1000 * size
    lines = grow(source, keys, 120, "a")
    lines += [encode("DEL", f"a:{i}") for i in range(keys) if source.random() < 0.8]
    lines += grow(source, keys // 2, 400, "b")
    return "".join(lines)


KINDS = {"c": c_source, "cxx": cxx_source, "sqlite": sqlite_source, "redis": redis_source}

if __name__ == "__main__":
    kind, size, output = sys.argv[1:]
    Path(output).write_bytes(KINDS[kind](int(size)).encode())
