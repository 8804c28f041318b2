# SPDX-License-Identifier: Apache-2.0
"""spanwise top: run a program and show its live memory by call site while it runs."""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from spanwise import _format
from spanwise.commands._common import (
    SubParsers,
    add_description,
    in_color,
    new_command,
    show,
)
from spanwise.commands._options import (
    add_force_option,
    add_option,
    add_program_options,
    add_site_options,
    program_of,
    size,
)
from spanwise.commands._screen import HeldOutput, Screen, screen_of_terminal
from spanwise.commands.record import check_place
from spanwise.errors import InvalidError, SpanwiseError
from spanwise.recordings.recorder import (
    SAMPLE,
    SAMPLE_MAX,
    RecordOptions,
    run_recorded,
)

if TYPE_CHECKING:
    from spanwise.recordings.live_view import LivePage, LiveView
    from spanwise.recordings.sampled import Estimate

INTERVAL_S = 2.0
_SECONDS = (0.1, 3600.0)
_SLICE_S = 0.1
"""How often the terminal's size and the program's end are looked at."""
_ROWS = 20
"""Call sites in a block of plain text; JSON has all."""
_WIDTH = 100
"""Columns of plain text without COLUMNS."""
_NAME_MIN = 20
_BOLD, _RED, _GREEN, _END = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[m"


def add_top(commands: SubParsers) -> None:
    """Declares the command."""
    parser = new_command(commands, "top", "spanwise top -- redis-server --port 7000", run_top)
    add_description(
        parser,
        "The program is recorded as by record --sample. The page on the terminal has its resident"
        " memory, estimates of its live and allocated bytes with 95 % intervals, and its call sites"
        " with the most live bytes, as in spanwise estimate, with their growth in the last minute"
        " (or since the start). Call sites with fewer than five recorded objects are summed."
        " Child processes are not shown.",
    )
    add_description(
        parser,
        "q ends the view, and the program goes on. Ctrl-C ends the program and the view, and a"
        " second one kills it. While the page is shown, what the program writes to the terminal is"
        " held back (1 MiB at most) and written after the view, and its standard input, if that is"
        " the terminal, is empty. If stderr is not a terminal, a page is printed there as plain"
        " text at each interval; with --json, as one line on standard output.",
    )
    parser.usage = "%(prog)s [options] -- PROGRAM [ARGS...]"
    add_option(
        parser,
        "--interval SECONDS",
        f"between two pages (default {INTERVAL_S:g})",
        default=str(INTERVAL_S),
    )
    add_option(
        parser,
        "--sample BYTES",
        "one sample point per BYTES on average (default 512K); fewer bytes are more exact, and"
        " cost more",
        type=size,
        default=SAMPLE,
    )
    add_option(parser, "-o --output FILE.swt", "keep the recording (default: it is removed)")
    add_force_option(parser, "replace FILE.swt if it exists")
    add_option(parser, "--log FILE", "write the program's output and errors to FILE, at its end")
    add_site_options(parser)
    add_program_options(parser)


def run_top(options: argparse.Namespace) -> int:
    """Shows the page; returns 1 if the program failed or there are gaps, 128 + N after signal N."""
    command = program_of(options, "run")
    interval_s = _interval(options.interval)
    if not 1 <= options.sample <= SAMPLE_MAX:
        raise InvalidError(f"--sample {options.sample}: give 1 to {SAMPLE_MAX} bytes")
    if options.output:
        check_place(Path(options.output), options.force)
    with (
        tempfile.TemporaryDirectory(prefix="spanwise-") as folder,
        screen_of_terminal() as terminal,
        _streams(options, terminal) as streams,
    ):
        output = Path(options.output or Path(folder, "top.swt"))
        screen = None if options.json else terminal
        view = _View(options, interval_s, screen, streams.show)
        wanted = RecordOptions(
            stacks=options.stacks,
            keep_pymalloc=options.keep_pymalloc,
            python_sites=options.python_sites,
            sample_bytes=options.sample,
            stdin=streams.stdin,
            stdout=streams.stdout,
            stderr=streams.stderr,
            patient=True,
            force=options.force,
            watch=view.watch,
        )
        result = run_recorded(command, output, wanted)
        lines = result.lines() if options.output else result.failures(kept=False)
        is_whole = not result.findings()
    view.report()
    show(*lines, file=sys.stderr)
    if result.stopped_by:
        return 128 + result.stopped_by
    return int(bool(result.status or view.trouble or not is_whole))


def _interval(text: str) -> float:
    least, most = _SECONDS
    try:
        seconds = float(text.removesuffix("s"))
    except ValueError:
        seconds = math.nan
    if not least <= seconds <= most:
        raise InvalidError(f"--interval {text!r}: give {least:g} to {most:g} seconds")
    return seconds


# --- the program's streams ------------------------------------------------------------------------


class _Streams:
    """Where the program reads and writes.

    Attributes:
        stdin: None, as the others: those of this process.
    """

    def __init__(self) -> None:
        self.stdin: int | None = None
        self.stdout: int | IO[Any] | None = None
        self.stderr: int | IO[Any] | None = None
        self.held: HeldOutput | None = None

    def started(self) -> None:
        """Closes this process's end of the pipe, so that the output has an end."""
        if self.held is not None and self.held.writer >= 0:
            os.close(self.held.writer)
            self.held.writer = -1

    def show(self) -> None:
        """Called when the view has ended: the program's output goes to the terminal again."""
        self.started()
        if self.held is not None:
            self.held.release()


@contextmanager
def _streams(options: argparse.Namespace, terminal: Screen | None) -> Iterator[_Streams]:
    """Yield the program's streams; with a page on the terminal they do not write to it."""
    streams = _Streams()
    shows_page = terminal is not None and not options.json
    if shows_page and os.isatty(0):
        streams.stdin = subprocess.DEVNULL
    if options.log:
        with Path(options.log).open("ab") as log:
            streams.stdout = streams.stderr = log
            yield streams
        return
    if options.json:
        streams.stdout = sys.stderr  # stdout is for the JSON alone
    if shows_page:
        streams.held = HeldOutput()
        streams.stderr = streams.held.writer
        streams.stdout = streams.held.writer if os.isatty(1) else None
    try:
        yield streams
    finally:
        if streams.held is not None:
            assert terminal is not None
            terminal.leave()
            streams.show()
            streams.held.finish()


# --- the view -------------------------------------------------------------------------------------


class _View:
    """Shows pages of a program while it runs.

    Attributes:
        screen: the terminal that shows them; None: they are printed.
        last: the page that was shown last, while the program ran.
        trouble: why the view ended before the program; "": it did not, or q was pressed.
        title: its first line.
    """

    def __init__(
        self,
        options: argparse.Namespace,
        interval_s: float,
        screen: Screen | None,
        ended: Callable[[], None],
    ) -> None:
        self.screen = screen
        self.last: LivePage | None = None
        self.trouble = ""
        self.title = ""
        self._options = options
        self._interval_s = interval_s
        self._words = _printable(" ".join(program_of(options, "run")))
        self._ended = ended

    def watch(self, child: subprocess.Popen[bytes], raw: Path, areas: Path) -> None:
        """Shows pages until the program ends, or q is pressed. An error ends the view alone."""
        from spanwise.recordings.live_view import LiveView  # noqa: PLC0415  brings numpy

        self.title = f"{self._words}, process {child.pid}"
        try:
            view = LiveView(child.pid, raw, areas, self._options.sample)
            if self.screen is None:
                self._print_pages(child, view)
            else:
                self.screen.enter()
                self._draw_pages(child, view, self.screen)
        except (OSError, ValueError, SpanwiseError) as error:
            self.trouble = str(error)
        finally:
            if self.screen is not None:
                self.screen.leave()
            self._ended()

    def report(self) -> None:
        """Prints the last page of a terminal, and why the view ended."""
        if self.screen is not None and self.last is not None:
            lines = page_lines(self.last, self.title, _width(), _ROWS)
            print("\n".join(lines), file=sys.stderr)
        if self.trouble:
            print(f"spanwise: the view ended: {self.trouble}", file=sys.stderr)

    def _print_pages(self, child: subprocess.Popen[bytes], view: LiveView) -> None:
        most = sys.maxsize if self._options.json else _ROWS
        is_over = False
        while not is_over:
            is_over = _has_ended(child, self._interval_s)
            view.update(name_all=is_over)
            self.last = view.page(most)
            if self._options.json:
                print(json.dumps(self.last.to_dict()), flush=True)
            else:
                lines = page_lines(self.last, self.title, _width(), _ROWS)
                print("\n".join(lines), end="\n\n", file=sys.stderr, flush=True)

    def _draw_pages(self, child: subprocess.Popen[bytes], view: LiveView, screen: Screen) -> None:
        key, shown = "", (0, 0)
        due = time.monotonic()  # the first page at once
        while key not in ("q", "Q") and child.poll() is None:
            now = time.monotonic()
            if now >= due:
                view.update()
                due, shown = now + self._interval_s, (0, 0)
            if screen.is_blank or screen.size() != shown:
                shown = columns, lines = screen.size()
                self.last = view.page(max(lines, _ROWS))
                screen.draw(self._page(columns, lines))
            key = screen.key(min(_SLICE_S, due - time.monotonic()))
        if self.last is None:
            view.update(name_all=True)
        if self.last is None or child.poll() is None:
            self.last = view.page(_ROWS)

    def _page(self, columns: int, lines: int) -> list[str]:
        assert self.last is not None
        keys = "q: end the view; Ctrl-C: end the program"
        shown = page_lines(self.last, self.title, columns, max(lines - 1, 1), lines - 1)
        text = [*shown[: lines - 1], keys[:columns]]
        return list(_colored(text)) if in_color(sys.stderr) else text


def _has_ended(child: subprocess.Popen[bytes], seconds: float) -> bool:
    try:
        child.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return False
    return True


# --- the page -------------------------------------------------------------------------------------


def page_lines(
    page: LivePage, title: str, columns: int, most: int, lines: int = sys.maxsize
) -> list[str]:
    """Return a page as text, with at most so many call sites and lines."""
    span = _span(page.window_s)
    head = [
        f"{title}, {_span(page.elapsed_s)}",
        *_table(_summary(page, span), columns),
        f"a sample of one point per {_format.size(page.sample_bytes)},"
        f" {_format.plural(page.recorded, 'object')} recorded, {page.live_recorded:,} live;"
        " 95 % intervals",
        "",
    ]
    room = min(most, max(lines - len(head) - 4, 0))
    rows = page.rows[:room]
    more = page.more + len(page.rows) - len(rows)
    return [
        _format.shortened(line, columns)
        for line in (
            *head,
            *_table(_site_rows(rows, span, columns), columns),
            *([f"... {more:,} more"] if more else []),
            *([_few_line(page)] if page.few else []),
        )
    ]


def _summary(page: LivePage, span: str) -> list[Sequence[str]]:
    more = page.rss_growth_bytes
    return [
        ("", "now", f"growth in {span}"),
        ("RSS", _format.size(page.rss_bytes), f"{'+' if more > 0 else ''}{_format.size(more)}"),
        ("live bytes", str(page.requested), _signed(page.growth)),
        ("allocation rate", f"{page.allocated_per_s}/s", ""),
    ]


def _site_rows(rows: Sequence[Any], span: str, columns: int) -> list[Sequence[str]]:
    from spanwise.recordings.sites import callers  # noqa: PLC0415  loaded by now

    figures = [(str(row.requested), _signed(row.growth)) for row in rows]
    head = ("live bytes", f"growth in {span}")
    widths = [max(map(len, column)) for column in zip(head, *figures, strict=True)]
    room = max(columns - sum(widths) - 2 * len(widths), _NAME_MIN)
    names = callers([row.site for row in rows], room)
    return [
        (*head, "innermost callers"),
        *((*each, _printable(name)) for each, name in zip(figures, names, strict=True)),
    ]


def _table(rows: Sequence[Sequence[str]], columns: int) -> list[str]:
    """Align the cells: the first and last column of names to the left, figures to the right."""
    head, *others = rows
    left = int(head[0] == "")
    text = _format.table(others, head, left, names_last=not left, width=columns)
    return text.split("\n")


def _few_line(page: LivePage) -> str:
    count = _format.plural(page.few, "call site")
    return f"... {count} with fewer than 5 recorded objects: {page.rest}"


def _signed(growth: Estimate) -> str:
    return f"{'+' if growth.value > 0 else ''}{growth}"


def _span(seconds: float) -> str:
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    hours, minutes = divmod(whole // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _printable(text: str) -> str:
    """Replace characters that a terminal would obey."""
    return "".join(one if one.isprintable() else "?" for one in text)


def _width() -> int:
    return _format.screen_width() or _WIDTH


def _colored(lines: Sequence[str]) -> Iterator[str]:
    """Yield the lines with the title in bold."""
    for i, line in enumerate(lines):
        yield f"{_BOLD}{line}{_END}" if i == 0 else line
