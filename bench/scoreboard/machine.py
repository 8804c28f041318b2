# SPDX-License-Identifier: Apache-2.0
"""The class of a machine: the model of its processor, as /proc/cpuinfo tells it.

What a store-to-load forward or a line of the third level costs is a property of the model, so what
prototypes reached on one model says nothing of another. All four words must be equal: a cloud's
name for a processor ("AMD EPYC") belongs to the class.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")
# What the four are called on x86-64, and on arm64, where a processor has no name.
_WORDS = {
    "vendor": ("vendor_id", "CPU implementer"),
    "family": ("cpu family", "CPU architecture"),
    "model": ("model", "CPU part"),
    "name": ("model name",),
}
UNKNOWN = ""
"""The key of a class that bench/scoreboard/targets.toml does not list."""


@dataclass(frozen=True)
class Machine:
    """A model of a processor.

    Attributes:
        vendor: as the processor says, e.g. GenuineIntel.
        family: a number of the vendor's; 0 when it is not told.
        model: likewise.
        name: for people, as the processor or the hypervisor says; may be "".
    """

    vendor: str
    family: int
    model: int
    name: str

    def __str__(self) -> str:
        who = f"{self.vendor or 'vendor unknown'} family {self.family} model {self.model}"
        return f"{who}, {self.name or 'no name'}"


def _number(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        return 0


def parse_cpuinfo(text: str) -> Machine:
    """The model of the first processor in the text of a /proc/cpuinfo."""
    found: dict[str, str] = {}
    for line in text.split("\n\n", maxsplit=1)[0].splitlines():
        name, _, value = line.partition(":")
        found.setdefault(re.sub(r"\s+", " ", name).strip(), value.strip())

    def word(key: str) -> str:
        return next((found[name] for name in _WORDS[key] if name in found), "")

    return Machine(word("vendor"), _number(word("family")), _number(word("model")), word("name"))


def this_machine(path: Path = CPUINFO) -> Machine:
    """The class of this machine; of one without a /proc/cpuinfo everything is unknown."""
    try:
        return parse_cpuinfo(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return Machine("", 0, 0, "")


def key_of(machine: Machine, known: Mapping[str, Machine]) -> str:
    """The key under which a class is known, or UNKNOWN."""
    return next((key for key, each in known.items() if each == machine), UNKNOWN)
