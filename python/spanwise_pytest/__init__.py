# SPDX-License-Identifier: Apache-2.0
"""A pytest marker: the limits of `spanwise check` for the allocations of a test.

    @pytest.mark.spanwise(max_waste="20%", max_resident="64M")
    def test_parse(): ...

A marked test runs under the recorder: fixtures are set up in this process and in the recorded one,
the test body runs only in the latter. pytest loads this module in every run, so it imports spanwise
only for marked tests.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

MARKER = (
    "spanwise(max_waste, max_resident, max_held, max_requested, table, at, ...): run the test in a"
    " recorded process of its own, and fail it if its allocations are above a limit; arguments"
    " are the options of `spanwise check --ignore-fixed`"
)


def pytest_configure(config: Any) -> None:
    """Register the marker."""
    config.addinivalue_line("markers", MARKER)


def pytest_pyfunc_call(pyfuncitem: Any) -> bool | None:
    """Run a marked test; return None for other tests, which pytest then runs."""
    marker = pyfuncitem.get_closest_marker("spanwise")
    if marker is None:
        return None
    run_marked(pyfuncitem, marker)
    return True


_PART = "SPANWISE_PYTEST_PART"
"""The environment variable with the recording's path; set only in the recorded process."""


def run_marked(item: Any, marker: Any) -> None:
    """Run the test in a recorded process, or only its body if this is that process."""
    words = [text for name, value in marker.kwargs.items() for text in _option(name, value)]
    if marker.args or not words:
        pytest.fail("spanwise: name the limits, such as max_waste='20%'", pytrace=False)
    if _PART in os.environ:
        _run_body(item, os.environ[_PART])
        return
    with tempfile.TemporaryDirectory(prefix="spanwise-pytest-") as folder:
        part = Path(folder) / "part" / _file_name(item.name)
        _record(item, part)
        _judge([str(part), "--ignore-fixed", *words])


def _file_name(test: str) -> str:
    """A recording's, by which ledgers call it: the test's own name."""
    return re.sub(r"[^\w.,=\[\]-]", "_", test, flags=re.ASCII)[:100] + ".swt"


def _option(name: str, value: object) -> list[str]:
    """Return the option of an argument: max_waste="20%" is --max-waste=20%; True has no value."""
    option = f"--{name.replace('_', '-')}"
    return [option] if value is True else [f"{option}={value}"]


def _run_body(item: Any, part: str) -> None:
    from spanwise import recording  # noqa: PLC0415

    arguments = {name: item.funcargs[name] for name in item._fixtureinfo.argnames}
    with recording(part, own=True):
        item.obj(**arguments)


def _record(item: Any, part: Path) -> None:
    """Run only this test under the recorder, which writes its objects to `part`."""
    from spanwise import errors  # noqa: PLC0415
    from spanwise.recordings.recorder import RecordOptions, run_recorded  # noqa: PLC0415

    part.parent.mkdir()
    folder = part.parents[1]
    output = folder / "output.txt"
    environment = {**os.environ, _PART: str(part)}
    try:
        with output.open("wb") as stdout:
            outcome = run_recorded(
                _words(item),
                folder / "whole.swt",
                RecordOptions(
                    stacks=0, env=environment, cwd=item.config.invocation_params.dir, stdout=stdout
                ),
            )
    except errors.UnsupportedError as error:
        pytest.skip(f"spanwise: {error}")
    text = output.read_text(encoding="utf-8", errors="replace")
    if outcome.status:
        pytest.fail(f"{item.nodeid} in the recorded process:\n{text}", pytrace=False)
    if not part.is_file():
        pytest.skip("spanwise: the test was skipped in the recorded process")


def _words(item: Any) -> list[str]:
    """Return the command that runs the test."""
    config = item.config
    plugins = ["-p", "no:cacheprovider"]
    if config.pluginmanager.hasplugin("xdist"):
        plugins += ["-n0"]
    settings = ["-c", str(config.inipath)] if config.inipath is not None else []
    root = ["--rootdir", str(config.rootpath)]
    test = f"{config.rootpath / item.nodeid.partition('::')[0]}::{item.nodeid.partition('::')[2]}"
    return [sys.executable, "-m", "pytest", "-q", *plugins, *settings, *root, test]


def _judge(words: Sequence[str]) -> None:
    """Run `spanwise check`; fail with its output."""
    from spanwise.__main__ import main  # noqa: PLC0415

    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status = main(["check", *words])
        except SystemExit as error:
            status = int(error.code or 0)
    if status:
        pytest.fail((out.getvalue() + err.getvalue()).strip(), pytrace=False)
