# SPDX-License-Identifier: Apache-2.0
"""Sweeps: rows, answers, failures, the command, files of rows, executors and workers that die."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.sweeps import tasks
from spanwise.sweeps.sweep import make_plan
from spanwise.sweeps.tasks import LEDGER_FIELDS, STATS_FIELDS

from tests.python.helpers import random_ops, spanwise

TABLES = ["go", "c16", "pow2", "geometric-1.2", "geometric-1.4"]
MANY = [f"geometric-{1.1 + i / 20:.2f}" for i in range(12)]
CHANGING = ("seconds", "worker")


def settled(rows: Any) -> list[dict[str, Any]]:
    """Return rows without the fields that differ from run to run."""
    return [{key: v for key, v in row.items() if key not in CHANGING} for row in rows]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def expected(files: list[str]) -> list[dict[str, Any]]:
    """Return the rows of one thread, which other rows must equal."""
    return settled(sw.sweep(files, TABLES, workers=1))


def hide(folder: str) -> None:
    """In a worker, hide the files of a folder, as on a machine with another disk."""
    real = tasks.file_sha256

    def sha256(path: str) -> str:
        if path.startswith(folder):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path)

    tasks.file_sha256 = sha256


# --- what a row says ------------------------------------------------------------------------------

KNOBS = sw.HeapOptions(placement="lasting", batch_spans=2)


@pytest.mark.parametrize("at", ["peak", "peak-resident", "end", 0.5, "250ms"])
def test_rows_are_the_ledgers(files: list[str], at: str | float) -> None:
    inside = sw.Recording.from_ops(random_ops(3, 2500))
    recordings = [*(sw.Recording.open(path) for path in files), inside]
    found = sw.sweep(recordings, TABLES, at=at, options=KNOBS, workers=1)
    assert not found.failures
    assert [(r["recording"], r["table"]) for r in found] == [
        (one.name, table) for one in recordings for table in TABLES
    ]
    for i, row in enumerate(found):
        recording = recordings[i // len(TABLES)]
        ledger = recording.ledger(row["table"], at, options=KNOBS)
        assert {n: row[n] for n in LEDGER_FIELDS} == {n: getattr(ledger, n) for n in LEDGER_FIELDS}
        assert {n: row[n] for n in STATS_FIELDS} == {
            n: getattr(ledger.stats, n) for n in STATS_FIELDS
        }
        assert row["events"] == len(recording)


def test_the_same_twice_is_done_once(files: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    sw.SizeClassTable.custom(
        [(c["size_bytes"], c["span_bytes"] // 8192) for c in sw.SizeClassTable.go().classes],
        name="mine",
    ).to_json(copy)
    found = sw.sweep([files[0], files[0]], ["go", str(copy), "go"])
    assert len(found) == 1
    assert found.notes == ("mine is the same table as go: omitted",)


def test_recordings_of_one_name_stay_apart(files: list[str]) -> None:
    pair = [sw.Recording.from_ops(random_ops(seed, 500)) for seed in (5, 6)]
    found = sw.sweep(pair, ["go", "pow2"])
    assert len({row["recording"] for row in found}) == 2
    assert found.ranking()[0][1] == sum(
        r["peak_resident_bytes"] for r in found if r["table"] == found.best().name
    )


# --- failures -------------------------------------------------------------------------------------


def test_failures_stay_as_rows(files: list[str], tmp_path: Path) -> None:
    damaged = tmp_path / "damaged.swt"
    raw = bytearray(Path(files[0]).read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    damaged.write_bytes(raw)
    missing, wrong = str(tmp_path / "missing.json"), tmp_path / "wrong.json"
    wrong.write_text("{", encoding="utf-8")
    found = sw.sweep([damaged, *files, tmp_path / "absent.swt"], ["go", missing, str(wrong), "c16"])
    fine = [row for row in found if row["error"] is None]
    assert settled(fine) == settled(sw.sweep(files, ["go", "c16"]))
    of = {(row["recording"], row["table"]): row["error"] for row in found.failures}
    assert "byte" in of["damaged.swt", "go"] or "offset" in of["damaged.swt", "go"]
    assert any(name.endswith("absent.swt") for name, _ in of)
    assert "No such file" in of[Path(files[0]).name, missing]
    assert "wrong.json" in of[Path(files[0]).name, str(wrong)]
    assert found.best().name in ("go", "c16")
    assert f"{len(found.failures)} rows failed" in str(found)


def test_another_file_at_the_path_is_refused(files: list[str]) -> None:
    plan = make_plan(files[0], ["go", "c16"], "peak", False, None)
    plan.recordings[0]["sha256"] = "0" * 64
    rows = [r for task in plan.tasks() for r in tasks.run_task(task.to_json())]
    assert len(rows) == 2
    assert all("put the same file there" in row["error"] for row in rows)


def test_a_worker_with_another_spanwise_is_refused(files: list[str]) -> None:
    plan = make_plan(files[0], "go", "peak", False, None)
    (task,) = plan.tasks()
    text = task.to_json().replace(f'"library": "{sw.__version__}"', '"library": "0.0.1"')
    (row,) = tasks.run_task(text)
    assert "the sweep 0.0.1" in row["error"]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"recordings": []}, sw.InvalidError, "no recording"),
        ({"tables": []}, sw.InvalidError, "no table"),
        ({"tables": ["nonsense"]}, sw.InvalidError, "unknown table 'nonsense'"),
        ({"tables": [3]}, TypeError, "table must be"),
        ({"recordings": [3]}, TypeError, "recording must be"),
        ({"executor": "abacus"}, TypeError, "executor must be"),
        ({"workers": 0}, sw.InvalidError, "workers 0"),
        ({"at": "noon"}, sw.InvalidError, "moment 'noon'"),
        ({"options": {"placement": "lifo"}}, TypeError, "options must be HeapOptions"),
        ({"recordings": "absent.swt"}, sw.RecordingIOError, "absent.swt"),
        ({"tables": "absent.json"}, OSError, "absent.json"),
    ],
)
def test_wrong_arguments(
    files: list[str], change: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        sw.sweep(**{"recordings": files, "tables": "go", **change})


# --- answers --------------------------------------------------------------------------------------


def test_answers(files: list[str]) -> None:
    found = sw.sweep(files, TABLES)
    rows = found.array
    assert rows.shape == (10,) and rows["ok"].all()
    assert rows["held_bytes"].tolist() == [row["held_bytes"] for row in found]
    ranking = found.ranking("waste_bytes")
    sums = {t: int(rows["waste_bytes"][rows["table"] == t].sum()) for t in TABLES}
    assert dict(ranking) == sums
    assert found.best("waste_bytes") == sw.SizeClassTable.named(min(sums, key=sums.__getitem__))
    one = found.ranking(recording=found[0]["recording"])
    assert dict(one) == {row["table"]: row["peak_resident_bytes"] for row in found[:5]}
    with pytest.raises(sw.InvalidError, match="field 'size' is unknown"):
        found.best("size")
    with pytest.raises(sw.InvalidError, match="recording 'x'"):
        found.best(recording="x")
    assert "sweep of 2 recordings under 5 tables at peak" in repr(found)
    assert "<table>" in found._repr_html_()
    assert json.loads(json.dumps(found.to_dict()))["best"] == found.best().name
    assert len(found.plot().get_yticklabels()) == 5
    failed = sw.Sweep([{**found[0], "error": "x", "held_bytes": None, "seconds": None}], ())
    assert not failed.array["ok"][0] and np.isnan(failed.array["seconds"][0])
    with pytest.raises(sw.StateError, match="no table"):
        failed.best()


def test_who_refuses_is_not_best(files: list[str]) -> None:
    found = sw.sweep(files[0], ["go", "pow2"])
    worse = {**found[1], "failed": 1, "held_bytes": 0, "peak_resident_bytes": 0}
    specs = [tasks.table_spec(sw.SizeClassTable.named(name)) for name in ("go", "pow2")]
    assert sw.Sweep([found[0], worse], specs).best().name == "go"


def test_progress_bar(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sw.sweep(files, "go")
    assert capsys.readouterr().err == ""  # no terminal
    sw.sweep(files, "go", progress=True)
    assert "2/2" in capsys.readouterr().err
    sw.sweep([files[0], "absent.swt"], ["go", "c16"], progress=True)
    assert "4/4" in capsys.readouterr().err  # failed rows are rows


def test_to_pandas(files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    found = sw.sweep(files[0], "go")
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(sw.UnsupportedError, match="pandas is not installed"):
        found.to_pandas()


# --- the command ----------------------------------------------------------------------------------


def test_command(files: list[str], tmp_path: Path) -> None:
    for name in ("a", "b"):
        sw.SizeClassTable.custom([16, 64, ord(name) * 16, 8192], name=name).to_json(
            tmp_path / f"{name}.json"
        )
    path = tmp_path / "s.jsonl"
    words = ["sweep", *files, "--table", "go", "--table", str(tmp_path / "*.json")]
    words += ["-o", str(path)]
    done = spanwise(*words)
    assert done.returncode == 0, done.stderr
    assert "sweep of 2 recordings under 3 tables" in done.stdout
    assert "6 rows in" in done.stderr
    again = spanwise(*words, "--json", "--plot", tmp_path / "s.png", "--by", "roundup_bytes")
    assert again.returncode == 0, again.stderr
    assert len(json.loads(again.stdout)["rows"]) == 6
    assert (tmp_path / "s.png").stat().st_size > 1000


def test_command_with_failures_and_bad_input(files: list[str], tmp_path: Path) -> None:
    words: list[str]
    failed = spanwise("sweep", files[0], "--table", "go", "--table", tmp_path / "absent.json")
    assert failed.returncode == 1 and "failed:" in failed.stdout
    for words in (
        ["absent.swt"],
        [files[0], "--table", "nonsense"],
        [files[0], "--table", "absent*.json"],
        [files[0], "--executor", "abacus"],
        [files[0], "--by", "nonsense"],
        [files[0], "--workers", "0"],
        [files[0], "-o", files[1]],
    ):
        bad = spanwise("sweep", *words, cwd=tmp_path)
        assert bad.returncode == 2, words
        assert bad.stderr.startswith("spanwise: ") and bad.stderr.count("\n") == 1, words


def test_command_without_dask(
    files: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["sweep", files[0], "--executor", "dask"]) == 2
    assert "pip install 'spanwise[cluster]'" in capsys.readouterr().err


# --- the file -------------------------------------------------------------------------------------


def test_rows_go_to_a_file(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    counts: list[int] = []
    found = sw.sweep(files, TABLES, output=path, progress=counts.append)
    head, *rows = lines_of(path)
    assert sum(counts) == len(rows) == len(found) == 10
    assert head["versions"]["spanwise"] == sw.__version__ and "commit" in head and head["build"]
    assert [one["path"] for one in head["recordings"]] == files
    assert [one["sha256"] for one in head["recordings"]] == [
        tasks.file_sha256(path) for path in files
    ]
    assert head["tables"][0]["hash"] == f"{sw.SizeClassTable.go().hash:016x}"
    assert {row.pop("kind") for row in rows} == {"row"}
    assert sorted(rows, key=str) == sorted(found, key=str)
    opened = sw.Sweep.open(path)
    assert sorted(opened, key=str) == sorted(found, key=str)
    assert opened.best() == found.best()


def test_a_cut_line_is_dropped(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], TABLES[:3], output=path, workers=1)
    whole = path.read_bytes()
    for cut in [*range(1, 40), *range(40, len(whole), 97)]:
        path.write_bytes(whole[:cut])
        complete = whole[:cut].endswith(b"\n")
        opened = sw.Sweep.open(path)
        assert bool(opened.notes) == (not complete), cut
        assert len(opened) == max(whole[:cut].count(b"\n") - 1, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("notes of mine\n", "not the file of a sweep"),
        ('{"kind": "spanwise sweep", "format": 2}\n', "line 1: format 2"),
        ("HEAD{}\nHEAD", "line 2: not a line of a sweep .neither header nor row.; remove it"),
        ('HEAD{"kind": "row"}\nHEAD', "without recording"),
    ],
)
def test_other_files_are_no_sweeps(
    files: list[str], tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    head = path.read_text(encoding="utf-8").splitlines(keepends=True)[0]
    path.write_text(content.replace("HEAD", head), encoding="utf-8")
    with pytest.raises(sw.InvalidError, match=message) as caught:
        sw.Sweep.open(path)
    assert str(path) in str(caught.value)


def test_an_earlier_file_is_replaced_unless_it_is_of_another_kind(
    files: list[str], tmp_path: Path
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], TABLES, output=path)
    found = sw.sweep(files[0], "go", output=path, at="end")
    assert settled(sw.Sweep.open(path)) == settled(found) and len(found) == 1
    path.write_text("notes of mine")
    for place in (path, files[1]):
        before = Path(place).read_bytes()
        with pytest.raises(sw.InvalidError, match="give another name"):
            sw.sweep(files[0], "go", output=place)
        assert Path(place).read_bytes() == before


def test_a_full_disk_keeps_written_rows(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write, calls = tmp_path / "s.jsonl", os.write, []

    def few_bytes_then_full(fd: int, raw: bytes) -> int:
        calls.append(fd)
        if len(calls) > 60:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(fd, raw[:100])

    monkeypatch.setattr(os, "write", few_bytes_then_full)
    with pytest.raises(OSError, match="No space left") as caught:
        sw.sweep(files[0], TABLES, output=path, workers=1)
    monkeypatch.undo()
    assert caught.value.filename == str(path)
    assert 1 <= len(sw.Sweep.open(path)) < len(TABLES)


# --- stops ----------------------------------------------------------------------------------------


def test_an_interrupted_sweep_has_its_rows(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    rows = 0

    def interrupt(count: int) -> None:
        nonlocal rows
        rows += count
        if rows >= 4:
            raise KeyboardInterrupt

    with pytest.raises(sw.SweepInterrupted) as caught:
        sw.sweep(files, TABLES, output=path, workers=1, progress=interrupt)
    kept = len(caught.value.result)
    assert 4 <= kept < 10
    assert kept == len(sw.Sweep.open(path))


LONG_SWEEP = """
    import sys
    import time
    import numpy as np
    import spanwise as sw
    def main():
        tables = [f"geometric-{1.2 + i / 1000:.3f}" for i in range(200)]
        def progress(count):
            print(count, flush=True)
            if count >= 150:  # however late the signal is, there is something left to do
                time.sleep(600)
        sw.sweep(sys.argv[1], tables, output=sys.argv[2], workers=2, progress=progress)
    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_leaves_its_rows(tmp_path: Path, number: signal.Signals) -> None:
    long = tmp_path / "long.swt"
    ops = np.zeros(100_000, sw.OPS_DTYPE)
    ops["kind"][1::2] = 1
    ops["size"][0::2] = 100
    sw.Recording.from_ops(ops, long)
    script, path = tmp_path / "long.py", tmp_path / "s.jsonl"
    script.write_text(textwrap.dedent(LONG_SWEEP), encoding="utf-8")
    words = [sys.executable, str(script), str(long), str(path)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.kill()
        process.wait(300)
        assert process.returncode != 0
    before = sw.Sweep.open(path)
    kept = len(before)
    assert 0 < kept < 200


# --- executors ------------------------------------------------------------------------------------


def processes(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("kind", ["own threads", "threads", "processes"])
def test_equal_on_threads_and_processes(files: list[str], kind: str) -> None:
    if kind == "own threads":
        found = sw.sweep(files, TABLES, workers=2)
    else:
        made: Executor = ThreadPoolExecutor(2) if kind == "threads" else processes(2)
        with made as executor:
            found = sw.sweep(files, TABLES, executor=executor)
            assert executor.submit(os.getpid).result()  # it stays the caller's
    assert settled(found) == expected(files)
    workers = {row["worker"].rpartition(":")[2] for row in found}
    assert (workers == {str(os.getpid())}) == ("threads" in kind)


def test_memory_goes_to_processes_by_file() -> None:
    inside = sw.Recording.from_ops(random_ops(4, 2000), name="inside")
    here = sw.sweep(inside, TABLES)
    with processes(1) as executor:
        there = sw.sweep(inside, TABLES, executor=executor)
    assert settled(there) == settled(here)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    dask = pytest.importorskip("dask")
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=str(tmp_path_factory.mktemp("dask")),
        ) as local,
    ):
        yield local


def test_equal_on_a_dask_cluster(files: list[str], cluster: Any, tmp_path: Path) -> None:
    inside = sw.Recording.from_ops(random_ops(4, 2000), name="inside")
    recordings = [*files, inside]
    with cluster.get_client() as client:
        path = tmp_path / "s.jsonl"
        found = sw.sweep(recordings, TABLES, executor=client.get_executor(), output=path)
        pids = {str(pid) for pid in client.run(os.getpid).values()}
    assert settled(found) == settled(sw.sweep(recordings, TABLES))
    assert len(pids) == 2
    assert {row["worker"].rpartition(":")[2] for row in found} <= pids
    assert lines_of(path)[0]["executor"] == "ClientExecutor, 2"


class Losing(Executor):
    """Threads of which the results for one table are lost on their way."""

    def __init__(self) -> None:
        self.pool = ThreadPoolExecutor(2)

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs the task; its result may be lost."""

        def run() -> Any:
            rows = fn(*args, **kwargs)
            if any(row["table"] == "pow2" for row in rows):
                raise ValueError("not enough values to unpack")
            return rows

        return self.pool.submit(run)


def test_a_result_that_is_lost_is_a_failed_row(files: list[str]) -> None:
    found = sw.sweep(files[0], TABLES, executor=Losing())
    assert [(row["table"], row["error"]) for row in found.failures] == [
        ("pow2", "ValueError: not enough values to unpack")
    ]
    fine = [row for row in expected(files[:1]) if row["table"] != "pow2"]
    assert settled(row for row in found if row["error"] is None) == fine


def killer(pids: Any) -> Callable[[int], None]:
    """A progress callback that kills one of the processes at the first row."""
    killed: list[int] = []

    def progress(_count: int) -> None:
        if not killed:
            killed.append(sorted(pids())[0])
            os.kill(killed[0], signal.SIGKILL)

    return progress


# --- workers that die -----------------------------------------------------------------------------


def test_a_process_killed_in_mid_sweep(files: list[str]) -> None:
    """The rows of its tasks fail, and no others."""
    others = set(multiprocessing.active_children())  # the cluster's
    progress = killer(lambda: [p.pid for p in set(multiprocessing.active_children()) - others])
    with processes(2) as executor:
        first = sw.sweep(files, MANY, executor=executor, progress=progress)
    assert 0 < len(first.failures) < len(first)
    assert {str(row["error"]).partition(": ")[0] for row in first.failures} <= {
        "its worker died",
        "no workers left",
    }
    fine = [row["error"] is None for row in first]
    every = settled(sw.sweep(files, MANY))
    assert [row for row, ok in zip(settled(first), fine, strict=True) if ok] == [
        row for row, ok in zip(every, fine, strict=True) if ok
    ]


def test_without_any_worker_all_rows_fail(files: list[str]) -> None:
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    found = sw.sweep(files[0], ["go", "c16"], executor=closed)
    assert len(found.failures) == 2
    assert "no workers left" in found[0]["error"]


# --- workers without the files --------------------------------------------------------------------


def test_a_worker_without_the_file(files: list[str]) -> None:
    spawn = multiprocessing.get_context("spawn")
    folder = str(Path(files[0]).parent)
    with ProcessPoolExecutor(1, spawn, initializer=hide, initargs=(folder,)) as executor:
        found = sw.sweep(files[0], TABLES[:2], executor=executor)
    error = f"{files[0]}: is not on {socket.gethostname()}; put the same file there, under the same"
    assert [row["error"] for row in found] == [f"{error} name"] * 2
