# SPDX-License-Identifier: Apache-2.0
"""Specialised paths are off wherever a sanitizer is at work, by whichever compiler.

Only compiled: MSan's runtime is not on every machine. That sw_heap_path tells the same is checked
by tests/unit/test_fast.c and test_caches.c under the sanitizer for which they are built.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CASES = [
    ("gcc", "", 1),
    ("gcc", "address", 0),
    ("gcc", "thread", 0),
    ("gcc", "undefined", 1),
    ("clang", "", 1),
    ("clang", "address", 0),
    ("clang", "thread", 0),
    ("clang", "memory", 0),
]


@pytest.mark.parametrize(("compiler", "sanitizer", "expected"), CASES)
def test_specialised_paths_by_sanitizer(
    compiler: str, sanitizer: str, expected: int, tmp_path: Path
) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} was not found")
    source = f'#include "heap/paths.h"\n_Static_assert(SW_SPECIALISED == {expected}, "paths");\n'
    flags = [f"-fsanitize={sanitizer}"] if sanitizer else []
    # A stand-in for the header of MSan's runtime, behind the real one.
    (tmp_path / "sanitizer").mkdir()
    (tmp_path / "sanitizer/msan_interface.h").write_text("void __msan_unpoison(void *, size_t);\n")
    folders = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}", "-idirafter", str(tmp_path)]
    done = subprocess.run(
        [compiler, *flags, *folders, "-std=gnu11", "-fsyntax-only", "-x", "c", "-"],
        input=source,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
