# SPDX-License-Identifier: Apache-2.0
"""The recorder: where threads end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.recorder.tools import Recorder, Run, assert_consistent

THREADS = 12


def ends(recorder: Recorder, directory: Path, mode: str, **options: str) -> Run:
    run = recorder.run([recorder.program("ends"), mode, str(THREADS)], directory, options=options)
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
