# SPDX-License-Identifier: Apache-2.0
"""Pages with named call sites."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise.report import facts as facts_of
from spanwise.report.page import page_of

from tests.python.helpers import make_ops


def write_named(page: Path, sizes: tuple[int, ...], names: tuple[tuple[str, ...], ...]) -> None:
    """Write the page of one object for each call site, with these names of its frames."""
    ops = make_ops(*((0, i, size) for i, size in enumerate(sizes)))
    ops["site"] = np.arange(len(sizes)) + 1
    facts = facts_of.gather(sw.Recording.from_ops(ops), sw.SizeClassTable.go(), progress=None)

    def named(live: sw.LiveSites) -> sw.LiveSites:
        sites = (replace(s, names=names[s.id - 1], frames=("0x1", "0x2")) for s in live.sites)
        return replace(live, sites=tuple(sites))

    allocated = tuple(replace(one, names=names[one.id - 1]) for one in facts.allocated)
    facts = replace(facts, sites=named(facts.sites), allocated=allocated)
    page.write_text(page_of(facts), encoding="utf-8")


@pytest.fixture(scope="module")
def named_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of three sites of 6, 4 and 10 bytes of round-up; two of them go through middle."""
    page = tmp_path_factory.mktemp("named") / "x.html"
    names = (
        ("leaf (a.c:1)", "middle (a.c:20)", "main (a.c:90)", "_start in a"),
        ("leaf (a.c:1)", "main (a.c:91)", "_start in a"),
        ("<other> in libz.so.1", "middle (a.c:20)", "main (a.c:90)", "_start in a"),
    )
    write_named(page, (2, 12, 54), names)  # in slots of 8, 16 and 64
    return page
