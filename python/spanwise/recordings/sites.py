# SPDX-License-Identifier: Apache-2.0
"""Call sites of a recording, with counts of their allocations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Protocol, TypeVar, cast

from spanwise import _format
from spanwise.recordings.names import (
    Folding,
    entry,
    in_runtime_library,
    name_frames,
    named_call,
    plain_function,
    split_place,
)
from spanwise.results.rows import Result, Rows, Tabular, rows_of

_SHOWN = 10
_SMALL = 1000
"""A site with less than this part of all bytes has no row in text output."""
LABEL = 60
"""Characters of a call site in a sentence or a picture."""
ROOM_MIN = 20
"""Columns of a terminal that names have at least."""
UNKNOWN_ONLY = "no call sites are known: record the program with --stacks 16 (stacks=16 in Python)"
"""The message for a recording without call sites."""
_IMPORTED_ONLY = "no call sites are known: spanwise convert found none in the file it read"
_STANDARD = re.compile(r"/lib/python3\.\d+t?/(?!(site|dist)-packages/)|\(<frozen ")
"""In a line of Python's own modules."""
_STARTS = ("__libc_start_call_main", "__libc_start_main_impl", "__libc_start_main", "_start")
_COUNTS = ("allocs", "allocated_bytes")
_COLUMNS = ("id", *_COUNTS, "frames", "names", "full_names", "through")


class Framed(Protocol):
    """An object that belongs to a call site."""

    @property
    def id(self) -> int:
        """Number of the site; 0: unknown."""

    @property
    def frames(self) -> tuple[str, ...]:
        """Return addresses."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names without allocator wrappers, or ()."""

    @property
    def full_names(self) -> tuple[str, ...]:
        """All names, or ()."""

    @property
    def through(self) -> str:
        """The folded function of a runtime library that the first one called, or ""."""


AnySite = TypeVar("AnySite", bound=Framed)
"""A dataclass with the fields of `Framed`."""


def joined(site: Framed) -> dict[str, str]:
    """Return frames and names, each joined into one text for a column."""
    fields = ("frames", "names", "full_names")
    return {field: ";".join(getattr(site, field)) for field in fields}


def name_sites(
    sites: Sequence[AnySite], build_ids: Mapping[str, str], folding: Folding
) -> tuple[AnySite, ...]:
    """Return the sites with names."""
    found = name_frames((frame for site in sites for frame in site.frames), build_ids)
    runtime = {frame: in_runtime_library(frame) for frame in found}
    return tuple(_with_names(site, found, runtime, folding) for site in sites)


def _with_names(
    site: AnySite,
    found: Mapping[str, tuple[str, ...]],
    runtime: Mapping[str, bool],
    folding: Folding,
) -> AnySite:
    every = tuple(name for frame in site.frames for name in found[frame])
    of_runtime = [runtime[frame] for frame in site.frames for _ in found[frame]]
    names = folding.of(every, of_runtime)
    through = entry(every, names, of_runtime)
    made = replace(cast(Any, site), names=names, full_names=every, through=through)
    return cast(AnySite, made)


def have_names(sites: Iterable[Framed]) -> bool:
    """Return whether all sites with known frames have names."""
    return all(site.names or not site.frames for site in sites)


def merge_key(site: Framed) -> tuple[str, ...] | int:
    """Return what sites that are merged have in common."""
    return site.names or site.frames or site.id


def merge_sites(sites: Iterable[AnySite], counts: Sequence[str]) -> list[AnySite]:
    """Merge sites with equal names: add up the fields `counts`, keep the others of the first."""
    found: dict[tuple[str, ...] | int, AnySite] = {}
    for site in sites:
        key = merge_key(site)
        first = found.setdefault(key, site)
        if first is not site:
            sums = {name: getattr(first, name) + getattr(site, name) for name in counts}
            through = first.through if first.through == site.through else ""
            found[key] = replace(cast(Any, first), **sums, through=through)
    return list(found.values())


def unknown_text(imported: bool) -> str:
    """Return the message for a recording without call sites."""
    return _IMPORTED_ONLY if imported else UNKNOWN_ONLY


def unknown_only(sites: Iterable[Framed]) -> bool:
    """Return whether the unknown site is the only one."""
    return {site.id for site in sites} == {0}


def number_sites(frames: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], int]:
    """Number call sites of several processes from 1; one without frames is the unknown site 0."""
    known = [each for each in frames if each]
    return {(): 0, **{each: i for i, each in enumerate(known, 1)}}


def same_sites(frames: Mapping[int, tuple[str, ...]]) -> dict[int, int]:
    """Return by id the lowest id with the same frames; sites of unknown frames are omitted."""
    first: dict[tuple[str, ...], int] = {}
    return {site: first.setdefault(each, site) for site, each in sorted(frames.items()) if each}


# --- as text --------------------------------------------------------------------------------------


def callers(sites: Sequence[Framed], most: int) -> list[str]:
    """Return the innermost caller of each site, followed by its callers while they fit.

    A function of a runtime library that it called is named first: "main (a.c:3) through printf".
    Callers have no parameters, file and line, and a function that calls itself is named once. A
    line of Python's standard library is followed by the first line outside of it. Sites with equal
    texts show the first caller in which they differ, or the address.

    Args:
        sites: call sites.
        most: maximum number of characters.
    """
    texts = [_callers(site, most) for site in sites]
    for field, link in (("names", " < … < "), ("full_names", " through "), ("frames", " at ")):
        chains = [getattr(site, field) for site in sites]
        if field == "frames":
            chains = [tuple(one.rpartition("/")[2] for one in chain) for chain in chains]
        for place in range(max(map(len, chains), default=0)):
            for i in _alike(texts, [chain[place : place + 1] for chain in chains]):
                room = max((most - len(link)) // 2, 10)
                where = _own(chains[i][place], room)
                texts[i] = f"{_own(sites[i].names[0], room)}{link}{where}"
    return texts


def _alike(texts: Sequence[str], names: Sequence[tuple[str, ...]]) -> list[int]:
    """Return the sites with equal texts whose names here differ; those without one are left out."""
    groups: dict[str, list[int]] = {}
    for i, text in enumerate(texts):
        groups.setdefault(text, []).append(i)
    differing = (g for g in groups.values() if len({names[i] for i in g}) > 1)
    return [i for group in differing for i in group if names[i]]


def _callers(site: Framed, most: int) -> str:
    if not site.names:
        return _format.shortened(site.frames[0] if site.frames else "unknown", most)
    program = _program_line(site)
    if program:
        link = " < " if program == 1 else " < … < "
        room = most - len(link)
        last = _own(site.names[program], max(room - len(site.names[0]), room // 2, 10))
        return f"{_own(site.names[0], max(room - len(last), 10))}{link}{last}"
    text = innermost(site, most)
    functions = [plain_function(split_place(name)[0]) for name in site.names]
    for before, function in pairwise(functions):
        if function == before:
            continue  # inlined into itself by the compiler, or a recursion
        longer = f"{text} < {function}"
        if len(longer) > most or function in _STARTS:
            break
        text = longer
    return text


def innermost(site: Framed, most: int) -> str:
    """Return the first name of a site, and through which function it allocated if that fits."""
    name = _own(site.names[0], most)
    link = f" through {site.through}" if site.through else ""
    return f"{name}{link}" if len(name + link) <= most else name


def _program_line(site: Framed) -> int:
    """The first line of Python that is not in its standard library, if the innermost one is; or 0.

    0, too, if there is none, or if names are not one per frame.
    """
    if len(site.frames) != len(site.names) or not _STANDARD.search(site.frames[0]):
        return 0
    lines = ((i, frame) for i, frame in enumerate(site.frames) if named_call(frame) is not None)
    return next((i for i, frame in lines if not _STANDARD.search(frame)), 0)


def _own(name: str, most: int) -> str:
    """A name in at most so many characters; parameters, then a module or a long place give way."""
    if len(name) <= most:
        return name
    function = split_place(name)[0]
    plain, place = plain_function(function), name[len(function) :]
    if len(plain + place) > most and (place.startswith(" in ") or len(place) > most // 2):
        place = ""
    return _format.shortened(plain, most - len(place)) + place


def rows_with_callers(
    sites: Sequence[Framed], counts: Sequence[str], head: Sequence[str]
) -> list[tuple[str, ...]]:
    """Return rows of a table as wide as the terminal: counts of each site, and its callers."""
    rows = [tuple(_format.number(getattr(site, name)) for name in counts) for site in sites]
    columns = zip(head, *rows, strict=False)
    used = sum(2 + max(map(len, column)) for column in columns) if rows else 0
    room = max(_format.terminal_width() - used - 2, ROOM_MIN)
    return [(*row, text) for row, text in zip(rows, callers(sites, room), strict=True)]


# --- sites ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Site(Result):
    """A call site and its allocations.

    Attributes:
        id: as in the `site` column of the operations; 0 is the unknown site.
        allocs: allocations; allocated_bytes is their total size.
        frames: return addresses as "module+0xoffset", innermost caller first. The offset is an
            address in the module's file, as for addr2line. A line of Python (`record` with
            python_sites) is "python: function (file:line)", a call that an imported profile names
            "profile: function (file:line)".
        names: of the frames, "function (file:line)" if known. A frame has several names if calls
            were inlined. Leading allocator wrappers are folded, so the first name is the program's
            own function (docs/design/inspect.md).
        full_names: the same with the wrappers.
        through: the folded function of a C or C++ runtime library that the first of `names`
            called, such as printf; "" if there is none.
    """

    id: int
    allocs: int
    allocated_bytes: int
    frames: tuple[str, ...]
    names: tuple[str, ...] = ()
    full_names: tuple[str, ...] = ()
    through: str = ""

    def __repr__(self) -> str:
        where = " < ".join((self.names or self.frames)[:2]) or "unknown"
        text = (
            f"<Site {self.id}: {_format.plural(self.allocs, 'allocation')},"
            f" {_format.size(self.allocated_bytes)}, {where}>"
        )
        return _format.clipped(text)


def label_sites(
    frames: Mapping[int, tuple[str, ...]], build_ids: Mapping[str, str]
) -> dict[int, str]:
    """Return the innermost callers of each site, from the frames of each."""
    sites = [Site(site, 0, 0, each) for site, each in frames.items()]
    named = name_sites(sites, build_ids, Folding())
    return dict(zip(frames, callers(named, LABEL), strict=True))


def merge_keys(
    frames: Mapping[int, tuple[str, ...]], build_ids: Mapping[str, str]
) -> dict[int, tuple[str, ...] | int]:
    """Return the `merge_key` of each site, from the frames of each."""
    sites = [Site(site, 0, 0, each) for site, each in frames.items()]
    return {site.id: merge_key(site) for site in name_sites(sites, build_ids, Folding())}


def shown_of(
    sites: Sequence[AnySite], bytes_of: Callable[[AnySite], int]
) -> tuple[tuple[AnySite, ...], str]:
    """Return the sites of text output, and the start of a line about the others, or ""."""
    total = sum(map(bytes_of, sites))
    shown = tuple(site for site in sites if bytes_of(site) * _SMALL >= total)[:_SHOWN]
    if len(shown) == len(sites):
        return shown, ""
    more = _format.plural(len(sites) - len(shown), "site")
    rest = _format.size(total - sum(map(bytes_of, shown)))
    return shown, f"  ... {more} more, with {rest}"


class Sites(Sequence[Site], Result, Tabular):
    """Call sites, most bytes first.

    They are named on first access, from the symbols and debug information on this machine.

    Args:
        sites: the sites.
        build_ids: of the modules, by path; names are read from files with the same id only.
        imported: whether the recording was made from another tool's file.
    """

    def __init__(
        self,
        sites: Iterable[Site],
        build_ids: Mapping[str, str] | None = None,
        imported: bool = False,
    ) -> None:
        self.counted = tuple(sorted(sites, key=lambda site: -site.allocated_bytes))
        self._build_ids = dict(build_ids or {})
        self._imported = imported

    def named(self, *, full_stacks: bool = False, hide_frames: Iterable[str] = ()) -> Sites:
        """Return the same sites, named with these options.

        Args:
            full_stacks: do not fold allocator wrappers; `names` equal `full_names`.
            hide_frames: regular expressions; functions that match are folded as allocator
                wrappers are.

        Raises:
            InvalidError: invalid regular expression.
        """
        folding = Folding(full_stacks, tuple(hide_frames))
        return Sites(
            name_sites(self.counted, self._build_ids, folding), self._build_ids, self._imported
        )

    @cached_property
    def _sites(self) -> tuple[Site, ...]:
        return self.counted if have_names(self.counted) else self.named().counted

    def __getitem__(self, index: Any) -> Any:
        """Return a site, or `Sites` for a slice."""
        found = self._sites[index]
        if not isinstance(index, slice):
            return found
        return Sites(found, self._build_ids, self._imported)

    def __len__(self) -> int:
        return len(self.counted)

    @property
    def array(self) -> Rows:
        """One row per site: id, allocs, allocated_bytes, frames and names (joined by ";")."""
        rows = [{**site.to_dict(), **joined(site)} for site in self]
        return rows_of(rows, _COLUMNS)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {"sites": [site.to_dict() for site in self]}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sites) and self._sites == other._sites

    def __hash__(self) -> int:
        return hash(self._sites)

    def merged(self) -> Sites:
        """Return sites with equal names merged, as printed."""
        return Sites(merge_sites(self, _COUNTS), self._build_ids, self._imported)

    def __repr__(self) -> str:
        merged = self.merged()
        shown, more = shown_of(merged._sites, _allocated)
        rows = rows_with_callers(shown, _COUNTS, _HEAD)
        lines = [
            f"{_format.plural(len(merged), 'call site')}, most bytes first",
            _format.table(rows, _HEAD, left=0, indent="  ", names_last=True),
        ]
        if more:
            lines.append(f"{more} allocated")
        if unknown_only(self):
            lines.append(f"  {unknown_text(self._imported)}")
        return _format.clipped("\n".join(lines))

    def _repr_html_(self) -> str:
        merged = self.merged()
        shown, _ = shown_of(merged._sites, _allocated)
        rows = rows_with_callers(shown, _COUNTS, _HEAD)
        title = f"{_format.plural(len(merged), 'call site')}, the first {len(rows)}"
        return _format.html_table(rows, _HEAD, title, left=0)


def _allocated(site: Site) -> int:
    return site.allocated_bytes


_HEAD = ("allocations", "bytes", "innermost callers")
