# SPDX-License-Identifier: Apache-2.0
"""Properties of the package's shared objects that the dynamic loader depends on."""

from __future__ import annotations

from pathlib import Path

import pytest
from spanwise import _lib, _spanwise

from tests.python.elf import is_never_unloaded, static_tls_bytes

EXTENSION = Path(_spanwise.__file__)
OBJECTS = [EXTENSION, *sorted(_lib.native_library("libspanwise-malloc.so").parent.glob("*.so"))]


def test_every_shared_object_is_looked_at() -> None:
    names = {path.name.split(".")[0] for path in OBJECTS}
    assert names >= {"_spanwise", "libspanwise-malloc", "libspanwise-record"}


@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: path.name)
def test_dlclose_leaves_it_mapped(path: Path) -> None:
    """Threads call exit functions of the library after the last dlclose."""
    assert is_never_unloaded(path)


@pytest.mark.parametrize(
    ("name", "most"),
    [("_spanwise", 8), ("libspanwise-malloc", 8), ("libspanwise-record", 64)],
)
def test_static_tls(name: str, most: int) -> None:
    """Libraries loaded by dlopen share a reserve of about 1.6 KiB of static TLS."""
    (path,) = (path for path in OBJECTS if path.name.split(".")[0] == name)
    assert static_tls_bytes(path) <= most
