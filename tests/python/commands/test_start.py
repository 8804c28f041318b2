# SPDX-License-Identifier: Apache-2.0
"""Modules that a command loads, shell completion, manual pages."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from spanwise.__main__ import main
from spanwise.commands import COMMANDS

from tests.python.helpers import ROOT

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
def test_help_and_errors_are_those_of_all_commands(words: list[str], tmp_path: Path) -> None:
    """The parser of one command has the same help and errors as the parser of all commands."""
    alone = [sys.executable, "-m", "spanwise", *words]
    both = f"""
import sys
from spanwise.__main__ import make_parser
make_parser().parse_args({words!r})
"""
    environment = {**os.environ, "COLUMNS": "80"}
    first, second = (
        subprocess.run(
            one, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        for one in (alone, [sys.executable, "-c", both])
    )
    assert (first.returncode, first.stdout, first.stderr) == (
        second.returncode,
        second.stdout,
        second.stderr,
    )


# --- completion -----------------------------------------------------------------------------------


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab", reason="shtab is not installed (extra: completion)")
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", shell])
    assert end.value.code == 0
    return capsys.readouterr().out


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


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_know_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for command in COMMANDS:
        assert command in text


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
