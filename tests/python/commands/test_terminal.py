# SPDX-License-Identifier: Apache-2.0
"""Output on terminals, modules that a command loads, shell completion, manual pages."""

from __future__ import annotations

import importlib
import io
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import spanwise as sw
from spanwise import _format, workloads
from spanwise.__main__ import main, make_parser
from spanwise.commands import COMMANDS
from spanwise.commands._common import show
from spanwise.measure.bench_result import BenchResult

from tests.python.helpers import ROOT, needs_recorder, random_ops

WIDTH = 80
GC_LINE = (
    "gc {} @{}.312s 2%: 0.010+0.52+0.003 ms clock, 0.082+0.12/0.85/1.7+0.030 ms cpu,"
    " 4->4->1 MB, 4 MB goal, 0 MB stacks, 0 MB globals, 8 P\n"
)

# --- tables, by hand ------------------------------------------------------------------------------

HEAD = ("", "first", "second")
ROWS = [("requested by the program", "1", "22"), (), ("all", "1,000", "22")]


def test_a_table_that_fits_stays_as_it_is() -> None:
    wanted = (
        "                          first  second\n"
        "---------------------------------------\n"
        "requested by the program      1      22\n"
        "---------------------------------------\n"
        "all                       1,000      22"
    )
    for width in (0, 39, 200):
        assert _format.table(ROWS, HEAD, width=width) == wanted


@pytest.mark.parametrize("names_last", [False, True])
@pytest.mark.parametrize("left", [0, 1, 2])
def test_every_number_is_there_in_any_width(left: int, names_last: bool) -> None:
    """Tables of up to 12 columns, some with a title wider than the screen."""
    for columns in range(2, 13):
        numbers = [str(10**i + i) for i in range(columns)]
        row = [*numbers[:-1], "a name :: of a function"] if names_last else numbers
        head = [f"title {i} {'long' * (10 * (i == 5))}" for i in range(columns)]
        for width in range(40, 100, 3):
            text = _format.table([row], head, left=left, names_last=names_last, width=width)
            assert max(map(len, text.splitlines())) <= width
            assert set(numbers[left : len(row) - names_last]) <= set(text.split())


def test_the_width_is_that_of_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal and COLUMNS, a file or a pipe has no width."""
    monkeypatch.delenv("COLUMNS", raising=False)
    assert _format.screen_width() == 0
    for given, width in (("80", 80), ("7", 40), ("0", 0), ("wide", 0)):
        monkeypatch.setenv("COLUMNS", given)
        assert _format.screen_width() == width


# --- commands -------------------------------------------------------------------------------------


@pytest.fixture
def narrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of 80 columns, and recordings of large and small heaps in the folder."""
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.chdir(tmp_path)
    sw.Recording.from_ops(random_ops(1, 9000), "a.swt")
    sw.Recording.from_ops(workloads.steady_replacement(10, 100).ops, "b.swt")
    Path("gc.txt").write_text("".join(GC_LINE.format(i, i) for i in range(1, 9)))


TABLES = [
    word for name in ("go", "c16", "jemalloc", "tcmalloc", "pow2") for word in ("--table", name)
]
SITES = ("--sites", "--span-pinning")
COMMAND_LINES = (
    *(("classes", "--table", "go"), ("explain", "--table", "go", "33")),
    *(("ledger", "a.swt", *SITES, by) for by in ("site", "size", "age")),
    *(("ledger", "a.swt", "b.swt"), ("compare", "a.swt", *TABLES), ("diff", "b.swt", "a.swt")),
    *(("sweep", "a.swt", "b.swt", *TABLES), ("check", "a.swt", "--max-waste", "1%")),
    *(("advise", "a.swt"), ("gctrace", "gc.txt", "--pauses")),
    *(("replay", "b.swt"), ("replay", "b.swt", "--repeat", "2", "--drain", "0.1,0.2")),
    ("optimize", "b.swt", "--pareto", "--holdout", "a.swt"),
    ("convert", str(ROOT / "tests/data/profiles/go.pb.gz"), "-o", "c.swt"),
    ("report", "a.swt", "-o", "a.html"),
)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("words", COMMAND_LINES, ids=" ".join)
def test_no_line_is_wider_than_the_terminal(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert lines and [line for line in lines if len(line) > WIDTH] == []


@pytest.mark.usefixtures("narrow")
@needs_recorder()
def test_run_and_bench_fit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "-o", "c.swt", "--", "python3", "-c", "0"]) == 0
    assert main(["flame", "c.swt", "-o", "c.html"]) == 0
    assert main(["run", "--", "python3", "-c", "0"]) == 0
    said = "".join(capsys.readouterr())
    assert "held" in said
    job = "--rounds 2 --allocator plain --allocator glibc -- python3 -c 0"
    assert main(["bench", *job.split()]) == 0
    said += capsys.readouterr().out
    assert "peak RSS" in said and "--wide" in said
    assert [line for line in said.splitlines() if len(line) > WIDTH] == []


def test_bench_shows_all_columns_where_they_fit() -> None:
    row = dict.fromkeys(("library_sha256", "output_sha256", "worker", "error", "predicted_bytes"))
    row |= {"program": "a program", "input": "", "case_hash": "", "allocator": "plain", "round": 0}
    row |= {"rss_bytes": 1 << 20, "cpu_ns": 1_234_567, "elapsed_ns": 2_000_000, "page_faults": 7}
    row |= {"anonymous_bytes": 1 << 19, "held_bytes": None, "outside_bytes": None}
    found = BenchResult([row])
    assert found.text(0) == str(found) != found.text(80)
    assert "elapsed" in found.text(0) and "1.235 ms (1.235 .. 1.235)" in found.text(0)
    assert "1.2 ms (1.2 .. 1.2)" in found.text(80)


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_help_fits_and_has_an_example(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    with pytest.raises(SystemExit) as caught:
        main([*filter(None, [name]), "--help"])
    text = capsys.readouterr().out
    assert caught.value.code == 0 and text.startswith(f"usage: spanwise {name}".rstrip())
    assert [line for line in text.splitlines() if len(line) > WIDTH] == []
    if name:
        first, example = text.split("\n\n")[1:3]
        assert first[0].isupper() and first.endswith(".") and "--json" in text
        assert example.startswith(f"example:\n  spanwise {name} ")


# --- colors ---------------------------------------------------------------------------------------


class Screen(io.StringIO):
    """A file that is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


class Result:
    """A result with a table and a verdict."""

    def __str__(self) -> str:
        return f"a title\n  x\n  ----\n  1\n{self.verdict()}"

    def verdict(self) -> str:
        """A saving and a loss."""
        return "a saves 1.5 % of it; b costs 2.0 % more."


def test_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only on a terminal whose user did not refuse; an empty NO_COLOR does not count."""
    for name in ("COLUMNS", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def shown(out: io.StringIO) -> str:
        show(Result(), file=out)
        return out.getvalue()

    bold, red, green, end = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[m"
    colored = (
        f"{bold}a title{end}\n  x\n  ----\n  1\n"
        f"{bold}a {green}saves 1.5 %{end}{bold} of it; b {red}costs 2.0 % more{end}{bold}.{end}\n"
    )
    plain = f"{Result()}\n"
    assert shown(Screen()) == colored and shown(io.StringIO()) == plain
    for name, value, wanted in (
        ("NO_COLOR", "", colored),
        ("NO_COLOR", "1", plain),
        ("TERM", "dumb", plain),
    ):
        with monkeypatch.context() as changed:
            changed.setenv(name, value)
            assert shown(Screen()) == wanted


def test_a_wrapped_title_is_bold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the first table and of a further one."""
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    title, out = " ".join(["word"] * 9), Screen()
    show(f"{title}\n  x\n  ----\n  1\n\n{title}\n  y\n  ----\n  2\nend", file=out)
    bold = [f"\x1b[1m{' '.join(['word'] * 8)}\x1b[m", "\x1b[1m  word\x1b[m"]
    rest = [["  x", "  ----", "  1", ""], ["  y", "  ----", "  2", "end"]]
    assert out.getvalue().splitlines() == [*bold, *rest[0], *bold, *rest[1]]


def test_prose_is_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    out = io.StringIO()
    show(f"  {'word ' * 9}/a/path/{'x' * 40}\nshort", file=out)
    assert out.getvalue().splitlines() == [
        f"  {' '.join(['word'] * 7)}",
        "    word word",
        f"    /a/path/{'x' * 40}",
        "short",
    ]


def test_a_number_is_not_separated_from_its_unit() -> None:
    text = "of 100.3 MiB and 7 % in 1.5 s, 8 Bytes"
    assert _format.wrapped(text, 10) == ["of", "100.3 MiB", "and 7 % in", "1.5 s, 8", "Bytes"]
    assert _format.wrapped("a --long-option b", 10, "- ", "  ") == ["- a", "  --long-option", "  b"]


# The recorder starts nothing: its words are printed, with what is loaded by then.
WITNESS = """
import subprocess, sys
sys.argv = ["spanwise", "record", "-o", "x.swt", "--", "true"]
def error_line(*_, **__):
    print(sorted({"numpy", "spanwise.recordings.recording", "spanwise.plots"} & set(sys.modules)))
    sys.exit(0)
subprocess.Popen = error_line
from spanwise.__main__ import command
command()
"""


def run(text: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", text], cwd=cwd, capture_output=True, text=True, check=False
    )


def test_a_program_does_not_wait_for_numpy(tmp_path: Path) -> None:
    done = run(WITNESS, tmp_path)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("words", [["--help"], ["record", "--help"], ["fly"], []])
def test_help_and_errors_are_those_of_all_commands(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The parser of one command has the same help and errors as the parser of all commands."""
    monkeypatch.setenv("COLUMNS", "80")
    seen = []
    for parse in (main, make_parser().parse_args):
        with pytest.raises(SystemExit) as caught:
            parse(words)
        seen.append((caught.value.code, *capsys.readouterr()))
    assert seen[0] == seen[1] and any(seen[0][1:])


# --- completion -----------------------------------------------------------------------------------


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab", reason="shtab is not installed (extra: completion)")
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", shell])
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_know_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert [name for name in COMMANDS if name not in script(shell, capsys)] == []


def completed(folder: Path, line: str) -> set[str]:
    """Return bash's completions of the last word of a line."""
    words = line.split(" ")
    quoted = " ".join(f'"{word}"' for word in words)
    ask = (
        f"source {folder}/script; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1};"
        "_shtab_spanwise; printf '%s\\n' \"${COMPREPLY[@]}\""
    )
    done = subprocess.run(
        ["bash", "-c", ask], capture_output=True, text=True, check=False, cwd=folder
    )
    return set(done.stdout.split())


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = script("bash", capsys)
    if shutil.which("bash") is None:
        pytest.skip("bash is not installed")
    (tmp_path / "script").write_text(text)
    (tmp_path / "my.swt").touch()
    (tmp_path / "myfolder").mkdir()
    assert completed(tmp_path, "spanwise opt") == {"optimize"}
    assert completed(tmp_path, "spanwise ledger --val") == {"--valid-prefix"}
    assert completed(tmp_path, "spanwise replay --touch e") == {"ends"}
    assert completed(tmp_path, "spanwise ledger my") == {"my.swt", "myfolder"}
    assert completed(tmp_path, "spanwise build --output my") == {"myfolder"}


def test_without_shtab_the_error_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.import_module

    def absent(name: str) -> ModuleType:
        if name == "shtab":
            raise ImportError(name)
        return real(name)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", "bash"])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "--print-completion needs shtab: pip install 'spanwise[completion]'" in said


# --- manual pages ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def man(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("man")
    words = [sys.executable, str(ROOT / "scripts/man_pages.py"), str(folder)]
    subprocess.run(words, check=True)
    return sorted(folder.glob("*.1"))


def test_each_command_has_one(man: list[Path]) -> None:
    names = {f"spanwise-{name}.1" for name in COMMANDS}
    assert {page.name for page in man} == {"spanwise.1", *names}
    for page in man:
        text = page.read_text(encoding="utf-8")
        for part in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
            assert f".SH {part}\n" in text, page.name
        assert page.name == "spanwise.1" or ".SH EXAMPLE\n.nf\n  spanwise " in text, page.name
        assert "SUPPRESS" not in text and "%(" not in text
