# SPDX-License-Identifier: Apache-2.0
"""Lists every public name of the package spanwise, and keeps the list of docs/design/python-api.md.

The list is derived from the installed package: types with their attributes and methods, functions
with their arguments, and columns of rows. tests/python/base/test_names.py checks the names against
the rules of that page. Exit status: 0 the page is true, 1 it is not, 2 bad usage.

Example:
    .venv/bin/python scripts/api_names.py --write
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import spanwise
from spanwise import _lib
from spanwise.heap import heap_map
from spanwise.heap.stats import SPANS_DTYPE
from spanwise.ledger import ledger
from spanwise.measure import replay_result, replayer
from spanwise.optimizer import frontier
from spanwise.recordings import hostages, lifetimes, site_groups, summary
from spanwise.sweeps import tasks
from spanwise.tables import classes

PAGE = Path(__file__).parents[1] / "docs/design/python-api.md"
BEGIN = "<!-- names: written by scripts/api_names.py --write -->\n"

COLUMNS: dict[str, tuple[str, ...]] = {
    "Recording.ops": spanwise.OPS_DTYPE.names or (),
    "Recording.timeline": _lib.RUN_SAMPLE_DTYPE.names or (),
    "Recording.histogram": summary.HISTOGRAM_DTYPE.names or (),
    "Recording.lifetimes": lifetimes.LIFETIMES_DTYPE.names or (),
    "Recording.site_groups": site_groups.GROUPS_DTYPE.names or (),
    "Hostages.array": hostages.HOSTAGES_DTYPE.names or (),
    "Recording.threads": summary.THREADS_DTYPE.names or (),
    "Recording.sites": ("id", "allocs", "allocated_bytes", "frames"),
    "SizeClassTable.classes": classes.CLASSES_DTYPE.names or (),
    "Ledger.classes": ledger.LEDGER_CLASS_DTYPE.names or (),
    "Ledger.array": ledger.ROW_FIELDS,
    "Heap.spans": SPANS_DTYPE.names or (),
    "HeapMap.array": heap_map.TILES_DTYPE.names or (),
    "HeapMap.placed": heap_map.PLACED_DTYPE.names or (),
    "HeapMap.slots": heap_map.SLOTS_DTYPE.names or (),
    "Frontier.array": frontier.FRONTIER_DTYPE.names or (),
    "Replay.samples": replay_result.SAMPLES_DTYPE.names or (),
    "Replay.timeline": replayer.TIMELINE_DTYPE.names or (),
    "Sweep": tasks.ROW_FIELDS,
}
"""Columns of rows, by what gives them."""


@dataclass(frozen=True)
class Name:
    """A public name.

    Attributes:
        owner: the type, function or rows that it belongs to; "" for names of the package.
        name: itself.
        kind: "type", "error", "function", "module", "data", "method", "argument" or "column".
        default: of an argument, `inspect.Parameter.empty` where it must be given.
    """

    owner: str
    name: str
    kind: str
    default: Any = None


def public_names() -> list[Name]:
    """Every public name, from the package as it is installed."""
    found: list[Name] = []
    for name in spanwise.__all__:
        value = getattr(spanwise, name)
        found.append(Name("", name, _kind(value)))
        if inspect.isclass(value):
            found += _of_class(name, value)
        elif inspect.isfunction(value):
            found += _arguments(name, value)
    for module in (spanwise.workloads, spanwise.plots):
        found += _of_module(module)
    for owner, columns in COLUMNS.items():
        found += [Name(owner, column, "column") for column in columns]
    return found


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "error" if issubclass(value, BaseException) else "type"
    if inspect.ismodule(value):
        return "module"
    return "function" if inspect.isfunction(value) else "data"


def _of_class(owner: str, kind: type) -> Iterator[Name]:
    """Names that the package defines, not those of numpy or of built-in types."""
    names: set[str] = set()
    for base in kind.__mro__:
        if base.__module__.startswith("spanwise"):
            names |= {name for name in vars(base) if not name.startswith("_")}
    names |= set(_documented(kind))
    if dataclasses.is_dataclass(kind):
        names |= {field.name for field in dataclasses.fields(kind)}
    if "__init__" in vars(kind) and not dataclasses.is_dataclass(kind):
        yield from (Name(owner, *rest) for rest in _parameters(vars(kind)["__init__"]))
    for name in sorted(names):
        value = inspect.getattr_static(kind, name, None)
        value = getattr(value, "__func__", value)
        if inspect.isfunction(value):
            yield Name(owner, name, "method")
            yield from _arguments(f"{owner}.{name}", value)
        else:
            yield Name(owner, name, "data")


def _documented(kind: type) -> list[str]:
    """What its docstring lists as attributes: those that instances alone have are named there."""
    text = inspect.getdoc(kind) or ""
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    return re.findall(r"^    (\w+): ", section[1], re.MULTILINE) if section else []


def _of_module(module: Any) -> Iterator[Name]:
    prefix = module.__name__.partition(".")[2]
    for name in sorted(getattr(module, "__all__", vars(module))):
        value = getattr(module, name)
        if inspect.isfunction(value) and not name.startswith("_"):
            yield Name(prefix, name, "function")
            yield from _arguments(f"{prefix}.{name}", value)


def _arguments(owner: str, function: Any) -> Iterator[Name]:
    yield from (Name(owner, *rest) for rest in _parameters(function))


def _parameters(function: Any) -> Iterator[tuple[str, str, Any]]:
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in ("self", "cls") and parameter.kind is not parameter.VAR_KEYWORD:
            yield name, "argument", parameter.default


def listing(names: list[Name]) -> str:
    """The list as the page has it."""
    lines = ["", "## Types", "", "| type | data | methods |", "|---|---|---|"]
    for one in names:
        if (one.owner, one.kind) == ("", "type"):
            own = [name for name in names if name.owner == one.name]
            data, methods = _of(own, "data"), _of(own, "method")
            lines.append(f"| `{one.name}` | {_told(data)} | {_told(methods)} |")
    lines += [
        "",
        "## Functions and methods with arguments",
        "",
        "| call | arguments |",
        "|---|---|",
    ]
    callers = dict.fromkeys(one.owner for one in names if one.kind == "argument")
    for caller in sorted(callers):
        own = [name for name in names if name.owner == caller]
        lines.append(f"| `{caller}` | {_told(_of(own, 'argument'))} |")
    lines += ["", "## Columns", "", "| rows | columns |", "|---|---|"]
    lines += [f"| `{owner}` | {_told(columns)} |" for owner, columns in COLUMNS.items()]
    errors = [one.name for one in names if one.kind == "error"]
    own = [one for one in names if one.owner == ""]
    rest = [one.name for one in own if one.kind in ("data", "module")]
    lines += ["", "## Errors, and what is neither", "", f"Errors: {_told(errors)}.", ""]
    lines += [f"Modules and constants: {_told(rest)}.", ""]
    return "\n".join(lines)


def _of(names: list[Name], kind: str) -> list[str]:
    return [name.name for name in names if name.kind == kind]


def _told(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names)


def main(arguments: list[str]) -> int:
    """Compares, or writes."""
    if arguments not in ([], ["--write"]):
        print("usage: api_names.py [--write]", file=sys.stderr)
        return 2
    text = PAGE.read_text(encoding="utf-8")
    head = text.partition(BEGIN)[0]
    wanted = head + BEGIN + listing(public_names())
    if arguments:
        PAGE.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        print(f"{PAGE.name}: not what the package has; run scripts/api_names.py --write")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
