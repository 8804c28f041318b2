# SPDX-License-Identifier: Apache-2.0
"""Each document stands in the table of contents of the site, and what it computes by hand is so."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import spanwise as sw

ROOT = Path(__file__).resolve().parents[2]


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_site", ROOT / "scripts/docs_site.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["docs_site"] = module
    spec.loader.exec_module(module)
    return module


SITE = _script()


def test_the_table_of_contents_is_whole() -> None:
    assert list(SITE.wrong_entries(ROOT)) == []
    assert SITE.entries(ROOT / "docs/index.md")[0] == "README"


def test_pages_that_are_missing_are_told(tmp_path: Path) -> None:
    (tmp_path / "docs/design").mkdir(parents=True)
    for name in ("docs/design/a.md", "docs/lost.md", "README.md"):
        (tmp_path / name).write_text("# page\n")
    toc = "```{toctree}\n:glob:\n\ndesign/*\n../README\nreference/*\ngone\n```\n"
    (tmp_path / "docs/index.md").write_text(toc)
    assert list(SITE.wrong_entries(tmp_path)) == [
        "docs/index.md: docs/gone: names no page",
        "docs/lost: is in no table of contents of docs/index.md",
    ]


def test_the_ledger_by_hand_is_the_heaps() -> None:
    """The table of docs/how-to/read-a-ledger.md beside a heap that does what it says."""
    text = (ROOT / "docs/how-to/read-a-ledger.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([a-z-]+) \| ([\d,]+) \|", text, re.MULTILINE)
    told = {name: int(count.replace(",", "")) for name, count in rows}
    with sw.Heap("go") as heap:
        blocks = [heap.alloc(33) for _ in range(100)]
        ledger = heap.ledger()
        assert len(blocks) == 100
    assert told == {
        "requested": ledger.requested_bytes,
        "round-up": ledger.roundup_bytes,
        "cached": ledger.cached_bytes,
        "tail": ledger.tail_bytes,
    }
    assert sum(told.values()) == 8192


def test_the_reference_has_every_public_name() -> None:
    text = SITE.python_reference()
    for name in ("record", "Recording", "SizeClassTable", "optimize", "convert"):
        assert f"\n## {name}\n" in text
    assert "\n### Recording.ledger\n" in text
    headers = SITE.header_reference(ROOT)
    assert all(f"## {one.name}\n" in headers for one in (ROOT / "include/spanwise").glob("*.h"))
