# SPDX-License-Identifier: Apache-2.0
"""The size-class generator: Go's numbers, stale outputs, table files, properties, generated C."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "sizeclasses.py"
sys.path.insert(0, str(SCRIPT.parent))

from sizeclasses_lib import cli, emit_c, emit_text, families, proofs, rules  # noqa: E402
from sizeclasses_lib.model import (  # noqa: E402
    SLOTS_MAX,
    Parameters,
    ProofError,
    SizeClass,
    SizeClassError,
    Table,
    division_is_exact,
    magic_of,
)
from sizeclasses_lib.procedure import make_table  # noqa: E402
from sizeclasses_lib.tablefile import dump_table, load_table  # noqa: E402

GO_NUMBERS = json.loads((ROOT / "tests/data/go-sizeclasses.json").read_text())
GO = make_table(Parameters("go"))
C16 = make_table(Parameters("16"))


def run_script(*args: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


# --- the built-in tables --------------------------------------------------------------------------


def test_go_equals_go_in_every_column() -> None:
    result = run_script("--table", "go", "--format", "json")
    assert result.returncode == 0
    ours = json.loads(result.stdout)
    assert list(ours) == list(GO_NUMBERS)
    assert ours["classes"] == GO_NUMBERS["classes"]
    assert [list(row) for row in ours["classes"]] == [list(row) for row in GO_NUMBERS["classes"]]
    for key in ("page_bytes", "max_small", "small_size_div", "small_size_max", "large_size_div"):
        assert ours[key] == GO_NUMBERS[key]


def go_source() -> str:
    """The size classes of the Go toolchain on this machine, if it is the release copied here."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("no Go toolchain")
    command = [go, "env", "GOROOT", "GOVERSION"]
    environment = {**os.environ, "GOTOOLCHAIN": "local"}
    root, version = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    if version != "go1.26.8":
        pytest.skip(f"{version} is not the release that the table is exact to (go1.26.8)")
    return (Path(root) / "src/internal/runtime/gc/sizeclasses.go").read_text()


def go_array(source: str, name: str) -> list[int]:
    match = re.search(rf"var {name} = \[[^\]]*\]\w+{{([^}}]*)}}", source)
    assert match is not None
    return [int(item, 0) for item in match[1].split(",") if item.strip()]


def test_go_equals_the_toolchain_source() -> None:
    source = go_source()
    comment = [line[3:] for line in source.splitlines() if re.match(r"// +\d.*%", line)]
    assert [line.split() for line in emit_text.text_lines(GO)[1:]] == [s.split() for s in comment]
    assert go_array(source, "SizeClassToSize") == [0, *(c.size for c in GO.classes)]
    assert go_array(source, "SizeClassToNPages") == [0, *(c.pages for c in GO.classes)]
    divisors = re.findall(r"\^uint32\(0\)/(\d+) ?\+ ?1\b", source)
    magics = [0xFFFFFFFF // int(divisor) + 1 for divisor in divisors]
    assert magics == [magic_of(c.size) for c in GO.classes]
    # Go's maps say 0 for size 0 and have a class for each further step.
    assert go_array(source, "SizeToSizeClass8")[1:] == list(GO.small_map[1:])
    assert go_array(source, "SizeToSizeClass128") == list(GO.large_map)


def test_c16_is_go_without_24() -> None:
    assert C16.classes == tuple(c for c in GO.classes if c.size != 24)
    assert all(c.size % 16 == 0 for c in C16.classes[1:])
    worst = {r.size: r.max_waste_pct for r in C16.rows if r.max_waste_pct > 26.6}
    assert worst == {8: 87.5, 16: 43.75, 32: 46.88, 48: 31.52}


@pytest.mark.parametrize(
    ("size", "slot"),
    [(0, 8), (1, 8), (8, 8), (33, 48), (40, 48), (66, 80), (1024, 1024), (1025, 1152)],
)
def test_go_examples(size: int, slot: int) -> None:
    assert GO.classes[GO.class_of(size) - 1].size == slot


def test_list_names_every_table() -> None:
    result = run_script("--list")
    assert [line.split()[0] for line in result.stdout.splitlines()] == list(families.NAMES)
    assert f"hash {C16.hash:016x}" in result.stdout


def test_hash_is_fnv1a_of_its_definition() -> None:
    value = 0xCBF29CE484222325
    for word in [8192, 16, 1, 32, 2]:
        for byte in word.to_bytes(4, "little"):
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    assert Table("t", 8192, (SizeClass(16, 1), SizeClass(32, 2))).hash == value


# --- checked-in outputs ---------------------------------------------------------------------------


def test_check_passes_here() -> None:
    result = run_script("--check", cwd=Path("/"))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of every checked-in output."""
    for name in cli.checked_in_outputs():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", list(cli.checked_in_outputs()))
def test_check_names_a_tampered_file(
    tree: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--check", "--root", str(tree)]) == 0
    data = bytearray((tree / name).read_bytes())
    data[-2] ^= 1
    (tree / name).write_bytes(data)
    assert cli.main(["--check", "--root", str(tree)]) == 1
    expected = f"sizeclasses: {name}: stale; run scripts/sizeclasses.py --write\n"
    assert capsys.readouterr().err == expected
    (tree / name).unlink()
    assert cli.main(["--check", "--root", str(tree)]) == 1
    assert f"{name}: can not be read (No such file or directory)" in capsys.readouterr().err
    assert cli.main(["--write", "--root", str(tree)]) == 0
    assert cli.main(["--check", "--root", str(tree)]) == 0


def test_generated_heads() -> None:
    for name, text in cli.checked_in_outputs().items():
        assert "do not edit" in text[:200], name
        assert "python3 scripts/sizeclasses.py --write" in text[:300], name
        assert text.endswith("\n")
        if not name.endswith(".md"):
            assert text.startswith("/* SPDX-License-Identifier: Apache-2.0 */\n")
            assert max(map(len, text.splitlines())) <= 100, name
        assert str(ROOT) not in text


# --- table files ----------------------------------------------------------------------------------

FINE = {"name": "mine", "page_bytes": 8192, "classes": [{"size": 16, "pages": 1}]}


def with_classes(*classes: tuple[object, object], **top: object) -> str:
    rows = [{"size": size, "pages": pages} for size, pages in classes]
    return json.dumps({**FINE, "classes": rows, **top})


RISING = "size must be above the 16 bytes of class 1; list the classes in rising order"
TOO_LARGE = "size must be at most 262144; leave it out, larger requests get whole pages"
NAME_RULE = "must be 1 to 63 of A-Z a-z 0-9 _ . - and begin with a letter"
PAGE_RULE = "must be a power of two from 4096 to 65536"
KNOWN = "known are name, page_bytes, classes, parameters, provenance"
BAD_TABLES: dict[str, tuple[str | bytes, str]] = {
    "empty": ("", "line 1, column 1: not valid JSON (expecting value); mend it there"),
    "cut": (
        '{"name": "x",\n "page',
        "line 2, column 2: not valid JSON (unterminated string starting at); mend it there",
    ),
    "not utf-8": (b'{"name": "\xff"}', "offset 10: not UTF-8; save it as UTF-8"),
    "list": ("[]", "top level: must be an object, not a list"),
    "deep": ("[" * 200_000, "a number or a nesting is too long to be of a table"),
    "long number": ("1" * 5000, "a number or a nesting is too long to be of a table"),
    "nan": (with_classes((float("nan"), 1)), "NaN is not valid JSON; give a number"),
    "no classes key": (
        '{"name": "x", "page_bytes": 8192}',
        "top level: key 'classes' is missing; add it",
    ),
    "no name": ('{"page_bytes": 8192, "classes": []}', "top level: key 'name' is missing; add it"),
    "unknown key": (with_classes((16, 1), nmae=1), f"top level: unknown key 'nmae'; {KNOWN}"),
    "twice": (
        '{"name": "x", "name": "y", "page_bytes": 8192, "classes": []}',
        "key 'name' stands twice in one object; keep one",
    ),
    "twice in a class": (
        '{"name": "x", "page_bytes": 8192, "classes": [{"size": 8, "size": 16, "pages": 1}]}',
        "key 'size' stands twice in one object; keep one",
    ),
    "name type": (with_classes((16, 1), name=7), "name must be a string, not 7"),
    "name empty": (with_classes((16, 1), name=""), f"name '': {NAME_RULE}"),
    "name odd": (with_classes((16, 1), name="a b"), f"name 'a b': {NAME_RULE}"),
    "name newline": (with_classes((16, 1), name="ab\n"), f"name 'ab\\n': {NAME_RULE}"),
    "name long": (with_classes((16, 1), name="a" * 99), f"name '{'a' * 64}': {NAME_RULE}"),
    "name taken": (
        with_classes((16, 1), name="c16"),
        "name 'c16' belongs to a built-in table with other classes; rename yours",
    ),
    "page float": (
        with_classes((16, 1), page_bytes=8192.0),
        "page_bytes must be an integer, not 8192.0",
    ),
    "page bool": (
        with_classes((16, 1), page_bytes=True),
        "page_bytes must be an integer, not true",
    ),
    "page null": (
        with_classes((16, 1), page_bytes=None),
        "page_bytes must be an integer, not null",
    ),
    "page string": (
        with_classes((16, 1), page_bytes="8192"),
        'page_bytes must be an integer, not "8192"',
    ),
    "page odd": (with_classes((16, 1), page_bytes=12288), f"page_bytes 12288: {PAGE_RULE}"),
    "page small": (with_classes((16, 1), page_bytes=2048), f"page_bytes 2048: {PAGE_RULE}"),
    "page large": (with_classes((16, 1), page_bytes=131072), f"page_bytes 131072: {PAGE_RULE}"),
    "page zero": (with_classes((16, 1), page_bytes=0), f"page_bytes 0: {PAGE_RULE}"),
    "page negative": (
        with_classes((16, 1), page_bytes=-8192),
        "page_bytes must be from 0 to 4294967295, not -8192",
    ),
    "classes type": (with_classes(classes={}), "classes must be a list, not an object"),
    "classes none": (with_classes(), "0 classes: must be 1 to 255"),
    "classes many": (
        with_classes(*((8 * n, 1) for n in range(1, 257))),
        "256 classes: must be 1 to 255",
    ),
    "parameters": (
        with_classes((16, 1), parameters=[]),
        "parameters must be an object, not a list",
    ),
    "provenance": (
        with_classes((16, 1), provenance=3),
        "provenance must be an object or a string, not 3",
    ),
    "class type": (with_classes(classes=[16]), "class 1: must be an object, not 16"),
    "class key missing": (
        with_classes(classes=[{"size": 16}]),
        "class 1: key 'pages' is missing; add it",
    ),
    "class key unknown": (
        with_classes(classes=[{"size": 16, "pages": 1, "align": 16}]),
        "class 1: unknown key 'align'; known are size, pages",
    ),
    "size float": (with_classes((16.5, 1)), "class 1: size must be an integer, not 16.5"),
    "size bool": (with_classes((True, 1)), "class 1: size must be an integer, not true"),
    "size negative": (
        with_classes((-16, 1)),
        "class 1: size must be from 0 to 4294967295, not -16",
    ),
    "size huge": (
        with_classes((1 << 70, 1)),
        "class 1: size must be from 0 to 4294967295, not a number of more than 64 bits",
    ),
    "pages float": (
        with_classes((16, 1.0)),
        "class 1 (16 bytes): pages must be an integer, not 1.0",
    ),
    "size zero": (with_classes((0, 1)), "class 1 (0 bytes): size must be at least 8"),
    "size odd": (
        with_classes((16, 1), (20, 1)),
        "class 2 (20 bytes): size must be a multiple of 8; use 24",
    ),
    "size same": (with_classes((16, 1), (16, 1)), f"class 2 (16 bytes): {RISING}"),
    "size falls": (with_classes((16, 1), (8, 1)), f"class 2 (8 bytes): {RISING}"),
    "size large": (with_classes((262152, 40)), f"class 1 (262152 bytes): {TOO_LARGE}"),
    "pages zero": (with_classes((16, 0)), "class 1 (16 bytes): pages must be at least 1"),
    "no fit": (
        with_classes((16, 1), (16392, 2)),
        "class 2 (16392 bytes): does not fit its span of 16384 bytes; use 3 pages",
    ),
    "span": (
        with_classes((16, 513)),
        "class 1 (16 bytes): span of 4202496 bytes is above 4194304; use at most 512 pages",
    ),
    "long file": (" " * ((1 << 20) + 1), "longer than 1048576 bytes; a table file is not"),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_table_file(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, message = BAD_TABLES[case]
    path = tmp_path / "bad.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    assert cli.main(["--table", str(path), "-o", str(tmp_path / "out")]) == 2
    captured = capsys.readouterr()
    assert captured.err == f"sizeclasses: {path}: {message}\n"
    assert captured.out == ""
    assert not (tmp_path / "out").exists()


def test_unreadable_table_files(tmp_path: Path) -> None:
    missing = tmp_path / "none.json"
    result = run_script("--table", str(missing))
    reason = "can not be read (No such file or directory); give go, c16 or a table file"
    assert (result.returncode, result.stderr) == (2, f"sizeclasses: {missing}: {reason}\n")
    (tmp_path / "dir.json").mkdir()
    result = run_script("--table", str(tmp_path / "dir.json"))
    assert "can not be read (Is a directory)" in result.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ["--table", "gone"],
            "table 'gone' is unknown; give go, c16, jemalloc, tcmalloc, mimalloc, pow2,"
            " fibonacci, geometric-R or a file FILE.json",
        ),
        (["--page-bytes", "5000"], f"page_bytes 5000: {PAGE_RULE}"),
        (["--max-size", "3000"], "max_size 3000: must be a power of two from 16 to 262144"),
        (["--max-size", "0"], "max_size 0: must be a power of two from 16 to 262144"),
        (["--tail-limit", "1"], "tail_limit 1: must be at least 0 and below 1"),
        (
            ["--max-size", "262144", "--tail-limit", "0"],
            "size 131328: no span up to 4194304 bytes wastes at most 0 in its tail;"
            " raise the tail limit",
        ),
        (["--check", "--table", "go"], "--check takes no --table; leave it out"),
        (["--list", "--page-bytes", "4096"], "--list takes no --page-bytes; leave it out"),
        (["--write", "--cutoff", "64"], "--write takes no --cutoff; leave it out"),
        (["-o", "x", "--format", "md"], "-o writes C, not --format md; leave one out"),
    ],
)
def test_bad_options(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(args) == 2
    assert capsys.readouterr().err == f"sizeclasses: {message}\n"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--cutoff", "1025"], "argument --cutoff: '1025' is not a number of bytes from 0 to 1024"),
        (["--cutoff", "-1"], "argument --cutoff: '-1' is not a number of bytes from 0 to 1024"),
        (
            ["--tail-limit", "1/0"],
            "argument --tail-limit: '1/0' is not a fraction such as 1/8 or 0.125",
        ),
        (["--page-bytes", "8k"], "argument --page-bytes: '8k' is not a number of bytes"),
        (["--bogus"], "unrecognized arguments: --bogus"),
    ],
)
def test_bad_usage(args: list[str], message: str) -> None:
    result = run_script(*args)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr == f"sizeclasses: {message}; see --help\n"


def test_parameters_do_not_shape_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(FINE))
    assert cli.main(["--table", str(path), "--align", "16"]) == 2
    expected = f"sizeclasses: {path}: --align shapes go and c16 only; leave it out\n"
    assert capsys.readouterr().err == expected


def test_table_file_round_trip(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    for table in (GO, C16, make_table(Parameters("16", page_bytes=4096))):
        path.write_text(dump_table(table))
        again = load_table(str(path))
        assert (again.name, again.classes, again.hash) == (table.name, table.classes, table.hash)
    path.write_text(dump_table(GO))
    assert load_table(str(path)).has_tiny  # it is the built-in table, not a copy of its numbers


def test_unwritable_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    assert cli.main(["-o", str(blocked)]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"sizeclasses: {blocked}/table_go.c: can not be written (")
    assert error.endswith("); choose another directory\n")
    full = tmp_path / "full"
    full.mkdir()
    (full / "paths_go.h").mkdir()  # the third of four outputs can not replace a directory
    assert cli.main(["-o", str(full)]) == 2
    assert not list(full.glob(".*")), "temporary files stay behind"


# --- properties -----------------------------------------------------------------------------------

PARAMETERS = st.builds(
    Parameters,
    align=st.sampled_from(["go", "16"]),
    page_bytes=st.sampled_from([4096, 8192, 16384, 65536]),
    max_size=st.sampled_from([1 << n for n in range(4, 17)]),
    tail_limit=st.builds(Fraction, st.integers(1, 12), st.integers(13, 64)),
)


@settings(deadline=None, max_examples=30)
@given(PARAMETERS)
def test_procedure_properties(p: Parameters) -> None:
    try:
        table = make_table(p)
    except SizeClassError as error:
        assert re.fullmatch(r"(\d+ classes: .*|class \d+ .*|size \d+: no span .*)", str(error))
        return
    assert proofs.prove(table)
    assert table.max_size == p.max_size
    assert table.classes[0].size == 8 or p.max_size == 8
    if p.align == "16":
        assert all(c.size % 16 == 0 for c in table.classes if c.size > 8)
    for row, upper in zip(table.rows, table.classes[1:], strict=False):
        assert row.tail_waste <= row.span_bytes * p.tail_limit
        same = upper.pages * p.page_bytes == row.span_bytes
        assert not same or row.span_bytes // upper.size < row.objects, "neighbours to be merged"
    assert all(c.size % (1 << table.large_shift) == 0 for c in table.classes if c.size > 1024)


@st.composite
def class_lists(draw: st.DrawFn) -> tuple[int, tuple[SizeClass, ...]]:
    page = draw(st.sampled_from([4096, 8192, 16384, 65536]))
    steps = draw(st.lists(st.integers(1, 400), min_size=1, max_size=20))
    size = 0
    classes = []
    for step in steps:
        size += 8 * step
        most = min(-(-size // page) + 6, SLOTS_MAX * size // page)
        pages = draw(st.integers(-(-size // page), most))
        classes.append(SizeClass(size, pages))
    return page, tuple(classes)


@settings(deadline=None, max_examples=40)
@given(class_lists())
def test_any_legal_list_is_proved(drawn: tuple[int, tuple[SizeClass, ...]]) -> None:
    page, classes = drawn
    rules.check_classes(page, classes)
    table = Table("random", page, classes)
    assert proofs.prove(table)
    assert table.small_map[0] == 1
    for row, c in zip(table.rows, classes, strict=True):
        assert row.objects * row.size + row.tail_waste == row.span_bytes == c.pages * page
        assert row.size % row.min_align == 0 and row.min_align <= page


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 32768), st.integers(1, 40))
def test_short_division_proof_equals_brute_force(eighths: int, pages: int) -> None:
    size, span = 8 * eighths, 4096 * pages
    span = max(span, size)
    magic = magic_of(size)
    brute = all((n * magic) >> 32 == n // size for n in range(span + 1))
    assert division_is_exact(size, span) == brute


def test_sizes_that_32_bits_can_not_divide_have_no_magic() -> None:
    table = Table("wide", 8192, (SizeClass(8, 1), SizeClass(65528, 40), SizeClass(262136, 32)))
    rules.check_classes(table.page_bytes, table.classes)
    assert proofs.prove(table)[0].endswith(", of 2 classes with 64 bits only")
    source = emit_c.table_source(table, emit_c.Origin("x", "y", ()), symbol="always")
    assert "{65528, 0, 5, 40}" in source and "{262136, 0, 1, 32}" in source


def test_proofs_notice_a_wrong_table(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = Table("go", 8192, (*GO.classes[:-1], SizeClass(32640, 4)), Parameters("go"))
    with pytest.raises(ProofError, match="largest class is 32640"):
        proofs.prove(wrong)
    missing = Table("go", 8192, C16.classes, Parameters("go"))
    with pytest.raises(ProofError, match="66 classes, expected 67"):
        proofs.prove(missing)
    monkeypatch.setattr(proofs, "magic_of", lambda size: 0xFFFFFFFF // size)
    with pytest.raises(ProofError, match=r"class 1 \(8 bytes\): offset 8 gives slot 0, not 1"):
        proofs.prove(GO)


# --- generated C ----------------------------------------------------------------------------------


def functions_of(source: str) -> list[str]:
    return re.findall(r"^void \*(sw_path_\w+)\(", source, re.MULTILINE)


def by_size(source: str, array: str) -> list[str]:
    match = re.search(rf"{array}\[(\d+)\] = {{([^}}]*)}};", source)
    assert match is not None
    names = [name.strip() for name in match[2].split(",") if name.strip()]
    assert len(names) == int(match[1])
    return names


@pytest.mark.parametrize("cutoff", [0, 8, 64, 80, 128, 512, 1000, 1024])
@pytest.mark.parametrize("table", [GO, C16], ids=lambda table: table.name)
def test_paths_serve_every_size(table: Table, cutoff: int) -> None:
    source = emit_c.paths_source(table, emit_c.Origin("c", "p", ()), cutoff, "gen/paths.h")
    defined = functions_of(source)
    assert len(defined) == len(set(defined))
    assert f"sw_paths_{table.name}_cutoff = {cutoff};" in source
    used = set()
    for kind in ("scan", "noscan"):
        names = by_size(source, f"sw_paths_{table.name}_{kind}")
        expected = [f"sw_path_{table.name}_{kind}_{table.class_of(n)}" for n in range(cutoff + 1)]
        assert names == expected
        used |= set(names)
    if table.has_tiny:
        tiny = by_size(source, f"sw_paths_{table.name}_tiny")
        assert tiny[0] == f"sw_path_{table.name}_noscan_1"
        reach = min(15, cutoff)
        assert tiny[1 : reach + 1] == [f"sw_path_go_tiny_{n}" for n in range(1, reach + 1)]
        assert tiny[reach + 1 :] == ["0"] * (15 - reach)
        used |= set(tiny) - {"0"}
    assert used == set(defined)


def test_path_counts_are_those_of_go() -> None:
    names = functions_of((ROOT / "src/gen/paths_go.c").read_text())
    kinds = [name.split("_")[3] for name in names]
    # Go has 26 + 25 + 15: its pointer-free class 1 is always packed, ours only in heaps that do.
    assert [kinds.count(kind) for kind in ("scan", "noscan", "tiny")] == [26, 26, 15]


COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]
FLAGS = "-std=c11 -Wall -Wextra -Wconversion -Wmissing-prototypes -Werror -fvisibility=hidden"
TEMPLATE = """
#include <spanwise/heap.h>
typedef void *sw_path_fn(sw_cache *cache, size_t size, unsigned flags);
typedef struct sw_paths {
    size_t cutoff;
    sw_path_fn *const *scan, *const *noscan, *const *tiny;
} sw_paths;
enum { SW_TEMPLATE_NOSCAN, SW_TEMPLATE_SCAN };
static inline void *sw_template_small(sw_cache *cache, size_t size, unsigned flags, uint32_t cls,
                                      uint32_t bytes, int kind) {
    return (char *)cache + size + flags + cls + bytes + (unsigned)kind;
}
static inline void *sw_template_tiny(sw_cache *cache, size_t size, unsigned flags) {
    return (char *)cache + size + flags;
}
"""


def compile_c(compiler: str, *args: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    places = [f"-I{ROOT / 'include'}", f"-I{ROOT / 'src'}"]
    command = [compiler, *FLAGS.split(), *places, *args]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.fixture
def custom(tmp_path: Path) -> Path:
    """A directory with the C of a table of a user's own, of odd name, and a template to try it."""
    spec = with_classes((16, 1), (40, 1), (504, 2), (1032, 1), (2000, 1), name="best-16.v2")
    (tmp_path / "best.json").write_text(spec)
    assert cli.main(["--table", str(tmp_path / "best.json"), "-o", str(tmp_path)]) == 0
    (tmp_path / "heap").mkdir()
    (tmp_path / "heap" / "template.h").write_text(TEMPLATE)
    return tmp_path


@pytest.mark.parametrize("compiler", COMPILERS)
def test_c_of_any_table_compiles(compiler: str, custom: Path) -> None:
    assert sorted(path.name for path in custom.glob("*_best_16_v2.*")) == [
        "fast_best_16_v2.h",
        "paths_best_16_v2.c",
        "paths_best_16_v2.h",
        "table_best_16_v2.c",
    ]
    for name in ("table_best_16_v2.c", "paths_best_16_v2.c"):
        result = compile_c(compiler, f"-I{custom}", "-c", name, cwd=custom)
        assert result.returncode == 0, result.stderr
    head = (custom / "table_best_16_v2.c").read_text()
    assert "scripts/sizeclasses.py --table best.json -o DIR\n" in head
    assert str(custom) not in head


@pytest.mark.parametrize("compiler", COMPILERS)
def test_inline_code_links_with_its_own_table_only(compiler: str, custom: Path) -> None:
    program = """
#include FAST_HEADER
void not_folded(void);
int main(void) {
    enum { N = 100, M = WANT };
    if (sw_fast_class_bytes[sw_fast_size_map[(N + 7) >> 3]] != M) not_folded();
    return SW_FAST_TABLE_SYMBOL != 1;
}
"""
    (custom / "main.c").write_text(program)
    own = ['-DFAST_HEADER="fast_best_16_v2.h"', "-DWANT=504", "-I."]
    stock = ["-DFAST_HEADER=<spanwise/gen/fast_c16.h>", "-DWANT=112"]
    c16 = str(ROOT / "src/gen/table_c16.c")
    build = ("-O2", "main.c", "-o", "main")
    replaced = "-DSW_DEFAULT_TABLE_REPLACED"
    for good in ([*own, "table_best_16_v2.c", c16, replaced], [*stock, c16]):
        result = compile_c(compiler, *build, *good, cwd=custom)
        assert result.returncode == 0, result.stderr
        assert subprocess.run([custom / "main"], check=False).returncode == 0
    for bad, symbol in (
        ([*own, c16], "sw_table_is_best_16_v2_"),
        ([*stock, "table_best_16_v2.c", c16, replaced], f"sw_table_is_c16_{C16.hash:016x}"),
    ):
        result = compile_c(compiler, *build, *bad, cwd=custom)
        assert result.returncode != 0
        assert symbol in result.stderr


def test_works_from_another_place(tmp_path: Path) -> None:
    """As the wheel ships it: only scripts/, anywhere."""
    shutil.copytree(SCRIPT.parent, tmp_path / "scripts")
    script = tmp_path / "scripts" / "sizeclasses.py"
    command = [sys.executable, "-I", str(script), "--table", "c16", "-o", str(tmp_path / "out")]
    subprocess.run(command, cwd="/", check=True)
    made = (tmp_path / "out" / "table_c16.c").read_text()
    assert "const struct sw_table sw_table_c16_data = {" in made
    assert f"sw_table_is_c16_{C16.hash:016x} = 1;" in made


def test_a_closed_pipe_is_no_error() -> None:
    command = f"{sys.executable} {SCRIPT} --table go --format c | head -n 1"
    result = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert result.stderr == ""
