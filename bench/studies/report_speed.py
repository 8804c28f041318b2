# SPDX-License-Identifier: Apache-2.0
"""How long a report, the attribution of waste and a heap map take, and a browser with the report.

Of recorded programs of some 10 thousand, 1 million and 10 million events, with 8 return addresses a
call: the report and the call sites of what lives at the peak, with names. They are a CPython that
makes and reads JSON, and for few events a bash that fills an array. Of objects that all live at the
end: the heap map, drawn. Each in a process of its own that imports all it needs, as a user's
command does; seconds are of the wall, in the order of the runs. The report's page is then opened in
chromium without a screen, each time with a new profile: from the begin of its loading to the first
picture that the browser paints (Paint Timing, first-contentful-paint) and until the heap map is
drawn and painted.

    ./dev study report-speed [--ops 10000 1000000 10000000] [--objects 1000000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import spanwise as sw
from numpy.typing import NDArray
from spanwise.recordings.recorder import run_recorded

from studies.ledger_speed import json_words

PICTURE_LIMIT = 2.0
"""Seconds that are asked for from the begin of loading a report to its first picture."""

BROWSERS = ("chromium", "chromium-browser", "chrome")
_PROBE = """<script>
requestAnimationFrame(() => requestAnimationFrame(function tell() {
    const paint = performance.getEntriesByName("first-contentful-paint")[0];
    if (paint) console.log(`painted ${paint.startTime} ${performance.now()}`);
    else requestAnimationFrame(tell);
}));
</script></body>"""

LIMITS = {"report": 60.0, "attribution": 60.0, "heap map": 3.0}
"""Seconds that are asked for: of 10 million events, and of a million objects."""

FEW = 200_000
"""Below so many events the program is bash, since a CPython makes about as many before it
begins."""
_BASH_EVENTS = 90
"""Events that bash makes for an element of an array, about."""

_WORK = {
    "report": "spanwise.Recording.open(file).to_html(out + '.html')",
    "attribution": "repr(spanwise.Recording.open(file).live_sites(progress=False).named())",
    "heap map": "spanwise.Recording.open(file).map(at='end', progress=False)"
    ".plot().figure.savefig(out + '.png')",
}
_CHILD = """import json, resource, sys, time
start = time.perf_counter()
import spanwise
file, out = sys.argv[1:]
{work}
used = resource.getrusage(resource.RUSAGE_SELF)
seconds = time.perf_counter() - start
print(json.dumps([seconds, used.ru_utime + used.ru_stime, used.ru_maxrss << 10]))
"""


def live_objects(count: int, seed: int = 1) -> NDArray[np.void]:
    """So many objects of 8 to 2,000 bytes that live to the end, each resized once, at random."""
    draw = np.random.default_rng(seed)
    ops = np.zeros(2 * count, sw.OPS_DTYPE)
    ops["object"][:count] = np.arange(count)
    ops["object"][count:] = draw.permutation(count)
    ops["kind"][count:] = 2
    ops["size"] = draw.integers(8, 2001, 2 * count)
    ops["time_ns"] = np.arange(2 * count) * 50
    return ops


def program_of(ops: int) -> tuple[str, list[str]]:
    """A program that makes about so many events: what it is called, and its command line."""
    if ops < FEW:
        loop = f"for ((i = 0; i < {ops // _BASH_EVENTS}; i++)); do a[i]=$i$i; done"
        return "a bash that fills an array", ["bash", "-c", loop]
    return "a CPython's JSON loop", json_words(ops)


def measure(what: str, file: Path, folder: Path, rounds: int) -> list[tuple[float, float, int]]:
    """Seconds, seconds of processors, and the peak RSS, of each round."""
    words = [sys.executable, "-c", _CHILD.format(work=_WORK[what]), str(file), str(folder / "out")]
    found = []
    for _ in range(rounds):
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{what}: {done.stderr.strip()}")
        seconds, used, most = json.loads(done.stdout.splitlines()[-1])
        found.append((float(seconds), float(used), int(most)))
    return found


def first_pictures(page: Path, folder: Path, rounds: int) -> list[tuple[float, float]]:
    """Seconds to the first picture of a report and to its drawn heap map, of each round.

    Raises:
        RuntimeError: there is no browser, or it did not tell.
    """
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        raise RuntimeError("there is no chromium on this machine")
    probed = folder / "probed.html"
    text = page.read_text(encoding="utf-8")
    probed.write_text(text.replace("</body>", _PROBE), encoding="utf-8")
    words = [
        *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"),
        *("--enable-logging=stderr", "--timeout=60000", f"--screenshot={folder / 'shot.png'}"),
    ]
    found = []
    for i in range(3 * rounds):  # a browser may end before the page has reported
        profile = f"--user-data-dir={folder / f'profile-{i}'}"
        done = subprocess.run(
            [*words, profile, f"file://{probed}"], capture_output=True, text=True, check=False
        )
        told = re.search(r"painted ([\d.]+) ([\d.]+)", done.stderr)
        if told is not None:
            found.append((float(told[1]) / 1e3, float(told[2]) / 1e3))
        if len(found) == rounds:
            return found
    raise RuntimeError(f"{page.name}: the browser told {len(found)} of {rounds} times")


def line_of_pictures(page: Path, folder: Path, rounds: int) -> str:
    """The browser's times beside the target; or why they are not known."""
    try:
        found = first_pictures(page, folder, rounds)
    except RuntimeError as error:
        return f"  first picture not measured: {error}"
    first, drawn = (", ".join(f"{one[i]:.2f}" for one in found) for i in (0, 1))
    size = page.stat().st_size / 1e6
    return (
        f"  first picture {first} s (asked for: {PICTURE_LIMIT:g} s); heap map drawn {drawn} s;"
        f" the page has {size:.2f} MB"
    )


def line_of(what: str, found: Sequence[tuple[float, float, int]]) -> str:
    """What was measured, beside what is asked for."""
    seconds = ", ".join(f"{one[0]:.2f}" for one in found)
    processors = min(one[1] for one in found)
    most = max(one[2] for one in found) / 2**20
    return (
        f"  {what:12} {seconds} s (asked for: {LIMITS[what]:g} s);"
        f" of processors {processors:.2f} s at least; peak RSS {most:.0f} MiB"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints for each number of events report, attribution and first picture; then the map."""
    parser = argparse.ArgumentParser(
        prog="./dev study report-speed",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: ./dev study report-speed --ops 1000000 --rounds 1",
    )
    parser.add_argument(
        "--ops", type=int, nargs="+", default=[10_000, 1_000_000, 10_000_000],
        help="of the recordings, about",
    )  # fmt: skip
    parser.add_argument("--objects", type=int, default=1_000_000, help="that live, of the map")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for ops in options.ops:
            file = folder / f"{ops}.swt"
            what_runs, words = program_of(ops)
            run_recorded(words, file, stacks=8)
            print(f"{what_runs}, {len(sw.Recording.open(file)):,} operations", flush=True)
            for what in ("report", "attribution"):
                print(line_of(what, measure(what, file, folder, options.rounds)), flush=True)
            print(line_of_pictures(folder / "out.html", folder, options.rounds), flush=True)
            file.unlink()
        file = folder / "live.swt"
        sw.Recording.from_ops(live_objects(options.objects), file)
        print(f"{options.objects:,} live objects", flush=True)
        found = measure("heap map", file, folder, options.rounds)
        print(line_of("heap map", found), flush=True)
    return 0
