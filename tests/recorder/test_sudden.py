# SPDX-License-Identifier: Apache-2.0
"""The recorder: programs that end in a way that it does not see lose nothing.

Of the N blocks of each thread of threads.c a third is kept, a third is freed, and a third is
reallocated and freed.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.recorder.tools import Recorder, Run, assert_consistent


def counts(n: int) -> tuple[int, int, int]:
    """Allocations, frees and reallocations of a thread of N blocks."""
    return n, n - (n + 2) // 3, (n + 1) // 3


def sudden(
    recorder: Recorder, tmp_path: Path, *words: str, salvage: bool = True, **options: str
) -> Run:
    """Runs threads.c with a folder for areas, and takes in what it left."""
    areas, place = tmp_path / "areas", tmp_path / "place"
    areas.mkdir(exist_ok=True)
    place.mkdir(exist_ok=True)
    environment = recorder.environment(place / "out.swt", {"AREAS": str(areas), **options})
    done = subprocess.run(
        [recorder.program("threads"), "sudden", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    run = Run(done)
    for path in sorted(place.glob("*.swt")):
        if salvage:
            recorder.salvage(path, areas / f"{path.name}.areas")
        run.recordings[path.name] = recorder.summarise(path, prefix=not salvage)
    run.leftovers = sorted(path.name for path in areas.iterdir())
    return run


def assert_counts(run: Run, allocs: int, frees: int, reallocs: int) -> None:
    """C library calls of starting threads add up to three blocks for each."""
    own = (run.number("allocs"), run.number("frees"), run.number("reallocs"))
    extra = own[0] - allocs
    assert 0 <= extra <= 3 * run.number("threads")
    assert own == (allocs + extra, frees, reallocs)


@pytest.mark.parametrize("n", [1, 10, 3000, 4096, 20_000])
@pytest.mark.parametrize(("end", "status"), [("exit_group", 0), ("kill", -9), ("segv", -11)])
def test_nothing_is_lost(recorder: Recorder, tmp_path: Path, end: str, status: int, n: int) -> None:
    run = sudden(recorder, tmp_path, end, "0", str(n))
    assert run.process.returncode == status
    assert_consistent(run.main)
    assert_counts(run, *counts(n))
    assert run.leftovers == ["out.swt.areas"]


@pytest.mark.parametrize("stacks", ["0", "1", "4"])
def test_blocks_of_all_threads(recorder: Recorder, tmp_path: Path, stacks: str) -> None:
    run = sudden(recorder, tmp_path, "kill", "7", "2500", STACKS=stacks)
    assert_consistent(run.main)
    assert run.number("threads") == 8
    allocs, frees, reallocs = counts(2500)
    assert_counts(run, 8 * allocs, 8 * frees, 8 * reallocs)
    assert (run.number("sites") == 0) == (stacks == "0")


def test_without_areas_the_open_block_is_lost(recorder: Recorder, tmp_path: Path) -> None:
    run = sudden(recorder, tmp_path, "exit_group", "0", "10", AREAS="", salvage=False)
    assert run.number("ops") == 0
    assert run.main["incomplete"] == "1"


@pytest.mark.parametrize("n", [10, 5000])
def test_a_copy_does_not_write_into_its_parents_blocks(
    recorder: Recorder, tmp_path: Path, n: int
) -> None:
    """The child of a bare clone, which no fork handler sees, works while its parent does."""
    for _ in range(5):
        run = sudden(recorder, tmp_path, "exit_group", "2", str(n), "clone")
        assert run.process.returncode == 0
        assert list(run.recordings) == ["out.swt"]
        assert_consistent(run.main)
        own, late = counts(n), counts(100)
        assert_counts(run, *(3 * a + 2 * b for a, b in zip(own, late, strict=True)))


@pytest.mark.parametrize("children", ["0", "1"])
def test_a_fork_child_does_not(recorder: Recorder, tmp_path: Path, children: str) -> None:
    run = sudden(recorder, tmp_path, "exit_group", "2", "500", "fork", CHILDREN=children)
    assert_consistent(run.main)
    own, late = counts(500), counts(200)
    assert_counts(run, *(3 * a + b for a, b in zip(own, late, strict=True)))
    others = [name for name in run.recordings if name != "out.swt"]
    assert len(others) == int(children)
    for name in others:
        assert_consistent(run.recordings[name])
        found = tuple(run.number(kind, name) for kind in ("allocs", "reallocs"))
        assert found == (counts(300)[0], counts(300)[2])


def test_a_vfork_child_is_its_parent(recorder: Recorder, tmp_path: Path) -> None:
    run = sudden(recorder, tmp_path, "exit_group", "0", "500", "vfork")
    assert_consistent(run.main)
    own, late = counts(500), counts(200)
    assert_counts(run, own[0] + late[0] + 1, own[1] + late[1] + 1, own[2] + late[2])


def test_a_clean_end_leaves_no_areas(recorder: Recorder, tmp_path: Path) -> None:
    run = recorder.run(
        [recorder.program("lifecycle"), "threads", "50"],
        tmp_path,
        options={"AREAS": str(tmp_path)},
    )
    assert_consistent(run.main)
    assert run.leftovers == []


def test_areas_that_are_refused(recorder: Recorder, tmp_path: Path) -> None:
    """A folder that is not there: recorded as without."""
    run = recorder.run(
        [recorder.program("lifecycle"), "churn", "5000"],
        tmp_path,
        options={"AREAS": str(tmp_path / "missing")},
    )
    assert run.process.stderr == ""
    assert_consistent(run.main)


def test_damaged_areas_do_no_harm(recorder: Recorder, tmp_path: Path) -> None:
    """Whatever a program scribbles over them: the recording stays one that can be read."""
    run = sudden(recorder, tmp_path, "kill", "1", "2000", salvage=False)
    assert run.process.returncode == -9
    raw = (tmp_path / "place/out.swt").read_bytes()
    areas = (tmp_path / "areas/out.swt.areas").read_bytes()
    path, place = tmp_path / "cut.swt", tmp_path / "cut.areas"
    for cut in [0, 10, 64, 100, len(areas) // 2, len(areas) - 1]:
        path.write_bytes(raw)
        place.write_bytes(areas[:cut])
        recorder.salvage(path, place)
        recorder.summarise(path, prefix=True)
    for at in range(0, len(areas), 4099):
        path.write_bytes(raw)
        place.write_bytes(areas[:at] + b"\xff" * 40 + areas[at + 40 :])
        recorder.salvage(path, place)
        recorder.summarise(path, prefix=True)


def test_salvage_twice_is_once(recorder: Recorder, tmp_path: Path) -> None:
    run = sudden(recorder, tmp_path, "kill", "1", "2000")
    path = tmp_path / "place/out.swt"
    before = path.read_bytes()
    recorder.salvage(path, tmp_path / "areas/out.swt.areas")
    assert path.read_bytes() == before
    assert run.main["incomplete"] == "0"


@pytest.mark.parametrize("cut", [1, 60, 3000])
def test_a_block_that_was_cut_is_taken_from_the_areas(
    recorder: Recorder, tmp_path: Path, cut: int
) -> None:
    """The program was killed while the file was written: the block is still in its area."""
    run = sudden(recorder, tmp_path, "kill", "0", "100", salvage=False)
    assert run.process.returncode == -9
    path, areas = tmp_path / "place/out.swt", tmp_path / "areas/out.swt.areas"
    recorder.salvage(path, areas)
    whole = recorder.summarise(path)
    sudden(recorder, tmp_path, "kill", "0", "100", salvage=False)
    path.write_bytes(path.read_bytes() + b"SWTB\x03" + b"\x00" * cut)
    recorder.salvage(path, areas)
    again = recorder.summarise(path)
    assert (again["allocs"], again["incomplete"]) == (whole["allocs"], "0")
