# SPDX-License-Identifier: Apache-2.0
"""The recorder: processes, ends and threads."""

from __future__ import annotations

from pathlib import Path

import pytest

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
