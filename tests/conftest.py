# SPDX-License-Identifier: Apache-2.0
"""For all tests: children can be ended by signals; who shares a fixture shares a worker."""

import signal
from pathlib import Path

import pytest

HERE = Path(__file__).parent
# Folders whose tests share what takes long to make: an installation, a wheel, compiled programs.
TOGETHER = ("install", "malloc", "recorder")


def pytest_configure() -> None:
    """A shell's background jobs ignore SIGINT, what nohup starts SIGHUP; children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Of `-n 2 --dist loadgroup`: a folder of TOGETHER, else a file, is run by one worker."""
    for item in items:
        folder = item.path.relative_to(HERE).parts[0] if HERE in item.path.parents else ""
        group = folder if folder in TOGETHER else str(item.path)
        item.add_marker(pytest.mark.xdist_group(group))
