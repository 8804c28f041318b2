# SPDX-License-Identifier: Apache-2.0
"""Runs long tests: minutes instead of the seconds that ./dev test gives them.

The programs of tests/stress run under libspanwise-malloc.so. `collector` stands
for all collector_*; collector_threads runs under ThreadSanitizer.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
RELEASE, TSAN = "build/release", "build/tsan"
PYTHON = (sys.executable, "-m")

Command = tuple[str, ...]
"""Words that begin with NAME=VALUE, as for env."""

PRELOADED = sorted(path.stem for path in HERE.glob("*.c"))
COLLECTOR: dict[str, list[Command]] = {
    "collector_graphs": [
        (
            *("SPANWISE_GC_GRAPHS=100000", "SPANWISE_GC_FORKS=10000"),
            f"{RELEASE}/test_collector_steps",
        )
    ],
    "collector_concurrent": [
        ("SPANWISE_GC_GRAPHS=100000", f"{RELEASE}/test_collector_mutators"),
        ("SPANWISE_GC_GRAPHS=2000", f"{TSAN}/test_collector_mutators"),
        ("SPANWISE_GC_FORKS=10000", f"{RELEASE}/test_collector_concurrent"),
        ("SPANWISE_GC_FORKS=10000", f"{RELEASE}/test_collector_assists"),
        ("SPANWISE_GC_MODEL=1", f"{RELEASE}/test_collector_protocol"),
    ],
    "collector_refs": [
        ("SPANWISE_GC_GRAPHS=100000", f"{RELEASE}/test_collector_refs"),
        ("SPANWISE_GC_GRAPHS=100000", f"{RELEASE}/test_collector_ephemerons"),
    ],
    "collector_list": [(f"{RELEASE}/test_collector_mark", "10000000")],
    "collector_threads": [
        ("SPANWISE_GC_ROUNDS=100000", f"{TSAN}/test_collector_{name}")
        for name in ("stop", "finalizers")
    ],
}
TESTS: dict[str, list[Command]] = {
    **{
        name: [
            (
                f"LD_PRELOAD={ROOT}/{RELEASE}/libspanwise-malloc.so",
                *(f"{RELEASE}/stress_{name}", "--full"),
            )
        ]
        for name in PRELOADED
    },
    **{
        f"fuzz_range_{backend}": [
            (f"{RELEASE}/fuzz_range_{backend}", "--operations", "14000000"),
        ]
        for backend in ("btree", "treap", "two_treaps", "buddy")
    },
    **COLLECTOR,
    "python_arrays": [(sys.executable, "tests/python/heap/random_heaps.py", "0", "1")],
    "command_faults": [(sys.executable, "tests/python/commands/fault_sweep.py", "--full")],
    "python_files": [(*PYTHON, "tests.fuzz.fuzz_files", "--files", "20000")],
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named tests; return the status of the first that fails."""
    parser = argparse.ArgumentParser(
        prog="./dev stress",
        description=__doc__,
        epilog="example: ./dev stress fork_storm",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [*TESTS, "collector"]
    help_text = f"[all]; one of {', '.join(names)}"
    parser.add_argument("names", nargs="*", metavar="NAME", help=help_text)
    parser.add_argument("--list", action="store_true", help="print the names and exit")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in names]
    if unknown:
        parser.error(f"no test '{unknown[0]}'; use {', '.join(names)}")
    chosen = options.names or list(TESTS)
    chosen = [one for name in chosen for one in (COLLECTOR if name == "collector" else [name])]
    if options.list:
        print(*chosen)
        return 0
    for command in (command for name in chosen for command in TESTS[name]):
        status = subprocess.run(["env", *command], cwd=ROOT, env=os.environ, check=False).returncode
        if status != 0:
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
