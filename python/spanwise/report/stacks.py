# SPDX-License-Identifier: Apache-2.0
"""Write weighted call stacks as pprof, speedscope and collapsed stacks."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from spanwise import _lib
from spanwise.recordings.live_sites import LiveSite, LiveSites
from spanwise.recordings.names import named_call, plain_function, split_place
from spanwise.recordings.sites import Framed, Site, Sites
from spanwise.results.rows import Rows

# --- protocol buffers -----------------------------------------------------------------------------
#
# Source: https://protobuf.dev/programming-guides/encoding. A field is a number and a wire type: a
# varint (0), or bytes with their length (2), which are strings, messages and packed numbers.

_NUMBER, _BYTES = 0, 2


def varint(value: int) -> bytes:
    """Encode a number, 7 bits per byte, lowest first; negative ones as 64-bit two's complement."""
    left = value & (1 << 64) - 1
    made = bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def number(field: int, value: int) -> bytes:
    """Encode a field that is a number; 0 is the default and omitted."""
    return b"" if value == 0 else varint(field << 3 | _NUMBER) + varint(value)


def content(field: int, value: bytes) -> bytes:
    """Encode a field that is a string or a message."""
    return varint(field << 3 | _BYTES) + varint(len(value)) + value


def packed(field: int, values: Iterable[int]) -> bytes:
    """Encode a packed field of numbers."""
    return content(field, b"".join(map(varint, values)))


# --- stacks ---------------------------------------------------------------------------------------

VALUES = {
    "alloc-objects": ("alloc_objects", "count"),
    "alloc-bytes": ("alloc_space", "bytes"),
    "inuse-objects": ("inuse_objects", "count"),
    "inuse-bytes": ("inuse_space", "bytes"),
    "waste-bytes": ("waste_space", "bytes"),
}
"""The values of a call site, with their names and units in pprof."""

UNKNOWN = "[unknown]"
_SCHEMA = "https://www.speedscope.app/file-format-schema.json"


class Call(NamedTuple):
    """A call as other tools show it."""

    function: str  # its name, or the module with an offset
    file: str = ""  # the source file, or the module without debug information; "": unknown
    line: int = 0  # in the file; 0: unknown


Frame: TypeAlias = tuple[Call, ...]
"""The calls of one return address: inlined ones first, then the function that has them."""

FrameNames: TypeAlias = Mapping[str, tuple[str, ...]]
"""Names of frames, as `names.name_frames` returns them."""


@dataclass(frozen=True)
class Stack:
    """A call stack with its values.

    Attributes:
        names: innermost first, never empty.
        frames: the same calls by return address.
        values: in the order of VALUES.
    """

    names: tuple[str, ...]
    frames: tuple[Frame, ...]
    values: tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """The allocations of one size class by one thread at a call site."""

    stack: Stack  # the site, with the values of this group
    slot_bytes: int  # of the class; 0: large objects
    thread: int  # its number in the recording


def stacks_of(allocated: Sites, live: LiveSites, names: FrameNames) -> list[Stack]:
    """Return the sites of a recording in the order of names; equal names are summed."""
    frames = _frames_of((*allocated, *live), names)
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
    return [Stack(chain, frames[chain], tuple(values)) for chain, values in sorted(found.items())]


def groups_of(rows: Rows, sites: Iterable[Site | LiveSite], names: FrameNames) -> list[Group]:
    """Return the rows of `Recording.site_groups` with names; equal names are summed."""
    sites = tuple(sites)
    frames = _frames_of(sites, names)
    chains = {site.id: chain_of(site) for site in sites}
    found: dict[tuple[tuple[str, ...], int, int], list[int]] = {}
    for site, slot_bytes, thread, *counts in np.asarray(rows).tolist():
        key = chains.get(site, (UNKNOWN,)), slot_bytes, thread
        before = found.get(key, [0] * len(VALUES))
        found[key] = [a + b for a, b in zip(before, counts, strict=True)]
    return [
        Group(Stack(chain, frames[chain], tuple(values)), slot_bytes, thread)
        for (chain, slot_bytes, thread), values in sorted(found.items())
    ]


def chain_of(site: Framed) -> tuple[str, ...]:
    """Return the frames of a site, innermost first, by name if known; never empty."""
    return site.names or site.frames or (UNKNOWN,)


def _frames_of(
    sites: Iterable[Framed], names: FrameNames
) -> dict[tuple[str, ...], tuple[Frame, ...]]:
    """Return the frames of each chain; of sites with the same, those of the first."""
    found: dict[tuple[str, ...], tuple[Frame, ...]] = {(UNKNOWN,): ((Call(UNKNOWN),),)}
    for site in sites:
        chain = chain_of(site)
        if chain not in found:
            found[chain] = tuple(_split(site, names))
    return found


def _split(site: Framed, names: FrameNames) -> Iterator[Frame]:
    """Yield the calls of each frame that has any after its leading wrappers were folded."""
    folded = len(site.full_names) - len(site.names)
    for frame in site.frames:
        every = names.get(frame, (frame,))
        kept, folded = every[folded:], max(folded - len(every), 0)
        if kept:
            yield tuple(_call(frame, name) for name in kept)


def _call(frame: str, name: str) -> Call:
    known = named_call(frame)
    if known is not None:
        return Call(*known)
    function, place = split_place(name)
    file, _, line = place.rpartition(":")
    if line.isdigit():
        return Call(function, file, int(line))
    return Call(function, "" if name.endswith(")") else place)  # a reason is in parentheses


def collapsed(stacks: Sequence[Stack], value: str) -> str:
    """Return a line per stack: names, root first, and a value; `;` in a name becomes `:`."""
    place = list(VALUES).index(value)
    return "".join(
        f"{';'.join(_word(name) for name in reversed(one.names))} {one.values[place]}\n"
        for one in stacks
        if one.values[place]
    )


def _word(name: str) -> str:
    return " ".join(name.replace(";", ":").split()) or UNKNOWN


def speedscope(stacks: Sequence[Stack], name: str) -> str:
    """Return a speedscope file with a sampled profile per value and one list of frames."""
    places: dict[Call, int] = {}
    chains = [
        [places.setdefault(call, len(places)) for frame in one.frames for call in frame][::-1]
        for one in stacks
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
        "shared": {"frames": [_speedscope_frame(call) for call in places]},
        "profiles": profiles,
    }
    return json.dumps(content, separators=(",", ":")) + "\n"


def _speedscope_frame(call: Call) -> dict[str, str | int]:
    known: dict[str, str | int] = {"file": call.file, "line": call.line}
    return {"name": call.function, **{key: value for key, value in known.items() if value}}


# --- pprof ----------------------------------------------------------------------------------------


class _Strings:
    """The string table of a profile; the first string is ""."""

    def __init__(self) -> None:
        self.places = {"": 0}

    def __getitem__(self, text: str) -> int:
        return self.places.setdefault(text, len(self.places))


def pprof(groups: Sequence[Group], duration_ns: int, program: str, comment: str) -> bytes:
    """Return a gzipped profile.proto: a sample per group, a location per frame, a line per call.

    Its only mapping has the name of the program, which pprof shows. It has no location, because
    pprof's source view disassembles the file of a location's mapping at its address.
    """
    strings = _Strings()
    types = [
        content(1, number(1, strings[name]) + number(2, strings[unit]))
        for name, unit in VALUES.values()
    ]
    ids: dict[Frame, int] = {}
    samples = []
    for group in groups:
        places = [ids.setdefault(frame, len(ids) + 1) for frame in group.stack.frames]
        body = packed(1, places) + packed(2, group.stack.values)
        samples.append(content(2, body + _labels(group, strings)))
    mapping = number(1, 1) + number(5, strings[program])
    mapping += b"".join(number(field, 1) for field in (7, 8, 9, 10))
    calls = [content(3, mapping), *_calls(ids, strings)]
    end = (
        number(10, duration_ns) + number(13, strings[comment]) + number(14, strings["inuse_space"])
    )
    table = [content(6, text.encode(errors="replace")) for text in strings.places]
    whole = b"".join([*types, *samples, *calls, *table, end])
    return gzip.compress(whole, mtime=0)


def _calls(frames: Mapping[Frame, int], strings: _Strings) -> Iterator[bytes]:
    """Yield the locations of frames by their ids, then their functions.

    C++ and Rust functions are named without parameters and template arguments, as pprof itself
    names them; the whole name is their system name. Other functions have none: pprof would take a
    name that equals it for C++ and strip what is in angle brackets, so that "<module>" became "".
    """
    functions: dict[tuple[str, str], int] = {}
    for frame, i in frames.items():
        body = number(1, i)
        for call in frame:
            function = functions.setdefault((call.function, call.file), len(functions) + 1)
            body += content(4, number(1, function) + number(2, call.line))
        yield content(4, body)
    for (name, file), i in functions.items():
        plain = plain_function(name) if "::" in name else name
        names = number(2, strings[plain]) + (number(3, strings[name]) if plain != name else b"")
        yield content(5, number(1, i) + names + number(4, strings[file]))


def _labels(group: Group, strings: _Strings) -> bytes:
    size = number(3, group.slot_bytes) + number(4, strings["bytes"])
    cls = size if group.slot_bytes else number(2, strings["large"])
    thread = number(2, strings[str(group.thread)])
    return content(3, number(1, strings["class"]) + cls) + content(
        3, number(1, strings["thread"]) + thread
    )
