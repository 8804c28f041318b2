# SPDX-License-Identifier: Apache-2.0
"""Studies: each in its shortest form, that it runs. What they find is theirs; ./dev study is long.

Their own tests stand beside them: ./dev test --python bench/studies.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import run_study
import spanwise as sw
from runner import counts
from studies.ablations import patches
from studies.anatomy import parts
from studies.catalogue import STUDIES

from tests.bench.tools import BENCH, ROOT


def study(*words: str | Path) -> str:
    """What a study prints; it must end with 0."""
    done = subprocess.run(
        [sys.executable, BENCH / "run_study.py", *words],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def bench_build(program: str) -> Path:
    """Where bench programs are: $SPANWISE_BENCH_BUILD, or as ./dev builds them; skips without."""
    build = Path(os.environ.get("SPANWISE_BENCH_BUILD", ROOT / "build/bench"))
    if not (build / program).is_file():
        pytest.skip(f"no {program} in {build}: ./dev test builds it")
    return build


# --- the front ------------------------------------------------------------------------------------


def test_every_study_is_listed_with_its_question() -> None:
    lines = study().splitlines()
    assert [line.split()[0] for line in lines] == list(STUDIES)
    assert [line.split(maxsplit=1)[1] for line in lines] == [s.question for s in STUDIES.values()]


@pytest.mark.parametrize("name", STUDIES)
def test_every_study_has_help_with_an_example(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        run_study.main([name, "--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert said.startswith(f"usage: ./dev study {name}")
    assert said.count(f"./dev study {name}") >= 2


@pytest.mark.parametrize("words", [["nothing"], ["--needs", "nothing"]])
def test_an_unknown_study(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_study.main(words) == 2
    said = "study: there is no study 'nothing'; ./dev study lists them\n"
    assert capsys.readouterr().err == said


# --- one smoke test a study; that of loop-check is in tests/install/test_wheel.py -----------------


def test_limits(tmp_path: Path) -> None:
    build, file = bench_build("bench_limits"), tmp_path / "limits.json"
    words = ("--quick", "--repetitions", "1", "--rows", "pair/16")
    study("limits", *words, "--build", build, "--json", file)
    rows = json.loads(file.read_text())["rows"]
    assert {"list", "transition", "inline"} <= {row["step"] for row in rows}
    assert all(row["ns"] > 0 for row in rows)


@pytest.mark.parametrize("name", patches.PATCHES)
def test_the_source_takes_a_patch_of_the_ablations(name: str, tmp_path: Path) -> None:
    patch = patches.PATCHES[name]
    folder = patches.patched(ROOT, tmp_path, name)
    texts = [file.read_text() for file in folder.rglob("*.h")]
    assert sum(text.count(patch.plain) for text in texts) == 1
    assert not any(patch.ours in text for text in texts)


def test_ablations(tmp_path: Path) -> None:
    words = ("--only", "tiny", "--quick", "--repetitions", "1", "--counter", "none")
    cells = json.loads(study("ablations", *words, "--json", "--build", tmp_path))["cells"]
    assert [cell["variant"] for cell in cells] == ["own slots", "packed"] * 2
    assert all(cell["ns"] > 0 for cell in cells if cell["cache"] == "hot")


def test_check_grades() -> None:
    if counts.find_valgrind() is None:
        pytest.skip("valgrind was not found (apt-get install valgrind)")
    words = ("--paths", "inline_scan", "--grades", "1", "2", "--json")
    figures = json.loads(study("check-grades", *words))
    shipping, local = figures["instructions"]["inline_scan"]
    assert shipping < local
    assert figures["code_bytes"][0] < figures["code_bytes"][1]


def test_anatomy() -> None:
    assert parts.missing(ROOT) == []  # the source has every function that the table of parts names
    build = bench_build("bench_anatomy")
    cases = json.loads(study("anatomy", "--repetitions", "0", "--json", "--build", build))["cases"]
    special = next(case for case in cases if case["case"] == "special")
    assert special["parts"]["free"] > 0
    assert special["parts"]["other"] < 0.1 * special["instructions"], special["other_functions"]


def test_seed_claim(tmp_path: Path) -> None:
    build = bench_build("bench_spanwise")
    words = ("--quick", "--repetitions", "1", "--rows", "seed/Alloc16", "--json")
    rows = json.loads(study("seed-claim", *words, "--build", build, "--results", tmp_path))
    assert {"inline", "generic"} <= {row["basis"] for row in rows}
    assert all(row["ns"][0] > 0 for row in rows)


def test_held_out(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = study("held-out", "--only", "python, small objects", "--write", page)
    assert text == page.read_text(encoding="utf-8")
    assert text.count("| python, small objects |") == 5


def test_model_error(tmp_path: Path) -> None:
    recording, figures = tmp_path / "small.swt", tmp_path / "figures.json"
    ops = np.zeros(2000, dtype=sw.OPS_DTYPE)
    ops["object"] = np.arange(2000)
    ops["size"] = 200
    sw.Recording.from_ops(ops, recording)
    study("model-error", recording, "--repeat", "1", "-o", figures)
    assert json.loads(figures.read_text())


def test_resident(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    text = study("resident", "--quick", "--only", "sqlite", "--repeat", "1", "-o", page)
    assert text == page.read_text(encoding="utf-8")
    assert text.count("| sqlite, 10,000 |") == 5
    assert re.search(r"whole process, peak RSS, plain malloc: median error \d", text)


def test_record_cost() -> None:
    said = study("record-cost", "--quick")
    assert "spanwise record" in said and "recorder alone" in said


def test_replace_floor() -> None:
    said = re.fullmatch(
        r"c16: slots (.+), touched pages (.+), whole spans (.+)\n", study("replace-floor")
    )
    assert said is not None
    slots, pages, spans = map(float, said.groups())
    assert 1.0 < slots <= pages <= spans


def test_places() -> None:
    build = bench_build("bench_same_place")
    assert study("places", "--build", build, "--moves", "2").count("\ncalled ") == 6
