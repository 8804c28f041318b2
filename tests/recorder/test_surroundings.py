# SPDX-License-Identifier: Apache-2.0
"""The recorder: what a preloaded library must survive, and its options."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.recorder.tools import ATEXIT_BLOCKS, Recorder, assert_consistent, lifecycle

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
