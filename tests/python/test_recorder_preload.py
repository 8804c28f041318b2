# SPDX-License-Identifier: Apache-2.0
"""The recorder under hard conditions: what a preloaded library must survive, and exact counts.

The library and the programs of `tests/recorder` are compiled here from the sources, so that this
file tests the C side alone; set SPANWISE_RECORD_LIB to test a built library instead.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "recorder"
CC = os.environ.get("CC", "cc")
ATEXIT_BLOCKS = 10  # blocks that the destructor of lifecycle.c makes in each image that ends well

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or shutil.which(CC) is None,
    reason="the recorder needs Linux and a C compiler",
)


@dataclass
class Run:
    """One recorded run: the finished process and what its recordings hold, by file name."""

    process: subprocess.CompletedProcess[str]
    recordings: dict[str, dict[str, str]] = field(default_factory=dict)
    leftovers: list[str] = field(default_factory=list)

    @property
    def main(self) -> dict[str, str]:
        """Summary of FILE itself."""
        return self.recordings["out.swt"]

    def number(self, name: str, recording: str = "out.swt") -> int:
        """One number of a recording's summary."""
        return int(self.recordings[recording][name])


class Recorder:
    """Builds what the tests need, once, and runs programs under the recorder."""

    def __init__(self, build: Path) -> None:
        self.build = build
        self.library = Path(os.environ.get("SPANWISE_RECORD_LIB") or self._build_library())
        self.summary_tool = self._build_summary()

    def _compile(self, *arguments: str | Path) -> None:
        command: list[str | Path] = [
            CC,
            "-O2",
            "-std=gnu11",
            "-fPIC",
            "-I",
            ROOT / "include",
            "-I",
            ROOT / "src",
        ]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
        if done.returncode != 0:
            if "zstd.h" in done.stderr or "libzstd" in done.stderr:
                pytest.skip("the zstd development files are missing")
            raise AssertionError(done.stderr)

    def _floor(self) -> list[Path]:
        rooms = ["base", "os/linux", "ds", "trace/io"]
        return [path for room in rooms for path in sorted((ROOT / "src" / room).glob("*.c"))]

    def _build_library(self) -> Path:
        library = self.build / "libspanwise-record.so"
        faces = sorted((ROOT / "src" / "face").glob("record*.c"))
        flags = ["-shared", "-fvisibility=hidden", "-fno-builtin", "-ftls-model=initial-exec"]
        link = ["-Wl,--exclude-libs,ALL", "-Wl,-z,now", "-l:libzstd.a", "-lpthread", "-ldl"]
        self._compile(*flags, "-DSW_API=", *self._floor(), *faces, "-o", library, *link)
        return library

    def _build_summary(self) -> Path:
        tool = self.build / "summary"
        sources = [PROGRAMS / "summary.c", *self._floor()]
        self._compile(*sources, "-o", tool, "-l:libzstd.a", "-lpthread")
        return tool

    def program(self, name: str, *flags: str) -> Path:
        """Compiles tests/recorder/NAME.c, unless that was done already."""
        out = self.build / "-".join([name, *flags])
        if not out.exists():
            source = PROGRAMS / f"{name}.c"
            self._compile("-fno-builtin", *flags, source, "-o", out, "-lpthread", "-ldl")
        return out

    def environment(
        self, file: Path | str, options: dict[str, str] | None = None
    ) -> dict[str, str]:
        """Environment of a recorded program; options without their SPANWISE_RECORD_ prefix."""
        keep = {k: v for k, v in os.environ.items() if not k.startswith("SPANWISE_RECORD")}
        named = {f"SPANWISE_RECORD_{k}": v for k, v in (options or {}).items()}
        preload = {"LD_PRELOAD": str(self.library), "SPANWISE_RECORD_FILE": str(file)}
        return {**keep, **preload, **named}

    def summarise(self, path: Path, *, prefix: bool = False) -> dict[str, str]:
        """The recording's totals and metadata, by name."""
        arguments = ["--valid-prefix"] if prefix else []
        text = subprocess.run(
            [self.summary_tool, *arguments, path], capture_output=True, text=True, check=True
        ).stdout
        return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)

    def run(
        self,
        command: Sequence[str | Path],
        directory: Path,
        *,
        prefix: bool = False,
        extra: dict[str, str] | None = None,
        options: dict[str, str] | None = None,
    ) -> Run:
        """Runs a command under the recorder and reads every recording that it left."""
        environment = {**self.environment(directory / "out.swt", options), **(extra or {})}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, check=False, timeout=120
        )
        run = Run(done)
        for path in sorted(directory.iterdir()):
            if path.suffix == ".swt":
                run.recordings[path.name] = self.summarise(path, prefix=prefix)
            else:
                run.leftovers.append(path.name)
        return run


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    return Recorder(tmp_path_factory.mktemp("recorder"))


def lifecycle(recorder: Recorder, directory: Path, mode: str, n: int, **options: str) -> Run:
    return recorder.run([recorder.program("lifecycle"), mode, str(n)], directory, options=options)


def assert_consistent(summary: dict[str, str]) -> None:
    for name in ("unknown_frees", "unknown_reallocs", "missed_frees", "incomplete"):
        assert summary[name] == "0", name
    assert int(summary["calls"]) == int(summary["ops"]) + int(summary["dropped_calls"])


# --- counts --------------------------------------------------------------------------------------


def test_every_function_of_the_family(recorder: Recorder, tmp_path: Path) -> None:
    run = recorder.run([recorder.program("family")], tmp_path)
    assert (run.process.returncode, run.process.stderr) == (0, "")
    assert_consistent(run.main)
    assert run.number("allocs") == 11
    assert run.number("frees") == 11
    assert run.number("reallocs") == 2
    assert run.number("aligned_allocs") == 5
    assert run.number("zeroed_allocs") == 1
    assert run.number("allocated_bytes") == 100 + 300 + 77 + 0 + 1000 + 640 + 333 + 77 + 78 + 101
    assert run.number("reallocated_bytes") == 100000 + 200
    assert run.leftovers == []


def test_eight_threads_free_each_others_blocks(recorder: Recorder, tmp_path: Path) -> None:
    rounds = 100_000
    run = recorder.run([recorder.program("pingpong"), "8", str(rounds)], tmp_path)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("dropped_calls") == 0
    assert run.number("frees") >= 8 * rounds
    assert run.number("threads") == 9


def valgrind_totals(command: list[str], environment: dict[str, str]) -> tuple[int, int, int]:
    flags = ["--run-libc-freeres=no", "--run-cxx-freeres=no", "--trace-children=no"]
    done = subprocess.run(
        ["valgrind", *flags, *command], env=environment, capture_output=True, text=True, check=False
    )
    found = re.search(
        r"total heap usage: ([\d,]+) allocs, ([\d,]+) frees, ([\d,]+) bytes", done.stderr
    )
    assert found is not None, done.stderr
    allocs, frees, total = (int(group.replace(",", "")) for group in found.groups())
    return allocs, frees, total


def recorded_totals(run: Run) -> tuple[int, int, int]:
    """As valgrind counts: a reallocation is one allocation of the new size and one free."""
    reallocs = run.number("reallocs")
    total = run.number("allocated_bytes") + run.number("reallocated_bytes")
    return run.number("allocs") + reallocs, run.number("frees") + reallocs, total


def sqlite_command(_: Recorder, __: Path) -> list[str]:
    rows = "with recursive c(x) as (values(1) union all select x+1 from c where x<3000)"
    sql = f"create table t(a,b); {rows} insert into t select x, x*7 from c; select sum(b) from t;"
    return ["sqlite3", ":memory:", sql]


def compiler_command(_: Recorder, directory: Path) -> list[str]:
    source = directory / "unit.c"
    source.write_text("int f(int n) { int s = 0; while (n) s += n-- * s; return s; }\n")
    found = subprocess.run(
        ["gcc", "-print-prog-name=cc1"], capture_output=True, text=True, check=False
    )
    return [found.stdout.strip(), "-O2", "-quiet", str(source), "-o", "/dev/null"]


def sort_command(_: Recorder, directory: Path) -> list[str]:
    lines = directory / "lines.txt"
    lines.write_text("".join(f"{i * 7919 % 1009} line\n" for i in range(5000)))
    return ["sort", "--parallel=1", "-o", "/dev/null", str(lines)]


def cxx_command(recorder: Recorder, _: Path) -> list[str]:
    program = recorder.build / "objects"
    source = PROGRAMS / "objects.cpp"
    subprocess.run(["g++", "-O2", "-std=c++17", source, "-o", program], check=True)
    return [str(program)]


@pytest.mark.parametrize(
    ("tool", "make_command"),
    [
        ("sqlite3", sqlite_command),
        ("gcc", compiler_command),
        ("sort", sort_command),
        ("g++", cxx_command),
    ],
)
def test_counts_equal_valgrinds(
    recorder: Recorder, tmp_path: Path, tool: str, make_command: object
) -> None:
    for needed in ("valgrind", tool):
        if shutil.which(needed) is None:
            pytest.skip(f"{needed} is not installed")
    assert callable(make_command)
    command: list[str] = make_command(recorder, tmp_path)
    plain = {"PATH": os.environ["PATH"], "LC_ALL": "C"}
    # cc1 hashes addresses: one table more or less, by chance, in some of its plain runs too.
    for attempt in range(6):
        expected = valgrind_totals(command, plain)
        directory = tmp_path / f"recording{attempt}"
        directory.mkdir()
        run = recorder.run([*command], directory, extra={"LC_ALL": "C"})
        assert_consistent(run.main)
        if tool != "gcc" or recorded_totals(run) == expected:
            break
    assert recorded_totals(run) == expected


def test_python_counts_equal_valgrinds(recorder: Recorder, tmp_path: Path) -> None:
    """CPython keeps the environment in objects, so the run that valgrind sees gets the same one.

    Both tools set variables of their own; each run gets stand-ins for the other's, and padding
    that makes the total length equal.
    """
    if shutil.which("valgrind") is None:
        pytest.skip("valgrind is not installed")
    python = "/usr/bin/python3"
    if not Path(python).exists():
        pytest.skip("there is no system python3")
    command = [python, "-I", "-S", "-c", "import json; json.loads(json.dumps([[1] * 5] * 300))"]
    path = os.environ["PATH"]
    common = {"LC_ALL": "C", "PYTHONHASHSEED": "0", "PYTHONMALLOC": "malloc", "PATH": path}
    seen = subprocess.run(
        ["valgrind", "-q", "env", "-0"],
        env=common,
        capture_output=True,
        check=True,
    ).stdout.decode()
    by_valgrind = dict(item.split("=", 1) for item in seen.split("\0") if "=" in item)
    ours = {
        "LD_PRELOAD": str(recorder.library),
        "SPANWISE_RECORD_FILE": str(tmp_path / "out.swt"),
        "SPANWISE_RECORD_PID": "0000000",
    }
    names = sorted({*by_valgrind, *ours, "PADDING"})
    recorded = {name: ours.get(name, by_valgrind.get(name, "")) for name in names}
    checked = {name: by_valgrind.get(name, ours.get(name, "")) for name in names}
    difference = sum(map(len, recorded.values())) - sum(map(len, checked.values()))
    (checked if difference > 0 else recorded)["PADDING"] = "x" * abs(difference)
    given = {name: value for name, value in checked.items() if name not in by_valgrind}
    expected = valgrind_totals(command, {**common, **given})
    del recorded["SPANWISE_RECORD_PID"]
    assignments = [f"{name}={value}" for name, value in recorded.items()]
    shell = 'exec env -i "SPANWISE_RECORD_PID=$(printf %07d $$)" "$@"'
    started = ["sh", "-c", shell, "sh", *assignments, *command]
    subprocess.run(started, capture_output=True, check=True)
    run = Run(subprocess.CompletedProcess(command, 0, "", ""))
    run.recordings["out.swt"] = recorder.summarise(tmp_path / "out.swt")
    assert_consistent(run.main)
    assert run.main["pythonmalloc"] == "1"
    assert recorded_totals(run) == expected


# --- call sites ----------------------------------------------------------------------------------


def chain_sites(recorder: Recorder, path: Path) -> list[list[str]]:
    text = subprocess.run(
        [recorder.summary_tool, "--sites", path], capture_output=True, text=True, check=True
    ).stdout
    return [line.split()[2:] for line in text.splitlines() if line.startswith("site")]


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="deep call sites need x86-64")
@pytest.mark.parametrize("flags", [("-fomit-frame-pointer",), ("-O0",), ("-O3", "-fcf-protection")])
@pytest.mark.parametrize("depth", [0, 1, 5, 20, 55, -1])
def test_chains_equal_backtrace(
    recorder: Recorder, tmp_path: Path, flags: tuple[str, ...], depth: int
) -> None:
    program = recorder.program("chain", "-rdynamic", *flags)
    run = recorder.run([program, str(depth)], tmp_path, options={"STACKS": "128"})
    expected = run.process.stdout.split()
    chains = chain_sites(recorder, tmp_path / "out.swt")
    # The innermost addresses differ: malloc and backtrace are called from different places.
    assert expected[1:] in [chain[1:] for chain in chains]


@pytest.mark.parametrize(("depth", "longest"), [("0", 0), ("1", 1), ("3", 3)])
def test_depth_option(recorder: Recorder, tmp_path: Path, depth: str, longest: int) -> None:
    run = recorder.run(
        [recorder.program("chain", "-rdynamic"), "20"], tmp_path, options={"STACKS": depth}
    )
    chains = chain_sites(recorder, tmp_path / "out.swt")
    assert max((len(chain) for chain in chains), default=0) == longest
    assert run.main["stack_depth"] == depth


# --- processes -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "own", "children"),
    [("fork", 20, 3), ("vfork", 20, 3), ("spawn", 20, 4), ("fork_exec", 10, 3)],
)
def test_children_run_unrecorded(
    recorder: Recorder, tmp_path: Path, mode: str, own: int, children: int
) -> None:
    run = lifecycle(recorder, tmp_path, mode, 3)
    assert run.process.returncode == 0
    assert list(run.recordings) == ["out.swt"]
    assert_consistent(run.main)
    assert run.number("allocs") == own + ATEXIT_BLOCKS
    assert run.number("children_unrecorded") == children
    assert run.number("children_recorded") == 0
    assert run.leftovers == []


@pytest.mark.parametrize(
    ("mode", "counts"),  # own blocks, blocks of each child (0: they differ), children
    [
        ("fork", (20, 20, 3)),
        ("vfork", (20, 30 + ATEXIT_BLOCKS, 3)),
        ("spawn", (20, 0, 4)),
        ("fork_exec", (10, 30 + ATEXIT_BLOCKS, 3)),
    ],
)
def test_children_are_recorded(
    recorder: Recorder, tmp_path: Path, mode: str, counts: tuple[int, int, int]
) -> None:
    own, each, children = counts
    run = lifecycle(recorder, tmp_path, mode, 3, CHILDREN="1")
    assert run.process.returncode == 0
    assert run.number("allocs") == own + ATEXIT_BLOCKS
    assert run.number("children_recorded") == children
    assert run.number("children_unrecorded") == 0
    names = [name for name in run.recordings if name != "out.swt"]
    assert len(names) == children
    for name in names:
        summary = run.recordings[name]
        assert_consistent(summary)
        assert name == f"out.{summary['pid']}.swt"
        assert each in {0, int(summary["allocs"])}
    assert run.leftovers == []


def test_exec_takes_the_file_over(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "exec", 2)
    assert run.process.returncode == 0
    pid = run.main["pid"]
    assert sorted(run.recordings) == [f"out.{pid}.2.swt", f"out.{pid}.swt", "out.swt"]
    assert run.number("allocs") == 10 + ATEXIT_BLOCKS
    assert run.number("allocs", f"out.{pid}.swt") == 15
    assert run.number("allocs", f"out.{pid}.2.swt") == 15
    assert all(summary["pid"] == pid for summary in run.recordings.values())


def test_exec_with_children_numbers_the_files(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "exec", 2, CHILDREN="1")
    pid = run.main["pid"]
    assert run.number("allocs") == 15
    assert run.number("allocs", f"out.{pid}.swt") == 15
    assert run.number("allocs", f"out.{pid}.2.swt") == 10 + ATEXIT_BLOCKS


def test_fork_without_handlers(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "raw_fork", 10_000)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("allocs") == 20 + ATEXIT_BLOCKS


# --- ends ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "code", "allocs"),
    [("abort", -6, 5000), ("exit_handlers", 0, 5000 + 10 + ATEXIT_BLOCKS),
     ("quick_exit", 0, 5000), ("churn", 0, 5000 + ATEXIT_BLOCKS)],
)  # fmt: skip
def test_every_end_is_complete(
    recorder: Recorder, tmp_path: Path, mode: str, code: int, allocs: int
) -> None:
    run = lifecycle(recorder, tmp_path, mode, 5000)
    assert run.process.returncode == code
    assert_consistent(run.main)
    assert run.number("allocs") == allocs
    assert run.leftovers == []


def test_kill_loses_the_open_block_only(recorder: Recorder, tmp_path: Path) -> None:
    run = recorder.run([recorder.program("lifecycle"), "kill", "10000"], tmp_path, prefix=True)
    assert run.process.returncode == -9
    assert run.main["incomplete"] == "1"
    assert 20000 - 4096 <= run.number("ops") <= 20000


def test_exit_while_threads_allocate(recorder: Recorder, tmp_path: Path) -> None:
    for _ in range(5):
        run = lifecycle(recorder, tmp_path, "exit_busy", 20_000)
        assert run.process.returncode == 0
        assert_consistent(run.main)
        assert run.number("allocs") >= 20_000


# --- threads -------------------------------------------------------------------------------------


def test_thread_exit_and_late_destructors(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "threads", 50)
    assert_consistent(run.main)
    # Of each thread two blocks of keys, and three of the key that comes again; what else stays
    # are the C library's thread descriptors.
    assert run.number("frees") >= 50 * 5
    assert run.number("end_live_objects") <= 5


@pytest.mark.parametrize(
    ("mode", "n"), [("small_stack", 20_000), ("cancel", 20), ("errno", 20_000)]
)
def test_program_does_not_notice(recorder: Recorder, tmp_path: Path, mode: str, n: int) -> None:
    run = lifecycle(recorder, tmp_path, mode, n, STACKS="8")
    assert (run.process.returncode, run.process.stdout, run.process.stderr) == (0, "", "")
    assert_consistent(run.main)
    assert run.number("dropped_calls") == 0


def test_signal_handlers_that_allocate(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "signals", 20_000)
    assert run.process.returncode == 0
    assert run.number("allocs") == 20_000 + ATEXIT_BLOCKS


def test_dlopen_and_dlclose(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "dlopen", 300, STACKS="4")
    assert run.process.returncode == 0
    assert_consistent(run.main)


# --- surroundings --------------------------------------------------------------------------------


def test_program_closes_every_descriptor(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "close_all", 10_000)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("allocs") == 30_000 + ATEXIT_BLOCKS


def test_file_that_is_lost(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "close_lost", 10_000)
    assert (run.process.returncode, run.process.stderr) == (0, "")
    assert (run.recordings, run.leftovers) == ({}, [])


@pytest.mark.parametrize("n", [20_000, 20_500, 21_000, 21_500, 22_000])
def test_file_size_limit(recorder: Recorder, tmp_path: Path, n: int) -> None:
    # Compressed, so that the file is below the limit when the program sets it.
    run = lifecycle(recorder, tmp_path, "size_limit", n, COMPRESS="1")
    assert run.process.returncode == 0
    assert run.main["drop_reason"] == "1"
    assert run.number("dropped_calls") > 0
    assert_consistent(run.main)
    assert run.number("calls") == 4 * n + 2 * ATEXIT_BLOCKS
    assert run.number("file_bytes") <= 20_000


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_device(recorder: Recorder, tmp_path: Path) -> None:
    environment = recorder.environment("/dev/full")
    command: list[str | Path] = [recorder.program("lifecycle"), "churn", "20000"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert Path("/dev/full").is_char_device()


def test_full_disk(recorder: Recorder, tmp_path: Path) -> None:
    """A file system of 64 KiB: what is on it is whole and says why it stops."""
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", tmp_path],
        capture_output=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        run = recorder.run([recorder.program("pingpong"), "2", "200000"], tmp_path)
        assert (run.process.returncode, run.process.stderr) == (0, "")
        assert run.main["drop_reason"] == "1"
        assert run.number("calls") >= 800_000
        assert run.number("ops") > 4096  # a block at least
    finally:
        subprocess.run(["umount", tmp_path], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="chroot needs root")
def test_chroot(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "chroot", 10_000)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("allocs") == 10_010 + ATEXIT_BLOCKS


@pytest.mark.parametrize("name", ["jemalloc", "mimalloc", "tcmalloc_minimal"])
def test_above_another_allocator(recorder: Recorder, tmp_path: Path, name: str) -> None:
    found = sorted(Path("/usr/lib").glob(f"*/lib{name}.so*"))
    if not found:
        pytest.skip(f"{name} is not installed")
    preload = {"LD_PRELOAD": f"{recorder.library} {found[0]}"}
    run = recorder.run([recorder.program("pingpong"), "8", "20000"], tmp_path, extra=preload)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("frees") >= 160_000


# --- options -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("STACKS", "many", "SPANWISE_RECORD_STACKS is not a number from 0 to 128; using 1"),
        ("STACKS", "129", "SPANWISE_RECORD_STACKS is not a number from 0 to 128; using 1"),
        ("CHILDREN", "-1", "SPANWISE_RECORD_CHILDREN is not a number from 0 to 1; using 0"),
    ],
)
def test_malformed_option(
    recorder: Recorder, tmp_path: Path, option: str, value: str, message: str
) -> None:
    run = lifecycle(recorder, tmp_path, "churn", 10, **{option: value})
    assert run.process.stderr == f"spanwise: record: {message}\n"
    assert run.number("allocs") == 10 + ATEXIT_BLOCKS


def test_file_that_cannot_be_made(recorder: Recorder, tmp_path: Path) -> None:
    file = tmp_path / "missing" / "out.swt"
    command: list[str | Path] = [recorder.program("lifecycle"), "churn", "10"]
    done = subprocess.run(
        command, env=recorder.environment(file), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    expected = f"spanwise: record: cannot create {file}: No such file or directory; not recording\n"
    assert done.stderr == expected


def test_an_old_recording_is_replaced(recorder: Recorder, tmp_path: Path) -> None:
    for n in (500, 10):
        run = lifecycle(recorder, tmp_path, "churn", n)
        assert run.number("allocs") == n + ATEXIT_BLOCKS
    assert list(run.recordings) == ["out.swt"]


def test_relative_file_name(recorder: Recorder, tmp_path: Path) -> None:
    command: list[str | Path] = [recorder.program("lifecycle"), "churn", "10"]
    subprocess.run(command, env=recorder.environment("here.swt"), cwd=tmp_path, check=True)
    assert recorder.summarise(tmp_path / "here.swt")["allocs"] == str(10 + ATEXIT_BLOCKS)
