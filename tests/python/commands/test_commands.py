# SPDX-License-Identifier: Apache-2.0
"""The command line: output, JSON, exit status, one-line errors."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import spanwise as sw
from spanwise import workloads
from spanwise.__main__ import main
from spanwise.ledger.parts import PARTS

from tests.python.helpers import GO_TABLE, has_open, needs_recorder, random_ops, spanwise

SIZES = "4096, 4K and 4KiB are the same, 4KB is 4000"
NAMES = (
    *("classes", "explain", "record", "convert", "run", "advise", "ledger", "compare"),
    *("optimize", "build", "replay", "sweep", "bench"),
    *("report", "flame", "export", "check", "diff", "gctrace", "demo"),
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of 20,000 operations."""
    path = tmp_path_factory.mktemp("stored") / "a.swt"
    sw.Recording.from_ops(random_ops(3, 20_000), path)
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Return the output of a command that succeeds."""
    assert main([str(word) for word in words]) == 0
    return capsys.readouterr().out


def error_line(capsys: pytest.CaptureFixture[str], *words: str | Path) -> str:
    """Return the only line on stderr of a command that exits with 2."""
    assert main([str(word) for word in words]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.rstrip("\n")


def misused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return the only line on stderr after a usage error."""
    with pytest.raises(SystemExit) as caught:
        main(words)
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err.rstrip("\n")


# --- help and wrong use ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_help_has_an_example(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([name, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith(f"usage: spanwise {name}")
    first, example = text.split("\n\n")[1:3]
    assert first[0].isupper() and first.endswith(".")
    assert example.startswith(f"example:\n  spanwise {name} ")
    assert "--json" in text


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--version"])
    assert capsys.readouterr().out == f"spanwise {sw.__version__}\n"


def test_wrong_use(capsys: pytest.CaptureFixture[str]) -> None:
    assert misused(capsys) == (
        "spanwise: the following arguments are required: COMMAND; see spanwise --help"
    )
    assert misused(capsys, "fly").startswith("spanwise: argument COMMAND: invalid choice: 'fly'")
    assert misused(capsys, "explain") == (
        "spanwise explain: the following arguments are required: SIZE; see spanwise explain --help"
    )
    assert misused(capsys, "ledger", "a.swt", "--placement", "x").startswith(
        "spanwise ledger: argument --placement: invalid choice: 'x'"
    )


# --- classes --------------------------------------------------------------------------------------


def test_classes_json_has_the_keys_and_numbers_of_go(capsys: pytest.CaptureFixture[str]) -> None:
    ours = json.loads(said(capsys, "classes", "--table", "go", "--json"))
    theirs = json.loads(GO_TABLE.read_text())
    assert list(ours) == list(theirs)
    for key in set(ours) - {"source"}:
        assert ours[key] == theirs[key], key


def test_classes_formats(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert len(said(capsys, "classes", "--table", "go").splitlines()) == 69
    assert said(capsys, "classes") == said(capsys, "classes", "--table", "c16")
    assert said(capsys, "classes", "--format", "md").startswith("| class | bytes/obj |")
    assert json.loads(said(capsys, "classes", "--format", "json"))["page_bytes"] == 8192
    as_c = said(capsys, "classes", "--table", "c16", "--format", "c")
    assert "static const sw_class_spec classes_c16[66] = {\n    {8, 1, 0},\n    {16, 2, 1}," in as_c
    sw.SizeClassTable.custom([8, 48], name="mine").to_json(tmp_path / "t.json")
    assert "    2         48" in said(capsys, "classes", "--table", tmp_path / "t.json")


def test_unknown_table(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    expected = (
        "spanwise: unknown table 'gone'; use go, c16, jemalloc, tcmalloc, mimalloc, pow2,"
        " fibonacci, geometric-R or FILE.json (R: a ratio such as 1.25)"
    )
    assert error_line(capsys, "classes", "--table", "gone") == expected
    assert error_line(capsys, "explain", "8", "--table", "gone") == expected
    assert error_line(capsys, "ledger", stored, "--table", "gone") == expected
    assert error_line(capsys, "compare", stored, "--table", "go", "--table", "gone") == expected
    assert error_line(capsys, "classes", "--table", "geometric-x") == (
        "spanwise: unknown table 'geometric-x'; after geometric- comes a ratio, e.g. geometric-1.25"
    )


# --- explain --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("size", "rounded"), [(33, 48), (32769, 40960), (0, 0)])
def test_explain(capsys: pytest.CaptureFixture[str], size: int, rounded: int) -> None:
    value = json.loads(said(capsys, "explain", str(size), "--table", "go", "--json"))
    assert (value["size_bytes"], value["rounded_bytes"]) == (size, rounded)
    assert value["waste_bytes"] == rounded - size
    text = said(capsys, "explain", str(size), "--table", "go")
    assert f"rounded up to     {rounded} B\n" in text
    assert ("but malloc(0) takes a slot of 8 B" in text) == (size == 0)


def test_explain_negative_size(capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "explain", "-5") == "spanwise: size -5 is negative; give 0 or more"
    assert (
        error_line(capsys, "explain", "--", "-5") == "spanwise: size -5 is negative; give 0 or more"
    )


# --- ledger and compare ---------------------------------------------------------------------------


def test_ledger(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    value = json.loads(said(capsys, "ledger", stored, "--table", "go", "--json"))
    assert sum(value[part] for part in PARTS) == value["held_bytes"]
    recording = sw.Recording.open(stored)
    ledger, after = recording.ledger("go"), recording.after_peak("go")
    assert value == {**json.loads(ledger.to_json()), "after_peak": json.loads(after.to_json())}
    text = said(capsys, "ledger", stored, "--table", "go")
    assert text.startswith(str(ledger))
    assert "classes with the most waste, bytes" in text
    assert "held over requested, mean over the run" in text


@pytest.mark.parametrize("at", ["peak", "end", "0.5s", "200ms", "1"])
def test_ledger_at(capsys: pytest.CaptureFixture[str], stored: Path, at: str) -> None:
    value = json.loads(said(capsys, "ledger", stored, "--at", at, "--json"))
    assert 0 < value["events"] <= 20_000


def test_compare(capsys: pytest.CaptureFixture[str], stored: Path) -> None:
    tables = ("--table", "go", "--table", "c16", "--table", "pow2")
    value = json.loads(said(capsys, "compare", stored, *tables, "--json"))
    assert [ledger["table"] for ledger in value["ledgers"]] == ["go", "c16", "pow2"]
    text = said(capsys, "compare", stored)
    assert text.splitlines()[1].split() == ["go", "c16"]
    assert ", the least: " in text.splitlines()[-1]


def test_plots_are_written_whole(
    capsys: pytest.CaptureFixture[str], stored: Path, tmp_path: Path
) -> None:
    for command in ("ledger", "compare"):
        picture = tmp_path / f"{command}.png"
        said(capsys, command, stored, "--plot", picture)
        assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert len(list(tmp_path.iterdir())) == 2
    assert error_line(capsys, "ledger", stored, "--plot", tmp_path / "no/a.png") == (
        f"spanwise: {tmp_path}/no/a.png: cannot be written: No such file or directory"
    )
    message = error_line(capsys, "ledger", stored, "--plot", tmp_path / "a.doc")
    assert message.startswith(
        f"spanwise: {tmp_path}/a.doc: unsupported picture format; use one of "
    )


def test_bad_recordings(capsys: pytest.CaptureFixture[str], stored: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.swt"
    assert error_line(capsys, "ledger", path) == (
        f"spanwise: {path}: cannot open the recording: No such file or directory"
    )
    path.write_bytes(b"hello, this is no recording")
    for command in ("ledger", "compare"):
        assert error_line(capsys, command, path) == (
            f"spanwise: {path}: not a spanwise recording: it does not begin with the .swt magic;"
            " make one with spanwise record"
        )
    path.write_bytes(stored.read_bytes()[:-100])
    message = error_line(capsys, "ledger", path)
    assert message.startswith(f"spanwise: {path}: byte ")
    assert "use --valid-prefix (in Python valid_prefix=True) to read the " in message
    assert main(["ledger", str(path), "--valid-prefix"]) == 1
    printed = capsys.readouterr()
    assert printed.out.startswith("ledger of bad.swt under c16")
    assert printed.err == "spanwise: bad.swt: it has no end: what the program did last is missing\n"
    assert error_line(capsys, "ledger", tmp_path / "*.none") == (
        f"spanwise: {tmp_path}/*.none: no file matches"
    )
    assert error_line(capsys, "ledger", stored, "--at", "noon") == (
        "spanwise: moment 'noon': give peak, peak-resident, end, an operation such as #1000, or a"
        " time such as 1.5s"
    )


# --- record ---------------------------------------------------------------------------------------


@needs_recorder()
def test_record(tmp_path: Path) -> None:
    done = spanwise("record", "-o", tmp_path / "ls.swt", "--", "/bin/ls", "/bin/ls", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "/bin/ls\n")
    events = len(sw.Recording.open(tmp_path / "ls.swt"))
    line = done.stderr.splitlines()[-1]
    assert line.startswith(f"{tmp_path}/ls.swt: {events:,} events (")
    (tmp_path / "ls.swt").unlink()
    done = spanwise("record", "/bin/ls", "-d", "/bin/ls", cwd=tmp_path)
    assert done.returncode == 0
    assert (tmp_path / "ls.swt").exists()


def test_record_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, "record", "-o", tmp_path / "a.swt") == (
        "spanwise: no program to record; give it after --"
    )
    assert error_line(capsys, "record", "-o", tmp_path / "a.swt", "--", "no-such-program") == (
        "spanwise: no-such-program: program not found; give its path, or a name that is in PATH"
    )
    assert list(tmp_path.iterdir()) == []


# --- interruptions --------------------------------------------------------------------------------


def interrupted(words: list[str], ready: Callable[[int], bool], cwd: Path) -> tuple[int, str]:
    """Return status and last line of a command after Ctrl-C to its process group.

    Args:
        words: the command.
        ready: whether the process with this id has reached the point to interrupt; on a loaded
            machine this takes seconds.
        cwd: its folder.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "spanwise", *words],
        cwd=cwd,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 300
    while not ready(process.pid) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.01)
    assert process.poll() is None, "ended before it was interrupted"
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    return process.returncode, errors.splitlines()[-1]


def test_ctrl_c_in_a_ledger(tmp_path: Path) -> None:
    """Of 40 million operations: none of the files is open for long, all of them are for seconds."""
    sw.Recording.from_ops(workloads.steady_replacement(1000, 200_000).ops, tmp_path / "a.swt")
    words = ["ledger", *["a.swt"] * 200]
    said = interrupted(words, lambda pid: has_open(pid, "a.swt"), tmp_path)
    assert said == (130, "spanwise: interrupted")


def test_a_closed_pipe_is_no_error() -> None:
    script = f"{sys.executable} -m spanwise classes | head -n 1"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert len(done.stdout.splitlines()) == 1
