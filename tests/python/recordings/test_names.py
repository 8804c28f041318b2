# SPDX-License-Identifier: Apache-2.0
"""Names of return addresses, compared with nm for programs that are compiled here."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.recordings import names
from spanwise.recordings.elf import ElfError, ElfFile
from spanwise.recordings.names import name_frames
from spanwise.recordings.sites import Site, callers

CC = shutil.which("cc") or shutil.which("gcc")
pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")

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


def tool(*words: str | Path) -> str:
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    (folder / "named.c").write_text(SOURCE, "utf-8")
    made = folder / "named"
    tool(str(CC), "-g", "-O1", "-rdynamic", "-Wl,--build-id", "-o", made, folder / "named.c")
    return made


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
    return name_frames([frame], {str(program): build_id})[frame]


def test_function_and_line(program: Path) -> None:
    assert name_at(program, start_of(program, "hidden")) == "hidden (named.c:2)"
    assert name_at(program, start_of(program, "shown")) == "shown (named.c:7)"


def test_function_without_lines(program: Path, bare: Path) -> None:
    """Functions are found by address and size: an address after the last byte has no name."""
    assert name_at(bare, start_of(program, "hidden")) == "hidden in bare"
    row = next(x for x in tool("nm", "-S", program).splitlines() if x.endswith(" hidden")).split()
    end = int(row[0], 16) + int(row[1], 16)
    assert name_at(bare, end - 1) == "hidden in bare"
    assert name_at(bare, 16) == "bare+0x11 (no symbol)"


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
    monkeypatch.setattr(names, "DEBUG_ROOT", tmp_path)
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
    assert name_at(text, 0x10) == "text+0x11 (no ELF file of 64 bits)"
    text.write_bytes(b"")
    assert name_at(text, 0x10) == "text+0x11 (an empty file)"
    assert name_frames(["0x7f00"], {}) == {"0x7f00": "0x7f00"}


def test_damaged_files(bare: Path, tmp_path: Path) -> None:
    """Whatever is truncated or overwritten, there is a name or a reason."""
    raw = bare.read_bytes()
    (heads,) = [int.from_bytes(raw[40:48], "little")]
    broken = tmp_path / "broken"
    places = [4, 40, 58, 60, 62, *range(heads, len(raw), 7)]
    for place in places:
        broken.write_bytes(raw[:place] + b"\xf7\xff\x7f" + raw[place + 3 :])
        assert name_at(broken, 0x1150)
    for length in range(0, len(raw), 997):
        broken.write_bytes(raw[:length])
        assert name_at(broken, 0x1150)
    broken.write_bytes(raw[:-1])
    with pytest.raises(ElfError, match="damaged"):
        ElfFile(broken)


def test_names_of_cplusplus(tmp_path: Path) -> None:
    source = tmp_path / "a.c"
    source.write_text("int _ZN3one3twoEi(int i) { return i; }\nint main(void) { return 0; }\n")
    tool(str(CC), "-o", tmp_path / "a", source)
    start = start_of(tmp_path / "a", "_ZN3one3twoEi")
    assert name_at(tmp_path / "a", start) == "one::two(int) in a"


def test_sites_of_a_recording(program: Path, tmp_path: Path) -> None:
    recording = sw.record([program], tmp_path / "named.swt", stacks=3)
    live = recording.live_sites(at="end").named()
    most = max(live, key=lambda site: site.requested_bytes)
    assert most.names[0] == "hidden (named.c:3)" and most.names[1] == "shown (named.c:8)"
    assert most.requested_bytes == 100 * 1000
    assert "hidden (named.c:3) < shown < main" in repr(live)
    assert live.named(0) == live and live.named().sites == live.sites
    site = recording.sites.named()[0]
    assert site.names == most.names and "hidden (named.c:3)" in repr(site)
    assert recording.sites[0].names == ()
    columns = live.array
    assert columns["names"][0].startswith(live.sites[0].names[0])
    both = sw.RecordingSet([recording, recording])
    assert both.sites.named()[0].names == site.names
    assert both.live_sites(at="end").named().sites[0].names


def test_callers_are_shown_as_far_as_there_is_room() -> None:
    """A text is of at most 60 characters, and no caller is left out between two others."""
    output = ("inner (a.c:3)", "f" * 40 + " (b.c:1)", "g (c.c:2)")
    assert callers(Site(1, 1, 1, ("a+0x1", "b+0x2", "c+0x3"), output)) == (
        "inner (a.c:3) < " + "f" * 40 + " < g"
    )
    longer = (output[0], "f" * 45, output[2])
    assert callers(Site(1, 1, 1, ("a+0x1",), longer)) == "inner (a.c:3)"
    assert callers(Site(1, 1, 1, ("a" * 80 + "+0x1", "b+0x2"))) == "..." + "a" * 53 + "+0x1"
    assert callers(Site(0, 1, 1, ())) == "unknown"


def test_the_command_prints_names(program: Path, tmp_path: Path) -> None:
    from tests.python.helpers import spanwise  # noqa: PLC0415

    sw.record([program], tmp_path / "named.swt")
    done = spanwise("ledger", "named.swt", "--sites", "--at", "end", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "hidden (named.c:3)" in done.stdout
