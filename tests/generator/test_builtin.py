# SPDX-License-Identifier: Apache-2.0
"""The built-in tables: Go's numbers, checked-in outputs."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from spanwise_sizeclasses import cli, emit, families
from spanwise_sizeclasses.families import make_table
from spanwise_sizeclasses.model import BUILTINS, SizeClass, Table

from tests.generator.tools import C16, GO, GO_NUMBERS, ROOT, run_script

# --- the built-in tables --------------------------------------------------------------------------

GO_WITHOUT_24 = tuple(c for c in GO.classes if c.size != 24)


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
    assert [line.split() for line in emit.text_lines(GO)[1:]] == [s.split() for s in comment]
    assert go_array(source, "SizeClassToSize") == [0, *(c.size for c in GO.classes)]
    assert go_array(source, "SizeClassToNPages") == [0, *(c.pages for c in GO.classes)]
    # Go's maps say 0 for size 0 and have a class for each further step.
    assert go_array(source, "SizeToSizeClass8")[1:] == list(GO.small_map[1:])
    assert go_array(source, "SizeToSizeClass128") == list(GO.large_map)


def test_c16_is_go_without_24_in_longer_spans() -> None:
    short = make_table(replace(BUILTINS["c16"], span_slots=1))
    assert short.classes == GO_WITHOUT_24
    assert (short.name, C16.name) == ("c16_s1", "c16")
    for row, before in zip(C16.rows, short.rows, strict=True):
        times, rest = divmod(row.span_bytes, before.span_bytes)
        assert row.size == before.size and rest == 0 and times & (times - 1) == 0
        longest = 65536 if row.size <= 1024 else 32768
        assert row.objects >= 1024 or row.span_bytes > longest // 2
        assert times == 1 or (row.span_bytes <= longest and row.objects < 2 * 1024)
        assert row.tail_waste * before.span_bytes <= before.tail_waste * row.span_bytes
    assert all(c.size % 16 == 0 for c in C16.classes[1:])
    worst = {r.size: r.max_waste_pct for r in C16.rows if r.max_waste_pct > 26.6}
    assert worst == {8: 87.5, 16: 43.75, 32: 46.88, 48: 31.52}
    assert [c.shortest for c in C16.classes] == [c.pages for c in short.classes]
    assert [r.first_span_bytes for r in C16.rows] == [r.span_bytes for r in short.rows]


def test_a_fixed_c16_has_the_hash_of_before() -> None:
    fixed = make_table(replace(BUILTINS["c16"], growing=False))
    assert (fixed.name, fixed.grows, C16.grows, GO.grows) == ("c16_fixed", False, True, False)
    for c, before, first in zip(C16.classes, fixed.classes, GO_WITHOUT_24, strict=True):
        assert (before.size, before.first_pages) == (c.size, None)
        assert before.pages == (c.pages if c.size <= 1024 else first.pages)
    assert f"{fixed.hash:016x}" == "28c069f1ac02d6a8"  # c16's while its spans had one length


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


OUTPUTS = cli.checked_in_outputs()


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of every checked-in output; the outputs are generated once."""
    monkeypatch.setattr(cli, "checked_in_outputs", lambda: OUTPUTS)
    for name in OUTPUTS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.mark.parametrize("name", list(OUTPUTS))
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
    assert f"{name}: cannot be read (No such file or directory)" in capsys.readouterr().err
    assert cli.main(["--write", "--root", str(tree)]) == 0
    assert cli.main(["--check", "--root", str(tree)]) == 0


def test_generated_heads() -> None:
    for name, text in OUTPUTS.items():
        assert "do not edit" in text[:200], name
        assert "python3 scripts/sizeclasses.py --write" in text[:300], name
        assert text.endswith("\n")
        assert text.startswith("/* SPDX-License-Identifier: Apache-2.0 */\n")
        assert max(map(len, text.splitlines())) <= 100, name
        assert str(ROOT) not in text
