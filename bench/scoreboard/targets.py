# SPDX-License-Identifier: Apache-2.0
"""The rows of targets.toml: what is measured, against whom, and what is to be reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from scoreboard.machine import Machine

OURS = ("inline", "bare", "exported", "generic", "preload")
PEERS = ("linked", "preload", "go", "constant", "self", "counts")
METRICS = {
    "op": "ns",
    "rss_over_live": "x",
    "rss_over_table": "x",
    "cpu": "s",
    "elapsed": "s",
    "peak": "MiB",
    "malloc_p999": "cycles",
    "free_p999": "cycles",
    "rss_growth": "x",
}
SCRIPTED = ("arena", "gc", "loop", "range", "buffer")  # beginnings of names that scripts measure
FIELD = "field"  # how the names of rows begin that programs of bench/field measure
PROPER = ("linked", "preload", "go")  # other allocators: these rows name a reference
REQUIREMENT = re.compile(r"^([a-z][a-z0-9-]*) >= (\d+(?:\.\d+)*)$")


@dataclass(frozen=True)
class Requirement:
    """A peer and its least version, e.g. one that must have run for a verdict."""

    family: str
    version: tuple[int, ...]
    exact: bool = False  # then mimalloc3 does not count as mimalloc

    @classmethod
    def parse(cls, text: str, key: str = "reference", *, exact: bool = False) -> Requirement:
        """Reads `NAME >= VERSION`, e.g. `snmalloc >= 0.7`; the key is for messages.

        Raises:
            ValueError: the text has another form.
        """
        match = REQUIREMENT.match(text)
        if match is None:
            raise ValueError(f"{key} '{text}' is not 'NAME >= VERSION'")
        return cls(match[1], parse_version(match[2]), exact)

    def met_by(self, name: str, version: str) -> bool:
        """Whether a peer of that name (mimalloc3 counts as mimalloc) and version will do."""
        named = self.family in ((name,) if self.exact else (name, family(name)))
        return named and parse_version(version) >= self.version

    def __str__(self) -> str:
        least = ".".join(map(str, self.version))
        return f"{self.family} >= {least}" if least else self.family


@dataclass(frozen=True)
class Weaker:
    """A target above what was asked, on one class of machines, and what justifies it there.

    Attributes:
        machine: key of the class.
        target: the ratio.
        prototype: the step of bench/studies/limits that does what the row does, or less.
        figure: what it reached on that class, in the same ratio; `target` is not above it.
    """

    machine: str
    target: float
    prototype: str
    figure: float


@dataclass(frozen=True)
class Target:
    """One row of the scoreboard.

    Attributes:
        name: what people call it.
        bench: the row of the bench programs for ours, without the policy.
        peer_bench: the same for the peers.
        unit: of the values printed.
        ours: how ours is called (one of OURS).
        peers: how peers are called (one of PEERS); `constant`: the row's value is the ratio itself;
            `self`: our own row peer_bench; `counts`: bench and peer_bench are paths, whose
            instructions are compared.
        metric: counter of the bench programs that holds the value.
        target: what is asked: ours / best peer must not exceed it; None: the row is reported, not
            judged.
        reference: peers without which there is no verdict.
        constant: what the value is a ratio to, when peers is `constant`.
        path: path of bench/rows/paths_*.c whose counts stand beside the row, or "".
        base: a row; what is compared is ours / best peer in `bench` over the same in it. "": none.
        needs_gb: the row is skipped on a machine with less memory free.
        cause: why the row is missed, as far as known; printed with a missed row.
        script: script of bench/ that measures and judges the row, which is its row `bench`; it is
            run only when --rows begins with one of SCRIPTED. "": the bench programs.
        limit: what the script's value, in the row's unit, must not exceed; None: reported.
        weaker: targets above that, each on a class of machines where a prototype justifies it.
        decision: number of the note in docs/decisions/ that has the reason of weaker targets.
        apart: peers that are measured and shown, but do not compete.
        only: the only peers that compete; empty: all do but those of `apart`.
        environment: variables of the processes of ours, and of no other.
        because: why the row has `apart`, `only` or `environment`; printed with it.
        programs: rows of which this one is the geometric mean; peers is then `mean` or `rank`.
        spare: what ours may be above the peer even where that is more than target, in the unit.
    """

    name: str
    bench: str
    peer_bench: str
    unit: str
    ours: str
    peers: str
    metric: str
    target: float | None
    reference: tuple[Requirement, ...]
    constant: str
    path: str
    base: str = ""
    needs_gb: float = 0.0
    cause: str = ""
    script: str = ""
    limit: float | None = None
    weaker: tuple[Weaker, ...] = ()
    decision: str = ""
    apart: tuple[Requirement, ...] = ()
    only: tuple[Requirement, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    because: str = ""
    programs: tuple[str, ...] = ()
    spare: float = 0.0

    @property
    def is_field(self) -> bool:
        """Whether programs of bench/field measure it: only when --rows begins with `field`."""
        return self.name.startswith(FIELD)

    def admits(self, name: str, version: str) -> bool:
        """Whether a peer of that name and version competes in the row."""
        if self.only:
            return any(each.met_by(name, version) for each in self.only)
        return not any(each.met_by(name, version) for each in self.apart)

    def weaker_on(self, machine: str) -> Weaker | None:
        """The weaker target that holds on a class of machines, by its key."""
        return next((each for each in self.weaker if each.machine == machine), None)

    @property
    def paths(self) -> tuple[str, ...]:
        """What is to be counted for the row; the library without checks has paths of its own."""
        if self.peers == "counts":
            return (self.bench, self.peer_bench)
        if not self.path:
            return ()
        return (f"bare {self.path}" if self.ours == "bare" else self.path,)


def family(name: str) -> str:
    """The allocator behind a peer's name: mimalloc3 -> mimalloc, go-special -> go."""
    return name.split("-", maxsplit=1)[0].rstrip("0123456789")


def parse_version(text: str) -> tuple[int, ...]:
    """The first run of numbers and dots: `5.3.0-0-g54e` -> (5, 3, 0), `go1.26` -> (1, 26)."""
    match = re.search(r"\d+(?:\.\d+)*", text)
    return tuple(int(part) for part in match[0].split(".")) if match else ()


@dataclass(frozen=True)
class TargetFile:
    """A file of targets.

    Attributes:
        rows: in the order of the file.
        machines: the classes that weaker targets may hold on, by key.
        repetitions: how many a row must have to be judged.
        field_repetitions: the same for the rows of the field.
    """

    rows: tuple[Target, ...]
    machines: Mapping[str, Machine]
    repetitions: int
    field_repetitions: int = 0
