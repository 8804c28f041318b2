# SPDX-License-Identifier: Apache-2.0
"""Helpers of the Python tests: running commands and programs, operations, strategies."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import spanwise as sw
from hypothesis import strategies as st
from numpy.typing import NDArray
from spanwise import _lib
from spanwise.ledger.parts import PARTS
from spanwise.recordings.recording_set import Recordings

from tests.python.command_server import CommandServer

ROOT = Path(__file__).resolve().parents[2]
GO_TABLE = ROOT / "tests/data/go-sizeclasses.json"

ALLOC, FREE, REALLOC = 0, 1, 2


def needs_recorder() -> pytest.MarkDecorator:
    """Skip the test if programs cannot be recorded."""
    try:
        _lib.native_library("libspanwise-record.so")
    except sw.UnsupportedError as error:
        return pytest.mark.skipif(True, reason=str(error))
    return pytest.mark.skipif(False, reason="")


def needs_python_malloc() -> pytest.MarkDecorator:
    """Skip the test if CPython cannot allocate its objects with malloc, so recordings have none."""
    free_threaded = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
    reason = "a free-threaded CPython takes its objects from mimalloc"
    return pytest.mark.skipif(free_threaded, reason=reason)


def spanwise(
    *words: str | Path, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run the command line, without checking its status.

    The first run of each command, and runs with environment variables, start a new interpreter as
    for a user; other runs are forks of a process that has already started.
    """
    command = str(words[0]) if words else ""
    if env is not None or command not in _started:
        _started.add(command)
        return python("-m", "spanwise", *words, cwd=cwd, env=env)
    return _server().run(words, cwd)


_started: set[str] = set()


@functools.lru_cache
def _server() -> CommandServer:
    return CommandServer()


def python(
    *words: str | Path,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> subprocess.CompletedProcess[str]:
    """Run this interpreter, without checking its status."""
    return subprocess.run(
        [sys.executable, *map(str, words)],
        cwd=cwd,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=timeout,
        check=False,
    )


def has_open(pid: int, name: str) -> bool:
    """Return whether a process has a file of that name open."""
    with suppress(OSError):  # a file was closed, or the process has ended
        return any(link.readlink().name == name for link in Path(f"/proc/{pid}/fd").iterdir())
    return False


def script(path: Path, body: str) -> str:
    """Write a shell script as a program, such as a compiler that fails."""
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return str(path)


def compiled(folder: Path, code: str, *flags: str, name: str = "program.c") -> Path:
    """Compile a program of C or C++; skip the test where there is no compiler."""
    compiler = shutil.which("g++" if name.endswith(".cc") else "cc")
    if compiler is None:
        pytest.skip("there is no compiler on this machine")
    source = folder / name
    source.write_text(code, "utf-8")
    subprocess.run([compiler, "-O0", source, "-o", source.with_suffix(""), *flags], check=True)
    return source.with_suffix("")


def make_ops(*rows: tuple[int, int, int]) -> NDArray[np.void]:
    """Return operations from (kind, object, size), a microsecond apart."""
    ops = np.zeros(len(rows), sw.OPS_DTYPE)
    for i, (kind, object_id, size) in enumerate(rows):
        ops[i]["time_ns"] = 1000 * i
        ops[i]["kind"], ops[i]["object"], ops[i]["size"] = kind, object_id, size
    return ops


def random_ops(seed: int, count: int, threads: int = 3) -> NDArray[np.void]:
    """Return a valid history: all kinds, sizes up to 200 KiB, alignments, threads, pauses.

    Args:
        seed: of the generator.
        count: number of operations.
        threads: number of threads that allocate and free.
    """
    rng = np.random.default_rng(seed)
    ops = np.zeros(count, sw.OPS_DTYPE)
    live: list[int] = []
    free_ids: list[int] = []
    for i in range(count):
        kind = int(rng.choice([ALLOC, FREE, REALLOC], p=[0.5, 0.4, 0.1])) if live else ALLOC
        row = ops[i]
        row["kind"] = kind
        if kind == ALLOC:
            object_id = free_ids.pop() if free_ids else len(live)
            live.append(object_id)
        else:
            place = int(rng.integers(len(live)))
            object_id = live[place]
        if kind == FREE:
            live[place] = live[-1]
            live.pop()
            free_ids.append(object_id)
        else:
            row["size"] = int(2 ** rng.uniform(0, 17.6)) - 1
            if kind == ALLOC and rng.random() < 0.1:
                row["align_log2"] = int(rng.integers(3, 14))
        row["object"] = object_id
        row["flags"] = int(kind == ALLOC and rng.random() < 0.2)
    ops["thread"] = _dense_threads(rng.integers(0, threads, count))
    # Mostly fast, with pauses in which free pages decay.
    ops["time_ns"] = np.cumsum(np.where(rng.random(count) < 0.02, 400_000_000, 1000))
    return ops


def _dense_threads(threads: NDArray[np.int64]) -> NDArray[np.int64]:
    """Renumber threads in the order of their first appearance."""
    seen: dict[int, int] = {}
    return np.array([seen.setdefault(int(t), len(seen)) for t in threads], np.int64)


def histories() -> st.SearchStrategy[NDArray[np.void]]:
    """Return a strategy for valid histories of 1 to 600 operations."""
    return st.builds(
        random_ops, st.integers(0, 2**32 - 1), st.integers(1, 600), threads=st.integers(1, 4)
    )


def wanting(*sizes: int) -> sw.Recording:
    """Return a recording that requests these sizes and keeps the objects."""
    return sw.Recording.from_ops(make_ops(*((ALLOC, i, size) for i, size in enumerate(sizes))))


def by_peak(
    recordings: Recordings, classes: int = 24, objective: str = "peak", **options: Any
) -> sw.OptimizeResult:
    """Return the proposal for the peak, without a search, a bound on waste and a prior."""
    return sw.optimize(
        recordings, classes, objective, **{"waste_percent": 100, "prior": 0, **options}
    )


def parts_of(ledger: sw.Ledger) -> dict[str, int]:
    """Return the bytes of a ledger by part, and the sum."""
    return {name: getattr(ledger, name) for name in (*PARTS, "held_bytes", "live_objects")}


def assert_identity(ledger: sw.Ledger) -> None:
    """Check that the parts, and the classes, add up to the ledger's totals."""
    assert sum(getattr(ledger, name) for name in PARTS) == ledger.held_bytes
    small = ledger.classes[ledger.classes["cls"] > 0]
    for name in ("roundup_bytes", "tail_bytes", "free_slot_bytes"):
        assert int(small[name].sum()) == getattr(ledger, name), name
    assert int(ledger.classes["cached_bytes"].sum()) == ledger.cached_bytes
    assert int(ledger.classes["requested_bytes"].sum()) == ledger.requested_bytes
    assert int(ledger.classes["live_objects"].sum()) == ledger.live_objects
    spans = sum(int(small[name].sum()) for name in ("span_bytes",))
    slots = int((small["slots"] * small["size_bytes"]).sum())
    assert spans - slots == ledger.tail_bytes


def check_trace_events(events: list[dict[str, Any]]) -> None:
    """Check that each event has exactly the fields of its phase in the Trace Event Format."""
    base = {"ph", "pid", "tid", "name", "args"}
    fields = {
        "M": base,
        "C": base | {"ts"},
        "X": base | {"ts", "dur"},
        "i": base | {"ts", "s"},
        **dict.fromkeys("bne", base | {"ts", "cat", "id"}),
    }
    for event in events:
        assert set(event) == fields[event["ph"]]
        assert isinstance(event["tid"], int) and isinstance(event["name"], str)
        assert event.get("ts", 0) >= 0 and event.get("dur", 0) >= 0
        if event["ph"] == "C":
            assert all(isinstance(value, int) for value in event["args"].values())


def lives(pid: int | str) -> bool:
    """Return whether the process exists and is not a zombie."""
    try:
        return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition: Callable[[], object]) -> None:
    """Wait up to five minutes for a condition, which must then hold."""
    until = time.monotonic() + 300
    while not condition() and time.monotonic() < until:
        time.sleep(0.01)
    assert condition()


def in_threads(work: Callable[[int], object], count: int = 4, timeout: float = 600) -> None:
    """Run work(0), work(1), ... in parallel; raise the exception of one; fail on a timeout."""
    barrier = threading.Barrier(count)
    raised: list[BaseException] = []

    def start(number: int) -> None:
        try:
            barrier.wait()
            work(number)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=start, args=(n,), daemon=True) for n in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout)
    assert not any(thread.is_alive() for thread in threads)
    if raised:
        raise raised[0]
