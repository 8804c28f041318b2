# SPDX-License-Identifier: Apache-2.0
"""Runs one program once under one allocator; tells what it used, printed and wrote."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.launch import Usage

from real.launch import environment, finish, start, stop
from real.programs import Program

READY_S = 20.0
LAST_WORDS_S = 2.0  # seconds for a server to end after a client has failed
CLIENT_S = 120.0
# With fixed keys, what the store holds afterwards does not depend on the order of clients.
REDIS_TESTS = "set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,mset"


@dataclass(frozen=True)
class Place:
    """Where a program runs.

    Attributes:
        launcher: of build_launcher.
        scratch: folder for runs, emptied after each.
        inputs: what the program's `prepare` wrote.
        size: {size}.
    """

    launcher: Path
    scratch: Path
    inputs: Path
    size: str


@dataclass(frozen=True)
class Outcome:
    """What a run used and left.

    Attributes:
        usage: time, memory, failure.
        left: bytes by name: stdout, stderr, artefacts (absent when not written).
        extra: further figures, by name with their unit.
    """

    usage: Usage
    left: Mapping[str, bytes] = field(default_factory=dict)
    extra: Mapping[str, float] = field(default_factory=dict)


def run_once(program: Program, preload: str, place: Place) -> Outcome:
    """Runs a program in an empty folder, with the library preloaded."""
    with tempfile.TemporaryDirectory(dir=place.scratch) as folder:
        cwd = Path(folder) / "work"
        cwd.mkdir()
        return DRIVERS[program.driver](program, preload, place, cwd)


def _process(program: Program, preload: str, place: Place, cwd: Path) -> Outcome:
    command = program.words(program.command, place.inputs, place.size)
    process = start(place.launcher, preload, command, cwd, program.environment)
    usage = finish(process, cwd)
    return Outcome(usage, {**_said(cwd), **_artefacts(program, cwd)})


def _said(cwd: Path) -> dict[str, bytes]:
    return {name: (cwd.parent / name).read_bytes() for name in ("stdout", "stderr")}


def _artefacts(program: Program, cwd: Path) -> dict[str, bytes]:
    return {name: (cwd / name).read_bytes() for name in program.artefacts if (cwd / name).is_file()}


# --- redis ----------------------------------------------------------------------------------------


def _redis(program: Program, preload: str, place: Place, cwd: Path) -> Outcome:
    """Only the server is preloaded; clients send to it through a unix socket in its folder."""
    options = "--port 0 --unixsocket redis.sock --appendonly no --enable-debug-command yes"
    options += " --jemalloc-bg-thread no --loglevel warning --logfile server.log"
    server = cwd.parent / "redis-server"  # the program decides by its name what it is
    server.symlink_to(shutil.which("redis-check-rdb") or "redis-check-rdb")
    command = [str(server), *options.split(), "--save", ""]
    process = start(place.launcher, preload, command, cwd, program.environment)
    said: list[bytes] = []
    extra: dict[str, float] = {}
    problem, wall_s = "", 0.0
    try:
        began = _wait_ready(cwd, process)
        said = _drive_redis(cwd, place)
        wall_s = time.perf_counter() - began
        extra = _redis_memory(cwd)
        _client(cwd, "redis-cli", "shutdown", "nosave")
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        problem = f"{error}; "
    except BaseException:
        stop(process)
        raise
    used = finish(process, cwd, LAST_WORDS_S if problem else READY_S)
    failed = problem + f"redis-server {used.error or 'ended well'}" if problem else used.error
    usage = Usage(wall_s, used.cpu_s, used.peak_rss_bytes, failed)
    return Outcome(usage, {"replies": b"\n".join(said), **_said(cwd)}, extra)


def _client(cwd: Path, program: str, *words: str, given: bytes = b"") -> bytes:
    """Runs a client to its end.

    Raises:
        RuntimeError: it failed.
    """
    done = subprocess.run(
        [program, "-s", "redis.sock", *words],
        cwd=cwd,
        env=environment(cwd, {}),
        input=given,
        capture_output=True,
        timeout=CLIENT_S,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        raise RuntimeError(f"{program} {' '.join(words[:2])}: {last}")
    return done.stdout.strip()


def _wait_ready(cwd: Path, process: subprocess.Popen[bytes]) -> float:
    """Waits for the socket; returns the time at which it was there.

    Raises:
        RuntimeError: the server ended or never listened.
    """
    limit = time.perf_counter() + READY_S
    while time.perf_counter() < limit:
        with socket.socket(socket.AF_UNIX) as probe, contextlib.suppress(OSError):
            probe.connect(str(cwd / "redis.sock"))
            return time.perf_counter()
        if process.poll() is not None:
            raise RuntimeError("redis-server ended before it listened")
        time.sleep(0.005)
    raise RuntimeError(f"redis-server did not listen within {READY_S:.0f} s")


def _drive_redis(cwd: Path, place: Place) -> list[bytes]:
    """Loads the store, then runs redis-benchmark; returns what must not depend on the allocator."""
    commands = (place.inputs / "store.resp").read_bytes()
    loaded = _client(cwd, "redis-cli", "--pipe", given=commands).splitlines()[-1]
    digests = [_client(cwd, "redis-cli", "debug", "digest")]
    count = str(100 * int(place.size))
    for data in ("16", "1024"):
        words = ("-q", "-n", count, "-c", "20", "-P", "8", "-d", data, "-t", REDIS_TESTS)
        _client(cwd, "redis-benchmark", *words)
    digests.append(_client(cwd, "redis-cli", "debug", "digest"))
    return [loaded, *digests, _client(cwd, "redis-cli", "dbsize")]


def _redis_memory(cwd: Path) -> dict[str, float]:
    """What the server tells of its memory at the end, bytes."""
    text = _client(cwd, "redis-cli", "info", "memory").decode()
    rows = dict(line.strip().split(":", 1) for line in text.splitlines() if ":" in line)
    wanted = {"used_memory": "used_bytes", "used_memory_rss": "end_rss_bytes"}
    return {name: float(rows[key]) for key, name in wanted.items() if key in rows}


DRIVERS: Mapping[str, Callable[[Program, str, Place, Path], Outcome]] = {
    "process": _process,
    "redis": _redis,
}
