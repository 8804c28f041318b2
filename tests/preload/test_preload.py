# SPDX-License-Identifier: Apache-2.0
"""libspanwise-malloc.so under programs that know nothing of it."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise.errors import InvalidError
from spanwise.ledger.parts import PARTS
from spanwise.measure.running import read_process_ledger

from tests.preload.tools import CC, HERE, Preload
from tests.python.helpers import needs_recorder, spanwise

MIB = 1 << 20
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage/enabled")

C_NAMES = """
aligned_alloc calloc cfree free free_aligned_sized free_sized mallinfo mallinfo2 malloc
malloc_info malloc_stats malloc_trim malloc_usable_size mallopt memalign posix_memalign
dlopen pvalloc realloc reallocarray valloc __libc_calloc __libc_free __libc_malloc __libc_memalign
__libc_pvalloc __libc_realloc __libc_valloc __posix_memalign _exit _Exit
"""
NEW = [
    f"_Z{n}m{a}{t}"
    for n in ("nw", "na")
    for a in ("", "St11align_val_t")
    for t in ("", "RKSt9nothrow_t")
]
DELETE = [
    f"_Z{n}Pv{extra}"
    for n in ("dl", "da")
    for extra in (
        "",
        "m",
        "St11align_val_t",
        "mSt11align_val_t",
        "RKSt9nothrow_t",
        "St11align_val_tRKSt9nothrow_t",
    )
]

either = pytest.mark.parametrize("tracked", ["0", "1"], ids=["plain", "tracked"])


def ok(done: subprocess.CompletedProcess[str]) -> str:
    """The program ended well; what it said."""
    assert done.returncode == 0, done.stderr
    return done.stdout


# --- functions ----------------------------------------------------------------------------------


def test_exported_names(preload: Preload) -> None:
    if shutil.which("nm") is None:
        pytest.skip("nm is not installed")
    said = subprocess.run(
        ["nm", "-D", "--defined-only", preload.library], capture_output=True, text=True, check=True
    ).stdout
    assert {line.split()[-1] for line in said.splitlines()} == {*C_NAMES.split(), *NEW, *DELETE}


@either
def test_every_function(preload: Preload, tracked: str) -> None:
    done = preload.run([preload.program("family.c")], TRACKED=tracked)
    ok(done)
    (line,) = done.stderr.splitlines()  # of malloc_stats
    assert line.startswith("spanwise: held ")


@either
def test_operators(preload: Preload, tracked: str) -> None:
    done = preload.run([preload.program("operators.cpp")], TRACKED=tracked)
    assert (ok(done), done.stderr) == ("", "")


# --- moments ------------------------------------------------------------------------------------


@either
@pytest.mark.parametrize("mode", ["process", "threads 200", "forks 150"])
def test_moments(preload: Preload, mode: str, tracked: str) -> None:
    done = preload.run([preload.program("moments.c"), *mode.split()], TRACKED=tracked)
    assert (ok(done), done.stderr) == ("ok\n", "")


@pytest.fixture(scope="module")
def deepbind(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("deepbind")
    for flags, name in (
        (["-shared", "-fPIC", "-DLIBRARY"], "libdeepbind.so"),
        (["-Wl,-rpath,$ORIGIN", "-ldl"], "deepbind"),
    ):
        source = HERE / "deepbind.c"
        subprocess.run([CC, "-fno-builtin", source, *flags, "-o", folder / name], check=True)
    return folder / "deepbind"


@either
def test_libraries_come_and_go(preload: Preload, deepbind: Path, tracked: str) -> None:
    words = [preload.program("moments.c"), "load", deepbind.with_name("libdeepbind.so"), "60"]
    assert ok(preload.run(words, TRACKED=tracked)) == "ok\n"


def test_a_library_that_prefers_its_own_malloc(preload: Preload, deepbind: Path) -> None:
    """RTLD_DEEPBIND would bind its free to the C library's, as in PHP's extensions."""
    assert ok(preload.run([deepbind])) == "ok\n"


@needs_recorder()
def test_what_such_a_library_frees_is_recorded(deepbind: Path, tmp_path: Path) -> None:
    done = spanwise("record", "-o", tmp_path / "a.swt", "--", deepbind)
    assert (done.returncode, done.stdout) == (0, "ok\n")
    summary = sw.Recording.open(tmp_path / "a.swt").summary
    assert summary.frees >= 2000 and summary.unknown_frees == 0


def test_preload_that_is_opened_and_closed(preload: Preload) -> None:
    words = [preload.program("moments.c"), "opened", preload.library]
    assert ok(preload.run(words, preload=False)) == "ok\n"


@either
def test_end_in_the_middle_of_a_call(preload: Preload, tmp_path: Path, tracked: str) -> None:
    """A ledger that cannot be had is reported in one line; nothing waits for it."""
    for i in range(8):
        path = tmp_path / f"{i}.json"
        words = [preload.program("moments.c"), "signals"]
        done = preload.run(words, TRACKED=tracked, LEDGER=str(path))
        assert ok(done) == "ok\n"
        shown = done.stderr.splitlines()
        assert path.exists() != bool(shown)
        assert all("ended inside malloc: no ledger" in line for line in shown)


# --- memory -------------------------------------------------------------------------------------


def resident(preload: Preload, *words: str, **variables: str) -> list[int]:
    said = ok(preload.run([preload.program("memory.c"), *words], variables))
    return [int(line) for line in said.splitlines()]


def test_trim_gives_memory_back(preload: Preload) -> None:
    full, freed, trimmed = resident(preload, "trim")
    assert full > 64 * MIB
    assert freed > 60 * MIB
    assert trimmed < 10 * MIB


@pytest.mark.parametrize(("decay_ms", "most_mib"), [("100", 10), ("never", 1 << 20)])
def test_idle_memory_goes_back_unless_told(preload: Preload, decay_ms: str, most_mib: int) -> None:
    full, _, later = resident(preload, "decay", DECAY_MS=decay_ms)
    assert full > 64 * MIB
    assert later < most_mib * MIB
    assert (later > full - 2 * MIB) == (decay_ms == "never")


def test_huge_pages(preload: Preload) -> None:
    try:
        mode = HUGE_PAGES.read_text()
    except OSError:
        pytest.skip("the system has no transparent huge pages")
    if "[madvise]" not in mode:
        pytest.skip(f"transparent huge pages: {mode.strip()}")
    assert resident(preload, "touch") == [0]
    (huge,) = resident(preload, "touch", THP="advise")
    assert huge >= 128 * MIB


@either
@pytest.mark.parametrize("limit", ["33554432", "32768K", "32m"])
def test_limit(preload: Preload, limit: str, tracked: str) -> None:
    (pieces,) = resident(preload, "limit", LIMIT=limit, TRACKED=tracked)
    assert 30 * MIB < pieces * 65536 < 32 * MIB


def test_address_space_runs_out(preload: Preload) -> None:
    def narrow() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (400 * MIB, 400 * MIB))

    done = subprocess.run(
        [preload.program("memory.c"), "limit"],
        env={"LD_PRELOAD": str(preload.library)},
        preexec_fn=narrow,
        capture_output=True,
        text=True,
        check=False,
    )
    assert int(ok(done)) * 65536 > 100 * MIB


# --- options ------------------------------------------------------------------------------------


def ledger_of(preload: Preload, path: Path, *words: str, **variables: str) -> dict[str, Any]:
    done = preload.run([preload.program("memory.c"), *words], variables, LEDGER=str(path))
    assert (ok(done), done.stderr) == ("", "")
    value: dict[str, Any] = json.loads(path.read_text())
    return value


def test_options_take_effect(preload: Preload, tmp_path: Path) -> None:
    shown = ledger_of(
        preload,
        tmp_path / "a.json",
        LIMIT="1G",
        DECAY_MS="20",
        PLACEMENT="lasting",
        THP="advise",
        TRACKED="1",
        BATCH="2",
        VERBOSE="0",
    )
    assert (shown["limit_bytes"], shown["decay_ns"]) == (1 << 30, 20_000_000)
    assert (shown["placement"], shown["huge_pages"], shown["tracked"]) == ("lasting", "advise", 1)


BAD = {
    "LIMIT": ["x", "-1", "12Q", "1.5G", "K", "99999999999999999999", "18446744073709551615K", " 1"],
    "DECAY_MS": ["soon", "-5", "1.5", "99999999999999999999"],
    "PLACEMENT": ["first", "LIFO", "lifo "],
    "BATCH": ["65536", "-1", "many", "use:2"],
    "THP": ["on", "1", "never"],
    "TRACKED": ["yes", "2", "01"],
    "VERBOSE": ["true"],
}


@pytest.mark.parametrize(("name", "value"), [(n, v) for n, values in BAD.items() for v in values])
def test_malformed_value(preload: Preload, tmp_path: Path, name: str, value: str) -> None:
    path = tmp_path / "a.json"
    done = preload.run([preload.program("memory.c")], {name: value}, LEDGER=str(path))
    ok(done)
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"spanwise: malloc: SPANWISE_{name}={value} is not ")
    assert "; using " in line
    shown = json.loads(path.read_text())
    assert (shown["limit_bytes"], shown["decay_ns"], shown["tracked"]) == (0, 500_000_000, 0)
    assert (shown["placement"], shown["huge_pages"]) == ("lifo", "off")


def test_values_that_would_break_the_line(preload: Preload) -> None:
    done = preload.run([preload.program("memory.c")], LIMIT="1\n2\x1b[0m" + "9" * 5000)
    ok(done)
    (line,) = done.stderr.splitlines()
    assert line.startswith("spanwise: malloc: SPANWISE_LIMIT=1?2?[0m999")
    assert line.endswith("; using no limit")
    assert len(line) < 200


def test_unknown_variable(preload: Preload) -> None:
    others = {"RECORD_STACKS": "1", "REPLAY_FIXED": "1", "CACHE": "off"}
    done = preload.run([preload.program("memory.c")], others, LIMITS="5")
    ok(done)
    (line,) = done.stderr.splitlines()
    assert "SPANWISE_LIMITS=5 is unknown; there are SPANWISE_LIMIT, DECAY_MS, " in line


def test_empty_value_is_none(preload: Preload) -> None:
    empty = dict.fromkeys([*BAD, "LEDGER"], "")
    done = preload.run([preload.program("memory.c")], empty)
    assert (ok(done), done.stderr) == ("", "")


def test_verbose(preload: Preload) -> None:
    done = preload.run([preload.program("memory.c")], VERBOSE="1", LIMIT="1M")
    ok(done)
    first, last = done.stderr.splitlines()
    assert "table c16, limit 1048576 bytes" in first
    assert " bytes at its end, " in last


def test_a_program_has_the_name_that_it_was_started_by(preload: Preload, tmp_path: Path) -> None:
    """Not that of the file that a link leads to: redis-server is a link to redis-check-rdb."""
    (tmp_path / "server").symlink_to(preload.program("memory.c"))
    ok(preload.run([tmp_path / "server"], LEDGER=str(tmp_path / "a.json")))
    shown = json.loads((tmp_path / "a.json").read_text())
    assert shown["program"] == str(tmp_path / "server")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a set-user-ID program")
def test_raised_privileges_have_no_options(preload: Preload, tmp_path: Path) -> None:
    """The loader takes no preloaded library there, so the program opens the library itself."""
    program = tmp_path / "raised"
    shutil.copy(preload.program("moments.c"), program)
    words = [program, "opened", preload.library]
    shown = preload.run(words, preload=False, VERBOSE="1", LIMIT="x")
    assert "SPANWISE_LIMIT=x is not " in shown.stderr
    os.chown(program, 65534, -1)
    program.chmod(0o4755)
    done = preload.run(words, preload=False, VERBOSE="1", LIMIT="x")
    if done.returncode != 0:
        pytest.skip(f"cannot be run as another user: {done.stderr.splitlines()[:1]}")
    if done.stderr == shown.stderr:
        pytest.skip("the file system knows no set-user-ID")
    assert (done.stdout, done.stderr) == ("ok\n", "")


# --- the ledger ---------------------------------------------------------------------------------


def assert_identity(part: dict[str, Any]) -> None:
    assert sum(part[name] for name in PARTS) == part["held_bytes"]


def test_ledger_of_a_tracked_heap(preload: Preload, tmp_path: Path) -> None:
    shown = ledger_of(preload, tmp_path / "a.json", "peak", "10000", "100", TRACKED="1")
    run, end, peak = shown["run"], shown["end"], shown["peak"]
    list_bytes = 10_000 * 8
    assert run["allocs"] == 1 + 10_000 + 5_000
    assert run["peak_requested_bytes"] == peak["requested_bytes"] == list_bytes + 10_000 * 100
    assert (run["frees"], run["failed"], peak["ops"], end["ops"]) == (10_000, 0, 10_001, 25_001)
    assert end["requested_bytes"] == run["requested_bytes"] == list_bytes + 5_000 * 100
    assert peak["roundup_bytes"] == 10_000 * 12
    assert shown["peak_held_bytes"] >= run["peak_held_bytes"] >= end["held_bytes"]
    assert_identity(end)
    assert_identity(peak)


def test_ledger_of_a_plain_heap(preload: Preload, tmp_path: Path) -> None:
    shown = ledger_of(preload, tmp_path / "a.json", "peak", "10000", "100")
    assert shown["peak"] is None
    assert "run" not in shown
    assert shown["end"]["requested_bytes"] >= 5_000 * 112
    assert shown["peak_held_bytes"] >= 10_000 * 112
    assert_identity(shown["end"])


def test_ledger_at_a_relative_path(preload: Preload, tmp_path: Path) -> None:
    command = ["sh", "-c", "cd /; exit 3"]
    done = preload.run(command, cwd=tmp_path, LEDGER="in-%p-%%.json")
    assert done.returncode == 3
    (path,) = tmp_path.iterdir()
    pid = json.loads(path.read_text())["pid"]
    assert path.name == f"in-{pid}-%%.json"


def test_ledger_to_a_descriptor(preload: Preload) -> None:
    reader, writer = os.pipe()
    with os.fdopen(reader) as pipe:
        done = preload.run([preload.program("memory.c")], LEDGER=str(writer), pass_fds=[writer])
        os.close(writer)
        assert (ok(done), done.stderr) == ("", "")
        assert json.loads(pipe.read())["format"] == "spanwise-ledger"


def test_ledger_to_a_device(preload: Preload) -> None:
    done = preload.run([preload.program("memory.c")], LEDGER="/dev/stdout")
    assert json.loads(ok(done))["format"] == "spanwise-ledger"


def test_a_link_to_the_ledger_stays(preload: Preload, tmp_path: Path) -> None:
    """As /dev/stdout is one when stdout is a file: a rename would replace the link itself."""
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    link.symlink_to(target)
    ok(preload.run([preload.program("memory.c")], LEDGER=str(link)))
    assert link.is_symlink() and sorted(tmp_path.iterdir()) == [link, target]
    assert json.loads(target.read_text())["format"] == "spanwise-ledger"


@pytest.mark.parametrize("path", ["/nowhere/at/all", "/proc/version", "/"])
def test_ledger_that_cannot_be_written(preload: Preload, path: str) -> None:
    done = preload.run(["sh", "-c", "exit 4"], LEDGER=path)
    assert done.returncode == 4
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"spanwise: malloc: cannot write the ledger to {path}: ")


def test_fork_children_tell_only_with_a_name_of_their_own(preload: Preload, tmp_path: Path) -> None:
    words = [preload.program("moments.c"), "forks", "3"]
    ok(preload.run(words, LEDGER=str(tmp_path / "one.json")))
    assert [path.name for path in tmp_path.iterdir()] == ["one.json"]
    ok(preload.run(words, LEDGER=str(tmp_path / "%p.json")))
    assert len(list(tmp_path.iterdir())) == 1 + 1 + 3
    for path in tmp_path.iterdir():
        assert_identity(json.loads(path.read_text())["end"])


def test_reading_what_is_no_ledger(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    for text in ("", "[]", "{}", '{"format": "spanwise-ledger", "version": 2}', "\xff"):
        path.write_text(text)
        with pytest.raises(InvalidError, match=r"a\.json: no ledger of the preloaded malloc"):
            read_process_ledger(path)


def test_the_library_itself_is_small(preload: Preload) -> None:
    """What of its file is resident in a program that does next to nothing, and how long it is."""
    smaps = ok(preload.run(["cat", "/proc/self/smaps"])).split("VmFlags")
    kib = [
        int(re.findall(r"^Rss: +(\d+) kB", part, re.MULTILINE)[0])
        for part in smaps
        if "libspanwise-malloc.so" in part
    ]
    assert len(kib) >= 3  # text, constants, data
    # 244 with the specialised paths and everything that no one calls; 8 are the guard and the
    # unwinder that it needs.
    assert sum(kib) < 168


# --- limits that a program sets -------------------------------------------------------------------

REFUSED = 77
"""Exit status: the system does not let the program lock memory."""


@pytest.mark.parametrize(
    ("mode", "tracked"),
    [("addresses", "0"), ("data", "1"), ("repeat", "0")],
)
def test_limit_set_after_start(preload: Preload, mode: str, tracked: str) -> None:
    done = preload.run([preload.program("limits.c"), mode], TRACKED=tracked)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("thp", ["", "advise"], ids=["small pages", "huge pages"])
def test_all_memory_locked(preload: Preload, thp: str) -> None:
    done = preload.run([preload.program("limits.c"), "lock"], {"THP": thp} if thp else {})
    if done.returncode == REFUSED:
        pytest.skip("mlockall is refused: run as root, or raise ulimit -l")
    assert (done.returncode, done.stderr) == (0, "")
