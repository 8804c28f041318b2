# SPDX-License-Identifier: Apache-2.0
"""Writes commands in Redis's own protocol, for `redis-cli --pipe`.

Usage: redis_source.py SIZE (thousands of keys) OUTPUT. The store grows with one mix of sizes, loses
most of it at random, and grows with another mix: the pattern that fragments long-lived servers.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path


def encode(*words: str) -> bytes:
    """One command."""
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    return "".join(parts).encode()


def grow(source: random.Random, keys: int, longest: int, prefix: str) -> list[bytes]:
    """Strings, hashes, lists, sets and sorted sets with random values of up to `longest` bytes."""
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


def main() -> None:
    """Writes the file."""
    source = random.Random(20261120)
    keys = 1000 * int(sys.argv[1])
    lines = grow(source, keys, 120, "a")
    lines += [encode("DEL", f"a:{i}") for i in range(keys) if source.random() < 0.8]
    lines += grow(source, keys // 2, 400, "b")
    Path(sys.argv[2]).write_bytes(b"".join(lines))


if __name__ == "__main__":
    main()
