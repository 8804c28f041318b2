# SPDX-License-Identifier: Apache-2.0
"""Every reader of files, as its users call it: a command, or a public call and what it prints.

A reader gets the path of a mutated file and a folder for what it writes. It returns whether the
file was read. Any exception but the package's own and the system's is a finding, and so is an error
of more than one line.
"""

from __future__ import annotations

import io
import json
import random
import sys
from collections.abc import Callable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spanwise as sw
from spanwise.__main__ import main
from spanwise.measure.bench_cases import read_cases
from spanwise.measure.running import read_process_ledger
from spanwise.recordings import conversion
from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.recordings.programs import read_elf, runtime_of

Reads = Callable[[Path, random.Random], bool]


class FindingError(Exception):
    """What a reader must not do."""


@dataclass(frozen=True)
class Reader:
    """A reader of files.

    Attributes:
        name: of the kind of files, by which seeds are found.
        reads: reads a file; whether it could.
        suffix: of the file's name.
        packs: whether it unpacks.
    """

    name: str
    reads: Reads
    suffix: str = ".dat"
    packs: bool = False


@contextmanager
def _streams() -> Any:
    """Output as a terminal takes it: UTF-8, and what it cannot encode is an error."""
    before = sys.stdout, sys.stderr
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", newline="\n") for _ in range(2))
    sys.stdout, sys.stderr = out, err
    try:
        yield out, err
    finally:
        sys.stdout, sys.stderr = before


def command(path: Path, *words: str) -> bool:
    """Runs a command on the file; whether it was read.

    Raises:
        FindingError: its error is not one line that names the file.
    """
    with _streams() as (out, err):
        status = main([*words])
        out.flush()
        err.flush()
        said = err.buffer.getvalue().decode("utf-8")
    if status not in (0, 1, 2):
        raise FindingError(f"status {status}: {said}")
    if status == 2:
        check_message(said.removeprefix("spanwise: ").removesuffix("\n"), path)
        if not said.startswith("spanwise: "):
            raise FindingError(f"not a line of ours: {said}")
    return status != 2


def check_message(said: str, path: Path) -> None:
    """An error is one short line about the file; memory that is missing is a finding."""
    if "\n" in said or not said or len(said) > 1000:
        raise FindingError(f"not one line: {said!r}")
    if path.stem not in said:
        raise FindingError(f"the error does not name the file: {said}")
    if "memory" in said and "memory_replay" not in said:
        raise FindingError(f"needs too much memory: {said}")


def called(path: Path, reads: Callable[[], Any]) -> bool:
    """Makes a public call; whether the file was read."""
    try:
        reads()
    except (sw.SpanwiseError, OSError) as error:
        check_message(str(error), path)
        return False
    return True


def _shown(*values: Any) -> None:
    """What is printed of a value, as a terminal and a machine take it."""
    for one in values:
        f"{one}\n{one!r}".encode("utf-8", "surrogateescape")
        if hasattr(one, "to_dict"):
            json.dumps(one.to_dict())


# --- importers ------------------------------------------------------------------------------------


def importer(form: str) -> Reads:
    """`spanwise convert` of a form, named or found."""

    def reads(path: Path, rng: random.Random) -> bool:
        words = ["convert", str(path), "-o", str(path.with_suffix(".swt")), "-f"]
        if rng.random() < 0.7:
            words += ["--from", form]
        if rng.random() < 0.4:
            words += ["--value", "alloc"]
        if rng.random() < 0.98:
            words += ["--objects", "1000"]
        return command(path, *words)

    return reads


# --- our own files --------------------------------------------------------------------------------


def recording(path: Path, rng: random.Random) -> bool:
    """A command that reads a recording."""
    out = str(path.with_suffix(".svg"))
    words = rng.choice(
        (
            ("ledger",),
            ("ledger", "--sites", "--at", "peak-resident"),
            ("ledger", "--json", "--span-pinning", "site"),
            ("check", "--max-waste", "50%"),
            ("flame", "-o", out),
            ("export", "--to", rng.choice(("pprof", "speedscope", "collapsed")), "-o", out),
            ("export", "--to", rng.choice(("perfetto", "openmetrics", "npz")), "-o", out),
        )
    )
    more = ("--valid-prefix",) if rng.random() < 0.4 else ()
    return command(path, words[0], str(path), *words[1:], *more)


def recording_called(path: Path, rng: random.Random) -> bool:
    """The class of recordings."""

    def reads() -> None:
        one = sw.Recording.open(path, valid_prefix=rng.random() < 0.5)
        _shown(one, one.summary, one.info, one.program, one.remark)
        _shown(one.meta, one.arguments, one.histogram(), one.threads, len(one.ops))
        _shown(one.sites, one.live_sites())

    return called(path, reads)


def gctrace(path: Path, rng: random.Random) -> bool:
    """`spanwise gctrace`."""
    more = [word for word in ("--pauses", "--json", "--stopped") if rng.random() < 0.5]
    return command(path, "gctrace", str(path), *more)


def table(path: Path, rng: random.Random) -> bool:
    """A table file."""
    words = rng.choice(
        (("classes",), ("classes", "--json"), ("explain", "33"), ("classes", "--format", "c"))
    )
    return command(path, *words, "--table", str(path))


def sweep(path: Path, rng: random.Random) -> bool:
    """Rows of a sweep, as they are shown."""

    def reads() -> None:
        found = sw.Sweep.open(path)
        _shown(found, found.array, *found.notes)
        found._repr_html_()
        with suppress(sw.StateError):
            _shown(found.best(), found.ranking("seconds"))

    return called(path, reads)


def bench(path: Path, rng: random.Random) -> bool:
    """Rows of a benchmark."""

    def reads() -> None:
        found = sw.BenchResult.open(path)
        _shown(found, found.array, *found.notes, found.measured)
        for case in found.cases:
            found.saving(*case, "cpu_ns", allocator="glibc")

    return called(path, reads)


def process_ledger(path: Path, rng: random.Random) -> bool:
    """What the preloaded malloc wrote at the end of a process."""

    def reads() -> None:
        found = read_process_ledger(path)
        _shown(found, found.ledger, found.peak, found.stats)

    return called(path, reads)


def cases(path: Path, rng: random.Random) -> bool:
    """The cases of a benchmark."""
    return called(path, lambda: _shown(*read_cases(path)))


def build(path: Path, rng: random.Random) -> bool:
    """The stamp of a build."""
    folder = path.with_suffix("")
    folder.mkdir(exist_ok=True)
    path.replace(folder / "build.json")
    return called(path, lambda: _shown(sw.Build.open(folder)))


def program(path: Path, rng: random.Random) -> bool:
    """An ELF file: its symbols, and whether it can be preloaded into."""
    read_elf(str(path))
    runtime_of(str(path))
    try:
        one = ElfFile(path)
        _shown(one.build_id, one.functions(), one.has(".debug_info"))
    except ElfError as error:
        if "\n" in str(error):
            raise FindingError(f"not one line: {error}") from None
        return False
    return True


READERS: tuple[Reader, ...] = (
    *(Reader(f"convert {form}", importer(form), packs=True) for form in conversion.FORMS),
    Reader("recording", recording, ".swt"),
    Reader("recording, called", recording_called, ".swt"),
    Reader("gctrace", gctrace, ".txt"),
    Reader("table", table, ".json"),
    Reader("sweep", sweep, ".jsonl"),
    Reader("bench", bench, ".jsonl"),
    Reader("process ledger", process_ledger, ".json"),
    Reader("cases", cases, ".json"),
    Reader("build", build, ".json"),
    Reader("program", program, ".so"),
)
"""Importers come from their registry, so a new one is fuzzed from its first day on."""
