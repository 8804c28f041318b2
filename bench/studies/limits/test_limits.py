# SPDX-License-Identifier: Apache-2.0
"""./dev study limits: the table, JSON and picture of prototypes, and a short run; no times."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from runner import counts
from runner.contenders import Contender, Field
from runner.errors import BenchError
from runner.runs import Result, Run
from scoreboard import prototypes as steps

from studies import pages
from studies.limits import cli as limits_cli
from studies.limits import lines as limits
from studies.limits import page as limits_page
from studies.limits import plot as limits_plot
from studies.limits.stored import stored_limits
from tests.bench.tools import BENCH, INLINE, MIMALLOC, SNMALLOC, make_run

LISTED = """\
list/pair/16
transition/pair/16
sized/pair/16
list/malloc/16x100k/manual_time
store/remote/64x10k/manual_time
called-list/pair/16
generic-list/pair/16
list/seed/Alloc16/manual_time
fresh/cold/16x1M/iterations:1/manual_time
"""
PRELOAD = Contender("spanwise", "preload", Path("bench_malloc"), "malloc", Path("face.so"))
GENERIC = Contender("spanwise", "generic", Path("bench_spanwise"), "generic")
TCMALLOC = Contender("tcmalloc", "preload", Path("bench_malloc"), "malloc", Path("tc.so"))
GO = Contender("go-special", "go", Path("go_special"), "go")


def prototype(step: str) -> Contender:
    return Contender(step, limits.PROTOTYPE, Path("bench_limits"), step)


def pair_run() -> Run:
    return make_run(
        {
            prototype("list"): [1.0, 2.0, 1.0],
            prototype("transition"): [4.0, 5.0, 4.5],
            prototype("sized"): [2.0, 2.5, 2.0],
            INLINE: [4.0, 4.0, 4.0],
            SNMALLOC: [2.0, 2.0, 2.0],
            MIMALLOC: [6.0, 6.0, 6.0],
        }
    )


def pair_lines() -> list[limits.Line]:
    return limits.lines_of(pair_run(), {})


def fake_program(folder: Path, text: str, status: int = 0) -> Path:
    path = folder / "bench_limits"
    path.write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}EOF\nexit {status}\n")
    path.chmod(0o755)
    return path


def test_jobs_are_what_the_program_lists(tmp_path: Path) -> None:
    program = fake_program(tmp_path, LISTED)
    benches = list(dict.fromkeys(bench for bench, _ in limits.listed(program)))
    assert benches == [
        *("pair/16", "malloc/16x100k", "remote/64x10k", "called pair/16", "seed/Alloc16"),
        "cold/16x1M",
    ]
    field = Field([INLINE, PRELOAD, GENERIC, SNMALLOC, TCMALLOC, GO], {})
    jobs = limits.jobs_of(program, field, benches)
    assert [(job.bench, job.contender.label) for job in jobs] == [
        *(("pair/16", who) for who in ("list", "transition", "sized", "inline")),
        ("pair/16", "snmalloc (linked)"),
        *(("malloc/16x100k", who) for who in ("list", "inline", "snmalloc (linked)")),
        ("remote/64x10k", "store"),
        *(("pair/16", who) for who in ("called-list", "generic-list", "preload", "generic")),
        ("pair/16", "tcmalloc"),
        *(("seed/Alloc16", who) for who in ("list", "inline", "go-special")),
        *(("cold/16x1M", who) for who in ("fresh", "preload", "tcmalloc")),
    ]


def test_missing_peers_are_those_of_the_rows() -> None:
    missing = {"snmalloc (linked)": "-D", "jemalloc": "apt-get", "go": "install", "go-special": "-"}
    assert list(limits.missing_of(missing, ["pair/16"])) == ["snmalloc (linked)"]
    assert list(limits.missing_of(missing, ["called pair/16"])) == ["jemalloc"]
    assert list(limits.missing_of(missing, ["seed/Alloc16"])) == ["go", "go-special"]
    assert list(limits.missing_of(missing, ["cold/16x1M"])) == ["jemalloc"]
    assert limits.missing_of(missing, ["remote/64x10k"]) == {}


def test_a_program_that_lists_nothing(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="bench_limits: No such file or directory; build with"):
        limits.listed(tmp_path / "bench_limits")
    with pytest.raises(BenchError, match="--benchmark_list_tests ended with 0; build with"):
        limits.listed(fake_program(tmp_path, ""))


def test_lines() -> None:
    counted = counts.Counts(14.0, 3.0, 2.0, 1.0, 0.0, mispredicted=0.25, missed=0.5)
    found = limits.lines_of(pair_run(), {("pair/16", "list"): counted})
    lines = {line.who: line for line in found}
    assert lines["list"].before == ""
    assert lines["list"].counted == counted
    assert re.search(r"^list .* 14\.0 +0\.25 +0\.50$", limits.tables(found), re.M)
    said = lines["list"].as_json()
    assert (said["instructions"], said["mispredicted"], said["missed"]) == (14.0, 0.25, 0.5)
    assert lines["list"].kind == "prototype"
    transition = lines["transition"]
    assert transition.before == "list"
    assert transition.more is not None
    assert transition.more.median == pytest.approx(3.0)
    assert transition.over_peer is not None
    assert transition.over_peer.median == pytest.approx(2.25)
    assert lines["sized"].before == "transition"
    assert (lines["inline"].kind, lines["inline"].more) == ("ours", None)
    assert (lines["snmalloc (linked)"].kind, lines["snmalloc (linked)"].over_peer) == ("peer", None)
    assert {line.peer for line in lines.values()} == {"snmalloc"}


def test_called_prototypes_have_a_row_and_peers_of_their_own() -> None:
    run = make_run(
        {
            prototype("list"): [1.0],
            SNMALLOC: [2.0],
            prototype("called-list"): [6.0],
            prototype("called-split"): [7.0],
            PRELOAD: [8.0],
            TCMALLOC: [4.0],
        }
    )
    counted = counts.Counts(85.6, 20.0, 10.0, 9.0, 2.0)
    found = limits.lines_of(run, {("called pair/16", "preload"): counted})
    lines = {line.who: line for line in found}
    assert (lines["list"].bench, lines["list"].peer) == ("pair/16", "snmalloc")
    assert {lines[who].bench for who in ("called-list", "preload")} == {"called pair/16"}
    called = lines["called-split"]
    assert (called.peer, called.before) == ("tcmalloc", "called-list")
    assert called.over_peer is not None
    assert called.over_peer.median == pytest.approx(1.75)
    assert lines["called-list"].before == ""
    assert lines["preload"].counted == counted


def test_table_and_json() -> None:
    lines = limits.lines_of(pair_run(), {})
    text = limits.tables(lines)
    assert re.search(r"^transition +prototype +4\.50 \[4\.00, 5\.00\] +\+3\.00 ", text, re.M)
    assert "over snmalloc" in text.splitlines()[0]
    assert text.endswith(f"  sized: {steps.STEPS['sized']}")
    row = json.loads(json.dumps(lines[1].as_json()))
    assert (row["step"], row["before"], row["peer"]) == ("transition", "list", "snmalloc")
    assert row["verdict"] == "slower"
    assert row["instructions"] is None


def test_without_peers_and_with_a_failure() -> None:
    run = make_run({prototype("list"): [1.0], INLINE: [4.0]})
    assert limits.lines_of(run, {})[0].peer == ""
    assert "over the best peer" in limits.tables(limits.lines_of(run, {}))
    run.repetitions[0][run.jobs[0].key] = Result({}, 0, "ended with status -6")
    text = limits.tables(limits.lines_of(run, {}))
    assert re.search(r"^list +prototype +failed", text, re.M)
    assert run.failures() == ["pair/16, list (prototype): ended with status -6 (1 of 1)"]


def test_every_step_is_explained_and_counted() -> None:
    source = (BENCH / "studies/limits/bench_limits.cc").read_text()
    registered = re.findall(r'^    register_(\w+)<.*>\("([\w-]+)"\);', source, re.M)
    assert {step for _, step in registered} == set(steps.STEPS)
    paths = (BENCH / "studies/limits/paths_limits.cc").read_text()
    named = re.findall(r'^    (\w+)\("([\w-]+)"', paths, re.M)
    counted = {(kind.lower(), step) for kind, step in named}
    uncounted = {"cross", "handed", "cold"}  # two threads; the kernel's work
    assert counted == {pair for pair in registered if pair[0] not in uncounted}


def height_of(picture: Path) -> int:
    """In pixels, of a PNG."""
    head = picture.read_bytes()[:24]
    assert head.startswith(b"\x89PNG")
    return int.from_bytes(head[20:], "big")


def test_what_the_overview_compares() -> None:
    without_peer = make_run({prototype("store"): [1.0], prototype("fetched"): [2.0]}, "remote/64")
    without_ours = make_run({prototype("list"): [1.0], SNMALLOC: [2.0]}, "seed/Alloc16")
    lines = [*pair_lines(), *limits.lines_of(without_peer, {}), *limits.lines_of(without_ours, {})]
    pair, seed = limits_plot.standings(lines)
    assert [line and line.who for line in (pair.ours, pair.whole, pair.peer)] == [
        *("inline", "transition", "snmalloc (linked)"),
    ]
    assert [line and line.who for line in (seed.ours, seed.whole, seed.peer)] == [
        *(None, None, "snmalloc (linked)"),
    ]
    assert set(limits_plot.WHOLE) < set(steps.STEPS)


@pytest.mark.by_hand
def test_pictures(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one = pair_lines()
    many = [replace(line, bench=f"row {n}") for n in range(40) for line in one]
    assert height_of(limits_plot.plot(one, tmp_path / "one.png", "here")) < 400
    assert height_of(limits_plot.plot(many, tmp_path / "many.png", "here")) <= 1400
    assert height_of(limits_plot.plot_steps(one, tmp_path / "steps.png", "here")) < 400


def test_drawn_from_a_file(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = pair_lines()
    file, pictures = tmp_path / "limits.json", [tmp_path / "a.png", tmp_path / "b.png"]
    file.write_text(json.dumps({"rows": [line.as_json() for line in lines]}))
    stored = stored_limits(file)
    assert [line.as_json() for line in stored.lines] == [line.as_json() for line in lines]
    words = ["--plot", str(pictures[0]), "--plot-steps", str(pictures[1])]
    assert limits_cli.main(["--from", str(file), *words]) == 0
    assert all(height_of(picture) > 100 for picture in pictures)


ABOUT = {
    "date": "2026-11-21T10:00:00",
    "commit": "0123abcd",
    "machine": {"cpu": "a processor", "cpus": 2, "load": 0.25},
    "compiler": "cc 12",
}


def test_tables_of_a_page() -> None:
    pair = counts.Counts(54.9, 20, 10, 8, 1, mispredicted=0.02)
    replace_counts = counts.Counts(141.4, 40, 20, 15, 2, mispredicted=0.48, missed=3.97)
    counted = {("pair/16", "transition"): pair, ("replace/8-1024", "hints"): replace_counts}
    hints = make_run({prototype("hints"): [30.0], PRELOAD: [29.0]}, "replace/8-1024")
    seed = make_run({prototype("list"): [1.0], GO: [8.0]}, "seed/Alloc16")
    runs = (hints, seed, pair_run())
    lines = [line for run in runs for line in limits.lines_of(run, counted)]
    made = {table.title: table for table in limits_page.tables(lines)}
    inline, _, _, several = limits_page.GROUPS
    assert list(made) == [
        *(f"{inline}: ns", f"{inline}: instructions of an operation and its loop"),
        *("Go's cases: ns", f"{several}: ns"),
        f"{several}: instructions of an operation and its loop",
    ]
    times = made[f"{inline}: ns"]
    assert times.header == ["step", "pair/16"]
    assert ["`transition`", "4.50 [4.00, 5.00]"] in times.rows
    assert [row[0] for row in times.rows][-3:] == [
        *("`inline (ours)`", "`snmalloc (linked)`", "`mimalloc (linked)`"),
    ]
    assert made["Go's cases: ns"].header == ["step", "Alloc16"]
    count_tables = [table for title, table in made.items() if "instructions" in title]
    assert [table.rows for table in count_tables] == [
        [["`transition`", "54.9"]],
        [["`hints`", "141.4", "0.48", "3.97"]],
    ]
    assert count_tables[1].header[2:] == ["mispredicted", "first-level misses"]


def test_written_into_the_page_of_the_project(tmp_path: Path) -> None:
    file, page = tmp_path / "limits.json", tmp_path / "limits.md"
    page.write_text((BENCH.parent / "docs/measurements/2026-11-21-limits.md").read_text())
    before, _, rest = page.read_text().partition(pages.BEGIN)
    counted = {("pair/16", "transition"): counts.Counts(54.9, 20, 10, 8, 1, mispredicted=0.02)}
    rows = [line.as_json() for line in limits.lines_of(pair_run(), counted)]
    file.write_text(json.dumps({**ABOUT, "repetitions": 3, "rows": rows}))
    assert limits_cli.main(["--from", str(file), "--write", str(page)]) == 0
    text = page.read_text()
    assert text.startswith(before + pages.BEGIN)
    assert text.endswith(pages.END + rest.partition(pages.END)[2])
    assert "2026-11-21, commit 0123abcd, a processor, 2 processors, cc 12, " in text
    assert "3 interleaved repetitions, medians, intervals that hold the median with 75%." in text
    assert "| `transition` | 4.50 [4.00, 5.00] |" in text
    assert "| `transition` | 54.9 |" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repetitions", "0"], "limits: --repetitions is 0; use 1 or more"),
        (["--plot", "a.svg"], "limits: --plot is 'a.svg'; use a name that ends in .png"),
        (["--plot-steps", "a"], "limits: --plot-steps is 'a'; use a name that ends in .png"),
        (
            ["--from", "a.json"],
            "limits: --from draws or writes: it needs --plot, --plot-steps or --write",
        ),
        (
            ["--write", "a.md", "--rows", "pair/*"],
            "limits: --write keeps whole runs: leave --rows and --quick out",
        ),
        (
            ["--write", "/no/page.md"],
            "limits: /no/page.md: No such file or directory; --write needs a page with markers",
        ),
        (["--json", "/"], "limits: --json is '/', a folder; name a file in it"),
    ],
)
def test_bad_options(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert limits_cli.main(words) == 2
    assert capsys.readouterr().err == said + "\n"


def test_rows_that_match_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fake_program(tmp_path, LISTED)
    assert limits_cli.main(["--build", str(tmp_path), "--rows", "bogus"]) == 2
    assert "limits: --rows 'bogus' matches no row; there are 6: " in capsys.readouterr().err


def test_an_interrupted_run_keeps_what_is_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = pair_run()
    run.interrupted = True
    missing = {"snmalloc (linked)": "-DSPANWISE_PEER_SNMALLOC_DIR=DIR", "jemalloc": "apt-get"}
    monkeypatch.setattr(limits_cli, "run_interleaved", lambda *_, **__: run)
    monkeypatch.setattr(limits_cli, "find_field", lambda *_, **__: Field([INLINE], missing))
    fake_program(tmp_path, LISTED)
    file = tmp_path / "limits.json"
    words = ["--json", str(file)]
    assert limits_cli.main(["--build", str(tmp_path), "--rows", "pair/16", *words]) == 130
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "not here: snmalloc (linked) (-DSPANWISE_PEER_SNMALLOC_DIR=DIR)",
        "interrupted: 3 of 10 repetitions, no instructions",
    ]
    written = json.loads(file.read_text())
    assert written["interrupted"] is True
    assert list(written["missing"]) == ["snmalloc (linked)"]


def bench_build() -> Path:
    """Where bench programs are: $SPANWISE_BENCH_BUILD, or as ./dev builds them; skips without."""
    build = Path(os.environ.get("SPANWISE_BENCH_BUILD", BENCH.parent / "build/bench"))
    if not (build / "bench_limits").is_file():
        pytest.skip(f"no bench programs in {build}: ./dev bench builds them")
    return build


@pytest.mark.by_hand
def test_the_prototypes_do_what_they_say() -> None:
    """They hand out each slot once, and find what they claim to find."""
    program = bench_build() / "bench_limits_check"
    if not program.is_file():
        pytest.skip(f"no {program}: ./dev study limits builds it")
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.by_hand
def test_quick_run(tmp_path: Path) -> None:
    """One short repetition of a row: prototypes, ours, whichever peers are linked."""
    file = tmp_path / "limits.json"
    done = subprocess.run(
        [
            *(sys.executable, str(BENCH / "run_study.py"), "limits", "--quick"),
            *("--repetitions", "1"),
            *("--rows", "pair/*", "--build", str(bench_build()), "--json", str(file)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "provisional" in done.stdout
    said = json.loads(file.read_text())
    assert said["machine"]["cpu"]
    assert said["compiler"]
    assert said["commit"]
    steps = [row["step"] for row in said["rows"] if row["kind"] == "prototype"]
    assert steps == [
        *("list", "record-word", "record-split", "lookup", "magic", "owner"),
        *("double", "transition", "hinted", "sized", "parked"),
    ]
    assert all(row["ns"] > 0 for row in said["rows"])


@pytest.mark.parametrize(
    ("rows", "shown"),
    [
        ("called pair/16", {"called-hinted", "generic-hinted", "generic", "glibc"}),
        ("seed/AllocWithPtr", {"list", "split", "inline"}),
        ("cold/16x1M", {"fresh", "fresh-split", "fresh-ahead", "fresh-huge", "preload", "glibc"}),
    ],
)
@pytest.mark.by_hand
def test_quick_run_beside_other_peers(rows: str, shown: set[str], tmp_path: Path) -> None:
    """Preloaded peers, and Go where there is a toolchain."""
    file = tmp_path / "limits.json"
    words = ("limits", "--quick", "--repetitions", "1", "--rows", rows)
    done = subprocess.run(
        [
            *(sys.executable, str(BENCH / "run_study.py"), *words),
            *("--build", str(bench_build()), "--json", str(file)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(file.read_text())["rows"]
    assert {row["bench"] for row in found} == {rows}
    assert shown <= {row["step"] for row in found}
    assert all(row["ns"] > 0 for row in found)


@pytest.mark.by_hand
def test_rows_of_called_prototypes_are_known() -> None:
    listed = limits.listed(bench_build() / "bench_limits")
    called = {row for row, step in listed if step.startswith(limits.CALLED_STEPS)}
    assert called == {limits.CALLED + bench for bench in limits.CALLED_BENCHES}
    assert {row for row, _ in listed if row.startswith(limits.CALLED)} == called


@pytest.mark.parametrize(
    ("path", "order"),
    [
        ("free", ("word", "lookup", "magic", "owner", "double", "transition")),
        ("free_random", ("called-split", "called-double", "called-transition", "called-hinted")),
        ("malloc", ("called-list", "called-transition", "called-hinted")),
        ("malloc", ("generic-list", "generic-transition", "generic-hinted")),
        ("replace", ("list-byte", "list-record", "list-bit", "list-checked", "stack")),
    ],
)
@pytest.mark.by_hand
def test_each_check_costs_instructions(path: str, order: tuple[str, ...]) -> None:
    """The compiler has removed none of what a step adds."""
    program = counts.Program(bench_build() / "bench_paths_limits")
    if counts.find_valgrind() is None or not program.file.is_file():
        pytest.skip("needs valgrind and bench_paths_limits")
    found = counts.count_all([(program, f"{step}/{path}") for step in order])
    instructions = [each.instructions for each in found]
    assert all(a + 1 < b for a, b in itertools.pairwise(instructions))
