# SPDX-License-Identifier: Apache-2.0
"""Snapshots of a recording whose program still runs."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import spanwise as sw
from spanwise.recordings.snapshot import take_snapshot

from tests.python.helpers import compiled, needs_recorder

THREADS = 4
SERVER = """
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { THREADS = 4 };
static _Atomic unsigned long *counts; /* shared with the test: kept objects of each thread */

/* Keeps each 20th object, of 1001 to 1004 bytes; others come and go. */
static void *serve(void *arg) {
    long mine = (long)arg;
    while (access("enough", F_OK) != 0) {
        for (int k = 0; k < 19; k++) free(memset(malloc(16 + k), 1, 16));
        if (memset(malloc(1001 + mine), 1, 1001) == NULL) return NULL;
        atomic_fetch_add(&counts[mine], 1);
        usleep(500);
    }
    return NULL;
}

int main(void) {
    int file = open("counts", O_RDWR);
    counts = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, serve, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}
"""


@contextmanager
def recorded_server(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    (folder / "counts").write_bytes(bytes(4096))
    words = [sys.executable, "-m", "spanwise", "record", *options, "-o", "a.swt", "--"]
    program = compiled(folder, SERVER, "-pthread", name="server.c")
    done = subprocess.Popen([*words, str(program)], cwd=folder, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while not counts(folder).all() and done.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        yield done
    finally:
        (folder / "enough").touch()
        done.communicate()


def counts(folder: Path) -> np.ndarray:
    """The kept objects of each thread so far."""
    return np.fromfile(folder / "counts", "<u8", THREADS)


def snapshot(command: subprocess.Popen[str]) -> str:
    """Ask for a snapshot and return the line that says which."""
    command.send_signal(signal.SIGUSR1)
    assert command.stderr is not None
    line = command.stderr.readline()
    return line if not line.startswith("Trace") else line + command.stderr.read()


@needs_recorder()
def test_snapshots_are_whole(tmp_path: Path) -> None:
    """Each has all objects that were kept before it, none that were kept after it, and no gaps."""
    rounds = 100 if os.environ.get("SPANWISE_FULL_TESTS") else 4
    with recorded_server(tmp_path) as command:
        for i in range(1, rounds + 1):
            before = counts(tmp_path)
            said = snapshot(command)
            after = counts(tmp_path)
            assert said.startswith(f"a.snapshot-{i}.swt: snapshot, "), said
            assert "MiB; the program was stopped for " in said
            found = sw.Recording.open(tmp_path / f"a.snapshot-{i}.swt")
            assert found.summary.gaps() == []
            live = found.live_histogram("end")
            kept = [
                int(live["count"][live["size_bytes"] == 1001 + k].sum()) for k in range(THREADS)
            ]
            # A thread may have been stopped between an allocation and its count.
            assert all(a <= n <= b + 1 for a, n, b in zip(before, kept, after, strict=True))
    assert command.returncode == 0
    whole = sw.Recording.open(tmp_path / "a.swt")
    assert whole.summary.gaps() == [] and whole.summary.incomplete == 0
    assert whole.live_histogram("end")["count"].sum() >= counts(tmp_path).sum()
    assert not list(tmp_path.glob(".spanwise-*"))


@needs_recorder()
def test_a_snapshot_replaces_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.snapshot-1.swt").write_text("mine", "utf-8")
    with recorded_server(tmp_path, "--sample", "4K") as command:
        assert snapshot(command).startswith("a.snapshot-2.swt: snapshot, ")
    assert (tmp_path / "a.snapshot-1.swt").read_text("utf-8") == "mine"
    assert sw.SampledRecording.open(tmp_path / "a.snapshot-2.swt").estimate("thread")


@needs_recorder()
def test_no_snapshot_where_it_cannot_be_written(tmp_path: Path) -> None:
    """The program goes on, and its recording is whole."""
    with recorded_server(tmp_path) as command:
        (folder,) = tmp_path.glob(".spanwise-*")
        (folder / "snapshot").write_text("in the way", "utf-8")
        assert snapshot(command).startswith("no snapshot: ")
        (folder / "snapshot").unlink()
        assert snapshot(command).startswith("a.snapshot-1.swt: ")
    assert command.returncode == 0
    assert sw.Recording.open(tmp_path / "a.swt").summary.gaps() == []


def test_a_program_that_has_ended(tmp_path: Path) -> None:
    done = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, done.pid, os.WEXITED | os.WNOWAIT)
    (tmp_path / "raw").mkdir()
    raw = tmp_path / "raw/a.swt"
    raw.touch()
    said = take_snapshot(done.pid, raw, tmp_path, tmp_path / "a.swt")
    assert said == "no snapshot: the program has ended, or does not record yet"
    assert done.wait() == 0  # its status is still there
