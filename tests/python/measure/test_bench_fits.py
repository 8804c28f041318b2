# SPDX-License-Identifier: Apache-2.0
"""Tables that are fitted to the first input of a program."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.__main__ import main
from spanwise.measure import bench_fits
from spanwise.measure.bench_cases import case_of
from spanwise.measure.replayer import MALLOC_LIBRARY
from spanwise.recordings import recorder

from tests.python.helpers import needs_recorder
from tests.python.measure.bench_tools import QUICK, errors_of


@needs_recorder()
def test_a_table_is_fitted_to_the_first_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the installed malloc stands in for the build; results are reused."""

    def build(table: sw.SizeClassTable, folder: Path, **_: Any) -> Any:
        (folder / "lib").mkdir(parents=True, exist_ok=True)
        shutil.copy(_lib.native_library(MALLOC_LIBRARY), folder / "lib")
        return sw.Build(folder, {"table": table.to_dict()})

    recorded: list[Any] = []
    real: Callable[..., Any] = recorder.run_recorded

    def run_recorded(argv: Any, *words: Any, **options: Any) -> Any:
        recorded.append(argv)
        return real(argv, *words, **options)

    monkeypatch.setattr(bench_fits, "build", build)
    monkeypatch.setattr(bench_fits, "run_recorded", run_recorded)
    awk = 'BEGIN {{ for (i = 0; i < {}; i++) a[i] = i " " i }}'
    cases = [case_of(["awk", awk.format(n)], "awk", str(n)) for n in (9000, 3000)]
    fits = sw.fit_cases(cases, tmp_path, candidates=6, progress=False)
    fit = fits["awk"]
    assert len(recorded) == 2 and (fit.folder is not None) == fit.holds
    for number, case in enumerate(cases):
        recording = sw.Recording.open(tmp_path / f"awk/{number}.swt")
        assert fit.predicted[case.hash] == tuple(
            recording.ledger(table, "peak-resident").resident_bytes for table in ("c16", fit.table)
        )
    again = sw.fit_cases(cases, tmp_path, candidates=6, progress=False)
    assert len(recorded) == 2 and replace(again["awk"], table=fit.table) == fit
    assert again["awk"].table.hash == fit.table.hash
    if fit.folder is None:
        fits = {"awk": replace(fit, folder=build(fit.table, tmp_path / "copy").folder)}
    found = sw.bench(cases, QUICK, fits=fits, rounds=2, progress=False)
    assert found.allocators == [*QUICK, "fitted"] and not found.failures
    saving = found.saving("awk", "9000")
    assert saving is not None and abs(saving.median) < 10
    for row in found:
        stock, fitted = fit.predicted[row["case_hash"]]
        predicted = {"spanwise": stock, "glibc": None, "fitted": fitted}
        assert row["predicted_bytes"] == predicted[row["allocator"]]
    sw.fit_cases(cases[::-1], tmp_path, candidates=6, progress=False)
    assert len(recorded) == 4
    monkeypatch.setattr(bench_fits, "made_by", lambda: {"spanwise": "of other files"})
    sw.fit_cases(cases[::-1], tmp_path, candidates=6, progress=False)
    assert len(recorded) == 6


@needs_recorder()
def test_a_recorded_run_prints_into_a_pipe(tmp_path: Path) -> None:
    """Like measured runs: grep stops at the first match if stdout is /dev/null."""
    text = "test -p /dev/stdout && head -c 3000000 /dev/zero"
    case = case_of(["sh", "-c", text], folder=tmp_path)
    assert bench_fits.record_case(case, tmp_path / "0.swt").events > 0
    assert errors_of(case) == [None] * 3


@needs_recorder()
def test_nothing_is_fitted_to_a_run_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed first input: no table. A failed other input: no prediction of it."""
    monkeypatch.setattr(
        bench_fits, "build", lambda *_words, **_options: pytest.fail("a table was built")
    )
    monkeypatch.chdir(tmp_path)
    work = "awk 'BEGIN { for (i = 0; i < 9000; i++) a[i] = i }'"
    bad = case_of(["sh", "-c", f"{work}; exit 3"], "job", "bad")
    piped = case_of(["sh", "-c", "false | cat"], "piped", "bad")
    fits = sw.fit_cases([bad, piped], "fits", candidates=2, progress=False)
    reason = "not fitted: sh: ended with {} while it was recorded"
    for name, status in (("job", 3), ("piped", 1)):
        fit = fits[name]
        assert fit.verdict == fit.why_not == reason.format(status)
        assert (fit.holds, fit.folder, dict(fit.predicted)) == (False, None, {})
        assert not (tmp_path / f"fits/{name}/0.swt").exists()
    good = case_of(["sh", "-c", work], "job", "good")
    fit = sw.fit_cases([good, bad], "fits", built=False, candidates=2, progress=False)["job"]
    assert set(fit.predicted) == {good.hash}
    assert not (tmp_path / "fits/job/fit.json").exists()  # so that the next call tries it again
    sw.fit_cases([good], "fits", built=False, candidates=2, progress=False)
    assert (tmp_path / "fits/job/fit.json").exists()
    assert main(["bench", "--fit", "fits", "--rounds", "1", "--", "sh", "-c", "exit 3"]) == 1
    out, err = capsys.readouterr()
    assert "sh: not fitted: sh: ended with 3 while it was recorded" in err
    assert "failed: sh: ended with 3" in out
    for word in ("saves", "Fitted tables", "compared with plain"):
        assert word not in out
