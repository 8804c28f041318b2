# SPDX-License-Identifier: Apache-2.0
"""The recorder: processes, ends, threads, surroundings that a library must survive, its options."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
import spanwise as sw

from tests.recorder.tools import ATEXIT_BLOCKS, Recorder, Run, assert_consistent, lifecycle

THREADS = 12

# --- processes ------------------------------------------------------------------------------------


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


def test_a_child_does_not_wait_for_the_loader(recorder: Recorder, tmp_path: Path) -> None:
    """It was forked while another thread had the loader's lock, which the child never gets."""
    run = lifecycle(recorder, tmp_path, "fork_in_dlopen", 3, CHILDREN="1", STACKS="8")
    assert run.process.returncode == 0
    children = [name for name in run.recordings if name != "out.swt"]
    assert len(children) == 3
    for name in children:
        assert run.number("allocs", name) == 20
        (site,) = sw.Recording.open(tmp_path / name).sites
        assert "lifecycle" in site.frames[0]


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


# --- ends -----------------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("mode", "n", "allocs"),
    [
        ("raw_fork", 10_000, 20),  # no handlers of a fork run
        ("signals", 20_000, 20_000),  # their handlers allocate
        ("close_all", 10_000, 30_000),  # the program closes every descriptor
        ("chroot", 10_000, 10_010),
    ],
)
def test_programs_are_recorded_whole(
    recorder: Recorder, tmp_path: Path, mode: str, n: int, allocs: int
) -> None:
    if mode == "chroot" and os.geteuid() != 0:
        pytest.skip("chroot needs root")
    run = lifecycle(recorder, tmp_path, mode, n)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("allocs") == allocs + ATEXIT_BLOCKS


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


# --- threads --------------------------------------------------------------------------------------


def test_thread_exit_and_late_destructors(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "threads", 50)
    assert_consistent(run.main)
    # Of each thread two blocks of keys, and three of the key that comes again; what else stays
    # are the C library's thread descriptors.
    assert run.number("frees") >= 50 * 5
    assert run.number("end_live_objects") <= 5


@pytest.mark.parametrize(
    ("mode", "n"),
    [("small_stack", 20_000), ("cancel", 20), ("errno", 20_000), ("dlopen", 300)],
)
def test_program_does_not_notice(recorder: Recorder, tmp_path: Path, mode: str, n: int) -> None:
    run = lifecycle(recorder, tmp_path, mode, n, STACKS="8")
    assert (run.process.returncode, run.process.stdout, run.process.stderr) == (0, "", "")
    assert_consistent(run.main)
    assert run.number("dropped_calls") == 0


# --- where threads end ----------------------------------------------------------------------------


def ends(recorder: Recorder, directory: Path, mode: str, **options: str) -> Run:
    command: list[str | Path] = [recorder.program("threads"), "ends", mode, str(THREADS)]
    run = recorder.run(command, directory, options=options)
    assert run.process.returncode == 0, run.process.stderr
    for summary in run.recordings.values():
        assert_consistent(summary)
    return run


@pytest.mark.parametrize("mode", ["return", "exit", "cancel"])
def test_each_thread_ends_once(recorder: Recorder, tmp_path: Path, mode: str) -> None:
    run = ends(recorder, tmp_path, mode)
    main, *others = recorder.threads(tmp_path / "out.swt")
    assert (main.ends, main.ended) == (0, False)
    assert len(others) == THREADS
    assert all(one.ended for one in others)
    # The C library may free what it kept for the thread after its end: then it ends again.
    assert all(one.ends == 1 or one.ops > 21 for one in others)
    assert run.number("thread_ends") == sum(one.ends for one in others)


def test_what_key_destructors_do_comes_before_an_end(recorder: Recorder, tmp_path: Path) -> None:
    """Some of it comes after the last round in which the recorder is asked: an end of its own."""
    ends(recorder, tmp_path, "key")
    _, *others = recorder.threads(tmp_path / "out.swt")
    assert len(others) == THREADS
    assert all(one.ended and one.ends >= 2 for one in others)


def test_threads_alive_at_exit_have_no_end(recorder: Recorder, tmp_path: Path) -> None:
    run = ends(recorder, tmp_path, "alive")
    assert run.number("threads") == THREADS + 1
    assert run.number("thread_ends") == 0


def test_threads_that_do_nothing_have_no_end(recorder: Recorder, tmp_path: Path) -> None:
    run = ends(recorder, tmp_path, "nothing")
    assert run.number("threads") == 1
    assert run.number("thread_ends") == 0


def test_the_first_thread_may_end_first(recorder: Recorder, tmp_path: Path) -> None:
    ends(recorder, tmp_path, "main")
    main, other = recorder.threads(tmp_path / "out.swt")
    assert main.ends >= 1 and not other.ended


def test_threads_of_a_fork_child(recorder: Recorder, tmp_path: Path) -> None:
    run = ends(recorder, tmp_path, "fork", CHILDREN="1")
    assert run.number("thread_ends") == 0
    (child,) = (name for name in run.recordings if name != "out.swt")
    main, *others = recorder.threads(tmp_path / child)
    assert main.ends == 0
    assert len(others) == THREADS
    assert all(one.ended for one in others)


NOT_BEGUN = "spanwise: record: cannot create {}: No space left on device; not recording\n"


@contextmanager
def small_disk(place: Path, kib: int) -> Iterator[None]:
    """A file system of so many KiB is mounted there."""
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={kib}k", "tmpfs", place],
        capture_output=True,
        check=False,
    )
    if mount.returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        yield
    finally:
        subprocess.run(["umount", place], check=True)


# --- surroundings ---------------------------------------------------------------------------------


def test_file_that_is_lost(recorder: Recorder, tmp_path: Path) -> None:
    run = lifecycle(recorder, tmp_path, "close_lost", 10_000)
    assert (run.process.returncode, run.process.stderr) == (0, "")
    assert (run.recordings, run.leftovers) == ({}, [])


@pytest.mark.parametrize("n", [20_000, 21_500])
def test_file_size_limit(recorder: Recorder, tmp_path: Path, n: int) -> None:
    # The program sets a limit that its file has not reached yet.
    run = lifecycle(recorder, tmp_path, "size_limit", n)
    assert run.process.returncode == 0
    assert run.main["drop_reason"] == "1"
    assert run.number("dropped_calls") > 0
    assert_consistent(run.main)
    assert run.number("calls") == 4 * n + 2 * ATEXIT_BLOCKS
    assert run.number("file_bytes") <= 300_000


@pytest.mark.parametrize("n", [10, 10_000])
def test_an_end_that_cannot_be_written_is_reported(
    recorder: Recorder, tmp_path: Path, n: int
) -> None:
    """Without areas in a line. With them their reader, who has room, writes the end."""
    environment = recorder.environment(tmp_path / "out.swt")
    command: list[str | Path] = [recorder.program("lifecycle"), "size_shut", str(n)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    line = f"spanwise: record: {tmp_path}/out.swt: File too large; the recording has no end\n"
    assert (done.returncode, done.stderr) == (0, line)
    assert recorder.summarise(tmp_path / "out.swt", prefix=True)["incomplete"] == "1"
    environment = recorder.environment(tmp_path / "out.swt", {"AREAS": str(tmp_path)})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    recorder.salvage(tmp_path / "out.swt", tmp_path / "out.swt.areas")
    found = recorder.summarise(tmp_path / "out.swt")
    assert (found["incomplete"], found["drop_reason"]) == ("0", "1")
    recorded = 2 * n // 4096 * 4096  # blocks that were full before; END makes room by the last one
    assert int(found["calls"]) == 2 * (n + 10 + ATEXIT_BLOCKS)
    dropped = int(found["calls"]) - max(0, recorded - 4096)
    assert int(found["dropped_calls"]) == dropped == int(found["calls"]) - int(found["ops"])


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_full_device(recorder: Recorder, tmp_path: Path) -> None:
    environment = recorder.environment("/dev/full")
    command: list[str | Path] = [recorder.program("lifecycle"), "churn", "20000"]
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", NOT_BEGUN.format("/dev/full"))
    assert Path("/dev/full").is_char_device()


@pytest.mark.parametrize("blocks", [1, 2])
def test_disk_that_is_full_from_the_start(recorder: Recorder, tmp_path: Path, blocks: int) -> None:
    """Room for a file's name, or its first page, and no more: one line, and no half file."""
    with small_disk(tmp_path, 64):
        filler = tmp_path / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while file.write(b"x" * 4096):
                pass
        os.truncate(filler, filler.stat().st_size - 4096 * (blocks - 1))
        # The head is more than a page with arguments of 4,000 bytes.
        program = recorder.program("lifecycle")
        command: list[str | Path] = [program, "churn", "20000", "x" * 4000]
        run = recorder.run(command, tmp_path)
        file_name = tmp_path / "out.swt"
        assert run.process.returncode == 0
        assert run.process.stderr == NOT_BEGUN.format(file_name)
        assert (run.recordings, run.leftovers) == ({}, ["filler"])


@pytest.mark.parametrize("limit", [0, 10, 100])
def test_size_limit_that_the_head_does_not_fit(
    recorder: Recorder, tmp_path: Path, limit: int
) -> None:
    file = tmp_path / "out.swt"
    done = subprocess.run(
        [recorder.program("lifecycle"), "churn", "20000"],
        env=recorder.environment(file),
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)),
    )
    assert done.returncode == 0
    assert done.stderr == (
        f"spanwise: record: cannot create {file}: File too large; not recording\n"
    )
    assert not file.exists()


def test_full_disk(recorder: Recorder, tmp_path: Path) -> None:
    """A file system of 64 KiB: what is on it is whole and says why it stops."""
    with small_disk(tmp_path, 64):
        run = recorder.run([recorder.program("threads"), "pingpong", "2", "200000"], tmp_path)
        assert (run.process.returncode, run.process.stderr) == (0, "")
        assert run.main["drop_reason"] == "1"
        assert run.number("calls") >= 800_000
        assert run.number("ops") > 4096  # a block at least


@pytest.mark.parametrize("name", ["jemalloc", "mimalloc", "tcmalloc_minimal"])
def test_above_another_allocator(recorder: Recorder, tmp_path: Path, name: str) -> None:
    found = sorted(Path("/usr/lib").glob(f"*/lib{name}.so*"))
    if not found:
        pytest.skip(f"{name} is not installed")
    preload = {"LD_PRELOAD": f"{recorder.library} {found[0]}"}
    command: list[str | Path] = [recorder.program("threads"), "pingpong", "8", "20000"]
    run = recorder.run(command, tmp_path, extra=preload)
    assert run.process.returncode == 0
    assert_consistent(run.main)
    assert run.number("frees") >= 160_000


# --- options --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("STACKS", "many", "SPANWISE_RECORD_STACKS is not a number from 0 to 128; using 16"),
        ("STACKS", "129", "SPANWISE_RECORD_STACKS is not a number from 0 to 128; using 16"),
        ("CHILDREN", "-1", "SPANWISE_RECORD_CHILDREN is not a number from 0 to 1; using 0"),
    ],
)
def test_malformed_option(
    recorder: Recorder, tmp_path: Path, option: str, value: str, message: str
) -> None:
    run = lifecycle(recorder, tmp_path, "churn", 10, **{option: value})
    assert run.process.stderr == f"spanwise: record: {message}\n"
    assert run.number("allocs") == 10 + ATEXIT_BLOCKS


def test_an_old_recording_is_replaced(recorder: Recorder, tmp_path: Path) -> None:
    for n in (500, 10):
        run = lifecycle(recorder, tmp_path, "churn", n)
        assert run.number("allocs") == n + ATEXIT_BLOCKS
    assert list(run.recordings) == ["out.swt"]


def test_relative_file_name(recorder: Recorder, tmp_path: Path) -> None:
    command: list[str | Path] = [recorder.program("lifecycle"), "churn", "10"]
    subprocess.run(command, env=recorder.environment("here.swt"), cwd=tmp_path, check=True)
    assert recorder.summarise(tmp_path / "here.swt")["allocs"] == str(10 + ATEXIT_BLOCKS)
