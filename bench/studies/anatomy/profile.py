# SPDX-License-Identifier: Apache-2.0
"""Every instruction that a case executes, with its stack: callgrind and debug information.

callgrind counts each instruction in each chain of callers (--separate-callers) and names the
instruction of every call, so stacks are exact; inlined functions come from the debug information of
the instruction and of the calls above it. If an entry of a profile calls a function from several
places, the callee's instructions are divided in the ratio that callgrind counted for these calls.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner import children
from runner.counts import find_valgrind
from runner.errors import BenchError

from studies.anatomy.parts import Frame

CALLERS = 40  # frames of a chain; deeper ones would be merged
MEASURED = "measured"


@dataclass
class Entry:
    """A function in one chain of callers.

    Attributes:
        object: the file that has its code.
        own: instructions executed, by address.
        calls: (address of the call, key of the callee's entry, instructions below).
    """

    object: str
    own: dict[int, int] = field(default_factory=dict)
    calls: list[tuple[int, str, int]] = field(default_factory=list)


def parse_profile(text: str) -> dict[str, Entry]:
    """The entries of an uncompressed profile with instruction addresses, by chain of callers.

    A chain is callgrind's: FUNCTION'CALLER'CALLER'S CALLER ...

    Raises:
        BenchError: it is not such a profile.
    """
    if "positions: instr" not in text:
        raise BenchError("callgrind wrote no instruction addresses; it needs --dump-instr=yes")
    entries: dict[str, Entry] = {}
    current = ""
    code = ""
    callee: str | None = None
    for line in text.splitlines():
        key, mark, value = line.partition("=")
        if mark and key == "ob":
            code = value
        elif mark and key == "fn":
            current = value
            entries.setdefault(current, Entry(code))
        elif mark and key == "cfn":
            callee = value
        elif line.startswith("0x"):
            address, _, cost = (word for word in line.split())
            entry = entries[current]
            if callee is None:
                at = int(address, 16)
                entry.own[at] = entry.own.get(at, 0) + int(cost)
            else:
                entry.calls.append((int(address, 16), callee, int(cost)))
                callee = None
    return entries


def collect(program: Path, arguments: list[str]) -> dict[str, Entry]:
    """Runs the program under callgrind, which counts inside measured().

    Raises:
        BenchError: valgrind is missing, or the program failed.
    """
    valgrind = find_valgrind()
    if valgrind is None:
        raise BenchError("valgrind was not found: apt-get install valgrind")
    # Names are bound at the start, since the dynamic linker is no part of an allocation.
    environment = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"} | {"LD_BIND_NOW": "1"}
    with tempfile.TemporaryDirectory(prefix="spanwise-anatomy-") as folder:
        profile = Path(folder) / "profile"
        done = children.run(
            [
                valgrind,
                "--tool=callgrind",
                "--instr-atstart=no",
                "--dump-instr=yes",
                "--compress-strings=no",
                "--compress-pos=no",
                f"--separate-callers={CALLERS}",
                f"--toggle-collect={MEASURED}",
                f"--callgrind-out-file={profile}",
                str(program),
                *arguments,
            ],
            env=environment,
        )
        if done.returncode != 0 or not profile.is_file():
            said = [line for line in done.stderr.splitlines() if not line.startswith("==")]
            last = (said or ["no message"])[-1]
            raise BenchError(f"{program.name} {arguments[0]} ended with {done.returncode}: {last}")
        return parse_profile(profile.read_text(encoding="utf-8"))


# --- debug information ----------------------------------------------------------------------------


def find_symbolizer() -> list[str]:
    """The command that turns addresses into functions and lines, inlined ones included.

    Raises:
        BenchError: there is none.
    """
    for command in (["addr2line"], ["llvm-symbolizer", "--output-style=GNU"]):
        path = shutil.which(command[0])
        if path is not None:
            return [path, *command[1:], "-a", "-i", "-f", "-e"]
    raise BenchError("neither addr2line nor llvm-symbolizer was found: apt-get install binutils")


def parse_symbols(text: str) -> dict[int, tuple[Frame, ...]]:
    """Reads `addr2line -a -i -f`: an address, then function and place from the innermost on."""
    found: dict[int, tuple[Frame, ...]] = {}
    address: int | None = None
    frames: list[Frame] = []
    lines = iter(text.splitlines())
    for line in lines:
        if re.fullmatch(r"0x[0-9a-f]+", line):
            if address is not None:
                found[address] = tuple(reversed(frames))
            address, frames = int(line, 16), []
            continue
        file, _, number = next(lines, "??:0").partition(" (")[0].rpartition(":")
        known = file not in ("", "??")
        frames.append(
            Frame(line, os.path.normpath(file), int(number) if number.isdigit() else 0)
            if known
            else Frame(line)
        )
    if address is not None:
        found[address] = tuple(reversed(frames))
    return found


def symbolize(program: Path, addresses: Iterable[int]) -> dict[int, tuple[Frame, ...]]:
    """The frames of each address of the program, outermost first.

    Raises:
        BenchError: no symbolizer, or the program has no debug information.
    """
    wanted = sorted(set(addresses))
    addresses_text = "".join(f"{address:#x}\n" for address in wanted)
    done = children.run([*find_symbolizer(), str(program)], told=addresses_text)
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise BenchError(f"{program.name}: addresses could not be named: {said}")
    found = parse_symbols(done.stdout)
    if not any(frame.file for frames in found.values() for frame in frames):
        raise BenchError(f"{program} has no debug information: build target bench_anatomy anew")
    return found


# --- stacks ---------------------------------------------------------------------------------------

Stack = tuple[Frame, ...]


def _function(chain: str) -> str:
    return chain.partition("'")[0]


def _root(entries: Mapping[str, Entry]) -> str:
    for chain in entries:
        if _function(chain) == MEASURED:
            return chain
    raise BenchError(f"callgrind saw no function {MEASURED}(): the program has no symbols")


def stacks(entries: Mapping[str, Entry], program: Path) -> dict[Stack, float]:
    """Instructions by stack below measured(), outermost frame first.

    Raises:
        BenchError: no symbolizer, no debug information, no measured().
    """
    own_code = {
        chain for chain, entry in entries.items() if Path(entry.object).name == program.name
    }
    addresses = {at for chain in own_code for at in entries[chain].own}
    addresses |= {at for chain in own_code for at, _, _ in entries[chain].calls}
    frames = symbolize(program, addresses)

    def place(chain: str, address: int) -> Stack:
        if chain in own_code:
            return frames[address]
        library = Path(entries[chain].object).name.partition(".so")[0] or "?"
        return (Frame(f"{_function(chain)} ({library})"),)

    def walk(chain: str, above: Stack, share: float) -> Iterator[tuple[Stack, float]]:
        entry = entries[chain]
        for address, count in entry.own.items():
            yield above + place(chain, address), count * share
        below: dict[str, int] = {}
        for _, callee, count in entry.calls:
            below[callee] = below.get(callee, 0) + count
        for address, callee, count in entry.calls:
            if callee in entries and below[callee] > 0:
                part = share * count / below[callee]
                yield from walk(callee, above + place(chain, address), part)

    root = _root(entries)
    found: dict[Stack, float] = {}
    for _, callee, _ in entries[root].calls:
        for stack, count in walk(callee, (), 1.0):
            found[stack] = found.get(stack, 0.0) + count
    return found
