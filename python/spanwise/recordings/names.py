# SPDX-License-Identifier: Apache-2.0
"""Symbolize call sites: functions and lines of return addresses, without allocator wrappers."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

from spanwise.errors import InvalidError
from spanwise.recordings.elf import ElfError, ElfFile, Functions
from spanwise.recordings.sources import Module
from spanwise.recordings.symbol_files import fetched, symbol_files

# --- frames in a recording ------------------------------------------------------------------------
#
# A Python function is stored as a module beyond all real addresses; its path is the
# function's name, a line feed and its file, and an offset in it is a line (docs/design/trace.md).
# A function that an imported heap profile names is stored likewise.

PYTHON_BASE = 0xFFF0_0000_0000_0000
"""SWT_PYTHON_BASE of src/trace/raw.h: the first address of Python functions."""

FUNCTION_BASE = 0xFFF8_0000_0000_0000
"""The first address of functions that an imported profile names; Python functions are below."""

LINE_BITS = 20
_MARK = "python: "
_PROFILE_MARK = "profile: "
_FRAME = re.compile(rf"{_MARK}(.*?) \((.*):(\d+)\)", re.DOTALL)
_PROFILE_FRAME = re.compile(rf"{_PROFILE_MARK}(.*?)(?: \(([^()]*):(\d+)\))?", re.DOTALL)


def is_function(module: Module) -> bool:
    """Return whether it represents a function, of Python or of an imported profile."""
    return module.start >= PYTHON_BASE


def is_python(module: Module) -> bool:
    """Return whether it represents a Python function."""
    return PYTHON_BASE <= module.start < FUNCTION_BASE


class FrameNames:
    """Names the addresses of call sites."""

    def __init__(self, modules: Iterable[Module]) -> None:
        each = list(modules)
        self._native = [module for module in each if not is_function(module)]
        self._functions = {module.start: module for module in each if is_function(module)}

    def name(self, address: int) -> str:
        """Return module and file offset of an address, or the bare address if it is in none."""
        if address >= PYTHON_BASE:
            function = self._functions.get(address >> LINE_BITS << LINE_BITS)
            if function is not None:
                return _call(function, address - function.start)
        for module in self._native:
            if module.start <= address < module.end:
                return f"{module.path}+{address - module.bias:#x}"
        return f"{address:#x}"


def _call(function: Module, line: int) -> str:
    name, _, file = function.path.partition("\n")
    if is_python(function):
        return f"{_MARK}{name} ({file}:{line})"
    return f"{_PROFILE_MARK}{name} ({file}:{line})" if file else f"{_PROFILE_MARK}{name}"


def named_call(frame: str) -> tuple[str, str, int] | None:
    """Return function, file ("": unknown) and line of a call with a name; None: an address."""
    found = _FRAME.fullmatch(frame) or _PROFILE_FRAME.fullmatch(frame)
    return (found[1], found[2] or "", int(found[3] or 0)) if found else None


def short_line(frame: str) -> str | None:
    """Return a named call as "function (folder/file:line)", as far as known; None: an address."""
    found = named_call(frame)
    if found is None:
        return None
    function, file, line = found
    return f"{function} ({'/'.join(PurePosixPath(file).parts[-2:])}:{line})" if file else function


# --- names from symbols and debug information -----------------------------------------------------
#
# Functions come from a symbol table, by address and size: the module's own unless it is stripped,
# that of a file elsewhere (symbol_files.py), or else the dynamic one.
# Lines and inlined calls come from llvm-symbolizer (five times as fast) or addr2line if there is
# debug information. A frame without a name has the reason instead.

_TOOLS = (("llvm-symbolizer", "--output-style=GNU", "--no-demangle"), ("addr2line",))
_SECONDS = 120
_DEMANGLER = "c++filt"  # knows all manglings of Rust, which llvm-symbolizer does not
_RUST_HASH = re.compile(r"::h[0-9a-f]{16}(?= |$)|(?<=\w)\[[0-9a-f]{8,16}\]")
_VERSION = re.compile(r"@@?[A-Z][\w.]*$")  # of a symbol of a library
_STRING = re.compile(
    r"std::(?:__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>"
)


def name_frames(frames: Iterable[str], build_ids: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the names of each frame, innermost first; several if calls were inlined."""
    by_module: dict[str, dict[str, int]] = {}
    found: dict[str, tuple[str, ...]] = {}
    for frame in dict.fromkeys(frames):
        line = short_line(frame)
        path, plus, offset = frame.rpartition("+0x")
        if line is not None or not plus:
            found[frame] = (line or frame,)
            continue
        # A return address is after the call, perhaps even after the function.
        by_module.setdefault(path, {})[frame] = max(int(offset, 16) - 1, 0)
    for path, offsets in by_module.items():
        build_id = build_ids.get(path, "")
        files = tuple(symbol_files(path, build_id))
        module = _module(path, build_id, files, tuple(map(_stamp, files)), _line_tool())
        found.update(module.names(offsets))
    return found


def _demangled(functions: Iterable[str]) -> dict[str, str]:
    """Return the demangled names of C++ and Rust functions; {} without c++filt."""
    mangled = [name for name in dict.fromkeys(functions) if name.startswith(("_Z", "_R"))]
    if not mangled or shutil.which(_DEMANGLER) is None:
        return {}
    plain = _run_tool([_DEMANGLER, "--no-strip-underscore"], mangled)
    if len(plain) != len(mangled):
        return {}
    return {name: _readable(text) for name, text in zip(mangled, plain, strict=True)}


def _readable(name: str) -> str:
    """Return a demangled name without Rust's hashes, with std::string as programs write it."""
    return _STRING.sub("std::string", _RUST_HASH.sub("", name)).replace("> >", ">>")


def _run_tool(words: list[str], lines: list[str]) -> list[str]:
    """Return a program's output for input lines; [] if it fails."""
    try:
        done = subprocess.run(
            words,
            input="".join(f"{line}\n" for line in lines),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.splitlines()


def build_ids_of(modules: Iterable[Module]) -> dict[str, str]:
    """Return the build id of each module, by path."""
    return {module.path: module.build_id for module in modules}


def _stamp(path: Path) -> tuple[int, int]:
    """Return size and time of a file, which change when it is replaced; zeros without a file."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_size, found.st_mtime_ns


def _line_tool() -> tuple[str, ...]:
    """Return the program that reads line information, with its options; () without one."""
    words = next((words for words in _TOOLS if shutil.which(words[0])), ())
    return (*words, "-C") if words and shutil.which(_DEMANGLER) is None else words


class _NamedModule:
    """A module of a recorded program, and the files that name its functions.

    It caches lines, because a report needs those of a frame several times.
    """

    def __init__(
        self, path: str, build_id: str, places: Sequence[Path], tool: tuple[str, ...]
    ) -> None:
        self._path = path
        self._build_id = build_id
        self._places = places
        self._tool = tool
        self._asked: set[int] = set()
        self._known: dict[int, list[tuple[str, str]]] = {}
        self._plain: dict[str, str] = {}  # functions demangled
        self.trouble = ""  # why there are no names

    @cached_property
    def _files(self) -> list[tuple[Path, ElfFile]]:
        """The module and the files with its debug information, as far as they exist."""
        found = list(self._existing(self._places))
        if not any(_has_lines(file) for _, file in found):
            place = fetched(self._build_id, self._base)
            found += self._existing([place] if place else [])
        return found

    def _existing(self, places: Iterable[Path]) -> Iterator[tuple[Path, ElfFile]]:
        for path in places:
            try:
                file = ElfFile(path)
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (ElfError, OSError) as error:
                self.trouble = str(error) if isinstance(error, ElfError) else "cannot be read"
                continue
            if self._build_id and file.build_id != self._build_id:
                self.trouble = "the file there is a different one"
                continue
            yield path, file

    @cached_property
    def _functions(self) -> Functions | None:
        """The functions of the file with the most of them."""
        known = []
        for _, file in self._files:
            try:
                known.append(file.functions())
            except ElfError as error:
                self.trouble = str(error)
        return max(known, key=lambda one: (one.complete, len(one.names)), default=None)

    def names(self, offsets: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
        """Return the names of each frame, given the address of its call in the module's file."""
        lines = self._lines(offsets.values())
        calls = {frame: lines.get(at) or self._symbol(at) for frame, at in offsets.items()}
        functions = {name for each in calls.values() for name, _ in each}
        self._plain.update(_demangled(functions - self._plain.keys()))
        return {
            frame: tuple(f"{self._plain.get(name, name)} {where}" for name, where in each)
            or (f"{self._base}+0x{frame.rpartition('+0x')[2]} ({self._why()})",)
            for frame, each in calls.items()
        }

    def _symbol(self, offset: int) -> list[tuple[str, str]]:
        """Return the function in the symbol table, and the module; [] if there is none."""
        name = self._functions.at(offset) if self._functions else None
        return [] if name is None else [(name, f"in {self._base}")]

    @property
    def _base(self) -> str:
        return Path(self._path).name

    def _why(self) -> str:
        if self._functions is None:
            return self.trouble or "the file is not there"
        return "no symbol" if self._functions.complete else "stripped"

    def _lines(self, offsets: Iterable[int]) -> Mapping[int, list[tuple[str, str]]]:
        """Return functions and "file:line" of addresses with debug information."""
        wanted = sorted(set(offsets) - self._asked)
        path = next((path for path, file in self._files if _has_lines(file)), None)
        if wanted and path is not None and self._tool:
            words = [*self._tool, "-a", "-f", "-i", "-e", str(path)]
            found = _run_tool(words, [f"{offset:#x}" for offset in wanted])
            self._known.update(_parse_lines(found))
            self._asked.update(wanted if found else ())
        return self._known


@lru_cache(maxsize=256)
def _module(
    path: str,
    build_id: str,
    places: tuple[Path, ...],
    stamps: tuple[tuple[int, int], ...],
    tool: tuple[str, ...],
) -> _NamedModule:
    """Return the module at a path, cached until one of its files changes."""
    return _NamedModule(path, build_id, places, tool)


def _has_lines(file: ElfFile) -> bool:
    return file.has(".debug_line") or file.has(".zdebug_line")


def _parse_lines(rows: list[str]) -> dict[int, list[tuple[str, str]]]:
    """Parse addr2line -a -f -i: an address, then function and place of each call, innermost first.

    Entries with "??" are skipped; if there are no others, the symbol table decides. Inlined
    functions come without their namespace, so the file says which are of the C++ library.
    """
    found: dict[int, list[tuple[str, str]]] = {}
    calls: list[tuple[str, str]] = []
    lines = iter(rows)
    for row in lines:
        if row.startswith("0x"):
            calls = found.setdefault(int(row, 16), [])
            continue
        file, _, line = next(lines, "").partition(" (")[0].rpartition(":")
        if row != "??" and file not in ("", "??") and line.isdigit() and line != "0":
            bare = re.split("[<(]", row, maxsplit=1)[0]
            if "/include/c++/" in file and "::" not in bare and not row.startswith("_Z"):
                row = f"std::{row}"  # noqa: PLW2901
            calls.append((_VERSION.sub("", row), f"({_short(file)}:{line})"))
    return {address: each for address, each in found.items() if each}


_CRATE_FILE = re.compile(r"/registry/src/[^/]+/([^/]+-\d[^/]*)/")


def _short(file: str) -> str:
    """The name of a source file; that of a Rust package comes after the package and its version."""
    crate = _CRATE_FILE.search(file)
    return f"{crate[1]}/{Path(file).name}" if crate else Path(file).name


# --- allocator wrappers ---------------------------------------------------------------------------

WRAPPERS = {
    "malloc family": r"_*(libc_|GI_+|wrap_|real_|interceptor_)?(malloc|calloc|realloc|reallocarray"
    r"|memalign|aligned_alloc|posix_memalign|p?valloc)",
    "libc": r"_*(GI_+|libc_|IO_)*((str|strn|wcs|mem)dup|v?asprintf(_chk|_internal)?"
    r"|(f|fd|fre|fmem)open(64|_internal)?|getline|getdelim|file_doallocate|doallocbuf"
    r"|(new_)?w?file_(overflow|underflow|xsputn|seekoff)|open_memstream|opendir|alloc_dir"
    r"|obstack_(begin(_1)?|newchunk)|pthread_\w+)|_dl_\w+|allocate_(dtv|stack)\w*",
    "malloc of C programs": r"(x|xx|s|sw|ck|e|safe|checked|must|mem|my|util|os|do)_?"
    r"(malloc|calloc|realloc|reallocarray|zalloc|memdup|strn?dup|memalign)(0|_array|_n|_or_die)?"
    r"|x(2realloc|nmalloc|nrealloc|palloc|charalloc|v?asprintf)|[xi]c?alloc"
    r"|\w+_mem_(m|c|re)?alloc",
    "GLib": r"g_((try_)?(malloc|realloc|new|renew)(0)?(_n)?(_internal)?|aligned_alloc0?"
    r"|slice_(alloc0?|copy)|memdup2?|str(n|v)?dup(_v?printf)?|v?asprintf|strconcat)",
    "redis and valkey": r"z(try)?(malloc|calloc|realloc)(_usable|_no_tcache)?(_internal)?"
    r"|z(memalign|strdup)",
    "CPython": r"_?Py(Mem|Object)_\w*(Malloc|Calloc|Realloc)\w*|_PyMem_\w+|_PyObject_GC_\w+"
    r"|_?PyObject_(GC_)?(New|NewVar|Resize)|_?PyType_(GenericAlloc|AllocNoTrack)"
    r"|gc_alloc|object_malloc|pymalloc_alloc",
    "jemalloc": r"(_*rjem_)?_?je_\w+|_*rjem_\w+|imalloc\w*|ifallback\w*",
    "mimalloc and tcmalloc": r"_?mi_(heap_)?(\w*alloc\w*|new\w*|\w*dup)|tc_(new\w*|\w*alloc\w*)",
    "C++": r"operator new|(std|__gnu_cxx|__cxxabiv1)::.*|__cxa_(allocate_\w+|vec_c?new\w*)",
    "containers of Boost and Abseil": r"boost::(container|unordered|multi_index|intrusive)::.*"
    r"|absl::(\w+::)?container_internal::.*",
    "Rust": r"_*r(ust|dl|g)_(alloc|realloc)\w*|(alloc|core|std|hashbrown|allocator_api2)::.*",
    "OpenSSL": r"(CRYPTO|OPENSSL)_\w*(alloc|dup)\w*",
    "Perl": r"Perl_safesys(malloc|calloc|realloc)",
    "PHP and SQLite": r"_*(safe_)?[fp]*e(malloc|calloc|realloc|str\w*dup)\w*|__zend_(m|c|re)alloc"
    r"|_zend_new_array\w*|zend_string_alloc"
    r"|sqlite3(Db|Mem)?_?(m|M|r|R|c|C)(alloc|ealloc)\w*",
    "functions without a name": r"(libc|libstdc\+\+|libc\+\+|ld-linux[-\w]*)[-.\d]*(\.so[.\d]*)?"
    r"\+0x[0-9a-f]+",
}
"""Patterns by family; they match whole names as `plain_function` returns them."""

RUNTIME = re.compile(
    r"(ld(64|-linux[-\w]*|-musl-\w+)?|lib(c|dl|m|mvec|nss_\w+|pthread|resolv|rt|util)(\.musl-\w+)?"
    r"|lib(c\+\+(abi)?|gcc_s|stdc\+\+|supc\+\+|unwind))(-[\d.]+)?\.so[.\d]*"
)
"""File names of the runtime libraries of C and C++: glibc, musl, libstdc++ and libc++."""

_LINKED_IN = ("_start", "__libc_csu_init")
"""Runtime functions that are linked into the program."""
_UNSAID = re.compile(rf"{WRAPPERS['malloc family']}|operator new|.*(::_|\+0x).*")
_ALIAS = re.compile(r"^_*(GI_+|IO_+|isoc\d+_)*(new_(?=f))?(?=[a-z])|_(chk|internal)$")
_WRAPPER = re.compile("|".join(f"(?:{one})" for one in WRAPPERS.values()))
_PLACE = re.compile(r"(.+) (?:\(([^()]*)\)|in ([^ ()]+))", re.DOTALL)
_OPERATOR = re.compile(r"\boperator *(\(\)|\[\]|<=>|<<=?|>>=?|->\*?|<=?|>=?)")
_KEPT = {ord(sign): 0xE000 + ord(sign) for sign in "()[]<>-"}
_BACK = {kept: sign for sign, kept in _KEPT.items()}
_CLONE = re.compile(r"\.(isra|constprop|part|cold|lto_priv|llvm)\b.*")
_TYPE_SIGNS = re.compile(r"(?:[&*(\[) ]|dyn |mut |const )*")
_PYTHON = re.compile(r"<(?:locals|module|lambda|listcomp|genexpr|dictcomp|setcomp)>")
_STANDARD = re.compile(
    r"(?:alloc|core|std|hashbrown|allocator_api2)::|(?:[iuf]\d+|[iu]size|bool|char|str|[A-Z]\d?|_)\b|$"
)


def split_place(name: str) -> tuple[str, str]:
    """Split a name into function and place: "file:line", module, or the reason for no name."""
    found = _PLACE.fullmatch(name)
    return (found[1], found[2] or found[3] or "") if found else (name, "")


@lru_cache(maxsize=1 << 16)
def plain_function(function: str) -> str:
    """Return the qualified name, without parameters, template arguments and return type."""
    if _PYTHON.search(function):
        return function
    text = _CLONE.sub("", function).replace("(anonymous namespace)", "{anonymous}")
    if text.startswith("<"):
        parts, rest = _trait(text)
        return f"<{' as '.join(map(plain_function, parts))}>{rest}"
    text = _OPERATOR.sub(lambda found: found[0].translate(_KEPT), text).replace("->", "")
    kept, depth = [], 0
    for letter in text:
        depth += letter in "<(["
        if depth == 0:
            kept.append(letter)
        depth -= letter in ">)]" and depth > 0
    plain = "".join(kept).replace("::::", "::").translate(_BACK)
    words = [word for word in plain.split() if word not in ("const", "&", "&&")]
    if len(words) > 1 and words[-2].endswith("operator"):
        return " ".join(words[-2:])
    return words[-1] if words else function


def is_wrapper(name: str) -> bool:
    """Return whether a name, with or without its place, is an allocator wrapper.

    A method of a Rust trait, "<Type as Trait>::method", is one only if both type and trait belong
    to the standard library.
    """
    function, _ = split_place(name)
    if function.startswith("<"):
        return _is_standard(function)
    return _WRAPPER.fullmatch(plain_function(function)) is not None


def _is_standard(name: str) -> bool:
    """Return whether a Rust type or method is built in or in the standard library."""
    name = name[_TYPE_SIGNS.match(name).end() :]  # type: ignore[union-attr]  # it may be empty
    if name.startswith("<"):
        return all(map(_is_standard, _trait(name)[0]))
    return _STANDARD.match(name) is not None


def _trait(function: str) -> tuple[list[str], str]:
    """Split "<Type as Trait>::method" into type and trait (if any), and "::method"."""
    parts: list[str] = []
    depth, start = 0, 1
    for i, letter in enumerate(function.replace("->", "  ")):
        depth += (letter == "<") - (letter == ">")
        if depth == 1 and function.startswith(" as ", i) and not parts:
            parts.append(function[1:i])
            start = i + 4
        if depth == 0:
            return [*parts, function[start:i]], function[i + 1 :]
    return [function[1:]], ""


@dataclass(frozen=True)
class Folding:
    """Which leading frames of a stack are hidden.

    Attributes:
        hide_frames: regular expressions; functions that match are hidden as allocator wrappers are.
    """

    full_stacks: bool = False  # hide none
    hide_frames: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for one in self.hide_frames:
            try:
                re.compile(one)
            except re.error as error:
                raise InvalidError(f"{one!r}: invalid regular expression: {error}") from None

    @cached_property
    def _hidden(self) -> re.Pattern[str] | None:
        every = "|".join(f"(?:{one})" for one in self.hide_frames)
        return re.compile(every) if every else None

    def of(self, names: Iterable[str], runtime: Sequence[bool] = ()) -> tuple[str, ...]:
        """Return the names of a stack without its leading wrappers, innermost first."""
        every = tuple(names)
        if self.full_stacks:
            return every
        own = [i for i, name in enumerate(every) if not self._folds(name)]
        called = (i for i in own if not (any(runtime[i : i + 1]) or _starts(every[i])))
        return every[next(called, own[0] if own else -1) :]

    def _folds(self, name: str) -> bool:
        if self._hidden is not None and self._hidden.search(split_place(name)[0]):
            return True
        return _is_wrapper(name)


def in_runtime_library(frame: str) -> bool:
    """Return whether a return address, "module+0xoffset", is in a runtime library."""
    file = frame.rpartition("+0x")[0].rpartition("/")[2]
    return RUNTIME.fullmatch(file) is not None


_OF_CRATE = re.compile(r" \(([^/()]+-\d[^/()]*)/[^/()]+\.rs:\d+\)$")


def in_dependencies(names: Sequence[str]) -> list[bool]:
    """Return which names of a stack are of packages that a Rust program depends on.

    If no function is of sources outside of packages, the program is a package itself, as cargo
    installs it: then the outermost one is the program's.
    """
    found = [_OF_CRATE.search(name) for name in names]
    crates = [one[1] if one else "" for one in found]
    is_local = any(
        not crate and re.search(r"\.rs:\d+\)$", name) and not _is_standard(name)
        for crate, name in zip(crates, names, strict=True)
    )
    own = "" if is_local else next(filter(None, reversed(crates)), "")
    return [crate not in ("", own) for crate in crates]


def _starts(name: str) -> bool:
    return split_place(name)[0] in _LINKED_IN


def entry(names: Sequence[str], kept: Sequence[str], runtime: Sequence[bool]) -> str:
    """Return the function of a runtime library that a folded stack's first function called."""
    last = len(names) - len(kept) - 1
    if last < 0 or not runtime[last] or runtime[last + 1]:
        return ""
    function = plain_function(split_place(names[last])[0])
    return "" if _UNSAID.fullmatch(function) else _ALIAS.sub("", function)


_is_wrapper = lru_cache(maxsize=1 << 16)(is_wrapper)
