# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: rounds, files, bad input, the command, runs of cases, tables fitted to programs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import spanwise as sw
from spanwise import _lib
from spanwise.__main__ import main
from spanwise.measure import bench as bench_module
from spanwise.measure.bench import processor
from spanwise.measure.bench_cases import case_of, launch, read_cases
from spanwise.measure.bench_result import BenchResult
from spanwise.measure.running import MALLOC_LIBRARY
from spanwise.recordings import recorder
from spanwise.recordings.programs import with_pipefail

from tests.python.helpers import lives, needs_recorder, script, wait_for

MIB = 1 << 20
QUICK = ("spanwise", "glibc")
ALLOCATORS = ("plain", "spanwise", "glibc")
TRUE = case_of(["true"])
BYTES = "import time; x = bytes(range(256)) * (1 << 17); time.sleep(0.3)"
"""32 MiB, written and kept for a sample."""


def errors_of(case: sw.BenchCase, allocators: Any = ALLOCATORS, **options: Any) -> list[str | None]:
    """The errors of the runs of a case."""
    found = sw.bench([case], allocators, progress=False, **{"rounds": 1, **options})
    return [row["error"] for row in found]


def test_each_case_runs_under_each_allocator() -> None:
    """Only our malloc knows held and outside bytes; 32 MiB are in the peak of both."""
    for stays_s in (0.3, 3, 30):  # until samples have seen them
        words = [sys.executable, "-S", "-c", BYTES.replace("0.3", str(stays_s))]
        cases = [TRUE, case_of(words, "python", "32 MiB")]
        found = sw.bench(cases, QUICK, rounds=2, progress=False)
        seen = [row["anonymous_bytes"] for row in found if row["program"] == "python"]
        if all((anonymous or 0) > 32 * MIB for anonymous in seen):
            break
    keys = [(row["program"], row["allocator"], row["round"]) for row in found]
    assert keys == [
        (name, one, i) for name in ("true", "python") for one in QUICK for i in range(2)
    ]
    assert not found.failures and found.verdict() == ""
    for row in found:
        own = row["allocator"] == "spanwise"
        assert (row["held_bytes"] is not None) == own == (row["outside_bytes"] is not None)
        assert row["predicted_bytes"] is None
        if row["program"] == "python":
            assert row["rss_bytes"] > 32 * MIB < row["anonymous_bytes"]
            assert not own or row["held_bytes"] > 32 * MIB
    rows = found.array
    assert rows["runs"].tolist() == [2] * 4 and rows["failed"].tolist() == [0] * 4
    assert (rows["rss_low_bytes"] <= rows["rss_bytes"]).all()
    assert "python, 32 MiB" in str(found)
    assert json.loads(found.to_json())["summary"][1]["held_bytes"] is None
    axes = found.plot()
    assert {text.get_text() for text in axes.get_yticklabels()} == {"true", "python, 32 MiB"}
    title = f"programs under allocators, in turns\n{found.measured}"
    assert axes.get_title() == title and processor() in found.measured


def test_rows_go_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "f.jsonl"
    path.write_text("[]")  # an earlier file is replaced
    steps: list[int] = []
    bad = case_of(["false"], "bad", "")
    found = sw.bench([TRUE, bad], ["glibc"], rounds=2, output=path, progress=steps.append)
    assert [row["error"] for row in found.failures] == ["false: ended with 1"] * 2
    assert "2 runs failed: false: ended with 1" in str(found) and sum(steps) == 4
    assert [(row["program"], row["round"]) for row in found] == [
        (name, number) for name in ("true", "bad") for number in range(2)
    ]
    opened = BenchResult.open(path)
    assert sorted(opened, key=str) == sorted(found, key=str)
    assert opened.measured == found.measured != ""
    assert all(row["page_faults"] > 0 for row in opened if row["error"] is None)
    with path.open("a") as file:
        file.write('{"kind": "row", "prog')
    assert any("was truncated" in note for note in BenchResult.open(path).notes)
    with pytest.raises(sw.InvalidError, match="not the file of a sweep"):
        sw.Sweep.open(path)


def test_ctrl_c_keeps_finished_runs(tmp_path: Path) -> None:
    def step(_: int) -> None:
        raise KeyboardInterrupt

    path = tmp_path / "f.jsonl"
    with pytest.raises(sw.BenchInterrupted, match="interrupted after 2 runs") as caught:
        sw.bench([TRUE], QUICK, rounds=3, output=path, progress=step)
    assert [row["round"] for row in caught.value.result] == [0, 0]
    assert len(BenchResult.open(path)) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("[", "not JSON"),
        ("{}", "must be a list of at least one case"),
        ("[]", "must be a list of at least one case"),
        ("[3]", "case 1: must be an object with argv"),
        ('[{"argv": ["a"]}, {"argv": []}]', "case 2: argv must be a list of words"),
        ('[{"argv": "ls"}]', "case 1: argv must be a list of words"),
        ('[{"argv": ["a"], "inputs": "b"}]', "unknown key 'inputs'; the keys are argv, env"),
        ('[{"argv": ["a"], "folder": 3}]', "case 1: folder must be a text"),
        ('[{"argv": ["a"], "environment": {"A": 1}}]', "environment must be an object of texts"),
    ],
)
def test_wrong_files_of_cases(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "cases.json"
    path.write_text(content)
    with pytest.raises(sw.InvalidError, match=message):
        read_cases(path)


def test_wrong_arguments(tmp_path: Path) -> None:
    wrong: tuple[tuple[list[sw.BenchCase], dict[str, Any], str], ...] = (
        ([], {}, "no case to run"),
        ([TRUE], {"rounds": 0}, "rounds 0: must be at least 1"),
        ([TRUE], {"timeout_s": 0}, "timeout_s 0: must be more than 0"),
        ([TRUE, case_of(["ls"], "true", "")], {}, "two different cases are called true"),
    )
    for cases, options, message in wrong:
        with pytest.raises(sw.InvalidError, match=message):
            sw.bench(cases, QUICK, **options)
    with pytest.raises(sw.InvalidError, match="allocator 'nomalloc': unknown; use spanwise, gl"):
        sw.bench([TRUE], ["nomalloc"])


@pytest.mark.parametrize(
    ("allocators", "printed", "lines"),
    [
        (["plain", "one-arena"], "$MALLOC_ARENA_MAX $PYTHONMALLOC $LD_PRELOAD", ["  ", "1  "]),
        (["spanwise", "hardened"], "$SPANWISE_PROTECT", ["", "hardened"]),
        (["paranoid", "plain"], "$SPANWISE_PROTECT", ["", "paranoid"]),
    ],
)
def test_variables_of_allocators(
    tmp_path: Path, allocators: list[str], printed: str, lines: list[str]
) -> None:
    case = case_of(["sh", "-c", f'echo "{printed}" >> seen'], folder=tmp_path)
    found = sw.bench([case], allocators, rounds=1, progress=False)
    assert found.allocators == allocators and not found.failures
    assert sorted((tmp_path / "seen").read_text().splitlines()) == lines


def test_a_missing_allocator_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spanwise.measure.bench_cases.loaded_library", lambda _name: None)
    found = sw.bench([TRUE], ["spanwise", "jemalloc"], rounds=1, progress=False)
    assert found.allocators == ["spanwise"]
    assert found.notes == ("jemalloc is not installed: install libjemalloc2",)


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["bench", "--rounds", "2", "--allocator", "glibc", "-o", str(tmp_path / "f.jsonl")]
    forms = ["--plot", str(tmp_path / "f.png")]
    assert main([*words, *forms, "--", "true"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("medians, in parentheses") and "2 runs in " in err
    assert (tmp_path / "f.png").stat().st_size > 5000
    assert main([*words, "--json", "--", "true"]) == 0
    assert [row["round"] for row in json.loads(capsys.readouterr().out)["rows"]] == [0, 1]
    cases = tmp_path / "cases.json"
    cases.write_text('[{"program": "no", "input": "luck", "argv": ["false"]}]')
    assert main(["bench", "--rounds", "1", "--allocator", "glibc", "--cases", str(cases)]) == 1
    assert "1 run failed: false: ended with 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --cases FILE.json, or one program after --"),
        (["--cases", "a.json", "--", "true"], "give --cases FILE.json, or one program after --"),
        (["--plot", "x.nothing", "--", "true"], "unsupported picture format"),
        (["--rounds", "0", "--", "true"], "rounds 0: must be at least 1"),
    ],
)
def test_wrong_commands(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err


# --- runs of cases --------------------------------------------------------------------------------


DIFFERS = "sh: stdout differs from that of the plain run; "
PRELOADED = case_of(["sh", "-c", 'echo "preloaded: ${LD_PRELOAD:+yes}"'], "preloaded", "")


@pytest.mark.parametrize(
    ("number", "work"),
    [
        (signal.SIGTERM, "sleep 600"),
        (signal.SIGINT, "sleep 600"),
        (signal.SIGINT, "exec yes"),
        (signal.SIGINT, "exec sleep 600 >&-"),
    ],
)
def test_a_signal_ends_the_program_too(number: signal.Signals, work: str, tmp_path: Path) -> None:
    words = ["bench", "--", "sh", "-c", f"echo $$ >pid; mv pid started; {work}"]
    own = subprocess.Popen(
        [sys.executable, "-m", "spanwise", *words], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    with own:
        while not (tmp_path / "started").exists():
            assert own.poll() is None
            time.sleep(0.01)
        own.send_signal(number)
        assert own.wait() in (-number, 130)
    pid = (tmp_path / "started").read_text().strip()
    wait_for(lambda: not lives(pid))


def test_a_different_output_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    plain, *others = errors_of(PRELOADED)
    assert plain is None and len(others) == 2
    for error in others:
        assert error == f"{DIFFERS}but a second plain run has the same: find out why"
    rows = sw.bench([PRELOADED], ALLOCATORS, rounds=3, progress=False)
    assert [row["round"] for row in rows] == [0] * 3  # the next rounds would fail, too
    assert errors_of(PRELOADED, ignore_output=True) == [None] * 3
    assert errors_of(PRELOADED, ("spanwise", "glibc")) == [None] * 2  # they agree; no plain run
    words = ["bench", "--rounds", "1", "--allocator", "plain", "--allocator", "glibc"]
    assert main([*words, "--", *PRELOADED.argv]) == 1
    assert main([*words, "--ignore-output", "--", *PRELOADED.argv]) == 0


def test_an_output_that_varies_is_seen_after_three_runs(tmp_path: Path) -> None:
    """Another run of the plain program shows it; the other allocators are not run."""
    runs = tmp_path / "runs"
    case = case_of(["sh", "-c", f"echo >>{runs}; wc -l <{runs}"])
    plain, *others = errors_of(case)
    assert plain is None and len(others) == 2
    for error in others:
        assert error is not None and error.startswith(f"{DIFFERS}so does a second plain run's: ")
        assert "--ignore-output" in error and "\n" not in error
    assert len(runs.read_text()) == 3


@pytest.mark.parametrize(
    "text", ["seq 3", "head -c 50000000 /dev/zero", "echo a; exec >&-; true", "true"]
)
def test_the_same_output_is_no_failure(text: str) -> None:
    assert errors_of(case_of(["sh", "-c", text])) == [None] * 3


@pytest.mark.parametrize(
    ("status", "errors"),
    [
        ('test -n "$LD_PRELOAD"', ["sh: ended with 1", None, None]),
        ('test -z "$LD_PRELOAD"', [None, "sh: ended with 1", "sh: ended with 1"]),
    ],
)
def test_a_run_that_failed_has_no_output_to_compare(
    monkeypatch: pytest.MonkeyPatch, status: str, errors: list[str | None]
) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    assert errors_of(case_of(["sh", "-c", f'echo "a$LD_PRELOAD"; {status}'])) == errors


def test_a_case_runs_in_the_folder_of_its_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program and a file of that folder are found, and what a run writes there stays."""
    script(tmp_path / "svc", "cat data >> seen; pwd > where")
    (tmp_path / "data").write_text("x\n")
    (tmp_path / "job.py").write_text("open('data').read()\n")
    monkeypatch.chdir(tmp_path)
    found = sw.bench([case_of(["./svc"])], QUICK, rounds=2, progress=False)
    assert not found.failures and len(found) == 4
    assert (tmp_path / "seen").read_text() == "x\n" * 4
    assert (tmp_path / "where").read_text() == f"{tmp_path.resolve()}\n"
    job = case_of([sys.executable, "-S", "job.py"])
    monkeypatch.chdir("/")  # the folder is that in which the case was made
    assert not sw.bench([job], ["glibc"], rounds=1, progress=False).failures
    cases = tmp_path / "cases.json"
    cases.write_text(json.dumps([{"argv": ["./svc"], "folder": str(tmp_path)}]))
    (case,) = read_cases(cases)
    assert case.folder == str(tmp_path)
    assert not sw.bench([case], ["plain"], rounds=1, progress=False).failures
    assert case.hash != replace(case, folder="/").hash
    assert (tmp_path / "seen").read_text() == "x\n" * 5


PIPELINES = (
    ("false | cat", "ended with 1"),
    ("sh -c 'kill -11 $$' | cat", "ended with 139"),
    ("cat /dev/null | false | cat", "ended with 1"),
    ("true | cat", None),
    ("yes | head -n 1", None),  # SIGPIPE: the reader ended first
    ("if false; then :; fi", None),
    ("echo '|' > /dev/null; exit 3", "ended with 3"),
)


@pytest.mark.parametrize(("text", "error"), PIPELINES)
@pytest.mark.parametrize("form", ["words", "script"])
def test_a_pipeline_fails_as_any_of_its_commands(
    tmp_path: Path, text: str, error: str | None, form: str
) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash, and an old dash has no pipefail")
    script(tmp_path / "run.sh", text)
    words = ["sh", "-c", text] if form == "words" else ["./run.sh"]
    case = case_of(words, "p", "", folder=tmp_path)
    (row,) = sw.bench([case], ["glibc"], rounds=1, progress=False)
    assert (row["error"] is None) == (error is None)
    assert error is None or error in row["error"]


@pytest.mark.parametrize(
    ("words", "changed"),
    [
        (["bash", "-c", "a | b"], ["bash", "-o", "pipefail", "-c", "a | b"]),
        (["bash", "-c", "a; b"], None),
        (["awk", "a | b"], None),
        (["./b.sh", "x"], ["/usr/bin/env-bash", "-o", "pipefail", "./b.sh", "x"]),
        (["./e.sh"], ["bash", "-o", "pipefail", "./e.sh"]),
        (["./p.py"], None),
        (["no-such-program"], None),
    ],
)
def test_words_of_a_shell_get_pipefail(
    tmp_path: Path, words: list[str], changed: list[str] | None
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    for name, text in (
        ("b.sh", f"#!{bash}\na | b\n"),
        ("e.sh", "#!/usr/bin/env bash\na | b\n"),
        ("p.py", f"#!{sys.executable}\n1 | 2\n"),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    wanted = [bash if one == "/usr/bin/env-bash" else one for one in changed or words]
    assert with_pipefail(words, None, tmp_path) == wanted


def test_plain_is_the_program_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """CPython keeps pymalloc, nothing is preloaded; under the others neither holds."""
    monkeypatch.delenv("PYTHONMALLOC", raising=False)
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    code = (
        "import os; open('seen', 'a').write(f'{os.environ.get(\"PYTHONMALLOC\")}"
        ' {bool(os.environ.get("LD_PRELOAD"))}\\n\')'
    )
    case = case_of([sys.executable, "-c", code], "p", "", folder=tmp_path)
    for name, seen in (("plain", "None False\n"), ("glibc", "malloc True\n")):
        (row,) = sw.bench([case], [name], rounds=1, progress=False)
        assert row["error"] is None and row["held_bytes"] is None
        assert (tmp_path / "seen").read_text() == seen
        (tmp_path / "seen").unlink()


@needs_recorder()
def test_a_table_is_fitted_to_the_first_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy of the installed malloc stands in for the build."""

    def build(table: sw.SizeClassTable, folder: Path, **_: Any) -> Any:
        (folder / "lib").mkdir(parents=True, exist_ok=True)
        shutil.copy(_lib.native_library(MALLOC_LIBRARY), folder / "lib")
        return sw.Build(folder, {"table": table.to_dict()})

    recorded: list[Any] = []
    real: Callable[..., Any] = recorder.run_recorded

    def run_recorded(argv: Any, *words: Any, **options: Any) -> Any:
        recorded.append(argv)
        return real(argv, *words, **options)

    monkeypatch.setattr(bench_module, "build", build)
    monkeypatch.setattr(bench_module, "run_recorded", run_recorded)
    awk = 'BEGIN {{ for (i = 0; i < {}; i++) a[i] = i " " i }}'
    cases = [case_of(["awk", awk.format(n)], "awk", str(n)) for n in (9000, 3000)]
    fits = sw.fit_cases(cases, tmp_path, candidates=6, progress=False)
    fit = fits["awk"]
    assert len(recorded) == 2 and (fit.folder is not None) == fit.holds
    for number, case in enumerate(cases):
        recording = sw.Recording.open(tmp_path / f"awk/{number}.swt")
        assert fit.predicted[case.hash] == tuple(
            recording.ledger(table, "peak-resident").peak_resident_bytes
            for table in ("c16", fit.table)
        )
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


@needs_recorder()
def test_a_recorded_run_prints_into_a_pipe(tmp_path: Path) -> None:
    """Like measured runs: grep stops at the first match if stdout is /dev/null."""
    text = "test -p /dev/stdout && head -c 3000000 /dev/zero"
    case = case_of(["sh", "-c", text], folder=tmp_path)
    assert bench_module.record_case(case, tmp_path / "0.swt").events > 0
    assert errors_of(case) == [None] * 3


@needs_recorder()
def test_nothing_is_fitted_to_a_run_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A failed first input: no table. A failed other input: no prediction of it."""
    built: list[Path] = []

    def build(table: sw.SizeClassTable, folder: Path, **_: Any) -> sw.Build:
        built.append(folder)
        return sw.Build(folder, {})

    monkeypatch.setattr(bench_module, "build", build)
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
    assert not built
    good = case_of(["sh", "-c", work], "job", "good")
    fit = sw.fit_cases([good, bad], "fits", candidates=2, progress=False)["job"]
    assert set(fit.predicted) == {good.hash}
    assert main(["bench", "--fit", "fits", "--rounds", "1", "--", "sh", "-c", "exit 3"]) == 1
    out, err = capsys.readouterr()
    assert "sh: not fitted: sh: ended with 3 while it was recorded" in err
    assert "failed: sh: ended with 3" in out
    for word in ("saves", "Fitted tables", "compared with plain"):
        assert word not in out


# --- launching ------------------------------------------------------------------------------------


def used(tmp_path: Path, *argv: str, timeout_s: float = 300) -> Any:
    return launch(argv, "", env={"PATH": "/usr/bin:/bin"}, cwd=tmp_path, timeout_s=timeout_s)


def test_memory_is_that_of_the_command(tmp_path: Path) -> None:
    """The memory excludes the Python that started the command, but includes its largest child."""
    ballast = bytearray(60 * MIB)
    small = used(tmp_path, "true")
    assert len(ballast) == 60 * MIB and small.error == ""
    assert 0 < small.rss_bytes < 8 * MIB
    for stays_s in (0.3, 3, 30):  # until a sample has seen them
        code = BYTES.replace("0.3", str(stays_s))
        large = used(tmp_path, "sh", "-c", f"{sys.executable} -S -c '{code}'; true")
        assert large.error == ""
        if large.anonymous_bytes > 32 * MIB:
            break
    for seen in (large.rss_bytes, large.anonymous_bytes):
        assert 32 * MIB < seen < 64 * MIB
    assert large.anonymous_bytes <= large.rss_bytes
    assert large.cpu_ns > 0 and large.elapsed_ns > 0
    assert large.page_faults > small.page_faults > 0


@pytest.mark.parametrize(
    ("words", "timeout_s", "error"),
    [
        (["sh", "-c", "echo bad >&2; exit 3"], 300, "ended with 3: bad"),
        (["sh", "-c", "kill -9 $$"], 300, "signal 9 ended it"),
        (
            ["no-such-program"],
            300,
            "ended with 2: spanwise-rusage: no-such-program: No such file or",
        ),
        (["sleep", "600"], 0.5, "did not end within 0.5 s"),
        (["yes"], 0.5, "did not end within 0.5 s"),
        (["sh", "-c", "exec >&-; exec sleep 600"], 0.5, "did not end within 0.5 s"),
    ],
)
def test_a_run_that_fails_says_how(
    tmp_path: Path, words: list[str], timeout_s: float, error: str
) -> None:
    assert used(tmp_path, *words, timeout_s=timeout_s).error.startswith(error)


def test_bench_says_how_to_compare_a_server(capsys: pytest.CaptureFixture[str]) -> None:
    """A program that does not end: the runs that failed, why, and what to do instead."""
    words = ["bench", "--rounds", "2", "--timeout", "0.2", "--allocator", "plain"]
    assert main([*words, "--", "sleep", "600"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "2 runs failed: sleep: did not end within 0.2 s (to compare a server, run a script that"
        " starts, loads and stops it)"
    ) in said


ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
"""SHA-256 of the bytes abc (FIPS 180-2, appendix B.1)."""


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("printf abc", ""),
        ("printf a; sleep 0.1; printf bc", ""),
        ("printf abc; printf d >&2", ""),
        ("printf abc; exec >&-; sleep 0.1; exit 3", "ended with 3"),
        ("sleep 600 & echo $! > left; printf abc", ""),  # it keeps the pipe open
    ],
)
def test_stdout_is_hashed(tmp_path: Path, text: str, error: str) -> None:
    try:
        found = used(tmp_path, "sh", "-c", text)
    finally:
        for left in tmp_path.glob("left"):
            os.kill(int(left.read_text()), signal.SIGKILL)
    assert (found.output_sha256, found.error) == (ABC, error)
