# SPDX-License-Identifier: Apache-2.0
"""The drawing of the architecture is what src/LAYERS.md says."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from install_tools import ROOT

LAYERS = (ROOT / "src/LAYERS.md").read_text(encoding="utf-8")
ROOMS = (ROOT / "python/ROOMS.md").read_text(encoding="utf-8")


def _script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("architecture", ROOT / "scripts/architecture.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["architecture"] = module
    spec.loader.exec_module(module)
    return module


SCRIPT: Any = _script()


def test_the_picture_is_that_of_the_layers() -> None:
    assert SCRIPT.main([]) == 0, "python scripts/architecture.py --write"


def test_each_layer_is_drawn_and_said() -> None:
    names = [one.name for one in SCRIPT.layers(LAYERS)]
    assert len(names) > 20 and set(names) == set(SCRIPT.SAID)
    ElementTree.fromstring(SCRIPT.picture(LAYERS, ROOMS))  # it is whole
    drawn = ElementTree.fromstring(f"<g>{''.join(SCRIPT.floors(SCRIPT.layers(LAYERS)))}</g>")
    said = [text.text for text in drawn.iter("text")]
    assert all(said.count(name) == 1 for name in names)


def test_a_layer_by_hand() -> None:
    found = SCRIPT.layers(
        "# x\n\n1. `base`: `src/base/`\n2. `trace`: `t/` (uses only `base`, `os`)\n"
    )
    assert [(one.name, one.uses) for one in found] == [("base", ""), ("trace", "`base`, `os`")]


def test_a_layer_that_moves_makes_the_picture_untrue() -> None:
    moved = LAYERS.replace("1. `base`", "1. `heap`", 1).replace("7. `heap`", "7. `base`", 1)
    assert SCRIPT.picture(moved, ROOMS) != SCRIPT.picture(LAYERS, ROOMS)
