# SPDX-License-Identifier: Apache-2.0
"""The programs of the study, each at two inputs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

_JSON = """
import json, sys
for _ in range(4):
    k = json.loads(json.dumps([{"a": i, "b": str(i) * 3} for i in range(int(sys.argv[1]))]))
"""
_DICT = """
import sys
x = {}
for i in range(int(sys.argv[1])):
    x[str(i * 7919 % 100003)] = (i, str(i))
"""
_TEXT = """
import re, sys
w = [("word%d " % (i * 31 % 977)) * (i % 9) for i in range(int(sys.argv[1]))]
c = [re.sub("[aeiou]", "_", t).split() for t in w]
"""
_HASH = "my %h; $h{$_ * 7919 % 100003} .= 'v' x ($_ % 40) for 1..$ARGV[0]; exit(0)"
_SORT = "my @a = map { $_ * 7919 % 1000003 . 'x' } 1..$ARGV[0]; @a = sort @a; exit(0)"
_SQL = (
    "create table t(a, b text); with recursive c(i) as (select 1 union all select i + 1 from c"
    " where i < {n}) insert into t select i, hex(i * 7919) from c; create index x on t(b);"
    " select count(*) from t where b like '%7%';"
)
_LUA = "local t = {} for i = 1, {n} do t[i] = {i, tostring(i), x = i * 7} end"
_AWK = "BEGIN { for (i = 0; i < n; i++) a[i * 7919 % 100003] = a[i % 977] i; print length(a) }"
_NODE = "const m = new Map(); for (let i = 0; i < +process.argv[1]; i++) m.set('k' + i, [i, i]);"
_JQ = 'split("\\n") | map(length) | add'


@dataclass(frozen=True)
class Program:
    """A program with its inputs: {n} and {file}, a text of n lines, stand for the input.

    cxx: it calls operator new of the C++ library.
    """

    name: str
    argv: tuple[str, ...]
    inputs: tuple[int, int]
    cxx: bool = False


PROGRAMS = (
    Program("python-json", ("python3", "-c", _JSON, "{n}"), (6000, 40000)),
    Program("python-dict", ("python3", "-c", _DICT, "{n}"), (20000, 120000)),
    Program("python-text", ("python3", "-c", _TEXT, "{n}"), (6000, 40000)),
    Program("perl-hash", ("perl", "-e", _HASH, "{n}"), (30000, 200000)),
    Program("perl-sort", ("perl", "-e", _SORT, "{n}"), (30000, 200000)),
    Program("sqlite", ("sqlite3", ":memory:", _SQL), (10000, 60000)),
    Program("lua", ("lua5.4", "-e", _LUA), (20000, 150000)),
    Program("mawk", ("mawk", "-v", "n={n}", _AWK), (30000, 200000)),
    Program("jq", ("jq", "-R", "-s", _JQ, "{file}"), (5000, 60000)),
    Program("sort", ("sort", "--parallel=1", "-o", "{file}.sorted", "{file}"), (20000, 300000)),
    Program("xz", ("xz", "--keep", "--force", "-T1", "-2", "{file}"), (5000, 60000)),
    Program("node", ("node", "-e", _NODE, "{n}"), (5000, 100000), cxx=True),
)
QUICK = ("perl-hash", "sort")


def argv_of(program: Program, size: int, folder: Path) -> list[str]:
    """The words of a run, with its input file written."""
    words = []
    for word in program.argv:
        if "{file}" in word:
            file = folder / f"{program.name}-{size}.txt"
            file.write_text("".join(f"{i * 7919 % 1000003} line {i % 97}\n" for i in range(size)))
            words.append(word.replace("{file}", str(file)))
        else:
            words.append(word.replace("{n}", str(size)))
    return words
