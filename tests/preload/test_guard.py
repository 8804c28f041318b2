# SPDX-License-Identifier: Apache-2.0
"""SPANWISE_PROTECT: which mistakes are found, and where; programs without one run as before."""

from __future__ import annotations

import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

from tests.preload.tools import Preload
from tests.python.helpers import ROOT

PROFILES = ("default", "hardened", "paranoid")
SIZES = (24, 32, 3000, 100_000, 200_000)
"""With a tail of 8 bytes up to the next multiple of 16, without one, and of whole pages, which are
held from 128 KiB on."""

SILENT = "-"
DOUBLE = ("DOUBLE_FREE free",) * 3
# A page of its own ends with the object if the size is a multiple of 16.
AT_THE_END = ("OVERFLOW free", "OUT_OF_BOUNDS write", *("OVERFLOW free",) * 3)
HELD = "USE_AFTER_FREE write"
UNUSED = (HELD, HELD, HELD, "WRITE_AFTER_FREE malloc", HELD)

FOUND: dict[str, tuple[str | tuple[str, ...], ...]] = {
    "nothing": (SILENT, SILENT, SILENT),
    "write_to_slack": (SILENT, SILENT, SILENT),
    "overflow_0": (SILENT, "OVERFLOW free", AT_THE_END),
    "overflow_1": (SILENT, "OVERFLOW free", AT_THE_END),
    "overflow_8": (SILENT, "OVERFLOW free", AT_THE_END),
    "overflow_32": (
        SILENT,
        "OVERFLOW free",
        ("OUT_OF_BOUNDS write",) * 3 + ("OVERFLOW free",) * 2,
    ),
    "overflow_found_by_realloc": (
        SILENT,
        "OVERFLOW realloc",
        ("OVERFLOW realloc", "OUT_OF_BOUNDS write", *("OVERFLOW realloc",) * 3),
    ),
    # The bytes before an object are the canary of the slot before, if that reaches its end.
    "underflow_1": (SILENT, ("OVERFLOW free", "OVERFLOW free", SILENT, SILENT, SILENT), SILENT),
    "underflow_8": (SILENT, ("OVERFLOW free", "OVERFLOW free", SILENT, SILENT, SILENT), SILENT),
    "overread": (SILENT, SILENT, (SILENT, "OUT_OF_BOUNDS read", SILENT, SILENT, SILENT)),
    "write_after_free": (
        SILENT,
        ("WRITE_AFTER_FREE free",) * 2 + ("WRITE_AFTER_FREE malloc",) * 2 + (HELD,),
        UNUSED,
    ),
    "read_after_free": (
        SILENT,
        (SILENT,) * 4 + ("USE_AFTER_FREE read",),
        ("USE_AFTER_FREE read",) * 3 + (SILENT, "USE_AFTER_FREE read"),
    ),
    "double_free": DOUBLE,
    "double_free_later": DOUBLE,
    "double_free_by_thread": DOUBLE,
    "free_inside": ("INTERIOR free",) * 3,
    "free_odd": ("INTERIOR free",) * 3,
    "free_of_stack": ("FOREIGN free",) * 3,
    # Large objects grow in place by default, and then the free is right.
    "free_after_realloc": (("DOUBLE_FREE free",) * 3 + (SILENT,) * 2, *DOUBLE[1:]),
    "realloc_after_free": ("DOUBLE_FREE realloc",) * 3,
    "usable_after_free": (
        "DOUBLE_FREE usable_size",
        *("DOUBLE_FREE malloc_usable_size",) * 2,
    ),
    "write_to_size_0": (SILENT, *("OUT_OF_BOUNDS write",) * 2),
    "read_of_size_0": (SILENT, *("OUT_OF_BOUNDS read",) * 2),
    "double_free_of_size_0": DOUBLE,
    "delete_of_malloc": (SILENT, *("MISMATCHED_FREE delete",) * 2),
    "delete_array_of_malloc": (SILENT, *("MISMATCHED_FREE delete[]",) * 2),
    "free_of_new": (SILENT, *("MISMATCHED_FREE free",) * 2),
    "free_of_new_array": (SILENT, *("MISMATCHED_FREE free",) * 2),
    "delete_of_new_array": (SILENT, *("MISMATCHED_FREE delete",) * 2),
    "delete_array_of_new": (SILENT, *("MISMATCHED_FREE delete[]",) * 2),
    "delete_of_right_size": (SILENT, SILENT, SILENT),
    "delete_of_larger_size": (SILENT, *("SIZE_MISMATCH delete",) * 2),
    "delete_of_smaller_size": (SILENT, *("SIZE_MISMATCH delete",) * 2),
    "delete_array_of_wrong_size": (SILENT, *("SIZE_MISMATCH delete[]",) * 2),
    "delete_of_array_of_wrong_size": (SILENT, *("SIZE_MISMATCH delete",) * 2),
    "double_delete_as_array": (
        (
            "DOUBLE_FREE delete[]",
            "DOUBLE_FREE delete[]",
            "DOUBLE_FREE free",
            "DOUBLE_FREE delete[]",
            "DOUBLE_FREE delete[]",
        ),
        *("DOUBLE_FREE delete[]",) * 2,
    ),
    "free_after_delete": DOUBLE,
}
"""By mistake: what each profile reports, as code and call; a tuple: by size."""


def found(mistake: str, profile: str, size: int) -> str:
    said = FOUND[mistake][PROFILES.index(profile)]
    return said if isinstance(said, str) else said[SIZES.index(size)]


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("mistake", FOUND)
def test_mistake(preload: Preload, mistake: str, profile: str) -> None:
    program = preload.program("misuse.cpp")
    for size in SIZES:
        done = preload.run([program, mistake, str(size)], PROTECT=profile)
        expected = found(mistake, profile, size)
        if expected == SILENT:
            assert (done.returncode, done.stdout, done.stderr) == (0, "survived\n", ""), size
            continue
        code, op = expected.split()
        line = rf"spanwise: fatal: {code} op={re.escape(op)} ptr=0x\w+ size=\d+ heap=\d thread=\d+"
        assert re.fullmatch(line, done.stderr.splitlines()[0]), (size, done.stderr)
        assert done.returncode == -signal.SIGABRT and done.stdout == ""


def test_the_page_has_the_table() -> None:
    page = (ROOT / "docs/design/guard.md").read_text(encoding="utf-8")
    for mistake in FOUND:
        rows = [[found(mistake, one, size).split()[0] for size in SIZES] for one in PROFILES]
        cells = [", ".join(row if len(set(row)) > 1 else row[:1]) for row in rows]
        assert f"| {mistake} | {' | '.join(cells)} |" in page


def test_every_mistake_of_the_program_is_in_the_table() -> None:
    source = (Path(__file__).parent / "misuse.cpp").read_text(encoding="utf-8")
    assert re.findall(r'^    \{"(\w+)",', source, re.M) == list(FOUND)


@pytest.mark.parametrize(
    "alone", ["canary", "zero", "hold", "empty", "match", "sample", "random", "pages"]
)
def test_each_protection_works_alone(preload: Preload, alone: str) -> None:
    program = preload.program("misuse.cpp")
    assert preload.run([program, "nothing", "24"], PROTECT=alone).stdout == "survived\n"
    finds = {
        "canary": "overflow_1",
        "zero": "write_after_free",
        "empty": "write_to_size_0",
        "match": "free_of_new",
        "pages": "read_after_free",
    }
    for protection, mistake in finds.items():
        done = preload.run([program, mistake, "24"], PROTECT=alone)
        # A page of its own shows the overflow and the use, too.
        expected = protection == alone or (alone == "pages" and protection in ("canary", "zero"))
        assert (done.returncode != 0) == expected, (protection, done.stderr)


def test_a_report_has_the_stacks_of_a_sampled_object(preload: Preload) -> None:
    done = preload.run([preload.program("misuse.cpp"), "read_after_free", "24"], PROTECT="pages")
    lines = done.stderr.splitlines()
    heads = [i for i, line in enumerate(lines) if " by thread " in line]
    assert [re.sub(r"\d+", "N", lines[i]) for i in heads] == [
        "spanwise: allocated by thread N at",
        "spanwise: freed by thread N at",
    ]
    for head in heads:
        assert re.fullmatch(r"spanwise:   0x[0-9a-f]+", lines[head + 1])


def test_one_of_8192_objects_is_sampled(preload: Preload) -> None:
    """The distances are uniform around 8192, so their count has less variance than Poisson's."""
    command = [preload.program("memory.c"), "sampled"]
    expected = 1_000_000 / 8192
    sampled = int(preload.run([*command, "1000000"], PROTECT="sample,match").stdout)
    assert abs(sampled - expected) < 5 * expected**0.5
    # Alone, sampling is limited to one object per millisecond, too.
    sampled = int(preload.run([*command, "1000000"], PROTECT="sample").stdout)
    assert 0 < sampled < expected + 5 * expected**0.5
    assert preload.run([*command, "1000"], PROTECT="pages").stdout == "1000\n"


@pytest.mark.parametrize("protect", ["sample", "sample,match"])
def test_sampled_objects(preload: Preload, protect: str) -> None:
    """Without another protection, threads keep the inline paths, and frees find the object late."""
    command = [preload.program("memory.c"), "sampled_use"]
    done = preload.run([*command, "well"], PROTECT=protect)
    assert (done.returncode, done.stdout, done.stderr) == (0, "used\n", "")
    found = {
        "read": "USE_AFTER_FREE op=read",
        "double": "DOUBLE_FREE op=free",
        "over": "OUT_OF_BOUNDS op=write",
        "size": "SIZE_MISMATCH op=free_sized",
    }
    for how, report in found.items():
        done = preload.run([*command, how], PROTECT=protect)
        line = rf"spanwise: fatal: {report} ptr=0x\w+ size=4080 heap=1 thread=\d+"
        assert re.fullmatch(line, done.stderr.splitlines()[0]), done.stderr
        assert done.returncode == -signal.SIGABRT and done.stdout == ""
        stacks = ["allocated", "freed"] if how in ("read", "double") else ["allocated"]
        heads = re.findall(r"^spanwise: (\w+) by thread \d+ at$", done.stderr, re.M)
        assert heads == stacks


PROGRAMS = {
    "threads": ["memory.c", "births", "16", "16"],
    "sqlite3": [
        "sqlite3",
        ":memory:",
        "with recursive c(x) as (select 1 union all select x+1 from c where x<20000)"
        " select count(*), sum(length(hex(x))), group_concat(x, '') from c",
    ],
    "forks": ["sh", "-c", "for i in 1 2 3; do echo $(echo $i | sed s/2/two/ | cat); done"],
    "python": [sys.executable, "-c", "import json; print(json.dumps([{'a': 1.5}] * 5000)[:80])"],
}


@pytest.mark.parametrize("profile", [*PROFILES[1:], "sample"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_without_a_mistake(preload: Preload, name: str, profile: str) -> None:
    words = PROGRAMS[name]
    if shutil.which(words[0]) is None and not words[0].endswith(".c"):
        pytest.skip(f"{words[0]} is not installed")
    command = [preload.program(words[0]), *words[1:]] if words[0].endswith(".c") else words
    variables = {"PYTHONMALLOC": "malloc"} if name == "python" else {}
    command = ["env", *(f"{k}={v}" for k, v in variables.items()), *command]
    plain = preload.run(command)
    done = preload.run(command, PROTECT=profile)
    assert (done.returncode, done.stdout, done.stderr) == (0, plain.stdout, plain.stderr)


def test_an_unknown_protection_is_named(preload: Preload) -> None:
    done = preload.run(["true"], PROTECT="canary,safe")
    assert done.returncode == 0
    assert done.stderr == (
        "spanwise: malloc: SPANWISE_PROTECT=canary,safe is not hardened, paranoid, or some of"
        " canary, zero, hold, empty, match, sample, random and pages; using none\n"
    )
