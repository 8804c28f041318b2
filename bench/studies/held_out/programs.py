# SPDX-License-Identifier: Apache-2.0
"""The programs of the study held-out: each is recorded twice, with different inputs.

Inputs are made from seeds, or are sources of this project, so a study can be made again. Hash seeds
are fixed; what a program's version and the machine's libraries change is in the recordings.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import spanwise as sw
from spanwise.recordings.recorder import run_recorded

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENT = {"PYTHONHASHSEED": "0", "PERL_HASH_SEED": "0", "LC_ALL": "C"}


@dataclass(frozen=True)
class Program:
    """A program with two inputs.

    Attributes:
        name: for the tables.
        needs: the executable that must be there.
        inputs: what the two runs are given, for people.
        run: records run 0 or 1 in a folder, to a file of that folder.
    """

    name: str
    needs: str
    inputs: tuple[str, str]
    run: Callable[[int, Path], sw.Recording]

    def available(self) -> bool:
        """Whether the executable is there."""
        return shutil.which(self.needs) is not None


def _record(words: Sequence[str], run: int, folder: Path) -> sw.Recording:
    """Records a program; of several processes the one that needs most."""
    outcome = run_recorded(
        words,
        folder / f"run{run}.swt",
        children=True,
        stacks=0,
        env={**os.environ, **ENVIRONMENT},
        cwd=folder,
        stdout=sys.stderr,
    )
    return outcome.recordings().highest()


# --- a C compiler ---------------------------------------------------------------------------------

_SOURCES = ("src/heap/alloc.c", "src/trace/merge.c")


def _compile(run: int, folder: Path) -> sw.Recording:
    words = ["cc", "-O2", "-c", "-D_GNU_SOURCE", f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}"]
    return _record([*words, str(ROOT / _SOURCES[run]), "-o", str(folder / "out.o")], run, folder)


# --- Python ---------------------------------------------------------------------------------------

_JSON = (
    """
import json
rows = [{"id": i, "name": "name %d" % i, "tags": ["t%d" % (i % 7), "u%d" % (i % 11)],
         "score": i * 0.5} for i in range(9000)]
again = json.loads(json.dumps(rows))
print(sum(row["score"] for row in again))
""",
    """
import json
def tree(depth, n):
    if depth == 0:
        return {"leaf": n, "text": "x" * (n % 50), "flags": [True, None, n / 3]}
    return {"node%d" % i: tree(depth - 1, n * 5 + i) for i in range(5)}
text = json.dumps([tree(5, k) for k in range(5)], indent=1)
print(len(json.dumps(json.loads(text))))
""",
)
_OBJECTS = (
    """
class Point:
    __slots__ = ("x", "y", "next")
    def __init__(self, x, y, next): self.x, self.y, self.next = x, y, next
head = None
for i in range(60000):
    head = Point(i * 1.5, str(i), head)
seen = {}
while head is not None:
    seen.setdefault(int(head.x) % 997, []).append(head)
    head = head.next
print(len(seen))
""",
    """
class Node:
    def __init__(self, key):
        self.key, self.left, self.right, self.data = key, None, None, (key, key + 1)
def insert(root, key):
    while True:
        side = "left" if key < root.key else "right"
        child = getattr(root, side)
        if child is None:
            setattr(root, side, Node(key)); return
        root = child
root, key = Node(1 << 30), 12345
for _ in range(25000):
    key = (key * 1103515245 + 12345) % (1 << 31)
    insert(root, key)
words = {frozenset((i, i + 1)): "w%d" % i for i in range(15000)}
print(len(words))
""",
)


def _python(scripts: tuple[str, str]) -> Callable[[int, Path], sw.Recording]:
    def run(number: int, folder: Path) -> sw.Recording:
        script = folder / f"input{number}.py"
        script.write_text(scripts[number], encoding="ascii")
        return _record([sys.executable, str(script)], number, folder)

    return run


# --- Perl, SQLite, Node, Redis --------------------------------------------------------------------

_PERL = (
    """
my %count;
for my $file (@ARGV) {
    open(my $in, '<', $file) or die $!;
    while (my $line = <$in>) { $count{lc $1}++ while $line =~ /(\\w+)/g; }
}
print scalar(keys %count), "\\n";
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print join(' ', @top[0 .. 9]), "\\n";
""",
    """
my (@rows, $seed);
$seed = 7;
for my $i (0 .. 20000) {
    $seed = ($seed * 1103515245 + 12345) % 2147483648;
    push @rows, { id => $i, key => sprintf('%08x', $seed), list => [1 .. $seed % 6] };
}
my @sorted = sort { $a->{key} cmp $b->{key} } @rows;
my $text = join("\\n", map { "$_->{id}:$_->{key}:" . scalar(@{$_->{list}}) } @sorted);
print length($text), "\\n";
""",
)
_SQL = (
    """
create table people (id integer primary key, name text, city text, score real);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 30000)
insert into people select i, 'name ' || i, 'city ' || (i % 97), i * 0.5 from n;
create index by_city on people (city, score);
select city, count(*), avg(score) from people group by city order by 3 desc limit 5;
""",
    """
create table edges (a integer, b integer, note text, primary key (a, b)) without rowid;
with recursive n(i) as (select 1 union all select i + 1 from n where i < 20000)
insert or ignore into edges select i % 811, (i * 7919) % 1013, hex(i * i) from n;
create table log (at integer, what text);
insert into log select a * b, note || note || note from edges;
with recursive reach(x, d) as (select 0, 0 union select b, d + 1 from edges, reach
  where a = x and d < 3) select count(*) from reach;
select count(*) from log l1 join log l2 on l1.at = l2.at and l1.what < l2.what;
""",
)
_NODE = (
    """
const rows = Array.from({length: 40000}, (_, i) => ({id: i, name: 'n' + i, tags: [i % 7, i % 11]}));
const again = JSON.parse(JSON.stringify(rows));
console.log(again.filter(r => r.tags[0] === 3).length);
""",
    """
const {createHash} = require('crypto'); const zlib = require('zlib'); const fs = require('fs');
const words = new Map();
for (let i = 0; i < 3000; i++) {
  const h = createHash('sha256').update('x' + i).digest('hex'); words.set(h, Buffer.from(h));
}
const packed = zlib.deflateSync(Buffer.concat([...words.values()]));
console.log(packed.length, fs.readdirSync('.').length);
""",
)


def _perl(run: int, folder: Path) -> sw.Recording:
    script = folder / f"input{run}.pl"
    script.write_text(_PERL[run], encoding="ascii")
    texts = sorted((ROOT / "docs/design").glob("*.md")) + sorted((ROOT / "src/heap").glob("*.c"))
    words = [str(path) for path in texts] if run == 0 else []
    return _record(["perl", str(script), *words], run, folder)


def _sqlite(run: int, folder: Path) -> sw.Recording:
    script = folder / f"input{run}.sql"
    script.write_text(_SQL[run], encoding="ascii")
    return _record(["sqlite3", ":memory:", f".read {script}"], run, folder)


def _node(run: int, folder: Path) -> sw.Recording:
    script = folder / f"input{run}.js"
    script.write_text(_NODE[run], encoding="ascii")
    return _record(["node", "--single-threaded", str(script)], run, folder)


def _redis(run: int, folder: Path) -> sw.Recording:
    place = folder / "redis.sock"
    client = threading.Thread(target=_drive_redis, args=(place, run), daemon=True)
    client.start()
    words = ["redis-server", "--port", "0", "--unixsocket", str(place), "--save", ""]
    made = _record([*words, "--appendonly", "no", "--loglevel", "warning"], run, folder)
    client.join(timeout=30)
    return made


def _drive_redis(place: Path, run: int) -> None:
    """Sends commands over the server's socket, then asks it to end."""
    with socket.socket(socket.AF_UNIX) as server:
        for _ in range(600):
            try:
                server.connect(str(place))
                break
            except OSError:
                time.sleep(0.05)
        for i in range(12000):
            _ask(server, *_redis_command(run, i))
        _ask(server, "SHUTDOWN", "NOSAVE")


def _redis_command(run: int, i: int) -> tuple[str, ...]:
    if run == 0:
        return ("SET", f"key:{i}", "v" * (i * 7919 % 300))
    if i % 3 == 0:
        return ("HSET", f"user:{i % 700}", f"field{i}", str(i * i))
    return (
        ("ZADD", f"board:{i % 50}", str(i * 31 % 997), f"member:{i}")
        if i % 3 == 1
        else (
            *("RPUSH", f"queue:{i % 90}"),
            "item" * (i % 40),
        )
    )


def _ask(server: socket.socket, *words: str) -> None:
    """One command and its answer (one line is enough for all that are sent here)."""
    parts = [f"*{len(words)}\r\n", *(f"${len(word)}\r\n{word}\r\n" for word in words)]
    server.sendall("".join(parts).encode("ascii"))
    server.recv(4096)


PROGRAMS = (
    Program("C compiler", "cc", _SOURCES, _compile),
    Program("python, JSON", sys.executable, ("rows", "trees"), _python(_JSON)),
    Program("python, small objects", sys.executable, ("list", "tree, sets"), _python(_OBJECTS)),
    Program("perl", "perl", ("counts words", "sorts records"), _perl),
    Program("sqlite3", "sqlite3", ("groups", "joins"), _sqlite),
    Program("node", "node", ("JSON", "hashes, zlib"), _node),
    Program("redis", "redis-server", ("strings", "hashes, lists, sets"), _redis),
)
