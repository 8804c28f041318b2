# SPDX-License-Identifier: Apache-2.0
"""Where an allocator comes from: version, Debian package, compiler and flags, as far as known.

A ratio to a peer means little without them: the same allocator built otherwise is another peer.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from runner.contenders import GO_BUILDS, SPANWISE, Contender
from runner.errors import BenchError

UNKNOWN_VERSION = "version unknown"
UNKNOWN_FLAGS = "flags unknown"
BARE_FLAGS = " -DSW_CHECK=0 -DSW_FAST_CHECKED=0"  # cmake/SpanwiseBench.cmake has them
_OPTION = re.compile(r"^-(?:O|f|m|g|std=|D)")  # of a compiler's command line; no paths
_STRING = re.compile(r"^\s*\[\s*[0-9a-f]+\]\s+(.+)$")  # of `readelf -p`


@dataclass(frozen=True)
class Origin:
    """How a contender was made.

    Attributes:
        label: what tables call it.
        basis: how it is called.
        version: as the allocator or the user tells it, else UNKNOWN_VERSION.
        package: Debian's package with its version; "" when the file belongs to none.
        compiler: as the file says, or "".
        flags: of the compiler, or UNKNOWN_FLAGS.
    """

    label: str
    basis: str
    version: str
    package: str
    compiler: str
    flags: str

    def as_json(self) -> dict[str, str]:
        """Its fields."""
        return asdict(self)


def parse_flags(texts: Iterable[str]) -> dict[str, str]:
    """Reads NAME=TEXT of the option --flags.

    Raises:
        BenchError: another form.
    """
    found: dict[str, str] = {}
    for text in texts:
        name, equals, flags = text.partition("=")
        if not equals or not re.fullmatch(r"[a-z][a-z0-9-]*", name) or not flags.strip():
            raise BenchError(f"--flags '{text}' is not NAME=TEXT, NAME in lower case")
        found[name] = flags.strip()
    return found


def _said(words: Sequence[str]) -> list[str]:
    """The lines of a tool; none when it is missing or fails."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, errors="replace")
    except OSError:
        return []
    return done.stdout.splitlines() if done.returncode == 0 else []


def package_of(path: Path) -> str:
    """`libjemalloc2 5.3.0-1`: Debian's package that has the file; "" when none has.

    A package may name the file under /lib, which is a link to /usr/lib.
    """
    for each in dict.fromkeys([path, path.resolve()]):
        text = str(each)
        other = text.removeprefix("/usr") if text.startswith("/usr/") else f"/usr{text}"
        for named in (text, other):
            for line in _said(["dpkg-query", "-S", named]):
                names, _, file = line.rpartition(": ")
                if file == named and not line.startswith("diversion"):
                    name = names.split(", ")[0]
                    version = _said(["dpkg-query", "-W", "-f=${Version}", name])
                    return " ".join([name.split(":")[0], *version])
    return ""


def _strings(path: Path, section: str) -> list[str]:
    """The strings of a section of an object, a library or an archive, each once."""
    found = (_STRING.match(line) for line in _said(["readelf", "-p", section, str(path)]))
    return list(dict.fromkeys(match[1].strip() for match in found if match))


def flags_in(path: Path) -> str:
    """What -frecord-gcc-switches left in a file; "" without it."""
    words = [word for text in _strings(path, ".GCC.command.line") for word in text.split()]
    return " ".join(dict.fromkeys(word for word in words if _OPTION.match(word)))


def _linked_file(name: str, cache: Mapping[str, str]) -> Path | None:
    """The library that a linked peer was built with, or its package's folder, or its headers."""
    for key in (f"bench_{name}_library", f"{name}_DIR", f"bench_{name}_include"):
        if cache.get(key, "") not in ("", f"{key}-NOTFOUND"):
            return Path(cache[key])
    return None


def _has_headers_alone(name: str, cache: Mapping[str, str]) -> bool:
    """Whether a linked peer is compiled with the bench program itself."""
    return f"bench_{name}_include" in cache and not any(
        key in cache for key in (f"bench_{name}_library", f"{name}_DIR")
    )


def _own_flags(cache: Mapping[str, str], language: str) -> str:
    kind = cache.get("CMAKE_BUILD_TYPE", "").upper()
    words = [cache.get(f"CMAKE_{language}_FLAGS{tail}", "") for tail in ("", f"_{kind}")]
    return " ".join(" ".join(words).split())


def origin_of(who: Contender, cache: Mapping[str, str], told: Mapping[str, str]) -> Origin:
    """How a contender was made.

    Args:
        who: identified.
        cache: of the bench programs' CMake.
        told: flags by the allocator's name, from who built it.
    """
    file = _linked_file(who.name, cache) if who.basis == "linked" else who.preload or who.library
    compiler, flags = "", told.get(who.name, "")
    if who.name == SPANWISE:
        compiler = Path(cache.get("CMAKE_C_COMPILER", "")).name
        flags = flags or _own_flags(cache, "C") + (BARE_FLAGS if who.basis == "bare" else "")
    elif who.basis == "go":
        flags = flags or f"go build GOEXPERIMENT={GO_BUILDS[who.name]}".removesuffix(
            " GOEXPERIMENT="
        )
    elif who.basis == "linked" and _has_headers_alone(who.name, cache):
        compiler = Path(cache.get("CMAKE_CXX_COMPILER", "")).name
        flags = flags or _own_flags(cache, "CXX")
    elif file is not None and file.is_file():
        compiler = ", ".join(_strings(file, ".comment"))
        flags = flags or flags_in(file)
    package = package_of(file) if file is not None and who.name != SPANWISE else ""
    return Origin(
        who.label,
        who.basis,
        who.version or UNKNOWN_VERSION,
        package,
        compiler,
        flags or UNKNOWN_FLAGS,
    )


def origins(
    everyone: Iterable[Contender], cache: Mapping[str, str], told: Mapping[str, str]
) -> list[Origin]:
    """How each contender was made, in their order.

    Raises:
        BenchError: flags were told of an allocator that takes no part.
    """
    known = list(everyone)
    # The preloaded malloc tells no version: it is of the same build as the bench programs.
    own = next((who.version for who in known if who.name == SPANWISE and who.version), "")
    known = [replace(who, version=own) if who.name == SPANWISE else who for who in known]
    strangers = sorted(told.keys() - {who.name for who in known})
    if strangers:
        raise BenchError(f"--flags {strangers[0]}=...: no allocator of that name takes part")
    return [origin_of(who, cache, told) for who in known]
