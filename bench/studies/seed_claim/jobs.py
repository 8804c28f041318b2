# SPDX-License-Identifier: Apache-2.0
"""Which rows and contenders the seed claim is about."""

from __future__ import annotations

import subprocess
from pathlib import Path

from runner.contenders import Field
from runner.errors import BenchError
from runner.runs import Job

# Bytes of the smallest class that bench/go times, since Go packs smaller objects into shared
# blocks.
GO_LEAST = 16


def class_jobs(build: Path, field: Field) -> list[Job]:
    """Specialised beside generic: Go's four cases, each class of c16 and go, and Go's own.

    Raises:
        BenchError: the program does not list its rows.
    """
    listed = subprocess.run(
        [
            build / "bench_spanwise",
            "--benchmark_list_tests",
            "--benchmark_filter=/(class_[a-z0-9]+|kept|seed)/",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line.split("/")[:3] for line in listed.stdout.splitlines() if line.count("/") >= 2]
    if listed.returncode != 0 or not any(kind == "kept" for _, kind, _ in rows):
        raise BenchError(f"{build / 'bench_spanwise'} lists no class; build it anew")
    jobs: dict[str, list[Job]] = {}
    for policy, kind, name in rows:
        ours = field.ours(policy)
        if ours is not None:
            jobs.setdefault(f"{kind}/{name}", []).append(Job(f"{kind}/{name}", ours))
    for bench, others in jobs.items():
        kind, _, name = bench.partition("/")
        if kind == "seed" or (kind == "kept" and int(name) >= GO_LEAST):
            others += [Job(bench, go) for go in field.peers("go")]
    order = sorted(jobs, key=_class_order)
    return [job for bench in order for job in jobs[bench]]


def _class_order(bench: str) -> tuple[int, str, int]:
    kind, _, name = bench.partition("/")
    return ["seed", "kept"].index(kind) if "_" not in kind else 2, kind, _number(name)


def _number(name: str) -> int:
    return int(name) if name.isdigit() else 0
