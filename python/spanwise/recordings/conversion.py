# SPDX-License-Identifier: Apache-2.0
"""Convert files of other tools to recordings (docs/design/export.md).

A list of calls (Android's memory_replay, mtrace, heaptrack, Go traces) becomes a recording of these
calls. A snapshot (heap profiles, jemalloc's statistics) has sizes, counts and perhaps call sites.
It becomes objects that are allocated one after another and live to the end, which is enough to
propose tables, and for ledgers of full spans.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from spanwise import _format, _lib, errors
from spanwise._lib import OPS_DTYPE, lib
from spanwise.errors import (
    InvalidError,
    LimitError,
    SpanwiseError,
    TraceFormatError,
    UnsupportedError,
)
from spanwise.recordings.import_calls import (
    checked_size,
    heaptrack_operations,
    is_heaptrack,
    is_memory_replay,
    is_mtrace,
    memory_replay_operations,
    mtrace_operations,
)
from spanwise.recordings.import_go import go_operations, is_go_trace
from spanwise.recordings.import_profiles import (
    heap_text_snapshot,
    is_heap_text,
    is_jemalloc,
    jemalloc_snapshot,
)
from spanwise.recordings.profiles import (
    Frame,
    Objects,
    Snapshot,
    is_pprof,
    objects_of,
    pprof_snapshot,
    scaled,
    sites_of,
)
from spanwise.recordings.recorder import temporary_recording
from spanwise.recordings.recording import Recording
from spanwise.recordings.sources import ARRAY_BATCH, FileSource, Module, write_ops
from spanwise.results.files import (
    READING_ERRORS,
    check_output,
    check_regular,
    reading,
    what_is_wrong,
)
from spanwise.results.jobs import Progress, Step, progress_bar

# --- content --------------------------------------------------------------------------------------
#
# gzip compresses a thousand bytes to one, and zstd even better, so a file of 2 MB may decompress to
# gigabytes. The default limit is UNPACKED_MULTIPLE times the file's size, at least UNPACKED_FLOOR
# bytes. Lists of calls are read line by line, never held whole.

UNPACKED_FLOOR = 64 << 20
UNPACKED_MULTIPLE = 64

HEAD_BYTES = 1 << 16
"""Bytes of a file that are enough to detect its format."""

_CHUNK = 1 << 18
_LINE_BYTES_MAX = 1 << 20
_LINE = re.compile(rb"[^\n]+")


class Content:
    """A file's content, readable any number of times, one pass at a time. It must be closed.

    Attributes:
        packed: "gzip", "zstd" or "zip"; "": not compressed.
    """

    def __init__(self, path: str | os.PathLike[str], unpacked_max: int | None = None) -> None:
        self._path = Path(path)
        self.name = self._path.name  # of the file, without its directory
        self.line = 0  # number of the last line from `lines`; 0 before the first
        self.cut = False  # whether that line has no end
        self._file: BinaryIO = _seekable(self._path)
        begin = self._file.read(4)
        self.packed = next((kind for kind, magic in _MAGICS.items() if begin.startswith(magic)), "")
        size = self._file.seek(0, os.SEEK_END)
        usual = max(UNPACKED_FLOOR, UNPACKED_MULTIPLE * size)
        self._unpacked_max = usual if unpacked_max is None else unpacked_max

    def __enter__(self) -> Content:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def reading(self) -> AbstractContextManager[None]:
        """Return a context that adds file name and position to errors of a block."""
        return reading(self.name, self.place)

    def place(self) -> str:
        """Return the last line read; "" if the content is not read by lines."""
        return f"line {self.line}" if self.line else ""

    @cached_property
    def head(self) -> bytes:
        """The first HEAD_BYTES."""
        found = b""
        for chunk in self._chunks():
            found += chunk
            if len(found) >= HEAD_BYTES:
                break
        return found[:HEAD_BYTES]

    def whole(self) -> bytes:
        """Return the whole content."""
        self.line = 0
        return b"".join(self._chunks())

    def lines(self) -> Iterator[bytes]:
        """Yield the non-empty lines without their line ends."""
        count, rest, self.cut = 0, b"", False
        for chunk in self._chunks():
            part = rest + chunk
            whole, rest = part[: (end := part.rfind(b"\n") + 1)], part[end:]
            at, number = 0, count + 1
            for found in _LINE.finditer(whole):
                number, at = number + whole.count(b"\n", at, found.start()), found.start()
                self.line = number
                yield found[0]
            count += whole.count(b"\n")
            if len(rest) > _LINE_BYTES_MAX:
                raise TraceFormatError(
                    f"{self.name}: line {count + 1} is longer than {_format.size(_LINE_BYTES_MAX)},"
                    " which no call is"
                )
        if rest:
            self.line, self.cut = count + 1, True
            yield rest

    def _chunks(self) -> Iterator[bytes]:
        """Yield the content in chunks."""
        self._file.seek(0)
        if not self.packed:
            yield from iter(partial(self._read, _CHUNK), b"")
            return
        done = 0
        parts = _UNPACK[self.packed](self._file, self.name)
        while chunk := self._next(parts):
            done += len(chunk)
            if done > self._unpacked_max:
                raise LimitError(
                    f"{self.name}: unpacks to more than {_format.size(self._unpacked_max)}; if you"
                    " trust it, raise the limit (--unpacked-max, unpacked_max=)"
                )
            yield chunk

    def _read(self, count: int) -> bytes:
        try:
            return self._file.read(count)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._path)) from None

    def _next(self, parts: Iterator[bytes]) -> bytes:
        try:
            return next(parts, b"")
        except SpanwiseError:
            raise
        except (OSError, zipfile.BadZipFile, *READING_ERRORS) as error:
            raise TraceFormatError(
                f"{self.name}: byte {self._file.tell()}: its {self.packed} stream is truncated or"
                f" damaged: {what_is_wrong(error)}"
            ) from None


def _seekable(path: Path) -> BinaryIO:
    """Open the file unbuffered, since a child may read from its descriptor."""
    file = path.open("rb", buffering=0)
    if file.seekable():
        return file
    with file:
        copy = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  the caller closes it
        shutil.copyfileobj(file, copy)
    copy.seek(0)
    return copy


# --- decompression --------------------------------------------------------------------------------


def _gzip(file: BinaryIO, name: str) -> Iterator[bytes]:
    with gzip.GzipFile(fileobj=file) as stream:
        yield from iter(partial(stream.read, _CHUNK), b"")


def _zstd(file: BinaryIO, name: str) -> Iterator[bytes]:
    program = shutil.which("zstd")
    if program is None:
        raise UnsupportedError(
            f"{name}: is compressed by zstd; install the program zstd, or decompress it"
        )
    with subprocess.Popen(
        [program, "-dcq"], stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            assert child.stdout is not None
            yield from iter(partial(child.stdout.read, _CHUNK), b"")
            if child.wait() != 0:
                raise EOFError(f"zstd ended with {child.returncode}")
        finally:
            child.kill()


def _zip(file: BinaryIO, name: str) -> Iterator[bytes]:
    with zipfile.ZipFile(file) as archive:
        files = [one for one in archive.infolist() if not one.is_dir()]
        if len(files) != 1:
            raise InvalidError(f"{name}: has {len(files)} files; give it one of them")
        if files[0].compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise UnsupportedError(f"{name}: is not compressed by deflate; decompress it first")
        with archive.open(files[0]) as stream:
            yield from iter(partial(stream.read, _CHUNK), b"")


_MAGICS = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd", "zip": b"PK\x03\x04"}
_UNPACK: dict[str, Callable[[BinaryIO, str], Iterator[bytes]]] = {
    "gzip": _gzip,
    "zstd": _zstd,
    "zip": _zip,
}


# --- conversion -----------------------------------------------------------------------------------

_RECOGNIZERS: dict[str, Callable[[bytes], bool]] = {
    "heaptrack": is_heaptrack,
    "heap-text": is_heap_text,
    "pprof": is_pprof,
    "go-trace": is_go_trace,
    "jemalloc": is_jemalloc,
    "memory-replay": is_memory_replay,
    "mtrace": is_mtrace,
}
_SNAPSHOTS: dict[str, Callable[[bytes, str, str], Snapshot]] = {
    "heap-text": heap_text_snapshot,
    "pprof": pprof_snapshot,
    "jemalloc": jemalloc_snapshot,
}

FORMS = tuple(_RECOGNIZERS)
"""Readable formats: execution traces of Go with heap events, heaptrack's files, heap profiles in
profile.proto or as text, the JSON of malloc_stats_print, the text of malloc_debug's record_allocs,
the file of glibc's mtrace()."""

SNAPSHOT_VALUES = ("inuse", "alloc")
"""The objects to take from a snapshot: the live ones, or all that were allocated before it."""

OBJECTS_MAX = 1_000_000
"""Default number of objects in the recording of a snapshot."""

_OF_CALLS = "made from a file of mtrace: times, threads and alignments are not known"
_OF_SIZES = (
    "made from sizes and counts of a {form}: no frees, times or threads are known, so partly empty"
    " spans and caches are not"
)


@dataclass(frozen=True)
class _Read:
    """The content of a file: operations, and a caveat for its users.

    Attributes:
        late: returns what to append to the remark once all operations were read, or "".
    """

    blocks: Iterable[NDArray[np.void]]
    remark: str
    late: Callable[[], str] = str
    stacks: Sequence[tuple[Frame, ...]] = ()  # of the call sites 1, 2,
    modules: Sequence[Module] = ()  # that contain their return addresses


def convert(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    form: str | None = None,
    value: str = "inuse",
    most_objects: int = OBJECTS_MAX,
    unpacked_max: int | None = None,
    force: bool = False,
    progress: Progress = None,
) -> Recording:
    """Converts a file of another tool to a recording.

    Args:
        source: the file, perhaps compressed by gzip, zip or zstd: a heap profile of pprof, or the
            text profile of jemalloc, gperftools, TCMalloc or Go (debug=1), jemalloc's
            statistics as JSON (malloc_stats_print with "J"), a trace of Android's memory_replay,
            a file of heaptrack (raw or not), the file of glibc's mtrace(), or an execution trace
            of Go 1.23 or later with GODEBUG=traceallocfree=1.
        output: the recording; None: a file in the temporary directory, which is removed
            when this process exits.
        form: one of "pprof", "heap-text", "jemalloc", "memory-replay", "heaptrack", "mtrace",
            "go-trace"; None: detected from the content.
        value: for a snapshot, "inuse" (live objects) or "alloc" (all allocations before it,
            each freed at once).
        most_objects: maximum number of objects of a snapshot, 1 to 100,000,000. If there are
            more, all counts are scaled down.
        unpacked_max: size limit of the decompressed file, bytes; None: 64 times its size, at
            least 64 MiB.
        force: replace the output if it exists.
        progress: as in `Recording.ledger`; the steps are operations, whose number is not
            known in advance.

    Returns:
        The recording; `remark` says what it lacks.

    Raises:
        InvalidError: a form, value or count is invalid; the output exists, and force was not given;
            or the file has an unknown form or no allocation.
        TraceFormatError: the file is truncated or damaged; the message has the position.
        LimitError: the decompressed file is larger than `unpacked_max`.
        UnsupportedError: the file is compressed by zstd, and there is no program `zstd`; it is from
            a newer Go or heaptrack than supported, or a text heap profile of Java.
        OSError: the system refused to read or write.
    """
    for word, known, what in ((form, (*FORMS, None), "form"), (value, SNAPSHOT_VALUES, "value")):
        if word not in known:
            names = ", ".join(name for name in known if name)
            raise errors.InvalidError(f"{what} {word!r}: use one of {names}")
    unpacked = None if unpacked_max is None else _lib.as_index(unpacked_max, "unpacked_max")
    most = _lib.as_index(most_objects, "most_objects", 100_000_000)
    if most == 0:
        raise errors.InvalidError("most_objects 0: give at least 1")
    path = Path(output) if output is not None else temporary_recording()
    if output is not None:
        if path.is_file() and not force:
            raise errors.InvalidError(f"{path}: exists already; give another name, or force=True")
        check_output(path, replace=force)
        check_regular(path)
    with Content(source, unpacked) as content:
        with content.reading():
            kind = form or _form_of(content)
            read = _operations(content, kind, value, most)
        with progress_bar(progress, None, f"convert {content.name}", "operations") as step:
            watched = replace(read, blocks=_watched(read.blocks, content, step))
            _write(path, watched, [("program", content.name), ("imported_from", kind)])
    return Recording.open(path)


def _watched(
    blocks: Iterable[NDArray[np.void]], content: Content, step: Step
) -> Iterator[NDArray[np.void]]:
    """Yield the blocks; each counts as progress once it was written."""
    each = iter(blocks)
    while True:
        with content.reading():
            block = next(each, None)
        if block is None:
            return
        yield block
        step(len(block))


def _write(path: Path, read: _Read, about: list[tuple[str, str]]) -> None:
    """Writes the recording; a second time if only the operations complete its remark."""
    first = [*about, ("remark", read.remark)] if read.remark else about
    write_ops(path, iter(read.blocks), first, *sites_of(read.stacks, read.modules))
    late = read.late()
    if not late:
        return
    try:
        blocks = FileSource(path, valid_prefix=False).blocks(ARRAY_BATCH)
        write_ops(path, blocks, [*about, ("remark", f"{read.remark}; {late}")])
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _form_of(content: Content) -> str:
    form = _recognized(content.head)
    if form is None and len(content.head) == HEAD_BYTES:
        form = _recognized(content.whole())  # a program may print much before jemalloc does
    if form is not None:
        return form
    if content.packed == "gzip":
        return "pprof"  # fields of a profile may come in any order
    raise errors.InvalidError(
        f"{content.name}: is not a heap profile of pprof, JSON of jemalloc's statistics or a"
        " trace of Go, memory_replay, heaptrack or mtrace; name the form if it is one of these"
        " (--from, form=)"
    )


def _recognized(begin: bytes) -> str | None:
    return next((form for form, recognizes in _RECOGNIZERS.items() if recognizes(begin)), None)


def _operations(content: Content, form: str, value: str, most: int) -> _Read:
    name = content.name
    if form == "memory-replay":
        return _Read(memory_replay_operations(content), "")
    if form == "mtrace":
        return _Read(mtrace_operations(content), _OF_CALLS)
    if form == "go-trace":
        return _Read(*go_operations(content.whole(), name))
    if form == "heaptrack":
        return _Read(*heaptrack_operations(content))
    found = _SNAPSHOTS[form](content.whole(), name, value)
    objects = objects_of(found.samples)
    for size, _ in objects.counts:
        checked_size(size)
    if not objects.counts:
        raise errors.InvalidError(f"{name}: has no object of {value}; nothing to make")
    counts = objects.counts
    remarks = [_OF_SIZES.format(form=found.noun), *found.remarks, *_remainder(objects)]
    if sum(counts.values()) > most:
        counts = scaled(counts, most)
        factor = sum(objects.counts.values()) / most
        remarks.append(f"one object stands for {_format.number(round(factor))}")
    blocks = _snapshot(counts, value == "alloc")
    return _Read(blocks, "; ".join(remarks), stacks=objects.stacks[1:], modules=found.modules)


def _remainder(objects: Objects) -> Iterator[str]:
    """Yield how the objects' bytes differ from those of the file."""
    if objects.uncounted_bytes:
        yield (
            f"{_format.number(objects.uncounted_bytes)} B of it have no count of objects, and each"
            " such sample is one object"
        )
    less = objects.file_bytes - objects.total_bytes
    if less:
        yield (
            f"whole objects have {_format.number(objects.total_bytes)} B, which is"
            f" {_format.number(abs(less))} B {'less' if less > 0 else 'more'} than the file's"
        )


def _snapshot(counts: dict[tuple[int, int], int], dies: bool) -> Iterator[NDArray[np.void]]:
    """Make objects of counts by size and call site, in ascending size, a microsecond apart."""
    done = 0
    for (size, site), count in sorted(counts.items()):
        for first in range(0, count, 1 << 16):
            many = min(count - first, 1 << 16)
            rows = np.zeros(many * (2 if dies else 1), OPS_DTYPE)
            rows["time_ns"] = (done + np.arange(len(rows), dtype=np.uint64)) * np.uint64(1000)
            rows["site"][:: 2 if dies else 1] = site
            if dies:
                rows["size"][::2] = size
                rows["kind"][1::2] = lib.SW_OP_FREE
            else:
                rows["size"] = size
                rows["object"] = done + np.arange(many)
            done += len(rows)
            yield rows
