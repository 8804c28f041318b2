# SPDX-License-Identifier: Apache-2.0
"""Sphinx's configuration; scripts/docs_site.py copies it to the sources of the build."""

import re
from typing import Any

from docutils import nodes
from sphinx import addnodes

project = "spanwise"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "docs/index"
myst_heading_anchors = 6
nb_execution_mode = "off"
default_role = "py:obj"
add_module_names = False
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
smartquotes = False
html_theme = "furo"
html_title = "spanwise"
html_favicon = "_static/favicon.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["search.js"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
suppress_warnings = ["misc.highlighting_failure", "mystnb.unknown_mime_type", "myst.header"]
suppress_warnings += ["ref.python"]  # `table` is an attribute of many classes


def literal(match: re.Match[str]) -> str:
    """Return `name` and `name()` as they are, for links, and other text between ` as a literal."""
    is_name = re.fullmatch(r"[A-Za-z_][\w.]*(\(\))?", match.group(1))
    return match.group() if is_name else f"`{match.group()}`"


def prepare(*arguments: Any) -> None:
    """Make examples and `text that is not a name` literal, and a single * a character."""
    lines = arguments[-1]
    text = re.sub(r"^Examples?:$", "Example::\n", "\n".join(lines), flags=re.MULTILINE)
    text = re.sub(r"(?<!`)`([^`\n]+)`(?!`)", literal, text)
    lines[:] = [
        line
        if re.match(r" *(>>>|\.\.\.) ", line)
        else re.sub(r"(?<![*\w])\*(?=[ ,.])", r"\*", line)
        for line in text.split("\n")
    ]


def find_name(app: Any, env: Any, node: Any, content: Any) -> Any:
    """Return a link for `name()`, and for Class.name of another module."""
    if (node.get("refdomain"), node.get("reftype")) != ("py", "obj"):
        return None
    name = node["reftarget"].removesuffix("()")
    if "." in name:
        node["refspecific"] = True
    python = env.get_domain("py")
    return python.resolve_xref(env, node["refdoc"], app.builder, "obj", name, node, content)


def shorten_sidebar(_app: Any, env: Any) -> None:
    """Leave design, decisions and measurements out of the sidebar; background.md lists them."""
    contents: nodes.Element = env.tocs["docs/background"]
    for one in list(contents.findall(addnodes.toctree)):
        one.parent.remove(one)


def setup(app: Any) -> None:
    """Prepare docstrings before napoleon reads them, links and the sidebar."""
    app.connect("autodoc-process-docstring", prepare, priority=400)
    app.connect("missing-reference", find_name)
    app.connect("env-updated", shorten_sidebar)
