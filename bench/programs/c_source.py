# SPDX-License-Identifier: Apache-2.0
"""Writes a large C file for `gcc -O2 -c`: structs, tables, switches, loops, calls between them.

Usage: c_source.py SIZE (functions) OUTPUT. The same size gives the same file.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

HEAD = """#include <stddef.h>
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

FUNCTION = """
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


def main() -> None:
    """Writes the file."""
    source = random.Random(20261120)
    parts = [HEAD]
    for i in range(int(sys.argv[1])):
        numbers = ", ".join(str(source.randrange(65536)) for _ in range(64))
        callee = f"reduce_{source.randrange(max(i, 1))}"
        parts.append(
            FUNCTION.format(
                i=i,
                numbers=numbers,
                a=source.randrange(1, 1000),
                b=source.randrange(2, 50),
                shift=source.randrange(1, 15),
                call=f"if (total & 1) total ^= {callee}(records, 1, input, output);" if i else "",
            )
        )
    Path(sys.argv[2]).write_text("".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
