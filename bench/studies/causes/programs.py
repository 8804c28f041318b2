# SPDX-License-Identifier: Apache-2.0
"""What the study runs: the programs of ./dev real, and ten more, small ones among them."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from real.launch import environment
from real.measure import prepare, split_runnable
from real.programs import Program, load_programs

_REDIS = """
ln -sf "$(command -v redis-check-rdb)" redis-server
./redis-server --port 0 --unixsocket redis.sock --appendonly no --save "" --jemalloc-bg-thread no &
tries=0
until [ -S redis.sock ] || [ $tries -gt 200 ]; do sleep 0.02; tries=$((tries + 1)); done
redis-cli -s redis.sock --pipe < "$1"
redis-benchmark -s redis.sock -q -n 2000 -c 4 -d 256 -t set,lpush,hset
redis-cli -s redis.sock shutdown nosave
wait
"""


@dataclass(frozen=True)
class Case:
    """A program with its arguments, as it runs in an empty folder.

    Attributes:
        name: row of the page.
        argv: words.
        variables: added to the few that it gets.
    """

    name: str
    argv: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)

    def environment(self, home: Path) -> dict[str, str]:
        """The whole environment of the program."""
        return environment(home, self.variables)


_LINES = "{lines}"
MORE = (
    Case("mawk", ("mawk", "{ count[$1 % 977] += $3 } END { print length(count) }", _LINES)),
    Case("jq", ("jq", "-R", "-s", 'split("\\n") | map(length) | add', _LINES)),
    Case("sort", ("sort", "--parallel=1", "-o", "sorted", _LINES)),
    Case("xz", ("xz", "-T1", "-2", "--stdout", _LINES)),
    Case("bash", ("bash", "-c", "for i in {1..20000}; do a[i]=x$i; done; echo ${#a[@]}")),
    Case("sed", ("sed", "-e", "s/line/word/", _LINES)),
    Case("git", ("git", "hash-object", "--no-filters", _LINES)),
    Case("find", ("find", "/usr/share/doc", "-name", "c*")),
    Case("dpkg-query", ("dpkg-query", "-W")),
    Case("openssl", ("openssl", "genrsa", "1024")),
)


def _write_lines(path: Path) -> None:
    lines = (f"{i * 7919 % 1000003} line {i % 97}\n" for i in range(30_000))
    path.write_text("".join(lines), encoding="ascii")


def _of_real(program: Program, folder: Path, *, quick: bool) -> Case:
    size = program.quick if quick else program.size
    inputs = prepare(program, folder, size)
    if program.driver == "redis":
        argv = ["sh", "-c", _REDIS, "sh", str(inputs / "store.resp")]
    else:
        argv = program.words(program.command, inputs, size)
    return Case(program.name, tuple(argv), program.environment)


def cases(folder: Path, only: list[str], *, quick: bool) -> tuple[list[Case], dict[str, str]]:
    """The cases that this machine can run, with their inputs made; and why others cannot run.

    Args:
        folder: for inputs.
        only: these names; empty: all.
        quick: the programs of ./dev real at the size of its quick run.
    """
    wanted = [one for one in load_programs() if not only or one.name in only]
    programs, skipped = split_runnable(wanted)
    found = [_of_real(one, folder, quick=quick) for one in programs]
    lines = folder / "lines.txt"
    _write_lines(lines)
    for one in MORE:
        if only and one.name not in only:
            continue
        if shutil.which(one.argv[0]) is None:
            skipped[one.name] = f"lacks {one.argv[0]}"
            continue
        argv = tuple(word.replace(_LINES, str(lines)) for word in one.argv)
        found.append(Case(one.name, argv, one.variables))
    return found, skipped
