# SPDX-License-Identifier: Apache-2.0
"""The ablations: for each, ours, what stands in its place, and the rows that show it."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner import children
from runner.errors import BenchError

PAGES = (4096, 8192, 16384, 65536)  # bytes
CUTOFFS = (0, 64, 80, 128, 512, 1024)  # bytes
STOCK_CUTOFF, STOCK_PAGE = 512, 8192


@dataclass(frozen=True)
class Variant:
    """One way of doing it.

    Attributes:
        name: in the output.
        patch: of the library's source, a name of patches.PATCHES; "": the source as it is.
        cutoff: largest size with a specialised path, bytes; None: the checked-in paths.
        options: of bench_ablation when it runs.
    """

    name: str
    patch: str = ""
    cutoff: int | None = None
    options: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ablation:
    """A question.

    Attributes:
        name: for --only.
        what: in a few words.
        variants: the first is ours, with which the others are compared.
        rows: of bench/studies/ablations/ablation.c.
    """

    name: str
    what: str
    variants: tuple[Variant, ...]
    rows: tuple[str, ...]


def _patch(name: str, what: str, plain: str, patch: str, rows: tuple[str, ...]) -> Ablation:
    return Ablation(name, what, (Variant("ours"), Variant(plain, patch=patch)), rows)


def _cutoffs() -> tuple[Variant, ...]:
    others = [Variant(f"cut-off {n}", cutoff=n) for n in CUTOFFS if n != STOCK_CUTOFF]
    return (Variant(f"cut-off {STOCK_CUTOFF}"), *others)


def table_option(root: Path, page_bytes: int, short: bool = True) -> str:
    """c16's procedure for a page size, as bench_ablation's --table takes it.

    Args:
        root: of the checkout.
        page_bytes: the page.
        short: spans as short as the procedure allows; False: as long as c16's become.

    Raises:
        BenchError: the generator failed.
    """
    words = [sys.executable, str(root / "scripts/sizeclasses.py"), "--table", "c16"]
    words += ["--page-bytes", str(page_bytes), "--format", "file"]
    words += ["--span-slots", "1"] if short else ["--growing", "no"]
    done = children.run(words)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"page size {page_bytes}: {last}")
    classes = json.loads(done.stdout)["classes"]
    return f"{page_bytes}:" + ",".join(f"{row['size']}*{row['pages']}" for row in classes)


def _pages(root: Path) -> tuple[Variant, ...]:
    """Ours first; all by the generic path, so that only the spans differ."""
    ours = Variant("long spans", options=("--table", table_option(root, STOCK_PAGE, short=False)))
    return (
        ours,
        *(
            Variant(f"{n >> 10} KiB pages", options=("--table", table_option(root, n)))
            for n in PAGES
        ),
    )


def plan(root: Path) -> list[Ablation]:
    """Every ablation, in the order of the output.

    Args:
        root: of the checkout.

    Raises:
        BenchError: a table could not be made.
    """
    go = ("--table", "go")
    return [
        Ablation(
            "special",
            "specialised paths against the generic one",
            (Variant("specialised"), Variant("generic", cutoff=0, options=("--copy",))),
            ("call/16", "call/64", "zcall/16", "zcall/64", "zcall/512", "call/8-1024"),
        ),
        Ablation(
            "cutoff",
            "largest size with a specialised path",
            _cutoffs(),
            ("call/8-1024", "zcall/8-1024", "zcall/64", "zcall/1024"),
        ),
        _patch(
            "division",
            "slot of an address: magic against hardware division",
            "divide",
            "divide",
            ("pair/16", "free/16", "replace/8-1024"),
        ),
        _patch(
            "scan-bits",
            "free slot: 64-bit window against bit by bit",
            "bit by bit",
            "scan",
            ("pair/16", "malloc/16", "keep/8-128"),
        ),
        _patch(
            "zeroing",
            "zeroing in line against a call of memset",
            "memset",
            "zero",
            ("zpair/16", "zpair/64", "zpair/512", "zcall/64"),
        ),
        _patch(
            "hints",
            "just-freed slots of full spans remembered or not",
            "no hints",
            "no-hints",
            ("pair/16", "replace/8-1024"),
        ),
        Ablation(
            "tiny",
            "objects below 16 B: a slot each, or packed (table go)",
            (Variant("own slots", options=go), Variant("packed", options=(*go, "--tiny"))),
            ("keep/1-15",),
        ),
        Ablation(
            "scan-split",
            "pointer-free spans apart, or every object as one with pointers",
            (Variant("split"), Variant("all scan", options=("--scan",))),
            ("call/16", "call/8-1024", "replace/8-1024"),
        ),
        Ablation(
            "page-size",
            "c16's spans, or short ones of pages of 4 to 64 KiB (generic path)",
            _pages(root),
            ("keep/8-128", "replace/8-1024"),
        ),
    ]


def select(ablations: Sequence[Ablation], names: str | None) -> list[Ablation]:
    """The ablations that a comma-separated list names; without a list all of them.

    Raises:
        BenchError: a name is unknown.
    """
    if names is None:
        return list(ablations)
    known = {each.name: each for each in ablations}
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in known:
            raise BenchError(f"--only '{name}' is no ablation; use {', '.join(known)}")
    return [known[name] for name in wanted]
