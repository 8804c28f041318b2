# SPDX-License-Identifier: Apache-2.0
"""Studies: each in its shortest form, that it runs. What they find is theirs; ./dev study is long.

Their own tests stand beside them in bench/studies; ./dev test runs those not marked by_hand.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import run_study
import spanwise as sw
from install_tools import quick_compiler
from runner import counts
from runner.stats import interval
from spanwise._lib import lib
from studies import ledger_speed, replace_floor, report_speed
from studies.ablations import patches
from studies.anatomy import parts
from studies.arenas import chunks
from studies.arenas.latency import verdict_of
from studies.arenas.surface import Cell, cell_of, verdict
from studies.catalogue import STUDIES
from studies.causes import look as causes_look
from studies.causes import page as causes_page
from studies.causes import plot as causes_plot
from studies.causes.page import SAID
from studies.causes.split import highest
from studies.resident import figures, look, outside, page, shares

from tests.bench.tools import BENCH, ROOT
from tests.python.helpers import needs_recorder


def study(*words: str | Path, compiler: Path | None = None) -> str:
    """What a study prints; it must end with 0."""
    done = subprocess.run(
        [sys.executable, BENCH / "run_study.py", *words],
        env={**os.environ, **({"CC": str(compiler)} if compiler else {})},
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bench_build(program: str) -> Path:
    """Where bench programs are: $SPANWISE_BENCH_BUILD, or as ./dev builds them; skips without."""
    build = Path(os.environ.get("SPANWISE_BENCH_BUILD", ROOT / "build/bench"))
    if not (build / program).is_file():
        pytest.skip(f"no {program} in {build}: ./dev test builds it")
    return build


# --- the front ------------------------------------------------------------------------------------


def test_every_study_is_listed_with_its_question() -> None:
    lines = study().splitlines()
    assert [line.split()[0] for line in lines] == list(STUDIES)
    assert [line.split(maxsplit=1)[1] for line in lines] == [s.question for s in STUDIES.values()]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run_study.main([name, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: ./dev study {name}")
    assert said.count(f"./dev study {name}") >= 2


@pytest.mark.parametrize("words", [["nothing"], ["--needs", "nothing"]])
def test_an_unknown_study(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_study.main(words) == 2
    said = "study: there is no study 'nothing'; ./dev study lists them\n"
    assert capsys.readouterr().err == said


# --- one smoke test a study; that of loop-check is in tests/install/test_wheel.py -----------------


def test_limits(tmp_path: Path) -> None:
    build, file = bench_build("bench_limits"), tmp_path / "limits.json"
    words = ("--quick", "--repetitions", "1", "--rows", "pair/16")
    study("limits", *words, "--build", build, "--json", file)
    rows = json.loads(file.read_text())["rows"]
    assert {"list", "transition", "inline"} <= {row["step"] for row in rows}
    assert all(row["ns"] > 0 for row in rows)


@pytest.mark.parametrize("name", patches.PATCHES)
def test_the_source_takes_a_patch_of_the_ablations(name: str, tmp_path: Path) -> None:
    patch = patches.PATCHES[name]
    folder = patches.patched(ROOT, tmp_path, name)
    texts = [file.read_text() for file in folder.rglob("*.h")]
    assert sum(text.count(patch.plain) for text in texts) == 1
    assert not any(patch.ours in text for text in texts)


def test_ablations(tmp_path: Path) -> None:
    words = ("--only", "tiny", "--quick", "--repetitions", "1", "--counter", "none")
    compiler = quick_compiler(tmp_path / "cc")
    said = study("ablations", *words, "--json", "--build", tmp_path, compiler=compiler)
    cells = json.loads(said)["cells"]
    assert [cell["variant"] for cell in cells] == ["own slots", "packed"] * 2
    assert all(cell["ns"] > 0 for cell in cells if cell["cache"] == "hot")


def test_check_grades(tmp_path: Path) -> None:
    if counts.find_valgrind() is None:
        pytest.skip("valgrind was not found (apt-get install valgrind)")
    words = ("--paths", "inline_scan", "--grades", "1", "2", "--json")
    figures = json.loads(study("check-grades", *words, compiler=quick_compiler(tmp_path / "cc")))
    shipping, local = figures["instructions"]["inline_scan"]
    assert shipping < local
    assert figures["code_bytes"][0] < figures["code_bytes"][1]


def test_anatomy() -> None:
    assert parts.missing(ROOT) == []  # the source has every function that the table of parts names
    build = bench_build("bench_anatomy")
    cases = json.loads(study("anatomy", "--repetitions", "0", "--json", "--build", build))["cases"]
    special = next(case for case in cases if case["case"] == "special")
    assert special["parts"]["free"] > 0
    assert special["parts"]["other"] < 0.1 * special["instructions"], special["other_functions"]


def test_seed_claim(tmp_path: Path) -> None:
    build = bench_build("bench_spanwise")
    words = ("--quick", "--repetitions", "1", "--rows", "seed/Alloc16", "--json")
    rows = json.loads(study("seed-claim", *words, "--build", build, "--results", tmp_path))
    assert {"inline", "generic"} <= {row["basis"] for row in rows}
    assert all(row["ns"][0] > 0 for row in rows)


def test_held_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = study("held-out", "--quick", "--only", "python, small objects", "--write", page)
    assert text == page.read_text(encoding="utf-8")
    assert text.count("| python, small objects |") == 5


def test_model_error(tmp_path: Path) -> None:
    recording, figures = tmp_path / "small.swt", tmp_path / "figures.json"
    ops = np.zeros(2000, dtype=sw.OPS_DTYPE)
    ops["object"] = np.arange(2000)
    ops["size"] = 200
    sw.Recording.from_ops(ops, recording)
    study("model-error", recording, "--repeat", "1", "-o", figures)
    assert json.loads(figures.read_text())


def test_resident(tmp_path: Path) -> None:
    """What is predicted of a run from its own recording is what it held, to the byte."""
    path = tmp_path / "page.md"
    text = study("resident", "--quick", "--only", "sqlite", "--repeat", "1", "-o", path)
    assert text == path.read_text(encoding="utf-8")
    assert text.count("| sqlite, 10,000 |") == 7
    assert re.search(r"whole process, peak RSS, plain malloc: median error \d", text)
    assert "of what they held: median error 0.0 %, worst 0.0 %" in text


def test_the_share_of_large_objects_that_is_written() -> None:
    """A buffer of 100 pages of which 25 are written: 25 %, and never less than what was seen.

    24.00 % are 24 pages and 24.01 % already 25, so 25 are predicted from there to 25.00 % alike.
    """
    ops = np.zeros(1, dtype=sw.OPS_DTYPE)
    ops["size"] = 100 * 4096
    recording = sw.Recording.from_ops(ops)
    whole, unwritten = recording.ledger("c16", "end").resident_bytes or 0, 75 * 4096
    assert shares.fitted(recording, 1, whole - unwritten) == 25
    assert shares.fitted(recording, 1, whole - unwritten + 3000) == 25.01
    assert shares.fitted(recording, 40, whole - unwritten) == 40
    assert shares.fitted(recording, 1, whole) == shares.fitted(recording, 1, 2 * whole) == 100


def test_the_moment_of_a_ledger() -> None:
    """By hand: 100; 130; one is freed; a thread ends; the other is resized; one more; an end."""
    rows = ((0, 0, 100), (0, 1, 30), (1, 1, 0), (3, 0, 0), (2, 0, 150), (0, 1, 50), (3, 0, 0))
    kinds = (lib.SW_OP_ALLOC, lib.SW_OP_FREE, lib.SW_OP_REALLOC, lib.SW_OP_THREAD_END)
    ops = np.zeros(len(rows), dtype=sw.OPS_DTYPE)
    for at, (kind, name, size) in enumerate(rows):
        ops["kind"][at], ops["object"][at], ops["size"][at] = kinds[kind], name, size
    assert look.live_bytes(ops).tolist() == [100, 130, 100, 100, 150, 200, 200]
    recording = sw.Recording.from_ops(ops)
    wanted = {1: "#1", 100: "#1", 101: "#2", 130: "#2", 131: "#5", 200: "#6", 999: "#6"}
    assert {bytes_: look.moment_of(recording, bytes_) for bytes_ in wanted} == wanted


def test_runs_that_differ_are_shown_as_an_interval() -> None:
    """By hand: medians 110 and 100; the least beside the highest is 99 / 110."""
    assert page.between([4096, 4096]) == "4.0 KiB"
    assert page.between([8192, 4096, 5000]) == "4.0 KiB .. 8.0 KiB"
    other = figures.OtherRuns([99, 110, 120], [100, 110, 96])
    assert page.other_row("a", other, differs=False)[3] == "+10.0 %"
    assert page.other_row("a", other, differs=True)[3] == "+10.0 % [-10.0, +25.0]"
    same = figures.SameRuns([90, 101], [100, 100])
    assert page.same_row("a", same)[3] == "-10.0 % [-10.0, +1.0]"
    assert page.same_row("a", figures.SameRuns([101, 202], [100, 200]))[3] == "+1.0 %"


def test_what_is_outside_of_the_heap() -> None:
    """Of four regions two lie in the 1 TiB that the heap has reserved."""
    smaps = ""
    for start, end, access, rss in (
        (0x400000, 0x500000, "r-xp", 300),
        (0x50000000000, 0x50000100000, "rw-p", 1000),
        (0x50000100000, 0x60000000000, "---p", 0),
        (0x7F0000000000, 0x7F0000100000, "rw-p", 40),
    ):
        smaps += f"{start:x}-{end:x} {access} 00000000 00:00 0 \nSize: 1 kB\nRss: {rss:9d} kB\n"
        smaps += f"Pss: {rss} kB\nVmFlags: rd wr\n"
    assert outside.split_resident(smaps) == (1340 * 1024, 340 * 1024)
    assert outside.split_resident("") == (0, 0)
    assert outside.outside_at_most(["sleep", "0.3"], {}) > 100 << 10


def test_ledger_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its operations are a history that could have happened, whatever blocks they come in."""
    monkeypatch.setattr(ledger_speed, "BLOCK", 900)
    monkeypatch.setattr(ledger_speed, "OBJECTS", 50)
    live: set[int] = set()
    for op in np.concatenate(list(ledger_speed.random_blocks(4000))):
        assert (op["kind"] == 1) == (int(op["object"]) in live)
        live ^= {int(op["object"])}
    text = study("ledger-speed", "--ops", "5000", "--rounds", "1", "--only", "random")
    assert text.startswith("5,000 random operations")
    assert text.count("M events/s") == text.count("x one ledger") == 2


@needs_recorder()
def test_report_speed() -> None:
    """The objects live to the end, each with its second size; three lines with what they need."""
    ops = report_speed.live_objects(50)
    assert sw.Recording.from_ops(ops).ledger(at="end").live_objects == 50
    assert sw.Recording.from_ops(ops).ledger(at="end").requested_bytes == ops["size"][50:].sum()
    text = study("report-speed", "--ops", "1", "--objects", "500", "--rounds", "1")
    for what, asked in report_speed.LIMITS.items():
        (line,) = re.findall(rf"  {what} +[\d.]+ s \(asked for: (\d+) s\);.*\n", text)
        assert float(line) == asked
    with pytest.raises(RuntimeError, match=r"(?s)heap map: .*no.swt"):
        report_speed.measure("heap map", Path("no.swt"), Path(), 1)
    measured = re.search(r"  first picture ([\d.]+) s .* drawn ([\d.]+) s; the page has", text)
    if measured:
        assert 0 < float(measured[1]) <= float(measured[2])
    else:  # there is no browser, or it ended before it told
        assert "  first picture not measured: " in text


def test_a_browser_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(report_speed, "BROWSERS", ("no-such-browser",))
    told = report_speed.line_of_pictures(tmp_path / "out.html", tmp_path, 1)
    assert told == "  first picture not measured: there is no chromium on this machine"


def test_causes(tmp_path: Path) -> None:
    page, picture = tmp_path / "page.md", tmp_path / "picture.png"
    text = study("causes", "--quick", "-o", page, "--plot", picture)
    assert text == page.read_text(encoding="utf-8")
    assert "](picture.png)" in text
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert text.count("\n| mawk |") == 2


def test_a_program_whose_causes_are_not_known() -> None:
    """More of its heap is predicted than it has: it is in no mean and in no row of causes."""
    peers: dict[str, int | None] = dict.fromkeys(causes_look.PEERS, 50 * 1024)
    causes = dict.fromkeys(SAID, 1024.0)
    seen = [
        causes_look.Seen("plain", causes, 100.0, 1024 * len(SAID), peers),
        causes_look.Seen("sparse", {**causes, "requested": 200 * 1024.0}, 1.0, 100 * 1024, peers),
    ]
    assert [one.is_told for one in seen] == [True, False]
    text = causes_page.make(seen, {}, "a command", None)
    assert "In the mean of 1 programs" in text
    heap = 200 + len(SAID) - 2
    assert f"Of sparse causes are not known: {heap} KiB of its heap are predicted, and" in text
    assert "| plain | 1 | 1 |" in text and text.count("\n| sparse |") == 1
    assert "| sparse | 100 | 50 | 50 | 50 | 50 | - | - |" in text


def test_causes_have_looks_of_their_own() -> None:
    """Each cause has a colour and a hatch that no other has, of seven colours at most."""
    looks = causes_plot._LOOKS
    assert set(looks) == set(SAID) and len(set(looks.values())) == len(looks)
    assert len({colour for colour, _ in looks.values()}) <= 7


def test_causes_of_a_hand_made_heap(tmp_path: Path) -> None:
    """1,000 objects of 1 KiB, of which each second is freed; then 20,000 small ones."""
    ops = np.zeros(21_500, dtype=sw.OPS_DTYPE)
    ops["object"] = [*range(1000), *range(0, 1000, 2), *range(1000, 21_000)]
    ops["size"][:1000], ops["size"][1500:] = 1024, 64
    ops["kind"][1000:1500] = 1
    ops["time_ns"] = np.arange(21_500)
    file = tmp_path / "holes.swt"
    sw.Recording.from_ops(ops, file)
    causes = highest(str(file), sw.HeapOptions())
    most = 500 * 1024 + 20_000 * 64
    assert most - 65_536 < causes["requested"] <= most  # the last span was populated before
    kept = causes["partial, old"] + causes["idle classes"]
    assert 500 * 1024 <= kept < 500 * 1024 + 65_536
    assert causes["partial, old"] > 400 * 1024
    assert causes["partial, young"] == causes["partial, middle"] == causes["kept large"] == 0


def test_record_cost() -> None:
    said = study("record-cost", "--quick")
    assert "spanwise record" in said and "recorder alone" in said


def test_replace_floor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With a twentieth of the row's objects."""
    monkeypatch.setattr(replace_floor, "LIVE", 5000)
    assert run_study.main(["replace-floor"]) == 0
    said = re.fullmatch(
        r"c16: slots (.+), touched pages (.+), whole spans (.+)\n", capsys.readouterr().out
    )
    assert said is not None
    slots, pages, spans = map(float, said.groups())
    assert 1.0 < slots <= pages <= spans


def test_places() -> None:
    build = bench_build("bench_same_place")
    assert study("places", "--build", build, "--moves", "2").count("\ncalled ") == 6


def test_tables_save(tmp_path: Path) -> None:
    """Nothing is built: what is told of the measured runs is that c16 stays."""
    drawn = tmp_path / "saved.png"
    page = study("tables-save", "--quick", "--folder", tmp_path, "--plot", drawn)
    assert "![What tables save, by program](" in page and drawn.stat().st_size > 10_000
    assert "# What tables save" in page and "Do size classes matter?" in page
    assert re.search(r"^\| mawk \| .* \|$", page, re.M)
    runs = sw.Field.open(tmp_path / "field.jsonl")
    assert len(runs) == 4 and not runs.failures


def test_policies(tmp_path: Path) -> None:
    """Three policies on one program, each once, one of them twice; no default is judged by it."""
    drawn = tmp_path / "policies.png"
    page = study("policies", "--quick", "--folder", tmp_path, "--plot", drawn)
    assert "![What each policy saves](" in page and drawn.stat().st_size > 10_000
    assert "\nNo default is judged by one program.\n" in page
    assert page.count("\n| mawk |") == 5
    assert (
        len(re.findall(r"^\| (lasting span|up to 4 kept, by use|all together) \|", page, re.M)) == 4
    )
    for kept, count in (("field", 4), ("duel", 2)):
        runs = sw.Field.open(tmp_path / f"{kept}.jsonl")
        assert len(runs) == count and not runs.failures


def test_fragmentation_is_told_for_each_combination(tmp_path: Path) -> None:
    lines = study("fragmentation", "--count", "30", "--plot", tmp_path / "a.png").splitlines()
    assert lines[0].split() == [
        "sizes",
        "lifetimes",
        "first",
        "best",
        "next",
        "worst",
        "buddy",
        "bound",
    ]
    assert len(lines) == 1 + 4 * 4 + 1
    assert lines[-1].endswith("none")
    assert (tmp_path / "a.png").stat().st_size > 10_000


def collector_page(name: str, folder: Path) -> str:
    """The page of a quick run, which must have its picture."""
    build, page, picture = bench_build("bench_collectors"), folder / "a.md", folder / "a.png"
    printed = study(name, "--quick", "--build", build, "-o", page, "--plot", picture)
    text = page.read_text(encoding="utf-8")
    assert printed == text and f"./dev study {name} --quick --build" in text
    assert "](a.png)" in text and picture.stat().st_size > 5000
    return text


def test_headroom_of_the_collector(tmp_path: Path) -> None:
    text = collector_page("gc-headroom", tmp_path)
    rows = re.findall(r"^\| (\d+)((?: \| [\d.e+]+){7}) \|$", text, re.MULTILINE)
    assert [percent for percent, _ in rows] == ["25", "50", "100", "200", "400"]
    peaks = [float(cells.split(" | ")[3]) for _, cells in rows]
    assert all(0 < peak < 100 for peak in peaks)


def test_growth_of_collections(tmp_path: Path) -> None:
    text = collector_page("gc-growth", tmp_path)
    assert re.search(r"^\| 1,000( \| [\d.]+){5} \|$", text, re.MULTILINE)
    assert re.search(r"^\| 2,000( \| [\d.]+){5} \|$", text, re.MULTILINE)


def test_ablation_of_marking(tmp_path: Path) -> None:
    text = collector_page("gc-ablation", tmp_path)
    names = re.findall(
        r"^\| ([a-zA-Z0-9, ]+?)(?: \| [\d.e-]+ \([\d.]+ \[[\d.]+, [\d.]+\]\)){3} \|$",
        text,
        re.MULTILINE,
    )
    assert names[:3] == ["ours", "prefetch distance 1", "span by span"]
    assert names[3:] == [
        *(f"pages of {kib} KiB" for kib in (4, 16, 32, 64)),
        *("huge pages", "huge pages, span by span"),
    ]
    ours = r"^\| ours( \| [\d.e-]+ \(1\.00 \[1\.00, 1\.00\]\)){3} \|$"
    assert re.search(ours, text, re.MULTILINE) is not None


def test_the_rule_of_arenas_by_hand() -> None:
    """16 B for 1 µs: within and won; 256 B: outside and won; 128 B for 1 ms: outside and lost."""

    def cell(size: int, life_ns: float, arena_ns: float) -> Cell:
        lines = [["heap", "10", str(life_ns)], ["arena", str(arena_ns), "1"]]
        lines += [["pool", "50", "1"], ["arena_pool", "60", "1"]]
        return cell_of(size, 1, 1, [lines, lines])

    cells = [cell(16, 1e3, 5), cell(256, 1e3, 5), cell(128, 1e6, 20), cell(128, 9e5, 10.4)]
    assert [one.is_in_rule for one in cells] == [True, False, False, True]
    assert [one.has_arena_won for one in cells] == [True, True, False, None]
    assert [one.cheapest for one in cells] == ["arena", "arena", "heap", "heap"]
    said = verdict(cells)
    assert "at 1 of 2 points, more at 0, and is level at 1; elsewhere" in said
    assert "less at 1 of 2, more at 1, and is level at 0" in said
    assert said.endswith("hardly supports the rule: 2 points for it, 1 against it.")


def test_the_drag_of_messages_by_hand() -> None:
    """Two of 100 B, chunks of 200 B: from 0 to 3 for 1 + 2 units of 100 B that live."""
    sizes, births = np.array([100, 100]), np.array([0, 1])
    found = chunks.drags(chunks.Messages(sizes, births, np.array([1.0, 3.0])), [100, 200])
    assert found.arenas == {100: 1.0, 200: 2.0}
    assert found.block == 2.0
    assert found.heap > 100  # a heap of two objects holds its metadata and a span


@pytest.mark.parametrize("name", ["arena-matrix", "arena-chunks"])
def test_studies_of_arenas(name: str, tmp_path: Path) -> None:
    build, text, picture = bench_build("bench_study_arenas"), tmp_path / "a.md", tmp_path / "a.png"
    said = study(name, "--quick", "--build", build, "-o", text, "--plot", picture)
    assert said == text.read_text(encoding="utf-8")
    assert picture.stat().st_size > 10_000


def test_arena_latency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Go: ours alone, each strategy with its four percentiles."""
    monkeypatch.setenv("PATH", str(tmp_path))
    said = study("arena-latency", "--quick", "-o", tmp_path / "a.md")
    text = (tmp_path / "a.md").read_text(encoding="utf-8")
    assert said.startswith("there is no Go toolchain: no lines of Go\n2 runs of 7 servers: about")
    assert said.endswith(text)
    assert re.search(r"^\| batch \|( [\d.]+ \[[\d.]+, [\d.]+\] \|){4}$", text, re.MULTILINE)
    said = study("arena-latency", "--quick", "--only", "slab")
    assert "2 runs of 1 servers" in said
    assert "| slab |" in said
    assert "| batch |" not in said


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ((0.2, 0.3, 0.4), "0.30 [0.20, 0.40], asked 0.5: met with its whole interval"),
        ((0.2, 0.3, 0.6), "0.30 [0.20, 0.60], asked 0.5: met by the median"),
        ((0.2, 0.6, 0.7), "0.60 [0.20, 0.70], asked 0.5: missed by the median"),
        ((0.6, 0.7, 0.8), "0.70 [0.60, 0.80], asked 0.5: missed"),
    ],
)
def test_what_is_asked_of_latencies_by_hand(values: tuple[float, ...], told: str) -> None:
    assert verdict_of(99.0, interval(values)) == f"P99: {told}"
