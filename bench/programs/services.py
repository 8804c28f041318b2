#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what recording costs services: requests per second, and latencies of requests.

Each round starts each service once in each mode, one after the other, sends it a fixed number of
requests over a few connections (a closed loop), and ends it. Ratios are to the plain run of the
same round. Services: redis-server under redis-benchmark, PostgreSQL under pgbench -S, and HTTP
servers in Node.js and CPython under ab. Modes: spanwise record sampled and full, heaptrack, memray
(CPython only), and tcmalloc with its sampling profiler, which is compared with tcmalloc without it.

Example: python bench/programs/services.py --rounds 7 --json services.json
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))
from driver.stats import interval

HERE = Path(__file__).parent
TCMALLOC = Path("/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4")
CONNECTIONS = 4
START_S = 60.0
"""The longest that a service may take until it answers."""


@dataclass(frozen=True)
class Load:
    """What the clients saw. Latencies in milliseconds."""

    rate: float  # requests per second
    p50: float
    p99: float
    end_s: float = 0.0  # from the request to end until the command has ended


Wrap = Callable[[Sequence[str], Path], list[str]]


def _recorded(*options: str) -> Wrap:
    def wrap(words: Sequence[str], folder: Path) -> list[str]:
        output = str(folder / "service.swt")
        command = [sys.executable, "-m", "spanwise", "record", "--force", "--children"]
        return [*command, *options, "-o", output, "--", *words]

    return wrap


def _plain(words: Sequence[str], folder: Path) -> list[str]:
    return list(words)


def _heaptrack(words: Sequence[str], folder: Path) -> list[str]:
    return ["heaptrack", "-o", str(folder / "heaptrack"), *words]


def _memray(words: Sequence[str], folder: Path) -> list[str]:
    return [words[0], "-m", "memray", "run", "--native", "-f", "-o", str(folder / "m"), *words[1:]]


def _tcmalloc(*variables: str) -> Wrap:
    def wrap(words: Sequence[str], folder: Path) -> list[str]:
        return ["env", f"LD_PRELOAD={TCMALLOC}", *variables, *words]

    return wrap


MODES: dict[str, tuple[Wrap, str]] = {  # how to start it, and the mode it is compared with
    "plain": (_plain, "plain"),
    "sampled": (_recorded("--sample", "512K"), "plain"),
    "full": (_recorded(), "plain"),
    "heaptrack": (_heaptrack, "plain"),
    "memray": (_memray, "plain"),
    "tcmalloc": (_tcmalloc(), "plain"),
    "tcmalloc profiler": (_tcmalloc("TCMALLOC_SAMPLE_PARAMETER=524288"), "tcmalloc"),
}


def is_possible(mode: str, service: str) -> bool:
    """Return whether the tool of the mode is installed and works with the service."""
    if mode == "memray":
        found = subprocess.run(
            [sys.executable, "-c", "import memray"], check=False, capture_output=True
        )
        return service == "cpython" and found.returncode == 0
    if mode == "heaptrack":
        return shutil.which("heaptrack") is not None
    return not mode.startswith("tcmalloc") or TCMALLOC.exists()


# --- services -------------------------------------------------------------------------------------


def _free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def _wait_until(answers: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + START_S
    while True:
        with suppress(OSError, subprocess.CalledProcessError):
            answers()
            return
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"{process.args!r} does not answer")
        time.sleep(0.05)


@contextmanager
def _running(
    words: Sequence[str], folder: Path, end: Callable[[], object]
) -> Iterator[tuple[subprocess.Popen[bytes], list[float]]]:
    """The service; afterwards the list has the seconds that its end took."""
    took: list[float] = []
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            words, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
        try:
            yield process, took
            start = time.perf_counter()
            end()
            process.wait(timeout=600)
            took.append(time.perf_counter() - start)
        finally:
            if process.poll() is None:
                process.kill()


def _output_of(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def redis(wrap: Wrap, folder: Path, scale: float) -> Load:
    """SET and GET of 100-byte values under 100,000 keys."""
    port = str(_free_port())
    words = ["redis-server", "--port", port, "--save", "", "--appendonly", "no"]
    asked = ("redis-cli", "-p", port)
    with _running(
        wrap(words, folder), folder, lambda: _output_of(*asked, "shutdown", "nosave")
    ) as (
        process,
        took,
    ):
        _wait_until(lambda: _output_of(*asked, "ping"), process)
        requests = str(int(200_000 * scale))
        flags = ("-c", str(CONNECTIONS), "-n", requests, "-d", "100", "-r", "100000", "-t")
        said = _output_of("redis-benchmark", "-p", port, *flags, "set,get", "--csv")
    rows = list(csv.DictReader(said.splitlines()))
    rates = [float(row["rps"]) for row in rows]
    middles = [float(row["p50_latency_ms"]) for row in rows]
    slowest = [float(row["p99_latency_ms"]) for row in rows]
    return Load(float(np.mean(rates)), max(middles), max(slowest), took[0])


def _http(words: Sequence[str], wrap: Wrap, folder: Path, requests: int) -> Load:
    port = _free_port()
    url = f"http://127.0.0.1:{port}"

    def get(path: str) -> None:
        with urllib.request.urlopen(url + path, timeout=START_S) as answer:
            answer.read()

    def end() -> None:
        with suppress(OSError):  # it may end before it answers
            get("/quit")

    with _running(wrap([*words, str(port)], folder), folder, end) as (process, took):
        _wait_until(lambda: get("/1"), process)
        table = folder / "latencies.csv"
        flags = ("-q", "-k", "-c", str(CONNECTIONS), "-n", str(requests), "-e", str(table))
        said = _output_of("ab", *flags, url + "/1")
    (rate,) = (line.split()[3] for line in said.splitlines() if "Requests per second" in line)
    with table.open(encoding="utf-8") as lines:
        at = {int(row[0]): float(row[1]) for row in list(csv.reader(lines))[1:]}
    return Load(float(rate), at[50], at[99], took[0])


def node(wrap: Wrap, folder: Path, scale: float) -> Load:
    """Documents of 40 items as JSON."""
    return _http(["node", str(HERE / "service.js")], wrap, folder, int(40_000 * scale))


def cpython(wrap: Wrap, folder: Path, scale: float) -> Load:
    """The same documents."""
    words = [sys.executable, str(HERE / "service.py")]
    return _http(words, wrap, folder, int(10_000 * scale))


def postgres(wrap: Wrap, folder: Path, scale: float) -> Load:
    """Select by key; a process per connection."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1]
    # PostgreSQL refuses to run as root: there it runs in a namespace in which root has another id.
    other = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
    prefix = other if os.geteuid() == 0 else []
    data, port = folder / "data", str(_free_port())
    start = [str(programs / "initdb"), "-D", str(data), "-A", "trust", "-U", "bench", "-N"]
    subprocess.run([*prefix, *start], check=True, capture_output=True)
    words = [str(programs / "postgres"), "-D", str(data), "-p", port, "-k", str(folder)]
    to = ("-h", str(folder), "-p", port, "-U", "bench")

    def end() -> None:
        pid = int((data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, 2)

    with _running([*prefix, *wrap(words, folder)], folder, end) as (process, took):
        _wait_until(lambda: _output_of("pg_isready", *to), process)
        _output_of("pgbench", *to, "-i", "-q", "-s", "2", "postgres")
        each = str(int(10_000 * scale))
        log = folder / "times"
        flags = ("-n", "-S", "-c", str(CONNECTIONS), "-t", each, "-l", f"--log-prefix={log}")
        said = _output_of("pgbench", *to, *flags, "postgres")
    (rate,) = (line.split()[2] for line in said.splitlines() if line.startswith("tps = "))
    us = np.concatenate([np.loadtxt(one, usecols=2) for one in folder.glob("times*")])
    p50, p99 = np.percentile(us, [50, 99]) / 1000
    return Load(float(rate), float(p50), float(p99), took[0])


SERVICES: dict[str, Callable[[Wrap, Path, float], Load]] = {
    "redis": redis,
    "node": node,
    "postgres": postgres,
    "cpython": cpython,
}


# --- the table ------------------------------------------------------------------------------------

FIELDS = ("rate", "p50", "p99")


def _cell(values: Sequence[float]) -> str:
    of = interval(values)
    return f"{of.median:.2f} [{of.low:.2f}, {of.high:.2f}]"


def rows_of(loads: Mapping[tuple[str, str], Sequence[Load]]) -> list[str]:
    """Return the table as lines of Markdown."""
    lines = [
        "| service | mode | requests/s | P50 | P99 | end, s |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for (service, mode), found in loads.items():
        base = MODES[mode][1]
        cells = []
        for name in FIELDS:
            values = [float(getattr(load, name)) for load in found]
            if base == mode:
                unit = "" if name == "rate" else " ms"
                cells.append(f"{interval(values).median:,.4g}{unit}")
            else:
                plain = [float(getattr(load, name)) for load in loads[service, base]]
                cells.append(_cell([a / b for a, b in zip(values, plain, strict=True)]))
        ends = interval([load.end_s for load in found]).median
        lines.append(f"| {service} | {mode} | {' | '.join(cells)} | {ends:.2f} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the table; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--only", default=",".join(SERVICES), metavar="NAME,...", help="services [each]")
    add("--modes", default=",".join(MODES), metavar="MODE,...", help="modes [each]")
    add("--rounds", type=int, default=7, metavar="N", help="runs of each [7]")
    add("--scale", type=float, default=1.0, metavar="X", help="of the number of requests [1]")
    add("--json", type=Path, metavar="FILE", help="write every figure")
    options = parser.parse_args(arguments)
    loads: dict[tuple[str, str], list[Load]] = {}
    chosen = [
        (service, mode)
        for service in options.only.split(",")
        for mode in options.modes.split(",")
        if is_possible(mode, service)
    ]
    for _ in range(options.rounds):
        for service, mode in chosen:
            with tempfile.TemporaryDirectory(prefix="spanwise-services-") as folder:
                load = SERVICES[service](MODES[mode][0], Path(folder), options.scale)
            loads.setdefault((service, mode), []).append(load)
    print("\n".join(rows_of(loads)))
    if options.json:
        found = {f"{a}: {b}": [vars(one) for one in each] for (a, b), each in loads.items()}
        options.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
