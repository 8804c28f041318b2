# SPDX-License-Identifier: Apache-2.0
"""The command line of scripts/sizeclasses.py. Exit 0: ok, 1: stale or disproved, 2: bad input."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import os
import re
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

from . import emit, families
from .families import make_table
from .model import (
    BUILTINS,
    DEFAULT,
    PATH_CUTOFF,
    SIZE_MAX,
    SMALL_MAX,
    ProofError,
    SizeClassError,
    Table,
    prove,
)
from .tablefile import dump_table, load_table

_SCRIPT = "scripts/sizeclasses.py"
_EPILOG = f"""\
examples:
  python3 {_SCRIPT} --list
  python3 {_SCRIPT} --table go                          the table as Go prints it
  python3 {_SCRIPT} --table jemalloc --format json
  python3 {_SCRIPT} --table go --page-bytes 16384 --tail-limit 1/16
  python3 {_SCRIPT} --table c16 --span-slots 1                c16 with Go's short spans
  python3 {_SCRIPT} --table best.json -o build/best     C of any table
  python3 {_SCRIPT} --write                             regenerate the checked-in outputs
  python3 {_SCRIPT} --check                             fail if one of them is stale

A table file is {{"name": "mine", "page_bytes": 8192, "classes": [{{"size": 16, "pages": 1}}]}};
--format file prints any table in that form. Method and proofs: docs/design/sizeclass.md.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2, without the usage block."""
        self.exit(2, f"sizeclasses: {message}; see --help\n")


def _tail_limit(text: str) -> Fraction:
    if not re.fullmatch(r"\d{1,6}(\.\d{1,6}|/0*[1-9]\d{0,5})?", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a fraction such as 1/8 or 0.125")
    return Fraction(text)


def _cutoff(text: str) -> int:
    if not re.fullmatch(r"\d{1,6}", text) or int(text) > SMALL_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of bytes from 0 to {SMALL_MAX}")
    return int(text)


def _number(text: str, unit: str, digits: int) -> int:
    if not re.fullmatch(rf"\d{{1,{digits}}}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of {unit}")
    return int(text)


_slots = functools.partial(_number, unit="slots", digits=6)
_bytes = functools.partial(_number, unit="bytes", digits=9)


def _yes(text: str) -> bool:
    if text not in ("yes", "no"):
        raise argparse.ArgumentTypeError(f"{text!r} is neither yes nor no")
    return text == "yes"


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="sizeclasses.py",
        description="Size-class tables: parameters -> classes -> proofs -> C, JSON, Markdown.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    task = parser.add_mutually_exclusive_group()
    task.add_argument("--list", action="store_true", help="list the tables")
    task.add_argument("--write", action="store_true", help="regenerate the checked-in outputs")
    task.add_argument("--check", action="store_true", help="fail if a checked-in output is stale")
    task.add_argument("-o", metavar="DIR", dest="out", help="write the C of the table to DIR")
    names = ", ".join(families.NAMES)
    parser.add_argument(
        "--table", metavar="T", help=f"{names}, geometric-R or FILE.json (default go)"
    )
    parser.add_argument(
        "--format",
        choices=("table", "json", "md", "c", "file"),
        help="output format (default: table); file: a table file",
    )
    shape = parser.add_argument_group("parameters (of go and c16)")
    shape.add_argument("--page-bytes", type=_bytes, metavar="N", help="4096, 8192, 16384 or 65536")
    shape.add_argument(
        "--max-size", type=_bytes, metavar="N", help=f"largest class, power of two <= {SIZE_MAX}"
    )
    shape.add_argument(
        "--tail-limit", type=_tail_limit, metavar="F", help="largest share of a span's tail (1/8)"
    )
    shape.add_argument(
        "--span-slots",
        type=_slots,
        metavar="N",
        help="double spans of slots up to 1 KiB to this many slots or 64 KiB (go 1, c16 1024)",
    )
    shape.add_argument(
        "--growing",
        type=_yes,
        metavar="yes|no",
        help="start with the shortest span and double later ones (go no, c16 yes)",
    )
    shape.add_argument("--align", choices=("go", "16"), help="8 B steps to 32, or 16 B from 16")
    parser.add_argument(
        "--cutoff",
        type=_cutoff,
        metavar="N",
        help=f"largest size with a specialised path, 0 to {SMALL_MAX} bytes ({PATH_CUTOFF})",
    )
    parser.add_argument(
        "--root",
        default=str(Path(__file__).resolve().parents[2]),
        metavar="DIR",
        help="the source tree of --write and --check (default: the one of this script)",
    )
    return parser


def _shape_options(args: argparse.Namespace) -> dict[str, Any]:
    names = ("page_bytes", "max_size", "tail_limit", "span_slots", "growing", "align")
    return {name: getattr(args, name) for name in names if getattr(args, name) is not None}


def _chosen_table(args: argparse.Namespace) -> Table:
    chosen: str = args.table or "go"
    shape = _shape_options(args)
    builtin = BUILTINS.get(chosen)
    if builtin is not None:
        return make_table(dataclasses.replace(builtin, **shape))
    if shape:
        option = "--" + next(iter(shape)).replace("_", "-")
        raise SizeClassError(f"{chosen}: {option} shapes go and c16 only; leave it out")
    if chosen.endswith(".json"):
        return load_table(chosen)
    family = families.named(chosen)
    if family is None:
        known = ", ".join(families.NAMES)
        raise SizeClassError(
            f"table {chosen!r} is unknown; give {known}, geometric-R or a file FILE.json"
        )
    return family


def _command(args: argparse.Namespace, task: str) -> str:
    """Return the command that generates an output, without directories, so it is reproducible."""
    words = ["python3", _SCRIPT, "--table", Path(args.table or "go").name]
    for name, value in _shape_options(args).items():
        shown = {True: "yes", False: "no"}[value] if name == "growing" else str(value)
        words += ["--" + name.replace("_", "-"), shown]
    if args.cutoff is not None:
        words += ["--cutoff", str(args.cutoff)]
    return " ".join([*words, task])


def _origin(table: Table, command: str, cutoff: int, proofs: list[str]) -> emit.Origin:
    return emit.Origin(command, emit.parameter_line(table, cutoff), tuple(proofs))


def checked_in_outputs() -> dict[str, str]:
    """Run the proofs; return path in the source tree -> text of every checked-in output."""
    command = f"python3 {_SCRIPT} --write"
    tables = {name: make_table(parameters) for name, parameters in BUILTINS.items()}
    outputs = {}
    for name, table in tables.items():
        origin = _origin(table, command, PATH_CUTOFF, prove(table))
        outputs[f"src/gen/table_{name}.c"] = emit.table_source(table, origin)
        outputs[f"src/gen/paths_{name}.c"] = emit.paths_source(
            table, origin, PATH_CUTOFF, "gen/paths.h"
        )
        if name == DEFAULT:
            outputs["src/gen/default.h"] = emit.default_header(table, origin, PATH_CUTOFF)
            outputs["include/spanwise/gen/fast.h"] = emit.fast_header(table, origin)
    both = emit.Origin(command, f"tables go and c16, cut-off {PATH_CUTOFF} B", ())
    outputs["src/gen/paths.h"] = emit.paths_header(
        list(tables.values()), both, PATH_CUTOFF, "SW_GEN_PATHS_H"
    )
    return outputs


def c_outputs(table: Table, command: str, cutoff: int) -> dict[str, str]:
    """Run the proofs; return file name -> text of a table's C, including it as the default."""
    origin = _origin(table, command, cutoff, prove(table))
    name = table.identifier
    guard = f"SW_GEN_PATHS_{name.upper()}_H"
    header = f"paths_{name}.h"
    return {
        f"table_{name}.c": emit.table_source(table, origin),
        f"paths_{name}.c": emit.paths_source(table, origin, cutoff, header),
        header: emit.paths_header([table], origin, cutoff, guard),
        "default.h": emit.default_header(table, origin, cutoff),
        "fast.h": emit.fast_header(table, origin),
    }


def write_files(root: Path, outputs: dict[str, str]) -> None:
    """Write all texts below `root`. A failure leaves no partial or temporary file."""
    parts: dict[Path, Path] = {}  # temporary file -> final path
    path = root
    try:
        for name, text in outputs.items():
            path = root / name
            part = path.with_name(f".{path.name}.{os.getpid()}.part")
            path.parent.mkdir(parents=True, exist_ok=True)
            parts[part] = path
            part.write_text(text, encoding="utf-8")
        for part, path in parts.items():
            part.replace(path)
    except OSError as error:
        raise SizeClassError(
            f"{path}: cannot be written ({error.strerror}); choose another directory"
        ) from None
    finally:
        for part in parts:
            with contextlib.suppress(OSError):
                part.unlink(missing_ok=True)


def _check(root: Path) -> int:
    stale = 0
    for name, text in checked_in_outputs().items():
        path = root / name
        try:
            state = None if path.read_bytes() == text.encode() else "stale"
        except OSError as error:
            state = f"cannot be read ({error.strerror})"
        if state:
            stale = 1
            print(f"sizeclasses: {name}: {state}; run {_SCRIPT} --write", file=sys.stderr)
    return stale


def _list() -> str:
    lines = []
    tables = [table for name in families.NAMES if (table := families.named(name)) is not None]
    for table in tables:
        prove(table)
        line = emit.parameter_line(table, PATH_CUTOFF).split(", ", 1)[1]
        count = len(table.classes)
        lines.append(f"{table.name:9} {count} classes, {line}, hash {table.hash:016x}\n")
    return "".join(lines)


def _path_cutoff(args: argparse.Namespace) -> int:
    return PATH_CUTOFF if args.cutoff is None else args.cutoff


def _printed(args: argparse.Namespace, table: Table) -> str:
    proofs = prove(table)
    origin = _origin(table, _command(args, f"--format {args.format}"), _path_cutoff(args), proofs)
    if args.format == "json":
        return emit.to_json(table, f"{_SCRIPT}, table {table.name}")
    if args.format == "md":
        return emit.to_markdown(table, origin.command, origin.parameters, proofs)
    if args.format == "file":
        return dump_table(table)
    if args.format == "c":
        return emit.table_source(table, origin)
    return "\n".join(emit.text_lines(table)) + "\n"


def _reject_idle_options(args: argparse.Namespace) -> None:
    """Raise SizeClassError for options that the task would ignore."""
    idle = list(_shape_options(args))
    idle += [name for name in ("table", "cutoff", "format") if getattr(args, name) is not None]
    if (args.list or args.write or args.check) and idle:
        task = "--list" if args.list else "--write" if args.write else "--check"
        raise SizeClassError(f"{task} takes no --{idle[0].replace('_', '-')}; leave it out")
    if args.out is not None and args.format not in (None, "c"):
        raise SizeClassError(f"-o writes C, not --format {args.format}; leave one out")


def _run(args: argparse.Namespace) -> int:
    _reject_idle_options(args)
    if args.check:
        return _check(Path(args.root))
    if args.write:
        write_files(Path(args.root), checked_in_outputs())
        return 0
    if args.list:
        sys.stdout.write(_list())
        return 0
    table = _chosen_table(args)
    if args.out is not None:
        outputs = c_outputs(table, _command(args, "-o DIR"), _path_cutoff(args))
        write_files(Path(args.out), outputs)
        return 0
    sys.stdout.write(_printed(args, table))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    args = _parser().parse_args(argv)
    try:
        status = _run(args)
        sys.stdout.flush()
    except SizeClassError as error:
        print(f"sizeclasses: {error}", file=sys.stderr)
        return 2
    except ProofError as error:
        print(f"sizeclasses: not proved: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status
