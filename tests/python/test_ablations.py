# SPDX-License-Identifier: Apache-2.0
# mypy: disable-error-code="import-not-found"
"""bench/ablations.py: the plan, reading of counters, the table, error texts; no times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))

from bench_lib import ablation_build, ablation_measure, ablation_plan, ablation_report  # noqa: E402
from bench_lib.ablation_measure import COLD, HOT, Events  # noqa: E402
from bench_lib.ablation_report import Cell  # noqa: E402
from bench_lib.errors import BenchError  # noqa: E402

PERF = """\
1000,,instructions:u,500,100.00,,
20,,L1-icache-load-misses:u,500,100.00,,
30,,L1-dcache-load-misses:u,500,100.00,,
4,,branch-misses:u,500,100.00,,
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCH / "ablations.py"), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


def cell(variant: str, ns: list[float], **changes: Any) -> Cell:
    values: dict[str, Any] = {"ours": variant == "ours", "state": HOT, "code_bytes": 100, **changes}
    return Cell("division", "pair/16", variant=variant, ns=ns, **values)


def test_every_ablation_has_ours_first_and_different_others() -> None:
    ablations = ablation_plan.plan(ROOT)
    assert len({each.name for each in ablations}) == len(ablations)
    for each in ablations:
        others = {(v.defines, v.cutoff, v.options) for v in each.variants}
        assert len(others) == len(each.variants) >= 2
        assert each.rows
        assert each.variants[0].defines == ()


def test_plan_has_what_was_asked() -> None:
    ablations = {each.name: each for each in ablation_plan.plan(ROOT)}
    assert {v.cutoff for v in ablations["cutoff"].variants} == {None, 0, 64, 80, 128, 1024}
    pages = [v.options[1].partition(":")[0] for v in ablations["page-size"].variants]
    assert pages == ["8192", "4096", "16384", "65536"]


def test_switches_are_those_of_the_header() -> None:
    header = (ROOT / "include/spanwise/fast.h").read_text()
    for each in ablation_plan.plan(ROOT):
        for variant in each.variants:
            for define in variant.defines:
                assert f"#define {define.partition('=')[0]} 0\n" in header


def test_select() -> None:
    ablations = ablation_plan.plan(ROOT)
    chosen = ablation_plan.select(ablations, "tiny, hints")
    assert [each.name for each in chosen] == ["tiny", "hints"]
    with pytest.raises(BenchError, match="--only 'bogus' is no ablation; use special, "):
        ablation_plan.select(ablations, "bogus")


def test_perf() -> None:
    assert ablation_measure.from_perf(PERF) == Events(1000, 20, 30, 4)
    lacking = PERF.replace("20,,", "<not supported>,,")
    assert ablation_measure.from_perf(lacking) is None


def test_callgrind() -> None:
    totals = {"Ir": 9, "I1mr": 1, "D1mr": 2, "D1mw": 3, "Bcm": 4, "Bim": 5}
    assert ablation_measure.from_callgrind(totals) == Events(9, 1, 5, 9)
    with pytest.raises(BenchError, match="callgrind counted no 'Bim'"):
        ablation_measure.from_callgrind({k: v for k, v in totals.items() if k != "Bim"})


def test_text_bytes() -> None:
    assert ablation_build.parse_text_bytes("x  :\n.init 23 1\n.text   4097  4096\n") == 4097
    with pytest.raises(BenchError, match=r"no section \.text"):
        ablation_build.parse_text_bytes("")


def test_table_and_json() -> None:
    cells = [
        cell("ours", [2.0, 2.0, 2.0], events=Events(10, 0, 0, 0)),
        cell("divide", [4.0, 4.0, 4.0], code_bytes=90),
    ]
    text = ablation_report.table(cells)
    assert "2.00 [2.00, 2.00]" in text
    assert "-10" in text.splitlines()[3]
    ours, divide = ablation_report.as_json(cells)
    assert ours["over_ours"] is None
    assert divide["over_ours"] == 2.0
    assert divide["verdict"] == "slower"
    assert divide["instructions"] is None


def test_no_ratio_where_a_cold_difference_is_negative() -> None:
    cells = [cell("ours", [-1.0], state=COLD), cell("divide", [2.0], state=COLD)]
    assert ablation_report.as_json(cells)[1]["over_ours"] is None
    assert "-" in ablation_report.table(cells)


def test_bad_input() -> None:
    done = run("--only", "bogus")
    assert done.returncode == 2
    assert done.stderr.startswith("ablations: --only 'bogus' is no ablation")
    done = run("--only", "tiny", "--rows", "bogus")
    assert done.returncode == 2
    assert done.stderr.startswith("ablations: --rows 'bogus' matches no row; there are keep/1-15")
    assert run("--repetitions", "0").returncode == 2


def test_no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(BenchError, match="no-such-compiler: No such file or directory; install it"):
        ablation_build.build_one(ROOT, tmp_path, ((), None))


def test_failed_build_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="ended with 1"):
        ablation_build.build_one(ROOT, tmp_path, (("sw_cache=(",), None))
    assert not list(tmp_path.iterdir())


def test_end_to_end(tmp_path: Path) -> None:
    """Builds two variants, times and counts a row of each."""
    arguments = ("--only", "scan-bits", "--rows", "malloc/16", "--json", "--repetitions", "1")
    done = run(*arguments, "--quick", "--build", str(tmp_path))
    assert done.returncode == 0, done.stderr
    cells = json.loads(done.stdout)
    assert [(c["variant"], c["cache"]) for c in cells] == [
        ("ours", "hot"),
        ("bit by bit", "hot"),
        ("ours", "cold"),
        ("bit by bit", "cold"),
    ]
    ours, bits = cells[:2]
    assert ours["ns"] > 0
    if ours["instructions"] is not None:  # neither perf nor valgrind
        assert bits["instructions"] > ours["instructions"] + 10
        assert cells[2]["i1_misses"] > ours["i1_misses"]
    kept = sorted(tmp_path.iterdir())
    assert len(kept) == 2
    assert run(*arguments, "--no-counts", "--build", str(tmp_path)).returncode == 0
    assert sorted(tmp_path.iterdir()) == kept
