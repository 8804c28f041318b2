# SPDX-License-Identifier: Apache-2.0
"""Encodes and decodes JSON in a loop: many small strings, dicts and lists of mixed lifetimes.

Usage: json_loop.py SIZE (rounds). Prints a digest of the decoded documents. The seed is fixed.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys


def document(source: random.Random, rows: int) -> list[dict[str, object]]:
    """Return rows of names, numbers, lists and nested dicts."""
    return [
        {
            "id": i,
            "name": f"customer {source.randrange(10**9)}",
            "tags": [f"t{source.randrange(500)}" for _ in range(source.randrange(1, 8))],
            "address": {"city": "x" * source.randrange(4, 60), "zip": source.randrange(10**5)},
            "score": source.random(),
            "note": None if i % 3 else "n" * source.randrange(200),
        }
        for i in range(rows)
    ]


def main() -> None:
    """Keep the last eight decoded documents alive."""
    source = random.Random(20261120)
    window: list[object] = []
    digest = hashlib.sha256()
    for _ in range(int(sys.argv[1])):
        text = json.dumps(document(source, 1500), sort_keys=True)
        window.append(json.loads(text))
        del window[:-8]
        digest.update(json.dumps(window[0], indent=1, sort_keys=True).encode())
    print(len(window), digest.hexdigest())


if __name__ == "__main__":
    main()
