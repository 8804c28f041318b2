# SPDX-License-Identifier: Apache-2.0
"""Lines of Python as call sites: whose they are, that they die with their code; what is refused.

The programs are files, so that their lines are known here by number.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from collections import Counter
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main

from tests.python.helpers import needs_recorder
from tests.recorder.tools import CC, ROOT

KNOWN = sys.version_info[:2] == (3, 11)
pytestmark = [
    needs_recorder(),
    pytest.mark.skipif(not KNOWN, reason="the recorder knows the frames of CPython 3.11"),
]

CULPRIT = """\
import json
def fill(n):
    kept = []
    for i in range(n):
        kept.append(bytearray(5_000 + i % 7))
    return kept
def other(n):
    return [json.loads("[1, 2, 3]") for _ in range(n)]
few = other(50)
kept = fill(2000)
"""

LAYOUT = r"""
#define Py_BUILD_CORE
#include <Python.h>
#include <internal/pycore_frame.h>
#include <stddef.h>
#include <stdio.h>
int main(void) {
    printf("STATE_CFRAME %zu\n", offsetof(PyThreadState, cframe));
    printf("CFRAME_FRAME %zu\n", offsetof(_PyCFrame, current_frame));
    printf("FRAME_CODE %zu\n", offsetof(_PyInterpreterFrame, f_code));
    printf("FRAME_PREVIOUS %zu\n", offsetof(_PyInterpreterFrame, previous));
    printf("FRAME_INSTRUCTION %zu\n", offsetof(_PyInterpreterFrame, prev_instr));
    printf("OBJECT_REFERENCES %zu\n", offsetof(PyObject, ob_refcnt));
    printf("OBJECT_TYPE %zu\n", offsetof(PyObject, ob_type));
    printf("CODE_FIRST_LINE %zu\n", offsetof(PyCodeObject, co_firstlineno));
    printf("CODE_FILE %zu\n", offsetof(PyCodeObject, co_filename));
    printf("CODE_QUALIFIED_NAME %zu\n", offsetof(PyCodeObject, co_qualname));
    printf("CODE_INSTRUCTIONS %zu\n", offsetof(PyCodeObject, co_code_adaptive));
    return 0;
}
"""


def recorded(
    folder: Path, text: str, *, words: tuple[str, ...] = (), stacks: int = 1
) -> sw.Recording:
    """A program that is run with its lines as call sites."""
    script = folder / "job.py"
    script.write_text(text, encoding="utf-8")
    argv = [sys.executable, *words, str(script)]
    return sw.record(argv, folder / "a.swt", stacks=stacks, python_sites=True, force=True)


def of_job(one: sw.Recording, depth: int = 1) -> Counter[tuple[str, ...]]:
    """Allocations by the innermost lines, of those in job.py."""
    found: Counter[tuple[str, ...]] = Counter()
    for site in one.sites.named():
        if "job.py:" in site.names[0] if site.names else False:
            found[site.names[:depth]] += site.allocs
    return found


def place(folder: Path, function: str, line: int) -> str:
    return f"{function} ({folder.name}/job.py:{line})"


def test_the_offsets_are_those_of_the_headers(tmp_path: Path) -> None:
    source, program = tmp_path / "layout.c", tmp_path / "layout"
    source.write_text(LAYOUT)
    include = sysconfig.get_path("include")
    if not (Path(include) / "internal/pycore_frame.h").is_file():
        pytest.skip("the headers of CPython are not installed")
    built = subprocess.run(
        [CC, "-I", include, "-I", f"{include}/internal", source, "-o", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    told = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    code = (ROOT / "src/recorder/python.c").read_text(encoding="utf-8")
    for row in told.splitlines():
        name, offset = row.split()
        assert f"    {name} = {offset},\n" in code, row


def test_one_line_of_python_ranks_first(tmp_path: Path) -> None:
    """2,000 arrays live at the end; the line of their allocation keeps most and wastes most."""
    one = recorded(tmp_path, CULPRIT)
    culprit = place(tmp_path, "fill", 5)
    live = one.live_sites(at="peak").named()
    assert max(live, key=lambda site: site.requested_bytes).names == (culprit,)
    assert live[0].names == (culprit,)
    assert one.sites.named()[0].names == (culprit,)
    lines = of_job(one)
    # An array has two blocks, its size is an int of its own, and kept grows now and then.
    assert 6000 <= lines[culprit,] < 6200
    assert lines[place(tmp_path, "other.<locals>.<listcomp>", 8),] > 0
    assert one.sites[0].frames == (f"python: fill ({tmp_path}/job.py:5)",)
    assert one.has_python_lines and all("\n" not in module.path for module in one.modules)


def test_no_line_has_two_sites(tmp_path: Path) -> None:
    """A line of several instructions is one site, or its waste would be split."""
    one = recorded(tmp_path, "x = [bytearray(9000), bytearray(9000), bytearray(9000)]\n" * 2)
    frames = [site.frames for site in one.sites if site.frames]
    assert len(frames) == len(set(frames))
    assert of_job(one)[place(tmp_path, "<module>", 2),] >= 6


def test_callers_of_a_line(tmp_path: Path) -> None:
    text = "def a():\n    return bytearray(70_000)\ndef b():\n    return a()\nx = b()\n"
    lines = of_job(recorded(tmp_path, text, stacks=4), depth=3)
    names = tuple(place(tmp_path, *at) for at in (("a", 2), ("b", 4), ("<module>", 5)))
    assert lines[names] == 2


def test_generators_threads_and_names_that_are_not_ascii(tmp_path: Path) -> None:
    text = (
        "import threading\n"
        "def größe(n):\n"
        "    for i in range(n):\n"
        "        yield bytearray(3000)\n"
        "def work(): kept.extend(größe(50))\n"
        "kept = []\n"
        "each = [threading.Thread(target=work) for _ in range(4)]\n"
        "for one in each: one.start()\n"
        "for one in each: one.join()\n"
    )
    lines = of_job(recorded(tmp_path, text))
    assert lines[place(tmp_path, "größe", 4),] == 4 * 50 * 2
    (tmp_path / "ж").mkdir()
    assert of_job(recorded(tmp_path / "ж", CULPRIT))["fill (ж/job.py:5)",] >= 6000


def test_code_that_dies_takes_its_name_with_it(tmp_path: Path) -> None:
    """Code objects of one shape follow each other at one address; each has its own file."""
    text = (
        "for i in range(300):\n"
        "    exec(compile('x = bytearray(4000)', f'part{i:03}.py', 'exec'), {})\n"
    )
    one = recorded(tmp_path, text)
    counts: Counter[str] = Counter()
    for site in one.sites.named():
        if site.names and "(part" in site.names[0]:
            counts[site.names[0]] += site.allocs
    assert {f"<module> (part{i:03}.py:1)" for i in range(300)} <= set(counts)
    assert all(count >= 2 for count in counts.values())


def test_forked_children_have_lines_too(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    text = (
        "import os\n"
        "def child(): return [bytearray(6000) for _ in range(100)]\n"
        "if os.fork() == 0:\n"
        "    kept = child()\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    script.write_text(text)
    argv = [sys.executable, str(script)]
    both = sw.record(argv, tmp_path / "a.swt", children=True, python_sites=True)
    assert isinstance(both, sw.RecordingSet) and len(both) == 2
    wanted = place(tmp_path, "child.<locals>.<listcomp>", 2)
    first = {site.names[0]: site.allocs for site in both[1].sites.named() if site.names}
    assert 190 <= first[wanted] <= 230  # the child's first event opened its file, and has no line


def test_a_killed_program_has_its_lines(tmp_path: Path) -> None:
    one = recorded(tmp_path, CULPRIT + "import os\nos.kill(os.getpid(), 9)\n")
    assert one.live_sites(at="end").named()[0].names == (place(tmp_path, "fill", 5),)


def test_what_has_no_python_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An interpreter that takes its objects from elsewhere, and a program that is none."""
    recorded(tmp_path, CULPRIT, words=("-E",))
    told = capfd.readouterr().err
    assert "Python lines need PYTHONMALLOC=malloc, which this process ignores" in told
    assert "no line of Python was seen" in told
    swt = str(tmp_path / "ls.swt")
    assert main(["record", "--python-sites", "-o", swt, "--", "/bin/ls", "/"]) == 1
    assert "no line of Python was seen" in capfd.readouterr().err


def test_what_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["record", "--python-sites", "-o", str(tmp_path / "a.swt")]
    for more, other in ((["--keep-pymalloc"], "keep_pymalloc"), (["--stacks", "0"], "stacks 0")):
        assert main([*words, *more, "--", sys.executable, "-c", ""]) == 2
        told = capfd.readouterr().err
        assert other in told and told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
