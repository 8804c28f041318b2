# SPDX-License-Identifier: Apache-2.0
"""Call sites with their values, and the formats of stacks: pprof, speedscope, collapsed lines."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from spanwise import _lib
from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.recordings.sites import Site, Sites
from spanwise.report import proto
from spanwise.results.rows import Rows

VALUES = {
    "alloc-objects": ("alloc_objects", "count"),
    "alloc-bytes": ("alloc_space", "bytes"),
    "inuse-objects": ("inuse_objects", "count"),
    "inuse-bytes": ("inuse_space", "bytes"),
    "waste-bytes": ("waste_space", "bytes"),
}
"""Values of a call site: their names and units in pprof."""

UNKNOWN = "[unknown]"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


@dataclass(frozen=True)
class Stack:
    """A call site.

    Attributes:
        frames: innermost first, never empty.
        values: in the order of VALUES.
    """

    frames: tuple[str, ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """What one thread allocated of one size class at a call site.

    Attributes:
        stack: the site, with the values of this group.
        slot_bytes: of the class; 0: whole pages.
        thread: its number in the recording.
    """

    stack: Stack
    slot_bytes: int
    thread: int


def stacks_of(allocated: Sites, live: LiveSites) -> list[Stack]:
    """The sites of a recording, those with the same frames added up, in the order of frames."""
    found: dict[tuple[str, ...], list[int]] = {}
    for site in allocated:
        values = found.setdefault(chain_of(site), [0] * len(VALUES))
        values[0] += site.allocs
        values[1] += site.allocated_bytes
    for one in live:
        values = found.setdefault(chain_of(one), [0] * len(VALUES))
        values[2] += one.live_objects
        values[3] += one.requested_bytes
        values[4] += one.waste_bytes
    return [Stack(frames, tuple(values)) for frames, values in sorted(found.items())]


def groups_of(rows: Rows, sites: Iterable[Site | LiveSite]) -> list[Group]:
    """Rows of `Recording.site_groups`, those with the same frames by name added up.

    Args:
        rows: the groups.
        sites: the call sites, with names where they are known.
    """
    chains = {site.id: chain_of(site) for site in sites}
    found: dict[tuple[tuple[str, ...], int, int], list[int]] = {}
    for site, slot_bytes, thread, *counts in np.asarray(rows).tolist():
        key = chains.get(site, (UNKNOWN,)), slot_bytes, thread
        before = found.get(key, [0] * len(VALUES))
        found[key] = [a + b for a, b in zip(before, counts, strict=True)]
    return [
        Group(Stack(frames, tuple(values)), slot_bytes, thread)
        for (frames, slot_bytes, thread), values in sorted(found.items())
    ]


def chain_of(site: Site | LiveSite) -> tuple[str, ...]:
    """Its frames by name, innermost first, where they have names; never empty."""
    return site.names or site.frames or (UNKNOWN,)


def collapsed(stacks: Sequence[Stack], value: str) -> str:
    """A line a stack: frames from the root on, and a value; in a name, `;` becomes `:`."""
    place = list(VALUES).index(value)
    return "".join(
        f"{';'.join(_word(frame) for frame in reversed(one.frames))} {one.values[place]}\n"
        for one in stacks
        if one.values[place]
    )


def _word(frame: str) -> str:
    return " ".join(frame.replace(";", ":").split()) or UNKNOWN


def speedscope(stacks: Sequence[Stack], name: str) -> str:
    """One sampled profile for each value, over one list of frames."""
    frames: dict[str, int] = {}
    chains = [
        [frames.setdefault(frame, len(frames)) for frame in reversed(one.frames)] for one in stacks
    ]
    profiles = []
    for place, (value, (_, unit)) in enumerate(VALUES.items()):
        kept = [i for i, one in enumerate(stacks) if one.values[place]]
        weights = [stacks[i].values[place] for i in kept]
        profiles.append(
            {
                "type": "sampled",
                "name": value,
                "unit": "bytes" if unit == "bytes" else "none",
                "startValue": 0,
                "endValue": sum(weights),
                "samples": [chains[i] for i in kept],
                "weights": weights,
            }
        )
    content = {
        "$schema": _SCHEMA,
        "name": name,
        "exporter": f"spanwise {_lib.version()}",
        "activeProfileIndex": list(VALUES).index("inuse-bytes"),
        "shared": {"frames": [{"name": frame} for frame in frames]},
        "profiles": profiles,
    }
    return json.dumps(content, separators=(",", ":")) + "\n"


# --- pprof ----------------------------------------------------------------------------------------


class _Strings:
    """The table of strings of a profile; the first is ""."""

    def __init__(self) -> None:
        self.places = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))


def pprof(groups: Sequence[Group], duration_ns: int, comment: str) -> bytes:
    """A gzipped profile.proto: one sample a group, one location and one function a frame.

    A sample has two labels: the slot of its class in bytes, or "large", and its thread's number.
    """
    strings = _Strings()
    types = [
        proto.content(1, proto.number(1, strings[name]) + proto.number(2, strings[unit]))
        for name, unit in VALUES.values()
    ]
    ids: dict[str, int] = {}
    samples = []
    for group in groups:
        places = [ids.setdefault(frame, len(ids) + 1) for frame in group.stack.frames]
        body = proto.packed(1, places) + proto.packed(2, group.stack.values)
        samples.append(proto.content(2, body + _labels(group, strings)))
    locations = [
        proto.content(4, proto.number(1, i) + proto.content(4, proto.number(1, i)))
        for i in ids.values()
    ]
    functions = [
        proto.content(
            5,
            proto.number(1, i) + proto.number(2, strings[frame]) + proto.number(3, strings[frame]),
        )
        for frame, i in ids.items()
    ]
    end = (
        proto.number(10, duration_ns)
        + proto.number(13, strings[comment])
        + proto.number(14, strings["inuse_space"])
    )
    table = [proto.content(6, text.encode(errors="replace")) for text in strings.places]
    whole = b"".join([*types, *samples, *locations, *functions, *table, end])
    return gzip.compress(whole, mtime=0)


def _labels(group: Group, strings: _Strings) -> bytes:
    """The labels of a sample: a number with its unit, or a text."""
    size = proto.number(3, group.slot_bytes) + proto.number(4, strings["bytes"])
    cls = size if group.slot_bytes else proto.number(2, strings["large"])
    thread = proto.number(2, strings[str(group.thread)])
    return proto.content(3, proto.number(1, strings["class"]) + cls) + proto.content(
        3, proto.number(1, strings["thread"]) + thread
    )
