# SPDX-License-Identifier: Apache-2.0
"""Workers that share no disk with the sweep are sent its recordings, once each."""

from __future__ import annotations

import hashlib
import multiprocessing
import os
import socket
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.sweeps import dispatcher, inputs

from tests.python.sweeps.sweep_tools import MANY, TABLES, expected, hide, settled


@pytest.fixture
def far_away(files: list[str]) -> Iterator[ProcessPoolExecutor]:
    """Two workers that do not see the folder of the recordings."""
    spawn = multiprocessing.get_context("spawn")
    folder = str(Path(files[0]).parent)
    with ProcessPoolExecutor(2, spawn, initializer=hide, initargs=(folder,)) as executor:
        yield executor


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that were sent, in order."""
    paths: list[str] = []

    def content_of(recording: dict[str, Any]) -> bytes:
        paths.append(recording["path"])
        return inputs.content_of(recording)

    monkeypatch.setattr(dispatcher, "content_of", content_of)
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


def test_what_is_too_large_is_refused_with_the_mend(
    files: list[str], far_away: ProcessPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "SENT_BYTES_MAX", 10)
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
    recording = {"path": str(place), "sha256": inputs.file_sha256(str(place))}
    assert inputs.content_of(recording) == place.read_bytes()
    place.write_bytes(Path(files[1]).read_bytes())
    with pytest.raises(sw.InvalidError, match="changed since the sweep began"):
        inputs.content_of(recording)
