# SPDX-License-Identifier: Apache-2.0
"""Replay recordings with real memory, in separate processes (docs/design/replay.md).

`spanwise-replay` (src/replay/) reads the operations from an anonymous file.
"""

from __future__ import annotations

import json
import os
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise.ledger.ledger import Ledger
from spanwise.ledger.parts import PARTS
from spanwise.measure.replay_result import SAMPLES_DTYPE, Replay, Run
from spanwise.measure.running import MALLOC_LIBRARY, built_table, find_preload
from spanwise.recordings.recording import Recording
from spanwise.recordings.recording_set import as_recording
from spanwise.recordings.simulate import most_resident
from spanwise.recordings.sources import OneThread
from spanwise.results.jobs import Progress, Step, progress_bar
from spanwise.results.rows import Result, Value, as_rows
from spanwise.tables.classes import file_specs
from spanwise.tables.table import SizeClassTable, as_table

PROGRAM = "spanwise-replay"
TOUCHES = ("none", "ends", "pages", "all")
POLL_SECONDS = 0.005

# struct ops_head of src/replay/plan.h
_HEAD = struct.Struct("<8sQQQ32x")
_MAGIC = b"swops\0\0\1"
_PROGRESS_OFFSET = 24

TIMELINE_DTYPE = np.dtype([("wall_ns", "<i8"), ("rss_bytes", "<i8")])
"""Readings from outside: time since the first operation, resident bytes."""


@dataclass(frozen=True)
class Allocator:
    """The allocator of a replay.

    Attributes:
        table: use a run-time heap of ours with this table instead of malloc.
    """

    label: str  # its name in tables and pictures
    preload: str = ""  # library for LD_PRELOAD, "" for none
    expects: str = ""  # start of the file name of malloc's library
    table: SizeClassTable | None = None
    missing: str = ""  # advice if the library is missing


PEERS = {
    "glibc": Allocator("glibc", "", "libc.so", missing="glibc is needed"),
    "jemalloc": Allocator(
        "jemalloc", "libjemalloc.so.2", "libjemalloc", missing="install libjemalloc2"
    ),
    "mimalloc": Allocator(
        "mimalloc", "libmimalloc.so.2", "libmimalloc", missing="install libmimalloc2.0"
    ),
    "tcmalloc": Allocator(
        "tcmalloc",
        "libtcmalloc_minimal.so.4",
        "libtcmalloc",
        missing="install libtcmalloc-minimal4",
    ),
}


def allocator_named(
    name: str, table: SizeClassTable | None = None, lib: str | os.PathLike[str] | None = None
) -> Allocator:
    """Return the allocator of a name, a table or a build."""
    if name != "spanwise" and (table is not None or lib is not None):
        option = "table" if table is not None else "lib"
        raise errors.InvalidError(f"{name}: has its own tables; {option} is for spanwise only")
    if table is not None and lib is not None:
        raise errors.InvalidError("table and lib: give one of them; a build has its own table")
    if table is not None:
        return Allocator(f"spanwise {table.name} (run time)", table=table)
    if lib is not None:
        preload = find_preload(lib, None)
        label = f"spanwise {built_table(lib) or Path(lib).name} (built)"
        return Allocator(label, str(preload), preload.name)
    if name == "spanwise":
        preload = _lib.native_library(MALLOC_LIBRARY)
        return Allocator("spanwise", str(preload), preload.name)
    if name in PEERS:
        return PEERS[name]
    path = Path(name)
    if os.sep in name and path.is_file():
        return Allocator(path.name, str(path.absolute()), path.name, missing="check the file")
    known = ", ".join(("spanwise", *PEERS))
    raise errors.InvalidError(
        f"allocator {name!r}: unknown; use {known} or the path of a library that defines malloc"
    )


# --- operations for the program -------------------------------------------------------------------


@contextmanager
def operations_file(recording: Recording) -> Iterator[int]:
    """Yield the descriptor of an anonymous file with the header and all operations."""
    fd = _nameless()
    try:
        with os.fdopen(os.dup(fd), "wb", buffering=0) as file:
            peak = recording.summary.peak_op
            _write(file, _HEAD.pack(_MAGIC, len(recording), peak, 0))
            for block in recording.blocks():
                _write(file, np.ascontiguousarray(block).view(np.uint8).data)
        yield fd
    finally:
        os.close(fd)


def _nameless() -> int:
    try:
        return os.memfd_create("spanwise-operations")
    except (AttributeError, OSError):
        with tempfile.TemporaryFile() as file:
            return os.dup(file.fileno())


def _write(file: Any, content: bytes | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        try:
            rest = rest[file.write(rest) :]
        except OSError as error:
            raise errors.RecordingIOError(
                f"operations for the replay cannot be written ({error.strerror});"
                " they take 32 bytes each",
                errno=error.errno,
            ) from None


def rewind(fd: int) -> None:
    """Reset the count of operations done."""
    os.pwrite(fd, bytes(8), _PROGRESS_OFFSET)


def table_words(table: SizeClassTable) -> str:
    """Return the argument for a table: PAGE_BYTES/SIZE:PAGES:FIRST_PAGES,..."""
    specs = file_specs(table.to_dict())
    classes = ",".join(f"{size}:{pages}:{first}" for size, pages, first in specs)
    return f"{table.page_bytes}/{classes}"


# --- running --------------------------------------------------------------------------------------


def run_program(
    fd: int, allocator: Allocator, words: Sequence[str], progress: Step | None = None
) -> tuple[dict[str, Any], NDArray[np.void]]:
    """Run the program on the operations of `fd`."""
    program = _lib.native_library(PROGRAM)
    rewind(fd)
    options = [*words]
    if allocator.expects:
        options.append(f"malloc={allocator.expects}")
    if allocator.table is not None:
        options.append(f"table={table_words(allocator.table)}")
    command = [str(program), f"/proc/self/fd/{fd}", *options]
    with (
        tempfile.TemporaryFile() as output,
        tempfile.TemporaryFile() as complaint,
        subprocess.Popen(
            command,
            env=_environment(allocator),
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=complaint,
        ) as child,
    ):
        try:
            seen = _poll(child, fd, progress)
        except BaseException:
            child.kill()
            child.wait()
            raise
        output.seek(0)
        complaint.seek(0)
        if child.returncode != 0:
            raise _failure(allocator, child.returncode, complaint.read())
        return json.loads(output.read()), seen


def _environment(allocator: Allocator) -> Mapping[str, str]:
    kept = {k: v for k, v in os.environ.items() if k not in ("LD_PRELOAD", "SPANWISE_REPLAY_FIXED")}
    return {**kept, "LD_PRELOAD": allocator.preload} if allocator.preload else kept


def _failure(allocator: Allocator, status: int, complaint: bytes) -> errors.ProgramError:
    lines = complaint.decode("utf-8", "replace").strip().splitlines()
    said = lines[-1] if lines else ""
    if status < 0:
        said = f"the replay was killed by signal {-status}{': ' + said if said else ''}"
    if said.startswith("malloc comes from") and allocator.missing:
        said = f"{allocator.preload or allocator.label} does not serve malloc; {allocator.missing}"
    return errors.ProgramError(f"{allocator.label}: {said or f'exit status {status}'}")


def _poll(child: subprocess.Popen[bytes], fd: int, progress: Step | None) -> NDArray[np.void]:
    """Read the resident bytes and the progress of the process until it ends."""
    rows: list[tuple[int, int]] = []
    page = os.sysconf("SC_PAGE_SIZE")
    statm = os.open(f"/proc/{child.pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    done = 0
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                child.wait(POLL_SECONDS)
            if child.returncode is not None:
                break
            with suppress(OSError):
                _, resident, shared = os.pread(statm, 128, 0).split()[:3]
                rows.append((time.monotonic_ns(), (int(resident) - int(shared)) * page))
            now = int.from_bytes(os.pread(fd, 8, _PROGRESS_OFFSET), "little")
            if progress is not None:  # with 0, too: a bar shows while the program waits (drain)
                progress(max(now - done, 0))
            done = max(done, now)
    finally:
        os.close(statm)
    if progress is not None:
        now = int.from_bytes(os.pread(fd, 8, _PROGRESS_OFFSET), "little")
        progress(now - done)
    return np.array(rows, TIMELINE_DTYPE)


# --- replays --------------------------------------------------------------------------------------

DRAIN_SECONDS = (0.1, 1.0, 5.0)
REPEAT_MAX = 1000


def replay(
    recording: Recording | str | os.PathLike[str],
    allocator: str = "spanwise",
    *,
    table: SizeClassTable | str | None = None,
    lib: str | os.PathLike[str] | None = None,
    touch: str = "pages",
    repeat: int = 1,
    samples: int = 256,
    drain: Sequence[float] = DRAIN_SECONDS,
    progress: Progress = None,
) -> Replay:
    """Replay a recording with real memory, in its own process.

    Each recorded thread becomes a thread, and operations on one object keep their order.

    Args:
        recording: a recording or its file.
        allocator: "spanwise", "glibc", "jemalloc", "mimalloc", "tcmalloc" or the path of a library
            that defines malloc.
        table: for spanwise: a run-time heap with this table instead of the preloaded malloc.
        lib: for spanwise: the preloaded malloc of a folder of `spanwise build`.
        touch: bytes written of each new object: "none", "ends", "pages" (a byte per 4 KiB and the
            ends) or "all".
        repeat: number of replays, each in a fresh process.
        samples: approximate number of readings of resident memory; 1 to 4000.
        drain: times of further readings, seconds after everything was freed, ascending.
        progress: as in `Recording.ledger`.

    Raises:
        InvalidError: for an argument that is not allowed, or a recording without operations.
        ProgramError: the allocator is missing or does not serve malloc, or the replay crashed.
        TraceFormatError: the recording is truncated or damaged.
    """
    served = allocator_named(allocator, as_table(table) if table is not None else None, lib)
    replays = replay_many(
        recording,
        [served],
        touch=touch,
        repeat=repeat,
        samples=samples,
        drain=drain,
        progress=progress,
    )
    return replays[0]


def replay_many(
    recording: Recording | str | os.PathLike[str],
    allocators: Sequence[Allocator],
    *,
    touch: str = "pages",
    repeat: int = 1,
    samples: int = 256,
    drain: Sequence[float] = DRAIN_SECONDS,
    progress: Progress = None,
) -> list[Replay]:
    """Replay as `replay` does under several allocators, with interleaved runs."""
    source = as_recording(recording)
    rounds = _lib.as_index(repeat, "repeat", REPEAT_MAX)
    if rounds == 0:
        raise errors.InvalidError("repeat 0: give at least 1")
    words = [
        f"touch={_touch(touch)}",
        f"samples={_lib.as_index(samples, 'samples', 4000)}",
        f"drain={','.join(str(ms) for ms in _drain_ms(drain))}",
    ]
    if len(source) == 0:
        raise errors.InvalidError(f"{source.name}: no operations; record something that allocates")
    results: list[list[dict[str, Any]]] = [[] for _ in allocators]
    runs: list[list[Run]] = [[] for _ in allocators]
    total = len(source) * rounds * len(allocators)
    with (
        operations_file(source) as fd,
        progress_bar(progress, total, "replay", "operations") as step,
    ):
        for _ in range(rounds):
            for i, allocator in enumerate(allocators):
                output, seen = run_program(fd, allocator, words, step)
                results[i].append(output)
                runs[i].append(_run(output, seen, source.summary.peak_op))
    alone = OneThread(source.source)
    ideal_bytes = most_resident(alone, as_table("c16"))
    return [
        Replay(
            source=source.name,
            allocator=allocator.label,
            ops=source.events,
            threads=results[i][0]["threads"],
            crossings=results[i][0]["crossings"],
            peak_requested_bytes=source.summary.peak_requested_bytes,
            ideal_bytes=ideal_bytes,
            touch=touch,
            above_table=_above(source, allocator.table),
            runs=tuple(runs[i]),
        )
        for i, allocator in enumerate(allocators)
    ]


def _touch(touch: str) -> str:
    if touch not in TOUCHES:
        raise errors.InvalidError(f"touch {touch!r}: use {', '.join(TOUCHES)}")
    return touch


def _drain_ms(seconds: Sequence[float]) -> list[int]:
    times = [round(at * 1000) for at in seconds]
    if (
        len(times) > 16
        or times != sorted(set(times))
        or any(not 0 <= t <= 3_600_000 for t in times)
    ):
        raise errors.InvalidError(
            f"drain {', '.join(f'{at:g}' for at in seconds)}: give at most 16 rising times, in"
            " seconds, to an hour"
        )
    return times


def _run(output: dict[str, Any], seen: NDArray[np.void], peak_op: int) -> Run:
    own = output["own_rss_bytes"]
    samples = np.array([tuple(row) for row in output["samples"]], SAMPLES_DTYPE)
    samples["rss_bytes"] = np.maximum(samples["rss_bytes"] - own, 0)
    timeline = seen[seen["wall_ns"] >= output["first_ns"]]
    timeline["wall_ns"] -= output["first_ns"]
    timeline["rss_bytes"] = np.maximum(timeline["rss_bytes"] - own, 0)
    for rows in (samples, timeline):
        rows.flags.writeable = False
    outside = int(timeline["rss_bytes"].max()) if len(timeline) else 0
    at_peak = samples["rss_bytes"][samples["op"] == peak_op]
    return Run(
        **{name: output[name] for name in ("cpu_ns", "elapsed_ns", "waited_ns", "waits")},
        **{name: output[name] for name in ("overhead_ns", "failed", "minor_faults", "plan_bytes")},
        own_bytes=own,
        startup_rss_bytes=output["startup_rss_bytes"],
        peak_rss_bytes=max(int(samples["rss_bytes"].max()), outside),
        rss_at_peak_bytes=int(at_peak[0]) if len(at_peak) else 0,
        drained_rss_bytes=max(output["drained_rss_bytes"] - own, 0),
        left_bytes={ms / 1000: max(left - own, 0) for ms, left in output["returned"]},
        malloc=output["malloc"],
        addresses=_addresses(output),
        samples=as_rows(samples),
        timeline=as_rows(timeline),
    )


def _addresses(output: dict[str, Any]) -> tuple[int, int] | None:
    if output["threads"] > 1:
        return None
    return output["address_digest_peak"], output["address_digest_end"]


def _above(recording: Recording, table: SizeClassTable | None) -> int | None:
    if table is None:
        return None
    sizes = recording.histogram()
    return int(sizes["count"][sizes["size_bytes"] > table.largest_bytes].sum())


# --- the ledger of a replay -----------------------------------------------------------------------


@dataclass(frozen=True, repr=False, eq=False)
class LedgerCheck(Result, Value):
    """The ledger of a tracked heap with real memory, and that of the simulator.

    Attributes:
        measured: parts of the real heap's ledger in bytes, and held_bytes, spans, live_objects.
        model: the simulator's ledger.
    """

    measured: dict[str, int]
    model: Ledger

    @property
    def different(self) -> dict[str, tuple[int, int]]:
        """Unequal parts: (measured, model); empty if all are equal to the byte."""
        pairs = {
            name: (self.measured[name], int(getattr(self.model, name))) for name in self.measured
        }
        return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "table": self.model.table,
            "at": self.model.at,
            "equal": not self.different,
            "measured": self.measured,
            "model": {name: int(getattr(self.model, name)) for name in self.measured},
        }

    def __str__(self) -> str:
        names = {**PARTS, "held_bytes": "held"}
        rows = [
            (title, _format.number(self.measured[name]), _format.number(getattr(self.model, name)))
            for name, title in names.items()
        ]
        head = ("", "real heap", "simulator")
        verdict = "equal to the byte" if not self.different else "NOT equal"
        title = f"{self.model.source} under {self.model.table} at {self.model.at}, bytes: {verdict}"
        return f"{title}\n{_format.table(rows, head, indent='  ')}"

    __repr__ = __str__


def check_ledger(
    recording: Recording | str | os.PathLike[str],
    table: SizeClassTable | str = "c16",
    at: str = "peak",
    *,
    touch: bool = True,
    progress: Progress = None,
) -> LedgerCheck:
    """Compare the ledger of a replay on a tracked heap with the simulator's.

    One thread replays with the recording's clock and a thread cache per recorded thread.

    Args:
        recording: a recording or its file.
        table: size classes, or a table's name.
        at: "peak" or "end".
        touch: write the ends of each object.
        progress: as in `Recording.ledger`.

    Raises:
        InvalidError: for another `at`, or a recording without operations. Others as in `replay`.
    """
    source = as_recording(recording)
    made = as_table(table)
    if at not in ("peak", "end"):
        raise errors.InvalidError(f"at {at!r}: use peak or end")
    if len(source) == 0:
        raise errors.InvalidError(f"{source.name}: no operations; record something that allocates")
    stop = source.summary.peak_op if at == "peak" else len(source)
    words = [f"ledger={stop}", f"touch={'ends' if touch else 'none'}"]
    with (
        operations_file(source) as fd,
        progress_bar(progress, len(source), "replay", "operations") as step,
    ):
        output, _ = run_program(fd, Allocator("spanwise", table=made), words, step)
    return LedgerCheck(output["ledger"], source.ledger(made, at))
