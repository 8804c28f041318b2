# SPDX-License-Identifier: Apache-2.0
"""What a fast path of free passes on is decided in the second function at the latest.

The calls are those of the compiled objects, so that what the compiler inlines is no hop.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Where free's fast path is inlined, and how many hops lie before: sw_free_slow is called by the
# fast path of spanwise/fast.h, which is in the program.
ENTRIES = {"sw_free": 0, "sw_cache_free": 0, "free": 0, "sw_free_slow": 1}
# Functions that decide. face_free serves the first call of a thread and tracked heaps.
DECIDES = {
    "sw_free_checked",
    "free_unmarking",
    "free_unhinted",
    "free_full",
    "announce",
    "face_free",
}

FUNCTION = re.compile(r"^[0-9a-f]+ <([\w.]+)>:$")
TARGET = re.compile(r"\b(?:call|jmp|j[a-z]{1,3})q?\s+[0-9a-f]+ <([\w.]+)(?:\+0x[0-9a-f]+)?>$")
RELOCATION = re.compile(r"R_X86_64_(?:PLT32|PC32|GOTPCRELX?)\s+(?:\.text\.)?([\w.]+)-0x4$")


def plain(symbol: str) -> str:
    """The name in the source: compilers split functions and add .cold, .part.0 and the like."""
    return symbol.split(".", maxsplit=1)[0]


def calls_of(objects: Collection[Path]) -> dict[str, set[str]]:
    """By function, the functions of these objects that it calls or jumps to."""
    calls: dict[str, set[str]] = {}
    for path in objects:
        text = subprocess.run(
            ["objdump", "-dr", "--no-show-raw-insn", str(path)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        current = ""
        for line in text.splitlines():
            if found := FUNCTION.match(line):
                current = plain(found[1])
                calls.setdefault(current, set())
            elif found := TARGET.search(line) or RELOCATION.search(line):
                calls[current].add(plain(found[1]))
    return {name: {c for c in called if c in calls and c != name} for name, called in calls.items()}


def most_hops(
    calls: Mapping[str, Collection[str]], entries: Mapping[str, int], decides: Collection[str]
) -> dict[str, int]:
    """By function that an entry reaches, the most hops of a way to it without a circle."""
    most: dict[str, int] = {}

    def walk(name: str, hops: int, way: tuple[str, ...]) -> None:
        most[name] = max(most.get(name, 0), hops)
        if name in decides:
            return
        for called in calls[name]:
            if called not in way:
                walk(called, hops + 1, (*way, called))

    for entry, before in entries.items():
        walk(entry, before, (entry,))
    return most


def compiled(compiler: str, sources: Mapping[str, str], folder: Path) -> list[Path]:
    """Objects of the sources (name: text or file) as a release build makes them."""
    objects = []
    for name, source in sources.items():
        objects.append(folder / f"{name}.o")
        command = [compiler, "-std=gnu11", "-O3", "-DNDEBUG", "-DSW_CHECK=1", "-fPIC"]
        command += ["-fvisibility=hidden", "-Isrc", "-Iinclude", "-c", "-o", str(objects[-1])]
        subprocess.run([*command, source], cwd=ROOT, check=True)
    return objects


@pytest.fixture(params=["gcc", "clang"])
def compiler(request: pytest.FixtureRequest) -> str:
    found = shutil.which(str(request.param))
    if found is None or shutil.which("objdump") is None:
        pytest.skip(f"{request.param} and objdump are not both installed")
    if platform.machine() != "x86_64":
        pytest.skip("the calls are read from x86-64 code")
    return found


def test_a_free_is_decided_within_two_hops(compiler: str, tmp_path: Path) -> None:
    sources = {
        "free": "src/heap/free.c",
        "malloc": "src/malloc/malloc.c",
        "slow": "src/malloc/slow.c",
    }
    calls = calls_of(compiled(compiler, sources, tmp_path))
    hops = most_hops(calls, ENTRIES, DECIDES)
    assert set(hops) >= {"sw_free_checked", "free_unmarking", "sw_free_hinted", "face_free"}
    assert {name: n for name, n in hops.items() if n > 2} == {}


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
