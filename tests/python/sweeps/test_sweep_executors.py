# SPDX-License-Identifier: Apache-2.0
"""Sweeps: equal on every executor, with dead workers and with workers that lack the files."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.sweeps import engines, tasks, worker

from tests.python.helpers import random_ops
from tests.python.sweeps.sweep_tools import MANY, TABLES, expected, hide, lines_of, settled

# --- executors ------------------------------------------------------------------------------------


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
        return worker.run_task(text)

    with cluster.get_client() as client:
        real = client.get_executor()

        class Deadly(Executor):
            _client = client

            def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
                made: Future[Any] = real.submit(deadly, *args, **kwargs)
                return made

        found = sw.sweep(files[0], TABLES, executor=Deadly())
    assert [row["table"] for row in found.failures] == ["pow2"], found.failures
    assert "worker died" in found.failures[0]["error"]
    wanted = [row for row in expected(files[:1]) if row["table"] != "pow2"]
    assert settled(row for row in found if row["error"] is None) == wanted
    assert any("lost with their worker" in note for note in found.notes)


class Losing(Executor):
    """Threads whose first results for each of some tables are lost on their way."""

    def __init__(
        self, tables: Sequence[str], times: int, error: type[Exception] = ValueError
    ) -> None:
        self.pool = ThreadPoolExecutor(2)
        self.left = dict.fromkeys(tables, times)
        self.error = error

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Runs the task; its result may be lost."""

        def run() -> Any:
            rows = fn(*args, **kwargs)
            for name in {row["table"] for row in rows} & self.left.keys():
                self.left[name] -= 1
                if self.left[name] >= 0:
                    raise self.error("not enough values to unpack")
            return rows

        return self.pool.submit(run)


def test_a_result_that_is_lost_on_its_way_is_computed_again(files: list[str]) -> None:
    found = sw.sweep(files, TABLES, executor=Losing(["c16"], 1))
    assert settled(found) == expected(files)
    assert not found.failures


def test_a_result_that_is_always_lost_is_a_failed_row(files: list[str]) -> None:
    found = sw.sweep(files[0], TABLES, executor=Losing(["pow2"], 99))
    assert [(row["table"], row["error"]) for row in found.failures] == [
        ("pow2", "ValueError: not enough values to unpack")
    ]
    assert len(found) == len(TABLES)


class KilledWorker(Exception):  # noqa: N818 - its name there
    """As dask's: the scheduler lost the worker that had the task, for whatever reason."""

    __module__ = "distributed.scheduler"


@pytest.mark.parametrize(("times", "failed"), [(2, []), (3, ["pow2"])])
def test_a_cluster_may_lose_a_worker_under_a_table_that_is_alone(
    files: list[str], times: int, failed: list[str]
) -> None:
    """With others, then once alone: the table is tried again. Alone twice: it is the failed row."""
    found = sw.sweep(files[0], TABLES, executor=Losing(["pow2"], times, KilledWorker))
    assert [row["table"] for row in found.failures] == failed
    assert all("its worker died: KilledWorker" in row["error"] for row in found.failures)
    assert len(found) == len(TABLES)


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
        client.wait_for_workers(2, timeout=300)
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
from spanwise.sweeps import engines
def deadly(text, content):
    if '"name": "pow2"' in text:
        os._exit(9)
    return engines.run_in_worker(text, content)
"""


def test_a_process_that_dies_at_one_table(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sweep_deadly.py").write_text(DEADLY, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    module = __import__("sweep_deadly")
    submit = engines.ProcessEngine.submit

    def changed(self: Any, task: Any, content: bytes | None = None) -> Any:
        return self._pool.submit(module.deadly, task.to_json(), content)

    monkeypatch.setattr(engines.ProcessEngine, "submit", changed)
    path = tmp_path / "s.jsonl"
    found = sw.sweep(files[0], TABLES, executor="processes", workers=1, output=path)
    (failed,) = found.failures
    assert failed["table"] == "pow2" and "worker died" in failed["error"]
    wanted = expected(files[:1])
    assert settled(row for row in found if row["error"] is None) == [
        row for row in wanted if row["table"] != "pow2"
    ]
    monkeypatch.setattr(engines.ProcessEngine, "submit", submit)
    again = sw.sweep(files[0], TABLES, executor="processes", workers=1, output=path)
    assert settled(again) == wanted  # the failed row alone was done again
    assert "4 rows reused" in again.notes


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


# --- workers without the files --------------------------------------------------------------------


@pytest.fixture
def far_away(files: list[str]) -> Iterator[ProcessPoolExecutor]:
    """Start two workers that do not see the folder of the recordings."""
    spawn = multiprocessing.get_context("spawn")
    folder = str(Path(files[0]).parent)
    with ProcessPoolExecutor(2, spawn, initializer=hide, initargs=(folder,)) as executor:
        yield executor


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the files that are sent, in order."""
    paths: list[str] = []

    def content_of(recording: dict[str, Any]) -> bytes:
        paths.append(recording["path"])
        return tasks.content_of(recording)

    monkeypatch.setattr(engines, "content_of", content_of)
    return paths


def test_what_a_worker_lacks_is_sent(
    files: list[str], far_away: ProcessPoolExecutor, sent: list[str]
) -> None:
    found = sw.sweep(files, TABLES, executor=far_away)
    assert settled(found) == expected(files)
    assert set(sent) == set(files)


def test_it_is_sent_about_once_a_worker(
    files: list[str], far_away: ProcessPoolExecutor, sent: list[str]
) -> None:
    """Once for each worker, and once more where the file came to the other one."""
    found = sw.sweep(files[0], [*TABLES, *MANY], executor=far_away)
    assert not found.failures
    assert 1 <= len(sent) <= 4


def test_on_a_cluster(
    files: list[str], sent: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The workers really have another folder under the name that the recordings' folder has here.

    /proc/self/cwd is the folder that a process is in; theirs is empty, and stays so.
    """
    distributed = pytest.importorskip("distributed", reason="the extra cluster is not installed")
    monkeypatch.chdir(Path(files[0]).parent)
    here = [f"/proc/self/cwd/{Path(one).name}" for one in files]
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
        ) as cluster,
        cluster.get_client() as client,
    ):
        client.run(os.chdir, str(tmp_path))
        assert not any(client.run(Path.exists, Path(here[0])).values()) and Path(here[0]).exists()
        found = sw.sweep(here, TABLES, executor=client.get_executor())
    assert settled(found) == expected(files)
    assert set(sent) == set(here) and not list(tmp_path.iterdir())
    digests = {hashlib.sha256(Path(one).read_bytes()).hexdigest() for one in files}
    assert {row["recording_sha256"] for row in found} == digests


def test_what_is_too_large_is_refused_with_advice(
    files: list[str], far_away: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks, "SENT_BYTES_MAX", 10)
    found = sw.sweep(files[0], TABLES[:2], executor=far_away)
    assert len(found.failures) == 2
    for row in found.failures:
        assert row["error"] == (
            f"{files[0]}: is not on {socket.gethostname()}; put the same file there, under the same"
            " name; 0 MiB are not sent to workers (0 MiB are)"
        )


def test_what_changed_meanwhile_is_not_sent(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "a.swt"
    place.write_bytes(Path(files[0]).read_bytes())
    recording = {"path": str(place), "sha256": tasks.file_sha256(str(place))}
    assert tasks.content_of(recording) == place.read_bytes()
    place.write_bytes(Path(files[1]).read_bytes())
    with pytest.raises(sw.InvalidError, match="changed since the sweep began"):
        tasks.content_of(recording)
