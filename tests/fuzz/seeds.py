# SPDX-License-Identifier: Apache-2.0
"""Small whole files of every kind that is read, from which damaged ones are made."""

from __future__ import annotations

import json
import struct
import tempfile
from pathlib import Path

import numpy as np
import spanwise as sw
from spanwise.recordings import conversion
from spanwise.recordings.sources import write_ops

from tests.python.gc.test_gctrace import ONE as GC_LINE
from tests.python.gc.test_gctrace import SAMPLES, THREE, TWO
from tests.python.recordings.import_tools import profile, sample
from tests.python.recordings.test_conversion import MTRACE, PAIRS, RAW, TRACE
from tests.python.recordings.test_import_go import WHOLE
from tests.python.sweeps.test_rows import GO, HEAD, ROW, RUN, RUNS

ROOT = Path(__file__).resolve().parents[2]
_HERE = Path(__file__).with_name("seeds")

_ARENA = {
    "bins": [{"curregs": 3, "nmalloc": 9, "nrequests": 9}, {"curregs": 0, "nmalloc": 2}],
    "large": {"allocated": 16384, "nmalloc": 5, "ndalloc": 4, "nrequests": 5},
    "lextents": [{"curlextents": 1, "nmalloc": 5}],
}
_ARENA["bins"][1]["nrequests"] = 2  # type: ignore[index]
_STATISTICS = {
    "jemalloc": {
        "version": "5.3.0",
        "arenas": {"bin": [{"size": 8}, {"size": 16}], "lextent": [{"size": 16384}]},
        "stats.arenas": {"0": _ARENA, "1": _ARENA},
    }
}
_TEXT_HEAPS = (
    b"heap profile: 3: 150 [ 10: 1000] @ heap/1048576\n"
    b"1: 48 [2: 96] @ 0x401000 0x402000\n#\t0x401000\tmain.f+0x20\t/a/main.go:7\n\n"
    b"2: 102 [8: 904] @ 0x401000\n\n# runtime.MemStats\n# Alloc = 150\n",
    b"heap profile:      2:      200 [     5:      500] @ heapprofile\n"
    b"     2:      200 [     5:      500] @ 0x4005d4 0x7f0011223344\n\n"
    b"MAPPED_LIBRARIES:\n00400000-00401000 r-xp 00000000 08:01 1234       /usr/bin/true\n",
    b"heap_v2/524288\n  t*: 3: 300 [4: 400]\n  t0: 3: 300 [4: 400]\n"
    b"@ 0x4005d4 0x4005f0\n  t*: 3: 300 [4: 400]\n  t0: 3: 300 [4: 400]\n\n"
    b"MAPPED_LIBRARIES:\n00400000-00401000 r-xp 00000000 08:01 1234       /usr/bin/true\n",
)
_TIMES = "1: malloc 0x10 8 500 510\n1: free 0x10 490 495\n1: thread_done 0x0 900\n"


def _imported() -> list[bytes]:
    """A file or more of each form; one that no form knows is another's damage."""
    four = ("alloc_objects", "alloc_space", "inuse_objects", "inuse_space")
    plain = (sample(3, 150, label=48), sample(4, 101, packed=False))
    return [
        *(one.encode() for one in (TRACE, _TIMES, MTRACE, PAIRS, RAW)),
        *(profile(*plain), profile(sample(10, 1000, 2, 200), types=four), WHOLE),
        b"{1} hello\n" + json.dumps(_STATISTICS).encode(),
        *_TEXT_HEAPS,
    ]


def _recordings() -> list[bytes]:
    """Ours: by the recorder in its raw form and ordered, and of operations."""
    data = ROOT / "tests/data"
    ops = np.zeros(60, sw.OPS_DTYPE)
    ops["object"] = np.arange(60) % 20
    ops["size"] = np.arange(60) * 7
    ops["time_ns"] = np.arange(60) * 1000
    ops["kind"][20:40], ops["size"][20:40] = 1, 0
    ops["site"] = ops["object"] % 3
    ops["thread"] = np.arange(60) % 2
    with tempfile.TemporaryDirectory() as folder:
        sw.Recording.from_ops(ops, path := Path(folder, "a.swt"))
        odd = [("program", "\udcff<b>\x1b[31m"), ("remark", "\udc80"), ("program", "a\nb")]
        write_ops(other := Path(folder, "b.swt"), iter([ops]), odd)
        made = [path.read_bytes(), other.read_bytes()]
    return [*made, (data / "births.swt").read_bytes()]


def _lines(*values: object) -> bytes:
    return b"".join(json.dumps(one).encode() + b"\n" for one in values)


def _program() -> bytes:
    """An ELF file of 64 bits with a loader, a needed library, two functions and a build id."""
    names = b"\0.symtab\0.strtab\0.note.gnu.build-id\0.shstrtab\0.dynamic\0"
    strings = b"\0f\0main\0libc.so.6\0"
    loader = b"/lib64/ld-linux-x86-64.so.2\0"
    symbols = b"\0" * 24 + b"".join(
        struct.pack("<IBBHQQ", name, 2, 0, 1, address, 16)
        for name, address in ((1, 0x1000), (3, 0x1010))
    )
    note = struct.pack("<III", 4, 8, 3) + b"GNU\0" + bytes(range(8))
    parts, at = [loader, symbols, strings, note, names], 64 + 3 * 56
    dynamic = struct.pack("<QQQQQQ", 1, 8, 5, at + len(loader) + len(symbols), 0, 0)
    parts.append(dynamic)
    places = []
    for part in parts:
        places.append(at)
        at += len(part)
    heads = ((3, 0), (2, 5))
    segments = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, at, at, 4096) + b"".join(
        struct.pack("<IIQQQQQQ", kind, 4, places[i], places[i], 0, len(parts[i]), len(parts[i]), 1)
        for kind, i in heads
    )
    sections = bytes(64) + b"".join(
        struct.pack("<IIQQQQIIQQ", name, kind, 0, 0, places[i], len(parts[i]), link, 0, 1, 0)
        for name, kind, i, link in ((1, 2, 1, 2), (9, 3, 2, 0), (17, 7, 3, 0), (36, 3, 4, 0))
    )
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0x1000, 64, at, 0, 64, 56, 3, 64, 5, 4)
    return head + segments + b"".join(parts) + sections


def seeds() -> dict[str, list[bytes]]:
    """The files by the names of `readers.READERS`. A form without one gets those of all forms."""
    forms: dict[str, list[bytes]] = {form: [] for form in conversion.FORMS}
    imported = _imported()
    for one in imported:
        form = conversion._recognized(one)
        if form is not None:
            forms[form].append(one)
    recordings = _recordings()
    gc = [SAMPLES.read_bytes(), "\n".join([GC_LINE, TWO, f"app-1  | {THREE}", GC_LINE]).encode()]
    table = json.dumps({**sw.SizeClassTable.c16().to_dict(), "parameters": {"condemned": "no"}})
    failed = {**ROW, "error": "cut", "held_bytes": None, "at": 1.5}
    case = {"program": "ls", "input": "/", "argv": ["ls", "/"], "environment": {"A": "b"}}
    stamp = {"spanwise": sw.__version__, "table": GO, "link": ["-lm"]}
    return {
        **{f"convert {form}": found or imported for form, found in forms.items()},
        "recording": recordings,
        "recording, called": recordings,
        "gctrace": gc,
        "table": [table.encode()],
        "sweep": [_lines(HEAD, ROW, failed), _lines(HEAD, ROW, ROW)],
        "bench": [_lines(RUNS, RUN, {**RUN, "round": 1, "cpu_ns": None}), _lines(RUNS, RUN, RUN)],
        "process ledger": [(_HERE / "process-ledger.json").read_bytes()],
        "cases": [json.dumps([case, {"argv": ["true"]}]).encode()],
        "build": [json.dumps(stamp).encode()],
        "program": [_program()],
    }
