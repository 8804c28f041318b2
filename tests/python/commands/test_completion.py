# SPDX-License-Identifier: Apache-2.0
"""What a shell completes after `spanwise --print-completion`; one default table for all."""

from __future__ import annotations

import argparse
import importlib
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest
from spanwise.__main__ import COMMANDS, main, make_parser


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab", reason="shtab is not installed (extra: completion)")
    with pytest.raises(SystemExit) as end:
        main(["--print-completion", shell])
    assert end.value.code == 0
    return capsys.readouterr().out


def completed(folder: Path, line: str) -> set[str]:
    """What bash offers for the last word of a line."""
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


def test_without_shtab_the_mend_is_told(
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


def test_one_default_table() -> None:
    """The library's own, wherever one table is taken and none is given."""
    defaults = {}
    (commands,) = (a for a in make_parser()._actions if isinstance(a, argparse._SubParsersAction))
    for name, parser in commands.choices.items():
        for action in parser._actions:
            if "--table" in action.option_strings and not action.required:
                defaults[name] = action.default
    one = {name: table for name, table in defaults.items() if table is not None}
    takers = ("classes", "explain", "ledger", "report", "flame", "export", "check", "diff")
    assert one == dict.fromkeys(takers, "c16")
    assert set(defaults) - set(one) == {"run", "compare", "optimize", "replay", "sweep"}
