# SPDX-License-Identifier: Apache-2.0
"""Generates the reference pages of the site: Python names by autodoc, C headers by declaration.

A Python class has a page, and so have the functions, the errors, `lessons`, `plots` and
`workloads`. A header of C or C++ has a page, and each function, type, macro and public member in it
an anchor with its comment.
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
from typing import Any, NamedTuple

MODULES = ("lessons", "plots", "workloads")
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
        "* :py:mod:`spanwise.lessons`: runnable examples of what articles measured",
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
        if inspect.ismodule(thing):
            first = (inspect.getdoc(thing) or "").partition("\n\n")[0].replace("\n", " ")
            yield f"* ``{name}.{member}``: {escaped(first)}"
            continue
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

_COMMENT = re.compile(r"/\*(.*?)\*/", re.DOTALL)
_NOISE = re.compile(r"\b(?:SW_API|SW_\w*INLINE|static|inline)\b|SW_NONNULL\(\d\)")
_ATTRIBUTE = re.compile(r"__attribute__\(\(.*?\)\)(?=\s|;|$)", re.DOTALL)
_TAGGED = re.compile(r"(?:typedef )?(struct|enum|union) (\w+) \{")
_FUNCTION = re.compile(r"[\w\s*]+?\b\*?(sw_\w+)\([^;{]*\)$", re.DOTALL)
_NAMES = re.compile(r"\b(sw_\w+)\b(?:\(\))?")
_GUARD = re.compile(r"#define \w+_H")
_SKIPPED = ("#include", "#if", "#endif", "#else", "#undef", 'extern "C"', "}")


class Item(NamedTuple):
    """A declaration of a header, or a group of functions with one comment."""

    comment: str
    code: str
    """The declaration as it is in the header."""
    functions: tuple[str, ...] = ()
    """Signatures, if it declares functions."""


def header_pages(root: Path) -> dict[str, str]:
    """Return the pages of docs/reference/c by name, and `index`."""
    headers = sorted((root / "include/spanwise").glob("*.h*"))
    texts = {header: header.read_text(encoding="utf-8") for header in headers}
    known = {_name(one) for text in texts.values() for i in items(text) for one in i.functions}
    seen: set[str] = set()
    found, rows = {}, ".. list-table::\n   :widths: 30 70\n"
    for header, text in texts.items():
        first, rest = _first_comment(text)
        title = first.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".:")
        rows += f"\n   * - :doc:`{header.name} <{header.stem}>`\n     - {escaped(title)}"
        language = "c" if header.suffix == ".h" else "cpp"
        body = [prose(first, known, language), f"``#include <spanwise/{header.name}>``"]
        if language == "c":
            body += [_rendered(item, known, seen) for item in items(rest)]
        else:
            body += cpp_classes(rest, known)
        found[header.stem] = page(header.name, *body)
    intro = "Include ``<spanwise/spanwise.h>``, or the header of a subject."
    found["index"] = page("C", intro, rows, _toctree(sorted(found)))
    return found


def _first_comment(text: str) -> tuple[str, str]:
    """Return the comment after the licence, as prose, and the text after it."""
    match = list(_COMMENT.finditer(text))[1]
    return _plain(match), text[match.end() :]


def _plain(comment: re.Match[str]) -> str:
    lines = comment.group(1).strip().split("\n")
    return "\n".join(re.sub(r"^ \* ?", "", line) for line in lines).strip()


def items(text: str) -> list[Item]:
    """Return the declarations of a header, in its order."""
    found: list[Item] = []
    comment = ""
    for chunk in _chunks(text):
        match = _COMMENT.fullmatch(chunk)
        if chunk == "" or chunk.startswith(_SKIPPED) or _GUARD.fullmatch(chunk):
            comment = ""
        elif match:
            comment = _plain(match)
        else:
            signature = _signature(chunk)
            joins = found and found[-1].functions and not comment and signature
            if signature and joins and _is_adjacent(text, found[-1].code, chunk):
                last = found[-1]
                found[-1] = Item(last.comment, chunk, (*last.functions, signature))
            else:
                found.append(Item(comment, chunk, (signature,) if signature else ()))
            comment = ""
    return found


def _is_adjacent(text: str, one: str, other: str) -> bool:
    return f"{one}\n{other}" in text


def _chunks(text: str) -> Iterator[str]:
    """Yield comments, declarations and directives of the top level, and "" for an empty line."""
    lines: list[str] = []
    for line in text.split("\n"):
        if not lines and (not line.strip() or line.startswith('extern "C"')):
            yield line.strip()
            continue
        lines.append(line)
        chunk = "\n".join(lines)
        if _is_whole(chunk):
            yield from _split(chunk)
            lines = []


def _is_whole(chunk: str) -> bool:
    if chunk.startswith("#"):
        return not chunk.endswith("\\")
    if chunk.count("/*") != chunk.count("*/"):
        return False
    bare = _COMMENT.sub("", chunk).strip()
    return not bare or (bare.endswith((";", "}")) and bare.count("{") == bare.count("}"))


def _split(chunk: str) -> Iterator[str]:
    """Move a comment after a declaration of one line before it."""
    after = re.fullmatch(r"([^\n#/][^\n]*;)\s*(/\*.*\*/)", chunk)
    yield from (after.group(2), after.group(1)) if after else (chunk,)


def _signature(chunk: str) -> str:
    """Return a function's declaration in one line, or "" for other declarations."""
    if chunk.startswith(("typedef", "#", "enum", "struct", "union")):
        return ""
    bare = re.split(r"\{|;", _COMMENT.sub("", _ATTRIBUTE.sub("", _NOISE.sub("", chunk))))[0]
    bare = " ".join(bare.split())
    return bare if _FUNCTION.fullmatch(bare) else ""


def _name(signature: str) -> str:
    match = _FUNCTION.fullmatch(signature)
    return match.group(1) if match else ""


def _rendered(item: Item, known: set[str], seen: set[str]) -> str:
    text = prose(item.comment, known)
    if item.functions:
        names = {_name(one) for one in item.functions}
        body = f".. c:function:: {(chr(10) + ' ' * 16).join(item.functions)}"
    else:
        directive, name = _described(item.code)
        names = {name}
        body = f".. {directive}:: {name}" if name else ""
        text = f"{text}\n\n{code(item.code)}".strip()
    if not body or names & seen:  # a second definition, of another machine or compiler
        return text
    seen |= names
    return f"{body}\n\n{textwrap.indent(text, '   ')}".rstrip()


def _described(chunk: str) -> tuple[str, str]:
    """Return the directive and the name of a type, macro or variable; "" for others."""
    tagged = _TAGGED.match(chunk)
    if tagged:
        return f"c:{tagged.group(1)}", tagged.group(2)
    macro = re.match(r"#define (\w+)", chunk)
    if macro:
        return "c:macro", macro.group(1)
    named = re.search(r"\b(sw_\w+)(?=\)?\(|;)", chunk) if chunk.startswith("typedef") else None
    return ("c:type", named.group(1)) if named else ("", "")


# --- C++ -----------------------------------------------------------------------------------------

_DETAIL = re.compile(
    r"^namespace detail \{\n.*?^\} // namespace detail\n", re.MULTILINE | re.DOTALL
)
_CLASS = re.compile(
    r"((?:template <[^>]*> )?)class (\w+)( final)?( : [^{]*?)? \{(.*)\};", re.DOTALL
)


def cpp_classes(text: str, known: set[str]) -> Iterator[str]:
    """Yield the classes of a header with their public members, and its functions.

    Args:
        text: of the header, after its first comment.
        known: C functions that are linked.
    """
    text = re.sub(
        r"^(namespace spanwise \{|\} // namespace spanwise)$", "", text, flags=re.MULTILINE
    )
    for comment, declared in _declarations(_DETAIL.sub("", text)):
        found = _CLASS.fullmatch(declared)
        if found is None:
            yield _cpp_rendered(_cpp_directive(declared), prose(comment, known))
            continue
        template, name, final, bases, inside = found.groups()
        shown = "" if bases is None or "detail::" in bases else bases.rstrip()
        public = inside.partition("public:\n")[2].partition("  private:\n")[0]
        members = [
            _cpp_rendered(_cpp_directive(member), prose(said, known))
            for said, member in _declarations(textwrap.dedent(public))
            if not member.endswith("= delete;")
        ]
        directive = f".. cpp:class:: {template}spanwise::{name}{final or ''}{shown}"
        yield _cpp_rendered(directive, "\n\n".join([prose(comment, known), *members]))


def _declarations(text: str) -> Iterator[tuple[str, str]]:
    """Yield the comment and the text of each declaration."""
    comment = ""
    for chunk in _chunks(text):
        match = _COMMENT.fullmatch(chunk)
        if match:
            comment = _plain(match)
        elif chunk and not chunk.startswith("#"):
            yield comment, chunk
            comment = ""


def _cpp_directive(declared: str) -> str:
    """Return the directive of a type or function, without its body."""
    if declared.startswith("using "):
        return f".. cpp:type:: {declared.removeprefix('using ').rstrip(';')}"
    signature = " ".join(re.split(r"\{|;| : |= default", declared)[0].split())
    scope = "spanwise::" if re.search(r"\boperator\W", signature) else ""
    return f".. cpp:function:: {re.sub(r'(?=operator)', scope, signature, count=1)}"


def _cpp_rendered(directive: str, text: str) -> str:
    return f"{directive}\n\n{textwrap.indent(text.strip(), '   ')}".rstrip()


def code(text: str, language: str = "c") -> str:
    """Return a code block."""
    return f".. code-block:: {language}\n\n" + textwrap.indent(text.strip("\n"), "   ")


def escaped(text: str) -> str:
    """Return a comment's text in reStructuredText: `code` as such, other markup escaped."""
    text = re.sub(r"([\\*|]|_\b)", r"\\\1", text)
    return re.sub(r"`([^`\n]+)`", r"``\1``", text)


def prose(comment: str, known: set[str], language: str = "c") -> str:
    """Return a comment: paragraphs, and indented or aligned lines as they are."""
    parts = []
    for part in re.split(r"\n\s*\n", comment):
        if re.search(r"^ |\S {2,}\S", part, re.MULTILINE):
            parts.append(code(textwrap.dedent(part), language))
            continue
        parts.append(_NAMES.sub(lambda match: _reference(match, known), escaped(part)))
    return "\n\n".join(parts)


def _reference(match: re.Match[str], known: set[str]) -> str:
    """Return a link to a function; escaped spaces separate it from the text around it."""
    return f"\\ :c:func:`{match.group(1)}`\\ " if match.group(1) in known else match.group()
