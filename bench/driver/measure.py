# SPDX-License-Identifier: Apache-2.0
"""Runs a contender once and reads its figures."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from driver.contenders import Contender
from driver.tools import BenchError, last_line

MIN_TIME_S, QUICK_MIN_TIME_S = 0.05, 0.001
TIMEOUT_S = 900.0
PR_SET_THP_DISABLE = 41
MIB = float(1 << 20)

Figures = dict[str, float]


def measure(contender: Contender, *, quick: bool = False) -> Figures:
    """Run a contender in a new process.

    Args:
        contender: the contender.
        quick: run short google-benchmark rows.

    Returns:
        Figures by name: `ns` per operation, and those that the program prints. Patterns also have
        `cpu` and `elapsed` (seconds) and `peak` (peak RSS in MiB).

    Raises:
        BenchError: the contender failed, or its output is invalid.
    """
    if contender.reader == "counted":
        return _counted(contender)
    with tempfile.TemporaryDirectory(prefix="spanwise-bench-") as folder:
        report = Path(folder) / "report"
        least = str(QUICK_MIN_TIME_S if quick else MIN_TIME_S)
        words = [
            word.replace("{min_time}", least).replace("{report}", str(report))
            for word in contender.words
        ]
        printed = _output(contender, words)
        try:
            if contender.reader == "lines":
                return read_lines(printed, report.read_text(encoding="ascii"))
            read = read_google if contender.reader == "google" else read_json
            figures = read(printed)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise BenchError(f"{_label(contender)}: cannot read its output: {error}") from error
    if contender.key:
        if contender.key not in figures:
            raise BenchError(f"{_label(contender)}: has no figure '{contender.key}'")
        return {"ns": figures[contender.key]}
    return figures


def _label(contender: Contender) -> str:
    words = [word for word in contender.words if not word.startswith(("--benchmark_m", "{"))]
    return f"{contender.name} ({' '.join(Path(word).name for word in words if word)})"


def _output(contender: Contender, words: list[str]) -> str:
    """Return the output of a command. On return, the command and its children have ended."""
    disable_huge_pages(contender.small_pages)  # children inherit it
    try:
        child = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=contender.environment(),
            start_new_session=True,
        )
    except OSError as error:
        raise BenchError(f"{words[0]}: {error.strerror}") from error
    finally:
        disable_huge_pages(False)
    try:
        printed, said = child.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{_label(contender)}: took longer than {TIMEOUT_S:g} s") from None
    finally:
        if child.poll() is None:
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    if child.returncode != 0:
        raise BenchError(f"{_label(contender)}: ended with {child.returncode}: {last_line(said)}")
    return printed


def disable_huge_pages(disabled: bool) -> None:
    """Disable or re-enable transparent huge pages for this process and new children."""
    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, int(disabled), 0, 0, 0)


def read_google(text: str) -> Figures:
    """Return the counters of the only row in google-benchmark's JSON.

    `ns` is from the counter `op` (seconds) if there is one, else from the CPU time.
    """
    rows = json.loads(text)["benchmarks"]
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows match, not 1")
    row = rows[0]
    if row.get("error_occurred"):
        raise ValueError(row.get("error_message", "failed"))
    figures = {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
    figures["ns"] = figures["op"] * 1e9 if "op" in figures else figures["cpu_time"]
    return figures


def read_json(text: str) -> Figures:
    """Parse figures printed as one JSON object."""
    return {str(name): float(value) for name, value in json.loads(text).items()}


def read_lines(text: str, report: str) -> Figures:
    """Parse figures printed as `NAME VALUE` lines, and the line of the rusage wrapper."""
    figures = {}
    for line in text.splitlines():
        name, value = line.split()
        figures[name] = float(value)
    kind, *words = report.split()
    status, wall_ns, user_us, system_us, peak_kib = map(int, words[:5])
    if (kind, status) != ("exit", 0):
        raise ValueError(f"ended with {kind} {status}")
    figures["cpu"] = (user_us + system_us) * 1e-6
    figures["elapsed"] = wall_ns * 1e-9
    figures["peak"] = peak_kib * 1024 / MIB
    return figures


def _counted(contender: Contender) -> Figures:
    # Imported here because few runs need it.
    from driver import counts  # noqa: PLC0415

    program, path = contender.words
    (found,) = counts.count_all([(counts.Program(Path(program)), path)])
    return {"instructions": found.instructions}
