# SPDX-License-Identifier: Apache-2.0
"""Runs commands of `spanwise` in forks of a process that has already imported it.

Short commands spend most of their time on the interpreter's start and imports. So one process
imports `spanwise` and forks for each command; the fork ends as an interpreter ends.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SECONDS = 600
"""A command that takes longer is ended by a signal."""


class CommandServer:
    """Runs commands one after the other; its process ends with the one that made it."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, words: Sequence[str | Path], cwd: Path | None
    ) -> subprocess.CompletedProcess[str]:
        """As `python -m spanwise WORDS` with the environment of now; its status is not judged."""
        asked = [*map(str, words)]
        with tempfile.TemporaryDirectory(prefix="spanwise-command-") as folder:
            out, err = Path(folder, "out"), Path(folder, "err")
            request = {
                "words": asked,
                "cwd": str(cwd or Path.cwd()),
                "environment": dict(os.environ),
                "outputs": [str(out), str(err)],
            }
            assert self._process.stdin is not None and self._process.stdout is not None
            print(json.dumps(request), file=self._process.stdin, flush=True)
            status = int(self._process.stdout.readline())
            said = (out.read_text(), err.read_text())
        return subprocess.CompletedProcess(["spanwise", *asked], status, *said)


def _become(request: dict[str, Any]) -> None:
    """Give a fork the state of a process that was started for the request."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environment"])
    places = [(os.devnull, os.O_RDONLY)]
    places += [(name, os.O_WRONLY | os.O_CREAT) for name in request["outputs"]]
    for descriptor, (name, flags) in enumerate(places):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["spanwise", *request["words"]]
    signal.alarm(SECONDS)


def _serve() -> None:
    """Answer each request, a line of standard input, with a line that has the exit status."""
    import spanwise  # noqa: PLC0415  tests do without
    from spanwise.__main__ import command, make_parser  # noqa: PLC0415

    make_parser()  # so that no fork has to load its command, or a public name
    for name in spanwise.__all__:
        getattr(spanwise, name)
    with os.fdopen(os.dup(0)) as requests, os.fdopen(os.dup(1), "w") as answers:
        for line in iter(requests.readline, ""):
            child = os.fork()
            if child == 0:
                _become(json.loads(line))
                command()
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), file=answers, flush=True)


if __name__ == "__main__":
    _serve()
