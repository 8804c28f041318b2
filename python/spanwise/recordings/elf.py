# SPDX-License-Identifier: Apache-2.0
"""Read ELF files: interpreter, needed libraries, sections, build id and functions.

Only 64-bit little-endian files are supported, as on x86-64 and arm64 (System V ABI, ELF-64
object file format). A file may be damaged, so each read is checked. numpy is loaded only to read
functions, because programs are examined before they start.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from spanwise.results.files import READING_ERRORS, what_is_wrong

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_SECTION = struct.Struct("<IIQQQQIIQQ")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_SYMBOL: Any = {
    "names": ["name", "info", "section", "value", "size"],
    "formats": ["<u4", "u1", "<u2", "<u8", "<u8"],
    "offsets": [0, 4, 6, 8, 16],
    "itemsize": 24,
}
_SYMBOL_BYTES = 24
_SYMTAB, _NOTE, _NOBITS, _DYNSYM = 2, 7, 8, 11
_LOAD, _DYNAMIC, _INTERP = 1, 2, 3  # PT_*
_NEEDED, _STRTAB = 1, 5  # DT_*
_FUNCTIONS = (2, 10)  # STT_FUNC, STT_GNU_IFUNC
_NOTE_BUILD_ID = 3
_PAGE = 0xFFF  # a segment is mapped from the start of its first page on


class ElfError(Exception):
    """The file is not a 64-bit ELF file, or is damaged; the message says which."""


class Section(NamedTuple):
    """A section header, with the name instead of its offset."""

    name: str
    type: int
    offset: int
    bytes: int
    link: int


@dataclass(frozen=True)
class Functions:
    """The functions of a file, by ascending address.

    Attributes:
        names: as in the symbol table; the last one of an address is the shortest that does not
            begin with an underscore, if there is one.
    """

    starts: NDArray[np.uint64]  # their addresses; `ends` are one past their last bytes
    ends: NDArray[np.uint64]
    names: tuple[str, ...]
    complete: bool  # whether they are from the full symbol table, not only the dynamic one

    def at(self, address: int) -> str | None:
        """Return the function at an address; None: unknown."""
        i = int(self.starts.searchsorted(address, side="right")) - 1
        return self.names[i] if i >= 0 and address < int(self.ends[i]) else None


class ElfFile:
    """A mapped ELF file."""

    def __init__(self, path: str | Path, *, sections: bool = True) -> None:
        try:
            if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a pipe would wait
                raise ElfError("not a regular file")
            with Path(path).open("rb") as file:
                self._raw = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise ElfError("an empty file") from None
        if self._raw[:6] != b"\x7fELF\x02\x01":
            raise ElfError("not a 64-bit ELF file")
        try:
            self._sections = self._read_sections() if sections else []
        except READING_ERRORS as error:
            raise ElfError(f"damaged: {what_is_wrong(error)}") from None

    def _read_sections(self) -> list[Section]:
        (start,) = struct.unpack_from("<Q", self._raw, 40)
        _, count, names_at = struct.unpack_from("<HHH", self._raw, 58)
        heads = [_SECTION.unpack_from(self._raw, start + i * _SECTION.size) for i in range(count)]
        if not heads:
            return []
        texts = heads[names_at][4]
        return [
            Section(self._text(texts + head[0]), head[1], head[4], head[5], head[6])
            for head in heads
        ]

    def _segments(self) -> Iterator[tuple[int, ...]]:
        """Yield type, flags, offset, addresses, file and memory bytes, alignment."""
        try:
            (start,) = struct.unpack_from("<Q", self._raw, 32)
            size, count = struct.unpack_from("<HH", self._raw, 54)
            for i in range(count):
                yield _SEGMENT.unpack_from(self._raw, start + i * size)
        except READING_ERRORS as error:
            raise ElfError(f"damaged: {what_is_wrong(error)}") from None

    def address_of(self, offset: int) -> int | None:
        """Return the unrelocated address of a byte of the file; None: it is not loaded."""
        for kind, _, begins, address, _, stored, _, _ in self._segments():
            if kind == _LOAD and begins & ~_PAGE <= offset < begins + stored:
                return int(address - begins + offset)
        return None

    @property
    def interpreter(self) -> str:
        """The path of the loader; "" for a statically linked program."""
        for kind, _, offset, _, _, stored, _, _ in self._segments():
            if kind == _INTERP:
                return os.fsdecode(self._raw[offset : offset + min(stored, 4096)].rstrip(b"\0"))
        return ""

    def needed(self) -> Iterator[str]:
        """Yield the names of the needed libraries."""
        segments = list(self._segments())
        dynamic = next((one for one in segments if one[0] == _DYNAMIC), None)
        if dynamic is None:
            return
        raw = self._raw[dynamic[2] : dynamic[2] + min(dynamic[5], 1 << 16)]
        pairs = list(struct.iter_unpack("<QQ", raw[: len(raw) // 16 * 16]))
        texts = next((value for tag, value in pairs if tag == _STRTAB), None)
        for kind, _, offset, address, _, stored, _, _ in segments:
            if texts and kind == _LOAD and address <= texts < address + stored:
                for tag, value in pairs:
                    if tag == _NEEDED:
                        yield self._text(offset + texts - address + value)
                return

    def _text(self, at: int) -> str:
        end = self._raw.find(b"\0", at)
        if end < 0:
            raise ValueError("a name without end")
        return self._raw[at:end].decode("utf-8", "replace")

    def _bytes(self, section: Section) -> bytes:
        found = self._raw[section.offset : section.offset + section.bytes]
        if len(found) != section.bytes:
            raise ElfError(f"damaged: section {section.name} ends after the file")
        return found

    def has(self, name: str) -> bool:
        """Return whether there is a section of that name with contents."""
        return any(one.name == name and one.type != _NOBITS for one in self._sections)

    @property
    def build_id(self) -> str:
        """The build id in hexadecimal, or ""."""
        for section in self._sections:
            if section.type == _NOTE and section.name == ".note.gnu.build-id":
                note = self._bytes(section)
                name_bytes, id_bytes, kind = struct.unpack_from("<III", note)
                start = 12 + (name_bytes + 3) // 4 * 4
                if kind == _NOTE_BUILD_ID:
                    return note[start : start + id_bytes].hex()
        return ""

    def exports(self, names: Collection[str]) -> dict[str, int]:
        """Return the unrelocated addresses of exported functions of these names."""
        found = {}
        for section in self._sections:
            if section.type != _DYNSYM:
                continue
            raw, texts = self._bytes(section), self._bytes(self._sections[section.link])
            for row in struct.iter_unpack(
                "<IBBHQQ", raw[: len(raw) // _SYMBOL_BYTES * _SYMBOL_BYTES]
            ):
                at, info, _, place, value, _ = row
                if info & 15 in _FUNCTIONS and place:
                    name = texts[at : texts.find(b"\0", at)].decode("utf-8", "replace")
                    if name in names:
                        found[name] = value
        return found

    def functions(self) -> Functions:
        """Return the functions of the full symbol table, or else of the dynamic one."""
        import numpy as np  # noqa: PLC0415  slow to load

        for kind in (_SYMTAB, _DYNSYM):
            for section in self._sections:
                if section.type == kind and section.bytes >= _SYMBOL_BYTES:
                    return self._functions_of(section, kind == _SYMTAB)
        empty = np.zeros(0, np.uint64)
        return Functions(empty, empty, (), False)

    def _functions_of(self, section: Section, complete: bool) -> Functions:
        import numpy as np  # noqa: PLC0415  slow to load

        raw = self._bytes(section)
        rows = np.frombuffer(raw, np.dtype(_SYMBOL), len(raw) // _SYMBOL_BYTES)
        wanted = np.isin(rows["info"] & 15, _FUNCTIONS) & (rows["size"] > 0) & (rows["section"] > 0)
        rows = rows[wanted]
        try:
            texts = self._bytes(self._sections[section.link])
            names = [
                texts[at : texts.index(b"\0", at)].decode("utf-8", "replace")
                for at in rows["name"].tolist()
            ]
        except READING_ERRORS as error:
            raise ElfError(f"damaged: names of {section.name}: {what_is_wrong(error)}") from None
        public = np.array([not name.startswith("_") for name in names], bool)
        length = np.array([len(name) for name in names], np.int64)
        order = np.lexsort((-length, public, rows["value"]))
        rows, sorted_names = rows[order], tuple(names[i] for i in order.tolist())
        return Functions(rows["value"], rows["value"] + rows["size"], sorted_names, complete)
