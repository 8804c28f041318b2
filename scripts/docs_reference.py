# SPDX-License-Identifier: Apache-2.0
"""Generates the reference pages of the site: Python names by autodoc, and the C headers.

A Python class has a page, and so have the functions, the errors, `plots`, `workloads`, and each C
header.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MODULES = ("plots", "workloads")
"""Public modules, with a page each."""


def page(title: str, *parts: str) -> str:
    """Return a page in reStructuredText."""
    return "\n\n".join([f"{title}\n{'=' * len(title)}", *parts]) + "\n"


# --- Python --------------------------------------------------------------------------------------


def python_pages() -> dict[str, str]:
    """Return the pages of docs/reference/python by name, and `index`."""
    package = importlib.import_module("spanwise")
    names = sorted(package.__all__, key=str.lower)
    things = {name: getattr(package, name) for name in names if name not in MODULES}
    classes = {n: t for n, t in things.items() if inspect.isclass(t) and not _is_error(t)}
    raised = {name: thing for name, thing in things.items() if _is_error(thing)}
    others = {n: t for n, t in things.items() if n not in classes and n not in raised}
    found = {name: page(name, *_class(name, thing)) for name, thing in classes.items()}
    found["errors"] = page(
        "Errors", *(line for name, thing in raised.items() for line in _class(name, thing))
    )
    found["functions"] = page("Functions", *(_other(f"spanwise.{n}", t) for n, t in others.items()))
    for name in MODULES:
        found[name] = page(name, *_module(f"spanwise.{name}", getattr(package, name)))
    found["index"] = page(
        "Python",
        "The public names of ``import spanwise as sw``. Each class has a page.",
        _toctree(["functions", *MODULES, "errors", *classes]),
        *_summaries("Functions", "func", {n: t for n, t in others.items() if callable(t)}),
        "Modules\n-------",
        "* :py:mod:`spanwise.plots`: pictures of ledgers, recordings and heaps",
        "* :py:mod:`spanwise.workloads`: synthetic recordings, repeatable",
        *_summaries("Classes", "class", classes),
    )
    return found


def _is_error(thing: Any) -> bool:
    return inspect.isclass(thing) and issubclass(thing, BaseException)


def _class(name: str, thing: type) -> Iterator[str]:
    foreign = [one.__name__ for one in thing.__mro__ if not one.__module__.startswith("spanwise")]
    options = f"   :members:\n   :inherited-members: {', '.join(foreign)}"
    yield f".. autoclass:: spanwise.{name}\n{options}"


def _other(name: str, thing: Any) -> str:
    if callable(thing):
        return f".. autofunction:: {name}"
    text = escaped(_data_docstring(name.rpartition(".")[2], thing))
    return f".. py:data:: {name}\n\n" + textwrap.indent(text, "   ")


def _data_docstring(name: str, thing: Any) -> str:
    """Return the string after the assignment to a public name, which `help()` does not know."""
    for module in list(sys.modules.values()):
        own = module.__name__.startswith("spanwise.") and module.__dict__.get(name) is thing
        tree = ast.parse(inspect.getsource(module)) if own else ast.Module([], [])
        for before, after in itertools.pairwise(tree.body):
            names = [ast.unparse(one) for one in getattr(before, "targets", ())]
            names += [ast.unparse(before.target)] if isinstance(before, ast.AnnAssign) else []
            if name in names and isinstance(after, ast.Expr):
                return inspect.cleandoc(str(ast.literal_eval(after.value)))
    return ""


def _module(name: str, module: Any) -> Iterator[str]:
    yield f".. py:module:: {name}"
    yield escaped(inspect.getdoc(module) or "")
    for member in sorted(module.__all__):
        thing = getattr(module, member)
        yield _other(f"{name}.{member}", thing)


def _summaries(title: str, role: str, things: dict[str, Any]) -> Iterator[str]:
    yield f"{title}\n{'-' * len(title)}"
    rows = ".. list-table::\n   :widths: 30 70\n"
    for name, thing in things.items():
        first = (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
        rows += f"\n   * - :py:{role}:`~spanwise.{name}`\n     - {first}"
    yield rows


def _toctree(names: list[str]) -> str:
    return ".. toctree::\n   :hidden:\n\n" + "\n".join(f"   {name}" for name in names)


# --- C -------------------------------------------------------------------------------------------

_TITLE = re.compile(r"\*/\s*/\* (.+?)(?:\.\s|:?\n \*\n|\s\*/)", re.DOTALL)
"""The first sentence of the comment after the licence."""


def header_pages(root: Path) -> dict[str, str]:
    """Return the pages of docs/reference/c by name, each with a header, and `index`."""
    found, rows = {}, ".. list-table::\n   :widths: 30 70\n"
    for header in sorted((root / "include/spanwise").glob("*.h*")):
        text = header.read_text(encoding="utf-8")
        match = _TITLE.search(text)
        title = match[1].replace("\n *", "") if match else ""
        rows += f"\n   * - :doc:`{header.name} <{header.stem}>`\n     - {escaped(title)}"
        language = "c" if header.suffix == ".h" else "cpp"
        found[header.stem] = page(header.name, code(text, language))
    intro = "Include ``<spanwise/spanwise.h>``, or the header of a subject."
    found["index"] = page("C", intro, rows, _toctree(sorted(found)))
    return found


def code(text: str, language: str = "c") -> str:
    """Return a code block."""
    return f".. code-block:: {language}\n\n" + textwrap.indent(text.strip("\n"), "   ")


def escaped(text: str) -> str:
    """Return a comment's text in reStructuredText: `code` as such, other markup escaped."""
    text = re.sub(r"([\\*|]|_\b)", r"\\\1", text)
    return re.sub(r"`([^`\n]+)`", r"``\1``", text)
