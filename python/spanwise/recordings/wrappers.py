# SPDX-License-Identifier: Apache-2.0
"""Allocator wrappers: functions that are folded, so that a stack begins with the program's own.

Only leading frames are folded: wrappers, and all frames of the C and C++ runtime libraries. In a
stack of runtime libraries alone only wrappers are. A stack that was truncated before the program's
own functions keeps its outermost wrapper.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from spanwise.errors import InvalidError

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
    """Split a name into function and place: "file:line", module, or the reason for no name.

    The place is "" if there is none.
    """
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

    Args:
        full_stacks: hide none.
        hide_frames: regular expressions; functions that match are hidden as allocator wrappers are.

    Raises:
        InvalidError: invalid regular expression.
    """

    full_stacks: bool = False
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
        """Return the names of a stack without its leading wrappers, innermost first.

        Args:
            names: of all frames.
            runtime: whether each is in a runtime library; they are folded as wrappers are, unless
                nothing would be left.
        """
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


def _starts(name: str) -> bool:
    return split_place(name)[0] in _LINKED_IN


def entry(names: Sequence[str], kept: Sequence[str], runtime: Sequence[bool]) -> str:
    """Return the function of a runtime library that a folded stack's first function called.

    "" if it called another one, or an allocation function such as malloc, or one without a public
    name.

    Args:
        names: of all frames.
        kept: those that `Folding.of` returned.
        runtime: as of `Folding.of`.
    """
    last = len(names) - len(kept) - 1
    if last < 0 or not runtime[last] or runtime[last + 1]:
        return ""
    function = plain_function(split_place(names[last])[0])
    return "" if _UNSAID.fullmatch(function) else _ALIAS.sub("", function)


_is_wrapper = lru_cache(maxsize=1 << 16)(is_wrapper)
