# SPDX-License-Identifier: Apache-2.0
"""spanwise top: its figures against the recording, and what it does to a terminal."""

from __future__ import annotations

import fcntl
import json
import math
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import spanwise as sw
from spanwise.commands.top import page_lines
from spanwise.recordings.live_view import LivePage, LiveRow
from spanwise.recordings.sampled import Estimate
from spanwise.recordings.sites import Site

from tests.python.helpers import compiled, needs_recorder, spanwise

pytestmark = needs_recorder()

SAMPLE, SIZE = 16 << 10, 4000
PROGRAM = """
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) void *leak(void) { return malloc(4000); }
__attribute__((noinline)) void *churn(void) { return malloc(4000); }
/* Until the file exists: 25 objects are kept and 100 freed, again and again. */
int main(int argc, char **argv) {
    int rounds = atoi(argv[1]);
    puts("it has begun");
    fflush(stdout);
    int i = 0;
    for (; rounds == 0 ? access(argv[2], F_OK) != 0 : i < rounds; i++) {
        for (int k = 0; k < 25; k++) if (leak() == NULL) return 1;
        for (int k = 0; k < 100; k++) free(churn());
        usleep(2000);
    }
    fprintf(stderr, "it has ended\\nrounds: %d\\n", i);
    return argc > 3;
}
"""

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("program")
    return compiled(folder, PROGRAM, "-fno-builtin", name="leaky.c")


def names_of(row: Mapping[str, object]) -> str:
    what = row["what"]
    assert isinstance(what, list)
    return str(what[0]).partition(" ")[0]


# --- figures --------------------------------------------------------------------------------------


@contextmanager
def running(folder: Path, *words: str | Path) -> Iterator[subprocess.Popen[str]]:
    """Start `spanwise top` without a terminal."""
    command = (sys.executable, "-m", "spanwise", "top", "--interval", "0.1", *words)
    done = subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    late = threading.Timer(60, done.kill)
    late.start()
    try:
        yield done
    finally:
        late.cancel()
        done.terminate()
        done.communicate()


def test_the_last_page_has_the_figures_of_the_estimate(program: Path, tmp_path: Path) -> None:
    """The call site that grows is named, and the truth is within six standard deviations."""
    options = ("--sample", str(SAMPLE), "-o", "a.swt", "--json")
    with running(tmp_path, *options, "--", program, "0", "end") as done:
        assert done.stdout is not None
        pages = [json.loads(done.stdout.readline()) for _ in range(5)]
        (tmp_path / "end").touch()
        rest, said = done.communicate()
    assert done.returncode == 0, said
    assert "it has begun\n" in said and "it has ended\n" in said and "a.swt: " in said
    pages += map(json.loads, rest.splitlines())
    counts = [page["recorded"] for page in pages]
    assert sorted(counts) == counts and counts[1] < counts[-1]
    last, found = pages[-1], sw.SampledRecording.open(tmp_path / "a.swt").estimate(at="end")
    for name in ("requested_bytes", "allocated_bytes"):
        assert last[name] == pytest.approx(found.total[name].to_dict())
    rows = {tuple(row["what"]): row for row in last["sites"]}
    for row, names in zip(found.array.to_dicts(), found.callers, strict=True):
        if row["recorded"] >= 5:
            shown = rows[names]["requested_bytes"]
            assert shown["value"] == pytest.approx(row["requested_bytes"])
            assert shown["low"] == pytest.approx(row["requested_bytes_low"])
            assert shown["high"] == pytest.approx(row["requested_bytes_high"])
    by_name = {names_of(row): row for row in last["sites"]}
    rounds = re.search(r"rounds: (\d+)", said)
    assert rounds is not None
    leaked = int(rounds[1]) * 25 * SIZE
    spread = (leaked * SIZE / math.expm1(SIZE / SAMPLE)) ** 0.5
    assert by_name["leak"]["requested_bytes"]["value"] == pytest.approx(leaked, abs=6 * spread)
    assert by_name["churn"]["requested_bytes"]["value"] == 0
    assert by_name["leak"]["growth_bytes"]["low"] > 0


def test_without_a_terminal_it_prints_plain_text(program: Path, tmp_path: Path) -> None:
    with running(tmp_path, "--sample=4K", "--", program, "0", "end") as done:
        assert done.stdout is not None and done.stderr is not None
        assert done.stdout.readline() == "it has begun\n"  # at once
        lines: list[str] = []
        while sum("innermost callers" in line for line in lines) < 3:
            lines.append(done.stderr.readline())
            assert lines[-1]
        (tmp_path / "end").touch()
        out, rest = done.communicate()
    said = "".join(lines) + rest
    assert (done.returncode, out) == (0, "")
    assert "\x1b" not in said and said.count("allocation rate") > 3 and " MiB  leak in " in said
    assert [one.name for one in tmp_path.iterdir()] == ["end"]


def test_the_status_is_that_of_record(program: Path, tmp_path: Path) -> None:
    log = tmp_path / "out.txt"
    words = ("--interval", "0.1", "--log", log, "--", program, "10", "-", "fail")
    for count in (1, 2):
        done = spanwise("top", *words)
        assert done.returncode == 1 and "the program exited with 1\n" in done.stderr
        assert log.read_text("utf-8").count("it has begun\n") == count  # at its end
        assert "it has" not in done.stderr


def test_a_program_without_recorded_objects(tmp_path: Path) -> None:
    done = spanwise("top", "--", "true", env={"TMPDIR": str(tmp_path)})
    assert done.returncode == 0 and "0 objects recorded, 0 live" in done.stderr
    assert list(tmp_path.iterdir()) == []  # the recording is removed


@pytest.mark.parametrize("text", ["0", "-1", "0.01", "nan", "inf", "soon", "", "1e9"])
def test_a_wrong_interval(text: str) -> None:
    done = spanwise("top", f"--interval={text}", "--", "true")
    assert done.returncode == 2
    wanted = f"spanwise: --interval {text!r}: give 0.1 to 3600 seconds\n"
    assert done.stderr == wanted


def test_what_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.swt").write_text("mine", "utf-8")
    for words, said in (
        (("--sample", "0", "--", "true"), "--sample 0: give 1 to"),
        (("-o", tmp_path / "a.swt", "--", "true"), "exists already"),
        (("--log", tmp_path / "no/such", "--", "true"), "No such file"),
        ((), "no program to run"),
    ):
        done = spanwise("top", *words)
        assert done.returncode == 2 and said in done.stderr, words
    assert (tmp_path / "a.swt").read_text("utf-8") == "mine"


# --- the page -------------------------------------------------------------------------------------


def a_page(sites: int) -> LivePage:
    some = Estimate(123.4 * (1 << 20), 100.0 * (1 << 20), 150.5 * (1 << 20))
    falls = Estimate(-some.value, -some.high, -some.low)
    rows = tuple(
        LiveRow(
            Site(i, 0, 0, ("a",), (f"a_{'long_' * 20}name{i} (file.c:{i})",)), 9, some, falls, some
        )
        for i in range(sites)
    )
    figures = {"allocated_per_s": some, "requested": some, "growth": falls, "allocated": some}
    return LivePage(
        elapsed_s=3600,
        window_s=60,
        rss_bytes=1 << 30,
        rss_growth_bytes=-(1 << 20),
        sample_bytes=512 << 10,
        recorded=10,
        live_recorded=5,
        rows=rows,
        more=2,
        few=3,
        rest=some,
        **figures,
    )


def test_a_page_by_hand() -> None:
    lines = page_lines(a_page(1), "title", 80, 20)
    assert lines[0] == "title, 1 h 0 min"
    rows = [" ".join(line.split()) for line in lines]
    assert "live bytes 123.4 [100.0, 150.5] MiB -123.4 [-150.5, -100.0] MiB" in rows
    assert "RSS 1.0 GiB -1.0 MiB" in rows
    assert lines[-2:] == [
        "... 2 more",
        "... 3 call sites with fewer than 5 recorded objects: 123.4 [100.0, 150.5] MiB",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
@pytest.mark.parametrize("lines", [5, 12, 24, 100])
def test_a_page_fits(columns: int, lines: int) -> None:
    shown = page_lines(a_page(30), "a program " * 20, columns, 100, lines)
    assert max(map(len, shown)) <= columns
    if columns >= 80 and lines >= 24:
        assert len(shown) <= lines
        names = sum("a_" in line for line in shown)
        assert names == min(30, lines - 12)
        assert f"... {32 - names} more" in shown


# --- the terminal ---------------------------------------------------------------------------------


class Terminal:
    """A terminal, and `spanwise top` in it."""

    def __init__(self, words: Sequence[str | Path], env: Mapping[str, str]) -> None:
        self.said = b""
        self._status: int | None = None
        self.pid, self._master = pty.fork()
        if self.pid == 0:
            os.environ.update({"TERM": "xterm", **env})
            os.execv(sys.executable, [sys.executable, *map(str, words)])
        self.resize(30, 100)
        self.before = termios.tcgetattr(self._master)

    def resize(self, lines: int, columns: int) -> None:
        """Changes its size."""
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    def type(self, keys: bytes) -> None:
        """Presses keys."""
        os.write(self._master, keys)

    def read_until(self, is_there: Callable[[bytes], object]) -> bytes:
        """Return what was written since the last call, once it has something."""
        until, start = time.monotonic() + 30, len(self.said)
        while not is_there(self.said[start:]):
            assert time.monotonic() < until, self.said[start:]
            assert self._read(), self.said[start:]
        return self.said[start:]

    def _read(self) -> bool:
        """Reads some bytes; False: the terminal has no user any more."""
        if select.select([self._master], [], [], 1)[0]:
            try:
                data = os.read(self._master, 1 << 16)
            except OSError:
                return False
            self.said += data
            return bool(data)
        return True

    def end(self) -> int:
        """Return the exit status once it has ended; all it wrote is in `said`."""
        while self._read():
            pass
        if self._status is None:
            self._status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self._status

    def restored(self) -> bool:
        """Return whether the page has been left, once, and keys are as before."""
        shown = self.said
        changes = (b"\x1b[?25", b"\x1b[?7")
        return (
            shown.count(ENTER) == shown.count(LEAVE) >= 1
            and shown.rindex(LEAVE) > shown.rindex(ENTER)
            and all(shown.rindex(one + b"h") > shown.rindex(one + b"l") for one in changes)
            and termios.tcgetattr(self._master) == self.before
        )

    def close(self) -> None:
        """Ends it if it has not ended."""
        if self._status is None:
            os.kill(self.pid, signal.SIGTERM)
            self.end()
        os.close(self._master)


@contextmanager
def top(
    *words: str | Path, env: Mapping[str, str] | None = None, code: str = ""
) -> Iterator[Terminal]:
    python = ("-c", code) if code else ("-m", "spanwise")
    options = ("top", "--interval", "0.2", "--sample", "4K")
    terminal = Terminal([*python, *options, *words], env or {})
    try:
        yield terminal
    finally:
        terminal.close()


def has(*texts: bytes) -> Callable[[bytes], bool]:
    return lambda said: all(one in said for one in texts)


PAGE = has(b"allocation rate", b"  leak ", b"q: end the view")


def test_a_page_until_the_program_ends(program: Path, tmp_path: Path) -> None:
    """The program's output comes after the page, then the last page as text."""
    with top("--", program, "0", tmp_path / "end") as terminal:
        said = terminal.read_until(PAGE)
        assert said.startswith(ENTER) and b"it has begun" not in said
        assert b"\x1b[1m" in said and said.count(b"\x1b[H") >= 1
        (tmp_path / "end").touch()
        assert terminal.end() == 0
        assert terminal.restored()
    after = terminal.said.rpartition(LEAVE)[2].decode()
    assert after.index("it has begun") < after.index("it has ended") < after.index("RSS")
    assert re.search(r"MiB  leak \(leaky|MiB  leak in leaky", after)


def test_it_fits_a_terminal_that_is_resized(program: Path, tmp_path: Path) -> None:
    with top("--", program, "0", tmp_path / "end") as terminal:
        terminal.read_until(PAGE)
        for lines, columns in ((12, 70), (40, 180), (3, 20)):
            terminal.resize(lines, columns)
            terminal.read_until(lambda said: said.count(b"\x1b[H") >= 2)
            page = terminal.read_until(lambda said: said.count(b"\x1b[H") >= 2)
            whole = page.split(b"\x1b[H")[1].decode()
            rows = re.sub(r"\x1b\[[0-9;]*[mKJ]", "", whole).replace("\r", "").split("\n")
            assert len(rows) <= lines and max(map(len, rows)) <= columns
        (tmp_path / "end").touch()
        assert terminal.end() == 0 and terminal.restored()


def test_q_ends_the_view_and_the_program_goes_on(program: Path, tmp_path: Path) -> None:
    with top("--", program, "0", tmp_path / "end") as terminal:
        terminal.read_until(PAGE)
        terminal.type(b"q")
        said = terminal.read_until(has(LEAVE, b"it has begun"))
        assert b"it has ended" not in said and terminal.restored()
        os.kill(terminal.pid, signal.SIGTSTP)
        os.waitpid(terminal.pid, os.WUNTRACED)
        os.kill(terminal.pid, signal.SIGCONT)
        (tmp_path / "end").touch()
        assert terminal.end() == 0
    assert b"it has ended" in terminal.said.rpartition(LEAVE)[2]
    assert terminal.said.count(ENTER) == 1


def test_ctrl_c_ends_both(program: Path, tmp_path: Path) -> None:
    with top("-o", tmp_path / "a.swt", "--", program, "0", tmp_path / "end") as terminal:
        terminal.read_until(PAGE)
        terminal.type(b"\x03")
        assert terminal.end() == 128 + signal.SIGINT
        assert terminal.restored()
    assert b"ended after SIGINT; the recording of what ran until then is kept" in terminal.said
    assert sw.SampledRecording.open(tmp_path / "a.swt").recorded_objects > 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_signals_restore_the_terminal(number: int, program: Path, tmp_path: Path) -> None:
    with top("--", program, "0", tmp_path / "end") as terminal:
        terminal.read_until(PAGE)
        os.kill(terminal.pid, number)
        assert terminal.end() == 128 + number
        assert terminal.restored()
    after = terminal.said.rpartition(LEAVE)[2]
    assert b"ended after SIG" in after and b"is kept" not in after


def test_ctrl_z_leaves_the_page_until_it_continues(program: Path, tmp_path: Path) -> None:
    with top("--", program, "0", tmp_path / "end") as terminal:
        terminal.read_until(PAGE)
        os.kill(terminal.pid, signal.SIGTSTP)
        os.waitpid(terminal.pid, os.WUNTRACED)
        terminal.read_until(has(LEAVE))
        assert terminal.restored()
        os.kill(terminal.pid, signal.SIGCONT)
        terminal.read_until(has(ENTER, b"\x1b[H"))
        (tmp_path / "end").touch()
        assert terminal.end() == 0 and terminal.restored()


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        ("spanwise.TraceFormatError('no block')", 1, b"spanwise: the view ended: no block"),
        ("AssertionError('a mistake')", 1, b"AssertionError: a mistake"),
    ],
)
def test_errors_restore_the_terminal(
    error: str, status: int, said: bytes, program: Path, tmp_path: Path
) -> None:
    """An error of the recording ends the view alone."""
    code = f"""if True:
        import spanwise
        from spanwise.__main__ import command
        from spanwise.recordings.live_view import LiveView
        update, calls = LiveView.update, []
        def fails(self, name_all=False):
            calls.append(1)
            if len(calls) > 2:
                raise {error}
            update(self, name_all)
        LiveView.update = fails
        command()
        """
    with top("--", program, "0", tmp_path / "end", code=code) as terminal:
        terminal.read_until(has(LEAVE))
        (tmp_path / "end").touch()
        assert terminal.end() == status
        assert terminal.restored()
    assert said in terminal.said.rpartition(LEAVE)[2]


def test_no_color_and_dumb_terminals(program: Path) -> None:
    with top("--", program, "200", "-", env={"NO_COLOR": "1"}) as terminal:
        assert terminal.end() == 0
    assert ENTER in terminal.said and b"\x1b[1m" not in terminal.said
    with top("--", program, "200", "-", env={"TERM": "dumb"}) as terminal:
        assert terminal.end() == 0
    assert b"\x1b" not in terminal.said and b"allocation rate" in terminal.said


def test_output_that_is_redirected_is_the_programs(program: Path, tmp_path: Path) -> None:
    """The page is on the terminal, and standard output goes to the file at once."""
    line = f"{sys.executable} -m spanwise top --interval 0.2 --sample 4K -- {program} 200 - > out"
    code = f"import os; os.chdir({str(tmp_path)!r}); os.execv('/bin/sh', ['sh', '-c', {line!r}])"
    terminal = Terminal(["-c", code], {})
    try:
        assert terminal.end() == 0
    finally:
        terminal.close()
    assert (tmp_path / "out").read_text("utf-8") == "it has begun\n"
    assert b"it has ended" in terminal.said.rpartition(LEAVE)[2]


def test_much_output_is_dropped_from_its_start(tmp_path: Path) -> None:
    code = """if True:
        import sys, time
        for i in range(60000):
            print(i, "x" * 40)
        sys.stdout.flush()
        time.sleep(0.5)
        """
    with top("--keep-pymalloc", "--", sys.executable, "-c", code) as terminal:
        assert terminal.end() == 0
    after = terminal.said.rpartition(LEAVE)[2]
    assert b"earlier output of the program is dropped (--log keeps it)" in after
    assert b"59999 xxx" in after and b"\n1000 xxx" not in after and len(after) < 2 << 20


def test_a_program_that_cannot_be_started(tmp_path: Path) -> None:
    with top("--", tmp_path / "none") as terminal:
        assert terminal.end() == 2
    assert ENTER not in terminal.said and b"none" in terminal.said
