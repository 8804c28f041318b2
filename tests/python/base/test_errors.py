# SPDX-License-Identifier: Apache-2.0
"""Exceptions and structures agree with the C headers."""

from __future__ import annotations

import errno
import io
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import _lib, errors
from spanwise._lib import ffi, lib

from tests.python.helpers import ROOT


def names_of(macro: str) -> list[str]:
    """Return the names of an X-macro list of status.h, in order."""
    text = (ROOT / "include/spanwise/status.h").read_text(encoding="utf-8")
    body = re.search(rf"#define {macro}\(X\)(.*?)\n\n", text, re.DOTALL)
    assert body is not None
    return re.findall(r"X\((\w+),", body[1])


def test_every_status_has_an_exception() -> None:
    names = names_of("SW_STATUS_LIST")
    assert names[0] == "OK"
    assert list(errors.STATUS_ERRORS) == names[1:]
    assert len(names) == lib.SW_STATUS_COUNT
    for status, name in enumerate(names):
        assert _lib.text(lib.sw_status_name(status)) == name


def test_every_misuse_has_an_exception() -> None:
    names = names_of("SW_MISUSE_LIST")
    assert names[0] == "NONE"
    assert list(errors.MISUSE_ERRORS) == names[1:]
    assert len(names) == lib.SW_MISUSE_COUNT
    for misuse, name in enumerate(names):
        assert _lib.text(lib.sw_misuse_name(misuse)) == name


def pickled(error: Exception) -> bytes:
    """The error, pickled by its own rules: Dask, once imported, registers others for exceptions."""
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer)
    pickler.dispatch_table = {}
    pickler.dump(error)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "builtin"),
    [
        ("NOMEM", MemoryError),
        ("LIMIT", MemoryError),
        ("INVALID", ValueError),
        ("STATE", RuntimeError),
        ("IO", OSError),
        ("FORMAT", ValueError),
        ("UNSUPPORTED", RuntimeError),
        ("BUSY", BufferError),
    ],
)
def test_exceptions_are_builtin_ones_with_a_code(name: str, builtin: type[Exception]) -> None:
    error = _lib.failure(names_of("SW_STATUS_LIST").index(name))
    assert isinstance(error, builtin)
    assert isinstance(error, sw.SpanwiseError)
    assert error.code == name
    again = pickle.loads(pickled(error))
    assert (type(again), str(again), again.code) == (type(error), str(error), name)


def test_closed_and_freed_have_their_own_exceptions() -> None:
    assert issubclass(sw.HeapClosedError, RuntimeError)
    assert issubclass(sw.CorruptionError, RuntimeError)
    assert issubclass(errors.MISUSE_ERRORS["DOUBLE_FREE"], RuntimeError)
    assert errors.MISUSE_ERRORS["CORRUPT"] is sw.CorruptionError


def test_operations_have_the_layout_of_c() -> None:
    assert _lib.dtype_of("sw_op") == sw.OPS_DTYPE
    assert sw.OPS_DTYPE.itemsize == ffi.sizeof("sw_op") == 32


def test_every_public_function_is_declared() -> None:
    """scripts/ffi_cdef.py reads them from the headers."""
    declared = set()
    headers = ("status", "sizeclass", "heap", "stats", "ops", "replay", "trace", "spanwise")
    for header in (*headers, "range", "allocator_vtable", "memory", "reader", "scalable"):
        text = (ROOT / f"include/spanwise/{header}.h").read_text(encoding="utf-8")
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        declared |= set(re.findall(r"SW_API[^;]*?\b(sw_\w+)\(", text))
    assert len(declared) > 100
    assert declared <= set(dir(lib))


# --- what an exception carries --------------------------------------------------------------------


def caught(call: Callable[[], object]) -> sw.SpanwiseError:
    with pytest.raises(sw.SpanwiseError) as found:
        call()
    return found.value


def test_what_is_not_there_is_a_file_not_found(tmp_path: Path) -> None:
    absent, unknown = str(tmp_path / "absent.swt"), "no-such-program-here"
    for call, filename in (
        (lambda: sw.Recording.open(absent), absent),
        (lambda: sw.record([absent]), absent),
        (lambda: sw.run([absent]), absent),
        (lambda: sw.record([unknown]), unknown),
    ):
        error = caught(call)
        assert isinstance(error, FileNotFoundError)
        assert (error.errno, error.filename) == (errno.ENOENT, filename)
        assert filename in str(error) and "Errno" not in str(error)


def test_errors_of_files_name_the_file_and_the_systems_number(tmp_path: Path) -> None:
    folder, text = tmp_path, tmp_path / "text.swt"
    text.write_text("no recording")
    error = caught(lambda: sw.Recording.open(folder))
    assert isinstance(error, sw.RecordingIOError) and not isinstance(error, FileNotFoundError)
    assert (error.errno, error.filename) == (errno.EISDIR, str(folder))
    error = caught(lambda: sw.Recording.open(text))
    assert isinstance(error, sw.TraceFormatError)
    assert (error.errno, error.filename) == (None, str(text))
    place = tmp_path / "none" / "a.swt"
    error = caught(lambda: write(place))
    assert (error.errno, error.filename) == (errno.ENOENT, str(place))


def write(place: Path) -> sw.Recording:
    return sw.Recording.from_ops(sw.synthesize(8, 1, count=3).ops, place)
