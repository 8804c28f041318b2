# SPDX-License-Identifier: Apache-2.0
"""How far the model is from other allocators: their real peaks on replays, and the simulator's.

Each recording is replayed under our preloaded malloc, glibc, jemalloc, mimalloc and tcmalloc, and
accounted under the table that stands for each. Without recordings, programs are recorded.

    ./dev study model-error [FILE.swt ...] [--repeat 5] [-o model_error.json]
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import spanwise as sw
from spanwise.measure.peers import ALL
from spanwise.recordings.recorder import run_recorded

_JSON = "import json; json.loads(json.dumps([{'a': i, 'b': str(i) * 3} for i in range(60000)]))"
_WORDS = "x = {}\nfor i in range(150000): x[str(i * 7919 % 100003)] = (i, str(i))"
_PERL = "my %h; $h{$_ * 7919 % 100003} .= 'v' x ($_ % 40) for 1..200000; print scalar(keys %h)"
_SQL = (
    "create table t(a, b text); with recursive c(i) as (select 1 union all select i + 1 from c"
    " where i < 60000) insert into t select i, hex(i * 7919) from c; create index x on t(b);"
    " select count(*) from t where b like '%7%';"
)
PROGRAMS = {
    "python-json": ("python3", "-c", _JSON),
    "python-dict": ("python3", "-c", _WORDS),
    "perl-hash": ("perl", "-e", _PERL),
    "sqlite": ("sqlite3", ":memory:", _SQL),
}


def recordings(files: list[str], folder: Path) -> Iterator[sw.Recording]:
    """The files, or recordings of PROGRAMS as far as this machine has them."""
    yield from (sw.Recording.open(path) for path in files)
    env = {**os.environ, "PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0"}
    for name, argv in {} if files else PROGRAMS.items():
        if shutil.which(argv[0]) is None:
            print(f"{name}: {argv[0]} is not installed", file=sys.stderr)
            continue
        path = folder / f"{name}.swt"
        with Path(os.devnull).open("w") as nothing:
            run_recorded(argv, path, stacks=0, env=env, stdout=nothing)
        yield sw.Recording.open(path)


def summary(results: list[sw.PeerComparison]) -> str:
    """All recordings in one sentence."""
    same = sum(one.ordered_pairs[0] for one in results)
    pairs = sum(one.ordered_pairs[1] for one in results)
    errors = [abs(row.error) for one in results for row in one.peers if row.error is not None]
    mean = 100 * sum(errors) / len(errors) if errors else 0.0
    return (
        f"{len(results)} recordings: the model puts {same} of {pairs} pairs of allocators in the"
        f" order of their real peaks; mean error {mean:.1f} %"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the study."""
    parser = argparse.ArgumentParser(
        prog="./dev study model-error",
        description=(__doc__ or "").split("\n", 1)[0],
        epilog="example: ./dev study model-error my.swt --repeat 5 -o model_error.json",
    )
    parser.add_argument("files", nargs="*", metavar="FILE.swt")
    parser.add_argument("--repeat", type=int, default=3, metavar="N", help="replays of each (3)")
    parser.add_argument("-o", "--output", metavar="FILE.json", help="all numbers")
    options = parser.parse_args(arguments)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for recording in recordings(options.files, Path(folder)):
            results.append(sw.compare_peers(recording, ALL, repeat=options.repeat))
            print(f"{results[-1]}\n", flush=True)
    if results:
        print(summary(results))
    if options.output:
        content = json.dumps([one.to_dict() for one in results], indent=1)
        Path(options.output).write_text(content + "\n", encoding="utf-8")
    return 0
