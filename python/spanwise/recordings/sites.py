# SPDX-License-Identifier: Apache-2.0
"""Call sites of a recording, with counts of their allocations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar, cast

from spanwise import _format
from spanwise.recordings.names import (
    Folding,
    entry,
    in_dependencies,
    in_runtime_library,
    name_frames,
    named_call,
    plain_function,
    split_place,
)
from spanwise.results.rows import Result, Rows, Tabular, Value, rows_of

if TYPE_CHECKING:
    from typing_extensions import Self

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
_NAMELESS = re.compile(r"\.so[.\d]*\+0x")
"""In the name of a library's function without a symbol, which does not help as a caller."""
_STARTS = ("__libc_start_call_main", "__libc_start_main_impl", "__libc_start_main", "_start")


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
    libraries = (runtime[frame] for frame in site.frames for _ in found[frame])
    of_runtime = [a or b for a, b in zip(libraries, in_dependencies(every), strict=True)]
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

    A function of a runtime library, of Python's standard library or of a Rust package that it
    called is named after it: "main (a.c:3) through printf". Callers have no parameters, file and
    line, and a function that calls itself is named once. Sites with equal texts show the first
    caller in which they differ, or the address.

    Args:
        sites: call sites.
        most: maximum number of characters.
    """
    texts = [_callers(site, most) for site in sites]
    for which, link in (("names", " < … < "), ("full_names", " through "), ("frames", " at ")):
        chains = [getattr(site, which) for site in sites]
        if which == "frames":
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
        text, called = _own(site.names[program], most), site.names[0]
        links = (f" through {name}" for name in (called, split_place(called)[0]))
        return text + next((one for one in links if len(text + one) <= most), "")
    text = innermost(site, most)
    functions = [plain_function(split_place(name)[0]) for name in site.names]
    for before, function in pairwise(functions):
        if function == before:
            continue  # inlined into itself by the compiler, or a recursion
        longer = f"{text} < {function}"
        if len(longer) > most or function in _STARTS or _NAMELESS.search(function):
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
    frames: Mapping[int, tuple[str, ...]], build_ids: Mapping[str, str], most: int
) -> dict[int, str]:
    """Return the innermost callers of each site, from the frames of each, in so many characters."""
    sites = [Site(site, 0, 0, each) for site, each in frames.items()]
    named = name_sites(sites, build_ids, Folding())
    return dict(zip(frames, callers(named, most), strict=True))


def merge_keys(
    frames: Mapping[int, tuple[str, ...]], build_ids: Mapping[str, str]
) -> dict[int, tuple[str, ...] | int]:
    """Return the `merge_key` of each site, from the frames of each."""
    sites = [Site(site, 0, 0, each) for site, each in frames.items()]
    return {site.id: merge_key(site) for site in name_sites(sites, build_ids, Folding())}


class NamedSites(Tabular, Generic[AnySite]):
    """A frozen dataclass with call sites, which get names when they are first read.

    `sites` are those without names before `named`; `build_ids` are those of the modules, by path:
    names are read from files with the same id only. Sites of imported files have other remarks.
    """

    if TYPE_CHECKING:  # fields of the dataclass
        sites: tuple[AnySite, ...]
        build_ids: Any
        imported: bool

    def named(self, *, full_stacks: bool = False, hide_frames: Iterable[str] = ()) -> Self:
        """Return the same with names, from the symbols and debug information on this machine.

        Args:
            full_stacks: do not fold allocator wrappers; `names` equal `full_names`.
            hide_frames: regular expressions; functions that match are folded as allocator
                wrappers are.

        Raises:
            InvalidError: invalid regular expression.
        """
        folding = Folding(full_stacks, tuple(hide_frames))
        return self._with(name_sites(self.sites, dict(self.build_ids), folding))

    def _with(self, sites: Iterable[AnySite]) -> Self:
        return cast("Self", replace(cast(Any, self), sites=tuple(sites)))

    @cached_property
    def _named(self) -> tuple[AnySite, ...]:
        return self.sites if have_names(self.sites) else self.named().sites


class SiteList(NamedSites[AnySite]):
    """A sequence of call sites with counts."""

    _counts: ClassVar[tuple[str, ...]]
    """The numbers of a site, of which the first ones, as many as `_head` has, are shown."""
    _head: ClassVar[tuple[str, ...]]
    _more: ClassVar[str]
    """The word after the bytes of sites that are not shown."""

    def _title(self) -> str:
        raise NotImplementedError

    @staticmethod
    def _bytes_of(site: Any) -> int:
        """The bytes by which a site is shown or left out."""
        raise NotImplementedError

    def merged(self) -> Self:
        """Return sites with equal names merged, as printed."""
        return self._with(merge_sites(self._named, self._counts))

    def __len__(self) -> int:
        return len(self.sites)

    def __iter__(self) -> Iterator[AnySite]:
        return iter(self._named)

    def __getitem__(self, index: Any) -> Any:
        """Return a site, or the same with fewer sites for a slice."""
        found = self._named[index]
        return self._with(found) if isinstance(index, slice) else found

    @property
    def array(self) -> Rows:
        """One row per site: its numbers, and its frames and names joined by ";"."""
        texts = ("frames", "names", "full_names")
        rows = [
            {**one.to_dict(), **{text: ";".join(getattr(one, text)) for text in texts}}
            for one in cast(Iterable[Any], self)
        ]
        return rows_of(rows, ("id", *self._counts, *texts, "through"))

    def _shown(self) -> tuple[list[tuple[str, ...]], str]:
        """The rows of text output, and a line about the other sites, or ""."""
        total = sum(map(self._bytes_of, self.sites))
        shown = [one for one in self.sites if self._bytes_of(one) * _SMALL >= total][:_SHOWN]
        rows = rows_with_callers(shown, self._counts[: len(self._head) - 1], self._head)
        if len(shown) == len(self.sites):
            return rows, ""
        more = _format.plural(len(self.sites) - len(shown), "site")
        rest = _format.size(total - sum(map(self._bytes_of, shown)))
        return rows, f"  ... {more} more, with {rest} {self._more}"

    def __repr__(self) -> str:
        merged = self.merged()
        rows, more = merged._shown()
        table = _format.table(rows, self._head, left=0, indent="  ", names_last=True)
        unknown = f"  {unknown_text(self.imported)}" if unknown_only(self.sites) else ""
        return _format.clipped("\n".join(filter(None, (merged._title(), table, more, unknown))))

    def _repr_html_(self) -> str:
        merged = self.merged()
        return _format.html_table(merged._shown()[0], self._head, merged._title(), left=0)


@dataclass(frozen=True, repr=False, eq=False)
class Sites(SiteList[Site], Sequence[Site], Result, Value):
    """Call sites, most bytes first.

    They are named on first access, from the symbols and debug information on this machine.

    Attributes:
        sites: the sites, without names before `named`; iterating and indexing give them names.
        build_ids: of the modules, by path; names are read from files with the same id only.
        imported: whether the recording was made from another tool's file.
    """

    sites: Any  # tuple[Site, ...], made of any iterable
    build_ids: Mapping[str, str] = field(default_factory=dict, compare=False)
    imported: bool = field(default=False, compare=False)

    _counts = ("allocs", "allocated_bytes")
    _head = ("allocations", "bytes", "innermost callers")
    _more = "allocated"

    @staticmethod
    def _bytes_of(site: Site) -> int:
        return site.allocated_bytes

    def __post_init__(self) -> None:
        sites = tuple(sorted(self.sites, key=lambda site: -site.allocated_bytes))
        object.__setattr__(self, "sites", sites)

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return {"sites": [site.to_dict() for site in self]}

    def _title(self) -> str:
        return f"{_format.plural(len(self), 'call site')}, most bytes first"
