# SPDX-License-Identifier: Apache-2.0
"""Run programs under the preloaded malloc, and read the ledgers that it writes at exit.

docs/design/preload.md describes the ledger files.
"""

from __future__ import annotations

import json
import operator
import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise.heap.options import HeapOptions, as_options, check_real
from spanwise.ledger.ledger import LEDGER_CLASS_DTYPE, Ledger
from spanwise.ledger.parts import C_NAMES, OUTSIDE, PARTS, SUMS, RunStats
from spanwise.recordings.programs import (
    Use,
    examine,
    passing_on,
    preload_of,
    python_variables,
    seen_from,
    wait_for,
    words_of,
)
from spanwise.results.files import READING_ERRORS, reading
from spanwise.results.rows import Result, Value, as_rows

MALLOC_LIBRARY = "libspanwise-malloc.so"
PRELOAD_TABLE = "c16"
"""The table of the installed preloaded malloc; others are built."""

_USE = Use("run under spanwise", "the preloaded malloc")


_FORMAT, _VERSION = "spanwise-ledger", 1
_ROW_NAMES = (
    *("size_bytes", "spans", "span_bytes", "slots", "live_objects", "requested_bytes"),
    *("roundup_bytes", "tail_bytes", "free_slot_bytes", "cached_bytes"),
)


@dataclass(frozen=True, eq=False, repr=False)
class ProcessLedger(Result, Value):
    """The ledger that a process wrote at exit; bytes.

    Attributes:
        pid: its process id.
        program: path of its program.
        ledger: at exit.
        peak: with live requested bytes at most 1/32 below their peak; None: untracked.
        peak_held_bytes: peak of the held bytes of its heap.
        peak_rss_bytes: peak RSS of the process, from the system.
        tracked: whether requested sizes are known.
        limit_bytes: limit of its heap; None: none.
    """

    pid: int
    program: str
    ledger: Ledger
    peak: Ledger | None
    peak_held_bytes: int
    peak_rss_bytes: int
    tracked: bool
    limit_bytes: int | None

    @property
    def stats(self) -> RunStats | None:
        """Counts and peaks of the whole run; None: untracked."""
        return self.ledger.stats

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {
            "pid": self.pid,
            "program": self.program,
            "tracked": self.tracked,
            "limit_bytes": self.limit_bytes,
            "peak_held_bytes": self.peak_held_bytes,
            "peak_rss_bytes": self.peak_rss_bytes,
            "end": self.ledger.to_dict(),
            "peak": self.peak.to_dict() if self.peak else None,
        }

    def __repr__(self) -> str:
        resident, held = (_format.size(n) for n in (self.peak_rss_bytes, self.peak_held_bytes))
        return (
            f"<ProcessLedger of {self.program}, process {self.pid}: peak RSS {resident},"
            f" {held} held>"
        )


def read_process_ledger(path: str | os.PathLike[str]) -> ProcessLedger:
    """Read a file that SPANWISE_LEDGER=PATH wrote."""
    name = f"{os.fspath(path)}: no ledger of the preloaded malloc"
    with reading(name, error=errors.InvalidError):
        value = json.loads(Path(path).read_text(encoding="ascii"))
        if (value["format"], value["version"]) != (_FORMAT, _VERSION):
            raise ValueError(f"{value['format']} version {value['version']}")
        return _process_ledger(value)


def _count(value: Any) -> int:
    """Return a number of bytes or objects."""
    if not 0 <= operator.index(value) < 1 << 64:
        raise ValueError("a number is negative or has more than 64 bits")
    return int(value)


def _process_ledger(value: dict[str, Any]) -> ProcessLedger:
    stats = _stats(value["run"]) if value.get("run") else None
    peak = value["peak"]
    return ProcessLedger(
        pid=_count(value["pid"]),
        program=str(value["program"] or ""),
        ledger=_ledger(value, "end", stats),
        peak=_ledger(value, "peak", stats) if peak else None,
        peak_held_bytes=_count(value["peak_held_bytes"]),
        peak_rss_bytes=_count(value["peak_rss_bytes"]),
        tracked=bool(value["tracked"]),
        limit_bytes=_count(value["limit_bytes"]) or None,
    )


def _stats(value: dict[str, int]) -> RunStats:
    names = {in_c: name for name, in_c in C_NAMES.items()}
    counts = {names.get(name, name): _count(count) for name, count in value.items()}
    return RunStats(**counts, skipped=0, mean_held_over_requested=None)


def _ledger(value: dict[str, Any], at: str, stats: RunStats | None) -> Ledger:
    part = value[at]
    numbers: dict[str, Any] = {name: _count(part[name]) for name in SUMS if name not in OUTSIDE}
    numbers |= {name: _count(part.get(name, 0)) for name in OUTSIDE}  # not all are known
    ledger = Ledger(
        **numbers,
        rss_bytes=_count(value["rss_bytes"]) if at == "end" else None,
        events=_count(part["ops"]),
        classes=as_rows(_rows(part["classes"])),
        table=str(value["table"]),
        at=at,
        source=Path(str(value["program"] or "")).name,
        tracked=bool(value["tracked"]),
        stats=stats,
    )
    if "resident" not in part:
        return ledger
    touched: dict[str, Any] = {
        name: _count(part["resident"][name]) for name in (*PARTS, "held_bytes")
    }
    resident = replace(ledger, **touched, classes=ledger.classes[:0], stats=None, rss_bytes=None)
    return replace(ledger, resident=resident)


def _rows(lists: list[list[int]]) -> NDArray[np.void]:
    rows = np.zeros(len(lists), LEDGER_CLASS_DTYPE)
    table = np.array(lists, np.uint64).reshape(len(lists), -1)
    rows["cls"] = np.arange(len(lists))
    for i, name in enumerate(_ROW_NAMES):
        rows[name] = table[:, i]
    rows["occupancy"] = table[:, len(_ROW_NAMES) :]
    rows.flags.writeable = False
    return rows


# --- runs -----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class RunResult(Result):
    """The result of a run.

    Attributes:
        argv: program and arguments.
        returncode: exit status of the program; negative: the signal that ended it.
        main: the ledger of the program's own process; None: it wrote none (a signal ended it, or
            the loader did not load the preloaded malloc).
        others: the ledgers of its child processes, by process id.
    """

    argv: tuple[str, ...]
    returncode: int
    main: ProcessLedger | None
    others: tuple[ProcessLedger, ...]

    @property
    def ledger(self) -> Ledger:
        """The program's ledger at its end.

        Raises:
            ProgramError: it wrote none.
        """
        return self._own_ledger().ledger

    @property
    def peak(self) -> Ledger | None:
        """The program's ledger at the peak of live bytes; None: it ran untracked.

        Raises:
            ProgramError: it wrote none.
        """
        return self._own_ledger().peak

    @property
    def peak_held_bytes(self) -> int:
        """The peak of the held bytes of the program's heap.

        Raises:
            ProgramError: it wrote none.
        """
        return self._own_ledger().peak_held_bytes

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON; without a ledger, only how the program ended."""
        return {
            "argv": list(self.argv),
            "returncode": self.returncode,
            **(self.main.to_dict() if self.main else {}),
            "children": [one.to_dict() for one in self.others],
        }

    def __repr__(self) -> str:
        ledger = "no ledger"
        if self.main is not None:
            resident = _format.size(self.main.peak_rss_bytes)
            ledger = f"peak RSS {resident}, {_format.size(self.main.peak_held_bytes)} held"
        words = _format.clipped(" ".join(self.argv))[:200]
        return f"<RunResult of {words}: ended with {self.returncode}, {ledger}>"

    def why_no_ledger(self) -> str:
        """Return a line that says why `main` is None."""
        if self.returncode < 0:
            return f"{self.argv[0]}: no ledger: signal {-self.returncode} ended the program"
        return (
            f"{self.argv[0]}: no ledger: the program did not end by exit, or the loader did not"
            " load the preloaded malloc"
        )

    def _own_ledger(self) -> ProcessLedger:
        if self.main is None:
            raise errors.ProgramError(self.why_no_ledger())
        return self.main


def run(
    argv: Sequence[str | os.PathLike[str]],
    *,
    tracked: bool = True,
    lib: str | os.PathLike[str] | None = None,
    table: str | None = None,
    options: HeapOptions | None = None,
    huge_pages: bool = False,
    keep_pymalloc: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> RunResult:
    """Run a program with our allocator as its malloc.

    Args:
        argv: program and arguments; it inherits the standard streams.
        tracked: keep requested sizes, counts and a ledger at the peak; False: full speed.
        lib: a folder of `spanwise build` with the preloaded malloc.
        table: name of the table that the preloaded malloc must have; None: any.
        options: of the heap; the environment decides those with default values.
        huge_pages: ask the system for transparent huge pages.
        keep_pymalloc: let CPython use its own allocator instead of PYTHONMALLOC=malloc.
        env: the program's environment; None: that of this process.
        cwd: its working folder; None: that of this process.

    Returns:
        How it ended, and its ledgers.

    Raises:
        ProgramError: the program was not found, or cannot load the preloaded malloc (statically
            linked, set-user-ID, of another architecture).
        InvalidError: an option is out of range, or there is no preloaded malloc of that table.
        UnsupportedError: the preloaded malloc is not installed.
        OSError: the system refused to start it.
    """
    words = words_of(argv)
    variables = heap_variables(as_options(options), tracked=tracked, huge_pages=huge_pages)
    return run_under(
        words, find_preload(lib, table), variables, keep_pymalloc=keep_pymalloc, env=env, cwd=cwd
    )


def heap_variables(
    options: HeapOptions, *, tracked: bool = True, huge_pages: bool = False
) -> dict[str, str]:
    """Return a heap's SPANWISE_ variables without defaults; arguments and errors as in `run`."""
    check_real(options)
    variables = {"SPANWISE_TRACKED": str(int(tracked))}
    if options.placement != "lifo":
        variables["SPANWISE_PLACEMENT"] = options.placement
    if huge_pages:
        variables["SPANWISE_THP"] = "advise"
    if options.limit_bytes is not None:
        variables["SPANWISE_LIMIT"] = str(options.limit_bytes)
    if options.batch_spans:
        variables["SPANWISE_BATCH"] = str(options.batch_spans)
    if options.decay_ms is not None:
        variables["SPANWISE_DECAY_MS"] = _decay_text(options.decay_ms)
    return variables


def _decay_text(decay_ms: float) -> str:
    return "never" if decay_ms > 1e12 else str(round(decay_ms))


def find_preload(lib: str | os.PathLike[str] | None, table: str | None) -> Path:
    """Return the preloaded malloc, built or installed; arguments and errors as in `run`."""
    if lib is None:
        if table not in (None, PRELOAD_TABLE):
            raise errors.InvalidError(
                f"table {table}: the installed preloaded malloc has {PRELOAD_TABLE}; make one with"
                f" `spanwise build --table {table} -o DIR` and give --lib DIR"
            )
        return _lib.native_library(MALLOC_LIBRARY)
    preload = Path(lib, "lib", MALLOC_LIBRARY).absolute()
    if not preload.is_file():
        raise errors.InvalidError(
            f"{preload}: not there; give a folder that `spanwise build` made (without --no-malloc)"
        )
    if table is not None and (built := built_table(lib)) != Path(table).stem:
        raise errors.InvalidError(f"{lib}: built for table {built or 'unknown'}, not {table}")
    return preload


def built_table(folder: str | os.PathLike[str]) -> str | None:
    """Return the name of the table of a build; None: unknown."""
    with suppress(OSError, *READING_ERRORS):
        return str(json.loads(Path(folder, "build.json").read_text("utf-8"))["table"]["name"])
    return None


def run_under(
    words: list[str],
    preload: Path,
    variables: Mapping[str, str],
    *,
    keep_pymalloc: bool = False,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    patient: bool = False,
) -> RunResult:
    """Run as `run` does, with the library `preload` and SPANWISE_ variables."""
    base = dict(os.environ if env is None else env)
    program = examine(seen_from(words[0], cwd), base.get("PATH"), _USE)
    with tempfile.TemporaryDirectory(prefix="spanwise-", ignore_cleanup_errors=True) as folder:
        environment = {
            **base,
            **python_variables(program, keep_pymalloc),
            **variables,
            "LD_PRELOAD": preload_of(preload, base),
            "SPANWISE_LEDGER": str(Path(folder, "%p.json")),
        }
        executable = Path(program.path).absolute()
        children: list[subprocess.Popen[bytes]] = []
        with passing_on(children) if patient else nullcontext():
            child = subprocess.Popen(words, executable=executable, env=environment, cwd=cwd)
            children.append(child)
            status = wait_for(child)
        paths = sorted(Path(folder).glob("*.json"))
        ledgers = {one.pid: one for one in map(read_process_ledger, paths)}
    main = ledgers.pop(child.pid, None)
    others = tuple(ledgers[pid] for pid in sorted(ledgers))
    return RunResult(tuple(words), status, main, others)
