# SPDX-License-Identifier: Apache-2.0
"""spanwise bench: one run, rounds, resumed files, savings computed by hand, bad input."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.__main__ import main
from spanwise.measure import bench_fits, bench_rounds, launching
from spanwise.measure.bench import processor
from spanwise.measure.bench_cases import case_of, find_servers, read_cases
from spanwise.measure.bench_result import BenchResult, measured_on
from spanwise.measure.bench_rounds import ROW_FIELDS, VALUE_FIELDS, Round, run_round
from spanwise.measure.launching import launch
from spanwise.measure.replayer import MALLOC_LIBRARY
from spanwise.recordings import recorder
from spanwise.recordings.launch import with_pipefail
from spanwise.results.intervals import interval_of

from tests.python.helpers import needs_recorder

MIB = 1 << 20
QUICK = ("spanwise", "glibc")
TRUE = case_of(["true"])
BYTES = "import time; x = bytes(range(256)) * (1 << 17); time.sleep(0.3)"
"""32 MiB, written; they stay long enough to be seen in a sample."""


def used(tmp_path: Path, *argv: str, timeout_s: float = 300) -> Any:
    return launch(argv, "", env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path, timeout_s=timeout_s)


# --- one run --------------------------------------------------------------------------------------


def test_a_run_tells_its_own_memory(tmp_path: Path) -> None:
    """Not that of the Python which started it; and that of a child, where it is larger."""
    ballast = bytearray(60 * MIB)
    small = used(tmp_path, "true")
    assert len(ballast) == 60 * MIB and small.error == ""
    assert 0 < small.rss_bytes < 8 * MIB
    for stays_s in (0.3, 3, 30):  # until a sample has seen them
        code = BYTES.replace("0.3", str(stays_s))
        large = used(tmp_path, "sh", "-c", f"{sys.executable} -S -c '{code}'; true")
        assert large.error == ""
        if large.anonymous_bytes > 32 * MIB:
            break
    for seen in (large.rss_bytes, large.anonymous_bytes):
        assert 32 * MIB < seen < 64 * MIB
    assert large.anonymous_bytes <= large.rss_bytes
    assert large.cpu_ns > 0 and large.elapsed_ns > 0
    assert large.page_faults > small.page_faults > 0


@pytest.mark.parametrize(
    ("words", "timeout_s", "error"),
    [
        (["sh", "-c", "echo bad >&2; exit 3"], 300, "ended with 3: bad"),
        (["sh", "-c", "kill -9 $$"], 300, "signal 9 ended it"),
        (
            ["no-such-program"],
            300,
            "ended with 2: spanwise-rusage: no-such-program: No such file or",
        ),
        (["sleep", "600"], 0.5, "did not end within 0.5 s"),
        (["yes"], 0.5, "did not end within 0.5 s"),
        (["sh", "-c", "exec >&-; exec sleep 600"], 0.5, "did not end within 0.5 s"),
    ],
)
def test_a_run_that_fails_says_how(
    tmp_path: Path, words: list[str], timeout_s: float, error: str
) -> None:
    assert used(tmp_path, *words, timeout_s=timeout_s).error.startswith(error)


ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""SHA-256 of the bytes abc (FIPS 180-2, appendix B.1)."""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("printf abc", ""),
        ("printf a; sleep 0.1; printf bc", ""),
        ("printf abc; printf d >&2", ""),
        ("printf abc; exec >&-; sleep 0.1; exit 3", "ended with 3"),
        ("sleep 600 & echo $! > left; printf abc", ""),  # it keeps the pipe open
    ],
)
def test_stdout_is_hashed(tmp_path: Path, text: str, error: str) -> None:
    try:
        found = used(tmp_path, "sh", "-c", text)
    finally:
        for left in tmp_path.glob("left"):
            os.kill(int(left.read_text()), signal.SIGKILL)
    assert (found.output_sha256, found.error) == (ABC, error)


def test_output_that_is_read_after_the_end_is_hashed(tmp_path: Path) -> None:
    """All of it is still in the pipe, which a process that is left holds open."""
    words = ["sh", "-c", "sleep 600 & echo $! > left; printf abc"]
    child = subprocess.Popen(words, stdout=subprocess.PIPE, bufsize=0, cwd=tmp_path)
    try:
        child.wait()
        assert launching._hash_output(child, 300) == ABC
    finally:
        os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)
        launching._end(child)


def test_a_large_output_is_hashed_in_bounded_memory(tmp_path: Path) -> None:
    """50 MB, with the exit status of its program."""
    tracemalloc.start()
    try:
        found = used(tmp_path, "sh", "-c", "head -c 50000000 /dev/zero; exit 3")
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.output_sha256 == hashlib.sha256(bytes(50_000_000)).hexdigest()
    assert found.error == "ended with 3" and peak_bytes < 5_000_000


def wait_for_end(pid: int) -> bool:
    """Whether a process that was killed ends; a zombie has no command line."""
    for _ in range(3000):
        try:
            if not Path(f"/proc/{pid}/cmdline").read_bytes():
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("work", ["yes", "sleep 600", "sleep 600 >&-"])
def test_ctrl_c_ends_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    pid = tmp_path / "pid"
    started = threading.Event()
    real = launching._hash_output

    def hash_output(*arguments: Any) -> str:
        started.set()
        return real(*arguments)

    def interrupt() -> None:
        started.wait()
        while not pid.exists() or not pid.read_text().endswith("\n"):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(launching, "_hash_output", hash_output)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            used(tmp_path, "sh", "-c", f"echo $$ > pid; exec {work}")
    finally:
        thread.join()
    assert wait_for_end(int(pid.read_text()))


# --- benchmarks -----------------------------------------------------------------------------------


def test_each_case_runs_under_each_allocator() -> None:
    """Held, and what is outside, only ours tells; 32 MiB are in the peak of both."""
    for stays_s in (0.3, 3, 30):  # until samples have seen them
        words = [sys.executable, "-S", "-c", BYTES.replace("0.3", str(stays_s))]
        cases = [TRUE, case_of(words, "python", "32 MiB")]
        found = sw.bench(cases, QUICK, rounds=2, progress=False)
        seen = [row["anonymous_bytes"] for row in found if row["program"] == "python"]
        if all((anonymous or 0) > 32 * MIB for anonymous in seen):
            break
    keys = [(row["program"], row["allocator"], row["round"]) for row in found]
    assert keys == [
        (name, one, i) for name in ("true", "python") for one in QUICK for i in range(2)
    ]
    assert not found.failures and found.verdict() == ""
    for row in found:
        own = row["allocator"] == "spanwise"
        assert (row["held_bytes"] is not None) == own == (row["outside_bytes"] is not None)
        assert row["predicted_bytes"] is None
        if row["program"] == "python":
            assert row["rss_bytes"] > 32 * MIB < row["anonymous_bytes"]
            assert not own or row["held_bytes"] > 32 * MIB
    rows = found.array
    assert rows["runs"].tolist() == [2] * 4 and rows["failed"].tolist() == [0] * 4
    assert (rows["rss_low_bytes"] <= rows["rss_bytes"]).all()
    assert "python, 32 MiB" in str(found)
    told = list(csv.DictReader(io.StringIO(found.to_csv())))
    assert list(told[0]) == list(ROW_FIELDS) and len(told) == 8
    assert json.loads(found.to_json())["summary"][1]["held_bytes"] is None
    axes = found.plot()
    assert {text.get_text() for text in axes.get_yticklabels()} == {"true", "python, 32 MiB"}
    title = f"programs under allocators, in turns\n{found.measured}"
    assert axes.get_title(loc="left") == title and processor() in found.measured


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    """What is there is not run again; what failed is; a cut line is dropped."""
    path = tmp_path / "f.jsonl"
    flag = tmp_path / "flag"
    late = case_of(["sh", "-c", f"test -e {flag}"], "late", "")
    first = sw.bench([TRUE, late], ["glibc"], rounds=2, output=path, progress=False)
    assert [row["error"] for row in first.failures] == ["sh: ended with 1"] * 2
    assert "2 runs failed: sh: ended with 1" in str(first)
    flag.touch()
    with path.open("a") as file:
        file.write('{"kind": "row", "prog')
    steps: list[int] = []
    again = sw.bench([TRUE, late], ["glibc"], rounds=3, output=path, progress=steps.append)
    assert len(again) == 6 and not again.failures and sum(steps) == 4
    assert any("2 runs were there and not done again" in note for note in again.notes)
    assert any("was cut" in note for note in again.notes)
    kept = {(row["program"], row["round"]): row["elapsed_ns"] for row in first}
    for row in again:
        if row["program"] == "true" and row["round"] < 2:
            assert row["elapsed_ns"] == kept["true", row["round"]]
    opened = BenchResult.open(path)
    assert len(opened) == 6 and not opened.failures
    assert opened.measured == again.measured != ""
    assert all(row["page_faults"] > 0 for row in opened)
    with pytest.raises(sw.InvalidError, match="not the file of a sweep"):
        sw.Sweep.open(path)


def test_interrupted_what_was_done_is_kept(tmp_path: Path) -> None:
    def step(_: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "f.jsonl"
    with pytest.raises(sw.BenchInterrupted, match="interrupted after 2 runs") as caught:
        sw.bench([TRUE], QUICK, rounds=3, output=path, progress=step)
    assert [row["round"] for row in caught.value.result] == [0, 0]
    steps: list[int] = []
    assert len(sw.bench([TRUE], QUICK, rounds=3, output=path, progress=steps.append)) == 6
    assert sum(steps) == 4


def test_on_an_executor_and_when_it_breaks() -> None:
    with ThreadPoolExecutor(2) as executor:
        found = sw.bench([TRUE], QUICK, rounds=2, executor=executor, progress=False)
        assert len(found) == 4 and not found.failures
    broken = sw.bench([TRUE], QUICK, rounds=2, executor=executor, progress=False)
    assert [row["error"] for row in broken] == [
        "RuntimeError: cannot schedule new futures after shutdown"
    ] * 4


def test_a_policy_is_an_allocator_of_its_own() -> None:
    """It is called by what it changes, and the program's malloc is told."""
    asks = 'test "$SPANWISE_PLACEMENT $SPANWISE_BATCH" = "lasting use:2"'
    policy = sw.HeapOptions(placement="lasting", batch_spans=2, batch_by_use=True)
    case = case_of(["sh", "-c", asks], "asks", "")
    found = sw.bench([case], ["spanwise"], policies=[policy, policy], rounds=1, progress=False)
    asked = "placement lasting, batch_spans 2, batch_by_use True"
    assert {row["allocator"]: row["error"] is None for row in found} == {
        "spanwise": False,
        asked: True,
    }
    for bad, message in (
        (sw.HeapOptions(), "policies: the default is 'spanwise'; name it as an allocator"),
        (sw.HeapOptions(large_touched_percent=5), "large_touched_percent is for simulations; a"),
    ):
        with pytest.raises(sw.InvalidError, match=message):
            sw.bench([case], ["spanwise"], policies=[bad], progress=False)
    with pytest.raises(TypeError, match="policies must be HeapOptions, not dict"):
        sw.bench([case], ["spanwise"], policies=[{}], progress=False)  # type: ignore[list-item]


def test_a_worker_without_the_file() -> None:
    """Of the allocator: none, another one; another spanwise; each says the mend."""
    (server,), _ = find_servers(["spanwise"])
    round_ = Round(_lib.version(), TRUE, 0, (server,), 10)
    assert Round.from_json(round_.to_json()) == round_
    for changed, error in (
        (
            replace(server, library="/nowhere/x.so"),
            "is not on this worker; put the same file there",
        ),
        (replace(server, sha256="0" * 64), "is another file on this worker; put the same one"),
    ):
        (row,) = run_round(replace(round_, servers=(changed,)).to_json())
        assert error in row["error"] and all(row[name] is None for name in VALUE_FIELDS)
    (row,) = run_round(replace(round_, library="0.0.1").to_json())
    assert row["error"].endswith("not 0.0.1; install the same")
    missing = replace(round_, case=case_of(["no-such-program"]))
    assert "no-such-program" in run_round(missing.to_json())[0]["error"]


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (
            {"started": "2026-11-25T10:00:00Z", "commit": "0123abcd+changes"},
            "2026-11-25, commit 0123abcd+changes, Linux x86_64, AMD EPYC",
        ),
        ({"commit": None}, "spanwise 0.3.0, Linux x86_64, AMD EPYC"),
    ],
)
def test_a_header_tells_where_and_when(header: dict[str, Any], told: str) -> None:
    also = {"machine": "Linux x86_64, AMD EPYC", "versions": {"spanwise": "0.3.0"}}
    assert measured_on({**header, **also}) == told


# --- output is the same under each allocator ------------------------------------------------------

ALLOCATORS = ("plain", "spanwise", "glibc")
DIFFERS = "sh: stdout differs from that of the plain run; find out why, or ignore it"
PRELOADED = case_of(["sh", "-c", 'echo "preloaded: ${LD_PRELOAD:+yes}"'], "preloaded", "")


def bench(case: sw.BenchCase, allocators: Any = ALLOCATORS, **options: Any) -> list[str | None]:
    """The errors of the runs."""
    found = sw.bench([case], allocators, progress=False, **{"rounds": 1, **options})
    return [row["error"] for row in found]


def test_a_different_output_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    plain, *others = bench(PRELOADED)
    assert plain is None and len(others) == 2
    for error in others:
        assert error is not None and error.startswith(DIFFERS) and "\n" not in error
    assert bench(PRELOADED, ignore_output=True) == [None] * 3
    assert bench(PRELOADED, ("spanwise", "glibc")) == [None] * 2  # they agree; no plain run
    words = ["bench", "--rounds", "1", "--allocator", "plain", "--allocator", "glibc"]
    assert main([*words, "--", *PRELOADED.argv]) == 1
    assert main([*words, "--ignore-output", "--", *PRELOADED.argv]) == 0


@pytest.mark.parametrize(
    "text", ["seq 3", "head -c 50000000 /dev/zero", "echo a; exec >&-; true", "true"]
)
def test_the_same_output_is_no_failure(text: str) -> None:
    assert bench(case_of(["sh", "-c", text])) == [None] * 3


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ('test -n "$LD_PRELOAD"', ["sh: ended with 1", None, None]),
        ('test -z "$LD_PRELOAD"', [None, "sh: ended with 1", "sh: ended with 1"]),
    ],
)
def test_a_run_that_failed_has_no_output_to_compare(
    monkeypatch: pytest.MonkeyPatch, status: str, errors: list[str | None]
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert bench(case_of(["sh", "-c", f'echo "a$LD_PRELOAD"; {status}'])) == errors


def test_a_resumed_file_compares_with_its_plain_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that were kept without a comparison, or without a plain run, are run again."""
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    path = tmp_path / "f.jsonl"
    steps: list[int] = []
    assert bench(PRELOADED, ignore_output=True, output=path) == [None] * 3
    found = sw.bench([PRELOADED], ALLOCATORS, rounds=1, output=path, progress=steps.append)
    assert [row["error"] is None for row in found] == [True, False, False]
    assert sum(steps) == 2  # the plain run is kept
    assert bench(PRELOADED, ignore_output=True, output=path) == [None] * 3
    for case, allocators, runs, failures in (
        (PRELOADED, ("glibc",), 1, 0),  # no plain run to compare with
        (PRELOADED, ("plain", "glibc"), 2, 1),
        (PRELOADED, ALLOCATORS, 2, 2),
        (TRUE, ("plain", "glibc"), 2, 0),
        (TRUE, ALLOCATORS, 1, 0),
    ):
        steps.clear()
        found = sw.bench(
            [case], allocators, rounds=1, output=tmp_path / "g.jsonl", progress=steps.append
        )
        assert (sum(steps), len(found.failures)) == (runs, failures)


# --- what a table saves ---------------------------------------------------------------------------


def rows_of(**by_allocator: list[int]) -> BenchResult:
    """By hand: one case, a run a value."""
    rows = []
    for allocator, values in by_allocator.items():
        for number, value in enumerate(values):
            row = dict.fromkeys(ROW_FIELDS)
            row |= {"program": "p", "input": "i", "allocator": allocator, "round": number}
            row |= {"rss_bytes": value, "outside_bytes": 10, "predicted_bytes": value // 2}
            row |= {"held_bytes": value << 10}
            rows.append(row)
    return BenchResult(rows)


def test_a_saving_is_taken_round_by_round() -> None:
    """By hand: 10, 5, 0, -10 and 20 %; of five values the interval is all of them."""
    found = rows_of(spanwise=[100, 200, 50, 10, 100], fitted=[90, 190, 50, 11, 80])
    saving = found.saving("p", "i")
    assert saving is not None
    assert (saving.median, saving.low, saving.high) == pytest.approx((5, -10, 20))
    assert saving.sure == 15 / 16
    assert found.verdict() == (
        "Fitted tables save 5.0 % of the peak RSS under c16 (median of 1 case);"
        " the worst end of an interval is a loss of 10.0 %."
    )
    assert "  100.0 KiB (10.0 .. 200.0)" in str(found)  # held, median and ends
    assert "  100 B (10 .. 200)" in str(found)
    assert found.saving("p", "other") is None
    (stock, fitted) = found.array
    assert stock["predicted_rss_bytes"] == 10 + 50 and fitted["predicted_rss_bytes"] == 10 + 45
    with pytest.raises(sw.InvalidError, match="field 'worker': must be one of rss_bytes"):
        found.values("p", "i", "spanwise", "worker")


@pytest.mark.parametrize(
    ("count", "low", "high", "sure"),
    [(1, 0, 0, 0.0), (2, 0, 1, 0.5), (5, 0, 4, 15 / 16), (7, 0, 6, 63 / 64), (8, 1, 6, 119 / 128)],
)
def test_intervals_by_hand(count: int, low: int, high: int, sure: float) -> None:
    """Of 8 values 1 - 2 (1 + 8) / 256 = 119 / 128 lie within the second and the seventh."""
    found = interval_of(reversed(range(count)))
    assert (found.low, found.high, found.sure) == (low, high, sure)


@pytest.mark.parametrize(
    ("runs", "line"),
    [
        (
            {"plain": [100, 200, 50], "spanwise": [110, 230, 60], "fitted": [90, 150, 44]},
            "spanwise costs 15.0 % more (10.0 % to 20.0 %), fitted saves 12.0 % (10.0 % to 25.0 %)",
        ),
        (
            {"plain": [100, 200, 50], "spanwise": [90, 230, 50]},
            "spanwise no difference (-15.0 % to 10.0 %)",
        ),
        (
            {"plain": [100, 200, 50], "spanwise": [100, 180, 40]},  # 0, 10 and 20 %
            "spanwise no difference (0.0 % to 20.0 %)",
        ),
        ({"plain": [100, 200], "fitted": [50, 150]}, "fitted saves 37.5 % (25.0 % to 50.0 %)"),
    ],
)
def test_the_first_line_compares_with_plain(runs: dict[str, list[int]], line: str) -> None:
    """By hand, round by round: -10, -15 and -20 %, and 10, 25 and 12 %; 10, -15 and 0 %."""
    found = rows_of(**runs)
    first = f"peak RSS compared with plain: {line}"
    assert str(found).splitlines()[0] == first
    assert str(found).count("compared with plain") == 1
    assert found.verdict().startswith(f"P{first[1:]}.")


def test_several_cases_are_compared_with_plain() -> None:
    """By hand: 10, 20 and 40 % of the peak RSS in three cases; 50 % more CPU time in one."""
    rows: list[dict[str, Any]] = []
    for name, peak in (("a", 90), ("b", 80), ("c", 60)):
        rows += [row | {"program": name} for row in rows_of(plain=[100], spanwise=[peak])]
    rows[0]["cpu_ns"], rows[1]["cpu_ns"] = 10, 15
    lines = str(BenchResult(rows)).splitlines()
    assert lines[:2] == [
        "peak RSS compared with plain: spanwise saves 20.0 % (10.0 % to 40.0 %; median of 3 cases)",
        "CPU time compared with plain: spanwise costs 50.0 % more (one round, no interval;"
        " median of 1 case)",
    ]
    assert (
        "b, i: peak RSS compared with plain: spanwise saves 20.0 % (one round, no interval)"
        in lines
    )
    one = "a, i: CPU time compared with plain: spanwise costs 50.0 % more (one round, no interval)"
    assert one in lines


def test_without_plain_nothing_is_compared_with_it() -> None:
    found = rows_of(glibc=[100], spanwise=[90])
    assert "plain" not in str(found) and found.verdict() == ""
    assert str(found).startswith("medians and their intervals")


# --- where and how a case runs -------------------------------------------------------------------


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


def test_a_case_runs_in_the_folder_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program and a file of that folder are found, and what a run writes there stays."""
    script(tmp_path / "svc", "#!/bin/sh\ncat data >> seen; pwd > where\n")
    (tmp_path / "data").write_text("x\n")
    (tmp_path / "job.py").write_text("open('data').read()\n")
    monkeypatch.chdir(tmp_path)
    found = sw.bench([case_of(["./svc"])], QUICK, rounds=2, progress=False)
    assert not found.failures and len(found) == 4
    assert (tmp_path / "seen").read_text() == "x\n" * 4
    assert (tmp_path / "where").read_text() == f"{tmp_path.resolve()}\n"
    job = case_of([sys.executable, "-S", "job.py"])
    monkeypatch.chdir("/")  # the folder is that in which the case was made
    assert not sw.bench([job], ["glibc"], rounds=1, progress=False).failures
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([{"argv": ["./svc"], "folder": str(tmp_path)}]))
    (case,) = read_cases(cases)
    assert case.folder == str(tmp_path)
    assert not sw.bench([case], ["plain"], rounds=1, progress=False).failures
    assert case.hash != replace(case, folder="/").hash
    assert (tmp_path / "seen").read_text() == "x\n" * 5


PIPELINES = (
    ("false | cat", "ended with 1"),
    ("sh -c 'kill -11 $$' | cat", "ended with 139"),
    ("cat /dev/null | false | cat", "ended with 1"),
    ("true | cat", None),
    ("yes | head -n 1", None),  # SIGPIPE: the reader ended first
    ("if false; then :; fi", None),
    ("echo '|' > /dev/null; exit 3", "ended with 3"),
)


@pytest.mark.parametrize(("text", "error"), PIPELINES)
@pytest.mark.parametrize("form", ["words", "script"])
def test_a_pipeline_fails_as_any_of_its_commands(
    tmp_path: Path, text: str, error: str | None, form: str
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash, and an old dash has no pipefail")
    script(tmp_path / "run.sh", f"#!/bin/sh\n{text}\n")
    words = ["sh", "-c", text] if form == "words" else ["./run.sh"]
    case = case_of(words, "p", "", folder=tmp_path)
    (row,) = sw.bench([case], ["glibc"], rounds=1, progress=False)
    assert (row["error"] is None) == (error is None)
    assert error is None or error in row["error"]


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["bash", "-c", "a | b"], ["bash", "-o", "pipefail", "-c", "a | b"]),
        (["bash", "-c", "a; b"], None),
        (["awk", "a | b"], None),
        (["./b.sh", "x"], ["/usr/bin/env-bash", "-o", "pipefail", "./b.sh", "x"]),
        (["./e.sh"], ["bash", "-o", "pipefail", "./e.sh"]),
        (["./p.py"], None),
        (["no-such-program"], None),
    ],
)
def test_words_of_a_shell_get_pipefail(
    tmp_path: Path, words: list[str], changed: list[str] | None
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    script(tmp_path / "b.sh", f"#!{bash}\na | b\n")
    script(tmp_path / "e.sh", "#!/usr/bin/env bash\na | b\n")
    script(tmp_path / "p.py", f"#!{sys.executable}\n1 | 2\n")
    wanted = [bash if one == "/usr/bin/env-bash" else one for one in changed or words]
    assert with_pipefail(words, None, tmp_path) == wanted


def test_plain_is_the_program_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython keeps pymalloc, nothing is preloaded; under the others neither holds."""
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    code = (
        "import os; open('seen', 'a').write(f'{os.environ.get(\"PYTHONMALLOC\")}"
        ' {bool(os.environ.get("LD_PRELOAD"))}\\n\')'
    )
    case = case_of([sys.executable, "-c", code], "p", "", folder=tmp_path)
    for name, seen in (("plain", "None False\n"), ("glibc", "malloc True\n")):
        (row,) = sw.bench([case], [name], rounds=1, progress=False)
        assert row["error"] is None and row["held_bytes"] is None
        assert (tmp_path / "seen").read_text() == seen
        (tmp_path / "seen").unlink()


# --- fits -----------------------------------------------------------------------------------------


@needs_recorder()
def test_a_table_is_fitted_to_the_first_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built by a stand-in: a copy of the installed malloc; made once, and predicted by ledgers."""

    def build(table: sw.SizeClassTable, folder: Path, **_: Any) -> Any:
        (folder / "lib").mkdir(parents=True, exist_ok=True)
        shutil.copy(_lib.native_library(MALLOC_LIBRARY), folder / "lib")
        return sw.Build(folder, {"table": table.to_dict()})

    recorded: list[Any] = []
    real: Callable[..., Any] = recorder.run_recorded

    def run_recorded(argv: Any, *words: Any, **options: Any) -> Any:
        recorded.append(argv)
        return real(argv, *words, **options)

    monkeypatch.setattr(bench_fits, "build", build)
    monkeypatch.setattr(bench_fits, "run_recorded", run_recorded)
    awk = 'BEGIN {{ for (i = 0; i < {}; i++) a[i] = i " " i }}'
    cases = [case_of(["awk", awk.format(n)], "awk", str(n)) for n in (9000, 3000)]
    fits = sw.fit_cases(cases, tmp_path, candidates=6, progress=False)
    fit = fits["awk"]
    assert len(recorded) == 2 and (fit.folder is not None) == fit.holds
    for number, case in enumerate(cases):
        recording = sw.Recording.open(tmp_path / f"awk/{number}.swt")
        assert fit.predicted[case.hash] == tuple(
            recording.ledger(table, "peak-resident").resident_bytes for table in ("c16", fit.table)
        )
    again = sw.fit_cases(cases, tmp_path, candidates=6, progress=False)
    assert len(recorded) == 2 and replace(again["awk"], table=fit.table) == fit
    assert again["awk"].table.hash == fit.table.hash
    if fit.folder is None:
        fits = {"awk": replace(fit, folder=build(fit.table, tmp_path / "copy").folder)}
    found = sw.bench(cases, QUICK, fits=fits, rounds=2, progress=False)
    assert found.allocators == [*QUICK, "fitted"] and not found.failures
    saving = found.saving("awk", "9000")
    assert saving is not None and abs(saving.median) < 10
    for row in found:
        stock, fitted = fit.predicted[row["case_hash"]]
        predicted = {"spanwise": stock, "glibc": None, "fitted": fitted}
        assert row["predicted_bytes"] == predicted[row["allocator"]]
    sw.fit_cases(cases[::-1], tmp_path, candidates=6, progress=False)
    assert len(recorded) == 4
    monkeypatch.setattr(bench_fits, "made_by", lambda: {"spanwise": "of other files"})
    sw.fit_cases(cases[::-1], tmp_path, candidates=6, progress=False)
    assert len(recorded) == 6


@needs_recorder()
def test_a_recorded_run_prints_into_a_pipe(tmp_path: Path) -> None:
    """As measured runs do; grep, for one, stops at the first match if stdout is /dev/null."""
    text = "test -p /dev/stdout && head -c 3000000 /dev/zero"
    case = case_of(["sh", "-c", text], folder=tmp_path)
    assert bench_fits.record_case(case, tmp_path / "0.swt").events > 0
    assert bench(case) == [None] * 3


@needs_recorder()
def test_nothing_is_fitted_to_a_run_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first input failed: no table. Another one failed: no prediction of it."""
    monkeypatch.setattr(
        bench_fits, "build", lambda *_words, **_options: pytest.fail("a table was built")
    )
    monkeypatch.chdir(tmp_path)
    work = "awk 'BEGIN { for (i = 0; i < 9000; i++) a[i] = i }'"
    bad = case_of(["sh", "-c", f"{work}; exit 3"], "job", "bad")
    piped = case_of(["sh", "-c", "false | cat"], "piped", "bad")
    fits = sw.fit_cases([bad, piped], "fits", candidates=2, progress=False)
    told = "not fitted: sh: ended with {} while it was recorded"
    for name, status in (("job", 3), ("piped", 1)):
        fit = fits[name]
        assert fit.verdict == fit.why_not == told.format(status)
        assert (fit.holds, fit.folder, dict(fit.predicted)) == (False, None, {})
        assert not (tmp_path / f"fits/{name}/0.swt").exists()
    good = case_of(["sh", "-c", work], "job", "good")
    fit = sw.fit_cases([good, bad], "fits", built=False, candidates=2, progress=False)["job"]
    assert set(fit.predicted) == {good.hash}
    assert not (tmp_path / "fits/job/fit.json").exists()  # so that the next call tries it again
    sw.fit_cases([good], "fits", built=False, candidates=2, progress=False)
    assert (tmp_path / "fits/job/fit.json").exists()
    assert main(["bench", "--fit", "fits", "--rounds", "1", "--", "sh", "-c", "exit 3"]) == 1
    out, err = capsys.readouterr()
    assert "sh: not fitted: sh: ended with 3 while it was recorded" in err
    assert "failed: sh: ended with 3" in out
    for word in ("saves", "Fitted tables", "compared with plain"):
        assert word not in out


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON"),
        ("{}", "must be a list of at least one case"),
        ("[]", "must be a list of at least one case"),
        ("[3]", "case 1: must be an object with argv"),
        ('[{"argv": ["a"]}, {"argv": []}]', "case 2: argv must be a list of words"),
        ('[{"argv": "ls"}]', "case 1: argv must be a list of words"),
        ('[{"argv": ["a"], "inputs": "b"}]', "unknown key 'inputs'; the keys are argv, env"),
        ('[{"argv": ["a"], "folder": 3}]', "case 1: folder must be a text"),
        ('[{"argv": ["a"], "environment": {"A": 1}}]', "environment must be an object of texts"),
    ],
)
def test_files_of_cases_that_are_wrong(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(content)
    with pytest.raises(sw.InvalidError, match=message):
        read_cases(path)


def test_arguments_that_are_refused(tmp_path: Path) -> None:
    wrong: tuple[tuple[list[sw.BenchCase], dict[str, Any], str], ...] = (
        ([], {}, "no case to run"),
        ([TRUE], {"rounds": 0}, "rounds 0: must be at least 1"),
        ([TRUE], {"timeout_s": 0}, "timeout_s 0: must be more than 0"),
        ([TRUE, case_of(["ls"], "true", "")], {}, "two different cases are called true"),
    )
    for cases, options, message in wrong:
        with pytest.raises(sw.InvalidError, match=message):
            sw.bench(cases, QUICK, **options)
    with pytest.raises(sw.InvalidError, match="allocator 'nomalloc': unknown; use spanwise, gl"):
        sw.bench([TRUE], ["nomalloc"])
    with pytest.raises(TypeError, match="executor must be an Executor, not str"):
        sw.bench([TRUE], QUICK, executor="threads")  # type: ignore[arg-type]


def test_an_allocator_that_is_not_here_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanwise.measure.bench_cases.loaded_library", lambda _name: None)
    found = sw.bench([TRUE], ["spanwise", "jemalloc"], rounds=1, progress=False)
    assert found.allocators == ["spanwise"]
    assert found.notes == ("jemalloc is not here: install libjemalloc2",)


# --- the command ----------------------------------------------------------------------------------


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--rounds", "2", "--allocator", "glibc", "-o", str(tmp_path / "f.jsonl")]
    forms = ["--csv", str(tmp_path / "f.csv"), "--plot", str(tmp_path / "f.png")]
    assert main([*words, *forms, "--", "true"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("medians and their intervals") and "2 runs in " in err
    assert (tmp_path / "f.csv").read_text().startswith("program,input,")
    assert (tmp_path / "f.png").stat().st_size > 5000
    assert main([*words, "--json", "--", "true"]) == 0
    assert [row["round"] for row in json.loads(capsys.readouterr().out)["rows"]] == [0, 1]
    cases = tmp_path / "cases.json"
    cases.write_text('[{"program": "no", "input": "luck", "argv": ["false"]}]')
    assert main(["bench", "--rounds", "1", "--allocator", "glibc", "--cases", str(cases)]) == 1
    assert "1 run failed: false: ended with 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --cases FILE.json, or one program after --"),
        (["--cases", "a.json", "--", "true"], "give --cases FILE.json, or one program after --"),
        (["--executor", "dusk", "--", "true"], "--executor dusk: give here, processes, dask"),
        (["--plot", "x.nothing", "--", "true"], "no picture has this ending"),
        (["--rounds", "0", "--", "true"], "rounds 0: must be at least 1"),
    ],
)
def test_commands_that_cannot_be(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


def test_seeds_are_fixed() -> None:
    assert bench_rounds.SEEDS == {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
