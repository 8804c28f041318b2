# SPDX-License-Identifier: Apache-2.0
"""The seed claim's tables, page and picture, from made-up figures; no time is asserted."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from runner.contenders import Contender, Field
from runner.errors import BenchError
from runner.runs import Job, Repetition, Result, Run

from studies import pages
from studies.seed_claim import claim, cli
from studies.seed_claim import plot as claim_plot
from studies.seed_claim.jobs import GO_LEAST, class_jobs

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench"
OURS = [
    Contender("spanwise", basis, Path("bench_spanwise"), basis, None, "0.1.0")
    for basis in ("inline", "exported", "special", "generic")
]
GO = [Contender(name, "go", Path(name), "go", None, "go1.26.8") for name in ("go", "go-special")]
ABOUT = {
    "date": "2026-11-20T20:00:00+00:00",
    "commit": "0123abcd",
    "machine": {"cpu": "a processor", "cpus": 2, "load": 0.25},
    "compiler": "cc 12",
}
# ns of each contender: the special ones take half.
NS = {"inline": 2.0, "exported": 2.0, "special": 2.0, "generic": 4.0, "go": 10.0, "go-special": 5.0}
PAGE = ROOT / "docs/measurements/2026-11-22-seed-claim.md"


def make_run(benches: dict[str, list[Contender]], count: int = 3) -> Run:
    """Repetitions with the times of NS, the n-th n times as slow."""
    jobs = [Job(bench, contender) for bench, who in benches.items() for contender in who]
    repetitions: list[Repetition] = [
        {job.key: Result({"op": NS[job.contender.label] * n * 1e-9}, 10) for job in jobs}
        for n in range(1, count + 1)
    ]
    return Run(jobs, repetitions)


def whole_run() -> Run:
    inline, exported, special, generic = OURS
    return make_run(
        {
            "seed/Alloc16": [inline, exported, generic, *GO],
            "kept/8": [inline, special, generic],
            "kept/16": [inline, special, generic, *GO],
            "kept/576": [inline, special, generic, *GO],
            "class_c16/8": [inline, special, generic],
            "class_c16/2048": [special, generic],
            "class_go/8": [special, generic],
        }
    )


def test_summary() -> None:
    table = claim.tables(whole_run())[0]
    assert table.header[1:] == ["8 .. 80 B", "8 .. 512 B", "above 512 B"]
    half = "0.50 [0.50, 0.50]"
    assert [row[1:] for row in table.rows] == [
        [half, half, "-"],
        [half, half, half],
        [half, half, "-"],
        [half, half, half],
        [half, half, half],
        [half, half, half],
    ]
    assert table.rows[-1][0] == "Go's own: allocate zeroed, keep: specialised"


def test_the_geometric_mean_is_formed_in_each_repetition() -> None:
    classes = {
        8: {"special": [1.0, 2.0, 8.0], "generic": [2.0, 2.0, 2.0]},
        16: {"special": [2.0, 4.0, 4.0], "generic": [1.0, 1.0, 1.0]},
    }
    found = claim.overall(classes, "special", "generic")
    assert found is not None
    assert (found.low, found.median, found.high) == pytest.approx((1.0, 2.0, 4.0))
    assert claim.overall(classes, "inline", "generic") is None
    classes[16]["special"] = [2.0, 4.0]
    assert claim.overall(classes, "special", "generic") is None


def test_the_four_cases_stand_beside_the_article() -> None:
    table = claim.tables(whole_run())[1]
    assert table.rows == [
        [
            "Alloc16",
            "7.24 -> 5.08: 0.70",
            "20.00 -> 10.00",
            "0.50 [0.50, 0.50]",
            "8.00 -> 4.00 -> 4.00",
            "0.50 [0.50, 0.50]",
            "0.50 [0.50, 0.50]",
        ]
    ]


def test_class_tables_with_and_without_go() -> None:
    tables = {table.title: table for table in claim.tables(whole_run())}
    kept = tables["spanwise, table c16: allocate zeroed, keep"]
    assert [row[0] for row in kept.rows] == ["8 B", "16 B", "576 B"]
    assert kept.header[3:] == ["specialised", "inline / generic", "specialised / generic"]
    assert [row[0] for row in tables["Go's own: allocate zeroed, keep"].rows] == ["16 B", "576 B"]
    pairs = tables["spanwise, table c16: allocate and free"]
    assert pairs.rows[1] == ["2048 B", "8.00", "-", "4.00", "-", "0.50 [0.50, 0.50]"]
    inline, _, special, generic = OURS
    alone = claim.tables(make_run({"kept/16": [inline, special, generic]}))
    assert [table.title for table in alone] == ["In short", kept.title]


def test_markdown() -> None:
    table = pages.Table("A table", ["what", "ns"], [["16 B", "2.00"]])
    assert table.as_markdown() == "### A table\n\n| what | ns |\n| --- | ---: |\n| 16 B | 2.00 |"


def test_the_page_of_the_project_takes_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(PAGE.read_text())
    before, _, rest = PAGE.read_text().partition(pages.BEGIN)
    claim.write_page(page, whole_run(), ABOUT)
    once = page.read_text()
    assert once.startswith(before + pages.BEGIN)
    assert once.endswith(pages.END + rest.partition(pages.END)[2])
    assert "2026-11-20, commit 0123abcd, a processor, 2 processors, cc 12, go1.26.8" in once
    assert "| 576 B |" in once
    assert "| 2048 B |" not in once
    claim.write_page(page, whole_run(), ABOUT)
    assert page.read_text() == once
    assert (ROOT / "docs/seed-claim.png").is_file()
    assert re.search(r"\]\(\.\./seed-claim\.png\)", before)


@pytest.mark.parametrize("text", ["", pages.BEGIN, f"{pages.END}\n{pages.BEGIN}\n\n{pages.END}\n"])
def test_a_page_without_markers(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(BenchError, match="once each, in this order"):
        pages.check_page(page)
    assert page.read_text() == text


def test_write_needs_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "no.md"
    assert cli.main(["--write", str(page)]) == 2
    assert capsys.readouterr().err == (
        f"seed-claim: {page}: No such file or directory; --write needs a page with markers\n"
    )


@pytest.mark.by_hand
def test_picture(tmp_path: Path) -> None:
    path = claim_plot.plot(whole_run(), "here", tmp_path / "claim.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    with pytest.raises(BenchError, match="none of the rows is a class"):
        claim_plot.plot(make_run({"seed/Alloc16": GO}), "here", tmp_path / "none.png")
    assert not (tmp_path / "none.png").exists()


def listing(tmp_path: Path, rows: str) -> Path:
    """A folder whose bench_spanwise lists rows."""
    program = tmp_path / "bench_spanwise"
    program.write_text(f"#!/bin/sh\ncat <<'ROWS'\n{rows}ROWS\n")
    program.chmod(0o755)
    return tmp_path


def test_jobs_of_classes(tmp_path: Path) -> None:
    rows = (
        "inline/seed/Alloc16/manual_time\ngeneric/seed/Alloc16/manual_time\n"
        "generic/class_go/16\nspecial/class_go/16\ngeneric/class_go/8\n"
        "special/kept/16/manual_time\ninline/kept/8/manual_time\nnobody/kept/8/manual_time\n"
    )
    jobs = class_jobs(listing(tmp_path, rows), Field([*OURS, *GO], {}))
    assert [(job.bench, job.contender.label) for job in jobs] == [
        ("seed/Alloc16", "inline"),
        ("seed/Alloc16", "generic"),
        ("seed/Alloc16", "go"),
        ("seed/Alloc16", "go-special"),
        ("kept/8", "inline"),
        ("kept/16", "special"),
        ("kept/16", "go"),
        ("kept/16", "go-special"),
        ("class_go/8", "generic"),
        ("class_go/16", "generic"),
        ("class_go/16", "special"),
    ]


def test_a_program_without_classes(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="lists no class; build it anew"):
        class_jobs(listing(tmp_path, ""), Field(OURS, {}))


def test_go_times_the_classes_that_have_an_inline_path() -> None:
    text = (BENCH / "peers/go/classes.go").read_text()
    sizes = re.findall(r"^\t(\d+): func", text, re.MULTILINE)
    assert sizes == re.findall(r"new\(\[(\d+)\]byte\)", text)
    header = (ROOT / "include/spanwise/gen/fast.h").read_text()
    listed = re.search(r"sw_fast_class_bytes\[\d+\] = \{([^}]*)\}", header)
    assert listed is not None
    ours = [int(size) for size in re.findall(r"\d+", listed[1])]
    assert [int(size) for size in sizes] == [n for n in ours if n >= GO_LEAST]
