# SPDX-License-Identifier: Apache-2.0
"""One allocation taken apart: the table of parts beside the source, real counts, error texts."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from runner.errors import BenchError

from studies.anatomy import cli as anatomy_cli
from studies.anatomy import parts as anatomy_parts
from studies.anatomy import profile as anatomy_profile
from studies.anatomy import report as anatomy_report
from studies.anatomy.parts import Frame
from studies.anatomy.report import Anatomy

ROOT = Path(__file__).resolve().parents[3]
BENCH = ROOT / "bench"
HERE = "bench/studies/anatomy"
ANATOMY_C = str(ROOT / HERE / "anatomy.c")
LAYERS = ("base", "os/linux", "ds", "size", "gen", "page", "span", "heap", "watch")
TOOLS = ("cc", "valgrind", "addr2line")
LACKING = [tool for tool in TOOLS if shutil.which(tool) is None]
needs_tools = pytest.mark.skipif(bool(LACKING), reason=f"without {', '.join(LACKING)}")


def line_of(file: Path, text: str) -> int:
    """The number of the first line that has the text."""
    return next(n for n, line in enumerate(file.read_text().splitlines(), 1) if text in line)


# --- the table beside the source ------------------------------------------------------------------


def test_the_source_has_every_name_of_the_table() -> None:
    assert anatomy_parts.missing(ROOT) == []


def test_a_renamed_function_and_a_changed_line_are_missed(tmp_path: Path) -> None:
    for folder in ("src", "include"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    (tmp_path / HERE).mkdir(parents=True)
    shutil.copy(ANATOMY_C, tmp_path / HERE)
    heap = tmp_path / "src/heap"
    for file in (*heap.glob("*.[ch]"), *tmp_path.glob("include/**/*.h")):
        text = file.read_text().replace("sw_template_pop", "sw_template_grab")
        file.write_text(text.replace("sw_fast_clear(p, bytes);", "clear(p, bytes);"))
    assert anatomy_parts.missing(tmp_path) == [
        "window: no function 'sw_template_pop'",
        "window: no line 'sw_template_pop' in a function 'sw_object_from_word'",
        "zeroing: no line 'sw_fast_clear' in a function 'sw_template_small'",
        "zeroing: no line 'sw_fast_clear' in a function 'sw_fast_take'",
    ]


def test_parts_have_names_and_colours_of_their_own() -> None:
    names = anatomy_parts.names()
    assert len(set(names)) == len(names)
    assert names[-2:] == [anatomy_parts.COLLECTOR, anatomy_parts.OTHER]
    looks = anatomy_parts.looks()
    assert len(set(looks.values())) == len(looks)  # also in grey
    assert len({colour for colour, _ in looks.values()}) <= 7


def frame(function: str) -> Frame:
    """A frame of our source whose line says nothing."""
    return Frame(function, ANATOMY_C, 1)


@pytest.mark.parametrize(
    ("functions", "part"),
    [
        (["run_value"], "loop"),
        (["run_value", "stack_it"], "the function itself"),
        (["run_cache", "sw_cache_alloc", "sw_size_class"], "class lookup"),
        (["run_cache", "sw_cache_alloc", "sw_template_take_hinted", "sw_word_local"], "hints"),
        (["sw_cache_alloc", "sw_alloc_slow", "sw_refill_alloc", "never_heard_of"], "refill"),
        (["run_cache", "sw_cache_free", "sw_word_free"], "free"),
        (["run_cache", "sw_cache_alloc", "never_heard_of"], "other"),
        (["never_heard_of", "sw_word_local"], "other"),
        ([], "other"),
    ],
)
def test_part_by_function(functions: list[str], part: str) -> None:
    assert anatomy_parts.part_of([frame(name) for name in functions]) == part


def test_part_by_line_and_of_the_c_library() -> None:
    template = ROOT / "src/heap/template.h"
    line = line_of(template, "sw_fast_clear(p, bytes)")
    stack = [frame("stack_it2"), Frame("sw_template_small", str(template), line)]
    assert anatomy_parts.part_of(stack) == "zeroing"
    assert anatomy_parts.part_of([*stack, Frame("__memset_avx2 (libc)")]) == "zeroing"
    assert anatomy_parts.part_of([stack[0], frame("sw_template_small")]) == "call and cache"


def test_a_source_that_is_gone() -> None:
    stack = [Frame("sw_template_small", "/nowhere/template.h", 3)]
    with pytest.raises(BenchError, match="built from other sources: build it anew"):
        anatomy_parts.part_of(stack)


# --- reading profiles -----------------------------------------------------------------------------

PROFILE = """positions: instr line
events: Ir
ob=/lib/libc.so.6
fl=memset.S
fn=memset'work'run_value'measured'main
0x50 1 30
ob=/b/program
fl=a.c
fn=measured'main
0x9 1 3
cfn=run_value'measured'main
calls=1 0x10 1
0xa 2 100
fn=run_value'measured'main
0x10 1 10
0x12 2 5
fi=a.h
0x10 1 10
cfn=work'run_value'measured'main
calls=1 0x20 1
0x11 1 25
cfn=work'run_value'measured'main
calls=3 0x20 1
0x13 1 75
fn=work'run_value'measured'main
0x20 7 70
cob=/lib/libc.so.6
cfn=memset'work'run_value'measured'main
calls=4 0x50 1
0x21 8 30
"""


def test_parse_profile() -> None:
    entries = anatomy_profile.parse_profile(PROFILE)
    entry = entries["run_value'measured'main"]
    assert entry.object == "/b/program"
    assert entry.own == {0x10: 20, 0x12: 5}
    work = "work'run_value'measured'main"
    assert entry.calls == [(0x11, work, 25), (0x13, work, 75)]
    assert entries["memset'work'run_value'measured'main"].object == "/lib/libc.so.6"


def test_profile_without_addresses() -> None:
    with pytest.raises(BenchError, match="needs --dump-instr=yes"):
        anatomy_profile.parse_profile("positions: line\n")


def test_parse_symbols() -> None:
    text = "0x20\nleaf\n/b/./x/../a.h:7 (discriminator 2)\nwork\n/b/a.c:9\n0x21\n??\n??:0\n"
    found = anatomy_profile.parse_symbols(text)
    assert found[0x20] == (Frame("work", "/b/a.c", 9), Frame("leaf", "/b/a.h", 7))
    assert found[0x21] == (Frame("??"),)


def test_stacks_share_what_is_called_from_two_places(monkeypatch: pytest.MonkeyPatch) -> None:
    def named(_program: Path, addresses: set[int]) -> dict[int, tuple[Frame, ...]]:
        return {at: (Frame("f", "a.c", at),) for at in addresses}

    monkeypatch.setattr(anatomy_profile, "symbolize", named)
    entries = anatomy_profile.parse_profile(PROFILE)
    found = anatomy_profile.stacks(entries, Path("/b/program"))
    by_lines = {tuple(f.line or f.function for f in stack): n for stack, n in found.items()}
    assert by_lines == {
        (0x10,): 20,
        (0x12,): 5,
        (0x11, 0x20): 17.5,
        (0x13, 0x20): 52.5,
        (0x11, 0x21, "memset (libc)"): 7.5,
        (0x13, 0x21, "memset (libc)"): 22.5,
    }


# --- what is printed ------------------------------------------------------------------------------


def make_anatomy(case: str = "special", ns: tuple[float, ...] = ()) -> Anatomy:
    stacks = {
        (frame("run_cache"),): 6.0,
        (frame("run_cache"), frame("sw_cache_alloc"), frame("sw_size_class")): 3.0,
        (frame("run_cache"), frame("sw_cache_alloc"), frame("grown")): 1.0,
    }
    return Anatomy(case, 1, 8, stacks, ns)


def test_by_part_and_json() -> None:
    found = make_anatomy(ns=(2.0, 1.0, 3.0))
    assert found.by_part()["class lookup"] == 3.0
    assert (found.instructions, found.other_share) == (10.0, 0.1)
    whole = found.as_json()
    assert whole["parts"]["other"] == 1.0
    assert whole["parts"][anatomy_parts.COLLECTOR] == 0.0
    assert whole["other_functions"] == {"grown": 1.0}
    assert whole["ns"] == {"median": 2.0, "low": 1.0, "high": 3.0}
    assert make_anatomy().as_json()["ns"] is None


def test_a_tenth_of_other_is_a_finding() -> None:
    assert anatomy_cli.complaints([make_anatomy()]) == [
        "stackIt2 specialised: 10% of the instructions belong to no part; name these functions in "
        "bench/studies/anatomy/parts.py: grown 1.0"
    ]


def test_folded() -> None:
    assert anatomy_report.folded([make_anatomy()], 100) == (
        "stackIt2 specialised;run_cache 600\n"
        "stackIt2 specialised;run_cache;sw_cache_alloc;grown 100\n"
        "stackIt2 specialised;run_cache;sw_cache_alloc;sw_size_class 300\n"
    )


def test_nanoseconds_of_the_flame_graph() -> None:
    """10 instructions an operation, and medians of 4 ns: 0.4 ns each."""
    one = make_anatomy()
    assert one.ns_an_instruction is None
    timed = make_anatomy(ns=(3.0, 4.0, 5.0))
    assert timed.ns_an_instruction == pytest.approx(0.4)
    assert anatomy_report._count_and_ns(20.0, ns=0.4) == "20\n8.0 ns"


def test_boxes_of_the_flame_graph() -> None:
    root = anatomy_report.tree(make_anatomy())
    run = root.above["run_cache"]
    assert (root.count, root.depth, run.pure) == (10.0, 5, False)
    assert [node.name for node in run.shown()] == ["[loop]", "sw_cache_alloc"]
    lookup = run.above["sw_cache_alloc"].above["sw_size_class"]
    assert lookup.pure
    assert lookup.shown() == []


# --- the whole, on a program of its own -----------------------------------------------------------


@pytest.fixture(scope="module")
def build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bench_anatomy, compiled here: half a minute less than all benches."""
    folder = tmp_path_factory.mktemp("anatomy")
    flags = ["-std=gnu11", "-O2", "-g", "-gdwarf-4", "-pthread"]
    flags += ["-DSW_CHECK=1", '-DBENCH_BUILD_TYPE="test"']
    # As cmake/SpanwiseTargets.cmake has it: the sources by their names from the project's root.
    places = [folder / str(number) for number in range(len(LAYERS) + 1)]
    flags += [f"-ffile-prefix-map={where}=." for where in (ROOT, *places)]
    includes = [f"-I{ROOT / name}" for name in ("include", "src", "bench/rows")]
    # A folder of objects for each layer: two layers may have files of one name.
    parts = [sorted(map(str, (ROOT / "src" / layer).glob("*.c"))) for layer in LAYERS]
    parts.append([ANATOMY_C])
    for place in places:
        place.mkdir()
    running = [
        subprocess.Popen(["cc", *flags, *includes, "-c", *part], cwd=place)
        for place, part in zip(places, parts, strict=True)
    ]
    assert [process.wait() for process in running] == [0] * len(parts)
    objects = sorted(str(file) for file in folder.glob("*/*.o"))
    program = str(folder / "bench_anatomy")
    subprocess.run(["cc", "-pthread", "-o", program, *objects], check=True)
    return folder


def anatomy(
    build: Path, *words: str | Path, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    """bench/run_study.py anatomy, as ./dev study calls it; path: its PATH."""
    return subprocess.run(
        [
            sys.executable,
            str(BENCH / "run_study.py"),
            "anatomy",
            "--build",
            str(build),
            *map(str, words),
        ],
        capture_output=True,
        text=True,
        check=False,
        env=None if path is None else {"PATH": path},
    )


@needs_tools
@pytest.mark.by_hand
def test_stack_it_beside_stack_it2(build: Path, tmp_path: Path) -> None:
    picture, text = tmp_path / "a.png", tmp_path / "a.txt"
    words = ("--json", "--repetitions", "1", "--plot", picture, "--folded", text)
    done = anatomy(build, *words)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    whole = json.loads(done.stdout)
    assert whole["collector"] == "no collector is built in"
    cases = {row["case"]: row for row in whole["cases"]}
    assert list(cases) == ["value", "inline", "special", "generic", "pointer", "tracked"]
    assert (cases["value"]["bytes_per_op"], cases["special"]["bytes_per_op"]) == (0, 8)
    for row in whole["cases"]:
        assert sum(row["parts"].values()) == pytest.approx(row["instructions"], abs=0.01)
        assert row["parts"]["other"] < 0.1 * row["instructions"], row["other_functions"]
        assert row["ns"]["median"] > 0
    value = {name for name, count in cases["value"]["parts"].items() if count > 0.01}
    assert value == {"loop", "the function itself"}
    special = cases["special"]["parts"]
    for name in ("class lookup", "window", "zeroing", "pointer bits", "refill", "free"):
        assert special[name] > 0, name
    assert cases["special"]["instructions"] < cases["generic"]["instructions"]
    assert cases["tracked"]["parts"]["accounting"] > 10
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "stackIt2 specialised;run_cache;" in text.read_text()


@needs_tools
@pytest.mark.by_hand
def test_batches_of_a_larger_class(build: Path) -> None:
    done = anatomy(build, "--class", "20", "--live", "500", "--repetitions", "0")
    assert done.returncode == 0, done.stderr
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert lines["B/op"].split() == ["B/op", "0", "352", "352", "352", "352", "352"]
    assert lines["collector's share"].split()[-2:] == ["0", "0%"]
    assert "collector's share: 0, no collector is built in" in done.stdout
    assert "objects of 352 B, 500 live" in done.stdout
    assert lines["other"].split()[1::2] == ["0"] * 6


@needs_tools
@pytest.mark.by_hand
def test_a_size_without_an_inline_path(build: Path) -> None:
    done = anatomy(build, "--size", "2000", "--repetitions", "0", "--json")
    assert done.returncode == 0, done.stderr
    cases = [row["case"] for row in json.loads(done.stdout)["cases"]]
    assert cases == ["value", "special", "generic", "pointer", "tracked"]


@needs_tools
@pytest.mark.by_hand
def test_a_program_without_debug_information(build: Path, tmp_path: Path) -> None:
    shutil.copy(build / "bench_anatomy", tmp_path)
    subprocess.run(["strip", "-g", tmp_path / "bench_anatomy"], check=True)
    done = anatomy(tmp_path, "--repetitions", "0")
    assert done.returncode == 2
    program = tmp_path / "bench_anatomy"
    assert done.stderr == (
        f"anatomy: {program} has no debug information: build target bench_anatomy anew\n"
    )


@needs_tools
@pytest.mark.parametrize(
    ("tools", "said"),
    [
        ([], "valgrind was not found: apt-get install valgrind"),
        (
            ["valgrind"],
            "neither addr2line nor llvm-symbolizer was found: apt-get install binutils",
        ),
    ],
)
@pytest.mark.by_hand
def test_a_missing_tool(build: Path, tmp_path: Path, tools: list[str], said: str) -> None:
    for tool in tools:
        script = tmp_path / tool
        script.write_text(f'#!/bin/sh\nPATH=/usr/bin:/bin exec {shutil.which(tool)} "$@"\n')
        script.chmod(0o755)
    done = anatomy(build, "--repetitions", "0", path=str(tmp_path))
    assert (done.returncode, done.stderr) == (2, f"anatomy: {said}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--live", "0"], "--live is 0; use 1 .. 65536"),
        (["--repetitions", "-1"], "--repetitions is -1; use 0 .. 1000"),
        (["--plot", "a.svg"], "--plot is 'a.svg'; use a name that ends in .png"),
        (
            [],
            "{program}: No such file or directory; build with -DSPANWISE_BENCH=ON, or run "
            "./dev bench",
        ),
    ],
)
def test_bad_input(tmp_path: Path, words: list[str], said: str) -> None:
    done = anatomy(tmp_path, *words)
    line = said.format(program=tmp_path / "bench_anatomy")
    assert (done.returncode, done.stderr) == (2, f"anatomy: {line}\n")


@pytest.mark.parametrize(
    ("size", "cls", "said"),
    [
        (7, None, r"--size is 7; use 8 \(an int\) .. 32768, the largest class"),
        (32769, None, "--size is 32769; use 8"),
        (None, 0, "--class is 0; c16 has classes 1 .. 3"),
        (None, 4, "--class is 4; c16 has classes 1 .. 3"),
    ],
)
def test_bad_sizes(size: int | None, cls: int | None, said: str) -> None:
    with pytest.raises(BenchError, match=said):
        anatomy_cli.object_size(size, cls, [8, 16, 32])


def test_sizes() -> None:
    assert anatomy_cli.object_size(None, None, [8, 16, 32]) == 8
    assert anatomy_cli.object_size(None, 3, [8, 16, 32]) == 32
    assert anatomy_cli.object_size(24, None, [8, 16, 32]) == 24
