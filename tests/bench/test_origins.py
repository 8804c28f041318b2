# SPDX-License-Identifier: Apache-2.0
"""Where allocators come from: what tools say of a file, what the user says, what nobody does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from runner import origins
from runner.contenders import Contender
from runner.errors import BenchError
from scoreboard import cli

from tests.bench.tools import INLINE, MIMALLOC, PRELOAD, SNMALLOC

CACHE = {
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_C_COMPILER": "/usr/bin/cc",
    "CMAKE_C_FLAGS": "-march=native",
    "CMAKE_C_FLAGS_RELEASE": "-O3 -DNDEBUG",
    "CMAKE_CXX_COMPILER": "/usr/bin/c++",
    "CMAKE_CXX_FLAGS": "",
    "CMAKE_CXX_FLAGS_RELEASE": "-O2",
}
COMMENT = """
String dump of section '.comment':
  [     0]  GCC: (Debian 12.2.0-14) 12.2.0
  [    1b]  GCC: (Debian 12.2.0-14) 12.2.0

"""
SWITCHES = """
String dump of section '.GCC.command.line':
  [     0]  GNU C11 12.2.0 -O3 -march=native -I /home/x -o a.o -DNDEBUG
  [    40]  GNU C11 12.2.0 -O3 -fPIC
"""


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What tools say, by the words that they are called with; of other words they fail."""
    found: dict[str, str] = {}
    monkeypatch.setattr(origins, "_said", lambda words: found.get(" ".join(words), "").splitlines())
    return found


@pytest.fixture
def library(tmp_path: Path) -> Path:
    """A library that someone built."""
    path = tmp_path / "libother.so"
    path.touch()
    return path


def test_a_package_and_its_version(said: dict[str, str]) -> None:
    """The linker found it in /usr/lib, the package names it in /lib."""
    said["dpkg-query -S /lib/none/libje.so.2"] = "libje2:amd64, x: /lib/none/libje.so.2\n"
    said["dpkg-query -W -f=${Version} libje2:amd64"] = "5.3.0-1"
    assert origins.package_of(Path("/usr/lib/none/libje.so.2")) == "libje2 5.3.0-1"
    assert origins.package_of(Path("/lib/none/libje.so.2")) == "libje2 5.3.0-1"
    assert origins.package_of(Path("/opt/none/libje.so.2")) == ""


def test_a_library_of_the_users_own(said: dict[str, str], library: Path) -> None:
    peer = Contender("other", "preload", Path("bench_malloc"), "malloc", library, "3.3.2")
    (found,) = origins.origins([peer], CACHE, {})
    assert (found.version, found.package, found.compiler) == ("3.3.2", "", "")
    assert found.flags == "flags unknown"
    said[f"readelf -p .comment {library}"] = COMMENT
    said[f"readelf -p .GCC.command.line {library}"] = SWITCHES
    (found,) = origins.origins([replace(peer, version="")], CACHE, {})
    assert found.version == "version unknown"
    assert found.compiler == "GCC: (Debian 12.2.0-14) 12.2.0"
    assert found.flags == "-O3 -march=native -DNDEBUG -fPIC"
    (found,) = origins.origins([peer], CACHE, {"other": "-O3 -flto"})
    assert found.flags == "-O3 -flto"


def test_linked_peers(said: dict[str, str], library: Path) -> None:
    """Headers alone are compiled as the bench is; of an archive only the file can tell."""
    headers = {**CACHE, "bench_snmalloc_include": "/opt/sn"}
    (found,) = origins.origins([SNMALLOC], headers, {})
    assert (found.compiler, found.flags) == ("c++", "-O2")
    archive = {**headers, "bench_mimalloc_library": str(library), "bench_mimalloc_include": "/opt"}
    (found,) = origins.origins([MIMALLOC], archive, {})
    assert found.flags == "flags unknown"
    said["dpkg-query -S /usr/lib/cmake/mimalloc"] = "libmi-dev: /usr/lib/cmake/mimalloc"
    said["dpkg-query -W -f=${Version} libmi-dev"] = "2.0.9+ds-2"
    package = {**CACHE, "mimalloc_DIR": "/usr/lib/cmake/mimalloc", "bench_mimalloc_include": "/usr"}
    (found,) = origins.origins([MIMALLOC], package, {})
    assert (found.package, found.flags) == ("libmi-dev 2.0.9+ds-2", "flags unknown")


def test_ours_and_go(said: dict[str, str]) -> None:
    bare = replace(INLINE, basis="bare")
    go = Contender("go-special", "go", Path("go_special"), "go", None, "go1.26.8")
    plain = replace(go, name="go")
    inline, without, face, special, generic = origins.origins(
        [INLINE, bare, PRELOAD, go, plain], CACHE, {}
    )
    assert inline.flags == "-march=native -O3 -DNDEBUG"
    assert without.flags == "-march=native -O3 -DNDEBUG -DSW_CHECK=0 -DSW_FAST_CHECKED=0"
    assert face.version == inline.version == "0.1.0"
    assert special.flags == "go build GOEXPERIMENT=sizespecializedmalloc"
    assert (generic.flags, generic.version) == ("go build", "go1.26.8")


@pytest.mark.parametrize("text", ["mimalloc", "=-O3", "mimalloc= ", "Mi=-O3"])
def test_flags_of_another_form(text: str) -> None:
    with pytest.raises(BenchError, match=r"^--flags '.*' is not NAME=TEXT, NAME in lower case$"):
        origins.parse_flags([text])


def test_flags_of_a_stranger() -> None:
    assert origins.parse_flags(["snmalloc=-O3 -DX=1"]) == {"snmalloc": "-O3 -DX=1"}
    with pytest.raises(BenchError, match=r"^--flags rpmalloc=...: no allocator of that name takes"):
        origins.origins([SNMALLOC], CACHE, {"rpmalloc": "-O3"})


def test_the_report_tells_how_each_peer_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("bench_spanwise", "bench_spanwise_bare", "bench_malloc", "bench_peer_rpmalloc"):
        (tmp_path / name).write_text(
            "#!/bin/sh\ncase $1 in --version) echo 9.9; exit ;; esac\n"
            """echo '{"benchmarks": [{"iterations": 1, "op": 1e-9}]}'\n"""
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setattr("runner.contenders.PRELOADS", {})
    words = ["--build", str(tmp_path), "--results", str(tmp_path / "results"), "--quick"]
    words += ["--scoreboard", "--rows", "inline free in order 16 B x 100 k"]
    assert cli.main([*words, "--flags", "rpmalloc=-O3 -flto"]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith("made of"))
    assert lines[start + 2].split() == ["inline", "inline", "9.9", "-", "-", "flags", "unknown"]
    assert lines[start + 3].split() == [
        *("rpmalloc", "(linked)", "linked", "9.9", "-", "-", "-O3", "-flto")
    ]
    assert lines[start + 4 :][0] == "" or lines[start + 4].startswith("3 interleaved")
