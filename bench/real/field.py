# SPDX-License-Identifier: Apache-2.0
"""The contenders: our library, glibc, Debian's allocators, the user's; and proof of who serves."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from runner.contenders import PRELOADS, SPANWISE, Contender, find_library, parse_peer
from runner.errors import BenchError

from real.launch import environment
from real.programs import Program

GLIBC = "glibc"
FACE = "libspanwise-malloc.so"
PROBE_S = 60.0
BINDING = re.compile(r"binding file (\S+) \[0\] to (\S+) \[0\]: .*`malloc'")


def find_contenders(library: Path, peers: Sequence[str]) -> tuple[list[Contender], dict[str, str]]:
    """Glibc first (it gives the expected output), then ours, then the peers.

    glibc is preloaded like everyone: Debian's redis-server is linked with jemalloc, and would use
    that otherwise.

    Args:
        library: our libspanwise-malloc.so.
        peers: NAME=PATH[@VERSION], added or in place of Debian's of that name.

    Returns:
        The contenders, and who is missing (name: how to get it).

    Raises:
        BenchError: ours or a named peer is not there.
    """
    if not library.is_file():
        raise BenchError(f"{library} is missing: build it with ./dev real, or name it by --library")
    libc = find_library("libc.so.6")
    if libc is None:
        raise BenchError("libc.so.6 cannot be preloaded; this needs Linux with glibc")
    found = [_contender(GLIBC, libc), _contender(SPANWISE, library.resolve())]
    missing: dict[str, str] = {}
    named = {peer[0]: _contender(*peer) for peer in map(parse_peer, peers)}
    for taken in (GLIBC, SPANWISE):
        if taken in named:
            raise BenchError(f"--peer {taken}=...: the name is taken; use another")
    for name, (soname, package) in PRELOADS.items():
        if name in named:
            continue
        path = find_library(soname)
        if path is None:
            missing[name] = f"apt-get install {package}"
        else:
            found.append(_contender(name, path))
    return [*found, *named.values()], missing


def _contender(name: str, path: Path, version: str = "") -> Contender:
    made = Contender(name, "preload", path, "", path, version)
    return made if version else replace(made, version=_debian_version(path))


def _debian_version(path: Path) -> str:
    """Version of the Debian package that has a file; "" when there is none."""
    for name in (path, Path("/usr") / path.relative_to("/") if path.is_absolute() else path):
        owner = _output(["dpkg-query", "-S", str(name)]) or _output(
            ["dpkg-query", "-S", str(name.resolve())]
        )
        if owner:
            package = owner.splitlines()[0].rsplit(": ", 1)[0].split(", ")[0]
            return _output(["dpkg-query", "-W", "-f", "${Version}", package])
    return ""


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout if done.returncode == 0 else ""


# --- proof ----------------------------------------------------------------------------------------


def served(program: Program, contender: Contender) -> str:
    """Whether every process of a program takes malloc from the contender.

    The dynamic linker tells where it bound the symbol (LD_DEBUG=bindings, ld.so(8)). A static
    program, or one that keeps an allocator of its own, would otherwise be "identical" for nothing.

    Returns:
        "" when it is so, else what was seen.
    """
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "bound"
        linker = {"LD_DEBUG": "bindings", "LD_DEBUG_OUTPUT": str(log), "LD_BIND_NOW": "1"}
        variables = environment(Path(folder), {**program.environment, **linker})
        variables["LD_PRELOAD"] = str(contender.preload)
        try:
            done = subprocess.run(
                program.words(program.probe),
                cwd=folder,
                env=variables,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=PROBE_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return f"its probe did not run: {error}"
        logs = [path.read_text(errors="replace") for path in Path(folder).glob("bound.*")]
    if done.returncode != 0:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["no message"])[-1]
        return f"its probe ended with status {done.returncode}: {said}"
    return judge_bindings(logs, contender.program.resolve())


def judge_bindings(logs: Sequence[str], library: Path) -> str:
    """Reads the dynamic linker's logs, one a process; "" when all malloc is the library's.

    Args:
        logs: lines `binding file A [0] to B [0]: normal symbol `malloc'`.
        library: its real path.
    """
    looked = False
    for log in logs:
        pairs = set(BINDING.findall(log))
        direct = {file for file, target in pairs if Path(target).resolve() == library}
        for file, target in sorted(pairs):
            # Other objects may bind malloc to the PLT entry of an executable at a fixed address,
            # which the executable itself has bound.
            if file not in direct and target not in direct:
                return f"{Path(file).name} takes malloc from {target}"
        looked = looked or bool(pairs)
    return "" if looked else "no process of it looked malloc up: it is linked statically"
