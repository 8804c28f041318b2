# SPDX-License-Identifier: Apache-2.0
"""Lines of Python as call sites: whose they are, that they die with their code; what is refused.

The programs are files, so that their lines are known here by number. SPANWISE_TEST_PYTHONS names
the CPython interpreters, separated by colons. Otherwise they are this process's, those of pyenv,
and those in PATH; of several with one minor version, the first.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.__main__ import main
from spanwise.recordings.recorder import PYTHON_STACKS, STACKS

from tests.python.helpers import needs_recorder
from tests.recorder.tools import CC, PROGRAMS, ROOT

MINORS = range(9, 15)
_ABOUT = """
import json, sys, sysconfig
print(json.dumps([sys.implementation.name, sys.version_info[:2], sysconfig.get_path("include"),
                  bool(sysconfig.get_config_var("Py_GIL_DISABLED"))]))
"""


@dataclass(frozen=True)
class Python:
    """An interpreter, its minor version (3.minor), and where its headers would be."""

    path: Path
    minor: int
    include: Path

    def __str__(self) -> str:
        return f"3.{self.minor}"

    def named(self, qualified: str) -> str:
        """The name of a function as this version has it in its code object."""
        return qualified if self.minor >= 11 else qualified.rpartition(".")[2]

    def comprehension_in(self, function: str) -> str:
        """The name of the code of a list comprehension: since 3.12 the function's own."""
        return function if self.minor >= 12 else self.named(f"{function}.<locals>.<listcomp>")


def _python(path: Path) -> Python | None:
    try:
        reported = subprocess.run([path, "-c", _ABOUT], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    name, (major, minor), include, free_threaded = json.loads(reported.stdout)
    known = name == "cpython" and major == 3 and minor in MINORS and not free_threaded
    return Python(path, minor, Path(include)) if known else None


def _places() -> list[Path]:
    given = os.environ.get("SPANWISE_TEST_PYTHONS")
    if given is not None:
        return [Path(word) for word in given.split(":") if word]
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    on_path = [shutil.which(f"python3.{minor}") for minor in MINORS]
    return [
        Path(sys.executable),
        *sorted(versions.glob("3.*/bin/python3")),
        *(Path(path) for path in on_path if path is not None),
    ]


def pythons() -> list[Python]:
    """One interpreter of each known version that is here, the oldest first."""
    found: dict[int, Python] = {}
    for path in _places():
        one = _python(path)
        if one is not None:
            found.setdefault(one.minor, one)
    return [found[minor] for minor in sorted(found)]


PYTHONS = pythons()
pytestmark = [
    needs_recorder(),
    pytest.mark.skipif(not PYTHONS, reason="no CPython whose frames are known"),
]


@pytest.fixture(params=PYTHONS, ids=str)
def python(request: pytest.FixtureRequest) -> Python:
    """Each interpreter in turn."""
    one: Python = request.param
    return one


@pytest.fixture
def newest() -> Python:
    """For what does not depend on the layout of frames."""
    return PYTHONS[-1]


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


def recorded(
    folder: Path,
    python: Python,
    text: str,
    *,
    words: tuple[str, ...] = (),
    stacks: int | None = 1,
) -> sw.Recording:
    """A program that is run with its lines as call sites."""
    script = folder / "job.py"
    script.write_text(text, encoding="utf-8")
    argv = [str(python.path), *words, str(script)]
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


def test_the_layout_is_that_of_the_headers(python: Python, tmp_path: Path) -> None:
    if not (python.include / "internal/pycore_frame.h").is_file() and python.minor >= 11:
        pytest.skip("the headers of this CPython are not installed")
    if not (python.include / "frameobject.h").is_file():
        pytest.skip("the headers of this CPython are not installed")
    program = tmp_path / "layout"
    folders = [f"-I{folder}" for folder in (ROOT / "src", python.include)]
    internal = f"-I{python.include}/internal"
    sources = [PROGRAMS / "layout.c", ROOT / "src/recorder/python_layout.c"]
    built = subprocess.run(
        [CC, *folders, internal, *sources, "-o", program],
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    done = subprocess.run([program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_one_line_of_python_ranks_first(python: Python, tmp_path: Path) -> None:
    """2,000 arrays live at the end; the line of their allocation keeps most and wastes most."""
    one = recorded(tmp_path, python, CULPRIT)
    culprit = place(tmp_path, "fill", 5)
    live = one.live_sites(at="peak").named()
    assert max(live, key=lambda site: site.requested_bytes).names == (culprit,)
    assert live[0].names == (culprit,)
    assert one.sites.named()[0].names == (culprit,)
    lines = of_job(one)
    # An array has two blocks; its size is an int of its own, which 3.14 uses again; kept grows.
    blocks = 4000 if python.minor >= 14 else 6000
    assert blocks <= lines[culprit,] < blocks + 200
    assert lines[place(tmp_path, python.comprehension_in("other"), 8),] > 0
    assert one.sites[0].frames == (f"python: fill ({tmp_path}/job.py:5)",)
    assert one.has_python_lines and all("\n" not in module.path for module in one.modules)


def test_no_line_has_two_sites(newest: Python, tmp_path: Path) -> None:
    """A line of several instructions is one site, or its waste would be split."""
    text = "x = [bytearray(9000), bytearray(9000), bytearray(9000)]\n" * 2
    one = recorded(tmp_path, newest, text)
    frames = [site.frames for site in one.sites if site.frames]
    assert len(frames) == len(set(frames))
    assert of_job(one)[place(tmp_path, "<module>", 2),] >= 6


def test_callers_of_a_line(python: Python, tmp_path: Path) -> None:
    text = "def a():\n    return bytearray(70_000)\ndef b():\n    return a()\nx = b()\n"
    lines = of_job(recorded(tmp_path, python, text, stacks=4), depth=3)
    names = tuple(place(tmp_path, *at) for at in (("a", 2), ("b", 4), ("<module>", 5)))
    assert lines[names] == 2


def test_calls_through_c_and_classes_have_no_frames_of_the_interpreter(
    python: Python, tmp_path: Path
) -> None:
    """The interpreter enters frames of its own between a C function, or a class, and Python."""
    text = (
        "class Box:\n"
        "    def __init__(self):\n"
        "        self.kept = bytearray(9000)\n"
        "def key(n):\n"
        "    return bytearray(7000 + n)\n"
        "kept = []\n"
        "for i in range(300):\n"
        "    kept.append(Box())\n"
        "sorted(range(100), key=key)\n"
    )
    lines = of_job(recorded(tmp_path, python, text, stacks=8), depth=8)
    box, key = place(tmp_path, python.named("Box.__init__"), 3), place(tmp_path, "key", 5)
    chains = {names for names in lines if names[0] in (box, key)}
    assert chains == {
        (box, place(tmp_path, "<module>", 8)),
        (key, place(tmp_path, "<module>", 9)),
    }
    assert lines[key, place(tmp_path, "<module>", 9)] >= 200


def test_immortal_code(python: Python, tmp_path: Path) -> None:
    """Frames of 3.14 mark their pointer to code that is never freed."""
    text = (
        "import ctypes\n"
        "def fill():\n"
        "    return bytearray(9000)\n"
        "ctypes.c_uint32.from_address(id(fill.__code__)).value = 3 << 30\n"
        "x = fill()\n"
    )
    names = place(tmp_path, "fill", 3), place(tmp_path, "<module>", 5)
    assert of_job(recorded(tmp_path, python, text, stacks=8), depth=8)[names] == 2


def test_default_depths(newest: Python, tmp_path: Path) -> None:
    """Fifty calls deep, and the same with a depth."""
    text = (
        "def deeper(n):\n"
        "    if n:\n"
        "        return deeper(n - 1)\n"
        "    return bytearray(70_000)\n"
        "x = deeper(50)\n"
    )
    last, others = place(tmp_path, "deeper", 4), place(tmp_path, "deeper", 3)
    one = recorded(tmp_path, newest, text, stacks=None)
    assert one.info["stack_depth"] == STACKS == 16
    assert of_job(one, depth=60)[(last,) + (others,) * (PYTHON_STACKS - 1)] == 2
    shallow = recorded(tmp_path, newest, text, stacks=3)
    assert shallow.info["stack_depth"] == 3
    assert of_job(shallow, depth=60)[last, others, others] == 2


def test_generators_threads_and_names_that_are_not_ascii(python: Python, tmp_path: Path) -> None:
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
    lines = of_job(recorded(tmp_path, python, text))
    assert lines[place(tmp_path, "größe", 4),] == 4 * 50 * 2
    (tmp_path / "ж").mkdir()
    assert of_job(recorded(tmp_path / "ж", python, CULPRIT))["fill (ж/job.py:5)",] >= 4000


def test_code_that_dies_takes_its_name_with_it(python: Python, tmp_path: Path) -> None:
    """Code objects of one shape follow each other at one address; each has its own file."""
    text = (
        "for i in range(300):\n"
        "    exec(compile('x = bytearray(4000)', f'part{i:03}.py', 'exec'), {})\n"
    )
    one = recorded(tmp_path, python, text)
    counts: Counter[str] = Counter()
    for site in one.sites.named():
        if site.names and "(part" in site.names[0]:
            counts[site.names[0]] += site.allocs
    assert {f"<module> (part{i:03}.py:1)" for i in range(300)} <= set(counts)
    assert all(count >= 2 for count in counts.values())


def test_forked_children_have_lines_too(newest: Python, tmp_path: Path) -> None:
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
    argv = [str(newest.path), str(script)]
    both = sw.record(argv, tmp_path / "a.swt", stacks=1, children=True, python_sites=True)
    assert isinstance(both, sw.RecordingSet) and len(both) == 2
    wanted = place(tmp_path, newest.comprehension_in("child"), 2)
    first = {site.names[0]: site.allocs for site in both[1].sites.named() if site.names}
    assert 190 <= first[wanted] <= 230  # the child's first event opened its file, and has no line


def test_a_killed_program_has_its_lines(newest: Python, tmp_path: Path) -> None:
    one = recorded(tmp_path, newest, CULPRIT + "import os\nos.kill(os.getpid(), 9)\n")
    assert one.live_sites(at="end").named()[0].names == (place(tmp_path, "fill", 5),)


def test_what_has_no_python_says_so(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """An interpreter that takes its objects from elsewhere, and a program that is none."""
    recorded(tmp_path, PYTHONS[0], CULPRIT, words=("-E",))
    reported = capfd.readouterr().err
    assert "Python lines need PYTHONMALLOC=malloc, which this process ignores" in reported
    assert "no line of Python was seen" in reported
    swt = str(tmp_path / "ls.swt")
    assert main(["record", "--python-sites", "-o", swt, "--", "/bin/ls", "/"]) == 1
    assert "no line of Python was seen" in capfd.readouterr().err


def test_what_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["record", "--python-sites", "-o", str(tmp_path / "a.swt")]
    for more, other in ((["--keep-pymalloc"], "keep_pymalloc"), (["--stacks", "0"], "stacks 0")):
        assert main([*words, *more, "--", "python3", "-c", ""]) == 2
        reported = capfd.readouterr().err
        assert other in reported and reported.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
