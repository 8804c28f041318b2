# SPDX-License-Identifier: Apache-2.0
"""What heaptrack writes, packed by gzip or zstd or not at all.

Source: heaptrack 1.4, src/track/libheaptrack.cpp and src/interpret/heaptrack_interpret.cpp. Lines
begin with a letter; numbers are hexadecimal. `v VERSION FORMAT` comes first, `c` is a time in
milliseconds. With --raw a call is

    + SIZE STACK POINTER                   - POINTER

and without it, where `a` numbers the pairs of a size and a stack from 0,

    a SIZE STACK                           + PAIR                           - PAIR

so that a free does not tell which object of its pair it frees: the youngest is taken. A realloc is
a free and an allocation, in both.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import subprocess
import zlib
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from spanwise.errors import InvalidError, TraceFormatError, UnsupportedError
from spanwise.recordings.addresses import Addresses, Row, batches, checked_size

REMARK = (
    "made from a file that heaptrack wrote: threads and alignments are not known, a realloc is a"
    " free and an allocation, and times are those of its stamps"
)
REMARK_OF_PAIRS = (
    f"{REMARK}; a free tells size and stack only, so the youngest such object is freed"
)

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_BEGIN = re.compile(rb"v [0-9a-f]+ [0-9a-f]+\r?\n")
_CALL = re.compile(rb"([-+ac])((?: [0-9a-f]+)+)\s*")
_FIELDS = {"a": 2, "c": 1, "+": 1, "-": 1}


def is_one(content: bytes) -> bool:
    """Whether a file begins like heaptrack's; any file that zstd has packed counts as one."""
    if content[:4] == _ZSTD:
        return True
    begin = content[:64]
    if content[:2] == _GZIP:
        try:
            begin = zlib.decompressobj(wbits=31).decompress(content[:4096], 64)
        except zlib.error:
            return False
    return _BEGIN.match(begin) is not None


def operations(content: bytes, name: str) -> tuple[Iterator[NDArray[np.void]], str]:
    """The calls as operations, block by block, and the remark that goes with them.

    Raises:
        TraceFormatError: it is cut or damaged; the message has the line.
        InvalidError: it is no file of heaptrack, or has no call.
        UnsupportedError: it is packed by zstd, and there is no program to unpack it.
    """
    text = _unpacked(content, name)
    if _BEGIN.match(text) is None:
        raise InvalidError(f"{name}: is no file of heaptrack: its first line is no version")
    raw = re.search(rb"^a [0-9a-f]", text, re.MULTILINE) is None
    return batches(_calls(text, name, raw)), REMARK if raw else REMARK_OF_PAIRS


def _unpacked(content: bytes, name: str) -> bytes:
    if content[:2] == _GZIP:
        try:
            return gzip.decompress(content)
        except (OSError, EOFError, zlib.error) as error:
            raise TraceFormatError(f"{name}: its gzip stream is cut or damaged: {error}") from None
    if content[:4] != _ZSTD:
        return content
    program = shutil.which("zstd")
    if program is None:
        raise UnsupportedError(f"{name}: is packed by zstd; install the program zstd, or unpack it")
    done = subprocess.run([program, "-dcq"], input=content, capture_output=True, check=False)
    if done.returncode != 0:
        raise TraceFormatError(f"{name}: its zstd stream is cut or damaged")
    return done.stdout


def _calls(text: bytes, name: str, raw: bool) -> Iterator[list[Row]]:
    """The operations of each line; lines of modules, stacks and strings have none."""
    history = _History(raw)
    for number, line in enumerate(io.BytesIO(text), 1):
        if line[:2] not in (b"+ ", b"- ", b"a ", b"c "):
            continue
        found = _CALL.fullmatch(line)
        if found is None or not line.endswith(b"\n"):
            what = "is cut short" if not line.endswith(b"\n") else "is no call"
            shown = line[:60].decode("utf-8", "replace").strip()
            raise TraceFormatError(f"{name}: line {number} {what}: {shown!r}")
        try:
            yield history.line(found[1].decode(), [int(one, 16) for one in found[2].split()])
        except ValueError as error:
            raise TraceFormatError(f"{name}: line {number}: {error}") from None
    if not history.done:
        raise InvalidError(f"{name}: has no call; nothing to make")


class _History:
    """Live addresses; of pairs, an address of its own for each object."""

    def __init__(self, raw: bool) -> None:
        self.done = 0
        self._raw = raw
        self._addresses = Addresses()
        self._sizes: list[int] = []  # of each pair
        self._live: list[list[int]] = []  # of each pair the objects, the youngest last
        self._next = 1

    def line(self, word: str, numbers: list[int]) -> list[Row]:
        """The operations of a line."""
        if len(numbers) != (3 if word == "+" and self._raw else _FIELDS[word]):
            raise ValueError(f"{word} has {len(numbers)} numbers")
        if word == "c":
            self._addresses.now_ns = max(self._addresses.now_ns, numbers[0] * 1_000_000)
            return []
        if word == "a":
            self._sizes.append(checked_size(numbers[0]))
            self._live.append([])
            return []
        self.done += 1
        if word == "+":
            size, address = self._born(numbers)
            made = self._addresses.alloc(address, size)
        else:
            made = self._addresses.free(self._dead(numbers[0]))
        return [(*row[:3], 0, *row[3:]) for row in made]

    def _born(self, numbers: list[int]) -> tuple[int, int]:
        """Size and address of an allocation."""
        if self._raw:
            return checked_size(numbers[0]), numbers[2]
        pair = self._known(numbers[0])
        address, self._next = self._next, self._next + 1
        self._live[pair].append(address)
        return self._sizes[pair], address

    def _dead(self, number: int) -> int:
        """The address of the object that a line frees; 0: of none."""
        if self._raw:
            return number
        live = self._live[self._known(number)]
        return live.pop() if live else 0

    def _known(self, pair: int) -> int:
        if pair >= len(self._sizes):
            raise ValueError(f"pair {pair:x} was not told before")
        return pair
