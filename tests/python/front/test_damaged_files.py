# SPDX-License-Identifier: Apache-2.0
"""Damaged files for every reader: the short form of `./dev stress python_files`."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from spanwise.recordings import conversion

from tests.python.helpers import ROOT, python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs forks and /proc")

FILES = 510


def test_no_damaged_file_ends_in_a_traceback(tmp_path: Path) -> None:
    """Each reader accepts some damaged files and rejects others, so both paths are tested."""
    words = ["--files", str(FILES), "--seed", "7", "--keep", str(tmp_path)]
    done = python("-m", "tests.fuzz.fuzz_files", *words, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FILES} files: 0 failures" in done.stdout
    rows = re.findall(r"^(.+?) +(\d+) +(\d+) +(\d+)$", done.stdout, re.MULTILINE)
    assert len(rows) >= 17
    assert {f"convert {form}" for form in conversion.FORMS} < {name for name, *_ in rows}
    for name, *counts in rows:
        files, fine, refused = map(int, counts)
        assert fine + refused == files >= FILES // len(rows)
        assert fine > 0 and refused > 0, name


DEEDS = {
    "raises": "[].append(1, 2)",
    "exits": "sys.exit(3)",
    "dies": "os.kill(os.getpid(), signal.SIGSEGV)",
    "works": "while True: pass",
    "hoards": "bytearray(300 << 20)",
    "prints": "check_message('file.dat: two\\nlines', path)",
    "hides": "check_message('it is wrong', path)",
    "starves": "check_message('file.dat: needs more memory than there is', path)",
    "reads": "return True",
    "refuses": "return called(path, lambda: sw.Recording.open(path))",
}


def test_what_the_fuzzer_finds(tmp_path: Path) -> None:
    """Readers with planted errors: each is found, and the others continue."""
    lines = ["import os, signal, sys", "import spanwise as sw", "from pathlib import Path"]
    lines += ["from tests.fuzz import fuzz_files", "from tests.fuzz.readers import *"]
    for name, deed in DEEDS.items():
        lines += [f"def {name}(path, rng):", textwrap.indent(deed, "    ")]
    lines += [
        f"readers = tuple(Reader('build', one) for one in ({', '.join(DEEDS)}))",
        "fuzz_files.READERS = readers",
        "fuzz_files.SECONDS, fuzz_files.MEMORY_BYTES = 0.5, 200 << 20",
        "fuzz_files.Sums.__str__ = lambda sums: repr(sums)",
        f"found = fuzz_files.fuzz(1, range({len(DEEDS)}), Path(sys.argv[1]))",
        "fuzz_files.MEMORY_BYTES = 512 << 20",
        "print(*(what for _, what in found.failures), sep='\\n')",
        "print(found.read.total(), found.refused.total(), len(list(Path(sys.argv[1]).iterdir())))",
        "fuzz_files._add(found, 0, 0.1, 600 << 20, 'read')",
        "print(found.failures[-1][1])",
    ]
    words = [sys.executable, "-c", "\n".join(lines), str(tmp_path / "kept")]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, check=True)
    said = done.stdout.splitlines()
    wanted = [
        "build: TypeError: list.append() takes exactly one argument (2 given)",
        "build: SystemExit: 3",
        "build: ended its process with SIGSEGV",
        "build: ended its process with more than 0.5 s of processor time",
        "build: MemoryError:",
        "build: FindingError: not one line: 'file.dat: two\\nlines'",
        "build: FindingError: the error does not name the file: it is wrong",
        "build: FindingError: needs too much memory: file.dat: needs more memory than there is",
        "1 1 8",
        "build: 600 MiB were resident (read)",
    ]
    assert said == wanted, done.stdout + done.stderr
