# SPDX-License-Identifier: Apache-2.0
"""Programs run under the preloaded malloc: they allocate from our heap, and it writes its ledger.

What that writes and when: docs/design/preload.md.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spanwise import _format, _lib, errors
from spanwise.heap.options import HeapOptions, as_options, check_real
from spanwise.ledger.ledger import Ledger
from spanwise.measure.process_ledger import ProcessLedger, read_process_ledger
from spanwise.recordings.launch import (
    passing_on,
    preload_of,
    python_variables,
    seen_from,
    wait_for,
    words_of,
)
from spanwise.recordings.programs import Use, examine
from spanwise.results.files import READING_ERRORS
from spanwise.results.rows import Result

MALLOC_LIBRARY = "libspanwise-malloc.so"
PRELOAD_TABLE = "c16"
"""The table of the preloaded malloc that is installed; others are built."""

_USE = Use("run under spanwise", "the preloaded malloc")


@dataclass(frozen=True, repr=False)
class RunResult(Result):
    """What came of a run.

    Attributes:
        argv: what was run.
        returncode: exit status of the program; negative: the signal that ended it.
        main: what the program's own process told; None: nothing (a signal ended it, or the loader
            did not take the preloaded malloc).
        others: what the processes that it started told, in the order of their ids.
    """

    argv: tuple[str, ...]
    returncode: int
    main: ProcessLedger | None
    others: tuple[ProcessLedger, ...]

    @property
    def ledger(self) -> Ledger:
        """The program's ledger at its end.

        Raises:
            ProgramError: it told none.
        """
        return self._told().ledger

    @property
    def peak(self) -> Ledger | None:
        """The program's ledger at the peak of live bytes; None: it ran untracked.

        Raises:
            ProgramError: it told none.
        """
        return self._told().peak

    @property
    def peak_held_bytes(self) -> int:
        """Most that the program's heap held at once.

        Raises:
            ProgramError: it told none.
        """
        return self._told().peak_held_bytes

    def to_dict(self) -> dict[str, Any]:
        """All of it, for JSON; of the program itself without a ledger, only how it ended."""
        return {
            "argv": list(self.argv),
            "returncode": self.returncode,
            **(self.main.to_dict() if self.main else {}),
            "children": [one.to_dict() for one in self.others],
        }

    def __repr__(self) -> str:
        told = "no ledger"
        if self.main is not None:
            resident = _format.size(self.main.peak_rss_bytes)
            told = f"peak RSS {resident}, {_format.size(self.main.peak_held_bytes)} held"
        words = _format.clipped(" ".join(self.argv))[:200]
        return f"<RunResult of {words}: ended with {self.returncode}, {told}>"

    def why_no_ledger(self) -> str:
        """One line, when main is None."""
        if self.returncode < 0:
            return f"{self.argv[0]}: no ledger: signal {-self.returncode} ended the program"
        return (
            f"{self.argv[0]}: no ledger: the program did not end by exit, or the loader did not"
            " take the preloaded malloc"
        )

    def _told(self) -> ProcessLedger:
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
    """Runs a program with our allocator as its malloc.

    Args:
        argv: program and arguments; its standard streams are those of this process.
        tracked: keep requested sizes, counts and a ledger at the peak; else the heap is at full
            speed.
        lib: a folder that `spanwise build` made, whose preloaded malloc is taken.
        table: name of the table that the preloaded malloc must have; None: whatever it has.
        options: of the heap; those with default values are left to the environment.
        huge_pages: ask the system for transparent huge pages.
        keep_pymalloc: leave CPython its own allocator; else it runs with PYTHONMALLOC=malloc.
        env: the program's environment; None: that of this process.
        cwd: its working folder; None: that of this process.

    Returns:
        How it ended, and its ledgers.

    Raises:
        ProgramError: the program was not found, or takes no preloaded malloc (statically linked,
            set-user-ID, of another machine).
        InvalidError: an option is out of range, or no preloaded malloc of that table is there.
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
    """The SPANWISE_ variables of a heap; arguments and errors as of `run`.

    Those with default values are left to the environment.
    """
    check_real(options)
    variables = {"SPANWISE_TRACKED": str(int(tracked))}
    if options.placement != "lifo":
        variables["SPANWISE_PLACEMENT"] = options.placement
    if huge_pages:
        variables["SPANWISE_THP"] = "advise"
    if options.limit_bytes is not None:
        variables["SPANWISE_LIMIT"] = str(options.limit_bytes)
    if options.batch_spans:
        use = "use:" if options.batch_by_use else ""
        variables["SPANWISE_BATCH"] = f"{use}{options.batch_spans}"
    if options.decay_ms is not None:
        variables["SPANWISE_DECAY_MS"] = _decay_text(options.decay_ms)
    return variables


def _decay_text(decay_ms: float) -> str:
    return "never" if decay_ms > 1e12 else str(round(decay_ms))


def find_preload(lib: str | os.PathLike[str] | None, table: str | None) -> Path:
    """The preloaded malloc of a build, or the one that is installed.

    Args:
        lib: a folder that `spanwise build` made; None: the installed one.
        table: name of the table that it must have; None: any.

    Raises:
        InvalidError: it is not there, or has another table.
        UnsupportedError: none is installed.
    """
    if lib is None:
        if table not in (None, PRELOAD_TABLE):
            raise errors.InvalidError(
                f"table {table}: the installed preloaded malloc has {PRELOAD_TABLE}; make one with"
                f" `spanwise build --table {table} -o DIR` and give --lib DIR"
            )
        return _lib.native_library(MALLOC_LIBRARY)
    preload = Path(lib, "lib", MALLOC_LIBRARY).absolute()
    if not preload.is_file():
        raise errors.InvalidError(f"{preload}: not there; give a folder that `spanwise build` made")
    if table is not None and (built := _built_table(Path(lib))) != Path(table).stem:
        raise errors.InvalidError(f"{lib}: built for table {built}, not {table}")
    return preload


def _built_table(folder: Path) -> str:
    with suppress(OSError, *READING_ERRORS):
        return str(json.loads((folder / "build.json").read_text("utf-8"))["table"]["name"])
    return "unknown"


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
    """As `run`, with the library and its variables given.

    Args:
        words: program and arguments.
        preload: the library for LD_PRELOAD.
        variables: SPANWISE_ variables of the program.
        keep_pymalloc: as of `run`.
        env: as of `run`.
        cwd: as of `run`.
        patient: the first Ctrl-C is left to the program, whose end is waited for; the second ends
            it. Only in the main thread.
    """
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
        told = {one.pid: one for one in _read_all(Path(folder))}
    main = told.pop(child.pid, None)
    others = tuple(told[pid] for pid in sorted(told))
    return RunResult(tuple(words), status, main, others)


def _read_all(folder: Path) -> Iterator[ProcessLedger]:
    for path in sorted(folder.glob("*.json")):
        yield read_process_ledger(path)
