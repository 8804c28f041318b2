# SPDX-License-Identifier: Apache-2.0
"""Mutations of files: of bytes, lines, numbers, values of JSON, and of what packs a file.

All randomness comes from the `random.Random` that is given, so a file can be made again.
"""

from __future__ import annotations

import gzip
import io
import json
import random
import re
import shutil
import subprocess
import zipfile
import zlib
from collections.abc import Callable
from typing import Any

FILE_BYTES_MAX = 1 << 18
"""What a mutated file is cut to, before it is packed."""

BOMB_BYTES = 80 << 20
"""More than a small packed file may unpack to."""

NUMBERS = (
    *("0", "-1", "1", "255", "65536", "2147483648", "4294967296", "9223372036854775807"),
    *("9223372036854775808", "18446744073709551615", "18446744073709551616", "1" * 40, "9" * 5000),
    *("1e400", "-1e400", "NaN", "Infinity", "0.5", "1e18", "0x7fffffffffffffff", "00", "", "-0"),
)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1, 0.5, 1 << 31, 1 << 63, 1 << 64, 1 << 200, 1e308, float("inf")),
    *(float("nan"), "", "x", "0", "\ud800", "\0", "a" * 300, "\n", [], {}, [None], {"": []}, [[]]),
)
BYTES = (0, 1, 7, 8, 10, 18, 0x7F, 0x80, 0xFE, 0xFF)
WORDS = (
    *(b"\xff" * 9 + b"\x01", b"\x80" * 12, b"\x00" * 8, b"\xff" * 8, b"\n", b" ", b"\r", b"\0"),
    *(b"\x1f\x8b", b"PK\x03\x04", b"[" * 3000, b'{"a":' * 3000, b"\xed\xa0\x80", b"\xc3"),
)
_NUMBER = re.compile(rb"[0-9]+(?:\.[0-9]+)?|0x[0-9a-f]+")

Mutation = Callable[[random.Random, bytes], bytes]


def _span(rng: random.Random, content: bytes) -> tuple[int, int]:
    start = rng.randrange(len(content) + 1)
    return start, min(len(content), start + min(rng.randrange(1, 64), len(content)))


def flip(rng: random.Random, content: bytes) -> bytes:
    """Changes a bit, or makes a byte one that matters."""
    if not content:
        return content
    made, at = bytearray(content), rng.randrange(len(content))
    made[at] = made[at] ^ 1 << rng.randrange(8) if rng.random() < 0.5 else rng.choice(BYTES)
    return bytes(made)


def cut(rng: random.Random, content: bytes) -> bytes:
    """Takes bytes out, or the end off."""
    start, end = _span(rng, content)
    return content[:start] + (content[end:] if rng.random() < 0.6 else b"")


def insert(rng: random.Random, content: bytes) -> bytes:
    """Puts in random bytes, or a word that matters."""
    at = rng.randrange(len(content) + 1)
    word = rng.choice(WORDS) if rng.random() < 0.6 else rng.randbytes(rng.randrange(1, 20))
    return content[:at] + word + content[at:]


def copy(rng: random.Random, content: bytes) -> bytes:
    """Puts a part of the file elsewhere, in place of what is there or before it."""
    start, end = _span(rng, content)
    at = rng.randrange(len(content) + 1)
    after = at + end - start if rng.random() < 0.5 else at
    return content[:at] + content[start:end] * rng.choice((1, 1, 1, 50)) + content[after:]


def number(rng: random.Random, content: bytes) -> bytes:
    """Puts another number in place of one."""
    found = list(_NUMBER.finditer(content))
    if not found:
        return flip(rng, content)
    which = rng.choice(found)
    return content[: which.start()] + rng.choice(NUMBERS).encode() + content[which.end() :]


def lines(rng: random.Random, content: bytes) -> bytes:
    """Drops, repeats or moves a line."""
    parts = content.splitlines(keepends=True)
    if not parts:
        return content
    line = parts.pop(rng.randrange(len(parts)))
    at = rng.randrange(len(parts) + 1)
    parts[at:at] = [line] * rng.choice((0, 1, 1, 2, 300))
    return b"".join(parts)


def value(rng: random.Random, content: bytes) -> bytes:
    """Puts another value in place of one in JSON, or in a line of JSON."""
    parts = content.splitlines(keepends=True)
    places = [i for i, part in enumerate(parts) if part[:1] in (b"{", b"[")]
    if not places:
        return number(rng, content)
    at = rng.choice(places)
    try:
        parsed = json.loads(b"".join(parts[at:]) if at == 0 and len(places) < 3 else parts[at])
    except (ValueError, RecursionError):
        return number(rng, content)
    text = json.dumps(_changed(rng, parsed)).encode() + b"\n"
    if at == 0 and len(places) < 3:
        return text
    return b"".join([*parts[:at], text, *parts[at + 1 :]])


def _changed(rng: random.Random, parsed: Any) -> Any:
    """A value with one of those in it changed, taken out, or given twice."""
    items = parsed if isinstance(parsed, list) else list(parsed) if isinstance(parsed, dict) else ()
    if not items or rng.random() < 0.15:
        return rng.choice(VALUES)
    key = rng.randrange(len(items)) if isinstance(parsed, list) else rng.choice(items)
    deed = rng.random()
    if deed < 0.15:
        del parsed[key]
    elif deed < 0.25:
        other = parsed[key]
        if isinstance(parsed, list):
            parsed.insert(key, other)
        else:
            parsed[f"{key}x"] = other
    else:
        parsed[key] = _changed(rng, parsed[key])
    return parsed


MUTATIONS: tuple[Mutation, ...] = (flip, flip, cut, insert, copy, number, number, lines, value)


def mutated(rng: random.Random, seeds: list[bytes], packs: bool) -> bytes:
    """A file made of seeds: some mutations, and perhaps packed and mutated again.

    Args:
        rng: where all choices come from.
        seeds: files of one kind.
        packs: whether a reader of these unpacks.
    """
    content = rng.choice(seeds)
    if rng.random() < 0.1:
        other = rng.choice(seeds)
        content = content[: rng.randrange(len(content) + 1)]
        content += other[rng.randrange(len(other) + 1) :]
    if rng.random() >= 0.04:
        for _ in range(rng.choice((1, 1, 1, 1, 1, 2, 3, 9))):
            content = rng.choice(MUTATIONS)(rng, content)[:FILE_BYTES_MAX]
    if not packs or rng.random() < 0.8:
        return content
    kind = rng.choice(("gzip", "zip", "zstd", "gzip of gzip"))
    content = bomb(rng, content) if rng.random() < 0.05 else packed(kind, content)
    if rng.random() < 0.6:
        content = rng.choice((flip, cut, insert, copy))(rng, content)
    return content


# --- packing --------------------------------------------------------------------------------------


def packed(kind: str, content: bytes) -> bytes:
    """The content, packed; by gzip where there is no zstd."""
    if kind == "zip":
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(zipfile.ZipInfo("a.txt"), content, zipfile.ZIP_DEFLATED)
        return made.getvalue()
    program = shutil.which("zstd") if kind == "zstd" else None
    if program is not None:
        done = subprocess.run([program, "-cq"], input=content, capture_output=True, check=True)
        return done.stdout
    once = gzip.compress(content, 6, mtime=0)
    return gzip.compress(once, 6, mtime=0) if kind == "gzip of gzip" else once


def bomb(rng: random.Random, content: bytes) -> bytes:
    """Gzip of the content and of BOMB_BYTES of filler, not of valid calls."""
    filler = rng.choice((b"\n", b"\0", b"#", b"\x12\0", b"# \n"))
    packer = zlib.compressobj(1, zlib.DEFLATED, 31)
    part = filler * ((1 << 20) // len(filler))
    parts = [packer.compress(content), *(packer.compress(part) for _ in range(BOMB_BYTES >> 20))]
    return b"".join([*parts, packer.flush()])
