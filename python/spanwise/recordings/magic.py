# SPDX-License-Identifier: Apache-2.0
"""The %%record cell magic: `%load_ext spanwise`, then a cell that begins with %%record.

The cell runs as a program of its own in a fresh python3 with PYTHONMALLOC=malloc, because the
notebook's process allocates for itself all the time. Names of the notebook that the cell uses go
with it: modules are imported there, other values are pickled, and their loading is recorded too.
Its output is shown below the cell, then the recording, which is also put into the variable
`recording`.
"""

from __future__ import annotations

import argparse
import ast
import builtins
import pickle
import pickletools
import shlex
import symtable
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from spanwise.errors import InvalidError, SpanwiseError
from spanwise.recordings.recorder import STACKS, run_recorded
from spanwise.recordings.recording import Recording
from spanwise.recordings.temporary import temporary_recording

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
"""Gives the cell the notebook's values, then runs it."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> Any:
        raise SpanwiseError(f"%%record: {message}", "INVALID")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="%%record", description=__doc__, add_help=False)
    parser.add_argument("name", nargs="?", default="recording", help="variable for the recording")
    parser.add_argument("-o", "--output", help="the recording's file")
    parser.add_argument(
        "--stacks", type=int, default=STACKS, help="return addresses kept of each call"
    )
    parser.add_argument("--keep-pymalloc", action="store_true", help="keep CPython's allocator")
    return parser


def record_cell(line: str, cell: str, namespace: dict[str, Any]) -> Recording:
    """Records a cell's code and puts the recording into the namespace.

    Args:
        line: what stands after %%record: [NAME] [-o FILE] [--stacks N] [--keep-pymalloc].
        cell: Python source.
        namespace: the notebook's variables; the recording goes there under NAME.

    Returns:
        The recording.

    Raises:
        InvalidError: the cell uses names of the notebook that another process cannot get; all of
            them are named.
        SpanwiseError: wrong options; or as `spanwise.record`.
    """
    options = _parser().parse_args(shlex.split(line))
    with tempfile.TemporaryDirectory(prefix="spanwise-cell-") as folder:
        script = _script(Path(folder), cell, namespace)
        output = Path(options.output) if options.output else temporary_recording()
        # The notebook's stdout is no file, so the program's output is passed on afterwards.
        with tempfile.TemporaryFile() as said:
            outcome = run_recorded(
                [sys.executable, str(script)],
                output,
                stacks=options.stacks,
                keep_pymalloc=options.keep_pymalloc,
                stdout=said,
            )
            said.seek(0)
            sys.stdout.write(said.read().decode("utf-8", "replace"))
    for told in outcome.lines():
        print(told)
    recording = Recording.open(outcome.path)
    namespace[options.name] = recording
    print(f"the recording is in the variable {options.name}")
    return recording


def _script(folder: Path, cell: str, namespace: dict[str, Any]) -> Path:
    """The program: the cell itself, or a starter that first gives it what it uses."""
    own = folder / "cell.py"
    own.write_text(cell, encoding="utf-8")
    names = used_names(cell)
    used = {name: namespace[name] for name in names if name in namespace}
    # A name that the cell also binds may not be needed, so it is left out if it cannot be sent.
    used = {n: value for n, value in used.items() if not names[n] or _travels(value)}
    if not used:
        return own
    values = folder / "values.pickle"
    values.write_bytes(_packed(used))
    starter = folder / "starter.py"
    starter.write_text(_STARTER.format(values=str(values), cell=str(own)), encoding="utf-8")
    return starter


def used_names(cell: str) -> dict[str, bool]:
    """Global names that a cell's code uses and that are not built in: whether it binds them itself.

    Code that is no Python uses nothing: python3 will say what is wrong.
    """
    try:
        table = symtable.symtable(cell, "cell", "exec")
    except SyntaxError:
        return {}
    own = {s.get_name() for s in table.get_symbols() if s.is_assigned() or s.is_imported()}
    used = {*_globals_of(table), *_changed_in_place(cell)}
    used = {name for name in used if not hasattr(builtins, name)}
    return {name: name in own for name in sorted(used)}


def _changed_in_place(cell: str) -> Iterator[str]:
    """Names that `+=` and the like change: symbol tables say only that these are bound."""
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
            f"%%record: the cell runs in a process of its own and cannot get {', '.join(bad)} of"
            " this notebook: define it in the cell, or import it from a file"
        )
    return pickle.dumps({"modules": modules, "values": pickle.dumps(values)})


def _travels(value: Any) -> bool:
    """Whether a fresh process can load it: it pickles, and needs nothing that a cell defined."""
    if isinstance(value, ModuleType):
        return value.__name__ != "__main__"
    try:
        raw = pickle.dumps(value)
    except Exception:
        return False
    return all(told != "__main__" for _, told, _ in pickletools.genops(raw))


def load_ipython_extension(shell: Any) -> None:
    """Registers the magic; called by %load_ext."""

    def record(line: str, cell: str) -> Recording:
        return record_cell(line, cell, shell.user_ns)

    record.__doc__ = __doc__
    shell.register_magic_function(record, magic_kind="cell", magic_name="record")
