# SPDX-License-Identifier: Apache-2.0
"""Call sites of a recording, with counts of their allocations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from spanwise import _format
from spanwise.recordings.names import name_frames
from spanwise.results.rows import Result, Rows, Tabular, rows_of

_SHOWN = 10
_WIDTH = 60
UNKNOWN_ONLY = "no call sites are known: record the program with --stacks 16 (stacks=16 in Python)"
"""The message for a recording without call sites."""
_IMPORTED_ONLY = "no call sites are known: spanwise convert found none in the file it read"
_COLUMNS = ("id", "allocs", "allocated_bytes", "frames", "names")


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
        """Their names, or ()."""


def joined(site: Framed) -> dict[str, str]:
    """Return frames and names, each joined into one text for a column."""
    return {"frames": ";".join(site.frames), "names": ";".join(site.names)}


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
    """Return by id the lowest id with the same frames; sites of unknown frames are omitted.

    A Python function that is created again gets a new number, so its sites exist twice.
    """
    first: dict[tuple[str, ...], int] = {}
    return {site: first.setdefault(each, site) for site, each in sorted(frames.items()) if each}


def callers(site: Framed) -> str:
    """Return the innermost caller and its callers as a short text.

    Sites in one function differ only in its callers; these are named without file and line.
    """
    if not site.names:
        return _format.short_end(site.frames[0] if site.frames else "unknown", _WIDTH)
    text = _format.clipped(site.names[0])[:_WIDTH]
    for name in site.names[1:]:
        longer = f"{text} < {_format.clipped(name.partition(' (')[0])}"
        if len(longer) > _WIDTH:
            break
        text = longer
    return text


@dataclass(frozen=True)
class _Labelled:
    """What `callers` takes."""

    id: int
    frames: tuple[str, ...]
    names: tuple[str, ...]


def label_sites(
    frames: Mapping[int, tuple[str, ...]], build_ids: Mapping[str, str]
) -> dict[int, str]:
    """Return the innermost callers of each site, from the frames of each."""
    names = name_frames((frame for each in frames.values() for frame in each), build_ids)
    return {
        site: callers(_Labelled(site, each, tuple(names[frame] for frame in each)))
        for site, each in frames.items()
    }


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
        names: of the frames, "function (file:line)" if known; () before `Sites.named`.
    """

    id: int
    allocs: int
    allocated_bytes: int
    frames: tuple[str, ...]
    names: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a dict for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        where = " < ".join((self.names or self.frames)[:2]) or "unknown"
        text = (
            f"<Site {self.id}: {_format.plural(self.allocs, 'allocation')},"
            f" {_format.size(self.allocated_bytes)}, {where}>"
        )
        return _format.clipped(text)


class Sites(Sequence[Site], Result, Tabular):
    """Call sites, most bytes first.

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
        self._sites = tuple(sorted(sites, key=lambda site: -site.allocated_bytes))
        self._build_ids = dict(build_ids or {})
        self._imported = imported

    def named(self) -> Sites:
        """Return the same sites with names of functions, with file and line if known.

        They come from the modules' symbols and debug information on this machine.
        """
        names = name_frames((f for site in self for f in site.frames), self._build_ids)
        sites = [replace(site, names=tuple(names[f] for f in site.frames)) for site in self]
        return Sites(sites, self._build_ids, self._imported)

    def __getitem__(self, index: Any) -> Any:
        """Return a site, or `Sites` for a slice."""
        found = self._sites[index]
        if not isinstance(index, slice):
            return found
        return Sites(found, self._build_ids, self._imported)

    def __len__(self) -> int:
        return len(self._sites)

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

    def _text_rows(self) -> list[tuple[str, ...]]:
        return [
            (
                _format.number(site.allocs),
                _format.number(site.allocated_bytes),
                callers(site),
            )
            for site in self._sites[:_SHOWN]
        ]

    def __repr__(self) -> str:
        rows = _format.table(self._text_rows(), _HEAD, left=0, indent="  ")
        lines = [f"{_format.plural(len(self), 'call site')}, most bytes first", rows]
        if len(self) > _SHOWN:
            lines.append(f"  ... {_format.plural(len(self) - _SHOWN, 'site')} more")
        if unknown_only(self):
            lines.append(f"  {unknown_text(self._imported)}")
        return _format.clipped("\n".join(lines))

    def _repr_html_(self) -> str:
        title = f"{_format.plural(len(self), 'call site')}, the first {len(self._text_rows())}"
        return _format.html_table(self._text_rows(), _HEAD, title, left=0)


_HEAD = ("allocations", "bytes", "innermost callers")
