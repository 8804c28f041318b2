# SPDX-License-Identifier: Apache-2.0
"""Wrap the C extension; no other module imports it.

Statuses become exceptions, structures become numpy types, arguments become C values.
"""

from __future__ import annotations

import errno
import operator
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeVar

from spanwise import errors
from spanwise._spanwise import ffi, lib

if TYPE_CHECKING:
    import numpy as np

    OPS_DTYPE: np.dtype[np.void]
    """An operation, as sw_op of include/spanwise/ops.h; 32 bytes."""
    RUN_SAMPLE_DTYPE: np.dtype[np.void]
    """A row of a time line, as sw_replay_sample of include/spanwise/replay.h."""

__all__ = [
    "OPS_DTYPE",
    "RUN_SAMPLE_DTYPE",
    "as_choice",
    "as_index",
    "as_iterable",
    "as_nanoseconds",
    "c_path",
    "check",
    "check_callable",
    "check_type",
    "dtype_of",
    "failure",
    "ffi",
    "lib",
    "options_of",
    "output_of",
    "struct_dict",
    "text",
    "version",
]

ItemT = TypeVar("ItemT")

SIZE_MAX = (1 << 63) - 1
"""PTRDIFF_MAX, the largest request that C allows."""

# cffi creates the wrapper of a C name at its first use, which is not thread-safe. So create all of
# them here.
for _name in dir(lib):
    getattr(lib, _name)


def text(value: Any) -> str:
    """Convert a C string to str as os.fsdecode does; "" for NULL."""
    return os.fsdecode(ffi.string(value)) if value else ""


def version() -> str:
    """Return the version of the C library, e.g. "0.1.0"."""
    return text(lib.sw_version())


# --- statuses -------------------------------------------------------------------------------------


_ADVICE = {
    r"the range 0x\w+": "the range",
    "sw_range_adopt": "adopt()",
    "make it with the option locked": "make it with locked=True",
}
"""Words in messages for C programs, regular expressions -> the same for Python."""


def failure(status: int, path: str | os.PathLike[str] | None = None) -> errors.SpanwiseError:
    """Return the exception of a status, with the C library's message for this thread."""
    name = text(lib.sw_status_name(status))
    last = lib.sw_last_error()
    is_last = last.message != ffi.NULL and last.status == status
    message = text(last.message) if is_last else text(lib.sw_status_text(status))
    for in_c, in_python in _ADVICE.items():
        message = re.sub(in_c, in_python, message)
    kind = errors.STATUS_ERRORS.get(name, errors.SpanwiseError)
    number = _errno_in(message) if issubclass(kind, OSError) else None
    if kind is errors.RecordingIOError and number == errno.ENOENT:
        kind = errors.RecordingNotFoundError
    return kind(message, name, errno=number, filename=path)


def _errno_in(message: str) -> int | None:
    """Return the errno whose strerror text a message contains; that of the longest if several."""
    numbers = {os.strerror(number): number for number in errno.errorcode}
    found = [words for words in numbers if words in message]
    return numbers[max(found, key=len)] if found else None


def check(status: int, path: str | os.PathLike[str] | None = None) -> None:
    """Raises the exception of a status that is not SW_OK; `path` is the file that it concerns."""
    if status != 0:
        raise failure(status, path)


# --- arguments ------------------------------------------------------------------------------------


def as_index(value: SupportsIndex, what: str, largest: int = SIZE_MAX, *, least: int = 0) -> int:
    """Convert an integer argument, `least` (0 or 1) to `largest`."""
    if isinstance(value, bool) or not hasattr(type(value), "__index__"):
        raise TypeError(f"{what} must be an integer, not {type(value).__name__}")
    number = operator.index(value)
    if number < least:
        why = " is negative;" if number < 0 else ":"
        raise errors.InvalidError(f"{what} {_shown(number)}{why} give {least} or more")
    if number > largest:
        raise errors.InvalidError(f"{what} {_shown(number)} is too large; give at most {largest}")
    return number


def as_choice(value: str, what: str, known: Iterable[str]) -> int:
    """Return the index of a word among the known ones."""
    words = tuple(known)
    if value not in words:
        raise errors.InvalidError(f"{what} {value!r}: must be one of {', '.join(words)}")
    return words.index(value)


def as_nanoseconds(seconds: float, what: str = "seconds") -> int:
    """Convert a time in seconds, 0 or more, to whole nanoseconds."""
    if not (isinstance(seconds, int | float) and 0 <= seconds < 2**63 / 1e9):
        raise errors.InvalidError(f"{what} {seconds!r}: give seconds, 0 or more")
    return round(seconds * 10**9)


def check_type(value: object, kind: type | tuple[type, ...], what: str) -> None:
    """Raises TypeError, naming the argument, unless it has this type, or one of these."""
    if not isinstance(value, kind):
        kinds = kind if isinstance(kind, tuple) else (kind,)
        names = ["None" if one is type(None) else one.__name__ for one in kinds]
        raise TypeError(f"{what} must be {' or '.join(names)}, not {type(value).__name__}")


def check_callable(value: object, what: str) -> None:
    """Raises TypeError, naming the argument, unless it is callable or None."""
    if value is not None and not callable(value):
        raise TypeError(f"{what} must be callable or None, not {type(value).__name__}")


def as_iterable(values: Iterable[ItemT], what: str) -> Iterable[ItemT]:
    """Raises TypeError, naming the argument, unless it is iterable."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{what} must be iterable, not {type(values).__name__}")
    return values


def _shown(number: int) -> str:
    return str(number) if number.bit_length() <= 128 else f"of {number.bit_length()} bits"


def c_path(path: str | os.PathLike[str]) -> bytes:
    """Convert a path for C."""
    raw = os.fsencode(os.fspath(path))
    if b"\0" in raw:
        raise errors.InvalidError(f"path {str(path)!r} holds a NUL character")
    return raw


def native_library(name: str) -> Path:
    """Return the path of a native library in the wheel's _native folder or $SPANWISE_NATIVE_DIR."""
    override = os.environ.get("SPANWISE_NATIVE_DIR")
    folder = Path(override) if override else Path(__file__).parent / "_native"
    path = (folder / name).absolute()
    if not path.is_file():
        raise errors.UnsupportedError(
            f"{path}: not there; install the wheel, or set SPANWISE_NATIVE_DIR to its folder"
        )
    return path


# --- structures -----------------------------------------------------------------------------------

_SKIPPED = {"pad"}


def dtype_of(name: str) -> np.dtype[np.void]:
    """Return the numpy type of a C structure of numbers, with the same names and layout."""
    import numpy as np  # noqa: PLC0415

    ctype = ffi.typeof(name)
    names, formats, offsets = [], [], []
    for field, info in ctype.fields:
        if field not in _SKIPPED:
            names.append(field)
            formats.append(_format_of(info.type))
            offsets.append(info.offset)
    return np.dtype(
        {"names": names, "formats": formats, "offsets": offsets, "itemsize": ffi.sizeof(ctype)}
    )


def _format_of(ctype: Any) -> Any:
    if ctype.kind == "array":
        return (_format_of(ctype.item), (ctype.length,))
    return "<f8" if ctype.cname == "double" else f"<u{ffi.sizeof(ctype)}"


def options_of(name: str, **fields: Any) -> Any:
    """Create a C options structure with the defaults of its `_init` function and the given fields.

    A structure without such a function gets its size as `struct_bytes`.
    """
    made = ffi.new(f"{name} *")
    init = getattr(lib, f"{name}_init", None)
    if init is not None:
        init(made)
    else:
        made.struct_bytes = ffi.sizeof(name)
    for field, value in fields.items():
        setattr(made, field, value)
    return made


def output_of(function: Any, *arguments: Any) -> Any:
    """Call a C function that returns a status; return the value of its last parameter."""
    out = ffi.new(ffi.typeof(function).args[-1])
    check(function(*arguments, out))
    return out[0]


def struct_dict(value: Any) -> dict[str, Any]:
    """Return the fields of a C structure of numbers, in order."""
    ctype = ffi.typeof(value)
    fields = ctype.item.fields if ctype.kind == "pointer" else ctype.fields
    return {name: getattr(value, name) for name, _ in fields}


def _ops_dtype() -> np.dtype[np.void]:
    import numpy as np  # noqa: PLC0415

    numbers = [("time_ns", "<u8"), ("size", "<u8")]
    numbers += [("object", "<u4"), ("thread", "<u4"), ("site", "<u4")]
    return np.dtype([*numbers, ("kind", "u1"), ("align_log2", "u1"), ("flags", "<u2")])


def __getattr__(name: str) -> Any:
    """Creates the numpy type of a kind of rows at its first use.

    Loading numpy takes longer than everything else that a command needs before it starts a program,
    so this module does not load it.
    """
    if name == "OPS_DTYPE":
        made = _ops_dtype()
    elif name == "RUN_SAMPLE_DTYPE":
        made = dtype_of("sw_replay_sample")
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return globals().setdefault(name, made)


def pointer(array: np.ndarray[Any, Any], ctype: str) -> Any:
    """Return a C pointer to an array's memory; the array must outlive its use."""
    return ffi.cast(ctype, array.__array_interface__["data"][0])
