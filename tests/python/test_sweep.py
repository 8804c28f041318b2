# SPDX-License-Identifier: Apache-2.0
"""Sweeps: equal on every executor, streamed to a file, resumed, and never lost."""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from spanwise import _lib, _sweep_plan, _sweep_pool, _sweep_task
from spanwise.__main__ import main
from spanwise._sweep_task import LEDGER_FIELDS, ROW_FIELDS, STATS_FIELDS
from spanwise.simulate import Simulation

from tests.python.helpers import ROOT, python, random_ops, spanwise

TABLES = ["go", "c16", "pow2", "geometric-1.2", "geometric-1.4"]
MANY = [f"geometric-{1.1 + i / 20:.2f}" for i in range(12)]
CHANGING = ("seconds", "worker")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    folder = tmp_path_factory.mktemp("recordings")
    paths = [str(folder / f"{seed}.swt") for seed in (1, 2)]
    for seed, path in enumerate(paths):
        sw.Recording.from_ops(random_ops(seed, 3000), path)
    return paths


def settled(rows: Any) -> list[dict[str, Any]]:
    """Rows without what differs from run to run."""
    return [{key: v for key, v in row.items() if key not in CHANGING} for row in rows]


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


# --- what a row says ------------------------------------------------------------------------------


@pytest.mark.parametrize("at", ["peak", "end", 0.5, "250ms"])
@pytest.mark.parametrize("together", [1, 4])
def test_rows_are_the_ledgers(
    files: list[str], at: str | float, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sweep_plan, "TABLES_A_TASK", together)
    monkeypatch.setattr(_sweep_task, "BLOCK_OPS", 700)  # the moment falls inside a block
    inside = sw.Recording.from_ops(random_ops(3, 2500))
    recordings = [*(sw.Recording.open(path) for path in files), inside]
    found = sw.sweep(recordings, TABLES, at=at, placement="fullest", workers=1)
    assert not found.failures
    assert [(r["recording"], r["table"]) for r in found] == [
        (one.name, table) for one in recordings for table in TABLES
    ]
    for i, row in enumerate(found):
        recording = recordings[i // len(TABLES)]
        ledger = recording.ledger(row["table"], at, placement="fullest")
        assert {n: row[n] for n in LEDGER_FIELDS} == {n: getattr(ledger, n) for n in LEDGER_FIELDS}
        assert {n: row[n] for n in STATS_FIELDS} == {
            n: getattr(ledger.stats, n) for n in STATS_FIELDS
        }
        assert row["events"] == len(recording)


def test_one_of_each_is_enough(files: list[str]) -> None:
    found = sw.sweep(Path(files[0]), sw.SizeClassTable.go())
    assert len(found) == 1 and found[0]["table"] == "go"
    assert tuple(found[0]) == ROW_FIELDS


def test_the_same_twice_is_done_once(files: list[str], tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    sw.SizeClassTable.custom(
        [(c["size"], c["span_bytes"] // 8192) for c in sw.SizeClassTable.go().classes], name="mine"
    ).to_json(copy)
    found = sw.sweep([files[0], files[0]], ["go", str(copy), "go"])
    assert len(found) == 1
    assert found.notes == ("mine is the same table as go: left out",)


def test_recordings_of_one_name_stay_apart(files: list[str]) -> None:
    pair = [sw.Recording.from_ops(random_ops(seed, 500)) for seed in (5, 6)]
    found = sw.sweep(pair, ["go", "pow2"])
    assert len({row["recording"] for row in found}) == 2
    assert found.ranking()[0][1] == sum(
        r["held_bytes"] for r in found if r["table"] == found.best().name
    )


# --- executors ------------------------------------------------------------------------------------


def expected(files: list[str]) -> list[dict[str, Any]]:
    return settled(sw.sweep(files, TABLES, workers=1))


@pytest.mark.parametrize("kind", ["threads", "processes", "given threads", "given processes"])
def test_equal_on_threads_and_processes(files: list[str], kind: str) -> None:
    if kind in ("threads", "processes"):
        found = sw.sweep(files, TABLES, executor=kind, workers=2)
    else:
        spawn = multiprocessing.get_context("spawn")
        made: Executor = (
            ThreadPoolExecutor(2) if "threads" in kind else ProcessPoolExecutor(2, spawn)
        )
        with made as executor:
            found = sw.sweep(files, TABLES, executor=executor)
            assert executor.submit(os.getpid).result()  # it stays the caller's
    assert settled(found) == expected(files)
    workers = {row["worker"].rpartition(":")[2] for row in found}
    assert (workers == {str(os.getpid())}) == ("threads" in kind)


def test_memory_goes_to_processes_by_file() -> None:
    inside = sw.Recording.from_ops(random_ops(4, 2000), name="inside")
    here = sw.sweep(inside, TABLES)
    there = sw.sweep(inside, TABLES, executor="processes", workers=1)
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


def test_a_dask_worker_that_dies(files: list[str], cluster: Any) -> None:
    """One table kills its worker: it is the failed row, all others are there."""

    def deadly(text: str, *_: Any) -> Any:  # travels by value
        if '"name": "pow2"' in text:
            os._exit(9)
        return _sweep_task.run_task(text)

    with cluster.get_client() as client:
        real = client.get_executor()

        class Deadly(Executor):
            _client = client

            def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
                made: Future[Any] = real.submit(deadly, *args, **kwargs)
                return made

        found = sw.sweep(files[0], TABLES, executor=Deadly())
    (failed,) = found.failures
    assert failed["table"] == "pow2" and "worker died" in failed["error"]
    wanted = [row for row in expected(files[:1]) if row["table"] != "pow2"]
    assert settled(row for row in found if row["error"] is None) == wanted
    assert any("lost with their worker" in note for note in found.notes)


def killer(pids: Any) -> Callable[[int], None]:
    """A progress callback that kills one of the processes at the first row."""
    killed: list[int] = []

    def progress(_count: int) -> None:
        if not killed:
            killed.append(sorted(pids())[0])
            os.kill(killed[0], signal.SIGKILL)

    return progress


def test_a_dask_worker_killed_in_mid_sweep(files: list[str], cluster: Any) -> None:
    with cluster.get_client() as client:
        client.wait_for_workers(2, timeout=30)
        progress = killer(lambda: client.run(os.getpid).values())
        found = sw.sweep(files, MANY, executor=client.get_executor(), progress=progress)
    assert settled(found) == settled(sw.sweep(files, MANY))


# --- workers that die -----------------------------------------------------------------------------


def test_a_process_killed_in_mid_sweep(files: list[str]) -> None:
    others = set(multiprocessing.active_children())  # the cluster's
    progress = killer(lambda: [p.pid for p in set(multiprocessing.active_children()) - others])
    found = sw.sweep(files, MANY, executor="processes", workers=2, progress=progress)
    assert settled(found) == settled(sw.sweep(files, MANY))
    assert any("lost with their worker" in note for note in found.notes)


DEADLY = """
import os
from spanwise import _sweep_pool
def deadly(text):
    if '"name": "pow2"' in text:
        os._exit(9)
    return _sweep_pool.run_in_worker(text)
"""


def test_a_process_that_dies_at_one_table(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweep_deadly.py").write_text(DEADLY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("sweep_deadly")
    submit = _sweep_pool.ProcessEngine.submit

    def changed(self: Any, task: Any) -> Any:
        return self._pool.submit(module.deadly, task.to_json())

    monkeypatch.setattr(_sweep_pool.ProcessEngine, "submit", changed)
    path = tmp_path / "s.jsonl"
    found = sw.sweep(files[0], TABLES, executor="processes", workers=1, output=path)
    (failed,) = found.failures
    assert failed["table"] == "pow2" and "worker died" in failed["error"]
    wanted = expected(files[:1])
    assert settled(row for row in found if row["error"] is None) == [
        row for row in wanted if row["table"] != "pow2"
    ]
    monkeypatch.setattr(_sweep_pool.ProcessEngine, "submit", submit)
    again = sw.sweep(files[0], TABLES, executor="processes", workers=1, output=path)
    assert settled(again) == wanted  # the failed row alone was done again
    assert "4 rows were there and not computed again" in again.notes


def test_a_given_pool_that_breaks_is_replaced(files: list[str]) -> None:
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, spawn) as executor:
        victim = executor.submit(os.getpid).result()
        os.kill(victim, signal.SIGKILL)
        found = sw.sweep(files, TABLES, executor=executor)
    assert settled(found) == expected(files)


def test_without_any_worker_all_rows_fail(files: list[str]) -> None:
    closed = ThreadPoolExecutor(1)
    closed.shutdown()
    found = sw.sweep(files[0], ["go", "c16"], executor=closed)
    assert len(found.failures) == 2
    assert "no workers left" in found[0]["error"]


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
        _sweep_task.file_sha256(path) for path in files
    ]
    assert head["tables"][0]["hash"] == f"{sw.SizeClassTable.go().hash:016x}"
    assert {row.pop("kind") for row in rows} == {"row"}
    assert sorted(rows, key=str) == sorted(found, key=str)
    opened = sw.Sweep.open(path)
    assert sorted(opened, key=str) == sorted(found, key=str)
    assert opened.best() == found.best()


def test_a_sweep_goes_on(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], TABLES[:2], output=path)
    before = path.read_bytes()
    counts: list[int] = []
    found = sw.sweep(files, TABLES, output=path, progress=counts.append)
    assert sum(counts) == 8
    assert path.read_bytes().startswith(before)
    assert settled(found) == expected(files)
    assert "2 rows were there and not computed again" in found.notes
    after = path.read_bytes()
    assert settled(sw.sweep(files, TABLES, output=path)) == settled(found)
    assert path.read_bytes() == after  # nothing to do: nothing written


def test_a_cut_line_is_dropped(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    wanted = settled(sw.sweep(files[0], TABLES[:3], output=path, workers=1))
    whole = path.read_bytes()
    for cut in [*range(1, 40), *range(40, len(whole), 97)]:
        path.write_bytes(whole[:cut])
        complete = whole[:cut].endswith(b"\n")
        assert bool(sw.Sweep.open(path).notes) == (not complete), cut
    for cut in (1, 30, len(whole) - 1, len(whole) - 400):
        path.write_bytes(whole[:cut])
        found = sw.sweep(files[0], TABLES[:3], output=path)
        assert settled(found) == wanted
        assert any("was cut; it is dropped" in note for note in found.notes), cut
        assert not sw.Sweep.open(path).notes


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("notes of mine\n", "not the file of a sweep"),
        ('{"kind": "spanwise sweep", "format": 2}\n', "line 1: format 2"),
        ("HEAD{}\nHEAD", "line 2, byte"),
        ('HEAD{"kind": "row"}\nHEAD', "without recording"),
    ],
)
def test_other_files_are_left_alone(
    files: list[str], tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    head = path.read_text(encoding="utf-8").splitlines(keepends=True)[0]
    path.write_text(content.replace("HEAD", head), encoding="utf-8")
    before = path.read_bytes()
    with pytest.raises(sw.InvalidError, match=message) as caught:
        sw.sweep(files[0], "go", output=path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


def test_a_file_has_one_moment_and_one_writer(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    with pytest.raises(sw.InvalidError, match="holds a sweep with at peak, not end"):
        sw.sweep(files[0], "go", output=path, at="end")
    with pytest.raises(sw.InvalidError, match="knobs"):
        sw.sweep(files[0], "go", output=path, decay_ms=3)

    def second(_count: int) -> None:
        with pytest.raises(sw.StateError, match="another sweep writes to it"):
            sw.sweep(files[0], "c16", output=path)

    sw.sweep(files[0], "pow2", output=path, progress=second)
    with pytest.raises(sw.InvalidError, match="not a regular file"):
        sw.sweep(files[0], "go", output="/dev/null")


def test_a_full_disk_keeps_what_was_written(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.jsonl"
    sw.sweep(files[0], "go", output=path)
    before = path.read_bytes()

    def full(_fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left") as caught:
            sw.sweep(files[0], TABLES, output=path)
    assert caught.value.filename == str(path)
    assert path.read_bytes() == before
    assert len(sw.sweep(files[0], TABLES, output=path)) == len(TABLES)


def test_without_rows_there_is_no_file(files: list[str], tmp_path: Path) -> None:
    path = tmp_path / "s.jsonl"
    with pytest.raises(sw.TraceFormatError):
        sw.sweep(__file__, "go", output=path)
    with pytest.raises(sw.InvalidError):
        sw.sweep(files, "go", output=path, executor="abacus")
    assert not path.exists()


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
    assert settled(sw.sweep(files, TABLES, output=path)) == expected(files)


LONG_SWEEP = """
    import sys
    import numpy as np
    import spanwise as sw
    def main():
        tables = [f"geometric-{1.2 + i / 1000:.3f}" for i in range(200)]
        def tell(count):
            print(count, flush=True)
        sw.sweep(sys.argv[1], tables, executor=sys.argv[2], output=sys.argv[3], workers=2,
                 progress=tell)
    if __name__ == "__main__":
        main()
"""


def assert_ends(pid: int) -> None:
    """A worker of a parent that is gone does not stay."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii")
        except (FileNotFoundError, ProcessLookupError):
            return
        if text.rpartition(")")[2].split()[0] == "Z":  # in a container without an init
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} is still there")


@pytest.mark.parametrize("executor", ["threads", "processes"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_goes_on(tmp_path: Path, executor: str, number: signal.Signals) -> None:
    long = tmp_path / "long.swt"
    ops = np.zeros(200_000, sw.OPS_DTYPE)
    ops["kind"][1::2] = 1
    ops["size"][0::2] = 100
    sw.Recording.from_ops(ops, long)
    script, path = tmp_path / "long.py", tmp_path / "s.jsonl"
    script.write_text(textwrap.dedent(LONG_SWEEP), encoding="utf-8")
    words = [sys.executable, str(script), str(long), executor, str(path)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        if number == signal.SIGINT:
            os.killpg(process.pid, number)  # as a terminal does
        else:
            process.kill()
        process.wait(90)
        assert process.returncode != 0
    before = sw.Sweep.open(path)
    kept = len(before)
    assert 0 < kept < 200
    for pid in {int(row["worker"].rpartition(":")[2]) for row in before}:
        assert_ends(pid)
    tables = [f"geometric-{1.2 + i / 1000:.3f}" for i in range(200)]
    counts: list[int] = []
    found = sw.sweep(str(long), tables, output=path, progress=counts.append)
    # Tables that differ by a thousandth may be equal: those are done once.
    assert not found.failures
    assert len(found) - sum(counts) == kept


def test_the_simulation_leaves_the_gil() -> None:
    """While one thread simulates in a single C call, this one runs."""
    ops = np.zeros(4_000_000, sw.OPS_DTYPE)
    ops["kind"][1::2] = 1
    ops["size"][0::2] = 100
    simulation = Simulation(sw.SizeClassTable.go())
    begun, ended = threading.Event(), threading.Event()

    def work() -> None:
        start = _lib.pointer(ops, "const sw_op *")
        begun.set()
        _lib.lib.sw_runner_run(simulation._runner, start, len(ops), 0, _lib.ffi.NULL, _lib.ffi.NULL)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    ticks = 0
    while not ended.is_set():
        ticks += 1
        time.sleep(
            0.0005
        )  # gives the GIL up: with it held in C this loop turns a few times at most
    thread.join()
    simulation.close()
    assert ticks > 10


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
    plan = _sweep_plan.make_plan(files[0], ["go", "c16"], "peak", False, {})
    plan.recordings[0]["sha256"] = "0" * 64
    rows = [r for task in plan.tasks(set(), 1) for r in _sweep_task.run_task(task.to_json())]
    assert len(rows) == 2
    assert all("put the same file there" in row["error"] for row in rows)


def test_a_worker_with_another_spanwise_is_refused(files: list[str]) -> None:
    plan = _sweep_plan.make_plan(files[0], "go", "peak", False, {})
    (task,) = plan.tasks(set(), 1)
    text = task.to_json().replace(f'"library": "{sw.__version__}"', '"library": "0.0.1"')
    (row,) = _sweep_task.run_task(text)
    assert "the sweep 0.0.1" in row["error"]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"recordings": []}, sw.InvalidError, "no recording"),
        ({"tables": []}, sw.InvalidError, "no table"),
        ({"tables": ["nonsense"]}, sw.InvalidError, "unknown table 'nonsense'"),
        ({"tables": [3]}, TypeError, "table must be"),
        ({"recordings": [3]}, TypeError, "recording must be"),
        ({"executor": "abacus"}, sw.InvalidError, "executor 'abacus'"),
        ({"executor": 3}, TypeError, "executor must be"),
        ({"workers": 0}, sw.InvalidError, "workers 0"),
        ({"at": "noon"}, sw.InvalidError, "moment 'noon'"),
        ({"placement": "best"}, sw.InvalidError, "placement 'best'"),
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
    assert dict(one) == {row["table"]: row["held_bytes"] for row in found[:5]}
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
    worse = {**found[1], "failed": 1, "held_bytes": 0}
    specs = [_sweep_task.table_spec(sw.SizeClassTable.named(name)) for name in ("go", "pow2")]
    assert sw.Sweep([found[0], worse], specs).best().name == "go"


def test_progress_bar(files: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    sw.sweep(files, "go")
    assert capsys.readouterr().err == ""  # no terminal
    sw.sweep(files, "go", progress=True)
    assert "2/2" in capsys.readouterr().err


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
    assert "6 rows were there" in again.stderr
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


def test_loop_speed_runs() -> None:
    done = python(ROOT / "bench/loop_speed.py", "--quick", "--rows", "simulator", "--json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert row["ours"] > 0 and row["verdict"] == "reported"
