# SPDX-License-Identifier: Apache-2.0
"""Slow paths of allocation and free are decided after at most two calls.

The calls are those of the compiled objects, so that what the compiler inlines is no hop.
"""

from __future__ import annotations

import functools
import platform
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Where a fast path is inlined, and how many hops precede it: sw_free_slow and sw_alloc_slow are
# called by the fast paths of spanwise/fast.h, which are in the program, and sw_alloc_tiny by the
# generated paths that pack tiny objects.
FREE_ENTRIES = {"sw_free": 0, "sw_cache_free": 0, "free": 0, "sw_free_slow": 1}
ALLOC_ENTRIES = {
    **dict.fromkeys(("sw_malloc", "sw_calloc", "sw_aligned_alloc", "malloc", "calloc"), 0),
    **dict.fromkeys(("sw_cache_alloc", "sw_cache_alloc_aligned"), 0),
    **dict.fromkeys(("sw_heap_alloc", "sw_heap_alloc_aligned"), 0),
    **dict.fromkeys(("memalign", "aligned_alloc", "posix_memalign", "valloc", "pvalloc"), 0),
    "sw_alloc_slow": 1,
    "sw_alloc_slow_path": 1,
    "sw_alloc_tiny": 1,
}
# Functions that decide; hops after them are not counted. preload_free and preload_alloc serve the
# first call of a thread and tracked heaps, alloc_first the first allocation of a thread.
FREE_DECIDES = {
    "sw_free_checked",
    "free_unmarking",
    "free_unhinted",
    "free_full",
    "announce",
    "preload_free",
}
# Functions that do what their caller has decided: they make a slot an object, clear it, give pages
# back or ask for them early. alloc_tiny calls a path that packs, and sw_alloc_tiny asks for a block
# to pack into: that is an allocation of its own, and an entry.
ALLOC_DOES = {
    "preload_alloc",
    "alloc_first",
    "alloc_tiny",
    "sw_alloc_tiny",
    "sw_object_from_word",
    "sw_object_finish",
    "sw_large_clear",
    "release_locked",
    "populate",
}
# By way of an allocation, the function that takes it: its callers have decided. The next
# word is decided in sw_alloc_slow itself, which notes it by sw_hint_note_word.
WAYS = {
    "next word": "sw_hint_note_word",
    "other words": "sw_span_find_word",
    "next span": "sw_owned_take_partial",
    "remote drain": "sw_remote_drain",
    "central span": "sw_central_take_partial",
    "fresh span": "sw_fresh_span",
    "large object": "sw_fresh_pages",
    "limit": "sw_reclaim_ask_limit",
    "misuse": "sw_report_ended_cache",
}
FREE_SOURCES = {
    "free": "src/heap/free.c",
    "malloc": "src/preload/malloc.c",
    "slow": "src/preload/slow.c",
}
ALLOC_SOURCES = {
    "alloc": "src/heap/alloc.c",
    "refill": "src/heap/refill.c",
    "large": "src/heap/large.c",
    "object": "src/heap/object.c",
    "malloc": "src/preload/malloc.c",
    "slow": "src/preload/slow.c",
}

FUNCTION = re.compile(r"^[0-9a-f]+ <([\w.]+)>:$")
TARGET = re.compile(r"\b(?:call|jmp|j[a-z]{1,3})q?\s+[0-9a-f]+ <([\w.]+)(?:\+0x[0-9a-f]+)?>$")
RELOCATION = re.compile(r"R_X86_64_(?:PLT32|PC32|GOTPCRELX?)\s+(?:\.text\.)?([\w.]+)-0x4$")
# A line after an instruction whose target the linker writes: what objdump shows there is none.
UNRESOLVED = re.compile(r"^\s+[0-9a-f]+: R_X86_64_")


def plain(symbol: str) -> str:
    """Return the name in the source, without suffixes of compilers such as .cold or .part.0."""
    return symbol.split(".", maxsplit=1)[0]


def calls_of(objects: Collection[Path]) -> dict[str, set[str]]:
    """Return function -> the functions that it calls or jumps to, for these objects."""
    calls: dict[str, set[str]] = {}
    for path in objects:
        for name, called in calls_in(path).items():
            calls.setdefault(name, set()).update(called)
    return calls


@functools.lru_cache
def calls_in(path: Path) -> Mapping[str, Collection[str]]:
    """As `calls_of` one object, which is read once."""
    calls: dict[str, set[str]] = {}
    text = subprocess.run(
        ["objdump", "-dr", "--no-show-raw-insn", str(path)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    current = target = ""
    for line in [*text.splitlines(), ""]:
        relocation = RELOCATION.search(line)
        if target and not relocation and not UNRESOLVED.search(line):
            calls[current].add(target)
        target = ""
        if found := FUNCTION.match(line):
            current = plain(found[1])
            calls.setdefault(current, set())
        elif relocation:
            calls[current].add(plain(relocation[1]))
        elif found := TARGET.search(line):
            target = plain(found[1])
    return calls


def most_hops(
    calls: Mapping[str, Collection[str]], entries: Mapping[str, int], decides: Collection[str]
) -> dict[str, int]:
    """Return function -> the length of the longest acyclic path from an entry to it.

    Paths end at functions of `decides`, unless they are entries.
    """
    most: dict[str, int] = {}

    def walk(name: str, hops: int, way: tuple[str, ...]) -> None:
        most[name] = max(most.get(name, 0), hops)
        if name in decides and len(way) > 1:
            return
        for called in calls[name]:
            if called in calls and called not in way:
                walk(called, hops + 1, (*way, called))

    for entry, before in entries.items():
        if entry not in calls:
            raise ValueError(f"no function {entry}: mend the table of entries")
        walk(entry, before, (entry,))
    return most


def compiled(compiler: str, sources: Mapping[str, str], folder: Path) -> list[Path]:
    """Objects of the sources (name: text or file) as a release build makes them."""
    objects = []
    for name, source in sources.items():
        objects.append(folder / f"{name}.o")
        command = [compiler, "-std=gnu11", "-O3", "-DNDEBUG", "-DSW_CHECK=1", "-fPIC"]
        command += ["-fvisibility=hidden", "-fno-semantic-interposition", "-Isrc", "-Iinclude"]
        subprocess.run([*command, "-c", "-o", objects[-1], source], cwd=ROOT, check=True)
    return objects


@pytest.fixture(scope="module", params=["gcc", "clang"])
def compiler(request: pytest.FixtureRequest) -> str:
    found = shutil.which(str(request.param))
    if found is None or shutil.which("objdump") is None:
        pytest.skip(f"{request.param} and objdump are not both installed")
    if platform.machine() != "x86_64":
        pytest.skip("the calls are read from x86-64 code")
    return found


@pytest.fixture(scope="module")
def allocating(compiler: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The objects of ALLOC_SOURCES, by their names."""
    objects = compiled(compiler, ALLOC_SOURCES, tmp_path_factory.mktemp("allocating"))
    return dict(zip(ALLOC_SOURCES, objects, strict=True))


def test_a_free_is_decided_within_two_hops(compiler: str, tmp_path: Path) -> None:
    calls = calls_of(compiled(compiler, FREE_SOURCES, tmp_path))
    hops = most_hops(calls, FREE_ENTRIES, FREE_DECIDES)
    assert set(hops) >= {"sw_free_checked", "free_unmarking", "sw_free_hinted", "preload_free"}
    assert {name: n for name, n in hops.items() if n > 2} == {}


def undecided(objects: Collection[Path]) -> dict[str, int]:
    """Return the paths of an allocation, and their callees, that are more than three calls away."""
    calls = calls_of(objects)
    hops = most_hops(calls, ALLOC_ENTRIES, ALLOC_DOES)
    found = {name: n for name, n in hops.items() if n > 2 and name not in ALLOC_DOES}
    for way, goes in WAYS.items():
        callers = [hops[name] for name in hops if goes in calls[name]]
        assert callers != [], f"{way}: no function calls {goes}: mend the table of ways"
        if max(callers) > 2:
            found[way] = max(callers)
    return found


def test_an_allocation_is_decided_within_two_hops(allocating: dict[str, Path]) -> None:
    assert undecided(allocating.values()) == {}


@pytest.mark.parametrize(
    "case",
    [
        (
            "refill",
            "sw_span *take_span",
            {"next span", "remote drain", "central span", "fresh span"},
        ),
        ("refill", "sw_span *take_unowned", {"central span", "fresh span"}),
        ("refill", "bool may_retry", {"limit"}),
        ("large", "sw_span *take_span", {"large object", "limit"}),
    ],
)
def test_a_third_hop_of_an_allocation_is_found(
    compiler: str,
    allocating: dict[str, Path],
    tmp_path: Path,
    case: tuple[str, str, set[str]],
) -> None:
    source, function, ways = case
    text = (ROOT / ALLOC_SOURCES[source]).read_text(encoding="utf-8")
    start = re.compile(rf"^static (?:sw_always_inline )?{re.escape(function)}\(", re.MULTILINE)
    planted, count = start.subn(f"static sw_noinline {function}(", text)
    assert count == 1
    mutant = tmp_path / f"{source}.c"
    mutant.write_text(planted, encoding="utf-8")
    (changed,) = compiled(compiler, {source: str(mutant)}, tmp_path)
    found = undecided({**allocating, source: changed}.values())
    assert set(found) >= ways | {function.rsplit(maxsplit=1)[-1].removeprefix("*")}


def test_a_third_hop_is_found(compiler: str, tmp_path: Path) -> None:
    source = tmp_path / "three.c"
    source.write_text(
        "#define KEPT __attribute__((noinline))\n"
        "extern void outside(int);\n"
        "static KEPT void third(int x) { outside(x + 3); outside(x); }\n"
        "static KEPT void second(int x) { outside(x + 2); third(x); }\n"
        "static KEPT void first(int x) { if (x > 9) third(x); else second(x); }\n"
        "void entry(int x) { if (x > 5) first(x); }\n",
        encoding="utf-8",
    )
    calls = calls_of(compiled(compiler, {"three": str(source)}, tmp_path))
    assert most_hops(calls, {"entry": 0}, {"third"}) == {
        "entry": 0,
        "first": 1,
        "second": 2,
        "third": 3,
    }
