# SPDX-License-Identifier: Apache-2.0
"""A page on the alternate screen of the terminal, and the output of a program under it."""

from __future__ import annotations

import errno
import os
import select
import signal
import sys
import termios
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_ENTER = b"\x1b[?1049h\x1b[?25l\x1b[?7l"  # alternate screen, no cursor, long lines are cut
_LEAVE = b"\x1b[?7h\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _END_OF_PAGE = "\x1b[H", "\x1b[K", "\x1b[J"
KEPT_BYTES = 1 << 20
"""Of a program's output while a page is shown; earlier output is dropped."""
_SIZE = (80, 24)


class Screen:
    """The terminal of this process, which shows pages between `enter` and `leave`.

    Attributes:
        is_blank: nothing was drawn since `enter`.
    """

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._saved: list[Any] | None = None
        self.is_blank = True

    def enter(self) -> None:
        r"""Switches to the alternate screen; keys are read one at a time, and not shown.

        Ctrl-C and Ctrl-Z go to the program as well, as usual. Ctrl-\ is off: it would end this
        process without restoring the terminal.
        """
        if self._saved is not None:
            return
        self._saved = list(termios.tcgetattr(self._terminal))
        changed: list[Any] = list(termios.tcgetattr(self._terminal))
        changed[3] &= ~(termios.ICANON | termios.ECHO)
        changed[6] = list(changed[6])
        changed[6][termios.VMIN], changed[6][termios.VTIME] = 1, 0
        changed[6][termios.VQUIT] = b"\0"
        termios.tcsetattr(self._terminal, termios.TCSADRAIN, changed)
        self.is_blank = True
        self._write(_ENTER)

    def leave(self) -> bool:
        """Restores the terminal, which may have been hung up; False: it had not been entered."""
        saved, self._saved = self._saved, None
        if saved is not None:
            with suppress(OSError):
                self._write(_LEAVE)
            with suppress(termios.error):
                termios.tcsetattr(self._terminal, termios.TCSADRAIN, saved)
        return saved is not None

    def size(self) -> tuple[int, int]:
        """Return columns and lines."""
        with suppress(OSError):
            columns, lines = os.get_terminal_size(self._terminal)
            if columns and lines:
                return columns, lines
        return _SIZE

    def draw(self, lines: Sequence[str]) -> None:
        """Shows lines, cut to the size of the terminal."""
        _, most = self.size()
        rows = [f"{line}{_END_OF_LINE}" for line in lines[:most]]
        text = _HOME + "\r\n".join(rows) + (_END_OF_PAGE if len(rows) < most else "")
        self._write(text.encode("utf-8", "replace"))
        self.is_blank = False

    def key(self, seconds: float) -> str:
        """Return a key that is pressed within some time, else "".

        Raises:
            OSError: the terminal was hung up.
        """
        ready, _, _ = select.select([self._terminal], [], [], max(seconds, 0.0))
        if not ready:
            return ""
        key = os.read(self._terminal, 1)
        if not key:
            raise OSError(errno.EIO, "the terminal is gone")
        return key.decode("ascii", "replace")

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._terminal, data) :]


@contextmanager
def screen_of_terminal() -> Iterator[Screen | None]:
    """Yield the terminal that shows stderr, which is always restored; None if there is none.

    Nor is there one in the background of a shell, or with TERM=dumb. Ctrl-Z restores the terminal
    until the process continues.
    """
    terminal = _open_terminal()
    if terminal is None:
        yield None
        return
    screen = Screen(terminal)

    def suspend(number: int, frame: FrameType | None) -> None:
        was_entered = screen.leave()
        os.kill(os.getpid(), signal.SIGSTOP)
        if was_entered:
            screen.enter()

    before = signal.signal(signal.SIGTSTP, suspend)
    try:
        yield screen
    finally:
        signal.signal(signal.SIGTSTP, before)
        screen.leave()
        os.close(terminal)


def _open_terminal() -> int | None:
    if not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return None
    try:
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    with suppress(OSError):
        if os.tcgetpgrp(terminal) == os.getpgrp():
            return terminal
    os.close(terminal)
    return None


class HeldOutput:
    """A pipe for a program's output, which is kept while a page is shown and written afterwards.

    Attributes:
        writer: the end for the program; close it once it has started.
    """

    def __init__(self) -> None:
        self._reader, self.writer = os.pipe()
        self._kept: deque[bytes] = deque()
        self._bytes = 0
        self._is_dropped = False
        self._passes = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while data := os.read(self._reader, 1 << 16):
            with self._lock:
                if self._passes:
                    _write_stderr(data)
                    continue
                self._kept.append(data)
                self._bytes += len(data)
                while self._bytes > KEPT_BYTES:
                    self._bytes -= len(self._kept.popleft())
                    self._is_dropped = True

    def release(self) -> None:
        """Writes what was kept, and from now on everything, to stderr."""
        with self._lock:
            if self._is_dropped:
                sys.stderr.write(
                    "spanwise: earlier output of the program is dropped (--log keeps it)\n"
                )
                sys.stderr.flush()
            for data in self._kept:
                _write_stderr(data)
            self._kept.clear()
            self._bytes, self._is_dropped, self._passes = 0, False, True

    def finish(self, seconds: float = 1.0) -> None:
        """Waits for the end of the output; processes that the program left may keep it open."""
        self._thread.join(seconds)


def _write_stderr(data: bytes) -> None:
    with suppress(OSError):  # a terminal that was hung up
        while data:
            data = data[os.write(2, data) :]
