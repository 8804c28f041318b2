# SPDX-License-Identifier: Apache-2.0
"""Sweeps: equal on every executor; what dead workers and workers without the files leave."""

from __future__ import annotations

import multiprocessing
import os
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw

from tests.python.helpers import random_ops
from tests.python.sweeps.sweep_tools import MANY, TABLES, expected, hide, lines_of, settled

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


def test_a_result_that_is_lost_is_a_failed_row(
    files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spanwise.sweeps.sweep.TABLES_A_TASK", 1)
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
