# SPDX-License-Identifier: Apache-2.0
"""The recorder: exact counts, and call sites."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import spanwise as sw
from spanwise._lib import lib
from spanwise.recordings.sources import FileSource, read_sites

from tests.recorder.tools import PROGRAMS, Recorder, Run, assert_consistent

# --- counts ---------------------------------------------------------------------------------------


def test_every_function_of_the_family(recorder: Recorder, tmp_path: Path) -> None:
    run = recorder.run([recorder.program("memory"), "family"], tmp_path)
    assert (run.process.returncode, run.process.stderr) == (0, "")
    assert_consistent(run.main)
    assert run.number("allocs") == 11
    assert run.number("frees") == 11
    assert run.number("reallocs") == 2
    assert run.number("aligned_allocs") == 5
    assert run.number("zeroed_allocs") == 1
    assert run.number("allocated_bytes") == 100 + 300 + 77 + 0 + 1000 + 640 + 333 + 77 + 78 + 101
    assert run.number("reallocated_bytes") == 100000 + 200
    assert run.leftovers == []


ALIGNED = [10021, 10023, 10025, 10027, 10240, 0, 384, 10048, 10011]
"""Sizes that aligned.cpp asks for, in order."""
ALIGNED_LOG2 = [12, 8, 6, 9, 10, 5, 7, 6, 13]


def cxx_program(recorder: Recorder, *flags: str) -> Path:
    needs("g++")
    out = recorder.build / "-".join(["aligned", *flags])
    if not out.exists():
        source = PROGRAMS / "aligned.cpp"
        subprocess.run(["g++", "-O1", "-std=c++17", *flags, source, "-o", out], check=True)
    return out


def aligned_ops(path: Path) -> list[tuple[int, int]]:
    """Size and logarithm of the alignment of each aligned allocation, in order."""
    ops = np.asarray(sw.Recording.open(path).ops)
    rows = ops[(ops["kind"] == lib.SW_OP_ALLOC) & (ops["align_log2"] >= 5)]
    return list(zip(rows["size"].tolist(), rows["align_log2"].tolist(), strict=True))


def test_aligned_new_has_the_size_that_was_asked_for(recorder: Recorder, tmp_path: Path) -> None:
    """A C++ library rounds it up to a multiple of the alignment before it allocates."""
    run = recorder.run([cxx_program(recorder)], tmp_path)
    assert (run.process.returncode, run.process.stderr) == (0, "")
    assert_consistent(run.main)
    wanted = list(zip(ALIGNED, ALIGNED_LOG2, strict=True))
    assert aligned_ops(tmp_path / "out.swt") == wanted


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="deep call sites need x86-64")
def test_aligned_new_is_called_from_where_it_was(recorder: Recorder, tmp_path: Path) -> None:
    """The recorder's own operator is in no call stack."""
    recorder.run([cxx_program(recorder, "-rdynamic")], tmp_path, options={"STACKS": "8"})
    recording = sw.Recording.open(tmp_path / "out.swt")
    modules = [site.frames for site in recording.sites]
    assert modules and not any("libspanwise-record" in one for each in modules for one in each)


def test_aligned_new_of_libraries_with_names_of_their_own(
    recorder: Recorder, tmp_path: Path
) -> None:
    """As modules of Python are loaded: each calls the operator that it would without recorder."""
    shared = ("-fPIC", "-shared", "-DLIBRARY")
    libraries = [cxx_program(recorder, *shared), cxx_program(recorder, *shared, "-DPOOL")]
    for paths in (libraries, libraries[::-1], libraries[1:]):
        run = recorder.run([recorder.program("lifecycle"), "open", *paths], tmp_path)
        assert (run.process.returncode, run.process.stderr) == (0, "")
        assert_consistent(run.main)
        own, of_pool = (
            list(zip(sizes, logs, strict=True))
            for sizes, logs in ((ALIGNED, ALIGNED_LOG2), (ALIGNED[-2:], ALIGNED_LOG2[-2:]))
        )
        each = [own if path == libraries[0] else of_pool for path in paths]
        wanted = [op for ops in each for op in ops * 2] * 2
        found = [op for op in aligned_ops(tmp_path / "out.swt") if op[0] in ALIGNED]
        assert found == wanted


def test_eight_threads_free_each_others_blocks(recorder: Recorder, tmp_path: Path) -> None:
    rounds = 100_000
    run = recorder.run([recorder.program("threads"), "pingpong", "8", str(rounds)], tmp_path)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("dropped_calls") == 0
    assert run.number("frees") >= 8 * rounds
    assert run.number("threads") == 9


Totals = tuple[int, int, int]
"""Allocations, frees, bytes."""


def valgrind_totals(command: list[str], environment: dict[str, str]) -> Totals:
    # Of memcheck the calls alone are wanted, and not whether what is read was written.
    flags = ("--undef-value-errors=no", "--run-libc-freeres=no", "--run-cxx-freeres=no")
    said = subprocess.run(
        ["valgrind", "--trace-children=no", *flags, *command],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    ).stderr
    found = re.search(r"total heap usage: ([\d,]+) allocs, ([\d,]+) frees, ([\d,]+) bytes", said)
    assert found is not None, said
    allocs, frees, total = (int(group.replace(",", "")) for group in found.groups())
    return allocs, frees, total


def recorded_totals(run: Run) -> Totals:
    """As valgrind counts: a reallocation is one allocation of the new size and one free."""
    reallocs = run.number("reallocs")
    total = run.number("allocated_bytes") + run.number("reallocated_bytes")
    return run.number("allocs") + reallocs, run.number("frees") + reallocs, total


def sqlite_command(_: Recorder, __: Path) -> list[str]:
    rows = "with recursive c(x) as (values(1) union all select x+1 from c where x<3000)"
    sql = f"create table t(a,b); {rows} insert into t select x, x*7 from c; select sum(b) from t;"
    return ["sqlite3", ":memory:", sql]


def sort_command(_: Recorder, directory: Path) -> list[str]:
    lines = directory / "lines.txt"
    lines.write_text("".join(f"{i * 7919 % 1009} line\n" for i in range(5000)))
    return ["sort", "--parallel=1", "-o", "/dev/null", str(lines)]


def cxx_command(recorder: Recorder, _: Path) -> list[str]:
    return [str(cxx_program(recorder, "-DOBJECTS"))]


def needs(*tools: str) -> None:
    for tool in tools:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")


@pytest.mark.parametrize(
    ("tool", "make_command"),
    [
        ("sqlite3", sqlite_command),
        ("sort", sort_command),
        ("g++", cxx_command),
    ],
)
def test_counts_equal_valgrinds(
    recorder: Recorder, tmp_path: Path, tool: str, make_command: object
) -> None:
    needs("valgrind", tool)
    assert callable(make_command)
    command: list[str] = make_command(recorder, tmp_path)
    expected = valgrind_totals(command, {"PATH": os.environ["PATH"], "LC_ALL": "C"})
    directory = tmp_path / "recording"
    directory.mkdir()
    run = recorder.run([*command], directory, extra={"LC_ALL": "C"})
    assert_consistent(run.main)
    assert recorded_totals(run) == expected


# --- call sites -----------------------------------------------------------------------------------


def chain_sites(path: Path) -> list[list[str]]:
    sites = read_sites(FileSource(path, valid_prefix=False).open())
    return [[f"{address:x}" for address in one] for one in sites.values()]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="deep call sites need x86-64")
@pytest.mark.parametrize("flags", [("-fomit-frame-pointer",), ("-O0",), ("-O3", "-fcf-protection")])
@pytest.mark.parametrize("depth", [0, 1, 5, 20, 55, -1])
def test_chains_equal_backtrace(
    recorder: Recorder, tmp_path: Path, flags: tuple[str, ...], depth: int
) -> None:
    program = recorder.program("stacks", "-rdynamic", *flags)
    run = recorder.run([program, str(depth)], tmp_path, options={"STACKS": "128"})
    expected = run.process.stdout.split()
    chains = chain_sites(tmp_path / "out.swt")
    # The innermost addresses differ: malloc and backtrace are called from different places.
    assert expected[1:] in [chain[1:] for chain in chains]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="deep call sites need x86-64")
def test_a_library_at_the_addresses_of_one_that_was_unloaded(
    recorder: Recorder, tmp_path: Path
) -> None:
    """Neither its rules nor a walk through it serve the other one, whose frames are larger."""
    shape = ("-shared", "-O2", "-fomit-frame-pointer", "-fno-stack-protector")
    plugins = [recorder.program("reloads", *shape, f"-DROOM={room}") for room in (256, 512)]
    program = recorder.program("reloads", "-O2", "-fomit-frame-pointer")
    rounds = 512
    run = recorder.run([program, *plugins, str(rounds)], tmp_path, options={"STACKS": "8"})
    assert int(run.process.stdout) > rounds / 2
    recording = sw.Recording.open(tmp_path / "out.swt")
    ops = np.asarray(recording.ops)
    frames = {site.id: site.frames for site in recording.sites}
    chains = []
    for size in (2000, 4000):
        rows = ops[(ops["kind"] == lib.SW_OP_ALLOC) & (ops["size"] - size < rounds)]
        found = {frames[site] for site in rows["site"].tolist()}
        (chain,) = (chain for chain in found if chain[0].startswith(str(program)))
        chains.append(chain)
    first, second = chains
    assert len(first) == len(second) == 8
    # allocate, plugin_call, call_first or call_second, load, main, and what is below
    assert first[:2] + first[3:] == second[:2] + second[3:]
    assert first[2] != second[2]


@pytest.mark.parametrize(("depth", "longest"), [("0", 0), ("1", 1), ("3", 3), (None, 16)])
def test_depth_option(recorder: Recorder, tmp_path: Path, depth: str | None, longest: int) -> None:
    options = {} if depth is None else {"STACKS": depth}
    command: list[str | Path] = [recorder.program("stacks", "-rdynamic"), "20"]
    run = recorder.run(command, tmp_path, options=options)
    chains = chain_sites(tmp_path / "out.swt")
    assert max((len(chain) for chain in chains), default=0) == longest
    assert run.main["stack_depth"] == str(longest)


# --- memory of the process ------------------------------------------------------------------------


MIB = 1 << 20


@pytest.mark.parametrize(
    ("what", "malloced", "mapped"),
    [
        ("large", 48, 0),
        ("large", 24, 24),
        ("large", 1, 40),
        ("small", 48, 16),
        ("sparse", 16, 32),
        ("grown", 32, 8),
        ("medium", 64, 0),
        ("threads", 32, 0),
    ],
)
def test_parts_of_the_peak(
    recorder: Recorder, tmp_path: Path, what: str, malloced: int, mapped: int
) -> None:
    """A reading is within a sixteenth of the peak, and each part is what the program touched."""
    run = recorder.run([recorder.program("memory"), what, str(malloced), str(mapped)], tmp_path)
    assert run.process.returncode == 0
    parts = {
        name: run.number(f"meta.rss_{name}")
        for name in ("peak", "malloc", "mapped", "data", "file", "recorder")
    }
    total = malloced + mapped
    # Growth since the last reading, and libc's own pages. What other threads allocate while one
    # reads counts as mapped, on a busy machine half of it; if their open blocks were not marked,
    # nearly all would.
    missed = parts["peak"] / MIB / 16 + 2 if what != "threads" else total * 3 / 4
    assert abs(parts["malloc"] / MIB - malloced) < missed, parts
    assert abs(parts["mapped"] / MIB - mapped) < missed, parts
    assert parts["malloc"] + parts["mapped"] > (total - missed) * MIB
    assert parts["peak"] >= sum(parts.values()) - parts["peak"] - MIB, parts
    assert parts["peak"] < (total + 16) * MIB, parts


def test_addresses_that_malloc_had_before(recorder: Recorder, tmp_path: Path) -> None:
    run = recorder.run([recorder.program("memory"), "reused", "32", "64"], tmp_path)
    assert run.number("meta.rss_malloc") < MIB
    assert abs(run.number("meta.rss_mapped") / MIB - 64) < 4.5
