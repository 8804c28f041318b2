# SPDX-License-Identifier: Apache-2.0
"""Record a part of this process: `with spanwise.recording()`, and %%record in notebooks."""

from __future__ import annotations

import argparse
import ast
import builtins
import ctypes
import os
import pickle
import pickletools
import secrets
import shlex
import shutil
import subprocess
import symtable
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from spanwise import _format
from spanwise._lib import lib
from spanwise.errors import InvalidError, SpanwiseError, StateError
from spanwise.recordings.finish import finish, salvage
from spanwise.recordings.recorder import RecordOptions, run_recorded, temporary_recording
from spanwise.recordings.recording import Recording
from spanwise.recordings.sources import own_ops, slice_ops
from spanwise.results.files import check_regular
from spanwise.results.rows import AnyRows

# --- a block of this process ----------------------------------------------------------------------
#
# The recorder records the whole process. Eight aligned allocations of random sizes mark the begin
# and the end of a block, so that no new kind of event is needed.

_ALIGN_LOG2 = 12
_MARKS = 8
_CUT = "import sys; from spanwise.recordings.regions import cut; sys.exit(cut(*sys.argv[1:]))"


class RecordedPart:
    """The result of a `with spanwise.recording()` block; it has the recording after the block."""

    def __init__(self) -> None:
        self._recording: Recording | None = None
        self._why_none = "the block has not ended, so there is no recording yet"

    @property
    def recording(self) -> Recording:
        """The block's operations of all threads, preceded by allocations of the live objects.

        Raises:
            StateError: the block has not ended, or it ended with an exception.
        """
        if self._recording is None:
            raise StateError(f"recording(): {self._why_none}")
        return self._recording

    def __repr__(self) -> str:
        return f"RecordedPart({self._recording!r})"


@contextmanager
def recording(
    output: str | os.PathLike[str] | None = None, *, own: bool = False
) -> Iterator[RecordedPart]:
    """Records a block of this program, which must run under the recorder.

    Start it by `spanwise record -- python3 SCRIPT` or `spanwise.record`. The whole process is
    recorded as usual, including the modules that `import spanwise` loads. The block's
    recording has no call sites. At the end of the block, another process orders the events so far
    and extracts the block, so that this one does not allocate for it::

        with spanwise.recording("parse.swt") as part:
            tree = parse(text)
        print(part.recording.ledger())

    In a notebook use `%%record` instead.

    Args:
        output: the block's recording; None: a file in the temporary directory, which is removed
            when this process exits.
        own: only objects that the block allocates or resizes. By default, objects that were live
            before are allocated first.

    Yields:
        A `RecordedPart`; its `recording` exists after the block, unless the block raises.

    Raises:
        StateError: this process is not recorded; the message has the command that records it.
        InvalidError: the output exists.
        RecordingIOError: a copy does not fit into the temporary directory.
    """
    raw = _raw_recording()
    if output is not None:
        check_regular(output)
    if output is not None and Path(output).is_file():
        raise InvalidError(f"{output}: exists already; give another name")
    part = RecordedPart()
    first, last = _new_marks(), _new_marks()
    _make(first)
    try:
        yield part
    except BaseException:
        part._why_none = "the block ended with an exception, so it has no recording"
        raise
    _make(last)
    path = temporary_recording() if output is None else Path(output)
    with tempfile.TemporaryDirectory(prefix="spanwise-part-") as folder:
        _cut_elsewhere(_copy_so_far(raw, Path(folder)), path, (first, last), own)
    part._recording = Recording.open(path)


def _cut_elsewhere(
    copy: Path, path: Path, around: tuple[tuple[int, ...], tuple[int, ...]], own: bool
) -> None:
    """Run `cut` in a process that is not recorded."""
    hidden = ("LD_PRELOAD", "PYTHONMALLOC", "SPANWISE_RECORD_")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(hidden)}
    words = [str(copy), str(path), *(",".join(map(str, marks)) for marks in around)]
    words += ["own"] * own
    done = subprocess.run(
        [sys.executable, "-c", _CUT, *words],
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = done.stderr.strip().splitlines()[-1:] or [f"exit status {done.returncode}"]
        raise StateError(f"recording(): {why[0]}")


def cut(copy: str, output: str, first: str, last: str, objects: str = "") -> int:
    """Orders a copied raw recording and writes the part between two rows of marks."""
    raw = Path(copy)
    try:
        salvage(raw, raw.parent)
        finish(raw, raw)
        whole = Recording.open(raw)
        begin = _place(whole.ops, tuple(map(int, first.split(","))))[1]
        end = _place(whole.ops, tuple(map(int, last.split(","))))[0]
        ops = np.asarray(whole.ops)
        make = own_ops if objects == "own" else slice_ops
        Recording.from_ops(make(ops, begin, end), output)
    except SpanwiseError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _raw_recording() -> Path:
    named, root = os.environ.get("SPANWISE_RECORD_FILE"), os.environ.get("SPANWISE_RECORD_PID")
    if named is None or root is None:
        raise StateError(
            "recording(): this process is not recorded: start it by"
            " `spanwise record -o FILE.swt -- python3 SCRIPT`, or use %%record in a notebook"
        )
    path = Path(named)
    if int(root) != os.getpid():
        path = path.with_name(f"{path.name.removesuffix('.swt')}.{os.getpid()}.swt")
    if not path.exists():
        raise StateError(
            f"recording(): process {os.getpid()} is a child that is not recorded: start the first"
            " one by `spanwise record --children -o FILE.swt -- python3 SCRIPT`"
        )
    return path


def _new_marks() -> tuple[int, ...]:
    return tuple(secrets.randbelow(4096) + 1 for _ in range(_MARKS))


def _make(marks: tuple[int, ...]) -> None:
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype = ctypes.c_void_p
    for size in marks:
        address = libc.aligned_alloc(ctypes.c_size_t(1 << _ALIGN_LOG2), ctypes.c_size_t(size))
        libc.free(ctypes.c_void_p(address))


def _place(ops: AnyRows, marks: tuple[int, ...]) -> tuple[int, int]:
    """Return the index of the first mark's allocation, and the index after the last mark's free."""
    rows = np.flatnonzero((ops["align_log2"] == _ALIGN_LOG2) & (ops["kind"] == lib.SW_OP_ALLOC))
    for thread in np.unique(ops["thread"][rows]):
        own = rows[ops["thread"][rows] == thread]
        sizes = ops["size"][own]
        for start in np.flatnonzero(sizes == marks[0]):
            if tuple(sizes[start : start + _MARKS]) == marks:
                last = int(own[start + _MARKS - 1])
                after = ops["object"][last + 1 :] == ops["object"][last]
                return int(own[start]), last + 2 + int(np.argmax(after))
    raise StateError("the recorder lost events of this block, on a full disk perhaps")


def _copy_so_far(raw: Path, folder: Path) -> Path:
    """Copy the events so far, areas first, so that events that move to the file are in both."""
    areas = Path(os.environ.get("SPANWISE_RECORD_AREAS", raw.parent)) / f"{raw.name}.areas"
    shutil.copyfile(areas, folder / areas.name)
    shutil.copyfile(raw, folder / raw.name)
    return folder / raw.name


# --- the %%record cell magic ----------------------------------------------------------------------

_MAGIC_HELP = """The cell magic %%record: `%load_ext spanwise`, then a cell that begins with it.

The cell runs as a separate program in a fresh python3 with PYTHONMALLOC=malloc, because the
notebook's process allocates all the time. The notebook's names that the cell uses are passed on:
modules are imported, other values are pickled, and loading them is recorded too. The output
is shown below the cell, then the lines of Python that allocate most and the recording, which is
also stored in the variable `recording`.
"""
_SHOWN = 3

_STARTER = """\
import importlib, pickle, sys
with open({values!r}, "rb") as file:
    given = pickle.load(file)
names = {{name: importlib.import_module(module) for name, module in given["modules"].items()}}
names.update(pickle.loads(given["values"]), __name__="__main__")
with open({cell!r}, encoding="utf-8") as file:
    code = compile(file.read(), {cell!r}, "exec")
exec(code, names)
"""
"""Passes the notebook's values to the cell, then runs it."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise SpanwiseError(f"%%record: {message}", "INVALID")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%record", description=_MAGIC_HELP, add_help=False)
    parser.add_argument("name", nargs="?", default="recording", help="variable for the recording")
    parser.add_argument("-o", "--output", help="the recording's file")
    parser.add_argument("--stacks", type=int, help="lines of Python, or return addresses, per call")
    parser.add_argument("--native", action="store_true", help="call sites in C, not in Python")
    parser.add_argument("--keep-pymalloc", action="store_true", help="keep CPython's allocator")
    return parser


def record_cell(line: str, cell: str, namespace: dict[str, Any]) -> Recording:
    """Records a cell's code and stores the recording in the namespace."""
    options = _parser().parse_args(shlex.split(line))
    with tempfile.TemporaryDirectory(prefix="spanwise-cell-") as folder:
        script = _script(Path(folder), cell, namespace)
        output = Path(options.output) if options.output else temporary_recording()
        # The notebook's stdout is not a file, so the program's output is forwarded afterwards.
        with tempfile.TemporaryFile() as said:
            result = run_recorded(
                [sys.executable, str(script)],
                output,
                RecordOptions(
                    stacks=options.stacks,
                    keep_pymalloc=options.keep_pymalloc,
                    python_sites=not (options.native or options.keep_pymalloc)
                    and options.stacks != 0,
                    stdout=said,
                ),
            )
            said.seek(0)
            sys.stdout.write(said.read().decode("utf-8", "replace"))
    for found in result.lines():
        print(found)
    recording = Recording.open(result.path)
    namespace[options.name] = recording
    for found in _most_allocating(recording):
        print(found)
    print(f"the recording is in the variable {options.name}")
    return recording


def _most_allocating(recording: Recording) -> Iterator[str]:
    """Yield a heading and the sites with the most bytes; nothing if no site is known."""
    largest = [site for site in recording.sites[:_SHOWN] if site.frames]
    labels = recording.site_labels(site.id for site in largest)
    for i, site in enumerate(largest):
        yield from ("most bytes were allocated by",) if i == 0 else ()
        yield f"{_format.size(site.allocated_bytes):>11}  {labels[site.id]}"


def _script(folder: Path, cell: str, namespace: dict[str, Any]) -> Path:
    """Return the program: the cell itself, or a starter that passes values to it."""
    own = folder / "notebook" / "cell.py"  # file and folder are in the names of its call sites
    own.parent.mkdir()
    own.write_text(cell, encoding="utf-8")
    names = used_names(cell)
    used = {name: namespace[name] for name in names if name in namespace}
    # A name that the cell also binds may not be needed, so it is omitted if it cannot be passed.
    used = {n: value for n, value in used.items() if not names[n] or _travels(value)}
    if not used:
        return own
    values = folder / "values.pickle"
    values.write_bytes(_packed(used))
    starter = folder / "starter.py"
    starter.write_text(_STARTER.format(values=str(values), cell=str(own)), encoding="utf-8")
    return starter


def used_names(cell: str) -> dict[str, bool]:
    """Return the non-builtin global names in a cell's code, and whether the cell binds them."""
    try:
        table = symtable.symtable(cell, "cell", "exec")
    except SyntaxError:
        return {}
    own = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {*_globals_of(table), *_changed_in_place(cell)}
    used = {name for name in used if not hasattr(builtins, name)}
    return {name: name in own for name in sorted(used)}


def _changed_in_place(cell: str) -> Iterator[str]:
    """Yield the targets of augmented assignments, which symbol tables report only as bound."""
    for statement in ast.parse(cell).body:
        for node in ast.walk(statement):
            if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
                yield node.target.id


def _globals_of(table: symtable.SymbolTable) -> Iterator[str]:
    top = table.get_type() == "module"
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (top or symbol.is_global()):
            yield symbol.get_name()
    for child in table.get_children():
        yield from _globals_of(child)


def _packed(used: dict[str, Any]) -> bytes:
    modules = {n: value.__name__ for n, value in used.items() if isinstance(value, ModuleType)}
    values = {name: value for name, value in used.items() if name not in modules}
    bad = [name for name, value in used.items() if not _travels(value)]
    if bad:
        raise InvalidError(
            f"%%record: the cell runs in its own process and cannot get {', '.join(bad)} of"
            " this notebook: define it in the cell, or import it from a file"
        )
    return pickle.dumps({"modules": modules, "values": pickle.dumps(values)})


def _travels(value: Any) -> bool:
    """Return whether a fresh process can unpickle it without definitions of the notebook."""
    if isinstance(value, ModuleType):
        return value.__name__ != "__main__"
    try:
        raw = pickle.dumps(value)
    except Exception:
        return False
    return all(found != "__main__" for _, found, _ in pickletools.genops(raw))


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic; %load_ext calls this."""

    def record(line: str, cell: str) -> Recording:
        return record_cell(line, cell, shell.user_ns)

    record.__doc__ = _MAGIC_HELP
    shell.register_magic_function(record, magic_kind="cell", magic_name="record")
