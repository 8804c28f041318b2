# SPDX-License-Identifier: Apache-2.0
"""Names of return addresses, compared with nm for programs that are compiled here."""

from __future__ import annotations

import shutil
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
import spanwise as sw
from spanwise.recordings import names, symbol_files
from spanwise.recordings.elf import ElfFile
from spanwise.recordings.names import name_frames

from tests.python.helpers import compiled

SOURCE = """\
#include <stdlib.h>
static __attribute__((noinline)) void *hidden(size_t n) {
    void *p = malloc(n);
    __asm__ volatile("" : : "r"(p) : "memory");
    return p;
}
__attribute__((noinline)) int shown(int n) {
    for (int i = 0; i < n; i++) hidden(1000);
    return n;
}
int main(void) { return shown(100) - 100; }
"""

INLINED = """\
#include <stdlib.h>
static inline __attribute__((always_inline)) void *inner(size_t n) {
    return malloc(n);
}
static inline __attribute__((always_inline)) void *middle(size_t n) {
    return inner(n + 1000);
}
__attribute__((noinline)) void *outer(size_t n) {
    return (char *)middle(n + 1000) + 1;
}
int main(int count, char **words) { return outer(1000) == words[count]; }
"""


def tool(*words: str | Path) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    flags = ("-g", "-O1", "-rdynamic", "-Wl,--build-id")
    return compiled(tmp_path_factory.mktemp("names"), SOURCE, *flags, name="named.c")


@pytest.fixture(scope="module")
def bare(program: Path) -> Path:
    """The same program without debug information, but with all its symbols."""
    return copy(program, "bare", "--strip-debug")


def copy(program: Path, name: str, *words: str) -> Path:
    made = program.with_name(name)
    tool("objcopy", *words, program, made)
    return made


def start_of(program: Path, function: str) -> int:
    rows = (line.split() for line in tool("nm", program).splitlines())
    return next(int(row[0], 16) for row in rows if row[-1] == function)


def name_at(program: Path, address: int, build_id: str = "") -> str:
    """Return the name for the return address after a call whose last byte is at this address."""
    frame = f"{program}+{address + 1:#x}"
    (name,) = name_frames([frame], {str(program): build_id})[frame]
    return name


def test_function_and_line(program: Path) -> None:
    assert name_at(program, start_of(program, "hidden")) == "hidden (named.c:2)"
    assert name_at(program, start_of(program, "shown")) == "shown (named.c:7)"


def test_without_programs_that_know_lines(
    program: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hidden = start_of(program, "hidden")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert name_at(program, hidden) == "hidden in named"


def test_a_stripped_program_says_so(program: Path) -> None:
    """Exported functions still have names; no other function gets them."""
    stripped = copy(program, "stripped", "--strip-all")
    assert name_at(stripped, start_of(program, "shown")) == "shown in stripped"
    hidden = start_of(program, "hidden")
    assert name_at(stripped, hidden) == f"stripped+{hidden + 1:#x} (stripped)"


@pytest.mark.parametrize("stored", ["packages", "debuginfod"])
def test_debug_files_that_are_installed(
    program: Path, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stripped = copy(program, f"for-{stored}", "--strip-all")
    known = ElfFile(program).build_id
    assert known in tool("readelf", "-n", program)
    monkeypatch.setattr(symbol_files, "DEBUG_ROOT", tmp_path)
    monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
    where = {
        "packages": tmp_path / ".build-id" / known[:2] / f"{known[2:]}.debug",
        "debuginfod": tmp_path / "cache" / known / "debuginfo",
    }[stored]
    hidden = start_of(program, "hidden")
    assert name_at(stripped, hidden, known).endswith("(stripped)")
    where.parent.mkdir(parents=True)
    tool("objcopy", "--only-keep-debug", program, where)
    assert name_at(stripped, hidden, known) == "hidden (named.c:2)"
    where.write_bytes(b"\x7fELF\x02\x01")  # cut
    assert name_at(stripped, hidden, known).endswith("(stripped)")


def test_files_that_changed_or_went(program: Path, tmp_path: Path) -> None:
    hidden = start_of(program, "hidden")
    other = f"named+{hidden + 1:#x} (the file there is a different one)"
    assert name_at(program, hidden, "00" * 20) == other
    assert name_at(tmp_path / "gone", 0x10) == "gone+0x11 (the file is not there)"
    text = tmp_path / "text"
    text.write_text("no program", "utf-8")
    assert name_at(text, 0x10) == "text+0x11 (not a 64-bit ELF file)"
    text.write_bytes(b"")
    assert name_at(text, 0x10) == "text+0x11 (an empty file)"
    assert name_frames(["0x7f00"], {}) == {"0x7f00": ("0x7f00",)}


def test_sites_of_a_recording(program: Path, tmp_path: Path) -> None:
    """Names are there without a call for them; what was counted has none."""
    recording = sw.record([program], tmp_path / "named.swt", stacks=3)
    live = recording.live_sites(at="end")
    most = max(live, key=lambda site: site.requested_bytes)
    assert most.names[0] == "hidden (named.c:3)" and most.names[1] == "shown (named.c:8)"
    assert most.requested_bytes == 100 * 1000
    assert "hidden (named.c:3) < shown < main" in repr(live)
    assert all(site.names == () for site in live.sites)
    assert live.named().sites == tuple(live) and live.named().named() == live.named()
    site = recording.sites[0]
    assert site.names == most.names and "hidden (named.c:3)" in repr(site)
    assert recording.sites.sites[0].names == ()
    columns = live.array
    assert columns["names"][0].startswith(live[0].names[0])
    both = sw.RecordingSet([recording, recording])
    assert both.sites[0].names == site.names
    assert both.live_sites(at="end")[0].names


def test_calls_that_were_inlined(tmp_path: Path) -> None:
    """Each has a name, the innermost first; the lines are those of the source."""
    program = compiled(tmp_path, INLINED, "-g", "-O2", name="inlined.c")
    recording = sw.record([program], tmp_path / "inlined.swt", stacks=4)
    (site,) = (site for site in recording.sites if site.allocated_bytes == 3000)
    names = "inner (inlined.c:3)", "middle (inlined.c:6)", "outer (inlined.c:9)"
    assert site.names[:4] == (*names, "main (inlined.c:11)")
    assert recording.sites.sites[0].frames == recording.sites[0].frames


def test_a_program_is_called_what_it_was_started_as(program: Path, tmp_path: Path) -> None:
    """As redis-server, which is a link to redis-check-rdb on Debian."""
    link = tmp_path / "served"
    link.symlink_to(program)
    recording = sw.record([link], tmp_path / "a.swt")
    assert recording.program == recording.executable == str(link)
    frames = [frame for site in recording.sites for frame in site.frames]
    assert not any(frame.startswith(f"{program}+") for frame in frames)
    assert recording.to_dict()["program"] == str(link)
    assert sw.Recording.from_ops(recording.ops, name="mine").program == "mine"


def test_a_program_of_go_has_other_ways(tmp_path: Path) -> None:
    """Statically linked, and the section in which Go has its build information."""
    try:
        program = compiled(tmp_path, "int main(void) { return 0; }\n", "-static", name="go.c")
    except subprocess.CalledProcessError:
        pytest.skip("no static libc")
    with pytest.raises(sw.SpanwiseError, match="statically linked") as plain:
        sw.record([program], tmp_path / "a.swt")
    assert "convert" not in str(plain.value)
    tool("objcopy", "--add-section", f".go.buildinfo={program}.c", program)
    with pytest.raises(sw.SpanwiseError, match="of a Go program, convert a heap profile"):
        sw.record([program], tmp_path / "a.swt")


# --- files elsewhere ------------------------------------------------------------------------------


@pytest.fixture
def moved(program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a program was that is now below tmp_path / "root", as in a container's file system."""
    was = tmp_path / "gone/app/named"
    now = tmp_path / "root" / was.relative_to("/")
    now.parent.mkdir(parents=True)
    shutil.copy(program, now)
    monkeypatch.setenv(symbol_files.FOLDERS, "")
    monkeypatch.setenv(symbol_files.FETCH, "")
    return was


@pytest.mark.parametrize("layout", ["root", "names", "build ids", "debug packages"])
def test_symbols_in_a_folder(
    moved: Path, layout: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = tmp_path / "root" / moved.relative_to("/")
    known = ElfFile(now).build_id
    by_id = Path(".build-id", known[:2], f"{known[2:]}.debug")
    place, folder = {
        "root": (now, tmp_path / "root"),
        "names": (now, now.parent),
        "build ids": (tmp_path / "ids" / by_id, tmp_path / "ids"),
        "debug packages": (tmp_path / "image/usr/lib/debug" / by_id, tmp_path / "image"),
    }[layout]
    place.parent.mkdir(parents=True, exist_ok=True)
    if place != now:
        shutil.copy(now, place)
    hidden = start_of(now, "hidden")
    assert name_at(moved, hidden, known).endswith("(the file is not there)")
    symbol_files.look_in([str(folder)], fetch=False)
    assert name_at(moved, hidden, known) == "hidden (named.c:2)"
    other = name_at(moved, hidden, "00" * 20)
    looked_at = layout in {"root", "names"}  # the others have the build id in their paths
    why = "the file there is a different one" if looked_at else "the file is not there"
    assert other.endswith(f"({why})")


def test_the_option_for_folders(moved: Path, program: Path, tmp_path: Path) -> None:
    moved.parent.mkdir(parents=True)
    shutil.copy(program, moved)
    sw.record([moved], tmp_path / "named.swt", stacks=3)
    moved.unlink()
    words = [sys.executable, "-m", "spanwise", "ledger", str(tmp_path / "named.swt"), "--sites"]
    assert "hidden (named.c:3)" not in tool(*words)
    assert "hidden (named.c:3)" in tool(*words, "--symbols", tmp_path / "root")


def test_symbols_that_are_fetched(
    moved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if shutil.which("debuginfod-find") is None:
        pytest.skip("debuginfod is not installed")
    now = tmp_path / "root" / moved.relative_to("/")
    known, hidden = ElfFile(now).build_id, start_of(now, "hidden")
    served = tmp_path / "served/buildid" / known / "debuginfo"
    served.parent.mkdir(parents=True)
    tool("objcopy", "--only-keep-debug", now, served)
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever).start()
        monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "cache"))
        assert name_at(moved, hidden, known).endswith("(the file is not there)")
        assert not (tmp_path / "cache").exists()
        symbol_files.look_in([], fetch=True)
        names._module.cache_clear()
        assert name_at(moved, hidden, known) == "hidden (named.c:2)"
        assert name_at(moved, hidden, "00" * 20).endswith("(the file is not there)")
        server.shutdown()
    assert capfd.readouterr().err.count("spanwise: fetching the symbols of named\n") == 2


def test_folders_and_servers_that_are_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(sw.InvalidError, match="gone: there is no such folder"):
        symbol_files.look_in([str(tmp_path / "gone")], fetch=False)
    monkeypatch.delenv("DEBUGINFOD_URLS", raising=False)
    finder = tmp_path / "debuginfod-find"
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sw.InvalidError, match="debuginfod-find is not installed; apt-get"):
        symbol_files.look_in([], fetch=True)
    finder.write_text("#!/bin/sh\n", "utf-8")
    finder.chmod(0o755)
    with pytest.raises(sw.InvalidError, match="DEBUGINFOD_URLS is not set"):
        symbol_files.look_in([], fetch=True)
