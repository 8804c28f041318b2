# SPDX-License-Identifier: Apache-2.0
"""The cache of compiled objects, in the user's cache folder.

Most of the library's sources do not include the table, so a build of another table compiles only a
few. The cache folder contains:

    ab/KEY.json    for one source, its flags and the compiler: up to 8 variants, each with the
                   digests of all files that the compiler read, and the digest of the object
    ab/DIGEST.o    the object

The key is a digest of the compiler (its program and version), the flags, the source's name and the
names of the generated headers. A variant matches if every file still has its digest. Keys contain
placeholders instead of the folders of a build, so the next build may be anywhere; objects contain
no folder (-ffile-prefix-map).

Files are written whole or not at all, so builds may run in parallel. An object whose digest differs
from the recorded one is not used. A failure here costs a compilation, but is not an error. Above
the limit, the least recently used objects are removed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from spanwise.results.files import READING_ERRORS, write_whole

VARIABLE = "SPANWISE_CACHE"
"""The variable with the absolute path of the cache; another value, such as "off", disables it."""
LIMIT_BYTES = 256 << 20
VARIANTS_MAX = 8
_FORMAT = 1
_ENVIRONMENT = (
    "CPATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "COMPILER_PATH",
    "CCC_OVERRIDE_OPTIONS",
)
"""Variables that change the output of a compiler."""
_KNOWN = re.compile(
    r"-O\w*|-w|-W[\w=+-]*|-[DU]\w+(?:=.*)?|-std=[\w:+]+|-pipe|-pthread|-pedantic[\w-]*"
    r"|-m[\w-]+(?:=(?!native)[\w.+-]+)?|-f(?:no-|PIC|pic|wrapv|strict-|signed-|unsigned-)[\w-]*"
)
"""Options that a key can represent. Other options may read or write further files."""


def cache_folder() -> Path | None:
    """Return the cache folder: in $SPANWISE_CACHE, or in `spanwise` in the user's cache folder.

    Returns:
        None if the variable disables it, or the user has no home folder.
    """
    named = os.environ.get(VARIABLE)
    place = Path(named) if named else _user_cache() / "spanwise"
    return place / "objects" if place.is_absolute() else None


def _user_cache() -> Path:
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if named.is_absolute():
        return named
    try:
        return Path.home() / ".cache"
    except RuntimeError:  # this user has no home folder
        return Path()


class ObjectCache:
    """The object cache for one build by one compiler.

    Attributes:
        reused: objects from the cache.
        compiled: objects that were not in the cache.
    """

    def __init__(
        self,
        folder: Path | None,
        words: Sequence[str],
        version: str,
        places: Mapping[str, Path],
        limit_bytes: int = LIMIT_BYTES,
    ) -> None:
        """Open the cache in `folder`, creating the folder; on failure the cache stays empty."""
        self.reused = self.compiled = 0
        self._limit_bytes = limit_bytes
        self._places = {f"<{name}>": str(path.resolve()) for name, path in places.items()}
        names = {place: name for name, place in self._places.items()}
        names |= {str(path.absolute()): f"<{name}>" for name, path in places.items()}
        # Replace the innermost of nested folders first.
        self._names = sorted(names.items(), key=lambda pair: -len(pair[0]))
        self._digests: dict[str, str | None] = {}
        self._real: dict[str, str] = {}
        self._compiler = _compiler_digest(words, version)
        usable = folder is not None and self._compiler is not None and _is_ours(folder)
        self._folder = folder if usable else None

    def key(self, source: Path, flags: Sequence[str], generated: Sequence[Path]) -> str:
        """Return the key of a source compiled with these flags."""
        named = [[self._named(str(word)) for word in words] for words in (flags, generated)]
        parts = [_FORMAT, self._compiler, *named, self._named(str(source))]
        return _digest(json.dumps(parts).encode())

    def fetch(self, key: str, to: Path) -> bool:
        """Copy the object of a matching variant to the path `to`; return False if none matches."""
        for variant in self._variants(key):
            with suppress(OSError, AttributeError, KeyError, TypeError, ValueError):
                if any(self._digest_of(name) != was for name, was in variant["files"].items()):
                    continue
                kept = self._object(variant["object"])
                content = kept.read_bytes()
                if _digest(content) != variant["object"]:
                    continue
                to.write_bytes(content)
                os.utime(kept)
                os.utime(self._manifest(key))
                self.reused += 1
                return True
        self.compiled += 1
        return False

    def keep(self, key: str, made: Path, dependencies: Path) -> None:
        """Store an object."""
        if self._folder is None:
            return
        with suppress(OSError, ValueError):
            names = [self._real_name(path) for path in _files_of_rule(dependencies)]
            files = {name: self._digest_of(name) for name in names}
            if not files or None in files.values():
                return
            content = made.read_bytes()
            variant = {"files": files, "object": _digest(content)}
            others = [one for one in self._variants(key) if one.get("files") != files]
            variants = json.dumps([variant, *others[: VARIANTS_MAX - 1]])
            for place, text in (
                (self._object(_digest(content)), content),
                (self._manifest(key), variants),
            ):
                place.parent.mkdir(mode=0o700, exist_ok=True)
                write_whole(place, text)

    def shrink(self) -> None:
        """If above the limit, remove the least recently used objects, down to 4/5 of the limit."""
        if self._folder is None:
            return
        with suppress(OSError):
            files = sorted(_kept_files(self._folder))
            held = sum(size for _, size, _ in files)
            wanted = held if held <= self._limit_bytes else self._limit_bytes * 4 // 5
            for _, size, path in files:
                if held > wanted:
                    path.unlink(missing_ok=True)
                    held -= size

    # --- files ------------------------------------------------------------------------------------

    def _manifest(self, key: str) -> Path:
        assert self._folder is not None
        return self._folder / key[:2] / f"{key[2:]}.json"

    def _object(self, digest: str) -> Path:
        assert self._folder is not None
        return self._folder / digest[:2] / f"{digest[2:]}.o"

    def _variants(self, key: str) -> list[dict[str, Any]]:
        if self._folder is None:
            return []
        try:
            found = json.loads(self._manifest(key).read_bytes())
        except (OSError, *READING_ERRORS):
            return []
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    # --- names and digests ------------------------------------------------------------------------

    def _named(self, text: str) -> str:
        """Replace the folders of this build in a path or flag by their placeholders."""
        for place, name in self._names:
            text = re.sub(re.escape(place) + r"(?=[/=]|$)", name, text)
        return text

    def _real_name(self, path: str) -> str:
        """Return a file's real path with placeholders, cached."""
        if path not in self._real:
            self._real[path] = self._named(str(Path(path).resolve()))
        return self._real[path]

    def _digest_of(self, name: str) -> str | None:
        """Return the digest of a file, cached; None if it cannot be read."""
        if name not in self._digests:
            folder, slash, below = name.partition("/")
            path = Path(self._places.get(folder, folder) + slash + below)
            try:
                self._digests[name] = _digest(path.read_bytes())
            except OSError:
                self._digests[name] = None
        return self._digests[name]


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _compiler_digest(words: Sequence[str], version: str) -> str | None:
    """Return the digest of a compiler and its options; None if a key cannot represent them."""
    if not all(_KNOWN.fullmatch(word) for word in words[1:]):
        return None
    try:
        program = _digest(Path(words[0]).read_bytes())
    except OSError:
        return None
    around = [os.environ.get(name) for name in _ENVIRONMENT]
    parts = [Path(words[0]).name, program, version, *words[1:], around]
    return _digest(json.dumps(parts).encode())


def _is_ours(folder: Path) -> bool:
    """Create the folder; return whether only this user may write to it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _files_of_rule(dependencies: Path) -> list[str]:
    """Return the paths after the colon of a make rule, `object: file file`."""
    text = dependencies.read_text(encoding="utf-8").replace("\\\n", " ")
    _, colon, rest = text.partition(": ")
    if not colon:
        raise ValueError(f"{dependencies}: no rule of make")
    words = re.findall(r"(?:\\.|[^\s\\])+", rest)
    return [re.sub(r"\\(.)", r"\1", word).replace("$$", "$") for word in words]


def _kept_files(folder: Path) -> Iterator[tuple[float, int, Path]]:
    """Yield last use, bytes and path of each file."""
    for path in folder.glob("*/*"):
        status = path.lstat()
        yield status.st_mtime, status.st_size, path
