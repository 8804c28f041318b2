# SPDX-License-Identifier: Apache-2.0
"""Plain alternatives that the library's source does not have; a copy of the source gets them.

The library carries no switch for this study. Each patch replaces one text of ours, which must stand
in exactly one place of include/ and src/; where it does not, an error names the text.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from runner.errors import BenchError

_FOLDERS = ("include", "src")


@dataclass(frozen=True)
class Patch:
    """One replacement.

    Attributes:
        ours: as the source has it.
        plain: what stands in its place.
    """

    ours: str
    plain: str


PATCHES = {
    # Plain: a free divides the offset by the slot's size; ours multiplies by `magic`. The size is
    # taken from the cache, so all heaps of the process must have one table.
    "divide": Patch(
        """\
    sw_product product = (sw_product)(p - span->base) * span->magic;
    *slot = (uint64_t)(product >> 64);
    if (SW_FAST_CHECKED && __builtin_expect((uint64_t)product >= span->magic, 0)) return NULL;
""",
        """\
    uint32_t offset = (uint32_t)(p - span->base); /* spans are below 4 GiB */
    uint32_t bytes = cache->bins[span->span_class].bytes;
    if (__builtin_expect(bytes == 0, 0)) return NULL;
    *slot = offset / bytes;
    if (__builtin_expect(offset % bytes != 0, 0)) return NULL;
""",
    ),
    # Plain: an allocation tries bit after bit; ours counts the trailing zeros of 64 bits.
    "scan": Patch(
        "#define SW_FAST_LOWEST(bits) ((unsigned)__builtin_ctzll(bits))\n",
        """\
#define SW_FAST_LOWEST(bits) sw_fast_lowest_by_bit(bits)
SW_FAST_INLINE unsigned sw_fast_lowest_by_bit(uint64_t bits) {
    unsigned i = 0;
    for (; (bits & 1) == 0; i++) {
        bits >>= 1;
        __asm__ volatile("" : "+r"(bits)); /* or compilers count the zeros after all */
    }
    return i;
}
""",
    ),
    # Plain: objects of a constant size are cleared by a call; ours clears small ones in line.
    "zero": Patch("#define SW_FAST_CLEAR_MAX 80\n", "#define SW_FAST_CLEAR_MAX 0\n"),
    # Plain: caches have no hints, the recently freed slots of full spans.
    "no-hints": Patch("return hinted ? SW_HINTS_MAX", "return hinted && false ? SW_HINTS_MAX"),
}


def patched(root: Path, folder: Path, name: str) -> Path:
    """A copy of the library's source with one patch.

    Args:
        root: of the checkout.
        folder: where the copy goes: folder/include and folder/src.
        name: of PATCHES.

    Returns:
        The folder.

    Raises:
        BenchError: the source does not have the text of ours exactly once.
    """
    patch = PATCHES[name]
    for part in _FOLDERS:
        shutil.copytree(root / part, folder / part)
    files = [file for part in _FOLDERS for file in (folder / part).rglob("*.[ch]")]
    texts = {file: file.read_text(encoding="utf-8") for file in files}
    count = sum(text.count(patch.ours) for text in texts.values())
    if count != 1:
        raise BenchError(
            f"patch '{name}': {count} places of include/ and src/ have {patch.ours.strip()!r}, "
            "not one; mend bench/studies/ablations/patches.py"
        )
    for file, text in texts.items():
        if patch.ours in text:
            file.write_text(text.replace(patch.ours, patch.plain), encoding="utf-8")
    return folder
