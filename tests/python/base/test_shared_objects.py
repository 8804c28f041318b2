# SPDX-License-Identifier: Apache-2.0
"""Properties of the package's shared objects that the dynamic loader depends on."""

from __future__ import annotations

import shutil
import subprocess
import sys
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


IMPORT_LATE = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
import spanwise
with spanwise.Heap() as heap:
    heap.alloc(10)
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_imports_after_a_library_with_much_static_tls(tmp_path: Path) -> None:
    """Next to the largest library that a process can load, less 256 bytes."""
    source = tmp_path / "large.c"
    words = [sys.executable, "-c", "import ctypes, sys; ctypes.CDLL(sys.argv[1])"]

    def built(size: int) -> Path:
        library = tmp_path / f"large{size}.so"
        source.write_text(
            f'__attribute__((tls_model("initial-exec"))) __thread char x[{size}];\n'
            "char *get(void) { return x; }\n"
        )
        subprocess.run(["cc", "-shared", "-fPIC", "-o", library, source], check=True)
        return library

    def loads(library: Path) -> bool:
        return subprocess.run([*words, library], capture_output=True, check=False).returncode == 0

    low, high = 0, 64 * 1024  # multiples of 64 that load, and that do not
    while high - low > 64:
        middle = (low + high) // 128 * 64
        low, high = (middle, high) if loads(built(middle)) else (low, middle)
    assert low >= 512, "no reserve of static TLS to test with"
    late = [sys.executable, "-c", IMPORT_LATE, str(built(low - 256))]
    done = subprocess.run(late, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
